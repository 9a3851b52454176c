"""Conditions of agents: whether their latest calls overload the window or use little of their prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.alerts import AlertCondition
    from weftline.state.agent_context.alert_settings import ResolvedAlerts

# An overload is not found from fewer calls.
MIN_OVERLOAD_CALLS = 3
_DIGITS = 4

# ``between``: neither does the condition hold, nor is it over.
Verdict = Literal["holds", "between", "ended"]


class RecentCall(NamedTuple):
    """Tokens of a call: of the prompt, of what the window can hold, of the overhead, and those that were useful.

    ``is_estimate``: no answer was reported, so the useful tokens are an estimate.
    """

    receipt_id: str
    at: int
    sent: int
    capacity: int
    overhead: int
    useful: int
    is_estimate: bool

    @property
    def fill(self) -> float:
        return self.sent / self.capacity if self.capacity else 1.0


class ConditionResult(NamedTuple):
    """Whether a condition of an agent holds, with the figures."""

    condition: AlertCondition
    verdict: Verdict
    data: dict[str, Any]


def judge_conditions(
    calls: Sequence[RecentCall], settings: ResolvedAlerts, since: Mapping[AlertCondition, int]
) -> list[ConditionResult]:
    """Judge the latest calls of an agent, newest first; those before ``since`` do not open an alert."""
    return [
        _overload(calls, settings, since.get("context.overload", 0)),
        _low_efficiency(calls, settings, since.get("efficiency.low", 0)),
    ]


def _overload(calls: Sequence[RecentCall], settings: ResolvedAlerts, since: int) -> ConditionResult:
    """Judge the newest prompt by its size; the overload is over when none of the latest ones was large."""
    latest = calls[: settings.calls]
    used = efficiency_of(latest)
    data = _figures(latest, settings.full_efficiency, window_fill=_round(latest[0].fill) if latest else None)
    counted = sum(call.at > since for call in latest)
    if not settings.enabled or used is None:
        return ConditionResult("context.overload", "between" if settings.enabled else "ended", data)
    is_full = latest[0].fill >= settings.window_fill and counted >= min(MIN_OVERLOAD_CALLS, settings.calls)
    if is_full and used < settings.full_efficiency:
        return ConditionResult("context.overload", "holds", data)
    is_over = max(call.fill for call in latest) < settings.clear_window_fill or used >= settings.clear_full_efficiency
    return ConditionResult("context.overload", "ended" if is_over else "between", data)


def _low_efficiency(calls: Sequence[RecentCall], settings: ResolvedAlerts, since: int) -> ConditionResult:
    latest = calls[: settings.calls]
    used = efficiency_of(latest)
    data = _figures(latest, settings.efficiency)
    counted = sum(call.at > since for call in latest)
    if not settings.enabled or used is None:
        return ConditionResult("efficiency.low", "between" if settings.enabled else "ended", data)
    if used < settings.efficiency and counted >= settings.calls:
        return ConditionResult("efficiency.low", "holds", data)
    return ConditionResult("efficiency.low", "ended" if used >= settings.clear_efficiency else "between", data)


def efficiency_of(calls: Sequence[RecentCall]) -> float | None:
    """Return useful over sent tokens of calls, both without the overhead; None if they sent nothing else."""
    sent = sum(max(0, call.sent - call.overhead) for call in calls)
    return min(1.0, sum(call.useful for call in calls) / sent) if sent else None


def _figures(calls: Sequence[RecentCall], threshold: float, **more: float | None) -> dict[str, Any]:
    return {
        **more,
        "efficiency": _round(efficiency_of(calls)),
        "threshold": threshold,
        "calls": len(calls),
        "estimated_calls": sum(call.is_estimate for call in calls),
        **({"receipt_id": calls[0].receipt_id} if calls else {}),
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
