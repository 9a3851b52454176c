"""Search collections in SQL: numbered chunks with their vectors."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, TypeVar

import msgspec

from weftline.history.erasure import DeferredDeletions, PendingDeletion
from weftline.indexing.collections import Chunk, CollectionState, IndexedChunk, Removal, VectorUpdate
from weftline.indexing.embeddings import VectorStore
from weftline.kernel.transaction import BATCH_SIZE, SqlStore, flat_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.indexing.collections import NewChunk
    from weftline.kernel.transaction import Row


# Rows deleted per table and transaction: small enough that concurrent writers do not notice.
DELETE_BATCH_SIZE = 1_000


# SQL store of search collections: numbered chunks with their vectors, and the log of removals.

NumberOrText = TypeVar("NumberOrText", int, str)

_POSITIONS = ", ".join(
    f"(CAST(${at} AS TEXT), CAST(${at + 1} AS BIGINT), CAST(${at + 2} AS BIGINT))"
    for at in range(4, 4 + 3 * BATCH_SIZE, 3)
)
_CHUNK = """
SELECT number, source, place, scope, item, version, ordinal, start_at, end_at, kind, heading, speaker, timestamp,
       tokens, importance, pinned, metadata, terms, text, digest, entities, semantic
FROM chunks
"""
_CHUNKS_AT = f"""
{_CHUNK} WHERE tenant = $1 AND collection = $2 AND place = $3 AND (item, version, ordinal) IN (VALUES {_POSITIONS})
"""
_INDEXED_COLUMNS = """
SELECT chunks.number, source, place, scope, item, version, ordinal, kind, speaker, timestamp, tokens, importance,
       pinned, terms, entities
"""
_JOIN_VECTORS = """
FROM chunks LEFT JOIN chunk_vectors v
ON v.tenant = chunks.tenant AND v.collection = chunks.collection AND v.model = $1 AND v.number = chunks.number
"""
_SCAN_BATCH_SIZE = 200
_GENERATION_BITS = 62
# Beyond every number and version.
_MAX_NUMBER = 2**62
_PINNED = IndexedChunk.__struct_fields__.index("pinned")

_COUNTED = """
SELECT (SELECT COUNT(*) FROM chunks WHERE tenant = $1 AND collection = $2), COALESCE(MAX(number), 0) FROM (
    SELECT MAX(number) AS number FROM chunks WHERE tenant = $1 AND collection = $2
    UNION ALL SELECT MAX(number) FROM chunk_removals WHERE tenant = $1 AND collection = $2
    UNION ALL SELECT MAX(number) FROM chunk_vector_updates WHERE tenant = $1 AND collection = $2) AS last
