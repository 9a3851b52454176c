"""The gateway: MCP servers of tenants behind Weftline's own endpoint, and the one path of calls to their tools.

Whoever may call which tool is known by the epoch of the tenant's access rules, which every change of the gateway
advances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.access.audit import AuditTrail
from weftline.access.steps import GROUPS, check_in_step, parse_tool_profile
from weftline.app.dispatch import check_access
from weftline.app.gateway_connections import GatewayConnections
from weftline.app.tools.toolbox import ToolView, called_tool
from weftline.app.wiring import CallScope
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import InvalidInput, WeftlineError
from weftline.kernel.operation import SubmittedText
from weftline.kernel.thread_pools import TEXT_THREADS
from weftline.prompts.gateway.answers import bounded, is_short, shorten_answer, texts_of, with_texts
from weftline.prompts.gateway.model import (
    CallingClient,
    GatewayAccess,
    GatewayToolHeld,
    GatewayToolNotFound,
    ResultWithheld,
    ToolAnswer,
    calling_client,
)
from weftline.prompts.gateway.operations import CallGatewayTool, ToolCalled
from weftline.prompts.gateway.registry import definition
from weftline.prompts.gateway.sql import GatewayStore
from weftline.prompts.tools.model import LOADED
from weftline.prompts.tools.sql import SelectionStore
from weftline.safety.trust.gate import ContentBlocked, ContentGate, IncomingContent
from weftline.safety.trust.model import Source
from weftline.storage.sql.database import Scope, caller_scope
from weftline.windows.conversations.sql import EditStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from weftline.app.caches import Cache
    from weftline.app.tools.toolbox import Toolbox
    from weftline.app.wiring import Container
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Registry
    from weftline.kernel.ports import CacheKey
    from weftline.kernel.transaction import Transaction
    from weftline.prompts.gateway.answers import ShortAnswer
    from weftline.prompts.gateway.model import GatewayTool, McpServer
    from weftline.safety.trust.scanner import ContentScanner
    from weftline.settings import Settings
    from weftline.storage.sql.database import Database

_CALL = "gateway.call"
_MAX_DIRECTORIES = 1_000
_MICROS = 1_000_000
_encode = msgspec.json.Encoder(order="sorted").encode


class KnownAnswer(NamedTuple):
    """The answer that a caller had to a read-only call, and until when it has it again."""

    answer: ToolAnswer
    until: int


class _Directory(NamedTuple):
    """The servers and tools of a tenant at an epoch of its access rules, and how lists show those that are approved."""

    epoch: int
    servers: dict[str, McpServer]
    tools: dict[str, GatewayTool]
    views: dict[str, ToolView]

    def allows(self, actor: Actor, tool: GatewayTool) -> bool:
        """Return whether a caller may call a tool of this server, in its step."""
        return actor.matches(self.servers[tool.server].agents) and actor.may_call(tool.name)


class McpGateway:
    """Lists and calls of all tenants in this process."""

    def __init__(
        self,
        database: Database,
        container: Container,
        registry: Registry,
        toolbox: Toolbox,
        scanner: ContentScanner,
        settings: Settings,
        clock: Clock,
        answers: Cache[KnownAnswer],
    ) -> None:
        self._database = database
        self._container = container
        self._operations = registry
        self._toolbox = toolbox
        self._scanner = scanner
        self._profile = settings.tools
        self._clock = clock
        self._answers = answers
        self._directories: dict[str, _Directory] = {}
        self.connections = GatewayConnections(database, container, scanner, settings)

    @property
    def access(self) -> GatewayAccess:
        """Return what operations use of the gateway."""
        return GatewayAccess(
            check=self.connections.check,
            seal=self.connections.seal,
            list_tools=self.connections.list_tools,
            call=self._call,
            problem=self.connections.problem,
        )

    async def close(self) -> None:
        await self.connections.close()

    async def listed(self, actor: Actor, profile: str | None = None) -> list[ToolView]:
        """Return the tools of servers to list for a caller: those of its step, or all of them if they are few.

        Of many, those that were last chosen for its task; weftline_tools finds the others. Profiles that list
        everything list them all.
        """
        views = await self.usable(actor)
        if actor.step is not None:
            return list(views.values())
        chosen = parse_tool_profile(profile or actor.tools or self._profile)
        if chosen.everything or chosen.whole.issuperset(GROUPS["gateway"]):
            return list(views.values())
        if not chosen.lean:
            return []
        if len(views) <= LOADED:
            return list(views.values())
        selection = await self._database.read(
            caller_scope(actor), lambda tx: SelectionStore(tx).latest(actor.principal_id, actor.bound_session)
        )
        loaded = () if selection is None or selection.step else selection.loaded
        return [views[name] for name in loaded if name in views]

    async def chosen_since(self, tenant: str, at: int) -> dict[str, int]:
        """Return the agents of a tenant whose tools were chosen since a time, if lists follow from that."""
        known = self._directories.get(tenant)
        if known is None or len(known.views) <= LOADED:
            return {}
        return await self._database.read(Scope(tenant), lambda tx: SelectionStore(tx).chosen_since(at))

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
                for server in before.servers.values():
                    if known.servers.get(server.name) != server:
                        self.connections.close_removed(actor.tenant, server)
            if len(self._directories) >= _MAX_DIRECTORIES:
                self._directories.clear()
            self._directories[actor.tenant] = known
        return known

    async def _call(self, actor: Actor, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        # No transaction precedes that would check it.
        await check_access(self._database, actor)
        directory = await self._directory(actor)
        tool = directory.tools.get(name)
        if tool is None or not actor.matches(directory.servers[tool.server].agents):
            raise GatewayToolNotFound(f"There is no tool '{name}' for you.", name=name)
        check_in_step(actor, name)
        server = directory.servers[tool.server]
        key = self._key(actor, server, tool, arguments)
        known = None if key is None else self._answers.get(key)
        if known is not None and known.until > to_micros(self._clock.now()):
            await self._database.write(
                Scope(actor.tenant, principal=actor.path),
                lambda tx: self._audit(actor, tx, name, arguments, known.answer),
            )
            return known.answer
        connection, tool = await self.connections.connection(actor.tenant, actor.principal_id, server, tool)
        if tool.state != "approved":
            raise GatewayToolHeld(f"'{name}' may not be called now: {tool.reason}", name=name, state=tool.state)
        answer = bounded(await connection.call(tool.text.name, arguments, self._asked(actor, name)))
        answer = await self._admitted(actor, name, arguments, answer)
        limit = server.settings.answer_tokens
        if not is_short(answer, limit):
            short = await TEXT_THREADS.run(shorten_answer, answer, limit, arguments)
            if short is not None:
                await self._keep(actor, short)
                answer = short.answer
        if key is not None and not answer.is_error:
            until = to_micros(self._clock.now()) + server.settings.cache_seconds * _MICROS
            self._answers.put(key, KnownAnswer(answer, until), len(_encode(answer)))
        return answer

    def _key(self, actor: Actor, server: McpServer, tool: GatewayTool, arguments: Mapping[str, Any]) -> CacheKey | None:
        """Return what the answer to a read-only call depends on, who asks included; None if it may change something."""
        if not server.settings.cache_seconds or not tool.text.read_only or tool.state != "approved":
            return None
        who = actor.tenant, actor.principal_id, actor.epoch
        return (*who, server.name, server.added_at, tool.name, _encode(arguments).decode())

    async def _keep(self, actor: Actor, short: ShortAnswer) -> None:
        """Keep the whole of a shortened answer for the agent that has its handle."""
        at = to_micros(self._clock.now())
        await self._database.write(
            Scope(actor.tenant, principal=actor.path),
            lambda tx: EditStore(tx).keep_answer(
                actor.principal_id, actor.bound_session or "", short.handle, short.whole, at
            ),
        )

    async def _audit(
        self, actor: Actor, tx: Transaction, name: str, arguments: Mapping[str, Any], answer: ToolAnswer
    ) -> None:
        (trail,) = self._container.arguments((AuditTrail,), CallScope(actor, tx))
        done = ToolCalled(content=[], is_error=answer.is_error)
        await trail.record(self._operations[_CALL], CallGatewayTool(name=name, arguments=dict(arguments)), done)

    def _asked(self, actor: Actor, name: str) -> CallingClient | None:
        """Return the client of this call as a server may ask it: what it is asked passes the gate, too."""
        client = calling_client.get()
        if client is None:
            return None

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            text = _encode(params).decode()
            passed = await self._passed(actor, name, {text: True})
            return await client.ask(method, msgspec.json.decode(passed[text], type=dict[str, Any]))

        return CallingClient(client.progress, ask)

    async def _admitted(self, actor: Actor, name: str, arguments: Mapping[str, Any], answer: ToolAnswer) -> ToolAnswer:
        """Return an answer as the gate lets it pass, and audit the call; raises ResultWithheld."""
        passed = await self._passed(
            actor, name, texts_of(answer), lambda tx: self._audit(actor, tx, name, arguments, answer)
        )
        return with_texts(answer, passed)

    async def _passed(
        self,
        actor: Actor,
        name: str,
        parts: Mapping[str, bool],
        audit: Callable[[Transaction], Awaitable[None]] | None = None,
    ) -> dict[str, str]:
        """Return texts of a server as the gate lets them pass; raises ResultWithheld. Each may be JSON.

        The call was made, so nothing here may end it because access rules have changed since.
        """
        verdicts = await self._scanner.prepare(actor, [SubmittedText(text, data=True) for text in parts])

        async def admit(tx: Transaction) -> tuple[dict[str, str], WeftlineError | None]:
            (gate,) = self._container.arguments((ContentGate,), CallScope(actor, tx, verdicts))
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
            if audit is not None:
                await audit(tx)
            return passed, refusal

        passed, refusal = await self._database.write(Scope(actor.tenant, principal=actor.path), admit)
        if refusal is not None:
            raise refusal
        return passed


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
