"""Entities of everything searchable: stored with their items, used as filters, listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import refused

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.both_databases, pytest.mark.req("CE-F14", part="entities")]


async def texts(caller: Caller, query: str, **how: Any) -> list[str]:
    found = await caller.call("search.query", query=query, low_confidence=True, **how)
    return sorted(result["text"] for result in found["results"])


@pytest.fixture
async def filled(world: World) -> World:
    await world.planner.say("Ada fixed the release script src/release.py.")
    await world.planner.say("Bob tests the release script.")
    await world.planner.write("release", "Project Heron is released on 2026-03-01, says Ada.")
    await world.planner.remember("release", "Ask Ada about ticket REL-7 of the release.")
    await world.admin.call("knowledge.create_domain", domain="handbook")
    document = {"document_id": "release.md", "text": "The release script is src/release.py, written by Dr. Okafor."}
    await world.admin.call("knowledge.add_document", domain="handbook", **document)
    events = [{"event_id": "e1", "content": "Deploy the release with `deploy_all` first.", "name": "dana"}]
    await world.planner.call("context.ingest", session_id=world.planner.session, events=events)
    await world.app.scheduler.drain("knowledge.ingest")
    await world.index_sessions()
    return world


async def test_every_source_is_filtered_by_entities(filled: World) -> None:
    planner = filled.planner
    assert len(await texts(planner, "release")) == 6
    assert await texts(planner, "release", entities=["file:src/release.py"]) == [
        "Ada fixed the release script src/release.py.",
        "The release script is src/release.py, written by Dr. Okafor.",
    ]
    assert await texts(planner, "release", entities=["RELEASE.PY", "@ada"]) == [
        "Ada fixed the release script src/release.py."
    ]
    assert await texts(planner, "release", entities=["project:heron"]) == [
        "Project Heron is released on 2026-03-01, says Ada."
    ]
    assert await texts(planner, "release", entities=["date:2026-03", "ada"]) == [
        "Project Heron is released on 2026-03-01, says Ada."
    ]
    assert await texts(planner, "release", entities=["rel-7"]) == ["Ask Ada about ticket REL-7 of the release."]
    assert await texts(planner, "release", entities=["deploy_all"]) == ["Deploy the release with `deploy_all` first."]
    assert await texts(planner, "release", entities=["person:dana"]) == ["Deploy the release with `deploy_all` first."]
    assert await texts(planner, "release", entities=["okafor"]) == [
        "The release script is src/release.py, written by Dr. Okafor."
    ]


async def test_the_sender_is_an_entity(filled: World) -> None:
    assert len(await texts(filled.planner, "release", sources=["message"], entities=["agent:planner"])) == 2
    assert await texts(filled.planner, "release", sources=["message"], entities=["person:planner"]) == []


async def test_an_unknown_entity_has_no_results(filled: World) -> None:
    assert await texts(filled.planner, "release", entities=["nobody"]) == []
    assert await texts(filled.planner, "release", entities=["ada", "nobody"]) == []
    # The words of the filter are not those of the text.
    assert await texts(filled.planner, "release", entities=["script"]) == []


async def test_filters_of_gathering_and_similar_passages(filled: World) -> None:
    gathered = await filled.planner.call(
        "search.get_context", query="release", min_score=0.0, entities=["project:heron"]
    )
    assert "Heron" in gathered["context"]
    assert "Bob" not in gathered["context"]
    similar = await filled.planner.call("search.find_similar", text="release script", entities=["bob"])
    assert [each["text"] for each in similar["results"]] == ["Bob tests the release script."]


@pytest.mark.parametrize("entities", [[], [""], ["  "], ["x" * 201], ["a"] * 21, "ada"])
async def test_malformed_filters_are_refused(world: World, entities: Any) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.call("search.query", query="x", entities=entities)


async def test_entities_go_with_their_item(filled: World) -> None:
    await filled.planner.write("release", "Project Egret is next.")
    await filled.planner.call("memory.delete", key="release")
    await filled.index_sessions()
    assert await texts(filled.planner, "release", entities=["project:heron"]) == []
    assert await texts(filled.planner, "release", entities=["project:egret"]) == ["Project Egret is next."]
    assert await texts(filled.planner, "release", entities=["rel-7"]) == []


async def test_reindexing_adds_entities_to_older_chunks(filled: World) -> None:
    async def forget(transaction: Any) -> None:
        await transaction.run("UPDATE chunks SET entities = ''")

    from weft.storage.sql.database import Scope  # noqa: PLC0415

    await filled.app.database.write(Scope(filled.tenant), forget)
    await filled.admin.call("knowledge.reindex_all")
    await filled.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await filled.index_sessions()
    found = await texts(filled.planner, "release", entities=["src/release.py"])
    assert len(found) == 2
