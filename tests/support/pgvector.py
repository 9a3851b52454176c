"""What tests do where pgvector of their PostgreSQL server does not run on this CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.databases import SERVER_OF_USER
from weftline.storage.sql.dialects.postgres import PostgresDatabase

sys.path.append(str(Path(__file__).parents[2] / "scripts"))

from build_pgvector import LACKING, runs_here

# A server of the user's has a pgvector of its own.
USABLE = bool(SERVER_OF_USER) or runs_here()
needs_pgvector = pytest.mark.skipif(not USABLE, reason=LACKING)


def search_in_replicas_if_unusable() -> None:
    """Where pgvector is unusable, search PostgreSQL's vectors in index replicas, as SQLite's are."""
    if not USABLE:
        PostgresDatabase.vector_search = lambda *_: None  # type: ignore[method-assign,assignment,return-value]
