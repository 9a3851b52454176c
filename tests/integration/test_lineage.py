"""What was derived from an item: declared, copied, possible through prompts; and forgetting it with all of that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.knowledge import HANDBOOK, chunks, document, domain, embed_quickly, put
from support.world import SESSION, refused

if TYPE_CHECKING:
    from support.world import Caller, World

GUIDE = f"knowledge://{HANDBOOK}/guide.md"
BOARD = f"board:{SESSION}"


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    embed_quickly(monkeypatch)


@pytest.fixture
async def library(_quick: None, world: World) -> World:
    await domain(world.admin)
    await put(world.planner, "guide.md", "# Refunds\n\nRefunds of zebra crossings take thirty days.")
    await world.app.scheduler.drain("knowledge.ingest")
    return world


async def traced(caller: Caller, item: str, **options: Any) -> dict[str, str]:
    """Return how items derive from one."""
    answer = await caller.call("trust.trace", item=item, **options)
    return {each["item"]: each["how"] for each in answer["derived"]}


async def forget(world: World, item: str, **options: Any) -> Any:
    fields = {"reason": "poisoned", "dry_run": False, **options}
    return await world.admin.call("trust.forget", item=item, **fields)


async def trust_of(caller: Caller, key: str) -> Any:
    return (await caller.read(key)).get("trust")


async def test_declared_derivations_are_followed(library: World) -> None:
    planner = library.planner
    await planner.write("summary", "thirty days", derived_from=[GUIDE])
    await planner.write("plan", "wait a month", derived_from=[f"{BOARD}/summary"])
    number = await planner.say("wait a month", derived_from=[f"{BOARD}/plan/1.1"])
    await planner.remember("note", "a month", derived_from=[f"message:{SESSION}/{number}"])
    await planner.call(
        "context.push", knowledge=[{"key": "refunds", "value": "a month", "derived_from": ["memory:planner/note"]}]
    )
    await planner.write("other", "unrelated")
    expected = {
        f"{BOARD}/summary": "declared",
        f"{BOARD}/plan": "declared",
        f"message:{SESSION}/{number}": "declared",
        "memory:planner/note": "declared",
        "context:planner:learned_knowledge/refunds": "declared",
    }
    assert await traced(planner, GUIDE) == expected
    assert await traced(planner, GUIDE, steps=2) == dict(list(expected.items())[:2])
    assert await traced(planner, f"{BOARD}/other") == {}


async def test_what_is_derived_from_suspicious_content_is_suspicious(library: World) -> None:
    await library.sql(
        "UPDATE documents SET trust = $1 WHERE tenant = $2",
        '{"source":"document","trust":"suspicious"}',
        library.tenant,
    )
    await library.planner.write("summary", "thirty days", derived_from=[GUIDE])
    await library.admin.write("approved", "thirty days!", derived_from=[f"{BOARD}/summary"])
    for key in ("summary", "approved"):
        assert (await trust_of(library.planner, key))["trust"] == "suspicious"


async def test_a_human_who_repeats_an_agent_is_not_trusted_more(library: World) -> None:
    await library.planner.write("claim", "the moon is near")
    await library.admin.write("fact", "the moon is near, I read", derived_from=[f"{BOARD}/claim"])
    assert (await trust_of(library.planner, "fact"))["trust"] == "untrusted"


async def test_sources_must_exist_and_be_readable(library: World) -> None:
    await library.planner.write("secret", "x", readable_by=["human:*"])
    for reference in (
        f"{BOARD}/nothing",
        f"{BOARD}/secret",
        f"message:{SESSION}/7",
        f"knowledge://{HANDBOOK}/nothing.md",
        "knowledge://nowhere/guide.md",
        "memory:analysis/note",
        "nonsense",
    ):
        with refused("ITEM_NOT_FOUND"):
            await library.planner.write("derived", "x", derived_from=[reference])
    await library.planner.write("derived", "x", derived_from=["tool:browser", "url:https://example.com/page"])
    assert await traced(library.planner, "tool:browser") == {f"{BOARD}/derived": "declared"}


async def test_copies_are_found_by_their_content(library: World) -> None:
    planner = library.planner
    await planner.write("goal", "a sentence that is copied")
    await planner.call("history.branch", context_id=BOARD, branch="try")
    await planner.write("again", "a sentence that is copied")
    assert await traced(planner, f"{BOARD}/goal") == {f"{BOARD}/again": "copy"}


async def test_short_values_are_not_copies_of_each_other(library: World) -> None:
    """Otherwise forgetting a value such as done would delete it wherever somebody wrote it."""
    await library.planner.write("goal", "done")
    await library.analysis.write("mine", "done")
    assert await traced(library.planner, f"{BOARD}/goal") == {}
    await forget(library, f"{BOARD}/goal")
    assert await library.planner.value("mine") == "done"


async def test_older_entries_with_the_same_content_do_not_hide_copies(library: World) -> None:
    planner, text = library.planner, "a sentence that is copied"
    for number in range(5):
        await planner.write(f"old{number}", text)
    library.clock.advance(seconds=1)
    await planner.write("goal", text)
    await planner.write("again", text)
    assert await traced(planner, f"{BOARD}/goal", limit=3) == {f"{BOARD}/again": "copy"}


async def test_what_was_written_after_a_prompt_may_be_derived_from_it(library: World) -> None:
    planner = library.planner
    await library.index_sessions()
    answer = await planner.call("context.assemble", session_id=SESSION, task_description="refunds of zebra crossings")
    assert "thirty days" in json.dumps(answer)
    library.clock.advance(seconds=1)
    await planner.write("decision", "we wait")
    library.clock.advance(seconds=1)
    await library.analysis.write("elsewhere", "not from this prompt")
    found = await traced(library.admin, GUIDE)
    assert found == {f"{BOARD}/decision": "possible"}
    assert await traced(library.admin, GUIDE, possible=False) == {}
    # Others may not know what was in the planner's prompt.
    assert await traced(library.analysis, GUIDE) == {}
    # What another agent makes of it derives from it as well.
    library.clock.advance(seconds=1)
    await library.analysis.call("context.assemble", session_id=SESSION, task_description="what was decided?")
    library.clock.advance(seconds=1)
    await library.analysis.write("next", "then we act")
    found = await traced(library.admin, GUIDE)
    assert found == {f"{BOARD}/decision": "possible", f"{BOARD}/next": "possible"}


async def test_a_trace_shows_only_what_its_caller_may_read(library: World) -> None:
    await library.planner.remember("note", "thirty days", derived_from=[GUIDE])
    await library.planner.write("hidden", "thirty days.", derived_from=[GUIDE], readable_by=["type:planning"])
    assert set(await traced(library.planner, GUIDE)) == {"memory:planner/note", f"{BOARD}/hidden"}
    assert await traced(library.analysis, GUIDE) == {}
    answer = await library.admin.call("trust.trace", item=GUIDE)
    assert (answer["derived"], answer["hidden"]) == ([], 2)
    with refused("ITEM_NOT_FOUND"):
        await library.analysis.call("trust.trace", item=f"{BOARD}/hidden")
    with refused("ITEM_NOT_FOUND"):
        await library.stranger.call("trust.trace", item=GUIDE)


async def test_forgetting_is_a_dry_run_unless_told_otherwise(library: World) -> None:
    await library.planner.write("summary", "thirty days", derived_from=[GUIDE])
    answer = await library.admin.call("trust.forget", item=GUIDE, reason="poisoned")
    assert answer["dry_run"] is True
    assert [(each["item"], each["done"]) for each in answer["items"]] == [
        (GUIDE, "deleted"),
        (f"{BOARD}/summary", "deleted"),
    ]
    assert (await document(library.admin, "guide.md"))["state"] == "indexed"
    assert await library.planner.value("summary") == "thirty days"


async def test_a_source_is_forgotten_with_everything_that_declares_it(library: World) -> None:
    planner = library.planner
    secret = "thirty days, said the poisoned guide"
    await planner.write("summary", "an earlier text")
    library.clock.advance(seconds=1)
    await planner.write("summary", secret, derived_from=[GUIDE])
    number = await planner.say(secret, derived_from=[GUIDE])
    await planner.remember("note", secret, derived_from=[GUIDE])
    await planner.call("context.push", knowledge=[{"key": "refunds", "value": secret, "derived_from": [GUIDE]}])
    await planner.write("innocent", "something else")
    answer = await forget(library, GUIDE)
    assert (answer["deleted"], answer["skipped"]) == (5, 0)
    with refused("DOCUMENT_NOT_FOUND"):
        await document(library.admin, "guide.md")
    assert not await chunks(library, "guide.md")
    assert await planner.keys() == ["innocent"]
    assert await planner.memory_keys() == []
    assert await planner.message_texts() == ["[removed]"]
    assert number == 1
    # Nor is the text left in old versions.
    stored = [
        bytes(row[0]) for row in await library.rows("SELECT content FROM blobs WHERE tenant = $1", library.tenant)
    ]
    assert not any(b"poisoned guide" in content for content in stored)
    assert b"an earlier text" in stored
    exported = await planner.call("bundle.export", session_id=SESSION)
    assert "poisoned guide" not in exported["bundle"]


async def test_possible_derivations_are_flagged(library: World) -> None:
    planner = library.planner
    await planner.call("context.assemble", session_id=SESSION, task_description="refunds of zebra crossings")
    library.clock.advance(seconds=1)
    await planner.write("decision", "we wait")
    number = await planner.say("we wait")
    await planner.remember("mine", "we wait too")
    answer = await forget(library, GUIDE)
    assert (answer["deleted"], answer["flagged"], answer["prompts"]) == (1, 3, 1)
    assert (await trust_of(planner, "decision"))["trust"] == "suspicious"
    assert await planner.value("decision") == "we wait"
    messages = (await planner.messages())["messages"]
    assert messages[number - 1]["trust"]["trust"] == "suspicious"
    assert (await planner.recall("mine"))["trust"]["trust"] == "suspicious"
    receipt = (await planner.call("receipt.list"))["receipts"][0]["receipt_id"]
    with refused("RECEIPT_PRUNED"):
        await planner.call("receipt.replay", receipt_id=receipt)


async def test_a_source_can_be_flagged_instead(library: World) -> None:
    await library.planner.write("summary", "thirty days", derived_from=[GUIDE])
    answer = await forget(library, GUIDE, mode="flag", possible="keep")
    assert (answer["deleted"], answer["flagged"]) == (0, 2)
    assert (await document(library.planner, "guide.md"))["trust"]["trust"] == "suspicious"
    assert (await trust_of(library.planner, "summary"))["trust"] == "suspicious"


async def test_content_of_an_archived_session_is_forgotten_too(library: World) -> None:
    await library.planner.write("summary", "thirty days", derived_from=[GUIDE])
    await library.planner.call("session.archive", session_id=SESSION)
    assert (await forget(library, GUIDE))["deleted"] == 2
    assert await library.planner.keys() == []


async def test_only_admins_with_the_clearance_forget(library: World) -> None:
    for caller in (library.planner, library.analysis):
        with refused("PERMISSION_DENIED"):
            await caller.call("trust.forget", item=GUIDE, reason="x")
    low = await library.admin.create_agent("low", kind="human", clearance=3, permissions=["read", "write", "admin"])
    with refused("PERMISSION_DENIED"):
        await low.call("trust.forget", item=GUIDE, reason="x")


async def test_labels_stay_with_their_content(library: World) -> None:
    """Copies, branches, merges and rollbacks do not wash content clean."""
    await library.sql(
        "UPDATE documents SET trust = $1 WHERE tenant = $2",
        '{"source":"document","trust":"suspicious"}',
        library.tenant,
    )
    planner = library.planner
    await planner.call("context.push", knowledge=[{"key": "refunds", "value": "x", "derived_from": [GUIDE]}])
    copied = {"agent_id": "analysis", "from_agent_id": "planner"}
    await library.admin.call("context.copy", **copied)
    read = await library.analysis.call("context.read", key="refunds")
    assert "suspicious" in json.dumps(read)
    await planner.call("history.branch", context_id=BOARD, branch="try")
    await planner.call("history.switch", context_id=BOARD, branch="try")
    await planner.write("summary", "thirty days", derived_from=[GUIDE])
    await planner.call("history.switch", context_id=BOARD, branch="main")
    await planner.call("history.merge", context_id=BOARD, from_context_id=f"{BOARD}@try")
    assert (await trust_of(planner, "summary"))["trust"] == "suspicious"
    await planner.snapshot("mark")
    await planner.write("summary", "clean")
    assert await trust_of(planner, "summary") is None
    await planner.restore("mark")
    assert (await trust_of(planner, "summary"))["trust"] == "suspicious"


async def test_derivations_go_with_their_session(library: World) -> None:
    await library.planner.write("summary", "thirty days", derived_from=[GUIDE])
    await library.planner.say("thirty days", derived_from=[GUIDE])
    await library.planner.call("session.archive", session_id=SESSION)
    await library.admin.call("session.delete", session_id=SESSION, force=True)
    assert await library.rows("SELECT item FROM derivations WHERE tenant = $1", library.tenant) == []


def recorded(summary_id: str, *sources: str, content: str = "It takes a month.") -> dict[str, Any]:
    fields = {"summary_id": summary_id, "content": content, "source_item_refs": list(sources)}
    return {"schema_version": "0.1.0", "created_at": "2026-05-08T12:30:00Z", **fields}


async def test_recorded_summaries_are_traced_and_forgotten_with_their_sources(library: World) -> None:
    planner = library.planner
    await planner.write("plan", "wait a month", derived_from=[GUIDE])
    made = [
        recorded("of-guide", f"{GUIDE}?version=1"),
        recorded("of-plan", f"{BOARD}/plan/1.1"),
        recorded("of-summary", "of-plan"),
        recorded("of-nothing", "tool:browser"),
    ]
    await planner.call("records.add", session_id=SESSION, records=made)
    derived = dict.fromkeys(["of-guide", "of-plan", "of-summary", f"{BOARD}/plan"], "declared")
    assert await traced(planner, GUIDE) == derived
    assert await traced(planner, f"{BOARD}/plan/1.1") == {"of-plan": "declared", "of-summary": "declared"}
    answer = await forget(library, GUIDE)
    assert (answer["deleted"], answer["skipped"]) == (5, 0)
    for name in ("of-guide", "of-plan", "of-summary"):
        shown = await planner.call("records.show", record_id=name)
        assert "month" not in json.dumps(shown)
        assert (shown["redaction"]["state"], shown["redaction"]["method"]) == ("removed", "forgotten with its source")
    assert (await planner.call("records.show", record_id="of-nothing"))["record"]["content"] == "It takes a month."
    rows = await library.rows("SELECT body FROM records WHERE tenant = $1 AND type = 'context_summary'", library.tenant)
    assert sum(b"month" in bytes(body) for (body,) in rows) == 1


async def test_recorded_summaries_are_flagged_with_their_sources(library: World) -> None:
    planner = library.planner
    await planner.write("plan", "wait a month")
    odd = {**recorded("odd", f"{BOARD}/plan/1.1"), "metadata": {"mine": 1}}
    await planner.call("records.add", session_id=SESSION, records=[odd])
    # Written by an older Weftline, which let callers write it.
    claimed = json.dumps(odd | {"metadata": {"weftline": {"trust": "no label"}, "mine": 1}}).encode()
    await library.sql("UPDATE records SET body = $1 WHERE tenant = $2 AND record_id = 'odd'", claimed, library.tenant)
    answer = await forget(library, f"{BOARD}/plan", mode="flag")
    assert answer["flagged"] == 2
    metadata = (await planner.call("records.show", record_id="odd"))["record"]["metadata"]
    assert (metadata["weftline"]["trust"]["trust"], metadata["mine"]) == ("suspicious", 1)


async def test_a_summary_that_its_reader_may_not_read_is_not_traced_for_it(library: World) -> None:
    await library.planner.write("plan", "wait a month")
    made = recorded("closed", f"{BOARD}/plan/1.1")
    await library.planner.call("records.add", session_id=SESSION, records=[made], readable_by=["orchestrator"])
    assert await traced(library.planner, f"{BOARD}/plan") == {"closed": "declared"}
    assert await traced(library.analysis, f"{BOARD}/plan") == {}
