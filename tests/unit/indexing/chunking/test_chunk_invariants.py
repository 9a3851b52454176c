"""Invariants of chunking: chunks fit the limit, cover all text, and have correct offsets."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.full_run import FULL, examples
from weftline.indexing.chunking.chunker import split_into_chunks
from weftline.indexing.chunking.model import ChunkingOptions, CodeSymbol, ParsedDocument, TextSpan
from weftline.kernel.ports import approximate_tokens
from weftline.providers.tokenizers import TokenizerRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("CE-F48")

MEDIA_TYPES = (
    "text/plain",
    "text/markdown",
    "text/html",
    "application/pdf",
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "text/tab-separated-values",
    "text/x-log",
    "text/vtt",
    "application/x-subrip",
    "text/x-transcript",
    "text/x-python",
    "application/yaml",
    "application/unheard-of",
)
FRAGMENTS = (
    *("# One\n", "## Two\n\n", "Title\n=====\n", "```py\ncode()\n```\n", "~~~\n"),
    *("| a | b |\n|---|---|\n", "- item\n", "1. first\n"),
    *("Ada: Hello there.\n", "[00:01:02] Bob: Yes?\n", "WEBVTT\n\n", "00:01.000 --> 00:02.000\n<v Ada>Hi\n\n"),
    *("1\n00:00:01,000 --> 00:00:02,000\nHi\n\n", "2026-05-04T03:02:01Z ERROR lost\n  at line 1\n", "INFO found\n"),
    *('{"a": [1, {"b": "c"}]}\n', '{"speaker": "Ada", "text": "hm"}\n', "[[[", "]]"),
    *('"', '","', "a,b\n", '1,"two\nlines"\n'),
    *("def f():\n    pass\n\n", "class A:\n", "\tfunction g() {\n}\n"),
    *("One sentence. ", "Is it? ", "word ", "これは文です。", "ไทย", "e\u0301\u0301\u0301", "👩\u200d👩\u200d👧"),
    *("\f", "\n\n", "\n", "   ", "\u00a0", "\u2028"),
)
# Its overlap is a chunk without the white space before it.
REPEATED = ("\tfunction g() {\n}\n## Two\n\nTitle\n=====\n[[[\u0e44\u0e17\u0e22" + "0" * 35) * 4
texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=40), max_size=60).map("".join)
long_texts = st.tuples(texts, st.integers(1, 40)).map(lambda drawn: drawn[0] * drawn[1])
chunking_options = st.builds(ChunkingOptions, chunk_tokens=st.integers(32, 200), overlap_tokens=st.integers(0, 250))
counters = st.sampled_from([approximate_tokens, len, lambda text: len(text.encode())])


def check(text: str, chunks: list[TextSpan], options: ChunkingOptions, count: Callable[[str], int]) -> None:
    assert all(0 <= chunk.start < chunk.end <= len(text) for chunk in chunks)
    assert all(chunk.tokens == count(text[chunk.start : chunk.end]) <= options.chunk_tokens for chunk in chunks)
    assert all(not text[chunk.start].isspace() and not text[chunk.end - 1].isspace() for chunk in chunks)
    reached = 0
    for chunk in chunks:
        assert not text[reached : chunk.start].strip()
        assert chunk.end > reached
        reached = chunk.end
    assert not text[reached:].strip()
    for current, following in pairwise(chunks):
        assert current.start < following.start
        assert count(text[following.start : current.end]) <= options.overlap_tokens


@settings(max_examples=examples(30), deadline=None)
@pytest.mark.parametrize("media_type", MEDIA_TYPES)
@given(text=long_texts, options=chunking_options, count=counters)
@example(text="", options=ChunkingOptions(), count=approximate_tokens)
@example(text=" \n\t", options=ChunkingOptions(), count=approximate_tokens)
@example(text="\u0301" * 2_000, options=ChunkingOptions(chunk_tokens=32), count=approximate_tokens)
@example(text="x" * 5_000 + " " + "y" * 5_000, options=ChunkingOptions(chunk_tokens=32), count=len)
@example(text=REPEATED, options=ChunkingOptions(chunk_tokens=154, overlap_tokens=77), count=len)
def test_every_chunk_fits_and_no_text_is_lost(
    media_type: str, text: str, options: ChunkingOptions, count: Callable[[str], int]
) -> None:
    check(text, split_into_chunks(ParsedDocument(text=text, media_type=media_type), options, count), options, count)


@settings(max_examples=examples(30), deadline=None)
@given(text=long_texts, options=chunking_options, data=st.data())
def test_symbols_may_start_anywhere(text: str, options: ChunkingOptions, data: st.DataObject) -> None:
    positions = st.integers(0, len(text))
    spans = data.draw(st.lists(st.tuples(positions, positions), max_size=8))
    symbols = tuple(CodeSymbol(min(span), max(span), "part") for span in spans)
    document = ParsedDocument(text=text, media_type="text/x-python", names=symbols)
    check(text, split_into_chunks(document, options, approximate_tokens), options, approximate_tokens)


# The tokenizer's library triggers a deprecation warning.
@pytest.mark.filterwarnings("ignore:open_binary is deprecated")
@settings(max_examples=examples(30), deadline=None)
@given(text=long_texts, options=chunking_options)
def test_chunk_sizes_follow_an_exact_tokenizer(text: str, options: ChunkingOptions) -> None:
    count = TokenizerRegistry().named("o200k_base")
    check(
        text, split_into_chunks(ParsedDocument(text=text, media_type="text/markdown"), options, count), options, count
    )


@settings(max_examples=examples(40), deadline=None)
@given(text=long_texts, options=chunking_options)
def test_chunking_is_deterministic(text: str, options: ChunkingOptions) -> None:
    document = ParsedDocument(text=text, media_type="text/markdown")
    assert split_into_chunks(document, options, approximate_tokens) == split_into_chunks(
        document, options, approximate_tokens
    )


HOSTILE = {
    "one line without a space": "x" * 5_000_000,
    "one line of words": "word " * 1_000_000,
    "only combining marks": "\u0301" * 1_000_000,
    "only dots": "." * 5_000_000,
    "only spaces and an end": " " * 5_000_000 + "x",
    "only line breaks": "\n" * 1_000_000 + "x",
    "only quotes": '"' * 1_000_000,
    "quoted fields that never end": ',"' * 500_000,
    "nested brackets": "[" * 1_000_000,
    "nested JSON": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "a long list": "[" + "1," * 500_000 + "1]",
    "fences that never close": "```\n" * 200_000,
    "headings only": "# a\n" * 200_000,
    "nested items": "".join(" " * (depth % 60) + "- item\n" for depth in range(100_000)),
    "names and no words": "a" * 39 + ":" * 1_000_000,
    "a cue and no end": "00:00:01.000 --> " * 100_000,
    "definitions": "class a:\n" * 100_000,
    "unspaced script": "漢字" * 500_000,
}


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_hostile_texts_are_chunked(media_type: str) -> None:
    options = ChunkingOptions()
    for text in (text[: 100_000 if FULL else 30_000] for text in HOSTILE.values()):
        check(
            text,
            split_into_chunks(ParsedDocument(text=text, media_type=media_type), options, approximate_tokens),
            options,
            approximate_tokens,
        )
