"""Records of assembled prompts: derived from receipts, valid, exported, and published as events."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from support.assemblies import PARTS, TASK, add_documents, assemble, derived_records, ingest, receipt
from support.bundles import exported, imported, records
from support.crash_injection import dies
from support.public_schemas import PUBLIC, public_validator
from support.records import correlated_call
from support.world import SESSION, Caller, World, outcome
from weftline.kernel.correlation import Correlation
from weftline.records.event_classes import to_cloud_event
from weftline.records.model import decode_record
from weftline.records.schemas import Redaction
from weftline.records.sql import RecordStore
from weftline.records.vocabulary import OmissionReason
from weftline.sessions.events.sql import EventStore
from weftline.storage.sql.database import Scope

CLASSES = [
    "context.surface.created",
    "context.selection.started",
    "context.selection.completed",
    "context.budget.applied",
    "context.assembly.created",
    "context.injection.applied",
]


async def trimmed_prompt(world: World) -> Any:
    """Assemble a prompt from which events were trimmed, and one of which was shortened."""
    events = [{"content": f"Message {number} about the incident. " * 30} for number in range(20)]
    await ingest(world.analysis, *events, {"content": "A very long report of the incident. " * 400})
    await world.planner.write("status", "down")
    return await assemble(world.analysis, token_budget=1_500)


@pytest.mark.both_databases
@pytest.mark.req("AC-07", "AC-08")
async def test_the_records_of_a_prompt_agree_with_its_receipt(world: World) -> None:
    answer = await trimmed_prompt(world)
    shown, found = await receipt(world.analysis, answer), await derived_records(world.analysis, answer)
    selection, budget, window, assembly = (found[part] for part in ("selection", "budget", "window", "assembly"))
    omitted = [each["item_ref"] for each in selection["omitted_item_refs"]]
    selected = selection["selected_item_refs"]
    assert omitted
    assert selected
    assert sorted([*selected, *omitted]) == sorted(selection["candidate_item_refs"])
    assert selection["query"] == TASK
    assert found["surface"]["available_item_refs"] == selection["candidate_item_refs"]
    assert (budget["max_tokens"], budget["actual_tokens"]) == (1_500, answer["tokens"])
    assert budget["actual_items"] == len(selected)
    (truncation,) = budget["truncation_records"]
    assert truncation["item_ref"] in selected
    assert truncation["original_tokens"] > truncation["kept_tokens"]
    assert sum(segment["actual_tokens"] for segment in budget["window_segments"]) <= answer["tokens"]
    assert {segment["name"] for segment in window["segments"]} == {
        "SYSTEM", "CONTEXT", "DIALOG", "SYSTEM_OUTPUT", "ERROR", "INTERNAL"
    }  # fmt: skip
    assert window["reserved_tokens"] == shown["limits"]["reserved_output_tokens"]
    assert [block["block_id"] for block in assembly["ordered_blocks"]] == [b["block_id"] for b in shown["blocks"]]
    assert found["injection"]["assembly_id"] == assembly["assembly_id"]
    assert found["injection"]["hash"] == answer["prompt_hash"]
    assert selection["budget_ref"] == assembly["budget_ref"] == budget["budget_id"]


@pytest.mark.req("AC-07", "AC-08")
async def test_derived_records_are_valid_by_the_public_schemas(world: World) -> None:
    answer = await trimmed_prompt(world)
    for part, record in (await derived_records(world.analysis, answer)).items():
        decode_record(f"context_{part}", msgspec.json.encode(record))
        if f"context_{part}" in PUBLIC:
            public_validator(f"context_{part}").validate(record)


@pytest.mark.req("AC-14")
async def test_an_export_has_the_records_of_prompts_for_their_agent_only(world: World) -> None:
    answer = await trimmed_prompt(world)
    ids = {(f"context_{part}", f"receipt:{answer['receipt_id']}/{part}") for part in PARTS}
    bundle = records(await exported(world.analysis))
    assert ids <= bundle.keys()
    for (kind, _), record in bundle.items():
        if kind in PUBLIC:
            public_validator(kind).validate(record)
    assert not ids & records(await exported(world.review)).keys()


@pytest.mark.req("AC-14")
async def test_the_export_of_a_turn_has_the_records_of_its_prompt(world: World) -> None:
    await world.planner.write("status", "down")
    request = {"session_id": SESSION, "task_description": TASK}
    await correlated_call(Correlation(turn_id="t0"), world.analysis, "context.assemble", **request)
    await correlated_call(Correlation(turn_id="t1"), world.analysis, "context.assemble", **request)
    first, second = [set(records(await exported(world.analysis, scope="turn", turn_id=turn))) for turn in ("t0", "t1")]
    for part in PARTS:
        (name,) = [each for kind, each in first if kind == f"context_{part}" and each.startswith("receipt:")]
        assert (f"context_{part}", name) not in second


@pytest.mark.req("AC-06")
async def test_every_selected_item_of_an_extended_prompt_is_a_candidate(world: World) -> None:
    await add_documents(world, "The falcon report is due on Friday.", "The tower is closed on Sundays.")
    rules = {"role": "system", "content": "Answer briefly. " * 200}
    await ingest(world.planner, rules, {"content": "Hello."}, agent_id="analysis")
    for task in ("When is the falcon report due?", "When is the tower closed?"):
        answer = await assemble(world.analysis, task)
        world.clock.advance(seconds=1)
        selection = (await derived_records(world.analysis, answer))["selection"]
        omitted = [each["item_ref"] for each in selection.get("omitted_item_refs", ())]
        assert sorted([*selection["selected_item_refs"], *omitted]) == sorted(selection["candidate_item_refs"])
    assert answer["mode"] == "extended"


@pytest.mark.req("AC-14")
async def test_an_imported_session_keeps_the_records_of_its_prompts(world: World) -> None:
    answer = await trimmed_prompt(world)
    bundle = await exported(world.admin)
    await imported(world.stranger, bundle)
    again = await exported(world.stranger)
    ids = {(f"context_{part}", f"receipt:{answer['receipt_id']}/{part}") for part in PARTS}
    assert ids <= records(bundle).keys()
    assert {key: record for key, record in records(again).items() if key in ids} == {
        key: record for key, record in records(bundle).items() if key in ids
    }
    for kind, record_id in ids:
        record = records(bundle)[kind, record_id]
        assert (await world.stranger.call("records.show", record_id=record_id))["record"] == record
    # The records came along, the receipt did not: its texts stay where they were.
    assert await outcome(receipt(world.stranger, answer)) == "RECEIPT_NOT_FOUND"


@pytest.mark.both_databases
@pytest.mark.req("AC-13")
async def test_the_events_of_an_assembly_are_cloud_events_that_name_its_records(world: World) -> None:
    await ingest(world.analysis, {"content": "What happened?"})
    before = await world.last_event()
    answer = await assemble(world.analysis)
    log = await world.app.database.read(Scope(world.tenant), lambda tx: EventStore(tx).after(before, None, 100))
    published = [msgspec.to_builtins(to_cloud_event(each, "urn:weftline:test")) for each in log]
    published = [each for each in published if each["type"] != "weftline.search.low_relevance"]
    assert [each["type"] for each in published] == CLASSES
    for each in published:
        assert (each["specversion"], each["subject"]) == ("1.0", answer["receipt_id"])
        public_validator("context_event").validate(each["data"])
    named = {name: value for each in published for name, value in each["data"]["data"].items() if name.endswith("_id")}
    for part in ("selection", "budget", "window", "assembly", "injection"):
        assert named[f"{part}_id"] == f"receipt:{answer['receipt_id']}/{part}"
    seen = [each["type"] for each in (await world.review.events(session_id=SESSION))["events"]]
    assert not set(seen) & set(CLASSES)


@pytest.mark.both_databases
@pytest.mark.req("AC-15", part="assembly of prompts")
async def test_a_prompt_is_stored_with_all_its_events_or_not_at_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ingest(world.analysis, {"content": "What happened?"})
    # The second call of a window writes in one transaction only: the receipt with its events.
    await assemble(world.analysis)
    first, at = await world.last_event(), 1
    while await dies(world, monkeypatch, at, lambda: assemble(world.analysis, "Again.")):
        assert await world.last_event() == first
        assert (await world.rows("SELECT COUNT(*) FROM receipts"))[0][0] == 1
        at += 1
    assert at > 2
    assert await world.last_event() == first + len(CLASSES)


async def every_reason(world: World) -> Any:
    """Assemble a prompt with a candidate omitted for each of the reasons, and return its receipt."""
    analysis, planner = world.analysis, world.planner
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    native = {"role": "user", "content": [{"type": "text", "text": "See this."}, image]}
    chat = [{"content": f"Old chatter {number}. " * 40, "role": "assistant"} for number in range(12)]
    await ingest(
        analysis, {"form": "openai_chat", "native": native, "content": "See this."}, *chat, {"content": "Well?"}
    )
    await planner.say("The falcon report needs the key AKIAIOSFODNN7EXAMPLE to be opened.")
    await planner.say("The falcon report is due on Friday, says the steering committee.")
    await add_documents(world, "The falcon report is due on Friday, says the steering committee.")
    hidden = await planner.say("The falcon report is kept in the tower.")
    for key in ("redacted", "deleted"):
        await planner.write(key, f"The falcon report has an annex, {key}.")
    await planner.say("Lunch is at noon.")
    await world.index_sessions()
    redaction = Redaction(f"board:{SESSION}/redacted/1.1", SESSION, "removed", "manual", "secret", "orchestrator", 0)
    await world.app.database.write(Scope(world.tenant), lambda tx: RecordStore(tx).redact(redaction))
    await planner.delete("deleted")
    # Before the index follows.
    await world.sql("UPDATE messages SET audience = 'orchestrator' WHERE message_id = $1", hidden)
    return await assemble(
        analysis, "When is the falcon report due?", token_budget=1_200, omit_secrets=True, model="gpt-3.5-turbo"
    )


@pytest.mark.req("AC-06")
async def test_every_reason_of_an_omission_is_recorded(world: World) -> None:
    answer = await every_reason(world)
    assert set(answer["omitted"]) == set(get_args(OmissionReason))
    selection = (await derived_records(world.analysis, answer))["selection"]
    assert {each["reason"] for each in selection["omitted_item_refs"]} == set(get_args(OmissionReason))
    assert len({each["item_ref"] for each in selection["omitted_item_refs"]}) == sum(answer["omitted"].values())
    assert selection["rationale"]
    assert selection["ranking_signals"]["score"].keys() <= set(selection["candidate_item_refs"])


@pytest.mark.req("AC-06", part="selections of searches and of frameworks")
@pytest.mark.req("AC-07", part="the budget of a search")
@pytest.mark.req("AC-08", part="the text of get_context")
@pytest.mark.req("AC-15", part="assembly of prompts")
async def test_a_context_text_is_recorded_with_selection_budget_and_assembly(world: World) -> None:
    await world.planner.write("goal", "We ship the falcon on Friday.")
    await world.planner.write("annex", "The falcon manual has many pages about shipping. " * 12)
    await world.index_sessions()
    request = {"query": "when do we ship the falcon", "session_id": SESSION, "max_tokens": 150, "min_score": 0.0}
    before = await world.last_event()
    plain = await world.planner.call("search.get_context", **request)
    assert "assembly_id" not in plain
    assert await world.last_event() == before
    answer = await world.planner.call("search.get_context", **request, record=True)
    assert answer["context"] == plain["context"]
    selection, assembly = await shown(world.planner, answer["selection_id"], answer["assembly_id"])
    (budget,) = await shown(world.planner, selection["budget_ref"])
    assert (selection["query"], selection["selected_item_refs"]) == (request["query"], [f"board:{SESSION}/goal/1.1"])
    assert selection["omitted_item_refs"] == [{"item_ref": f"board:{SESSION}/annex/1.1", "reason": "budget"}]
    assert (budget["max_tokens"], budget["actual_tokens"]) == (150, answer["tokens"])
    assert assembly["source_item_refs"] == selection["selected_item_refs"]
    assert assembly["budget_ref"] == budget["budget_id"]
    assert len(assembly["ordered_blocks"]) == len(answer["citations"])
    types = [each["type"] for each in (await world.planner.events(after=before))["events"]]
    assert types == [CLASSES[1], CLASSES[3], CLASSES[2], CLASSES[4]]
    assert await outcome(world.analysis.call("records.show", record_id=answer["assembly_id"])) == "RECORD_NOT_FOUND"


async def test_a_context_text_is_recorded_only_with_write_access(world: World) -> None:
    reader = await world.admin.create_agent("reader", permissions=["read"])
    assert await outcome(reader.call("search.get_context", query="x", record=True)) == "PERMISSION_DENIED"
    await world.planner.call("search.get_context", query="x", record=True)
    await world.planner.call("session.archive", session_id=SESSION)
    archived = world.planner.call("search.get_context", query="x", session_id=SESSION, record=True)
    assert await outcome(archived) == "SESSION_ARCHIVED"


async def shown(caller: Caller, *record_ids: str) -> list[Any]:
    return [(await caller.call("records.show", record_id=record_id))["record"] for record_id in record_ids]
