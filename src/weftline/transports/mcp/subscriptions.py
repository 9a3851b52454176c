"""Subscriptions of both MCP eras: to resources, and to the list of tools.

Each URI follows the event feed with the subscriber's credential, so it is authorised, filtered and ended like any read
of events. Changes are coalesced: a slow client gets one notification for several changes.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from weftline.kernel.clock import to_micros
from weftline.kernel.errors import RateLimited, Unavailable, WeftlineError
from weftline.transports.mcp.caller import answering, caller_of, connection_of
from weftline.transports.resources import check_may_watch, follow_resource, parse_uri

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from mcp.server.connection import Connection
    from mcp.server.session import ServerSession

    from weftline.app.app import App
    from weftline.app.event_feed import Subscriber
    from weftline.app.tools.toolbox import ToolView
    from weftline.kernel.identity import Actor
    from weftline.transports.mcp.caller import Context, McpCaller
    from weftline.transports.resources import Resource


# Tells MCP connections that their list of tools has changed: after a change of rights, of a profile or of a step.
#
# A list depends on the caller's access rules, and every change of them advances the epoch of its tenant. So one read
# for each tenant with such connections finds all changes, and lists are compared only then. Where servers behind the
# gateway have many tools, it depends on what was last chosen for the caller's task, too: another read finds it.

_POLL_SECONDS = 1.0
# Clocks of processes differ, and what was chosen earlier may be committed later.
_OVERLAP_MICROS = 10_000_000


class _KnownList(NamedTuple):
    """A list of tools that a connection knows, and the epoch of the access rules that it follows from."""

    caller: McpCaller
    tenant: str
    agent: str
    epoch: int | None
    views: list[ToolView]


class ToolListWatch:
    """Watches the lists of tools of all connections of a server."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._known: dict[Watcher, _KnownList] = {}
        # When tools were last chosen for whom, of each tenant.
        self._chosen: dict[str, dict[str, int]] = {}
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
        return _KnownList(caller, actor.tenant, actor.principal_id, actor.epoch, views)

    async def _poll(self) -> None:
        while self._known:
            await asyncio.sleep(_POLL_SECONDS)
            for tenant in {known.tenant for known in self._known.values()}:
                try:
                    await self._compare(tenant, await self._app.tenants.epoch(tenant), await self._newly_chosen(tenant))
                except Unavailable:
                    continue

    async def _newly_chosen(self, tenant: str) -> Collection[str]:
        """Return the agents of a tenant for whose task other tools may have been chosen since the last look."""
        since = to_micros(self._app.clock.now()) - _OVERLAP_MICROS
        chosen = await self._app.gateway.chosen_since(tenant, since)
        before, self._chosen[tenant] = self._chosen.get(tenant, {}), chosen
        return {agent for agent, at in chosen.items() if before.get(agent) != at}

    async def _compare(self, tenant: str, epoch: int | None, chosen: Collection[str]) -> None:
        for watcher, known in list(self._known.items()):
            if known.tenant != tenant or (known.epoch == epoch and known.agent not in chosen):
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


_MAX_URIS = 256
_RETRY_SECONDS = 1.0
_WATCHER = "weftline_watcher"
# In place of a URI: the list of tools.
_TOOLS = ""


