"""Changes a collection and compares its replicas with a reference model."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from support.collection_model import DIMENSIONS, CollectionModel, NamedCaller, check_nearest, check_view, random_chunk
from weftline.app.search.replica import Indexes
from weftline.indexing.collections import IndexedChunk, NewChunk
from weftline.indexing.sql import CollectionStore
from weftline.search.model import CollectionQuery
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from support.world import World
    from weftline.app.search.replica import Alarm
    from weftline.kernel.transaction import Transaction

COLLECTION, MODEL, OTHER_MODEL = "domain:handbook", "m", "n"
ANN = NamedCaller("a")


def new_chunk(chunk: IndexedChunk) -> NewChunk:
    known = {name: getattr(chunk, name) for name in IndexedChunk.__struct_fields__ if name not in {"number", "vector"}}
    return NewChunk(**known, start=0, end=1, digest=b"d", text="text")


class CollectionWriter:
    """Adds and removes chunks of a collection, and keeps a model of what it must hold."""

    def __init__(self, world: World, indexes: Indexes) -> None:
        self._world = world
        self.indexes = indexes
        self.plain = CollectionModel()
        self.random = np.random.default_rng(7)
        self.last = 0

    async def change(self, work: Callable[[CollectionStore], Any]) -> Any:
        async def run(transaction: Transaction) -> Any:
            return await work(CollectionStore(transaction))

        return await self._world.app.database.write(Scope(self._world.tenant), run)

    async def add(self, count: int, **given: Any) -> Sequence[int]:
        made = [random_chunk(self.random, 0, ordinal=self.last + place, **given) for place in range(count)]
        made = [chunk for chunk in made if chunk.vector]
        vectors = {MODEL: [chunk.vector or b"" for chunk in made]}
        numbers = await self.change(lambda store: store.add(COLLECTION, [new_chunk(chunk) for chunk in made], vectors))
        self.last += count
        for number, chunk in zip(numbers, made, strict=True):
            fields = {name: getattr(chunk, name) for name in IndexedChunk.__struct_fields__} | {"number": number}
            self.plain.chunks[number] = IndexedChunk(**fields)
        return numbers

    async def remove(self, numbers: Sequence[int]) -> None:
        await self.change(lambda store: store.remove(COLLECTION, numbers))
        for number in numbers:
            self.plain.chunks.pop(number, None)

    async def check(
        self,
        query: CollectionQuery = CollectionQuery(COLLECTION),
        caller: NamedCaller = ANN,
        model: str = MODEL,
    ) -> Any:
        view = await self.indexes.open(self._world.tenant, query, caller, model)
        visible = self.plain.visible(query, caller)
        check_view(view, visible)
        question = self.random.standard_normal(DIMENSIONS).astype(np.float32)
        await check_nearest(view, visible, question / np.linalg.norm(question))
        return view


@asynccontextmanager
async def open_indexes(world: World, folder: Path | None, alarm: Alarm | None = None) -> AsyncIterator[Indexes]:
    indexes = Indexes(world.app.database, folder, alarm)
    try:
        yield indexes
    finally:
        await indexes.close()


async def wait_for_writes(indexes: Indexes) -> None:
    """Wait for background writes of segments."""
    while indexes._tasks._running:
        await asyncio.gather(*indexes._tasks._running)


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.seg"))


def with_fields(chunk: IndexedChunk, **given: Any) -> IndexedChunk:
    return IndexedChunk(**({name: getattr(chunk, name) for name in IndexedChunk.__struct_fields__} | given))
