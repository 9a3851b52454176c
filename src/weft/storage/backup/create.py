"""Making a backup: the tables as of one moment, then the objects they refer to."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from typing import IO, TYPE_CHECKING

import msgspec

from weft.capabilities.object_storage.model import ObjectDamaged, ObjectMissing, Pointer
from weft.kernel.clock import to_micros
from weft.kernel.errors import Conflict, DiskFull
from weft.storage.backup.archive import (
    FORMAT,
    Manifest,
    Meter,
    ObjectsContent,
    TableContent,
    appearing_whole,
    object_member,
    write_manifest,
)
from weft.storage.backup.tables import OBJECTS, known_steps, object_rows, tables_after
from weft.storage.migrations.runner import status
from weft.storage.sql.database import SYSTEM
from weft.storage.sql.object_storage import hold_removals, release_removals

if TYPE_CHECKING:
    import zipfile
    from collections.abc import AsyncIterator, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from weft.capabilities.object_storage.store import ObjectStore
    from weft.kernel.clock import Clock
    from weft.storage.backup.archive import Progress
    from weft.storage.backup.tables import ObjectRow, Table
    from weft.storage.sql.database import Database, Transaction, Value

# Values may be megabytes or bytes, so pages are sized by what the rows before weighed.
_PAGE_BYTES = 2_000_000
_PAGE_ROWS = 2_000
_FIRST_PAGE_ROWS = 16
_NAMED_AT_MOST = 10


class SchemaOutdated(Conflict):
    """The database lacks steps of this version's schema."""

    code = "SCHEMA_OUTDATED"
    hint = "Run weft db migrate, or start a server, and make the backup then."


class BackupIncomplete(Conflict):
    """Some values that lie outside the database are missing or damaged, so a backup would not hold everything."""

    code = "BACKUP_INCOMPLETE"
    hint = "Nothing was left behind. Put the objects back, or leave them out: weft db backup FILE --skip-damaged."


class _Everything:
    """A backup being written: first the tables, in one transaction, then the objects, after it."""

    def __init__(self, archive: zipfile.ZipFile, progress: Progress | None) -> None:
        self._archive = archive
        self._progress = progress
        self._meter = Meter(None, 0)
        self._tables = tables_after(len(known_steps()))
        self._contents: dict[str, TableContent] = {}
        self._index: list[bytes] = []

    async def write_tables(self, transaction: Transaction) -> None:
        """Write every table but the index of objects, which is kept to be written with what it lists."""
        total = sum([await table.count(transaction) for table in self._tables])
        self._meter = Meter(self._progress, total)
        for table in self._tables:
            if table.name == OBJECTS:
                self._index = [line async for lines in _pages(transaction, table) for line in lines]
                continue
            with self._stream(table) as stream:
                async for lines in _pages(transaction, table):
                    stream.write(lines)
                    self._meter.add(len(lines))

    async def write_objects(self, store: ObjectStore) -> ObjectsContent:
        """Write each object that is sound, and after them the index of just these."""
        table = next(table for table in self._tables if table.name == OBJECTS)
        carried, size, left_out = [], 0, []
        for row in object_rows(table, self._index):
            content = await _sound_content(store, row)
            if content is None:
                left_out.append(row.path)
            else:
                self._archive.writestr(object_member(row.path), content)
                carried.append(row.line)
                size += len(content)
            self._meter.add(1)
        with self._stream(table) as stream:
            stream.write(carried)
        return ObjectsContent(len(carried), size, left_out)

    def write_manifest(self, now: datetime, objects: ObjectsContent) -> Manifest:
        manifest = Manifest(
            format=FORMAT,
            weft=version("weft"),
            created_at=now,
            migrations=known_steps(),
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
    """A table's lines on their way into the file."""

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
) -> Manifest:
    """Write everything there is at one moment into a new file, which appears only when it is complete.

    ``skip_damaged`` leaves out objects that are missing or damaged, and names them in the manifest.
    """
    if any(step.applied_at is None for step in await status(database)):
        raise SchemaOutdated
    with appearing_whole(path) as archive:
        everything = _Everything(archive, progress)
        async with _removals_held(database, clock):
            now = clock.now()
            await database.read(SYSTEM, everything.write_tables)
            objects = await everything.write_objects(store)
        if objects.left_out and not skip_damaged:
            raise _incomplete(objects.left_out)
        return everything.write_manifest(now, objects)


@asynccontextmanager
async def _removals_held(database: Database, clock: Clock) -> AsyncIterator[None]:
    """Have every object that is there at the moment of the backup still be there when its turn comes."""
    holder, now = secrets.token_hex(8), to_micros(clock.now())
    # A database that takes no writes any more must still be backed up: then nothing is doomed either.
    with suppress(DiskFull):
        await database.write(SYSTEM, lambda tx: hold_removals(tx, holder, now))
    try:
        yield
    finally:
        with suppress(DiskFull):
            await database.write(SYSTEM, lambda tx: release_removals(tx, holder))


async def _sound_content(store: ObjectStore, row: ObjectRow) -> bytes | None:
    """Return an object's bytes; None if they are not there, or not what was stored."""
    try:
        pointer = Pointer.at(row.path, row.size)
        content = await store.get(row.path, row.version or None, row.size)
        pointer.check(content)
    except (ObjectMissing, ObjectDamaged):
        return None
    return content


def _incomplete(paths: Sequence[str]) -> BackupIncomplete:
    named = ", ".join(paths[:_NAMED_AT_MOST])
    more = f" and {len(paths) - _NAMED_AT_MOST} more" if len(paths) > _NAMED_AT_MOST else ""
    return BackupIncomplete(f"Missing or damaged in the storage for large values ({len(paths)}): {named}{more}.")


async def _pages(transaction: Transaction, table: Table) -> AsyncIterator[Sequence[bytes]]:
    """Yield the table's rows as lines, in pages that stay small however large the rows are."""
    places = [table.columns.index(column) for column in table.key]
    last: list[Value] = []
    size = _FIRST_PAGE_ROWS
    while True:
        rows = await transaction.all(table.select(behind=bool(last)), *last, size)
        if not rows:
            return
        lines = [msgspec.json.encode(tuple(row)) + b"\n" for row in rows]
        yield lines
        last = [rows[-1][place] for place in places]
        size = max(1, min(_PAGE_ROWS, _PAGE_BYTES * len(lines) // sum(map(len, lines))))
