"""Summarisers: the port that writes the text of a group, and the one that needs no language model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weftline.kernel.thread_pools import COMPACTION_THREADS
from weftline.windows.compaction.digest import digest
from weftline.windows.compaction.event_texts import group_texts
from weftline.windows.compaction.losses import event_losses, loss_list, result_losses
from weftline.windows.compaction.model import binds
from weftline.windows.compaction.reduction.model import ReducedText
from weftline.windows.compaction.verification import verify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.tokens import TokenCounter
    from weftline.windows.compaction.event_texts import GroupTexts
    from weftline.windows.compaction.model import EventGroup, KeyFact, SummaryMethod
    from weftline.windows.compaction.reduction.model import Utterance

# A second attempt makes room for the facts that the first one lost, if they exceed the target by this part.
_TOLERANCE = 1.05
# A little room for facts that are not among the words saves most second attempts.
_FIRST_ROOM = 0.97
# Facts that need this part of the room are listed; words beside them need at least that part.
_DENSE = 0.8
_LEAST_ROOM = 0.1


class SummaryRequest(NamedTuple):
    """What to write: a group, the key facts of its events, and whether to write nothing but facts.

    Facts are as they stood soon after the group: what came later is not part of its text, so that the text is the same
    when events are appended.
    """

    group: EventGroup
    facts: Sequence[KeyFact]
    count: TokenCounter
    facts_only: bool = False


class SummaryText(NamedTuple):
    """The text of a group. ``confidence`` is from 0 to 1; ``loss_notes`` say what is not in it.

    ``degraded`` says why it was not made as configured. ``verified`` are ids of facts that were found in it already.
    """

    text: str
    method: SummaryMethod
    confidence: float = 1.0
    loss_notes: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    verified: frozenset[str] = frozenset()


class SummariserFailed(Exception):
    """A summariser has no text for a group. The message is the reason, without any content."""


class Summariser(Protocol):
    """Writes the text that stands for a group of events."""

    async def summarise(self, request: SummaryRequest) -> SummaryText:
        """Return a text of about the target size; raises SummariserFailed."""
        ...


# What a reduction reports that left nothing out.
_IN_FULL = ReducedText("", 0, Counter(), 0, [])


class ExtractiveSummariser:
    """Writes summaries of the words of the original; always the same text for the same events."""

    async def summarise(self, request: SummaryRequest) -> SummaryText:
        """Return the text of a group: shortened, with every key fact in it."""
        return await COMPACTION_THREADS.run(summarise_group, request)


class _Attempt(NamedTuple):
    """A shortened text with the facts appended that were not in it. ``reduced`` is None if there was no room for it."""

    text: str
    reduced: ReducedText | None
    found: Sequence[KeyFact] = ()
    is_over: bool = False


def summarise_group(request: SummaryRequest) -> SummaryText:
    """Return the text of a group, or nothing but its facts."""
    facts = request.facts
    if request.facts_only:
        return _digest(request, facts)
    texts = group_texts(request.group, request.count)
    attempt = _in_full(request, texts, facts) or _with_digest(request, texts, facts) or _reduced(request, texts, facts)
    return SummaryText(
        attempt.text,
        "extractive_summary",
        loss_notes=_losses(request, texts, attempt),
        verified=_verified(attempt, facts),
    )


def reduce_texts(
    texts: Sequence[Utterance], target_tokens: int, protected: Sequence[str], count: TokenCounter
) -> ReducedText:
    """Return the texts in at most ``target_tokens``; the first use imports numpy, which is slow."""
    from weftline.windows.compaction.reduction import reducer  # noqa: PLC0415 - slow to import

    return reducer.reduce_texts(texts, target_tokens, protected, count)


def _verified(attempt: _Attempt, facts: Sequence[KeyFact]) -> frozenset[str]:
    """Return the facts that were found; what was missing is listed in the text as it was written."""
    found = {fact.fact_id for fact in attempt.found}
    return frozenset(fact.fact_id for fact in facts if fact.fact_id in found or fact.text in attempt.text)


def _in_full(request: SummaryRequest, texts: GroupTexts, facts: Sequence[KeyFact]) -> _Attempt | None:
    """Return everything that was said, if that fits once the results of tools are shortened."""
    text = "\n".join(f"{each.speaker}: {each.text}" for each in texts.utterances)
    if request.count(text) > request.group.target_tokens:
        return None
    checked = verify(text, facts)
    listed = digest(checked.missing)
    is_over = request.count(text) + request.count(listed) > request.group.target_tokens * _TOLERANCE
    return None if is_over else _Attempt("\n".join(filter(None, [text, listed])), _IN_FULL, checked.found)


def _with_digest(request: SummaryRequest, texts: GroupTexts, facts: Sequence[KeyFact]) -> _Attempt | None:
    """Return all facts as a list, with the words that fit besides, if they need most of the room anyway."""
    target = request.group.target_tokens
    listed = digest(facts)
    needed = request.count(listed)
    if needed < target * _DENSE:
        return None
    room = target - needed
    reduced = reduce_texts(texts.utterances, room, (), request.count) if room > target * _LEAST_ROOM else None
    text = listed if reduced is None else f"{reduced.text}\n{listed}"
    return _Attempt(text, reduced, facts, is_over=needed > target * _TOLERANCE)


def _reduced(request: SummaryRequest, texts: GroupTexts, facts: Sequence[KeyFact]) -> _Attempt:
    """Return the words of most value, and the facts that are not in them; those may need a second attempt."""
    target = request.group.target_tokens
    # What binds comes first: it stays whole.
    ordered = sorted(facts, key=lambda fact: (not binds(fact.kind, fact.probability), -fact.probability))
    protected = [text for fact in ordered for text in (fact.text, *fact.literals)]
    room = int(target * _FIRST_ROOM)
    for _ in range(2):
        reduced = reduce_texts(texts.utterances, room, protected, request.count)
        checked = verify(reduced.text, facts)
        listed = digest(checked.missing)
        over = request.count(reduced.text) + request.count(listed) - target
        if over <= target * (_TOLERANCE - 1):
            break
        room -= over
    text = "\n".join(filter(None, [reduced.text, listed]))
    return _Attempt(text, reduced, checked.found, is_over=over > target * (_TOLERANCE - 1))


def _digest(request: SummaryRequest, facts: Sequence[KeyFact]) -> SummaryText:
    events = request.group.events
    stated = {event_id for fact in facts for event_id in fact.event_ids}
    without = [event for event in events if event.event_id not in stated]
    notes = [f"Only key facts are listed: {len(facts)} from {len(events) - len(without)} of {len(events)} events."]
    if without:
        notes.append(f"Left out whole: {loss_list(event_losses(without))}.")
    return SummaryText(digest(facts), "structured_digest", loss_notes=tuple(notes))


def _losses(request: SummaryRequest, texts: GroupTexts, attempt: _Attempt) -> tuple[str, ...]:
    """Say in plain words what is not in a text, by kind and source."""
    reduced = attempt.reduced
    losses = result_losses(texts.left_out)
    losses += event_losses(request.group.events) if reduced is None else reduced.losses
    left_out = f"{loss_list(losses)}." if losses else ""
    beginning = "Left out: " if reduced is not None else "Left out, except key facts: "
    notes = [f"{beginning}{left_out}"] if left_out else []
    if reduced is not None and reduced.shortened:
        notes.append(f"Shortened: {reduced.shortened:,} {'sentence' if reduced.shortened == 1 else 'sentences'}.")
    if attempt.is_over:
        over = request.count(attempt.text) - request.group.target_tokens
        notes.append(f"{over:,} tokens over its target, so that no key fact is lost.")
    return tuple(notes)
