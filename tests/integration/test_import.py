"""Imports restore what was exported under its ids; altered bundles are refused."""

from __future__ import annotations

import io
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.bundles import entries, exported, imported, items, records, resealed, seal_of, texts, without_trust
from support.statement_log import statements_of
from support.world import SESSION, Caller, refused
from weftline.app.dispatch import CallContext
from weftline.exchange.transfer.bundle_format import (
    BundleContent,
    BundleRecord,
    BundleSession,
    BundleWriter,
    StoredInfo,
)
from weftline.kernel.correlation import Correlation
from weftline.kernel.events import NewEvent
from weftline.kernel.outbox import Outbox
from weftline.records.schemas import Redaction
from weftline.records.sql import RecordStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.world import World
    from weftline.kernel.transaction import Transaction
    from weftline.testing.clock import FrozenClock

pytestmark = pytest.mark.req("AC-14")

BOARD = f"board:{SESSION}"


@pytest.fixture
def importer(world: World) -> Caller:
    """Return the admin of the tenant that imports the bundle."""
    return world.stranger


async def fill_session(world: World) -> None:
    planner = world.planner
    await planner.write("goal", "ship", step="plan")
    await planner.write("goal", "ship on Friday", reason="agreed", step="build")
    await planner.write("closed", "between us", readable_by=["human:*", "orchestrator"], writable_by=["orchestrator"])
    await planner.write("brief", "soon gone", ttl_seconds=3_600)
    await planner.write("old", "x" * 3_000)
    await planner.delete("old", reason="done")
    await planner.snapshot("mark")
    await planner.write("goal", "ship on Monday")
    await planner.say("hello, invoice 42", metadata={"a": [1, None, 2.5]}, recipient_id="analysis", visibility="public")
    await planner.say("an answer", parent_message_id=1, message_type="result", category="CONTEXT")
    await world.admin.say("between admins", visibility="admin_only")
    await world.admin.say("to myself", visibility="private")
    await planner.call("missing.report", session_id=SESSION, question="When?", scope="task", severity="high")


async def transferred(world: World, importer: Caller, **what: Any) -> bytes:
    """Export the session, import it into another tenant and return the bundle."""
    bundle = await exported(world.admin, **what)
    await imported(importer, bundle)
    return bundle


async def test_a_session_is_restored_with_history_snapshots_and_settings(world: World, importer: Caller) -> None:
    await fill_session(world)
    result = await imported(importer, await exported(world.admin))
    assert (result.session_id, result.versions, result.messages, result.snapshots) == (SESSION, 7, 4, 2)
    assert await importer.value("goal") == "ship on Monday"
    assert await importer.keys() == await world.admin.keys()
    assert (await importer.read("goal"))["version"] == 3
    assert (await importer.history("goal"))["versions"] == (await world.admin.history("goal"))["versions"]
    assert await importer.snapshots() == await world.admin.snapshots()
    assert await importer.read_snapshot("mark") == await world.admin.read_snapshot("mark")
    assert await importer.size() == await world.admin.size()
    source, target = [await caller.call("session.get", session_id=SESSION) for caller in (world.admin, importer)]
    for name in ("purpose", "config", "created_at", "created_by", "metadata", "members"):
        assert source["session"][name] == target["session"][name]


@pytest.mark.req("SC-07")
async def test_the_imported_history_is_complete_and_continues(world: World, importer: Caller) -> None:
    await fill_session(world)
    await transferred(world, importer)
    verified = await importer.call("history.verify", context_id=BOARD, deep=True)
    assert verified["intact"], verified
    logs = [await caller.call("history.log", context_id=BOARD, limit=100) for caller in (world.admin, importer)]
    assert logs[0] == logs[1]
    await importer.write("goal", "ship today")
    assert (await importer.read("goal"))["version"] == 4
    assert (await importer.write("old", "lives again"))["version"] == 2
    assert (await importer.history("old"))["incarnation"] == 2
    await importer.restore("mark")
    assert await importer.value("goal") == "ship on Friday"
    assert (await importer.inspect())["history_intact"]


