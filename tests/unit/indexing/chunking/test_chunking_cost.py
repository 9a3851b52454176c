"""The cost of chunking is linear in the length of the text, for any content."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from support.full_run import FULL
from weftline.indexing.chunking.chunker import split_into_chunks
from weftline.indexing.chunking.model import ChunkingOptions, CodeSymbol, ParsedDocument
from weftline.indexing.chunking.reader import detect_type
from weftline.kernel.ports import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("CE-F39", "CE-F48")

# One for each chunking strategy.
MEDIA_TYPES = (
    *("text/plain", "text/markdown", "application/pdf", "application/json", "application/x-ndjson", "text/csv"),
    *("text/x-log", "text/vtt", "text/x-transcript", "text/x-python"),
)
# Start, repeated filling and end; the end makes a pattern that looked ahead fail.
SHAPES = (
    *(("# a", " ", "b"), ("# a ", "#", "b"), ("#", "\t", "#!"), ("a\n", "=", "b"), ("a\n", "-", " b")),
    *(("", " ", "- b"), ("12", "3", ". b"), ("```", "`", "b"), ("|", " |", "b")),
    *(("12:34", " ", "!"), ("12:34 -", " ", "!"), ("[12:34] ", "*", "!"), ("Ada", " ", "!"), ("Ada:", "*", "b")),
    *(("Ada (", "b ", "!"), ("00:01.000", " ", "!"), ("00:01.000 -->", " ", "!")),
    *(("00:01.000 --> 00:02.000\n<v.", "x", ""), ("", "00:01.000 --> 00:02.000\n<v.\n", "")),
    *(("Jan", " ", "!"), ("a b ", "c", "!"), ("2026-05-04 ", "x", "\n")),
    *(("public", " ", "!"), ("", "public ", "!"), ("class", " ", "!"), ("class a", ".b", "."), ("", "class A{ ", "")),
    *((".", ")", "b"), ("", ".", "b"), ("", ". ", "b"), ("\n", " ", "b"), ("", "\n ", "b"), ("", "\n", "b")),
    *(('a,"', 'b""', ""), ("", ',"', ""), ("[", "[", ""), ('{"a":', ' {"a":', ""), ("[", "1,", "1]")),
    *(("<!--", "-->", ""), ("", "# a\n", ""), ("", "- a\n", ""), ("", "Ada: b\n", "")),
    *(("", "\f", "b"), ("", "\u00a0", "b"), ("", "漢。", ""), ("", "e\u0301", "")),
)  # fmt: skip


SIZES = (10_000, 50_000) if FULL else (8_000,)


def text_of_length(shape: tuple[str, str, str], length: int) -> str:
    start, filling, end = shape
    return start + filling * (length // len(filling)) + end


def is_superlinear(work: Callable[[int], None]) -> bool:
    """Return whether four times the text takes far more than four times as long, in every repetition."""

    def seconds(length: int) -> float:
        started = time.thread_time()
        work(length)
        return time.thread_time() - started

    # Quadratic work takes sixteen times as long.
    return any(all(seconds(4 * size) > 10 * seconds(size) for _ in range(5)) for size in SIZES)


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_chunking_takes_linear_time(media_type: str) -> None:
    for shape in SHAPES:

        def work(length: int, shape: tuple[str, str, str] = shape) -> None:
            split_into_chunks(
                ParsedDocument(text=text_of_length(shape, length), media_type=media_type),
                ChunkingOptions(),
                approximate_tokens,
            )

        assert not is_superlinear(work), shape


def test_format_detection_takes_linear_time() -> None:
    for shape in SHAPES:
        assert not is_superlinear(lambda length, shape=shape: detect_type(text_of_length(shape, length))), shape


def test_nested_symbols_take_linear_time() -> None:
    def work(length: int) -> None:
        text = "class A{" * (length // 8)
        names = tuple(CodeSymbol(start, len(text), "A") for start in range(0, len(text), 8))
        split_into_chunks(
            ParsedDocument(text=text, media_type="text/x-java", names=names), ChunkingOptions(), approximate_tokens
        )

    assert not is_superlinear(work)
