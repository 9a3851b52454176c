"""Imports restore what was exported under its ids; altered bundles are refused."""

from __future__ import annotations

import io
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.bundles import entries, exported, imported, items, records, seal_of, texts
from support.statement_log import statements_of
from support.world import SESSION, Caller, refused
from weft.app.dispatch import CallContext
from weft.capabilities.records.store import Redaction
from weft.capabilities.transfer.bundle_format import (
    BundleContent,
    BundleRecord,
    BundleSession,
    BundleWriter,
    StoredInfo,
)
from weft.kernel.correlation import Correlation
from weft.kernel.events import NewEvent
from weft.storage.sql.database import Scope
from weft.storage.sql.events import SqlOutbox
from weft.storage.sql.records import SqlRecordStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.world import World
    from weft.storage.sql.database import Transaction
    from weft.testing.clock import FrozenClock

pytestmark = pytest.mark.req("AC-14")

BOARD = f"board:{SESSION}"


@pytest.fixture
def home(world: World) -> Caller:
    """Return the admin of the tenant that a bundle is carried to."""
    return world.stranger


async def lived_in(world: World) -> None:
    planner = world.planner
    await planner.write("goal", "ship", step="plan")
    await planner.write("goal", "ship on Friday", reason="agreed", step="build")
    await planner.write("closed", "between us", readable_by=["human:*", "orchestrator"], writable_by=["orchestrator"])
    await planner.write("brief", "soon gone", ttl_seconds=3_600)
    await planner.write("old", "x" * 3_000)
    await planner.delete("old", reason="done")
    await planner.snapshot("mark")
    await planner.write("goal", "ship on Monday")
    await planner.say("hello, invoice 42", metadata={"a": [1, None, 2.5]}, recipient_id="analysis")
    await planner.say("an answer", parent_message_id=1, message_type="result", category="CONTEXT")
    await world.admin.say("between admins", visibility="admin_only")
    await world.admin.say("to myself", visibility="private")
    await planner.call("missing.report", session_id=SESSION, question="When?", scope="task", severity="high")


async def moved(world: World, home: Caller, **what: Any) -> bytes:
    """Carry the session to another tenant and return the bundle it went in."""
    bundle = await exported(world.admin, **what)
    await imported(home, bundle)
    return bundle


async def test_a_session_is_there_again(world: World, home: Caller) -> None:
    await lived_in(world)
    told = await imported(home, await exported(world.admin))
    assert (told.session_id, told.versions, told.messages, told.snapshots) == (SESSION, 7, 4, 2)
    assert await home.value("goal") == "ship on Monday"
    assert await home.keys() == await world.admin.keys()
    assert (await home.read("goal"))["version"] == 3
    assert (await home.history("goal"))["versions"] == (await world.admin.history("goal"))["versions"]
    assert await home.snapshots() == await world.admin.snapshots()
    assert await home.read_snapshot("mark") == await world.admin.read_snapshot("mark")
    assert await home.size() == await world.admin.size()
    there, here = [await caller.call("session.get", session_id=SESSION) for caller in (world.admin, home)]
    for name in ("purpose", "config", "created_at", "created_by", "metadata"):
        assert there["session"][name] == here["session"][name]


async def test_the_imported_history_is_complete_and_continues(world: World, home: Caller) -> None:
    await lived_in(world)
    await moved(world, home)
    verified = await home.call("history.verify", context_id=BOARD, deep=True)
    assert verified["intact"], verified
    logs = [await caller.call("history.log", context_id=BOARD, limit=100) for caller in (world.admin, home)]
    assert logs[0] == logs[1]
    await home.write("goal", "ship today")
    assert (await home.read("goal"))["version"] == 4
    await home.write("old", "lives again")
    assert (await home.history("old"))["incarnation"] == 2
    await home.restore("mark")
    assert await home.value("goal") == "ship on Friday"
    assert (await home.inspect())["history_intact"]


async def test_messages_are_read_counted_and_found_as_before(world: World, home: Caller) -> None:
    await lived_in(world)
    await moved(world, home)
    before, after = [(await caller.messages())["messages"] for caller in (world.admin, home)]
    assert [message["content"] for message in after] == [message["content"] for message in before]
    assert after[0]["metadata"] == {"a": [1, None, 2.5]}
    assert after[1]["parent_message_id"] == 1
    assert await home.found("invoice") == ["hello, invoice 42"]
    assert await home.say("the next one") == 5


