"""The first page: sessions, agents, savings and what needs attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.transports.console.pages.insight import days_of, usage_report
from weftline.transports.console.pages.prompts import ListedPrompt, purposes_of
from weftline.transports.console.view import Page

if TYPE_CHECKING:
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
