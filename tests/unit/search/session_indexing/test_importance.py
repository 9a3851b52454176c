"""Importance of session items, and pinned messages."""

from __future__ import annotations

import pytest

from weftline.search.session_item_text import importance_of, is_without_content

pytestmark = pytest.mark.req("CE-F14")
PLAIN = "The weather was lovely and the cat slept on the chair all afternoon"
IMPORTANT = [
    "We decided to store everything in PostgreSQL.",
    "The export must not contain names of customers.",
    "I will send the figures by Friday.",
    "The root cause was a clock that ran backwards.",
    "Requests are limited to 100 a minute.",
]
SMALL_TALK = ["Hi!", "Thanks a lot!", "ok, sounds good", "Hello everyone, good morning", "lol yes"]


@pytest.mark.parametrize("text", IMPORTANT)
def test_decisions_and_facts_are_more_important_than_small_talk(text: str) -> None:
    assert importance_of(text, "message") > importance_of(PLAIN, "message")
    assert all(importance_of(text, "message") > importance_of(chat, "message") + 0.2 for chat in SMALL_TALK)


@pytest.mark.parametrize("text", SMALL_TALK)
def test_greetings_and_thanks_are_less_important_than_plain_text(text: str) -> None:
    assert importance_of(text, "message") < importance_of(PLAIN, "message")


def test_polite_phrasing_does_not_lower_importance() -> None:
    polite = "Thanks, and the export must not contain names of any customers, ever."
    assert importance_of(polite, "message") > importance_of("thanks", "message")


@pytest.mark.parametrize(
    "more",
    [", 14 of them", ", with Dana next to it", ", since last Tuesday", ", as I noticed", ", which is my own"],
    ids=["number", "name", "time", "event", "possession"],
)
def test_numbers_names_times_and_events_each_add_importance(more: str) -> None:
    assert importance_of(PLAIN + more, "message") > importance_of(PLAIN, "message")


@pytest.mark.parametrize("text", [f"{PLAIN}?", "It was lovely there"])
def test_questions_and_short_texts_are_less_important(text: str) -> None:
    assert importance_of(text, "message") < importance_of(PLAIN, "message")


def test_board_entries_are_more_important_than_messages() -> None:
    assert importance_of(PLAIN, "board") == importance_of(PLAIN, "memory") > importance_of(PLAIN, "message")


@pytest.mark.parametrize("text", ["", " ", "?" * 10_000, "must " * 50_000, "\x00\ud83d", "汉字" * 5_000])
def test_importance_is_between_zero_and_one(text: str) -> None:
    assert 0 < importance_of(text, "message") <= 1


def test_a_weighty_category_adds_importance() -> None:
    assert importance_of(PLAIN, "message", weighty=True) > importance_of(PLAIN, "message")


@pytest.mark.parametrize("text", ["ok", "OK, thanks!", "Sounds good.", "yes", "haha 🙂", "...", "Great, see you!"])
def test_small_talk_alone_has_no_content(text: str) -> None:
    assert is_without_content(text)


@pytest.mark.parametrize("text", ["ok, Friday then", "thanks Ada", "deploy", "42", "Yes! " * 30])
def test_a_text_with_any_other_word_has_content(text: str) -> None:
    assert not is_without_content(text)