async def test_lifetimes_go_on(world: World, home: Caller, clock: FrozenClock) -> None:
    await lived_in(world)
    await moved(world, home)
    assert "brief" in await home.keys()
    clock.advance(seconds=3_601)
    assert "brief" not in await home.keys()
    await home.write("next", "x")
    ended = [event["subject"] for event in (await home.events())["events"] if event["type"] == "board.expired"]
    assert ended == ["brief"]


async def test_what_was_closed_stays_closed(world: World, home: Caller) -> None:
    await lived_in(world)
    await moved(world, home)
    agent = await home.create_agent("newcomer", agent_type="newcomer")
    sub = await home.create_agent("below", parent_id="newcomer")
    assert "closed" in await agent.keys()
    assert "closed" not in await sub.keys()
    assert await sub.message_texts() == ["hello, invoice 42", "an answer"]


async def test_events_keep_their_times_names_and_what_they_were_part_of(world: World, home: Caller) -> None:
    arrival = CallContext(
        world.planner.credential, correlation=Correlation(turn_id="t1", trace_id="a" * 32, run_id="r1")
    )
    raw = {"session_id": SESSION, "key": "goal", "value": "ship"}
    await world.app.call(world.app.registry["board.write"], raw, arrival)
    bundle = await moved(world, home)
    again = await exported(home)
    (event,) = [e for e in records(bundle, "context_event").values() if e["data"]["type"] == "board.written"]
    assert records(again)["context_event", event["event_id"]] == event
    assert (event["turn_id"], event["run_id"]) == ("t1", "r1")
    assert set(items(await exported(home, scope="turn", turn_id="t1"))) == {f"{BOARD}/goal/1.1"}


async def test_records_are_imported_with_their_events(world: World, home: Caller) -> None:
    await lived_in(world)
    bundle = await moved(world, home)
    ((_, missing_id),) = records(bundle, "missing_context")
    shown = await home.call("records.show", record_id=missing_id)
    assert shown["record"] == records(bundle)["missing_context", missing_id]
    listed = await home.call("records.list", session_id=SESSION, types=["missing_context"])
    assert [entry["id"] for entry in listed["records"]] == [missing_id]
    open_ones = await home.call("missing.list", session_id=SESSION)
    assert len(open_ones["missing"]) == 1


async def test_the_same_bundle_twice_changes_nothing(world: World, home: Caller) -> None:
    await lived_in(world)
    bundle = await moved(world, home)
    before = await world.last_event(world.other_tenant)
    told = await imported(home, bundle)
    assert told.unchanged
    assert await world.last_event(world.other_tenant) == before
    await home.write("goal", "went on")
    assert (await imported(home, bundle)).unchanged


async def test_a_session_that_is_there_is_not_replaced(world: World, home: Caller) -> None:
    await lived_in(world)
    bundle = await exported(world.admin)
    await home.create_session(SESSION)
    with refused("SESSION_EXISTS"):
        await imported(home, bundle)
    assert await home.keys() == []
    with refused("SESSION_EXISTS"):
        await imported(world.admin, bundle)


async def test_a_session_that_was_deleted_can_be_brought_back(world: World) -> None:
    await lived_in(world)
    bundle = await exported(world.admin)
    await world.admin.call("session.delete", session_id=SESSION)
    await imported(world.admin, bundle)
    assert await world.planner.value("goal") == "ship on Monday"
    assert (await world.admin.inspect())["history_intact"]


async def test_an_archived_session_arrives_archived(world: World, home: Caller, clock: FrozenClock) -> None:
    await lived_in(world)
    await world.planner.call("session.archive", session_id=SESSION)
    await moved(world, home)
    with refused("SESSION_ARCHIVED"):
        await home.write("goal", "x")
    clock.advance(hours=2)
    assert (await home.call("session.get", session_id=SESSION))["session"]["is_active"] is False


