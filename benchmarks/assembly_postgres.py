"""Assembly of prompts in PostgreSQL; ``assembly`` measures the same in SQLite. Sizes are WEFT_BENCH_ITEMS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.assembly import FULL, QUICK, measured
from benchmarks.harness import in_subprocess
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.search_scale import sizes_asked
from benchmarks.servers import folder
from benchmarks.wire import run_async

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.assembly import Effort
    from benchmarks.harness import Row


def run(*, quick: bool) -> list[Row]:
    sizes = sizes_asked("WEFT_BENCH_ITEMS", "200" if quick else "1000,100000")
    return [row for size in sizes for row in in_subprocess(_in_postgres, size, QUICK if quick else FULL)]


def _in_postgres(size: int, effort: Effort) -> list[Row]:
    with postgres_server() as server, folder() as data:
        return run_async(_on(server, data, size, effort))


async def _on(server: str, data: Path, size: int, effort: Effort) -> list[Row]:
    url = await postgres_database(server, "assembly")
    return await measured(f"assembly_postgres.{size}", url, data, size, effort)
