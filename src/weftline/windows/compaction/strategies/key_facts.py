"""Key facts: the older messages as lists of decisions, constraints, requirements and other facts, without prose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.windows.compaction.model import Layout
from weftline.windows.compaction.strategies.sliding_window import window_groups

if TYPE_CHECKING:
    from weftline.windows.compaction.model import CompactionSource


def key_facts(source: CompactionSource) -> Layout:
    """Keep the recent messages in full; replace the others by the facts in them."""
    reason = f"The newest {source.keep_recent} messages stay in full; the others are reduced to their key facts."
    return Layout("key_facts", reason, window_groups(source), facts_only=True)