async def test_a_dry_run_reports_what_would_be_created_and_creates_nothing(world: World, home: Caller) -> None:
    await lived_in(world)
    bundle = await exported(world.admin)
    before = await world.last_event(world.other_tenant)
    told = await imported(home, bundle, dry_run=True)
    assert told.dry_run
    with refused("SESSION_NOT_FOUND"):
        await home.list()
    assert await world.last_event(world.other_tenant) == before
    assert not [row for row in await home.audit() if row["action"] == "bundle.import"]
    assert msgspec.structs.replace(told, dry_run=False) == await imported(home, bundle)


@pytest.mark.parametrize("form", ["ndjson", "json"])
async def test_a_bundle_that_was_altered_is_refused_with_the_place(world: World, home: Caller, form: str) -> None:
    await lived_in(world)
    bundle = await exported(world.admin, format=form)
    for place in range(0, len(bundle), len(bundle) // 40):
        altered = bundle[:place] + bytes([bundle[place] ^ 1]) + bundle[place + 1 :]
        with refused("BUNDLE_DAMAGED") as caught:
            await imported(home, altered)
        assert caught.value.context["line"] == bundle[:place].count(b"\n") + 1
    with refused("SESSION_NOT_FOUND"):
        await home.list()


async def test_another_bundle_than_expected_is_refused(world: World, home: Caller) -> None:
    first, second = await exported(world.admin), await exported(world.admin)
    with refused("BUNDLE_DAMAGED") as caught:
        await imported(home, second, expected_digest=seal_of(first))
    assert caught.value.context["digest"] == seal_of(second)
    await imported(home, second, expected_digest=seal_of(second))


async def test_text_is_imported_as_well(world: World, home: Caller) -> None:
    await lived_in(world)
    text = await world.admin.call("bundle.export", session_id=SESSION, format="json")
    told = await home.call("bundle.import", bundle=text["bundle"], expected_digest=text["digest"])
    assert told["session_id"] == SESSION
    assert await home.value("goal") == "ship on Monday"
    with refused("BUNDLE_DAMAGED"):
        await home.call("bundle.import", bundle="")


async def test_only_admins_import_and_it_is_audited(world: World) -> None:
    bundle = await exported(world.planner)
    with refused("PERMISSION_DENIED"):
        await imported(world.planner, bundle)
    with refused("PERMISSION_DENIED"):
        await world.review.call("bundle.import", bundle="x")
    await imported(world.stranger, bundle)
    (row,) = [row for row in await world.stranger.audit() if row["action"] == "bundle.import"]
    assert SESSION in row["target"]
    assert "bundle" not in row["detail"]
    event = (await world.stranger.events(session_id=SESSION))["events"][-1]
    assert event["type"] == "session.imported"
    assert event["data"]["digest"] == seal_of(bundle)


async def test_a_bundle_beyond_the_limit_is_refused(world: World) -> None:
    app = await world.another_app(import_limit_mb=1)
    with refused("CONTENT_TOO_LARGE") as caught:
        await imported(world.stranger.at(app), b"x" * (2**20 + 1))
    assert "WEFT_IMPORT_LIMIT_MB" in caught.value.hint


async def test_a_turn_arrives_as_records_for_admins(world: World, home: Caller) -> None:
    large = "word " * 600
    arrival = CallContext(world.planner.credential, correlation=Correlation(turn_id="t1"))
    raw = {"session_id": SESSION, "key": "goal", "value": large}
    await world.app.call(world.app.registry["board.write"], raw, arrival)
    bundle = await exported(world.planner, scope="turn", turn_id="t1")
    told = await imported(home, bundle)
    assert (told.session_id, told.records) == (None, len(records(bundle)))
    name = f"{BOARD}/goal/1.1"
    kept = await world.app.database.read(
        Scope(world.other_tenant), lambda tx: SqlRecordStore(tx).find("context_item", name)
    )
    assert kept is not None
    assert msgspec.json.decode(kept.body) == items(bundle)[name]
    content = await world.app.database.read(
        Scope(world.other_tenant), lambda tx: SqlRecordStore(tx).content(None, name)
    )
    assert content == large.encode()
    again = await imported(home, bundle)
    assert (again.records, again.skipped) == (0, told.records)


async def test_records_under_ids_that_say_something_else_here_are_refused_by_name(world: World, home: Caller) -> None:
    await lived_in(world)
    bundle = await exported(world.admin)
    envelope = entries(bundle)[0].bundle_id
    await world.sql("UPDATE records SET body = $1 WHERE tenant = $2 AND record_id = $3", b"{}", world.tenant, envelope)
    await world.admin.call("session.delete", session_id=SESSION)
    taken = {
        "schema_version": "0.1.0",
        "context_id": envelope,
        "scope": "custom",
        "lifecycle": "draft",
        "created_at": "2026-01-01T00:00:00Z",
    }
    await home.call("records.add", records=[taken])
    with refused("RECORD_EXISTS") as caught:
        await imported(home, bundle)
    assert envelope in caught.value.message
    with refused("SESSION_NOT_FOUND"):
        await home.list()


async def test_what_its_exporter_could_not_see_leaves_gaps_and_no_damage(world: World, home: Caller) -> None:
    await lived_in(world)
    await world.analysis.write("goal", "hidden for a while", readable_by=["subagent:*"])
    await world.admin.write("goal", "open again", readable_by=["*"])
    await world.analysis.say("to myself", visibility="private")
    await world.planner.say("last")
    await moved(world, home)
    assert await home.value("goal") == "open again"
    numbers = [version["version"] for version in (await home.history("goal"))["versions"]]
    assert numbers == [1, 2, 3, 5]
    assert [message["id"] for message in (await home.messages())["messages"]] == [1, 2, 3, 4, 6]
    assert (await home.call("history.verify", context_id=BOARD))["intact"]
    assert await home.say("next") == 7


async def test_a_value_that_did_not_come_along_is_never_replaced_by_an_older_one(world: World, home: Caller) -> None:
    await world.planner.write("goal", "outdated")
    await world.planner.write("goal", "removed from exports")
    await world.planner.write("other", "fine")
    item_id = f"{BOARD}/goal/1.2"
    redaction = Redaction(item_id, SESSION, "removed", "by hand", "private", "orchestrator", 0)
    await world.app.database.write(Scope(world.tenant), lambda tx: SqlRecordStore(tx).redact(redaction))
    bundle = await moved(world, home)
    assert await home.keys() == ["other"]
    assert (await home.inspect())["history_intact"]
    again = await exported(home)
    assert items(again)[item_id] == items(bundle)[item_id]
    assert texts(again)[f"{BOARD}/goal/1.1"] == "outdated"


@pytest.mark.req("AC-11")
async def test_what_a_policy_masked_is_on_the_board_as_it_left_and_known_for_it(world: World, home: Caller) -> None:
    await world.planner.write("contact", "mail dana@example.com about it")
    await world.planner.say("or ask dana@example.com again")
    await moved(world, home, policy="masked")
    assert await home.value("contact") == "mail [email 1] about it"
    assert await home.message_texts() == ["or ask [email 1] again"]
    again = items(await exported(home, policy="full"))
    assert {item["redaction_state"] for item in again.values()} == {"masked"}
    assert (await home.inspect())["history_intact"]


@pytest.mark.req("AC-11")
async def test_without_contents_a_session_opens_empty_and_its_items_are_known(world: World, home: Caller) -> None:
    await lived_in(world)
    bundle = await moved(world, home, policy="metadata")
    assert await home.keys() == []
    assert await home.message_texts() == []
    assert set(items(await exported(home, policy="full"))) == set(items(bundle))


async def test_a_summary_is_not_imported_as_the_original(world: World, home: Caller) -> None:
    await world.planner.write("goal", "the whole truth")
    item_id = f"{BOARD}/goal/1.1"
    what = {"state": "summarized", "reason": "too long", "replacement": "in short"}
    await world.planner.call("records.redact", item_id=item_id, **what)
    bundle = await moved(world, home)
    assert items(bundle)[item_id]["content"] == "in short"
    assert await home.keys() == []
    assert items(await exported(home))[item_id]["content"] == "in short"


async def test_values_that_retention_took_arrive_as_what_is_known_of_them(world: World, home: Caller) -> None:
    board = await world.planner.create_session("short", keep_versions=1)
    for number in range(20):
        await board.write("goal", f"value {number}")
    bundle = await exported(board)
    await imported(home, bundle)
    assert items(await exported(home.in_session("short"))) == items(bundle)
    assert await home.in_session("short").value("goal") == "value 19"
    assert (await home.call("history.verify", context_id="board:short"))["intact"]


async def test_branches_arrive_as_records(world: World, home: Caller) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.call("history.branch", context_id=BOARD, branch="try")
    await world.planner.write("goal", "wait" * 800, branch="try")
    bundle = await moved(world, home)
    assert texts(await exported(home)) == texts(bundle)
    assert await home.value("goal") == "ship"


async def test_a_handoff_opens_the_session_with_current_values(world: World, home: Caller) -> None:
    await lived_in(world)
    bundle = await moved(world, home, scope="handoff", recipient="closer")
    assert sorted(await home.keys()) == sorted(await world.admin.keys())
    assert await home.value("goal") == "ship on Monday"
    assert await home.message_texts() == await world.admin.message_texts()
    assert (await home.call("history.verify", context_id=BOARD))["intact"]
    assert (await home.history("goal"))["versions"][0]["version"] == 3
    ((_, assembly_id),) = records(bundle, "context_assembly")
    assert (await home.call("records.show", record_id=assembly_id))["record"]["target"] == "closer"
    await home.write("goal", "taken over")
    assert (await home.read("goal"))["version"] == 4


def remade(bundle: bytes, change: Callable[[Any], Any]) -> bytes:
    """Return a bundle in which somebody who knows the format has changed entries and sealed it anew."""
    file = io.BytesIO()
    writer = BundleWriter(file.write)
    for entry in entries(bundle):
        changed = change(entry)
        if changed is not None:
            writer.add(changed)
    writer.seal()
    return file.getvalue()


def with_item(change: Callable[[dict[str, Any]], None], name: str) -> Callable[[Any], Any]:
    def altered(entry: Any) -> Any:
        if not isinstance(entry, BundleRecord) or entry.type != "context_item":
            return entry
        record = msgspec.json.decode(entry.record)
        if record["item_id"] == name:
            change(record)
        return msgspec.structs.replace(entry, record=msgspec.Raw(msgspec.json.encode(record)))

    return altered


def natively(**what: Any) -> Callable[[dict[str, Any]], None]:
    return lambda record: record["metadata"]["weft"].update(what)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (f"{BOARD}/goal/1.2", natively(seq=2**50)),
        (f"{BOARD}/goal/1.3", natively(seq=1)),
        (f"message:{SESSION}/2", lambda record: record.update(item_id=f"message:{SESSION}/1")),
    ],
)
async def test_a_bundle_no_export_could_produce_is_refused_even_with_a_valid_digest(
    world: World, home: Caller, name: str, change: Callable[[dict[str, Any]], None]
) -> None:
    await lived_in(world)
    if name.endswith("/2"):
        both = change
        change = lambda record: (both(record), natively(message_id=1)(record))  # type: ignore[assignment,return-value]  # noqa: E731
    bundle = remade(await exported(world.admin), with_item(change, name))
    with refused("BUNDLE_DAMAGED") as caught:
        await imported(home, bundle)
    assert caught.value.context["line"] > 3
    with refused("SESSION_NOT_FOUND"):
        await home.list()


