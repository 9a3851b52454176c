"""Compacts a window: facts, layout, summaries, verification. Pure; always from the original events.

Work is done group by group in a thread, so that the event loop stays free. Whatever fails, a view comes out: a failed
summariser is replaced by the extractive one, that by truncation, and the draft says so.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.kernel.thread_pools import COMPACTION_THREADS
from weftline.safety.trust.model import Source, Trust, TrustLabel, joined_label
from weftline.windows.compaction.digest import is_literal, statement
from weftline.windows.compaction.facts.extraction import extract_in_turns
from weftline.windows.compaction.group_facts import facts_by_event, facts_in_room, facts_of
from weftline.windows.compaction.model import (
    CompactedView,
    CompactionDraft,
    FactKind,
    Layout,
    ShortenedEvent,
    Summary,
    binds,
)
from weftline.windows.compaction.strategies import lay_out, truncation, truncation_note
from weftline.windows.compaction.summariser import (
    ExtractiveSummariser,
    SummariserFailed,
    SummaryRequest,
    SummaryText,
    event_losses,
    loss_list,
)
from weftline.windows.compaction.tool_outputs import slim_output
from weftline.windows.compaction.verification import verify
from weftline.windows.model import event_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weftline.kernel.ports import TokenCounter
    from weftline.windows.compaction.model import CompactionSource, EventGroup, KeyFact, StrategyName
    from weftline.windows.compaction.summariser import Summariser
    from weftline.windows.model import WindowEvent

# Below this confidence a text is not used: the extractive one takes its place, or else the original events do.
CONFIDENCE_FLOOR = 0.6
# A summary that saves less than this part of the original is not worth it.
_LEAST_SAVING = 0.05
# Tokens of a carried fact besides its text.
_FACT_TOKENS = 6
# Results of tools above this size are shortened where they stay, other than among the recent messages.
_LONG_RESULT = 800
_SHORTENED_RESULT = 300
_ID_DIGITS = 16
_LOST_FACTS = "A summary lost key facts; the words of the original were used."
_LEFT_OUT = "A part could not be summarised; it was left out."
_TOOL_LABEL = TrustLabel(Source.TOOL, Trust.UNTRUSTED)
_log = logging.getLogger(__name__)


class _Compacted(NamedTuple):
    """A group with its summary and its facts; without a summary the originals stay."""

    summary: Summary | None
    facts: Sequence[KeyFact] = ()
    degraded: tuple[str, ...] = ()
    is_shorter: bool = False

    @property
    def confidence(self) -> float:
        return 0.0 if self.summary is None else self.summary.confidence


class Compactor:
    """Makes the compacted view of a window by a strategy and a summariser."""

    def __init__(self, floor: float = CONFIDENCE_FLOOR) -> None:
        self._floor = floor
        self._extractive = ExtractiveSummariser()

    async def compact(
        self, source: CompactionSource, strategy: StrategyName, summariser: Summariser
    ) -> CompactionDraft:
        """Return the compacted view of a window, with what it was made by and what was lost."""
        degraded: list[str] = []
        source = await self._with_facts(source, degraded)
        layout = await self._layout(source, strategy, degraded)
        facts = facts_by_event(source.facts)
        compacted: list[_Compacted] = []
        for group in layout.groups:
            known, later = await COMPACTION_THREADS.run(facts_of, group, facts)
            known = facts_in_room(known, group.target_tokens, source.count)
            kept = {fact.fact_id for fact in known}
            later = [fact for fact in later if fact.fact_id in kept or fact.kind is FactKind.QUOTE]
            request = SummaryRequest(group, known, source.count, layout.facts_only)
            compacted.append(await self._compacted(request, later, layout, summariser))
        shortened = await COMPACTION_THREADS.run(_shortened, source, layout, facts)
        degraded += [reason for each in compacted for reason in each.degraded]
        return _draft(source, layout, compacted, shortened, tuple(dict.fromkeys(degraded)))

    async def _with_facts(self, source: CompactionSource, degraded: list[str]) -> CompactionSource:
        if source.facts:
            return source
        try:
            return source._replace(facts=await extract_in_turns(source.events))
        except Exception as failed:  # noqa: BLE001 - a view without facts is better than none
            _log.warning("Key facts of a window could not be extracted: %s", type(failed).__name__)
            degraded.append("Key facts could not be extracted.")
            return source

    async def _layout(self, source: CompactionSource, strategy: StrategyName, degraded: list[str]) -> Layout:
        try:
            return await COMPACTION_THREADS.run(lay_out, source, strategy)
        except Exception as failed:  # noqa: BLE001 - a shorter view is better than none
            _log.warning("The strategy %s failed: %s", strategy, type(failed).__name__)
            degraded.append(f"The strategy {strategy} failed; the older messages were left out.")
            return truncation(source)

    async def _compacted(
        self, request: SummaryRequest, later: Sequence[KeyFact], layout: Layout, summariser: Summariser
    ) -> _Compacted:
        """Return a group with a summary by the summariser, or else by the extractive one, or else left out.

        Where neither text is good enough the group has none: its originals stay.
        """
        if layout.strategy == "truncation":
            return _truncated(request.group, request.facts, request.count)
        reason = ""
        if not isinstance(summariser, ExtractiveSummariser):
            # What only tells something, or perhaps nothing, is the model's to choose.
            binding = request._replace(facts=[fact for fact in request.facts if binds(fact.kind, fact.probability)])
            written, reason = await _attempt(summariser, binding)
            found = await self._checked(binding, written, later)
            if found is not None:
                return found
            reason = reason or _LOST_FACTS
        written, failure = await _attempt(self._extractive, request)
        if written is None:
            _log.warning("A group was left out of a compaction: %s", failure)
            left_out = _truncated(request.group, request.facts, request.count)
            return left_out._replace(degraded=(*filter(None, [reason]), _LEFT_OUT))
        found = await self._checked(request, written, later) or _Compacted(None)
        return found._replace(degraded=(*found.degraded, *filter(None, [reason])))

    async def _checked(
        self, request: SummaryRequest, written: SummaryText | None, later: Sequence[KeyFact]
    ) -> _Compacted | None:
        """Return the summary of a text that has enough of the facts and is shorter than the originals."""
        if written is None or written.confidence < self._floor:
            return None
        found = await COMPACTION_THREADS.run(_verified, request, written, later)
        return found if found.confidence >= self._floor and found.is_shorter else None


async def _attempt(summariser: Summariser, request: SummaryRequest) -> tuple[SummaryText | None, str]:
    try:
        return await summariser.summarise(request), ""
    except SummariserFailed as failed:
        return None, str(failed)
    except Exception as failed:  # noqa: BLE001 - another one takes its place
        _log.warning("A summariser failed: %s", type(failed).__name__)
        return None, f"The summariser failed ({type(failed).__name__})."


def _verified(request: SummaryRequest, written: SummaryText, later: Sequence[KeyFact]) -> _Compacted:
    """Check a text for the facts of its group; those that are missing are carried."""
    facts = request.facts
    unchecked = [fact for fact in facts if fact.fact_id not in written.verified]
    referred = [fact for fact in later if fact.status == "current"]
    absent = {fact.fact_id for fact in verify(written.text, [*unchecked, *referred]).missing}
    missing = [fact for fact in unchecked if fact.fact_id in absent]
    confidence = min(written.confidence, 1 - len(missing) / max(len(facts), 1))
    summary = _summary(request, written, missing, confidence)
    lost = absent | {fact.fact_id for fact in later if fact.status != "current"}
    # The later ones replace those that stood before.
    latest = {fact.fact_id: fact for fact in (*facts, *later)}
    return _Compacted(
        summary,
        [structs.replace(fact, carried=fact.fact_id in lost) for fact in latest.values()],
        written.degraded,
        is_shorter=_saves(summary, missing, request.count),
    )


def _summary(request: SummaryRequest, written: SummaryText, missing: Sequence[KeyFact], confidence: float) -> Summary:
    group = request.group
    first, last = group.events[0], group.events[-1]
    sources = {event.event_id: event_version(event) for event in group.events}
    notes = written.loss_notes
    if missing:
        notes = (*notes, f"{len(missing)} key facts are not in the text and listed separately.")
    return Summary(
        summary_id=_id_of(sources, written.text),
        title=group.title,
        text=written.text,
        method=written.method,
        sources=sources,
        first_number=first.number,
        last_number=last.number,
        first_at=first.time,
        last_at=last.time,
        tokens_before=sum(event.tokens for event in group.events),
        tokens=request.count(written.text),
        confidence=round(confidence, 3),
        loss_notes=notes,
        trust=_label(group.events),
    )


def _id_of(sources: Mapping[str, str], text: str) -> str:
    """Return an id that is the same for the same summary of the same events."""
    named = "\n".join([*(f"{event_id} {version}" for event_id, version in sources.items()), text])
    return hashlib.sha256(named.encode()).hexdigest()[:_ID_DIGITS]


def _label(events: Sequence[WindowEvent]) -> TrustLabel | None:
    """Return the lowest label of events; results of tools are data."""
    return joined_label(event.trust or (_TOOL_LABEL if event.message.role == "tool" else None) for event in events)


def _saves(summary: Summary, carried: Sequence[KeyFact], count: TokenCounter) -> bool:
    return summary.tokens + _tokens_of(carried, count) <= summary.tokens_before * (1 - _LEAST_SAVING)


def _tokens_of(carried: Sequence[KeyFact], count: TokenCounter) -> int:
    return sum(count(statement(fact)) + _FACT_TOKENS for fact in carried)


def _truncated(group: EventGroup, facts: Sequence[KeyFact], count: TokenCounter) -> _Compacted:
    """Leave a group out; its statements are carried."""
    note = truncation_note(group.events)
    written = SummaryText(note, "structured_digest", 0.0, (f"Left out: {loss_list(event_losses(group.events))}.",))
    summary = _summary(SummaryRequest(group, facts, count), written, (), 0.0)
    return _Compacted(summary, [structs.replace(fact, carried=True) for fact in facts if not is_literal(fact)])


def _shortened(
    source: CompactionSource, layout: Layout, facts: Mapping[str, Sequence[KeyFact]]
) -> tuple[ShortenedEvent, ...]:
    """Return the long results of tools that stay, shortened, if all of their statements are in the shorter text."""
    if layout.strategy == "task_scoped":
        # Active tasks stay in full.
        return ()
    covered = {event.event_id for group in layout.groups for event in group.events}
    older = source.events[: max(len(source.events) - source.keep_recent, 0)]
    return tuple(_shortened_results([event for event in older if event.event_id not in covered], facts, source.count))


def _shortened_results(
    events: Sequence[WindowEvent], facts: Mapping[str, Sequence[KeyFact]], count: TokenCounter
) -> Iterator[ShortenedEvent]:
    for event in events:
        if not _may_shorten(event):
            continue
        slim = slim_output(event.message.content, _SHORTENED_RESULT, count)
        stated = [fact for fact in facts.get(event.event_id, ()) if not is_literal(fact)]
        if slim.left_out and not verify(slim.text, stated).missing:
            tokens = count(slim.text)
            yield ShortenedEvent(
                event_id=event.event_id,
                version=event_version(event),
                content=slim.text,
                tokens_before=event.tokens,
                tokens=tokens,
            )


def _may_shorten(event: WindowEvent) -> bool:
    is_plain = event.message.role == "tool" and event.message.native is None
    is_suspicious = event.trust is not None and event.trust.trust is Trust.SUSPICIOUS
    return (
        is_plain
        and event.tokens > _LONG_RESULT
        and not (event.pinned or event.redacted or event.routed or is_suspicious)
    )


def _draft(
    source: CompactionSource,
    layout: Layout,
    compacted: Sequence[_Compacted],
    shortened: tuple[ShortenedEvent, ...],
    degraded: tuple[str, ...],
) -> CompactionDraft:
    summaries = tuple(each.summary for each in compacted if each.summary is not None)
    facts = tuple(fact for each in compacted for fact in each.facts if fact.carried or not is_literal(fact))
    before = sum(event.tokens for event in source.events)
    saved = sum(each.tokens_before - each.tokens for each in summaries)
    saved += sum(each.tokens_before - each.tokens for each in shortened)
    carried = _tokens_of([fact for fact in facts if fact.carried], source.count)
    return CompactionDraft(
        view=CompactedView(summaries=summaries, shortened=shortened, facts=facts),
        used=layout.strategy,
        reason=layout.reason,
        degraded=degraded,
        tokens_before=before,
        tokens_after=before - saved + carried,
    )
