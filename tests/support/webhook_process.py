"""A process that only delivers webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import weftline.jobs.scheduler
from weftline.app.app import App
from weftline.settings import Settings

if TYPE_CHECKING:
    from support.processes import ClockAhead


def webhook_process(url: str, data: str, clock: ClockAhead) -> App:
    weftline.jobs.scheduler._FIRST_POLL_SECONDS = 0.0
    settings = Settings(database_url=url, data_dir=data, webhook_private_hosts="127.0.0.1", session_indexing="off")
    return App(settings, clock=clock)
