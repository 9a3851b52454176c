"""Model migrations in tests: an App with two models, and helpers that count vectors by model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.embedding_service import DIMENSIONS
from support.jobs import pause_jobs
from support.knowledge import HANDBOOK, domain, put

if TYPE_CHECKING:
    import pytest

    from support.embedding_service import EmbeddingService
    from support.world import World
    from weftline.app.app import App

MINILM = "all-MiniLM-L6-v2-int8"
WORDS = f"remote:words@{DIMENSIONS}"
MORE_THAN_THE_GRACE = 31
# A step of canary queries, or the time for a rollback, without queries.
_HOUR = 3_601
_MAX_HOURS = 40
SMALL = {"chunk_tokens": 32, "overlap_tokens": 4}
SUBJECTS = {
    "leave": "Everyone has thirty days of vacation a year and asks the lead two weeks before.",
    "travel": "Trains are booked by the office, and flights need the approval of a director.",
    "passwords": "A password has at least sixteen characters and is kept in the vault of the team.",
    "invoices": "Invoices are written in the first week of a month and paid within thirty days.",
    "lunch": "The kitchen serves soup and bread at noon, and fruit in the afternoon.",
    "keys": "Keys to the building are handed out at the reception against a signature.",
}


def migrate_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run migrations and indexing on demand only."""
    pause_jobs(monkeypatch, "embeddings.migrate", "knowledge.reindex", "knowledge.ingest")


async def with_service(world: World, service: EmbeddingService) -> App:
    """Open an App with two models: the bundled one and the service's."""
    app = await world.another_app(embedding_url=service.url, embedding_model="words", embedding_dimensions=DIMENSIONS)
    app.lease_runner.rest = 0
    return app


async def fill_collections(world: World, app: App) -> None:
    """Add content to every collection."""
    await domain(world.admin, chunking=SMALL)
    for name, text in SUBJECTS.items():
        await put(world.admin, f"{name}.txt", text)
    await world.planner.say("The price cache was shortened from three hundred seconds to three.")
    await world.planner.remember("tea", "Dana drinks green tea without sugar in the morning.")
    await run_indexing(app)


async def run_indexing(app: App) -> None:
    await app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await app.scheduler.drain("search.index_sessions", "search.embed_sessions")


async def vectors(world: World) -> dict[str, int]:
    """Return how many vectors there are of each model."""
    rows = await world.rows(
        "SELECT model, COUNT(*) FROM chunk_vectors WHERE tenant = $1 GROUP BY model ORDER BY model", world.tenant
    )
    return dict(map(tuple, rows))


async def chunk_count(world: World) -> int:
    return (await world.rows("SELECT COUNT(*) FROM chunks WHERE tenant = $1", world.tenant))[0][0]


async def finish_migration(world: World, app: App) -> Any:
    """Run the migration until the old vectors are dropped; return its final state."""
    await switch_models(world, app)
    for _ in range(_MAX_HOURS):
        shown = await world.admin.at(app).call("knowledge.show_model_migration")
        if shown["finished_at"] is not None:
            return shown
        world.clock.advance(seconds=_HOUR)
        await app.scheduler.drain("embeddings.migrate")
    raise AssertionError(f"the migration does not end: {shown}")


async def switch_models(world: World, app: App) -> Any:
    """Run the migration through all shares of queries, or until it is refused; return its state."""
    await app.scheduler.drain("embeddings.migrate")
    for _ in range(_MAX_HOURS):
        shown = await world.admin.at(app).call("knowledge.show_model_migration")
        if shown["state"] != "canary":
            return shown
        world.clock.advance(seconds=_HOUR)
        await app.scheduler.drain("embeddings.migrate")
    raise AssertionError(f"the migration does not end: {shown}")


async def serving_model(world: World, app: App) -> str:
    models = (await world.planner.at(app).call("knowledge.list_models"))["models"]
    return next(model["model"] for model in models if model["role"] == "serving")


async def best_document(world: World, app: App, query: str) -> str:
    """Return the name of the document that a search finds first."""
    found = await world.planner.at(app).call("search.query", query=query, domain=HANDBOOK, low_confidence=True)
    return found["results"][0]["document_id"]