@pytest.mark.parametrize(
    "change",
    [
        natively(line="board:another"),
        natively(incarnation=0),
        natively(odd=1),
        natively(committed_at=2**62),
        natively(author="\x00"),
        natively(readable_by=["%"]),
        natively(reason="x" * 201),
        lambda record: record.pop("metadata"),
    ],
)
async def test_an_item_that_could_be_no_version_of_the_board_stays_a_record(
    world: World, home: Caller, change: Callable[[dict[str, Any]], None]
) -> None:
    await lived_in(world)
    name = f"{BOARD}/goal/1.3"
    bundle = remade(await exported(world.admin), with_item(change, name))
    await imported(home, bundle)
    assert items(await exported(home))[name] == items(bundle)[name]
    assert (await home.inspect())["history_intact"]


async def test_events_that_are_none_of_ours_stay_records(world: World, home: Caller) -> None:
    await world.planner.say("hello")

    def foreign(entry: Any) -> Any:
        if not isinstance(entry, BundleRecord) or entry.type != "context_event":
            return entry
        record = msgspec.json.decode(entry.record)
        if record["data"]["type"] == "message.added":
            record["subject"] = "not a number"
        return msgspec.structs.replace(entry, record=msgspec.Raw(msgspec.json.encode(record)))

    bundle = remade(await exported(world.admin), foreign)
    await imported(home, bundle)
    assert records(await exported(home)).items() >= records(bundle, "context_event").items()
    await home.call("records.list", session_id=SESSION, types=["context_event", "context_item"])


