"""Asks the user of an MCP client to approve a held call.

Protocol versions with a handshake have a request for it, sent on the stream of the call. Since 2026-07-28 the question
is the result of the call (``InputRequiredResult``), and the client makes the call again with the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from weftline.transports.mcp.caller import connection_of, is_modern

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from weftline.app.held_calls import ClientAnswer
    from weftline.safety.approvals.model import HeldCall
    from weftline.transports.mcp.caller import Context

_INPUT = "approval"
_FIELD = "approve"
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        _FIELD: {"type": "boolean", "title": "Approve", "description": "Whether the agent may do this, once."}
    },
    "required": [_FIELD],
}
# A person cannot judge more; the whole request is in `approval.show`.
_MAX_SHOWN = 2_000


class SessionElicitation:
    """Asks with a request, while the call waits."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def ask(self, held: HeldCall) -> ClientAnswer:
        session = self._context.session
        try:
            result = await session.elicit_form(_question(held), _SCHEMA, related_request_id=self._context.request_id)
        except MCPError:
            return "unanswered"
        return _decision(result)


class ResultElicitation:
    """Asks with the result of a call; ``requested`` is the held call to ask for."""

    def __init__(self, params: types.CallToolRequestParams) -> None:
        self._params = params
        self.requested: HeldCall | None = None

    async def ask(self, held: HeldCall) -> ClientAnswer:
        # The state ties the answer to the call that was asked for.
        if self._params.request_state == held.approval_id:
            answer = (self._params.input_responses or {}).get(_INPUT)
            if isinstance(answer, types.ElicitResult):
                return _decision(answer)
        self.requested = held
        return "deferred"

    def result(self, held: HeldCall) -> types.InputRequiredResult:
        params = types.ElicitRequestFormParams(message=_question(held), requested_schema=_SCHEMA)
        return types.InputRequiredResult(
            input_requests={_INPUT: types.ElicitRequest(params=params)}, request_state=held.approval_id
        )


class PassedOn:
    """Stands for a client on the fast path, which cannot ask: ``requested`` tells that the SDK has to."""

    def __init__(self) -> None:
        self.requested = False

    async def ask(self, held: HeldCall) -> ClientAnswer:
        del held
        self.requested = True
        return "deferred"


def client_approver(
    context: Context, params: types.CallToolRequestParams
) -> SessionElicitation | ResultElicitation | None:
    """Return what asks the user of the client that makes a call; None if it cannot be asked."""
    if not can_elicit(context.session.client_capabilities):
        return None
    if is_modern(context):
        return ResultElicitation(params)
    return SessionElicitation(context) if context.session.can_send_request else None


def can_elicit(capabilities: types.ClientCapabilities | None) -> bool:
    """Return whether a client shows forms; one that declares no mode shows them, as in protocol 2025-06-18."""
    offered = None if capabilities is None else capabilities.elicitation
    return offered is not None and (offered.form is not None or offered.url is None)


class StreamsForQuestions:
    """Middleware: answers calls of clients that can be asked as a stream, because the question needs one."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "initialize":
            # The connection knows the client's capabilities only after this.
            client = types.InitializeRequestParams.model_validate(ctx.params, by_name=False)
            # The SDK has no public access to its transports; its minor version is pinned for this.
            transport = self._manager._server_instances.get(connection_of(ctx.session).session_id or "")  # noqa: SLF001
            if transport is not None and (can_elicit(client.capabilities) or client.capabilities.sampling is not None):
                transport.is_json_response_enabled = False
        return result


def _question(held: HeldCall) -> str:
    request = held.request if len(held.request) <= _MAX_SHOWN else f"{held.request[:_MAX_SHOWN]}…"
    return f"{held.reason.text}\n\n{held.caller_id} calls {held.operation}: {request}"


def _decision(result: types.ElicitResult) -> ClientAnswer:
    if result.action == "accept":
        return "approved" if (result.content or {}).get(_FIELD) is True else "rejected"
    return "rejected" if result.action == "decline" else "unanswered"
