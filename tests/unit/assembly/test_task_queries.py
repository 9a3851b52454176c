"""Queries that a task is searched by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.capabilities.search.requests import MAX_QUERY_CHARACTERS
from weft.capabilities.search.task_queries import task_queries

pytestmark = pytest.mark.req("CE-F11")
FILLER = "Please follow the usual rules of the team and write clear text. " * 200


def test_a_short_task_is_its_own_query() -> None:
    assert task_queries(" Plan the release.\n") == ["Plan the release."]


def test_a_blank_task_has_no_query() -> None:
    assert task_queries(" \n\t") == []


def test_a_long_task_is_searched_by_opening_ending_and_most_distinctive_sentence() -> None:
    rare = "The heron turbine of Orkney failed its bearing inspection."
    task = f"Draft the incident report.\n{FILLER}{rare} {FILLER}Who signs the report?"
    opening, ending, sentence = task_queries(task)
    assert opening.startswith("Draft the incident report.")
    assert ending.endswith("Who signs the report?")
    assert sentence == rare


def test_a_task_of_one_endless_word_is_searched_by_its_edges() -> None:
    assert task_queries("x" * 100_000) == ["x" * 1_000]


@given(st.text(max_size=6_000))
def test_every_query_is_short_enough_and_part_of_the_task(task: str) -> None:
    queries = task_queries(task * 2)
    assert len(queries) <= 3
    assert all(0 < len(query) <= MAX_QUERY_CHARACTERS and query in task * 2 for query in queries)
    assert queries == task_queries(task * 2)
