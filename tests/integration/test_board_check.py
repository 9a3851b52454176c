"""board.check: secrets, personal data, dumps, stale and duplicate keys."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("SC-20")
LOG = "\n".join(f"2026-02-20 14:3{n}:00 worker {n} started" for n in range(6))
PROBLEM_VALUES = {
    "secret": [
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
        "AKIAABCDEFGHIJKLMNOP",
        "ghp_" + "a" * 36,
        "xoxb-1234567890-abcdef",
        "sk-abcdefghijklmnop1234",
        "weftline.acme.key_0123456789abcdef." + "s" * 43,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl",
        "postgresql://user:hunter2@db/prod",
        "password: hunter2hunter2",
    ],
    "personal_data": [
        "write to jane.doe@example.com",
        "ssn 078-05-1120",
        "card 4111 1111 1111 1111",
        "DE89 3704 0044 0532 0130 00",
        "call +49 30 1234 5678",
    ],
    "raw_dump": [
        LOG,
        "Traceback (most recent call last):\n  File x",
        "\n".join(f"User: turn {n}" for n in range(6)),
        "\n".join(f"{n},name,value" for n in range(6)),
        json.dumps([{"id": n, "name": "row"} for n in range(60)]),
    ],
}


@pytest.mark.parametrize(("problem", "value"), [(p, v) for p, values in PROBLEM_VALUES.items() for v in values])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_problems_are_found_and_never_quoted(world: World, problem: str, value: str) -> None:
    await world.planner.write("suspect", value)
    await world.planner.write("fine", "The pool size went from 200 to 20 on 2026-02-18; revert approved (id 4711).")
    report = await world.analysis.check_board()
    assert (problem, "suspect") in {(f["problem"], f["key"]) for f in report["findings"]}
    assert {f["key"] for f in report["findings"]} == {"suspect"}
    assert report["checked"] == 2
    assert report["clean"] is False
    for word in value.split():
        if len(word) > 6:
            assert word not in json.dumps(report)


async def test_keys_not_written_for_a_long_time_are_stale(world: World) -> None:
    await world.planner.write("old")
    world.clock.advance(hours=10)
    await world.planner.write("new", "something else")
    found = (await world.planner.check_board(stale_hours=10, unread_hours=100))["findings"]
    assert [(f["key"], f["problem"]) for f in found] == [("old", "stale")]


async def test_unread_keys_are_found(world: World) -> None:
    await world.planner.write("read", "one thing")
    await world.planner.write("unread", "quite another matter")
    await world.analysis.read("read")
    await world.app.flush_read_counts()
    assert (await world.planner.check_board())["clean"] is True
    world.clock.advance(hours=2)
    found = (await world.planner.check_board())["findings"]
    assert [(f["key"], f["problem"]) for f in found] == [("unread", "unread")]
    assert [entry["reads"] for entry in (await world.admin.inspect())["entries"]] == [1, 0]


async def test_near_duplicates_are_named_in_pairs(world: World) -> None:
    await world.planner.write("a", "the pool size was reduced from 200 to 20 in the last change")
    await world.planner.write("b", "The pool size was reduced from 200 to 20 in the last config change")
    await world.planner.write("c", "nothing to do with the others at all")
    found = (await world.planner.check_board())["findings"]
    assert [(f["key"], f["other_key"], f["problem"]) for f in found] == [("a", "b", "near_duplicate")]


@pytest.mark.req("SC-20")
async def test_regex_denial_of_service_text_is_checked_quickly(world: World) -> None:
    large = await world.planner.create_session("large", max_value_tokens=100_000, max_total_tokens=1_000_000)
    for number, text in enumerate(("a." * 100_000, "a" * 200_000, "a-" * 100_000, "1 " * 100_000)):
        await large.write(f"k{number}", text)
    async with asyncio.timeout(60):
        await large.check_board()
