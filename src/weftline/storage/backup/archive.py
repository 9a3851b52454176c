"""The backup file: manifest, errors, and atomic writing."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from weftline.kernel.errors import Conflict, Rejected, Unavailable
from weftline.storage.partial_files import partial_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from _typeshed import ReadableBuffer

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
