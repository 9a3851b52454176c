"""Compactions with a given view, applied by the service as a run does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.app.dispatch import CallContext
from weftline.storage.sql.database import Scope
from weftline.windows.compaction.model import (
    CompactedView,
    CompactionDraft,
    CompactionOptions,
    FactKind,
    KeyFact,
    Summary,
)
from weftline.windows.compaction.service import Compactions
from weftline.windows.model import event_version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from support.world import Caller
    from weftline.windows.compaction.model import Compaction
    from weftline.windows.model import WindowEvent


class RunningCompaction(NamedTuple):
    """A compaction that was begun, with the events of its cut."""

    compaction: Compaction
    events: Sequence[WindowEvent]


async def in_service(caller: Caller, act: Callable[[Compactions], Awaitable[Any]]) -> Any:
    """Run ``act`` with the compactions of a caller, in one transaction."""
    app = caller.app
    actor = await app.identify(CallContext(caller.credential))
    return await app.database.write(
        Scope(actor.tenant),
        lambda tx: act(app._container.build(Compactions, actor, tx)),
    )


def summary_of(events: Sequence[WindowEvent], text: str, **changed: Any) -> Summary:
    """Return a summary of consecutive events."""
    fields: dict[str, Any] = {
        "summary_id": f"{events[0].number}-{events[-1].number}",
        "title": f"Events {events[0].number} to {events[-1].number}",
        "text": text,
        "method": "extractive_summary",
        "sources": {event.event_id: event_version(event) for event in events},
        "first_number": events[0].number,
        "last_number": events[-1].number,
        "first_at": events[0].at,
        "last_at": events[-1].at,
        "tokens_before": sum(event.tokens for event in events),
        "tokens": 5,
        "loss_notes": ("Small talk left out.",),
        "trust": events[0].trust,
    }
    return Summary(**{**fields, **changed})


def decision(event: WindowEvent, text: str, **changed: Any) -> KeyFact:
    return KeyFact(
        fact_id=f"{event.event_id}#1",
        kind=FactKind.DECISION,
        text=text,
        who="user",
        at=event.at,
        event_ids=(event.event_id,),
        **changed,
    )


async def begin(caller: Caller, agent_id: str | None = None) -> RunningCompaction:
    """Request a compaction and freeze its cut."""

    async def act(service: Compactions) -> RunningCompaction:
        window = await service.windows.open(caller.session, agent_id)
        queued = await service.request(window, CompactionOptions(), "request")
        running = await service.begin(queued)
        return RunningCompaction(running, await service.windows.line_events(running.session_id, running.line_id))

    return await in_service(caller, act)


def draft_of(view: CompactedView, **changed: Any) -> CompactionDraft:
    fields = {"used": "sliding_window", "reason": "a test", "degraded": (), "tokens_before": 100, "tokens_after": 20}
    return CompactionDraft(view=view, **{**fields, **changed})


async def finish(caller: Caller, compaction_id: str, draft: CompactionDraft, **how: Any) -> Compaction:
    return await in_service(caller, lambda service: service.finish(compaction_id, draft, cut=1, **how))


async def compact(
    caller: Caller, view_of: Callable[[Sequence[WindowEvent]], CompactedView], agent_id: str | None = None, **draft: Any
) -> Compaction:
    """Apply a compaction with the view that ``view_of`` makes of the events."""
    running = await begin(caller, agent_id)
    return await finish(caller, running.compaction.compaction_id, draft_of(view_of(running.events), **draft))
