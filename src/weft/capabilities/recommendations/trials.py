"""Trials: the last calls of an agent as they were sent, and as a proposal would have made them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.agent_context.compaction_settings import ResolvedCompaction
from weft.capabilities.recommendations.compaction_replay import views_under
from weft.capabilities.recommendations.model import ProposedSettings, Trial, TriedCall
from weft.capabilities.recommendations.replay import Replay
from weft.kernel.thread_pools import COMPACTION_THREADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.compaction.compactor import Compactor
    from weft.capabilities.recommendations.replay import RecordedWindow, ReplayedCall, ReplayServices

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
    """The sums, and each call with what would have changed. ``calls`` are those that the replay reproduces."""

    trial: Trial
    calls: Sequence[TriedCall]


async def try_proposal(
    windows: Sequence[RecordedWindow],
    proposal: ProposedSettings,
    services: ReplayServices,
    compactor: Compactor,
) -> TrialResult:
    """Replay the calls of some windows under a proposal; planning runs in threads."""
    calls: list[TriedCall] = []
    total = 0
    has_model = proposal.model is not None
    for window in windows:
        total += len(window.calls)
        views = None
        if proposal.compaction is not None:
            settings = ResolvedCompaction.of(proposal.compaction)
            views = await views_under(window, settings, compactor, services)
        # Another model also writes the answers: then both sides count them.
        recorded = await COMPACTION_THREADS.run(Replay(window, services, counts_output=has_model).as_recorded)
        tried = await COMPACTION_THREADS.run(
            Replay(window, services, proposal, views, counts_output=has_model).in_sequence
        )
        pairs = zip(recorded, tried, strict=True)
        calls += [_compared(was, would_be) for was, would_be in pairs if was.is_as_sent]
    return TrialResult(_summed(total, calls, proposal), calls)


def _compared(was: ReplayedCall, tried: ReplayedCall) -> TriedCall:
    call, receipt = was.call, was.call.receipt
    items = call.items
    plan = tried.plan
    included = set() if plan is None else set(plan.included)
    covered = set() if plan is None else set(plan.covered)
    # What a proposal takes away on purpose counts like everything else: it must not have been useful.
    useful = items & (call.useful or frozenset())
    gone = useful - included
    return TriedCall(
        receipt_id=receipt.receipt_id,
        session_id=receipt.session_id,
        created_at=receipt.created_at,
        mode=receipt.mode if plan is None else plan.mode,
        tokens=receipt.tokens,
        tried_tokens=tried.tokens,
        cached_tokens=receipt.savings.cached_tokens,
        tried_cached_tokens=tried.cached_tokens,
        cost=was.cost,
        tried_cost=tried.cost,
        useful=len(useful),
        kept=len(useful & included),
        shortened=tuple(sorted(gone & covered)),
        lost=tuple(sorted(gone - covered)),
        dropped=len(items - included),
        added=len(included - {ref for block in call.blocks for ref in block.items}),
        scored=call.useful is not None,
        error=tried.error,
    )


def _summed(total: int, calls: Sequence[TriedCall], proposal: ProposedSettings) -> Trial:
    unscored = sum(call.dropped for call in calls if not call.scored)
    lost, shortened = sum(len(call.lost) for call in calls), sum(len(call.shortened) for call in calls)
    failed = sum(call.error is not None for call in calls)
    return Trial(
        calls=total,
        reproduced=len(calls),
        scored=sum(call.scored for call in calls),
        tokens=sum(call.tokens for call in calls),
        tried_tokens=sum(call.tried_tokens for call in calls),
        cached_tokens=sum(call.cached_tokens for call in calls),
        tried_cached_tokens=sum(call.tried_cached_tokens for call in calls),
        cost=_money(call.cost for call in calls),
        tried_cost=_money(call.tried_cost for call in calls),
        useful=sum(call.useful for call in calls),
        kept=sum(call.kept for call in calls),
        shortened=shortened,
        lost=lost,
        dropped=sum(call.dropped for call in calls),
        unscored_drops=unscored,
        added=sum(call.added for call in calls),
        failed=failed,
        safe=bool(calls) and not (lost or shortened or unscored or failed),
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
