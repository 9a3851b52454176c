"""Migration to another embedding model without failed searches or lost recall."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from support.embedding_service import DIMENSIONS, Answer, EmbeddingService, embedding_service
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
from weftline.app.app import App

pytestmark = [pytest.mark.req("CE-F51"), pytest.mark.req("CE-O", part="dual index for model migration")]


class RandomVectors:
    """A model that returns random vectors."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)

    def __call__(self, body: dict[str, Any]) -> object:
        for row in body["data"]:
            row["embedding"] = self._random.standard_normal(DIMENSIONS).tolist()
        return body


class RepeatedAnswer(list[Answer]):
    """A script that repeats its first answer."""

    def pop(self, _place: Any = 0) -> Answer:
        return self[0]


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


async def start(world: World, app: App, model: str = WORDS) -> Any:
    return await world.admin.at(app).call("knowledge.start_model_migration", model=model)


async def migration_events(world: World) -> list[str]:
    events = (await world.admin.events())["events"]
    return [event["type"] for event in events if event["type"].startswith("model_migration.")]


async def test_a_migration_switches_to_the_new_model_and_deletes_the_old_vectors(world: World, app: App) -> None:
    chunks = await chunk_count(world)
    assert await vectors(world) == {MINILM: chunks}
    begun = await start(world, app)
    assert (begun["state"], begun["from_model"], begun["to_model"]) == ("embedding", MINILM, WORDS)
    assert await serving_model(world, app) == MINILM
    ended = await finish_migration(world, app)
    assert (ended["state"], ended["embedded"], ended["chunks"]) == ("done", chunks, chunks)
    assert ended["comparison"]["probes"] == chunks
    assert ended["comparison"]["recall_after"] == 1.0
    assert await vectors(world) == {WORDS: chunks}
    assert await serving_model(world, app) == WORDS
    assert await best_document(world, app, "vacation days a year") == "leave.txt"
    assert await migration_events(world) == [
        f"model_migration.{what}" for what in ("started", "comparing", "canary", "canary", "switched", "done")
    ]
    back = await start(world, app, MINILM)
    assert back["from_model"] == WORDS
    assert (await finish_migration(world, app))["state"] == "done"
    assert await vectors(world) == {MINILM: chunks}


async def test_searches_return_the_same_results_during_a_migration(
    world: World, app: App, service: EmbeddingService
) -> None:
    asked = {name: text.split(" and ")[0] for name, text in SUBJECTS.items()}
    models, searches, stop = set(), 0, asyncio.Event()

    async def search() -> None:
        nonlocal searches
        while not stop.is_set():
            for name, query in asked.items():
                found = await world.planner.at(app).call("search.query", query=query, domain=HANDBOOK, explain=True)
                assert found["results"][0]["document_id"] == f"{name}.txt"
                assert "lexical_only" not in found
                models.add(found["model"])
                searches += 1

    searcher = asyncio.create_task(search())
    await start(world, app)
    assert (await finish_migration(world, app))["state"] == "done"
    before = searches
    while searches < before + len(asked) and not searcher.done():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
    stop.set()
    await searcher
    assert models == {MINILM, WORDS}
    assert service.requests


async def test_a_model_with_lower_recall_is_refused_and_its_vectors_deleted(
    world: World, app: App, service: EmbeddingService
) -> None:
    chunks = await chunk_count(world)
    for number in range(40):
        await put(
            world.admin, f"more/{number}", f"Rule {number}: {list(SUBJECTS.values())[number % 6]} See page {number}."
        )
    await run_indexing(app)
    service.script = RepeatedAnswer([Answer(change=RandomVectors())])
    await start(world, app)
    ended = await finish_migration(world, app)
    assert ended["state"] == "refused"
    assert ended["finished_at"]
    assert ended["comparison"]["recall_after"] < ended["comparison"]["recall_before"] - 0.1
    assert await serving_model(world, app) == MINILM
    assert await vectors(world) == {MINILM: chunks + 40}
    assert await migration_events(world) == [
        "model_migration.started",
        "model_migration.comparing",
        "model_migration.refused",
    ]
    assert await best_document(world, app, "vacation days a year") in {
        "leave.txt",
        *(f"more/{n}" for n in range(0, 40, 6)),
    }


