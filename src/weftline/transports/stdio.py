"""MCP over stdio on the data folder; the process that can open it chooses the agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcp.server.stdio import stdio_server

from weftline.app.app import App
from weftline.app.authentication import InStep, Local
from weftline.app.dispatch import CallContext
from weftline.kernel.correlation import NO_CORRELATION
from weftline.transports.logs import configure_logging
from weftline.transports.mcp.caller import McpCaller
from weftline.transports.mcp.server import build_server
from weftline.transports.mcp.subscriptions import Subscriptions

if TYPE_CHECKING:
    from weftline.kernel.correlation import Correlation
    from weftline.settings import Settings


def run(
    settings: Settings,
    *,
    tenant: str,
    principal: str,
    session: str | None,
    tools: str | None = None,
    step: str | None = None,
    correlation: Correlation = NO_CORRELATION,
) -> None:
    """Serve one MCP client on standard input and output, with a tool profile or in a step of a task.

    Its calls carry the correlation ids.
    """
    configure_logging(settings.lowest_logged_level())
    local = Local(tenant, principal)
    credential = local if step is None else InStep(local, step)
    context = CallContext(credential, correlation=correlation, session_id=session)
    asyncio.run(_serve(settings, McpCaller(context, tools)))


async def _serve(settings: Settings, caller: McpCaller) -> None:
    app = App(settings)
    await app.open()
    try:
        await app.tenants.ensure_default()
        await app.identify(caller.call_context)
        subscriptions = Subscriptions(app)
        server = build_server(app, subscriptions, local=caller)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
        subscriptions.end_all()
    finally:
        await app.close()
