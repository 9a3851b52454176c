"""SQL store of model migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.indexing.model_migration.canary import Canary
from weftline.indexing.model_migration.model import ModelComparison, ModelMigration
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from weftline.kernel.transaction import Row, Transaction

_FIELDS = ModelMigration.__struct_fields__
_JSON_FIELDS = {"comparison": ModelComparison, "canary": Canary}
_MIGRATION = f"SELECT {', '.join(_FIELDS)} FROM model_migrations WHERE tenant = $1 "  # noqa: S608 - our own fields
_SAVE = f"""
INSERT INTO model_migrations (tenant, {", ".join(_FIELDS)})
VALUES ({", ".join(f"${place}" for place in range(1, len(_FIELDS) + 2))})
ON CONFLICT (tenant) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _FIELDS)}
"""  # noqa: S608 - likewise


class ModelMigrationStore(SqlStore):
    """The latest model migration of the transaction's tenant."""

    async def find(self) -> ModelMigration | None:
        return _migration(await self._tx.one(_MIGRATION, self._tenant))

    async def find_locked(self) -> ModelMigration | None:
        """Return it and lock its row."""
        return _migration(await self._tx.one(_MIGRATION + "{for_update}", self._tenant))

    async def save(self, migration: ModelMigration) -> None:
        values = msgspec.structs.asdict(migration) | {
            "comparable": int(migration.comparable),
            **{name: _encoded(getattr(migration, name)) for name in _JSON_FIELDS},
        }
        await self._tx.run(_SAVE, self._tenant, *(values[name] for name in _FIELDS))


async def migrating_tenants(transaction: Transaction) -> list[str]:
    """Return the tenants with an unfinished model migration."""
    rows = await transaction.all("SELECT tenant FROM model_migrations WHERE finished_at IS NULL ORDER BY tenant")
    return [row[0] for row in rows]


def _encoded(value: msgspec.Struct | None) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _migration(row: Row | None) -> ModelMigration | None:
    if row is None:
        return None
    values = dict(zip(_FIELDS, row, strict=True))
    for name, kind in _JSON_FIELDS.items():
        if values[name] is not None:
            values[name] = msgspec.json.decode(values[name], type=kind)
    return ModelMigration(**{**values, "comparable": bool(values["comparable"])})
