"""A segment as a file: its arrays one behind the other, as they lie in memory, and at the end what is where.

What is large is mapped, the rest is read. Every block is compared with its checksum when a file is opened, and again in
turn while it is used. Files never change: one that is not as it was written is damaged, and what it held is made anew
from the database.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import zlib
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from weft.search_index.quantized_vectors import Vectors
from weft.search_index.segment import Facts, Segment, VisibilityGroup, Words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT = 1
_MAGIC = b"WEFTSEG\n"
_END = struct.Struct("<QI8s")
_ALIGNED = 64
_BLOCK_BYTES = 2**20
# So many blocks of a file in use are compared with their checksums at a time.
_COMPARED_AT_ONCE = 16
# What is smaller is read, so that nobody can take it away from whoever looks at it.
_MAPPED_FROM_BYTES = 2**20
_FACTS = f"{Facts.__name__}."
_GROUPS, _SPEAKERS = "groups", "speakers"


class Damaged(Exception):
    """A file is not as it was written, or was written by another version."""


class SegmentSection(msgspec.Struct, frozen=True):
    """An array in a file."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int


class SegmentContents(msgspec.Struct, frozen=True):
    """What a file holds: everything that happened to its rows up to a number.

    ``size`` is how many bytes the arrays take, which lie before this. Each mebibyte of them has its checksum.
    """

    format: int
    as_of: int
    sections: list[SegmentSection]
    size: int
    checksums: list[int]


class Stamp(NamedTuple):
    """What changes when anyone touches a file."""

    inode: int
    size: int
    modified: int
    changed: int


class SegmentFile:
    """A file that a segment lies in, sound when it was opened.

    ``as_of`` is the number up to which it knows what happened to its rows; ``bytes_read`` is what was not mapped of it.
    """

    def __init__(self, path: Path, stamp: Stamp, contents: SegmentContents, arrays: _Arrays) -> None:
        self.name = path.name
        self.as_of = contents.as_of
        self.bytes_read = arrays.bytes_read
        self._path = path
        self._stamp = stamp
        self._contents = contents
        self._mapped = arrays.mapped
        # How many blocks were compared since it was opened, one round after the other.
        self._compared = 0

    @property
    def rounds(self) -> int:
        """Return how often all of it was compared with its checksums again."""
        return self._compared // len(self._contents.checksums)

    def is_untouched(self) -> bool:
        return stamp_of(self._path) == self._stamp

    def is_whole(self) -> bool:
        """Tell whether nobody cut short what is mapped: the system ends whoever reads beyond the end of a file."""
        return self._mapped is None or self._mapped.size() == self._stamp.size

    def compare_some(self) -> None:
        """Compare the next blocks with their checksums again, round and round. Raises Damaged."""
        first = self._compared % len(self._contents.checksums)
        blocks = range(first, min(first + _COMPARED_AT_ONCE, len(self._contents.checksums)))
        # One that is gone, or was touched, is opened anew before the next search.
        with suppress(OSError), self._path.open("rb") as file:
            if _stamp(os.fstat(file.fileno())) == self._stamp:
                with _as_damage(self._path):
                    _compare(file, self._contents, blocks)
                self._compared += len(blocks)


class Opened(NamedTuple):
    """A segment, and the file that it lies in."""

    segment: Segment
    file: SegmentFile


def write_segment(path: Path, segment: Segment, as_of: int) -> None:
    """Write a file that is durable when this returns. It must not be there yet."""
    with path.open("xb") as file:
        body = _Body(file)
        body.write(memoryview(_MAGIC))
        sections = [_write_section(body, name, values) for name, values in _arrays(segment)]
        contents = msgspec.json.encode(SegmentContents(FORMAT, as_of, sections, body.size, body.checksums))
        file.write(contents)
        file.write(_END.pack(len(contents), zlib.crc32(contents), _MAGIC))
        file.flush()
        os.fsync(file.fileno())


def open_segment(path: Path) -> Opened:
    """Compare all of a file with its checksums, then map what is large of it and read the rest. Raises Damaged."""
    with _as_damage(path), path.open("rb") as file:
        before = _stamp(os.fstat(file.fileno()))
        contents = _verified(file, before.size)
        arrays = _Arrays(file)
        segment = _segment({section.name: arrays.get(section) for section in contents.sections})
        return Opened(segment, SegmentFile(path, before, contents, arrays))


@contextmanager
def _as_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, struct.error, msgspec.MsgspecError) as error:
        raise Damaged(f"{path.name}: {type(error).__name__}") from error


def stamp_of(path: Path) -> Stamp | None:
    """Return what a file looks like now; None if it is gone."""
    try:
        return _stamp(path.stat())
    except OSError:
        return None


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


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
        groups=tuple(msgspec.json.decode(arrays[_GROUPS].tobytes(), type=list[VisibilityGroup])),
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


def _write_section(body: _Body, name: str, values: NDArray[Any]) -> SegmentSection:
    body.write(memoryview(bytes(-body.size % _ALIGNED)))
    start = body.size
    body.write(memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data))
    return SegmentSection(name, values.dtype.str, values.shape, start)


def _verified(file: BufferedReader, size: int) -> SegmentContents:
    """Return what a file holds when all of it is as it was written."""
    file.seek(-_END.size, os.SEEK_END)
    length, checksum, magic = _END.unpack(file.read())
    start = size - _END.size - length
    if start < 0 or magic != _MAGIC:
        raise ValueError("the end of the file is not its own")
    file.seek(start)
    written = file.read(length)
    if zlib.crc32(written) != checksum:
        raise ValueError("what it says of itself is not as it was written")
    contents = msgspec.json.decode(written, type=SegmentContents)
    if contents.format != FORMAT or contents.size != start:
        raise ValueError("written by another version")
    _compare(file, contents, range(len(contents.checksums)))
    return contents


def _compare(file: BufferedReader, contents: SegmentContents, blocks: range) -> None:
    file.seek(blocks.start * _BLOCK_BYTES)
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    for place in blocks:
        block = buffer[: contents.size - place * _BLOCK_BYTES]
        if file.readinto(block) != len(block) or zlib.crc32(block) != contents.checksums[place]:
            raise ValueError("a block is not as it was written")


class _Arrays:
    """The arrays of a file: the facts of rows and whatever is small in memory, the rest where it lies."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self.mapped: mmap.mmap | None = None
        self.bytes_read = 0

    def get(self, section: SegmentSection) -> NDArray[Any]:
        kind, count = np.dtype(section.kind), math.prod(section.shape)
        if section.name.startswith(_FACTS) or count * kind.itemsize < _MAPPED_FROM_BYTES:
            values = self._read(kind, count, section.start)
        else:
            self.mapped = self.mapped or mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            values = np.frombuffer(self.mapped, kind, count, section.start)
        return values.reshape(section.shape)

    def _read(self, kind: np.dtype[Any], count: int, start: int) -> NDArray[Any]:
        values = np.empty(count, kind)
        self._file.seek(start)
        if self._file.readinto(values.view(np.uint8).data) != values.nbytes:
            raise ValueError("shorter than it was written")
        self.bytes_read += values.nbytes
        return values
