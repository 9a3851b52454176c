"""Segment store: the files of one collection's replica, and the manifest that lists the current ones."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import zlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.indexing.collections import retained_changes
from weftline.search_index.paths import DAMAGED_SUFFIX
from weftline.search_index.segment_file import FORMAT, Damaged, open_segment, stamp_of, write_segment
from weftline.search_index.snapshot import IndexSnapshot, SegmentView, intact_view, merge_live_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from weftline.indexing.collections import CollectionState
    from weftline.search_index.segment_file import Stamp


if sys.platform != "win32":
    import fcntl


_MANIFEST = "list"
_LOCK = "lock"
_SEGMENT = ".seg"
# A segment is merged with the newer ones unless it is this many times as large.
_GROWTH = 3
# A segment with a larger share of deleted rows is rewritten.
_MAX_DELETED_SHARE = 0.3


class SegmentManifest(msgspec.Struct, frozen=True):
    """Manifest: the segment files that hold a collection of this generation up to a number."""

    format: int
    generation: int
    number: int
    files: list[str]


class LoadedSnapshot(NamedTuple):
    """A snapshot loaded from files. It lacks removals after ``as_of``."""

    generation: int
    snapshot: IndexSnapshot
    as_of: int

    def can_catch_up(self, state: CollectionState) -> bool:
        """Tell whether the files can be caught up with a collection in that state from its retained changes."""
        return (
            self.generation == state.generation
            and self.snapshot.number <= state.number
            and self.as_of >= state.pruned_up_to
        )


class SegmentStore:
    """Segment files of one collection's replica: a cache that can always be rebuilt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Stamp of the manifest when it was last read or written.
        self._manifest_stamp: Stamp | None = None

    def load(self, known: IndexSnapshot) -> LoadedSnapshot | None:
        """Open the current files, except the known ones; None if there are none. Raises Damaged."""
        self._manifest_stamp = stamp_of(self._path / _MANIFEST)
        manifest = self._manifest()
        if manifest is None:
            return None
        try:
            opened = [_opened(self._path / name, known) for name in manifest.files]
        except Damaged:
            if self._manifest() == manifest:
                raise
            # Another process has replaced them.
            return self.load(known)
        snapshot = IndexSnapshot(manifest.number, _latest([part for part, _ in opened]))
        return LoadedSnapshot(
            manifest.generation, snapshot, min((as_of for _, as_of in opened), default=manifest.number)
        )

    def is_untouched(self, snapshot: IndexSnapshot) -> bool:
        """Return whether the manifest and the files of a snapshot are unchanged since they were verified."""
        return stamp_of(self._path / _MANIFEST) == self._manifest_stamp and all(
            file.is_untouched() for file in snapshot.files
        )

    def set_aside(self) -> None:
        """Take damaged files out of use. They are kept for inspection until others are set aside."""
        with contextlib.suppress(OSError), self._locked() as is_mine:
            if not is_mine:
                # The process that writes now replaces this manifest, which is then checked.
                return
            for file in self._path.glob(f"*{DAMAGED_SUFFIX}"):
                file.unlink(missing_ok=True)
            (self._path / _MANIFEST).unlink(missing_ok=True)
            for file in self._path.glob(f"*{_SEGMENT}"):
                file.rename(file.with_suffix(DAMAGED_SUFFIX))

    def clear(self) -> None:
        """Delete all files of a deleted replica."""
        shutil.rmtree(self._path, ignore_errors=True)

    def drop(self, generation: int, number: int) -> None:
        """Delete useless files of this generation and number, but not those of another process."""
        with contextlib.suppress(OSError, Damaged), self._locked() as is_mine:
            manifest = self._manifest()
            if is_mine and manifest is not None and (manifest.generation, manifest.number) == (generation, number):
                (self._path / _MANIFEST).unlink()
                self._delete_except([])

    def is_current(self, generation: int, snapshot: IndexSnapshot) -> bool:
        """Return whether the files of a snapshot are still the current ones."""
        try:
            return self._is_current(generation, snapshot)
        except Damaged:
            return False

    def build(self, generation: int, snapshot: IndexSnapshot) -> IndexSnapshot | None:
        """Flush rows in memory to a file and return the new snapshot; None if another process is writing.

        Raises Damaged.
        """
        with self._locked() as is_mine:
            if not is_mine or not self._is_current(generation, snapshot):
                return None
            # Rewritten in good time: a file is useless once the removals after it are pruned.
            oldest = snapshot.number - retained_changes(snapshot.size) // 2
            kept, merged = _plan_merge(snapshot.parts, oldest)
            written = [self._write(merged, snapshot.number)] if merged else []
            built = IndexSnapshot(snapshot.number, (*kept, *written))
            self._publish(generation, built)
            return built

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Lock the folder; False if another process holds the lock."""
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._path / _LOCK).open("ab") as lock:
            if sys.platform != "win32":
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    yield False
                    return
            yield True

    def _is_current(self, generation: int, snapshot: IndexSnapshot) -> bool:
        manifest = self._manifest()
        if manifest is None or manifest.generation != generation:
            return not snapshot.files
        return manifest.files == _names(snapshot)

    def _manifest(self) -> SegmentManifest | None:
        try:
            content = (self._path / _MANIFEST).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Damaged(f"{_MANIFEST}: {type(error).__name__}") from error
        checksum, _, written = content.partition(b"\n")
        if checksum != b"%08x" % zlib.crc32(written):
            raise Damaged(f"{_MANIFEST}: not as it was written")
        try:
            manifest = msgspec.json.decode(written, type=SegmentManifest)
        except msgspec.MsgspecError as error:
            raise Damaged(f"{_MANIFEST}: {type(error).__name__}") from error
        if manifest.format != FORMAT:
            raise Damaged(f"{_MANIFEST}: written by another version")
        return manifest

    def _write(self, parts: Sequence[SegmentView], number: int) -> SegmentView:
        path = self._path / f"{secrets.token_hex(8)}{_SEGMENT}"
        write_segment(path, merge_live_rows(parts), number)
        try:
            return intact_view(*open_segment(path))
        except Damaged as damage:
            raise OSError("the file read back differs from what was written") from damage

    def _publish(self, generation: int, snapshot: IndexSnapshot) -> None:
        """Replace the manifest atomically, then delete files that are no longer current."""
        manifest = msgspec.json.encode(SegmentManifest(FORMAT, generation, snapshot.number, _names(snapshot)))
        temporary = self._path / f"{_MANIFEST}.{secrets.token_hex(4)}"
        with temporary.open("xb") as file:
            file.write(b"%08x\n" % zlib.crc32(manifest) + manifest)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path / _MANIFEST)
        self._manifest_stamp = stamp_of(self._path / _MANIFEST)
        self._delete_except(_names(snapshot))

    def _delete_except(self, names: Sequence[str]) -> None:
        for file in self._path.glob(f"*{_SEGMENT}"):
            if file.name not in names:
                # A process that still has it mapped keeps the data.
                with contextlib.suppress(OSError):
                    file.unlink()


def _names(snapshot: IndexSnapshot) -> list[str]:
    return [file.name for file in snapshot.files]


def _opened(path: Path, known: IndexSnapshot) -> tuple[SegmentView, int]:
    """Return a segment and the number up to which removals are applied to it."""
    for part in known.parts:
        if part.file is not None and part.file.name == path.name and part.file.is_untouched():
            return part, known.number
    opened = open_segment(path)
    return intact_view(*opened), opened.file.as_of


def _plan_merge(parts: Sequence[SegmentView], oldest: int) -> tuple[list[SegmentView], list[SegmentView]]:
    """Return the files to keep, and the parts to merge into a new file: at least all rows in memory."""
    files = [part for part in parts if part.file is not None]
    memory = [part for part in parts if part.file is None]
    newer_rows = sum(part.live_rows for part in memory)
    kept_count = len(files)
    for index in reversed(range(len(files))):
        part = files[index]
        if part.segment.size < _GROWTH * newer_rows or _needs_rewrite(part, oldest):
            kept_count = index
        newer_rows += part.live_rows
    return files[:kept_count], [*files[kept_count:], *memory]


def _needs_rewrite(part: SegmentView, oldest: int) -> bool:
    """Return whether a file has many deleted rows or is very old."""
    is_old = part.file is not None and part.file.as_of < oldest
    return is_old or part.live_rows < (1 - _MAX_DELETED_SHARE) * part.segment.size


def _latest(parts: list[SegmentView]) -> tuple[SegmentView, ...]:
    """Remove rows from older parts that a later part replaces."""
    for index, later in enumerate(parts):
        numbers = later.segment.columns.number
        parts[:index] = [part.without(numbers) if _overlap(part, later) else part for part in parts[:index]]
    return tuple(parts)


def _overlap(part: SegmentView, later: SegmentView) -> bool:
    first, last = part.segment.columns.number, later.segment.columns.number
    return bool(len(first) and len(last) and first[-1] >= last[0])
