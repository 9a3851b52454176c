"""Segment file: the arrays of a segment, followed by a table of contents.

Large arrays are memory-mapped, small ones are read. All checksums are verified when a file is opened, and again in turn
while it is used. Files are immutable: a changed file is damaged and rebuilt from the database.
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

from weftline.search_index.quantized_vectors import Vectors
from weftline.search_index.segment import RowColumns, Segment, TermPostings, VisibilityGroup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT = 2
_MAGIC = b"WEFTLINE"
_END = struct.Struct("<QI8s")
_ALIGNMENT = 64
_BLOCK_BYTES = 2**20
# Blocks of a file in use that are verified at a time.
_VERIFY_BATCH_SIZE = 16
# Smaller arrays are read, so that a truncated file cannot crash readers.
_MIN_MAPPED_BYTES = 2**20
_ROW_COLUMNS = f"{RowColumns.__name__}."
_GROUPS, _SPEAKERS = "groups", "speakers"


class Damaged(Exception):
    """A file was changed, or was written by another version."""


class ArraySection(msgspec.Struct, frozen=True):
    """Position, type and shape of an array in a file."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int


class SegmentContents(msgspec.Struct, frozen=True):
    """Table of contents of a file with the state of its rows after the change ``as_of``.

    ``size`` is the number of bytes of the arrays before this table; each block of them has a checksum.
    """

    format: int
    as_of: int
    sections: list[ArraySection]
    size: int
    checksums: list[int]


class Stamp(NamedTuple):
    """File attributes that change with every modification."""

    inode: int
    size: int
    modified: int
    changed: int


class SegmentFile:
    """A segment file that was intact when it was opened.

    ``as_of`` is the number of the last change applied to its rows; ``bytes_read`` excludes what is mapped.
    """

    def __init__(self, path: Path, stamp: Stamp, contents: SegmentContents, arrays: _Arrays) -> None:
        self.name = path.name
        self.as_of = contents.as_of
        self.bytes_read = arrays.bytes_read
        self._path = path
        self._stamp = stamp
        self._contents = contents
        self._mapped = arrays.mapped
        # Blocks verified since the file was opened.
        self._verified_blocks = 0

    @property
    def rounds(self) -> int:
        """Return how often the whole file was verified again."""
        return self._verified_blocks // len(self._contents.checksums)

    def is_untouched(self) -> bool:
        return stamp_of(self._path) == self._stamp

    def is_whole(self) -> bool:
        """Return whether the mapped file was not truncated: reading beyond its end would kill the process."""
        return self._mapped is None or self._mapped.size() == self._stamp.size

    def verify_some(self) -> None:
        """Verify the next blocks against their checksums, cyclically. Raises Damaged."""
        first = self._verified_blocks % len(self._contents.checksums)
        blocks = range(first, min(first + _VERIFY_BATCH_SIZE, len(self._contents.checksums)))
        # A deleted or modified file is opened again before the next search.
        with suppress(OSError), self._path.open("rb") as file:
            if _stamp(os.fstat(file.fileno())) == self._stamp:
                with _raise_damaged(self._path):
                    _verify_blocks(file, self._contents, blocks)
                self._verified_blocks += len(blocks)


class OpenedSegment(NamedTuple):
    """A segment and its file."""

    segment: Segment
    file: SegmentFile


def write_segment(path: Path, segment: Segment, as_of: int) -> None:
    """Write a new file; it is durable when this returns."""
    with path.open("xb") as file:
        body = _Body(file)
        body.write(memoryview(_MAGIC))
        sections = [_write_section(body, name, values) for name, values in _arrays(segment)]
        contents = msgspec.json.encode(SegmentContents(FORMAT, as_of, sections, body.size, body.checksums))
        file.write(contents)
        file.write(_END.pack(len(contents), zlib.crc32(contents), _MAGIC))
        file.flush()
        os.fsync(file.fileno())


