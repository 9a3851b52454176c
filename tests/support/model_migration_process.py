"""A process that only runs model migrations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import weftline.app.app
import weftline.indexing.model_migration
from support.jobs import repeat_job
from weftline.settings import Settings
from weftline.testing.embedder import WordEmbedder

if TYPE_CHECKING:
    from support.processes import ClockAhead
    from weftline.app.app import App


class SlowEmbedder(WordEmbedder):
    """Takes some time for each text, so that tests can interrupt it."""

    async def embed(self, texts: Any, purpose: Any) -> Any:
        await asyncio.sleep(0.005 * len(texts))
        return await super().embed(texts, purpose)


def embedders(_settings: Settings) -> list[WordEmbedder]:
    """Return two models with equal search results and vectors of different dimensions."""
    return [SlowEmbedder("old", 64), SlowEmbedder("new", 96)]


def model_migration_process(url: str, data: str, clock: ClockAhead) -> App:
    weftline.indexing.model_migration._EMBED_BATCH = 4
    weftline.indexing.model_migration._DELETE_BATCH = 4
    weftline.app.app.configured_embedders = embedders
    app = weftline.app.app.App(Settings(database_url=url, data_dir=data, session_indexing="off"), clock=clock)
    app.lease_runner.rest = 0
    app.scheduler.paused |= {"knowledge.reindex", "knowledge.ingest"}
    repeat_job(app, "embeddings.migrate", 0.02)
    return app
