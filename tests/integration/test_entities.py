"""Entities of everything searchable: stored with their items, used as filters, listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import refused

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.both_databases, pytest.mark.req("CE-F14")]


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

    from weftline.storage.sql.database import Scope  # noqa: PLC0415

    await filled.app.database.write(Scope(filled.tenant), forget)
    await filled.admin.call("knowledge.reindex_all")
    await filled.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await filled.index_sessions()
    found = await texts(filled.planner, "release", entities=["src/release.py"])
    assert len(found) == 2


async def listed(caller: Caller, **which: Any) -> list[tuple[str, int]]:
    found = await caller.call("entity.list", **which)
    assert found["complete"] is True
    return [(f"{each['type']}:{each['value']}", each["count"]) for each in found["entities"]]


async def test_entities_are_listed_with_counts(filled: World) -> None:
    people = [("person:Ada", 3), ("person:Bob", 1), ("person:dana", 1), ("person:Okafor", 1)]
    assert await listed(filled.planner, type="person") == people
    assert await listed(filled.planner, type="file") == [("file:src/release.py", 2)]
    assert await listed(filled.planner, query="ADA") == [("person:Ada", 3)]
    assert await listed(filled.planner, query="release.p") == [("file:src/release.py", 2)]
    assert await listed(filled.planner, query="nobody") == []
    assert await listed(filled.planner, domain="handbook") == [("file:src/release.py", 1), ("person:Okafor", 1)]
    every = await filled.planner.call("entity.list", limit=3)
    assert (len(every["entities"]), every["complete"]) == (3, False)


async def test_only_what_the_caller_may_read_is_counted(filled: World) -> None:
    planner, analysis = filled.planner, filled.analysis
    assert ("person:Ada", 3) in await listed(planner)
    assert ("person:Ada", 2) in await listed(analysis, session_id="s1")
    assert not await listed(analysis, session_id="s1", query="REL-7")
    assert not await listed(analysis, session_id="s1", query="deploy_all")
    await planner.say("Ask Wanda about it.", visibility="private")
    await planner.write("secret", "Vera knows.", readable_by=["orchestrator"])
    await filled.index_sessions()
    assert await listed(planner, query="wanda") == [("person:Wanda", 1)]
    assert await listed(planner, query="vera") == [("person:Vera", 1)]
    assert not await listed(analysis, session_id="s1", query="wanda")
    assert not await listed(analysis, session_id="s1", query="vera")
    assert await texts(analysis, "ask", session_id="s1", entities=["wanda"]) == []
    # Not yet indexed, but not readable any more.
    await planner.write("release", "Something else.", readable_by=["orchestrator"])
    assert not await listed(analysis, session_id="s1", query="heron")


@pytest.mark.req("WX-02")
async def test_what_an_agent_writes_and_says_is_one_entity(world: World) -> None:
    await world.planner.write("release", "The release is ready.")
    await world.planner.say("I wrote it down.")
    await world.analysis.write("cause", "It was the cache.")
    await world.index_sessions()
    assert await listed(world.planner, type="agent") == [("agent:planner", 2), ("agent:analysis", 1)]


async def test_results_show_their_entities_if_explained(filled: World) -> None:
    found = await filled.planner.call("search.query", query="Heron", entities=["project:heron"], explain=True)
    (result,) = found["results"]
    assert result["entities"] == ["agent:planner", "date:2026-03-01", "project:Heron", "person:Ada"]
    bare = await filled.planner.call("search.query", query="Heron", entities=["project:heron"])
    assert "entities" not in bare["results"][0]
    shown = await filled.planner.call("records.show", record_id=result["ref"])
    assert shown["entities"] == result["entities"]