async def test_a_cancelled_migration_deletes_its_vectors(
    world: World, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.indexing.model_migration._EMBED_BATCH", 2)
    chunks, admin = await chunk_count(world), world.admin.at(app)
    await start(world, app)
    step, steps = app.model_migrations._step, 0

    async def cancelling(lease: Any) -> bool:
        nonlocal steps
        steps += 1
        if steps == 3:
            assert (await vectors(world))[WORDS] == 4
            assert (await admin.call("knowledge.cancel_model_migration"))["state"] == "cancelled"
        return await step(lease)

    monkeypatch.setattr(app.model_migrations, "_step", cancelling)
    ended = await finish_migration(world, app)
    assert (ended["state"], ended["embedded"]) == ("cancelled", 4)
    assert await vectors(world) == {MINILM: chunks}
    with refused("MODEL_MIGRATION_NOT_FOUND"):
        await admin.call("knowledge.cancel_model_migration")
    await start(world, app)
    assert (await finish_migration(world, app))["state"] == "done"


async def test_content_changed_during_a_migration_has_vectors_of_both_models(
    world: World, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.indexing.model_migration._EMBED_BATCH", 2)
    step, steps = app.model_migrations._step, 0

    async def step_with_changes(lease: Any) -> bool:
        nonlocal steps
        steps += 1
        if steps < 8:
            await put(world.admin, f"new/{steps}", f"Rule {steps} was added while the vectors were made.")
            await put(world.admin, "lunch.txt", f"The kitchen serves soup number {steps} at noon.")
            await world.planner.say(f"A message in between, number {steps}.")
            await run_indexing(app)
        if steps == 4:
            await world.admin.call("knowledge.delete_document", domain=HANDBOOK, document_id="keys.txt")
        return await step(lease)

    monkeypatch.setattr(app.model_migrations, "_step", step_with_changes)
    await start(world, app)
    await switch_models(world, app)
    assert steps >= 8
    chunks = await chunk_count(world)
    assert await vectors(world) == {MINILM: chunks, WORDS: chunks}
    await finish_migration(world, app)
    assert await vectors(world) == {WORDS: chunks}
    assert await best_document(world, app, "soup number 7") == "lunch.txt"


async def test_old_vectors_are_kept_for_a_grace_period(world: World, app: App) -> None:
    await start(world, app)
    shown = await switch_models(world, app)
    assert (shown["state"], shown["switched_at"] is not None, shown["finished_at"]) == ("dropping", True, None)
    assert (await vectors(world)).keys() == {MINILM, WORDS}
    with refused("MODEL_MIGRATION_IN_PROGRESS"):
        await start(world, app, MINILM)


async def test_only_a_cleared_admin_migrates_and_only_to_an_existing_model(world: World, app: App) -> None:
    with refused("MODEL_IN_USE"):
        await start(world, app, MINILM)
    for model in ("none", "remote:words@65"):
        with refused("EMBEDDING_MODEL_UNKNOWN"):
            await start(world, app, model)
    with refused("PERMISSION_DENIED"):
        await world.planner.at(app).call("knowledge.start_model_migration", model=WORDS)
    helper = await world.admin.create_agent("helper", permissions=["read", "write", "admin"], clearance=4)
    with refused("PERMISSION_DENIED"):
        await helper.at(app).call("knowledge.start_model_migration", model=WORDS)
    # The migration counts the chunks of every domain.
    with refused("PERMISSION_DENIED"):
        await helper.at(app).call("knowledge.show_model_migration")
    with refused("MODEL_MIGRATION_NOT_FOUND"):
        await world.admin.at(app).call("knowledge.show_model_migration")
    await start(world, app)
    with refused("MODEL_MIGRATION_IN_PROGRESS"):
        await start(world, app)


@pytest.mark.req("CE-F42")
async def test_migrations_are_per_tenant(world: World, app: App) -> None:
    await start(world, app)
    await finish_migration(world, app)
    stranger = world.stranger.at(app)
    listed = (await stranger.call("knowledge.list_models"))["models"]
    assert {model["model"]: model["role"] for model in listed} == {MINILM: "serving", WORDS: "usable"}
    with refused("MODEL_MIGRATION_NOT_FOUND"):
        await stranger.call("knowledge.show_model_migration")


async def test_a_migration_reports_its_problem_and_resumes(world: World, app: App, service: EmbeddingService) -> None:
    await start(world, app)
    service.script = [Answer(401)]
    await app.scheduler.drain("embeddings.migrate")
    shown = await world.admin.at(app).call("knowledge.show_model_migration")
    assert (shown["state"], bool(shown["problem"])) == ("embedding", True)
    ended = await finish_migration(world, app)
    assert (ended["state"], ended["problem"]) == ("done", None)


async def test_a_process_without_the_new_model_does_not_migrate(world: World, app: App) -> None:
    await start(world, app)
    await world.app.scheduler.drain("embeddings.migrate")
    shown = await world.admin.at(app).call("knowledge.show_model_migration")
    assert (shown["state"], shown["embedded"], shown["problem"]) == ("embedding", 0, None)
    assert (await finish_migration(world, app))["state"] == "done"


async def test_a_process_without_a_model_in_use_does_not_index(
    world: World, app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("weftline.jobs.runner._failing", {})
    await start(world, app)
    for number, model in enumerate(("the new model", "the one that serves"), 1):
        await put(world.admin, f"{model}.txt", f"This was put while a process did not know {model}.")
        await world.planner.say(f"Said while a process did not know {model}.")
        before = await chunk_count(world)
        for _ in range(2):
            await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
            await world.app.scheduler.drain("search.index_sessions", "search.embed_sessions")
        with refused("EMBEDDING_MODEL_UNKNOWN"):
            await world.app.session_indexing.run(world.tenant)
        assert await chunk_count(world) == before
        migration_events = [record.fields for record in caplog.records if record.message == "job fails"]
        assert {each["code"] for each in migration_events} == {"EMBEDDING_MODEL_UNKNOWN"}
        assert sum(each["job"] == "queued documents" for each in migration_events) == number
        await run_indexing(app)
        assert await chunk_count(world) == before + 2
        assert (await finish_migration(world, app))["state"] == "done"
        assert await vectors(world) == {WORDS: before + 2}


@pytest.mark.parametrize("when", ["embedding", "comparing"])
async def test_content_indexed_while_the_new_model_is_unavailable_is_embedded_later(
    world: World, app: App, service: EmbeddingService, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    step, before = app.model_migrations._step, await chunk_count(world)

    async def step_with_changes(lease: Any) -> bool:
        shown = await world.admin.at(app).call("knowledge.show_model_migration")
        if shown["state"] == when and await chunk_count(world) == before:
            service.script = RepeatedAnswer([Answer(401)])
            await put(world.admin, "late.txt", "This was added while the new model was unavailable.")
            await world.planner.say("A message while the new model was unavailable.")
            await run_indexing(app)
            service.script = []
        return await step(lease)

    monkeypatch.setattr(app.model_migrations, "_step", step_with_changes)
    await start(world, app)
    await app.scheduler.drain("embeddings.migrate")
    assert await vectors(world) == {MINILM: before + 2, WORDS: before + 2}
    assert (await finish_migration(world, app))["state"] == "done"
    assert await vectors(world) == {WORDS: before + 2}
    assert await best_document(world, app, "added while the new model was unavailable") == "late.txt"


async def test_missing_vectors_of_the_current_model_are_added(world: World, app: App) -> None:
    chunks = await chunk_count(world)
    app.lease_runner.rest = 0
    await app.scheduler.drain("embeddings.backfill")
    await world.sql("DELETE FROM chunk_vectors WHERE tenant = $1 AND number % 2 = 0", world.tenant)
    await app.scheduler.drain("embeddings.backfill")
    assert (await vectors(world))[MINILM] < chunks
    world.clock.advance(days=1, seconds=1)
    await app.scheduler.drain("embeddings.backfill")
    assert await vectors(world) == {MINILM: chunks}
    assert await best_document(world, app, "vacation days a year") == "leave.txt"


async def test_migrating_from_an_unavailable_model_skips_the_comparison(
    world: World, app: App, service: EmbeddingService
) -> None:
    await start(world, app)
    await finish_migration(world, app)
    # The remote service is removed: only the built-in model is left.
    admin = world.admin
    assert (await admin.call("knowledge.list_models"))["models"][0]["model"] == MINILM
    await admin.call("knowledge.start_model_migration", model=MINILM)
    service.requests.clear()
    ended = await finish_migration(world, world.app)
    assert (ended["state"], ended["comparison"]) == ("done", None)
    assert await vectors(world) == {MINILM: await chunk_count(world)}
    assert service.requests == []


async def test_queries_during_a_migration_are_compared_and_then_deleted(
    world: World, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, asked = app.model_migrations._step, "how many days of vacation"
    await best_document(world, app, asked)
    assert not app.model_migrations._queries

    async def search_and_step(lease: Any) -> bool:
        await best_document(world, app, asked)
        return await step(lease)

    monkeypatch.setattr(app.model_migrations, "_step", search_and_step)
    await start(world, app)
    await app.scheduler.drain("embeddings.migrate")
    assert {probe.text for probe in app.model_migrations._queries[world.tenant]} == {asked}
    ended = await finish_migration(world, app)
    await app.scheduler.drain("embeddings.migrate")
    assert not app.model_migrations._queries
    assert 0 < ended["comparison"]["agreement"] <= 1
    assert asked not in json.dumps(
        [await world.rows("SELECT problem, comparison FROM model_migrations")], default=tuple
    )


@pytest.mark.req("CE-F49")
async def test_an_admin_limits_a_tenant_to_some_models(world: World, app: App) -> None:
    admin = world.admin.at(app)
    listed = await admin.call("knowledge.allow_models", models=[MINILM])
    assert (listed["limited"], [model["model"] for model in listed["models"]]) == (True, [MINILM])
    with refused("EMBEDDING_MODEL_UNKNOWN"):
        await start(world, app)
    with refused("EMBEDDING_MODEL_UNKNOWN"):
        await admin.call("knowledge.allow_models", models=["none"])
    await admin.call("knowledge.allow_models", models=[MINILM, WORDS])
    await start(world, app)
    await finish_migration(world, app)
    models = (await admin.call("knowledge.list_models"))["models"]
    assert {model["model"]: model["role"] for model in models} == {WORDS: "serving", MINILM: "usable"}
    assert (await admin.call("knowledge.allow_models", models=[]))["limited"] is False