async def test_content_left_out_leaves_the_item(world: World, home: Caller) -> None:
    await lived_in(world)
    bundle = remade(await exported(world.admin), lambda entry: None if isinstance(entry, BundleContent) else entry)
    await imported(home, bundle)
    assert "closed" not in await home.keys()
    assert items(await exported(home)) == items(bundle)


def told_of(event_type: str, event_class: str, subject: str, **data: Any) -> BundleRecord:
    """Return an event that Weft did not tell of, as a line of a bundle."""
    record = {
        "schema_version": "0.1.0",
        "event_id": "urn:weft:elsewhere#900",
        "event_type": event_class,
        "source": "urn:weft:elsewhere",
        "time": "2026-01-01T00:00:00Z",
        "subject": subject,
        "session_id": SESSION,
        "data": {"type": event_type, "actor": "orchestrator", **data},
    }
    return BundleRecord(type="context_event", record=msgspec.Raw(msgspec.json.encode(record)))


PULLED = ("context.pulled", "context.injection.applied", "planner")
WRITTEN = ("board.written", "context.item.added", "goal")


@pytest.mark.parametrize(
    "event",
    [
        told_of(*PULLED, context_id="context:planner", version="x"),
        told_of(*PULLED, context_id="context:planner", version=2**60),
        told_of(*PULLED, context_id=["context:planner"], version=1),
        told_of(*PULLED, context_id=BOARD, version=1),
        told_of(*WRITTEN, incarnation=2**60, version=1),
        told_of(*WRITTEN, incarnation=1, version=1, commit=2**60),
        told_of(*WRITTEN, incarnation=1, version=1, branch="b"),
        told_of(*WRITTEN, incarnation=1, version=1, actor="a\x00b"),
        told_of("branch.written", "context.item.added", "goal", incarnation=1, version=1, branch="a\x00"),
        told_of("branch.written", "context.item.added", "goal", incarnation=1, version=1, branch=[1]),
        told_of("memory.written", "context.item.added", "note", incarnation=1, version=1),
        told_of("agent.defined", "context.item.updated", "planner", version=2**60),
        told_of("context.pushed", "context.item.updated", "planner", context_id="context:planner", version=1),
        told_of("history.rolled_back", "context.surface.updated", "x", context_id="context:planner", version=2**60),
        told_of("session.deleted", "context.surface.updated", SESSION),
        told_of("message.added", "context.item.added", "9" * 30),
        told_of("message.added", "context.item.added", "\u00b2"),
    ],
    ids=lambda entry: msgspec.json.decode(entry.record)["data"]["type"],
)
async def test_an_impossible_event_stays_a_record_without_effect(
    world: World, home: Caller, event: BundleRecord
) -> None:
    await world.planner.write("goal", "ship")
    file = io.BytesIO()
    writer = BundleWriter(file.write)
    for entry in (*entries(await exported(world.admin)), event):
        writer.add(entry)
    writer.seal()
    await imported(home, file.getvalue())
    await home.create_session("other")
    for which in ({}, {"session_id": SESSION}, {"types": ["context_event", "context_item", "context_assembly"]}):
        await home.call("records.list", **which)
    event_id = "urn:weft:elsewhere#900"
    assert records(await exported(home))["context_event", event_id] == msgspec.json.decode(event.record)
    told = (await home.events(session_id=SESSION, types=[msgspec.json.decode(event.record)["data"]["type"]]))["events"]
    assert "2026-01-01T00:00:00Z" not in {each["at"] for each in told}


