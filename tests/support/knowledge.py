"""Knowledge helpers: a cheap embedder, and functions to fill and search a domain."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from support.jobs import pause_jobs
from weftline.indexing.collections import domain_collection
from weftline.indexing.embeddings import Model
from weftline.indexing.sql import CollectionStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from support.world import Caller, World
    from weftline.indexing.collections import Chunk
    from weftline.indexing.embeddings import Purpose

DIMENSIONS = 16
HANDBOOK = "handbook"


class QuickEmbedder:
    """Makes vectors from a text's hash, and records the texts."""

    def __init__(self) -> None:
        self.model = Model("quick", DIMENSIONS, 512)
        self.embedded: list[str] = []

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> np.ndarray:
        del purpose
        self.embedded += texts
        return np.array([self._vector(text) for text in texts], dtype=np.float32).reshape(-1, DIMENSIONS)

    async def release_idle(self, seconds: float) -> None:
        """Nothing to release."""

    async def close(self) -> None:
        """Nothing to close."""

    @staticmethod
    def _vector(text: str) -> np.ndarray:
        numbers = np.frombuffer(hashlib.sha256(text.encode()).digest()[:DIMENSIONS], dtype=np.uint8) - 127.5
        return numbers / np.linalg.norm(numbers)


def embed_quickly(monkeypatch: pytest.MonkeyPatch) -> QuickEmbedder:
    """Have every App use the quick embedder and index on demand only."""
    embedder = QuickEmbedder()
    monkeypatch.setattr("weftline.app.app.configured_embedders", lambda _settings: [embedder])
    pause_jobs(monkeypatch, "knowledge.reindex", "knowledge.ingest")
    return embedder


async def domain(caller: Caller, name: str = HANDBOOK, **fields: Any) -> Any:
    return await caller.call("knowledge.create_domain", domain=name, **fields)


async def put(caller: Caller, document_id: str, text: str, **fields: Any) -> Any:
    given = {"domain": HANDBOOK, "document_id": document_id, "text": text, **fields}
    return await caller.call("knowledge.add_document", **given)


async def document(caller: Caller, document_id: str, domain: str = HANDBOOK) -> Any:
    return await caller.call("knowledge.get_document", domain=domain, document_id=document_id)


async def chunks(world: World, document_id: str, domain: str = HANDBOOK) -> Sequence[Chunk]:
    """Return all chunks of a document in the collection, of any version."""
    collection = domain_collection(domain)
    return await world.app.database.read(
        Scope(world.tenant), lambda tx: CollectionStore(tx).of_item(collection, domain, document_id)
    )


def long_text(sections: int) -> str:
    """Return markdown that is split into about ``sections`` chunks."""
    return "\n".join(
        f"# Section {each}\n\n" + f"Fact {each} is given here in some words. " * 40 for each in range(sections)
    )
