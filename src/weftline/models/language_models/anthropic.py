"""The wire form of Anthropic Messages: system apart, roles alternate, tool results are content of the user."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.kernel.json_input import encode_json_field
from weftline.models.language_models.catalog import ModelInfo
from weftline.models.language_models.content import (
    BlockKind,
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
    list_at,
    object_at,
    parts,
    text_at,
    text_of,
    unmarked,
)
from weftline.models.language_models.rendering import (
    OMITTED,
    SYSTEM_NOTE,
    TYPED_FIELDS,
    TYPED_NAMING_FIELDS,
    CachePoint,
    FormRules,
    ParsedConversation,
    PlacedMessage,
    RenderOptions,
    RequestSegment,
    accepts,
    block_ends,
    bridge_gaps,
    check_ttl,
    choose_breakpoints,
    cumulative_tokens,
    input_schema,
    json_arguments,
    keep_native,
    lifetimes,
    ordered_tools,
    own_native,
    parsed_tools,
    text_blocks,
    with_native,
    with_notes,
)

FORM: Final = "anthropic"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_VALID_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")
# A cache cannot end at these.
_UNMARKABLE = {"thinking", "redacted_thinking"}


class _Unit(NamedTuple):
    """A content block of a request, the role of its message, other fields of the message, its block of the prompt."""

    role: str
    content: dict[str, Any]
    block: int
    fields: dict[str, Any]

    @property
    def markable(self) -> bool:
        return self.content.get("type") not in _UNMARKABLE


def parse(messages: object, *, system: object = None, tools: object = None) -> ParsedConversation:
    """Read the system blocks, messages and tools of a request."""
    for name, value in (("messages", messages), ("system", system), ("tools", tools)):
        encode_json_field(name, value)
    found = list(_parsed_system(system))
    for at, given in enumerate(list_at(messages, "messages")):
        found.extend(_parsed(object_at(given, f"messages[{at}]"), f"messages[{at}]"))
    return ParsedConversation(found, parse_tools(tools))


def parse_tools(tools: object) -> list[ToolDefinition]:
    return parsed_tools(tools, _parsed_tool)


def render(prompt: Prompt, placed: Sequence[PlacedMessage], info: ModelInfo, options: RenderOptions) -> dict[str, Any]:
    """Return the body of a request. Leading system messages become ``system``, later ones text of the user."""
    check_ttl(info.cache, options.ttl)
    system, turns = _units(placed, info)
    if not turns:
        raise InvalidInput("blocks: the prompt has no message but system messages", field="blocks")
    if turns[0].role != "user":
        turns.insert(0, _Unit("user", _text_block(OMITTED), turns[0].block, {}))
    turns = _results_first(turns)
    tools = [_rendered_tool(tool) for tool in ordered_tools(prompt, FORM)]
    marks = _marks(prompt, tools, [*system, *turns], info, options)
    before = len(tools)
    body: dict[str, Any] = {"model": prompt.model} if prompt.model else {}
    body["max_tokens"] = prompt.max_output_tokens
    if system:
        body["system"] = [_with_mark(unit.content, marks.get(before + at)) for at, unit in enumerate(system)]
        before += len(system)
    if tools:
        body["tools"] = [_with_mark(tool, marks.get(at)) for at, tool in enumerate(tools)]
    marked = [unit._replace(content=_with_mark(unit.content, marks.get(before + at))) for at, unit in enumerate(turns)]
    body["messages"] = _grouped(marked)
    return body


def _parsed_system(system: object) -> Iterator[ConversationMessage]:
    if system is None:
        return
    content = content_at(system, "system")
    if isinstance(content, str):
        yield ConversationMessage(role="system", content=content)
        return
    for block in content or ():
        message = ConversationMessage(role="system", content=text_of([block]))
        given = {"role": "system", "content": [block]}
        yield keep_native(message, FORM, given, {"role": "system", "content": [_text_block(message.content)]})


def _parsed(given: dict[str, Any], path: str) -> Iterator[ConversationMessage]:
    role = _ROLES[choice_at(given.get("role"), tuple(_ROLES), f"{path}.role")]
    if given.get("content") is None:
        raise InvalidInput(f"{path}.content: is missing", field=f"{path}.content")
    content = content_at(given["content"], f"{path}.content")
    fields = {name: value for name, value in given.items() if name not in {"role", "content"}}
    if isinstance(content, str):
        content = [_text_block(content)] if content else []
    if role == "assistant":
        yield _parsed_assistant(content or [], fields, path)
        return
    at = 0
    for is_result, run in groupby(content or [], key=lambda block: block["type"] == "tool_result"):
        blocks = list(run)
        if is_result:
            for position, block in enumerate(blocks, at):
                yield _parsed_result(block, fields, f"{path}.content[{position}]")
        else:
            yield _kept(ConversationMessage(role=role, content=text_of(blocks)), blocks, fields)
        at += len(blocks)


def _kept(message: ConversationMessage, blocks: list[dict[str, Any]], fields: dict[str, Any]) -> ConversationMessage:
    given = {"role": message.role, "content": blocks, **fields}
    return keep_native(message, FORM, given, {"role": message.role, "content": _expressed(message)})


def _parsed_assistant(blocks: list[dict[str, Any]], fields: dict[str, Any], path: str) -> ConversationMessage:
    calls = tuple(
        ToolCall(
            call_id=text_at(block.get("id"), f"{path}.content[{at}].id"),
            name=text_at(block.get("name"), f"{path}.content[{at}].name"),
            arguments=msgspec.json.encode(object_at(block.get("input"), f"{path}.content[{at}].input")).decode(),
        )
        for at, block in enumerate(blocks)
        if block["type"] == "tool_use"
    )
    return _kept(ConversationMessage(role="assistant", content=text_of(blocks), tool_calls=calls), blocks, fields)


def _parsed_result(block: dict[str, Any], fields: dict[str, Any], path: str) -> ConversationMessage:
    content = content_at(block.get("content"), f"{path}.content")
    if isinstance(content, list) and len(content) == 1 and content[0].keys() == {"type", "text"}:
        content = str(content[0]["text"] or "")
    given = {**block, "content": content or ""}
    message = ConversationMessage(
        role="tool", content=text_of(content), tool_call_id=text_at(block.get("tool_use_id"), f"{path}.tool_use_id")
    )
    return _kept(message, [given], fields)


def _parsed_tool(given: dict[str, Any], at: int) -> ToolDefinition:
    given = unmarked(given)
    name = text_at(given.get("name"), f"tools[{at}].name")
    if given.get("type", "custom") != "custom":
        return ToolDefinition(name=name, form=FORM, native=given)
    tool = ToolDefinition(
        name=name,
        description=text_at(given.get("description"), f"tools[{at}].description", required=False),
        input_schema=object_at(given.get("input_schema"), f"tools[{at}].input_schema"),
    )
    return with_native(tool, given, _expressed_tool(tool), FORM)


def _expressed_tool(tool: ToolDefinition) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": tool.name}
    if tool.description:
        fields["description"] = tool.description
    return {**fields, "input_schema": input_schema(tool)}


def _rendered_tool(tool: ToolDefinition) -> dict[str, Any]:
    return dict(tool.native) if tool.form == FORM and tool.native is not None else _expressed_tool(tool)


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _expressed(message: ConversationMessage) -> list[dict[str, Any]]:
    """Return the content blocks of a message, from its neutral fields alone. Blocks of blank text are refused."""
    if message.role == "tool":
        block = {"type": "tool_result", "tool_use_id": _valid_id(message.tool_call_id or "")}
        return [{**block, "content": message.content}]
    texts = [_text_block(message.content)] if message.content.strip() else []
    calls = [
        {"type": "tool_use", "id": _valid_id(call.call_id), "name": call.name, "input": json_arguments(call)}
        for call in message.tool_calls
    ]
    return [*texts, *calls]


def _valid_id(call_id: str) -> str:
    """Return an id that the provider accepts: itself, or a hash of it."""
    if _VALID_ID.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode()).hexdigest()[:24]


def _units(placed: Sequence[PlacedMessage], info: ModelInfo) -> tuple[list[_Unit], list[_Unit]]:
    """Return the content blocks of the system and of the messages."""
    system: list[_Unit] = []
    turns: list[_Unit] = []
    for each in placed:
        block, message = each.block, each.message
        if message.role == "system" and not turns:
            system.extend(_Unit("system", content, block, {}) for content in _rendered(each, info))
            continue
        is_system = message.role == "system"
        contents = [_text_block(SYSTEM_NOTE.format(each.text))] if is_system else _rendered(each, info)
        role = "assistant" if message.role == "assistant" else "user"
        native = own_native(message, FORM) or {}
        fields = {name: value for name, value in native.items() if name not in {"role", "content"}}
        turns.extend(_Unit(role, content, block, fields) for content in contents)
    return system, turns


def _rendered(placed: PlacedMessage, info: ModelInfo) -> list[dict[str, Any]]:
    message = placed.message
    native = own_native(message, FORM)
    if native is not None:
        return list(native["content"])
    if not any(isinstance(part, Media) for part in placed.parts):
        return _expressed(message)
    carried = with_notes(placed.parts, lambda media: message.role != "assistant" and _carries(info, media))
    blocks = [_block(part) for part in carried]
    if message.role == "tool":
        return [{**_expressed(message)[0], "content": blocks}]
    calls = [block for block in _expressed(message) if block["type"] == "tool_use"]
    return [*blocks, *calls]


def _carries(info: ModelInfo, media: Media) -> bool:
    return accepts(info, media) and media.kind != "audio"


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return _text_block(part)
    if part.url is not None:
        source: dict[str, Any] = {"type": "url", "url": part.url}
    else:
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    return {"type": "image" if part.kind == "image" else "document", "source": source}


def _results_first(turns: Sequence[_Unit]) -> list[_Unit]:
    """Return blocks with tool results at the beginning of their message, where the provider requires them."""
    ordered: list[_Unit] = []
    for _, run in groupby(turns, key=lambda unit: unit.role):
        ordered.extend(sorted(run, key=lambda unit: unit.content.get("type") != "tool_result"))
    return ordered


def _grouped(units: Sequence[_Unit]) -> list[dict[str, Any]]:
    """Join consecutive blocks of one role to a message."""
    messages = []
    for role, run in groupby(units, key=lambda unit: unit.role):
        blocks = list(run)
        message: dict[str, Any] = {"role": role, "content": [unit.content for unit in blocks]}
        for unit in blocks:
            message |= unit.fields
        messages.append(message)
    return messages


def _marks(
    prompt: Prompt, tools: Sequence[dict[str, Any]], units: Sequence[_Unit], info: ModelInfo, options: RenderOptions
) -> dict[int, dict[str, Any]]:
    """Return the cache marks by position among tools, system blocks and content blocks, in hashed order."""
    if not info.cache.takes_marks or not any(block.cache_point for block in prompt.blocks):
        return {}
    reached = cumulative_tokens([*tools, *(unit.content for unit in units)], options.count)
    shift = len(tools)
    ends = block_ends(prompt, [unit.block for unit in units], [unit.markable for unit in units])
    points = [
        CachePoint(shift + at, reached[shift + at], prompt.blocks[block].kind) for at, block in sorted(ends.items())
    ]
    chosen = choose_breakpoints(points, info.cache)
    if len(chosen) < info.cache.max_breakpoints and tools:
        chosen = choose_breakpoints([CachePoint(shift - 1, reached[shift - 1]), *points], info.cache)
    candidates = [
        CachePoint(shift + at, reached[shift + at], _kind(prompt, unit))
        for at, unit in enumerate(units)
        if unit.markable
    ]
    chosen = bridge_gaps(chosen, candidates, info.cache)
    named = lifetimes(chosen, info.cache, options.ttl)
    return {
        point.position: {"type": "ephemeral"} | ({} if ttl is None else {"ttl": ttl})
        for point, ttl in zip(chosen, named, strict=True)
    }


def _kind(prompt: Prompt, unit: _Unit) -> BlockKind:
    return prompt.blocks[unit.block].kind


def _with_mark(block: dict[str, Any], mark: dict[str, Any] | None) -> dict[str, Any]:
    return block if mark is None else {**block, "cache_control": mark}


def _parts(native: dict[str, Any], role: Role) -> list[Part]:
    """Return the parts of a message; of a tool result, those in its blocks."""
    content = native.get("content")
    if role == "tool" and isinstance(content, list):
        nested = [part for block in content if isinstance(block, dict) for part in parts(block.get("content"))]
        if nested:
            return nested
    return parts(content)


def _read_native(native: Any, message: ConversationMessage) -> list[ConversationMessage]:  # noqa: ANN401 - JSON
    """Read a message; one of the role tool as the provider takes it: results are content of the user."""
    is_result = isinstance(native, dict) and native.get("role") == message.role == "tool"
    return parse([{**native, "role": "user"} if is_result else native]).messages


def _segments(body: dict[str, Any]) -> Iterator[RequestSegment]:
    found = [RequestSegment("system", block, block) for block in text_blocks(body.get("system") or ())]
    # A change of these invalidates the messages, not tools and system.
    options = msgspec.json.encode([body.get("tool_choice"), body.get("thinking")], order="sorted").decode()
    for message in body.get("messages", ()):
        role = f"{message['role']}:{options}"
        found.extend(RequestSegment(role, block, block) for block in text_blocks(message["content"]))
    if "cache_control" in body and found:
        found[-1] = found[-1]._replace(marked=body)
    yield from found


RULES = FormRules(
    form=FORM,
    parse=parse,
    render=render,
    messages_field="messages",
    system_field="system",
    outside_fields=("mcp_servers",),
    parts=_parts,
    change_texts=change_texts,
    message_of=lambda message, content: {"role": message.role, "content": content},
    read_native=_read_native,
    segments=_segments,
    fields=TYPED_FIELDS,
    naming_fields=TYPED_NAMING_FIELDS,
)
