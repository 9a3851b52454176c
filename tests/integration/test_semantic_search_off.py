"""Sessions, tenants and installations without semantic search: nothing is embedded, and words are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.indexed_items import ScriptedEmbeddings, indexed_texts, unembedded, use_scripted_embeddings
from weftline.indexing.embeddings import SemanticSearchOff
from weftline.jobs.vectors import BACKFILL
from weftline.settings import InvalidSetting, Settings

if TYPE_CHECKING:
    from support.world import World


@pytest.fixture
def embeddings(world: World) -> ScriptedEmbeddings:
    return use_scripted_embeddings(world)


async def found(world: World, query: str, **scope: Any) -> list[str]:
    answer = await world.planner.call("search.query", query=query, **scope)
    return [result["text"] for result in answer["results"]]


async def test_a_session_without_semantic_search_is_found_by_words_and_not_embedded(
    world: World, embeddings: ScriptedEmbeddings
) -> None:
    await world.planner.call(
        "session.create", session_id="plain", purpose="words only", config={"semantic_search": False}
    )
    await world.planner.call("message.add", session_id="plain", content="the zeppelin lands on Friday")
    await world.planner.call("board.write", session_id="plain", key="goal", value="land the zeppelin")
    await world.planner.call("memory.set", session_id="plain", key="pilot", value="Ada flies the zeppelin")
    await world.planner.say("balloons float")
    await world.index_sessions()
    assert embeddings.texts == ["planner: balloons float"]
    texts = await found(world, "zeppelin", session_id="plain")
    assert {"the zeppelin lands on Friday", "land the zeppelin"} <= {*texts}
    # Neither a backfill nor a reindex embeds them.
    await world.app.scheduler.drain(BACKFILL)
    await world.admin.call("knowledge.reindex_all", reembed=True)
    await world.index_sessions()
    assert {*embeddings.texts} == {"planner: balloons float"}
    assert len(await indexed_texts(world)) == 3


async def test_a_search_of_such_a_session_uses_no_model(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.planner.call("session.create", session_id="plain", purpose="x", config={"semantic_search": False})
    await world.planner.call("message.add", session_id="plain", content="the zeppelin lands on Friday")
    await world.index_sessions()

    async def refuse(*_: Any) -> Any:
        raise AssertionError("the query was embedded")

    monkeypatch.setattr(type(world.app.embeddings), "of_query", refuse)
    answer = await world.planner.call(
        "search.query", query="zeppelin", session_id="plain", sources=["message", "board"]
    )
    assert [result["text"] for result in answer["results"]] == ["the zeppelin lands on Friday"]
    assert answer["lexical_only"] == "turned off for this session"


async def test_a_tenant_without_semantic_search_is_embedded_when_it_is_on_again(
    world: World, embeddings: ScriptedEmbeddings
) -> None:
    await world.app.tenants.set_semantic_search(world.tenant, on=False)
    assert not await world.app.tenants.semantic_search(world.tenant)
    await world.planner.say("the zeppelin lands on Friday")
    await world.index_sessions()
    assert not embeddings.texts
    assert await found(world, "zeppelin") == ["the zeppelin lands on Friday"]
    with pytest.raises(SemanticSearchOff, match="turned off for this tenant"):
        await world.planner.call("search.find_similar", text="airship")
    await world.app.tenants.set_semantic_search(world.tenant, on=True)
    await world.index_sessions()
    assert embeddings.texts == ["planner: the zeppelin lands on Friday"]
    assert not await unembedded(world)


async def test_other_tenants_stay_searched_by_meaning(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.app.tenants.set_semantic_search(world.tenant, on=False)
    await world.stranger.create_session("s1")
    await world.stranger.say("theirs")
    await world.planner.say("ours")
    await world.index_sessions()
    assert [text.rpartition(": ")[2] for text in embeddings.texts] == ["theirs"]


async def test_documents_of_such_a_tenant_are_indexed_by_words(world: World) -> None:
    await world.app.tenants.set_semantic_search(world.tenant, on=False)
    await world.admin.call("knowledge.create_domain", domain="manual")
    await world.admin.call(
        "knowledge.add_documents", domain="manual", documents=[{"document_id": "a", "text": "Zeppelins need helium."}]
    )
    await world.app.scheduler.drain("knowledge.ingest")
    answer = await world.admin.call("search.query", query="helium")
    assert [result["text"] for result in answer["results"]] == ["Zeppelins need helium."]
    assert len(await unembedded(world)) == 1
    await world.app.tenants.set_semantic_search(world.tenant, on=True)
    await world.app.scheduler.drain(BACKFILL)
    assert not await unembedded(world)


async def test_an_installation_without_semantic_search_never_embeds(world: World) -> None:
    app = world.app
    app.embeddings._off_reason = "turned off by the operator"
    await world.planner.say("the zeppelin lands on Friday")
    await world.index_sessions()
    assert len(await unembedded(world)) == 1
    answer = await world.planner.call("search.query", query="zeppelin")
    assert [result["text"] for result in answer["results"]] == ["the zeppelin lands on Friday"]
    assert answer["lexical_only"] == "turned off by the operator"
    with pytest.raises(SemanticSearchOff, match="turned off by the operator"):
        await world.planner.call("knowledge.embed", text="airship")


def test_the_setting_is_on_or_off() -> None:
    assert Settings().searches_by_meaning
    assert not Settings.from_environment({"WEFTLINE_SEMANTIC_SEARCH": "off"}).searches_by_meaning
    with pytest.raises(InvalidSetting, match="WEFTLINE_SEMANTIC_SEARCH"):
        _ = Settings(semantic_search="maybe").searches_by_meaning
