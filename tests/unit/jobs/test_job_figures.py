"""Figures of background jobs: work of a tenant, or of all."""

from __future__ import annotations

from weftline.insight.metrics import JobFigures
from weftline.jobs.scheduler import Job, JobQueue, Work


async def idle(_: Work) -> None:
    return None


def test_work_is_counted_for_one_tenant_or_for_all() -> None:
    queue = JobQueue(Job(name="tidy", run=idle, every=60), jitter=lambda: 0.0)
    queue.offer([Work("a", ("1",)), Work("a", ("2",)), Work("b", ("1",))], now=0.0)
    started = queue.start()
    assert started is not None
    other = "b" if started.tenant == "a" else "a"
    assert queue.figures(None) == JobFigures(name="tidy", running=1, ready=2, failing=0)
    assert queue.figures(other).running == 0
    queue.finish(started, now=0.0, failed=True)
    assert queue.figures(None).failing == queue.figures(started.tenant).failing == 1
    assert queue.figures(other).failing == 0
    assert queue.figures("c") == JobFigures(name="tidy", running=0, ready=0, failing=0)