async def test_messages_are_readable_counted_and_searchable_after_import(world: World, importer: Caller) -> None:
    await fill_session(world)
    await transferred(world, importer)
    before, after = [(await caller.messages())["messages"] for caller in (world.admin, importer)]
    assert [message["content"] for message in after] == [message["content"] for message in before]
    assert after[0]["metadata"] == {"a": [1, None, 2.5]}
    assert after[1]["parent_message_id"] == 1
    assert await importer.found("invoice") == ["hello, invoice 42"]
    assert await importer.say("the next one") == 5


async def test_ttls_continue_after_import(world: World, importer: Caller, clock: FrozenClock) -> None:
    await fill_session(world)
    await transferred(world, importer)
    assert "brief" in await importer.keys()
    clock.advance(seconds=3_601)
    assert "brief" not in await importer.keys()
    await importer.write("next", "x")
    ended = [event["subject"] for event in (await importer.events())["events"] if event["type"] == "board.expired"]
    assert ended == ["brief"]


async def test_acls_are_kept_by_import(world: World, importer: Caller) -> None:
    await fill_session(world)
    await transferred(world, importer)
    agent = await importer.create_agent("newcomer", agent_type="newcomer")
    sub = await importer.create_agent("below", parent_id="newcomer")
    await importer.admit("tree:newcomer")
    assert "closed" in await agent.keys()
    assert "closed" not in await sub.keys()
    assert await sub.message_texts() == ["hello, invoice 42", "an answer"]


async def test_events_keep_their_times_ids_and_correlation(world: World, importer: Caller) -> None:
    context = CallContext(
        world.planner.credential, correlation=Correlation(turn_id="t1", trace_id="a" * 32, run_id="r1")
    )
    raw = {"session_id": SESSION, "key": "goal", "value": "ship"}
    await world.app.call(world.app.registry["board.write"], raw, context)
    bundle = await transferred(world, importer)
    again = await exported(importer)
    (event,) = [e for e in records(bundle, "context_event").values() if e["data"]["type"] == "board.written"]
    assert records(again)["context_event", event["event_id"]] == event
    assert (event["turn_id"], event["run_id"]) == ("t1", "r1")
    assert set(items(await exported(importer, scope="turn", turn_id="t1"))) == {f"{BOARD}/goal/1.1"}


