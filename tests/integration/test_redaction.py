"""Redacted items are hidden on every read path."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported, items, records, texts
from support.records import AT, all_records, correlated_call, envelope, event_classes, item
from support.windows import create, ingest, message, published, window_events
from support.world import SESSION, outcome, refused
from weftline.kernel.correlation import Correlation
from weftline.records.sql import RecordStore

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.testing.clock import FrozenClock

pytestmark = pytest.mark.req("AC-11")
GOAL = f"board:{SESSION}/goal/1.1"
SECRET = "ring bob@example.com, pin 4711-zulu"
DIGEST = hashlib.sha256(SECRET.encode()).hexdigest()
# Fields that reveal the length or allow guessing of the content.
REVEALING_FIELDS = ("byte_size", "token_estimate", "content", "content_ref")


async def redact(caller: Caller, item_id: str, state: str = "removed", **more: Any) -> Any:
    return await caller.call("records.redact", item_id=item_id, state=state, reason="names a person", **more)


async def shown(caller: Caller, item_id: str) -> Any:
    return await caller.call("records.show", record_id=item_id, with_content=True)


async def everything_shown(caller: Caller, item_id: str) -> str:
    """Return all records and an export of a session, as one text."""
    lists = await all_records(caller, session_id=SESSION, types=["context_item", "context_event", "context_assembly"])
    one = await shown(caller, item_id)
    return json.dumps([lists, one]) + (await exported(caller)).decode()


@pytest.mark.parametrize("state", ["removed", "policy_blocked"])
async def test_a_removed_item_shows_only_its_id(world: World, state: str) -> None:
    await world.planner.write("goal", SECRET, reason="for bob@example.com")
    answer = await redact(world.planner, GOAL, state, method="by hand")
    assert (answer["redaction_state"], answer["redacted_by"]) == (state, "orchestrator:planner")
    for record in ((await shown(world.admin, GOAL))["record"], items(await exported(world.admin))[GOAL]):
        assert (record["redaction_state"], record["redaction_method"]) == (state, "by hand")
        assert record["redacted_by"] == "orchestrator:planner"
        assert record["content_mode"] == "opaque"
        assert not any(name in record for name in REVEALING_FIELDS)
        assert {"reason", "tokens"}.isdisjoint(record["metadata"]["weftline"])
        assert record["title"] == "goal"
    text = await everything_shown(world.admin, GOAL)
    assert not [word for word in ("bob@", "4711-zulu", DIGEST) if word in text]
    exported_events = records(await exported(world.admin), "context_event").values()
    writes = [event["data"] for event in exported_events if event["data"]["type"] == "board.written"]
    assert writes
    assert all("value_size_tokens" not in data for data in writes)


@pytest.fixture
async def inherited(world: World) -> list[str]:
    """Return an event of the planner, and its copies in the windows of analysis and of an agent below that."""
    deep = await world.admin.create_agent("deep", parent_id="analysis")
    await ingest(world.planner, message("facts", SECRET, category="CONTEXT"))
    for caller in (world.analysis, deep):
        await ingest(caller, message("own", "hello"))
    await world.index_sessions()
    names = "planner/facts", "analysis/planner/facts", "deep/analysis/planner/facts"
    return [f"window:{SESSION}:{name}/1.1" for name in names]


async def places_of_secret(world: World, item_id: str) -> list[str]:
    """Return where the secret is still read: the record, the history and the window of an item, exports, the index."""
    line_id, _, _ = item_id.partition("/")
    places = {
        "record": await shown(world.admin, item_id),
        "history": await world.admin.call("history.diff", context_id=line_id, from_version="0"),
        "window": await window_events(world.planner, agent_id=line_id.rpartition(":")[2]),
        "export": await exported(world.admin),
        "index": await world.rows("SELECT text FROM chunks WHERE collection = 'windows'"),
    }
    return [place for place, content in places.items() if "4711-zulu" in str(content)]


@pytest.mark.both_databases
async def test_copies_of_a_redacted_event_in_windows_below_are_redacted(world: World, inherited: list[str]) -> None:
    original, *copies = inherited
    for copy in copies:
        assert {"record", "history", "window", "export"} <= set(await places_of_secret(world, copy))
    await redact(world.planner, original)
    for copy in copies:
        assert await places_of_secret(world, copy) == []
        assert (await shown(world.admin, copy))["record"]["redaction_state"] == "removed"
    with refused("PERMISSION_DENIED"):
        await redact(world.analysis, copies[0], "masked")
    await redact(world.admin, original, "none")
    assert "window" in await places_of_secret(world, copies[1])


async def test_copies_below_a_shared_window_are_redacted(world: World) -> None:
    """The event is in the window of review-2, and is inherited from analysis, which shares it."""
    deep = await world.admin.create_agent("deep", parent_id="analysis")
    await ingest(world.review, message("facts", SECRET, category="CONTEXT"))
    await create(world.planner, "analysis")
    await world.planner.call("window.join", session_id=SESSION, agent_id="analysis", with_agent_id="review-2")
    await ingest(deep, message("own", "hello"))
    copy = f"window:{SESSION}:deep/analysis/facts/1.1"
    assert "record" in await places_of_secret(world, copy)
    await redact(world.admin, f"window:{SESSION}:review-2/facts/1.1")
    assert await places_of_secret(world, copy) == []


@pytest.mark.both_databases
async def test_copies_that_a_restore_made_are_redacted(world: World) -> None:
    """Restored into the window of review-2, which hands it down, and from there into that of planner."""
    deep = await world.admin.create_agent("deep", parent_id="review-2")
    long = f"{SECRET} " * 200
    await ingest(world.analysis, message("facts", SECRET, category="CONTEXT"), message("long", long))
    await checkpoint(world.planner, "analysis")
    await restored(world.planner, "analysis", into="review-2")
    await ingest(deep, message("own", "hello"))
    await checkpoint(world.planner, "review-2")
    await restored(world.planner, "review-2", into="planner")
    copies = [
        f"window:{SESSION}:{name}/1.1"
        for name in ("review-2/facts", "review-2/long", "planner/facts", "planner/long", "deep/review-2/facts")
    ]
    for copy in copies:
        assert "window" in await places_of_secret(world, copy)
    for name in ("facts", "long"):
        await redact(world.analysis, f"window:{SESSION}:analysis/{name}/1.1")
    for copy in copies:
        assert await places_of_secret(world, copy) == []


@pytest.mark.both_databases
async def test_copies_are_redacted_in_a_session_that_was_imported_under_another_id(
    world: World, inherited: list[str]
) -> None:
    await imported(world.admin, await exported(world.admin, policy="full"), session_id="s2")
    original, *copies = (name.replace(SESSION, "s2") for name in inherited)
    for copy in copies:
        assert "4711-zulu" in str(await shown(world.admin, copy))
    await redact(world.admin, original)
    for copy in copies:
        assert "4711-zulu" not in str(await shown(world.admin, copy))
    # The session that was exported is another one.
    assert "4711-zulu" in str(await shown(world.admin, inherited[1]))


async def test_what_is_restored_to_where_it_was_is_the_event_itself(world: World) -> None:
    await ingest(world.analysis, message("facts", SECRET))
    await checkpoint(world.planner, "analysis")
    await restored(world.planner, "analysis", into="review-2")
    await checkpoint(world.planner, "review-2")
    back = await restored(world.planner, "review-2", into="analysis")
    assert (back["restored"], back["removed"]) == (0, 0)
    again = await restored(world.planner, "analysis", into="review-2")
    assert (again["restored"], again["snapshot_before"]) == (0, None)


async def checkpoint(caller: Caller, agent_id: str) -> None:
    await caller.call("window.checkpoint", session_id=SESSION, label=f"of-{agent_id}", agent_id=agent_id)


async def restored(caller: Caller, agent_id: str, *, into: str) -> Any:
    """Restore the checkpoint of one agent into the window of another."""
    request = {"label": f"of-{agent_id}", "from_agent_id": agent_id, "agent_id": into}
    (window,) = (await caller.call("window.restore", session_id=SESSION, **request))["windows"]
    return window


@pytest.mark.both_databases
async def test_the_redaction_of_a_copy_is_announced_to_its_readers(world: World, inherited: list[str]) -> None:
    original, *copies = inherited
    await redact(world.planner, original, method="by hand")
    told = await published(world.planner, "context.redaction.applied")
    assert [each["redaction_method"] for each in told] == ["by hand"] * 3
    assert await subjects(world.planner) == [original, *copies]
    assert await subjects(world.analysis) == copies[:1]
    recorded = await event_classes(world.planner, session_id=SESSION, types=["context_event"])
    assert recorded.count("context.redaction.applied") == len(inherited)
    await redact(world.admin, original, "none")
    assert await subjects(world.analysis) == copies[:1] * 2


async def subjects(caller: Caller) -> list[str]:
    """Return the items whose redactions a caller is told of."""
    events = (await caller.events(session_id=SESSION))["events"]
    return [event["subject"] for event in events if event["type"] == "context.redaction.applied"]


async def test_a_copy_that_was_redacted_by_itself_stays_so(world: World, inherited: list[str]) -> None:
    original, own, below = inherited
    await redact(world.planner, original)
    await redact(world.admin, own, "policy_blocked")
    await redact(world.admin, original, "none")
    assert "record" not in await places_of_secret(world, own)
    assert "record" in await places_of_secret(world, below)


async def test_copies_are_redacted_when_the_window_between_is_gone(world: World, inherited: list[str]) -> None:
    await world.planner.call("window.delete", session_id=SESSION, agent_id="analysis")
    await redact(world.planner, inherited[0])
    assert await places_of_secret(world, inherited[2]) == []


async def test_a_masked_item_has_the_digest_and_size_of_the_masked_text(world: World) -> None:
    await world.planner.write("goal", SECRET)
    number = await world.planner.say(SECRET, metadata={"cc": "al@example.com"}, visibility="private")
    message = f"message:{SESSION}/{number}"
    for item_id in (GOAL, message):
        await redact(world.planner, item_id, "masked")
    masked = "ring [email 1], pin 4711-zulu"
    goal, message_item = await shown(world.planner, GOAL), await shown(world.planner, message)
    assert goal["record"]["content"] == goal["content"] == message_item["content"] == masked
    digest = f"sha256:{hashlib.sha256(masked.encode()).hexdigest()}"
    assert message_item["record"]["content_ref"]["digest"] == message_item["digest"] == goal["digest"] == digest
    assert message_item["record"]["byte_size"] == goal["record"]["byte_size"] == len(masked)
    assert message_item["record"]["metadata"]["weftline"]["metadata"] == {"cc": "[email 2]"}
    bundle = await exported(world.planner)
    assert texts(bundle)[GOAL] == texts(bundle)[message] == masked
    assert b"example.com" not in bundle
    assert DIGEST.encode() not in bundle


async def test_a_summarized_item_shows_its_summary(world: World, clock: FrozenClock) -> None:
    await world.planner.write("goal", SECRET)
    await redact(world.planner, GOAL, "summarized", replacement="call the customer")
    record = (await shown(world.review, GOAL))["record"]
    assert (record["content_mode"], record["content"], record["byte_size"]) == ("summary", "call the customer", 17)
    assert texts(await exported(world.review))[GOAL] == "call the customer"
    clock.advance(seconds=1)
    await redact(world.admin, GOAL, "summarized", replacement="call them")
    assert (await shown(world.review, GOAL))["content"] == "call them"
    assert "4711-zulu" not in await everything_shown(world.review, GOAL)
    for wrong in ({"state": "summarized"}, {"state": "removed", "replacement": "x"}):
        assert await outcome(redact(world.admin, GOAL, **wrong)) == "INVALID_INPUT_FORMAT"


async def test_an_encrypted_reference_shows_only_its_digest(world: World) -> None:
    await world.planner.write("goal", SECRET)
    salt = bytes.fromhex((await redact(world.planner, GOAL, "encrypted_ref"))["salt"])
    answer = await shown(world.planner, GOAL)
    digest = answer["record"]["content_ref"]["digest"]
    # With the salt a copy can be compared; without it nobody finds the content by hashing candidates.
    assert digest == f"sha256:{hashlib.sha256(salt + f'sha256:{DIGEST}'.encode()).hexdigest()}"
    again = (await redact(world.admin, GOAL, "encrypted_ref"))["salt"]
    assert salt.hex() != again
    assert digest not in await everything_shown(world.admin, GOAL)
    assert "content" not in answer
    assert "byte_size" not in answer["record"]
    assert b"4711-zulu" not in await exported(world.planner)


async def texts_of(caller: Caller, number: int) -> list[str]:
    """Return what a reader gets of the key and of the message, at every door that shows values."""
    history = await caller.call("board.read_history", session_id=SESSION, key="goal")
    versions = [each["value"] for each in history["versions"]]
    listed = [each["content"] for each in (await caller.call("message.list", session_id=SESSION))["messages"]]
    return [await caller.value("goal"), *versions, *listed[number - 1 : number]]


@pytest.mark.parametrize(
    ("state", "more", "shown_text"),
    [
        ("removed", {}, "[content removed]"),
        ("masked", {}, "ring [email 1], pin 4711-zulu"),
        ("summarized", {"replacement": "call them"}, "call them"),
    ],
)
async def test_board_and_transcript_show_what_the_redaction_leaves(
    world: World, state: str, more: dict[str, str], shown_text: str
) -> None:
    await world.planner.write("goal", SECRET, reason="4711-zulu")
    number = await world.planner.say(SECRET, metadata={"pin": "4711-zulu"})
    names = (GOAL, f"message:{SESSION}/{number}")
    for item_id in names:
        await redact(world.planner, item_id, state, **more)
    for caller in (world.planner, world.review, world.admin):
        assert await texts_of(caller, number) == [shown_text] * 3
    log = await world.planner.call("history.log", context_id=f"board:{SESSION}")
    assert "4711" not in json.dumps(log)
    assert (await world.admin.call("history.verify", context_id=f"board:{SESSION}"))["intact"]
    for item_id in names:
        await redact(world.admin, item_id, "none")
    assert await texts_of(world.review, number) == [SECRET] * 3
    assert (await world.planner.call("history.log", context_id=f"board:{SESSION}"))["commits"][0][
        "reason"
    ] == "4711-zulu"
    assert (await world.admin.call("history.verify", context_id=f"board:{SESSION}"))["intact"]


async def test_a_mask_that_would_mask_nothing_is_refused(world: World) -> None:
    await world.planner.write("goal", "buy zebras")
    number = await world.planner.say("buy zebras")
    for item_id in (GOAL, f"message:{SESSION}/{number}"):
        with refused("INVALID_INPUT_FORMAT"):
            await redact(world.planner, item_id, "masked")
        assert await texts_of(world.review, number) == ["buy zebras"] * 3
    await redact(world.planner, f"message:{SESSION}/{await world.planner.say('hi', metadata={'m': SECRET})}", "masked")


async def test_a_rollback_brings_back_what_the_redaction_leaves(world: World) -> None:
    await world.planner.write("goal", SECRET)
    await world.planner.snapshot("before")
    await world.planner.write("goal", "later")
    await redact(world.planner, GOAL)
    await world.planner.call("history.rollback", context_id=f"board:{SESSION}", target_version="1")
    assert await world.review.value("goal") == "[content removed]"
    await world.planner.write("goal", SECRET)
    # Writing it again is a new item, and tells nobody who guesses whether the guess is right.
    assert await world.review.value("goal") == SECRET


async def test_a_value_that_was_written_again_is_redacted_with_its_first_version(world: World) -> None:
    await world.planner.write("goal", SECRET)
    await world.planner.write("goal", "other")
    await world.planner.write("goal", SECRET)
    await redact(world.planner, GOAL)
    assert "4711-zulu" not in json.dumps(await world.review.call("board.read_history", session_id=SESSION, key="goal"))
    assert await world.review.value("goal") == "[content removed]"


async def test_a_deleted_session_keeps_nothing_of_what_was_redacted(world: World) -> None:
    await world.planner.write("goal", SECRET)
    number = await world.planner.say(SECRET)
    for item_id in (GOAL, f"message:{SESSION}/{number}"):
        await redact(world.planner, item_id)
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    assert await world.rows("SELECT 1 FROM blobs WHERE tenant = $1", world.tenant) == []
    assert await world.rows("SELECT 1 FROM redactions WHERE tenant = $1", world.tenant) == []


async def test_a_redacted_record_keeps_no_title_source_or_metadata(world: World) -> None:
    quoted = {
        "schema_version": "0.1.0",
        "source_id": "s",
        "uri": "https://example.com/?bob@example.com",
        "source_kind": "page",
        "selector": {"type": "text_quote", "exact": SECRET},
        "digest": f"sha256:{DIGEST}",
    }
    more = {
        "title": SECRET,
        "source_refs": [quoted],
        "metadata": {"note": SECRET},
        "content_ref": {"id": "x", "digest": f"sha256:{DIGEST}"},
    }
    long = SECRET + " x" * 2_000
    kept = [item("note-1", SECRET, **more), item("note-2", {"to": "bob@example.com"}), item("note-3", long)]
    await world.planner.call("records.add", session_id=SESSION, records=kept)
    await redact(world.planner, "note-1")
    await redact(world.planner, "note-2", "masked")
    await redact(world.planner, "note-3")
    assert set((await shown(world.admin, "note-1"))["record"]) == {
        "schema_version",
        "item_id",
        "context_kind",
        "content_mode",
        "visibility",
        "redaction_state",
        "redaction_method",
        "redacted_by",
    }
    assert (await shown(world.admin, "note-2"))["record"]["content"] == {"to": "[email 1]"}
    text = await everything_shown(world.admin, "note-3")
    assert not [word for word in ("bob@", "4711-zulu", DIGEST) if word in text]


async def test_a_quote_of_a_redacted_item_shows_only_its_id(world: World) -> None:
    await world.planner.write("goal", SECRET)
    assembly = {
        "schema_version": "0.1.0",
        "assembly_id": "a1",
        "target": "model",
        "ordered_blocks": [{"item_refs": [GOAL], "content": SECRET}, {"content": "Be kind."}],
        "created_at": AT,
    }
    injection = {
        "schema_version": "0.1.0",
        "injection_id": "i1",
        "assembly_id": "a1",
        "target": "model",
        "injection_point": "system_prompt",
        "hash": f"sha256:{DIGEST}",
        "created_at": AT,
    }
    await world.planner.call("records.add", session_id=SESSION, records=[assembly, injection])
    before = await world.planner.call("records.show", record_id="i1")
    assert before["record"]["hash"] == f"sha256:{DIGEST}"
    await redact(world.planner, GOAL)
    bundle = records(await exported(world.planner))
    for name, kind in (("a1", "context_assembly"), ("i1", "context_injection")):
        for record in ((await world.planner.call("records.show", record_id=name))["record"], bundle[kind, name]):
            assert "hash" not in record
            assert "4711-zulu" not in json.dumps(record)
            assert DIGEST not in json.dumps(record)
    blocks = bundle["context_assembly", "a1"]["ordered_blocks"]
    assert [block.get("content") for block in blocks] == [None, "Be kind."]


@pytest.mark.parametrize(
    "quoting",
    [
        {"summary_id": "q1", "source_item_refs": [GOAL], "content": SECRET, "loss_notes": [f"not {SECRET}"]},
        {"assembly_id": "q1", "target": "model", "source_item_refs": [GOAL], "ordered_blocks": [{"content": SECRET}]},
    ],
)
async def test_derived_records_reveal_nothing_of_a_redacted_item(world: World, quoting: dict[str, Any]) -> None:
    await world.planner.write("goal", SECRET)
    made = {"schema_version": "0.1.0", "created_at": AT, **quoting}
    await world.planner.call("records.add", session_id=SESSION, records=[made])
    assert "4711-zulu" in json.dumps(await shown(world.review, "q1"))
    await redact(world.planner, GOAL)
    kinds = ["context_summary", "context_assembly"]
    told_of = [
        entry for entry in await all_records(world.review, session_id=SESSION, types=kinds) if entry["id"] == "q1"
    ]
    text = json.dumps([told_of, await shown(world.review, "q1")]) + (await exported(world.review)).decode()
    assert told_of
    assert GOAL in text
    assert not [word for word in ("4711-zulu", DIGEST) if word in text]


QUOTED = {
    "context_summary": {"summary_id": "q1", "content": SECRET, "loss_notes": [f"not {SECRET}"]},
    "context_assembly": {"assembly_id": "q1", "target": "model", "ordered_blocks": [{"content": SECRET}]},
}


@pytest.mark.parametrize("kind", QUOTED)
@pytest.mark.parametrize("state", ["masked", "removed", "policy_blocked", "summarized", "encrypted_ref"])
async def test_summaries_and_assemblies_are_redacted_like_items(world: World, kind: str, state: str) -> None:
    made = {"schema_version": "0.1.0", "created_at": AT, **QUOTED[kind]}
    await world.planner.call("records.add", session_id=SESSION, records=[made])
    with refused("PERMISSION_DENIED"):
        await redact(world.review, "q1", state, **({"replacement": "x"} if state == "summarized" else {}))
    await redact(world.planner, "q1", state, **({"replacement": "call them"} if state == "summarized" else {}))
    answer = await world.review.call("records.show", record_id="q1")
    assert answer["redaction"]["state"] == answer["record"]["redaction_state"] == state
    assert answer["record"]["redacted_by"] == "orchestrator:planner"
    in_bundle = records(await exported(world.review))[kind, "q1"]
    listed = (await all_records(world.review, session_id=SESSION, types=[kind]))[-1]
    text = json.dumps(answer["record"])
    assert in_bundle == listed["record"] == answer["record"]
    assert "bob@" not in text
    assert DIGEST not in text
    assert ("sha256:" in text) == (state == "encrypted_ref")
    assert ("pin 4711-zulu" in text) == (state == "masked")
    assert ("call them" in text) == (state == "summarized")
    classes = await event_classes(world.review, session_id=SESSION, types=["context_event"])
    assert classes.count("context.redaction.applied") == 1
    await redact(world.admin, "q1", "none")
    assert (await world.review.call("records.show", record_id="q1"))["record"] == made


async def test_another_record_with_the_same_id_is_not_redacted(world: World) -> None:
    made = {"schema_version": "0.1.0", "created_at": AT, **QUOTED["context_summary"]}
    kept = [made, item("q1", "an item of the same name")]
    await world.planner.call("records.add", session_id=SESSION, records=kept[:1])
    await world.review.call("records.add", session_id=SESSION, records=kept[1:], readable_by=["subagent:review*"])
    await redact(world.planner, "q1")
    assert (await world.review.call("records.show", record_id="q1", type="context_item"))["record"] == kept[1]


async def test_the_reason_of_a_redaction_is_visible_to_admins(world: World) -> None:
    await world.planner.write("goal", SECRET)
    await redact(world.planner, GOAL)
    assert (await shown(world.admin, GOAL))["redaction"]["reason"] == "names a person"
    for caller in (world.planner, world.review):
        redaction = (await shown(caller, GOAL))["redaction"]
        assert redaction.keys() == {"state", "method", "redacted_by", "redacted_at"}


async def test_a_redacted_item_is_not_found_by_alias_ids(world: World) -> None:
    await world.planner.write("goal", SECRET)
    await world.planner.call("history.branch", context_id=f"board:{SESSION}", branch="b")
    await redact(world.planner, GOAL)
    names = [f"board:{SESSION}@b/goal/1.1", f"board:{SESSION}/goal/01.1", f"board:{SESSION}/goal/1.01"]
    for name in names:
        with refused("RECORD_NOT_FOUND"):
            await shown(world.review, name)
        with refused("RECORD_NOT_FOUND"):
            await redact(world.planner, name)
        assert [entry for entry in await all_records(world.admin, item_id=name) if entry["id"] == name] == []
    turn = Correlation(turn_id="t1")
    naming = envelope("e1", item_refs=names)
    await correlated_call(turn, world.planner, "records.add", session_id=SESSION, records=[naming])
    assert b"4711-zulu" not in await exported(world.planner, scope="turn", turn_id="t1")


async def test_a_version_of_a_branch_is_redacted_by_its_branch_id(world: World) -> None:
    await world.planner.write("goal", "for all")
    await world.planner.call("history.branch", context_id=f"board:{SESSION}", branch="b")
    await world.planner.write("goal", SECRET, branch="b")
    name = f"board:{SESSION}@b/goal/1.2"
    assert (await shown(world.review, name))["content"] == SECRET
    await redact(world.planner, name)
    assert "4711-zulu" not in json.dumps(await shown(world.review, name))


async def test_an_author_cannot_weaken_an_admin_s_redaction(world: World) -> None:
    await world.analysis.write("goal", SECRET)
    await redact(world.admin, GOAL)
    for state, more in (("masked", {}), ("summarized", {"replacement": SECRET}), ("encrypted_ref", {})):
        with refused("PERMISSION_DENIED"):
            await redact(world.analysis, GOAL, state, **more)
    await redact(world.analysis, GOAL, "policy_blocked")
    await redact(world.admin, GOAL, "masked")
    with refused("PERMISSION_DENIED"):
        await redact(world.analysis, GOAL, "summarized", replacement=SECRET)
    await redact(world.analysis, GOAL, "removed")
    assert "content" not in await shown(world.review, GOAL)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_concurrently_deleted_session_keeps_no_redaction(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.planner.write("goal", SECRET)
    redacting, deleting = RecordStore.redact, []

    async def redact_late(records: RecordStore, redaction: Any) -> None:
        deleting.append(asyncio.create_task(world.admin.call("session.delete", session_id=SESSION, force=True)))
        await asyncio.wait(deleting, timeout=0.5)
        await redacting(records, redaction)

    monkeypatch.setattr(RecordStore, "redact", redact_late)
    await redact(world.planner, GOAL)
    await deleting[0]
    assert await world.rows("SELECT 1 FROM redactions WHERE tenant = $1", world.tenant) == []


async def test_only_an_author_or_an_admin_redacts(world: World) -> None:
    await world.planner.write("goal", SECRET)
    await world.analysis.write("found", "x")
    number = await world.analysis.say("hello")
    await world.analysis.call("records.add", session_id=SESSION, records=[item("note-1", "x")])
    names = [f"board:{SESSION}/found/1.1", f"message:{SESSION}/{number}", "note-1"]
    for item_id in names:
        with refused("PERMISSION_DENIED"):
            await redact(world.review, item_id)
        await redact(world.analysis, item_id)
    with refused("PERMISSION_DENIED"):
        await redact(world.review, GOAL)
    await redact(world.admin, GOAL)
    reader = await world.admin.create_agent("reader", permissions=["read"])
    with refused("PERMISSION_DENIED"):
        await redact(reader, GOAL)


async def test_redacting_does_not_reveal_hidden_items(world: World) -> None:
    await world.planner.write("closed", SECRET, readable_by=["orchestrator"])
    number = await world.analysis.say("mine", visibility="private")
    await world.analysis.remember("own", {"a": 1})
    hidden = [f"board:{SESSION}/closed/1.1", f"message:{SESSION}/{number}", "memory:analysis/own/1.1", "nothing"]
    for item_id in hidden:
        for caller in (world.review, world.admin, world.stranger):
            with refused("RECORD_NOT_FOUND"):
                await redact(caller, item_id)
    await redact(world.planner, hidden[0])
    await redact(world.analysis, hidden[1])
    await redact(world.analysis, hidden[2])
    for caller in (world.review, world.admin):
        told_of = [
            event["subject"]
            for event in (await caller.events(session_id=SESSION, types=["context.redaction.*"]))["events"]
        ]
        assert told_of == []
    assert len((await world.analysis.events(personal=True, types=["context.redaction.*"]))["events"]) == 2


async def test_events_of_a_redaction_follow_the_current_acl_of_the_key(world: World) -> None:
    await world.planner.write("goal", SECRET)
    await world.planner.write("goal", "closed", readable_by=["orchestrator"])
    await redact(world.planner, GOAL)
    assert (await world.review.events(session_id=SESSION, types=["context.redaction.*"]))["events"] == []
    assert len((await world.planner.events(session_id=SESSION, types=["context.redaction.*"]))["events"]) == 1


async def test_a_redaction_is_published_and_audited_without_content(world: World) -> None:
    await world.planner.write("goal", SECRET)
    await redact(world.planner, GOAL, "summarized", replacement="somebody")
    (event,) = (await world.review.events(session_id=SESSION, types=["context.redaction.applied"]))["events"]
    assert (event["subject"], event["actor"]) == (GOAL, "orchestrator:planner")
    assert event["data"] == {
        "redaction_state": "summarized",
        "redaction_method": "content replaced by a summary",
        "redacted_type": "context_item",
    }
    assert "context.redaction.applied" in await event_classes(world.review, session_id=SESSION, types=["context_event"])
    (row,) = [row for row in await world.admin.audit() if row["action"] == "records.redact"]
    assert (row["target"], row["detail"]["state"]) == (GOAL, "summarized")
    assert "somebody" not in json.dumps([event, row])


async def test_only_an_admin_lifts_a_redaction(world: World, clock: FrozenClock) -> None:
    await world.planner.write("goal", SECRET)
    await redact(world.planner, GOAL)
    with refused("PERMISSION_DENIED"):
        await redact(world.planner, GOAL, "none")
    clock.advance(seconds=1)
    await redact(world.admin, GOAL, "none")
    again = await shown(world.review, GOAL)
    assert (again["content"], again["record"]["redaction_state"]) == (SECRET, "none")
    assert "redaction" not in again
    assert texts(await exported(world.admin, policy="full"))[GOAL] == SECRET


async def test_redactions_are_per_tenant_and_deleted_with_their_session(world: World) -> None:
    await world.planner.write("goal", SECRET)
    await redact(world.planner, GOAL, "summarized", replacement="x")
    await world.stranger.create_session(SESSION)
    await world.stranger.write("goal", SECRET)
    assert (await shown(world.stranger, GOAL))["content"] == SECRET
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    assert await world.rows("SELECT 1 FROM redactions WHERE tenant = $1 AND record_id = $2", world.tenant, GOAL) == []
    left = "SELECT 1 FROM record_contents WHERE tenant = $1 AND session_id = $2"
    assert await world.rows(left, world.tenant, SESSION) == []


async def test_a_redaction_is_kept_by_import(world: World) -> None:
    await world.planner.write("goal", SECRET)
    await world.planner.write("plan", "mail al@example.com")
    await redact(world.planner, GOAL, "summarized", replacement="call them")
    await redact(world.planner, f"board:{SESSION}/plan/1.1", "masked")
    bundle = await exported(world.admin, policy="full")
    await imported(world.stranger, bundle)
    again = await exported(world.stranger, policy="full")
    for name in (GOAL, f"board:{SESSION}/plan/1.1"):
        before, after = items(bundle)[name], items(again)[name]
        assert before["redaction_state"] == after["redaction_state"]
        assert texts(bundle)[name] == texts(again)[name]