@pytest.mark.req("AC-11")
async def test_unknown_fields_of_an_event_are_masked(world: World, home: Caller) -> None:
    await world.planner.write("goal", "ship")
    odd = {"item_id": ["x"], "assembly_id": {"a": 1}, "note": "password=hunter2hunter2xyz", "deep": [{"x": 2**60}]}
    file = io.BytesIO()
    writer = BundleWriter(file.write)
    event = told_of("session.archived", "context.surface.updated", SESSION, **odd)
    for entry in (*entries(await exported(world.admin)), event):
        writer.add(entry)
    writer.seal()
    await imported(home, file.getvalue())
    await home.call("records.list", types=["context_event", "context_surface"])
    bundle, bare = await exported(home), await exported(home, policy="metadata")
    assert b"hunter2" not in bundle
    name = ("context_event", "urn:weft:elsewhere#900")
    assert records(bundle)[name]["data"]["note"] == "password=[password 1]"
    assert "note" not in records(bare)[name]["data"]


async def test_an_empty_audience_is_not_everyone(world: World, home: Caller) -> None:
    await world.planner.write("pay", "closed words", readable_by=["orchestrator"])
    name = f"{BOARD}/pay/1.1"
    await imported(home, remade(await exported(world.planner), with_item(natively(readable_by=[]), name)))
    assert await home.keys() == []
    with refused("RECORD_NOT_FOUND"):
        await home.call("records.show", record_id=name)


