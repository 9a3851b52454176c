"""What a process of its own does that does nothing but send events to webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import weft.jobs.scheduler
from weft.app.app import App
from weft.settings import Settings

if TYPE_CHECKING:
    from support.processes import Ahead


def courier(url: str, data: str, clock: Ahead) -> App:
    weft.jobs.scheduler._FIRST_POLL_SECONDS = 0.0
    settings = Settings(database_url=url, data_dir=data, webhook_private_hosts="127.0.0.1", session_indexing="off")
    return App(settings, clock=clock)
