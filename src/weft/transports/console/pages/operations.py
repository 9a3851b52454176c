"""How the server does: health, plan, webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.transports.console.view import Page

if TYPE_CHECKING:
    from starlette.responses import Response

    from weft.transports.console.view import PageView


async def health(view: PageView) -> Response:
    figures = await view.call("performance.read", history_hours=24)
    plan = await view.call("plan.show") if view.may("plan.show") else None
    indexing = await view.call("knowledge.show_reindexing") if view.may("knowledge.show_reindexing") else None
    return view.render("health.html", figures=figures, plan=plan, indexing=indexing)


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
