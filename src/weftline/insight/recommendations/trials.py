"""Trials: the last calls of an agent as they were sent, and as a proposal would have made them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.insight.recommendations.model import MIN_CALLS, ProposedSettings, Trial, TriedCall
from weftline.insight.recommendations.recorded_calls import Replay, document_of, events_in
from weftline.insight.recommendations.recorded_candidates import TOOL, candidates_of
from weftline.kernel.thread_pools import COMPACTION_THREADS, short_turns
from weftline.models.language_models.token_counts import PromptCounter
from weftline.prompts.assembly.conversation import EventPreparer
from weftline.prompts.assembly.plan import HIGH_WATER
from weftline.state.agent_context.settings import ResolvedCompaction
from weftline.windows.compaction.compacted_events import compacted_tokens
from weftline.windows.compaction.model import Compaction, CompactionState
from weftline.windows.compaction.runs import FrozenCut, reason_to_skip
from weftline.windows.compaction.summariser import ExtractiveSummariser

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.insight.recommendations.recorded_calls import (
        PreparedEvents,
        RecordedCall,
        RecordedWindow,
        ReplayedCall,
        ReplayServices,
    )
    from weftline.windows.compaction.compactor import Compactor
    from weftline.windows.compaction.model import CompactedView
    from weftline.windows.model import WindowEvent


# What speaks against a proposal after its trial. A proposal is safe if nothing does.
#
# Settings that leave out subjects (tools, documents, keys, pins) rest on what was never used so far. That says
# something about later calls only if use is settled. By Good and Turing, the share of calls that will use something
# new is about the number of subjects that were used exactly once, divided by the number of calls.

_BOARD = "board:"
_MEMORY = "context:"


def risks_of(
    calls: Sequence[TriedCall], proposal: ProposedSettings, windows: Sequence[RecordedWindow]
) -> tuple[str, ...]:
    """Return what speaks against a proposal, most serious first."""
    full = _full(windows)
    return (*_losses(calls), *full, *_unsettled(proposal, windows), *_too_little(calls, proposal, windows))


def _losses(calls: Sequence[TriedCall]) -> Iterator[str]:
    figures = {
        "prompts would not fit": sum(call.error is not None for call in calls),
        "items that answers used would be lost": sum(len(call.lost) for call in calls),
        "items that answers used would be there in a shorter form only": sum(len(call.shortened) for call in calls),
        "items that may have been useful would leave prompts": sum(len(call.doubtful) for call in calls),
    }
    return (f"{number:,} {what}" for what, number in figures.items() if number)


def _full(windows: Sequence[RecordedWindow]) -> Iterator[str]:
    """Find prompts without the room that a rebuilt one keeps free: after a change the next prompt is rebuilt."""
    receipts = [call.receipt for window in windows for call in window.calls]
    full = sum(receipt.tokens > HIGH_WATER * receipt.limits.limit for receipt in receipts)
    if full:
        yield f"{full:,} prompts are nearly full: the one that is rebuilt after the change may leave out other items"


def _unsettled(proposal: ProposedSettings, windows: Sequence[RecordedWindow]) -> Iterator[str]:
    """Find kinds of subjects of which some were used just once, so that others may be used for the first time."""
    if proposal.without_tools:
        counts = tool_calls(windows)
        called = sorted(counts.keys() & set(proposal.without_tools))
        if called:
            yield f"the agent called {', '.join(called)}"
        yield from _once(counts, "tools were called only once, so others may be called for the first time")
    scored = [call for window in windows for call in window.calls if call.useful is not None]
    for kind in sorted({_kind_of(ref) for ref in proposal.without_items}):
        counts = Counter(subject for call in scored for subject in _used(call, kind))
        yield from _once(counts, f"{kind} were used only once, so others may be used for the first time")


def _once(counts: Counter[str], what: str) -> Iterator[str]:
    once = sum(count == 1 for count in counts.values())
    if once:
        yield f"{once:,} {what}"


def tool_calls(windows: Sequence[RecordedWindow]) -> Counter[str]:
    """Return how often each tool was called: by the conversations, or by the answers that were reported."""
    events = (event for window in windows for event in window.events)
    said = Counter(call.name for event in events for call in event.message.tool_calls)
    refs = (ref for window in windows for call in window.calls for ref in call.useful or ())
    reported = Counter(ref.removeprefix(TOOL) for ref in refs if ref.startswith(TOOL))
    # A call can be in both.
    return said | reported


def calls_with_known_answers(windows: Sequence[RecordedWindow]) -> list[RecordedCall]:
    """Return the calls whose answer was reported, or entered the conversation before the next call.

    Of the others nobody knows which tools they called.
    """
    return [call for window in windows for call in _with_known_answers(window)]


def _with_known_answers(window: RecordedWindow) -> Iterator[RecordedCall]:
    said = sorted(event.at for event in window.events if event.message.role == "assistant")
    starts = [call.receipt.created_at for call in window.calls]
    for call, start, end in zip(window.calls, starts, [*starts[1:], math.inf], strict=True):
        if call.useful is not None or bisect_right(said, start) < bisect_right(said, end):
            yield call


def _kind_of(ref: str) -> str:
    """Return what a subject is, in the plural."""
    if "://" in ref:
        return "documents"
    if ref.startswith(_MEMORY):
        return "entries of memory"
    return "board keys" if ref.startswith(_BOARD) else "pins"


def _used(call: RecordedCall, kind: str) -> set[str]:
    """Return the subjects of a kind that the answer of a call used."""
    useful = call.useful or frozenset()
    if kind == "documents":
        return {document_of(ref, call.receipt.documents) for ref in useful} - {""}
    if kind == "entries of memory":
        return {ref for ref in call.items if ref in useful and ref.startswith(_MEMORY)}
    block_kind = "board" if kind == "board keys" else "pins"
    return {ref for block in call.blocks if block.kind == block_kind for ref in block.items if ref in useful}


def _prompts_with(proposal: ProposedSettings, windows: Sequence[RecordedWindow]) -> Iterator[tuple[str, int]]:
    """Yield each subject with the number of prompts that had it and show whether it was used."""
    known = calls_with_known_answers(windows)
    for name in proposal.without_tools:
        yield name, sum(any(tool.name == name for tool in call.tools) for call in known)
    scored = [call for window in windows for call in window.calls if call.useful is not None]
    sent = Counter(subject for call in scored for subject in {*call.items, *_documents_in(call)})
    for ref in proposal.without_items:
        yield ref, sent[ref]


def _documents_in(call: RecordedCall) -> set[str]:
    return {document_of(ref, call.receipt.documents) for ref in call.items}


def _too_little(
    calls: Sequence[TriedCall], proposal: ProposedSettings, windows: Sequence[RecordedWindow]
) -> Iterator[str]:
    exact = sum(call.exact for call in calls)
    if exact < MIN_CALLS:
        yield f"only {exact:,} calls can be replayed exactly, and {MIN_CALLS} are needed"
    for name, sent in _prompts_with(proposal, windows):
        if sent < MIN_CALLS:
            yield f"{name} was in {sent:,} prompts that say something about its use, and {MIN_CALLS} are needed"
            break
    if proposal.min_score is not None:
        used = sum(len(call.found & (call.useful or frozenset())) for window in windows for call in window.calls)
        if used < MIN_CALLS:
            yield f"only {used:,} passages are known to be used, and {MIN_CALLS} are needed"


# The compactions that other settings would have made, by the real compactor without a language model.

# A window that stays above its threshold is compacted again when it has grown by this part of its limit.
_GROWTH = 0.05


async def views_under(
    window: RecordedWindow, settings: ResolvedCompaction, compactor: Compactor, services: ReplayServices
) -> list[CompactedView | None]:
    """Return the view that each call would have had. A compaction that was due is finished before the call."""
    view: CompactedView | None = None
    tried_at = 0
    views: list[CompactedView | None] = []
    for call in window.calls:
        receipt = call.receipt
        info = services.catalog.find(receipt.model)
        preparer = EventPreparer(
            window.line_id, window.session_id, receipt.limits.limit, PromptCounter(info, services.counters)
        )
        events = [event for event in events_in(receipt, window.events, preparer) if not event.routed]
        limit = window.window_limit or receipt.limits.window_tokens
        used = compacted_tokens(events, view)
        if settings.auto and used >= settings.threshold * limit and used >= tried_at + _GROWTH * limit:
            cut = _cut(window, settings, events, view, limit, services, receipt.model)
            draft = await compactor.compact(cut.source, settings.strategy, ExtractiveSummariser())
            if await COMPACTION_THREADS.run(reason_to_skip, cut, draft) is None:
                view = draft.view
            tried_at = compacted_tokens(events, view)
        views.append(view)
    return views


def _cut(
    window: RecordedWindow,
    settings: ResolvedCompaction,
    events: list[WindowEvent],
    view: CompactedView | None,
    limit: int,
    services: ReplayServices,
    model: str | None,
) -> FrozenCut:
    compaction = Compaction(
        compaction_id="replayed",
        session_id=window.session_id,
        agent_id=window.line_id.rpartition(":")[2],
        line_id=window.line_id,
        requested_by="",
        trigger="threshold",
        state=CompactionState.RUNNING,
        strategy=settings.strategy,
        target=settings.target,
        keep_recent=settings.keep_recent,
        created_at=0,
    )
    return FrozenCut(compaction, events, 0, frozenset(), limit, services.catalog.find(model).cache, view, None)


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
