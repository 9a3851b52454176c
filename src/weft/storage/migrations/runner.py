"""Bringing a database to the schema this Weft knows: ordered steps, each applied once and never edited after."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from weft.kernel.clock import to_micros
from weft.kernel.errors import Conflict

if TYPE_CHECKING:
    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database, Transaction

_RECORD = """
CREATE TABLE IF NOT EXISTS weft_migrations (
    name       TEXT NOT NULL PRIMARY KEY,
    checksum   TEXT NOT NULL,
    applied_at {bigint} NOT NULL
) {table};
"""


class SchemaMismatch(Conflict):
    """The database was made by another version of Weft."""

    code = "SCHEMA_MISMATCH"
    hint = "Run the version of Weft that made this database, or restore a backup made by this one."
    severity = "critical"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema's history."""

    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Whether a step was applied, and when (microseconds since 1970)."""

    name: str
    applied_at: int | None


def known_migrations() -> list[Migration]:
    folder = resources.files("weft.storage.migrations")
    steps = sorted((step for step in folder.iterdir() if step.name.endswith(".sql")), key=lambda step: step.name)
    return [Migration(step.name.removesuffix(".sql"), step.read_text("utf-8")) for step in steps]


async def migrate(database: Database, clock: Clock, *, steps: int | None = None) -> list[str]:
    """Apply what is missing, in order, and return the names. Safe to call from several processes at once.

    ``steps`` stops after so many of the known ones.
    """

    async def apply(transaction: Transaction) -> list[str]:
        await transaction.run(_RECORD)
        applied = await _applied(transaction)
        missing = [step for step in known_migrations()[:steps] if step.name not in applied]
        for step in missing:
            await transaction.run(step.sql)
            await transaction.run(
                "INSERT INTO weft_migrations (name, checksum, applied_at) VALUES ($1, $2, $3)",
                step.name,
                step.checksum,
                to_micros(clock.now()),
            )
        return [step.name for step in missing]

    return await database.exclusively(apply)


async def status(database: Database) -> list[MigrationStatus]:
    """Return every known step with the time it was applied, if it was."""

    async def look(transaction: Transaction) -> list[MigrationStatus]:
        await transaction.run(_RECORD)
        applied = await _applied(transaction)
        return [MigrationStatus(step.name, applied.get(step.name)) for step in known_migrations()]

    return await database.exclusively(look)


async def _applied(transaction: Transaction) -> dict[str, int]:
    """Return what was applied and when, refusing a database that this version's own steps did not make."""
    known = {step.name: step.checksum for step in known_migrations()}
    rows = await transaction.all("SELECT name, checksum, applied_at FROM weft_migrations ORDER BY name")
    for name, checksum, _ in rows:
        if name not in known:
            raise SchemaMismatch(f"The database has the step '{name}', which this version of Weft does not know.")
        if known[name] != checksum:
            raise SchemaMismatch(f"The step '{name}' was applied from other text than this version carries.")
    return {name: applied_at for name, _, applied_at in rows}