def open_segment(path: Path) -> OpenedSegment:
    """Verify all checksums, then map large arrays and read the others. Raises Damaged."""
    with _raise_damaged(path), path.open("rb") as file:
        before = _stamp(os.fstat(file.fileno()))
        contents = _read_contents(file, before.size)
        arrays = _Arrays(file)
        segment = _segment({section.name: arrays.get(section) for section in contents.sections})
        return OpenedSegment(segment, SegmentFile(path, before, contents, arrays))


@contextmanager
def _raise_damaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, struct.error, msgspec.MsgspecError) as error:
        raise Damaged(f"{path.name}: {type(error).__name__}") from error


def stamp_of(path: Path) -> Stamp | None:
    """Return the attributes of a file; None if it does not exist."""
    try:
        return _stamp(path.stat())
    except OSError:
        return None


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _arrays(segment: Segment) -> Iterator[tuple[str, NDArray[Any]]]:
    for part in (segment.columns, segment.postings, segment.vectors):
        for field in fields(part):
            yield f"{type(part).__name__}.{field.name}", getattr(part, field.name)
    for name, value in ((_GROUPS, segment.groups), (_SPEAKERS, segment.speakers)):
        yield name, np.frombuffer(msgspec.json.encode(value), np.uint8)


def _segment(arrays: dict[str, NDArray[Any]]) -> Segment:
    def build(kind: type) -> Any:  # noqa: ANN401 - one of three
        return kind(**{field.name: arrays[f"{kind.__name__}.{field.name}"] for field in fields(kind)})

    return Segment(
        columns=build(RowColumns),
        postings=build(TermPostings),
        vectors=build(Vectors),
        groups=tuple(msgspec.json.decode(arrays[_GROUPS].tobytes(), type=list[VisibilityGroup])),
        speakers=tuple(msgspec.json.decode(arrays[_SPEAKERS].tobytes(), type=list[str])),
    )


class _Body:
    """A file being written, with the checksums of its blocks."""

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


def _write_section(body: _Body, name: str, values: NDArray[Any]) -> ArraySection:
    body.write(memoryview(bytes(-body.size % _ALIGNMENT)))
    start = body.size
    body.write(memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data))
    return ArraySection(name, values.dtype.str, values.shape, start)


def _read_contents(file: BufferedReader, size: int) -> SegmentContents:
    """Return the table of contents of an intact file."""
    file.seek(-_END.size, os.SEEK_END)
    length, checksum, magic = _END.unpack(file.read())
    start = size - _END.size - length
    if start < 0 or magic != _MAGIC:
        raise ValueError("the end of the file is damaged")
    file.seek(start)
    written = file.read(length)
    if zlib.crc32(written) != checksum:
        raise ValueError("the table of contents is damaged")
    contents = msgspec.json.decode(written, type=SegmentContents)
    if contents.format != FORMAT or contents.size != start:
        raise ValueError("written by another version")
    _verify_blocks(file, contents, range(len(contents.checksums)))
    return contents


def _verify_blocks(file: BufferedReader, contents: SegmentContents, blocks: range) -> None:
    file.seek(blocks.start * _BLOCK_BYTES)
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    for index in blocks:
        block = buffer[: contents.size - index * _BLOCK_BYTES]
        if file.readinto(block) != len(block) or zlib.crc32(block) != contents.checksums[index]:
            raise ValueError("a block is damaged")


class _Arrays:
    """Arrays of a file: row columns and small arrays in memory, the others mapped."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self.mapped: mmap.mmap | None = None
        self.bytes_read = 0

    def get(self, section: ArraySection) -> NDArray[Any]:
        kind, count = np.dtype(section.kind), math.prod(section.shape)
        if section.name.startswith(_ROW_COLUMNS) or count * kind.itemsize < _MIN_MAPPED_BYTES:
            values = self._read(kind, count, section.start)
        else:
            self.mapped = self.mapped or mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            values = np.frombuffer(self.mapped, kind, count, section.start)
        return values.reshape(section.shape)

    def _read(self, kind: np.dtype[Any], count: int, start: int) -> NDArray[Any]:
        values = np.empty(count, kind)
        self._file.seek(start)
        if self._file.readinto(values.view(np.uint8).data) != values.nbytes:
            raise ValueError("the file is truncated")
        self.bytes_read += values.nbytes
        return values
