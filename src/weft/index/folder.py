"""The folder with the files of one shelf's copy, and the list that says which of them count."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import zlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.index.files import FORMAT, Damaged, open_segment, stamp_of, write_segment
from weft.index.places import ASIDE
from weft.index.shelf import Moment, Part, joined, whole

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from weft.index.files import Opened

_LIST = "list"
_LOCK = "lock"
_SEGMENT = ".seg"
# A file is joined with what comes after it until it is so many times as large.
_GROWTH = 3
# A file of which more than this share is gone is written anew.
_MOST_GONE = 0.3


class Listed(msgspec.Struct, frozen=True):
    """The files that hold everything of a shelf of this birth up to a number."""

    format: int
    birth: int
    number: int
    files: list[str]


class Loaded(NamedTuple):
    """What lay in files: a moment in which everything is there that was removed behind ``as_of``."""

    birth: int
    moment: Moment
    as_of: int


class ShelfFolder:
    """The files of one shelf's copy. What they hold can always be made anew, so they are worth nothing but time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: dict[str, Opened] = {}

    def load(self) -> Loaded | None:
        """Open the files that count; None if there are none. Raises Damaged."""
        listed = self._listed()
        if listed is None:
            return None
        try:
            parts = [self._open(name) for name in listed.files]
        except Damaged:
            if self._listed() == listed:
                raise
            # Another process has put others in their place.
            return self.load()
        as_of = min((self._opened[name].as_of for name in listed.files), default=listed.number)
        return Loaded(listed.birth, Moment(listed.number, _latest(parts)), as_of)

    def is_sound(self, moment: Moment) -> bool:
        """Tell whether nobody touched the files of a moment since they were found to be sound."""
        return all(stamp_of(self._path / name) == self._opened[name].stamp for name in moment.files)

    def set_aside(self) -> None:
        """Take damaged files out of use. They stay to be looked at until others are set aside."""
        for file in self._path.glob(f"*{ASIDE}"):
            file.unlink(missing_ok=True)
        (self._path / _LIST).unlink(missing_ok=True)
        for file in self._path.glob(f"*{_SEGMENT}"):
            with contextlib.suppress(OSError):
                file.rename(file.with_suffix(ASIDE))

    def clear(self) -> None:
        """Drop all files: what they are of is gone."""
        shutil.rmtree(self._path, ignore_errors=True)

    def is_current(self, birth: int, moment: Moment) -> bool:
        """Tell whether the files of a moment are those that count, so that no other process has put others there."""
        try:
            listed = self._listed()
        except Damaged:
            # Whoever knows better puts the right one in its place.
            return True
        if listed is None or listed.birth != birth:
            return not moment.files
        return listed.files == moment.files

    def build(self, birth: int, moment: Moment) -> Moment | None:
        """Put what lies in memory into a file and return the moment with it; None if another process is at it."""
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked() as is_mine:
            if not is_mine or not self.is_current(birth, moment):
                return None
            stay, together = _to_join(moment.parts)
            written = [self._write(together, moment.number)] if together else []
            built = Moment(moment.number, (*stay, *written))
            self._publish(birth, built)
            return built

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Have the folder to oneself; False if another process has it."""
        with (self._path / _LOCK).open("ab") as lock:
            if sys.platform != "win32":
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    yield False
                    return
            yield True

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
        listed = msgspec.json.decode(written, type=Listed)
        if listed.format != FORMAT:
            raise Damaged(f"{_LIST}: written by another version")
        return listed

    def _open(self, name: str) -> Part:
        opened = self._opened[name] = open_segment(self._path / name)
        return whole(opened.segment, name)

    def _write(self, parts: Sequence[Part], number: int) -> Part:
        name = f"{secrets.token_hex(8)}{_SEGMENT}"
        write_segment(self._path / name, joined(parts), number)
        return self._open(name)

    def _publish(self, birth: int, moment: Moment) -> None:
        """Make these the files that count, all at once, and drop those that no longer do."""
        names = moment.files
        listed = msgspec.json.encode(Listed(FORMAT, birth, moment.number, names))
        beside = self._path / f"{_LIST}.{secrets.token_hex(4)}"
        with beside.open("xb") as file:
            file.write(b"%08x\n" % zlib.crc32(listed) + listed)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path / _LIST)
        for old in self._path.glob(f"*{_SEGMENT}"):
            if old.name not in names:
                # Whoever still has it mapped keeps it until done.
                with contextlib.suppress(OSError):
                    old.unlink()


def _to_join(parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """Return the files that stay, and what is put into one new file together: all that lies in memory, at least."""
    files = [part for part in parts if part.file is not None]
    memory = [part for part in parts if part.file is None]
    following = sum(part.alive for part in memory)
    stays = len(files)
    for place in reversed(range(len(files))):
        file = files[place]
        if file.segment.size < _GROWTH * following or file.alive < (1 - _MOST_GONE) * file.segment.size:
            stays = place
        following += file.alive
    return files[:stays], [*files[stays:], *memory]


def _latest(parts: list[Part]) -> tuple[Part, ...]:
    """Let what came again later take the place of what was known of it before."""
    for place, later in enumerate(parts):
        numbers = later.segment.facts.number
        parts[:place] = [part.without(numbers) if _overlap(part, later) else part for part in parts[:place]]
    return tuple(parts)


def _overlap(part: Part, later: Part) -> bool:
    first, last = part.segment.facts.number, later.segment.facts.number
    return bool(len(first) and len(last) and first[-1] >= last[0])
