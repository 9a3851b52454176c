"""Names as numbers: what a copy of a collection keeps instead of texts, the same in every process and for ever."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weft.capabilities.indexing.collections.model import IndexedChunk

_TERMS_KEPT = 2**16
_SEPARATOR = "\x00"
# A position is a message's number with the number of the part behind it.
_PART_BITS = 12
_PARTS = 1 << _PART_BITS
# A line's place in its segment and a position in the line make one number that rows are ordered by.
POSITION_BITS = 40
_LAST_POSITION = (1 << POSITION_BITS) - 1


class Standpoint(NamedTuple):
    """What a chunk follows and is followed by, and where in it the chunk stands."""

    line: int
    position: int


def number_of(*names: str) -> int:
    """Return 63 bits that stand for a name: two of a million names share theirs once in ten million collections."""
    digest = hashlib.blake2b(_SEPARATOR.join(names).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@lru_cache(_TERMS_KEPT)
def number_of_term(term: str) -> int:
    return number_of(term)


def standpoint_of(chunk: IndexedChunk) -> Standpoint:
    """Messages follow each other in their session, the parts of everything else only in their item's version."""
    if chunk.source == "message" and chunk.item.isdecimal():
        said = int(chunk.item) << _PART_BITS | min(chunk.ordinal, _PARTS - 1)
        return Standpoint(number_of(chunk.source, chunk.place), min(said, _LAST_POSITION))
    line = line_of(chunk.source, chunk.place, chunk.item, chunk.version)
    return Standpoint(line, min(chunk.ordinal, _LAST_POSITION))


def line_of(source: str, place: str, item: str, version: int) -> int:
    """Return the line of the parts of an item's version."""
    return number_of(source, place, item, str(version))
