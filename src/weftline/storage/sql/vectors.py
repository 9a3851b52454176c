"""Nearest-neighbour search in pgvector, with an HNSW index for large collections."""

from __future__ import annotations

import hashlib
import struct
from array import array
from typing import TYPE_CHECKING, Any

import asyncpg

from weftline.indexing.collections import NearChunk, PackedVectors
from weftline.indexing.sql import CollectionStore, in_json
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.kernel.transaction import Row, Transaction
    from weftline.storage.sql.dialects.postgres import PostgresDatabase


# pgvector: binary codec for half-precision vectors, and one partition for each tenant.

_TABLE = "chunk_vectors"
_HEADER = struct.Struct(">HH")
_SCHEMA_OF_TYPE = """
SELECT nspname FROM pg_type JOIN pg_namespace ON pg_namespace.oid = typnamespace
WHERE pg_type.oid = to_regtype('halfvec')
"""
_IS_THERE = "SELECT to_regclass($1) IS NOT NULL"
# ATTACH takes a weaker lock than CREATE TABLE ... PARTITION OF, which would wait for every user of the table.
_ADD_PARTITION = """
DO $$ BEGIN
  EXECUTE format('CREATE TABLE %I (LIKE chunk_vectors INCLUDING ALL)', '{partition}');
  EXECUTE format('ALTER TABLE chunk_vectors ATTACH PARTITION %I FOR VALUES IN (%L)', '{partition}', '{tenant}');
END $$
"""


async def register_vector_codec(connection: Any) -> bool:  # noqa: ANN401 - asyncpg's own type is private
    """Register the codec of vectors on a connection; False if the extension is not installed yet."""
    # In one transaction, so that a pooler does not put its statements on different connections.
    async with connection.transaction():
        schema = await connection.fetchval(_SCHEMA_OF_TYPE)
        if schema is None:
            return False
        await connection.set_type_codec("halfvec", schema=schema, encoder=_encoded, decoder=_decoded, format="binary")
    return True


def partition_of(tenant: str) -> str:
    """Return the partition of a tenant. The tenant is hashed, because table names are shorter than tenant names."""
    return f"{_TABLE}_{hashlib.sha256(tenant.encode()).hexdigest()[:24]}"


def lacks_partition(error: asyncpg.CheckViolationError) -> bool:
    """Tell whether an insert failed because the tenant has no partition."""
    return bool(error.table_name == _TABLE and error.constraint_name is None)


async def add_partitions(connection: Any, tenants: Iterable[str]) -> None:  # noqa: ANN401 - asyncpg's own type is private
    """Create the missing partitions of tenants, as the owner of the schema."""
    if not await connection.fetchval(_IS_THERE, _TABLE):
        return
    for tenant in tenants:
        partition = partition_of(tenant)
        if not await connection.fetchval(_IS_THERE, partition):
            await connection.execute(_ADD_PARTITION.format(partition=partition, tenant=tenant.replace("'", "''")))


def lacks_pgvector(error: asyncpg.PostgresError) -> bool:
    """Tell whether an error means that the server has no pgvector, or one without half-precision vectors."""
    about = str(error)
    return "halfvec" in about or ("extension" in about and "vector" in about)


