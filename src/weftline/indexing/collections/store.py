"""Storage ports of collections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from weftline.indexing.collections.model import (
    Chunk,
    CollectionState,
    IndexedChunk,
    NearChunk,
    NewChunk,
    PackedVectors,
    Removal,
    VectorUpdate,
)


class CollectionStore(Protocol):
    """Collections of the transaction's tenant. A write locks its collection until the transaction ends."""

    async def names(self) -> Sequence[str]:
        """Return the names of all collections."""
        ...

    async def count_chunks(self) -> int:
        """Return how many chunks all collections have."""
        ...

    async def state(self, collection: str) -> CollectionState: ...

    async def lock(self, collection: str) -> None:
        """Lock a collection against other writers until the transaction ends."""
        ...

    async def add(
        self, collection: str, chunks: Sequence[NewChunk], vectors: Mapping[str, Sequence[bytes | None]]
    ) -> Sequence[int]:
        """Add chunks with their vectors of each model, as far as they have one yet; return their numbers."""
        ...

    async def remove(self, collection: str, numbers: Sequence[int]) -> int:
        """Remove chunks; return how many existed."""
        ...

    async def remove_item(self, collection: str, place: str, item: str, *, before: int | None = None) -> int:
        """Remove an item, or only its versions before this one."""
        ...

    async def remove_place(self, collection: str, place: str) -> None:
        """Remove everything of a deleted place; large amounts are removed in the background.

        Until then the place must not be reused.
        """
        ...

    async def remove_collection(self, collection: str) -> None:
        """Remove a collection with its vectors; large amounts are removed in the background.

        Until then the name must not be reused.
        """
        ...

    async def prune_changes(self, collection: str) -> bool:
        """Delete a batch of change records that are no longer retained; return whether more may remain."""
        ...

    async def find(self, collection: str, numbers: Sequence[int]) -> Sequence[Chunk]:
        """Return the existing chunks, in order of their numbers."""
        ...

    async def of_item(self, collection: str, place: str, item: str, version: int | None = None) -> Sequence[Chunk]:
        """Return the chunks of an item, in order: of one version, or of all."""
        ...

    async def items_of(self, collection: str, place: str) -> dict[str, set[int]]:
        """Return the items of a place, with the versions that they are indexed in."""
        ...

    async def numbers_of(self, collection: str, place: str, item: str, version: int) -> Sequence[int]:
        """Return the numbers of the chunks of one version of an item."""
        ...

    async def numbers_of_items(self, collection: str, place: str, items: Sequence[str]) -> Sequence[int]:
        """Return the numbers of the chunks of items of a place, in any version."""
        ...

    async def versions_of(self, collection: str, numbers: Sequence[int]) -> Mapping[int, tuple[str, str, int]]:
        """Return place, item and version of chunks, by number."""
        ...

    async def chunks_at(
        self, collection: str, place: str, positions: Sequence[tuple[str, int, int]]
    ) -> Sequence[Chunk]:
        """Return the chunks at positions of a place: item, version and ordinal."""
        ...

    async def newest(self, collection: str, places: Sequence[str], limit: int) -> Sequence[Chunk]:
        """Return the latest chunks of these places, newest first."""
        ...

    async def chunks_after(self, collection: str, number: int, limit: int, model: str | None) -> Sequence[IndexedChunk]:
        """Return the indexed columns of the chunks after a number, with vectors of the model if given.

        A chunk without a vector of that model has None.
        """
        ...

    async def chunks_between(self, collection: str, first: int, last: int, model: str) -> Sequence[IndexedChunk]:
        """Return the indexed columns of the chunks between two numbers, with vectors of a model."""
        ...

    async def removals_after(self, collection: str, number: int, limit: int) -> Sequence[Removal]: ...

    async def vector_updates_after(
        self, collection: str, model: str, number: int, limit: int
    ) -> Sequence[VectorUpdate]:
        """Return the chunks that got vectors of a model later, after a number."""
        ...

    async def vectors(self, collection: str, model: str, numbers: Sequence[int]) -> Mapping[int, bytes]: ...

    async def add_vectors(self, collection: str, model: str, vectors: Mapping[int, bytes]) -> int:
        """Add vectors of another model to existing chunks; return how many."""
        ...

    async def without_vector(self, collection: str, model: str, after: int, limit: int) -> Sequence[Chunk]:
        """Return chunks after a number that should have a vector of a model and have none."""
        ...

    async def count_vectors(self, collection: str, model: str) -> int: ...

    async def drop_vectors(self, collection: str, model: str, limit: int) -> int:
        """Delete up to ``limit`` vectors of a model; return how many."""
        ...


class VectorSearch(Protocol):
    """Nearest-neighbour search of one collection and model in the database. Vectors are in half precision."""

    async def nearest(self, vector: bytes, limit: int) -> Sequence[NearChunk]:
        """Return the nearest chunks, nearest first; approximate for large collections."""
        ...

    async def nearest_among(self, vector: bytes, limit: int, numbers: Sequence[int]) -> Sequence[NearChunk]:
        """Return the nearest of these chunks, nearest first; exact."""
        ...

    async def cosines(self, vectors: Sequence[bytes], numbers: Sequence[int]) -> Mapping[int, Sequence[float]]:
        """Return the cosines of these chunks with each of the vectors, by number."""
        ...

    async def find(self, numbers: Sequence[int], dimensions: int) -> PackedVectors:
        """Return the vectors of these chunks that have these dimensions."""
        ...

    async def prepare(self) -> bool:
        """Build the vector index; return whether it is ready. False if another process is building it.

        Readers and writers do not wait for it.
        """
        ...

    async def discard(self) -> None:
        """Drop the vector index: these vectors are no longer searched."""
        ...
