"""Connections to MCP servers with the official SDK: over stdio and HTTP, in every protocol version that it speaks."""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import httpcore2
import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from mcp import StdioServerParameters
from weftline.kernel.errors import WeftlineError
from weftline.prompts.gateway.model import MAX_TOOLS_OF_SERVER, GatewayServerFailed, ToolAnswer, ToolText, split_command
from weftline.providers.webhook_sender import CheckedNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from mcp.client.session import ClientRequestContext

    from weftline.prompts.gateway.model import CallingClient, McpServer
    from weftline.providers.webhook_sender import Reach

CONNECT_SECONDS = 60.0
CALL_SECONDS = 120.0
IDLE_SECONDS = 300.0
_MAX_PAGES = 50
_MAX_DEFINITIONS_BYTES = 4 * 2**20
# The connection is gone, or the server did not answer in time.
# The client of the call in whose task a server asks: of versions in which the question is the result of a call.
_asked_here: ContextVar[CallingClient | None] = ContextVar("asked_here", default=None)
_LOST = frozenset({types.CONNECTION_CLOSED})
_TIMED_OUT = frozenset({types.REQUEST_TIMEOUT})


class McpConnection:
    """A connection to a server, opened, used and closed by a task of its own, as the SDK requires.

    It ends by itself when it has been idle, and when the server is gone; then another one is opened.
    """

    def __init__(
        self,
        server: McpServer,
        variables: Mapping[str, str],
        reach: Reach,
        *,
        on_tools_changed: Callable[[], None],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._server = server
        self._variables = variables
        self._reach = reach
        self._on_tools_changed = on_tools_changed
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[Client] = self._loop.create_future()
        self._ending = asyncio.Event()
        self.calls = 0
        self._asked: list[CallingClient | None] = []
        self.used_at = self._loop.time()
        self._task = asyncio.create_task(self._hold(), name="weftline-gateway-connection")

    @property
    def is_open(self) -> bool:
        return not self._task.done() and not self._ending.is_set()

    async def open(self) -> None:
        """Wait until the server has answered; raises GatewayServerFailed."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.shield(self._opened)
        except TimeoutError:
            await self.close()
            raise self._failed("it did not answer in time") from None

    async def close(self) -> None:
        self._ending.set()
        if not self._opened.done():
            self._task.cancel()
        # Cancelling this must not cancel the task, which has a program to end.
        await asyncio.wait([self._task])

    async def list_tools(self) -> Sequence[ToolText]:
        found: list[ToolText] = []
        size, cursor = 0, None
        async with self._using() as client:
            for _ in range(_MAX_PAGES):
                page = await client.list_tools(cursor=cursor, cache_mode="refresh" if cursor is None else "use")
                found += map(_text, page.tools)
                size += sum(len(tool.model_dump_json()) for tool in page.tools)
                if len(found) > MAX_TOOLS_OF_SERVER or size > _MAX_DEFINITIONS_BYTES:
                    raise self._failed(
                        f"it has more than {MAX_TOOLS_OF_SERVER} tools, or more than "
                        f"{_MAX_DEFINITIONS_BYTES // 2**20} MiB of definitions"
                    )
                cursor = page.next_cursor
                if not cursor:
                    break
        # Of two with one name, a call reaches only one.
        return list({tool.name: tool for tool in found}.values())

    async def call(self, tool: str, arguments: Mapping[str, Any], asked: CallingClient | None = None) -> ToolAnswer:
        """Call a tool. What the server refuses is an answer for the model; cancelling this cancels it there.

        ``asked`` is told of the progress, and asked for what the server wants to know meanwhile.
        """

        async def note(progress: float, total: float | None, message: str | None) -> None:
            if asked is not None:
                await asked.progress(progress, total, message)

        async with self._using() as client, self._asking(asked):
            try:
                result = await client.call_tool(
                    tool, dict(arguments), progress_callback=None if asked is None else note
                )
            except MCPError as error:
                if error.error.code in _LOST | _TIMED_OUT:
                    raise
                return ToolAnswer([{"type": "text", "text": error.error.message}], None, is_error=True)
        shown = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return ToolAnswer(shown["content"], shown.get("structuredContent"), is_error=bool(result.is_error))

    @contextlib.asynccontextmanager
    async def _asking(self, asked: CallingClient | None) -> AsyncIterator[None]:
        self._asked.append(asked)
        token = _asked_here.set(asked)
        try:
            yield
        finally:
            _asked_here.reset(token)
            self._asked.remove(asked)

    async def _ask(self, method: str, params: types.RequestParams) -> dict[str, Any] | None:
        """Return the answer of the client whose call a request belongs to; None if there is none.

        Servers of versions with a handshake do not say over stdio which call they ask for; of several, nobody is asked.
        """
        asked = _asked_here.get() or (self._asked[0] if len(self._asked) == 1 else None)
        if asked is None:
            return None
        try:
            return await asked.ask(method, params.model_dump(mode="json", by_alias=True, exclude_none=True))
        except (MCPError, WeftlineError, TimeoutError, ValidationError):
            return None

    async def _elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        answer = await self._ask("elicitation/create", params)
        return types.ElicitResult(action="cancel") if answer is None else types.ElicitResult.model_validate(answer)

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        del context
        answer = await self._ask("sampling/createMessage", params)
        if answer is None:
            return types.ErrorData(code=types.INVALID_REQUEST, message="The client of this call samples no messages")
        return types.CreateMessageResult.model_validate(answer)

    @contextlib.asynccontextmanager
    async def _using(self) -> AsyncIterator[Client]:
        """Use the open connection; what the server does wrong is its failure, and not that of the caller."""
        client = await asyncio.shield(self._opened)
        self.calls += 1
        try:
            yield client
        except MCPError as error:
            if error.error.code in _TIMED_OUT:
                raise self._failed("it did not answer in time") from error
            self._ending.set()
            raise self._failed("it ended the connection" if error.error.code in _LOST else "it refused") from error
        except ValidationError as error:
            raise self._failed("it does not answer as MCP demands") from error
        finally:
            self.calls -= 1
            self.used_at = self._loop.time()

    async def _hold(self) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._client(stack))
                self._opened.set_result(client)
                while self.calls or self.used_at + self._idle_seconds > self._loop.time():
                    left = self.used_at + self._idle_seconds - self._loop.time()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(max(left, 1)):
                            await self._ending.wait()
                            break
        except Exception as error:  # noqa: BLE001 - whatever a server or its program does must not end the process
            if not self._opened.done():
                self._opened.set_exception(self._failed(_reason(error)))
        finally:
            self._ending.set()
            if not self._opened.done():
                self._opened.cancel()
            elif not self._opened.cancelled():
                # Whoever waited has it; nobody may be waiting any more.
                self._opened.exception()

    async def _client(self, stack: contextlib.AsyncExitStack) -> Client:
        if self._server.kind == "command":
            program, *arguments = split_command(self._server.target)
            # What servers write there may contain anything, and belongs in no log of ours.
            output = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: ASYNC230, PTH123, SIM115 - opening it takes no time
            parameters = StdioServerParameters(command=program, args=arguments, env=dict(self._variables))
            transport = stdio_client(parameters, errlog=output)
        else:
            http = await stack.enter_async_context(self._http())
            transport = streamable_http_client(self._server.target, http_client=http)
        return Client(
            transport,
            read_timeout_seconds=CALL_SECONDS,
            message_handler=self._note,
            elicitation_callback=self._elicit,
            sampling_callback=self._sample,
        )

    def _http(self) -> httpx2.AsyncClient:
        transport = httpx2.AsyncHTTPTransport(trust_env=False)
        # The transport takes no network of ours; connections go to addresses that were checked.
        transport._pool = httpcore2.AsyncConnectionPool(  # noqa: SLF001
            ssl_context=httpcore2.default_ssl_context(), network_backend=CheckedNetwork(self._reach)
        )
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=CALL_SECONDS)
        return httpx2.AsyncClient(transport=transport, headers=dict(self._variables), timeout=timeout, trust_env=False)

    async def _note(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_tools_changed()

    def _failed(self, reason: str) -> GatewayServerFailed:
        return GatewayServerFailed(f"The MCP server '{self._server.name}' failed: {reason}.", name=self._server.name)


def _text(tool: types.Tool) -> ToolText:
    return ToolText(
        name=tool.name,
        description=tool.description or "",
        input_schema=dict(tool.input_schema),
        read_only=bool(tool.annotations and tool.annotations.read_only_hint),
    )


def _reason(error: BaseException) -> str:
    """Return the kind of a failure; its text may quote secrets or the server."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return "there is no such program"
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, MCPError):
        return "it ended the connection" if error.error.code in _LOST else "it does not answer as MCP demands"
    if isinstance(error, OSError | httpx2.TransportError):
        return "it cannot be reached"
    return "it does not answer as MCP demands"
