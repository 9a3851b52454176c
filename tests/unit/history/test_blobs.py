"""Compression of stored values."""

from __future__ import annotations

import hashlib
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weftline.kernel.packed_text import pack, text_of, unpack

pytestmark = pytest.mark.req("SC-08")

TEXTS = st.text(st.characters(codec="utf-8"), max_size=50).flatmap(
    lambda piece: st.integers(0, 200).map(lambda times: piece * times)
)


@given(TEXTS)
@example("")
@example("\ufffd" * 500)
@example("\x00" * 2_000)
def test_a_value_round_trips_and_never_grows(value: str) -> None:
    packed = pack(value)
    assert text_of(packed) == value
    assert unpack(packed) == value.encode()
    assert len(packed) <= len(value.encode())


@pytest.mark.parametrize(("length", "compressed"), [(1_023, False), (1_024, True), (100_000, True)])
def test_only_long_values_are_compressed(length: int, compressed: bool) -> None:  # noqa: FBT001 - a column of the table
    assert (len(pack("x" * length)) < length) is compressed


def test_incompressible_values_are_stored_uncompressed() -> None:
    noise = "".join(map(chr, random.Random(1).choices(range(0x20, 0x7F), k=1_024)))
    dense = "".join(map(chr, random.Random(2).choices(range(0x800, 0xD7FF), k=600)))
    for value in (noise, dense):
        packed = pack(value)
        assert unpack(packed) == value.encode()
        assert len(packed) <= len(value.encode())


def test_every_flipped_byte_changes_or_invalidates_the_value() -> None:
    """A few bits of the format are unused; flipping those does not change the value."""
    value = "the quick brown fox and all that it jumps over, 漢字 " * 60
    packed = pack(value)
    assert len(packed) < 1_024
    harmless = 0
    for position in range(len(packed)):
        damaged = bytearray(packed)
        damaged[position] ^= 0xFF
        found = unpack(bytes(damaged))
        if found == value.encode():
            harmless += 1
        else:
            assert hashlib.sha256(found).digest() != hashlib.sha256(value.encode()).digest()
    assert harmless <= 1