"""


class CollectionStore(SqlStore):
    """Collections of the transaction's tenant. A write locks its collection until the transaction ends."""

    async def names(self) -> Sequence[str]:
        """Return the names of all collections."""
        rows = await self._tx.all(
            "SELECT collection FROM collections WHERE tenant = $1 ORDER BY collection", self._tenant
        )
        return [row[0] for row in rows]

    async def count_chunks(self) -> int:
        """Return how many chunks all collections have."""
        row = await self._tx.one("SELECT COALESCE(SUM(chunks), 0) FROM collections WHERE tenant = $1", self._tenant)
        return 0 if row is None else int(row[0])

    async def state(self, collection: str) -> CollectionState:
        row = await self._tx.one(
            "SELECT number, chunks, generation, pruned_up_to FROM collections WHERE tenant = $1 AND collection = $2",
            self._tenant,
            collection,
        )
        return CollectionState() if row is None else CollectionState(*row)

    async def lock(self, collection: str) -> None:
        """Lock a collection against other writers until the transaction ends."""
        await self._reserve_numbers(collection, 0, more=0)

    async def repair(self, collection: str) -> bool:
        """Correct the numbers of a collection that differ from its chunks; return whether they did.

        Its new generation makes every replica read it from the start.
        """
        await self.lock(collection)
        row = await self._tx.one(_COUNTED, self._tenant, collection)
        count, last = (0, 0) if row is None else map(int, row)
        state = await self.state(collection)
        if count == state.chunks and last <= state.number:
            return False
        await self._tx.run(
            "UPDATE collections SET number = $1, chunks = $2, generation = $3, pruned_up_to = $1 "
            "WHERE tenant = $4 AND collection = $5",
            max(last, state.number),
            count,
            secrets.randbits(_GENERATION_BITS),
            self._tenant,
            collection,
        )
        return True

    async def has_chunks(self, collection: str) -> bool:
        row = await self._tx.one(
            "SELECT 1 FROM chunks WHERE tenant = $1 AND collection = $2 LIMIT 1", self._tenant, collection
        )
        return row is not None

    async def add(
        self, collection: str, chunks: Sequence[NewChunk], vectors: Mapping[str, Sequence[bytes | None]]
    ) -> Sequence[int]:
        """Add chunks with their vectors of each model, as far as they have one yet; return their numbers."""
        if not chunks:
            return []
        first = await self._reserve_numbers(collection, len(chunks), more=len(chunks))
        numbers = range(first, first + len(chunks))
        await self._tx.many(
            """
            INSERT INTO chunks (tenant, collection, number, source, place, scope, item, version, ordinal, start_at,
                                end_at,
                                kind, heading, speaker, timestamp, tokens, importance, pinned, metadata, terms, text,
                                digest, entities, semantic)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
                    $23, $24)
            """,
            [
                (self._tenant, collection, *_values(number, chunk))
                for number, chunk in zip(numbers, chunks, strict=True)
            ],
        )
        for model, of_model in vectors.items():
            numbered = zip(numbers, of_model, strict=True)
            known = {number: vector for number, vector in numbered if vector is not None}
            await self._insert_vectors(collection, model, known)
        return numbers

    async def remove(self, collection: str, numbers: Sequence[int]) -> int:
        """Lock the collection first, so that a concurrent removal of the same chunk finds it deleted."""
        if not numbers:
            return 0
        await self._reserve_numbers(collection, 0, more=0)
        existing = await self._existing(collection, numbers)
        if existing:
            await self._delete(collection, existing)
            # Content that is no longer searchable leaves no cached embedding.
            await VectorStore(self._tx).delete_unreferenced([*existing.values()])
            first = await self._reserve_numbers(collection, len(existing), more=-len(existing))
            await self._tx.many(
                "INSERT INTO chunk_removals (tenant, collection, number, removed) VALUES ($1, $2, $3, $4)",
                [(self._tenant, collection, first + place, removed) for place, removed in enumerate(existing)],
            )
        return len(existing)

    async def remove_item(self, collection: str, place: str, item: str, *, before: int | None = None) -> int:
        """Remove an item, or only its versions before this one."""
        rows = await self._tx.all(
            """
            SELECT number FROM chunks
            WHERE tenant = $1 AND collection = $2 AND place = $3 AND item = $4 AND version < $5 ORDER BY number
            """,
            self._tenant,
            collection,
            place,
            item,
            _MAX_NUMBER if before is None else before,
        )
        return await self.remove(collection, [row[0] for row in rows])

    async def remove_place(self, collection: str, place: str) -> None:
        """Remove everything of a deleted place; large amounts are removed in the background.

        Until then the place must not be reused.
        """
        if await self.delete_place_batch(collection, place):
            await DeferredDeletions(self._tx).add(PendingDeletion(collection, place))

    async def remove_collection(self, collection: str) -> None:
        """Remove a collection with its vectors; large amounts are removed in the background.

        Until then the name must not be reused.
        """
        await self._tx.run("DELETE FROM collections WHERE tenant = $1 AND collection = $2", self._tenant, collection)
        if await self.delete_batch(collection):
            await DeferredDeletions(self._tx).add(PendingDeletion(collection))

    async def delete_place_batch(self, collection: str, place: str) -> bool:
        """Delete a batch of chunks of a place; return whether more may remain."""
        rows = await self._tx.all(
            """
            SELECT number FROM chunks WHERE tenant = $1 AND collection = $2 AND place = $3 AND item > ''
            ORDER BY place, item, version, ordinal LIMIT $4
            """,
            self._tenant,
            collection,
            place,
            DELETE_BATCH_SIZE,
        )
        await self.remove(collection, [row[0] for row in rows])
        return len(rows) == DELETE_BATCH_SIZE

    async def delete_batch(self, collection: str) -> bool:
        """Delete a batch of rows of a deleted collection; return whether more may remain."""
        cleared = [await self._delete_chunk_batch(collection), await self._delete_removals(collection, _MAX_NUMBER)]
        cleared += [
            await self.drop_vectors(collection, model, DELETE_BATCH_SIZE) for model in await self.models(collection)
        ]
        await self._delete_vector_updates(collection, _MAX_NUMBER)
        return DELETE_BATCH_SIZE in cleared

    async def prune_changes(self, collection: str) -> bool:
        """Delete a batch of change records that are no longer retained; return whether more may remain."""
        state = await self.state(collection)
        prune_up_to = state.pruned_up_to + state.prunable
        # The watermark never goes back, even if another process was faster.
        await self._tx.run(
            "UPDATE collections SET pruned_up_to = $1 WHERE tenant = $2 AND collection = $3 AND pruned_up_to < $1",
            prune_up_to,
            self._tenant,
            collection,
        )
        await self._delete_vector_updates(collection, prune_up_to)
        return await self._delete_removals(collection, prune_up_to) == DELETE_BATCH_SIZE

    async def find(self, collection: str, numbers: Sequence[int]) -> Sequence[Chunk]:
        """Return the existing chunks, in order of their numbers."""
        rows = await self._tx.all(
            _CHUNK + "WHERE tenant = $1 AND collection = $2 AND number {among}$3{end_among} ORDER BY number",
            self._tenant,
            collection,
            in_json(numbers),
        )
        return [_chunk(collection, row) for row in rows]

    async def versions_of(self, collection: str, numbers: Sequence[int]) -> dict[int, tuple[str, str, int]]:
        """Return place, item and version of chunks, by number."""
        rows = await self._tx.all(
            """
            SELECT number, place, item, version FROM chunks
            WHERE tenant = $1 AND collection = $2 AND number {among}$3{end_among}
            """,
            self._tenant,
            collection,
            in_json(numbers),
        )
        return {number: (place, item, version) for number, place, item, version in rows}

    async def of_item(self, collection: str, place: str, item: str, version: int | None = None) -> Sequence[Chunk]:
        """Return the chunks of an item, in order: of one version, or of all."""
        rows = await self._tx.all(
            _CHUNK
            + """
            WHERE tenant = $1 AND collection = $2 AND place = $3 AND item = $4 AND version = COALESCE($5, version)
            ORDER BY version, ordinal
            """,
            self._tenant,
            collection,
            place,
            item,
            version,
        )
        return [_chunk(collection, row) for row in rows]

    async def items_of(self, collection: str, place: str) -> dict[str, set[int]]:
        """Return the items of a place, with the versions that they are indexed in."""
        rows = await self._tx.all(
            "SELECT DISTINCT item, version FROM chunks WHERE tenant = $1 AND collection = $2 AND place = $3",
            self._tenant,
            collection,
            place,
        )
        items: dict[str, set[int]] = {}
        for item, version in rows:
            items.setdefault(item, set()).add(version)
        return items

    async def numbers_of(self, collection: str, place: str, item: str, version: int) -> Sequence[int]:
        """Return the numbers of the chunks of one version of an item."""
        rows = await self._tx.all(
            """
            SELECT number FROM chunks
            WHERE tenant = $1 AND collection = $2 AND place = $3 AND item = $4 AND version = $5 ORDER BY ordinal
            """,
            self._tenant,
            collection,
            place,
            item,
            version,
        )
        return [row[0] for row in rows]

    async def numbers_of_items(self, collection: str, place: str, items: Sequence[str]) -> Sequence[int]:
        """Return the numbers of the chunks of items of a place, in any version."""
        rows = await self._tx.all(
            """
            SELECT number FROM chunks
            WHERE tenant = $1 AND collection = $2 AND place = $3 AND item {among_texts}$4{end_among_texts}
            """,
            self._tenant,
            collection,
            place,
            in_json(items),
        )
        return [row[0] for row in rows]

    async def chunks_at(
        self, collection: str, place: str, positions: Sequence[tuple[str, int, int]]
    ) -> Sequence[Chunk]:
        """Return the chunks at positions of a place: item, version and ordinal."""
        found: dict[int, Chunk] = {}
        for batch in flat_batches(positions):
            rows = await self._tx.all(_CHUNKS_AT, self._tenant, collection, place, *batch)
            found |= {row[0]: _chunk(collection, row) for row in rows}
        return list(found.values())

    async def newest(self, collection: str, places: Sequence[str], limit: int) -> Sequence[Chunk]:
        """Return the latest chunks of these places, newest first."""
        wanted = set(places)
        found: list[Chunk] = []
        before = _MAX_NUMBER
        while len(found) < limit:
            rows = await self._tx.all(
                _CHUNK + "WHERE tenant = $1 AND collection = $2 AND number < $3 ORDER BY number DESC LIMIT $4",
                self._tenant,
                collection,
                before,
                _SCAN_BATCH_SIZE,
            )
            found += [_chunk(collection, row) for row in rows if row[2] in wanted]
            if len(rows) < _SCAN_BATCH_SIZE:
                break
            before = rows[-1][0]
        return found[:limit]

    async def chunks_after(self, collection: str, number: int, limit: int, model: str | None) -> Sequence[IndexedChunk]:
        """Return the indexed columns of the chunks after a number, with vectors of the model if given.

        A chunk without a vector of that model has None.
        """
        if model is None:
            rows = await self._tx.all(
                f"""
                {_INDEXED_COLUMNS}, NULL FROM chunks
                WHERE tenant = $1 AND collection = $2 AND number > $3 ORDER BY number LIMIT $4
                """,
                self._tenant,
                collection,
                number,
                limit,
            )
        else:
            rows = await self._tx.all(
                f"""
                {_INDEXED_COLUMNS}, vector {_JOIN_VECTORS}
                WHERE chunks.tenant = $2 AND chunks.collection = $3 AND chunks.number > $4
                ORDER BY chunks.number LIMIT $5
                """,
                model,
                self._tenant,
                collection,
                number,
                limit,
            )
        return [_indexed_chunk(row) for row in rows]

    async def chunks_between(self, collection: str, first: int, last: int, model: str) -> Sequence[IndexedChunk]:
        """Return the indexed columns of the chunks between two numbers, with vectors of a model."""
        rows = await self._tx.all(
            f"""
            {_INDEXED_COLUMNS}, vector {_JOIN_VECTORS}
            WHERE chunks.tenant = $2 AND chunks.collection = $3 AND chunks.number BETWEEN $4 AND $5
            ORDER BY chunks.number
            """,
            model,
            self._tenant,
            collection,
            first,
            last,
        )
        return [_indexed_chunk(row) for row in rows]

    async def removals_after(self, collection: str, number: int, limit: int) -> Sequence[Removal]:
        rows = await self._tx.all(
            """
            SELECT number, removed FROM chunk_removals
            WHERE tenant = $1 AND collection = $2 AND number > $3 ORDER BY number LIMIT $4
            """,
            self._tenant,
            collection,
            number,
            limit,
        )
        return [Removal(*row) for row in rows]

    async def vector_updates_after(
        self, collection: str, model: str, number: int, limit: int
    ) -> Sequence[VectorUpdate]:
        """Return the chunks that got vectors of a model later, after a number."""
        rows = await self._tx.all(
            """
            SELECT number, first, last FROM chunk_vector_updates
            WHERE tenant = $1 AND collection = $2 AND model = $3 AND number > $4 ORDER BY number LIMIT $5
            """,
            self._tenant,
            collection,
            model,
            number,
            limit,
        )
        return [VectorUpdate(*row) for row in rows]

    async def vectors(self, collection: str, model: str, numbers: Sequence[int]) -> Mapping[int, bytes]:
        rows = await self._tx.all(
            """
            SELECT number, vector FROM chunk_vectors
            WHERE tenant = $1 AND collection = $2 AND model = $3 AND number {among}$4{end_among}
            """,
            self._tenant,
            collection,
            model,
            in_json(numbers),
        )
        return dict(rows)

    async def add_vectors(self, collection: str, model: str, vectors: Mapping[int, bytes]) -> int:
        """Add vectors of another model to existing chunks; return how many."""
        await self._reserve_numbers(collection, 0, more=0)
        existing = await self._existing(collection, vectors)
        if existing:
            await self._insert_vectors(collection, model, {number: vectors[number] for number in existing})
            await self._tx.run(
                """
                INSERT INTO chunk_vector_updates (tenant, collection, model, number, first, last)
                VALUES ($1, $2, $3, $4, $5, $6)
                """,
                self._tenant,
                collection,
                model,
                await self._reserve_numbers(collection, 1, more=0),
                min(existing),
                max(existing),
            )
        return len(existing)

    async def without_vector(self, collection: str, model: str, after: int, limit: int) -> Sequence[Chunk]:
        """Return chunks after a number that should have a vector of a model and have none."""
        rows = await self._tx.all(
            _CHUNK  # noqa: S608 - our own columns
            + """
            WHERE tenant = $1 AND collection = $2 AND number > $3 AND semantic = 1 AND NOT EXISTS (
                SELECT 1 FROM chunk_vectors v
                WHERE v.tenant = $1 AND v.collection = $2 AND v.model = $4 AND v.number = chunks.number)
            ORDER BY number LIMIT $5
            """,
            self._tenant,
            collection,
            after,
            model,
            limit,
        )
        return [_chunk(collection, row) for row in rows]

    async def count_vectors(self, collection: str, model: str) -> int:
        row = await self._tx.one(
            "SELECT COUNT(*) FROM chunk_vectors WHERE tenant = $1 AND collection = $2 AND model = $3",
            self._tenant,
            collection,
            model,
        )
        assert row is not None  # noqa: S101 - a count always has its row
        count: int = row[0]
        return count

    async def drop_vectors(self, collection: str, model: str, limit: int) -> int:
        """Delete up to ``limit`` vectors of a model; return how many."""
        return await self._tx.changed(
            """
            DELETE FROM chunk_vectors WHERE tenant = $1 AND collection = $2 AND model = $3 AND number IN (
                SELECT number FROM chunk_vectors
                WHERE tenant = $1 AND collection = $2 AND model = $3 ORDER BY number LIMIT $4)
            """,
            self._tenant,
            collection,
            model,
            limit,
        )

    async def _delete_chunk_batch(self, collection: str) -> int:
        rows = await self._tx.all(
            "SELECT number, digest FROM chunks WHERE tenant = $1 AND collection = $2 ORDER BY number LIMIT $3",
            self._tenant,
            collection,
            DELETE_BATCH_SIZE,
        )
        if rows:
            await self._tx.run(
                "DELETE FROM chunks WHERE tenant = $1 AND collection = $2 AND number <= $3",
                self._tenant,
                collection,
                rows[-1][0],
            )
            # Content that is no longer searchable leaves no cached embedding.
            await VectorStore(self._tx).delete_unreferenced([row[1] for row in rows])
        return len(rows)

    async def _delete_removals(self, collection: str, until: int) -> int:
        return await self._tx.changed(
            """
            DELETE FROM chunk_removals WHERE tenant = $1 AND collection = $2 AND number IN (
                SELECT number FROM chunk_removals
                WHERE tenant = $1 AND collection = $2 AND number <= $3 ORDER BY number LIMIT $4)
            """,
            self._tenant,
            collection,
            until,
            DELETE_BATCH_SIZE,
        )

    async def _delete_vector_updates(self, collection: str, until: int) -> None:
        """Delete without batches: there is one row per batch of added vectors, so they are few."""
        await self._tx.run(
            "DELETE FROM chunk_vector_updates WHERE tenant = $1 AND collection = $2 AND number <= $3",
            self._tenant,
            collection,
            until,
        )

    async def _reserve_numbers(self, collection: str, numbers: int, *, more: int) -> int:
        """Reserve the next numbers and lock the collection until the transaction ends; return the first number."""
        row = await self._tx.one(
            """
            INSERT INTO collections (tenant, collection, number, chunks, generation) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (tenant, collection) DO UPDATE SET
                number = collections.number + excluded.number, chunks = collections.chunks + excluded.chunks
            RETURNING number
            """,
            self._tenant,
            collection,
            numbers,
            more,
            secrets.randbits(_GENERATION_BITS),
        )
        assert row is not None  # noqa: S101 - what was written is returned
        last: int = row[0]
        return last - numbers + 1

    async def _existing(self, collection: str, numbers: Iterable[int]) -> dict[int, bytes]:
        """Return the existing chunks with these numbers, in order, each with its digest."""
        rows = await self._tx.all(
            """
            SELECT number, digest FROM chunks
            WHERE tenant = $1 AND collection = $2 AND number {among}$3{end_among} ORDER BY number
            """,
            self._tenant,
            collection,
            in_json(numbers),
        )
        return dict(rows)

    async def _delete(self, collection: str, numbers: Iterable[int]) -> None:
        await self._tx.many(
            "DELETE FROM chunks WHERE tenant = $1 AND collection = $2 AND number = $3",
            [(self._tenant, collection, number) for number in numbers],
        )
        for model in await self.models(collection):
            await self._tx.many(
                "DELETE FROM chunk_vectors WHERE tenant = $1 AND collection = $2 AND model = $3 AND number = $4",
                [(self._tenant, collection, model, number) for number in numbers],
            )

    async def models(self, collection: str) -> Sequence[str]:
        """Return the models that have vectors: an index skip scan, one query per model."""
        models: list[str] = []
        while True:
            row = await self._tx.one(
                "SELECT MIN(model) FROM chunk_vectors WHERE tenant = $1 AND collection = $2 AND model > $3",
                self._tenant,
                collection,
                models[-1] if models else "",
            )
            if row is None or row[0] is None:
                return models
            models.append(row[0])

    async def _insert_vectors(self, collection: str, model: str, vectors: Mapping[int, bytes]) -> None:
        await self._tx.many(
            """
            INSERT INTO chunk_vectors (tenant, collection, model, number, vector) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (tenant, collection, model, number) DO UPDATE SET vector = excluded.vector
            """,
            [(self._tenant, collection, model, number, vector) for number, vector in vectors.items()],
        )


