"""The gateway: MCP servers of tenants behind Weftline's own endpoint, and the one path of calls to their tools.

Servers are connected to on first use, one connection for each server and tenant in a process. Whoever may call which
tool is known by the epoch of the tenant's access rules, which every change of the gateway advances.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.access.audit import AuditTrail
from weftline.access.steps import GROUPS, check_in_step, parse_tool_profile
from weftline.app.dispatch import check_access
from weftline.app.tools.toolbox import ToolView, called_tool
from weftline.app.wiring import CallScope
from weftline.kernel.errors import InvalidInput, WeftlineError
from weftline.kernel.identity import system_actor
from weftline.kernel.operation import SubmittedText
from weftline.prompts.gateway.model import (
    CommandsNotAllowed,
    GatewayAccess,
    GatewayServerFailed,
    GatewayToolHeld,
    GatewayToolNotFound,
    ResultWithheld,
    SecretNotSealed,
    ToolAnswer,
    reference,
)
from weftline.prompts.gateway.operations import CallGatewayTool, ToolCalled
from weftline.prompts.gateway.registry import GatewayRegistry, definition, texts
from weftline.prompts.gateway.sql import GatewayStore
from weftline.prompts.tools.model import LOADED
from weftline.providers.sealed_values import SealedValues
from weftline.providers.webhook_sender import Reach
from weftline.safety.trust.gate import ContentBlocked, ContentGate, IncomingContent
from weftline.safety.trust.model import Source
from weftline.sessions.events.webhooks import AddressNotAllowed
from weftline.storage.sql.database import Scope, caller_scope
from weftline.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Mapping, Sequence

    from weftline.app.tools.toolbox import Toolbox
    from weftline.app.wiring import Container
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Registry
    from weftline.kernel.transaction import Transaction
    from weftline.prompts.gateway.model import GatewayTool, McpServer, ToolText
    from weftline.providers.mcp_connections import McpConnection
    from weftline.safety.trust.scanner import ContentScanner
    from weftline.settings import Settings
    from weftline.storage.sql.database import Database

_log = logging.getLogger("weftline.gateway")
_CALL = "gateway.call"
# Pauses after failures to connect, doubled each time.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_MAX_DIRECTORIES = 1_000
_ADDRESS_HINT = "Use a public address, or have the operator add the host to WEFTLINE_GATEWAY_PRIVATE_HOSTS."


class _Directory(NamedTuple):
    """The servers and tools of a tenant at an epoch of its access rules, and how lists show those that are approved."""

    epoch: int
    servers: dict[str, McpServer]
    tools: dict[str, GatewayTool]
    views: dict[str, ToolView]

    def allows(self, actor: Actor, tool: GatewayTool) -> bool:
        """Return whether a caller may call a tool of this server, in its step."""
        return actor.matches(self.servers[tool.server].agents) and actor.may_call(tool.name)


class _Slot:
    """The connection to a server, how often opening it has failed, and when it is tried again."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.connection: McpConnection | None = None
        self.failures = 0
        self.retry_at = 0.0
        self.problem = ""


