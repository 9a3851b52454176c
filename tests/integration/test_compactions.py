"""Compactions of windows: derived views beside the originals, open to whom the window is open, bounded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.windows import contents, create, ingest, message
from support.world import SESSION, outcome, refused
from weftline.windows.compaction import operations
from weftline.windows.compaction.sql import KEPT_VIEWS
from weftline.windows.compaction.views import MAX_PAGE_BYTES

if TYPE_CHECKING:
    from support.world import Caller, World

HERE = {"session_id": SESSION}
DECISION = "Decision: we use PostgreSQL 16 for the billing service."
CHATTER = "There is not much more to say about it, as everyone in the room knows rather well by now. "


def turns(count: int, first: int = 1) -> list[dict[str, Any]]:
    """Return a conversation with a decision at its beginning, and much talk."""
    found = [message(f"e{n}", f"Step {n} takes {n + 3} minutes. {CHATTER * 4}") for n in range(first, first + count)]
    return [message("choice", DECISION), *found] if first == 1 else found


async def talk(caller: Caller, count: int = 30, first: int = 1, **where: Any) -> None:
    await ingest(caller, *turns(count, first), **where)


async def compact(caller: Caller, **options: Any) -> Any:
    return await caller.call("context.compact", **HERE, **{"keep_recent": 4, "wait_seconds": 60, **options})


async def shown(caller: Caller, compaction_id: str, **options: Any) -> Any:
    return await caller.call("compaction.show", compaction_id=compaction_id, **options)


async def expand(caller: Caller, *ids: str, **options: Any) -> Any:
    return await caller.call("compaction.expand", **HERE, ids=list(ids), **options)


@pytest.mark.req("CE-A")
@pytest.mark.req("CE-O", part="summaries next to originals")
async def test_a_compaction_is_a_view_beside_the_originals(world: World) -> None:
    await talk(world.planner)
    before = await contents(world.planner)
    answer = await compact(world.planner)
    assert (answer["state"], answer["strategy"]) == ("applied", "sliding_window")
    assert len(answer["version"]) == 32
    assert answer["tokens_after"] < answer["tokens_before"]
    assert await contents(world.planner) == before
    (listed,) = (await world.planner.call("compaction.list", **HERE))["compactions"]
    assert {name: listed[name] for name in ("compaction_id", "version", "state")} == {
        name: answer[name] for name in ("compaction_id", "version", "state")
    }
    assert listed["requested_by"] == "orchestrator:planner"


@pytest.mark.req("CE-U2", part="summaries next to their originals")
async def test_each_summary_is_shown_next_to_its_originals_with_losses_and_facts(world: World) -> None:
    await talk(world.planner)
    answer = await compact(world.planner)
    found = await shown(world.planner, answer["compaction_id"])
    first = found["summaries"][0]
    assert [event["event_id"] for event in first["originals"]][:3] == ["choice", "e1", "e2"]
    assert first["originals"][0]["content"] == DECISION
    assert "PostgreSQL 16" in first["text"]
    assert first["loss_notes"]
    (decision,) = [fact for fact in first["facts"] if fact["kind"] == "decision" and fact["event_ids"] == ["choice"]]
    assert decision["text"] == DECISION
    assert decision["who"]
    assert decision["place"] in {"summary", "carried"}
    assert found["compaction"]["tokens_before"] == answer["tokens_before"]


async def test_the_answer_to_an_agent_is_short(world: World) -> None:
    await talk(world.planner)
    assert len(json.dumps(await compact(world.planner))) < 450


@pytest.mark.req("CE-U2", part="summaries next to their originals")
async def test_summaries_facts_and_events_expand_to_the_originals(world: World) -> None:
    await talk(world.planner)
    answer = await compact(world.planner)
    first = (await shown(world.planner, answer["compaction_id"]))["summaries"][0]
    sources = [event["event_id"] for event in first["originals"]]
    for name in (first["summary_id"], f"compaction:{answer['compaction_id']}/0"):
        events = (await expand(world.planner, name))["events"]
        assert [event["event_id"] for event in events] == sources
    (fact_id,) = [fact["fact_id"] for fact in first["facts"] if fact["text"] == DECISION]
    found = await expand(world.planner, fact_id, "e2", "e2", "never", "never#1")
    assert [event["event_id"] for event in found["events"]] == ["choice", "e2"]
    assert found["unknown"] == ["never", "never#1"]
    assert found["events"][0]["content"] == DECISION


async def test_expanded_originals_are_paged_and_bounded(world: World) -> None:
    large = [message(f"big{n}", f"{n} " + "x" * 20_000) for n in range(9)]
    await ingest(world.planner, *large)
    names = [each["event_id"] for each in large]
    read: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await expand(world.planner, *names, offset=offset, limit=4)
        assert len(json.dumps(page)) < MAX_PAGE_BYTES + 10_000
        read += [event["event_id"] for event in page["events"]]
        offset = page.get("next_offset")
    assert read == names


async def test_pages_of_summaries_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    room = MAX_PAGE_BYTES // 4
    monkeypatch.setattr(operations, "MAX_PAGE_BYTES", room)
    long = [message(f"long{n}", f"We agreed on point {n}. {CHATTER * 40}") for n in range(45)]
    await ingest(world.planner, *long)
    answer = await compact(world.planner)
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await shown(world.planner, answer["compaction_id"], offset=offset, limit=50)
        assert len(json.dumps(page)) < 3 * room
        seen += [summary["summary_id"] for summary in page["summaries"]]
        offset = page.get("next_offset")
    (listed,) = (await world.planner.call("compaction.list", **HERE))["compactions"]
    assert len(seen) == len(set(seen)) == listed["summaries"]
    assert len(page["summaries"]) < len(seen)
    brief = await shown(world.planner, answer["compaction_id"], originals=False)
    assert all("originals" not in summary and "originals_omitted" not in summary for summary in brief["summaries"])


@pytest.mark.req("CE-F8")
async def test_key_facts_include_those_after_the_cut_and_can_be_filtered(world: World) -> None:
    await talk(world.planner)
    await compact(world.planner)
    await ingest(world.planner, message("later", "Constraint: never log card numbers."))
    everything = await world.planner.call("compaction.facts", **HERE, limit=200)
    by_text = {fact["text"]: fact for fact in everything["facts"]}
    assert by_text[DECISION].get("place") in {"summary", "carried"}
    constraints = (await world.planner.call("compaction.facts", **HERE, kind="constraint"))["facts"]
    assert {fact["kind"] for fact in constraints} == {"constraint"}
    (constraint,) = [fact for fact in constraints if fact["text"] == "Constraint: never log card numbers."]
    assert (constraint["event_ids"], constraint.get("place", "event")) == (["later"], "event")
    page = await world.planner.call("compaction.facts", **HERE, limit=1)
    assert (len(page["facts"]), page["next_offset"], page["total_count"]) == (1, 1, everything["total_count"])
    superseded = await world.planner.call("compaction.facts", **HERE, status="superseded")
    assert all(fact["status"] == "superseded" for fact in superseded["facts"])


async def test_a_redacted_original_withdraws_its_summary_and_its_facts(world: World) -> None:
    await talk(world.planner)
    answer = await compact(world.planner)
    item = f"window:{SESSION}:planner/choice/1.1"
    await world.planner.call("records.redact", item_id=item, state="removed", reason="a name")
    found = await shown(world.planner, answer["compaction_id"])
    first = found["summaries"][0]
    assert first["valid"] is False
    assert "text" not in first
    assert "facts" not in first
    assert "PostgreSQL" not in json.dumps(first)
    assert "PostgreSQL" not in json.dumps(await expand(world.planner, first["summary_id"]))
    assert "PostgreSQL" not in json.dumps(await world.planner.call("compaction.facts", **HERE, limit=200))


async def test_a_rollback_withdraws_summaries_of_events_that_are_gone(world: World) -> None:
    await talk(world.planner)
    answer = await compact(world.planner)
    await world.planner.call("history.rollback", context_id=f"window:{SESSION}:planner", target_version=0)
    found = await shown(world.planner, answer["compaction_id"])
    assert [summary["valid"] for summary in found["summaries"]] == [False] * len(found["summaries"])
    assert "PostgreSQL" not in json.dumps(found)


async def test_the_next_compaction_supersedes_and_finished_parts_stay_the_same(world: World) -> None:
    await talk(world.planner, 60)
    first = await compact(world.planner)
    before = (await shown(world.planner, first["compaction_id"], limit=50))["summaries"]
    await talk(world.planner, 60, first=61)
    second = await compact(world.planner)
    listed = (await world.planner.call("compaction.list", **HERE))["compactions"]
    assert [(each["compaction_id"], each["state"]) for each in listed] == [
        (second["compaction_id"], "applied"),
        (first["compaction_id"], "superseded"),
    ]
    after = (await shown(world.planner, second["compaction_id"], limit=50))["summaries"]
    assert [each["text"] for each in after[: len(before) - 1]] == [each["text"] for each in before[:-1]]


async def test_the_same_request_again_answers_with_the_compaction_in_effect(world: World) -> None:
    await talk(world.planner)
    first = await compact(world.planner)
    assert await compact(world.planner) == first
    assert (await compact(world.planner, target=0.2))["compaction_id"] != first["compaction_id"]
    other = await compact(world.planner)
    assert other["compaction_id"] != first["compaction_id"]
    await ingest(world.planner, message("more", "One more thing."))
    assert (await compact(world.planner))["compaction_id"] != other["compaction_id"]


async def test_a_request_that_does_not_wait_is_performed_all_the_same(world: World) -> None:
    await talk(world.planner)
    queued = await compact(world.planner, wait_seconds=0)
    assert queued["state"] in {"queued", "running"}
    joined = await compact(world.planner, wait_seconds=20)
    assert (joined["compaction_id"], joined["state"]) == (queued["compaction_id"], "applied")


async def test_originals_and_facts_of_tools_say_that_they_are_data(world: World) -> None:
    call = {"call_id": "c1", "name": "look", "arguments": "{}"}
    await ingest(
        world.planner,
        message("ask", "", role="assistant", tool_calls=[call]),
        message("result", "ERROR disk /dev/sda1 is full", role="tool", tool_call_id="c1", name="look"),
        message("said", "We decided to use SQLite."),
    )
    facts = (await world.planner.call("compaction.facts", **HERE))["facts"]
    assert {fact.get("trust") for fact in facts if fact["event_ids"] == ["result"]} == {"untrusted"}
    assert {fact.get("trust") for fact in facts if fact["event_ids"] == ["said"]} == {None}
    (event,) = (await expand(world.planner, "ask"))["events"]
    assert event["tool_calls"] == [call]


async def test_a_branch_has_compactions_of_its_own(world: World) -> None:
    await talk(world.planner)
    made = await compact(world.planner)
    line = f"window:{SESSION}:planner"
    await world.planner.call("history.branch", context_id=line, branch="try")
    await world.planner.call("history.switch", context_id=line, branch="try")
    assert (await world.planner.call("compaction.list", **HERE))["compactions"] == []
    on_branch = await compact(world.planner)
    assert on_branch["version"] == made["version"]
    assert (await shown(world.planner, on_branch["compaction_id"]))["summaries"][0].get("valid", True)
    await world.planner.call("history.switch", context_id=line, branch="main")
    (listed,) = (await world.planner.call("compaction.list", **HERE))["compactions"]
    assert listed["compaction_id"] == made["compaction_id"]
    await world.planner.call("history.delete_branch", context_id=line, branch="try")
    assert await outcome(shown(world.planner, on_branch["compaction_id"])) == "COMPACTION_NOT_FOUND"


async def test_dropping_returns_to_the_originals_and_compacting_undoes_it(world: World) -> None:
    await talk(world.planner)
    answer = await compact(world.planner)
    dropped = await world.planner.call("compaction.drop", **HERE)
    assert dropped == {"dropped": [answer["compaction_id"]]}
    assert (await shown(world.planner, answer["compaction_id"]))["compaction"]["state"] == "dropped"
    assert await world.planner.call("compaction.drop", **HERE) == {"dropped": []}
    again = await compact(world.planner)
    assert again["version"] == answer["version"]
    assert again["state"] == "applied"


async def test_old_compactions_keep_their_figures_only(world: World) -> None:
    await talk(world.planner)
    made = []
    for _ in range(KEPT_VIEWS + 1):
        made.append((await compact(world.planner))["compaction_id"])
        await world.planner.call("compaction.drop", **HERE)
    oldest = await shown(world.planner, made[0])
    assert oldest["expired"] is True
    assert oldest["summaries"] == []
    assert oldest["compaction"]["tokens_before"] > 0
    assert "expired" not in await shown(world.planner, made[1])


async def test_compactions_are_deleted_with_the_window_and_the_session(world: World) -> None:
    await talk(world.planner, agent_id="analysis")
    await talk(world.planner)
    of_analysis = await compact(world.planner, agent_id="analysis")
    own = await compact(world.planner)
    await world.planner.call("window.delete", **HERE, agent_id="analysis")
    with refused("COMPACTION_NOT_FOUND"):
        await shown(world.planner, of_analysis["compaction_id"])
    await shown(world.planner, own["compaction_id"])
    await world.planner.call("session.delete", **HERE, force=True)
    for table in ("compactions", "compaction_views"):
        assert await world.rows(f"SELECT 1 FROM {table} WHERE tenant = $1", world.tenant) == []


async def test_nobody_without_access_to_the_window_learns_that_a_compaction_exists(world: World) -> None:
    await talk(world.planner)
    made = (await compact(world.planner))["compaction_id"]
    for caller in (world.analysis, world.review, world.stranger):
        answers = []
        for name in (made, "0" * 28):
            with refused("COMPACTION_NOT_FOUND") as caught:
                await shown(caller, name)
            answers.append((caught.value.message.replace(name, "ID"), caught.value.hint))
            with refused("COMPACTION_NOT_FOUND"):
                await caller.call("compaction.apply", compaction_id=name)
        assert answers[0] == answers[1]
    for operation in ("compaction.list", "compaction.facts", "compaction.drop", "context.compact"):
        assert await outcome(world.analysis.call(operation, **HERE, agent_id="planner")) == "PERMISSION_DENIED"
    await talk(world.planner, agent_id="analysis")
    found = await outcome(expand(world.analysis, "e1", compaction_id=made))
    assert found == await outcome(expand(world.analysis, "e1", compaction_id="0" * 28)) == "COMPACTION_NOT_FOUND"
    assert (await expand(world.analysis, f"compaction:{made}/0"))["unknown"] == [f"compaction:{made}/0"]


async def test_those_who_share_a_window_share_its_compactions(world: World) -> None:
    await create(world.planner, "analysis")
    await talk(world.planner)
    made = (await compact(world.planner))["compaction_id"]
    assert await outcome(shown(world.analysis, made)) == "COMPACTION_NOT_FOUND"
    await world.planner.call("window.join", **HERE, agent_id="analysis", with_agent_id="planner")
    assert (await shown(world.analysis, made))["summaries"]
    assert (await world.analysis.call("compaction.list", **HERE))["compactions"][0]["compaction_id"] == made
    await world.planner.call("window.leave", **HERE, agent_id="analysis")
    assert await outcome(shown(world.analysis, made)) == "COMPACTION_NOT_FOUND"


async def test_an_agent_does_not_apply_a_held_compaction_itself(world: World) -> None:
    await talk(world.planner)
    made = (await compact(world.planner))["compaction_id"]
    with refused("COMPACTION_NOT_HELD"):
        await world.admin.call("compaction.apply", compaction_id=made)
    await world.sql("UPDATE compactions SET state = 'held' WHERE tenant = $1", world.tenant)
    with refused("PERMISSION_DENIED"):
        await world.planner.call("compaction.apply", compaction_id=made)
    applied = await world.admin.call("compaction.apply", compaction_id=made)
    assert applied["state"] == "applied"


async def test_lists_are_paged_newest_first(world: World) -> None:
    await talk(world.planner)
    made = [(await compact(world.planner, target=target))["compaction_id"] for target in (0.5, 0.4, 0.3)]
    first = await world.planner.call("compaction.list", **HERE, limit=2)
    assert [each["compaction_id"] for each in first["compactions"]] == made[:0:-1]
    rest = await world.planner.call("compaction.list", **HERE, limit=2, cursor=first["next_cursor"])
    assert [each["compaction_id"] for each in rest["compactions"]] == made[:1]
    assert "next_cursor" not in rest
