"""The events of a window as the conversation of a plan, with summaries in the place of those that were compacted.

Results of tools, events of other agents and summaries are data: they are marked where they stand in the conversation.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from sys import getsizeof
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import structs

from weftline.models.language_models.content import ConversationMessage, Media, ToolCall
from weftline.models.language_models.token_counts import PromptCounter
from weftline.models.language_models.wire_forms import message_parts, plain_text
from weftline.prompts.assembly.packers import FactsRoom, Reading, StatedFact, Unread, chosen_facts, is_message
from weftline.prompts.assembly.plan import FittedConversation
from weftline.prompts.assembly.prompt_trust import ItemTrust, Screening, item_trust, least_trusted
from weftline.prompts.assembly.receipts import Candidate, OmittedCandidate, PlannedBlock, Shortening
from weftline.safety.trust.model import Source, Trust
from weftline.state.layers.prefix import data_element, data_message, sanitise_message, with_texts
from weftline.windows.budget import Fit, SizedEvent, budgets_for, fit, required_tokens, shorten
from weftline.windows.compaction.compacted_events import EventInPart, SummaryOfEvents
from weftline.windows.compaction.digest import digest
from weftline.windows.compaction.records import summary_id
from weftline.windows.compaction.views import summary_ref
from weftline.windows.model import (
    Category,
    WindowEvent,
    event_version,
    event_weight,
    is_from_user,
    is_instruction,
    window_line,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.kernel.ports import CacheKey
    from weftline.windows.compaction.model import CompactedView

# An event above this part of the limit is shortened in the middle, so that it does not evict all others.
_LARGEST_PART = 4
_REDACTED = "redacted"
_WITHHELD = "withheld"
# Of an instruction that is quoted as data; prompts from before have the same event as system text.
_QUOTED = "quoted"
_WITHHELD_NOTE = "[Withheld: this text looks like an attack on the prompt.]"
_NO_ARGUMENTS = "{}"
_ID_DIGITS = 32
# Memory of a prepared event besides its content.
_EVENT_BYTES = 2_000
_CANDIDATE_BYTES = 300
# Names the summary, so that an agent can ask for its originals.
_SUMMARY = "summary {} of earlier events"
_KEY_FACTS = "key facts of earlier events"
_KEY_FACTS_ID = "summary:key_facts"
# Parts of the conversation's room that the key facts of what has no room may take from it: all, and those of others
# than humans.
_KEY_FACTS_SHARE = 0.4
_OTHERS_SHARE = 0.2
# Messages after one that may answer it.
_FOLLOWING = 2
# Tokens of messages that a prompt has no room for and reads for what they state. Each is read once.
_READ_OF_USERS, _READ_OF_OTHERS = 16_000, 1_500


class PreparedEvent(NamedTuple):
    """An event as prompts have it. ``original_tokens`` is its size before it was shortened.

    What is withheld has the size of its note: it is kept out because of its trust, which saves nothing.
    ``withheld`` is why its content is not in the prompt. ``in_part``: a compaction shortened it. ``reading`` is what it
    states, filled in when a prompt has no room for it.
    """

    event: WindowEvent
    block: PlannedBlock
    candidate: Candidate
    sized: SizedEvent
    original_tokens: int
    reading: Reading
    withheld: OmittedCandidate | None = None
    in_part: EventInPart | None = None

    @property
    def is_left_out(self) -> bool:
        """Whether it is not in the prompt at all. A result that is withheld leaves a note: its call needs one."""
        return self.withheld is not None and (self.event.routed or self.event.registered)

    @property
    def weight(self) -> int:
        """Return about how much memory it takes, in bytes."""
        # Most texts are in the prompt as the event has them.
        shown = sum(
            getsizeof(each.content) for each in self.block.messages if each.content is not self.event.message.content
        )
        return _EVENT_BYTES + event_weight(self.event) + shown


class PreparedSummary(NamedTuple):
    """A summary as prompts have it, and the events that it stands for, as candidates."""

    part: SummaryOfEvents
    block: PlannedBlock
    candidate: Candidate
    covered: Sequence[Candidate]

    @property
    def is_left_out(self) -> bool:
        return False

    @property
    def original_tokens(self) -> int:
        return sum(each.tokens for each in self.covered)

    @property
    def weight(self) -> int:
        """Return about how much memory it takes, in bytes."""
        return _EVENT_BYTES + 2 * len(self.part.summary.text) + _CANDIDATE_BYTES * len(self.covered)


Prepared = PreparedEvent | PreparedSummary
CompactedPart = WindowEvent | SummaryOfEvents | EventInPart


class PreparedEventCache(Protocol):
    """Prepared events and summaries by tenant and EventPreparer.key."""

    def get(self, key: CacheKey) -> Sequence[Prepared] | None: ...

    def put(self, key: CacheKey, value: Sequence[Prepared], weight: int = 1) -> None: ...


class EventPreparer(NamedTuple):
    """Prepares the events of a window for prompts of at most ``limit`` tokens.

    The result depends on the event, the limit and the counter alone, so it is the same in every call. Summaries are
    those of the compaction ``compaction_id``.
    """

    line_id: str
    session_id: str
    limit: int
    counter: PromptCounter
    screening: Screening = Screening()
    compaction_id: str = ""

    @property
    def key(self) -> Hashable:
        return self.line_id, self.session_id, self.limit, self.counter.method, self.screening

    def prepare(self, parts: Sequence[CompactedPart], before: Sequence[Prepared] = ()) -> list[Prepared]:
        """Return the events and summaries of a window as prompts have them, using those prepared ``before``."""
        # A prepared event refers to its event, so no other event can have the same id.
        known = {_identity(_part_of(each)): each for each in before}
        return [known.get(_identity(part)) or self._prepared_part(part) for part in parts]

    def prepare_events(self, events: Sequence[WindowEvent]) -> list[PreparedEvent]:
        """Return events as prompts have them in full."""
        return [self._prepared(event) for event in events]

    def _prepared_part(self, part: CompactedPart) -> Prepared:
        if isinstance(part, SummaryOfEvents):
            return self._prepared_summary(part)
        return self._prepared_in_part(part) if isinstance(part, EventInPart) else self._prepared(part)

    def _prepared_in_part(self, part: EventInPart) -> PreparedEvent:
        """Return a shortened event. What was cut out may come back as a passage: it does not count as in the prompt."""
        found = self._prepared(part.shown)
        block = structs.replace(found.block, items={}, covers=found.block.items)
        tokens = found.original_tokens if found.withheld else self.counter.message(part.event.message)
        return found._replace(event=part.event, block=block, original_tokens=tokens, in_part=part)

    def _prepared_summary(self, part: SummaryOfEvents) -> PreparedSummary:
        least = least_trusted(map(event_trust, part.events))
        shown, name = self.screening.shown_own(part.text), part.summary.summary_id
        text = data_element(shown, _SUMMARY.format(name), mark_words=self.screening.mark_words)
        message = ConversationMessage(role="user", content=text)
        ref, tokens = summary_ref(self.compaction_id, part.number), self.counter.message(message)
        covered = [
            Candidate(
                ref=self.ref_of(event),
                kind="event",
                tokens=0 if self.screening.drops(event_trust(event)) else self.counter.scaled(event.tokens),
                version=event_version(event),
            )
            for event in part.events
        ]
        block = PlannedBlock(
            # The id of its record, the same in every compaction.
            block_id=str(summary_id(self.line_id, part.summary, part.facts)),
            kind="summary",
            messages=(message,),
            tokens=tokens,
            items={ref: ""},
            covers={each.ref: each.version for each in covered},
            source=least.source,
            trust=least.trust,
        )
        return PreparedSummary(part, block, Candidate(ref=ref, kind="summary", tokens=tokens), covered)

    def key_facts(self, statements: Sequence[StatedFact], room: FactsRoom) -> PlannedBlock | None:
        """Return statements as a list that fits into the room; None if none does."""
        chosen = chosen_facts(statements, room, self.counter.scaled)
        while chosen:
            names = {each.fact.fact_id for each in chosen}
            block = self._facts_block([each for each in statements if each.fact.fact_id in names])
            if block.tokens <= room.tokens:
                return block
            # Headings and framing are not part of the estimate.
            chosen = chosen[: len(chosen) * 9 // 10]
        return None

    def _facts_block(self, statements: Sequence[StatedFact]) -> PlannedBlock:
        events = {each.event.event_id: each.event for each in statements}.values()
        least = least_trusted(map(event_trust, events))
        # What data claims comes last in its list.
        shown = self.screening.shown_own(
            digest([each.fact for each in sorted(statements, key=lambda each: each.is_claim)])
        )
        text = data_element(shown, _KEY_FACTS, mark_words=self.screening.mark_words)
        message = ConversationMessage(role="user", content=text)
        return PlannedBlock(
            block_id=_KEY_FACTS_ID,
            kind="summary",
            messages=(message,),
            tokens=self.counter.message(message),
            covers={self.ref_of(event): event_version(event) for event in events},
            source=least.source,
            trust=least.trust,
        )

    @property
    def longest(self) -> int:
        return self.limit // _LARGEST_PART

    def ref_of(self, event: WindowEvent) -> str:
        """Return the ref of an event: its key in the line of the window that it is in."""
        line_id = window_line(self.session_id, event.agent_id) if event.routed else self.line_id
        return f"{line_id}/{event.event_id}"

    def _prepared(self, event: WindowEvent) -> PreparedEvent:
        ref, trust = self.ref_of(event), event_trust(event)
        # A result that is withheld is a candidate of its own: the event is in the prompt, with a note.
        content = ref if event.routed else f"{ref}#content"
        withheld = self.screening.omission(content, "", trust) if trust.trust is not Trust.TRUSTED else None
        if event.registered:
            withheld = OmittedCandidate(ref, "duplicate_coverage", "the layers have it")
        message = self._shown(event, trust, is_withheld=withheld is not None)
        version = _REDACTED if event.redacted else event_version(event)
        tokens = self.counter.message(message)
        block = PlannedBlock(
            block_id=f"event:{ref}",
            kind="conversation",
            messages=(message,),
            tokens=tokens,
            items={ref: f"{version}{_WITHHELD if withheld else _QUOTED if event.as_data else ''}"},
            source=trust.source,
            trust=trust.trust,
        )
        found = PreparedEvent(
            event=event,
            block=block,
            candidate=Candidate(ref=ref, kind="event", tokens=tokens, version=version),
            sized=_sized(event, tokens, ref),
            original_tokens=tokens if withheld else self.counter.message(event.message),
            reading=Reading(),
            withheld=withheld,
        )
        return found._replace(original_tokens=0) if found.is_left_out else found

    def _shown(self, event: WindowEvent, trust: ItemTrust, *, is_withheld: bool) -> ConversationMessage:
        message = _quoted(event) if event.routed else event.message
        if is_withheld:
            message = _withheld(message)
        is_own = trust.trust is Trust.TRUSTED
        message = self._masked(sanitise_message(message), is_own=is_own)
        if may_shorten(event) and self.counter.message(message) > self.longest:
            message = structs.replace(message, content=shorten(message.content, self.longest, self._count_content))
        if is_own:
            return message
        source = f"agent {event.agent_id}" if event.routed else ""
        return data_message(message, source, suspect=trust.is_suspicious, mark_words=self.screening.mark_words)

    def _masked(self, message: ConversationMessage, *, is_own: bool) -> ConversationMessage:
        """Return a message with secrets and personal data masked as the policy demands."""
        shown = self.screening.shown_own if is_own or message.role == "tool" else self.screening.shown
        calls = tuple(ToolCall(call.call_id, call.name, shown(call.arguments)) for call in message.tool_calls)
        return structs.replace(with_texts(message, shown), tool_calls=calls)

    def _count_content(self, text: str) -> int:
        return self.counter.message(ConversationMessage(role="user", content=text))


class _Choice(NamedTuple):
    """The events and summaries that fit."""

    events: Fit
    summaries: Sequence[PreparedSummary]

    @property
    def tokens(self) -> int:
        return self.events.tokens + sum(each.block.tokens for each in self.summaries)


def _within_reading(messages: Sequence[PreparedEvent], places: Sequence[int]) -> list[int]:
    """Return the places of the messages that a prompt reads: of users and of others the newest, up to a limit each."""
    chosen: list[int] = []
    for is_of_user, limit in ((True, _READ_OF_USERS), (False, _READ_OF_OTHERS)):
        room = limit
        for place in reversed(places):
            if is_from_user(messages[place].event) is not is_of_user:
                continue
            room -= messages[place].event.tokens
            if room < 0:
                break
            chosen.append(place)
    return sorted(chosen)


@dataclass(frozen=True)
class WindowConversation:
    """A conversation for a prompt. ``shares`` are those of the window's categories.

    ``redacted`` are the record ids of summaries that no prompt may contain, ``readings`` the refs of the messages that
    were read for this prompt, by reading: what others state is not used, even if an earlier prompt read it, so that
    replays are equal.
    """

    prepared: Sequence[Prepared]
    preparer: EventPreparer
    shares: Mapping[Category, float] | None
    modalities: frozenset[str]
    redacted: frozenset[str] = frozenset()
    readings: list[frozenset[str]] = field(default_factory=list)

    @cached_property
    def blocks(self) -> list[PlannedBlock]:
        return [each.block for each in self.sent]

    @cached_property
    def sent(self) -> list[Prepared]:
        """Return the events and summaries that may be in the prompt."""
        return [each for each in self.prepared if not each.is_left_out]

    @cached_property
    def events(self) -> list[PreparedEvent]:
        """Return the events that may be in the prompt themselves."""
        return [each for each in self.sent if isinstance(each, PreparedEvent)]

    @cached_property
    def summaries(self) -> list[PreparedSummary]:
        return [each for each in self.sent if isinstance(each, PreparedSummary)]

    @cached_property
    def candidates(self) -> list[Candidate]:
        events = [each.candidate for each in self.sent]
        covered = [each for summary in self.summaries for each in summary.covered]
        omitted = [Candidate(ref=each.ref, kind="event", tokens=0) for each in self.omissions]
        return [*events, *covered, *omitted]

    @cached_property
    def omissions(self) -> list[OmittedCandidate]:
        """Return what the policy withholds, and media that the model cannot read; a note takes their place."""
        media = [
            OmittedCandidate(f"{each.candidate.ref}#{place}", "unsupported_media", part.kind)
            for each in self.events
            if each.event.message.native is not None and each.withheld is None
            for place, part in enumerate(message_parts(each.event.message))
            if isinstance(part, Media) and part.kind not in self.modalities
        ]
        events = (each for each in self.prepared if isinstance(each, PreparedEvent))
        return media + [each.withheld for each in events if each.withheld is not None]

    @cached_property
    def instructions(self) -> frozenset[str]:
        """Return the refs of the events that are system text, as the window has them now."""
        return frozenset(each.candidate.ref for each in self.events if each.event.message.role == "system")

    @cached_property
    def required_tokens(self) -> int:
        return required_tokens(self._sized)

    @cached_property
    def shortened(self) -> list[Shortening]:
        longest = self.preparer.longest
        return [
            Shortening(each.candidate.ref, each.original_tokens, each.block.tokens, compacted=each.in_part is not None)
            for each in self.events
            if each.in_part is not None or (each.original_tokens > longest and may_shorten(each.event))
            if each.withheld is None
        ]

    def fit(self, room: int, events_room: int | None = None) -> FittedConversation:
        """Trim to ``room`` tokens: summaries first, oldest first, then events by category, oldest first.

        Key facts take the place of what is left out, as far as it was read.
        """
        choice = self._choice(room, events_room)
        share = min(int(room * _KEY_FACTS_SHARE), room - self.required_tokens)
        of_others = max(int(room * _OTHERS_SHARE), room - choice.tokens)
        facts = self._key_facts(choice, FactsRoom(max(share, room - choice.tokens), of_others))
        if facts is not None and facts.tokens > room - choice.tokens:
            rest = room - facts.tokens
            choice = self._choice(rest, None if events_room is None else min(rest, events_room))
            facts = self._key_facts(choice, FactsRoom(room - choice.tokens, of_others))
        return self._fitted(choice, facts)

    def unread(self, left_out: AbstractSet[str], *, limited: bool = True) -> Unread | None:
        """Return what to read of the refs that a prompt leaves out; None if this prompt has read all of it.

        Not ``limited``: all of them, because an earlier prompt chose them.
        """
        messages = [each for each in self.events if each.withheld is None and is_message(each.event)]
        places = [place for place, each in enumerate(messages) if each.candidate.ref in left_out]
        chosen = _within_reading(messages, places) if limited else places
        refs = frozenset(messages[place].candidate.ref for place in chosen)
        if refs <= self._read:
            return None
        self.readings.append(refs - self._read)
        places = [place for place in chosen if messages[place].reading.statements is None]
        end = len(messages)
        following = {after for place in places for after in range(place, min(place + _FOLLOWING + 1, end))}
        later = [messages[place] for place in following.difference(places)]
        first = messages[places[0]].event.number if places else 0
        return Unread(
            {messages[place].event.event_id: messages[place].reading for place in places},
            [messages[place].event for place in sorted(following)],
            [each.fact for each in self._statements if each.event.number < first],
            {each.event.event_id: each.reading for each in later if each.reading.statements is not None},
        )

    @property
    def _read(self) -> frozenset[str]:
        return frozenset[str]().union(*self.readings)

    @property
    def _statements(self) -> list[StatedFact]:
        """Return what summaries and messages state, as far as they were read, without what later ones settled."""
        refs = self._read
        read = [each for each in self.events if each.candidate.ref in refs]
        settled = frozenset[str]().union(*(each.reading.settled for each in read))
        found: list[StatedFact] = []
        for each in self.sent:
            if isinstance(each, PreparedSummary):
                events = {event.event_id: event for event in each.part.events}
                found += (StatedFact(fact, events[fact.event_ids[0]]) for fact in each.part.statements)
            elif each.candidate.ref in refs:
                found += (StatedFact(fact, each.event) for fact in each.reading.statements or ())
        return [each for each in found if each.fact.fact_id not in settled]

    def _key_facts(self, choice: _Choice, room: FactsRoom) -> PlannedBlock | None:
        """Return the key facts of what is left out."""
        trimmed = {*choice.events.trimmed, *self._covered_by(self._left_out(choice))}
        if not trimmed:
            return None
        statements = [each for each in self._statements if self.preparer.ref_of(each.event) in trimmed]
        return self.preparer.key_facts(statements, room)

    @staticmethod
    def _covered_by(summaries: Sequence[PreparedSummary]) -> Iterator[str]:
        return chain.from_iterable(each.block.covers for each in summaries)

    def _choice(self, room: int, events_room: int | None) -> _Choice:
        """Choose what fits."""
        limit = room if events_room is None else min(room, events_room)
        found = fit(self._sized, limit, budgets_for(limit, self.shares), low_water=1.0, longest=self.preparer.longest)
        # No summary stays where an event has to go, unless both have a room of their own.
        used = found.tokens if events_room is not None or not found.trimmed else room
        return _Choice(found, self._newest_summaries(room - used))

    def _left_out(self, choice: _Choice) -> list[PreparedSummary]:
        return self.summaries[: len(self.summaries) - len(choice.summaries)]

    def _fitted(self, choice: _Choice, facts: PlannedBlock | None) -> FittedConversation:
        kept = {*choice.events.kept, *(each.candidate.ref for each in choice.summaries)}
        blocks = [each.block for each in self.sent if each.candidate.ref in kept]
        stated = facts.covers if facts is not None else {}
        if facts is not None:
            # What is left out is older than most that stays, and no block may stand between a call and its result.
            start = next(
                (at for at, block in enumerate(blocks) if self.instructions.isdisjoint(block.items)), len(blocks)
            )
            blocks.insert(start, facts)
        omitted = [
            OmittedCandidate(ref, "budget", "trimmed, oldest first")
            for ref in choice.events.trimmed
            if ref not in stated
        ]
        for each in self._left_out(choice):
            refs = (ref for ref in (each.candidate.ref, *each.block.covers) if ref not in stated)
            omitted += [OmittedCandidate(ref, "budget", "summaries are left out first") for ref in refs]
        return FittedConversation(blocks, omitted, [each for each in self.shortened if each.ref in kept])

    def _newest_summaries(self, room: int) -> list[PreparedSummary]:
        """Return the newest summaries that fit, without a gap between them."""
        kept: list[PreparedSummary] = []
        for each in reversed(self.summaries):
            room -= each.block.tokens
            if room < 0:
                break
            kept.append(each)
        return kept

    def is_live(self, block: PlannedBlock) -> bool:
        """Tell whether the conversation still has all that a block of an earlier prompt contains or stands for.

        A summary of an earlier compaction may stay as long as its events do, unless the compaction was dropped.
        """
        if block.kind == "summary":
            # Key facts are in the words of their events.
            has_view = block.block_id == _KEY_FACTS_ID or bool(self.summaries)
            items, has_view = block.covers, has_view and block.block_id not in self.redacted
        else:
            items, has_view = {**block.items, **block.covers}, True
        return has_view and all(self._live.get(ref) == version for ref, version in items.items())

    @cached_property
    def _live(self) -> dict[str, str]:
        """Return the versions of all events by ref, also of those that a summary stands for."""
        found: dict[str, str] = {}
        for each in self.sent:
            found |= {**each.block.items, **each.block.covers}
        return found

    def unseen(self, seen: AbstractSet[str]) -> list[PlannedBlock]:
        """Return blocks of the events whose refs are not among ``seen``, in order.

        A summary of which some events were sent already is not used: the others are appended themselves.
        """
        found: list[PlannedBlock] = []
        for each in self.sent:
            if isinstance(each, PreparedEvent):
                found += [] if each.candidate.ref in seen else [each.block]
            elif each.block.covers.keys().isdisjoint(seen):
                found.append(each.block)
            else:
                new = [event for event in each.part.events if self.preparer.ref_of(event) not in seen]
                found += [event.block for event in self.preparer.prepare_events(new)]
        return found

    def is_question(self, block: PlannedBlock) -> bool:
        message = block.messages[-1]
        return block.kind == "conversation" and message.role == "user" and not block.is_data

    @property
    def newest_question(self) -> str | None:
        """Return the text of the newest message of the user, unless the model has answered it: tools may run first."""
        own = [each.event for each in self.events if not each.event.routed]
        if not own or own[-1].message.role not in {"user", "tool"}:
            return None
        return next((event.message.content for event in reversed(own) if event.message.role == "user"), None)

    @cached_property
    def tokens_by_category(self) -> dict[str, int]:
        used: dict[Category, int] = {}
        for each in self.events:
            used[each.sized.category] = used.get(each.sized.category, 0) + each.sized.tokens
        if self.summaries:
            tokens = sum(each.block.tokens for each in self.summaries)
            used[Category.CONTEXT] = used.get(Category.CONTEXT, 0) + tokens
        return {category.value: tokens for category, tokens in used.items()}

    @property
    def original_tokens(self) -> int:
        """Return the tokens of all events before any was shortened or summarised."""
        return sum(each.original_tokens for each in self.prepared)

    @cached_property
    def covered(self) -> frozenset[str]:
        """Return the refs of the events that summaries or shorter contents stand for."""
        return frozenset(ref for each in self.sent for ref in each.block.covers)

    @property
    def saved_tokens(self) -> int:
        """Return the tokens that summaries and shorter contents save."""
        covering = [each for each in self.sent if each.block.covers]
        return max(sum(each.original_tokens - each.block.tokens for each in covering), 0)

    @cached_property
    def _sized(self) -> list[SizedEvent]:
        return [each.sized for each in self.events]


def may_shorten(event: WindowEvent) -> bool:
    """Tell whether the middle of an event may be cut out: not of system messages, pins and native content."""
    return event.category is not Category.SYSTEM and not event.pinned and event.message.native is None


def _sized(event: WindowEvent, tokens: int, ref: str) -> SizedEvent:
    """Return an event with its size; the newest message of the user is never one that another agent routed here."""
    sized = SizedEvent.of(event, tokens)
    # Event ids are unique in a window only.
    return structs.replace(sized, event_id=ref, is_user=sized.is_user and not event.routed)


def event_trust(event: WindowEvent) -> ItemTrust:
    """Return the trust of an event for the agent of its window.

    Results of tools are data. Events of other agents are too, unless they come from an ancestor, who may instruct. So
    are instructions that nobody above the agent gave. What is held is of nobody's side until it is released.
    """
    is_result = event.message.role == "tool"
    found = item_trust(event.trust, event.author, "", Source.TOOL if is_result else None)
    is_held = event.trust is not None and event.trust.held and not is_instruction(event)
    is_data = is_result or is_held or event.as_data
    if not is_data and (event.superior or not event.routed):
        return found._replace(trust=Trust.TRUSTED)
    return found if found.is_suspicious else found._replace(trust=Trust.UNTRUSTED)


def _quoted(event: WindowEvent) -> ConversationMessage:
    """Return an event of another agent as a quotation: neither the user nor this agent said it, or called its tools."""
    message = event.message
    if message.role == "system":
        return message
    calls = (f"{call.name}({call.arguments})" for call in message.tool_calls)
    text = "\n".join(filter(None, (plain_text(message), *calls)))
    is_data = event_trust(event).trust is not Trust.TRUSTED
    return ConversationMessage(role="user", content=text if is_data else f"[From {event.agent_id}]\n{text}")


def _withheld(message: ConversationMessage) -> ConversationMessage:
    """Return a note in the place of a message. Its calls stay, without arguments: their results refer to them."""
    calls = tuple(ToolCall(_plain(call.call_id), _plain(call.name), _NO_ARGUMENTS) for call in message.tool_calls)
    answered = message.tool_call_id and _plain(message.tool_call_id)
    return ConversationMessage(message.role, _WITHHELD_NOTE, tool_calls=calls, tool_call_id=answered)


def _plain(name: str) -> str:
    """Return a name or id of a message that is withheld: its hash if it has a space and may be a text."""
    return name if " " not in name else hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_DIGITS]


def without_summaries(view: CompactedView, prepared: Sequence[Prepared], redacted: AbstractSet[str]) -> CompactedView:
    """Return a view without the summaries whose records are redacted; their original events are shown instead."""
    summaries = (each for each in prepared if isinstance(each, PreparedSummary))
    hidden = {each.part.number for each in summaries if each.block.block_id in redacted}
    # A summary without sources holds for nothing; the numbers of the others stay.
    kept = [structs.replace(each, sources={}) if at in hidden else each for at, each in enumerate(view.summaries)]
    return structs.replace(view, summaries=tuple(kept))


def _part_of(prepared: Prepared) -> CompactedPart:
    return prepared.part if isinstance(prepared, PreparedSummary) else prepared.in_part or prepared.event


def _identity(part: CompactedPart) -> Hashable:
    """Return what tells a part from all others that are in memory: views and events are cached, parts are not."""
    if isinstance(part, SummaryOfEvents):
        return id(part.summary), part.facts, tuple(map(id, part.statements))
    return (id(part.event), id(part.shortened)) if isinstance(part, EventInPart) else id(part)
