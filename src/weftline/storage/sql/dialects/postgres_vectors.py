"""pgvector: binary codec for half-precision vectors, and one partition for each tenant."""

from __future__ import annotations

import hashlib
import struct
from array import array
from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Iterable

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
