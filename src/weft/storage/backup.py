"""One file that holds everything: made from either database, restored into either.

The file is a zip. Each table is a stream of JSON lines, a row to a line in the order of the table's columns, blobs in
base64. ``manifest.json``, written last, names the schema the rows belong to and each table's row count and SHA-256.
What the tables look like is read from the migrations themselves, so a new table is never forgotten here.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
import zlib
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from weft.kernel.errors import Conflict, Rejected, Unavailable
from weft.storage.migrations.runner import SchemaMismatch, known_migrations, migrate, status
from weft.storage.sql.database import SYSTEM
from weft.storage.sql.dialects.sqlite import DIALECT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from _typeshed import ReadableBuffer

    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database, Transaction, Value

    Progress = Callable[[int, int], None]

_FORMAT = 1
_MANIFEST = "manifest.json"
# Values may be megabytes or bytes, so pages are sized by what the rows before weighed.
_PAGE_BYTES = 2_000_000
_PAGE_ROWS = 2_000
_FIRST_PAGE_ROWS = 16
_ROWS_A_STATEMENT = 100
_PYTHON_TYPES: dict[str, type] = {"TEXT": str, "INTEGER": int, "REAL": float, "BLOB": bytes}
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, msgspec.DecodeError)


class SchemaOutdated(Conflict):
    """The database lacks steps of this version's schema."""

    code = "SCHEMA_OUTDATED"
    hint = "Run weft db migrate, or start a server, and make the backup then."


class BackupExists(Conflict):
    """There is a file of this name already."""

    code = "BACKUP_EXISTS"
    hint = "Choose another name, such as one with a date; a backup never replaces a file."


class BackupNotWritten(Unavailable):
    """The backup file cannot be written."""

    code = "BACKUP_NOT_WRITTEN"
    hint = "Nothing was left behind. Free space, or write to another folder, and try again."


class BackupUnusable(Rejected):
    """The file is not a whole, undamaged backup."""

    code = "BACKUP_UNUSABLE"
    hint = "Nothing was restored. Copy the file again from where it is kept, or use an earlier backup."


class DatabaseNotEmpty(Conflict):
    """The database already holds something, which a restore would mix with the backup."""

    code = "DATABASE_NOT_EMPTY"
    hint = "Restore into a new data folder or an empty database: weft --data NEW_FOLDER db restore FILE."


class Step(msgspec.Struct, frozen=True):
    """One step of the schema, by name and content."""

    name: str
    checksum: str


class TableContent(msgspec.Struct, frozen=True):
    """What one table's stream must turn out to be."""

    columns: tuple[str, ...]
    rows: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a backup says of itself."""

    format: int
    weft: str
    created_at: datetime
    migrations: list[Step]
    tables: dict[str, TableContent]

    @property
    def rows(self) -> int:
        return sum(content.rows for content in self.tables.values())


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as the migrations make it."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    row: Any

    @property
    def member(self) -> str:
        return f"tables/{self.name}.ndjson"

    def select(self, *, behind: bool) -> str:
        """Return the statement for a page: the first one, or the one behind the last key seen."""
        key = ", ".join(self.key)
        places = ", ".join(f"${place}" for place in range(1, len(self.key) + 1))
        where = f"WHERE ({key}) > ({places}) " if behind else ""
        limit = len(self.key) + 1 if behind else 1
        return f"SELECT {', '.join(self.columns)} FROM {self.name} {where}ORDER BY {key} LIMIT ${limit}"  # noqa: S608 - names from our own schema

    def insert(self, rows: int) -> str:
        width = len(self.columns)
        groups = (", ".join(f"${row * width + place}" for place in range(1, width + 1)) for row in range(rows))
        values = ", ".join(f"({group})" for group in groups)
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES {values}"  # noqa: S608 - names from our own schema

    def count(self) -> str:
        return f"SELECT COUNT(*) FROM {self.name}"  # noqa: S608 - a name from our own schema


async def back_up(database: Database, path: Path, clock: Clock, progress: Progress | None = None) -> Manifest:
    """Write everything the database holds at one moment into a new file, which appears only when it is complete."""
    if any(step.applied_at is None for step in await status(database)):
        raise SchemaOutdated
    with _appearing_whole(path) as file:
        return await database.read(SYSTEM, lambda tx: _write(tx, file, clock.now(), progress))


async def restore(database: Database, path: Path, clock: Clock, progress: Progress | None = None) -> Manifest:
    """Fill an empty database from a backup: all of it, checked before anything is written, or nothing."""
    with _opened(path) as archive:
        manifest = _read_manifest(archive)
        tables = _tables()
        _check_fits(manifest, tables)
        for table in tables:
            _verify(archive, table, manifest.tables[table.name])
        await migrate(database, clock)
        await database.write(SYSTEM, lambda tx: _fill(tx, archive, tables, manifest, progress))
    return manifest


def _tables() -> list[_Table]:
    """Run the migrations in an empty SQLite in memory and look at what they make, in the order they make it."""
    with closing(apsw.Connection(":memory:")) as schema:
        for step in known_migrations():
            schema.execute(step.sql.format_map(DIALECT))
        names = schema.execute(
            "SELECT s.name FROM sqlite_schema s JOIN pragma_table_list l ON l.name = s.name AND l.type = 'table'"
            " WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY s.rowid"
        ).fetchall()
        return [_table(schema, str(name)) for (name,) in names]


def _table(schema: apsw.Connection, name: str) -> _Table:
    sql = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)'
    columns: Any = schema.execute(sql, (name,)).fetchall()
    types = [_PYTHON_TYPES[kind] if required else _PYTHON_TYPES[kind] | None for _, kind, required, _ in columns]
    return _Table(
        name=name,
        columns=tuple(column for column, *_ in columns),
        key=tuple(column for _, column in sorted((place, column) for column, _, _, place in columns if place)),
        row=tuple[tuple(types)],  # type: ignore[misc] # a type made at run time
    )


class _Meter:
    """Counts rows towards a known total."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total)


