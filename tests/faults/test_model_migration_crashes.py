"""A process that dies during a model migration: the next one continues, and no vector is missing or left over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.crash_injection import MORE_THAN_A_LEASE, dies
from support.knowledge import HANDBOOK, domain
from support.model_migration_process import model_migration_process
from support.model_migrations import MORE_THAN_THE_GRACE, SMALL, chunk_count, migrate_on_demand, vectors
from support.processes import kill_when, process
from support.webhooks import wait_until
from weftline.testing.embedder import WordEmbedder

if TYPE_CHECKING:
    from support.world import World

MORE_THAN_A_STEP = 3_601
pytestmark = [pytest.mark.req("CE-F51", "CE-F52")]


@pytest.fixture(autouse=True)
def _two_models(monkeypatch: pytest.MonkeyPatch) -> None:
    migrate_on_demand(monkeypatch)
    models = [WordEmbedder("old", 64), WordEmbedder("new", 96)]
    monkeypatch.setattr("weftline.app.app.configured_embedders", lambda _settings: models)
    for constant in ("_EMBED_BATCH", "_DELETE_BATCH"):
        monkeypatch.setattr(f"weftline.indexing.model_migration.{constant}", 4)


async def filled(world: World, documents: int) -> int:
    await domain(world.admin, chunking=SMALL)
    given = [
        {"document_id": f"d{number:03}", "text": f"Fact number {number} is that room {number * 7} is painted in red."}
        for number in range(documents)
    ]
    await world.admin.call("knowledge.add_documents", domain=HANDBOOK, documents=given)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    world.app.lease_runner.rest = 0
    return await chunk_count(world)


async def state(world: World) -> str:
    return (await world.admin.call("knowledge.show_model_migration"))["state"]


async def expect_served(world: World, chunks: int) -> None:
    """Check that every chunk has a vector of the model used for search."""
    listed = (await world.admin.call("knowledge.list_models"))["models"]
    assert (await vectors(world)).get(listed[0]["model"]) == chunks
    found = await world.planner.call(
        "search.query", query="Fact number 3 is that room", domain=HANDBOOK, low_confidence=True
    )
    assert found["results"]


async def test_a_migration_resumes_after_a_crash_at_any_statement(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = await filled(world, 10)
    await world.admin.call("knowledge.start_model_migration", model="new", shares=[0.5], keep_hours=0)
    statements: dict[str, int] = {}
    while (now := await state(world)) != "done":
        # In each state, crash one statement later than the last time.
        statements[now] = statements.get(now, 0) + 1
        await dies(world, monkeypatch, statements[now], lambda: world.app.model_migrations.run(world.tenant))
        await expect_served(world, chunks)
        world.clock.advance(seconds=MORE_THAN_A_STEP if now == "canary" else MORE_THAN_A_LEASE)
    assert statements.keys() == {"embedding", "comparing", "canary", "dropping"}
    assert min(statements.values()) >= 5
    assert await vectors(world) == {"new": chunks}


async def test_a_migration_survives_killed_processes_in_every_state(world: World) -> None:
    chunks = await filled(world, 60)
    await world.admin.call("knowledge.start_model_migration", model="new", shares=[], keep_hours=0)

    async def embedded_some() -> bool:
        return (await vectors(world)).get("new", 0) >= 12

    async def dropping() -> bool:
        return await state(world) == "dropping"

    async def dropped_some() -> bool:
        return (await vectors(world)).get("old", 0) < chunks

    async def done() -> bool:
        return await state(world) == "done"

    await kill_when(process(model_migration_process, world), embedded_some)
    assert await state(world) == "embedding"
    await expect_served(world, chunks)
    await kill_when(process(model_migration_process, world, MORE_THAN_A_LEASE), dropping)
    await expect_served(world, chunks)
    ahead = 2 * MORE_THAN_A_LEASE + MORE_THAN_THE_GRACE
    await kill_when(process(model_migration_process, world, ahead), dropped_some)
    await expect_served(world, chunks)
    ahead += MORE_THAN_A_LEASE
    async with process(model_migration_process, world, ahead), process(model_migration_process, world, ahead):
        await wait_until(done)
    assert await vectors(world) == {"new": chunks}
    await expect_served(world, chunks)
