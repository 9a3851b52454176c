"""The table of plans: what each allows, and how a refusal reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from weftline.access.plans import ALLOWANCES, PLANS, Allowance, Insight, parse_limits
from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.errors import InvalidInput, QuotaExceeded

pytestmark = pytest.mark.req("CE-T", part="all limits of what exists")

GIBIBYTE = 2**30
NOW = 20_000 * DAY_MICROS
FREE, PRO, ENTERPRISE = (ALLOWANCES[plan] for plan in PLANS)


def test_the_table_is_that_of_the_specification() -> None:
    rows = [(each.results, each.tuning, each.custom_models) for each in (FREE, PRO, ENTERPRISE)]
    assert rows == [(5, False, False), (20, True, False), (None, True, True)]
    assert [each.versions for each in (FREE, PRO, ENTERPRISE)] == [10, 100, None]
    assert [each.snapshots for each in (FREE, PRO, ENTERPRISE)] == [3, 50, None]
    assert [each.rollback for each in (FREE, PRO, ENTERPRISE)] == [False, True, True]
    assert [each.domains for each in (FREE, PRO, ENTERPRISE)] == [1, 10, None]
    assert [each.bytes for each in (FREE, PRO, ENTERPRISE)] == [GIBIBYTE, 50 * GIBIBYTE, None]
    assert all(allowance.plan == plan for plan, allowance in ALLOWANCES.items())


def session(allowance: Allowance, **limits: int) -> None:
    allowance.check_session(**{"keys": None, "total_tokens": 1, "value_tokens": 1, "versions": 1, **limits})


def days_back(allowance: Allowance, group: str, days: int) -> int:
    return allowance.report_since(group, NOW - days * DAY_MICROS, NOW)


@pytest.mark.parametrize("name", ["keys", "total_tokens", "value_tokens", "versions"])
def test_no_plan_allows_sessions_without_bounds(name: str) -> None:
    for allowance in (FREE, PRO, ENTERPRISE):
        with pytest.raises(QuotaExceeded):
            session(allowance, **{name: 1_000_000_000})


CHECKS: list[tuple[Callable[[Allowance], object], dict[str, object]]] = [
    (lambda free: free.check_domains(2), {"limit_domains": 1, "used_domains": 1}),
    (lambda free: free.check_bytes(GIBIBYTE + 1), {"limit_bytes": GIBIBYTE}),
    (lambda free: free.check_bytes(GIBIBYTE + 1, used=5), {"limit_bytes": GIBIBYTE, "used_bytes": 5}),
    (
        lambda free: free.check_snapshots(4, "planner"),
        {"limit_snapshots": 3, "used_snapshots": 3, "agent_id": "planner"},
    ),
    (lambda free: free.check_versions(11), {"limit_versions": 10, "requested_versions": 11}),
    (lambda free: free.check_versions(None), {"limit_versions": 10, "requested_versions": 0}),
    (lambda free: session(free, keys=201), {"limit_max_keys": 200, "requested_max_keys": 201}),
    (
        lambda free: session(free, total_tokens=50_001),
        {"limit_max_total_tokens": 50_000, "requested_max_total_tokens": 50_001},
    ),
    (
        lambda free: session(free, value_tokens=10_001),
        {"limit_max_value_tokens": 10_000, "requested_max_value_tokens": 10_001},
    ),
    (lambda free: free.check_memory_entries(1_001, 900), {"limit_memory_entries": 1_000, "used_memory_entries": 900}),
    (lambda free: free.check_window_events(2_001, 1_990), {"limit_window_events": 2_000, "used_window_events": 1_990}),
    (lambda free: free.check_rollback(), {"limit_rollback": False}),
    (lambda free: free.check_tuning(), {"limit_tuning": False}),
    (lambda free: free.check_custom_models(), {"limit_custom_models": False}),
    (lambda free: free.check_insight("alerts"), {"limit_insight": []}),
    (lambda free: days_back(free, "model", 1), {"limit_insight": []}),
    (lambda free: days_back(free, "agent", 8), {"limit_report_days": 7, "requested_report_days": 8}),
]


@pytest.mark.parametrize(("check", "limit"), CHECKS)
def test_a_refusal_names_the_plan_the_limit_and_what_to_do(
    check: Callable[[Allowance], object], limit: dict[str, object]
) -> None:
    with pytest.raises(QuotaExceeded) as caught:
        check(FREE)
    assert "'free'" in caught.value.message
    assert caught.value.context == {"plan": "free", **limit}
    assert "ask the operator for a larger plan" in caught.value.hint_template
    check(ENTERPRISE)


def test_what_is_within_the_plan_passes() -> None:
    FREE.check_domains(1)
    FREE.check_bytes(GIBIBYTE)
    FREE.check_snapshots(3, "planner")
    FREE.check_versions(10)
    PRO.check_domains(10)
    PRO.check_bytes(50 * GIBIBYTE)
    PRO.check_snapshots(50, "planner")
    PRO.check_versions(100)
    PRO.check_rollback()
    PRO.check_tuning()
    with pytest.raises(QuotaExceeded):
        PRO.check_custom_models()
    with pytest.raises(QuotaExceeded):
        PRO.check_domains(11)


@pytest.mark.parametrize(
    ("insight", "plans"),
    [("full_reports", ["pro", "enterprise"]), ("alerts", ["enterprise"]), ("recommendations", ["enterprise"])],
)
def test_each_plan_shows_how_context_is_used_as_the_specification_says(insight: Insight, plans: list[str]) -> None:
    assert [plan for plan in PLANS if insight in ALLOWANCES[plan].insight] == plans
    for plan in PLANS:
        if plan in plans:
            ALLOWANCES[plan].check_insight(insight)
        else:
            with pytest.raises(QuotaExceeded):
                ALLOWANCES[plan].check_insight(insight)


def test_every_plan_has_the_basic_report() -> None:
    for allowance in (FREE, PRO, ENTERPRISE):
        assert days_back(allowance, "agent", 7) == NOW - 7 * DAY_MICROS
        assert days_back(allowance, "tenant", 0) == NOW
    days_back(PRO, "model", 365)
    assert FREE.report_since("agent", None, NOW) == NOW - 7 * DAY_MICROS
    assert ENTERPRISE.report_since("session", None, NOW) == 0


@pytest.mark.parametrize(
    "limit",
    [
        "guardrail_levels=99",
        "guardrail_levels=2,x",
        "insight=alerts,everything",
        "results=0",
        "versions=0",
        "session_keys=0",
        "session_keys=unlimited",
        "report_days=0",
        "report_days=99999999999",
        "daily_usage_days=36501",
        "bytes=99999999999TiB",
        "domains=-1",
        "domains=NaN",
        "tuning=2",
        "tuning=unlimited",
    ],
)
def test_a_limit_that_no_plan_can_have_is_refused(limit: str) -> None:
    with pytest.raises(InvalidInput, match=limit.partition("=")[0]):
        parse_limits([limit])


def test_limits_of_a_tenant_are_stored_in_the_order_of_the_plan() -> None:
    given = parse_limits(["guardrail_levels=4,2,4", "insight=alerts", "bytes=1GiB", "minute_usage_days=0", "tuning=no"])
    assert given == {
        "guardrail_levels": (2, 4),
        "insight": ("alerts",),
        "bytes": GIBIBYTE,
        "minute_usage_days": 0,
        "tuning": False,
    }
