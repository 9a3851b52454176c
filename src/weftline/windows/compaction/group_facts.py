"""The key facts of a group: those that its text must have, and those that only later events made important."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.windows.compaction.model import FactKind, binds
from weftline.windows.compaction.summariser import references_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.kernel.ports import TokenCounter
    from weftline.windows.compaction.model import EventGroup, KeyFact


# Parts of a group's room for whole sentences: for those that more probably state something than not, and for all. The
# rest is for words of the others: in talk where nearly every sentence might tell something, words keep more than a few.
_STATED = 0.5
_STATED_ROOM, _ROOM = 0.75, 0.2


class GroupFacts(NamedTuple):
    """``known`` are the facts as they stood soon after the group; ``later`` are facts since later events.

    A text is made of the first alone, so that it is the same when events are appended.
    """

    known: Sequence[KeyFact]
    later: Sequence[KeyFact]


def facts_in_room(facts: Sequence[KeyFact], room: int, count: TokenCounter) -> list[KeyFact]:
    """Return the facts that the text of a group must have, in their order.

    What binds, and every literal, in any case; sentences that only tell something, or perhaps nothing, as far as there
    is room, the most probable first.
    """
    chosen = {fact.fact_id for fact in facts if binds(fact.kind, fact.probability)}
    used = sum(count(fact.text) for fact in facts if fact.fact_id in chosen)
    optional = [fact for fact in facts if fact.fact_id not in chosen]
    for fact in sorted(optional, key=lambda each: -each.probability):
        used += count(fact.text)
        if used > room * (_STATED_ROOM if fact.probability >= _STATED else _ROOM):
            break
        chosen.add(fact.fact_id)
    return [fact for fact in facts if fact.fact_id in chosen]


def facts_by_event(facts: Iterable[KeyFact]) -> dict[str, list[KeyFact]]:
    """Return facts by the id of their first event."""
    found: dict[str, list[KeyFact]] = {}
    for fact in facts:
        if fact.event_ids:
            found.setdefault(fact.event_ids[0], []).append(fact)
    return found


def facts_of(group: EventGroup, facts: Mapping[str, Sequence[KeyFact]]) -> GroupFacts:
    """Return the facts of a group."""
    own = [fact for event in group.events for fact in facts.get(event.event_id, ())]
    ids = {fact.fact_id for fact in own}
    results = {event.event_id for event in group.events if event.message.role == "tool"}
    wanted = references_to(group) if results else frozenset()
    known: list[KeyFact] = []
    later: list[KeyFact] = []
    for fact in own:
        # Lines of results are facts if a message refers to them, or they are labelled: then the line is the literal.
        is_line = fact.kind is FactKind.QUOTE and fact.event_ids[0] in results
        is_line = is_line and (" " not in fact.text or fact.literals != (fact.text,))
        if is_line and not wanted.intersection(fact.literals):
            later.append(fact)
        else:
            known.append(_as_known(fact, ids))
        if fact.status != "current" and fact.superseded_by not in ids:
            later.append(fact)
    return GroupFacts(known, later)


def _as_known(fact: KeyFact, own: set[str]) -> KeyFact:
    """Return a fact without a status that something after the group gave it."""
    if fact.status == "current" or fact.superseded_by in own:
        return fact
    return structs.replace(fact, status="current", superseded_by=None)
