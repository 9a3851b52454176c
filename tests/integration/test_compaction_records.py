"""Records and events of compactions: in the same transaction, for those who may open the window, portable."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.assemblies import assemble, receipt
from support.bundles import exported, imported, records
from support.public_schemas import public_validator
from support.records import all_records
from support.service_compactions import begin, compact, decision, draft_of, finish, in_service, summary_of
from support.windows import create, ingest, message
from support.world import SESSION, refused
from weftline.records.event_classes import to_cloud_event
from weftline.records.model import decode_record
from weftline.sessions.events.sql import EventStore
from weftline.storage.sql.database import Scope
from weftline.windows.compaction.model import CompactedView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.world import Caller, World
    from weftline.windows.model import WindowEvent

pytestmark = pytest.mark.req("AC-09")
LINE = f"window:{SESSION}:planner"
TYPES = ["context_compaction", "context_summary"]
TEXT = "They chose PostgreSQL 16."


async def talk(caller: Caller, count: int = 4, first: int = 1) -> None:
    await ingest(
        caller, *(message(f"e{n}", f"Message {n}: we chose PostgreSQL 16.") for n in range(first, first + count))
    )


def first_two(events: Sequence[WindowEvent]) -> CompactedView:
    carried = decision(events[0], "PostgreSQL 16 it is", carried=True)
    return CompactedView(summaries=(summary_of(events[:2], TEXT),), facts=(carried,))


async def found(caller: Caller, *types: str) -> list[dict[str, Any]]:
    return [each["record"] for each in await all_records(caller, session_id=SESSION, types=list(types or TYPES))]


async def shown(caller: Caller, record_id: str) -> Any:
    return await caller.call("records.show", record_id=record_id)


@pytest.mark.req("AC-13", "AC-15")
async def test_a_compaction_is_recorded_and_announced_when_it_is_applied(world: World) -> None:
    await talk(world.planner)
    before = await world.last_event()
    running = await begin(world.planner)
    assert await found(world.planner) == []
    done = await finish(world.planner, running.compaction.compaction_id, draft_of(first_two(running.events)))
    compaction, summary = await found(world.planner)
    public_validator("context_compaction").validate(compaction)
    for kind, record in zip(TYPES, (compaction, summary), strict=True):
        decode_record(kind, msgspec.json.encode(record))
    assert compaction["source_item_refs"] == summary["source_item_refs"] == [f"{LINE}/e1/1.1", f"{LINE}/e2/1.1"]
    assert compaction["compaction_id"] == f"compaction:{done.compaction_id}" == summary["compaction_ref"]
    assert compaction["summary_ref"] == summary["summary_id"]
    assert (summary["content"], compaction["metadata"]["weftline"]["version"]) == (TEXT, done.version)
    events = (await world.planner.events(after=before))["events"]
    assert [event["type"] for event in events] == [
        "context.compaction.started",
        "context.compaction.completed",
        "context.summary.created",
    ]
    assert [event["subject"] for event in events] == [compaction["compaction_id"]] * 2 + [summary["summary_id"]]
    assert TEXT not in json.dumps(events)
    figures = events[1]["data"]
    assert (figures["items"], figures["tokens_before"]) == (2, compaction["coverage"]["estimated_tokens_before"])
    referencing = (await shown(world.planner, f"{LINE}/e1/1.1"))["referenced_by"]
    assert [each["type"] for each in referencing] == TYPES


async def test_a_prompt_names_a_summary_by_its_place_in_the_compaction(world: World) -> None:
    await talk(world.planner)
    done = await compact(world.planner, first_two)
    prompt = await assemble(world.planner, "Which database?")
    (block,) = [each for each in (await receipt(world.planner, prompt))["blocks"] if each["kind"] == "summary"]
    name = f"compaction:{done.compaction_id}/0"
    assert name in block["items"]
    assert (await shown(world.planner, name))["record"]["content"] == TEXT
    for missing in (f"{name}0", "compaction:nothing/0", f"compaction:{done.compaction_id}/x"):
        with refused("RECORD_NOT_FOUND"):
            await shown(world.planner, missing)
    with refused("RECORD_NOT_FOUND"):
        await shown(world.analysis, name)


@pytest.mark.req("AC-13")
async def test_the_events_are_cloud_events(world: World) -> None:
    await talk(world.planner)
    before = await world.last_event()
    await compact(world.planner, first_two)
    log = await world.app.database.read(
        Scope(world.tenant), lambda tx: EventStore(tx).numbered(range(before + 1, before + 4))
    )
    sent = [msgspec.json.decode(msgspec.json.encode(to_cloud_event(each, "urn:weftline:here"))) for each in log]
    assert [each["type"] for each in sent] == [
        "context.compaction.started",
        "context.compaction.completed",
        "context.summary.created",
    ]
    assert {each["specversion"] for each in sent} == {"1.0"}
    assert sent[1]["data"]["data"]["compaction_id"] == sent[0]["subject"]
    assert sent[2]["data"]["data"]["summary_id"] == sent[2]["subject"]


@pytest.mark.req("AC-15")
async def test_nothing_is_recorded_if_the_transaction_fails(world: World) -> None:
    await talk(world.planner)
    running = await begin(world.planner)
    before = await world.last_event()

    async def fail(service: Any) -> None:
        await service.finish(running.compaction.compaction_id, draft_of(first_two(running.events)), cut=4)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await in_service(world.planner, fail)
    assert await world.last_event() == before
    assert await found(world.planner) == []
    current = await in_service(world.planner, lambda service: service.store.find(running.compaction.compaction_id))
    assert current.state == "running"


async def test_the_window_decides_who_reads_the_records(world: World) -> None:
    await talk(world.analysis)
    await compact(world.analysis, first_two)
    compaction, summary = await found(world.analysis)
    names = [compaction["compaction_id"], summary["summary_id"]]
    for reader in (world.analysis, world.planner, world.admin):
        assert len(await found(reader)) == 2
    for stranger in (world.review, world.stranger):
        for name in names:
            with refused("RECORD_NOT_FOUND"):
                await shown(stranger, name)
    assert await found(world.review) == []
    events = (await world.review.events(session_id=SESSION))["events"]
    assert [event for event in events if "compaction" in event["type"] or "summary" in event["type"]] == []


async def test_a_summary_that_stays_keeps_its_record(world: World) -> None:
    await talk(world.planner)
    await compact(world.planner, first_two)

    def both(events: Sequence[WindowEvent]) -> CompactedView:
        first = first_two(events)
        return CompactedView(summaries=(*first.summaries, summary_of(events[2:4], "More.")), facts=first.facts)

    before = await world.last_event()
    await compact(world.planner, both)
    summaries = await found(world.planner, "context_summary")
    assert [each["content"] for each in summaries] == [TEXT, "More."]
    second = (await found(world.planner, "context_compaction"))[1]
    assert second["metadata"]["weftline"]["summary_refs"] == [each["summary_id"] for each in summaries]
    assert second["coverage"]["items_covered"] == 4
    events = (await world.planner.events(after=before))["events"]
    assert [event["type"] for event in events].count("context.summary.created") == 1


async def test_a_held_compaction_is_recorded_when_it_is_approved(world: World) -> None:
    await talk(world.planner)
    running = await begin(world.planner)
    name = running.compaction.compaction_id
    await finish(world.planner, name, draft_of(first_two(running.events)), held_as="approval-1")
    assert await found(world.planner) == []
    await in_service(world.planner, lambda service: service.apply(name))
    compaction, _ = await found(world.planner)
    assert compaction["validation"]["status"] == "reviewed"
    assert compaction["validation"]["reviewer"] == {"kind": "approval", "id": "approval-1"}


async def test_a_degraded_compaction_is_announced_and_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await talk(world.planner)
    with caplog.at_level(logging.WARNING, logger="weftline.compaction"):
        await compact(world.planner, first_two, degraded=("model: timeout",))
    (event,) = [
        each
        for each in (await world.planner.events(session_id=SESSION))["events"]
        if each["type"] == "compaction.degraded"
    ]
    assert (event["data"]["degraded"], event["data"]["state"]) == (["model: timeout"], "applied")
    (logged,) = [each for each in caplog.records if each.name == "weftline.compaction"]
    assert TEXT not in str(logged.__dict__)
    assert (await found(world.planner))[0]["validation"]["status"] == "degraded"


async def test_a_redacted_source_hides_its_summary_and_makes_it_stale(world: World) -> None:
    await talk(world.planner)
    await compact(world.planner, first_two)
    _, summary = await found(world.planner)
    assert (await shown(world.planner, summary["summary_id"])).get("stale") is None
    fields = {"item_id": f"{LINE}/e2/1.1", "session_id": SESSION, "state": "removed", "reason": "a secret"}
    await world.planner.call("records.redact", **fields)
    answer = await shown(world.planner, summary["summary_id"])
    assert (answer["stale"]["items"], "context.compact" in answer["stale"]["refresh"]) == ([f"{LINE}/e2/1.1"], True)
    assert "PostgreSQL" not in json.dumps([answer, await found(world.planner)])
    # The bundle has the other events of the window.
    bundle = (await exported(world.admin)).decode()
    assert "Message 3" in bundle
    assert not [text for text in ("Message 2", TEXT) if text in bundle]
    compaction, _ = await found(world.planner)
    assert (await shown(world.planner, compaction["compaction_id"]))["stale"]["count"] == 1


async def test_a_branch_names_the_events_where_they_were_made(world: World) -> None:
    await talk(world.planner, 2)
    await world.planner.call("history.branch", context_id=LINE, branch="try")
    await world.planner.call("history.switch", context_id=LINE, branch="try")
    await talk(world.planner, 2, first=3)

    def all_four(events: Sequence[WindowEvent]) -> CompactedView:
        return CompactedView(summaries=(summary_of(events, TEXT),))

    await compact(world.planner, all_four)
    _, summary = await found(world.planner)
    assert summary["source_item_refs"] == [
        f"{LINE}/e1/1.1", f"{LINE}/e2/1.1", f"{LINE}@try/e3/1.1", f"{LINE}@try/e4/1.1"
    ]  # fmt: skip
    for item_id in summary["source_item_refs"]:
        assert (await shown(world.planner, item_id))["id"] == item_id


async def traced(caller: Caller, item: str) -> dict[str, str]:
    answer = await caller.call("trust.trace", item=item)
    return {each["item"]: each["how"] for each in answer["derived"]}


@pytest.mark.parametrize("mode", ["delete", "flag"])
async def test_a_source_is_forgotten_with_its_summaries(world: World, mode: str) -> None:
    await talk(world.planner)
    await compact(world.planner, first_two)
    _, summary = await found(world.planner)
    name = summary["summary_id"]
    assert await traced(world.planner, f"{LINE}/e1") == {name: "declared"}
    assert await traced(world.planner, f"{LINE}/e3") == {}
    await assemble(world.planner, "Which database?")
    fields = {"reason": "poisoned", "mode": mode, "dry_run": False}
    answer = await world.admin.call("trust.forget", item=f"{LINE}/e1", **fields)
    assert (answer["prompts"] > 0) == (mode == "delete")
    assert {each["item"]: each["done"] for each in answer["items"]}[name] == f"{mode}d".replace("flagd", "flagged")
    answer = await shown(world.planner, name)
    current = await in_service(world.planner, lambda service: service.current(LINE))
    if mode == "flag":
        assert answer["record"]["metadata"]["weftline"]["trust"]["trust"] == "suspicious"
        assert f"{LINE}/e1/1.1" in answer["stale"]["items"]
        return
    assert "PostgreSQL" not in json.dumps(answer)
    assert current is None
    assert await world.rows("SELECT 1 FROM compaction_views WHERE tenant = $1", world.tenant) == []


async def test_compactions_are_exported_and_imported_as_records(world: World) -> None:
    await talk(world.planner)
    await compact(world.planner, first_two)
    made = await found(world.planner)
    bundle = await exported(world.planner)
    await imported(world.stranger, bundle)
    assert {key[0] for key in records(bundle) if key[0] in TYPES} == set(TYPES)
    assert await found(world.stranger) == made
    again = await imported(world.admin, bundle, session_id="copy")
    assert again.session_id == "copy"
    copied = [each["record"] for each in await all_records(world.admin, session_id="copy", types=TYPES)]
    assert copied[1]["source_item_refs"] == ["window:copy:planner/e1/1.1", "window:copy:planner/e2/1.1"]
    assert copied[1]["summary_id"].startswith("summary:copy:planner/1-2.")
    assert copied[0]["summary_ref"] == copied[1]["summary_id"]
    assert copied[1]["compaction_ref"] == copied[0]["compaction_id"]


async def test_provenance_says_what_a_summary_was_made_of(world: World) -> None:
    await talk(world.planner)
    await compact(world.planner, first_two)
    raw = msgspec.json.decode(await exported(world.planner, format="prov"))
    (summary,) = [name for name, each in raw["entity"].items() if each["prov:type"] == "context_summary"]
    used = {
        each["prov:usedEntity"] for each in raw["wasDerivedFrom"].values() if each["prov:generatedEntity"] == summary
    }
    assert len(used) == 2
    made_by = [each["prov:activity"] for each in raw["wasGeneratedBy"].values() if each["prov:entity"] == summary]
    assert any("context_compaction" in activity for activity in made_by)
    (activity,) = [each for each in made_by if "context_compaction" in each]
    agents = [each["prov:agent"] for each in raw["wasAssociatedWith"].values() if each["prov:activity"] == activity]
    assert agents == ["weftline:agent/orchestrator%3Aplanner"]


async def test_a_deleted_session_leaves_no_records(world: World) -> None:
    await create(world.planner)
    await talk(world.planner)
    await compact(world.planner, first_two)
    await world.planner.call("session.archive", session_id=SESSION)
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    for table in ("records", "record_items", "compactions", "compaction_views"):
        assert await world.rows(f"SELECT 1 FROM {table} WHERE tenant = $1", world.tenant) == [], table


async def test_a_compaction_in_the_background_is_on_behalf_of_who_caused_it(world: World) -> None:
    read = "I read the next module of the old code. It loads rows, checks them and hands them on, as the others do. "
    await ingest(world.analysis, *(message(f"e{n}", f"Module {n}. {read * 4}") for n in range(30)))
    done = await world.planner.call(
        "context.compact", session_id=SESSION, agent_id="analysis", keep_recent=2, wait_seconds=60
    )
    assert done["state"] == "applied"
    answer = await shown(world.planner, f"compaction:{done['compaction_id']}")
    assert answer["recorded_by"] == "orchestrator:planner"
    events = (await world.planner.events(session_id=SESSION, types=["context.compaction.*"]))["events"]
    assert {event["actor"] for event in events} == {"orchestrator:planner"}
    coverage = answer["record"]["coverage"]
    assert coverage["items_covered"] == 28
    assert coverage["estimated_tokens_after"] < coverage["estimated_tokens_before"] < done["tokens_before"]


async def test_a_policy_decides_whether_summaries_leave(world: World) -> None:
    await ingest(world.planner, message("e1", "hello"), message("e2", "hello"), message("e3", "x"))

    def secret(events: Sequence[WindowEvent]) -> CompactedView:
        listed = decision(events[0], "write to bob@example.com", carried=True)
        return CompactedView(summaries=(summary_of(events[:2], "bob@example.com has it"),), facts=(listed,))

    await compact(world.planner, secret)
    assert b"bob@example.com has it" in await exported(world.planner)
    masked = await exported(world.planner, policy="masked")
    assert b"bob@" not in masked
    assert len(records(masked, "context_summary")) == 1
    await world.admin.call("policy.set", name="team", definition={"sensitivity": "internal"})
    assert records(await exported(world.admin, policy="team"), "context_summary") == {}
