"""Human review of compactions: a finished view is held until it is approved; the agent goes on with the one before.

Whoever may decide about it may read it until then; that is audited. Approving performs the call ``compaction.apply`` on
behalf of the window's agent. Rejecting, or letting the approval expire, ends the compaction in the transaction of the
decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import structs

from weftline.access.audit import AuditTrail
from weftline.kernel.approval import HoldReason
from weftline.safety.approvals.model import HeldCall
from weftline.safety.approvals.service import Approvals
from weftline.windows.compaction.compacted_events import holding_summaries
from weftline.windows.compaction.model import CompactionNotFound, CompactionState
from weftline.windows.compaction.service import Compactions
from weftline.windows.compaction.sql import CompactionStore
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.windows.compaction.model import Compaction, Summary

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
