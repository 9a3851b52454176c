"""The key facts that remain of summaries which a prompt has no room for: current statements, the most binding first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.compaction.digest import statement
from weft.capabilities.compaction.model import FactKind
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.capabilities.compaction.model import KeyFact

# What binds the work that follows comes first.
_FIRST = frozenset({FactKind.DECISION, FactKind.CONSTRAINT, FactKind.COMMITMENT, FactKind.OPEN_QUESTION})


def chosen_facts(facts: Sequence[KeyFact], room: int, scaled: Callable[[int], int]) -> list[KeyFact]:
    """Return the facts that fit into about ``room`` tokens: the most binding kinds first, of each the newest."""
    ascending = sorted(facts, key=lambda fact: fact.kind in _FIRST)
    chosen: list[KeyFact] = []
    for fact in reversed(ascending):
        tokens = scaled(approximate_tokens(statement(fact)))
        if tokens <= room:
            chosen.append(fact)
            room -= tokens
    return chosen
