"""Events carry the time at which they happened, their step and a reason; compaction and search use that time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from support.compaction_runs import SMALL_TALK, compact
from support.windows import contents, create, ingest, message, published, window_events
from support.world import SESSION, refused

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("CE-L1")
LINE = f"window:{SESSION}:analysis"


async def test_an_event_keeps_the_time_at_which_it_happened_and_that_of_its_recording(world: World) -> None:
    crane = message("crane", "The harbour crane rests on Tuesdays.", occurred_at="2025-03-04T09:30:00+01:00")
    await ingest(world.analysis, crane, message("now"))
    old, new = (await window_events(world.analysis))["events"]
    assert (old["occurred_at"], old["at"]) == ("2025-03-04T08:30:00Z", "2026-02-20T14:30:00Z")
    assert "occurred_at" not in new
    again = await ingest(world.analysis, crane, message("crane", crane["content"]))
    assert [event["added"] for event in again["events"]] == [False, False]
    with refused("EVENT_EXISTS"):
        await ingest(world.analysis, crane | {"occurred_at": "2025-03-05T09:30:00+01:00"})


async def test_events_stay_in_the_order_of_their_recording(world: World) -> None:
    await ingest(world.analysis, message("today", "today"))
    world.clock.advance(minutes=1)
    await ingest(world.analysis, message("old", "long ago", occurred_at="2024-01-01T00:00:00Z"), message("end", "end"))
    assert await contents(world.analysis) == ["today", "long ago", "end"]
    await world.planner.call("window.route", session_id=SESSION, categories=["DIALOG"], to_agents=["analysis"])
    await ingest(world.planner, message("routed", "routed", occurred_at="2023-01-01T00:00:00Z"))
    assert await contents(world.analysis) == ["today", "long ago", "end", "routed"]


@pytest.mark.parametrize("time", ["2026-02-20T14:36:00Z", "1969-12-31T23:59:59Z"])
async def test_a_time_that_no_event_can_have_is_refused(world: World, time: str) -> None:
    with refused("INVALID_INPUT_FORMAT") as error:
        await ingest(world.analysis, message("fine"), message("off", occurred_at=time))
    assert error.value.context["field"] == "events[1].occurred_at"
    with refused("WINDOW_NOT_FOUND"):
        await window_events(world.analysis)


@pytest.mark.parametrize("time", ["2025-01-01T00:00:00", "2025-01-01", "yesterday", 1_735_689_600])
async def test_a_time_is_rfc_3339_with_its_offset(world: World, time: str | int) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await ingest(world.analysis, message("off", occurred_at=time))


async def test_the_clock_of_a_caller_may_be_a_little_ahead(world: World) -> None:
    ahead = (world.clock.now() + timedelta(minutes=4)).isoformat()
    assert (await ingest(world.analysis, message("ahead", occurred_at=ahead)))["events"][0]["added"]


async def test_step_and_reason_are_those_of_the_event_and_of_its_commit(world: World) -> None:
    await ingest(
        world.analysis,
        message("a", step="survey", reason="import of the old chat"),
        message("b", step="survey", reason="import of the old chat"),
        message("c", step="build"),
    )
    await ingest(world.analysis, message("d"))
    shown = [(event.get("step"), event.get("reason")) for event in (await window_events(world.analysis))["events"]]
    imported = ("survey", "import of the old chat")
    assert shown == [imported, imported, ("build", None), (None, None)]
    log = await world.analysis.call("history.log", context_id=LINE)
    commits = [(each.get("step"), each["reason"], len(each["changes"])) for each in reversed(log["commits"])]
    assert commits == [("survey", "import of the old chat", 2), ("build", "ingest", 1), (None, "ingest", 1)]
    snapshots = (await world.analysis.call("history.snapshots", context_id=LINE))["snapshots"]
    assert [(each["label"], each["version"]) for each in snapshots] == [("after-survey-analysis-v1", 1)]
    # Each commit is announced, so that records name every item.
    assert [data["version"] for data in await published(world.analysis, "window.ingested")] == [1, 2, 3]


async def test_a_reason_passes_the_gate_and_a_redaction_hides_it(world: World) -> None:
    await world.admin.call("layer.define", layer="tenant", policy={"secrets": {"write": "mask"}})
    await ingest(world.analysis, message("a", reason="the token is ghp_16C7e42F292c6912E7710c838347Ae178B4a"))
    (event,) = (await window_events(world.analysis))["events"]
    assert "ghp_16C7e42F" not in event["reason"]
    await world.admin.call("records.redact", item_id=event["item_id"], state="removed", reason="not ours")
    (event,) = (await window_events(world.analysis))["events"]
    assert event["redacted"]
    assert "reason" not in event


async def test_what_a_sub_agent_inherits_keeps_its_time(world: World) -> None:
    given = message("rule", "Quote prices in euros.", category="CONTEXT", occurred_at="2025-06-01T10:00:00Z", step="a")
    await ingest(world.planner, given)
    await create(world.analysis)
    (copied,) = (await window_events(world.analysis))["events"]
    assert (copied["occurred_at"], copied["step"]) == ("2025-06-01T10:00:00Z", "a")


async def test_last_years_conversation_is_compacted_by_the_days_on_which_it_was_held(world: World) -> None:
    await create(world.analysis, model_max_tokens=100_000, reserved_tokens=0)
    days = ("2025-03-03", "2025-03-10", "2025-11-24", "2025-11-25", "2025-11-27")
    for day in days:
        turns = [
            message(f"{day}-{turn}", f"Turn {turn}. {SMALL_TALK * 4}", occurred_at=f"{day}T10:{turn:02}:00Z")
            for turn in range(6)
        ]
        await ingest(world.analysis, *turns)
    done = await compact(world.analysis, strategy="hierarchical", keep_recent=1)
    shown = await world.analysis.call("compaction.show", compaction_id=done["compaction_id"], limit=50)
    titles = [summary["title"] for summary in shown["summaries"]]
    assert titles[:4] == ["Week from 2025-03-03", "Week from 2025-03-10", "2025-11-24", "2025-11-25"]
    assert titles[4].startswith("2025-11-27 10:00 to 10:")
    assert shown["summaries"][0]["originals"][0]["occurred_at"] == "2025-03-03T10:00:00Z"
    sliding = await compact(world.analysis, strategy="sliding_window", keep_recent=1)
    shown = await world.analysis.call("compaction.show", compaction_id=sliding["compaction_id"], limit=50)
    assert "2025-03-03" in shown["summaries"][0]["title"]


async def test_search_ranks_and_shows_by_the_time_at_which_it_happened(world: World) -> None:
    async def found(query: str) -> list[Any]:
        answer = await world.analysis.call(
            "search.query", query=query, low_confidence=True, recency_weight=1, half_life_days=30
        )
        return [(each["text"].split()[-1], each["timestamp"]) for each in answer["results"]]

    await ingest(
        world.analysis,
        message("new", "The warehouse gate code is kept by Ines", occurred_at="2026-02-19T08:00:00Z"),
        message("old", "The warehouse gate code is kept by Olaf", occurred_at="2025-02-19T08:00:00Z"),
    )
    await world.index_sessions()
    assert await found("warehouse gate code") == [("Ines", "2026-02-19T08:00:00Z"), ("Olaf", "2025-02-19T08:00:00Z")]
