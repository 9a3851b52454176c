"""Chunking by format: boundaries and headings of Markdown, transcripts, JSON, CSV, logs, pages and source code."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from weftline.indexing.chunking.chunker import split_into_chunks
from weftline.indexing.chunking.model import ChunkingOptions, CodeSymbol, ParsedDocument, TextSpan
from weftline.indexing.chunking.reader import detect_type
from weftline.kernel.ports import approximate_tokens

pytestmark = pytest.mark.req("CE-F48")

SMALL = ChunkingOptions(chunk_tokens=32, overlap_tokens=0)


def split(
    text: str, media_type: str, options: ChunkingOptions = SMALL, names: tuple[CodeSymbol, ...] = ()
) -> list[TextSpan]:
    return split_into_chunks(ParsedDocument(text=text, media_type=media_type, names=names), options, approximate_tokens)


def headings_and_texts(text: str, chunks: list[TextSpan]) -> list[tuple[str, str]]:
    return [(chunk.heading, text[chunk.start : chunk.end]) for chunk in chunks]


GUIDE = """# Guide

Read this first. It is short.

## Install

Take the package and unpack it where you want it. Then run the script that is in it, once.

```sh
unpack package.tar

./install --here
```

## Use

| name | meaning |
|------|---------|
| one | the first thing there is to know |
| two | the second thing there is to know |
| three | the third thing there is to know |
"""


def test_markdown_is_split_at_headings_and_chunks_have_heading_paths() -> None:
    assert headings_and_texts(GUIDE, split(GUIDE, "text/markdown")) == [
        ("Guide", "# Guide\n\nRead this first. It is short."),
        (
            "Guide > Install",
            "## Install\n\nTake the package and unpack it where you want it. Then run the script that is in it, once.",
        ),
        ("Guide > Install", "```sh\nunpack package.tar\n\n./install --here\n```"),
        ("Guide > Use", "## Use\n\n| name | meaning |\n|------|---------|\n| one | the first thing there is to know |"),
        (
            "Guide > Use",
            "| two | the second thing there is to know |\n| three | the third thing there is to know |",
        ),
    ]


def test_markdown_chunks_have_a_kind() -> None:
    kinds = [chunk.kind for chunk in split(GUIDE, "text/markdown")]
    assert kinds == ["prose", "prose", "code", "table", "table"]


def test_small_sections_share_a_chunk_under_their_common_heading() -> None:
    text = "# Colours\n\n## Red\n\nWarm.\n\n## Blue\n\nCold."
    assert headings_and_texts(text, split(text, "text/markdown")) == [("Colours", text)]


def test_a_code_block_that_fits_is_not_split() -> None:
    block = "```\n" + "\n".join(f"line {number} of it" for number in range(7)) + "\n```"
    text = f"Some words come before the block, more than fit with it.\n\n{block}\n\nSome words follow it."
    assert [words for _, words in headings_and_texts(text, split(text, "text/markdown"))][1].startswith(block)


def test_a_hash_in_code_is_no_heading_and_setext_headings_count() -> None:
    text = "Title\n=====\n\n```\n# no heading\n```\n\nPart\n----\n\nText."
    assert [chunk.heading for chunk in split(text, "text/markdown", ChunkingOptions())] == ["Title"]
    assert [chunk.heading for chunk in split(text + " More words." * 20, "text/markdown")][1] == "Title > Part"


def test_plain_text_is_split_between_paragraphs_then_sentences() -> None:
    text = "The first paragraph has two sentences. This is the second of them.\n\nAnother paragraph. " + "Yes. " * 20
    chunks = headings_and_texts(text, split(text, "text/plain"))
    assert chunks[0][1] == "The first paragraph has two sentences. This is the second of them."
    assert chunks[1][1].startswith("Another paragraph. Yes.")
    assert all(words.endswith(".") for _, words in chunks)


def test_abbreviations_end_no_sentence() -> None:
    text = "We met Dr. Ada Lovelace, e.g. on Monday at the usual place, and spoke about engines. " * 3
    assert {words[-8:] for _, words in headings_and_texts(text, split(text, "text/plain"))} == {"engines."}


def test_scripts_without_spaces_are_split_between_sentences() -> None:
    text = "これは最初の文です。" * 12
    assert all(words.endswith("。") for _, words in headings_and_texts(text, split(text, "text/plain")))


def test_combining_marks_stay_with_their_character() -> None:
    text = "e\u0301" * 400
    assert all(words.startswith("e") for _, words in headings_and_texts(text, split(text, "text/plain")))


def test_chunks_overlap() -> None:
    text = " ".join(f"This is sentence number {number}." for number in range(30))
    one, two, *_ = split(text, "text/plain", ChunkingOptions(chunk_tokens=64, overlap_tokens=16))
    assert text[two.start : one.end] == "This is sentence number 7. This is sentence number 8."


def test_overlap_does_not_cross_headings() -> None:
    text = "# One\n\n" + "A sentence of the first. " * 8 + "\n\n# Two\n\n" + "A sentence of the second. " * 8
    chunks = split(text, "text/markdown", ChunkingOptions(chunk_tokens=64, overlap_tokens=16))
    assert [words[:7] for _, words in headings_and_texts(text, chunks)] == ["# One\n\n", "# Two\n\n"]


TRANSCRIPT = """Weekly meeting, minutes as spoken

