"""Whether an automatic compaction costs less than it saves: shorter prompts against the provider's cache that it loses.

Costs are in uncached input tokens, over the calls that are expected to follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.windows.compaction.compacted_events import SummaryOfEvents, compacted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.models.language_models.catalog import CacheRules
    from weftline.windows.compaction.model import CompactedView
    from weftline.windows.model import WindowEvent

# Calls that are expected to follow with the same prefix: the mean of an agent's loop.
EXPECTED_CALLS = 8
# From this part of the limit on, prompts are about to be trimmed, which loses the cache and more.
NEAR_LIMIT = 0.95


class CompactionCosts(NamedTuple):
    """Modelled cost of the calls to come with the window as it is, and with the new view."""

    unchanged: float
    compacted: float

    @property
    def is_worth_it(self) -> bool:
        return self.compacted < self.unchanged


def modelled_costs(
    events: Sequence[WindowEvent], before: CompactedView | None, after: CompactedView, cache: CacheRules
) -> CompactionCosts:
    """Return what the expected calls cost: text up to the first difference is read from the cache in both cases."""
    old, new = (_parts(events, view) for view in (before, after))
    same = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        same += one[1]
    old_tokens, new_tokens = (sum(tokens for _, tokens in parts) for parts in (old, new))
    return costs_of(same, old_tokens, new_tokens, cache)


def costs_of(same: int, old_tokens: int, new_tokens: int, cache: CacheRules) -> CompactionCosts:
    """Return what the expected calls cost with so many tokens, of which the first ``same`` are the same."""
    write, read = max(cache.write_multipliers.values(), default=1.0), cache.read_multiplier
    first = same * read + (new_tokens - same) * write
    return CompactionCosts(
        unchanged=EXPECTED_CALLS * old_tokens * read, compacted=first + (EXPECTED_CALLS - 1) * new_tokens * read
    )


def _parts(events: Sequence[WindowEvent], view: CompactedView | None) -> list[tuple[object, int]]:
    """Return what identifies the text of each part of a window, with its tokens."""
    shown = events if view is None else compacted(events, view)
    return [
        ((part.summary.text, part.facts), part.summary.tokens)
        if isinstance(part, SummaryOfEvents)
        else ((part.event_id, part.tokens), part.tokens)
        for part in shown
    ]
