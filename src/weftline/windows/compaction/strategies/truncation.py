"""Truncation, the last resort: the newest messages in full, the older ones left out except for their key facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.windows.compaction.model import Layout
from weftline.windows.compaction.strategies.sliding_window import window_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.windows.compaction.model import CompactionSource
    from weftline.windows.model import WindowEvent


def truncation(source: CompactionSource) -> Layout:
    """Keep the recent messages in full; leave the others out."""
    reason = f"The newest {source.keep_recent} messages stay in full; the older ones are left out."
    return Layout("truncation", reason, window_groups(source), facts_only=True)


def truncation_note(events: Sequence[WindowEvent]) -> str:
    """Return what stands for events that were left out."""
    tokens = sum(event.tokens for event in events)
    return f"[{len(events)} events with {tokens:,} tokens left out]"
