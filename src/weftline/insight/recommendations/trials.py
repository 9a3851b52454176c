"""Trials: the last calls of an agent as they were sent, and as a proposal would have made them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.insight.recommendations.compaction_replay import views_under
from weftline.insight.recommendations.evidence import TOOL
from weftline.insight.recommendations.model import ProposedSettings, Trial, TriedCall
from weftline.insight.recommendations.recorded_candidates import candidates_of
from weftline.insight.recommendations.replay import Replay, document_of
from weftline.insight.recommendations.risks import risks_of
from weftline.kernel.thread_pools import COMPACTION_THREADS, short_turns
from weftline.state.agent_context.compaction_settings import ResolvedCompaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.insight.recommendations.replay import (
        PreparedEvents,
        RecordedCall,
        RecordedWindow,
        ReplayedCall,
        ReplayServices,
    )
    from weftline.windows.compaction.compactor import Compactor
    from weftline.windows.compaction.model import CompactedView

# Calls that are planned before other work gets its turn.
_CALLS_IN_TURN = 8
_ALWAYS = (
    "Retrieval is not repeated: the candidates, scores and tokens are those of the receipts.",
    "The agent would have made the same calls, and its answers would have been as long.",
)
_MONEY = "Money is modelled as in receipts: what the previous prompt had is read from the cache while it lives."
_COMPACTION = (
    "Summaries are made without a language model, and each compaction ends before the next call. Passages of events in "
    "summaries, which a prompt may quote for its task, are not counted as kept."
)
_MODEL = (
    "Tokens that no receipt has the text of are scaled by the ratio of those that were sent. Quality is not judged."
)
_REST = "Parts of a block are counted by the tokens of its candidates where no prompt had just these."


class TrialResult(NamedTuple):
    """The sums, and each call with what would have changed."""

    trial: Trial
    calls: Sequence[TriedCall]


class Control:
    """The same calls planned again with the settings that they had, for all trials of an analysis."""

    def __init__(self, windows: Sequence[RecordedWindow], services: ReplayServices) -> None:
        self.windows = windows
        self._services = services
        self._replayed: dict[bool, list[list[ReplayedCall]]] = {}
        # Of each window: the events are prepared once for all trials.
        self.prepared: list[PreparedEvents] = [{} for _ in windows]

    async def replayed(self, *, counts_output: bool) -> list[list[ReplayedCall]]:
        """Return the calls of each window; ``counts_output``: their cost includes that of the answers."""
        if counts_output not in self._replayed:
            replays = [
                Replay(window, self._services, counts_output=counts_output, prepared=prepared)
                for window, prepared in zip(self.windows, self.prepared, strict=True)
            ]
            self._replayed[counts_output] = [await _planned(each) for each in replays]
        return self._replayed[counts_output]


async def _planned(replay: Replay) -> list[ReplayedCall]:
    """Plan the calls of a window in a thread, a few at a time, so that the work of others is done in between."""
    calls = replay.in_sequence()
    found: list[ReplayedCall] = []
    while batch := await COMPACTION_THREADS.run(_next_calls, calls):
        found += batch
    return found


def _next_calls(calls: Iterator[ReplayedCall]) -> list[ReplayedCall]:
    with short_turns():
        return list(islice(calls, _CALLS_IN_TURN))


def _is_unchanged(proposal: ProposedSettings, views: Sequence[CompactedView | None] | None) -> bool:
    """Tell whether a proposal is only about compaction, and would not have compacted anything."""
    return views is None and structs.replace(proposal, compaction=None) == ProposedSettings()


async def try_proposal(
    control: Control, proposal: ProposedSettings, services: ReplayServices, compactor: Compactor
) -> TrialResult:
    """Replay the calls of some windows under a proposal, next to the control; planning runs in threads."""
    calls: list[TriedCall] = []
    # Another model also writes the answers: then both sides count them.
    has_model = proposal.model is not None
    controls = await control.replayed(counts_output=has_model)
    for window, as_they_were, prepared in zip(control.windows, controls, control.prepared, strict=True):
        views = None
        if proposal.compaction is not None:
            settings = ResolvedCompaction.of(proposal.compaction)
            views = await views_under(window, settings, compactor, services)
            if not any(views) and not window.views:
                # It would not have been compacted, as it was not.
                views = None
        replay = Replay(window, services, proposal, views, counts_output=has_model, prepared=prepared)
        tried = as_they_were if _is_unchanged(proposal, views) else await _planned(replay)
        pairs = zip(as_they_were, tried, strict=True)
        calls += [_compared(was, would_be, proposal) for was, would_be in pairs]
    return TrialResult(_summed(calls, proposal, risks_of(calls, proposal, control.windows)), calls)


def _compared(was: ReplayedCall, tried: ReplayedCall, proposal: ProposedSettings) -> TriedCall:
    """Return how a call of the trial differs from the same one of the control."""
    call, receipt = was.call, was.call.receipt
    items, included = was.items, tried.items
    included |= _by_originals(call, items - included, included, proposal)
    covered = set() if tried.plan is None else set(tried.plan.covered)
    # What a proposal takes away on purpose counts like everything else: it must not have been useful.
    useful = items & (call.useful or frozenset())
    dropped = items - included
    gone = useful & dropped | _tools_called(call, proposal)
    # Besides the subjects that a proposal is about, nothing that search found may leave the prompt.
    others = dropped - _subjects(call, proposal)
    doubtful = {ref for ref in dropped - gone if call.may_have_used(ref)} | ((others - gone) & call.found)
    return TriedCall(
        receipt_id=receipt.receipt_id,
        session_id=receipt.session_id,
        created_at=receipt.created_at,
        mode=receipt.mode if tried.plan is None else tried.plan.mode,
        tokens=was.tokens,
        tried_tokens=tried.tokens,
        cached_tokens=was.cached_tokens,
        tried_cached_tokens=tried.cached_tokens,
        cost=was.cost,
        tried_cost=tried.cost,
        exact=was.is_as_sent,
        drift_tokens=was.tokens - receipt.tokens,
        changed=(items, was.tokens) != (included, tried.tokens),
        useful=len(useful | gone),
        kept=len(useful & included),
        shortened=tuple(sorted(gone & covered)),
        lost=tuple(sorted(gone - covered)),
        doubtful=tuple(sorted(doubtful)),
        dropped=len(dropped),
        added=len(included - items),
        scored=call.useful is not None,
        error=tried.error,
        removed=tuple(sorted(dropped)),
        gained=tuple(sorted(included - items)),
    )


def _subjects(call: RecordedCall, proposal: ProposedSettings) -> set[str]:
    """Return the items that leave the prompt because the proposal says so, not for lack of room."""
    documents, without = call.receipt.documents, set(proposal.without_items)
    named = {ref for ref in call.items if ref in without or document_of(ref, documents) in without}
    if proposal.min_score is None:
        return named
    passages = candidates_of(call.receipt, "passage")
    return named | {each.ref for each in passages if each.score is not None and each.score < proposal.min_score}


def _tools_called(call: RecordedCall, proposal: ProposedSettings) -> set[str]:
    return {f"{TOOL}{name}" for name in proposal.without_tools} & (call.useful or set())


def _by_originals(
    call: RecordedCall, dropped: AbstractSet[str], included: AbstractSet[str], proposal: ProposedSettings
) -> set[str]:
    """Return the passages of copies that a prompt does not lose, because it has the original."""
    if not proposal.copies:
        return set()
    documents = call.receipt.documents
    there = {document_of(ref, documents) for ref in included}
    return {ref for ref in dropped if proposal.copies.get(document_of(ref, documents)) in there}


def _summed(calls: Sequence[TriedCall], proposal: ProposedSettings, risks: tuple[str, ...]) -> Trial:
    return Trial(
        calls=len(calls),
        exact=sum(call.exact for call in calls),
        drift_tokens=sum(abs(call.drift_tokens) for call in calls),
        changed=sum(call.changed for call in calls),
        scored=sum(call.scored for call in calls),
        tokens=sum(call.tokens for call in calls),
        tried_tokens=sum(call.tried_tokens for call in calls),
        cached_tokens=sum(call.cached_tokens for call in calls),
        tried_cached_tokens=sum(call.tried_cached_tokens for call in calls),
        cost=_money(call.cost for call in calls),
        tried_cost=_money(call.tried_cost for call in calls),
        useful=sum(call.useful for call in calls),
        kept=sum(call.kept for call in calls),
        shortened=sum(len(call.shortened) for call in calls),
        lost=sum(len(call.lost) for call in calls),
        dropped=sum(call.dropped for call in calls),
        doubtful=sum(len(call.doubtful) for call in calls),
        added=sum(call.added for call in calls),
        failed=sum(call.error is not None for call in calls),
        safe=not risks,
        risks=risks,
        assumptions=_assumptions(proposal),
    )


def _money(costs: Iterable[float | None]) -> float | None:
    """Return the sum; None if some call has no price, because a part of the sum would pass for the whole."""
    found = list(costs)
    return None if not found or None in found else sum(cost for cost in found if cost is not None)


def _assumptions(proposal: ProposedSettings) -> tuple[str, ...]:
    found = [*_ALWAYS, _MONEY]
    if proposal.compaction is not None:
        found.append(_COMPACTION)
    if proposal.model is not None:
        found.append(_MODEL)
    if proposal.without_items or proposal.min_score is not None:
        found.append(_REST)
    return tuple(found)
