"""Restoring a backup: all of it checked, then the objects stored, then the rows that refer to them."""

from __future__ import annotations

import hashlib
import secrets
from functools import cached_property
from itertools import chain, groupby
from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.object_storage.model import ObjectBusy, ObjectDamaged, ObjectState, Pointer
from weft.kernel.errors import Conflict
from weft.storage.backup.archive import (
    BackupUnusable,
    Meter,
    ObjectsContent,
    damage_reported,
    object_member,
    opened,
    read_manifest,
)
from weft.storage.backup.tables import COLLECTIONS, OBJECTS, TENANTS, known_steps, object_rows, tables_after
from weft.storage.migrations.runner import SchemaMismatch, migrate, status
from weft.storage.sql.database import SYSTEM
from weft.storage.sql.object_storage import SqlObjectIndex

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from weft.capabilities.object_storage.staging import Staging
    from weft.kernel.clock import Clock
    from weft.storage.backup.archive import Manifest, Progress, TableContent
    from weft.storage.backup.tables import ObjectRow, Table
    from weft.storage.sql.database import Database, Transaction

_BATCH_BYTES = 2_000_000
_BATCH_ITEMS = 100


class DatabaseNotEmpty(Conflict):
    """The database already holds something, which a restore would mix with the backup."""

    code = "DATABASE_NOT_EMPTY"
    hint = "Restore into a new data folder or an empty database: weft --data-dir NEW_FOLDER db restore FILE."


async def restore(
    database: Database, staging: Staging, path: Path, clock: Clock, progress: Progress | None = None
) -> Manifest:
    """Fill an empty database from a backup: all of it, checked before anything is written, or nothing.

    Objects are stored before the rows are committed, so no row ever refers to what is not there. Those of a restore
    that fails are noted as given up: another attempt takes them over, or a server's sweep removes them.
    """
    with opened(path) as archive:
        manifest = read_manifest(archive)
        steps = _check_fits(manifest)
        backup = _Backup(archive, manifest, tables_after(steps))
        backup.verify()
        await _make_schema(database, clock, steps)
        await database.read(SYSTEM, backup.require_empty)
        meter = Meter(progress, backup.weight)
        await backup.store_objects(staging, meter)
        await database.prepare_vectors(backup.tenants())
        await database.write(SYSTEM, lambda tx: backup.fill(tx, meter))
    # What an older version kept is brought up to this one as at any upgrade.
    await migrate(database, clock)
    return manifest


