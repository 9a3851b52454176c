"""Settings that an agent inherits: of compaction, of alerts, and the parts of its ``config``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

import msgspec
from msgspec import structs

from weftline.kernel.errors import InvalidInput
from weftline.kernel.fields import ShortText

# Settings that an agent inherits: from its ancestors, its teams and the tenant, field by field.


class InheritedSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of such settings: every field is None unless it is set."""

    def over(self, other: Self) -> Self:
        """Return these settings, completed by others."""
        unset = [name for name in self.__struct_fields__ if getattr(self, name) is None]
        return structs.replace(self, **{name: getattr(other, name) for name in unset})


# Settings of the model proxy for agents, teams and tenants: what it may change in their calls of models.

# ``observe`` changes nothing, ``trim`` shortens new results of tools, ``full`` also adds layers and what a task needs.
ProxyMode = Literal["observe", "trim", "full"]
DEFAULT_MODE: ProxyMode = "trim"
# Below the size at which coding agents cut files and outputs off themselves.
DEFAULT_TRIM_TOKENS = 4_000
# A shorter result is not worth a handle.
MIN_TRIM_TOKENS = 1_000

_TrimTokens = Annotated[int, msgspec.Meta(ge=MIN_TRIM_TOKENS, le=1_000_000)]


class ProxySettings(InheritedSettings, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the model proxy may change; what is not set here is set for a parent, a team or the tenant."""

    mode: Annotated[
        ProxyMode | None,
        msgspec.Meta(
            description="observe: nothing; trim: shorten new results of tools, the default; full: also add layers and "
            "what the task needs, and compact."
        ),
    ] = None
    trim_tokens: Annotated[
        _TrimTokens | None,
        msgspec.Meta(description="Tokens from which a result of a tool is shortened; 4000 by default."),
    ] = None


class ResolvedProxy(NamedTuple):
    """The settings of the model proxy that hold for an agent."""

    mode: ProxyMode = DEFAULT_MODE
    trim_tokens: int = DEFAULT_TRIM_TOKENS

    @classmethod
    def of(cls, settings: ProxySettings) -> ResolvedProxy:
        """Return settings, completed by the defaults."""
        return cls(settings.mode or DEFAULT_MODE, settings.trim_tokens or DEFAULT_TRIM_TOKENS)


# Alert settings of agents, teams and tenants: when the use of windows becomes an alert, and when it ends.

DEFAULT_WINDOW_FILL = 0.8
DEFAULT_EFFICIENCY = 0.01
# Of a window that is nearly full: who fills it should use more than what a short answer takes of any prompt.
# Below the estimate for calls without an answer (0.1), which would decide by rounding.
DEFAULT_FULL_EFFICIENCY = 0.05
DEFAULT_CALLS = 20
MAX_CALLS = 100
# Between the threshold of an alert and the one that resolves it, unless that is set: a part of the window, and a part
# of the threshold.
WINDOW_FILL_MARGIN = 0.1
EFFICIENCY_MARGIN = 0.25

_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class AlertSettings(InheritedSettings, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When calls of agents become an alert; what is not set here is set for a parent, a team or the tenant."""

    enabled: Annotated[bool | None, msgspec.Meta(description="Whether calls are watched; true by default.")] = None
    window_fill: Annotated[
        _Share | None,
        msgspec.Meta(description="Part of the window from which prompts overload it; 0.8 by default."),
    ] = None
    clear_window_fill: Annotated[
        _Share | None, msgspec.Meta(description="Part of the window below which it ends; 0.1 less by default.")
    ] = None
    efficiency: Annotated[
        _Share | None, msgspec.Meta(description="Useful part of prompts below which it is low; 0.01 by default.")
    ] = None
    clear_efficiency: Annotated[
        _Share | None,
        msgspec.Meta(description="Useful part from which it is not low any more; a quarter more by default."),
    ] = None
    full_efficiency: Annotated[
        _Share | None,
        msgspec.Meta(description="Useful part of prompts below which a full window is overloaded; 0.05 by default."),
    ] = None
    calls: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MAX_CALLS)] | None,
        msgspec.Meta(description="Number of latest calls that count; 20 by default."),
    ] = None


def _clear_efficiency(efficiency: float) -> float:
    return min(1.0, round(efficiency * (1 + EFFICIENCY_MARGIN), 4))


class ResolvedAlerts(NamedTuple):
    """The alert settings that hold for an agent."""

    enabled: bool = True
    window_fill: float = DEFAULT_WINDOW_FILL
    clear_window_fill: float = round(DEFAULT_WINDOW_FILL - WINDOW_FILL_MARGIN, 4)
    efficiency: float = DEFAULT_EFFICIENCY
    clear_efficiency: float = _clear_efficiency(DEFAULT_EFFICIENCY)
    full_efficiency: float = DEFAULT_FULL_EFFICIENCY
    calls: int = DEFAULT_CALLS

    @property
    def clear_full_efficiency(self) -> float:
        return _clear_efficiency(self.full_efficiency)

    @classmethod
    def of(cls, settings: AlertSettings) -> ResolvedAlerts:
        """Return settings, completed by the defaults. What resolves an alert is never stricter than what opens it."""
        fill = DEFAULT_WINDOW_FILL if settings.window_fill is None else settings.window_fill
        efficiency = DEFAULT_EFFICIENCY if settings.efficiency is None else settings.efficiency
        full = DEFAULT_FULL_EFFICIENCY if settings.full_efficiency is None else settings.full_efficiency
        clear_fill, clear_efficiency = settings.clear_window_fill, settings.clear_efficiency
        return cls(
            enabled=settings.enabled is not False,
            window_fill=fill,
            clear_window_fill=min(fill, round(fill - WINDOW_FILL_MARGIN, 4) if clear_fill is None else clear_fill),
            efficiency=efficiency,
            clear_efficiency=max(
                efficiency, _clear_efficiency(efficiency) if clear_efficiency is None else clear_efficiency
            ),
            # A full window never has the laxer bar.
            full_efficiency=max(efficiency, full),
            calls=settings.calls or DEFAULT_CALLS,
        )


# Compaction settings of agents, teams and tenants: when their windows are compacted, and how.

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


# Checks of a definition's ``config``: the parts that Weftline uses have a form.

_PARTS: dict[str, type[InheritedSettings]] = {
    "compaction": CompactionSettings,
    "alerts": AlertSettings,
    "proxy": ProxySettings,
}


def check_config(config: dict[str, Any]) -> None:
    """Refuse a definition with settings that are not of their form: they would be ignored otherwise."""
    for name, kind in _PARTS.items():
        if name in config:
            _check(name, config[name], kind)


def _check(name: str, value: object, kind: type[InheritedSettings]) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        field = f"config.{name}" + where.strip("`").removeprefix("$")
        if field.endswith(".strategy"):
            what = f"there is no such strategy; use one of {', '.join(STRATEGIES)}"
        if "unknown field" in what:
            what += f"; use only {', '.join(kind.__struct_fields__)}"
        raise InvalidInput(f"{field}: {what[:300]}", field="config") from error
