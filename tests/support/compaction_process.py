"""Processes that run compactions, and die at a chosen point."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import weftline.jobs.scheduler
from weftline.app.app import App
from weftline.jobs.compaction import CompactionJob
from weftline.settings import Settings
from weftline.windows.compaction.compactor import Compactor
from weftline.windows.compaction.model import CompactionState
from weftline.windows.compaction.sql import CompactionStore

if TYPE_CHECKING:
    from support.processes import ClockAhead


def compaction_process(url: str, data: str, clock: ClockAhead) -> App:
    """Run compactions from the start."""
    weftline.jobs.scheduler._FIRST_POLL_SECONDS = 0.0
    app = App(Settings(database_url=url, data_dir=data, rate_limits="off", session_indexing="off"), clock=clock)
    start = app.scheduler.start

    def start_and_wake() -> None:
        start()
        app.compaction.wake()

    app.scheduler.start = start_and_wake  # type: ignore[method-assign]
    return app


def dies_while_computing(url: str, data: str, clock: ClockAhead) -> App:
    Compactor.compact = _die  # type: ignore[method-assign]
    return compaction_process(url, data, clock)


def dies_before_the_commit(url: str, data: str, clock: ClockAhead) -> App:
    save = CompactionStore.save

    async def save_and_die(store: Any, compaction: Any, view: Any = None) -> None:
        await save(store, compaction, view)
        if compaction.state in {CompactionState.APPLIED, CompactionState.HELD}:
            _die()

    CompactionStore.save = save_and_die  # type: ignore[method-assign]
    return compaction_process(url, data, clock)


def dies_after_the_commit(url: str, data: str, clock: ClockAhead) -> App:
    run = CompactionJob._compact

    async def run_and_die(*args: Any) -> None:
        await run(*args)
        _die()

    CompactionJob._compact = run_and_die  # type: ignore[method-assign]
    return compaction_process(url, data, clock)


def _die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)
