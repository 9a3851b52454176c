"""Compactions and summaries name source items that exist and that their author may read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported, records
from support.knowledge import HANDBOOK, domain, embed_quickly, put
from support.records import AT, ids, item
from support.statement_log import statements_of
from support.windows import ingest, message
from support.world import SESSION, refused
from weftline.exchange.record_log.add import MAX_SOURCES

if TYPE_CHECKING:
    from support.world import Caller, World

GOAL = f"board:{SESSION}/goal/1.1"
pytestmark = pytest.mark.req("AC-09", part="sources of recorded compactions exist")


def compaction(*sources: Any, compaction_id: str = "k") -> dict[str, Any]:
    fields = {"compaction_id": compaction_id, "scope": "session", "method": "rolling_summary"}
    return {"schema_version": "0.1.0", "created_at": AT, **fields, "source_item_refs": list(sources)}


def summary(*sources: Any, summary_id: str = "y") -> dict[str, Any]:
    fields = {"summary_id": summary_id, "content": "It ships."}
    return {"schema_version": "0.1.0", "created_at": AT, **fields, "source_item_refs": list(sources)}


async def add(caller: Caller, *added: dict[str, Any], **options: Any) -> Any:
    return await caller.call("records.add", **{"session_id": SESSION, **options}, records=list(added))


@pytest.mark.parametrize("naming", [compaction, summary])
async def test_a_source_that_does_not_exist_is_refused(world: World, naming: Any) -> None:
    await world.planner.write("goal", "ship")
    before = await world.last_event()
    for source in (
        "turn_1",
        f"board:{SESSION}/nothing/1.1",
        f"board:{SESSION}/goal/1.2",
        f"board:{SESSION}/goal",
        f"board://{SESSION}",
        f"message:{SESSION}/7",
        f"window:{SESSION}:planner/e1/1.1",
        "knowledge://nowhere/guide.md",
        "urn:weftline:0123#4",
        {"kind": "turn", "id": "turn_1"},
        {"id": f"board:{SESSION}/goal/1.9", "uri": "https://example.com/goal"},
    ):
        with refused("SOURCE_ITEM_NOT_FOUND") as caught:
            await add(world.planner, naming(GOAL, source))
        name = source if isinstance(source, str) else source["id"]
        assert caught.value.context["items"] == [name]
        assert caught.value.context["field"] == "records[0].source_item_refs[1]"
        assert name in caught.value.message
    assert await world.last_event() == before
    assert await ids(world.planner, session_id=SESSION, types=["context_compaction", "context_summary"]) == []


async def test_a_source_that_the_author_may_not_read_does_not_exist(world: World) -> None:
    await world.planner.write("goal", "ship", readable_by=["orchestrator"])
    await world.planner.say("between us", visibility="private")
    await add(world.planner, item("mine", "x"), readable_by=["orchestrator"])
    await ingest(world.planner, message("e1", "hello"))
    hidden = [GOAL, f"message:{SESSION}/1", "mine", f"window:{SESSION}:planner/e1/1.1"]
    await add(world.planner, compaction(*hidden))
    errors = []
    for source in (*hidden, "nothing"):
        with refused("SOURCE_ITEM_NOT_FOUND") as caught:
            await add(world.analysis, summary(source))
        errors.append(caught.value.message.replace(source, "X"))
        assert caught.value.context["suggestions"] == []
    assert len(set(errors)) == 1
    with refused("SOURCE_ITEM_NOT_FOUND"):
        await add(world.stranger, summary(GOAL), session_id=None)


async def test_the_error_names_all_missing_sources_and_suggests_the_current_version(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.write("goal", "ship soon")
    with refused("SOURCE_ITEM_NOT_FOUND") as caught:
        await add(world.planner, summary(f"board:{SESSION}/goal", "a", "b"), compaction("a"))
    context = caught.value.context
    assert (context["missing"], context["items"]) == (4, [f"board:{SESSION}/goal", "a", "b", "a"])
    assert context["suggestions"] == [f"board:{SESSION}/goal/1.2"]
    assert f"Did you mean board:{SESSION}/goal/1.2?" in caught.value.message
    with refused("SOURCE_ITEM_NOT_FOUND") as caught:
        await add(world.planner, item("turn_1", "hello"), summary("turn_2"))
    assert caught.value.context["suggestions"] == ["turn_1"]


async def test_items_and_summaries_of_the_same_call_are_sources(world: World) -> None:
    await add(world.planner, compaction("y", "turn_2"), summary("turn_1"), item("turn_1", "a"), item("turn_2", "b"))
    found = (await world.planner.call("records.show", record_id="turn_1"))["referenced_by"]
    assert [each["id"] for each in found] == ["y"]


async def test_items_of_other_systems_are_named_by_uri(world: World) -> None:
    sources = [
        "https://example.com/turns/1",
        {"uri": "file:///transcript.jsonl"},
        {"kind": "slack_message", "id": "C1/17", "uri": "https://example.slack.com/archives/C1/p17"},
        "tool:browser",
        "url:https://example.com/page",
        "urn:uuid:5f0c",
    ]
    await add(world.planner, compaction(*sources))
    shown = await world.planner.call("records.show", record_id="k")
    assert shown["record"]["source_item_refs"] == sources


async def test_documents_are_sources(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    embed_quickly(monkeypatch)
    await domain(world.admin)
    await put(world.planner, "guide.md", "# Refunds\n\nThey take thirty days.")
    guide = f"knowledge://{HANDBOOK}/guide.md"
    await add(world.planner, summary(guide, f"{guide}?version=1"))
    with refused("SOURCE_ITEM_NOT_FOUND"):
        await add(world.planner, summary(f"knowledge://{HANDBOOK}/other.md", summary_id="z"))


async def test_a_record_stays_known_when_its_sources_are_gone(world: World) -> None:
    await add(world.planner, item("turn_1", "a"), summary("turn_1"))
    await world.sql("DELETE FROM records WHERE tenant = $1 AND record_id = 'turn_1'", world.tenant)
    (again,) = (await add(world.planner, summary("turn_1")))["records"]
    assert again["known"] is True


async def test_an_imported_compaction_names_items_of_its_bundle(world: World) -> None:
    await world.planner.write("goal", "ship")
    await ingest(world.planner, message("e1", "hello"))
    window_event = f"window:{SESSION}:planner/e1/1.1"
    made = [item("turn_1", "a"), compaction(GOAL, "turn_1", window_event), summary(GOAL, "turn_1", window_event)]
    await add(world.planner, *made)
    bundle = await exported(world.planner)
    await imported(world.stranger, bundle)
    assert records(await exported(world.stranger), "context_summary").keys() == {("context_summary", "y")}
    shown = await world.stranger.call("records.show", record_id="k")
    assert shown["record"] == made[1]


async def test_many_sources_are_checked_in_few_statements(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await ingest(world.planner, *(message(f"e{number}", "hello") for number in range(100)))
    sources = [f"window:{SESSION}:planner/e{number}/1.1" for number in range(100)]

    async def statements(name: str, *named: str) -> list[str]:
        act = partial(add, world.planner, compaction(*named, compaction_id=name))
        return await statements_of(act, world.app.database, monkeypatch)

    assert len(await statements("many", *sources)) <= len(await statements("few", *sources[:2])) + 10
    too_many = [f"turn_{number}" for number in range(MAX_SOURCES + 1)]
    with refused("INVALID_INPUT_FORMAT"):
        await add(world.planner, compaction(*too_many))


async def stale(caller: Caller, record_id: str) -> Any:
    return (await caller.call("records.show", record_id=record_id)).get("stale")


@pytest.mark.req("AC-09", part="refresh of recorded summaries")
async def test_a_summary_whose_sources_changed_is_stale(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.write("other", "unchanged")
    await ingest(world.planner, message("e1", "hello"))
    event = f"window:{SESSION}:planner/e1/1.1"
    await add(world.planner, item("turn_1", "a"), summary(GOAL, f"board:{SESSION}/other/1.1", "turn_1", event))
    assert await stale(world.planner, "y") is None
    await world.planner.write("goal", "ship soon")
    found = await stale(world.planner, "y")
    assert (found["items"], found["count"], "records.add" in found["refresh"]) == ([GOAL], 1, True)
    await world.planner.delete("other")
    await world.planner.call("records.redact", item_id="turn_1", state="removed", reason="r", session_id=SESSION)
    await world.admin.call("records.redact", item_id=event, state="removed", reason="r", session_id=SESSION)
    assert (await stale(world.planner, "y"))["count"] == 4


async def test_a_reader_learns_nothing_about_sources_that_it_may_not_read(world: World) -> None:
    await world.planner.write("goal", "ship", readable_by=["orchestrator"])
    await add(world.planner, summary(GOAL))
    await world.planner.write("goal", "ship soon", readable_by=["orchestrator"])
    assert (await stale(world.planner, "y"))["count"] == 1
    assert await stale(world.analysis, "y") is None


async def test_a_redacted_event_hides_its_summaries_and_the_notes_of_its_compactions(world: World) -> None:
    await ingest(world.planner, message("e1", "the code is 4711-zulu"))
    event = f"window:{SESSION}:planner/e1/1.1"
    made = [
        {**summary(event), "content": "code 4711-zulu"},
        {**compaction(event), "loss_notes": ["4711-zulu left out"], "metadata": {"a": "4711-zulu"}},
    ]
    await add(world.planner, *made)
    await world.planner.call("records.redact", item_id=event, state="removed", reason="r", session_id=SESSION)
    shown = [await world.planner.call("records.show", record_id=name) for name in ("y", "k")]
    bundle = (await exported(world.planner)).decode()
    assert "4711-zulu" not in str(shown) + bundle
    assert shown[1]["record"]["source_item_refs"] == [event]
