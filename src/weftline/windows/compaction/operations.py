"""Operations on compactions: compact a window, list, show, expand, read key facts, apply and drop."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from typing import TYPE_CHECKING, Annotated
from weakref import WeakValueDictionary

import msgspec

from weftline.access.model import AgentNotFound
from weftline.history.model import BranchNotFound, trunk_of
from weftline.kernel.errors import PermissionDenied, QuotaExceeded
from weftline.kernel.fields import Count
from weftline.kernel.guards import warn_caller
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation
from weftline.kernel.ports import Transactions
from weftline.kernel.thread_pools import short_turns
from weftline.safety.approvals.model import is_approver
from weftline.safety.trust.model import Trust, TrustPolicies
from weftline.sessions.model import (
    NotMember,
    SessionArchived,
    SessionId,
    SessionNotFound,
    lock_active_session,
)
from weftline.state.agent_context.settings import KeepRecent, Target
from weftline.windows.compaction.compacted_events import holding_summaries
from weftline.windows.compaction.facts.extraction import extract_in_turns
from weftline.windows.compaction.model import (
    DEFAULT_STRATEGY,
    CompactionNotFound,
    CompactionNotHeld,
    CompactionOptions,
    CompactionState,
    FactCache,
    FactKind,
    FactStatus,
    StrategyName,
    is_stated,
)
from weftline.windows.compaction.service import Compactions, ReadableCompactions, check_of, no_compaction
from weftline.windows.compaction.trigger import CompactionJobs
from weftline.windows.compaction.views import (
    MAX_PAGE_BYTES,
    CompactionInfo,
    FactPlace,
    FactView,
    LineNow,
    OriginalEvent,
    ShortenedView,
    SummaryView,
    compaction_info,
    expand_ids,
    fact_view,
    named_compactions,
    original_bytes,
    original_event,
    shortened_view,
    summary_view,
    within,
)
from weftline.windows.model import WindowAgent, WindowNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.windows.compaction.model import CompactedView, Compaction, KeyFact
    from weftline.windows.model import Window, WindowEvent

_READ_ERRORS = (SessionNotFound, AgentNotFound, PermissionDenied, NotMember, WindowNotFound, BranchNotFound)
_operation = partial(operation, tool="compactions", rate=RateClass.SEARCH)
_read = partial(_operation, permission=Permission.READ)
_write = partial(_operation, permission=Permission.WRITE, effect=Effect.WRITE)
_DEFAULT_WAIT = 10.0
_MAX_WAIT = 60.0
# Besides its text.
_FACT_BYTES = 250
# Compactions that the ids of one call may refer to, each of which is read.
_MAX_VIEWS = 10
# Held by the call of a tenant that extracts key facts.
_extracting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

CompactionId = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+\Z", description="Id of a compaction."),
]
_SourceId = Annotated[str, msgspec.Meta(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+\Z")]


class CompactContext(Request):
    """The window to compact, and how; by default as configured for its agent."""

    session_id: SessionId
    agent_id: WindowAgent = None
    strategy: Annotated[
        StrategyName | None, msgspec.Meta(description="How; auto chooses by the content and says why.")
    ] = None
    target: Annotated[
        Target | None, msgspec.Meta(description="Part of their tokens that compacted events may take, such as 0.4.")
    ] = None
    keep_recent: Annotated[KeepRecent | None, msgspec.Meta(description="Newest messages to keep in full.")] = None
    wait_seconds: Annotated[
        float,
        msgspec.Meta(ge=0, le=_MAX_WAIT, description="How long to wait for the result; it is made in any case."),
    ] = _DEFAULT_WAIT


class ContextCompacted(Response):
    """The compaction. ``version``: the hash of the new view; ``strategy``: the one used, for the ``reason`` given.

    ``state`` queued or running: not finished yet; held: a human reviews it first; skipped: nothing to gain. ``facts``:
    statements in the covered events, and the names and numbers that their summary lacks; ``carried_facts`` of them are
    listed next to the summaries.
    """

    compaction_id: str
    state: CompactionState
    strategy: str
    reason: str = ""
    version: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    facts: int = 0
    carried_facts: int = 0
    loss_notes: int = 0
    degraded: tuple[str, ...] = ()
    approval_id: str | None = None


class ListCompactions(Request):
    """The window whose compactions to list."""

    session_id: SessionId
    agent_id: WindowAgent = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum compactions.")] = 10
    cursor: Annotated[CompactionId | None, msgspec.Meta(description="next_cursor of the previous page.")] = None


class CompactionList(Response):
    """Compactions, newest first; ``next_cursor`` while there are more."""

    compactions: list[CompactionInfo]
    next_cursor: str | None = None


class ShowCompaction(Request):
    """The compaction to show, and which of its summaries."""

    compaction_id: CompactionId
    limit: Annotated[int, msgspec.Meta(ge=1, le=50, description="Maximum summaries.")] = 2
    offset: Annotated[Count, msgspec.Meta(description="Summaries to skip, oldest first.")] = 0
    originals: Annotated[bool, msgspec.Meta(description="Also the original events, next to their summary.")] = True


class CompactionShown(Response):
    """A compaction: each summary next to the events it stands for, what it leaves out, and their key facts.

    ``expired``: only the figures are kept of a compaction this old. ``next_offset`` while there are more summaries;
    ``shortened``, events with a shorter content, are on the last page.
    """

    compaction: CompactionInfo
    summaries: list[SummaryView]
    shortened: tuple[ShortenedView, ...] = ()
    shortened_omitted: int = 0
    next_offset: int | None = None
    expired: bool = False


class ExpandCompaction(Request):
    """Summaries, key facts or events whose originals to read."""

    session_id: SessionId
    ids: Annotated[
        list[_SourceId],
        msgspec.Meta(min_length=1, max_length=50, description="Ids of summaries, key facts or events."),
    ]
    agent_id: WindowAgent = None
    compaction_id: Annotated[
        CompactionId | None, msgspec.Meta(description="The compaction of the ids; by default the one in effect.")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum events.")] = 50
    offset: Annotated[Count, msgspec.Meta(description="Events to skip, oldest first.")] = 0


class CompactionExpanded(Response):
    """Original events in order, at most 64 KiB; ``next_offset`` while there are more. ``unknown``: ids of nothing."""

    events: list[OriginalEvent]
    next_offset: int | None = None
    unknown: tuple[str, ...] = ()


class ListFacts(Request):
    """The window whose key facts to list."""

    session_id: SessionId
    agent_id: WindowAgent = None
    kind: Annotated[FactKind | None, msgspec.Meta(description="Only of this kind, such as decision.")] = None
    status: Annotated[
        FactStatus | None, msgspec.Meta(description="Only with this status: current, superseded or resolved.")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum facts.")] = 50
    offset: Annotated[Count, msgspec.Meta(description="Facts to skip, oldest first.")] = 0


class FactList(Response):
    """Key facts in order of time, also of events that are not compacted; ``total_count`` counts all that match."""

    facts: list[FactView]
    total_count: int
    next_offset: int | None = None


class ApplyCompaction(Request):
    """The held compaction to apply."""

    compaction_id: CompactionId


class DropCompaction(Request):
    """The window whose original events prompts should have again."""

    session_id: SessionId
    agent_id: WindowAgent = None


class CompactionDropped(Response, omit_defaults=False):
    """The compactions that were dropped: the one in effect, and the one that was in progress."""

    dropped: list[str]


@operation(
    "context.compact",
    tool="compact_context",
    http="POST /v1/sessions/{session_id}/compact",
    permission=Permission.WRITE,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(*_READ_ERRORS, SessionArchived, QuotaExceeded, CompactionNotFound),
)
async def compact_context(
    request: CompactContext, actor: Actor, transactions: Transactions[Compactions], jobs: CompactionJobs
) -> ContextCompacted:
    """Compact your window: prompts get summaries and key facts in place of older events, which stay in history.

    Every decision, constraint, open question, number and name is checked to be in the result, or kept next to it.
    """
    same = await transactions.read(actor, partial(_unchanged, request), heavy=True)
    if same is not None:
        return _answer(same)
    queued = await transactions.write(actor, partial(_request, request))
    if not _is_as_asked(queued, request):
        warn_caller(
            f"The window has a compaction that is {queued.state}, with other options; this call joins it. "
            "Ask again when it is done."
        )
    await jobs.run(actor, queued.compaction_id, request.wait_seconds)
    return _answer(await transactions.read(actor, lambda compactions: compactions.find(queued.compaction_id)))


@_read(
    "compaction.list",
    action="list",
    http="GET /v1/sessions/{session_id}/compactions",
    effect=Effect.READ,
    errors=_READ_ERRORS,
)
async def list_compactions(request: ListCompactions, compactions: Compactions) -> CompactionList:
    """List the compactions of a window, newest first: state, strategy, tokens before and after, facts."""
    window = await compactions.windows.open(request.session_id, request.agent_id)
    page = await compactions.store.page(window.line_id, request.cursor, request.limit + 1)
    shown = page[: request.limit]
    more = len(page) > len(shown)
    return CompactionList(
        compactions=[compaction_info(each) for each in shown],
        next_cursor=shown[-1].compaction_id if more else None,
    )


@_read(
    "compaction.show",
    action="show",
    http="GET /v1/compactions/{compaction_id}",
    effect=Effect.OWN_TRANSACTIONS,
    heavy=True,
    errors=(CompactionNotFound,),
    session=SessionUse.FINDS,
)
async def show_compaction(
    request: ShowCompaction, actor: Actor, transactions: Transactions[ReadableCompactions]
) -> CompactionShown:
    """Show a compaction: each summary next to its original events, what was dropped and why, and the key facts.

    One that is held for review is also open to the humans who may approve it. Their views are audited.
    """
    shown, is_review = await transactions.read(actor, partial(_read_compaction, request), heavy=True)
    if is_review:
        # Committed before anything is shown.
        await transactions.write(actor, lambda readable: readable.audit.record(show_compaction, request))
    return shown


@_read(
    "compaction.expand",
    action="expand",
    http="POST /v1/sessions/{session_id}/expand",
    effect=Effect.READ,
    heavy=True,
    errors=(*_READ_ERRORS, CompactionNotFound),
)
async def expand_compaction(request: ExpandCompaction, compactions: Compactions) -> CompactionExpanded:
    """Read the original events of summaries or key facts, such as when a summary lacks a detail that you need."""
    window = await compactions.windows.open(request.session_id, request.agent_id)
    views = await _views(request, window, compactions)
    events = await compactions.windows.line_events(window.session_id, window.line_id)
    found = expand_ids(request.ids, events, views)
    page = found.events[request.offset : request.offset + request.limit]
    shown = within((original_event(event, whole=True) for event in page), MAX_PAGE_BYTES)
    end = request.offset + len(shown)
    return CompactionExpanded(
        events=shown, next_offset=end if end < len(found.events) else None, unknown=tuple(found.unknown)
    )


@_read(
    "compaction.facts",
    heavy=True,
    action="facts",
    http="GET /v1/sessions/{session_id}/facts",
    effect=Effect.OWN_TRANSACTIONS,
    errors=_READ_ERRORS,
)
async def list_facts(
    request: ListFacts, actor: Actor, transactions: Transactions[Compactions], cache: FactCache
) -> FactList:
    """List the key facts of a window with their sources: decisions, constraints, open questions, names and numbers.

    A later decision supersedes an earlier one. Facts of events since the last compaction are included.
    """
    events, view = await transactions.read(actor, partial(_events_and_view, request), heavy=True)
    facts = await _facts_of(events, actor, cache)
    matching = [
        fact
        for fact in facts
        if is_stated(fact) and request.kind in {None, fact.kind} and request.status in {None, fact.status}
    ]
    page = matching[request.offset : request.offset + request.limit]
    shown = _facts_within(page, {event.event_id: event for event in events}, _covered(events, view))
    end = request.offset + len(shown)
    return FactList(facts=shown, total_count=len(matching), next_offset=end if end < len(matching) else None)


@_write(
    "compaction.apply",
    action="apply",
    http="POST /v1/compactions/{compaction_id}/apply",
    audited=True,
    errors=(CompactionNotFound, CompactionNotHeld, PermissionDenied, SessionArchived),
    session=SessionUse.FINDS,
)
async def apply_compaction(
    request: ApplyCompaction, actor: Actor, readable: ReadableCompactions, policies: TrustPolicies
) -> CompactionInfo:
    """Apply a compaction that is held for review. It is applied when its review is approved, or by an approver."""
    found, is_review = await readable.find(request.compaction_id)
    if is_review:
        raise PermissionDenied(
            "The window of this compaction is not open to you.",
            hint="Approve it with `approval.approve`: then it is applied on behalf of its agent.",
            approval_id=found.approval_id,
        )
    is_approved = actor.approval is not None and actor.approval.covers(check_of(found))
    if not is_approved and not is_approver(actor, await policies.current()):
        raise PermissionDenied(
            "A held compaction is applied by a human who may approve calls, or when its review is approved.",
            hint="Wait for the review; `approval.list` shows it. The window is used as it is meanwhile.",
        )
    return compaction_info(await readable.compactions.apply(request.compaction_id))


@_write(
    "compaction.drop",
    action="drop",
    http="DELETE /v1/sessions/{session_id}/compaction",
    destructive=False,
    errors=(*_READ_ERRORS, SessionArchived),
)
async def drop_compaction(request: DropCompaction, compactions: Compactions) -> CompactionDropped:
    """Return to the original events of a window. Compact it again to undo this."""
    windows = compactions.windows
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    window = await windows.open(request.session_id, request.agent_id)
    dropped = await compactions.drop(window.line_id)
    if dropped:
        readers = [window.agent_id, window.events_of]
        data = {"dropped_compactions": [each.compaction_id for each in dropped]}
        await windows.outbox.publish(windows.event("window.changed", session, window.agent_id, readers, data))
    return CompactionDropped(dropped=[each.compaction_id for each in dropped])


async def _unchanged(request: CompactContext, compactions: Compactions) -> Compaction | None:
    """Return the compaction in effect if the same is asked for again, and nothing was added since."""
    window = await compactions.windows.open(request.session_id, request.agent_id)
    return await compactions.unchanged(window, await _options(request, window, compactions))


async def _request(request: CompactContext, compactions: Compactions) -> Compaction:
    windows = compactions.windows
    await lock_active_session(request.session_id, windows.actor, windows.sessions)
    window = await windows.open(request.session_id, request.agent_id)
    return await compactions.request(window, await _options(request, window, compactions), "request")


async def _options(request: CompactContext, window: Window, compactions: Compactions) -> CompactionOptions:
    configured = await compactions.windows.compaction(window)
    if request.strategy not in {None, DEFAULT_STRATEGY}:
        (await compactions.plans.allowance()).check_compaction_strategies()
    return CompactionOptions(
        strategy=request.strategy or configured.strategy,
        target=configured.target if request.target is None else request.target,
        keep_recent=configured.keep_recent if request.keep_recent is None else request.keep_recent,
        model=configured.model,
    )


def _is_as_asked(compaction: Compaction, request: CompactContext) -> bool:
    """Tell whether a compaction has the options of a request: one that was begun before may have others."""
    given = (request.strategy, request.target, request.keep_recent)
    found = (compaction.strategy, compaction.target, compaction.keep_recent)
    return all(wanted is None or wanted == option for wanted, option in zip(given, found, strict=True))


def _answer(compaction: Compaction) -> ContextCompacted:
    return ContextCompacted(
        compaction_id=compaction.compaction_id,
        state=compaction.state,
        strategy=compaction.used or compaction.strategy,
        reason=compaction.reason,
        version=compaction.version,
        tokens_before=compaction.tokens_before,
        tokens_after=compaction.tokens_after,
        facts=compaction.facts,
        carried_facts=compaction.carried_facts,
        loss_notes=compaction.loss_notes,
        degraded=compaction.degraded,
        approval_id=compaction.approval_id,
    )


async def _read_compaction(request: ShowCompaction, readable: ReadableCompactions) -> tuple[CompactionShown, bool]:
    found, is_review = await readable.find(request.compaction_id)
    view = await readable.compactions.view(found)
    if view is None:
        shown = CompactionShown(compaction=compaction_info(found), summaries=[], expired=found.version is not None)
        return shown, is_review
    events = await readable.compactions.windows.line_events(found.session_id, found.line_id)
    return _shown(found, LineNow.of(events, view), request), is_review


def _shown(compaction: Compaction, now: LineNow, request: ShowCompaction) -> CompactionShown:
    """Return a page of summaries, at least one, within the limit of bytes."""
    wanted = now.view.summaries[request.offset : request.offset + request.limit]
    room = MAX_PAGE_BYTES
    shown: list[SummaryView] = []
    for summary in wanted:
        view = summary_view(summary, now, room if request.originals else 0)
        if not request.originals:
            view = msgspec.structs.replace(view, originals=(), originals_omitted=0)
        room -= _bytes_of(view)
        if room < 0 and shown:
            break
        shown.append(view)
    end = request.offset + len(shown)
    is_last = end >= len(now.view.summaries)
    shortened = _shortened(now, room) if is_last and request.originals else []
    return CompactionShown(
        compaction=compaction_info(compaction),
        summaries=shown,
        shortened=tuple(shortened),
        shortened_omitted=len(now.view.shortened) - len(shortened) if is_last else 0,
        next_offset=None if is_last else end,
    )


def _shortened(now: LineNow, room: int) -> list[ShortenedView]:
    shown: list[ShortenedView] = []
    for each in now.view.shortened:
        view = shortened_view(each, now)
        room -= 0 if view is None else len(view.content.encode()) + original_bytes(view.original)
        if room < 0:
            break
        shown += [] if view is None else [view]
    return shown


def _bytes_of(view: SummaryView) -> int:
    facts = sum(len(fact.text.encode()) + _FACT_BYTES for fact in view.facts)
    return len(view.text.encode()) + facts + sum(map(original_bytes, view.originals))


async def _views(request: ExpandCompaction, window: Window, compactions: Compactions) -> dict[str, CompactedView]:
    """Return the view of the compaction that is asked for, or in effect, and those that ids refer to."""
    views: dict[str, CompactedView] = {}
    if request.compaction_id is None:
        current = await compactions.current(window.line_id)
        views |= {} if current is None else {current.compaction.compaction_id: current.view}
    elif await _add_view(views, request.compaction_id, window, compactions) is None:
        raise no_compaction(request.compaction_id)
    for compaction_id in named_compactions(request.ids)[:_MAX_VIEWS]:
        await _add_view(views, compaction_id, window, compactions)
    return views


async def _add_view(
    views: dict[str, CompactedView], compaction_id: str, window: Window, compactions: Compactions
) -> Compaction | None:
    """Add the view of a compaction of this window and return it; None if the window has no such compaction."""
    found = await compactions.store.find(compaction_id)
    if found is None or trunk_of(found.line_id) != trunk_of(window.line_id):
        return None
    view = await compactions.view(found)
    views |= {} if view is None else {compaction_id: view}
    return found


async def _events_and_view(
    request: ListFacts, compactions: Compactions
) -> tuple[Sequence[WindowEvent], CompactedView | None]:
    """Return the events whose facts count: not what was redacted, and not what looks like an attack."""
    window = await compactions.windows.open(request.session_id, request.agent_id)
    events = await compactions.windows.line_events(window.session_id, window.line_id)
    live = [event for event in events if not event.redacted and not _is_suspicious(event)]
    current = await compactions.current(window.line_id)
    return live, None if current is None else current.view


def _is_suspicious(event: WindowEvent) -> bool:
    return event.trust is not None and event.trust.trust is Trust.SUSPICIOUS


class _Covered(msgspec.Struct, frozen=True):
    """Events that a view summarises, and the ids of the key facts that it carries."""

    events: frozenset[str] = frozenset()
    carried: frozenset[str] = frozenset()


def _covered(events: Sequence[WindowEvent], view: CompactedView | None) -> _Covered:
    if view is None:
        return _Covered()
    return _Covered(
        frozenset(event_id for summary in holding_summaries(events, view) for event_id in summary.sources),
        frozenset(fact.fact_id for fact in view.facts if fact.carried),
    )


async def _facts_of(events: Sequence[WindowEvent], actor: Actor, cache: FactCache) -> Sequence[KeyFact]:
    """Return the key facts of events, from the cache unless one of them is new.

    A tenant extracts those of one window at a time, so that its calls leave others their turns; a call for the same
    window finds the result in the cache.
    """
    digest = hashlib.sha256("\n".join(event.item_id for event in events).encode()).digest()
    key = actor.tenant, digest
    facts = cache.get(key)
    if facts is not None:
        return facts
    async with _extracting.setdefault(actor.tenant, asyncio.Lock()):
        facts = cache.get(key)
        if facts is None:
            with short_turns():
                facts = await extract_in_turns(events)
            cache.put(key, facts, sum(_FACT_BYTES + 2 * len(fact.text) for fact in facts))
    return facts


def _facts_within(facts: Sequence[KeyFact], events: Mapping[str, WindowEvent], covered: _Covered) -> list[FactView]:
    """Return facts within the limit of bytes, each with the place where prompts have it."""
    shown: list[FactView] = []
    room = MAX_PAGE_BYTES
    for fact in facts:
        room -= len(fact.text.encode())
        if room < 0 and shown:
            break
        is_covered = bool(covered.events.intersection(fact.event_ids[:1]))
        is_carried = is_covered and fact.fact_id in covered.carried
        place: FactPlace = "carried" if is_carried else "summary" if is_covered else "event"
        shown.append(fact_view(fact, place, events))
    return shown
