"""Alert settings of agents, teams and tenants: when the use of windows becomes an alert, and when it ends."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from weftline.state.agent_context.inherited_settings import InheritedSettings

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
