"""A process that only indexes sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import weftline.jobs.scheduler
from support.indexed_items import ScriptedEmbeddings
from weftline.app.app import App
from weftline.settings import Settings

if TYPE_CHECKING:
    from support.processes import ClockAhead


def session_indexing_process(url: str, data: str, clock: ClockAhead) -> App:
    weftline.jobs.scheduler._FIRST_POLL_SECONDS = 0.0
    app = App(Settings(database_url=url, data_dir=data), clock=clock)
    embeddings: Any = ScriptedEmbeddings()
    app.session_indexing._embeddings = app.session_vectors._embeddings = embeddings
    app.lease_runner.rest = 0
    return app
