"""Snippets: the part of a message shown for a match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.sessions.messages import search as snippets_module
from weftline.sessions.messages.search import Snippets, snippet

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
def test_a_snippet_shows_the_match(query: str, shown: str) -> None:
    result = snippet(f"{FILLER}Yesterday the harbour budget was approved at last. {FILLER}", query)
    assert shown in result
    assert len(result) <= 200
    assert result.startswith("…")
    assert result.endswith("…")


def test_a_snippet_shows_the_part_with_the_most_query_words() -> None:
    content = f"A budget. {FILLER}The harbour budget. {FILLER}The harbour."
    assert "The harbour budget." in snippet(content, "budget of the harbour")


def test_a_match_at_either_end_has_an_ellipsis_on_the_other_side_only() -> None:
    assert snippet(f"zebra {FILLER}", "zebra").startswith("zebra")
    assert snippet(f"{FILLER}zebra", "zebra").endswith("zebra")


def test_without_a_match_a_snippet_shows_the_beginning() -> None:
    assert snippet(FILLER, "xylophone").startswith("This sentence")
    assert snippet(FILLER, "?" * 100).startswith("This sentence")


def test_words_are_not_split() -> None:
    result = snippet(f"{FILLER}zebra {FILLER}", "zebra").strip("…")
    assert set(result.split()) <= {*FILLER.split(), "zebra"}


def test_a_text_without_spaces_is_cut_at_the_length_limit() -> None:
    result = snippet("設計" * 200 + "完了" + "設計" * 200, "完了")
    assert "完了" in result
    assert len(result) == 200


def test_a_query_is_analysed_once_for_all_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    analysed: list[str] = []
    monkeypatch.setattr(snippets_module, "query_words", lambda query: analysed.append(query) or ["zebra"])
    snippets = Snippets("zebra")
    assert all("zebra" in snippets.of(f"{FILLER * n}zebra {FILLER}") for n in range(1, 5))
    assert analysed == ["zebra"]


def test_each_distinct_word_of_a_message_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    words = snippets_module.words
    monkeypatch.setattr(snippets_module, "words", lambda token: compared.append(token) or words(token))
    snippets = Snippets(" ".join(f"asked{number}" for number in range(60)))
    compared.clear()
    snippets.of(FILLER * 10)
    assert sorted(compared) == sorted(set(FILLER.replace(".", " ").split()))


def test_fuzzy_matching_is_limited_to_query_words_without_an_exact_match(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    extract = snippets_module.process.extract
    monkeypatch.setattr(
        snippets_module.process,
        "extract",
        lambda word, *rest, **options: compared.append(word) or extract(word, *rest, **options),
    )
    queries = [f"quartz{number:02}" for number in range(80)]
    assert "zebra" in snippet(f"{FILLER}zebra {FILLER}", f"zebra {' '.join(queries)}")
    assert len(compared) == 32
    assert not {"zebra"}.intersection(compared)


@given(st.text(max_size=1_000), st.text(max_size=80))
def test_a_snippet_is_a_short_part_of_the_content(content: str, query: str) -> None:
    result = snippet(content, query)
    assert len(result) <= 200
    assert result == content or result.removeprefix("…").removesuffix("…") in content


@given(
    st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta\n", "epsilon."]), min_size=60, max_size=2_000),
    st.integers(0, 59),
)
def test_a_snippet_contains_the_matched_word(filler: list[str], position: int) -> None:
    content = " ".join([*filler[:position], "zebra", *filler[position:]])
    assert "zebra" in snippet(content, "the zebras")


@pytest.mark.parametrize("place", ["beginning", "middle", "end"])
def test_a_snippet_has_whole_sentences_around_the_match(place: str) -> None:
    answer = "The harbour budget was approved at last."
    before = "" if place == "beginning" else FILLER
    after = "" if place == "end" else f" {FILLER}"
    result = Snippets("approved budget", 400).of(f"{before}{answer}{after}".strip())
    assert answer in result
    assert len(result) > 300
    assert (result[0] == "…", result[-1] == "…") == (place != "beginning", place != "end")
    sentences = result.strip("…").replace(".", ".|").split("|")
    assert {each.strip() for each in sentences} == {answer, FILLER[: FILLER.index(".") + 1], ""}


@pytest.mark.parametrize(
    ("sentence", "answer", "query"),
    [
        (
            "Wir haben heute wieder über das Wetter gesprochen. ",
            "Gewählt: Datenbank Aurora.",
            "Welche Datenbank haben wir",
        ),
        ("Сегодня мы снова говорили про погоду в городе. ", "Бюджет гавани одобрен.", "бюджет гавани"),
        ("今日は天気の話をまた長くしました。", "港の予算が承認されました。", "港の予算"),
        ("اليوم تحدثنا مرة أخرى عن الطقس في المدينة. ", "تمت الموافقة على ميزانية الميناء.", "ميزانية الميناء"),
        ("आज हमने फिर मौसम की बात की। ", "बंदरगाह का बजट मंज़ूर हुआ।", "बंदरगाह बजट"),
    ],
)
def test_a_snippet_shows_the_match_in_other_languages(sentence: str, answer: str, query: str) -> None:
    result = snippet(f"{sentence * 15}{answer} {sentence * 15}", query)
    assert answer in result
    assert len(result) <= 200


def test_of_equal_parts_a_snippet_shows_the_one_with_rare_words() -> None:
    content = "The plan of the office. " * 20 + FILLER + "The barrier code is 7319. " + FILLER
    assert "The barrier code is 7319." in snippet(content, "office plan barrier code")


def test_the_words_that_match_are_in_the_middle_of_a_snippet() -> None:
    content = "We have a plan. " * 30 + "The barrier opens with a code. " + "We have a plan. " * 30
    assert "The barrier opens with a code. We have a plan." in snippet(content, "plan opens")