async def _write(transaction: Transaction, file: BinaryIO, now: datetime, progress: Progress | None) -> Manifest:
    tables = _tables()
    meter = _Meter(progress, sum([await _count(transaction, table) for table in tables]))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        contents = {table.name: await _write_table(transaction, archive, table, meter) for table in tables}
        manifest = Manifest(
            format=_FORMAT, weft=version("weft"), created_at=now, migrations=_known_steps(), tables=contents
        )
        archive.writestr(_MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    return manifest


async def _write_table(
    transaction: Transaction, archive: zipfile.ZipFile, table: _Table, meter: _Meter
) -> TableContent:
    digest = hashlib.sha256()
    rows = 0
    with archive.open(table.member, "w", force_zip64=True) as stream:
        async for lines in _pages(transaction, table):
            page = b"".join(lines)
            digest.update(page)
            stream.write(page)
            rows += len(lines)
            meter.add(len(lines))
    return TableContent(table.columns, rows, digest.hexdigest())


async def _pages(transaction: Transaction, table: _Table) -> AsyncIterator[Sequence[bytes]]:
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


async def _fill(
    transaction: Transaction,
    archive: zipfile.ZipFile,
    tables: Sequence[_Table],
    manifest: Manifest,
    progress: Progress | None,
) -> None:
    for table in tables:
        if await _count(transaction, table):
            raise DatabaseNotEmpty
    meter = _Meter(progress, manifest.rows)
    for table in tables:
        decode = msgspec.json.Decoder(table.row).decode
        for lines in _batches(_lines(archive, table)):
            await transaction.run(table.insert(len(lines)), *chain.from_iterable(map(decode, lines)))
            meter.add(len(lines))
        if await _count(transaction, table) != manifest.tables[table.name].rows:
            raise BackupUnusable(f"The table '{table.name}' did not take all of its rows.")


async def _count(transaction: Transaction, table: _Table) -> int:
    row = await transaction.one(table.count())
    return 0 if row is None else int(row[0])


def _read_manifest(archive: zipfile.ZipFile) -> Manifest:
    with _damage_reported():
        manifest = msgspec.json.decode(archive.read(_MANIFEST), type=Manifest)
    if manifest.format != _FORMAT:
        raise BackupUnusable(f"The backup has the format {manifest.format}; this Weft reads the format {_FORMAT}.")
    return manifest


def _check_fits(manifest: Manifest, tables: Sequence[_Table]) -> None:
    steps = _known_steps()
    unknown = [step.name for step in manifest.migrations if step not in steps]
    missing = [step.name for step in steps if step not in manifest.migrations]
    if unknown or missing:
        raise SchemaMismatch(
            f"The backup was made by Weft {manifest.weft} with another schema"
            f" ({', '.join([*(f'it has {name}' for name in unknown), *(f'it lacks {name}' for name in missing)])}).",
            backup_version=manifest.weft,
        )
    if {table.name: table.columns for table in tables} != {n: c.columns for n, c in manifest.tables.items()}:
        raise BackupUnusable("The backup's tables are not those its own schema makes.")


def _known_steps() -> list[Step]:
    return [Step(step.name, step.checksum) for step in known_migrations()]


def _verify(archive: zipfile.ZipFile, table: _Table, expected: TableContent) -> None:
    """Read a table's stream through and compare it with what the manifest says; every row must be of its types."""
    digest = hashlib.sha256()
    rows = 0
    decode = msgspec.json.Decoder(table.row).decode
    with _damage_reported():
        for line in _lines(archive, table):
            digest.update(line)
            decode(line)
            rows += 1
    if rows != expected.rows:
        raise BackupUnusable(f"The table '{table.name}' has {rows} rows; the manifest says {expected.rows}.")
    if digest.hexdigest() != expected.sha256:
        raise BackupUnusable(f"The table '{table.name}' is not what was written: its SHA-256 differs.")


def _lines(archive: zipfile.ZipFile, table: _Table) -> Iterator[bytes]:
    with archive.open(table.member) as stream:
        yield from stream


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Gather lines for one statement, as many as its parameters and memory allow."""
    batch: list[bytes] = []
    weight = 0
    for line in lines:
        batch.append(line)
        weight += len(line)
        if len(batch) == _ROWS_A_STATEMENT or weight >= _PAGE_BYTES:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise BackupUnusable(f"'{path}' is not a backup.") from error
    except OSError as error:
        raise BackupUnusable(f"'{path}' cannot be read: {error.strerror}.") from error
    with archive:
        yield archive


@contextmanager
def _damage_reported() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise BackupUnusable(f"The backup is damaged: {error}.") from error


class _File(io.FileIO):
    """A new private file whose failures are told apart from those of the database that is read meanwhile."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            raise BackupNotWritten(f"The backup cannot be written: {error.strerror}.") from error


@contextmanager
def _appearing_whole(path: Path) -> Iterator[BinaryIO]:
    """Write beside the file and rename when all of it is on disk; leave nothing behind otherwise."""
    if path.exists():
        raise BackupExists(f"'{path}' exists already.")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with io.BufferedWriter(_File(partial)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise BackupNotWritten(f"'{path}' cannot be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
