"""Exports contain no hidden or redacted content, quotes, keys or private memory."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.bundles import contents, entries, exported, imported, items, records, texts
from support.contexts import knowledge_entry, pull, push
from support.records import AT, all_records, correlated_call, envelope, item
from support.world import SESSION, outcome
from weftline.exchange.transfer import export_collector
from weftline.exchange.transfer.bundle_format import BundleRecord, BundleSnapshot
from weftline.kernel.correlation import Correlation

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.req("AC-11"), pytest.mark.req("AC-14")]

GOAL = f"board:{SESSION}/goal/1.1"
LONG = "top confidential " * 200
KEY = "AKIAIOSFODNN7EXAMPLE"


def digest_of(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def item_with_digest(digest: str, kind: str = "file", name: str = "copy") -> dict[str, Any]:
    """Return an item that references other content by digest."""
    ref = {"kind": kind, "id": "x", "digest": digest}
    return {**item(name, None), "content_mode": "ref", "content": None, "content_ref": ref}


async def add(caller: Caller, *made: dict[str, Any], **where: Any) -> None:
    complete = [{name: value for name, value in each.items() if value is not None} for each in made]
    await caller.call("records.add", **{"session_id": SESSION, **where}, records=complete)


async def redact(caller: Caller, item_id: str, state: str = "removed", **more: Any) -> None:
    await caller.call("records.redact", item_id=item_id, state=state, reason="private", **more)


async def test_knowing_a_digest_gives_no_access_to_its_content(world: World) -> None:
    await add(world.planner, item("closed", LONG), readable_by=["orchestrator"])
    await add(world.planner, item("redacted", f"else {LONG}"))
    await redact(world.planner, "redacted", "encrypted_ref")
    await add(
        world.analysis, item_with_digest(digest_of(LONG)), item_with_digest(digest_of(f"else {LONG}"), name="again")
    )
    assert b"confidential" not in await exported(world.analysis)
    for name in ("copy", "again"):
        shown = await world.analysis.call("records.show", record_id=name, with_content=True)
        assert "content" not in shown


async def test_the_placeholder_of_a_redacted_item_is_found_by_its_id_only(world: World) -> None:
    await world.planner.write("goal", "Ann earns 99000", readable_by=["orchestrator"])
    await redact(world.planner, GOAL, "summarized", replacement="about 90k")
    await add(world.analysis, item_with_digest(digest_of(f"instead of {GOAL}")))
    assert b"90k" not in await exported(world.analysis)
    await imported(world.stranger, await exported(world.admin))


async def test_private_memory_is_not_exported_with_a_turn_of_others(world: World) -> None:
    await add(world.planner, item("own", LONG), session_id=None)
    await add(world.analysis, item_with_digest(digest_of(LONG)), session_id=None)
    turn = Correlation(turn_id="t1")
    made = [envelope("e1", item_refs=["copy", "own"])]
    await correlated_call(turn, world.analysis, "records.add", session_id=SESSION, records=made)
    assert b"confidential" not in await exported(world.analysis, scope="turn", turn_id="t1")


async def test_long_summaries_are_exported_with_their_content(world: World) -> None:
    await add(world.planner, item("short", LONG, content_mode="summary"))
    bundle = await exported(world.planner)
    assert list(contents(bundle).values()) == [LONG.encode()]
    await imported(world.stranger, bundle)
    shown = await world.stranger.call("records.show", record_id="short", with_content=True)
    assert shown["content"] == LONG


async def test_no_record_quotes_content_redacted_since(world: World) -> None:
    part, words = Correlation(task_id="t1", turn_id="u1"), "the launch code"
    await world.planner.write("goal", words)
    block = {"item_refs": [GOAL], "content": words}
    assembly = {"schema_version": "0.1.0", "created_at": AT, "assembly_id": "a1", "target": "m"}
    shown = {"injection_id": "i1", "assembly_id": "a1", "target": "m", "injection_point": "system_prompt"}
    made = [
        {**assembly, "ordered_blocks": [block]},
        {"schema_version": "0.1.0", "created_at": AT, **shown, "hash": digest_of(words)},
        {**assembly, "assembly_id": "a2", "ordered_blocks": [{"item_refs": ["later"], "content": words}]},
    ]
    await correlated_call(part, world.planner, "records.add", session_id=SESSION, records=made)
    await add(world.planner, item("later", words))
    await redact(world.planner, GOAL)
    await redact(world.planner, "later")
    await world.planner.write("goal", "new words")
    for what in (
        {},
        {"history": False},
        {"scope": "handoff", "recipient": "bob"},
        {"scope": "handoff", "recipient": "bob", "task_id": "t1"},
        {"scope": "task", "task_id": "t1"},
        {"scope": "turn", "turn_id": "u1"},
    ):
        bundle = await exported(world.review, **what)
        assert {("context_assembly", "a1"), ("context_injection", "i1")} <= set(records(bundle))
        assert words.encode() not in bundle, what
        assert digest_of(words).encode() not in bundle, what


async def test_the_sensitivity_of_a_version_follows_the_current_acl_of_its_key(world: World) -> None:
    await world.planner.write("pay", "Ann earns 99000")
    await world.planner.write("pay", "Ann earns 99001", readable_by=["orchestrator"])
    await world.planner.write("open", "for all")
    await world.admin.call("policy.set", name="inside", definition={"who": ["*"], "sensitivity": "internal"})
    bundle = await exported(world.planner, policy="inside")
    assert b"99" not in b"".join(text.encode() for text in texts(bundle).values())
    await imported(world.stranger, bundle)
    assert await world.stranger.keys() == ["open"]


async def test_exported_versions_of_branches_keep_their_read_acl(world: World) -> None:
    await world.planner.write("pay", "Ann earns 99000")
    await world.planner.call("history.branch", context_id=f"board:{SESSION}", branch="try")
    await world.planner.write("pay", "Ann earns 99001", branch="try")
    await world.planner.write("pay", "Ann earns 99002", branch="try", readable_by=["orchestrator"])
    bundle = await exported(world.planner)
    readers = {
        entry.readable_by
        for entry in entries(bundle)
        if isinstance(entry, BundleRecord) and b"@try/pay" in bytes(entry.record) and entry.type == "context_item"
    }
    assert readers == {("orchestrator",)}
    await imported(world.stranger, bundle)
    name = f"board:{SESSION}@try/pay/1.2"
    assert await outcome(world.stranger.call("records.show", record_id=name)) == "RECORD_NOT_FOUND"


async def test_keys_hidden_since_are_not_revealed(world: World) -> None:
    await world.planner.write("merger", "open")
    await world.planner.call("history.branch", context_id=f"board:{SESSION}", branch="try")
    await world.planner.write("merger", "closed", readable_by=["orchestrator"])
    assert b"merger" not in await exported(world.review)
    assert b"merger" in await exported(world.planner)


async def test_an_export_in_many_pages_equals_one_in_a_single_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        await world.planner.write(f"k{number}", f"first {number}")
    await world.planner.call("history.branch", context_id=f"board:{SESSION}", branch="try")
    for number in range(12):
        await world.planner.write(f"k{number}", f"second {number}", branch="try")
        closed = {"readable_by": ["orchestrator"]} if number % 3 == 0 else {}
        await world.planner.write(f"k{number}", f"third {number}", **closed)
        await world.planner.say(f"message {number}")
    complete = await exported(world.review)
    monkeypatch.setattr(export_collector, "PAGE", 3)
    paged = await exported(world.review)
    assert [name for name in items(complete) if "/k3/" in name] == [f"board:{SESSION}@try/k3/1.2"]
    assert texts(paged) == texts(complete)
    own = {entries(bundle)[0].bundle_id for bundle in (complete, paged)}
    known_events = [
        {
            name
            for name, event in records(bundle, "context_event").items()
            if event.get("subject", "").partition("/")[0] not in own
        }
        for bundle in (complete, paged)
    ]
    assert known_events[0] == known_events[1]


async def test_pulls_and_memory_of_the_session_are_exported_as_listed(world: World) -> None:
    await push(world.planner, knowledge_entry("facts", "private words"), if_version=0)
    await pull(world.planner)
    await world.planner.remember("note", "private words", session_id=SESSION)
    listed = {
        (each["type"], each["id"]): each["record"] for each in await all_records(world.planner, session_id=SESSION)
    }
    bundle = await exported(world.planner)
    exported_records = records(bundle)
    pulled = {name: record for name, record in listed.items() if name[1].startswith("pull:")}
    assert {name[0] for name in pulled} == {"context_assembly", "context_injection"}
    assert pulled.items() <= exported_records.items()
    (memory_record,) = [name for name in listed if name[1].startswith("memory:")]
    assert exported_records[memory_record]["content_mode"] == "opaque"
    assert not {"content", "content_ref", "byte_size"} & set(exported_records[memory_record])
    assert b"private words" not in bundle
    for name, entry in ((name, entry) for name in (*pulled, memory_record) for entry in entries(bundle)):
        if isinstance(entry, BundleRecord) and name[1].encode() in bytes(entry.record):
            assert entry.readable_by == ("principal:planner",)
    assert b"pull:" not in await exported(world.admin)


@pytest.mark.parametrize("policy", ["standard", "metadata"])
async def test_secrets_in_names_are_masked(world: World, policy: str) -> None:
    await world.planner.write("goal", f"use {KEY}", reason=f"for {KEY}", step=KEY)
    await world.planner.snapshot(KEY)
    await world.planner.say("hello", message_type=KEY, metadata={KEY: KEY})
    gap = {"question": "is it valid?", "candidate_sources": [{"kind": KEY}]}
    await world.planner.call("missing.report", session_id=SESSION, **gap)
    await add(world.planner, item("note", "x", context_kind=KEY, title=KEY))
    await redact(world.planner, f"message:{SESSION}/1", "masked", method=f"without {KEY}")
    for form in ("ndjson", "prov"):
        assert KEY.encode() not in await exported(world.planner, policy=policy, format=form)
    bundle = await exported(world.planner, policy=policy)
    (snapshot,) = [entry for entry in entries(bundle) if isinstance(entry, BundleSnapshot) and not entry.automatic]
    events = records(bundle, "context_event").values()
    assert [e["subject"] for e in events if e["data"]["type"] == "board.snapshot"][-1] == snapshot.label
    result = await imported(world.stranger, bundle)
    assert result.snapshots
    assert snapshot.label in await world.stranger.snapshots()


async def test_an_envelope_references_only_items_everyone_may_read(world: World) -> None:
    turn = Correlation(turn_id="t1", trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331")
    await correlated_call(turn, world.planner, "board.write", session_id=SESSION, key="goal", value="ship")
    closed = {"key": "pay", "value": "x", "readable_by": ["orchestrator"]}
    await correlated_call(turn, world.planner, "board.write", session_id=SESSION, **closed)
    selection = {"schema_version": "0.1.0", "selection_id": "sel", "surface_id": f"session:{SESSION}", "created_at": AT}
    budget = {"schema_version": "0.1.0", "budget_id": "bud", "created_at": AT, "target": "m", "max_tokens": 10}
    made = [{**selection, "evidence_refs": ["run-1"]}, budget]
    await correlated_call(turn, world.planner, "records.add", session_id=SESSION, records=made)
    bundle = await exported(world.planner, scope="turn", turn_id="t1")
    (turn_envelope,) = records(bundle, "context_envelope").values()
    assert turn_envelope["item_refs"] == [GOAL]
    assert (turn_envelope["selection_refs"], turn_envelope["budget_ref"]) == (["sel"], "bud")
    assert turn_envelope["evidence_refs"] == ["run-1"]
    assert [ref["id"] for ref in turn_envelope["telemetry_refs"]] == [turn.trace_id]
    assert turn_envelope["actor_refs"] == [{"kind": "agent", "id": "orchestrator:planner"}]
    kept = await world.review.call("records.show", record_id=turn_envelope["context_id"])
    assert kept["record"] == turn_envelope
    by_human = entries(await exported(world.admin, scope="turn", turn_id="t2"))[1]
    assert msgspec.json.decode(by_human.record)["actor_refs"] == [{"kind": "human", "id": "human:admin"}]
