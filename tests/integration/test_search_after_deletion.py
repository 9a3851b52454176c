"""Deleted and expired items do not displace search results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.knowledge import embed_quickly

if TYPE_CHECKING:
    from support.world import World

MANY = 40


@pytest.fixture(autouse=True)
def _quick_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    embed_quickly(monkeypatch)
    monkeypatch.setattr("weftline.search.retriever._PROBE_SIZE", 10)
    monkeypatch.setattr("weftline.search.retriever._EXTRA_ROWS", (5, 2 * MANY))


@pytest.mark.req("CE-F11", part="ranking by meaning, words and recency; widening at low confidence")
async def test_expired_items_do_not_displace_relevant_results(world: World) -> None:
    await world.admin.call("knowledge.create_domain", domain="handbook")
    await world.admin.call("knowledge.add_document", domain="handbook", document_id="a.md", text="vacation is paid")
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    for number in range(MANY):
        await world.planner.remember(f"note{number}", f"vacation vacation {number}", expires_in=3600)
    await world.index_sessions()
    before = await world.planner.call("search.query", query="vacation", low_confidence=True, explain=True)
    assert {result["source"] for result in before["results"]} == {"memory"}
    world.clock.advance(hours=2)
    found = await world.planner.call("search.query", query="vacation", low_confidence=True, explain=True)
    assert [(result["source"], result["text"]) for result in found["results"]] == [("document", "vacation is paid")]
    assert found["searched"] == 1
    similar = await world.planner.call("search.find_similar", text="vacation vacation 3")
    assert [result["text"] for result in similar["results"]] == ["vacation is paid"]
    context = await world.planner.call("search.get_context", query="vacation", min_score=0.0)
    assert "vacation is paid" in context["context"]
