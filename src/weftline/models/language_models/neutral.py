"""The neutral form: messages and tools as Weftline itself represents them."""

from __future__ import annotations

from typing import Any

import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.kernel.json_input import encode_json_field
from weftline.models.language_models.content import list_at, text_at
from weftline.models.language_models.model import ConversationMessage, Prompt, ToolDefinition
from weftline.models.language_models.rendering import ParsedConversation, check_tool_names


def parse(messages: object, *, system: object = None, tools: object = None) -> ParsedConversation:
    """Read messages and tools in neutral form."""
    for name, value in (("messages", messages), ("system", system), ("tools", tools)):
        encode_json_field(name, value)
    found = [
        _converted(given, ConversationMessage, f"messages[{at}]")
        for at, given in enumerate(list_at(messages, "messages"))
    ]
    if system is not None:
        found.insert(0, ConversationMessage(role="system", content=text_at(system, "system", required=False)))
    given_tools = [] if tools is None else list_at(tools, "tools")
    defined = [_converted(given, ToolDefinition, f"tools[{at}]") for at, given in enumerate(given_tools)]
    return ParsedConversation(found, check_tool_names(defined))


def render(prompt: Prompt) -> dict[str, Any]:
    """Return a prompt as plain JSON: messages in order, nothing merged, dropped or marked."""
    messages = [msgspec.to_builtins(message) for block in prompt.blocks for message in block.messages]
    return {
        "model": prompt.model,
        "messages": messages,
        "tools": [msgspec.to_builtins(tool) for tool in sorted(prompt.tools, key=lambda tool: tool.name)],
        "max_output_tokens": prompt.max_output_tokens,
    }


def _converted(given: object, kind: Any, path: str) -> Any:  # noqa: ANN401 - a struct and its type
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        field = path + place.rstrip("`")
        raise InvalidInput(f"{field}: {message}", field=field) from error
