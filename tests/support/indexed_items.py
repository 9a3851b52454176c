"""Indexed session items: a scripted embedder, and helpers that read what is indexed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from weftline.indexing.embeddings import Model
from weftline.kernel.job_store import JobStore
from weftline.search.session_cursor import EMBEDDING_JOB, VectorBacklog
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.world import World

MODEL = "scripted"


class ScriptedEmbeddings:
    """Returns vectors of eight dimensions made from a text's hash, and records the texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.batches: list[int] = []

    def off_reason(self) -> str:
        return ""

    def models(self) -> Sequence[Model]:
        return [Model(MODEL, 8, 256)]

    async def of_passages(
        self, tenant: str, texts: Sequence[str], model: str, *, digests: Sequence[bytes], reembed: bool = False
    ) -> list[bytes]:
        del tenant, model, digests, reembed
        self.texts += texts
        self.batches.append(len(texts))
        return [vector_of(text) for text in texts]


def vector_of(text: str) -> bytes:
    # No float16 of these is infinite or NaN: the byte with the exponent stays small.
    digest = hashlib.sha256(text.encode()).digest()
    return bytes(byte & 0x3B if place % 2 else byte for place, byte in enumerate(digest[:16]))


def use_scripted_embeddings(world: World) -> ScriptedEmbeddings:
    """Index the world's sessions without a model."""
    embeddings: Any = ScriptedEmbeddings()
    world.app.session_indexing._embeddings = world.app.session_vectors._embeddings = embeddings
    world.app.lease_runner.rest = 0
    return embeddings


async def indexed_texts(world: World, collection: str = "sessions", tenant: str | None = None) -> dict[str, list[str]]:
    """Return the indexed texts of a collection, by place and item, in order."""
    rows = await world.rows(
        "SELECT place, item, text FROM chunks WHERE tenant = $1 AND collection = $2 "
        "ORDER BY place, item, ordinal, number",
        tenant or world.tenant,
        collection,
    )
    found: dict[str, list[str]] = {}
    for place, item, text in rows:
        found.setdefault(f"{place}:{item}", []).append(text)
    return found


async def check_index_complete(world: World) -> None:
    """Check that chunk counts are correct, and that exactly the existing chunks have vectors."""
    assert not await unembedded(world)
    await check_index_consistent(world)


async def unembedded(world: World) -> set[tuple[str, int]]:
    """Return the chunks that should have a vector and have none, as collection and number."""
    chunks = await world.rows("SELECT collection, number FROM chunks WHERE tenant = $1 AND semantic = 1", world.tenant)
    vectors = await world.rows("SELECT collection, number FROM chunk_vectors WHERE tenant = $1", world.tenant)
    return {*map(tuple, chunks)} - {*map(tuple, vectors)}


async def check_index_consistent(world: World) -> None:
    """Check that chunk counts are correct, no vector is left over, and what lacks a vector is in the backlog."""
    chunks = await world.rows("SELECT collection, number FROM chunks WHERE tenant = $1", world.tenant)
    vectors = await world.rows("SELECT collection, number FROM chunk_vectors WHERE tenant = $1", world.tenant)
    assert {*map(tuple, vectors)} <= {*map(tuple, chunks)}
    progress = await world.app.database.read(Scope(world.tenant), lambda tx: JobStore(tx).progress(EMBEDDING_JOB))
    first = VectorBacklog.of(progress).first
    assert all(first[collection] <= number for collection, number in await unembedded(world))
    counted = await world.rows("SELECT collection, chunks FROM collections WHERE tenant = $1", world.tenant)
    assert dict(map(tuple, counted)) == {
        collection: sum(row[0] == collection for row in chunks) for collection in {row[0] for row in counted}
    }
