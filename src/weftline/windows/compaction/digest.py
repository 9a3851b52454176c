"""Digests: key facts as lists by kind, in place of prose."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from weftline.windows.compaction.model import RESULT_OF, FactKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weftline.windows.compaction.model import KeyFact, Summary


T = TypeVar("T")
# Kinds in the order of a digest.
_ORDER = {kind: at for at, kind in enumerate(FactKind)}
_HEADINGS = {
    FactKind.DECISION: "Decisions",
    FactKind.COMMITMENT: "Commitments",
    FactKind.CONSTRAINT: "Constraints",
    FactKind.REQUIREMENT: "Requirements",
    FactKind.PREFERENCE: "Preferences",
    FactKind.OPEN_QUESTION: "Open questions",
    FactKind.BLOCKER: "Blockers",
    FactKind.OWNER: "Owners",
    FactKind.DEADLINE: "Deadlines",
    FactKind.FACT: "Facts",
    FactKind.ERROR: "Errors",
    FactKind.PENDING_CALL: "Pending tool calls",
    FactKind.IDENTIFIER: "Identifiers",
    FactKind.QUANTITY: "Numbers",
    FactKind.DATE: "Dates",
    FactKind.PATH: "Paths",
    FactKind.URL: "URLs",
    FactKind.SYMBOL: "Symbols",
    FactKind.QUOTE: "Quotations",
}
_LATER = {"current": "", "superseded": " (replaced later)", "resolved": " (resolved later)"}
LITERALS = frozenset(kind for kind in FactKind if _ORDER[kind] >= _ORDER[FactKind.IDENTIFIER])


def digest(facts: Sequence[KeyFact]) -> str:
    """Return facts as lists by kind; statements with who made them, literals in one line."""
    ordered = sorted(facts, key=lambda fact: _ORDER[fact.kind])
    return "\n".join(_section(kind, list(each)) for kind, each in groupby(ordered, lambda fact: fact.kind))


def is_literal(fact: KeyFact) -> bool:
    """Tell whether a fact is a literal rather than a statement."""
    return fact.kind in LITERALS


def _section(kind: FactKind, facts: Sequence[KeyFact]) -> str:
    heading = _HEADINGS[kind]
    # A line that a tool returned stands by itself, because it may read like somebody's statement.
    is_listed = [kind not in LITERALS or (kind is FactKind.QUOTE and fact.is_of_tool) for fact in facts]
    literals = ", ".join(_distinct(fact.text for fact, listed in zip(facts, is_listed, strict=True) if not listed))
    lines = _lines(fact for fact, listed in zip(facts, is_listed, strict=True) if listed)
    return "\n".join([f"{heading}: {literals}".rstrip(), *lines])


def _lines(facts: Iterable[KeyFact]) -> Iterator[str]:
    """Yield statements, with who made them where that changes; of tools always, as they may name somebody else."""
    before = ""
    for who, text in _distinct((fact.who, f"{fact.text}{_LATER[fact.status]}") for fact in facts):
        is_named = who != before or who.startswith(RESULT_OF)
        yield f"- {who}: {text}" if is_named else f"- {text}"
        before = who


def statement(fact: KeyFact) -> str:
    """Return a statement with who made it, and whether a later one replaced it."""
    who = f"{fact.who}: " if fact.who else ""
    return f"{who}{fact.text}{_LATER[fact.status]}"


def _distinct(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


# The text of a summary in a prompt: its prose, then the key facts that the prose does not contain.

_HEADING = "Key facts:"


def summary_text(summary: Summary, facts: Sequence[KeyFact]) -> str:
    """Return the text that stands for the events of a summary; ``facts`` are those that it does not contain."""
    return "\n".join(filter(None, (summary.title, summary.text, facts_text(facts))))


def facts_text(facts: Sequence[KeyFact]) -> str:
    """Return key facts as lists by kind; nothing if there are none."""
    return f"{_HEADING}\n{digest(facts)}" if facts else ""