async def test_records_are_imported_with_their_events(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = await transferred(world, importer)
    ((_, missing_id),) = records(bundle, "missing_context")
    shown = await importer.call("records.show", record_id=missing_id)
    assert shown["record"] == records(bundle)["missing_context", missing_id]
    listed = await importer.call("records.list", session_id=SESSION, types=["missing_context"])
    assert [entry["id"] for entry in listed["records"]] == [missing_id]
    open_ones = await importer.call("missing.list", session_id=SESSION)
    assert len(open_ones["missing"]) == 1


async def test_importing_a_bundle_twice_changes_nothing(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = await transferred(world, importer)
    before = await world.last_event(world.other_tenant)
    result = await imported(importer, bundle)
    assert result.unchanged
    assert await world.last_event(world.other_tenant) == before
    await importer.write("goal", "went on")
    assert (await imported(importer, bundle)).unchanged


async def test_an_existing_session_is_not_replaced(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    await importer.create_session(SESSION)
    with refused("SESSION_EXISTS"):
        await imported(importer, bundle)
    assert await importer.keys() == []
    with refused("SESSION_EXISTS"):
        await imported(world.admin, bundle)


async def test_a_deleted_session_can_be_imported_again(world: World) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    await imported(world.admin, bundle)
    assert await world.planner.value("goal") == "ship on Monday"
    assert (await world.admin.inspect())["history_intact"]


@pytest.mark.req("SC-07")
@pytest.mark.both_databases
async def test_an_import_under_the_name_of_a_deleted_session_repeats_no_version(world: World) -> None:
    await world.planner.write("goal", "mail dana@example.com")
    await world.analysis.write("plan", "of the analysis", readable_by=["human:*", "orchestrator", "principal:analysis"])
    await world.planner.write("gone", "a")
    await world.planner.delete("gone")
    await world.admin.call("records.redact", item_id=f"{BOARD}/goal/1.1", state="masked", reason="pii")
    bundle = await exported(world.admin)
    read = [(await world.planner.write("goal", f"later {number}"))["version"] for number in range(3)]
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    await imported(world.admin, bundle)
    shown = {key: await world.planner.read(key) for key in ("goal", "plan")}
    assert {entry["version"] for entry in shown.values()} == {read[-1] + 1}
    assert shown["plan"]["written_by"] == "subagent:analysis"
    assert [each["version"] for each in (await world.planner.history("plan"))["versions"]] == [1, read[-1] + 1]
    for number in (1, *read):
        with refused("VERSION_CONFLICT"):
            await world.planner.write("goal", "unseen", if_version=number)
    assert (await world.planner.write("gone", "again"))["version"] > read[-1]
    with refused("KEY_NOT_FOUND"):
        await world.review.read("plan")
    assert items(await exported(world.admin))[f"{BOARD}/goal/1.{read[-1] + 1}"]["redaction_state"] == "masked"
    assert (await world.admin.inspect())["history_intact"]
    assert (await imported(world.admin, bundle)).unchanged


async def test_an_archived_session_is_imported_as_archived(world: World, importer: Caller, clock: FrozenClock) -> None:
    await fill_session(world)
    await world.planner.call("session.archive", session_id=SESSION)
    await transferred(world, importer)
    with refused("SESSION_ARCHIVED"):
        await importer.write("goal", "x")
    clock.advance(hours=2)
    assert (await importer.call("session.get", session_id=SESSION))["session"]["is_active"] is False


async def test_a_dry_run_reports_what_would_be_created_and_creates_nothing(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    before = await world.last_event(world.other_tenant)
    result = await imported(importer, bundle, dry_run=True)
    assert result.dry_run
    with refused("SESSION_NOT_FOUND"):
        await importer.list()
    assert await world.last_event(world.other_tenant) == before
    assert not [row for row in await importer.audit() if row["action"] == "bundle.import"]
    assert msgspec.structs.replace(result, dry_run=False) == await imported(importer, bundle)


@pytest.mark.parametrize("form", ["ndjson", "json"])
async def test_an_altered_bundle_is_refused_with_the_line(world: World, importer: Caller, form: str) -> None:
    await fill_session(world)
    bundle = await exported(world.admin, format=form)
    for place in range(0, len(bundle), len(bundle) // 40):
        altered = bundle[:place] + bytes([bundle[place] ^ 1]) + bundle[place + 1 :]
        with refused("BUNDLE_DAMAGED") as caught:
            await imported(importer, altered)
        assert caught.value.context["line"] == bundle[:place].count(b"\n") + 1
    with refused("SESSION_NOT_FOUND"):
        await importer.list()


async def test_a_bundle_with_an_unexpected_digest_is_refused(world: World, importer: Caller) -> None:
    first, second = await exported(world.admin), await exported(world.admin)
    with refused("BUNDLE_DAMAGED") as caught:
        await imported(importer, second, expected_digest=seal_of(first))
    assert caught.value.context["digest"] == seal_of(second)
    await imported(importer, second, expected_digest=seal_of(second))


async def test_a_bundle_is_imported_as_text(world: World, importer: Caller) -> None:
    await fill_session(world)
    text = await world.admin.call("bundle.export", session_id=SESSION, format="json")
    result = await importer.call("bundle.import", bundle=text["bundle"], expected_digest=text["digest"])
    assert result["session_id"] == SESSION
    assert await importer.value("goal") == "ship on Monday"
    with refused("BUNDLE_DAMAGED"):
        await importer.call("bundle.import", bundle="")


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
    assert "WEFTLINE_IMPORT_LIMIT_MB" in caught.value.hint


async def test_a_turn_is_imported_as_records_for_admins(world: World, importer: Caller) -> None:
    large = "word " * 600
    context = CallContext(world.planner.credential, correlation=Correlation(turn_id="t1"))
    raw = {"session_id": SESSION, "key": "goal", "value": large}
    await world.app.call(world.app.registry["board.write"], raw, context)
    bundle = await exported(world.planner, scope="turn", turn_id="t1")
    result = await imported(importer, bundle)
    assert (result.session_id, result.records) == (None, len(records(bundle)))
    name = f"{BOARD}/goal/1.1"
    kept = await world.app.database.read(
        Scope(world.other_tenant), lambda tx: RecordStore(tx).find("context_item", name)
    )
    assert kept is not None
    assert msgspec.json.decode(kept.body) == items(bundle)[name]
    content = await world.app.database.read(Scope(world.other_tenant), lambda tx: RecordStore(tx).content(None, name))
    assert content == large.encode()
    again = await imported(importer, bundle)
    assert (again.records, again.skipped) == (0, result.records)


async def test_a_record_id_in_use_refuses_the_import(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    envelope = entries(bundle)[0].bundle_id
    await world.sql("UPDATE records SET body = $1 WHERE tenant = $2 AND record_id = $3", b"{}", world.tenant, envelope)
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    taken = {
        "schema_version": "0.1.0",
        "context_id": envelope,
        "scope": "custom",
        "lifecycle": "draft",
        "created_at": "2026-01-01T00:00:00Z",
    }
    await importer.call("records.add", records=[taken])
    with refused("RECORD_EXISTS") as caught:
        await imported(importer, bundle)
    assert envelope in caught.value.message
    with refused("SESSION_NOT_FOUND"):
        await importer.list()


async def test_versions_hidden_from_the_exporter_leave_gaps_but_history_verifies(
    world: World, importer: Caller
) -> None:
    await fill_session(world)
    await world.analysis.write("goal", "hidden for a while", readable_by=["subagent:*"])
    await world.admin.write("goal", "open again", readable_by=["*"])
    await world.analysis.say("to myself", visibility="private")
    await world.planner.say("last")
    await transferred(world, importer)
    assert await importer.value("goal") == "open again"
    numbers = [version["version"] for version in (await importer.history("goal"))["versions"]]
    assert numbers == [1, 2, 3, 5]
    assert [message["id"] for message in (await importer.messages())["messages"]] == [1, 2, 3, 4, 6]
    assert (await importer.call("history.verify", context_id=BOARD))["intact"]
    assert await importer.say("next") == 7


async def test_a_missing_value_is_not_replaced_by_an_older_version(world: World, importer: Caller) -> None:
    await world.planner.write("goal", "outdated")
    await world.planner.write("goal", "removed from exports")
    await world.planner.write("other", "fine")
    item_id = f"{BOARD}/goal/1.2"
    redaction = Redaction(item_id, SESSION, "removed", "by hand", "private", "orchestrator", 0)
    await world.app.database.write(Scope(world.tenant), lambda tx: RecordStore(tx).redact(redaction))
    bundle = await transferred(world, importer)
    assert await importer.keys() == ["other"]
    assert (await importer.inspect())["history_intact"]
    again = await exported(importer)
    assert items(again)[item_id] == items(bundle)[item_id]
    assert texts(again)[f"{BOARD}/goal/1.1"] == "outdated"


@pytest.mark.req("AC-11")
async def test_masked_values_are_imported_masked_and_flagged(world: World, importer: Caller) -> None:
    await world.planner.write("contact", "mail dana@example.com about it")
    await world.planner.say("or ask dana@example.com again")
    await transferred(world, importer, policy="masked")
    assert await importer.value("contact") == "mail [email 1] about it"
    assert await importer.message_texts() == ["or ask [email 1] again"]
    again = items(await exported(importer, policy="full"))
    assert {item["redaction_state"] for item in again.values()} == {"masked"}
    assert (await importer.inspect())["history_intact"]


@pytest.mark.req("AC-11")
async def test_a_bundle_without_content_imports_an_empty_session_with_its_items(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = await transferred(world, importer, policy="metadata")
    assert await importer.keys() == []
    assert await importer.message_texts() == []
    assert set(items(await exported(importer, policy="full"))) == set(items(bundle))


async def test_a_summary_is_not_imported_as_the_original(world: World, importer: Caller) -> None:
    await world.planner.write("goal", "the whole truth")
    item_id = f"{BOARD}/goal/1.1"
    what = {"state": "summarized", "reason": "too long", "replacement": "in short"}
    await world.planner.call("records.redact", item_id=item_id, **what)
    bundle = await transferred(world, importer)
    assert items(bundle)[item_id]["content"] == "in short"
    assert await importer.keys() == []
    assert items(await exported(importer))[item_id]["content"] == "in short"


async def test_pruned_values_are_imported_without_content(world: World, importer: Caller) -> None:
    board = await world.planner.create_session("short", keep_versions=1)
    for number in range(20):
        await board.write("goal", f"value {number}")
    bundle = await exported(board)
    await imported(importer, bundle)
    assert items(await exported(importer.in_session("short"))) == items(bundle)
    assert await importer.in_session("short").value("goal") == "value 19"
    assert (await importer.call("history.verify", context_id="board:short"))["intact"]


async def test_branches_are_imported_as_records(world: World, importer: Caller) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.call("history.branch", context_id=BOARD, branch="try")
    await world.planner.write("goal", "wait" * 800, branch="try")
    bundle = await transferred(world, importer)
    assert texts(await exported(importer)) == texts(bundle)
    assert await importer.value("goal") == "ship"


async def test_a_handoff_is_imported_with_current_values(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = await transferred(world, importer, scope="handoff", recipient="closer")
    assert sorted(await importer.keys()) == sorted(await world.admin.keys())
    assert await importer.value("goal") == "ship on Monday"
    assert await importer.message_texts() == await world.admin.message_texts()
    assert (await importer.call("history.verify", context_id=BOARD))["intact"]
    assert (await importer.history("goal"))["versions"][0]["version"] == 3
    ((_, assembly_id),) = records(bundle, "context_assembly")
    assert (await importer.call("records.show", record_id=assembly_id))["record"]["target"] == "closer"
    await importer.write("goal", "taken over")
    assert (await importer.read("goal"))["version"] == 4


def with_item(change: Callable[[dict[str, Any]], None], name: str) -> Callable[[Any], Any]:
    def altered(entry: Any) -> Any:
        if not isinstance(entry, BundleRecord) or entry.type != "context_item":
            return entry
        record = msgspec.json.decode(entry.record)
        if record["item_id"] == name:
            change(record)
        return msgspec.structs.replace(entry, record=msgspec.Raw(msgspec.json.encode(record)))

    return altered


def with_weftline_metadata(**what: Any) -> Callable[[dict[str, Any]], None]:
    return lambda record: record["metadata"]["weftline"].update(what)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (f"{BOARD}/goal/1.2", with_weftline_metadata(seq=2**50)),
        (f"{BOARD}/goal/1.3", with_weftline_metadata(seq=1)),
        (f"message:{SESSION}/2", lambda record: record.update(item_id=f"message:{SESSION}/1")),
    ],
)
async def test_a_bundle_no_export_could_produce_is_refused_even_with_a_valid_digest(
    world: World, importer: Caller, name: str, change: Callable[[dict[str, Any]], None]
) -> None:
    await fill_session(world)
    if name.endswith("/2"):
        both = change
        change = lambda record: (both(record), with_weftline_metadata(message_id=1)(record))  # type: ignore[assignment,return-value]  # noqa: E731
    bundle = resealed(await exported(world.admin), with_item(change, name))
    with refused("BUNDLE_DAMAGED") as caught:
        await imported(importer, bundle)
    assert caught.value.context["line"] > 3
    with refused("SESSION_NOT_FOUND"):
        await importer.list()


@pytest.mark.parametrize(
    "change",
    [
        with_weftline_metadata(line="board:another"),
        with_weftline_metadata(incarnation=0),
        with_weftline_metadata(odd=1),
        with_weftline_metadata(committed_at=2**62),
        with_weftline_metadata(author="\x00"),
        with_weftline_metadata(readable_by=["%"]),
        with_weftline_metadata(reason="x" * 201),
        lambda record: record.pop("metadata"),
    ],
)
async def test_an_item_that_is_no_valid_board_version_is_imported_as_a_record(
    world: World, importer: Caller, change: Callable[[dict[str, Any]], None]
) -> None:
    await fill_session(world)
    name = f"{BOARD}/goal/1.3"
    bundle = resealed(await exported(world.admin), with_item(change, name))
    await imported(importer, bundle)
    assert items(await exported(importer))[name] == items(bundle)[name]
    assert (await importer.inspect())["history_intact"]


async def test_foreign_events_are_imported_as_records(world: World, importer: Caller) -> None:
    await world.planner.say("hello")

    def foreign(entry: Any) -> Any:
        if not isinstance(entry, BundleRecord) or entry.type != "context_event":
            return entry
        record = msgspec.json.decode(entry.record)
        if record["data"]["type"] == "message.added":
            record["subject"] = "not a number"
        return msgspec.structs.replace(entry, record=msgspec.Raw(msgspec.json.encode(record)))

    bundle = resealed(await exported(world.admin), foreign)
    await imported(importer, bundle)
    assert records(await exported(importer)).items() >= records(bundle, "context_event").items()
    await importer.call("records.list", session_id=SESSION, types=["context_event", "context_item"])


async def test_an_item_with_omitted_content_is_imported(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = resealed(await exported(world.admin), lambda entry: None if isinstance(entry, BundleContent) else entry)
    await imported(importer, bundle)
    assert "closed" not in await importer.keys()
    assert items(await exported(importer)) == items(bundle)


def forged_event(event_type: str, event_class: str, subject: str, **data: Any) -> BundleRecord:
    """Return a bundle line with a forged event."""
    record = {
        "schema_version": "0.1.0",
        "event_id": "urn:weftline:other#900",
        "event_type": event_class,
        "source": "urn:weftline:other",
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
        forged_event(*PULLED, context_id="context:planner", version="x"),
        forged_event(*PULLED, context_id="context:planner", version=2**60),
        forged_event(*PULLED, context_id=["context:planner"], version=1),
        forged_event(*PULLED, context_id=BOARD, version=1),
        forged_event(*WRITTEN, incarnation=2**60, version=1),
        forged_event(*WRITTEN, incarnation=1, version=1, commit=2**60),
        forged_event(*WRITTEN, incarnation=1, version=1, branch="b"),
        forged_event(*WRITTEN, incarnation=1, version=1, actor="a\x00b"),
        forged_event("branch.written", "context.item.added", "goal", incarnation=1, version=1, branch="a\x00"),
        forged_event("branch.written", "context.item.added", "goal", incarnation=1, version=1, branch=[1]),
        forged_event("memory.written", "context.item.added", "note", incarnation=1, version=1),
        forged_event("agent.defined", "context.item.updated", "planner", version=2**60),
        forged_event("context.pushed", "context.item.updated", "planner", context_id="context:planner", version=1),
        forged_event(
            "history.rolled_back", "context.surface.updated", "x", context_id="context:planner", version=2**60
        ),
        forged_event("session.deleted", "context.surface.updated", SESSION),
        forged_event("message.added", "context.item.added", "9" * 30),
        forged_event("message.added", "context.item.added", "\u00b2"),
    ],
    ids=lambda entry: msgspec.json.decode(entry.record)["data"]["type"],
)
async def test_an_impossible_event_is_imported_as_a_record_without_effect(
    world: World, importer: Caller, event: BundleRecord
) -> None:
    await world.planner.write("goal", "ship")
    file = io.BytesIO()
    writer = BundleWriter(file.write)
    for entry in (*entries(await exported(world.admin)), event):
        writer.add(entry)
    writer.seal()
    await imported(importer, file.getvalue())
    await importer.create_session("other")
    for which in ({}, {"session_id": SESSION}, {"types": ["context_event", "context_item", "context_assembly"]}):
        await importer.call("records.list", **which)
    event_id = "urn:weftline:other#900"
    assert records(await exported(importer))["context_event", event_id] == msgspec.json.decode(event.record)
    events = (await importer.events(session_id=SESSION, types=[msgspec.json.decode(event.record)["data"]["type"]]))[
        "events"
    ]
    assert "2026-01-01T00:00:00Z" not in {each["at"] for each in events}


@pytest.mark.req("AC-11")
async def test_unknown_fields_of_an_event_are_masked(world: World, importer: Caller) -> None:
    await world.planner.write("goal", "ship")
    odd = {"item_id": ["x"], "assembly_id": {"a": 1}, "note": "password=hunter2hunter2xyz", "deep": [{"x": 2**60}]}
    file = io.BytesIO()
    writer = BundleWriter(file.write)
    event = forged_event("session.archived", "context.surface.updated", SESSION, **odd)
    for entry in (*entries(await exported(world.admin)), event):
        writer.add(entry)
    writer.seal()
    await imported(importer, file.getvalue())
    await importer.call("records.list", types=["context_event", "context_surface"])
    bundle, bare = await exported(importer), await exported(importer, policy="metadata")
    assert b"hunter2" not in bundle
    name = ("context_event", "urn:weftline:other#900")
    assert records(bundle)[name]["data"]["note"] == "password=[password 1]"
    assert "note" not in records(bare)[name]["data"]


async def test_an_empty_read_acl_hides_the_item(world: World, importer: Caller) -> None:
    await world.planner.write("pay", "closed words", readable_by=["orchestrator"])
    name = f"{BOARD}/pay/1.1"
    await imported(
        importer, resealed(await exported(world.planner), with_item(with_weftline_metadata(readable_by=[]), name))
    )
    assert await importer.keys() == []
    with refused("RECORD_NOT_FOUND"):
        await importer.call("records.show", record_id=name)


@pytest.mark.req("AC-11")
async def test_masked_content_is_not_masked_again_on_export(world: World, importer: Caller) -> None:
    key, long = "AKIAIOSFODNN7EXAMPLE", "word " * 405
    await world.planner.write("to", f"to bob@example.com key {key}", reason=f"with {key}", step=key)
    await world.planner.write("long", f"{long}key {key}")
    await world.planner.write("short", f"{'w' * 2_020} key {key}")
    await world.planner.say(f"mail bob@example.com {key}", metadata={"key": key}, message_type=key)
    bundle = await transferred(world, importer)
    again = await exported(importer)
    assert {name: without_trust(item) for name, item in items(again).items()} == {
        name: without_trust(item) for name, item in items(bundle).items()
    }
    assert texts(again) == texts(bundle)
    name = f"{BOARD}/to/1.1"
    assert texts(again)[name] == "to bob@example.com key [aws key 1]"
    assert [ref["id"] for ref in items(again)[name]["policy_refs"]] == ["standard"]
    shown = await importer.call("records.show", record_id=name, with_content=True)
    assert shown["content"] == "to bob@example.com key [aws key 1]"


async def test_snapshots_are_imported_without_their_values(world: World, importer: Caller) -> None:
    await fill_session(world)
    await transferred(world, importer, policy="metadata")
    assert await importer.snapshots() == await world.admin.snapshots()
    assert (await importer.inspect())["history_intact"]


async def redact_items(world: World, *item_ids: str) -> None:
    """Redact items, so that they are exported without content."""
    for item_id in item_ids:
        await world.admin.call("records.redact", item_id=item_id, state="removed", reason="private")


async def test_an_item_without_content_reserves_its_id(world: World, importer: Caller) -> None:
    await world.planner.write("goal", "outdated")
    await world.planner.write("goal", "hidden")
    await world.planner.say("hello")
    await world.planner.say("hidden as well")
    await redact_items(world, f"{BOARD}/goal/1.2", f"message:{SESSION}/2")
    bundle = await transferred(world, importer)
    # The same holds when the import is exported and imported again; no version of the deleted session repeats.
    for version in (3, 4):
        assert await importer.keys() == []
        assert await importer.say("next") == 3
        await importer.write("goal", "mine")
        again = await exported(importer)
        names = [name for kind, name in _all_records(again) if kind == "context_item"]
        assert len(names) == len(set(names))
        assert texts(again)[f"{BOARD}/goal/2.{version}"] == "mine"
        assert items(again).items() >= items(bundle).items()
        assert (await importer.inspect())["history_intact"]
        await importer.call("session.delete", session_id=SESSION, force=True)
        await imported(importer, _without(again, f"{BOARD}/goal/2.{version}", f"message:{SESSION}/3"))


def _all_records(bundle: bytes) -> list[tuple[str, str]]:
    decoded = [
        (each.type, msgspec.json.decode(each.record)) for each in entries(bundle) if isinstance(each, BundleRecord)
    ]
    return [(kind, record.get("item_id", "")) for kind, record in decoded]


def _without(bundle: bytes, *names: str) -> bytes:
    def left(entry: Any) -> Any:
        is_item = isinstance(entry, BundleRecord) and entry.type == "context_item"
        return None if is_item and msgspec.json.decode(entry.record)["item_id"] in names else entry

    return resealed(bundle, left)


async def test_a_snapshot_of_a_missing_value_does_not_show_an_older_version(world: World, importer: Caller) -> None:
    await world.planner.write("goal", "outdated")
    await world.planner.write("goal", "hidden")
    await world.planner.snapshot("mark")
    await world.planner.write("goal", "newest")
    await redact_items(world, f"{BOARD}/goal/1.2")
    await transferred(world, importer)
    assert await importer.value("goal") == "newest"
    assert (await importer.read("goal"))["version"] == 3
    assert await importer.read_snapshot("mark") == {}
    assert (await importer.inspect())["history_intact"]


async def test_two_items_with_one_id_are_refused(world: World, importer: Caller) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.say("hello")
    await world.planner.say("bye")
    await redact_items(world, f"message:{SESSION}/2")
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
                    await imported(importer, twice(name, kept=kept), dry_run=dry_run)
    await imported(importer, bundle)


async def test_the_number_of_statements_of_an_import_does_not_depend_on_its_size(
    world: World, importer: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live(number: int) -> None:
        await world.planner.write("goal", f"value {number}")
        await world.planner.say(f"message {number}")

    counts = []
    for more in (1, 30):
        for number in range(more):
            await live(number)
        bundle = await exported(world.admin)
        statements = await statements_of(partial(imported, importer, bundle), world.app.database, monkeypatch)
        counts.append(len(statements))
        sequence_updates = [
            place for place, statement in enumerate(statements) if statement.startswith("UPDATE tenants")
        ]
        made = [place for place, statement in enumerate(statements) if statement.startswith("INSERT INTO messages")]
        assert max(made) < min(sequence_updates), (
            "events take their numbers last, because other writers wait for the row"
        )
        await importer.call("session.delete", session_id=SESSION, force=True)
    assert counts[0] == counts[1]


async def test_a_dry_run_only_reads(world: World, importer: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    turn = await exported(world.admin, scope="turn", turn_id="t1")
    for each in (bundle, turn):
        assert not await statements_of(partial(imported, importer, each, dry_run=True), world.app.database, monkeypatch)
    await imported(importer, bundle)
    assert (await imported(importer, bundle, dry_run=True)).unchanged
    with refused("SESSION_EXISTS"):
        await imported(importer, await exported(world.admin), dry_run=True)


async def test_a_reimport_is_recognised_among_many_events(world: World, importer: Caller) -> None:
    event = NewEvent(type="context.exported", session_id=SESSION, subject=SESSION, actor="orchestrator")

    async def publish(transaction: Transaction) -> None:
        await Outbox(transaction, world.clock).publish(*[event] * 1_001)

    await world.app.database.write(Scope(world.tenant), publish)
    bundle = await transferred(world, importer)
    assert (await imported(importer, bundle)).unchanged


@pytest.mark.parametrize("changed", ["created_at", "updated_at"])
async def test_a_timestamp_out_of_range_in_utc_is_refused(world: World, importer: Caller, changed: str) -> None:
    odd = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))

    def altered(entry: Any) -> Any:
        return msgspec.structs.replace(entry, **{changed: odd}) if isinstance(entry, BundleSession) else entry

    with refused("INVALID_INPUT_FORMAT"):
        await imported(importer, resealed(await exported(world.admin), altered))
    with refused("SESSION_NOT_FOUND"):
        await importer.call("session.get", session_id=SESSION)
