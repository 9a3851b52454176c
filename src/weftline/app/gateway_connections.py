"""Connections of the gateway to MCP servers: who shares one, when it is opened, and what happens when it fails.

None is shared between tenants, and by agents of a tenant only where the server says so. They are opened on first use;
what a server says about its tools is compared with what was approved each time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.errors import WeftlineError
from weftline.kernel.identity import system_actor
from weftline.prompts.gateway.model import (
    CommandsNotAllowed,
    GatewayServerFailed,
    GatewayToolNotFound,
    SecretNotSealed,
    reference,
)
from weftline.prompts.gateway.registry import GatewayRegistry, texts
from weftline.providers.sealed_values import SealedValues
from weftline.providers.webhook_sender import Reach
from weftline.sessions.events.webhooks import AddressNotAllowed
from weftline.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from weftline.app.wiring import Container
    from weftline.prompts.gateway.model import GatewayTool, McpServer, ToolText
    from weftline.providers.mcp_connections import McpConnection
    from weftline.safety.trust.scanner import ContentScanner
    from weftline.settings import Settings
    from weftline.storage.sql.database import Database

_log = logging.getLogger("weftline.gateway")
# Pauses after failures to connect, doubled each time.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
# Of a process: each may be a program.
MAX_CONNECTIONS = 200
_ADDRESS_HINT = "Use a public address, or have the operator add the host to WEFTLINE_GATEWAY_PRIVATE_HOSTS."
# In place of an agent: of connections that agents share, or that ask for the tools only.
_SHARED = ""


class _Key(NamedTuple):
    """Whose connection to which server; a server that was removed and added again is another one."""

    tenant: str
    server: str
    added_at: int
    agent: str


class _Slot:
    """Room for a connection."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.connection: McpConnection | None = None


class _Health:
    """How often connecting to a server has failed, and when it is tried again."""

    def __init__(self) -> None:
        self.failures = 0
        self.retry_at = 0.0
        self.problem = ""

    def check(self, server: McpServer, now: float) -> None:
        """Raise GatewayServerFailed during a pause."""
        if now < self.retry_at:
            pause = max(1, round(self.retry_at - now))
            raise GatewayServerFailed(self.problem, name=server.name, retry_after_seconds=pause)

    def note_failure(self, problem: str, now: float) -> None:
        self.problem = problem
        self.failures += 1
        self.retry_at = now + min(_FIRST_PAUSE_SECONDS * 2 ** (self.failures - 1), _LONGEST_PAUSE_SECONDS)

    def note_success(self) -> None:
        self.failures, self.retry_at, self.problem = 0, 0.0, ""


class GatewayConnections:
    """Connections of all tenants in this process."""

    def __init__(self, database: Database, container: Container, scanner: ContentScanner, settings: Settings) -> None:
        self._scanner = scanner
        self._commands = settings.gateway_commands == "on"
        self._environment = frozenset(settings.gateway_environment.split())
        self._reach = Reach(frozenset(host.lower() for host in settings.gateway_private_hosts.split()))
        self._sealed = SealedValues(settings.signing_secret)
        self._registries = SystemTransactions(database, container, GatewayRegistry)
        self._slots: dict[_Key, _Slot] = {}
        self._health: dict[_Key, _Health] = {}
        self._refreshing: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in list(self._refreshing):
            task.cancel()
        opened = [slot.connection for slot in self._slots.values() if slot.connection is not None]
        closing = [*self._closing, *(each.close() for each in opened)]
        await asyncio.gather(*self._refreshing, *closing, return_exceptions=True)

    async def check(self, server: McpServer) -> None:
        """Refuse a command, a variable or an address that the operator does not allow."""
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

    def seal(self, tenant: str, server: str, values: Mapping[str, str]) -> dict[str, str]:
        """Encrypt what is no reference."""
        if not self._sealed.available and not all(map(reference, values.values())):
            raise SecretNotSealed("A value is no reference to the environment, and there is no key to encrypt it with.")
        return {
            name: value if reference(value) else self._sealed.seal(_place(tenant, server, name), value)
            for name, value in values.items()
        }

    async def list_tools(self, tenant: str, server: McpServer) -> Sequence[ToolText]:
        """Ask a server for its tools now, also if it failed a moment ago."""
        key = _Key(tenant, server.name, server.added_at, _SHARED)
        self._health_of(key).retry_at = 0.0
        slot = self._slot(key)
        async with slot.lock:
            connection = await self._connected(key, server, slot)
        return await connection.list_tools()

    def problem(self, tenant: str, server: str) -> str:
        """Return the last failure of a server, empty if its last connection worked."""
        found = [health for key, health in self._health.items() if key[:2] == (tenant, server)]
        return found[-1].problem if found else ""

    def close_removed(self, tenant: str, server: McpServer) -> None:
        """End the connections to a server that was removed; those that nobody asks about end when they are idle."""
        of_server = (tenant, server.name, server.added_at)
        for key in [key for key in self._slots if key[:3] == of_server]:
            self._drop(key)
        self._health.pop(_Key(*of_server, _SHARED), None)

    async def connection(
        self, tenant: str, agent: str, server: McpServer, tool: GatewayTool
    ) -> tuple[McpConnection, GatewayTool]:
        """Return an agent's connection to a server, and a tool of it as the server describes it now."""
        key = _Key(tenant, server.name, server.added_at, agent if server.settings.connection == "agent" else _SHARED)
        slot = self._slot(key)
        if slot.connection is not None and slot.connection.is_open:
            return slot.connection, tool
        async with slot.lock:
            if slot.connection is not None and slot.connection.is_open:
                return slot.connection, tool
            connection = await self._connected(key, server, slot)
            # It may be another program by now.
            current = {each.name: each for each in await self._compare(tenant, server, connection)}
        if tool.name not in current:
            raise GatewayToolNotFound(f"The server no longer has the tool '{tool.name}'.", name=tool.name)
        return connection, current[tool.name]

    async def _connected(self, key: _Key, server: McpServer, slot: _Slot) -> McpConnection:
        """Return an open connection; after failures, only once a pause is over. The slot is locked."""
        if slot.connection is not None and slot.connection.is_open:
            return slot.connection
        health, loop = self._health_of(key), asyncio.get_running_loop()
        health.check(server, loop.time())
        try:
            await self.check(server)
            self._make_room(server)
            slot.connection = await self._open(key.tenant, server)
        except WeftlineError as error:
            health.note_failure(error.message, loop.time())
            raise
        health.note_success()
        return slot.connection

    def _make_room(self, server: McpServer) -> None:
        """Forget connections that have ended, and end the one that is idle for longest if there are too many."""
        for key in [key for key, slot in self._slots.items() if slot.connection and not slot.connection.is_open]:
            if not self._slots[key].lock.locked():
                self._drop(key)
        opened = {key: slot.connection for key, slot in self._slots.items() if slot.connection is not None}
        if len(opened) < MAX_CONNECTIONS:
            return
        idle = {key: connection.used_at for key, connection in opened.items() if not connection.calls}
        if not idle:
            raise GatewayServerFailed(
                f"The MCP server '{server.name}' cannot be connected to: {MAX_CONNECTIONS} connections are in use.",
                name=server.name,
            )
        self._drop(min(idle, key=idle.__getitem__))

    def _drop(self, key: _Key) -> None:
        slot = self._slots.pop(key)
        if slot.connection is not None:
            _run(self._closing, slot.connection.close())

    async def _open(self, tenant: str, server: McpServer) -> McpConnection:
        from weftline.providers.mcp_connections import McpConnection  # noqa: PLC0415 - the SDK is slow to import

        connection: McpConnection

        def refresh() -> None:
            _run(self._refreshing, self._refresh(tenant, server, connection))

        connection = McpConnection(server, self._opened(tenant, server), self._reach, on_tools_changed=refresh)
        await connection.open()
        return connection

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

    def _slot(self, key: _Key) -> _Slot:
        return self._slots.setdefault(key, _Slot())

    def _health_of(self, key: _Key) -> _Health:
        """Return the state of a server, which is the same for all its agents."""
        return self._health.setdefault(key._replace(agent=_SHARED), _Health())

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

    async def _refresh(self, tenant: str, server: McpServer, connection: McpConnection) -> None:
        try:
            if connection.is_open:
                await self._compare(tenant, server, connection)
        except WeftlineError as error:
            _log.warning("refresh failed", extra={"fields": {"tenant": tenant, "code": error.code}})


def _run(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work, name="weftline-gateway")
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _place(tenant: str, server: str, variable: str) -> str:
    return f"{tenant}\0{server}\0{variable}"


def _expanded(value: str, variable: str) -> str | None:
    known = os.environ.get(variable)
    return None if known is None else value.replace(f"${{{variable}}}", known)
