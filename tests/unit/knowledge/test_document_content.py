"""Stored content of documents: compression, limits and ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.kernel.errors import InvalidInput
from weftline.kernel.packed_text import ValueDamaged
from weftline.knowledge.documents import (
    compress,
    compressed_text,
    decode_content,
    decode_text,
    decompress,
    pack_content,
    storable_text,
)
from weftline.knowledge.model import MAX_DOCUMENT_BYTES, DocumentTooLarge, check_document_id


@given(st.binary(max_size=2_000))
def test_packed_content_round_trips(content: bytes) -> None:
    assert decompress(compress(content)) == content
    assert pack_content(content).size == len(content)


def test_damaged_content_is_an_error() -> None:
    stored = bytearray(compress(b"word " * 1_000))
    stored[20] ^= 0xFF
    with pytest.raises(ValueDamaged):
        decompress(bytes(stored))
    with pytest.raises(ValueDamaged):
        decode_text(compress(b"\xff\xfe"), None)


@given(st.text(st.characters(codec=None), max_size=200))
def test_storable_text_keeps_its_length_and_is_valid_utf_8(text: str) -> None:
    stored = storable_text(text)
    assert len(stored) == len(text)
    assert "\x00" not in stored
    assert stored.encode().decode() == stored


def test_extracted_text_is_stored_only_where_it_differs_from_the_content() -> None:
    assert compressed_text("same", b"same") is None
    other = compressed_text("a\nb", b"a\r\nb")
    assert decode_text(compress(b"a\r\nb"), other) == "a\nb"
    assert decode_text(compress(b"same"), None) == "same"


@pytest.mark.parametrize(
    ("text", "encoded"), [(None, None), ("x", "eA=="), (None, "é"), (None, "eA"), ("\ud800", None)]
)
def test_a_document_has_exactly_one_content_source(text: str | None, encoded: str | None) -> None:
    with pytest.raises(InvalidInput):
        decode_content(text, encoded)


def test_document_size_has_a_limit() -> None:
    assert pack_content(bytes(MAX_DOCUMENT_BYTES)).size == MAX_DOCUMENT_BYTES
    with pytest.raises(DocumentTooLarge):
        pack_content(bytes(MAX_DOCUMENT_BYTES + 1))


@pytest.mark.parametrize(
    "name", ["a", "a/b.md", "notes v2 (final).txt", "https://example.com//x?y=1", "...", ".hidden"]
)
def test_a_name_or_relative_path_is_a_document_id(name: str) -> None:
    check_document_id(name)


@pytest.mark.parametrize("name", ["/a", "..", "a/..", "../a", "a/./b", "."])
def test_an_absolute_or_parent_path_is_not_a_document_id(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_document_id(name)
