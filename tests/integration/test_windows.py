"""Windows: each agent's conversation in a session, with its own events, limit and rights."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION, Caller, World, outcome, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.both_databases


def message(event_id: str, content: str = "text", **what: Any) -> dict[str, Any]:
    return {"event_id": event_id, "content": content, **what}


async def ingest(caller: Caller, *events: dict[str, Any], **where: Any) -> Any:
    return await caller.call("context.ingest", session_id=caller.session, events=list(events), **where)


@pytest.mark.req("MW-01")
async def test_events_are_added_in_order_and_only_once(world: World) -> None:
    first = await ingest(world.analysis, message("a", "one"), message("b", "two", role="assistant"))
    assert [(event["number"], event["added"]) for event in first["events"]] == [(1, True), (2, True)]
    again = await ingest(world.analysis, message("b", "two", role="assistant"), message("c", "three"))
    assert [(event["number"], event["added"]) for event in again["events"]] == [(2, False), (3, True)]
    assert again["tokens"] == first["tokens"] + again["events"][1]["tokens"]


async def test_an_event_id_with_other_content_is_refused_and_nothing_is_added(world: World) -> None:
    await ingest(world.analysis, message("a", "one"))
    with refused("EVENT_EXISTS"):
        await ingest(world.analysis, message("new"), message("a", "other"))
    with refused("EVENT_EXISTS"):
        await ingest(world.analysis, message("x", "one"), message("x", "two"))
    assert (await ingest(world.analysis, message("new")))["events"][0]["number"] == 2


@pytest.mark.parametrize(
    ("event", "category"),
    [
        ({"role": "system"}, "SYSTEM"),
        ({"role": "user"}, "DIALOG"),
        ({"role": "assistant"}, "DIALOG"),
        ({"role": "tool", "tool_call_id": "c"}, "SYSTEM_OUTPUT"),
        ({"kind": "workflow"}, "INTERNAL"),
        ({"role": "tool", "category": "ERROR"}, "ERROR"),
    ],
)
async def test_the_category_follows_from_role_and_kind(world: World, event: dict[str, Any], category: str) -> None:
    answer = await ingest(world.analysis, message("a", **event))
    assert answer["events"][0]["category"] == category


async def test_concurrent_ingestion_of_one_event_adds_it_once(world: World) -> None:
    apps = [world.app, await world.another_app()]
    calls = [ingest(world.analysis.at(apps[number % 2]), message("a", "same")) for number in range(8)]
    answers = await asyncio.gather(*calls)
    assert [event["number"] for answer in answers for event in answer["events"]] == [1] * 8
    assert sum(answer["events"][0]["added"] for answer in answers) == 1


async def test_concurrent_ingestion_numbers_every_event_once(world: World) -> None:
    answers = await asyncio.gather(*(ingest(world.analysis, message(f"e{number}")) for number in range(12)))
    assert sorted(answer["events"][0]["number"] for answer in answers) == list(range(1, 13))


async def test_a_large_content_is_stored_once(world: World) -> None:
    large = "tool output " * 5_000
    await ingest(world.analysis, message("a", large, role="tool"), message("b", large, role="tool"))
    await ingest(world.review, message("c", large, role="tool"))
    rows = await world.rows("SELECT hash FROM blobs WHERE tenant = $1", world.tenant)
    contents = await world.rows(
        "SELECT DISTINCT blob_hash FROM changes WHERE tenant = $1 AND key LIKE '%#content'", world.tenant
    )
    assert len(contents) == 1
    assert contents[0][0] in {row[0] for row in rows}


@pytest.mark.parametrize("content", ["", "\x00", "naïve 漢 🙂", "x" * 1_048_576])
async def test_content_round_trips_unchanged(world: World, content: str) -> None:
    await ingest(world.analysis, message("a", content))
    assert (await ingest(world.analysis, message("a", content)))["events"][0]["added"] is False


async def test_a_content_above_one_mebibyte_is_refused(world: World) -> None:
    with refused("CONTENT_TOO_LARGE"):
        await ingest(world.analysis, message("a", "x" * 1_048_577))


@pytest.mark.parametrize(
    "events",
    [
        [], [message("a/b")], [message("a#content")], [message("")], [{"content": "no id"}], [message("a", role="me")],
        [message("a", category="NEWS")], [message("a", importance=2)], [message("a", unknown=1)],
        [message(f"e{number}") for number in range(201)], "text", [message("a", native=float("nan"))],
    ],
)  # fmt: skip
async def test_bad_input_is_refused(world: World, events: Sequence[Any]) -> None:
    assert await outcome(world.analysis.call("context.ingest", session_id=SESSION, events=events)) == (
        "INVALID_INPUT_FORMAT"
    )


@pytest.mark.req("MW-07")
async def test_a_window_is_reached_by_its_agent_its_ancestors_and_admins_only(world: World) -> None:
    await ingest(world.analysis, message("own"))
    assert (await ingest(world.planner, message("by-parent"), agent_id="analysis"))["events"][0]["number"] == 2
    assert (await ingest(world.admin, message("by-admin"), agent_id="analysis"))["events"][0]["number"] == 3
    with refused("PERMISSION_DENIED"):
        await ingest(world.review, message("by-sibling"), agent_id="analysis")
    with refused("PERMISSION_DENIED"):
        await ingest(world.analysis, message("by-child"), agent_id="planner")
    with refused("PERMISSION_DENIED"):
        await ingest(world.review, message("nobody"), agent_id="no-such-agent")
    with refused("AGENT_NOT_FOUND"):
        await ingest(world.admin, message("nobody"), agent_id="no-such-agent")


async def test_other_tenants_and_non_participants_get_session_not_found(world: World) -> None:
    await ingest(world.analysis, message("own"))
    with refused("SESSION_NOT_FOUND"):
        await ingest(world.stranger, message("a"), agent_id="analysis")
    closed = await world.planner.create_session("closed", participants=["orchestrator"])
    with refused("SESSION_NOT_FOUND"):
        await ingest(world.analysis.in_session("closed"), message("a"))
    with refused("NOT_A_PARTICIPANT"):
        await ingest(closed, message("a"), agent_id="analysis")


async def test_an_archived_session_accepts_no_events(world: World) -> None:
    await ingest(world.analysis, message("a"))
    await world.planner.call("session.archive", session_id=SESSION)
    with refused("SESSION_ARCHIVED"):
        await ingest(world.analysis, message("b"))
    with refused("SESSION_ARCHIVED"):
        await ingest(world.review, message("b"))