class _Backup:
    """An opened backup, and the tables of the schema it was made with."""

    def __init__(self, archive: zipfile.ZipFile, manifest: Manifest, tables: list[Table]) -> None:
        if {table.name: table.columns for table in tables} != {n: c.columns for n, c in manifest.tables.items()}:
            raise BackupUnusable("The backup's tables are not those its own schema makes.")
        self._archive = archive
        self._manifest = manifest
        self._all = tables
        self._index = next((table for table in tables if table.name == OBJECTS), None)
        self._tables = [table for table in tables if table is not self._index]

    @property
    def weight(self) -> int:
        """How much there is to do: rows, and objects, whose rows in the index come with them."""
        return sum(self._manifest.tables[table.name].rows for table in self._tables) + self._manifest.objects.count

    def verify(self) -> None:
        """Read everything through and compare it with what the manifest says."""
        for table in self._all:
            _verify(self._archive, table, self._manifest.tables[table.name])
        sizes = [len(self._content(row)) for row in self._objects]
        found = ObjectsContent(len(sizes), sum(sizes), self._manifest.objects.left_out)
        if found != self._manifest.objects:
            raise BackupUnusable("The backup's large values are not as many as its manifest says.")

    def tenants(self) -> list[str]:
        table = next(table for table in self._tables if table.name == TENANTS)
        name, decode = table.columns.index("tenant"), msgspec.json.Decoder(table.row).decode
        with table.lines(self._archive) as lines:
            return [decode(line)[name] for line in lines]

    async def require_empty(self, transaction: Transaction) -> None:
        for table in self._all:
            if await table.count(transaction):
                raise DatabaseNotEmpty

    async def store_objects(self, staging: Staging, meter: Meter) -> None:
        for (tenant, owner), rows in groupby(self._objects, key=_tenant_and_owner):
            for contents in _batches(map(self._content, rows)):
                await staging.stage(tenant, owner, contents)
                meter.add(len(contents))

    async def fill(self, transaction: Transaction, meter: Meter) -> None:
        await self.require_empty(transaction)
        for table in self._tables:
            await self._fill_table(transaction, table, meter)
        if any(table.name == COLLECTIONS for table in self._tables):
            # Copies of collections that are left from before the restore must not be taken for copies of these.
            await transaction.run("UPDATE collections SET birth = $1", secrets.randbits(62))
        for row in self._objects:
            if not await SqlObjectIndex(transaction, row.tenant).keep(row.path):
                raise ObjectBusy

    async def _fill_table(self, transaction: Transaction, table: Table, meter: Meter) -> None:
        decode = msgspec.json.Decoder(table.row).decode
        with table.lines(self._archive) as lines:
            for batch in _batches(lines):
                await transaction.run(table.insert(len(batch)), *chain.from_iterable(map(decode, batch)))
                meter.add(len(batch))
        if await table.count(transaction) != self._manifest.tables[table.name].rows:
            raise BackupUnusable(f"The table '{table.name}' did not take all of its rows.")

    @cached_property
    def _objects(self) -> list[ObjectRow]:
        if self._index is None:
            return []
        with self._index.lines(self._archive) as lines:
            return [row for row in object_rows(self._index, lines) if row.state == ObjectState.KEPT]

    def _content(self, row: ObjectRow) -> bytes:
        try:
            pointer = Pointer.at(row.path, row.size)
            with damage_reported():
                content = self._archive.read(object_member(row.path))
            pointer.check(content)
        except ObjectDamaged as error:
            raise BackupUnusable(f"The large value '{row.path}' is not what was stored.") from error
        if not pointer.is_of(row.tenant):
            raise BackupUnusable(f"The large value '{row.path}' does not belong to its tenant.")
        return content


def _check_fits(manifest: Manifest) -> int:
    """Return with how many of the known steps the backup was made: all of them, or an older version's."""
    given, known = manifest.migrations, known_steps()
    expected = known[: len(given)]
    if not given or given != expected:
        differences = [f"it has {step.name}" for step in given if step not in expected]
        differences += [f"it lacks {step.name}" for step in expected if step not in given]
        raise SchemaMismatch(
            f"The backup was made by Weft {manifest.weft} with another schema ({', '.join(differences)}).",
            backup_version=manifest.weft,
        )
    return len(given)


async def _make_schema(database: Database, clock: Clock, steps: int) -> None:
    """Bring an empty database to the schema of the backup, and no further."""
    if any(step.applied_at is not None for step in (await status(database))[steps:]):
        raise SchemaMismatch(
            "The database has a newer schema than the backup.",
            hint="Restore into a new data folder or database; its schema is brought up to date afterwards.",
        )
    await migrate(database, clock, steps=steps)


def _verify(archive: zipfile.ZipFile, table: Table, expected: TableContent) -> None:
    """Read a table's stream through and compare it with what the manifest says; every row must be of its types."""
    digest = hashlib.sha256()
    rows = 0
    decode = msgspec.json.Decoder(table.row).decode
    with damage_reported(), table.lines(archive) as lines:
        for line in lines:
            digest.update(line)
            decode(line)
            rows += 1
    if rows != expected.rows:
        raise BackupUnusable(f"The table '{table.name}' has {rows} rows; the manifest says {expected.rows}.")
    if digest.hexdigest() != expected.sha256:
        raise BackupUnusable(f"The table '{table.name}' is not what was written: its SHA-256 differs.")


def _tenant_and_owner(row: ObjectRow) -> tuple[str, str]:
    return row.tenant, Pointer.at(row.path, row.size).owner


def _batches(parts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Gather lines for one statement, or objects for one upload, as many as parameters and memory allow."""
    batch: list[bytes] = []
    weight = 0
    for part in parts:
        batch.append(part)
        weight += len(part)
        if len(batch) == _BATCH_ITEMS or weight >= _BATCH_BYTES:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch
