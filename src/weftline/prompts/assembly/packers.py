"""Packers of short texts: pins, board entries and open questions. They are data of others, and marked as such."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.kernel.identity import HUMAN
from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models.content import ConversationMessage
from weftline.prompts.assembly.plan import Packed
from weftline.prompts.assembly.prompt_trust import ItemTrust, least_trusted
from weftline.prompts.assembly.receipts import Candidate, OmittedCandidate, PackingLog, PlannedBlock, digest_of
from weftline.state.layers.prefix import data_element, element_text
from weftline.windows.compaction.digest import is_literal, statement
from weftline.windows.compaction.facts.extraction import is_data_event, is_source
from weftline.windows.compaction.model import STATED_KINDS, FactKind, KeyFact, is_stated
from weftline.windows.model import is_from_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weftline.models.language_models.content import BlockKind
    from weftline.prompts.assembly.receipts import CandidateKind
    from weftline.windows.model import WindowEvent

    CountMessages = Callable[[tuple[ConversationMessage, ...]], int]


class PackedText(NamedTuple):
    """A candidate with its text as rendered, and its trust."""

    ref: str
    version: str
    text: str
    trust: ItemTrust
    score: float | None = None


@dataclass(frozen=True)
class TextPacker:
    """Texts in one message; earlier ones have priority. ``name`` says in the prompt what they are.

    Suspicious ones are in a data element of their own, which says so.
    """

    kind: BlockKind
    candidate_kind: CandidateKind
    name: str
    texts: Sequence[PackedText]
    count: CountMessages
    mark_words: bool = False

    @property
    def candidates(self) -> list[Candidate]:
        return [
            Candidate(ref=each.ref, kind=self.candidate_kind, tokens=self._tokens([each]), version=each.version)
            for each in self.texts
        ]

    @property
    def tokens(self) -> int:
        return self._tokens(self.texts) if self.texts else 0

    def wanted_tokens(self, known: Mapping[str, str]) -> int:
        wanted = [each for each in self.texts if known.get(each.ref) != each.version]
        return self._tokens(wanted) if wanted else 0

    def pack(self, room: int, known: Mapping[str, str]) -> Packed:
        wanted = [each for each in self.texts if known.get(each.ref) != each.version]
        taken = list(wanted) if wanted and self._tokens(wanted) <= room else self._fitting(wanted, room)
        left = [OmittedCandidate(each.ref, "budget") for each in wanted if each not in taken]
        block = self._block(taken) if taken else None
        self.log.add(room, len(wanted), block)
        return Packed(block, left)

    @cached_property
    def log(self) -> PackingLog:
        return PackingLog(self.candidate_kind)

    def _fitting(self, wanted: Sequence[PackedText], room: int) -> list[PackedText]:
        """Return the texts that fit; one that is too long does not exclude shorter ones."""
        taken: list[PackedText] = []
        for each in wanted:
            if self._tokens([*taken, each]) <= room:
                taken.append(each)
        return taken

    def _block(self, texts: Sequence[PackedText]) -> PlannedBlock:
        messages = self._messages(texts)
        least = least_trusted(each.trust for each in texts)
        return PlannedBlock(
            block_id=f"{self.kind}:{digest_of(messages).hex()[:16]}",
            kind=self.kind,
            messages=messages,
            tokens=self.count(messages),
            items={each.ref: each.version for each in texts},
            source=least.source,
            trust=least.trust,
            spans=self._spans(texts, messages[0].content),
        )

    def _spans(self, texts: Sequence[PackedText], content: str) -> dict[str, tuple[int, int]]:
        ordered = sorted(texts, key=lambda each: each.trust.is_suspicious)
        shown = [element_text(each.text, mark_words=self.mark_words) for each in ordered]
        return {each.ref: span for each, span in zip(ordered, spans_of(shown, content), strict=True) if span}

    def _tokens(self, texts: Sequence[PackedText]) -> int:
        return self.count(self._messages(texts))

    def _messages(self, texts: Sequence[PackedText]) -> tuple[ConversationMessage, ...]:
        clean = [each.text for each in texts if not each.trust.is_suspicious]
        suspect = [each.text for each in texts if each.trust.is_suspicious]
        return data_messages(self.name, "\n".join(clean), "\n".join(suspect), mark_words=self.mark_words)


def spans_of(texts: Iterable[str], content: str) -> Iterator[tuple[int, int] | None]:
    """Yield where texts begin and end in a content that has them in this order; None for one that was altered."""
    end = 0
    for text in texts:
        start = content.find(text, end)
        if start < 0:
            yield None
        else:
            end = start + len(text)
            yield start, end


def data_messages(name: str, clean: str, suspect: str, *, mark_words: bool) -> tuple[ConversationMessage, ...]:
    """Return the message of texts of others: one data element, and one for those that are suspicious."""
    elements = [
        data_element(text, name, suspect=is_suspect, mark_words=mark_words)
        for text, is_suspect in ((clean, False), (suspect, True))
        if text
    ]
    return (ConversationMessage(role="user", content="\n".join(elements)),)


# The key facts that remain of summaries and messages which a prompt has no room for.
#
# A message is read when a prompt leaves it out for the first time; what it states is kept with its prepared event.

# What binds the work that follows comes first.
_FIRST = frozenset({FactKind.DECISION, FactKind.CONSTRAINT, FactKind.COMMITMENT, FactKind.OPEN_QUESTION})
# How often a prompt is planned again: what messages state takes room, for which a few more are left out.
READINGS = 2


class FactsRoom(NamedTuple):
    """The tokens that key facts may take, and how many of them others than humans may take."""

    tokens: int
    of_others: int


@dataclass(slots=True)
class Reading:
    """What a message states, once it was read, and the ids of earlier facts that it replaces or settles."""

    statements: Sequence[KeyFact] | None = None
    settled: frozenset[str] = frozenset()


class StatedFact(NamedTuple):
    """A key fact with the event that it is from."""

    fact: KeyFact
    event: WindowEvent

    @property
    def is_of_human(self) -> bool:
        event = self.event
        is_human = is_from_user(event) or (event.message.role == "user" and event.author.startswith(HUMAN))
        return is_human and not is_data_event(event)

    @property
    def is_claim(self) -> bool:
        """Whether it is from data, which states nothing that binds anybody."""
        return is_data_event(self.event)

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        return self.is_of_human, not self.is_claim, self.fact.kind in _FIRST


class Unread(NamedTuple):
    """Messages to read: ``events`` with the next few after them, which may answer them, and ``earlier`` facts.

    ``later``: what was read before of those next few.
    """

    readings: Mapping[str, Reading]
    events: Sequence[WindowEvent]
    earlier: Sequence[KeyFact]
    later: Mapping[str, Reading]

    def note(self, facts: Iterable[KeyFact]) -> None:
        """Keep the facts that were extracted with their messages. What settles one is kept with the later message."""
        stated: dict[str, list[KeyFact]] = {name: [] for name in self.readings}
        settled = {name: set[str]() for name in self.readings}
        # The order in which messages are read makes no difference.
        settled |= {name: {*reading.settled} for name, reading in self.later.items()}
        for fact in facts:
            if fact.status != "current" and fact.sources[-1] in settled:
                settled[fact.sources[-1]].add(fact.fact_id)
            # Calls without a result are in the prompt, or were left out with it.
            is_statement = is_stated(fact) and fact.kind is not FactKind.PENDING_CALL
            if fact.event_ids[0] in stated and is_statement and not is_literal(fact):
                own = structs.replace(fact, status="current", superseded_by=None, event_ids=fact.event_ids[:1])
                stated[fact.event_ids[0]].append(own)
        for name, reading in (*self.readings.items(), *self.later.items()):
            reading.settled = frozenset(settled[name])
        for name, reading in self.readings.items():
            reading.statements = tuple(stated[name])


def is_message(event: WindowEvent) -> bool:
    """Tell whether somebody says something in an event: it is no result of a tool, nor other data."""
    return is_source(event) and not event.as_data and not is_data_event(event)


def chosen_facts(statements: Sequence[StatedFact], room: FactsRoom, scaled: Callable[[int], int]) -> list[StatedFact]:
    """Return what about fits into the room: that of humans first, then that of agents, claims of data last.

    Of each the most binding kinds come first, then the newest.
    """
    stated = [each for each in statements if not (each.is_claim and each.fact.kind in STATED_KINDS)]
    chosen: list[StatedFact] = []
    used = of_others = 0
    for _, each in sorted(enumerate(stated), key=lambda at: (at[1].rank, at[0]), reverse=True):
        tokens = scaled(approximate_tokens(statement(each.fact)))
        others = 0 if each.is_of_human else of_others + tokens
        if used + tokens <= room.tokens and others <= room.of_others:
            chosen.append(each)
            used, of_others = used + tokens, max(of_others, others)
    return chosen
