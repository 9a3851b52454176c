"""Compaction settings of agents, teams and tenants: when their windows are compacted, and how."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, get_args

import msgspec
from msgspec import structs

from weftline.kernel.fields import ShortText
from weftline.state.agent_context.inherited_settings import InheritedSettings

# ``truncation``, the last resort, cannot be chosen.
StrategyName = Literal["auto", "sliding_window", "key_facts", "hierarchical", "task_scoped"]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
DEFAULT_STRATEGY: StrategyName = "sliding_window"
DEFAULT_THRESHOLD = 0.8
# Newest messages that are kept in full.
DEFAULT_KEEP_RECENT = 20
# Part of the covered tokens that the compacted view may take.
DEFAULT_TARGET = 0.4

Threshold = Annotated[
    float,
    msgspec.Meta(gt=0, le=1, description="Part of the limit from which the window should be compacted, such as 0.8."),
]
KeepRecent = Annotated[int, msgspec.Meta(ge=1, le=10_000, description="Newest messages that are kept in full.")]
Target = Annotated[
    float, msgspec.Meta(ge=0.02, le=0.95, description="Part of their tokens that compacted events may take.")
]


class CompactionSettings(InheritedSettings, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When and how windows are compacted; what is not set here is set for a parent, a team or the tenant."""

    strategy: Annotated[
        StrategyName | None, msgspec.Meta(description="How windows are compacted; sliding_window by default.")
    ] = None
    threshold: Annotated[
        Threshold | None, msgspec.Meta(description="Part of the limit that starts a compaction; 0.8 by default.")
    ] = None
    keep_recent: Annotated[
        KeepRecent | None, msgspec.Meta(description="Newest messages that stay in full; 20 by default.")
    ] = None
    target: Annotated[
        Target | None, msgspec.Meta(description="Part of their tokens that compacted events may take; 0.4 by default.")
    ] = None
    model: Annotated[
        ShortText | None, msgspec.Meta(description="Model that writes the summaries: the server's, or none.")
    ] = None
    review: Annotated[bool | None, msgspec.Meta(description="A human approves each compaction before it is used.")] = (
        None
    )
    auto: Annotated[bool | None, msgspec.Meta(description="Compact at the threshold; true by default.")] = None


class ResolvedCompaction(NamedTuple):
    """The compaction settings that hold for a window."""

    strategy: StrategyName = DEFAULT_STRATEGY
    threshold: float = DEFAULT_THRESHOLD
    keep_recent: int = DEFAULT_KEEP_RECENT
    target: float = DEFAULT_TARGET
    model: str | None = None
    review: bool = False
    auto: bool = True

    @classmethod
    def of(cls, settings: CompactionSettings) -> ResolvedCompaction:
        """Return settings, completed by the defaults."""
        return cls(**{name: value for name, value in structs.asdict(settings).items() if value is not None})
