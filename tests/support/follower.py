"""What a process of its own does that does nothing but put what is said in its collections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import weft.jobs.scheduler
from support.indexed_items import ScriptedEmbeddings
from weft.app.app import App
from weft.settings import Settings

if TYPE_CHECKING:
    from support.processes import Ahead


def follower(url: str, data: str, clock: Ahead) -> App:
    weft.jobs.scheduler._FIRST_POLL_SECONDS = 0.0
    app = App(Settings(database_url=url, data_dir=data), clock=clock)
    embeddings: Any = ScriptedEmbeddings()
    app.session_indexing._embeddings = embeddings
    app.lease_runner.rest = 0
    return app
