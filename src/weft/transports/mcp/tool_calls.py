"""Execution of a tool call, on the fast path and in the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from weft.capabilities.sessions.model import ALL_SESSIONS
from weft.kernel.errors import WeftError, render_hint, tool_reference
from weft.kernel.operation import SessionUse
from weft.transports.http.http_io import error_body
from weft.transports.tools import works_in_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from weft.app.app import App
    from weft.kernel.errors import ErrorBody
    from weft.transports.mcp.caller import McpCaller
    from weft.transports.tools import Toolbox


class ToolAnswer(NamedTuple):
    """Result of a tool call, or an error that a model can act on."""

    content: msgspec.Struct
    is_error: bool


class ToolCalls:
    """Calls the operation of a tool call, in the session its connection is bound to."""

    def __init__(self, app: App, toolbox: Toolbox) -> None:
        self._app = app
        self._toolbox = toolbox

    async def __call__(self, caller: McpCaller, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        try:
            operation, raw = self._toolbox.resolve(name, arguments)
            if works_in_session(operation):
                raw = caller.bound(raw)
            elif operation.session is SessionUse.MAY_NAME and raw.get("session_id") not in (None, ALL_SESSIONS):
                caller.check(raw["session_id"])
            response = await self._app.call(operation, caller.with_contexts(raw), caller.call_context)
        except WeftError as error:
            return ToolAnswer(self._error_body(error), is_error=True)
        return ToolAnswer(response, is_error=False)

    def _error_body(self, error: WeftError) -> ErrorBody:
        """Return an error whose hint names tools."""
        body = error_body(error, self._app.clock)
        hints = [render_hint(hint, self._app.registry, tool_reference) for hint in body.suggestions]
        return structs.replace(body, suggestions=hints)