@pytest.mark.req("AC-11")
async def test_what_a_policy_masked_is_shown_as_it_came_and_not_masked_any_more(world: World, home: Caller) -> None:
    key, long = "AKIAIOSFODNN7EXAMPLE", "word " * 405
    await world.planner.write("to", f"to bob@example.com key {key}", reason=f"with {key}", step=key)
    await world.planner.write("long", f"{long}key {key}")
    await world.planner.write("short", f"{'w' * 2_020} key {key}")
    await world.planner.say(f"mail bob@example.com {key}", metadata={"key": key}, message_type=key)
    bundle = await moved(world, home)
    again = await exported(home)
    assert items(again) == items(bundle)
    assert texts(again) == texts(bundle)
    name = f"{BOARD}/to/1.1"
    assert texts(again)[name] == "to bob@example.com key [aws key 1]"
    assert [ref["id"] for ref in items(again)[name]["policy_refs"]] == ["standard"]
    shown = await home.call("records.show", record_id=name, with_content=True)
    assert shown["content"] == "to bob@example.com key [aws key 1]"


async def test_a_snapshot_arrives_even_if_what_it_is_of_did_not(world: World, home: Caller) -> None:
    await lived_in(world)
    await moved(world, home, policy="metadata")
    assert await home.snapshots() == await world.admin.snapshots()
    assert (await home.inspect())["history_intact"]


async def withheld(world: World, *item_ids: str) -> None:
    """Have items leave without what they say."""
    for item_id in item_ids:
        await world.admin.call("records.redact", item_id=item_id, state="removed", reason="private")


async def test_an_item_without_content_keeps_its_id(world: World, home: Caller) -> None:
    await world.planner.write("goal", "outdated")
    await world.planner.write("goal", "hidden")
    await world.planner.say("said")
    await world.planner.say("hidden as well")
    await withheld(world, f"{BOARD}/goal/1.2", f"message:{SESSION}/2")
    bundle = await moved(world, home)
    # It holds as well for whoever gets it from there.
    for _ in range(2):
        assert await home.keys() == []
        assert await home.say("next") == 3
        await home.write("goal", "mine")
        again = await exported(home)
        names = [name for kind, name in _all_records(again) if kind == "context_item"]
        assert len(names) == len(set(names))
        assert texts(again)[f"{BOARD}/goal/2.1"] == "mine"
        assert items(again).items() >= items(bundle).items()
        assert (await home.inspect())["history_intact"]
        await home.call("session.delete", session_id=SESSION)
        await imported(home, _without(again, f"{BOARD}/goal/2.1", f"message:{SESSION}/3"))


def _all_records(bundle: bytes) -> list[tuple[str, str]]:
    told = [(each.type, msgspec.json.decode(each.record)) for each in entries(bundle) if isinstance(each, BundleRecord)]
    return [(kind, record.get("item_id", "")) for kind, record in told]


def _without(bundle: bytes, *names: str) -> bytes:
    def left(entry: Any) -> Any:
        is_meant = isinstance(entry, BundleRecord) and entry.type == "context_item"
        return None if is_meant and msgspec.json.decode(entry.record)["item_id"] in names else entry

    return remade(bundle, left)


