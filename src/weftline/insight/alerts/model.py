"""Alerts: their states, figures, limits and errors."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec

from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.errors import Conflict, NotFound
from weftline.kernel.events import AlertCondition, AlertSubject
from weftline.kernel.fields import Name
from weftline.kernel.identity import CLEARANCE, PERMISSION, PRINCIPAL, Permission

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.access.model import Principal
    from weftline.state.agent_context.settings import ResolvedAlerts


# From this many agents with the same condition on, further ones are in one alert of the tenant, the digest.
DIGEST_FROM = 20
# At this many, the digest is resolved, and those that are left have alerts of their own again.
DIGEST_CLEAR = 10
# Figures of an active alert that is raised again are updated this often.
UPDATE_MICROS = 60_000_000
# An active alert about an agent that made no calls for this long is resolved.
STALE_MICROS = 7 * DAY_MICROS
# Resolved alerts are deleted after this.
KEEP_MICROS = 90 * DAY_MICROS
# ``about`` of a digest.
ALL_AGENTS = "*"
# Conditions that are found by looking at the calls of agents.
WATCHED: frozenset[AlertCondition] = frozenset({"context.overload", "efficiency.low"})
_ADMINS = f"{PERMISSION}{Permission.ADMIN}"


class AlertState(StrEnum):
    """State of an alert. Open and acknowledged ones are active."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert. ``data`` has the figures that it is about, no content.

    ``about`` is the quota or budget, if a subject can have several alerts of one condition. ``seen_at`` is when the
    condition was last found to hold. ``digest_id`` is the alert of the tenant that it is part of: it has no events of
    its own. ``resolved_by`` is None if Weftline resolved it.
    """

    alert_id: str
    condition: AlertCondition
    subject: AlertSubject
    about: str = ""
    state: AlertState = AlertState.OPEN
    data: dict[str, Any]
    opened_at: int
    seen_at: int
    acknowledged_at: int | None = None
    acknowledged_by: str | None = None
    resolved_at: int | None = None
    resolved_by: str | None = None
    digest_id: str | None = None

    @property
    def is_active(self) -> bool:
        return self.state is not AlertState.RESOLVED

    @property
    def is_digest(self) -> bool:
        """Return whether it stands for the alerts of many agents."""
        return self.about == ALL_AGENTS


class AlertAudience(NamedTuple):
    """Both ACLs of the events about a subject: readers match both."""

    participants: tuple[str, ...]
    readable_by: tuple[str, ...]


def audience_of_agent(agent: Principal, ancestors: Iterable[Principal]) -> AlertAudience:
    """Return who reads events about an agent: itself, and those above it and admins up to their clearance."""
    itself = f"{PRINCIPAL}{agent.principal_id}"
    above = (f"{PRINCIPAL}{ancestor.principal_id}" for ancestor in ancestors)
    return AlertAudience((itself, *above, _ADMINS), (itself, f"{CLEARANCE}{agent.clearance}"))


AUDIENCE_OF_ADMINS = AlertAudience((_ADMINS,), (_ADMINS,))

AlertId = Annotated[Name, msgspec.Meta(description="Id of the alert.")]


class AlertNotFound(NotFound):
    """No alert with this id exists, or it is not yours to see."""

    code = "ALERT_NOT_FOUND"
    hint = "List the alerts with `alerts.list`."
    related = ("alerts",)


class AlertResolved(Conflict):
    """The alert is resolved already."""

    code = "ALERT_RESOLVED"
    hint = "Nothing is left to do. If the condition holds again, there will be a new alert."
    related = ("alerts",)


# Alerts in one sentence.

_OF_MANY = {
    "context.overload": "fill their windows with what they use little of",
    "efficiency.low": "use little of what is in their prompts",
}
# From this part on, percents are whole.
_WHOLE_PERCENTS = 0.1


def describe(alert: Alert) -> str:
    """Return what the alert is about."""
    whom = subject_text(alert.subject)
    if alert.is_digest:
        return f"{alert.data.get('agents', 0)} agents {_OF_MANY.get(alert.condition, _together(alert))}."
    if alert.condition == "index.damaged":
        where = "in the database" if alert.data.get("in_database") else "on the disk"
        return (
            f"A search index of {whom} was damaged {where}. It is rebuilt from the stored texts, of which none is lost."
        )
    if alert.condition == "quality.dropped":
        score, before = _percent(alert.data.get("score")), _percent(alert.data.get("before"))
        return f"{score} of the questions of {alert.about} find their evidence, {before} before."
    if alert.condition == "quota.near":
        return f"The limit of {alert.about or 'the plan'} of {whom} is nearly reached."
    if alert.condition in {"budget.near", "budget.exceeded"}:
        return f"The budget of {whom} for a {alert.about}{_limits(alert)} {_state(alert)}."
    return f"{whom[0].upper()}{whom[1:]} {_usage(alert)}."


def subject_text(subject: AlertSubject) -> str:
    return "the tenant" if subject.kind == "tenant" else f"{subject.kind} {subject.name}"


def _state(alert: Alert) -> str:
    """Return the state of a budget: one that refuses is exceeded by the first prompt that does not fit."""
    if alert.condition == "budget.near":
        return "is nearly spent"
    return "is spent" if alert.data.get("is_reached", True) else "had no room for a prompt"


def _limits(alert: Alert) -> str:
    """Return the limits of a budget in words."""
    data = alert.data
    parts = [f"{data['tokens']:,} tokens"] if data.get("tokens") else []
    parts += [f"{data['cost']:.2f} US dollars"] if data.get("cost") else []
    return f" ({' and '.join(parts)})" if parts else ""


def _together(alert: Alert) -> str:
    return f"are nearly out of what they are allowed ({alert.condition})"


def _usage(alert: Alert) -> str:
    data = alert.data
    used = f"used {_percent(data.get('efficiency'))} of what its last {data.get('calls', 0)} prompts contained"
    estimated = data.get("estimated_calls", 0)
    used += f", by estimate for {estimated} of them" if estimated else ""
    if alert.condition == "efficiency.low":
        return used
    return f"fills {_percent(data.get('window_fill'))} of its window and {used}"


def _percent(part: float | None) -> str:
    if part is None:
        return "an unknown part"
    return f"{part:.0%}" if part >= _WHOLE_PERCENTS else f"{part:.1%}"


# Conditions of agents: whether their latest calls overload the window or use little of their prompts.

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
