"""The backup file: manifest, errors, and atomic writing."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import apsw
import msgspec

from weftline.kernel.errors import Conflict, Rejected, Unavailable
from weftline.storage.migrations.runner import known_migrations
from weftline.storage.partial_files import partial_file
from weftline.storage.sql.dialects.sqlite import DIALECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from weftline.kernel.transaction import Transaction

    Progress = Callable[[int, int], None]


FORMAT = 2
# Format 1 had no objects.
_READABLE = (1, FORMAT)
_MANIFEST = "manifest.json"
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, msgspec.DecodeError)


class BackupExists(Conflict):
    """The file exists already."""

    code = "BACKUP_EXISTS"
    hint = "Choose another name, such as one with a date; a backup never overwrites a file."


class BackupNotWritten(Unavailable):
    """The backup file cannot be written."""

    code = "BACKUP_NOT_WRITTEN"
    hint = "No partial file remains. Free disk space or write to another folder, then retry."


class BackupUnusable(Rejected):
    """The file is not a complete, undamaged backup."""

    code = "BACKUP_UNUSABLE"
    hint = "Nothing was restored. Copy the file again from its original, or use an earlier backup."


class SchemaStep(msgspec.Struct, frozen=True):
    """A migration by name and checksum."""

    name: str
    checksum: str


class TableContent(msgspec.Struct, frozen=True):
    """Columns, row count and checksum of one table."""

    columns: tuple[str, ...]
    rows: int
    sha256: str


class ObjectsContent(msgspec.Struct, frozen=True):
    """Count and size of the objects in the file, and the paths of those left out."""

    count: int = 0
    bytes: int = 0
    omitted: list[str] = []


class Manifest(msgspec.Struct, frozen=True):
    """Description of a backup."""

    format: int
    weftline: str
    created_at: datetime
    migrations: list[SchemaStep]
    tables: dict[str, TableContent]
    objects: ObjectsContent = ObjectsContent()

    @property
    def rows(self) -> int:
        return sum(content.rows for content in self.tables.values())


class ProgressCounter:
    """Reports progress towards a known total. An object and its index row count as one."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, number: int) -> None:
        self._done += number
        if self._progress is not None:
            self._progress(self._done, self._total)


def object_member(path: str) -> str:
    return f"objects/{path}"


def write_manifest(archive: zipfile.ZipFile, manifest: Manifest) -> None:
    archive.writestr(_MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def read_manifest(archive: zipfile.ZipFile) -> Manifest:
    with report_damage():
        manifest = msgspec.json.decode(archive.read(_MANIFEST), type=Manifest)
    if manifest.format not in _READABLE:
        raise BackupUnusable(
            f"The backup has format {manifest.format}; this version of Weftline reads formats up to {FORMAT}."
        )
    return manifest


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise BackupUnusable(f"'{path}' is not a backup.") from error
    except OSError as error:
        raise BackupUnusable(f"'{path}' cannot be read: {error.strerror}.") from error
    with archive:
        yield archive


@contextmanager
def report_damage() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise BackupUnusable(f"The backup is damaged: {error}.") from error


@contextmanager
def atomic_archive(path: Path, journal: Path | None = None) -> Iterator[zipfile.ZipFile]:
    """Write a file that appears once it is complete and on disk; see ``partial_file``."""
    if path.exists():
        raise BackupExists(f"'{path}' exists already.")
    try:
        with (
            partial_file(path, journal, lambda partial: io.BufferedWriter(_File(partial))) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            yield archive
    except OSError as error:
        raise BackupNotWritten(f"'{path}' cannot be written: {error.strerror}.") from error


class _File(io.FileIO):
    """A new private file. Its write errors are distinct from those of the database read at the same time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            raise BackupNotWritten(f"The backup cannot be written: {error.strerror}.") from error


# The tables of a backup, derived from the migrations, so that no new table is forgotten.

OBJECTS = "objects"
COLLECTIONS = "collections"
TENANTS = "tenants"
# Rows of running processes are not backed up.
_ROW_FILTERS = {OBJECTS: "state = 'kept'", "jobs": "tenant <> ''"}
_PYTHON_TYPES: dict[str, type] = {"TEXT": str, "INTEGER": int, "REAL": float, "BLOB": bytes}


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the migrations define it."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    row: Any

    @property
    def member(self) -> str:
        return f"tables/{self.name}.ndjson"

    def lines(self, archive: zipfile.ZipFile) -> IO[bytes]:
        """Open the member with the rows; the caller closes it."""
        return archive.open(self.member)

    def select(self, *, after_key: bool) -> str:
        """Return the statement for a page: the first one, or the one after a key."""
        key = ", ".join(self.key)
        places = ", ".join(f"${place}" for place in range(1, len(self.key) + 1))
        where = self._where(f"({key}) > ({places})" if after_key else None)
        limit = len(self.key) + 1 if after_key else 1
        return f"SELECT {', '.join(self.columns)} FROM {self.name} {where} ORDER BY {key} LIMIT ${limit}"  # noqa: S608 - names from our own schema

    def insert(self, rows: int) -> str:
        width = len(self.columns)
        groups = (", ".join(f"${row * width + place}" for place in range(1, width + 1)) for row in range(rows))
        values = ", ".join(f"({group})" for group in groups)
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES {values}"  # noqa: S608 - names from our own schema

    async def count(self, transaction: Transaction) -> int:
        """Return the number of rows to back up."""
        row = await transaction.one(f"SELECT COUNT(*) FROM {self.name} {self._where()}")  # noqa: S608 - likewise
        return 0 if row is None else int(row[0])

    def _where(self, condition: str | None = None) -> str:
        conditions = [each for each in (_ROW_FILTERS.get(self.name), condition) if each]
        return f"WHERE {' AND '.join(conditions)}" if conditions else ""


class ObjectRow(NamedTuple):
    """A row of the object index."""

    line: bytes
    tenant: str
    path: str
    size: int
    version: str | None
    state: str


def object_rows(table: Table, lines: Iterable[bytes]) -> Iterator[ObjectRow]:
    """Decode the object index."""
    decode = msgspec.json.Decoder(table.row).decode
    for line in lines:
        row = dict(zip(table.columns, decode(line), strict=True))
        yield ObjectRow(line, *(row[name] for name in ObjectRow._fields[1:]))


def known_schema_steps() -> list[SchemaStep]:
    return [SchemaStep(step.name, step.checksum) for step in known_migrations()]


def tables_of_schema(steps: int) -> list[Table]:
    """Run the first migrations in an in-memory SQLite and return its tables in creation order."""
    with closing(apsw.Connection(":memory:")) as schema:
        for step in known_migrations()[:steps]:
            schema.execute(step.sql.format_map(DIALECT))
        names = schema.execute(
            "SELECT s.name FROM sqlite_schema s JOIN pragma_table_list l ON l.name = s.name AND l.type = 'table'"
            " WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY s.rowid"
        ).fetchall()
        return [_table(schema, str(name)) for (name,) in names]


def _table(schema: apsw.Connection, name: str) -> Table:
    sql = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)'
    columns: Any = schema.execute(sql, (name,)).fetchall()
    types = [_PYTHON_TYPES[kind] if required else _PYTHON_TYPES[kind] | None for _, kind, required, _ in columns]
    return Table(
        name=name,
        columns=tuple(column for column, *_ in columns),
        key=tuple(column for _, column in sorted((place, column) for column, _, _, place in columns if place)),
        row=tuple[tuple(types)],  # type: ignore[misc] # a type made at run time
    )
