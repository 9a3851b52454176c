"""Alerts in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weftline.insight.alerts.model import Alert
    from weftline.kernel.alerts import AlertSubject

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
