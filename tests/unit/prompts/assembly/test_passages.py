"""Rendering of passages as one text: in order, without duplicates, within the token budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.indexing.collections import Chunk
from weftline.kernel.ports import approximate_tokens
from weftline.prompts.assembly.passages import compact, numbered, render_context
from weftline.search.neighbours import passage_ref
from weftline.search.passages import ChunkPassage

if TYPE_CHECKING:
    from weftline.prompts.assembly.passages import Layout
    from weftline.search.neighbours import PassageRef

pytestmark = pytest.mark.req("CE-F41")
TEXT = "".join(f"sentence number {number:02}. " for number in range(40))
CHUNK_SIZE, STEP = 60, 42


def chunk_ref(ordinal: int, *, item: str = "a.md", rank: int = 0, distance: int = 0) -> PassageRef:
    """Return a chunk of a document; its end overlaps with the next one."""
    start = ordinal * STEP
    text = TEXT[start : start + CHUNK_SIZE]
    return passage_ref(passage("document", item, text, ordinal=ordinal, start=start), rank, distance)


def message_ref(number: int, text: str, *, rank: int = 0, distance: int = 0) -> PassageRef:
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
    rendered = render_context(
        [chunk_ref(2), chunk_ref(1, distance=1), chunk_ref(3, distance=1)], 1000, approximate_tokens
    )
    assert [section.text for section in rendered.sections] == [TEXT[STEP : 3 * STEP + CHUNK_SIZE]]
    assert rendered.text == f"[1] d > a.md\n{TEXT[STEP : 3 * STEP + CHUNK_SIZE]}"


def test_separate_passages_keep_document_order() -> None:
    rendered = render_context([chunk_ref(9, rank=0), chunk_ref(1, rank=1)], 1000, approximate_tokens)
    assert [section.text for section in rendered.sections] == [TEXT[STEP:][:CHUNK_SIZE], TEXT[9 * STEP :][:CHUNK_SIZE]]


def test_the_document_of_the_best_passage_comes_first() -> None:
    rendered = render_context(
        [chunk_ref(1, item="z.md", rank=0), chunk_ref(1, item="a.md", rank=1)], 1000, approximate_tokens
    )
    assert [section.passages[0].chunk.item for section in rendered.sections] == ["z.md", "a.md"]


def test_messages_are_rendered_with_their_senders() -> None:
    rendered = render_context(
        [message_ref(2, "At noon."), message_ref(1, "When?", distance=1)], 1000, approximate_tokens
    )
    assert rendered.text == "[1] session s1, 1970-01-01\ndana: When?\ndana: At noon."


def test_matches_come_before_their_neighbours() -> None:
    found = [message_ref(10 * number, f"found {number} " + "x" * 60, rank=number) for number in range(1, 4)]
    neighbours = [message_ref(10 * number + 1, "around " + "x" * 60, rank=number, distance=1) for number in range(1, 4)]
    rendered = render_context([*neighbours, *found], 75, approximate_tokens)
    assert all(f"found {number}" in rendered.text for number in (1, 2))


def test_chunks_with_white_space_between_them_are_one_section() -> None:
    parts = [("Half a sentence,", 0), ("and the other half.", 17)]
    refs = [
        passage_ref(passage("message", "1", text, ordinal=place, start=start), place)
        for place, (text, start) in enumerate(parts)
    ]
    rendered = render_context(refs, 1000, approximate_tokens)
    assert [section.text for section in rendered.sections] == ["dana: Half a sentence,\nand the other half."]


def test_a_compact_text_repeats_no_heading() -> None:
    refs = [chunk_ref(1), chunk_ref(9), chunk_ref(0, item="b.md", rank=1), message_ref(3, "At noon.", rank=2)]
    rendered = render_context(refs, 1000, approximate_tokens, compact)
    first, ninth = TEXT[STEP:][:CHUNK_SIZE], TEXT[9 * STEP :][:CHUNK_SIZE]
    document = f"[d > a.md]\n{first}\n…\n{ninth}\n\n[b.md]\n{TEXT[:CHUNK_SIZE]}"
    assert rendered.text == f"{document}\n\n[session s1, 1970-01-01]\ndana: At noon."


def test_a_passage_above_the_budget_is_truncated() -> None:
    rendered = render_context([chunk_ref(0)], 16, approximate_tokens)
    assert rendered.tokens <= 16
    assert not rendered.complete
    truncated = rendered.sections[0].passages[0]
    assert truncated.text == TEXT[truncated.chunk.start : truncated.chunk.end]
    assert 0 < len(truncated.text) < CHUNK_SIZE


def test_no_text_is_rendered_where_no_heading_fits() -> None:
    assert render_context([chunk_ref(0)], 1, approximate_tokens).text == ""
    assert render_context([], 100, approximate_tokens).complete


PASSAGES = st.lists(
    st.one_of(
        st.builds(
            chunk_ref,
            st.integers(0, 15),
            item=st.sampled_from(["a.md", "b.md"]),
            rank=st.integers(0, 9),
            distance=st.integers(0, 2),
        ),
        st.builds(
            message_ref,
            st.integers(1, 12),
            st.text(st.characters(codec="utf-8"), min_size=1, max_size=200),
            rank=st.integers(0, 9),
            distance=st.integers(0, 2),
        ),
    ),
    max_size=20,
)


@given(refs=PASSAGES, budget=st.integers(0, 400), layout=st.sampled_from([compact, numbered]))
def test_rendered_context_never_exceeds_the_budget(refs: list[PassageRef], budget: int, layout: Layout) -> None:
    rendered = render_context(refs, budget, approximate_tokens, layout)
    assert rendered.tokens == approximate_tokens(rendered.text) <= budget
    if rendered.complete:
        positions = {(ref.line, ref.position) for ref in refs}
        assert sum(len(section.passages) for section in rendered.sections) == len(positions)
