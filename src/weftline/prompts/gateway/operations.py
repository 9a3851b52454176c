"""Operations on the gateway: add, look at, approve and remove MCP servers, and call their tools."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from weftline.access.model import Pattern
from weftline.access.steps import ToolNotInStep
from weftline.kernel.clock import Clock, from_micros, to_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied, QuotaExceeded
from weftline.kernel.identity import ANYONE, Actor, Permission
from weftline.kernel.operation import (
    Effect,
    RateClass,
    Request,
    Response,
    SessionUse,
    Success,
    admin_operation,
    admin_write,
    operation,
)
from weftline.kernel.ports import Transactions
from weftline.prompts.gateway.model import (
    MAX_CACHE_SECONDS,
    MAX_SERVERS,
    CalledName,
    CommandsNotAllowed,
    GatewayAccess,
    GatewayServerExists,
    GatewayServerFailed,
    GatewayServerNotFound,
    GatewayTool,
    GatewayToolHeld,
    GatewayToolNotFound,
    McpServer,
    ResultWithheld,
    SecretNotSealed,
    ServerKind,
    ServerName,
    ServerSettings,
    Sharing,
    ToolState,
    ToolText,
    reference,
    split_command,
)
from weftline.prompts.gateway.registry import GatewayRegistry, texts
from weftline.prompts.gateway.sql import GatewayStore
from weftline.prompts.tools.model import ToolNameTaken
from weftline.safety.trust.gate import ContentBlocked, ContentQuarantined
from weftline.safety.trust.scanner import ContentScanner
from weftline.sessions.events.webhooks import AddressNotAllowed, check_url, shown_url
from weftline.state.agent_context.settings import DEFAULT_TRIM_TOKENS, MIN_TRIM_TOKENS

_SEALED = "(stored encrypted)"
Command = Annotated[
    str, msgspec.Meta(min_length=1, max_length=4_000, description="Command line of a server over stdio.")
]
ServerUrl = Annotated[
    str, msgspec.Meta(max_length=2_000, pattern=r"^https?://[!-~]+\Z", description="Address of a server over HTTP.")
]
Variables = Annotated[
    dict[
        Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_-]*\Z")],
        Annotated[str, msgspec.Meta(max_length=8_000)],
    ],
    msgspec.Meta(
        max_length=50,
        description="Environment of a command, or headers sent to a URL. ${NAME} is read from the environment of "
        "Weftline, if the operator allows it; other values are stored encrypted and never shown.",
    ),
]


class AddServer(Request):
    """An MCP server: its command or its URL."""

    name: ServerName
    command: Command | None = None
    url: ServerUrl | None = None
    variables: Variables = msgspec.field(default_factory=dict)
    agents: Annotated[
        tuple[Pattern, ...],
        msgspec.Meta(min_length=1, max_length=50, description="Who may see and call its tools; by default everyone."),
    ] = ANYONE
    answer_tokens: Annotated[
        int,
        msgspec.Meta(
            ge=MIN_TRIM_TOKENS,
            le=1_000_000,
            description="Tokens from which an answer is shortened to what matters, with a handle to the whole.",
        ),
    ] = DEFAULT_TRIM_TOKENS
    connection: Annotated[
        Sharing,
        msgspec.Meta(
            description="agent: each agent has its own connection, and its own program; tenant: all share one, for a "
            "server that keeps nothing between calls."
        ),
    ] = "agent"
    cache_seconds: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=MAX_CACHE_SECONDS,
            description="How long the same read-only call of an agent has the same answer; 0: each call is made.",
        ),
    ] = 0


class ListServers(Request):
    """The servers of the gateway."""


class GetServer(Request):
    """The server to show."""

    name: ServerName


class RemoveServer(Request):
    """The server to remove."""

    name: ServerName


class RefreshServer(Request):
    """The server to ask for its tools."""

    name: ServerName


class ApproveTools(Request):
    """The server, and which of its tools to approve."""

    name: ServerName
    tools: Annotated[
        tuple[CalledName, ...],
        msgspec.Meta(max_length=500, description="Tools to approve; by default all that are held."),
    ] = ()


class CallGatewayTool(Request):
    """A tool of a server of the gateway, and its arguments."""

    name: CalledName
    arguments: Annotated[dict[str, Any], msgspec.Meta(description="Arguments of the tool.")] = msgspec.field(
        default_factory=dict
    )

    @property
    def effects(self) -> tuple[str, ...]:
        """Return the tool as guardrails name it."""
        return (self.name,)


class ServerTool(Response, omit_defaults=True):
    """A tool of a server. ``state``: held and quarantined ones are neither listed nor called, for the ``reason``."""

    name: str
    description: str
    state: ToolState
    read_only: bool = False
    reason: str = ""


class ServerSummary(Response, omit_defaults=False):
    """A server and the number of its tools by state. ``problem`` is why it cannot be reached, if it cannot."""

    name: str
    kind: ServerKind
    target: str
    agents: tuple[str, ...]
    answer_tokens: int
    connection: Sharing
    cache_seconds: int
    added_by: str
    added_at: datetime
    approved: int
    held: int
    quarantined: int
    problem: str


class ServerList(Response, omit_defaults=False):
    """Servers by name."""

    servers: list[ServerSummary]


class ServerInfo(ServerSummary, omit_defaults=False):
    """A server with its tools. Of ``variables`` only references to the environment are shown."""

    on_record = ("approved", "held", "quarantined")

    variables: dict[str, str]
    tools: list[ServerTool]


class ToolCalled(Response, omit_defaults=True):
    """The answer of a tool: its content as MCP has it, and its structured content, if it has one."""

    on_record = ("is_error",)

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    is_error: bool = False


class Gateway(msgspec.Struct, frozen=True):
    """The servers of a tenant, in one transaction of a caller."""

    store: GatewayStore
    registry: GatewayRegistry
    access: GatewayAccess
    actor: Actor

    async def find(self, name: str) -> McpServer:
        return _found(name, await self.store.server(name))

    def info(self, server: McpServer, tools: Sequence[GatewayTool]) -> ServerInfo:
        summary = msgspec.structs.asdict(self.summary(server, tools))
        variables = {name: value if reference(value) else _SEALED for name, value in server.variables.items()}
        return ServerInfo(**summary, variables=variables, tools=[_shown(tool) for tool in tools])

    def summary(self, server: McpServer, tools: Sequence[GatewayTool]) -> ServerSummary:
        counts = {state: sum(tool.state == state for tool in tools) for state in ("approved", "held", "quarantined")}
        return ServerSummary(
            name=server.name,
            kind=server.kind,
            target=server.target if server.kind == "command" else shown_url(server.target),
            agents=server.agents,
            answer_tokens=server.settings.answer_tokens,
            connection=server.settings.connection,
            cache_seconds=server.settings.cache_seconds,
            added_by=server.added_by,
            added_at=from_micros(server.added_at),
            **counts,
            problem=self.access.problem(self.actor.tenant, server.name),
        )


class NewServer(msgspec.Struct, frozen=True):
    """A server that was reached, and what it says about its tools."""

    server: McpServer
    said: Sequence[ToolText]


async def _reach_new(
    request: AddServer, actor: Actor, access: GatewayAccess, scanner: ContentScanner, clock: Clock
) -> NewServer:
    server = _server_of(request, actor, to_micros(clock.now()))
    await access.check(server)
    server = msgspec.structs.replace(server, variables=access.seal(actor.tenant, server.name, server.variables))
    said = await access.list_tools(actor.tenant, server)
    await scanner.prepare(actor, texts(server.name, said))
    return NewServer(server, said)


@admin_write(
    "gateway.add",
    tool="mcp_gateway",
    action="add",
    http="POST /v1/gateway/servers",
    status=201,
    off_record=("variables", "url", "command"),
    session=SessionUse.OUTSIDE,
    prepare=_reach_new,
    errors=(
        GatewayServerExists,
        GatewayServerFailed,
        CommandsNotAllowed,
        SecretNotSealed,
        AddressNotAllowed,
        ToolNameTaken,
        QuotaExceeded,
        InvalidInput,
    ),
)
async def add_server(request: AddServer, gateway: Gateway, *, new: NewServer) -> ServerInfo:
    """Put an MCP server behind Weftline: agents find and call its tools as NAME__TOOL.

    The server is started or called to ask for its tools. Adding it approves them as they are now, except those whose
    description looks like an attack; tools that it adds or changes later are held until `gateway.approve`.
    """
    await gateway.registry.tools.tools.lock()
    servers = await gateway.store.servers()
    if any(server.name == request.name for server in servers):
        raise GatewayServerExists(f"The gateway has a server '{request.name}' already.", name=request.name)
    if len(servers) >= MAX_SERVERS:
        raise QuotaExceeded(f"A tenant can have {MAX_SERVERS} servers.", limit=MAX_SERVERS)
    await gateway.store.add(new.server)
    tools = await gateway.registry.compare(new.server.name, new.said, first=True)
    return gateway.info(new.server, tools)


@admin_operation(
    "gateway.list",
    tool="mcp_gateway",
    action="list",
    http="GET /v1/gateway/servers",
    effect=Effect.READ,
    session=SessionUse.OUTSIDE,
)
async def list_servers(request: ListServers, gateway: Gateway) -> ServerList:
    """List the MCP servers of the gateway, with the number of their tools by state."""
    del request
    tools = await gateway.store.tools()
    return ServerList(
        servers=[
            gateway.summary(server, [tool for tool in tools if tool.server == server.name])
            for server in await gateway.store.servers()
        ]
    )


@admin_operation(
    "gateway.get",
    tool="mcp_gateway",
    action="get",
    http="GET /v1/gateway/servers/{name}",
    effect=Effect.READ,
    errors=(GatewayServerNotFound,),
    session=SessionUse.OUTSIDE,
)
async def get_server(request: GetServer, gateway: Gateway) -> ServerInfo:
    """Show an MCP server with its tools: which are approved, held or quarantined, and why."""
    return gateway.info(await gateway.find(request.name), await gateway.store.tools(request.name))


async def _reach_known(
    request: RefreshServer,
    actor: Actor,
    access: GatewayAccess,
    servers: Transactions[GatewayStore],
    scanner: ContentScanner,
) -> Sequence[ToolText]:
    server = _found(request.name, await servers.read(actor, lambda store: store.server(request.name)))
    said = await access.list_tools(actor.tenant, server)
    await scanner.prepare(actor, texts(server.name, said))
    return said


@admin_write(
    "gateway.refresh",
    tool="mcp_gateway",
    action="refresh",
    http="POST /v1/gateway/servers/{name}/refresh",
    session=SessionUse.OUTSIDE,
    prepare=_reach_known,
    errors=(GatewayServerNotFound, GatewayServerFailed),
)
async def refresh_server(request: RefreshServer, gateway: Gateway, *, said: Sequence[ToolText]) -> ServerInfo:
    """Ask a server for its tools now. New and changed ones are held until `gateway.approve`."""
    server = await gateway.find(request.name)
    return gateway.info(server, await gateway.registry.compare(server.name, said))


@admin_write(
    "gateway.approve",
    tool="mcp_gateway",
    action="approve",
    http="POST /v1/gateway/servers/{name}/approve",
    session=SessionUse.OUTSIDE,
    errors=(GatewayServerNotFound, GatewayToolNotFound, ContentQuarantined, ContentBlocked, ContentTooLarge),
)
async def approve_tools(request: ApproveTools, gateway: Gateway) -> ServerInfo:
    """Approve the held tools of a server as they are now.

    A quarantined tool is approved only by its name, and the call is held for a human, who sees what was detected.
    """
    server = await gateway.find(request.name)
    tools = {tool.name: tool for tool in await gateway.store.tools(server.name)}
    unknown = next((name for name in request.tools if name not in tools), None)
    if unknown is not None:
        raise GatewayToolNotFound(f"'{server.name}' has no tool '{unknown}'.", name=unknown)
    wanted = [tools[name] for name in request.tools] or [tool for tool in tools.values() if tool.state == "held"]
    tools |= {tool.name: tool for tool in await gateway.registry.approve(server.name, wanted)}
    return gateway.info(server, list(tools.values()))


@admin_write(
    "gateway.remove",
    tool="mcp_gateway",
    action="remove",
    http="DELETE /v1/gateway/servers/{name}",
    destructive=True,
    session=SessionUse.OUTSIDE,
    errors=(GatewayServerNotFound,),
)
async def remove_server(request: RemoveServer, gateway: Gateway) -> Success:
    """Remove a server with its tools and its secrets."""
    await gateway.find(request.name)
    await gateway.registry.remove(request.name)
    return Success()


@operation(
    "gateway.call",
    tool="mcp_gateway",
    action="call",
    http="POST /v1/gateway/tools/{name}",
    permission=Permission.WRITE,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.OWN_TRANSACTIONS,
    audited=True,
    off_record=("arguments",),
    session=SessionUse.NONE,
    errors=(
        GatewayToolNotFound,
        GatewayToolHeld,
        GatewayServerFailed,
        ResultWithheld,
        ToolNotInStep,
        PermissionDenied,
        ContentBlocked,
    ),
)
async def call_gateway_tool(request: CallGatewayTool, actor: Actor, access: GatewayAccess) -> ToolCalled:
    """Call a tool of an MCP server of the gateway. MCP clients call it by its name, as in github__search."""
    answer = await access.call(actor, request.name, request.arguments)
    return ToolCalled(content=answer.content, structured=answer.structured, is_error=answer.is_error)


def _server_of(request: AddServer, actor: Actor, now: int) -> McpServer:
    if (request.command is None) == (request.url is None):
        raise InvalidInput("Give either the command or the url of the server.", field="command")
    if request.command is not None:
        split_command(request.command)
    if request.url is not None:
        check_url(request.url)
    return McpServer(
        name=request.name,
        kind="command" if request.url is None else "url",
        target=request.url or request.command or "",
        variables=request.variables,
        agents=request.agents,
        settings=ServerSettings(
            answer_tokens=request.answer_tokens, connection=request.connection, cache_seconds=request.cache_seconds
        ),
        added_by=actor.principal_id,
        added_at=now,
    )


def _found(name: str, server: McpServer | None) -> McpServer:
    if server is None:
        raise GatewayServerNotFound(f"The gateway has no server '{name}'.", name=name)
    return server


def _shown(tool: GatewayTool) -> ServerTool:
    return ServerTool(
        name=tool.name,
        description=tool.text.description,
        state=tool.state,
        read_only=tool.text.read_only,
        reason=tool.reason,
    )
