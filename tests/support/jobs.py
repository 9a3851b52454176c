"""Control over background jobs in tests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from weftline.history.object_storage import tenants_to_clear
from weftline.jobs.scheduler import Scheduler
from weftline.storage.sql.database import SYSTEM

if TYPE_CHECKING:
    import pytest

    from weftline.app.app import App
    from weftline.app.objects import Objects


def pause_jobs(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Have every App that is opened from now on run these jobs on demand only."""
    start = Scheduler.start

    def start_paused(scheduler: Scheduler) -> None:
        scheduler.paused.update(names)
        start(scheduler)

    monkeypatch.setattr(Scheduler, "start", start_paused)


def repeat_job(app: App, name: str, seconds: float) -> None:
    """Poll a job in this interval."""
    app.scheduler.add(*(replace(job, every=seconds) for job in app.scheduler.jobs if job.name == name))


async def sweep_objects(objects: Objects) -> int:
    """Sweep the objects of every tenant once; return how many were removed."""
    tenants = await objects._database.read(SYSTEM, lambda tx: tenants_to_clear(tx, objects._now()))
    return sum([await objects.sweep(tenant) for tenant in tenants])
