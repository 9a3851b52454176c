"""Selectors: the passage that each kind selects, and the selectors generated for a passage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.records.refs import (
    ByteRange,
    Css,
    CustomSelector,
    JsonPointer,
    LineRange,
    MediaTimeRange,
    PageRegion,
    TextPosition,
    TextQuote,
    XPath,
)
from weftline.records.selectors import (
    SelectedPassage,
    SourceContent,
    passage_digest,
    select_passage,
    selectors_for,
)

pytestmark = pytest.mark.req("AC-05")

# All kinds of line breaks, characters of one to four bytes, and combining characters.
ALPHABET = st.sampled_from([*"ab c.\n\r\t", "\r\n", "é", "e\u0301", "🚢", "👩\u200d🚀", "\u2028", "中"])
TEXTS = st.lists(ALPHABET, max_size=60).map("".join)
DOCUMENT = '{"goal": "Ship", "steps": ["plan", {"a/b": 1, "m~n": null, "": true}], "size": 1.5}'


def selected_text(selector: object, content: bytes | str, media_type: str | None = None) -> str | None:
    found = select_passage(selector, SourceContent.of(content, media_type))  # type: ignore[arg-type]
    return None if found is None else found.text


@st.composite
def passages(draw: st.DrawFn) -> tuple[str, int, int]:
    text = draw(TEXTS)
    start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    return text, start, end


@given(passages())
def test_every_generated_selector_selects_its_passage(drawn: tuple[str, int, int]) -> None:
    text, start, end = drawn
    for selector in selectors_for(text, start, end):
        if not isinstance(selector, LineRange):
            assert selected_text(selector, text) == text[start:end], selector


@given(passages())
def test_a_line_range_covers_every_touched_line(drawn: tuple[str, int, int]) -> None:
    text, start, end = drawn
    for selector in selectors_for(text, start, end):
        found = select_passage(selector, SourceContent.of(text)) if isinstance(selector, LineRange) else None
        if found is not None and found.span is not None:
            first, last = found.span
            assert first <= start
            assert first == 0 or text[first - 1] in "\r\n"
            assert set(text[last:end]) <= {"\r", "\n"}


@given(passages())
def test_a_generated_quote_has_the_surrounding_text_as_prefix_and_suffix(drawn: tuple[str, int, int]) -> None:
    text, start, end = drawn
    quotes = [each for each in selectors_for(text, start, end) if isinstance(each, TextQuote)]
    assert len(quotes) == (1 if end > start else 0)
    for quote in quotes:
        assert text[:start].endswith(quote.prefix)
        assert text[end:].startswith(quote.suffix)


@given(TEXTS, st.integers(0, 80), st.integers(0, 80))
def test_byte_offsets_refer_to_the_source_bytes(text: str, one: int, other: int) -> None:
    raw, (start, end) = text.encode(), sorted((one, other))
    found = select_passage(ByteRange(start=start, end=end), SourceContent.of(raw))
    if end > len(raw):
        assert found is None
        return
    assert found is not None
    assert found.digest == SourceContent.of(raw[start:end]).digest
    if found.text is not None:
        assert found.text.encode() == raw[start:end]


def test_character_offsets_count_code_points_and_crlf_as_two() -> None:
    assert selected_text(TextPosition(start=1, end=3), "a🚢e\u0301") == "🚢e"
    assert selected_text(TextPosition(start=1, end=4), "a\r\nb") == "\r\nb"
    assert selected_text(TextPosition(start=2, end=9), "short") is None
    assert selected_text(TextPosition(start=0, end=0), "") == ""


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_end_at_lf_cr_or_crlf(ending: str) -> None:
    text = ending.join(["one", "two", "", "four", ""])
    assert selected_text(LineRange(start=2, end=2), text) == "two"
    assert selected_text(LineRange(start=2, end=4), text) == f"two{ending}{ending}four"
    assert selected_text(LineRange(start=3, end=3), text) == ""
    assert selected_text(LineRange(start=4, end=5), text) is None
    assert selected_text(LineRange(start=1, end=1), "") is None


def test_a_quote_selects_the_best_prefix_and_suffix_match() -> None:
    text = "red cat, blue cat, green cat"
    assert select_passage(
        TextQuote(exact="cat", prefix="blue ", suffix=", g"), SourceContent.of(text)
    ) == SelectedPassage("cat", passage_digest("cat"), (14, 17))
    found = select_passage(TextQuote(exact="cat", prefix="a green ", suffix="."), SourceContent.of(text))
    assert found is not None
    assert found.span == (25, 28)
    assert selected_text(TextQuote(exact="dog"), text) is None


@pytest.mark.parametrize(
    ("pointer", "text"),
    [
        ("/goal", "Ship"),
        ("/steps/0", "plan"),
        ("/steps/1/a~1b", "1"),
        ("/steps/1/m~0n", "null"),
        ("/steps/1/", "true"),
        ("/steps/1", '{"":true,"a/b":1,"m~n":null}'),
        ("/size", "1.5"),
        ("/steps/2", None),
        ("/steps/-", None),
        ("/steps/00", None),
        ("/goal/0", None),
        ("/nothing", None),
    ],
)
def test_a_json_pointer_selects_a_value(pointer: str, text: str | None) -> None:
    assert selected_text(JsonPointer(pointer=pointer), DOCUMENT) == text


def test_the_whole_document_has_the_empty_pointer() -> None:
    assert selected_text(JsonPointer(pointer=""), " [1, 2] ") == "[1,2]"
    assert selected_text(JsonPointer(pointer=""), "not json") is None
    assert selected_text(JsonPointer(pointer="/0"), "[" * 100_000) is None


@pytest.mark.parametrize(
    "selector",
    [
        PageRegion(page=1, x=0, y=0, width=1, height=1),
        MediaTimeRange(start_seconds=0, end_seconds=1),
        CustomSelector(name="mine", value=1),
        Css(selector="p"),
        XPath(path="//p"),
    ],
)
def test_a_selector_without_text_yields_no_excerpt(selector: object) -> None:
    assert selected_text(selector, "<p>text</p>") is None


def test_a_source_is_decoded_with_the_charset_of_its_media_type() -> None:
    raw = "naïve 中".encode("utf-16")
    assert selected_text(TextPosition(start=0, end=5), raw, "text/plain; charset=UTF-16") == "naïve"
    assert selected_text(ByteRange(start=2, end=12), raw, "text/plain; charset=UTF-16") == "naïve"
    assert selected_text(TextPosition(start=0, end=1), raw) is None
    assert (
        selected_text(TextPosition(start=0, end=5), "naïve".encode("latin-1"), 'text/plain; charset="iso-8859-1"')
        == "naïve"
    )
    assert selected_text(TextPosition(start=0, end=1), b"\xff", "text/plain; charset=unicode_escape") is None


def test_binary_content_is_identified_by_digest_only() -> None:
    found = select_passage(ByteRange(start=1, end=3), SourceContent.of(b"\x00\xff\xfe\x00"))
    assert found == SelectedPassage(None, SourceContent.of(b"\xff\xfe").digest)


def test_a_passage_must_lie_within_the_text() -> None:
    with pytest.raises(ValueError, match="has no passage from 3 to 9"):
        selectors_for("short", 3, 9)


def test_a_long_passage_is_selected_by_position() -> None:
    text = "x" * 200_000
    kinds = [type(each) for each in selectors_for(text, 0, 150_000)]
    assert kinds == [TextPosition, ByteRange, LineRange]
