"""The first page: sessions, agents, savings and what needs attention."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import astuple

from weftline.transports.console.pages.governance import days_of, usage_report
from weftline.transports.console.pages.prompts import ListedPrompt, purposes_of
from weftline.transports.console.view import Page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from starlette.responses import Response

    from weftline.transports.console.view import PageView


_LISTED = 8


async def overview(view: PageView) -> Response:
    by, report = await usage_report(view) if view.may("usage.report") else ("", None)
    receipts = await _if_allowed(view, "receipt.list", limit=_LISTED)
    purposes = await purposes_of(view, (each.session_id for each in receipts.receipts)) if receipts else {}
    sections: dict[str, Any] = {
        "sessions": await _if_allowed(view, "session.list", limit=_LISTED),
        "agents": await _if_allowed(view, "agent.list", limit=_LISTED),
        "alerts": await _if_allowed(view, "alerts.list", state="open", limit=_LISTED),
        "approvals": await _if_allowed(view, "approval.list", state="pending", limit=_LISTED),
        "prompts": None
        if receipts is None
        else [ListedPrompt(each, None, purposes.get(each.session_id)) for each in receipts.receipts],
        "usage": report,
        "days": days_of(report.rows, by)[0] if report is not None and by == "day" else [],
        "load": await _if_allowed(view, "performance.read"),
    }
    return view.render("overview.html", **sections)


async def _if_allowed(view: PageView, operation: str, **fields: Any) -> Any:  # noqa: ANN401 - the operation's response
    """Return what an operation answers; None to a caller that may not use it."""
    return await view.call(operation, **fields) if view.may(operation) else None


OVERVIEW = (Page("", overview, "agent.capabilities", "Overview", "o"),)


# How the server does: health, jobs, index lag, webhooks.


class OperationRow(NamedTuple):
    """Calls of one operation, as a row that can be sorted."""

    name: str
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


class HoursCompared(NamedTuple):
    """The last full hour, and the mean of the full hours before it, as the table of hours has them."""

    calls: int
    errors: int
    ms: float | None
    earlier_calls: float
    earlier_errors: float
    earlier_ms: float | None


def compared_hours(history: Sequence[Any], now: datetime) -> HoursCompared | None:
    """Compare the last full hour with those before it; None with fewer than two."""
    full = [each for each in history if each.start + timedelta(hours=1) <= now]
    if len(full) < 2:  # noqa: PLR2004 - one to compare, and one to compare it with
        return None
    *earlier, last = sorted(full, key=lambda each: each.start)
    # Hours without calls have no rows.
    hours = (last.start - earlier[0].start) / timedelta(hours=1)
    calls = sum(each.calls for each in earlier)
    timed = [each for each in earlier if each.avg_response_time is not None and each.calls]
    weighed = sum(each.avg_response_time * each.calls for each in timed)
    return HoursCompared(
        last.calls,
        last.errors,
        last.avg_response_time,
        calls / hours,
        sum(each.errors for each in earlier) / hours,
        weighed / sum(each.calls for each in timed) if timed else None,
    )


async def health(view: PageView) -> Response:
    figures = await view.call("performance.read", history_hours=24)
    reindexing = await view.call("knowledge.show_reindexing") if view.may("knowledge.show_reindexing") else None
    domains = await view.call("knowledge.list_domains") if view.may("knowledge.list_domains") else None
    return view.render(
        "health.html",
        figures=figures,
        compared=compared_hours(figures.history or (), view.now),
        operations=view.arranged(
            [OperationRow(name, *astuple(each)) for name, each in figures.operations.items()],
            *OperationRow._fields,
        ),
        reindexing=reindexing,
        domains=[each for each in domains.domains if each.pending or each.failed] if domains else [],
    )


async def webhooks(view: PageView) -> Response:
    listed = await view.call("webhook.list")
    return view.render("webhooks.html", webhooks=view.arranged(listed.webhooks, "url", "behind", "dead", "created_at"))


async def deliveries(view: PageView) -> Response:
    webhook_id = view.part("webhook_id")
    listed = await view.call(
        "webhook.deliveries", webhook_id=webhook_id, state=view.query("state"), after=view.query("after")
    )
    return view.render("deliveries.html", webhook_id=webhook_id, listed=listed)


OPERATIONS = (
    Page("/webhooks", webhooks, "webhook.list", "Webhooks", "w"),
    Page("/webhooks/{webhook_id}", deliveries, "webhook.deliveries"),
    Page("/health", health, "performance.read", "Health", "h"),
)
