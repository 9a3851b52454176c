"""Alerts in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.capabilities.alerts.model import Alert
    from weft.kernel.alerts import AlertSubject

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
    if alert.condition == "quota.near":
        return f"The limit of {alert.about or 'the plan'} of {whom} is nearly reached."
    if alert.condition in {"budget.near", "budget.exceeded"}:
        return f"The budget of {whom} for a {alert.about} {_state(alert)}{_spent(alert)}."
    return f"{whom[0].upper()}{whom[1:]} {_usage(alert)}."


def subject_text(subject: AlertSubject) -> str:
    return "the tenant" if subject.kind == "tenant" else f"{subject.kind} {subject.name}"


def _state(alert: Alert) -> str:
    """Return the state of a budget: one that refuses is exceeded by the first prompt that does not fit."""
    data = alert.data
    if alert.condition == "budget.near":
        return "is nearly spent"
    used = [data.get(f"used_{name}", 0) / data[name] for name in ("tokens", "cost") if data.get(name)]
    return "is spent" if max(used, default=1) >= 1 else "had no room for a prompt"


def _spent(alert: Alert) -> str:
    """Return what is spent of which limits, in words."""
    data = alert.data
    parts = []
    if data.get("tokens"):
        parts.append(f"{data.get('used_tokens', 0):,} of {data['tokens']:,} tokens")
    if data.get("cost"):
        parts.append(f"{data.get('used_cost', 0):.2f} of {data['cost']:.2f} US dollars")
    return f": {' and '.join(parts)}" if parts else ""


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
