"""A share of queries is answered by the new model and compared before all are; bad models are stopped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.embedding_service import EmbeddingService, embedding_service
from support.knowledge import HANDBOOK, put
from support.model_migrations import (
    MINILM,
    SUBJECTS,
    WORDS,
    best_document,
    chunk_count,
    fill_collections,
    finish_migration,
    migrate_on_demand,
    run_indexing,
    serving_model,
    switch_models,
    vectors,
    with_service,
)
from support.world import World, refused
from weftline.indexing.embeddings import EmbedderUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weftline.app.app import App

pytestmark = pytest.mark.req("CE-F51")
QUERIES = [f"{text.split(' and ')[0]} {number}" for number in range(12) for text in SUBJECTS.values()]


@pytest.fixture(autouse=True)
def _migrate_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    migrate_on_demand(monkeypatch)


@pytest.fixture
async def service() -> AsyncIterator[EmbeddingService]:
    async with embedding_service() as service:
        yield service


@pytest.fixture
async def app(world: World, service: EmbeddingService) -> App:
    app = await with_service(world, service)
    await fill_collections(world, app)
    return app


async def begin(world: World, app: App, **plan: Any) -> Any:
    """Start a migration and run it until it answers a share of the queries."""
    await world.admin.at(app).call("knowledge.start_model_migration", model=WORDS, **plan)
    await app.scheduler.drain("embeddings.migrate")
    return await shown(world, app)


async def shown(world: World, app: App) -> Any:
    return await world.admin.at(app).call("knowledge.show_model_migration")


async def ask(world: World, app: App, query: str) -> str | None:
    """Search and wait for the comparison; return the model that answered."""
    found = await world.planner.at(app).call("search.query", query=query, domain=HANDBOOK, explain=True)
    assert found["results"]
    assert "lexical_only" not in found
    await asyncio.gather(*app._comparisons._running)
    model: str | None = found["model"]
    return model


async def test_a_share_of_queries_is_compared_before_all_switch(world: World, app: App) -> None:
    begun = await begin(world, app, shares=[0.5])
    assert (begun["state"], begun["share"]) == ("canary", 0.5)
    models = {query: await ask(world, app, query) for query in QUERIES}
    new = [query for query, model in models.items() if model == WORDS]
    assert 20 < len(new) < 55
    step = (await shown(world, app))["canary"][0]
    assert (step["share"], step["queries"], step["failures"]) == (0.5, min(30, len(new)), 0)
    assert 0.3 <= step["overlap"] <= 1
    assert -1 <= step["rank_correlation"] <= 1
    assert 0 < step["confidence_before"] <= 1
    assert 0 < step["confidence_after"] <= 1
    assert min(step["ms_before"], step["ms_after"]) > 0
    assert await serving_model(world, app) == MINILM
    # The same queries have the same models, in every process and after a restart.
    other = await with_service(world, service=_service_of(app))
    assert {query: await ask(world, other, query) for query in QUERIES[:20]} == {
        query: models[query] for query in QUERIES[:20]
    }
    switched = await switch_models(world, app)
    assert (switched["state"], switched["share"]) == ("dropping", 1.0)
    assert {await ask(world, app, query) for query in QUERIES[:20]} == {WORDS}
    assert (await finish_migration(world, app))["state"] == "done"


def _service_of(app: App) -> Any:
    """Return the service that an App is configured with."""

    class Service:
        url = app.settings.embedding_url

    return Service


async def test_shares_grow_step_by_step(world: World, app: App) -> None:
    await begin(world, app, shares=[0.2, 0.6])
    answered = []
    for share in (0.2, 0.6):
        assert (await shown(world, app))["share"] == share
        answered.append({query for query in QUERIES if await ask(world, app, query) == WORDS})
        world.clock.advance(hours=1)
        await app.scheduler.drain("embeddings.migrate")
    assert answered[0] < answered[1]
    after = await shown(world, app)
    assert [step["share"] for step in after["canary"]] == [0.2, 0.6]
    assert after["state"] == "dropping"


async def test_a_model_whose_answers_differ_too_much_is_stopped(
    world: World, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.search.retriever.overlap", lambda _before, _after: 0.1)
    await begin(world, app, shares=[0.9])
    for query in QUERIES[:20]:
        await ask(world, app, query)
    await app.scheduler.drain("embeddings.migrate")
    ended = await shown(world, app)
    assert (ended["state"], ended["share"], ended["switched_at"]) == ("refused", 0.0, None)
    assert "agree on 10%" in ended["problem"]
    assert {await ask(world, app, query) for query in QUERIES[:20]} == {MINILM}
    # A search that began with the new model may still be running.
    assert (await vectors(world)).keys() == {MINILM, WORDS}
    await finish_migration(world, app)
    assert await vectors(world) == {MINILM: await chunk_count(world)}


@pytest.mark.parametrize("failure", ["unavailable", "slow"])
async def test_the_old_model_answers_what_the_new_one_cannot(
    world: World, app: App, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    await begin(world, app, shares=[0.9])
    of_query = app.embeddings.of_query

    async def failing(actor: Any, text: str, model: str) -> Any:
        if model == WORDS and failure == "slow":
            await asyncio.sleep(10)
        if model == WORDS:
            raise EmbedderUnavailable
        return await of_query(actor, text, model)

    monkeypatch.setattr("weftline.search.retriever._CANARY_SECONDS", 0.05)
    monkeypatch.setattr(app.embeddings, "of_query", failing)
    assert {await ask(world, app, query) for query in QUERIES[:20]} == {MINILM}
    assert (await shown(world, app))["canary"][0]["failures"] >= 10
    await app.scheduler.drain("embeddings.migrate")
    ended = await shown(world, app)
    assert (ended["state"], "could not answer" in ended["problem"]) == ("refused", True)


async def test_a_switch_can_be_rolled_back_while_the_old_vectors_are_kept(world: World, app: App) -> None:
    await begin(world, app, shares=[], keep_hours=2)
    after = await shown(world, app)
    assert (after["state"], after["share"]) == ("dropping", 1.0)
    assert after["rollback_until"]
    listed = (await world.admin.at(app).call("knowledge.list_models"))["models"]
    assert {model["model"]: model["role"] for model in listed} == {WORDS: "serving", MINILM: "kept"}
    await put(world.admin, "new.txt", "This was added after the switch and is found after the rollback.")
    await run_indexing(app)
    chunks = await chunk_count(world)
    assert await vectors(world) == {MINILM: chunks, WORDS: chunks}
    world.clock.advance(hours=1)
    await app.scheduler.drain("embeddings.migrate")
    ended = await world.admin.at(app).call("knowledge.cancel_model_migration")
    assert (ended["state"], ended["rollback_until"]) == ("rolled_back", None)
    assert {await ask(world, app, query) for query in QUERIES[:10]} == {MINILM}
    assert await best_document(world, app, "added after the switch") == "new.txt"
    await finish_migration(world, app)
    assert await vectors(world) == {MINILM: chunks}
    events = [event["type"] for event in (await world.admin.events())["events"]]
    assert events.count("model_migration.rolled_back") == 1


async def test_after_the_old_vectors_are_dropped_there_is_no_rollback(world: World, app: App) -> None:
    await begin(world, app, shares=[], keep_hours=1)
    world.clock.advance(hours=1, seconds=1)
    with refused("MODEL_MIGRATION_NOT_FOUND"):
        await world.admin.at(app).call("knowledge.cancel_model_migration")
    await finish_migration(world, app)
    assert await vectors(world) == {WORDS: await chunk_count(world)}


async def test_a_cancelled_canary_returns_all_queries_to_the_old_model_at_once(world: World, app: App) -> None:
    await begin(world, app, shares=[0.9])
    assert WORDS in {await ask(world, app, query) for query in QUERIES[:20]}
    await world.admin.at(app).call("knowledge.cancel_model_migration")
    assert {await ask(world, app, query) for query in QUERIES[:20]} == {MINILM}


@pytest.mark.req("CE-F42")
async def test_queries_of_other_tenants_are_neither_moved_nor_compared(
    world: World, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(world, app, shares=[0.9])
    compared: list[str] = []
    monkeypatch.setattr(app.model_migrations, "compare_later", lambda tenant, _work: compared.append(tenant))
    stranger = world.stranger.at(app)
    for query in QUERIES[:20]:
        found = await stranger.call("search.query", query=query, explain=True, low_confidence=True)
        assert found.get("model") in {None, MINILM}
    assert compared == []
    await world.planner.at(app).call("search.query", query=QUERIES[0], domain=HANDBOOK)
    await world.planner.at(app).call("search.query", query=QUERIES[1], domain=HANDBOOK)
    assert set(compared) == {world.tenant}


async def test_a_tenant_has_one_comparison_at_a_time(world: World, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    await begin(world, app, shares=[0.9])
    running, most, done = 0, 0, asyncio.Event()
    record = app.model_migrations._record

    async def slow(tenant: str, sample: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await done.wait()
        running -= 1
        await record(tenant, sample)

    monkeypatch.setattr(app.model_migrations, "_record", slow)
    planner = world.planner.at(app)
    await asyncio.gather(*(planner.call("search.query", query=query, domain=HANDBOOK) for query in QUERIES[:20]))
    await asyncio.sleep(0.2)
    done.set()
    await asyncio.gather(*app._comparisons._running)
    assert most == 1


async def test_shares_must_grow(world: World, app: App) -> None:
    for shares in ([0.5, 0.1], [0.5, 0.5], [0], [1]):
        with refused("INVALID_INPUT_FORMAT"):
            await world.admin.at(app).call("knowledge.start_model_migration", model=WORDS, shares=shares)
