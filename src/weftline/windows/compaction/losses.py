"""Loss notes: what a shorter text leaves out, by kind and source."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from weftline.windows.compaction.event_texts import call_names, speaker
from weftline.windows.compaction.model import RESULT_OF

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.windows.compaction.reduction.model import Losses
    from weftline.windows.model import WindowEvent

# Sources that a note names, those with the most losses first; and kinds of each.
_MAX_SOURCES = 4
_MAX_KINDS = 3


def loss_list(losses: Losses) -> str:
    """Return losses in words: ``12 sentences, 3 questions of user; 214 rows of result of query``."""
    by_source: dict[str, Counter[str]] = {}
    for (source, kind), number in losses.items():
        by_source.setdefault(source, Counter())[kind] += number
    ordered = sorted(by_source.items(), key=lambda item: -item[1].total())
    shown = [f"{_kinds(kinds)} of {source}" for source, kinds in ordered[:_MAX_SOURCES]]
    more = [f"{_kinds(sum((kinds for _, kinds in ordered[_MAX_SOURCES:]), Counter()))} of others"]
    return "; ".join(shown + (more if len(ordered) > _MAX_SOURCES else []))


def event_losses(events: Sequence[WindowEvent]) -> Losses:
    """Return events that are left out whole, as losses."""
    names = call_names(events)
    return Counter(
        (names.get(event.event_id, "a tool"), "results")
        if event.message.role == "tool"
        else (speaker(event), "messages")
        for event in events
    )


def result_losses(left_out: Iterable[tuple[str, str]]) -> Losses:
    """Return what was cut out of results, each with its tool, as losses: ``214 rows and 80 characters``."""
    losses: Losses = Counter()
    for name, parts in left_out:
        for part in parts.split(" and "):
            number, _, noun = part.partition(" ")
            losses[f"{RESULT_OF}{name}", noun if number != "1" else f"{noun}s"] += int(number.replace(",", ""))
    return losses


def _kinds(kinds: Counter[str]) -> str:
    return ", ".join(
        f"{number:,} {kind if number > 1 else kind.removesuffix('s')}" for kind, number in kinds.most_common(_MAX_KINDS)
    )
