"""The part of a message that is shown for a match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.capabilities.messages.search import snippets as previewing
from weft.capabilities.messages.search.snippets import Snippets, snippet

pytestmark = pytest.mark.req("MS-05")

FILLER = "This sentence says nothing of any interest to anyone. " * 20


def test_a_short_message_is_shown_whole() -> None:
    assert snippet("Short and sweet.", "sweet") == "Short and sweet."


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("budget harbour", "the harbour budget was approved"),
        ("harbor budgets", "the harbour budget was approved"),
        ("approv", "the harbour budget was approved"),
        ("harbourbudget", "the harbour budget was approved"),
    ],
)
def test_the_piece_with_the_match_is_shown(query: str, shown: str) -> None:
    piece = snippet(f"{FILLER}Yesterday the harbour budget was approved at last. {FILLER}", query)
    assert shown in piece
    assert len(piece) <= 200
    assert piece.startswith("…")
    assert piece.endswith("…")


def test_the_piece_with_the_most_words_of_the_query_wins() -> None:
    content = f"A budget. {FILLER}The harbour budget. {FILLER}The harbour."
    assert "The harbour budget." in snippet(content, "budget of the harbour")


def test_a_match_at_either_end_has_an_ellipsis_on_the_other_side_only() -> None:
    assert snippet(f"zebra {FILLER}", "zebra").startswith("zebra")
    assert snippet(f"{FILLER}zebra", "zebra").endswith("zebra")


def test_without_a_match_the_beginning_is_shown() -> None:
    assert snippet(FILLER, "xylophone").startswith("This sentence")
    assert snippet(FILLER, "?" * 100).startswith("This sentence")


def test_words_are_not_cut_in_half() -> None:
    piece = snippet(f"{FILLER}zebra {FILLER}", "zebra").strip("…")
    assert set(piece.split()) <= {*FILLER.split(), "zebra"}


def test_a_text_without_spaces_is_cut_where_it_must_be() -> None:
    piece = snippet("設計" * 200 + "完了" + "設計" * 200, "完了")
    assert "完了" in piece
    assert len(piece) == 200


def test_a_query_is_analysed_once_for_all_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(previewing, "query_words", lambda query: asked.append(query) or ["zebra"])
    previews = Snippets("zebra")
    assert all("zebra" in previews.of(f"{FILLER * n}zebra {FILLER}") for n in range(1, 5))
    assert asked == ["zebra"]


def test_each_distinct_word_of_a_message_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    words = previewing.words
    monkeypatch.setattr(previewing, "words", lambda token: looked.append(token) or words(token))
    previews = Snippets(" ".join(f"asked{number}" for number in range(60)))
    looked.clear()
    previews.of(FILLER * 10)
    assert sorted(looked) == sorted(set(FILLER.replace(".", " ").split()))


def test_a_misspelt_word_is_looked_for_where_the_word_itself_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    extract = previewing.process.extract
    monkeypatch.setattr(
        previewing.process, "extract", lambda word, *rest, **how: compared.append(word) or extract(word, *rest, **how)
    )
    queries = [f"quartz{number:02}" for number in range(80)]
    assert "zebra" in snippet(f"{FILLER}zebra {FILLER}", f"zebra {' '.join(queries)}")
    assert len(compared) == 32
    assert not {"zebra"}.intersection(compared)


@given(st.text(max_size=1_000), st.text(max_size=80))
def test_a_snippet_is_a_short_part_of_the_content(content: str, query: str) -> None:
    piece = snippet(content, query)
    assert len(piece) <= 200
    assert piece == content or piece.removeprefix("…").removesuffix("…") in content


@given(
    st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta\n", "epsilon."]), min_size=60, max_size=2_000),
    st.integers(0, 59),
)
def test_a_snippet_contains_a_matched_word_if_any(filler: list[str], place: int) -> None:
    content = " ".join([*filler[:place], "zebra", *filler[place:]])
    assert "zebra" in snippet(content, "the zebras")
