"""Operations on a whole memory: an overview for the agent itself, an audited inspection for admins."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from weftline.access.grants import check_clearance
from weftline.access.model import AgentId, AgentNotFound
from weftline.access.sql import AccessStore
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, Success, operation
from weftline.state.memory.model import START, KeyRange, MemoryCursor, MemoryEntry, ScopeSize
from weftline.state.memory.operations import (
    MAX_ANSWER_BYTES,
    Cursor,
    Limit,
    ValueView,
    next_cursor,
    parse_cursor,
    value_fields,
    within_answer,
)
from weftline.state.memory.service import AllMemoryReader, Memories

if TYPE_CHECKING:
    from collections.abc import Sequence

_PAGE = 200


class GetMemoryOverview(Request):
    """Your own memory."""

    agent_id: Annotated[AgentId, msgspec.Meta(description="Your own agent_id.")]


class OverviewEntry(ValueView, kw_only=True):
    """One entry of a memory."""


class MemoryByScope(Response, omit_defaults=False):
    """Entries by key: the global ones, and those of each session."""

    everywhere: dict[str, OverviewEntry] = msgspec.field(name="global")
    sessions: dict[str, dict[str, OverviewEntry]]


class MemoryStatistics(Response, omit_defaults=False):
    """Totals of the memory, including entries left out of the answer."""

    global_keys: int
    session_scopes: int
    total_entries: int
    memory_usage_kb: float
    expired_entries_cleaned: int


class MemoryResourceInfo(Response, kw_only=True, omit_defaults=False):
    """Settings of the memory. ``cleanup_interval`` is in seconds; readers never see an expired entry."""

    last_updated: datetime
    supports_subscriptions: Literal[True] = True
    cleanup_interval: int
    max_memory_mb: int


class MemoryOverview(Response):
    """Your whole memory by scope; ``truncated`` if values beyond 4 MiB were left out."""

    agent_id: str
    memory: MemoryByScope
    statistics: MemoryStatistics
    resource_info: MemoryResourceInfo
    truncated: bool = False


class InspectMemory(Request):
    """The agent whose memory to inspect."""

    agent_id: AgentId
    limit: Limit = 50
    cursor: Cursor = None


class InspectedMemory(ValueView, kw_only=True):
    """One entry with its value and metadata."""

    key: str
    session_id: str | None
    value_size: int
    version: int


class MemoryInspected(Success, kw_only=True):
    """A page of an agent's memory."""

    agent_id: str
    entries: list[InspectedMemory]
    count: int
    has_more: bool
    next_cursor: str | None


@operation(
    "memory.overview",
    tool="get_memory_overview",
    http="GET /v1/agents/{agent_id}/memory",
    permission=Permission.READ,
    rate=RateClass.MEMORY,
    effect=Effect.READ,
    heavy=True,
    errors=(PermissionDenied,),
    session=SessionUse.FINDS,
)
async def get_memory_overview(request: GetMemoryOverview, memories: Memories) -> MemoryOverview:
    """Return your whole memory with values and totals."""
    if request.agent_id != memories.actor.principal_id:
        raise PermissionDenied(
            "Only the agent itself may read its memory.",
            hint="Pass your own agent_id; an admin can use `memory.inspect`, which is audited.",
            related=("get_memory_overview",),
        )
    whole = memories.whole()
    sizes = [
        size for size in await memories.entries.sizes(whole.owner, whole.now) if await whole.admits(size.session_id)
    ]
    shown = await _first_entries(whole)
    return MemoryOverview(
        agent_id=whole.owner,
        memory=await _by_scope(shown, memories),
        statistics=await _statistics(sizes, whole),
        resource_info=MemoryResourceInfo(
            last_updated=from_micros(whole.now),
            cleanup_interval=memories.limits.cleanup_interval_seconds,
            max_memory_mb=memories.limits.limit_mb,
        ),
        truncated=len(shown) < sum(size.entries for size in sizes),
    )


@operation(
    "memory.inspect",
    tool="inspect_memory",
    http="POST /v1/agents/{agent_id}/memory/inspect",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    heavy=True,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(AgentNotFound, PermissionDenied),
    session=SessionUse.OUTSIDE,
)
async def inspect_memory(request: InspectMemory, memories: Memories, access: AccessStore) -> MemoryInspected:
    """Read an agent's private memory with values, page by page.

    For admins only, up to their own clearance; every use is written to the audit log.
    """
    agent = await access.principal(request.agent_id)
    if agent is None:
        raise AgentNotFound(f"There is no agent '{request.agent_id}'.", resource_id=request.agent_id)
    check_clearance(memories.actor, agent.clearance, "The private memory of this agent", who="an admin")
    found = await memories.entries.page_of_all(
        request.agent_id, parse_cursor(request.cursor), KeyRange.of(""), memories.now, request.limit + 1
    )
    shown = within_answer(found[: request.limit])
    texts = await memories.entries.values(entry.blob_hash for entry in shown)
    return MemoryInspected(
        agent_id=request.agent_id,
        entries=[_inspected(entry, texts[entry.blob_hash]) for entry in shown],
        count=len(shown),
        has_more=len(found) > len(shown),
        next_cursor=next_cursor(found, shown),
    )


async def _first_entries(whole: AllMemoryReader) -> list[MemoryEntry]:
    """Return the entries in order, up to the size limit of an answer."""
    shown: list[MemoryEntry] = []
    after, room = START, MAX_ANSWER_BYTES
    while True:
        page = await whole.page(after, "", _PAGE)
        fitting = within_answer(page, room)
        shown += fitting
        room -= sum(entry.weight for entry in fitting)
        if len(fitting) < _PAGE:
            return shown
        after = MemoryCursor.of(page[-1])


async def _by_scope(entries: Sequence[MemoryEntry], memories: Memories) -> MemoryByScope:
    texts = await memories.entries.values(entry.blob_hash for entry in entries)
    scopes: dict[str | None, dict[str, OverviewEntry]] = {None: {}}
    for entry in entries:
        scopes.setdefault(entry.session_id, {})[entry.key] = OverviewEntry(
            **value_fields(entry, texts[entry.blob_hash])
        )
    return MemoryByScope(everywhere=scopes.pop(None), sessions={str(name): keys for name, keys in scopes.items()})


async def _statistics(sizes: Sequence[ScopeSize], whole: AllMemoryReader) -> MemoryStatistics:
    entries = {size.session_id: size.entries for size in sizes}
    usage = await whole.service.entries.usage(whole.owner)
    overdue = await whole.service.entries.expired_usage(whole.owner, whole.now)
    return MemoryStatistics(
        global_keys=entries.get(None, 0),
        session_scopes=len(entries.keys() - {None}),
        total_entries=sum(entries.values()),
        memory_usage_kb=round((usage.weight - overdue.weight) / 1024, 3),
        expired_entries_cleaned=usage.expired + overdue.expired,
    )


def _inspected(entry: MemoryEntry, text: str) -> InspectedMemory:
    return InspectedMemory(
        key=entry.key,
        session_id=entry.session_id,
        value_size=entry.size,
        version=entry.version,
        **value_fields(entry, text),
    )