class Watcher:
    """Subscribed URIs of one client, and those with changes not yet notified."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._changed: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._beginning = asyncio.Lock()
        self._closed = False
        self.watches_tools = False

    def tools_changed(self) -> None:
        """Notify that the list of tools has changed."""
        self._changed[_TOOLS] = None
        self._wake.set()

    async def watch(self, resource: Resource, caller: McpCaller) -> None:
        """Subscribe; changes after this returns are notified."""
        # One at a time, so that concurrent calls cannot subscribe twice or exceed the limit.
        async with self._beginning:
            if resource.uri in self._followers:
                return
            if len(self._followers) >= _MAX_URIS:
                raise MCPError(types.INVALID_PARAMS, f"At most {_MAX_URIS} resources can be subscribed to at once")
            await check_may_watch(self._app, resource, caller.call_context)
            present = await self._app.position(caller.call_context)
            with ExitStack() as opened:
                subscriber = opened.enter_context(await self._app.subscription(caller.call_context))
                if not self._closed:
                    follower = asyncio.create_task(self._follow(resource, caller, present, subscriber))
                    subscription = opened.pop_all()
                    follower.add_done_callback(lambda _: subscription.close())
                    self._followers[resource.uri] = follower

    def unwatch(self, uri: str) -> None:
        follower = self._followers.pop(uri, None)
        if follower is not None:
            follower.cancel()
        self._changed.pop(uri, None)

    def close(self) -> None:
        self._closed = True
        for uri in list(self._followers):
            self.unwatch(uri)
        self._wake.set()

    async def changes(self, *, until_empty: bool = False) -> AsyncIterator[str]:
        """Yield each changed URI once, and an empty one for the list of tools.

        With ``until_empty``, stop when nothing is subscribed.
        """
        while True:
            while self._changed:
                uri = next(iter(self._changed))
                del self._changed[uri]
                yield uri
            if self._closed or (until_empty and not self._followers and not self.watches_tools):
                return
            self._wake.clear()
            await self._wake.wait()

    async def _follow(self, resource: Resource, caller: McpCaller, after: int, subscriber: Subscriber | None) -> None:
        while True:
            try:
                async for change in follow_resource(self._app, resource, caller.call_context, after, subscriber):
                    after = change.reached
                    if change.happened:
                        self._changed[resource.uri] = None
                        self._wake.set()
            except Unavailable:
                await asyncio.sleep(_RETRY_SECONDS)
                if subscriber is not None and subscriber.displaced:
                    # It goes on as soon as there is room for another subscription.
                    subscriber = None
            except WeftlineError:
                break
        # The caller may no longer read this: its key was revoked, or the session was deleted.
        self._followers.pop(resource.uri, None)
        self._wake.set()


class Subscriptions:
    """Subscription handlers of both eras."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tool_lists = ToolListWatch(app)
        self._watchers: set[Watcher] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    def end_all(self) -> None:
        """End all subscriptions; streams of the stateless era close with their final result."""
        for watcher in list(self._watchers):
            watcher.close()

    async def watch_tools(self, session: ServerSession, caller: McpCaller, actor: Actor) -> None:
        """Notify a connection with a session of changes of the list of tools that it is given."""
        connection = connection_of(session)
        if connection.has_standalone_channel:
            watcher = connection.state.get(_WATCHER) or self._attach(connection, session)
            await self._tool_lists.add(watcher, caller, actor)

    @answering
    async def subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """resources/subscribe (2025-11-25): notifications use the connection's stream."""
        connection = connection_of(context.session)
        if not connection.has_standalone_channel:
            raise MCPError(types.INVALID_REQUEST, "Subscribing needs a connection with a session")
        watcher = connection.state.get(_WATCHER) or self._attach(connection, context.session)
        caller = caller_of(context)
        await watcher.watch(parse_uri(str(params.uri)), caller)
        return types.EmptyResult()

    @answering
    async def unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        watcher = connection_of(context.session).state.get(_WATCHER)
        if watcher is not None:
            watcher.unwatch(str(params.uri))
        return types.EmptyResult()

    @answering
    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """subscriptions/listen (2026-07-28): the response is the stream. URIs the caller may not read are dropped."""
        watcher = Watcher(self._app)
        self._watchers.add(watcher)
        try:
            honoured = await self._watch_all(watcher, params.notifications.resource_subscriptions or [], context)
            if params.notifications.tools_list_changed:
                caller = caller_of(context)
                await self._tool_lists.add(watcher, caller, await self._app.identify(caller.call_context))
            meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}
            acknowledged = types.SubscriptionsAcknowledgedNotificationParams(
                notifications=types.SubscriptionFilter(
                    resource_subscriptions=honoured or None, tools_list_changed=watcher.watches_tools or None
                ),
                _meta=meta,
            )
            await context.session.send_notification(
                types.SubscriptionsAcknowledgedNotification(params=acknowledged), related_request_id=context.request_id
            )
            async for uri in watcher.changes(until_empty=bool(honoured) or watcher.watches_tools):
                await context.session.send_notification(_notification(uri, meta), related_request_id=context.request_id)
        finally:
            self._tool_lists.remove(watcher)
            watcher.close()
            self._watchers.discard(watcher)
        return types.SubscriptionsListenResult(_meta=meta)

    async def _watch_all(self, watcher: Watcher, uris: list[str], context: Context) -> list[str]:
        caller = caller_of(context)
        honoured: list[str] = []
        refusal: WeftlineError | None = None
        if len(uris) > _MAX_URIS:
            raise MCPError(types.INVALID_PARAMS, f"At most {_MAX_URIS} resources can be subscribed to at once")
        for uri in uris:
            try:
                await watcher.watch(parse_uri(uri), caller)
                honoured.append(uri)
            except WeftlineError as error:
                refusal = error
                if isinstance(error, RateLimited):
                    break
            # A read may be done without waiting for anything.
            await asyncio.sleep(0)
        if refusal is not None and not honoured:
            raise refusal
        return honoured

    def _attach(self, connection: Connection, session: ServerSession) -> Watcher:
        """Create the watcher of a connection and its notification task; both end with the connection."""
        watcher = Watcher(self._app)
        connection.state[_WATCHER] = watcher
        self._watchers.add(watcher)
        pump = asyncio.create_task(_tell(session, watcher))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)

        def detach() -> None:
            self._tool_lists.remove(watcher)
            watcher.close()
            pump.cancel()
            self._watchers.discard(watcher)

        connection.exit_stack.callback(detach)
        return watcher


async def _tell(session: ServerSession, watcher: Watcher) -> None:
    # A client that does not read its stream blocks only this task.
    async for uri in watcher.changes():
        await (session.send_resource_updated(uri) if uri else session.send_tool_list_changed())


def _notification(
    uri: str, meta: dict[str, Any]
) -> types.ToolListChangedNotification | types.ResourceUpdatedNotification:
    if not uri:
        return types.ToolListChangedNotification(params=types.NotificationParams(_meta=meta))
    return types.ResourceUpdatedNotification(params=types.ResourceUpdatedNotificationParams(uri=uri, _meta=meta))
