"""The way of a tenant from one embedding model to another, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.indexing.model_migration.model import ModelComparison, Move

if TYPE_CHECKING:
    from weft.storage.sql.database import Row, Transaction

_FIELDS = Move.__struct_fields__
_MOVE = f"SELECT {', '.join(_FIELDS)} FROM model_moves WHERE tenant = $1 "  # noqa: S608 - our own fields
_SAVE = f"""
INSERT INTO model_moves (tenant, {", ".join(_FIELDS)})
VALUES ({", ".join(f"${place}" for place in range(1, len(_FIELDS) + 2))})
ON CONFLICT (tenant) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _FIELDS)}
"""  # noqa: S608 - likewise


class SqlMoveStore:
    """A move, as the one row of a tenant."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant

    async def find(self) -> Move | None:
        return _move(await self._tx.one(_MOVE, self._tenant))

    async def find_locked(self) -> Move | None:
        return _move(await self._tx.one(_MOVE + "{for_update}", self._tenant))

    async def save(self, move: Move) -> None:
        said = msgspec.structs.asdict(move) | {
            "comparable": int(move.comparable),
            "comparison": None if move.comparison is None else msgspec.json.encode(move.comparison).decode(),
        }
        await self._tx.run(_SAVE, self._tenant, *(said[name] for name in _FIELDS))


async def tenants_moving(transaction: Transaction) -> list[str]:
    """Return every tenant of the installation whose last move still has something left to do."""
    rows = await transaction.all("SELECT tenant FROM model_moves WHERE finished_at IS NULL ORDER BY tenant")
    return [row[0] for row in rows]


def _move(row: Row | None) -> Move | None:
    if row is None:
        return None
    said = dict(zip(_FIELDS, row, strict=True))
    if said["comparison"] is not None:
        said["comparison"] = msgspec.json.decode(said["comparison"], type=ModelComparison)
    return Move(**{**said, "comparable": bool(said["comparable"])})