def in_json(values: Iterable[NumberOrText]) -> str:
    """Encode numbers or texts, sorted, as one JSON parameter, so that their count is not limited."""
    return msgspec.json.encode(sorted(set(values))).decode()


def _indexed_chunk(row: Row) -> IndexedChunk:
    values = list(row)
    values[_PINNED] = bool(values[_PINNED])
    return IndexedChunk(*values)


def _values(number: int, chunk: NewChunk) -> tuple[str | int | float | bytes | None, ...]:
    return (
        number,
        chunk.source,
        chunk.place,
        chunk.scope,
        chunk.item,
        chunk.version,
        chunk.ordinal,
        chunk.start,
        chunk.end,
        chunk.kind,
        chunk.heading,
        chunk.speaker,
        chunk.timestamp,
        chunk.tokens,
        chunk.importance,
        int(chunk.pinned),
        chunk.metadata,
        chunk.terms,
        chunk.text,
        chunk.digest,
        chunk.entities,
        int(chunk.semantic),
    )


def _chunk(collection: str, row: Row) -> Chunk:
    (number, source, place, scope, item, version, ordinal, start, end, kind, heading, speaker) = row[:12]
    timestamp, tokens, importance, pinned, metadata, terms, text, digest, entities, semantic = row[12:]
    return Chunk(
        collection=collection,
        number=number,
        source=source,
        place=place,
        scope=scope,
        item=item,
        version=version,
        ordinal=ordinal,
        start=start,
        end=end,
        kind=kind,
        heading=heading,
        speaker=speaker,
        timestamp=timestamp,
        tokens=tokens,
        importance=importance,
        pinned=bool(pinned),
        metadata=metadata,
        terms=terms,
        text=text,
        digest=digest,
        entities=entities,
        semantic=bool(semantic),
    )