class McpGateway:
    """Connections, lists and calls of all tenants in this process."""

    def __init__(
        self,
        database: Database,
        container: Container,
        registry: Registry,
        toolbox: Toolbox,
        scanner: ContentScanner,
        settings: Settings,
    ) -> None:
        self._database = database
        self._container = container
        self._operations = registry
        self._toolbox = toolbox
        self._scanner = scanner
        self._commands = settings.gateway_commands == "on"
        self._environment = frozenset(settings.gateway_environment.split())
        self._reach = Reach(frozenset(host.lower() for host in settings.gateway_private_hosts.split()))
        self._profile = settings.tools
        self._sealed = SealedValues(settings.signing_secret)
        self._registries = SystemTransactions(database, container, GatewayRegistry)
        self._slots: dict[tuple[str, str, int], _Slot] = {}
        self._directories: dict[str, _Directory] = {}
        self._refreshing: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def access(self) -> GatewayAccess:
        """Return what operations use of the gateway."""
        return GatewayAccess(
            check=self._check,
            seal=self._seal,
            list_tools=self._list_tools,
            call=self._call,
            problem=self._problem,
        )

    async def close(self) -> None:
        for task in list(self._refreshing):
            task.cancel()
        opened = [slot.connection for slot in self._slots.values() if slot.connection is not None]
        closing = [*self._closing, *(each.close() for each in opened)]
        await asyncio.gather(*self._refreshing, *closing, return_exceptions=True)

    async def listed(self, actor: Actor, profile: str | None = None) -> list[ToolView]:
        """Return the tools of servers to list for a caller: those of its step, or all of them if they are few.

        Profiles that list everything list them all; of many, weftline_tools finds the ones that a task needs.
        """
        views = await self.usable(actor)
        if actor.step is not None:
            return list(views.values())
        chosen = parse_tool_profile(profile or actor.tools or self._profile)
        if chosen.everything or chosen.whole.issuperset(GROUPS["gateway"]):
            return list(views.values())
        return list(views.values()) if chosen.lean and len(views) <= LOADED else []

    async def usable(self, actor: Actor) -> dict[str, ToolView]:
        """Return the approved tools that a caller may call, by name."""
        directory = await self._directory(actor)
        return {name: view for name, view in directory.views.items() if directory.allows(actor, directory.tools[name])}

    async def hidden(self, actor: Actor) -> Collection[str]:
        """Return the names of tools that are not for a caller."""
        directory = await self._directory(actor)
        return [tool.name for tool in directory.tools.values() if not directory.allows(actor, tool)]

    async def forwarded(
        self, actor: Actor, name: str, arguments: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Any]] | None:
        """Return the name and arguments of a call, direct or through weftline_tools, to a tool of a server."""
        try:
            called, given = called_tool(name, arguments)
        except InvalidInput:
            return None
        directory = await self._directory(actor)
        return (called, given) if called in directory.tools else None

    async def _directory(self, actor: Actor) -> _Directory:
        known = self._directories.get(actor.tenant)
        if known is None or known.epoch != actor.epoch:
            before, known = known, await self._database.read(caller_scope(actor), lambda tx: _load(tx, actor.epoch))
            if before is not None:
                self._close_removed(actor.tenant, before, known)
            if len(self._directories) >= _MAX_DIRECTORIES:
                self._directories.clear()
            self._directories[actor.tenant] = known
        return known

    async def _check(self, server: McpServer) -> None:
        if server.kind == "command" and not self._commands:
            raise CommandsNotAllowed(
                "The operator does not let the gateway start commands: WEFTLINE_GATEWAY_COMMANDS is not 'on'."
            )
        for value in server.variables.values():
            variable = reference(value)
            if variable is not None and variable not in self._environment:
                raise CommandsNotAllowed(
                    f"'{variable}' is not among the variables in WEFTLINE_GATEWAY_ENVIRONMENT.", variable=variable
                )
        if server.kind == "url":
            try:
                await self._reach.check(server.target)
            except AddressNotAllowed as error:
                raise AddressNotAllowed(error.message, hint=_ADDRESS_HINT) from None

    def _seal(self, tenant: str, server: str, values: Mapping[str, str]) -> dict[str, str]:
        if not self._sealed.available and not all(map(reference, values.values())):
            raise SecretNotSealed("A value is no reference to the environment, and there is no key to encrypt it with.")
        return {
            name: value if reference(value) else self._sealed.seal(_place(tenant, server, name), value)
            for name, value in values.items()
        }

    def _opened(self, tenant: str, server: McpServer) -> dict[str, str]:
        """Return the variables of a server in plain."""
        opened = {}
        for name, value in server.variables.items():
            variable = reference(value)
            plain = (
                self._sealed.open(_place(tenant, server.name, name), value)
                if variable is None
                else _expanded(value, variable)
            )
            if plain is None:
                raise GatewayServerFailed(
                    f"The MCP server '{server.name}' failed: the value of '{name}' cannot be read.",
                    hint="Set the variable in the environment of Weftline, or remove the server and add it again.",
                    name=server.name,
                )
            opened[name] = plain
        return opened

    async def _list_tools(self, tenant: str, server: McpServer) -> Sequence[ToolText]:
        """Ask a server for its tools now, also if it failed a moment ago."""
        slot = self._slot(tenant, server)
        slot.retry_at = 0.0
        async with slot.lock:
            connection = await self._connected(tenant, server, slot)
        return await connection.list_tools()

    def _problem(self, tenant: str, server: str) -> str:
        slots = [slot for key, slot in self._slots.items() if key[:2] == (tenant, server)]
        return slots[-1].problem if slots else ""

    def _close_removed(self, tenant: str, before: _Directory, now: _Directory) -> None:
        """End the connections to servers that were removed; those that nobody asks about end when they are idle."""
        for server in before.servers.values():
            if now.servers.get(server.name) != server:
                slot = self._slots.pop((tenant, server.name, server.added_at), None)
                if slot is not None and slot.connection is not None:
                    _run(self._closing, slot.connection.close())

    async def _call(self, actor: Actor, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        # No transaction precedes that would check it.
        await check_access(self._database, actor)
        directory = await self._directory(actor)
        tool = directory.tools.get(name)
        if tool is None or not actor.matches(directory.servers[tool.server].agents):
            raise GatewayToolNotFound(f"There is no tool '{name}' for you.", name=name)
        check_in_step(actor, name)
        connection, tool = await self._connection(actor.tenant, directory.servers[tool.server], tool)
        if tool.state != "approved":
            raise GatewayToolHeld(f"'{name}' may not be called now: {tool.reason}", name=name, state=tool.state)
        answer = await connection.call(tool.text.name, arguments)
        return await self._admitted(actor, name, arguments, answer)

    async def _connection(self, tenant: str, server: McpServer, tool: GatewayTool) -> tuple[McpConnection, GatewayTool]:
        """Return the connection to a server, and a tool of it as the server describes it now."""
        slot = self._slot(tenant, server)
        if slot.connection is not None and slot.connection.is_open:
            return slot.connection, tool
        async with slot.lock:
            if slot.connection is not None and slot.connection.is_open:
                return slot.connection, tool
            connection = await self._connected(tenant, server, slot)
            # It may be another program by now.
            current = {each.name: each for each in await self._compare(tenant, server, connection)}
        if tool.name not in current:
            raise GatewayToolNotFound(f"The server no longer has the tool '{tool.name}'.", name=tool.name)
        return connection, current[tool.name]

    async def _connected(self, tenant: str, server: McpServer, slot: _Slot) -> McpConnection:
        """Return an open connection; after failures, only once a pause is over. The slot is locked."""
        if slot.connection is not None and slot.connection.is_open:
            return slot.connection
        loop = asyncio.get_running_loop()
        if loop.time() < slot.retry_at:
            pause = max(1, round(slot.retry_at - loop.time()))
            raise GatewayServerFailed(slot.problem, name=server.name, retry_after_seconds=pause)
        try:
            await self._check(server)
            slot.connection = await self._open(tenant, server)
        except WeftlineError as error:
            slot.problem = error.message
            slot.failures += 1
            slot.retry_at = loop.time() + min(_FIRST_PAUSE_SECONDS * 2 ** (slot.failures - 1), _LONGEST_PAUSE_SECONDS)
            raise
        slot.failures, slot.problem = 0, ""
        return slot.connection

    async def _open(self, tenant: str, server: McpServer) -> McpConnection:
        from weftline.providers.mcp_connections import McpConnection  # noqa: PLC0415 - the SDK is slow to import

        connection = McpConnection(
            server,
            self._opened(tenant, server),
            self._reach,
            on_tools_changed=lambda: _run(self._refreshing, self._refresh(tenant, server)),
        )
        await connection.open()
        return connection

    def _slot(self, tenant: str, server: McpServer) -> _Slot:
        return self._slots.setdefault((tenant, server.name, server.added_at), _Slot())

    async def _compare(self, tenant: str, server: McpServer, connection: McpConnection) -> Sequence[GatewayTool]:
        """Store what a server says about its tools now, as Weftline itself: nobody asked for it."""
        said = await connection.list_tools()
        await self._scanner.prepare(system_actor(tenant), texts(server.name, said))

        async def compare(registry: GatewayRegistry) -> Sequence[GatewayTool]:
            await registry.tools.tools.lock()
            known = await registry.store.server(server.name)
            if known is None or known.added_at != server.added_at:
                # It was removed meanwhile.
                return []
            return await registry.compare(server.name, said)

        return await self._registries.write(tenant, compare)

    async def _refresh(self, tenant: str, server: McpServer) -> None:
        slot = self._slot(tenant, server)
        try:
            if slot.connection is not None and slot.connection.is_open:
                await self._compare(tenant, server, slot.connection)
        except WeftlineError as error:
            _log.warning("refresh failed", extra={"fields": {"tenant": tenant, "code": error.code}})

    async def _admitted(self, actor: Actor, name: str, arguments: Mapping[str, Any], answer: ToolAnswer) -> ToolAnswer:
        """Return an answer as the gate lets it pass, and audit the call; raises ResultWithheld.

        The call was made, so nothing here may end it because access rules have changed since.
        """
        parts = _texts_of(answer)
        verdicts = await self._scanner.prepare(actor, [SubmittedText(text, data=True) for text in parts])

        async def admit(tx: Transaction) -> tuple[dict[str, str], WeftlineError | None]:
            gate, trail = self._container.arguments((ContentGate, AuditTrail), CallScope(actor, tx, verdicts))
            refusal: WeftlineError | None = None
            passed = {}
            for text, is_json in parts.items():
                content = IncomingContent(kind="tool_result", item=name, text=text, source=Source.TOOL, is_json=is_json)
                try:
                    recorded = await gate.record(content)
                except ContentBlocked as error:
                    refusal = error
                    break
                if recorded.held is not None:
                    refusal = ResultWithheld(
                        f"The answer of '{name}' looks like an attempt to give agents instructions.", name=name
                    )
                    break
                passed[text] = recorded.text
            done = ToolCalled(content=[], is_error=answer.is_error)
            await trail.record(self._operations[_CALL], CallGatewayTool(name=name, arguments=dict(arguments)), done)
            return passed, refusal

        passed, refusal = await self._database.write(Scope(actor.tenant, principal=actor.path), admit)
        if refusal is not None:
            raise refusal
        return _with_texts(answer, passed)


def _run(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work, name="weftline-gateway")
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _place(tenant: str, server: str, variable: str) -> str:
    return f"{tenant}\0{server}\0{variable}"


def _expanded(value: str, variable: str) -> str | None:
    known = os.environ.get(variable)
    return None if known is None else value.replace(f"${{{variable}}}", known)


async def _load(tx: Transaction, epoch: int) -> _Directory:
    store = GatewayStore(tx)
    servers = {server.name: server for server in await store.servers()}
    tools = {tool.name: tool for tool in await store.tools() if tool.server in servers}
    views = {name: _view(tool) for name, tool in tools.items() if tool.state == "approved"}
    return _Directory(epoch, servers, tools, views)


def _view(tool: GatewayTool) -> ToolView:
    shown = definition(tool.name, tool.text)
    return ToolView(
        name=tool.name,
        description=shown.description,
        input_schema=shown.input_schema,
        read_only=tool.text.read_only,
    )


def _texts_of(answer: ToolAnswer) -> dict[str, bool]:
    """Return the texts of an answer that a model would read, and whether each is JSON."""
    found = {each["text"]: False for each in answer.content if isinstance(each.get("text"), str)}
    for each in answer.content:
        resource = each.get("resource")
        if isinstance(resource, dict) and isinstance(resource.get("text"), str):
            found[resource["text"]] = False
    if answer.structured is not None:
        found.setdefault(_encoded(answer.structured), True)
    return found


def _with_texts(answer: ToolAnswer, passed: Mapping[str, str]) -> ToolAnswer:
    if all(text == shown for text, shown in passed.items()):
        return answer
    content = []
    for each in answer.content:
        shown = {**each, "text": passed[each["text"]]} if isinstance(each.get("text"), str) else each
        resource = shown.get("resource")
        if isinstance(resource, dict) and isinstance(resource.get("text"), str):
            shown = {**shown, "resource": {**resource, "text": passed[resource["text"]]}}
        content.append(shown)
    structured = answer.structured
    if structured is not None:
        structured = msgspec.json.decode(passed[_encoded(structured)], type=dict[str, Any])
    return ToolAnswer(content, structured, answer.is_error)


def _encoded(structured: Mapping[str, Any]) -> str:
    return msgspec.json.encode(structured).decode()