async def test_a_snapshot_brings_nothing_older_back_than_it_named(world: World, home: Caller) -> None:
    await world.planner.write("goal", "outdated")
    await world.planner.write("goal", "hidden")
    await world.planner.snapshot("mark")
    await world.planner.write("goal", "newest")
    await withheld(world, f"{BOARD}/goal/1.2")
    await moved(world, home)
    assert await home.value("goal") == "newest"
    assert (await home.read("goal"))["version"] == 3
    assert await home.read_snapshot("mark") == {}
    assert (await home.inspect())["history_intact"]


async def test_two_items_with_one_id_are_refused(world: World, home: Caller) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.say("hello")
    await world.planner.say("bye")
    await withheld(world, f"message:{SESSION}/2")
    bundle = await exported(world.admin)
    stored = StoredInfo("orchestrator", entries(bundle)[0].created_at, entries(bundle)[0].created_at)

    def twice(name: str, *, kept: bool) -> bytes:
        file = io.BytesIO()
        writer = BundleWriter(file.write)
        for entry in entries(bundle):
            writer.add(entry)
            if isinstance(entry, BundleRecord) and f'"{name}"'.encode() in bytes(entry.record):
                writer.add(msgspec.structs.replace(entry, stored=stored) if kept else entry)
        writer.seal()
        return file.getvalue()

    for name in (f"{BOARD}/goal/1.1", f"message:{SESSION}/1", f"message:{SESSION}/2"):
        for kept in (False, True):
            for dry_run in (True, False):
                with refused("BUNDLE_DAMAGED"):
                    await imported(home, twice(name, kept=kept), dry_run=dry_run)
    await imported(home, bundle)


async def test_an_import_takes_as_many_statements_for_more_versions_messages_and_events(
    world: World, home: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live(number: int) -> None:
        await world.planner.write("goal", f"value {number}")
        await world.planner.say(f"message {number}")

    counts = []
    for more in (1, 30):
        for number in range(more):
            await live(number)
        bundle = await exported(world.admin)
        statements = await statements_of(partial(imported, home, bundle), world.app.database, monkeypatch)
        counts.append(len(statements))
        told = [place for place, statement in enumerate(statements) if statement.startswith("UPDATE tenants")]
        made = [place for place, statement in enumerate(statements) if statement.startswith("INSERT INTO messages")]
        assert max(made) < min(told), "events take their numbers last, as others wait for those"
        await home.call("session.delete", session_id=SESSION)
    assert counts[0] == counts[1]


async def test_a_dry_run_only_reads(world: World, home: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    await lived_in(world)
    bundle = await exported(world.admin)
    turn = await exported(world.admin, scope="turn", turn_id="t1")
    for each in (bundle, turn):
        assert not await statements_of(partial(imported, home, each, dry_run=True), world.app.database, monkeypatch)
    await imported(home, bundle)
    assert (await imported(home, bundle, dry_run=True)).unchanged
    with refused("SESSION_EXISTS"):
        await imported(home, await exported(world.admin), dry_run=True)


async def test_a_bundle_is_recognised_however_many_events_its_session_has(world: World, home: Caller) -> None:
    event = NewEvent(type="context.exported", session_id=SESSION, subject=SESSION, actor="orchestrator")

    async def tell(transaction: Transaction) -> None:
        await SqlOutbox(transaction, world.clock).publish(*[event] * 1_001)

    await world.app.database.write(Scope(world.tenant), tell)
    bundle = await moved(world, home)
    assert (await imported(home, bundle)).unchanged


@pytest.mark.parametrize("changed", ["created_at", "updated_at"])
async def test_a_time_that_utc_does_not_know_is_refused(world: World, home: Caller, changed: str) -> None:
    odd = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))

    def altered(entry: Any) -> Any:
        return msgspec.structs.replace(entry, **{changed: odd}) if isinstance(entry, BundleSession) else entry

    with refused("INVALID_INPUT_FORMAT"):
        await imported(home, remade(await exported(world.admin), altered))
    with refused("SESSION_NOT_FOUND"):
        await home.call("session.get", session_id=SESSION)
