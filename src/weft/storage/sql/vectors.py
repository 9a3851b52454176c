"""Vectors in pgvector: the nearest of a collection's vectors of one model, by an index once there are many."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from weft.capabilities.indexing.collections.model import NearChunk, PackedVectors
from weft.storage.sql.collections import SqlCollectionStore, in_json
from weft.storage.sql.database import Scope
from weft.storage.sql.dialects.postgres_vectors import partition_of, swap_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.storage.sql.database import Row, Transaction
    from weft.storage.sql.dialects.postgres import PostgresDatabase

# Measured against exact search: see docs/decisions/0036.
_CONNECTIONS = 16
_LOOKED_THROUGH_TO_BUILD = 96
_LOOKED_THROUGH_A_RESULT = 1.5
_FEWEST_LOOKED_THROUGH = 240
_MOST_LOOKED_THROUGH = 1_000
_BUILDING_MEMORY = "1GB"
# An index of part of a table is used only where the plan sees which part is asked for, so plans are never shared.
_SEARCH_SO = """
SELECT set_config('hnsw.ef_search', $1, true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.max_scan_tuples', '200000', true), set_config('plan_cache_mode', 'force_custom_plan', true)
"""
_OF_THESE = """
FROM chunk_vectors WHERE tenant = $1 AND collection = $2 AND model = $3 AND number {among}$4{end_among}
"""
# Thousands of vectors in one value: as rows, most of the time would go into taking each of them for itself. The first
# four bytes of each say how many numbers follow.
_PACKED = """
SELECT COALESCE(array_agg(number ORDER BY number), '{{}}'),
       COALESCE(string_agg(substring(halfvec_send(vector) FROM 5), ''::bytea ORDER BY number), '')
"""
_IS_INDEXED = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"
_DIMENSIONS = """
SELECT vector_dims(vector) FROM chunk_vectors WHERE tenant = $1 AND collection = $2 AND model = $3 LIMIT 1
"""
_INDEXES = """
SELECT indexname FROM pg_indexes
WHERE schemaname = current_schema() AND tablename = $1 AND starts_with(indexname, 'nearest_')
"""
_GROWN = ("chunks (tenant, collection, number, place, item, version)", "documents (tenant, domain, document_id, state)")
_QUOTED = "SELECT quote_literal($1), quote_literal($2)"


class PgVectors:
    """The vectors of one collection and model in PostgreSQL."""

    def __init__(self, database: PostgresDatabase, tenant: str, collection: str, model: str) -> None:
        self._database = database
        self._scope = Scope(tenant)
        self._tenant, self._collection, self._model = tenant, collection, model

    async def nearest(self, vector: bytes, limit: int) -> Sequence[NearChunk]:
        column, fitting = _column(len(vector) // 2), _fitting(len(vector) // 2)

        async def look(transaction: Transaction) -> Sequence[NearChunk]:
            await transaction.one(_SEARCH_SO, str(_looked_through(limit)))
            rows = await transaction.all(
                f"""
                SELECT number, 1 - ({column} <=> $1) FROM chunk_vectors
                WHERE tenant = $2 AND collection = $3 AND model = $4 AND {fitting} ORDER BY {column} <=> $1 LIMIT $5
                """,  # noqa: S608 - our own column
                vector,
                self._tenant,
                self._collection,
                self._model,
                limit,
            )
            return _in_order(rows)

        return await self._database.read(self._scope, look)

    async def nearest_among(self, vector: bytes, limit: int, numbers: Sequence[int]) -> Sequence[NearChunk]:
        column, fitting = _column(len(vector) // 2), _fitting(len(vector) // 2)

        async def look(transaction: Transaction) -> Sequence[NearChunk]:
            rows = await transaction.all(
                f"""
                SELECT number, 1 - ({column} <=> $1) AS cosine FROM chunk_vectors
                WHERE tenant = $2 AND collection = $3 AND model = $4 AND number {{among}}$5{{end_among}} AND {fitting}
                ORDER BY cosine DESC, number LIMIT $6
                """,  # noqa: S608 - our own column
                vector,
                self._tenant,
                self._collection,
                self._model,
                in_json(numbers),
                limit,
            )
            return _in_order(rows)

        return await self._database.read(self._scope, look) if numbers else []

    async def cosines(self, vectors: Sequence[bytes], numbers: Sequence[int]) -> Mapping[int, Sequence[float]]:
        dimensions = len(vectors[0]) // 2
        each = ", ".join(f"-({_column(dimensions)} <#> ${place})" for place in range(5, 5 + len(vectors)))
        sql = f"SELECT number, {each} {_OF_THESE} AND {_fitting(dimensions)}"

        async def look(transaction: Transaction) -> Sequence[Row]:
            asked = (self._tenant, self._collection, self._model, in_json(numbers))
            return await transaction.all(sql, *asked, *vectors)

        return {number: cosines for number, *cosines in await self._database.read(self._scope, look)}

    async def find(self, numbers: Sequence[int], dimensions: int) -> PackedVectors:
        sql = f"{_PACKED} {_OF_THESE} AND {_fitting(dimensions)}"
        values = (self._tenant, self._collection, self._model, in_json(numbers))
        row = await self._database.read(self._scope, lambda transaction: transaction.one(sql, *values))
        found, vectors = row if row is not None else ([], b"")
        return PackedVectors(found, swap_bytes(vectors))

    async def prepare(self) -> bool:
        name = _index_name(self._tenant, self._collection, self._model)
        async with self._database.owning() as connection:
            if not await connection.fetchval("SELECT pg_try_advisory_lock(hashtext($1))", name):
                return False
            try:
                is_valid = await connection.fetchval(_IS_INDEXED, name)
                if is_valid is False:
                    # What an interrupted attempt leaves behind.
                    await connection.execute(f"DROP INDEX CONCURRENTLY {name}")
                return bool(is_valid) or await self._build(connection, name)
            finally:
                await connection.fetchval("SELECT pg_advisory_unlock(hashtext($1))", name)

    async def discard(self) -> None:
        async with self._database.owning() as connection:
            name = _index_name(self._tenant, self._collection, self._model)
            await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")

    async def _build(self, connection: Any, name: str) -> bool:  # noqa: ANN401 - asyncpg's own type is private
        dimensions = await connection.fetchval(_DIMENSIONS, self._tenant, self._collection, self._model)
        if dimensions is None:
            return False
        collection, model = await connection.fetchrow(_QUOTED, self._collection, self._model)
        await connection.execute(f"SET maintenance_work_mem = '{_BUILDING_MEMORY}'")
        try:
            await connection.execute(
                f"""
                CREATE INDEX CONCURRENTLY {name} ON {partition_of(self._tenant)}
                USING hnsw ({_column(dimensions)} halfvec_cosine_ops)
                WITH (m = {_CONNECTIONS}, ef_construction = {_LOOKED_THROUGH_TO_BUILD})
                WHERE collection = {collection} AND model = {model} AND {_fitting(dimensions)}
                """
            )
        finally:
            await connection.execute("RESET maintenance_work_mem")
        # After a bulk insert: with stale statistics the planner reads whole collections where a few rows are needed.
        for table in _GROWN:
            await connection.execute(f"ANALYZE {table}")
        return True


async def drop_unused_indexes(database: PostgresDatabase, tenant: str) -> None:
    """Drop the indexes of vectors of which none is there any more."""

    async def used(transaction: Transaction) -> set[str]:
        store = SqlCollectionStore(transaction)
        return {
            _index_name(tenant, collection, model)
            for collection in await store.names()
            for model in await store.models(collection)
        }

    known = await database.read(Scope(tenant), used)
    async with database.owning() as connection:
        for (name,) in await connection.fetch(_INDEXES, partition_of(tenant)):
            if name not in known:
                await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


async def unfinished_indexes(transaction: Transaction) -> int:
    """Return how many indexes of vectors are not whole, so that searches do not use them."""
    row = await transaction.one(
        """
        SELECT COUNT(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE c.relnamespace = current_schema()::regnamespace AND starts_with(c.relname::text, 'nearest_')
          AND NOT i.indisvalid
        """
    )
    return 0 if row is None else int(row[0])


def _column(dimensions: int) -> str:
    """Return the vectors as the index has them: a column of any number of dimensions cannot be indexed itself."""
    return f"(vector::halfvec({dimensions}))"


def _fitting(dimensions: int) -> str:
    """Return which vectors can be compared: a model exchanged for another under its name gives some of another size."""
    return f"vector_dims(vector) = {dimensions}"


def _index_name(tenant: str, collection: str, model: str) -> str:
    names = f"{tenant}\0{collection}\0{model}"
    return f"nearest_{hashlib.sha256(names.encode()).hexdigest()[:24]}"


def _looked_through(limit: int) -> int:
    return min(max(_FEWEST_LOOKED_THROUGH, round(limit * _LOOKED_THROUGH_A_RESULT)), _MOST_LOOKED_THROUGH)


def _in_order(rows: Sequence[Any]) -> Sequence[NearChunk]:
    return sorted((NearChunk(*row) for row in rows), key=lambda chunk: -chunk.cosine)
