"""The text of a summary in a prompt: its prose, then the key facts that the prose does not contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.compaction.model import FactKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.compaction.model import KeyFact, Summary

_HEADING = "Key facts:"
# Kinds of facts that are a literal, not a statement.
LITERALS = frozenset(
    {
        FactKind.IDENTIFIER,
        FactKind.QUANTITY,
        FactKind.DATE,
        FactKind.PATH,
        FactKind.URL,
        FactKind.SYMBOL,
        FactKind.QUOTE,
    }
)


def summary_text(summary: Summary, facts: Sequence[KeyFact]) -> str:
    """Return the text that stands for the events of a summary; ``facts`` are those that it does not contain."""
    return "\n".join(filter(None, (summary.title, summary.text, facts_text(facts))))


def facts_text(facts: Sequence[KeyFact]) -> str:
    """Return key facts as a list: statements one by one, literals by kind; nothing if there are none."""
    statements = dict.fromkeys(_statement(fact) for fact in facts if fact.kind not in LITERALS)
    return "\n".join([_HEADING, *statements, *_literals(facts)]) if facts else ""


def _statement(fact: KeyFact) -> str:
    who = f" ({fact.who})" if fact.who else ""
    status = "" if fact.status == "current" else f" [{fact.status}]"
    return f"- {_kind(fact.kind)}{who}: {_one_line(fact.text)}{status}"


def _literals(facts: Iterable[KeyFact]) -> list[str]:
    by_kind: dict[FactKind, dict[str, None]] = {}
    for fact in facts:
        if fact.kind in LITERALS:
            by_kind.setdefault(fact.kind, {})[_one_line(fact.text)] = None
    return [f"- {_kind(kind)}: {', '.join(texts)}" for kind, texts in by_kind.items()]


def _kind(kind: FactKind) -> str:
    return kind.value.replace("_", " ")


def _one_line(text: str) -> str:
    """Return a text without line breaks, so that no line of it passes for another fact."""
    return " ".join(text.split("\n"))
