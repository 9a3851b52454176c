"""What speaks against a proposal after its trial. A proposal is safe if nothing does.

Settings that leave out subjects (tools, documents, keys, pins) rest on what was never used so far. That says something
about later calls only if use is settled. By Good and Turing, the share of calls that will use something new is about
the number of subjects that were used exactly once, divided by the number of calls.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING

from weftline.insight.recommendations.evidence import TOOL
from weftline.insight.recommendations.model import MIN_CALLS
from weftline.insight.recommendations.replay import document_of
from weftline.prompts.assembly.plan import HIGH_WATER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.insight.recommendations.model import ProposedSettings, TriedCall
    from weftline.insight.recommendations.replay import RecordedCall, RecordedWindow

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
