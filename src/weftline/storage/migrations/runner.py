"""Schema migrations: ordered SQL files, each applied once and recorded with its checksum."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from weftline.kernel.clock import to_micros
from weftline.kernel.errors import Conflict

if TYPE_CHECKING:
    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database

_MIGRATIONS_TABLE = """
CREATE TABLE IF NOT EXISTS weftline_migrations (
    name       TEXT NOT NULL PRIMARY KEY,
    checksum   TEXT NOT NULL,
    applied_at {bigint} NOT NULL
) {table};
"""


class SchemaMismatch(Conflict):
    """The schema of the database belongs to another version of Weftline."""

    code = "SCHEMA_MISMATCH"
    hint = "Run the version of Weftline that created this database, or restore a backup made by this version."
    severity = "critical"


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration."""

    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """When a migration was applied (microseconds since 1970), if it was."""

    name: str
    applied_at: int | None


@cache
def known_migrations() -> tuple[Migration, ...]:
    folder = resources.files("weftline.storage.migrations")
    steps = sorted((step for step in folder.iterdir() if step.name.endswith(".sql")), key=lambda step: step.name)
    return tuple(Migration(step.name.removesuffix(".sql"), step.read_text("utf-8")) for step in steps)


async def migrate(database: Database, clock: Clock, *, steps: int | None = None) -> list[str]:
    """Apply missing migrations in order and return their names. Safe to call from several processes at once.

    ``steps`` limits it to the first migrations.
    """

    async def apply(transaction: Transaction) -> list[str]:
        await transaction.run(_MIGRATIONS_TABLE)
        applied = await _applied(transaction)
        missing = [step for step in known_migrations()[:steps] if step.name not in applied]
        for step in missing:
            await transaction.run(step.sql)
            await transaction.run(
                "INSERT INTO weftline_migrations (name, checksum, applied_at) VALUES ($1, $2, $3)",
                step.name,
                step.checksum,
                to_micros(clock.now()),
            )
        return [step.name for step in missing]

    return await database.exclusively(apply)


async def status(database: Database) -> list[MigrationStatus]:
    """Return every known migration with the time it was applied."""

    async def read(transaction: Transaction) -> list[MigrationStatus]:
        await transaction.run(_MIGRATIONS_TABLE)
        applied = await _applied(transaction)
        return [MigrationStatus(step.name, applied.get(step.name)) for step in known_migrations()]

    return await database.exclusively(read)


async def _applied(transaction: Transaction) -> dict[str, int]:
    """Return the applied migrations; SchemaMismatch if one is unknown or has another checksum."""
    known = {step.name: step.checksum for step in known_migrations()}
    rows = await transaction.all("SELECT name, checksum, applied_at FROM weftline_migrations ORDER BY name")
    for name, checksum, _ in rows:
        if name not in known:
            raise SchemaMismatch(
                f"The database has the migration '{name}', which this version of Weftline does not know."
            )
        if known[name] != checksum:
            raise SchemaMismatch(f"The migration '{name}' was applied with another content than in this version.")
    return {name: applied_at for name, _, applied_at in rows}
