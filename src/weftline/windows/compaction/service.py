"""Compactions of windows for one caller: requested, begun on a frozen cut, finished, applied, dropped.

They are open to whom the window is open. Each method belongs to one transaction; what runs between them holds none.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import structs

from weftline.access.audit import AuditTrail
from weftline.access.model import AgentNotFound
from weftline.access.plan_warnings import Plans
from weftline.history.model import trunk_of
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.identity import HoldReason
from weftline.safety.approvals.model import HeldCall
from weftline.safety.approvals.service import Approvals
from weftline.sessions.model import NotMember, SessionNotFound, SessionTerminated, find_session
from weftline.windows.compaction.compacted_events import (
    EventInPart,
    SummaryOfEvents,
    compacted_parts,
    holding_summaries,
)
from weftline.windows.compaction.model import (
    OPEN_STATES,
    Compaction,
    CompactionNotFound,
    CompactionNotHeld,
    CompactionState,
    ViewCache,
)
from weftline.windows.compaction.records import CompactionRecorder
from weftline.windows.compaction.sql import AppliedCompaction, CompactionStore
from weftline.windows.compaction.trigger import queued
from weftline.windows.model import window_line
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.windows.compaction.model import (
        CompactedView,
        CompactionDraft,
        CompactionOptions,
        CompactionTrigger,
        Summary,
    )
    from weftline.windows.model import Window


_DIGITS = 32
_encode = msgspec.json.Encoder(order="deterministic").encode


class Compactions(msgspec.Struct, frozen=True):
    """What compactions need, built for the caller of one operation."""

    windows: Windows
    store: CompactionStore
    views: ViewCache
    records: CompactionRecorder
    plans: Plans

    async def find(self, compaction_id: str) -> Compaction:
        """Return a compaction of a window that the caller may open; otherwise there is none."""
        found = await self.store.find(compaction_id)
        if found is None:
            raise no_compaction(compaction_id)
        if not await self._may_read(found):
            raise no_compaction(compaction_id, denied=True)
        return found

    async def current(self, line_id: str) -> AppliedCompaction | None:
        """Return the compaction that is in effect on a line, with its view."""
        applied = await self.store.applied(line_id)
        view = None if applied is None else await self.view(applied)
        return None if applied is None or view is None else AppliedCompaction(applied, view)

    async def view(self, compaction: Compaction) -> CompactedView | None:
        """Return the view of a compaction; None if it has none, or if it is too old."""
        if compaction.version is None:
            return None
        if compaction.state is not CompactionState.APPLIED:
            # Views of earlier compactions may have been erased.
            return await self.store.view(compaction.compaction_id)
        key = self.windows.actor.tenant, compaction.compaction_id, compaction.version
        view = self.views.get(key)
        if view is None:
            view = await self.store.view(compaction.compaction_id)
            if view is not None:
                self.views.put(key, view, view_bytes(view))
        return view

    async def unchanged(self, window: Window, options: CompactionOptions) -> Compaction | None:
        """Return the compaction in effect if another one with these options would have the same result."""
        current = await self.current(window.line_id)
        if current is None:
            return None
        made, view = current
        if (made.strategy, made.target, made.keep_recent, made.model) != options or made.degraded:
            return None
        events = await self.windows.line_events(window.session_id, window.line_id)
        is_same_cut = bool(events) and events[-1].number == made.cut
        return made if is_same_cut and len(holding_summaries(events, view)) == len(view.summaries) else None

    async def request(self, window: Window, options: CompactionOptions, trigger: CompactionTrigger) -> Compaction:
        """Queue a compaction of a window, or return the one that is open already."""
        windows = self.windows
        wanted = queued(window, options, trigger, windows.actor, windows.now, await windows.tokens(window))
        if await self.store.add(wanted):
            return wanted
        found = await self.store.open_for(window.line_id)
        if found is None or (found := await self.store.lock(found.compaction_id)) is None:
            return wanted
        if found.state is CompactionState.QUEUED:
            # What is asked for now counts, not what the threshold has queued.
            found = structs.replace(wanted, compaction_id=found.compaction_id, created_at=found.created_at)
            await self.store.save(found)
        return found

    async def begin(self, compaction: Compaction) -> Compaction:
        """Begin the run of a compaction that is locked."""
        line = await self.windows.lines.find(compaction.line_id)
        begun = structs.replace(
            compaction,
            state=CompactionState.RUNNING,
            window_tokens=0 if line is None else line.head.weight,
            attempts=compaction.attempts + 1,
            started_at=self.windows.now,
        )
        await self.store.save(begun)
        if compaction.attempts == 0:
            await self.records.started(begun)
        return begun

    async def finish(
        self, compaction_id: str, draft: CompactionDraft, *, cut: int, held_as: str | None = None
    ) -> Compaction:
        """Store the result of a run and apply it; with ``held_as``, an approval, it waits for its review.

        ``cut`` is the number of the newest event that the run saw. A compaction that was dropped meanwhile stays
        dropped.
        """
        found = await self._locked(compaction_id)
        if found.state is not CompactionState.RUNNING:
            return found
        finished = with_figures(found, draft, self.windows.now)
        state = CompactionState.APPLIED if held_as is None else CompactionState.HELD
        finished = structs.replace(finished, state=state, cut=cut, approval_id=held_as)
        await self.store.save(finished, draft.view)
        if state is CompactionState.APPLIED:
            await self.records.applied(finished, draft.view)
        return finished

    async def end(
        self, compaction_id: str, state: CompactionState, reason: str, degraded: tuple[str, ...] = ()
    ) -> Compaction:
        """End an open compaction without a result: skipped, failed or refused."""
        found = await self._locked(compaction_id)
        if found.state not in OPEN_STATES:
            return found
        ended = structs.replace(found, state=state, reason=reason, degraded=degraded, finished_at=self.windows.now)
        await self.store.save(ended)
        await self.records.ended(ended)
        return ended

    async def apply(self, compaction_id: str) -> Compaction:
        """Apply a held compaction. Its summaries whose sources have changed since are ignored, as always."""
        await self.find(compaction_id)
        found = await self._locked(compaction_id)
        if found.state is not CompactionState.HELD:
            raise CompactionNotHeld(
                f"The compaction is {found.state.value}, not held.",
                resource_type="compaction",
                resource_id=compaction_id,
                state=found.state.value,
            )
        if not await self._holds(found):
            reason = "The events that it stands for have changed since."
            return await self.end(compaction_id, CompactionState.SKIPPED, reason, found.degraded)
        applied = structs.replace(found, state=CompactionState.APPLIED, finished_at=self.windows.now)
        await self.store.save(applied)
        view = await self.store.view(compaction_id)
        if view is not None:
            await self.records.applied(applied, view)
        return applied

    async def _holds(self, compaction: Compaction) -> bool:
        """Tell whether something in the view of a compaction still stands for the events that it was made of."""
        view = await self.view(compaction)
        if view is None:
            return False
        events = await self.windows.line_events(compaction.session_id, compaction.line_id)
        return any(isinstance(part, SummaryOfEvents | EventInPart) for part in compacted_parts(events, view))

    async def drop(self, line_id: str) -> list[Compaction]:
        """Return a line to its original events: end its open compaction and the applied one."""
        named = [await self.store.open_for(line_id), await self.store.applied(line_id)]
        dropped: list[Compaction] = []
        for each in named:
            found = None if each is None else await self.store.lock(each.compaction_id)
            if found is not None and found.state in {*OPEN_STATES, CompactionState.APPLIED}:
                dropped.append(structs.replace(found, state=CompactionState.DROPPED))
                await self.store.save(dropped[-1])
        return dropped

    async def _locked(self, compaction_id: str) -> Compaction:
        found = await self.store.lock(compaction_id)
        if found is None:
            raise no_compaction(compaction_id)
        return found

    async def _may_read(self, compaction: Compaction) -> bool:
        """Tell whether the caller may open the window of a compaction, or one that shares it."""
        owner = trunk_of(compaction.line_id).removeprefix(window_line(compaction.session_id, ""))
        windows = self.windows
        try:
            session = await find_session(compaction.session_id, windows.actor, windows.sessions)
        except (SessionNotFound, SessionTerminated):
            return False
        for sharer in await windows.store.sharing(compaction.session_id, owner):
            try:
                await windows.agent(session, sharer.agent_id)
            except (AgentNotFound, PermissionDenied, NotMember):
                continue
            return True
        return False


def with_figures(compaction: Compaction, draft: CompactionDraft, now: int) -> Compaction:
    """Return a compaction with the figures of its result."""
    view = draft.view
    return structs.replace(
        compaction,
        used=draft.used,
        reason=f"{compaction.reason} {draft.reason}".strip(),
        version=version_of(view),
        events_covered=sum(len(summary.sources) for summary in view.summaries) + len(view.shortened),
        tokens_before=draft.tokens_before,
        tokens_after=draft.tokens_after,
        facts=len(view.facts),
        carried_facts=sum(fact.carried for fact in view.facts),
        summaries=len(view.summaries),
        loss_notes=sum(len(summary.loss_notes) for summary in view.summaries),
        degraded=draft.degraded,
        saved_tokens=max(0, draft.tokens_before - draft.tokens_after),
        model=compaction.model if draft.model_usage is None else draft.model_usage.model,
        model_usage=draft.model_usage,
        finished_at=now,
    )


def version_of(view: CompactedView) -> str:
    """Return the hash of a view: equal views have the same."""
    return hashlib.sha256(_encode(view)).hexdigest()[:_DIGITS]


def view_bytes(view: CompactedView) -> int:
    """Return about how much memory a view takes, in bytes."""
    return len(_encode(view)) * 2


def no_compaction(compaction_id: str, *, denied: bool = False) -> CompactionNotFound:
    """Return the error for a compaction that the caller cannot see; ``denied`` if it exists."""
    shown = compaction_id[:100]
    error = CompactionNotFound(f"There is no compaction '{shown}'.", resource_type="compaction", resource_id=shown)
    error.denial = denied
    return error


# Human review of compactions: a finished view is held until it is approved; the agent goes on with the one before.
#
# Whoever may decide about it may read it until then; that is audited. Approving performs the call ``compaction.apply``
# on behalf of the window's agent. Rejecting, or letting the approval expire, ends the compaction in the transaction of
# the decision.

APPLY = "compaction.apply"
# Summaries that an approval quotes; `compaction.show` has all of them.
_QUOTED = 5
_EXCERPT = 600


def check_of(compaction: Compaction) -> str:
    """Return the check that an approval of a compaction passes: for this view only."""
    return f"compaction:{compaction.compaction_id}:{compaction.version}"


def hold_reason(compaction: Compaction) -> HoldReason:
    """Return why a compaction is held. Without any text of the window: that may be redacted before the decision."""
    return HoldReason(
        check=check_of(compaction),
        text=(
            f"A compaction of the window of '{compaction.agent_id}' waits for review: {compaction.events_covered} "
            f"events, {compaction.tokens_before} tokens become {compaction.tokens_after}."
        ),
        details={
            "compaction_id": compaction.compaction_id,
            "session_id": compaction.session_id,
            "agent_id": compaction.agent_id,
            "strategy": compaction.used,
            "events": compaction.events_covered,
            "tokens_before": compaction.tokens_before,
            "tokens_after": compaction.tokens_after,
            "facts": compaction.facts,
            "carried_facts": compaction.carried_facts,
            "degraded": list(compaction.degraded),
        },
    )


def _side_by_side(summary: Summary, contents: Mapping[str, str]) -> dict[str, Any]:
    original = "\n".join(contents[event_id] for event_id in summary.sources)
    return {
        "title": summary.title,
        "events": len(summary.sources),
        "tokens_before": summary.tokens_before,
        "tokens_after": summary.tokens,
        "dropped": list(summary.loss_notes),
        "original": _excerpt(original),
        "summary": _excerpt(summary.text),
    }


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


class _ApplyRequest(msgspec.Struct):
    compaction_id: str


class ReadableCompactions(msgspec.Struct, frozen=True):
    """Compactions that the caller may read: of windows that are open to it, and those that it is asked to decide on."""

    compactions: Compactions
    approvals: Approvals
    audit: AuditTrail

    async def find(self, compaction_id: str) -> tuple[Compaction, bool]:
        """Return a compaction, and whether the caller reads it as its reviewer only; raises CompactionNotFound."""
        try:
            return await self.compactions.find(compaction_id), False
        except CompactionNotFound:
            found = await self.compactions.store.find(compaction_id)
            if found is None or found.state is not CompactionState.HELD or found.approval_id is None:
                raise
            if not await self.approvals.may_decide_about(found.approval_id):
                raise
            return found, True


class HeldCompactions(msgspec.Struct, frozen=True):
    """Implements the HeldCallObserver of approvals: what approvers see of a held compaction, and how it ends."""

    store: CompactionStore
    windows: Windows

    async def details(self, held: HeldCall) -> dict[str, Any]:
        """Return the first summaries that still hold, next to the events that they stand for."""
        found = await self._held(held)
        view = None if found is None else await self.store.view(found.compaction_id)
        if found is None or view is None:
            return {}
        events = await self.windows.line_events(found.session_id, found.line_id)
        contents = {event.event_id: event.message.content for event in events}
        summaries = holding_summaries(events, view)
        return {
            "summaries": [_side_by_side(summary, contents) for summary in summaries[:_QUOTED]],
            "more_summaries": max(0, len(summaries) - _QUOTED),
            "changed_since": len(view.summaries) - len(summaries),
        }

    async def closed(self, held: HeldCall, decision: Literal["rejected", "expired"]) -> None:
        found = await self._held(held)
        if found is None:
            return
        reason = "Its review was rejected." if decision == "rejected" else "Nobody reviewed it in time."
        ended = structs.replace(found, state=CompactionState.REJECTED, reason=reason, finished_at=self.windows.now)
        await self.store.save(ended)

    async def _held(self, held: HeldCall) -> Compaction | None:
        """Return the compaction that waits for the approval of a call, locked."""
        if held.operation != APPLY:
            return None
        named = msgspec.json.decode(held.request, type=_ApplyRequest)
        found = await self.store.lock(named.compaction_id)
        if found is None or found.state is not CompactionState.HELD or found.approval_id != held.approval_id:
            return None
        return found
