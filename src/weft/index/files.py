"""A segment as a file: its arrays one behind the other, as they lie in memory, and at the end what is where.

Files are mapped, never read in whole, except once to compare every block with its checksum. They never change: one
that is not as it was written is damaged, and what it held is made anew from the database.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from dataclasses import fields
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from weft.index.segment import Facts, Group, Segment, Words
from weft.index.vectors import Vectors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT = 1
_MAGIC = b"WEFTSEG\n"
_END = struct.Struct("<QI8s")
_ALIGNED = 64
_BLOCK_BYTES = 2**20
_GROUPS, _SPEAKERS = "groups", "speakers"


class Damaged(Exception):
    """A file is not as it was written, or was written by another version."""


class Section(msgspec.Struct, frozen=True):
    """An array in a file."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int


class Contents(msgspec.Struct, frozen=True):
    """What a file holds: everything that happened to its rows up to a number. Each mebibyte has its checksum."""

    format: int
    as_of: int
    sections: list[Section]
    checksums: list[int]


class Stamp(NamedTuple):
    """What changes when anyone touches a file."""

    inode: int
    size: int
    changed: int


class Opened(NamedTuple):
    """A segment that lies in a file, sound when it was opened, and what the file looked like then."""

    segment: Segment
    as_of: int
    stamp: Stamp


def write_segment(path: Path, segment: Segment, as_of: int) -> None:
    """Write a file that is durable when this returns. It must not be there yet."""
    with path.open("xb") as file:
        body = _Body(file)
        body.write(memoryview(_MAGIC))
        sections = [_write_section(body, name, values) for name, values in _arrays(segment)]
        contents = msgspec.json.encode(Contents(FORMAT, as_of, sections, body.checksums))
        file.write(contents)
        file.write(_END.pack(len(contents), zlib.crc32(contents), _MAGIC))
        file.flush()
        os.fsync(file.fileno())


def open_segment(path: Path) -> Opened:
    """Map a file and compare all of it with its checksums."""
    try:
        with path.open("rb") as file:
            before = _stamp(os.fstat(file.fileno()))
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            contents = _verified(mapped)
            arrays = {section.name: _section(mapped, section) for section in contents.sections}
            return Opened(_segment(arrays), contents.as_of, before)
    except (OSError, ValueError, KeyError, TypeError, struct.error, msgspec.MsgspecError) as error:
        raise Damaged(f"{path.name}: {type(error).__name__}") from error


def stamp_of(path: Path) -> Stamp | None:
    """Return what a file looks like now; None if it is gone."""
    try:
        return _stamp(path.stat())
    except OSError:
        return None


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns)


def _arrays(segment: Segment) -> Iterator[tuple[str, NDArray[Any]]]:
    for part in (segment.facts, segment.words, segment.vectors):
        for field in fields(part):
            yield f"{type(part).__name__}.{field.name}", getattr(part, field.name)
    for name, value in ((_GROUPS, segment.groups), (_SPEAKERS, segment.speakers)):
        yield name, np.frombuffer(msgspec.json.encode(value), np.uint8)


def _segment(arrays: dict[str, NDArray[Any]]) -> Segment:
    def made(kind: type) -> Any:  # noqa: ANN401 - one of three
        return kind(**{field.name: arrays[f"{kind.__name__}.{field.name}"] for field in fields(kind)})

    return Segment(
        facts=made(Facts),
        words=made(Words),
        vectors=made(Vectors),
        groups=tuple(msgspec.json.decode(arrays[_GROUPS].tobytes(), type=list[Group])),
        speakers=tuple(msgspec.json.decode(arrays[_SPEAKERS].tobytes(), type=list[str])),
    )


class _Body:
    """A file being written, with the checksums of its mebibytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0
        self.checksums: list[int] = []

    def write(self, content: memoryview) -> None:
        self._file.write(content)
        while content:
            if not self.size % _BLOCK_BYTES:
                self.checksums.append(0)
            part = content[: _BLOCK_BYTES - self.size % _BLOCK_BYTES]
            self.checksums[-1] = zlib.crc32(part, self.checksums[-1])
            self.size += len(part)
            content = content[len(part) :]


def _write_section(body: _Body, name: str, values: NDArray[Any]) -> Section:
    body.write(memoryview(bytes(-body.size % _ALIGNED)))
    start = body.size
    body.write(memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data))
    return Section(name, values.dtype.str, values.shape, start)


def _verified(mapped: mmap.mmap) -> Contents:
    """Return what a file holds when all of it is as it was written."""
    size, checksum, magic = _END.unpack(mapped[-_END.size :])
    written = mapped[-_END.size - size : -_END.size]
    if magic != _MAGIC or mapped[: len(_MAGIC)] != _MAGIC or zlib.crc32(written) != checksum:
        raise ValueError("the end of the file is not its own")
    contents = msgspec.json.decode(written, type=Contents)
    if contents.format != FORMAT:
        raise ValueError("written by another version")
    body = memoryview(mapped)[: -_END.size - size]
    if [zlib.crc32(block) for block in _blocks(body)] != contents.checksums:
        raise ValueError("a block is not as it was written")
    return contents


def _section(mapped: mmap.mmap, section: Section) -> NDArray[Any]:
    kind, count = np.dtype(section.kind), int(np.prod(section.shape))
    return np.frombuffer(mapped, kind, count, section.start).reshape(section.shape)


def _blocks(content: memoryview) -> Iterator[memoryview]:
    return (content[start : start + _BLOCK_BYTES] for start in range(0, len(content), _BLOCK_BYTES))
