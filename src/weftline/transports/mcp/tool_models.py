"""Tools in the SDK's form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mcp_types as types
import msgspec

from weftline.prompts.gateway.operations import ToolCalled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.app.tools.toolbox import ToolView

_MAX_STRUCTURED_BYTES = 256 * 1024


def tool_model(view: ToolView) -> types.Tool:
    """Return a tool as tools/list describes it."""
    return types.Tool(
        name=view.name,
        description=view.description,
        input_schema=view.input_schema,
        annotations=types.ToolAnnotations(read_only_hint=view.read_only, open_world_hint=False),
    )


def shown_warning(warning: str) -> str:
    return f"Warning: {warning}"


def tool_result(content: msgspec.Struct, *, is_error: bool, warnings: Sequence[str] = ()) -> types.CallToolResult:
    """Return the answer of a tool call, as text and as structured content; warnings are further texts."""
    if isinstance(content, ToolCalled):
        return _forwarded_result(content, warnings)
    encoded = msgspec.json.encode(content)
    return types.CallToolResult(
        content=[types.TextContent(text=text) for text in (encoded.decode(), *map(shown_warning, warnings))],
        # The SDK goes through it value by value.
        structured_content=None if len(encoded) > _MAX_STRUCTURED_BYTES else msgspec.json.decode(encoded),
        is_error=is_error,
    )


def _forwarded_result(answer: ToolCalled, warnings: Sequence[str]) -> types.CallToolResult:
    """Return the answer of a server behind the gateway as that server gave it."""
    notes = [{"type": "text", "text": shown_warning(warning)} for warning in warnings]
    return types.CallToolResult.model_validate(
        {
            "content": [*answer.content, *notes],
            "structuredContent": answer.structured,
            "isError": answer.is_error,
        }
    )
