"""How the server does: health, jobs, index lag, webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import astuple

from weftline.transports.console.view import Page

if TYPE_CHECKING:
    from starlette.responses import Response

    from weftline.transports.console.view import PageView


class OperationRow(NamedTuple):
    """Calls of one operation, as a row that can be sorted."""

    name: str
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


async def health(view: PageView) -> Response:
    figures = await view.call("performance.read", history_hours=24)
    reindexing = await view.call("knowledge.show_reindexing") if view.may("knowledge.show_reindexing") else None
    domains = await view.call("knowledge.list_domains") if view.may("knowledge.list_domains") else None
    return view.render(
        "health.html",
        figures=figures,
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
