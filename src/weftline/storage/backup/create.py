"""Creates a backup: all tables in one read transaction, then the objects they refer to."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from typing import IO, TYPE_CHECKING

import msgspec

from weftline.history.object_storage import ObjectDamaged, ObjectMissing, Pointer, hold_removals, release_removals
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import Conflict, DiskFull
from weftline.storage.backup.archive import (
    FORMAT,
    OBJECTS,
    Manifest,
    ObjectsContent,
    ProgressCounter,
    TableContent,
    atomic_archive,
    known_schema_steps,
    object_member,
    object_rows,
    tables_of_schema,
    write_manifest,
)
from weftline.storage.migrations.runner import status
from weftline.storage.sql.database import SYSTEM

if TYPE_CHECKING:
    import zipfile
    from collections.abc import AsyncIterator, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from weftline.history.object_storage import ObjectStore
    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction, Value
    from weftline.storage.backup.archive import ObjectRow, Progress, Table
    from weftline.storage.sql.database import Database

# Rows vary from bytes to megabytes, so the page size follows the size of previous rows.
_PAGE_BYTES = 2_000_000
_PAGE_ROWS = 2_000
_FIRST_PAGE_ROWS = 16
_MAX_LISTED = 10


class SchemaOutdated(Conflict):
    """The database lacks migrations of this version of Weftline."""

    code = "SCHEMA_OUTDATED"
    hint = "Run weftline db migrate or start a server, then create the backup."


class BackupIncomplete(Conflict):
    """Some objects are missing or damaged, so the backup would be incomplete."""

    code = "BACKUP_INCOMPLETE"
    hint = "No file was written. Restore the objects, or leave them out: weftline db backup FILE --skip-damaged."


class _BackupWriter:
    """Writes the tables in one transaction, and the objects after it."""

    def __init__(self, archive: zipfile.ZipFile, progress: Progress | None) -> None:
        self._archive = archive
        self._progress = progress
        self._counter = ProgressCounter(None, 0)
        self._tables = tables_of_schema(len(known_schema_steps()))
        self._contents: dict[str, TableContent] = {}
        self._index: list[bytes] = []

    async def write_tables(self, transaction: Transaction) -> None:
        """Write every table except the object index, which is written after the objects."""
        total = sum([await table.count(transaction) for table in self._tables])
        self._counter = ProgressCounter(self._progress, total)
        for table in self._tables:
            if table.name == OBJECTS:
                self._index = [line async for lines in _pages(transaction, table) for line in lines]
                continue
            with self._stream(table) as stream:
                async for lines in _pages(transaction, table):
                    stream.write(lines)
                    self._counter.add(len(lines))

    async def write_objects(self, store: ObjectStore) -> ObjectsContent:
        """Write each intact object, then the index of exactly these."""
        table = next(table for table in self._tables if table.name == OBJECTS)
        written, size, omitted = [], 0, []
        for row in object_rows(table, self._index):
            content = await _intact_content(store, row)
            if content is None:
                omitted.append(row.path)
            else:
                self._archive.writestr(object_member(row.path), content)
                written.append(row.line)
                size += len(content)
            self._counter.add(1)
        with self._stream(table) as stream:
            stream.write(written)
        return ObjectsContent(len(written), size, omitted)

    def write_manifest(self, now: datetime, objects: ObjectsContent) -> Manifest:
        manifest = Manifest(
            format=FORMAT,
            weftline=version("weftline"),
            created_at=now,
            migrations=known_schema_steps(),
            tables=self._contents,
            objects=objects,
        )
        write_manifest(self._archive, manifest)
        return manifest

    @contextmanager
    def _stream(self, table: Table) -> Iterator[_Stream]:
        with self._archive.open(table.member, "w", force_zip64=True) as member:
            stream = _Stream(member)
            yield stream
        self._contents[table.name] = TableContent(table.columns, stream.rows, stream.sha256)


class _Stream:
    """Writes the lines of a table, counting and hashing them."""

    def __init__(self, member: IO[bytes]) -> None:
        self._member = member
        self._digest = hashlib.sha256()
        self.rows = 0

    def write(self, lines: Sequence[bytes]) -> None:
        page = b"".join(lines)
        self._digest.update(page)
        self._member.write(page)
        self.rows += len(lines)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


async def back_up(
    database: Database,
    store: ObjectStore,
    path: Path,
    clock: Clock,
    progress: Progress | None = None,
    *,
    skip_damaged: bool = False,
    journal: Path | None = None,
) -> Manifest:
    """Write a consistent backup to a new file, which appears only when it is complete.

    ``journal`` lists unfinished files, see ``partial_file``.
    ``skip_damaged`` leaves out objects that are missing or damaged, and lists them in the manifest.
    """
    if any(step.applied_at is None for step in await status(database)):
        raise SchemaOutdated
    with atomic_archive(path, journal) as archive:
        writer = _BackupWriter(archive, progress)
        async with _removals_held(database, clock):
            now = clock.now()
            await database.read(SYSTEM, writer.write_tables)
            objects = await writer.write_objects(store)
        if objects.omitted and not skip_damaged:
            raise _incomplete(objects.omitted)
        return writer.write_manifest(now, objects)


@asynccontextmanager
async def _removals_held(database: Database, clock: Clock) -> AsyncIterator[None]:
    """Block the removal of objects while the backup runs."""
    holder, now = secrets.token_hex(8), to_micros(clock.now())
    # A database on a full disk must still be backed up; it cannot remove objects either.
    with suppress(DiskFull):
        await database.write(SYSTEM, lambda tx: hold_removals(tx, holder, now))
    try:
        yield
    finally:
        with suppress(DiskFull):
            await database.write(SYSTEM, lambda tx: release_removals(tx, holder))


async def _intact_content(store: ObjectStore, row: ObjectRow) -> bytes | None:
    """Return the content of an object; None if it is missing or damaged."""
    try:
        pointer = Pointer.at(row.path, row.size)
        content = await store.get(row.path, row.version or None, row.size)
        pointer.check(content)
    except (ObjectMissing, ObjectDamaged):
        return None
    return content


def _incomplete(paths: Sequence[str]) -> BackupIncomplete:
    named = ", ".join(paths[:_MAX_LISTED])
    more = f" and {len(paths) - _MAX_LISTED} more" if len(paths) > _MAX_LISTED else ""
    return BackupIncomplete(f"Missing or damaged objects ({len(paths)}): {named}{more}.")


async def _pages(transaction: Transaction, table: Table) -> AsyncIterator[Sequence[bytes]]:
    """Yield the rows of a table as lines, in pages of bounded size."""
    places = [table.columns.index(column) for column in table.key]
    last: list[Value] = []
    size = _FIRST_PAGE_ROWS
    while True:
        rows = await transaction.all(table.select(after_key=bool(last)), *last, size)
        if not rows:
            return
        lines = [msgspec.json.encode(tuple(row)) + b"\n" for row in rows]
        yield lines
        last = [rows[-1][place] for place in places]
        size = max(1, min(_PAGE_ROWS, _PAGE_BYTES * len(lines) // sum(map(len, lines))))
