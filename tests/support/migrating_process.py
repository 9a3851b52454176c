"""A process that only runs model migrations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import weft.app.app
import weft.capabilities.indexing.model_migration.migration
import weft.jobs.ingestion
import weft.jobs.model_migration
from weft.settings import Settings
from weft.testing.embedder import WordEmbedder

if TYPE_CHECKING:
    from support.processes import Ahead
    from weft.app.app import App


class SlowEmbedder(WordEmbedder):
    """Takes a moment for each text, so that there is something to interrupt."""

    async def embed(self, texts: Any, purpose: Any) -> Any:
        await asyncio.sleep(0.005 * len(texts))
        return await super().embed(texts, purpose)


def embedders(_settings: Settings) -> list[WordEmbedder]:
    """Return two models that find the same, with vectors of different dimensions."""
    return [SlowEmbedder("old", 64), SlowEmbedder("new", 96)]


def mover(url: str, data: str, clock: Ahead) -> App:
    weft.jobs.model_migration._FIRST_LOOK_SECONDS = weft.jobs.model_migration._LOOK_EVERY_SECONDS = (
        0.02  # as if it had run for long
    )
    weft.jobs.ingestion._FIRST_LOOK_SECONDS = 3_600.0
    weft.capabilities.indexing.model_migration.migration._EMBED_BATCH = 4
    weft.capabilities.indexing.model_migration.migration._DELETE_BATCH = 4
    weft.app.app.configured_embedders = embedders
    app = weft.app.app.App(Settings(database_url=url, data_dir=data, session_indexing="off"), clock=clock)
    app.model_migrations.rest = 0
    return app
