"""MCP over streamable HTTP: at /mcp, and at /mcp/session/{session_id} for agents that work in one session.

Below both, /tools/{names} or just the name of a tool profile, such as /mcp/full, chooses which tools are listed, and
/step/{name} enters a step of a task: its tools alone are listed and may be called.
Without a credential only authenticate_agent is.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import structs
from starlette.routing import Route

from weftline.access.steps import parse_tool_profile
from weftline.app.authentication import InStep
from weftline.app.dispatch import CallContext
from weftline.kernel.client_gone import ClientGone
from weftline.kernel.correlation import NO_CORRELATION
from weftline.kernel.errors import Unavailable, WeftlineError
from weftline.kernel.fields import is_name
from weftline.prompts.gateway.model import SEPARATOR
from weftline.sessions.model import SessionNotFound
from weftline.transports.http.http_io import context_of, note_caller, refuse
from weftline.transports.mcp.caller import McpCaller, WeftlineUser
from weftline.transports.mcp.elicitation import StreamsForQuestions
from weftline.transports.mcp.fast_path import FastPath, ReadAhead, check_message
from weftline.transports.mcp.login import LoginEndpoint
from weftline.transports.mcp.server import build_server
from weftline.transports.mcp.subscriptions import Subscriptions
from weftline.transports.references import tool_reference

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container, Iterator

    from mcp.server.streamable_http import EventStore
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from weftline.app.app import App
    from weftline.kernel.identity import Actor
    from weftline.transports.mcp.server import WeftlineServer

    # Adds handlers to a server, and returns the store for resuming interrupted streams.
    Profile = Callable[[WeftlineServer], EventStore]

MCP_PATH = "/mcp"
_IDLE_SECONDS = 1_800
_MAX_CONNECTIONS = 20_000
_RETRY_MILLISECONDS = 500
MAX_PER_PRINCIPAL = 2_000
_MAX_PER_TENANT = _MAX_CONNECTIONS // 2
_MAX_USERS = 20_000
_SESSION_HEADER = b"mcp-session-id"
_PROGRESS = b'"progressToken"'


class TooManyConnections(Unavailable):
    """Too many MCP connections are open."""

    code = "TOO_MANY_CONNECTIONS"
    hint = "Close unused connections with DELETE on the MCP endpoint; idle ones are closed after half an hour."
    http_status = 429


class OpenConnections:
    """Limits the open connections of each principal and tenant; ``living`` holds those that are still open.

    An agent with all agents below it has at most half of its tenant's.
    """

    def __init__(
        self, living: Container[str], limit: int = MAX_PER_PRINCIPAL, tenant_limit: int = _MAX_PER_TENANT
    ) -> None:
        self._living = living
        self._limit = limit
        self._tenant_limit = tenant_limit
        self._tree_limit = max(1, tenant_limit // 2)
        self._opened: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)

    def watch(self, scope: Scope, actor: Actor, send: Send) -> Send:
        """Return a ``send`` that records the connection a response opens; raise if the limit is reached."""
        if any(name == _SESSION_HEADER for name, _ in scope["headers"]):
            return send
        groups = [
            self._with_room((actor.tenant, actor.principal_id), self._limit, "You have"),
            *(
                self._with_room((actor.tenant, agent, "tree"), self._tree_limit, "You and the agents around you have")
                for agent in actor.trees
            ),
            self._with_room((actor.tenant,), self._tenant_limit, "Your tenant has"),
        ]

        async def recording(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened = {value.decode() for name, value in message["headers"] if name == _SESSION_HEADER}
                for group in groups:
                    group.update(opened)
            await send(message)

        return recording

    def _with_room(self, whose: tuple[str, ...], limit: int, who: str) -> set[str]:
        """Return the connections of a principal, tree or tenant; raise if there are too many."""
        opened = self._opened[whose]
        if len(opened) >= limit:
            opened.intersection_update({session for session in opened if session in self._living})
        if len(opened) >= limit:
            raise TooManyConnections(f"{who} {len(opened)} MCP connections open.", limit=limit)
        return opened


class McpEndpoint:
    """Authenticates every message; plain tool calls go to the fast path, all others to the SDK."""

    def __init__(self, app: App, profile: Profile | None = None, *, fast_path: bool = True) -> None:
        self._app = app
        self._subscriptions = Subscriptions(app)
        # Least recently used first.
        self._users: OrderedDict[McpCaller, WeftlineUser] = OrderedDict()
        self.calls_in_flight = 0
        server = build_server(app, self._subscriptions)
        sent = profile(server) if profile is not None else None
        self._manager = StreamableHTTPSessionManager(
            server,
            event_store=sent,
            retry_interval=_RETRY_MILLISECONDS if sent else None,
            # Tools answer at once, and a JSON response costs half of a stream; tools of a profile may report progress.
            json_response=profile is None,
            session_idle_timeout=_IDLE_SECONDS,
            max_request_body_size=app.settings.max_body_bytes,
            max_sessions=_MAX_CONNECTIONS,
        )
        # Of versions without a handshake a connection is a request, so it needs no other state.
        self._streams = StreamableHTTPSessionManager(server, max_request_body_size=app.settings.max_body_bytes)
        server.middleware.append(StreamsForQuestions(self._manager))
        # The SDK has no public list of connections; its minor version is pinned for this.
        self._connections = OpenConnections(self._manager._server_instances)  # noqa: SLF001
        # A profile changes the answers of tools.
        is_fast = fast_path and profile is None
        self._login = LoginEndpoint(app)
        fast = FastPath(app, server, self._manager, self._subscriptions) if is_fast else None
        self._answer: ASGIApp = fast or self._manager.handle_request

    def routes(self) -> Iterator[Route]:
        for path in (f"{MCP_PATH}/session/{{session_id}}", MCP_PATH):
            yield Route(path, endpoint=self)
            yield Route(f"{path}/tools/{{tools}}", endpoint=self)
            yield Route(f"{path}/step/{{step}}", endpoint=self)
            yield Route(f"{path}/{{tools}}", endpoint=self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._manager.run(), self._streams.run(), self._login.running():
            yield

    def end_streams(self) -> None:
        self._subscriptions.end_all()

    def _user(self, actor: Actor, caller: McpCaller) -> WeftlineUser:
        context = caller.call_context
        if context.correlation is not NO_CORRELATION:
            # Correlation ids belong to one message; the user is the same for all.
            plain = replace(
                caller, call_context=CallContext(context.credential, context.peer, session_id=context.session_id)
            )
            return self._user(actor, plain).for_message(caller)
        known = self._users.get(caller)
        if known is None or known.actor is not actor:
            known = self._users[caller] = WeftlineUser(actor, caller)
            if len(self._users) > _MAX_USERS:
                self._users.popitem(last=False)
        self._users.move_to_end(caller)
        return known

    def _streaming(self, scope: Scope) -> ASGIApp:
        """Return what answers a call as a stream: of a server behind the gateway, whose progress the client wants."""
        headers = dict(scope["headers"])
        if b"text/event-stream" not in headers.get(b"accept", b""):
            return self._answer
        if headers.get(b"mcp-protocol-version", b"").decode("latin-1") in MODERN_PROTOCOL_VERSIONS:
            return self._streams.handle_request
        # The SDK has no public access to its transports; its minor version is pinned for this.
        transport = self._manager._server_instances.get(headers.get(_SESSION_HEADER, b"").decode("latin-1"))  # noqa: SLF001
        if transport is not None:
            transport.is_json_response_enabled = False
        return self._answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls_in_flight += scope["method"] == "POST"
        try:
            await self._route(scope, receive, send)
        finally:
            self.calls_in_flight -= scope["method"] == "POST"

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not any(name == b"authorization" for name, _ in scope["headers"]):
            await self._login(scope, receive, send)
            return
        context = context_of(scope)
        session_id, tools, step = (scope["path_params"].get(name) for name in ("session_id", "tools", "step"))
        if step is not None and isinstance(context.credential, str):
            context = structs.replace(context, credential=InStep(context.credential, step))
        if session_id is not None:
            context = structs.replace(context, session_id=session_id)
        try:
            actor = await self._app.admit(context)
            note_caller(scope, actor)
            if session_id is not None and not is_name(session_id):
                raise SessionNotFound
            if tools is not None:
                parse_tool_profile(tools)
            send = self._connections.watch(scope, actor, send)
        except WeftlineError as error:
            await refuse(scope, send, error, self._app.clock, tool_reference)
            return
        scope["user"] = self._user(actor, McpCaller(context, tools))
        # httptools does not strip white space around header values.
        scope["headers"] = [(name, value.strip()) for name, value in scope["headers"]]
        answer = self._answer
        if scope["method"] == "POST":
            body = receive = ReadAhead(scope, receive, self._app.settings.max_body_bytes)
            try:
                content = await body.read() or b""
                check_message(content)
                await self._app.json_bodies.pace(content, (actor.tenant, actor.path))
            except WeftlineError as error:
                await refuse(scope, send, error, self._app.clock, tool_reference)
                return
            if _PROGRESS in content and SEPARATOR.encode() in content:
                answer = self._streaming(scope)
        with suppress(ClientGone):
            await answer(scope, receive, send)
