"""The key facts that remain of summaries and messages which a prompt has no room for.

A message is read when a prompt leaves it out for the first time; what it states is kept with its prepared event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.kernel.identity import HUMAN
from weftline.kernel.tokens import approximate_tokens
from weftline.windows.compaction.digest import is_literal, statement
from weftline.windows.compaction.facts.extraction import is_data_event, is_source
from weftline.windows.compaction.model import STATED_KINDS, FactKind, KeyFact, is_stated
from weftline.windows.model import is_from_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from weftline.windows.model import WindowEvent

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
