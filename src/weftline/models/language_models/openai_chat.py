"""The wire form of OpenAI Chat Completions, also spoken by most servers of open models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from weftline.kernel.json_input import encode_json_field
from weftline.models.language_models.catalog import ModelInfo
from weftline.models.language_models.content import (
    ConversationMessage,
    Media,
    Part,
    Prompt,
    Role,
    ToolCall,
    ToolDefinition,
    change_texts,
    choice_at,
    content_at,
    data_url,
    list_at,
    object_at,
    parts,
    text_at,
    text_of,
)
from weftline.models.language_models.rendering import (
    BREAKPOINT,
    SYSTEM_NOTE,
    TYPED_FIELDS,
    TYPED_NAMING_FIELDS,
    FormRules,
    ParsedConversation,
    PlacedMessage,
    RenderOptions,
    RequestSegment,
    accepts,
    check_ttl,
    function_tool,
    input_schema,
    keep_native,
    openai_breakpoints,
    openai_segments,
    ordered_tools,
    own_native,
    parsed_tools,
    routing_key,
    with_native,
    with_notes,
)

FORM: Final = "openai_chat"
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def parse(messages: object, *, system: object = None, tools: object = None) -> ParsedConversation:
    """Read the messages and tools of a request. ``system`` is text that precedes the messages."""
    for name, value in (("messages", messages), ("system", system), ("tools", tools)):
        encode_json_field(name, value)
    found = [_parsed(given, f"messages[{at}]") for at, given in enumerate(list_at(messages, "messages"))]
    if system is not None:
        found.insert(0, ConversationMessage(role="system", content=text_at(system, "system", required=False)))
    return ParsedConversation(found, parse_tools(tools))


def parse_tools(tools: object) -> list[ToolDefinition]:
    return parsed_tools(tools, _parsed_tool)


def render(prompt: Prompt, placed: Sequence[PlacedMessage], info: ModelInfo, options: RenderOptions) -> dict[str, Any]:
    """Return the body of a request."""
    check_ttl(info.cache, options.ttl)
    if info.provider != "openai":
        placed = _alternating(placed)
    rendered = _merge_calls([(each.block, _rendered(each, info)) for each in placed])
    body: dict[str, Any] = {"model": prompt.model} if prompt.model else {}
    body["messages"] = [wire for _, wire in rendered]
    tools = [_rendered_tool(tool) for tool in ordered_tools(prompt, FORM)]
    if tools:
        body["tools"] = tools
    body["max_completion_tokens" if info.provider == "openai" else "max_tokens"] = prompt.max_output_tokens
    if info.cache.keyed:
        body["prompt_cache_key"] = routing_key(prompt, options)
    chosen = openai_breakpoints(prompt, rendered, tools, _markable, info, options)
    for position in chosen.positions:
        body["messages"][position] = _marked(body["messages"][position])
    return body | chosen.options


def _parsed(given: object, path: str) -> ConversationMessage:
    wire = {name: value for name, value in object_at(given, path).items() if value is not None}
    role = _ROLES[choice_at(wire.get("role"), tuple(_ROLES), f"{path}.role")]
    content = content_at(wire.get("content"), f"{path}.content")
    if isinstance(content, list) and len(content) == 1 and content[0].keys() == {"type", "text"}:
        content = str(content[0]["text"] or "")
    calls = tuple(
        _parsed_call(object_at(call, f"{path}.tool_calls[{at}]"), f"{path}.tool_calls[{at}]")
        for at, call in enumerate(list_at(wire.get("tool_calls", ()), f"{path}.tool_calls"))
    )
    message = ConversationMessage(
        role=role,
        content=text_of(content),
        name=text_at(wire.get("name"), f"{path}.name", required=False) or None,
        tool_calls=calls,
        tool_call_id=text_at(wire.get("tool_call_id"), f"{path}.tool_call_id") if role == "tool" else None,
    )
    if "content" in wire:
        wire["content"] = content
    if not calls:
        wire.pop("tool_calls", None)
    if not content:
        wire.pop("content", None)
    expected = _expressed(message)
    if not message.content:
        expected.pop("content", None)
    return keep_native(message, FORM, wire, expected)


def _parsed_call(call: dict[str, Any], path: str) -> ToolCall:
    kind = text_at(call.get("type", "function"), f"{path}.type")
    details = object_at(call.get(kind), f"{path}.{kind}")
    written = details.get("arguments" if kind == "function" else "input")
    return ToolCall(
        call_id=text_at(call.get("id"), f"{path}.id"),
        name=text_at(details.get("name"), f"{path}.{kind}.name"),
        arguments=text_at(written, f"{path}.{kind}.arguments", required=False),
    )


def _parsed_tool(given: dict[str, Any], at: int) -> ToolDefinition:
    kind = text_at(given.get("type", "function"), f"tools[{at}].type")
    if kind != "function":
        inner = given.get(kind)
        name = inner.get("name") if isinstance(inner, dict) else None
        return ToolDefinition(name=str(name or kind), form=FORM, native=given)
    details = object_at(given.get("function"), f"tools[{at}].function")
    tool = function_tool(details, f"tools[{at}].function")
    return with_native(tool, given, _expressed_tool(tool), FORM)


def _expressed_tool(tool: ToolDefinition) -> dict[str, Any]:
    details: dict[str, Any] = {"name": tool.name}
    if tool.description:
        details["description"] = tool.description
    return {"type": "function", "function": {**details, "parameters": input_schema(tool)}}


def _rendered_tool(tool: ToolDefinition) -> dict[str, Any]:
    return tool.native if tool.form == FORM and tool.native is not None else _expressed_tool(tool)


def _expressed(message: ConversationMessage) -> dict[str, Any]:
    """Return a message in this form, from its neutral fields alone."""
    wire: dict[str, Any] = {"role": message.role}
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.content or not message.tool_calls:
        wire["content"] = message.content
    if message.name is not None:
        wire["name"] = message.name
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return wire


def _rendered(placed: PlacedMessage, info: ModelInfo) -> dict[str, Any]:
    message = placed.message
    native = own_native(message, FORM)
    if native is not None:
        return dict(native)
    wire = _expressed(message)
    if any(isinstance(part, Media) for part in placed.parts):
        carried = with_notes(placed.parts, lambda media: message.role == "user" and _carries(info, media))
        wire["content"] = [_block(part) for part in carried] if message.role == "user" else placed.text
    return wire


def _carries(info: ModelInfo, media: Media) -> bool:
    return accepts(info, media) and (media.kind == "image" or media.data is not None)


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": data_url(part)}}
    if part.kind == "audio":
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.media_type.split("/")[-1]}}
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": data_url(part)}}


def _merge_calls(rendered: Sequence[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    """Join messages of the assistant after one with tool calls: their results must follow directly.

    Messages of the assistant without text and calls, such as reasoning of another provider, are left out.
    """
    merged: list[tuple[int, dict[str, Any]]] = []
    for block, wire in rendered:
        if wire["role"] == "assistant" and wire.keys() <= {"role", "content"} and not wire.get("content"):
            continue
        before = merged[-1][1] if merged else {}
        if wire["role"] == before.get("role") == "assistant" and before.get("tool_calls"):
            texts = [text for text in (before.get("content"), wire.get("content")) if isinstance(text, str) and text]
            joined = {**before, **wire, "tool_calls": [*before["tool_calls"], *wire.get("tool_calls", [])]}
            merged[-1] = (block, joined | ({"content": "\n\n".join(texts)} if texts else {}))
        else:
            merged.append((block, wire))
    return merged


def _alternating(placed: Sequence[PlacedMessage]) -> list[PlacedMessage]:
    """Join what templates of open models refuse: several system messages, one in the middle, users after users."""
    joined: list[PlacedMessage] = []
    for each in placed:
        message = each.message
        if message.role == "system" and message.native is not None:
            message = ConversationMessage(role="system", content=each.text)
        if message.role == "system" and any(before.message.role != "system" for before in joined):
            message = ConversationMessage(role="user", content=SYSTEM_NOTE.format(message.content))
        before = joined[-1].message if joined else None
        if before is not None and _joins(before, message):
            text = f"{before.content}\n\n{message.content}"
            joined[-1] = PlacedMessage.of(each.block, ConversationMessage(role=message.role, content=text))
        else:
            joined.append(each if message is each.message else PlacedMessage.of(each.block, message))
    return joined


def _joins(before: ConversationMessage, message: ConversationMessage) -> bool:
    return (
        before.role == message.role
        and message.role in {"system", "user"}
        and before.native is None
        and message.native is None
        and before.name == message.name
    )


def _markable(wire: dict[str, Any]) -> bool:
    return wire["role"] != "assistant" and bool(wire.get("content"))


def _marked(wire: dict[str, Any]) -> dict[str, Any]:
    content = wire["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    return {**wire, "content": [*blocks[:-1], {**blocks[-1], "prompt_cache_breakpoint": BREAKPOINT}]}


def _message_of(message: ConversationMessage, content: list[dict[str, Any]]) -> dict[str, Any]:
    about = {"name": message.name, "tool_call_id": message.tool_call_id}
    return {"role": message.role, "content": content} | {name: each for name, each in about.items() if each is not None}


def _segments(body: dict[str, Any]) -> Iterator[RequestSegment]:
    for message in body.get("messages", ()):
        yield from openai_segments(message)


RULES = FormRules(
    form=FORM,
    parse=parse,
    render=render,
    messages_field="messages",
    system_field="",
    outside_fields=("functions",),
    parts=lambda native, _: parts(native.get("content")),
    change_texts=change_texts,
    message_of=_message_of,
    read_native=lambda native, _: parse([native]).messages,
    segments=_segments,
    fields=TYPED_FIELDS,
    naming_fields=TYPED_NAMING_FIELDS,
)
