"""The file of a backup: what it says of itself, what may be wrong with it, and how it appears on disk."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from weft.kernel.errors import Conflict, Rejected, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from _typeshed import ReadableBuffer

    Progress = Callable[[int, int], None]

FORMAT = 2
# The first held no objects.
_READABLE = (1, FORMAT)
_MANIFEST = "manifest.json"
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, msgspec.DecodeError)


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


class SchemaStep(msgspec.Struct, frozen=True):
    """One step of the schema, by name and content."""

    name: str
    checksum: str


class TableContent(msgspec.Struct, frozen=True):
    """What one table's stream must turn out to be."""

    columns: tuple[str, ...]
    rows: int
    sha256: str


class ObjectsContent(msgspec.Struct, frozen=True):
    """How many values from outside the database the file holds, and which it should hold but could not."""

    count: int = 0
    bytes: int = 0
    left_out: list[str] = []


class Manifest(msgspec.Struct, frozen=True):
    """What a backup says of itself."""

    format: int
    weft: str
    created_at: datetime
    migrations: list[SchemaStep]
    tables: dict[str, TableContent]
    objects: ObjectsContent = ObjectsContent()

    @property
    def rows(self) -> int:
        return sum(content.rows for content in self.tables.values())


class Meter:
    """Counts towards a known total. An object and its row in the index count as one."""

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
    with damage_reported():
        manifest = msgspec.json.decode(archive.read(_MANIFEST), type=Manifest)
    if manifest.format not in _READABLE:
        raise BackupUnusable(f"The backup has the format {manifest.format}; this Weft reads formats up to {FORMAT}.")
    return manifest


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise BackupUnusable(f"'{path}' is not a backup.") from error
    except OSError as error:
        raise BackupUnusable(f"'{path}' cannot be read: {error.strerror}.") from error
    with archive:
        yield archive


@contextmanager
def damage_reported() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise BackupUnusable(f"The backup is damaged: {error}.") from error


@contextmanager
def appearing_whole(path: Path) -> Iterator[zipfile.ZipFile]:
    """Write beside the file and rename when all of it is on disk; leave nothing behind otherwise."""
    if path.exists():
        raise BackupExists(f"'{path}' exists already.")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with io.BufferedWriter(_File(partial)) as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                yield archive
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise BackupNotWritten(f"'{path}' cannot be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)


class _File(io.FileIO):
    """A new private file whose failures are told apart from those of the database that is read meanwhile."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            raise BackupNotWritten(f"The backup cannot be written: {error.strerror}.") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
