"""Collections in SQL: chunks in the order in which they came, with their vectors, and what is gone."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, TypeVar

import msgspec

from weft.capabilities.indexing.collections.model import Chunk, CollectionState, IndexedChunk, Removal, Return
from weft.storage.sql.deferred_deletions import CLEARED_AT_ONCE, Deleted, SqlClearings
from weft.storage.sql.embeddings import SqlVectorStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.capabilities.indexing.collections.model import NewChunk
    from weft.storage.sql.database import Row, Transaction

NumberOrText = TypeVar("NumberOrText", int, str)

_CHUNK = """
SELECT number, source, place, scope, item, version, ordinal, start_at, end_at, kind, heading, speaker, timestamp,
       tokens, importance, pinned, metadata, terms, text, digest
FROM chunks
"""
_STANDING = """
SELECT chunks.number, source, place, scope, item, version, ordinal, speaker, timestamp, tokens, importance, pinned,
       terms
"""
_VECTOR = """
FROM chunks LEFT JOIN chunk_vectors v
ON v.tenant = chunks.tenant AND v.collection = chunks.collection AND v.model = $1 AND v.number = chunks.number
"""
_LOOKED_AT_ONCE = 200
_BIRTH_BITS = 62
# Beyond every number and version.
_LAST = 2**62
_PINNED = IndexedChunk.__struct_fields__.index("pinned")


class SqlCollectionStore:
    """Collections, as rows of one tenant."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant

    async def names(self) -> Sequence[str]:
        rows = await self._tx.all(
            "SELECT collection FROM collections WHERE tenant = $1 ORDER BY collection", self._tenant
        )
        return [row[0] for row in rows]

    async def state(self, collection: str) -> CollectionState:
        row = await self._tx.one(
            "SELECT number, chunks, birth, forgotten FROM collections WHERE tenant = $1 AND collection = $2",
            self._tenant,
            collection,
        )
        return CollectionState() if row is None else CollectionState(*row)

    async def lock(self, collection: str) -> None:
        await self._take(collection, 0, more=0)

    async def add(
        self, collection: str, chunks: Sequence[NewChunk], vectors: Mapping[str, Sequence[bytes]]
    ) -> Sequence[int]:
        if not chunks:
            return []
        first = await self._take(collection, len(chunks), more=len(chunks))
        numbers = range(first, first + len(chunks))
        await self._tx.many(
            """
            INSERT INTO chunks (tenant, collection, number, source, place, scope, item, version, ordinal, start_at,
                                end_at,
                                kind, heading, speaker, timestamp, tokens, importance, pinned, metadata, terms, text,
                                digest)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
            """,
            [
                (self._tenant, collection, *_values(number, chunk))
                for number, chunk in zip(numbers, chunks, strict=True)
            ],
        )
        for model, given in vectors.items():
            await self._insert_vectors(collection, model, dict(zip(numbers, given, strict=True)))
        return numbers

    async def remove(self, collection: str, numbers: Sequence[int]) -> int:
        """Lock the collection first, so that whoever else removes the same chunk finds it gone."""
        if not numbers:
            return 0
        await self._take(collection, 0, more=0)
        there = await self._there(collection, numbers)
        if there:
            await self._delete(collection, there)
            # What nobody can find any more leaves no trace of what it said.
            await SqlVectorStore(self._tx).forget_unused([*there.values()])
            first = await self._take(collection, len(there), more=-len(there))
            await self._tx.many(
                "INSERT INTO chunk_removals (tenant, collection, number, removed) VALUES ($1, $2, $3, $4)",
                [(self._tenant, collection, first + place, removed) for place, removed in enumerate(there)],
            )
        return len(there)

    async def remove_item(self, collection: str, place: str, item: str, *, before: int | None = None) -> int:
        rows = await self._tx.all(
            """
            SELECT number FROM chunks
            WHERE tenant = $1 AND collection = $2 AND place = $3 AND item = $4 AND version < $5 ORDER BY number
            """,
            self._tenant,
            collection,
            place,
            item,
            _LAST if before is None else before,
        )
        return await self.remove(collection, [row[0] for row in rows])

    async def remove_place(self, collection: str, place: str) -> None:
        if await self.clear_place(collection, place):
            await SqlClearings(self._tx).add(Deleted(collection, place))

    async def remove_collection(self, collection: str) -> None:
        await self._tx.run("DELETE FROM collections WHERE tenant = $1 AND collection = $2", self._tenant, collection)
        if await self.clear(collection):
            await SqlClearings(self._tx).add(Deleted(collection))

    async def clear_place(self, collection: str, place: str) -> bool:
        """Take a few chunks of a place off a collection; tell whether there may be more of them."""
        rows = await self._tx.all(
            """
            SELECT number FROM chunks WHERE tenant = $1 AND collection = $2 AND place = $3 AND item > ''
            ORDER BY place, item, version, ordinal LIMIT $4
            """,
            self._tenant,
            collection,
            place,
            CLEARED_AT_ONCE,
        )
        await self.remove(collection, [row[0] for row in rows])
        return len(rows) == CLEARED_AT_ONCE

    async def clear(self, collection: str) -> bool:
        """Delete a few rows of a collection that was taken away; tell whether there may be more of them."""
        cleared = [await self._clear_chunks(collection), await self._drop_removals(collection, _LAST)]
        cleared += [
            await self.drop_vectors(collection, model, CLEARED_AT_ONCE) for model in await self.models(collection)
        ]
        await self._drop_returns(collection, _LAST)
        return CLEARED_AT_ONCE in cleared

    async def forget_changes(self, collection: str) -> bool:
        state = await self.state(collection)
        forgotten = state.forgotten + state.forgettable
        # Another process may have gone further: it never goes back.
        await self._tx.run(
            "UPDATE collections SET forgotten = $1 WHERE tenant = $2 AND collection = $3 AND forgotten < $1",
            forgotten,
            self._tenant,
            collection,
        )
        await self._drop_returns(collection, forgotten)
        return await self._drop_removals(collection, forgotten) == CLEARED_AT_ONCE

    async def find(self, collection: str, numbers: Sequence[int]) -> Sequence[Chunk]:
        rows = await self._tx.all(
            _CHUNK + "WHERE tenant = $1 AND collection = $2 AND number {among}$3{end_among} ORDER BY number",
            self._tenant,
            collection,
            in_json(numbers),
        )
        return [_chunk(collection, row) for row in rows]

    async def of_item(self, collection: str, place: str, item: str, version: int | None = None) -> Sequence[Chunk]:
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

    async def numbers_of(self, collection: str, place: str, item: str, version: int) -> Sequence[int]:
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

    async def stretch(
        self, collection: str, place: str, item: str, version: int, first: int, last: int
    ) -> Sequence[Chunk]:
        rows = await self._tx.all(
            _CHUNK
            + """
            WHERE tenant = $1 AND collection = $2 AND place = $3 AND item = $4 AND version = $5
                AND ordinal BETWEEN $6 AND $7
            ORDER BY ordinal
            """,
            self._tenant,
            collection,
            place,
            item,
            version,
            first,
            last,
        )
        return [_chunk(collection, row) for row in rows]

    async def newest(self, collection: str, places: Sequence[str], limit: int) -> Sequence[Chunk]:
        wanted = set(places)
        found: list[Chunk] = []
        before = _LAST
        while len(found) < limit:
            rows = await self._tx.all(
                _CHUNK + "WHERE tenant = $1 AND collection = $2 AND number < $3 ORDER BY number DESC LIMIT $4",
                self._tenant,
                collection,
                before,
                _LOOKED_AT_ONCE,
            )
            found += [_chunk(collection, row) for row in rows if row[2] in wanted]
            if len(rows) < _LOOKED_AT_ONCE:
                break
            before = rows[-1][0]
        return found[:limit]

    async def standing_after(
        self, collection: str, number: int, limit: int, model: str | None
    ) -> Sequence[IndexedChunk]:
        if model is None:
            rows = await self._tx.all(
                f"""
                {_STANDING}, NULL FROM chunks
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
                {_STANDING}, vector {_VECTOR}
                WHERE chunks.tenant = $2 AND chunks.collection = $3 AND chunks.number > $4
                ORDER BY chunks.number LIMIT $5
                """,
                model,
                self._tenant,
                collection,
                number,
                limit,
            )
        return [_standing(row) for row in rows]

    async def standing_between(self, collection: str, first: int, last: int, model: str) -> Sequence[IndexedChunk]:
        rows = await self._tx.all(
            f"""
            {_STANDING}, vector {_VECTOR}
            WHERE chunks.tenant = $2 AND chunks.collection = $3 AND chunks.number BETWEEN $4 AND $5
            ORDER BY chunks.number
            """,
            model,
            self._tenant,
            collection,
            first,
            last,
        )
        return [_standing(row) for row in rows]

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

    async def returns_after(self, collection: str, model: str, number: int, limit: int) -> Sequence[Return]:
        rows = await self._tx.all(
            """
            SELECT number, first, last FROM chunk_returns
            WHERE tenant = $1 AND collection = $2 AND model = $3 AND number > $4 ORDER BY number LIMIT $5
            """,
            self._tenant,
            collection,
            model,
            number,
            limit,
        )
        return [Return(*row) for row in rows]

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
        await self._take(collection, 0, more=0)
        there = await self._there(collection, vectors)
        if there:
            await self._insert_vectors(collection, model, {number: vectors[number] for number in there})
            await self._tx.run(
                """
                INSERT INTO chunk_returns (tenant, collection, model, number, first, last)
                VALUES ($1, $2, $3, $4, $5, $6)
                """,
                self._tenant,
                collection,
                model,
                await self._take(collection, 1, more=0),
                min(there),
                max(there),
            )
        return len(there)

    async def without_vector(self, collection: str, model: str, after: int, limit: int) -> Sequence[Chunk]:
        rows = await self._tx.all(
            _CHUNK  # noqa: S608 - our own columns
            + """
            WHERE tenant = $1 AND collection = $2 AND number > $3 AND NOT EXISTS (
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

    async def _clear_chunks(self, collection: str) -> int:
        rows = await self._tx.all(
            "SELECT number, digest FROM chunks WHERE tenant = $1 AND collection = $2 ORDER BY number LIMIT $3",
            self._tenant,
            collection,
            CLEARED_AT_ONCE,
        )
        if rows:
            await self._tx.run(
                "DELETE FROM chunks WHERE tenant = $1 AND collection = $2 AND number <= $3",
                self._tenant,
                collection,
                rows[-1][0],
            )
            # What nobody can find any more leaves no trace of what it said.
            await SqlVectorStore(self._tx).forget_unused([row[1] for row in rows])
        return len(rows)

    async def _drop_removals(self, collection: str, until: int) -> int:
        return await self._tx.changed(
            """
            DELETE FROM chunk_removals WHERE tenant = $1 AND collection = $2 AND number IN (
                SELECT number FROM chunk_removals
                WHERE tenant = $1 AND collection = $2 AND number <= $3 ORDER BY number LIMIT $4)
            """,
            self._tenant,
            collection,
            until,
            CLEARED_AT_ONCE,
        )

    async def _drop_returns(self, collection: str, until: int) -> None:
        """Drop all at once: there is one for each batch of chunks that got further vectors, so they are few."""
        await self._tx.run(
            "DELETE FROM chunk_returns WHERE tenant = $1 AND collection = $2 AND number <= $3",
            self._tenant,
            collection,
            until,
        )

    async def _take(self, collection: str, numbers: int, *, more: int) -> int:
        """Take the next numbers of a collection, and hold on to it until the transaction ends; return the first."""
        row = await self._tx.one(
            """
            INSERT INTO collections (tenant, collection, number, chunks, birth) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (tenant, collection) DO UPDATE SET
                number = collections.number + excluded.number, chunks = collections.chunks + excluded.chunks
            RETURNING number
            """,
            self._tenant,
            collection,
            numbers,
            more,
            secrets.randbits(_BIRTH_BITS),
        )
        assert row is not None  # noqa: S101 - what was written is returned
        last: int = row[0]
        return last - numbers + 1

    async def _there(self, collection: str, numbers: Iterable[int]) -> dict[int, bytes]:
        """Return those of the numbers that are chunks of the collection, in order, each with its digest."""
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
        """Return the models that there are vectors of, leaping from one to the next instead of reading all vectors."""
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
    """Return numbers or texts as one value, in order, however many they are."""
    return msgspec.json.encode(sorted(set(values))).decode()


def _standing(row: Row) -> IndexedChunk:
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
    )


def _chunk(collection: str, row: Row) -> Chunk:
    (number, source, place, scope, item, version, ordinal, start, end, kind, heading, speaker) = row[:12]
    timestamp, tokens, importance, pinned, metadata, terms, text, digest = row[12:]
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
    )
