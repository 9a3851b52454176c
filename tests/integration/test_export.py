"""Exports of a session or a part of it, as visible to the caller, audited."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.bundles import contents, entries, exported, items, records, seal_of, texts
from support.full_run import FULL
from support.statement_log import statements_of
from support.world import SESSION, Caller, refused, wire_form
from weftline.app import transfer
from weftline.app.dispatch import CallContext
from weftline.exchange.transfer import envelope_ids, export_collector
from weftline.exchange.transfer.bundle_format import BundleHeader, BundleSession, BundleSnapshot
from weftline.exchange.transfer.policy_filter import AppliedPolicy
from weftline.kernel.correlation import Correlation
from weftline.kernel.fair_queue import FairSlots
from weftline.records.schemas import Redaction
from weftline.records.sql import RecordStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import World
    from weftline.testing.clock import FrozenClock

pytestmark = pytest.mark.req("AC-14")


async def correlated_call(caller: Caller, operation: str, correlation: Correlation, **raw: Any) -> Any:
    context = CallContext(caller.credential, correlation=correlation)
    return wire_form(await caller.app.call(caller.app.registry[operation], raw, context))


async def export_audits(world: World) -> list[dict[str, Any]]:
    return [row for row in await world.admin.audit() if row["action"] == "bundle.export"]


async def fill_session(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.write("goal", "ship on Friday", reason="agreed")
    await world.planner.write("old", "x")
    await world.planner.delete("old")
    await world.planner.snapshot("mark")
    await world.planner.say("hello", metadata={"a": [1, None, 2.5]})
    await world.analysis.say("only for me", visibility="private")


async def test_a_session_is_exported_with_all_versions_messages_and_events(world: World) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    item_texts = texts(bundle)
    assert item_texts[f"board:{SESSION}/goal/1.1"] == "ship"
    assert item_texts[f"board:{SESSION}/goal/1.2"] == "ship on Friday"
    assert item_texts[f"message:{SESSION}/1"] == "hello"
    assert f"board:{SESSION}/old/1.1/removed" in items(bundle)
    kinds = [type(entry).__name__ for entry in entries(bundle)]
    assert kinds[:3] == ["BundleHeader", "BundleSession", "BundleRecord"]
    assert [entry.label for entry in entries(bundle) if isinstance(entry, BundleSnapshot)] == ["mark"]
    classes = {event["event_type"] for event in records(bundle, "context_event").values()}
    assert {"context.surface.created", "context.item.added", "context.item.removed", "context.exported"} <= classes


async def test_all_formats_contain_the_same_items(world: World) -> None:
    await fill_session(world)
    lines, array = await exported(world.admin), await exported(world.admin, format="json")
    text = await world.admin.call("bundle.export", session_id=SESSION)
    assert items(lines) == items(array) == items(text["bundle"].encode())
    assert msgspec.json.decode(array)[0]["entry"]["kind"] == "header"
    assert text["digest"] == seal_of(text["bundle"].encode())
    assert text["bytes"] == len(text["bundle"].encode())
    assert text["records"] == len(records(text["bundle"].encode()))


async def test_large_and_private_content_is_a_separate_line(world: World) -> None:
    large = "word " * 500
    await world.planner.write("large", large)
    await world.planner.write("closed", "for us", readable_by=["orchestrator", "human:*"])
    bundle = await exported(world.admin)
    assert {text.decode() for text in contents(bundle).values()} == {large, "for us"}
    assert items(bundle)[f"board:{SESSION}/large/1.1"]["content_mode"] == "ref"


@pytest.mark.req("AC-11")
async def test_an_export_contains_only_what_the_caller_may_read(world: World) -> None:
    await fill_session(world)
    await world.planner.write("closed", "secret plan", readable_by=["orchestrator"])
    await world.planner.write("reopened", "before", readable_by=["orchestrator"])
    await world.planner.write("reopened", "after", readable_by=["*"])
    for caller in (world.admin, world.review):
        bundle = await exported(caller)
        item_texts = texts(bundle)
        assert not any("closed" in name for name in items(bundle))
        assert f"board:{SESSION}/reopened/1.1" not in items(bundle)
        assert item_texts[f"board:{SESSION}/reopened/1.2"] == "after"
        assert b"secret plan" not in bundle
        assert b"only for me" not in bundle
        assert not any(event.get("subject") == "closed" for event in records(bundle, "context_event").values())
    assert "only for me" in texts(await exported(world.analysis)).values()


async def test_an_unreadable_session_is_not_found(world: World) -> None:
    await world.admin.create_session("private", members=["human:*"])
    for caller, session in ((world.planner, "private"), (world.stranger, SESSION), (world.admin, "nowhere")):
        with refused("SESSION_NOT_FOUND"):
            await exported(caller.in_session(session))
        with refused("SESSION_NOT_FOUND"):
            await caller.call("bundle.export", session_id=session)


async def test_an_export_without_history_contains_only_current_values(world: World, clock: FrozenClock) -> None:
    await fill_session(world)
    await world.planner.write("brief", "x", ttl_seconds=60)
    clock.advance(seconds=61)
    bundle = await exported(world.admin, history=False)
    assert {name for name in items(bundle) if name.startswith("board:")} == {f"board:{SESSION}/goal/1.2"}
    assert not [entry for entry in entries(bundle) if isinstance(entry, BundleSnapshot)]
    assert not records(bundle, "context_event")


async def test_branches_are_exported_with_the_session(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.call("history.branch", context_id=f"board:{SESSION}", branch="try")
    await world.planner.write("goal", "wait", branch="try")
    item_texts = texts(await exported(world.admin))
    assert item_texts[f"board:{SESSION}@try/goal/1.2"] == "wait"
    assert f"board:{SESSION}/goal/1.2" not in item_texts


async def test_an_export_is_audited(world: World) -> None:
    bundle = await exported(world.planner)
    header, session = entries(bundle)[:2]
    assert isinstance(header, BundleHeader)
    assert isinstance(session, BundleSession)
    assert (header.scope, header.session_id, header.history) == ("session", SESSION, True)
    event = (await world.admin.events(session_id=SESSION))["events"][-1]
    assert (event["type"], event["subject"]) == ("context.exported", header.bundle_id)
    assert event["actor"] == "orchestrator:planner"
    (audited,) = await export_audits(world)
    assert header.bundle_id in audited["target"]
    assert audited["detail"]["policy"] == "standard"
    kept = await world.admin.call("records.show", type="context_envelope", record_id=header.bundle_id)
    assert kept["record"]["scope"] == "session"


async def test_an_archived_session_can_be_exported(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.call("session.archive", session_id=SESSION)
    bundle = await exported(world.planner)
    assert entries(bundle)[1].archived_at is not None
    assert texts(bundle)[f"board:{SESSION}/goal/1.1"] == "ship"


@pytest.mark.parametrize(
    ("scope", "field"), [("turn", "turn_id"), ("task", "task_id"), ("tool_invocation", "tool_call_id")]
)
async def test_a_turn_or_task_is_exported_with_its_own_items_only(world: World, scope: str, field: str) -> None:
    part, other = Correlation(**{field: "one"}), Correlation(**{field: "two"})
    write = {"session_id": SESSION, "value": "x"}
    await correlated_call(world.planner, "board.write", part, key="mine", **write)
    await correlated_call(world.planner, "board.write", part, key="both", **write)
    await correlated_call(world.planner, "board.write", other, key="both", **write)
    await correlated_call(world.planner, "board.write", other, key="theirs", **write)
    await correlated_call(world.planner, "board.delete", part, session_id=SESSION, key="mine")
    await correlated_call(world.planner, "message.add", part, session_id=SESSION, content="hello")
    await correlated_call(world.planner, "message.add", other, session_id=SESSION, content="bye")
    bundle = await exported(world.planner, scope=scope, **{field: "one"})
    board = f"board:{SESSION}"
    assert set(items(bundle)) == {
        f"{board}/mine/1.1",
        f"{board}/mine/1.1/removed",
        f"{board}/both/1.1",
        f"message:{SESSION}/1",
    }
    events = records(bundle, "context_event").values()
    assert len(events) == 4
    assert {event[field] for event in events} == {"one"}
    assert not [entry for entry in entries(bundle) if isinstance(entry, BundleSession)]


async def test_a_turn_is_exported_with_its_records_and_the_items_they_reference(world: World) -> None:
    turn = Correlation(turn_id="t1")
    await world.planner.write("goal", "ship")
    await world.planner.say("hello")
    source = {"schema_version": "0.1.0", "source_id": "src1", "uri": "https://example.com/a", "source_kind": "page"}
    item = {
        "schema_version": "0.1.0",
        "item_id": "item1",
        "context_kind": "page",
        "content_mode": "inline",
        "content": "as agreed",
        "visibility": ["*"],
        "source_refs": ["src1"],
    }
    await world.planner.call("records.add", session_id=SESSION, records=[source, item])
    selection = {
        "schema_version": "0.1.0",
        "selection_id": "sel1",
        "surface_id": f"session:{SESSION}",
        "created_at": "2026-01-01T00:00:00Z",
        "candidate_item_refs": [f"board:{SESSION}/goal/1.1", f"message:{SESSION}/1", "item1", "board:other/k/1.1"],
    }
    await correlated_call(world.planner, "records.add", turn, session_id=SESSION, records=[selection])
    bundle = await exported(world.planner, scope="turn", turn_id="t1")
    assert set(items(bundle)) == {f"board:{SESSION}/goal/1.1", f"message:{SESSION}/1", "item1"}
    assert {("context_selection", "sel1"), ("context_source_ref", "src1")} <= set(records(bundle))
    assert texts(bundle)["item1"] == "as agreed"


async def test_a_review_is_exported_with_both_sides(world: World) -> None:
    board = f"board:{SESSION}"
    await world.planner.write("goal", "ship")
    await world.planner.call("history.branch", context_id=board, branch="try")
    await world.planner.write("goal", "ship on Friday")
    await world.planner.write("goal", "wait", branch="try")
    merged = await world.planner.call("history.merge", context_id=board, from_context_id=f"{board}@try")
    for session in (SESSION, None):
        bundle = await exported(world.planner, session_id=session, scope="review", review_id=merged["review_id"])
        assert set(texts(bundle).values()) == {"ship", "ship on Friday", "wait"}
        events = records(bundle, "context_event").values()
        assert [event["data"]["type"] for event in events] == ["history.review_opened"]
    for caller in (world.stranger, world.planner.in_session("other")):
        with refused("REVIEW_NOT_FOUND"):
            await exported(caller, scope="review", review_id=merged["review_id"])


async def test_a_handoff_lists_the_items_for_its_recipient(world: World) -> None:
    await fill_session(world)
    bundle = await exported(world.planner, scope="handoff", recipient="closer")
    header = entries(bundle)[0]
    assert set(items(bundle)) == {f"board:{SESSION}/goal/1.2", f"message:{SESSION}/1"}
    (assembly,) = records(bundle, "context_assembly").values()
    (injection,) = records(bundle, "context_injection").values()
    shown = [ref for block in assembly["ordered_blocks"] for ref in block["item_refs"]]
    assert shown == [f"board:{SESSION}/goal/1.2", f"message:{SESSION}/1"]
    assert (assembly["target"], injection["target"]) == ("closer", "closer")
    assert injection["injection_point"] == "peer_agent_message"
    assert injection["assembly_id"] == assembly["assembly_id"]
    assert header.recipient == "closer"
    classes = {event["event_type"] for event in records(bundle, "context_event").values()}
    assert classes == {
        "context.selection.completed",
        "context.budget.applied",
        "context.exported",
        "context.assembly.created",
        "context.injection.applied",
    }


@pytest.mark.req("AC-02")
@pytest.mark.parametrize("scope", [{"scope": "session"}, {"scope": "handoff", "recipient": "closer"}])
async def test_the_envelope_of_a_session_or_handoff_names_items_selections_and_budget(
    world: World, scope: dict[str, str]
) -> None:
    await fill_session(world)
    traced = Correlation(trace_id="a" * 32, span_id="b" * 16)
    answer = await correlated_call(world.planner, "bundle.export", traced, session_id=SESSION, **scope)
    bundle = answer["bundle"].encode()
    everything = records(bundle)
    (envelope,) = [
        record for record in records(bundle, "context_envelope").values() if record["scope"] == scope["scope"]
    ]
    assert envelope["schema_version"] == "0.1.0"
    assert envelope["producer"]["id"] == "weftline"
    assert envelope["actor_refs"] == [{"kind": "agent", "id": "orchestrator:planner"}]
    assert envelope["runtime_refs"] == [{"kind": "session", "id": SESSION}]
    assert envelope["surface_refs"] == [f"session:{SESSION}"]
    assert envelope["telemetry_refs"] == [{"kind": "trace", "id": "a" * 32}]
    assert set(envelope["item_refs"]) <= {name for kind, name in everything if kind == "context_item"}
    assert {f"board:{SESSION}/goal/1.2", f"message:{SESSION}/1"} <= set(envelope["item_refs"])
    # Whatever it names is in the bundle.
    for field, kind in (("selection_refs", "context_selection"), ("assembly_refs", "context_assembly")):
        assert all((kind, ref) in everything for ref in envelope.get(field, ()))
    selection = everything["context_selection", envelope["selection_refs"][0]]
    assert set(selection["selected_item_refs"]) == set(items(bundle))
    assert selection["surface_id"] == f"session:{SESSION}"
    assert selection["budget_ref"] == envelope["budget_ref"]
    budget = everything["context_budget", envelope["budget_ref"]]
    assert budget["actual_items"] == len(items(bundle))
    assert budget["actual_tokens"] == sum(item.get("token_estimate", 0) for item in items(bundle).values())


@pytest.mark.req("AC-02")
async def test_an_envelope_names_nothing_that_other_participants_may_not_read(world: World) -> None:
    await fill_session(world)
    await world.planner.write("secret_plan", "merger", readable_by=["orchestrator"])
    await world.planner.say("only for me", visibility="private")
    bundle = await exported(world.planner)
    everything = records(bundle)
    assert any("secret_plan" in name for _, name in everything)
    header = entries(bundle)[0]
    for kind in ("context_envelope", "context_selection", "context_budget"):
        shown = [record for (each, _), record in everything.items() if each == kind]
        assert shown
        assert "secret_plan" not in json.dumps(shown)
    budget = everything["context_budget", f"{header.bundle_id}/budget"]
    (envelope,) = records(bundle, "context_envelope").values()
    open_items = set(items(bundle)) - {name for name in items(bundle) if "secret_plan" in name or name.endswith("/3")}
    assert budget["actual_items"] == len(open_items)
    assert set(envelope["item_refs"]) <= open_items


@pytest.mark.req("AC-02")
async def test_the_envelope_of_a_large_session_is_bounded_and_read_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_collector, "PAGE", 5)
    monkeypatch.setattr(envelope_ids, "MAX_REFS", 12)
    monkeypatch.setattr(export_collector, "MAX_REFS", 12)
    for number in range(40):
        await world.planner.say(f"message {number}")
    looked_at = []
    item = AppliedPolicy.item
    monkeypatch.setattr(AppliedPolicy, "item", lambda *args: looked_at.append(1) or item(*args))
    bundle = await exported(world.planner)
    (envelope,) = records(bundle, "context_envelope").values()
    (selection,) = records(bundle, "context_selection").values()
    assert len(envelope["item_refs"]) == len(selection["selected_item_refs"]) == 12
    assert selection["metadata"]["selected"] == len(items(bundle)) == len(looked_at) == 40


@pytest.mark.req("AC-02")
@pytest.mark.parametrize("scope", [{"scope": "session"}, {"scope": "handoff", "recipient": "closer"}])
async def test_bundles_do_not_contain_the_records_of_earlier_exports(world: World, scope: dict[str, str]) -> None:
    for number in range(40):
        await world.planner.say(f"message {number}")
    sizes = []
    for _ in range(3):
        answer = await world.planner.call("bundle.export", session_id=SESSION, **scope)
        everything = records(answer["bundle"].encode())
        for kind in ("context_envelope", "context_selection", "context_budget"):
            assert [name.partition("/")[0] for each, name in everything if each == kind] == [answer["bundle_id"]]
        (envelope,) = records(answer["bundle"].encode(), "context_envelope").values()
        assert envelope["selection_refs"] == [f"{answer['bundle_id']}/selection"]
        sizes.append(answer["bytes"])
    if scope["scope"] == "session":
        # The events of the exports.
        assert sizes[2] - sizes[1] < 3_000


@pytest.mark.req("AC-02")
async def test_an_export_within_a_limit_records_the_limit(world: World) -> None:
    await fill_session(world)
    answer = await world.planner.call("bundle.export", session_id=SESSION)
    name = f"{answer['bundle_id']}/budget"
    budget = (await world.planner.call("records.show", type="context_budget", record_id=name))["record"]
    assert (budget["max_bytes"], budget["overflow_strategy"]) == (2**20, "reject")
    assert 0 < budget["actual_bytes"] <= answer["bytes"]


async def test_a_handoff_of_a_task_contains_only_that_task(world: World) -> None:
    task = Correlation(task_id="t1")
    await world.planner.write("other", "x")
    await world.planner.say("not this")
    await correlated_call(world.planner, "board.write", task, session_id=SESSION, key="goal", value="ship")
    await world.planner.write("goal", "ship soon")
    await correlated_call(world.planner, "message.add", task, session_id=SESSION, content="over to you")
    gap = {"session_id": SESSION, "question": "When?", "scope": "task", "severity": "high"}
    await world.planner.call("missing.report", **gap)
    bundle = await exported(world.planner, scope="handoff", recipient="closer", task_id="t1")
    assert texts(bundle) == {f"board:{SESSION}/goal/1.2": "ship soon", f"message:{SESSION}/2": "over to you"}
    assert [gap["question"] for gap in records(bundle, "missing_context").values()] == ["When?"]


@pytest.mark.req("AC-11")
async def test_the_record_of_a_handoff_does_not_reveal_hidden_keys(world: World) -> None:
    await world.planner.write("closed", "secret plan", readable_by=["orchestrator"])
    bundle = await exported(world.planner, scope="handoff", recipient="closer")
    ((_, assembly_id),) = records(bundle, "context_assembly")
    await world.planner.call("records.show", type="context_assembly", record_id=assembly_id)
    with refused("RECORD_NOT_FOUND"):
        await world.review.call("records.show", type="context_assembly", record_id=assembly_id)


async def test_redacted_items_are_exported_without_content(world: World) -> None:
    await world.planner.write("goal", "call +49 30 1234567")
    item_id = f"board:{SESSION}/goal/1.1"
    redaction = Redaction(item_id, SESSION, "removed", "by hand", "private", "orchestrator", 0)
    await world.app.database.write(Scope(world.tenant), lambda tx: RecordStore(tx).redact(redaction))
    bundle = await exported(world.planner)
    assert items(bundle)[item_id]["redaction_state"] == "removed"
    assert b"1234567" not in bundle


@pytest.mark.parametrize(
    ("what", "field"),
    [
        ({"scope": "turn"}, "turn_id"),
        ({"scope": "task"}, "task_id"),
        ({"scope": "tool_invocation"}, "tool_call_id"),
        ({"scope": "review"}, "review_id"),
        ({"scope": "handoff"}, "recipient"),
        ({"session_id": None}, "session_id"),
    ],
)
async def test_a_scope_needs_its_id(world: World, what: dict[str, Any], field: str) -> None:
    with refused("INVALID_INPUT_FORMAT") as caught:
        await exported(world.planner, **what)
    assert caught.value.context["field"] == field


async def test_an_export_too_large_for_text_is_refused_and_not_recorded(world: World) -> None:
    board = await world.planner.create_session("large", max_value_tokens=300_000, max_total_tokens=1_000_000)
    for number in range(3):
        await board.write(f"k{number}", "word " * 100_000)
    before = await world.last_event()
    with refused("CONTENT_TOO_LARGE") as caught:
        await board.call("bundle.export", session_id="large")
    assert "weftline export" in caught.value.hint
    assert await world.last_event() == before
    assert not await export_audits(world)
    assert len(await exported(board)) > 1_500_000


@pytest.mark.parametrize("form", ["ndjson", "json", "prov"])
async def test_an_export_too_large_for_text_stops_reading_at_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    for _ in range(40):
        await world.planner.say("word " * 300)
    before = await world.last_event()
    looked_at = []
    item = AppliedPolicy.item
    monkeypatch.setattr(AppliedPolicy, "item", lambda *args: looked_at.append(1) or item(*args))
    monkeypatch.setattr(transfer, "MAX_TEXT_BYTES", 30_000)
    with refused("CONTENT_TOO_LARGE"):
        await world.planner.call("bundle.export", session_id=SESSION, format=form)
    assert len(looked_at) < 20
    assert await world.last_event() == before
    assert not await export_audits(world)


async def test_more_than_a_page_of_each_kind_is_exported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    page = export_collector.PAGE if FULL else 50
    monkeypatch.setattr(export_collector, "PAGE", page)
    board = await world.planner.create_session("long", max_total_tokens=1_000_000, keep_versions=10_000)
    for number in range(page + 20):
        await board.write(f"k{number % 7}", f"value {number}")
        await board.say(f"message {number}")
    bundle = await exported(board)
    assert len(items(bundle)) == 2 * (page + 20)
    assert len(records(bundle, "context_event")) == 2 * (page + 20) + 4


async def test_pruned_values_are_exported_by_digest(world: World) -> None:
    board = await world.planner.create_session("short", keep_versions=1)
    for number in range(20):
        await board.write("goal", f"value {number}")
    bundle = await exported(board)
    item_texts, known = texts(bundle), items(bundle)
    assert len(known) == 20
    assert len(item_texts) < 20
    pruned = next(name for name in known if name not in item_texts)
    assert known[pruned]["content_ref"]["digest"].startswith("sha256:")


async def test_losing_access_during_an_export_ends_it(world: World) -> None:
    other = replace(world.planner, credential=world.planner.credential[:-1] + "x")
    with refused("INVALID_API_KEY"):
        await exported(other)


@pytest.mark.parametrize("how", ["stream", "text"])
@pytest.mark.parametrize(
    "what", [{}, {"format": "prov"}, {"scope": "handoff", "recipient": "closer"}], ids=["session", "prov", "handoff"]
)
async def test_the_writes_of_an_export_do_not_depend_on_its_size(
    world: World, monkeypatch: pytest.MonkeyPatch, how: str, what: dict[str, Any]
) -> None:
    async def export() -> None:
        if how == "stream":
            await exported(world.planner, **what)
        else:
            await world.planner.call("bundle.export", session_id=SESSION, **what)

    await world.planner.write("goal", "ship")
    before = await statements_of(export, world.app.database, monkeypatch)
    for number in range(12):
        await world.planner.write(f"k{number}", "x")
        await world.planner.say("hello")
    assert await statements_of(export, world.app.database, monkeypatch) == before
    locks = next(place for place, statement in enumerate(before) if "FROM lines l JOIN sessions s" in statement)
    assert locks < next(place for place, statement in enumerate(before) if statement.startswith("UPDATE tenants"))


@pytest.mark.parametrize("is_recreated", [False, True])
async def test_a_session_deleted_during_its_export_is_not_found(
    world: World, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, *, is_recreated: bool
) -> None:
    await fill_session(world)
    database = world.app.database
    read = database.read

    async def read_and_delete_session(scope: Any, work: Any, *, heavy: bool = False) -> Any:
        found = await read(scope, work, heavy=heavy)
        if heavy:
            await world.admin.call("session.delete", session_id=SESSION, force=True)
            clock.advance(seconds=1)
            if is_recreated:
                await world.planner.create_session(SESSION)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(database, "read", read_and_delete_session)
        with refused("SESSION_NOT_FOUND"):
            await exported(world.planner)
    assert not await export_audits(world)
    assert not await world.rows("SELECT record_id FROM records WHERE tenant = $1", world.tenant)


async def test_an_export_does_not_block_other_callers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(130):
        await world.planner.say(f"message {number}")
    stretches, threads, is_done = [0], set[int](), asyncio.Event()
    item = AppliedPolicy.item

    def counted(self: AppliedPolicy, *args: Any) -> Any:
        stretches[-1] += 1
        threads.add(threading.get_ident())
        return item(self, *args)

    async def others() -> None:
        while not is_done.is_set():
            await asyncio.sleep(0)
            stretches.append(0)

    monkeypatch.setattr(AppliedPolicy, "item", counted)
    turns = asyncio.create_task(others())
    await exported(world.planner)
    is_done.set()
    await turns
    assert sum(stretches) == 130
    assert max(stretches) <= 50 or threading.get_ident() not in threads


async def test_files_of_exports_that_nobody_reads_are_few(world: World) -> None:
    transfers = world.app.transfers
    transfers._files = FairSlots(4, max_wait_seconds=0.05)
    raw, planner = {"session_id": SESSION}, CallContext(world.planner.credential)
    async with transfers.send(raw, planner):
        with refused("SERVER_BUSY"):
            async with transfers.send(raw, planner):
                pass
        with refused("SERVER_BUSY"):
            await transfers.receive({}, planner, no_chunks())
        async with transfers.send(raw, CallContext(world.admin.credential)) as export:
            assert export.facts.bytes
    async with transfers.send(raw, planner):
        pass


async def no_chunks() -> AsyncIterator[bytes]:
    yield b""
