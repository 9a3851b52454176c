"""Queries that a task is searched by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.search.results import MAX_QUERY_CHARACTERS
from weftline.search.task_queries import Turn, continued_query, task_queries

pytestmark = pytest.mark.req("CE-F11")
FILLER = "Please follow the usual rules of the team and write clear text. " * 200


def test_a_short_task_is_its_own_query() -> None:
    assert task_queries(" Plan the release.\n").texts == ["Plan the release."]


def test_a_blank_task_has_no_query() -> None:
    assert task_queries(" \n\t").texts == []


def test_a_long_task_is_searched_by_opening_ending_and_most_distinctive_sentence() -> None:
    rare = "The heron turbine of Orkney failed its bearing inspection."
    task = f"Draft the incident report.\n{FILLER}{rare} {FILLER}Who signs the report?"
    opening, ending, sentence = task_queries(task).texts
    assert opening.startswith("Draft the incident report.")
    assert ending.endswith("Who signs the report?")
    assert sentence == rare


def test_a_task_of_one_endless_word_is_searched_by_its_edges() -> None:
    assert task_queries("x" * 5_000 + " a b c d e f g").texts == [
        "x" * 1_000,
        ("x" * 5_000 + " a b c d e f g")[-1_000:],
    ]


@given(st.text(max_size=6_000))
def test_every_query_is_short_enough_and_part_of_the_task(task: str) -> None:
    queries = task_queries(task * 2).texts
    assert len(queries) <= 3
    assert all(0 < len(query) <= MAX_QUERY_CHARACTERS and query in task * 2 for query in queries)
    assert queries == task_queries(task * 2).texts


TURNS = (
    Turn(7, "ok"),
    Turn(6, "The login page answers 500 since the session cookie was renamed in release 4.2."),
    Turn(5, "Users cannot sign in to the shop any more, please find out why that is."),
    Turn(4, "Yesterday we talked about the garden party and who brings the salad."),
)


@pytest.mark.req("CE-L6", part="a task without content is read with the turns before it")
@pytest.mark.parametrize(
    ("task", "own"),
    [
        ("Continue.", False),
        ("go on", False),
        ("fix it", False),
        ("Once more, please.", False),
        ("👍", False),
        ("mach weiter", True),
        ("fix the checkout", True),
    ],
)
def test_a_task_of_few_words_is_read_with_the_turns_before_it(task: str, *, own: bool) -> None:
    query = continued_query(task, TURNS)
    assert query is not None
    # What says nothing would find whatever repeats it.
    assert query.endswith(task) is own
    assert "session cookie" in query
    assert "sign in to the shop" in query
    assert "garden party" not in query


@pytest.mark.req("CE-L6", part="a task without content is read with the turns before it")
def test_a_task_with_content_stands_for_itself_and_is_no_answer_to_itself() -> None:
    task = "Which cookie does the checkout service of the shop expect today?"
    asking = (Turn(8, f"{task}\n"), *TURNS)
    assert task_queries(task, asking) == ([task], frozenset({8}))
    assert continued_query(task, asking) is None
    assert continued_query("yes", ()) is None
