"""What collections need of storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from weft.capabilities.indexing.collections.model import (
    Chunk,
    CollectionState,
    IndexedChunk,
    NearChunk,
    NewChunk,
    PackedVectors,
    Removal,
    Return,
)


class CollectionStore(Protocol):
    """Collections of the transaction's tenant. A write locks its collection until the transaction ends."""

    async def names(self) -> Sequence[str]:
        """Return the collections there are."""
        ...

    async def state(self, collection: str) -> CollectionState: ...

    async def lock(self, collection: str) -> None:
        """Keep other writers of a collection waiting until the transaction ends: what is looked at now stays so."""
        ...

    async def add(
        self, collection: str, chunks: Sequence[NewChunk], vectors: Mapping[str, Sequence[bytes]]
    ) -> Sequence[int]:
        """Put chunks in a collection, with a vector of each for every model named; return their numbers."""
        ...

    async def remove(self, collection: str, numbers: Sequence[int]) -> int:
        """Take chunks off a collection; return how many were there."""
        ...

    async def remove_item(self, collection: str, place: str, item: str, *, before: int | None = None) -> int:
        """Take an item off a collection: all of it, or its versions before this one."""
        ...

    async def remove_place(self, collection: str, place: str) -> None:
        """Take everything off a collection that belongs to a place that is gone: of very much, the rest goes by and by.

        Until then nothing may come to the same place.
        """
        ...

    async def remove_collection(self, collection: str) -> None:
        """Take a whole collection away, with its vectors: of very much, the rest goes by and by, and counts no more.

        Until then nothing may come to a collection of this name.
        """
        ...

    async def forget_changes(self, collection: str) -> bool:
        """Drop a few of the removals and returns that need not be told any more; tell whether there may be more."""
        ...

    async def find(self, collection: str, numbers: Sequence[int]) -> Sequence[Chunk]:
        """Return those of the chunks that are there, in order of their numbers."""
        ...

    async def of_item(self, collection: str, place: str, item: str, version: int | None = None) -> Sequence[Chunk]:
        """Return the chunks of an item, in order: of one version, or of all."""
        ...

    async def numbers_of(self, collection: str, place: str, item: str, version: int) -> Sequence[int]:
        """Return the numbers of the chunks of one version of an item."""
        ...

    async def stretch(
        self, collection: str, place: str, item: str, version: int, first: int, last: int
    ) -> Sequence[Chunk]:
        """Return the chunks of one version of an item from one to another, by where they stand in it."""
        ...

    async def newest(self, collection: str, places: Sequence[str], limit: int) -> Sequence[Chunk]:
        """Return the latest chunks of these places, newest first."""
        ...

    async def standing_after(
        self, collection: str, number: int, limit: int, model: str | None
    ) -> Sequence[IndexedChunk]:
        """Return what a replica keeps of the chunks after a number, with vectors of a model if one is named.

        What has no vector of that model yet comes without.
        """
        ...

    async def standing_between(self, collection: str, first: int, last: int, model: str) -> Sequence[IndexedChunk]:
        """Return what a copy of the collection keeps of the chunks between two numbers, with vectors of a model."""
        ...

    async def removals_after(self, collection: str, number: int, limit: int) -> Sequence[Removal]: ...

    async def returns_after(self, collection: str, model: str, number: int, limit: int) -> Sequence[Return]:
        """Return which chunks got vectors of a model behind a number, after they came."""
        ...

    async def vectors(self, collection: str, model: str, numbers: Sequence[int]) -> Mapping[int, bytes]: ...

    async def add_vectors(self, collection: str, model: str, vectors: Mapping[int, bytes]) -> int:
        """Add vectors of a further model to chunks that are still there; return how many."""
        ...

    async def without_vector(self, collection: str, model: str, after: int, limit: int) -> Sequence[Chunk]:
        """Return chunks behind a number that have no vector of a model."""
        ...

    async def count_vectors(self, collection: str, model: str) -> int: ...

    async def drop_vectors(self, collection: str, model: str, limit: int) -> int:
        """Drop that many vectors of a model; return how many were dropped."""
        ...


class VectorSearch(Protocol):
    """The vectors of one collection and model, where a database itself finds the nearest. Vectors are in halves."""

    async def nearest(self, vector: bytes, limit: int) -> Sequence[NearChunk]:
        """Return the nearest chunks, the nearest first; of many, a few may be missed."""
        ...

    async def nearest_among(self, vector: bytes, limit: int, numbers: Sequence[int]) -> Sequence[NearChunk]:
        """Return the nearest of these chunks, the nearest first; none is missed."""
        ...

    async def cosines(self, vectors: Sequence[bytes], numbers: Sequence[int]) -> Mapping[int, Sequence[float]]:
        """Return the cosines of these chunks with each of the vectors, by their numbers."""
        ...

    async def find(self, numbers: Sequence[int], dimensions: int) -> PackedVectors:
        """Return the vectors of these chunks, those that have so many dimensions."""
        ...

    async def prepare(self) -> bool:
        """Have the nearest of many found fast, and tell whether they are: not if another process is still at it.

        Nobody else waits for it meanwhile.
        """
        ...

    async def discard(self) -> None:
        """Remove what ``prepare`` made: these vectors are not searched any more."""
        ...
