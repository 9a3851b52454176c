"""PROV-JSON exports of derivations and agents, readable by other tools."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from prov.model import PROV, ProvActivity, ProvAgent, ProvDocument, ProvEntity

from support.bundles import exported, items, records
from support.world import SESSION

if TYPE_CHECKING:
    from support.world import World

pytestmark = [pytest.mark.req("AC-14"), pytest.mark.req("AC-12")]

GOAL = f"weftline:item/board%3A{SESSION}/goal"


async def fill_session(world: World) -> None:
    await world.planner.write("goal", "ship: «now» # % é")
    await world.planner.write("goal", "ship soon")
    await world.planner.write("old", "x")
    await world.planner.delete("old")
    await world.planner.say("hello")
    selection = {
        "schema_version": "0.1.0",
        "selection_id": "sel1",
        "surface_id": f"session:{SESSION}",
        "created_at": "2026-01-01T00:00:00Z",
        "selected_item_refs": [f"board:{SESSION}/goal/1.2"],
        "actor_ref": "orchestrator:planner",
    }
    summary = {
        "schema_version": "0.1.0",
        "summary_id": "sum1",
        "content": "It ships.",
        "created_at": "2026-01-01T00:00:00Z",
        "source_item_refs": [f"board:{SESSION}/goal/1.2"],
    }
    await world.planner.call("records.add", session_id=SESSION, records=[selection, summary])


async def prov(world: World, **what: Any) -> tuple[dict[str, Any], ProvDocument]:
    text = await exported(world.planner, format="prov", **what)
    return msgspec.json.decode(text), ProvDocument.deserialize(io.StringIO(text.decode()), format="json")


def pairs(section: dict[str, Any], *names: str) -> set[tuple[str, ...]]:
    return {tuple(relation[f"prov:{name}"] for name in names) for relation in section.values()}


async def test_the_document_is_readable_by_the_prov_library(world: World) -> None:
    await fill_session(world)
    raw, document = await prov(world)
    for kind, section in ((ProvEntity, "entity"), (ProvActivity, "activity"), (ProvAgent, "agent")):
        read = {str(record.identifier) for record in document.get_records(kind)}
        assert read == set(raw[section])
    (bundle,) = [entity for entity in document.get_records(ProvEntity) if "weftline:bundle/" in str(entity.identifier)]
    assert PROV["Bundle"] in bundle.get_asserted_types()
    again = ProvDocument.deserialize(io.StringIO(document.serialize(format="json")), format="json")
    assert again == document


async def test_every_exported_record_and_event_is_included(world: World) -> None:
    await fill_session(world)
    bundle = await exported(world.planner)
    raw, _ = await prov(world)
    entities = len([name for name in records(bundle) if name[0] != "context_event"])
    assert len(items(bundle)) == len([e for e in raw["entity"].values() if e["prov:type"] == "context_item"])
    assert len(raw["entity"]) >= entities
    assert len(raw["activity"]) >= len(records(bundle, "context_event"))


async def test_derivations_and_agents_are_exported(world: World) -> None:
    await fill_session(world)
    raw, _ = await prov(world)
    assert (f"{GOAL}/1.1", "weftline:agent/orchestrator%3Aplanner") in pairs(raw["wasAttributedTo"], "entity", "agent")
    derived = pairs(raw["wasDerivedFrom"], "generatedEntity", "usedEntity")
    assert {(f"{GOAL}/1.2", f"{GOAL}/1.1"), ("weftline:summary/sum1", f"{GOAL}/1.2")} <= derived
    assert (f"{GOAL}/1.1", f"weftline:source_ref/board%3A//{SESSION}") in derived
    assert ("weftline:activity/context_selection/sel1", f"{GOAL}/1.2") in pairs(raw["used"], "activity", "entity")
    made = dict(pairs(raw["wasGeneratedBy"], "entity", "activity"))
    activity = made[f"{GOAL}/1.1"]
    assert raw["activity"][activity]["prov:type"] == "context.item.added"
    assert (activity, "weftline:agent/orchestrator%3Aplanner") in pairs(raw["wasAssociatedWith"], "activity", "agent")
    assert raw["entity"][f"{GOAL}/1.1"]["prov:value"] == "ship: «now» # % é"


async def test_a_handoff_records_what_was_shown_to_whom(world: World) -> None:
    await world.planner.write("goal", "ship")
    raw, _ = await prov(world, scope="handoff", recipient="closer")
    (assembly,) = [name for name in raw["activity"] if name.startswith("weftline:activity/context_assembly/")]
    assert (assembly, f"{GOAL}/1.1") in pairs(raw["used"], "activity", "entity")
    assert (assembly, "weftline:agent/closer") in pairs(raw["wasAssociatedWith"], "activity", "agent")


@pytest.mark.req("AC-11")
async def test_masked_content_is_not_included(world: World) -> None:
    await world.planner.write("goal", "password=hunter2hunter2xyz")
    await world.planner.write("closed", "between us", readable_by=["human:*"])
    text = await exported(world.planner, format="prov")
    assert b"hunter2" not in text
    assert b"closed" not in text
