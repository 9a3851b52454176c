"""Words as they are compared."""

from __future__ import annotations

import pytest

from weft.capabilities.retrieval.words import asked_terms, plain_words, terms, terms_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("planning the plans", "plan planned"),
        ("getCurrentWeather", "get_current_weather"),
        ("Café naïve", "cafe naive"),
        ("the dog's bone", "dogs bones"),
        ("Ann\u2019s", "ANNS"),
    ],
)
def test_what_means_the_same_word_is_the_same_term(one: str, other: str) -> None:
    assert terms(one) == terms(other)


def test_everyday_words_do_not_count_unless_they_are_all_there_is() -> None:
    assert terms("what is it of") == []
    assert asked_terms("to be or not to be") == terms("not")
    assert asked_terms("what is it") == ["what", "is", "it"]


def test_scripts_without_spaces_are_compared_by_pairs() -> None:
    assert terms("搜索关键词") == ["搜索", "索关", "关键", "键词"]
    assert terms("词") == ["词"]


def test_data_is_no_word() -> None:
    assert terms("a1" * 40) == []


def test_what_something_stands_under_counts_twice() -> None:
    assert terms_of("red", "Apples") == "appl appl red"


@pytest.mark.parametrize("text", ["", " ", "\x00", "\ud83d", "🍎", "\u202e", "%_'\"\\;--"])
def test_any_text_has_terms_without_spaces_in_them(text: str) -> None:
    assert all(term and not term.isspace() for term in terms(text))


def test_a_name_of_a_tool_reads_as_words() -> None:
    assert plain_words("weather.getCurrent_now") == "weather get Current now"