def _encoded(vector: bytes) -> bytes:
    return _HEADER.pack(len(vector) // 2, 0) + swap_bytes(vector)


def _decoded(sent: bytes) -> bytes:
    return swap_bytes(bytes(sent[_HEADER.size :]))


def swap_bytes(halves: bytes) -> bytes:
    """Convert 16-bit numbers between little-endian, as stored, and big-endian, as sent."""
    numbers = array("H", halves)
    numbers.byteswap()
    return numbers.tobytes()


# HNSW parameters, measured against exact search: see docs/decisions/0036.
_HNSW_M = 16
_EF_CONSTRUCTION = 96
_EF_SEARCH_PER_RESULT = 1.5
_MIN_EF_SEARCH = 240
_MAX_EF_SEARCH = 1_000
_BUILD_MEMORY = "1GB"
# Partial indexes are only used by plans made for the actual parameters, so generic plans are disabled.
_SEARCH_SETTINGS = """
SELECT set_config('hnsw.ef_search', $1, true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.max_scan_tuples', '200000', true), set_config('plan_cache_mode', 'force_custom_plan', true)
"""
_FROM_NUMBERED = """
FROM chunk_vectors WHERE tenant = $1 AND collection = $2 AND model = $3 AND number {among}$4{end_among}
"""
# Thousands of vectors as one value: decoding them row by row would dominate. The first four bytes of each encode its
# dimensions.
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
_ANALYZED = (
    "chunks (tenant, collection, number, place, item, version)",
    "documents (tenant, domain, document_id, state)",
)
_QUOTED = "SELECT quote_literal($1), quote_literal($2)"


class PgVectors:
    """Vectors of one collection and model in PostgreSQL."""

    def __init__(self, database: PostgresDatabase, tenant: str, collection: str, model: str) -> None:
        self._database = database
        self._scope = Scope(tenant)
        self._tenant, self._collection, self._model = tenant, collection, model

    async def nearest(self, vector: bytes, limit: int) -> Sequence[NearChunk]:
        column, fits = _column(len(vector) // 2), _has_dimensions(len(vector) // 2)

        async def search(transaction: Transaction) -> Sequence[NearChunk]:
            await transaction.one(_SEARCH_SETTINGS, str(_ef_search(limit)))
            rows = await transaction.all(
                f"""
                SELECT number, 1 - ({column} <=> $1) FROM chunk_vectors
                WHERE tenant = $2 AND collection = $3 AND model = $4 AND {fits} ORDER BY {column} <=> $1 LIMIT $5
                """,  # noqa: S608 - our own column
                vector,
                self._tenant,
                self._collection,
                self._model,
                limit,
            )
            return _nearest_first(rows)

        return await self._database.read(self._scope, search)

    async def nearest_among(self, vector: bytes, limit: int, numbers: Sequence[int]) -> Sequence[NearChunk]:
        column, fits = _column(len(vector) // 2), _has_dimensions(len(vector) // 2)

        async def search(transaction: Transaction) -> Sequence[NearChunk]:
            rows = await transaction.all(
                f"""
                SELECT number, 1 - ({column} <=> $1) AS cosine FROM chunk_vectors
                WHERE tenant = $2 AND collection = $3 AND model = $4 AND number {{among}}$5{{end_among}} AND {fits}
                ORDER BY cosine DESC, number LIMIT $6
                """,  # noqa: S608 - our own column
                vector,
                self._tenant,
                self._collection,
                self._model,
                in_json(numbers),
                limit,
            )
            return _nearest_first(rows)

        return await self._database.read(self._scope, search) if numbers else []

    async def cosines(self, vectors: Sequence[bytes], numbers: Sequence[int]) -> Mapping[int, Sequence[float]]:
        dimensions = len(vectors[0]) // 2
        each = ", ".join(f"-({_column(dimensions)} <#> ${place})" for place in range(5, 5 + len(vectors)))
        sql = f"SELECT number, {each} {_FROM_NUMBERED} AND {_has_dimensions(dimensions)}"

        async def search(transaction: Transaction) -> Sequence[Row]:
            values = (self._tenant, self._collection, self._model, in_json(numbers))
            return await transaction.all(sql, *values, *vectors)

        return {number: cosines for number, *cosines in await self._database.read(self._scope, search)}

    async def find(self, numbers: Sequence[int], dimensions: int) -> PackedVectors:
        sql = f"{_PACKED} {_FROM_NUMBERED} AND {_has_dimensions(dimensions)}"
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
                    # Left by an interrupted build.
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
        await connection.execute(f"SET maintenance_work_mem = '{_BUILD_MEMORY}'")
        try:
            await connection.execute(
                f"""
                CREATE INDEX CONCURRENTLY {name} ON {partition_of(self._tenant)}
                USING hnsw ({_column(dimensions)} halfvec_cosine_ops)
                WITH (m = {_HNSW_M}, ef_construction = {_EF_CONSTRUCTION})
                WHERE collection = {collection} AND model = {model} AND {_has_dimensions(dimensions)}
                """
            )
        finally:
            await connection.execute("RESET maintenance_work_mem")
        # After a bulk insert: with stale statistics the planner reads whole collections where a few rows are needed.
        for table in _ANALYZED:
            await connection.execute(f"ANALYZE {table}")
        return True


async def drop_unused_indexes(database: PostgresDatabase, tenant: str) -> None:
    """Drop the indexes whose collection or model has no vectors left."""

    async def used(transaction: Transaction) -> set[str]:
        store = CollectionStore(transaction)
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
    """Return the number of invalid vector indexes, which searches do not use."""
    row = await transaction.one(
        """
        SELECT COUNT(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE c.relnamespace = current_schema()::regnamespace AND starts_with(c.relname::text, 'nearest_')
          AND NOT i.indisvalid
        """
    )
    return 0 if row is None else int(row[0])


def _column(dimensions: int) -> str:
    """Return the index expression: a column without fixed dimensions cannot be indexed."""
    return f"(vector::halfvec({dimensions}))"


def _has_dimensions(dimensions: int) -> str:
    """Return the condition for comparable vectors: a model replaced under its name may have other dimensions."""
    return f"vector_dims(vector) = {dimensions}"


def _index_name(tenant: str, collection: str, model: str) -> str:
    names = f"{tenant}\0{collection}\0{model}"
    return f"nearest_{hashlib.sha256(names.encode()).hexdigest()[:24]}"


def _ef_search(limit: int) -> int:
    return min(max(_MIN_EF_SEARCH, round(limit * _EF_SEARCH_PER_RESULT)), _MAX_EF_SEARCH)


def _nearest_first(rows: Sequence[Any]) -> Sequence[NearChunk]:
    return sorted((NearChunk(*row) for row in rows), key=lambda chunk: -chunk.cosine)
