"""A process that only indexes documents."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import weftline.app.app
import weftline.jobs.ingestion
import weftline.jobs.scheduler
from support.knowledge import QuickEmbedder
from weftline.settings import Settings

if TYPE_CHECKING:
    from support.processes import ClockAhead
    from weftline.app.app import App


class SlowEmbedder(QuickEmbedder):
    """Takes some time for each text, so that tests can interrupt it."""

    async def embed(self, texts: Any, purpose: Any) -> Any:
        await asyncio.sleep(0.002 * len(texts))
        return await super().embed(texts, purpose)


class StuckEmbedder(QuickEmbedder):
    """Never answers, so that documents are at work when the process is killed."""

    async def embed(self, texts: Any, purpose: Any) -> Any:
        del texts, purpose
        await asyncio.Event().wait()


def stuck_process(url: str, data: str, clock: ClockAhead) -> App:
    app = ingestion_process(url, data, clock)
    weftline.app.app.configured_embedders = lambda _settings: [StuckEmbedder()]
    return weftline.app.app.App(app.settings, clock=clock)


def ingestion_process(url: str, data: str, clock: ClockAhead) -> App:
    weftline.jobs.scheduler._FIRST_POLL_SECONDS = 0.0
    weftline.jobs.ingestion._CHUNKS_AT_ONCE = 2
    weftline.app.app.configured_embedders = lambda _settings: [SlowEmbedder()]
    # A rate limit that is never reached: no pauses.
    settings = Settings(database_url=url, data_dir=data, session_indexing="off", reindex_rate=1_000_000)
    return weftline.app.app.App(settings, clock=clock)
