"""Labels before a statement: ``Decision: ...``, ``"owner": "..."``, ``| Deadline | ... |``, in prose and in data."""

from __future__ import annotations

import re
from typing import NamedTuple

from weftline.windows.compaction.model import FactKind

_LABELS = {
    FactKind.DECISION: (
        "decision|decided|final decision|consensus|resolution|verdict|agreed|entscheidung|beschluss|décision|"
        "decisión|acuerdo"
    ),
    FactKind.CONSTRAINT: (
        "constraint|hard constraint|rule|limitation|einschränkung|vorgabe|regel|contrainte|règle|restricción|regla"
    ),
    FactKind.REQUIREMENT: "requirement|req|acceptance|must have|acceptance criterion|acceptance criteria|anforderung|"
    "exigence|requisito",
    FactKind.PREFERENCE: "preference|user preference|prefers|präferenz|préférence|preferencia",
    FactKind.OPEN_QUESTION: (
        "open question|open questions|open issue|unresolved|unknown|tbd|offene frage|question ouverte|pregunta abierta"
    ),
    FactKind.BLOCKER: "blocker|blocked|stuck|blocked by|blocked on|impediment|blockiert durch|bloquant|blocage|bloqueo",
    FactKind.OWNER: (
        "owner|assignee|assigned to|assigned_to|responsible|dri|verantwortlich|zuständig|responsable|"
        "encargado|encargada"
    ),
    FactKind.DEADLINE: (
        "deadline|due|due date|due_date|due by|due_by|target date|frist|fällig|fällig am|échéance|date limite|"
        "fecha límite|plazo|vencimiento"
    ),
    FactKind.COMMITMENT: "action item|commitment|promise|next step|zusage|engagement|compromiso",
}
# The longest word of each label: a text without one of these has no label.
LABEL_WORDS = frozenset(
    max(re.split(r"[_ ]", label), key=len) for listed in _LABELS.values() for label in listed.split("|")
)
_GROUPS = "|".join(f"(?P<{kind.value}>{listed})" for kind, listed in _LABELS.items())
_LABEL = re.compile(
    rf"(?:^|[\s\"'*_|{{,>#/(\[-])(?:{_GROUPS})(?:\s?\(\w{{1,20}}\))?[\"'*_]{{0,3}}"
    r"(?:\s?[:=|]|\s[\u2013\u2014-]\s)"
    r"[\s\"'*_]{0,4}(?P<value>[^\s\"'|].{0,300})",
    re.IGNORECASE,
)
_HEADER = re.compile(rf"^[\s*_]{{0,4}}(?:{_GROUPS})[\s*_]{{0,4}}$", re.IGNORECASE)
_MARKS = (":", "=", "|", " - ", "\u2013", "\u2014")
_NOTHING = frozenset({"null", "none", "false", "true", "n/a", "na", "-", "[]", "{}", "unknown", "unassigned"})
_VALUE_END = re.compile(r"[\"'*|},\]]")


class Labelled(NamedTuple):
    """The kind that a label names, and the value after it."""

    kind: FactKind
    value: str


def label_in(text: str, words: set[str]) -> Labelled | None:
    """Return the label of a unit and its value, None for most."""
    if LABEL_WORDS.isdisjoint(words) or not any(mark in text for mark in _MARKS):
        return None
    for match in _LABEL.finditer(text):
        value = _VALUE_END.split(match["value"], maxsplit=1)[0].strip()
        if value.casefold() not in _NOTHING and any(map(str.isalnum, value)):
            return Labelled(_kind(match), match["value"].strip())
    return None


def header_kind(header: str) -> FactKind | None:
    """Return the kind that a column of a table's header names: that of its first such column."""
    for cell in header.strip().strip("|").split("|"):
        match = _HEADER.match(cell)
        if match is not None:
            return _kind(match)
    return None


def _kind(match: re.Match[str]) -> FactKind:
    return next(kind for kind in _LABELS if match[kind.value] is not None)
