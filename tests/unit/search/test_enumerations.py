"""Options that a text enumerates, and references to things of recent items."""

from __future__ import annotations

import pytest

from support.full_run import FULL
from support.processor_time import at_most
from weftline.search.references import RecentItem, expanded_query, may_refer, options_in, resolve_references

pytestmark = pytest.mark.req("CE-F14")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Pick one:\n1. Postgres\n2. SQLite", ["Postgres", "SQLite"]),
        ("- red\n* green\n\u2022 blue", ["red", "green", "blue"]),
        ("1. a b\n2. c d\n\nThen fonts:\n- Inter\n- Roboto", ["Inter", "Roboto"]),
        ("Options: (1) rewrite it, (2) patch it. What now?", ["rewrite it", "patch it"]),
        ("Option A: move now. Option B: wait until May.", ["move now", "wait until May"]),
        ("We could (a) keep Redis, (b) move to views, or (c) drop it.", ["keep Redis", "move to views", "drop it"]),
        ("Either 1) go north and 2) go south.", ["go north", "go south"]),
        ("We could use Redis, Kafka or NATS.", ["Redis", "Kafka", "NATS"]),
        ("There are three ways to host it: Hetzner, OVH and Scaleway.", ["Hetzner", "OVH", "Scaleway"]),
        ("In many ways it is done: we ship.", []),
        ("Candidates are Ljubljana, Porto and Ghent.", ["Ljubljana", "Porto", "Ghent"]),
        ("Shall we take the train, the bus or the car?", ["the train", "the bus", "the car"]),
        ("Three routes remain: rewrite, patch, or wait.", ["rewrite", "patch", "wait"]),
        ("Could it be Oslo, Bergen or Lund next week?", ["Oslo", "Bergen", "Lund"]),
        ("It takes one or two days.", []),
        ("Thanks, I will read it today or tomorrow.", []),
        ("I think we should go, maybe tomorrow or the day after.", []),
        ("Is that more or less done?", []),
        ("He came, saw and left.", []),
        ("1. only one", []),
        ("2. wrong\n5. numbers", []),
        ("Version 1. is out. Nothing here.", []),
        ("", []),
    ],
)
def test_options_are_found_in_their_order(text: str, options: list[str]) -> None:
    assert options_in(text) == options


def items(*texts: str) -> list[RecentItem]:
    return [RecentItem(f"m{number}", "bob", text, number) for number, text in enumerate(texts)][::-1]


@pytest.mark.parametrize(
    ("query", "texts", "value"),
    [
        ("the last option?", ("1. tea\n2. coffee",), "coffee"),
        ("What about the latter?", ("Either tea or coffee.",), "coffee"),
        ("What about the latter?", ("We could use tea, coffee or milk.",), None),
        ("What about Option B?", ("Option A: buy. Option B: build.",), "build"),
        ("the ninth option", ("1. tea\n2. coffee",), None),
        ("Who closed that ticket?", ("OPS-1 is done in v1.2.3",), "OPS-1"),
        ("What changed in that version?", ("OPS-1 is done in v1.2.3",), "v1.2.3"),
        ("Who wrote that file?", ("a.py", "b.py and c.py"), None),
        ("Who wrote the last file?", ("a.py", "b.py and c.py"), "c.py"),
        ("Was anyone there on that day?", ("We met on 2025-03-04.",), "2025-03-04"),
        ("What did he say?", ("Ms Alvarez called.", "Mr Brown wrote."), "Brown"),
        ("What did she say?", ("Mr Brown wrote.",), None),
        ("Mel and her kids", ("Maria is here.",), None),
        ("What did the manager do in his office?", ("Tom is here.",), None),
        ("Is it possible to fly?", ("a.py",), None),
        ("When was it written?", ("a.py",), "a.py"),
        ("Did the team like it?", ("a.py",), None),
    ],
)
def test_a_reference_stands_for_one_thing_or_none(query: str, texts: tuple[str, ...], value: str | None) -> None:
    assert may_refer(query)
    found = resolve_references(query, items(*texts), "me")
    assert [reference.value for reference in found] == ([] if value is None else [value])


def test_the_query_keeps_its_words() -> None:
    references = resolve_references("Who wrote that file?", items("a.py"), "me")
    assert expanded_query("Who wrote that file?", references) == "Who wrote that file? (a.py)"
    assert expanded_query("plain", []) == "plain"
    assert not may_refer("When was the release?")
    assert not may_refer("it " * 1_000)


@pytest.mark.parametrize(
    "unit",
    [
        "1. a\n",
        "- a\n",
        "(1) a (2) b ",
        "option A: ",
        "either a, b or ",
        "Error ",
        "she ",
        "a.py ",
        "x" + " " * 298 + "?",
        "a, b or c? ",
    ],
)
def test_hostile_texts_take_linear_time(unit: str) -> None:
    text = unit * ((400_000 if FULL else 100_000) // len(unit))
    with at_most(4):
        options_in(text)
        question = "What did she say about it and that file and the second one?"
        resolve_references(question, items(*[text[:8_000]] * 30), "me")
