"""What servers behind the gateway ask of the client of a call while it runs, and tell it: progress, forms, sampling.

Protocol versions with a handshake have requests for it, sent on the stream of the call. Since 2026-07-28 the question
is the result of the call, and the client makes the call again with the answer; until then the call waits here.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from weftline.app.tools.toolbox import WEFTLINE_TOOLS
from weftline.prompts.gateway.model import SEPARATOR, CallingClient, calling_client
from weftline.transports.mcp.caller import is_modern
from weftline.transports.mcp.elicitation import can_elicit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from weftline.transports.mcp.caller import Context

    Result = types.CallToolResult | types.InputRequiredResult

# A person answers within this time, or the server is told that nobody does.
ANSWER_SECONDS = 300.0
_MAX_WAITING = 1_000
_INPUT = "server"
_REQUESTS: dict[str, type[types.ElicitRequest | types.CreateMessageRequest]] = {
    "elicitation/create": types.ElicitRequest,
    "sampling/createMessage": types.CreateMessageRequest,
}
_RESULTS: dict[str, type[types.ElicitResult | types.CreateMessageResult]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
}


class _RunningCall:
    """A call in a task of its own, which may ask the client between the requests that the client makes for it."""

    def __init__(
        self,
        owner: tuple[str, ...],
        params: types.CallToolRequestParams,
        context: Context,
        call: Callable[[_RunningCall], Coroutine[Any, Any, Result]],
    ) -> None:
        self.owner = owner
        self.called = params.name, params.arguments
        self.context = context
        self.task = asyncio.create_task(call(self), name="weftline-gateway-call")
        self.question: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asking = asyncio.Lock()
        self._abandoned = False

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        async with self._asking:
            if self._abandoned:
                raise MCPError(types.REQUEST_TIMEOUT, "The client of the call does not answer")
            self.answer = asyncio.get_running_loop().create_future()
            self.question.set_result(_REQUESTS[method].model_validate({"method": method, "params": params}))
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await self.answer
            except TimeoutError:
                self._abandoned = True
                raise
        if not isinstance(answer, _RESULTS[method]):
            raise MCPError(types.INVALID_PARAMS, "The client did not answer what it was asked")
        return _plain(answer)

    async def next(self) -> Any:  # noqa: ANN401 - a result, or the question of the server
        """Wait for the result, or for the next question."""
        try:
            await asyncio.wait({self.task, self.question}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        if self.task.done():
            return await self.task
        question, self.question = self.question.result(), asyncio.get_running_loop().create_future()
        return question


class Relay:
    """Passes on what servers tell and ask, to the client that made the call and to nobody else."""

    def __init__(self) -> None:
        self._running: dict[str, _RunningCall] = {}

    async def run(
        self,
        context: Context,
        params: types.CallToolRequestParams,
        owner: tuple[str, ...],
        call: Callable[[], Awaitable[Result]],
    ) -> Result:
        """Make a call, or go on with one that asked its client."""
        if not is_modern(context):
            with _client(CallingClient(context.session.report_progress, _asking_on_stream(context))):
                return await call()
        running = self._running.pop(params.request_state or "", None)
        if running is not None and (running.owner, running.called) == (owner, (params.name, params.arguments)):
            running.context = context
            if not running.answer.done():
                running.answer.set_result((params.input_responses or {}).get(_INPUT))
        else:
            running = self._start(context, params, owner, call)
        found = await running.next()
        if isinstance(found, types.CallToolResult | types.InputRequiredResult):
            return found
        return self._question(running, found)

    def _start(
        self,
        context: Context,
        params: types.CallToolRequestParams,
        owner: tuple[str, ...],
        call: Callable[[], Awaitable[Result]],
    ) -> _RunningCall:
        """Begin a call, in a context of its own."""

        def client_of(running: _RunningCall) -> CallingClient:
            async def progress(done: float, total: float | None, message: str | None) -> None:
                await running.context.session.report_progress(done, total, message)

            async def ask(method: str, given: dict[str, Any]) -> dict[str, Any]:
                if len(self._running) >= _MAX_WAITING or not _offers(context, method, given):
                    raise MCPError(types.METHOD_NOT_FOUND, "The client of the call cannot be asked")
                return await running.ask(method, given)

            return CallingClient(progress, ask)

        async def run(running: _RunningCall) -> Result:
            calling_client.set(client_of(running))
            return await call()

        return _RunningCall(owner, params, context, run)

    def _question(self, running: _RunningCall, question: Any) -> types.InputRequiredResult:  # noqa: ANN401 - as asked
        state = secrets.token_urlsafe(24)
        self._running[state] = running
        running.task.add_done_callback(lambda _: self._running.pop(state, None))
        return types.InputRequiredResult(input_requests={_INPUT: question}, request_state=state)


def calls_server(params: types.CallToolRequestParams) -> bool:
    """Return whether a call, direct or through weftline_tools, is of a tool of a server behind the gateway."""
    named = (params.arguments or {}).get("name") if params.name == WEFTLINE_TOOLS else params.name
    return isinstance(named, str) and SEPARATOR in named


def _asking_on_stream(context: Context) -> Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]:
    async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if not context.session.can_send_request or not _offers(context, method, params):
            raise MCPError(types.METHOD_NOT_FOUND, "The client of the call cannot be asked")
        request = _REQUESTS[method].model_validate({"method": method, "params": params})
        metadata = ServerMessageMetadata(related_request_id=context.request_id)
        return _plain(await context.session.send_request(request, _RESULTS[method], ANSWER_SECONDS, metadata))

    return ask


def _offers(context: Context, method: str, params: dict[str, Any]) -> bool:
    """Return whether a client can be asked for something."""
    offered = context.session.client_capabilities
    if offered is None:
        return False
    if method == "elicitation/create" and params.get("mode") == "url":
        return offered.elicitation is not None and offered.elicitation.url is not None
    return can_elicit(offered) if method == "elicitation/create" else offered.sampling is not None


@contextlib.contextmanager
def _client(client: CallingClient) -> Iterator[None]:
    token = calling_client.set(client)
    try:
        yield
    finally:
        calling_client.reset(token)


def _plain(answer: types.ElicitResult | types.CreateMessageResult) -> dict[str, Any]:
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)
