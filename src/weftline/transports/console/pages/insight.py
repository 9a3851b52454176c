"""What calls cost and how well they were used: usage, alerts, recommendations, budgets."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.errors import QuotaExceeded
from weftline.transports.console.view import Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from weftline.transports.console.view import PageView


# Times without calls that a table has rows for.
_GAPS = 400


class NoCalls(NamedTuple):
    """A day or hour without calls, between others."""

    group: str
    calls: None = None
    naive_baseline_tokens: int = 0
    engine_assembled_tokens: int = 0


def days_of(rows: Sequence[Any], by: str) -> tuple[list[Any], bool]:
    """Return rows by day or hour with those between them that have no calls, and whether they are by time."""
    step = {"day": timedelta(days=1), "hour": timedelta(hours=1)}.get(by)
    if step is None:
        return list(rows), False
    filled: list[Any] = []
    for row in sorted(rows, key=lambda each: str(each.group)):
        at = datetime.fromisoformat(row.group)
        while filled and len(filled) < _GAPS and (day := datetime.fromisoformat(filled[-1].group) + step) < at:
            filled.append(NoCalls(day.isoformat()))
        filled.append(row)
    return filled, True


async def usage_report(view: PageView) -> tuple[str, Any]:
    """Return what a report is by, and the report: by day if nothing is chosen, by agent in plans without that."""
    filters = {
        "since": view.query("since"),
        "until": view.query("until"),
        "agent_id": view.query("agent"),
        "model": view.query("model"),
    }
    by = view.query("by")
    try:
        return by or "day", await view.call("usage.report", by=by or "day", **filters)
    except QuotaExceeded:
        if by is not None:
            raise
    return "agent", await view.call("usage.report", by="agent", **filters)


async def usage(view: PageView) -> Response:
    by, report = await usage_report(view)
    filled, is_time = days_of(report.rows, by)
    rows = view.arranged(
        filled, "group", "calls", "engine_assembled_tokens", "naive_baseline_tokens", "savings_ratio", "cost"
    )
    budgets = await view.call("budget.list") if view.may("budget.list") else None
    return view.render("usage.html", report=report, rows=rows, by=by, is_time=is_time, budgets=budgets)


async def alerts(view: PageView) -> Response:
    listed = await view.call("alerts.list", state=view.query("state"), cursor=view.query("cursor"), limit=50)
    return view.render(
        "alerts.html",
        alerts=view.arranged(listed.alerts, "condition", "subject", "state", "opened_at", "message"),
        next_cursor=listed.next_cursor,
    )


async def advice(view: PageView) -> Response:
    listed = await view.call("advise.list", agent_id=view.query("agent"))
    return view.render(
        "advice.html",
        recommendations=view.arranged(
            listed.recommendations, "title", "kind", "agent_id", "saved_tokens", "saved_cost"
        ),
        analysed=listed.analysed,
    )


async def recommendation(view: PageView) -> Response:
    """Show a recommendation; ``?try=1`` plans the last calls again under its settings."""
    recommendation_id = view.part("recommendation_id")
    shown = await view.call("advise.show", recommendation_id=recommendation_id)
    tried = await view.call("advise.try", recommendation_id=recommendation_id) if view.query("try") else None
    return view.render("recommendation.html", shown=shown, tried=tried)


INSIGHT = (
    Page("/usage", usage, "usage.report", "Usage", "c"),
    Page("/alerts", alerts, "alerts.list", "Alerts", "l"),
    Page("/advice", advice, "advise.list", "Advice", "d"),
    Page("/advice/{recommendation_id}", recommendation, "advise.show"),
)
