"""Assembly of prompts in PostgreSQL; ``assembly`` measures the same in SQLite. Sizes are WEFTLINE_BENCH_ITEMS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.assembly import measured, run_sizes
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import folder
from benchmarks.wire import run_async

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.assembly import Effort
    from benchmarks.harness import Row


def run(*, quick: bool) -> list[Row]:
    return run_sizes(_in_postgres, quick=quick)


def _in_postgres(size: int, effort: Effort) -> list[Row]:
    with postgres_server() as server, folder() as data:
        return run_async(_on(server, data, size, effort))


async def _on(server: str, data: Path, size: int, effort: Effort) -> list[Row]:
    url = await postgres_database(server, "assembly")
    return await measured(f"assembly_postgres.{size}", url, data, size, effort)
