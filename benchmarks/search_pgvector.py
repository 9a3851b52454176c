"""Search as a collection grows, with vectors in PostgreSQL; search_scale measures the same with vectors in files.

Sizes are WEFTLINE_BENCH_PGVECTOR, such as ``100000,1000000``; the largest is measured in one tenant and in ten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness import in_subprocess
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.search_scale import FEW_SEARCHES, SEARCHES, TENANTS, measured, sizes_asked
from benchmarks.servers import folder
from benchmarks.wire import run_async

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness import Row


def run(*, quick: bool) -> list[Row]:
    sizes = sizes_asked("WEFTLINE_BENCH_PGVECTOR", "200" if quick else "100000,1000000")
    searches = FEW_SEARCHES if quick else SEARCHES
    rows = [row for size in sizes for row in in_subprocess(_in_postgres, size, 1, searches)]
    return [*rows, *in_subprocess(_in_postgres, max(sizes), TENANTS, searches)]


def _in_postgres(size: int, tenants: int, searches: int) -> list[Row]:
    with postgres_server() as server, folder() as data:
        return run_async(_on(server, data, size, tenants, searches))


async def _on(server: str, data: Path, size: int, tenants: int, searches: int) -> list[Row]:
    url = await postgres_database(server, "grown")
    return await measured("search_pgvector", url, data, size, tenants, searches)
