"""Reading the performance report. It is not cached: computing it costs less than sending it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec.structs import asdict

from weftline.insight.metrics.history import RETENTION_HOURS
from weftline.insight.metrics.model import MetricsReport, MetricsSource
from weftline.kernel.clock import Clock
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation

COLLECTION_INTERVAL = 30


class ReadPerformance(Request):
    """How much history to return."""

    history_hours: Annotated[
        int,
        msgspec.Meta(ge=0, le=RETENTION_HOURS, description="Hours of history to return, one entry each; 0: none."),
    ] = 0


class PerformanceTargets(Response, omit_defaults=False):
    """The specified performance targets."""

    session_creation: str = "< 10ms"
    message_insertion: str = "< 20ms"
    message_retrieval_50: str = "< 30ms"
    fuzzy_search_1000: str = "< 100ms"
    concurrent_agents: str = "20+"
    cache_hit_ratio: str = "> 70%"


class ResourceInfo(Response, omit_defaults=False):
    """How the figures are collected."""

    collection_interval: int = COLLECTION_INTERVAL
    retention_hours: int = RETENTION_HOURS
    supports_subscriptions: bool = True
    admin_only: bool = True


class Performance(MetricsReport, kw_only=True, omit_defaults=False):
    """Figures of your tenant's calls, and for the operator those of the server process."""

    success: Literal[True] = True
    timestamp: datetime
    performance_targets: PerformanceTargets = PerformanceTargets()
    requesting_agent: str
    resource_info: ResourceInfo = ResourceInfo()


@operation(
    "performance.read",
    tool="get_performance_metrics",
    http="GET /v1/performance",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.OWN_TRANSACTIONS,
    session=SessionUse.OUTSIDE,
)
async def read_performance(
    request: ReadPerformance, actor: Actor, measurements: MetricsSource, clock: Clock
) -> Performance:
    """Get performance figures: database, memory, CPU, caches, calls and trends.

    Calls, sessions, agents and caches are those of your tenant only. Memory, CPU and connections are those of the
    answering process, for the operator's tenant (the default one, or the only one); for others they are null, because
    they would show what other tenants do. History and trends cover all server processes and survive restarts. A figure
    that cannot be measured is null.
    """
    figures = await measurements.take(actor, request.history_hours)
    return Performance(**asdict(figures), timestamp=clock.now(), requesting_agent=actor.principal_id)
