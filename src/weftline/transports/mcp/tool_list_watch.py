"""Tells MCP connections that their list of tools has changed: after a change of rights, of a profile or of a step.

A list depends on the caller's access rules only, and every change of them advances the epoch of its tenant. So one read
for each tenant with such connections finds all changes, and lists are compared only then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.errors import Unavailable, WeftlineError

if TYPE_CHECKING:
    from weftline.app.app import App
    from weftline.app.tools.toolbox import ToolView
    from weftline.kernel.identity import Actor
    from weftline.transports.mcp.caller import McpCaller
    from weftline.transports.mcp.subscriptions import Watcher

_POLL_SECONDS = 1.0


class _KnownList(NamedTuple):
    """A list of tools that a connection knows, and the epoch of the access rules that it follows from."""

    caller: McpCaller
    tenant: str
    epoch: int | None
    views: list[ToolView]


class ToolListWatch:
    """Watches the lists of tools of all connections of a server."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._known: dict[Watcher, _KnownList] = {}
        self._polling: asyncio.Task[None] | None = None

    async def add(self, watcher: Watcher, caller: McpCaller, actor: Actor) -> None:
        """Tell a watcher of changes of the list that its caller has now."""
        self._known[watcher] = await self._listed(caller, actor)
        watcher.watches_tools = True
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(), name="weftline-tool-lists")

    def remove(self, watcher: Watcher) -> None:
        self._known.pop(watcher, None)

    async def _listed(self, caller: McpCaller, actor: Actor) -> _KnownList:
        views = await self._app.listed_tools(actor, caller.tools, in_session=caller.session_id is not None)
        return _KnownList(caller, actor.tenant, actor.epoch, views)

    async def _poll(self) -> None:
        while self._known:
            await asyncio.sleep(_POLL_SECONDS)
            for tenant in {known.tenant for known in self._known.values()}:
                try:
                    await self._compare(tenant, await self._app.tenants.epoch(tenant))
                except Unavailable:
                    continue

    async def _compare(self, tenant: str, epoch: int | None) -> None:
        for watcher, known in list(self._known.items()):
            if known.tenant != tenant or known.epoch == epoch:
                continue
            try:
                listed = await self._listed(known.caller, await self._app.identify(known.caller.call_context))
            except Unavailable:
                continue
            except WeftlineError:
                # Its key was revoked, or its step was removed: the next call says so.
                self.remove(watcher)
                watcher.watches_tools = False
                watcher.tools_changed()
                continue
            if watcher in self._known:
                self._known[watcher] = listed
                if listed.views != known.views:
                    watcher.tools_changed()
