"""Conditions of agents: thresholds, hysteresis, and the calls that count."""

from __future__ import annotations

import pytest

from weftline.insight.alerts.model import (
    ALL_AGENTS,
    Alert,
    RecentCall,
    Verdict,
    describe,
    efficiency_of,
    judge_conditions,
)
from weftline.kernel.events import TENANT_SUBJECT, AlertCondition, AlertSubject, agent_subject, team_subject
from weftline.state.agent_context.settings import AlertSettings, ResolvedAlerts

pytestmark = [pytest.mark.req("CE-F15"), pytest.mark.req("CE-F46")]
SETTINGS = ResolvedAlerts(calls=5, efficiency=0.2, clear_efficiency=0.25, full_efficiency=0.2)


def calls(count: int, fill: float, useful: float, *, at: int = 10) -> list[RecentCall]:
    sent = round(fill * 1_000)
    return [RecentCall("r1", at, sent, 1_000, 0, round(useful * sent), is_estimate=False)] * count


def verdicts(
    latest: list[RecentCall], settings: ResolvedAlerts = SETTINGS, since: int = 0
) -> dict[AlertCondition, Verdict]:
    found = judge_conditions(latest, settings, {"context.overload": since, "efficiency.low": since})
    return {finding.condition: finding.verdict for finding in found}


@pytest.mark.parametrize(
    ("count", "fill", "useful", "overload", "low"),
    [
        (5, 0.9, 0.1, "holds", "holds"),
        (5, 0.5, 0.1, "ended", "holds"),
        (5, 0.75, 0.1, "between", "holds"),
        (5, 0.9, 0.22, "between", "between"),
        (5, 0.9, 0.3, "ended", "ended"),
        (3, 0.9, 0.1, "holds", "between"),
        (2, 0.9, 0.1, "between", "between"),
        (0, 0.0, 0.0, "between", "between"),
    ],
)
def test_a_condition_holds_by_the_latest_calls(
    count: int, fill: float, useful: float, overload: Verdict, low: Verdict
) -> None:
    assert verdicts(calls(count, fill, useful)) == {"context.overload": overload, "efficiency.low": low}


def test_an_overload_is_over_when_none_of_the_latest_prompts_was_large() -> None:
    small, large = calls(4, 0.3, 0.1), calls(1, 0.9, 0.1)
    assert verdicts([*small, *large])["context.overload"] == "between"
    assert verdicts([*small, *small, *large])["context.overload"] == "ended"


def test_calls_before_an_alert_was_resolved_by_someone_do_not_open_it_again() -> None:
    old, new = calls(5, 0.9, 0.1, at=10), calls(2, 0.9, 0.1, at=20)
    assert verdicts([*new, *old], since=10) == {"context.overload": "between", "efficiency.low": "between"}
    assert set(verdicts([*new, *new, *new, *old], since=10).values()) == {"holds"}


def test_overhead_does_not_count() -> None:
    assert efficiency_of([RecentCall("r1", 1, 1_000, 2_000, 800, 100, is_estimate=True)]) == 0.5
    assert efficiency_of([RecentCall("r1", 1, 800, 2_000, 800, 0, is_estimate=True)]) is None


def test_nothing_is_watched_where_it_is_disabled() -> None:
    assert set(verdicts(calls(5, 0.9, 0.1), SETTINGS._replace(enabled=False)).values()) == {"ended"}


def test_what_resolves_an_alert_follows_what_opens_it() -> None:
    assert ResolvedAlerts.of(AlertSettings()) == ResolvedAlerts()
    assert ResolvedAlerts.of(AlertSettings(window_fill=0.5, efficiency=0.4)) == ResolvedAlerts(
        window_fill=0.5, clear_window_fill=0.4, efficiency=0.4, clear_efficiency=0.5, full_efficiency=0.4
    )
    loose = ResolvedAlerts.of(AlertSettings(window_fill=0.5, clear_window_fill=0.7, clear_efficiency=0.1))
    assert (loose.clear_window_fill, loose.clear_efficiency) == (0.5, 0.1)


def alert(condition: AlertCondition, subject: AlertSubject, about: str = "", **data: float) -> str:
    made = Alert(
        alert_id="a", condition=condition, subject=subject, about=about, data=dict(data), opened_at=1, seen_at=1
    )
    return describe(made)


def test_an_alert_is_described_in_a_sentence() -> None:
    figures = {"efficiency": 0.12, "calls": 20}
    assert alert("efficiency.low", agent_subject("analysis"), efficiency=0.0042, calls=20) == (
        "Agent analysis used 0.4% of what its last 20 prompts contained."
    )
    assert alert("efficiency.low", agent_subject("analysis"), **figures) == (
        "Agent analysis used 12% of what its last 20 prompts contained."
    )
    assert alert("context.overload", agent_subject("Ana"), window_fill=0.91, estimated_calls=3, **figures) == (
        "Agent Ana fills 91% of its window and used 12% of what its last 20 prompts contained, "
        "by estimate for 3 of them."
    )
    assert alert("efficiency.low", TENANT_SUBJECT, ALL_AGENTS, agents=30) == (
        "30 agents use little of what is in their prompts."
    )
    assert alert("budget.near", team_subject("legal"), "day") == "The budget of team legal for a day is nearly spent."
    spent = {"tokens": 1_000, "cost": 2.5, "is_reached": True}
    assert alert("budget.exceeded", TENANT_SUBJECT, "month", **spent) == (
        "The budget of the tenant for a month (1,000 tokens and 2.50 US dollars) is spent."
    )
    full = alert("budget.exceeded", agent_subject("Ana"), "day", tokens=300, cost=None, is_reached=False)
    assert full == "The budget of agent Ana for a day (300 tokens) had no room for a prompt."
    assert alert("quota.near", TENANT_SUBJECT, "domains") == "The limit of domains of the tenant is nearly reached."
    assert "(budget.near)" in alert("budget.near", TENANT_SUBJECT, ALL_AGENTS, agents=30)
