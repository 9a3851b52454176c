"""Summarisers: the port that writes the text of a group, and the one that needs no language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import structs

from weft.capabilities.compaction.digest import digest
from weft.capabilities.compaction.event_texts import group_texts, references_to
from weft.capabilities.compaction.model import FactKind
from weft.capabilities.compaction.reduction.reducer import reduce_texts
from weft.capabilities.compaction.verification import verify
from weft.kernel.thread_pools import COMPACTION_THREADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.compaction.event_texts import GroupTexts
    from weft.capabilities.compaction.model import EventGroup, KeyFact, SummaryMethod
    from weft.capabilities.compaction.reduction.reducer import ReducedText
    from weft.kernel.tokens import TokenCounter

# A second attempt makes room for the facts that the first one lost, if they exceed the target by this part.
_TOLERANCE = 1.05
_MAX_NOTES = 4


class SummaryRequest(NamedTuple):
    """What to write: a group, the key facts of its events, and whether to write nothing but facts."""

    group: EventGroup
    facts: Sequence[KeyFact]
    count: TokenCounter
    facts_only: bool = False


class SummaryText(NamedTuple):
    """The text of a group. ``confidence`` is from 0 to 1; ``loss_notes`` say what is not in it.

    ``degraded`` says why it was not made as configured.
    """

    text: str
    method: SummaryMethod
    confidence: float = 1.0
    loss_notes: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()


class SummariserFailed(Exception):
    """A summariser has no text for a group. The message is the reason, without any content."""


class Summariser(Protocol):
    """Writes the text that stands for a group of events."""

    async def summarise(self, request: SummaryRequest) -> SummaryText:
        """Return a text of about the target size; raises SummariserFailed."""
        ...


class ExtractiveSummariser:
    """Writes summaries of the words of the original; always the same text for the same events."""

    async def summarise(self, request: SummaryRequest) -> SummaryText:
        """Return the text of a group: shortened, with every key fact in it."""
        return await COMPACTION_THREADS.run(summarise_group, request)


class _Attempt(NamedTuple):
    """A shortened text with the facts appended that were not in it."""

    text: str
    reduced: ReducedText
    added: Sequence[KeyFact]


def summarise_group(request: SummaryRequest) -> SummaryText:
    """Return the text of a group, or nothing but its facts."""
    facts = facts_of_group(request)
    if request.facts_only:
        return _digest(request, facts)
    texts = group_texts(request.group, request.count)
    target = request.group.target_tokens
    attempt = _attempt(request, texts, facts, target)
    tokens = request.count(attempt.text)
    if attempt.added and tokens > target * _TOLERANCE:
        attempt = _attempt(request, texts, facts, max(2 * target - tokens, target // 2))
    return SummaryText(attempt.text, "extractive_summary", loss_notes=_losses(request, texts, attempt))


def facts_of_group(request: SummaryRequest) -> list[KeyFact]:
    """Return the facts of a group as they stood soon after it.

    What happened later is not part of the text, so that it is the same when events are appended.
    """
    own = {fact.fact_id for fact in request.facts}
    results = {event.event_id for event in request.group.events if event.message.role == "tool"}
    wanted = references_to(request.group)
    return [
        fact
        if fact.status == "current" or fact.superseded_by in own
        else structs.replace(fact, status="current", superseded_by=None)
        for fact in request.facts
        # Lines of results are facts if a message refers to them.
        if fact.kind is not FactKind.QUOTE or fact.event_ids[0] not in results or wanted.intersection(fact.literals)
    ]


def _attempt(request: SummaryRequest, texts: GroupTexts, facts: Sequence[KeyFact], target: int) -> _Attempt:
    protected = [literal for fact in facts for literal in (fact.literals or (fact.text,))]
    reduced = reduce_texts(texts.utterances, target, protected, request.count)
    missing = verify(reduced.text, facts).missing
    text = "\n".join(filter(None, [reduced.text, digest(missing)]))
    return _Attempt(text, reduced, missing)


def _digest(request: SummaryRequest, facts: Sequence[KeyFact]) -> SummaryText:
    events = request.group.events
    stated = {event_id for fact in facts for event_id in fact.event_ids}
    without = sum(event.event_id not in stated for event in events)
    notes = [f"Only key facts are listed: {len(facts)} from {len(events) - without} of {len(events)} events."]
    return SummaryText(digest(facts), "structured_digest", loss_notes=tuple(notes))


def _losses(request: SummaryRequest, texts: GroupTexts, attempt: _Attempt) -> tuple[str, ...]:
    """Say in plain words what is not in a text."""
    notes = []
    reduced = attempt.reduced
    if reduced.words < reduced.words_before:
        notes.append(f"{reduced.words_before - reduced.words:,} of {reduced.words_before:,} words left out.")
    if reduced.dropped_utterances:
        notes.append(f"{len(reduced.dropped_utterances)} of {len(texts.utterances)} messages left out whole.")
    if texts.left_out:
        shown = ", ".join(texts.left_out[:_MAX_NOTES])
        more = f" and more in {len(texts.left_out) - _MAX_NOTES} others" if len(texts.left_out) > _MAX_NOTES else ""
        notes.append(f"Left out of tool results: {shown}{more}.")
    tokens = request.count(attempt.text)
    if tokens > request.group.target_tokens * _TOLERANCE:
        notes.append(f"{tokens - request.group.target_tokens:,} tokens over its target, so that no key fact is lost.")
    return tuple(notes)
