"""pgvector: vectors as bytes on the way to PostgreSQL and back, and a partition for each tenant that has any."""

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
# Attached rather than made in its place: that would wait for everyone who uses the table.
_ADD_PARTITION = """
DO $$ BEGIN
  EXECUTE format('CREATE TABLE %I (LIKE chunk_vectors INCLUDING ALL)', '{partition}');
  EXECUTE format('ALTER TABLE chunk_vectors ATTACH PARTITION %I FOR VALUES IN (%L)', '{partition}', '{tenant}');
END $$
"""


async def learn_vectors(connection: Any) -> bool:  # noqa: ANN401 - asyncpg's own type is private
    """Have a connection take and give vectors as bytes; False while the server knows no vectors yet."""
    schema = await connection.fetchval(_SCHEMA_OF_TYPE)
    if schema is None:
        return False
    await connection.set_type_codec("halfvec", schema=schema, encoder=_encoded, decoder=_decoded, format="binary")
    return True


def partition_of(tenant: str) -> str:
    """Return the name of the table that keeps a tenant's vectors; names of tables are shorter than those of tenants."""
    return f"{_TABLE}_{hashlib.sha256(tenant.encode()).hexdigest()[:24]}"


def lacks_partition(error: asyncpg.CheckViolationError) -> bool:
    """Tell whether a tenant's first vectors found no table to go to."""
    return bool(error.table_name == _TABLE and error.constraint_name is None)


async def add_partitions(connection: Any, tenants: Iterable[str]) -> None:  # noqa: ANN401 - asyncpg's own type is private
    """Make the tables for the vectors of tenants that have none, as the owner of the schema."""
    if not await connection.fetchval(_IS_THERE, _TABLE):
        return
    for tenant in tenants:
        partition = partition_of(tenant)
        if not await connection.fetchval(_IS_THERE, partition):
            await connection.execute(_ADD_PARTITION.format(partition=partition, tenant=tenant.replace("'", "''")))


def is_missing(error: asyncpg.PostgresError) -> bool:
    """Tell whether an error says that the server has no pgvector, or one that knows no halves yet."""
    about = str(error)
    return "halfvec" in about or ("extension" in about and "vector" in about)


def _encoded(vector: bytes) -> bytes:
    return _HEADER.pack(len(vector) // 2, 0) + in_our_order(vector)


def _decoded(sent: bytes) -> bytes:
    return in_our_order(bytes(sent[_HEADER.size :]))


def in_our_order(halves: bytes) -> bytes:
    """Swap the bytes of each number: ours come little end first, those on the way big end first (and back)."""
    numbers = array("H", halves)
    numbers.byteswap()
    return numbers.tobytes()
