"""Resolution of passages: exact, moved or lost, and never the wrong passage."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET, structs

from weftline.providers.html_xml import IsolatedMarkupReader
from weftline.records.model import ContextSourceRef
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
from weftline.records.resolution import PassageResolution, resolve
from weftline.records.selectors import SourceContent, passage_digest, selectors_for, source_ref
from weftline.records.text_quote import find_quote, find_similar

pytestmark = pytest.mark.req("AC-05")

CHARACTERS = st.sampled_from([*"abcdefgh \n", "\r\n", "é", "e\u0301", "🚢", "中"])
TEXTS = st.lists(CHARACTERS, max_size=80).map("".join)
STORY = "The plan was made in May.\nIt was changed in June, when nobody looked.\nIt was never changed again.\n"
MARKUP = IsolatedMarkupReader()
PAGE = "<html><body><h1>Plan</h1><ul><li>first</li><li>Ship on <b>Friday</b></li></ul><p>end</p></body></html>"


def ref(selector: Any = UNSET, *, of: str | bytes | None = None, passage: str | None = None) -> ContextSourceRef:
    """Return a reference with these selectors, and the digests of source and passage if given."""
    return ContextSourceRef(
        schema_version="0.1.0",
        source_id="s",
        uri="file:///plan.md",
        source_kind="file",
        selector=selector,
        digest=UNSET if of is None else SourceContent.of(of).digest,
        metadata={} if passage is None else {"weftline": {"passage_digest": passage_digest(passage)}},
    )


def position_of(resolution: PassageResolution) -> tuple[int, int] | None:
    now = resolution.now
    return (now.start, now.end) if isinstance(now, TextPosition) else None


def occurrences(words: str, text: str) -> int:
    """Return how often words occur, counting overlaps."""
    return sum(text.startswith(words, at) for at in range(len(text)))


@st.composite
def passages(draw: st.DrawFn) -> tuple[str, int, int]:
    text = draw(TEXTS.filter(bool))
    start = draw(st.integers(0, len(text) - 1))
    return text, start, draw(st.integers(start + 1, len(text)))


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, int, int, str]:
    """A passage of a text, and the text after a few random edits."""
    text, start, end = draw(passages())
    after = text
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, len(after)))
        gone = draw(st.integers(0, 6))
        after = after[:begin] + draw(st.lists(CHARACTERS, max_size=6).map("".join)) + after[begin + gone :]
    return text, start, end, after


@given(edits(), st.booleans(), st.booleans(), st.booleans())
def test_exact_requires_the_same_text_at_the_same_position(
    drawn: tuple[str, int, int, str],
    quoted: bool,  # noqa: FBT001 - drawn
    hashed: bool,  # noqa: FBT001
    known: bool,  # noqa: FBT001
) -> None:
    text, start, end, after = drawn
    selectors = tuple(s for s in selectors_for(text, start, end) if quoted or not isinstance(s, TextQuote))
    reference = ref(selectors, of=text if known else None, passage=text[start:end] if hashed else None)
    found = resolve(reference, after)
    if found.outcome == "exact":
        assert found.text == text[start:end]
        assert text[start:end] in {
            after[start:end],
            after.encode()[len(text[:start].encode()) :].decode(errors="ignore")[: end - start],
        }
        assert quoted or hashed or after == text
    if found.outcome == "moved":
        assert found.text is not None
        assert found.text in after
        assert (found.similarity == 1) == (found.text == text[start:end])
    if after == text and (quoted or hashed or known):
        assert found.outcome == "exact"


@given(passages(), TEXTS, TEXTS)
def test_a_shifted_passage_is_found_at_its_new_position(drawn: tuple[str, int, int], before: str, suffix: str) -> None:
    text, start, end = drawn
    after = before + text + suffix
    assume(occurrences(text, after) == 1)
    found = resolve(source_ref("s", "x:y", text, start=start, end=end, source_kind="file"), after)
    assert found.text == text[start:end]
    assert found.similarity == 1
    assert found.outcome in ({"exact"} if not before else {"exact", "moved"})
    if occurrences(text[start:end], after) == 1:
        assert after[slice(*(position_of(found) or (0, 0)))] == text[start:end] or found.outcome == "exact"
        assert found.outcome == ("exact" if not before else "moved")


@given(passages(), st.text("xyz", min_size=1, max_size=20))
def test_a_replaced_passage_is_lost(drawn: tuple[str, int, int], other: str) -> None:
    text, start, end = drawn
    after = text[:start] + other + text[end:]
    assume(text[start:end] not in after and end - start < 12)
    found = resolve(source_ref("s", "x:y", text, start=start, end=end, source_kind="file"), after)
    assert (found.outcome, found.text, found.confidence) == ("lost", None, 0)


@given(edits())
def test_a_resolved_passage_resolves_by_its_new_selectors(drawn: tuple[str, int, int, str]) -> None:
    text, start, end, after = drawn
    found = resolve(source_ref("s", "x:y", text, start=start, end=end, source_kind="file"), after)
    assume(found.outcome != "lost")
    again = resolve(ref(found.selector), after)
    assert (again.outcome, again.text) == ("exact", found.text)


@given(st.one_of(TEXTS, st.binary(max_size=60)), st.one_of(TEXTS, st.binary(max_size=60)))
def test_without_a_quote_only_an_unchanged_source_is_exact(before: bytes | str, now: bytes | str) -> None:
    same = SourceContent.of(before).raw == SourceContent.of(now).raw
    for selector in (
        UNSET,
        PageRegion(page=1, x=0, y=0, width=1, height=1),
        MediaTimeRange(start_seconds=0, end_seconds=1),
        CustomSelector(name="mine", value={"a": 1}),
    ):
        found = resolve(ref(selector, of=before), now)
        assert found.outcome == ("exact" if same else "lost")
        assert found.source_unchanged is same
        assert resolve(ref(selector), now).outcome == "lost"


def test_a_position_with_changed_text_is_never_exact() -> None:
    for selector in (TextPosition(start=4, end=8), ByteRange(start=4, end=8), LineRange(start=1, end=1)):
        assert resolve(ref(selector, of=STORY), STORY).outcome == "exact"
        changed = resolve(ref(selector, of=STORY), STORY.replace("plan", "clan"))
        assert (changed.outcome, changed.source_unchanged) == ("lost", False)
        assert "the source has changed" in changed.reason
        unknown = resolve(ref(selector), STORY)
        assert unknown.outcome == "lost"
        assert "digest is not known" in unknown.reason


def test_the_digest_of_the_passage_proves_it_in_a_changed_source() -> None:
    here = resolve(ref(TextPosition(start=4, end=8), of=STORY, passage="plan"), STORY + "More.")
    assert (here.outcome, here.text, here.source_unchanged) == ("exact", "plan", False)
    shifted = resolve(ref(TextPosition(start=4, end=8), passage="plan"), "Oh. " + STORY)
    assert (shifted.outcome, shifted.found_by, position_of(shifted)) == ("moved", "passage_digest", (8, 12))
    lines = resolve(ref(LineRange(start=1, end=1), passage="It was never changed again."), STORY)
    assert (lines.outcome, lines.text) == ("moved", "It was never changed again.")


def test_equal_passages_are_distinguished_by_prefix_and_suffix() -> None:
    text = "a: yes\nb: yes\nc: yes\n"
    start = text.index("yes", 8)
    reference = source_ref("s", "x:y", text, start=start, end=start + 3, source_kind="file")
    after = "new: yes\n" + text
    moved = resolve(reference, after)
    assert (moved.outcome, position_of(moved)) == ("moved", (start + 9, start + 12))
    assert moved.confidence == 1


def test_equal_text_at_the_old_position_does_not_hide_a_moved_passage() -> None:
    text = "x1 same x2 same x3"
    reference = ref((TextQuote(exact="same", prefix="x2 ", suffix=" x3"), TextPosition(start=11, end=15)), of=text)
    after = "x9 same x1 same x2 same x3"
    found = resolve(reference, after)
    assert (found.outcome, position_of(found)) == ("moved", (19, 23))


def test_an_ambiguous_quote_has_a_lower_confidence() -> None:
    found = resolve(ref(TextQuote(exact="was")), STORY)
    assert (found.outcome, found.confidence) == ("moved", 0.3333)
    assert resolve(ref(TextQuote(exact="was"), of=STORY), STORY).outcome == "exact"
    alone = resolve(ref(TextQuote(exact="May")), STORY)
    assert (alone.outcome, alone.confidence) == ("exact", 1)


def test_a_slightly_changed_passage_is_moved_with_its_similarity() -> None:
    start = STORY.index("It was changed")
    reference = source_ref("s", "x:y", STORY, start=start, end=start + 42, source_kind="file")
    found = resolve(reference, STORY.replace("June", "July"))
    assert found.outcome == "moved"
    assert 0.9 < found.similarity < 1
    assert found.confidence == found.similarity
    assert found.text is not None
    assert "July" in found.text
    assert "% alike" in found.reason


def test_fuzzy_matching_prefers_the_old_position() -> None:
    line = "item {}: the same long words in every line\n"
    text = "".join(line.format(n) for n in range(10, 90))
    start = text.index("item 40")
    reference = source_ref("s", "x:y", text, start=start, end=start + 30, source_kind="file")
    found = resolve(reference, text.replace("item 40: the", "item 40: teh"))
    assert found.outcome == "moved"
    assert found.text is not None
    assert found.text.startswith("item 40")


def test_a_long_quote_is_found_though_parts_of_it_changed() -> None:
    text = "".join(f"sentence number {n} of this story. " for n in range(400))
    start, end = 1_000, 9_000
    after = "Preface. " + text.replace("number 100 of", "number one hundred of")
    found = resolve(source_ref("s", "x:y", text, start=start, end=end, source_kind="file"), after)
    assert found.outcome == "moved"
    assert found.similarity > 0.99
    assert found.text == after[start + 9 : end + 9 + len("one hundred") - 3]


def test_a_partial_match_is_never_reported_as_full() -> None:
    text = "".join(f"sentence number {n} of this story. " for n in range(3_000))
    reference = source_ref("s", "x:y", text, start=10, end=90_000, source_kind="file")
    found = resolve(reference, text.replace("number 1000 of", "number 1001 of"))
    assert (found.outcome, found.similarity) == ("moved", 0.9999)
    assert "99.99% alike" in found.reason


def test_a_structural_selector_survives_shifted_characters() -> None:
    before = '{"goal": "Ship on Friday"}'
    reference = ref((TextPosition(start=10, end=24), JsonPointer(pointer="/goal"), TextQuote(exact="Ship on Friday")))
    assert resolve(reference, before).found_by == "text_position"
    again = resolve(reference, before.replace(": ", " : "))
    assert (again.outcome, again.found_by) == ("exact", "json_pointer")


def test_changed_line_endings_are_a_change() -> None:
    reference = source_ref("s", "x:y", STORY, start=0, end=60, source_kind="file")
    found = resolve(reference, STORY.replace("\n", "\r\n"))
    assert found.outcome == "moved"
    assert found.similarity < 1


def test_contradicting_selectors_resolve_to_lost() -> None:
    reference = ref((TextQuote(exact="plan"), TextPosition(start=4, end=8)), of=STORY, passage="clan")
    assert "contradicts itself" in resolve(reference, STORY).reason


def test_a_json_value_is_compared_independent_of_formatting() -> None:
    before = '{"steps": [{"name": "plan", "days": 2}, {"name": "ship"}]}'
    reference = ref(JsonPointer(pointer="/steps/0"), passage='{"days":2,"name":"plan"}')
    assert resolve(reference, '{"steps":[ {"days":2 , "name":"plan"} ]}').outcome == "exact"
    moved = resolve(reference, before.replace("[", '[{"name": "think"}, '))
    assert (moved.outcome, moved.now) == ("moved", JsonPointer(pointer="/steps/1"))
    assert resolve(reference, before.replace("2", "3")).outcome == "lost"


def test_a_slightly_changed_json_value_is_similar() -> None:
    quote = TextQuote(exact="Ship the release on Friday")
    reference = ref((JsonPointer(pointer="/goal"), quote))
    found = resolve(reference, '{"goal": "Ship the release on Monday", "old": 1}')
    assert (found.outcome, found.text) == ("moved", "Ship the release on Monday")
    escaped = resolve(ref((JsonPointer(pointer="/a"), TextQuote(exact='say "so"'))), '{"b": "say \\"so\\""}')
    assert (escaped.outcome, escaped.now) == ("moved", JsonPointer(pointer="/b"))


@pytest.mark.parametrize("selector", [Css(selector="ul > li:nth-child(2)"), XPath(path="//li[2]")])
def test_elements_are_found_by_css_and_xpath(selector: Any) -> None:
    quote = TextQuote(exact="Ship on Friday")
    exact = resolve(ref((selector, quote)), PAGE, "text/html", MARKUP)
    assert (exact.outcome, exact.text, exact.now) == ("exact", "Ship on Friday", selector)
    moved = resolve(ref((selector, quote)), PAGE.replace("<li>first</li>", ""), "text/html", MARKUP)
    assert (moved.outcome, moved.now) == ("moved", XPath(path="/html/body/ul/li"))
    near = resolve(ref((selector, quote)), PAGE.replace("Friday", "Fryday"), "text/html", MARKUP)
    assert (near.outcome, near.text) == ("moved", "Ship on Fryday")
    assert resolve(ref(selector, of=PAGE), PAGE, "text/html", MARKUP).text == "Ship on Friday"
    assert resolve(ref(selector, of=PAGE), PAGE + " ", "text/html", MARKUP).outcome == "lost"


def test_an_xpath_may_select_an_attribute_or_text() -> None:
    page = '<a href="x">one</a><a href="y">two</a>'
    assert resolve(ref(XPath(path="//a[2]/@href"), passage="y"), page, None, MARKUP).outcome == "exact"
    assert resolve(ref(XPath(path="string(//a)"), passage="one"), page, None, MARKUP).outcome == "exact"
    assert resolve(ref(XPath(path="count(//a)"), passage="2.0"), page, None, MARKUP).outcome == "lost"


def test_xml_is_parsed_as_xml() -> None:
    document = '<?xml version="1.0" encoding="utf-16"?><Plan><Goal>Ship</Goal></Plan>'
    assert resolve(ref(XPath(path="/Plan/Goal"), passage="Ship"), document, None, MARKUP).outcome == "exact"
    broken = resolve(ref(XPath(path="/Plan"), passage="Ship"), "<Plan>", "application/xml", MARKUP)
    assert "cannot be read" in broken.reason


@pytest.mark.parametrize(
    "document",
    [
        '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><r>&x;</r>',
        '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><r>&b;&b;&b;&b;</r>',
    ],
)
def test_entities_are_neither_expanded_nor_fetched(document: str) -> None:
    for media_type in ("application/xml", "text/html"):
        found = resolve(ref(XPath(path="//r"), of=document), document, media_type, MARKUP)
        assert "root:" not in (found.text or "")
        assert "aaa" not in (found.text or "")


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        (Css(selector="p[["), "cannot be understood"),
        (XPath(path="//p["), "cannot be understood"),
        (XPath(path="nothing:like()"), "cannot be understood"),
        (XPath(path="//x:p"), "cannot be understood"),
    ],
)
def test_an_unparsable_selector_is_named_in_the_error(selector: Any, reason: str) -> None:
    found = resolve(ref(selector, of=PAGE), PAGE, "text/html", MARKUP)
    assert found.outcome == "lost"
    assert reason in found.reason


def test_a_slow_selector_times_out() -> None:
    impatient = IsolatedMarkupReader(seconds=1.0)
    page = "<body>" + ("<div>" * 100 + "x" + "</div>" * 100) * 60
    found = resolve(ref(XPath(path="//*/following::*[following::*]"), of=page), page, "text/html", impatient)
    assert found.outcome == "lost"
    assert "took longer than 1 seconds" in found.reason
    impatient.close()


def test_a_page_above_the_size_limit_is_reported() -> None:
    found = resolve(ref(Css(selector="p"), of="x"), "x" * (4 * 2**20 + 1), "text/html", MARKUP)
    assert "too large" in found.reason
    assert "cannot be read" in resolve(ref(Css(selector="p"), of="x"), "x").reason


def test_sources_are_read_concurrently() -> None:
    found: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(resolve(ref(Css(selector="h1"), of=PAGE), PAGE, None, MARKUP).outcome)
        )
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["exact"] * 5


def test_a_page_region_with_a_quote_resolves_while_the_file_is_unchanged() -> None:
    pdf = b"%PDF-1.7 \xff\xfe binary"
    reference = ref((PageRegion(page=2, x=1, y=1, width=5, height=5), TextQuote(exact="Ship")), of=pdf)
    assert resolve(reference, pdf).outcome == "exact"
    assert resolve(reference, pdf + b" ").outcome == "lost"


@pytest.mark.parametrize(
    ("exact", "text"),
    [
        ("a" * 800 + "b", "a" * 2_000_000),
        ("ab" * 400 + "b" * 60, "ab" * 1_000_000),
        ("b" + "a" * 90_000, "a" * 4_000_000),
    ],
)
def test_hostile_texts_resolve_in_bounded_time(exact: str, text: str) -> None:
    # No timeout needed: quadratic work would take hours.
    quote = TextQuote(exact=exact, prefix="a" * 50_000)
    assert find_quote(quote, text, 1_000_000) is None
    found = find_similar(exact, text, 1_000_000)
    assert found is None or found.similarity < 1


@pytest.mark.parametrize("near", [0, 2_000_000, 3_900_000])
def test_a_repeated_long_quote_checks_few_candidates(near: int) -> None:
    # No timeout needed: the work is bounded by candidates times their length.
    exact, text = "a" * 100_000, "a" * 4_000_000
    found = find_quote(TextQuote(exact=exact), text, near)
    assert found is not None
    assert found.start == near
    assert found.ties * len(exact) <= 50_000_000


def test_a_quote_is_found_far_before_its_old_position() -> None:
    text = f"{'x' * 5}goal{'y' * 40_000}goal{'z' * 2_000_000}"
    found = find_quote(TextQuote(exact="goal"), text, 2_000_000)
    assert found is not None
    assert (found.start, found.ties) == (40_009, 2)


def test_a_repeated_character_is_found_near_its_old_position() -> None:
    text = "a" * 3_000_000
    reference = ref((TextQuote(exact="a"), TextPosition(start=2_000_000, end=2_000_001)))
    assert resolve(reference, text).outcome == "exact"
    quoted = structs.replace(reference, selector=TextQuote(exact="a", prefix="b"))
    assert resolve(quoted, text).outcome == "moved"
