"""The strategies by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.windows.compaction.strategies.auto import auto
from weftline.windows.compaction.strategies.hierarchical import hierarchical
from weftline.windows.compaction.strategies.key_facts import key_facts
from weftline.windows.compaction.strategies.sliding_window import sliding_window
from weftline.windows.compaction.strategies.task_scoped import task_scoped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weftline.windows.compaction.model import CompactionSource, Layout, StrategyName

_STRATEGIES: Mapping[StrategyName, Callable[[CompactionSource], Layout]] = {
    "auto": auto,
    "sliding_window": sliding_window,
    "key_facts": key_facts,
    "hierarchical": hierarchical,
    "task_scoped": task_scoped,
}


def lay_out(source: CompactionSource, strategy: StrategyName) -> Layout:
    """Divide a window by a strategy."""
    return _STRATEGIES[strategy](source)
