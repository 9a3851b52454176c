"""Weaving passages into one text: in order, each once, and never longer than allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.capabilities.assembly.passages import render_context
from weft.capabilities.indexing.collections.model import Chunk
from weft.capabilities.search.neighbours import passage_ref
from weft.capabilities.search.passages import ChunkPassage
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from weft.capabilities.search.neighbours import PassageRef

pytestmark = pytest.mark.req("CE-F41")
TEXT = "".join(f"sentence number {number:02}. " for number in range(40))
PIECE, STEP = 60, 42


def part(ordinal: int, *, item: str = "a.md", rank: int = 0, distance: int = 0) -> PassageRef:
    """Return a chunk of a document, which shares its end with the beginning of the next one."""
    start = ordinal * STEP
    text = TEXT[start : start + PIECE]
    return passage_ref(passage("document", item, text, ordinal=ordinal, start=start), rank, distance)


def message(number: int, text: str, *, rank: int = 0, distance: int = 0) -> PassageRef:
    return passage_ref(passage("message", str(number), text), rank, distance)


def passage(source: str, item: str, text: str, *, ordinal: int = 0, start: int = 0) -> ChunkPassage:
    chunk = Chunk(
        collection="sessions" if source == "message" else "domain:d",
        number=hash((item, ordinal)) & 0xFFFF,
        source=source,
        place="s1" if source == "message" else "d",
        item=item,
        ordinal=ordinal,
        start=start,
        end=start + len(text),
        terms="",
        digest=b"",
        tokens=1,
        timestamp=0,
        speaker="dana",
        text=text,
    )
    number = int(item) if source == "message" else None
    return ChunkPassage(chunk=chunk, text=text, title=item, uri="u", message_id=number)


def test_adjacent_passages_become_one_section_without_overlap() -> None:
    woven = render_context([part(2), part(1, distance=1), part(3, distance=1)], 1000, approximate_tokens)
    assert [stretch.text for stretch in woven.sections] == [TEXT[STEP : 3 * STEP + PIECE]]
    assert woven.text == f"[1] d > a.md\n{TEXT[STEP : 3 * STEP + PIECE]}"


def test_separate_passages_keep_document_order() -> None:
    woven = render_context([part(9, rank=0), part(1, rank=1)], 1000, approximate_tokens)
    assert [stretch.text for stretch in woven.sections] == [TEXT[STEP:][:PIECE], TEXT[9 * STEP :][:PIECE]]


def test_the_document_of_the_best_passage_comes_first() -> None:
    woven = render_context([part(1, item="z.md", rank=0), part(1, item="a.md", rank=1)], 1000, approximate_tokens)
    assert [stretch.passages[0].chunk.item for stretch in woven.sections] == ["z.md", "a.md"]


def test_messages_are_rendered_with_their_senders() -> None:
    woven = render_context([message(2, "At noon."), message(1, "When?", distance=1)], 1000, approximate_tokens)
    assert woven.text == "[1] session s1, 1970-01-01\ndana: When?\ndana: At noon."


def test_matches_come_before_their_neighbours() -> None:
    found = [message(10 * number, f"found {number} " + "x" * 60, rank=number) for number in range(1, 4)]
    around = [message(10 * number + 1, "around " + "x" * 60, rank=number, distance=1) for number in range(1, 4)]
    woven = render_context([*around, *found], 75, approximate_tokens)
    assert all(f"found {number}" in woven.text for number in (1, 2))


def test_a_passage_above_the_budget_is_truncated_with_a_mark() -> None:
    woven = render_context([part(0)], 16, approximate_tokens)
    assert woven.tokens <= 16
    assert not woven.complete
    cut = woven.sections[0].passages[0]
    assert cut.text == TEXT[cut.chunk.start : cut.chunk.end]
    assert 0 < len(cut.text) < PIECE


def test_no_text_is_rendered_where_no_heading_fits() -> None:
    assert render_context([part(0)], 1, approximate_tokens).text == ""
    assert render_context([], 100, approximate_tokens).complete


STRANDS = st.lists(
    st.one_of(
        st.builds(
            part,
            st.integers(0, 15),
            item=st.sampled_from(["a.md", "b.md"]),
            rank=st.integers(0, 9),
            distance=st.integers(0, 2),
        ),
        st.builds(
            message,
            st.integers(1, 12),
            st.text(st.characters(codec="utf-8"), min_size=1, max_size=200),
            rank=st.integers(0, 9),
            distance=st.integers(0, 2),
        ),
    ),
    max_size=20,
)


@given(strands=STRANDS, most=st.integers(0, 400))
def test_rendered_context_never_exceeds_the_budget(strands: list[PassageRef], most: int) -> None:
    woven = render_context(strands, most, approximate_tokens)
    assert woven.tokens == approximate_tokens(woven.text) <= most
    if woven.complete:
        places = {(strand.line, strand.position) for strand in strands}
        assert sum(len(stretch.passages) for stretch in woven.sections) == len(places)
