"""The folder with the files of one collection's copy, and the list that says which of them count."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import zlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.capabilities.indexing.collections.model import changes_kept
from weft.search_index.paths import ASIDE
from weft.search_index.segment_file import FORMAT, Damaged, open_segment, stamp_of, write_segment
from weft.search_index.snapshot import IndexSnapshot, SegmentView, joined, whole

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from weft.capabilities.indexing.collections.model import CollectionState
    from weft.search_index.segment_file import Stamp

_LIST = "list"
_LOCK = "lock"
_SEGMENT = ".seg"
# A file is joined with what comes after it until it is so many times as large.
_GROWTH = 3
# A file of which more than this share is gone is written anew.
_MOST_GONE = 0.3


class Listed(msgspec.Struct, frozen=True):
    """The files that hold everything of a collection of this birth up to a number."""

    format: int
    birth: int
    number: int
    files: list[str]


class Loaded(NamedTuple):
    """What lay in files: a snapshot in which everything is there that was removed behind ``as_of``."""

    birth: int
    snapshot: IndexSnapshot
    as_of: int

    def is_of(self, state: CollectionState) -> bool:
        """Tell whether the files can be caught up with a collection in that state from its retained changes."""
        return self.birth == state.birth and self.snapshot.number <= state.number and self.as_of >= state.forgotten


class SegmentStore:
    """Segment files of one collection's replica: a cache that can always be rebuilt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # What the list looked like when it was last read or written.
        self._seen: Stamp | None = None

    def load(self, known: IndexSnapshot) -> Loaded | None:
        """Open the files that count, but for those that are known; None if there are none. Raises Damaged."""
        self._seen = stamp_of(self._path / _LIST)
        listed = self._listed()
        if listed is None:
            return None
        try:
            found = [_opened(self._path / name, known) for name in listed.files]
        except Damaged:
            if self._listed() == listed:
                raise
            # Another process has put others in their place.
            return self.load(known)
        snapshot = IndexSnapshot(listed.number, _latest([part for part, _ in found]))
        return Loaded(listed.birth, snapshot, min((as_of for _, as_of in found), default=listed.number))

    def is_untouched(self, snapshot: IndexSnapshot) -> bool:
        """Tell whether the list, and the files of a snapshot, are as they were when they were found to be sound."""
        return stamp_of(self._path / _LIST) == self._seen and all(file.is_untouched() for file in snapshot.files)

    def set_aside(self) -> None:
        """Take damaged files out of use. They stay to be looked at until others are set aside."""
        with contextlib.suppress(OSError), self._locked() as is_mine:
            if not is_mine:
                # Whoever writes now puts another list in the place of this one, which is looked at then.
                return
            for file in self._path.glob(f"*{ASIDE}"):
                file.unlink(missing_ok=True)
            (self._path / _LIST).unlink(missing_ok=True)
            for file in self._path.glob(f"*{_SEGMENT}"):
                file.rename(file.with_suffix(ASIDE))

    def clear(self) -> None:
        """Drop all files: what they are of is gone."""
        shutil.rmtree(self._path, ignore_errors=True)

    def drop(self, birth: int, number: int) -> None:
        """Drop files that are of no use, of this birth and number; not what another process has put in their place."""
        with contextlib.suppress(OSError, Damaged), self._locked() as is_mine:
            listed = self._listed()
            if is_mine and listed is not None and (listed.birth, listed.number) == (birth, number):
                (self._path / _LIST).unlink()
                self._drop_all_but([])

    def is_current(self, birth: int, snapshot: IndexSnapshot) -> bool:
        """Tell whether the files of a snapshot are those that count, so that no other process has put others there."""
        try:
            return self._counts(birth, snapshot)
        except Damaged:
            return False

    def build(self, birth: int, snapshot: IndexSnapshot) -> IndexSnapshot | None:
        """Put what lies in memory into a file and return the snapshot with it; None if another process is at it.

        Raises Damaged.
        """
        with self._locked() as is_mine:
            if not is_mine or not self._counts(birth, snapshot):
                return None
            # Written anew in good time: a file is of no use any more once removals behind it are forgotten.
            oldest = snapshot.number - changes_kept(snapshot.size) // 2
            stay, together = _to_join(snapshot.parts, oldest)
            written = [self._write(together, snapshot.number)] if together else []
            built = IndexSnapshot(snapshot.number, (*stay, *written))
            self._publish(birth, built)
            return built

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Have the folder to oneself; False if another process has it."""
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._path / _LOCK).open("ab") as lock:
            if sys.platform != "win32":
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    yield False
                    return
            yield True

    def _counts(self, birth: int, snapshot: IndexSnapshot) -> bool:
        listed = self._listed()
        if listed is None or listed.birth != birth:
            return not snapshot.files
        return listed.files == _names(snapshot)

    def _listed(self) -> Listed | None:
        try:
            content = (self._path / _LIST).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Damaged(f"{_LIST}: {type(error).__name__}") from error
        checksum, _, written = content.partition(b"\n")
        if checksum != b"%08x" % zlib.crc32(written):
            raise Damaged(f"{_LIST}: not as it was written")
        try:
            listed = msgspec.json.decode(written, type=Listed)
        except msgspec.MsgspecError as error:
            raise Damaged(f"{_LIST}: {type(error).__name__}") from error
        if listed.format != FORMAT:
            raise Damaged(f"{_LIST}: written by another version")
        return listed

    def _write(self, parts: Sequence[SegmentView], number: int) -> SegmentView:
        path = self._path / f"{secrets.token_hex(8)}{_SEGMENT}"
        write_segment(path, joined(parts), number)
        try:
            return whole(*open_segment(path))
        except Damaged as damage:
            raise OSError("what was written is not what can be read") from damage

    def _publish(self, birth: int, snapshot: IndexSnapshot) -> None:
        """Make these the files that count, all at once, and drop those that no longer do."""
        listed = msgspec.json.encode(Listed(FORMAT, birth, snapshot.number, _names(snapshot)))
        beside = self._path / f"{_LIST}.{secrets.token_hex(4)}"
        with beside.open("xb") as file:
            file.write(b"%08x\n" % zlib.crc32(listed) + listed)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path / _LIST)
        self._seen = stamp_of(self._path / _LIST)
        self._drop_all_but(_names(snapshot))

    def _drop_all_but(self, names: Sequence[str]) -> None:
        for file in self._path.glob(f"*{_SEGMENT}"):
            if file.name not in names:
                # Whoever still has it mapped keeps it until done.
                with contextlib.suppress(OSError):
                    file.unlink()


def _names(snapshot: IndexSnapshot) -> list[str]:
    return [file.name for file in snapshot.files]


def _opened(path: Path, known: IndexSnapshot) -> tuple[SegmentView, int]:
    """Return what lies in a file, and up to which number what was removed is not in it any more."""
    for part in known.parts:
        if part.file is not None and part.file.name == path.name and part.file.is_untouched():
            return part, known.number
    opened = open_segment(path)
    return whole(*opened), opened.file.as_of


def _to_join(parts: Sequence[SegmentView], oldest: int) -> tuple[list[SegmentView], list[SegmentView]]:
    """Return the files that stay, and what is put into one new file together: all that lies in memory, at least."""
    files = [part for part in parts if part.file is not None]
    memory = [part for part in parts if part.file is None]
    following = sum(part.alive for part in memory)
    stays = len(files)
    for place in reversed(range(len(files))):
        part = files[place]
        if part.segment.size < _GROWTH * following or _is_worn(part, oldest):
            stays = place
        following += part.alive
    return files[:stays], [*files[stays:], *memory]


def _is_worn(part: SegmentView, oldest: int) -> bool:
    """Tell whether much of a file is gone, or it is very old."""
    is_old = part.file is not None and part.file.as_of < oldest
    return is_old or part.alive < (1 - _MOST_GONE) * part.segment.size


def _latest(parts: list[SegmentView]) -> tuple[SegmentView, ...]:
    """Let what came again later take the place of what was known of it before."""
    for place, later in enumerate(parts):
        numbers = later.segment.facts.number
        parts[:place] = [part.without(numbers) if _overlap(part, later) else part for part in parts[:place]]
    return tuple(parts)


def _overlap(part: SegmentView, later: SegmentView) -> bool:
    first, last = part.segment.facts.number, later.segment.facts.number
    return bool(len(first) and len(last) and first[-1] >= last[0])
