"""Query parsing: sender names, and the parts of long queries."""

from __future__ import annotations

import pytest

from weftline.search.task_queries import parse_query

SPEAKERS = frozenset({"Caroline", "Mel", "user"})


@pytest.mark.req("CE-F14")
@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("When did Caroline go to the coast?", "When did go to the coast?"),
        ("What is caroline's job?", "What is job?"),
        ("(Caroline) likes what?", "likes what?"),
        ("What does Caroline\u2019s sister do?", "What does sister do?"),
    ],
)
def test_a_sender_name_filters_by_sender(query: str, rest: str) -> None:
    parsed = parse_query(query, SPEAKERS)
    assert parsed.speaker == "caroline"
    assert " ".join(parsed.parts[0].split()) == rest


@pytest.mark.req("CE-F14")
def test_two_sender_names_do_not_filter() -> None:
    parsed = parse_query("What do Caroline and Mel like?", SPEAKERS)
    assert parsed.speaker is None
    assert "Caroline" not in parsed.parts[0]


def test_a_role_is_not_a_sender_name() -> None:
    assert parse_query("What did the user say?", SPEAKERS) == (["What did the user say?"], None)


def test_a_query_that_is_only_a_name_searches_for_it() -> None:
    assert parse_query("Caroline?", SPEAKERS) == (["Caroline?"], "caroline")


def test_without_messages_names_are_query_terms() -> None:
    assert parse_query("When did Caroline leave?", ()) == (["When did Caroline leave?"], None)


def test_a_short_query_is_one_part() -> None:
    assert parse_query("Find it. Then send it to me.", ()).parts == ["Find it. Then send it to me."]


def test_a_long_query_is_split_into_sentences() -> None:
    steps = [f"Step {number} is to look into the matter of number {number} carefully." for number in range(8)]
    assert parse_query(" ".join(steps), ()).parts == steps


def test_data_in_a_query_is_truncated() -> None:
    assert parse_query("what is " + "f" * 5_000, ()).parts == ["what is " + "f" * 64]


def test_a_repeated_sentence_of_a_long_query_is_one_part() -> None:
    query = "Follow the rules of the team. " * 20 + "Which turbine has failed?"
    assert parse_query(query, ()).parts == ["Follow the rules of the team.", "Which turbine has failed?"]
