"""Summarisers: the port that writes the text of a group, and the one that needs no language model."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weftline.kernel.thread_pools import COMPACTION_THREADS
from weftline.models.language_models.wire_forms import plain_text
from weftline.windows.compaction.digest import digest
from weftline.windows.compaction.model import RESULT_OF, binds
from weftline.windows.compaction.reduction.model import ReducedText, Utterance
from weftline.windows.compaction.tool_outputs import references, slim_output
from weftline.windows.compaction.verification import verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from weftline.kernel.ports import TokenCounter
    from weftline.models.language_models.content import ToolCall
    from weftline.windows.compaction.model import EventGroup, KeyFact, SummaryMethod
    from weftline.windows.compaction.reduction.model import Losses
    from weftline.windows.model import WindowEvent


# Events as texts to be summarised: who spoke, what was said, and which tools were called with what result.

# Results of tools shrink more than what was said: most of their rows resemble each other.
_RESULT_SHARE = 0.6
_MIN_RESULT_TOKENS = 32
_MAX_ARGUMENT_TOKENS = 48
_QUOTATION = "> "
_SPEAKER = re.compile(r"\s{0,40}([^\s:=][^:=\n]{0,80})[:=]")
_ROLES = frozenset({"user", "human", "assistant", "system", "developer", "tool", "workflow"})


class GroupTexts(NamedTuple):
    """The utterances of a group, and what was left out of its tool results, with the tool."""

    utterances: Sequence[Utterance]
    left_out: Sequence[tuple[str, str]]


def group_texts(group: EventGroup, count: TokenCounter) -> GroupTexts:
    """Return the events of a group as utterances, results of tools already shortened."""
    share = _result_share(group)
    names = call_names(group.events)
    has_results = any(event.message.role == "tool" for event in group.events)
    wanted = references_to(group) if has_results else frozenset()
    speakers = frozenset(speaker(event).casefold() for event in group.events)
    utterances: list[Utterance] = []
    left_out: list[tuple[str, str]] = []
    for event in group.events:
        text = plain_text(event.message)
        if event.message.role == "tool":
            most = max(int(event.tokens * share), _MIN_RESULT_TOKENS)
            slim = slim_output(text, most, count, wanted)
            name = names.get(event.event_id, "a tool")
            utterances.append(Utterance(f"{RESULT_OF}{name}", _quoted(slim.text, speakers), is_verbatim=True))
            if slim.left_out:
                left_out.append((name, slim.left_out))
            continue
        if text:
            utterances.append(Utterance(speaker(event), text))
        utterances += (_call(event, call, count) for call in event.message.tool_calls)
    return GroupTexts(utterances, left_out)


def _quoted(text: str, speakers: frozenset[str]) -> str:
    """Return a result in which lines that look like the words of a speaker are marked as quotations."""
    lines = (f"{_QUOTATION}{line}" if _imitates(line, speakers) else line for line in text.splitlines())
    return "\n".join(lines)


def _imitates(line: str, speakers: frozenset[str]) -> bool:
    """Tell whether a line begins like a line of a summary: with a speaker, a letter for one, or the legend of those."""
    match = _SPEAKER.match(line)
    if match is None:
        return False
    name = match[1].strip().casefold()
    return len(name) == 1 or name in speakers or name in _ROLES or name.startswith(RESULT_OF)


def _result_share(group: EventGroup) -> float:
    """Return the part of its tokens that a result may take: more where little was said."""
    results = sum(event.tokens for event in group.events if event.message.role == "tool")
    said = sum(event.tokens for event in group.events) - results
    even = group.target_tokens / max(results + said, 1)
    return min(max(even * _RESULT_SHARE, (group.target_tokens - said) / max(results, 1)), 1.0)


def speaker(event: WindowEvent) -> str:
    """Return who an event is from, as a summary names them."""
    if event.kind == "workflow":
        return "workflow"
    return event.message.name or event.message.role


def call_names(events: Sequence[WindowEvent]) -> Mapping[str, str]:
    """Return the name of the tool behind each result, by event id."""
    called: dict[str, str] = {}
    names: dict[str, str] = {}
    for event in events:
        called |= {call.call_id: call.name for call in event.message.tool_calls}
        if event.message.role == "tool":
            name = event.message.name or called.get(event.message.tool_call_id or "")
            if name:
                names[event.event_id] = name
    return names


def _call(event: WindowEvent, call: ToolCall, count: TokenCounter) -> Utterance:
    arguments = slim_output(call.arguments, _MAX_ARGUMENT_TOKENS, count).text
    return Utterance(f"{speaker(event)} called", f"{call.name}({arguments})", is_verbatim=True, is_call=True)


def references_to(group: EventGroup) -> frozenset[str]:
    """Return what the messages of a group and the next ones refer to: results keep it.

    Not only what follows a result: a message that asks for something says what matters in the result, too.
    """
    return frozenset(_references([*group.events, *group.following]))


def _references(events: Sequence[WindowEvent]) -> Iterator[str]:
    for event in events:
        if event.message.role != "tool":
            yield from references(event.message.content)
        yield from event.references


# Loss notes: what a shorter text leaves out, by kind and source.

# Sources that a note names, those with the most losses first; and kinds of each.
_MAX_SOURCES = 4
_MAX_KINDS = 3


def loss_list(losses: Losses) -> str:
    """Return losses in words: ``12 sentences, 3 questions of user; 214 rows of result of query``."""
    by_source: dict[str, Counter[str]] = {}
    for (source, kind), number in losses.items():
        by_source.setdefault(source, Counter())[kind] += number
    ordered = sorted(by_source.items(), key=lambda item: -item[1].total())
    shown = [f"{_kinds(kinds)} of {source}" for source, kinds in ordered[:_MAX_SOURCES]]
    more = [f"{_kinds(sum((kinds for _, kinds in ordered[_MAX_SOURCES:]), Counter()))} of others"]
    return "; ".join(shown + (more if len(ordered) > _MAX_SOURCES else []))


def event_losses(events: Sequence[WindowEvent]) -> Losses:
    """Return events that are left out whole, as losses."""
    names = call_names(events)
    return Counter(
        (names.get(event.event_id, "a tool"), "results")
        if event.message.role == "tool"
        else (speaker(event), "messages")
        for event in events
    )


def result_losses(left_out: Iterable[tuple[str, str]]) -> Losses:
    """Return what was cut out of results, each with its tool, as losses: ``214 rows and 80 characters``."""
    losses: Losses = Counter()
    for name, parts in left_out:
        for part in parts.split(" and "):
            number, _, noun = part.partition(" ")
            losses[f"{RESULT_OF}{name}", noun if number != "1" else f"{noun}s"] += int(number.replace(",", ""))
    return losses


def _kinds(kinds: Counter[str]) -> str:
    return ", ".join(
        f"{number:,} {kind if number > 1 else kind.removesuffix('s')}" for kind, number in kinds.most_common(_MAX_KINDS)
    )


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
