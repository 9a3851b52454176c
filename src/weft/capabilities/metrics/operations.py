"""Reading the performance figures. Nothing is cached: they cost less to put together than to send."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec.structs import asdict

from weft.capabilities.metrics.model import Figures, Measurements
from weft.kernel.clock import Clock
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

COLLECTION_INTERVAL = 30
RETENTION_HOURS = 24


class ReadPerformance(Request):
    """Nothing needs to be said."""


class PerformanceTargets(Response, omit_defaults=False):
    """What the product is meant to reach."""

    session_creation: str = "< 10ms"
    message_insertion: str = "< 20ms"
    message_retrieval_50: str = "< 30ms"
    fuzzy_search_1000: str = "< 100ms"
    concurrent_agents: str = "20+"
    cache_hit_ratio: str = "> 70%"


class ResourceInfo(Response, omit_defaults=False):
    """How the figures are collected and shown."""

    collection_interval: int = COLLECTION_INTERVAL
    retention_hours: int = RETENTION_HOURS
    supports_subscriptions: bool = True
    admin_only: bool = True


class Performance(Figures, kw_only=True, omit_defaults=False):
    """The figures of the server process, and of your tenant's calls in it."""

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
)
async def read_performance(
    request: ReadPerformance, actor: Actor, measurements: Measurements, clock: Clock
) -> Performance:
    """See how fast and how busy the server is: database, memory, calls and where they are heading.

    Memory, CPU, connections and caches are those of the process that answers; calls, sessions and agents are your
    tenant's alone. What cannot be measured is null.
    """
    del request
    figures = await measurements.take(actor)
    return Performance(**asdict(figures), timestamp=clock.now(), requesting_agent=actor.principal_id)
