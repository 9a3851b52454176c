"""The port of what writes the text of a group of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.compaction.model import EventGroup, KeyFact, SummaryMethod
    from weft.kernel.tokens import TokenCounter


class SummaryRequest(NamedTuple):
    """What to write: a group, the key facts of its events, and whether to write nothing but facts."""

    group: EventGroup
    facts: Sequence[KeyFact]
    count: TokenCounter
    facts_only: bool = False


class SummaryText(NamedTuple):
    """The text of a group. ``confidence`` is from 0 to 1; ``loss_notes`` say what is not in it.

    ``degraded`` says why it was not made as configured.
    """

    text: str
    method: SummaryMethod
    confidence: float = 1.0
    loss_notes: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()


class SummariserFailed(Exception):
    """A summariser has no text for a group. The message is the reason, without any content."""


class Summariser(Protocol):
    """Writes the text that stands for a group of events."""

    async def summarise(self, request: SummaryRequest) -> SummaryText:
        """Return a text of about the target size; raises SummariserFailed."""
        ...
