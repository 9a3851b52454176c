"""The wire form of OpenAI Responses: a list of items instead of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

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
    unmarked,
)
from weftline.models.language_models.rendering import (
    BREAKPOINT,
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

FORM: Final = "openai_responses"
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_CALLS = ("arguments", "input", "action", "operation")


def parse(messages: object, *, system: object = None, tools: object = None) -> ParsedConversation:
    """Read the ``input`` and ``instructions`` (system) of a request, and its tools."""
    for name, value in (("input", messages), ("instructions", system), ("tools", tools)):
        encode_json_field(name, value)
    if isinstance(messages, str):
        found = [ConversationMessage(role="user", content=messages)]
    else:
        found = [_parsed(object_at(item, f"input[{at}]"), f"input[{at}]") for at, item in enumerate(_items(messages))]
    if system is not None:
        found.insert(0, ConversationMessage(role="system", content=text_at(system, "instructions", required=False)))
    return ParsedConversation(found, parse_tools(tools))


def parse_tools(tools: object) -> list[ToolDefinition]:
    return parsed_tools(tools, _parsed_tool)


def render(prompt: Prompt, placed: Sequence[PlacedMessage], info: ModelInfo, options: RenderOptions) -> dict[str, Any]:
    """Return the body of a request. Instructions are items, because ``instructions`` takes no breakpoint."""
    check_ttl(info.cache, options.ttl)
    items = [(each.block, item) for each in placed for item in _rendered(each, info)]
    tools = [_rendered_tool(tool) for tool in ordered_tools(prompt, FORM)]
    body: dict[str, Any] = {"model": prompt.model} if prompt.model else {}
    body["input"] = [item for _, item in items]
    if tools:
        body["tools"] = tools
    body["max_output_tokens"] = prompt.max_output_tokens
    if info.cache.keyed:
        body["prompt_cache_key"] = routing_key(prompt, options)
    chosen = openai_breakpoints(prompt, items, tools, _markable, info, options)
    for position in chosen.positions:
        item = body["input"][position]
        last = {**item["content"][-1], "prompt_cache_breakpoint": BREAKPOINT}
        body["input"][position] = {**item, "content": [*item["content"][:-1], last]}
    return body | chosen.options


def _items(given: object) -> list[Any]:
    return list_at(given, "input")


def _parsed(item: dict[str, Any], path: str) -> ConversationMessage:
    kind = item.get("type", "message" if "role" in item else None)
    kind = text_at(kind, f"{path}.type")
    if kind == "message":
        return _parsed_message(item, path)
    if "call_id" in item:
        call_id = text_at(item["call_id"], f"{path}.call_id")
        if kind.endswith("_output"):
            return _parsed_output(item, call_id)
        return _parsed_call(item, kind, call_id, path)
    if kind in {"function_call", "function_call_output"}:
        text_at(None, f"{path}.call_id")
    role: Role = "user" if kind.endswith(("_response", "_output")) else "assistant"
    return ConversationMessage(role=role, content=text_of(item.get("content")), form=FORM, native=item)


def _parsed_message(item: dict[str, Any], path: str) -> ConversationMessage:
    role = _ROLES[choice_at(item.get("role"), tuple(_ROLES), f"{path}.role")]
    content = content_at(item.get("content"), f"{path}.content")
    message = ConversationMessage(role=role, content=text_of(content))
    blocks = _text_blocks(role, content or "") if not isinstance(content, list) else content
    given = {"type": "message", **item, "content": blocks}
    return keep_native(message, FORM, given, _message_item(message))


def _parsed_call(item: dict[str, Any], kind: str, call_id: str, path: str) -> ConversationMessage:
    written = next((item[name] for name in _CALLS if name in item), "")
    call = ToolCall(
        call_id=call_id,
        name=text_at(item.get("name", kind if kind != "function_call" else None), f"{path}.name"),
        arguments=written if isinstance(written, str) else msgspec.json.encode(written).decode(),
    )
    return keep_native(ConversationMessage(role="assistant", tool_calls=(call,)), FORM, item, _call_item(call))


def _parsed_output(item: dict[str, Any], call_id: str) -> ConversationMessage:
    output = item.get("output")
    if isinstance(output, list):
        output = [unmarked(block) if isinstance(block, dict) else block for block in output]
        item = {**item, "output": output}
    text = output if isinstance(output, str) else text_of(output) if isinstance(output, list) else ""
    message = ConversationMessage(role="tool", content=text, tool_call_id=call_id)
    return keep_native(message, FORM, item, _output_item(message))


def _parsed_tool(given: dict[str, Any], at: int) -> ToolDefinition:
    kind = text_at(given.get("type"), f"tools[{at}].type")
    if kind != "function":
        label = given.get("name") or given.get("server_label")
        return ToolDefinition(name=f"{kind}:{label}" if label else kind, form=FORM, native=given)
    tool = function_tool(given, f"tools[{at}]")
    return with_native(tool, given, _expressed_tool(tool), FORM)


def _expressed_tool(tool: ToolDefinition) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description:
        fields["description"] = tool.description
    # Without strict, the provider refuses schemas that are not written for its strict mode.
    return {**fields, "parameters": input_schema(tool), "strict": False}


def _rendered_tool(tool: ToolDefinition) -> dict[str, Any]:
    return dict(tool.native) if tool.form == FORM and tool.native is not None else _expressed_tool(tool)


def _text_blocks(role: Role, text: str) -> list[dict[str, Any]]:
    return [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]


def _message_item(message: ConversationMessage) -> dict[str, Any]:
    return {"type": "message", "role": message.role, "content": _text_blocks(message.role, message.content)}


def _call_item(call: ToolCall) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}


def _output_item(message: ConversationMessage) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.content}


def _rendered(placed: PlacedMessage, info: ModelInfo) -> list[dict[str, Any]]:
    message = placed.message
    native = own_native(message, FORM)
    if native is not None:
        return [dict(native)]
    found = with_notes(placed.parts, lambda media: _carries(info, media))
    has_media = any(isinstance(part, Media) for part in found)
    if message.role == "tool":
        item = _output_item(message)
        return [item | {"output": [_block(part) for part in found] if has_media else placed.text}]
    if message.role == "assistant":
        text = placed.text
        said = [{"type": "message", "role": "assistant", "content": _text_blocks("assistant", text)}] if text else []
        return [*said, *(_call_item(call) for call in message.tool_calls)]
    blocks = [_block(part) for part in found] if has_media else _text_blocks(message.role, placed.text)
    return [{"type": "message", "role": message.role, "content": blocks}]


def _carries(info: ModelInfo, media: Media) -> bool:
    return accepts(info, media) and media.kind != "audio"


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.kind == "image":
        return {"type": "input_image", "image_url": data_url(part)}
    if part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.name or "file", "file_data": data_url(part)}


def _markable(item: dict[str, Any]) -> bool:
    return item.get("type") == "message" and item.get("role") != "assistant" and bool(item.get("content"))


def _parts(native: dict[str, Any], role: Role) -> list[Part]:
    return (parts(native.get("output")) if role == "tool" else []) or parts(native.get("content"))


def _segments(body: dict[str, Any]) -> Iterator[RequestSegment]:
    if body.get("instructions"):
        system = {"text": body["instructions"]}
        yield RequestSegment("system", system, system)
    items = body.get("input", ())
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        yield from openai_segments(item)


RULES = FormRules(
    form=FORM,
    parse=parse,
    render=render,
    messages_field="input",
    system_field="instructions",
    outside_fields=("prompt", "previous_response_id", "conversation"),
    parts=_parts,
    change_texts=change_texts,
    message_of=lambda message, content: {"role": message.role, "content": content},
    read_native=lambda native, _: parse([native]).messages,
    segments=_segments,
    fields=TYPED_FIELDS,
    naming_fields=TYPED_NAMING_FIELDS,
)
