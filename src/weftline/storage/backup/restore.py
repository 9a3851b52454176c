"""Restores a backup: verifies all of it, stores the objects, then inserts the rows."""

from __future__ import annotations

import hashlib
import secrets
from functools import cached_property
from itertools import chain, groupby
from typing import TYPE_CHECKING

import msgspec

from weftline.history.object_storage import ObjectBusy, ObjectDamaged, ObjectIndex, ObjectState, Pointer
from weftline.kernel.errors import Conflict
from weftline.storage.backup.archive import (
    COLLECTIONS,
    OBJECTS,
    TENANTS,
    BackupUnusable,
    ObjectsContent,
    ProgressCounter,
    known_schema_steps,
    object_member,
    object_rows,
    open_archive,
    read_manifest,
    report_damage,
    tables_of_schema,
)
from weftline.storage.migrations.runner import SchemaMismatch, migrate, status
from weftline.storage.sql.database import SYSTEM

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from weftline.history.object_storage import Staging
    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.storage.backup.archive import Manifest, ObjectRow, Progress, Table, TableContent
    from weftline.storage.sql.database import Database

_BATCH_BYTES = 2_000_000
_BATCH_ITEMS = 100


class DatabaseNotEmpty(Conflict):
    """The database is not empty; a restore would mix its data with the backup."""

    code = "DATABASE_NOT_EMPTY"
    hint = "Restore into a new data folder or an empty database: weftline --data-dir NEW_FOLDER db restore FILE."


async def restore(
    database: Database, staging: Staging, path: Path, clock: Clock, progress: Progress | None = None
) -> Manifest:
    """Restore a backup into an empty database: all of it, verified before anything is written, or nothing.

    Objects are stored before the rows are committed, so no row refers to a missing object. If the restore fails, the
    next attempt reuses its objects, or the garbage collection of a server removes them.
    """
    with open_archive(path) as archive:
        manifest = read_manifest(archive)
        steps = _check_schema(manifest)
        backup = _Backup(archive, manifest, tables_of_schema(steps))
        backup.verify()
        await _create_schema(database, clock, steps)
        await database.read(SYSTEM, backup.require_empty)
        counter = ProgressCounter(progress, backup.weight)
        await backup.store_objects(staging, counter)
        await database.prepare_vectors(backup.tenants())
        await database.write(SYSTEM, lambda tx: backup.fill(tx, counter))
    # A backup of an older version is migrated like any upgrade.
    await migrate(database, clock)
    return manifest