[00:00:05] Ada: Shall we begin? There is much to say today.
[00:00:09] Bob: Yes. The first point is the engine, which stood still again.
It began on Monday.
[00:01:10] Ada: Then let us look at what the engine does when it stands still.
[00:02:00] Chen: It hums.
"""


def test_a_transcript_is_split_between_turns_with_speakers_and_times() -> None:
    chunks = split(TRANSCRIPT, detect_type(TRANSCRIPT))
    assert [(chunk.heading, chunk.speaker, chunk.kind) for chunk in chunks] == [
        ("00:00:05", "Ada", "prose"),
        ("00:00:09", "Bob", "turns"),
        ("00:01:10 to 00:02:00", "Ada, Chen", "turns"),
    ]
    assert TRANSCRIPT[chunks[1].start : chunks[1].end].endswith("It began on Monday.")


@pytest.mark.parametrize(
    ("media_type", "text"),
    [
        ("text/vtt", "WEBVTT\n\n1\n00:05.000 --> 00:07.000\n<v Ada>Hello.\n\n2\n00:08.000 --> 00:09.000\n<v Bob>Hi.\n"),
        (
            "application/x-subrip",
            "1\n00:00:05,000 --> 00:00:07,000\nAda: Hello.\n\n2\n00:00:08,000 --> 00:00:09,000\nBob: Hi.\n",
        ),
    ],
)
def test_subtitles_are_recognised_with_speakers_and_times(media_type: str, text: str) -> None:
    assert detect_type(text) == media_type
    (chunk,) = split(text, media_type)
    assert chunk.speaker == "Ada, Bob"
    assert chunk.heading in {"00:05.000 to 00:08.000", "00:00:05,000 to 00:00:08,000"}


def test_turns_in_json_lines_have_speaker_and_timestamp() -> None:
    at = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    turns = [
        {"speaker": "Ada", "text": "Hello there, how are you?", "time": at.isoformat()},
        {"role": "user", "content": "Fine."},
    ]
    text = "\n".join(json.dumps(turn) for turn in turns)
    assert detect_type(text) == "application/x-ndjson"
    first, second = split(text, "application/x-ndjson")
    assert (first.speaker, first.timestamp, first.kind) == ("Ada", int(at.timestamp() * 1_000_000), "turns")
    assert (second.speaker, second.timestamp) == ("user", None)


def test_records_in_json_lines_stay_whole() -> None:
    lines = [json.dumps({"id": number, "note": "a few words"}) for number in range(20)]
    text = "\n".join(lines)
    records = [
        line for _, words in headings_and_texts(text, split(text, "application/x-ndjson")) for line in words.split("\n")
    ]
    assert records == lines


def test_json_chunks_have_field_paths() -> None:
    orders = [{"id": number, "note": "a note of about a dozen tokens " * 3} for number in range(4)]
    text = json.dumps({"shop": "corner", "orders": orders})
    headings = [chunk.heading for chunk in split(text, "application/json")]
    assert headings == ["", "orders", "orders > 1", "orders > 2", "orders > 3"]


def test_damaged_json_is_split_as_text() -> None:
    text = '{"a": [1, 2,, "open'
    assert headings_and_texts(text, split(text, "application/json")) == [("", text)]


def test_csv_rows_stay_whole_with_their_column_names() -> None:
    rows = [f'{number},"a name, quoted\nover two lines",{number * 3}' for number in range(12)]
    text = "id,name,price\n" + "\n".join(rows)
    chunks = headings_and_texts(text, split(text, "text/csv"))
    assert {heading for heading, _ in chunks} == {"id, name, price"}
    assert all(words.count('"') % 2 == 0 for _, words in chunks)
    assert [chunk.kind for chunk in split(text, "text/csv")] == ["table"] * len(chunks)


def test_a_log_record_keeps_its_stack_trace() -> None:
    record = "2026-05-04T03:02:01Z ERROR it failed\nTraceback:\n  at one\n  at two\n"
    text = record * 6
    assert detect_type(text) == "text/x-log"
    chunks = split(text, "text/x-log")
    assert all(words.startswith("2026") and words.endswith("at two") for _, words in headings_and_texts(text, chunks))
    assert {chunk.timestamp for chunk in chunks} == {
        int(datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC).timestamp() * 1_000_000)
    }


def test_pages_are_numbered() -> None:
    text = "First page, with enough words to fill a whole piece, or nearly so. " * 2 + "\f" + "Second.\fThird."
    chunks = split(text, "application/pdf")
    assert [(chunk.heading, chunk.kind) for chunk in chunks] == [("page 1", "page"), ("page 1 to page 3", "page")]


PROGRAM = '''import os


class Store:
    """Keeps things."""

    def put(self, thing):
        self.things.append(thing)
        return len(self.things)

    def take(self):
        return self.things.pop()


def main():
    Store().put(os.getcwd())
'''


def test_source_code_is_split_at_definitions_with_their_names() -> None:
    assert [heading for heading, _ in headings_and_texts(PROGRAM, split(PROGRAM, "text/x-python"))] == [
        "",
        "Store > put",
        "Store > take",
        "main",
    ]


def test_symbols_decide_where_source_code_is_split() -> None:
    text = "alpha beta gamma delta\n" * 12
    half = len(text) // 2
    chunks = split(text, "text/x-thing", SMALL, (CodeSymbol(0, half, "a"), CodeSymbol(half, len(text), "b")))
    assert [chunk.heading for chunk in chunks] == ["a", "a", "b", "b"]
    assert half in {chunk.start for chunk in chunks}
