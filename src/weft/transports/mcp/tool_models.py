"""Tools in the SDK's form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mcp_types as types
import msgspec

if TYPE_CHECKING:
    from weft.app.tools.toolbox import ToolView


def tool_model(view: ToolView) -> types.Tool:
    """Return a tool as tools/list describes it."""
    return types.Tool(
        name=view.name,
        description=view.description,
        input_schema=view.input_schema,
        annotations=types.ToolAnnotations(read_only_hint=view.read_only, open_world_hint=False),
    )


def tool_result(content: msgspec.Struct, *, is_error: bool) -> types.CallToolResult:
    """Return the answer of a tool call, as text and as structured content."""
    encoded = msgspec.json.encode(content)
    return types.CallToolResult(
        content=[types.TextContent(text=encoded.decode())],
        structured_content=msgspec.json.decode(encoded),
        is_error=is_error,
    )