class _Backup:
    """An open backup, and the tables of its schema."""

    def __init__(self, archive: zipfile.ZipFile, manifest: Manifest, tables: list[Table]) -> None:
        if {table.name: table.columns for table in tables} != {n: c.columns for n, c in manifest.tables.items()}:
            raise BackupUnusable("The tables of the backup do not match its schema.")
        self._archive = archive
        self._manifest = manifest
        self._all_tables = tables
        self._object_index = next((table for table in tables if table.name == OBJECTS), None)
        self._tables = [table for table in tables if table is not self._object_index]

    @property
    def weight(self) -> int:
        """Total for the progress: rows and objects; an object and its index row count as one."""
        return sum(self._manifest.tables[table.name].rows for table in self._tables) + self._manifest.objects.count

    def verify(self) -> None:
        """Read everything and compare it with the manifest."""
        for table in self._all_tables:
            _verify(self._archive, table, self._manifest.tables[table.name])
        sizes = [len(self._content(row)) for row in self._objects]
        found = ObjectsContent(len(sizes), sum(sizes), self._manifest.objects.omitted)
        if found != self._manifest.objects:
            raise BackupUnusable("The objects of the backup do not match its manifest.")

    def tenants(self) -> list[str]:
        table = next(table for table in self._tables if table.name == TENANTS)
        name, decode = table.columns.index("tenant"), msgspec.json.Decoder(table.row).decode
        with table.lines(self._archive) as lines:
            return [decode(line)[name] for line in lines]

    async def require_empty(self, transaction: Transaction) -> None:
        for table in self._all_tables:
            if await table.count(transaction):
                raise DatabaseNotEmpty

    async def store_objects(self, staging: Staging, counter: ProgressCounter) -> None:
        for (tenant, owner), rows in groupby(self._objects, key=_tenant_and_owner):
            for contents in _batches(map(self._content, rows)):
                await staging.stage(tenant, owner, contents)
                counter.add(len(contents))

    async def fill(self, transaction: Transaction, counter: ProgressCounter) -> None:
        await self.require_empty(transaction)
        for table in self._tables:
            await self._fill_table(transaction, table, counter)
        if any(table.name == COLLECTIONS for table in self._tables):
            # A new generation, so that local index replicas from before the restore are not reused.
            await transaction.run("UPDATE collections SET generation = $1", secrets.randbits(62))
        for row in self._objects:
            if not await ObjectIndex(transaction, row.tenant).keep(row.path):
                raise ObjectBusy

    async def _fill_table(self, transaction: Transaction, table: Table, counter: ProgressCounter) -> None:
        decode = msgspec.json.Decoder(table.row).decode
        with table.lines(self._archive) as lines:
            for batch in _batches(lines):
                await transaction.run(table.insert(len(batch)), *chain.from_iterable(map(decode, batch)))
                counter.add(len(batch))
        if await table.count(transaction) != self._manifest.tables[table.name].rows:
            raise BackupUnusable(f"Not all rows of the table '{table.name}' were inserted.")

    @cached_property
    def _objects(self) -> list[ObjectRow]:
        if self._object_index is None:
            return []
        with self._object_index.lines(self._archive) as lines:
            return [row for row in object_rows(self._object_index, lines) if row.state == ObjectState.KEPT]

    def _content(self, row: ObjectRow) -> bytes:
        try:
            pointer = Pointer.at(row.path, row.size)
            with report_damage():
                content = self._archive.read(object_member(row.path))
            pointer.check(content)
        except ObjectDamaged as error:
            raise BackupUnusable(f"The object '{row.path}' is damaged.") from error
        if not pointer.is_of(row.tenant):
            raise BackupUnusable(f"The object '{row.path}' does not belong to its tenant.")
        return content


def _check_schema(manifest: Manifest) -> int:
    """Return the number of migrations that the backup was made with; SchemaMismatch if they are not known ones."""
    given, known = manifest.migrations, known_schema_steps()
    expected = known[: len(given)]
    if not given or given != expected:
        differences = [f"has {step.name}" for step in given if step not in expected]
        differences += [f"lacks {step.name}" for step in expected if step not in given]
        raise SchemaMismatch(
            f"The backup was made by Weftline {manifest.weftline} with another schema: it {', '.join(differences)}.",
            backup_version=manifest.weftline,
        )
    return len(given)


async def _create_schema(database: Database, clock: Clock, steps: int) -> None:
    """Migrate an empty database to the schema of the backup."""
    if any(step.applied_at is not None for step in (await status(database))[steps:]):
        raise SchemaMismatch(
            "The database has a newer schema than the backup.",
            hint="Restore into a new data folder or database; it is migrated afterwards.",
        )
    await migrate(database, clock, steps=steps)


def _verify(archive: zipfile.ZipFile, table: Table, expected: TableContent) -> None:
    """Compare a table with the manifest and check the types of every row."""
    digest = hashlib.sha256()
    rows = 0
    decode = msgspec.json.Decoder(table.row).decode
    with report_damage(), table.lines(archive) as lines:
        for line in lines:
            digest.update(line)
            decode(line)
            rows += 1
    if rows != expected.rows:
        raise BackupUnusable(f"The table '{table.name}' has {rows} rows; the manifest has {expected.rows}.")
    if digest.hexdigest() != expected.sha256:
        raise BackupUnusable(f"The table '{table.name}' is damaged: its SHA-256 differs.")


def _tenant_and_owner(row: ObjectRow) -> tuple[str, str]:
    return row.tenant, Pointer.at(row.path, row.size).owner


def _batches(parts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group lines for one statement, or objects for one upload, within the limits of parameters and memory."""
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
