"""Shelves in SQL: chunks in the order in which they came, with their vectors, and what is gone."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, TypeVar

import msgspec

from weft.capabilities.indexing.collections.model import Chunk, IndexedChunk, Removal, Return, ShelfState
from weft.storage.sql.deferred_deletions import CLEARED_AT_ONCE, Deleted, SqlClearings
from weft.storage.sql.embeddings import SqlVectorStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.capabilities.indexing.collections.model import NewChunk
    from weft.storage.sql.database import Row, Transaction

NumberOrText = TypeVar("NumberOrText", int, str)

_CHUNK = """
SELECT number, source, place, scope, item, version, ordinal, start_at, end_at, kind, heading, speaker, moment, tokens,
       importance, pinned, metadata, terms, text, digest
FROM chunks
"""
_STANDING = """
SELECT chunks.number, source, place, scope, item, version, ordinal, speaker, moment, tokens, importance, pinned, terms
"""
_VECTOR = """
FROM chunks LEFT JOIN chunk_vectors v
ON v.tenant = chunks.tenant AND v.shelf = chunks.shelf AND v.model = $1 AND v.number = chunks.number
"""
_LOOKED_AT_ONCE = 200
_BIRTH_BITS = 62
# Beyond every number and version.
_LAST = 2**62
_PINNED = IndexedChunk.__struct_fields__.index("pinned")


class SqlShelfStore:
    """Shelves, as rows of one tenant."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant

    async def names(self) -> Sequence[str]:
        rows = await self._tx.all("SELECT shelf FROM shelves WHERE tenant = $1 ORDER BY shelf", self._tenant)
        return [row[0] for row in rows]

    async def state(self, shelf: str) -> ShelfState:
        row = await self._tx.one(
            "SELECT number, chunks, birth, forgotten FROM shelves WHERE tenant = $1 AND shelf = $2",
            self._tenant,
            shelf,
        )
        return ShelfState() if row is None else ShelfState(*row)

    async def lock(self, shelf: str) -> None:
        await self._take(shelf, 0, more=0)

    async def add(
        self, shelf: str, chunks: Sequence[NewChunk], vectors: Mapping[str, Sequence[bytes]]
    ) -> Sequence[int]:
        if not chunks:
            return []
        first = await self._take(shelf, len(chunks), more=len(chunks))
        numbers = range(first, first + len(chunks))
        await self._tx.many(
            """
            INSERT INTO chunks (tenant, shelf, number, source, place, scope, item, version, ordinal, start_at, end_at,
                                kind, heading, speaker, moment, tokens, importance, pinned, metadata, terms, text,
                                digest)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
            """,
            [(self._tenant, shelf, *_values(number, chunk)) for number, chunk in zip(numbers, chunks, strict=True)],
        )
        for model, given in vectors.items():
            await self._insert_vectors(shelf, model, dict(zip(numbers, given, strict=True)))
        return numbers

    async def remove(self, shelf: str, numbers: Sequence[int]) -> int:
        """Lock the shelf first, so that whoever else removes the same chunk finds it gone."""
        if not numbers:
            return 0
        await self._take(shelf, 0, more=0)
        there = await self._there(shelf, numbers)
        if there:
            await self._delete(shelf, there)
            # What nobody can find any more leaves no trace of what it said.
            await SqlVectorStore(self._tx).forget_unused([*there.values()])
            first = await self._take(shelf, len(there), more=-len(there))
            await self._tx.many(
                "INSERT INTO chunk_removals (tenant, shelf, number, removed) VALUES ($1, $2, $3, $4)",
                [(self._tenant, shelf, first + place, removed) for place, removed in enumerate(there)],
            )
        return len(there)

    async def remove_item(self, shelf: str, place: str, item: str, *, before: int | None = None) -> int:
        rows = await self._tx.all(
            """
            SELECT number FROM chunks
            WHERE tenant = $1 AND shelf = $2 AND place = $3 AND item = $4 AND version < $5 ORDER BY number
            """,
            self._tenant,
            shelf,
            place,
            item,
            _LAST if before is None else before,
        )
        return await self.remove(shelf, [row[0] for row in rows])

    async def remove_place(self, shelf: str, place: str) -> None:
        if await self.clear_place(shelf, place):
            await SqlClearings(self._tx).add(Deleted(shelf, place))

    async def remove_shelf(self, shelf: str) -> None:
        await self._tx.run("DELETE FROM shelves WHERE tenant = $1 AND shelf = $2", self._tenant, shelf)
        if await self.clear(shelf):
            await SqlClearings(self._tx).add(Deleted(shelf))

    async def clear_place(self, shelf: str, place: str) -> bool:
        """Take a few chunks of a place off a shelf; tell whether there may be more of them."""
        rows = await self._tx.all(
            """
            SELECT number FROM chunks WHERE tenant = $1 AND shelf = $2 AND place = $3 AND item > ''
            ORDER BY place, item, version, ordinal LIMIT $4
            """,
            self._tenant,
            shelf,
            place,
            CLEARED_AT_ONCE,
        )
        await self.remove(shelf, [row[0] for row in rows])
        return len(rows) == CLEARED_AT_ONCE

    async def clear(self, shelf: str) -> bool:
        """Delete a few rows of a shelf that was taken away; tell whether there may be more of them."""
        cleared = [await self._clear_chunks(shelf), await self._drop_removals(shelf, _LAST)]
        cleared += [await self.drop_vectors(shelf, model, CLEARED_AT_ONCE) for model in await self.models(shelf)]
        await self._drop_returns(shelf, _LAST)
        return CLEARED_AT_ONCE in cleared

    async def forget_changes(self, shelf: str) -> bool:
        state = await self.state(shelf)
        forgotten = state.forgotten + state.forgettable
        # Another process may have gone further: it never goes back.
        await self._tx.run(
            "UPDATE shelves SET forgotten = $1 WHERE tenant = $2 AND shelf = $3 AND forgotten < $1",
            forgotten,
            self._tenant,
            shelf,
        )
        await self._drop_returns(shelf, forgotten)
        return await self._drop_removals(shelf, forgotten) == CLEARED_AT_ONCE

    async def find(self, shelf: str, numbers: Sequence[int]) -> Sequence[Chunk]:
        rows = await self._tx.all(
            _CHUNK + "WHERE tenant = $1 AND shelf = $2 AND number {among}$3{end_among} ORDER BY number",
            self._tenant,
            shelf,
            in_json(numbers),
        )
        return [_chunk(shelf, row) for row in rows]

    async def of_item(self, shelf: str, place: str, item: str, version: int | None = None) -> Sequence[Chunk]:
        rows = await self._tx.all(
            _CHUNK
            + """
            WHERE tenant = $1 AND shelf = $2 AND place = $3 AND item = $4 AND version = COALESCE($5, version)
            ORDER BY version, ordinal
            """,
            self._tenant,
            shelf,
            place,
            item,
            version,
        )
        return [_chunk(shelf, row) for row in rows]

    async def numbers_of(self, shelf: str, place: str, item: str, version: int) -> Sequence[int]:
        rows = await self._tx.all(
            """
            SELECT number FROM chunks
            WHERE tenant = $1 AND shelf = $2 AND place = $3 AND item = $4 AND version = $5 ORDER BY ordinal
            """,
            self._tenant,
            shelf,
            place,
            item,
            version,
        )
        return [row[0] for row in rows]

    async def stretch(self, shelf: str, place: str, item: str, version: int, first: int, last: int) -> Sequence[Chunk]:
        rows = await self._tx.all(
            _CHUNK
            + """
            WHERE tenant = $1 AND shelf = $2 AND place = $3 AND item = $4 AND version = $5 AND ordinal BETWEEN $6 AND $7
            ORDER BY ordinal
            """,
            self._tenant,
            shelf,
            place,
            item,
            version,
            first,
            last,
        )
        return [_chunk(shelf, row) for row in rows]

    async def newest(self, shelf: str, places: Sequence[str], limit: int) -> Sequence[Chunk]:
        wanted = set(places)
        found: list[Chunk] = []
        before = _LAST
        while len(found) < limit:
            rows = await self._tx.all(
                _CHUNK + "WHERE tenant = $1 AND shelf = $2 AND number < $3 ORDER BY number DESC LIMIT $4",
                self._tenant,
                shelf,
                before,
                _LOOKED_AT_ONCE,
            )
            found += [_chunk(shelf, row) for row in rows if row[2] in wanted]
            if len(rows) < _LOOKED_AT_ONCE:
                break
            before = rows[-1][0]
        return found[:limit]

    async def standing_after(self, shelf: str, number: int, limit: int, model: str | None) -> Sequence[IndexedChunk]:
        if model is None:
            rows = await self._tx.all(
                f"""
                {_STANDING}, NULL FROM chunks
                WHERE tenant = $1 AND shelf = $2 AND number > $3 ORDER BY number LIMIT $4
                """,
                self._tenant,
                shelf,
                number,
                limit,
            )
        else:
            rows = await self._tx.all(
                f"""
                {_STANDING}, vector {_VECTOR}
                WHERE chunks.tenant = $2 AND chunks.shelf = $3 AND chunks.number > $4
                ORDER BY chunks.number LIMIT $5
                """,
                model,
                self._tenant,
                shelf,
                number,
                limit,
            )
        return [_standing(row) for row in rows]

    async def standing_between(self, shelf: str, first: int, last: int, model: str) -> Sequence[IndexedChunk]:
        rows = await self._tx.all(
            f"""
            {_STANDING}, vector {_VECTOR}
            WHERE chunks.tenant = $2 AND chunks.shelf = $3 AND chunks.number BETWEEN $4 AND $5 ORDER BY chunks.number
            """,
            model,
            self._tenant,
            shelf,
            first,
            last,
        )
        return [_standing(row) for row in rows]

    async def removals_after(self, shelf: str, number: int, limit: int) -> Sequence[Removal]:
        rows = await self._tx.all(
            """
            SELECT number, removed FROM chunk_removals
            WHERE tenant = $1 AND shelf = $2 AND number > $3 ORDER BY number LIMIT $4
            """,
            self._tenant,
            shelf,
            number,
            limit,
        )
        return [Removal(*row) for row in rows]

    async def returns_after(self, shelf: str, model: str, number: int, limit: int) -> Sequence[Return]:
        rows = await self._tx.all(
            """
            SELECT number, first, last FROM chunk_returns
            WHERE tenant = $1 AND shelf = $2 AND model = $3 AND number > $4 ORDER BY number LIMIT $5
            """,
            self._tenant,
            shelf,
            model,
            number,
            limit,
        )
        return [Return(*row) for row in rows]

    async def vectors(self, shelf: str, model: str, numbers: Sequence[int]) -> Mapping[int, bytes]:
        rows = await self._tx.all(
            """
            SELECT number, vector FROM chunk_vectors
            WHERE tenant = $1 AND shelf = $2 AND model = $3 AND number {among}$4{end_among}
            """,
            self._tenant,
            shelf,
            model,
            in_json(numbers),
        )
        return dict(rows)

    async def add_vectors(self, shelf: str, model: str, vectors: Mapping[int, bytes]) -> int:
        await self._take(shelf, 0, more=0)
        there = await self._there(shelf, vectors)
        if there:
            await self._insert_vectors(shelf, model, {number: vectors[number] for number in there})
            await self._tx.run(
                """
                INSERT INTO chunk_returns (tenant, shelf, model, number, first, last) VALUES ($1, $2, $3, $4, $5, $6)
                """,
                self._tenant,
                shelf,
                model,
                await self._take(shelf, 1, more=0),
                min(there),
                max(there),
            )
        return len(there)

    async def without_vector(self, shelf: str, model: str, after: int, limit: int) -> Sequence[Chunk]:
        rows = await self._tx.all(
            _CHUNK  # noqa: S608 - our own columns
            + """
            WHERE tenant = $1 AND shelf = $2 AND number > $3 AND NOT EXISTS (
                SELECT 1 FROM chunk_vectors v
                WHERE v.tenant = $1 AND v.shelf = $2 AND v.model = $4 AND v.number = chunks.number)
            ORDER BY number LIMIT $5
            """,
            self._tenant,
            shelf,
            after,
            model,
            limit,
        )
        return [_chunk(shelf, row) for row in rows]

    async def count_vectors(self, shelf: str, model: str) -> int:
        row = await self._tx.one(
            "SELECT COUNT(*) FROM chunk_vectors WHERE tenant = $1 AND shelf = $2 AND model = $3",
            self._tenant,
            shelf,
            model,
        )
        assert row is not None  # noqa: S101 - a count always has its row
        count: int = row[0]
        return count

    async def drop_vectors(self, shelf: str, model: str, limit: int) -> int:
        return await self._tx.changed(
            """
            DELETE FROM chunk_vectors WHERE tenant = $1 AND shelf = $2 AND model = $3 AND number IN (
                SELECT number FROM chunk_vectors
                WHERE tenant = $1 AND shelf = $2 AND model = $3 ORDER BY number LIMIT $4)
            """,
            self._tenant,
            shelf,
            model,
            limit,
        )

    async def _clear_chunks(self, shelf: str) -> int:
        rows = await self._tx.all(
            "SELECT number, digest FROM chunks WHERE tenant = $1 AND shelf = $2 ORDER BY number LIMIT $3",
            self._tenant,
            shelf,
            CLEARED_AT_ONCE,
        )
        if rows:
            await self._tx.run(
                "DELETE FROM chunks WHERE tenant = $1 AND shelf = $2 AND number <= $3",
                self._tenant,
                shelf,
                rows[-1][0],
            )
            # What nobody can find any more leaves no trace of what it said.
            await SqlVectorStore(self._tx).forget_unused([row[1] for row in rows])
        return len(rows)

    async def _drop_removals(self, shelf: str, until: int) -> int:
        return await self._tx.changed(
            """
            DELETE FROM chunk_removals WHERE tenant = $1 AND shelf = $2 AND number IN (
                SELECT number FROM chunk_removals
                WHERE tenant = $1 AND shelf = $2 AND number <= $3 ORDER BY number LIMIT $4)
            """,
            self._tenant,
            shelf,
            until,
            CLEARED_AT_ONCE,
        )

    async def _drop_returns(self, shelf: str, until: int) -> None:
        """Drop all at once: there is one for each batch of chunks that got further vectors, so they are few."""
        await self._tx.run(
            "DELETE FROM chunk_returns WHERE tenant = $1 AND shelf = $2 AND number <= $3", self._tenant, shelf, until
        )

    async def _take(self, shelf: str, numbers: int, *, more: int) -> int:
        """Take the next numbers of a shelf, and hold on to it until the transaction ends; return the first."""
        row = await self._tx.one(
            """
            INSERT INTO shelves (tenant, shelf, number, chunks, birth) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (tenant, shelf) DO UPDATE SET
                number = shelves.number + excluded.number, chunks = shelves.chunks + excluded.chunks
            RETURNING number
            """,
            self._tenant,
            shelf,
            numbers,
            more,
            secrets.randbits(_BIRTH_BITS),
        )
        assert row is not None  # noqa: S101 - what was written is returned
        last: int = row[0]
        return last - numbers + 1

    async def _there(self, shelf: str, numbers: Iterable[int]) -> dict[int, bytes]:
        """Return those of the numbers that are chunks of the shelf, in order, each with its digest."""
        rows = await self._tx.all(
            """
            SELECT number, digest FROM chunks
            WHERE tenant = $1 AND shelf = $2 AND number {among}$3{end_among} ORDER BY number
            """,
            self._tenant,
            shelf,
            in_json(numbers),
        )
        return dict(rows)

    async def _delete(self, shelf: str, numbers: Iterable[int]) -> None:
        await self._tx.many(
            "DELETE FROM chunks WHERE tenant = $1 AND shelf = $2 AND number = $3",
            [(self._tenant, shelf, number) for number in numbers],
        )
        for model in await self.models(shelf):
            await self._tx.many(
                "DELETE FROM chunk_vectors WHERE tenant = $1 AND shelf = $2 AND model = $3 AND number = $4",
                [(self._tenant, shelf, model, number) for number in numbers],
            )

    async def models(self, shelf: str) -> Sequence[str]:
        """Return the models that there are vectors of, leaping from one to the next instead of reading all vectors."""
        models: list[str] = []
        while True:
            row = await self._tx.one(
                "SELECT MIN(model) FROM chunk_vectors WHERE tenant = $1 AND shelf = $2 AND model > $3",
                self._tenant,
                shelf,
                models[-1] if models else "",
            )
            if row is None or row[0] is None:
                return models
            models.append(row[0])

    async def _insert_vectors(self, shelf: str, model: str, vectors: Mapping[int, bytes]) -> None:
        await self._tx.many(
            """
            INSERT INTO chunk_vectors (tenant, shelf, model, number, vector) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (tenant, shelf, model, number) DO UPDATE SET vector = excluded.vector
            """,
            [(self._tenant, shelf, model, number, vector) for number, vector in vectors.items()],
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
        chunk.moment,
        chunk.tokens,
        chunk.importance,
        int(chunk.pinned),
        chunk.metadata,
        chunk.terms,
        chunk.text,
        chunk.digest,
    )


def _chunk(shelf: str, row: Row) -> Chunk:
    (number, source, place, scope, item, version, ordinal, start, end, kind, heading, speaker) = row[:12]
    moment, tokens, importance, pinned, metadata, terms, text, digest = row[12:]
    return Chunk(
        shelf=shelf,
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
        moment=moment,
        tokens=tokens,
        importance=importance,
        pinned=bool(pinned),
        metadata=metadata,
        terms=terms,
        text=text,
        digest=digest,
    )
