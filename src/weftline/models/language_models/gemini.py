"""The wire form of Gemini: contents of parts, the system apart, results of functions as parts of the user.

The model is in the address of a call, not in its body. The provider reads its fields in two spellings; what is given in
the other one is kept in that of its reference.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec

from weftline.kernel.errors import InvalidInput
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
    choice_at,
    list_at,
    object_at,
    text_at,
)
from weftline.models.language_models.rendering import (
    OMITTED,
    SYSTEM_NOTE,
    FormRules,
    ParsedConversation,
    PlacedMessage,
    RenderOptions,
    RequestSegment,
    accepts,
    check_tool_names,
    check_ttl,
    function_tool,
    input_schema,
    json_arguments,
    keep_native,
    ordered_tools,
    own_native,
    with_native,
    with_notes,
)

FORM: Final = "gemini"
_ROLES: dict[str, Role] = {"user": "user", "function": "user", "tool": "user", "model": "assistant", "system": "system"}
_NAMES = {"assistant": "model", "tool": "user"}
_CALL, _RESULT, _FUNCTIONS = "functionCall", "functionResponse", "functionDeclarations"
_MEDIA = ("inlineData", "fileData")
# Parts whose text is in a field of their own.
_TEXTS = {"executableCode": "code", "codeExecutionResult": "output"}
_SNAKE = re.compile(r"_([a-z])")
# The field of a response that is its text, if it has no other.
_SAID = ("output", "result", "error")
_encode = msgspec.json.Encoder().encode
# A part of a content, with the role of the content before it.
_Unit = tuple[str, dict[str, Any]]


class _CallIds:
    """Ids for calls and results that are sent without one: the provider matches them by name and order.

    ``given``: the ids that the calls and results of a known message have already, in their order.
    """

    def __init__(self, given: Sequence[str] = ()) -> None:
        self._given = list(given)
        self._waiting: dict[str, list[str]] = defaultdict(list)
        self._numbers: dict[tuple[str, str], int] = defaultdict(int)

    def of(self, kind: str, sent: dict[str, Any], name: str, path: str) -> str:
        """Return the id of a call or of a result."""
        given = self._given.pop(0) if self._given else ""
        if sent.get("id"):
            return text_at(sent["id"], f"{path}.id")
        waiting = self._waiting[name]
        if kind == _RESULT and waiting:
            return waiting.pop(0)
        self._numbers[kind, name] += 1
        number = self._numbers[kind, name]
        call_id = given or (name if number == 1 else f"{name}-{number}")
        if kind == _CALL:
            waiting.append(call_id)
        return call_id


def parse(messages: object, *, system: object = None, tools: object = None) -> ParsedConversation:
    """Read the ``contents`` and ``systemInstruction`` (system) of a request, and its tools."""
    for name, value in (("contents", messages), ("systemInstruction", system), ("tools", tools)):
        encode_json_field(name, value)
    found = list(_parsed_system(system))
    ids = _CallIds()
    for at, given in enumerate(list_at(messages, "contents")):
        found.extend(_parsed(given, ids, f"contents[{at}]"))
    entries = [] if tools is None else list_at(tools, "tools")
    defined = [tool for at, entry in enumerate(entries) for tool in _parsed_tools(entry, f"tools[{at}]")]
    return ParsedConversation(found, check_tool_names(defined))


def _read_native(native: object, message: ConversationMessage) -> list[ConversationMessage]:
    encode_json_field("contents", native)
    ids = [*(call.call_id for call in message.tool_calls), *filter(None, [message.tool_call_id])]
    return list(_parsed(native, _CallIds(ids), "contents[0]"))


def render(prompt: Prompt, placed: Sequence[PlacedMessage], info: ModelInfo, options: RenderOptions) -> dict[str, Any]:
    """Return the body of a request. Leading system messages are its instruction, later ones text of the user."""
    check_ttl(info.cache, options.ttl)
    system, turns = _units(placed, info)
    if not turns:
        raise InvalidInput("blocks: the prompt has no message but system messages", field="blocks")
    if turns[0][0] != "user":
        turns.insert(0, ("user", {"text": OMITTED}))
    body: dict[str, Any] = {}
    if system:
        body["systemInstruction"] = {"parts": [part for _, part in system]}
    tools = _rendered_tools(ordered_tools(prompt, FORM))
    if tools:
        body["tools"] = tools
    body["contents"] = _grouped(turns)
    body["generationConfig"] = {"maxOutputTokens": prompt.max_output_tokens}
    return body


def _spelled(value: object, path: str) -> dict[str, Any]:
    """Return an object with the names of its fields as the reference has them."""
    given = object_at(value, path)
    found = {_SNAKE.sub(lambda match: match[1].upper(), name): value for name, value in given.items()}
    if len(found) < len(given):
        raise InvalidInput(f"{path}: has a field in two spellings", field=path)
    return found


def _parts_at(value: object, path: str) -> list[dict[str, Any]]:
    found = []
    for at, given in enumerate(list_at(value, path)):
        part = _spelled(given, f"{path}[{at}]")
        for name in (_CALL, _RESULT, *_MEDIA, *_TEXTS):
            if name in part:
                part[name] = _spelled(part[name], f"{path}[{at}].{name}")
        if "parts" in part.get(_RESULT, ()):
            part[_RESULT]["parts"] = _parts_at(part[_RESULT]["parts"], f"{path}[{at}].{_RESULT}.parts")
        if "text" in part:
            text_at(part["text"], f"{path}[{at}].text", required=False)
        found.append(part)
    return found


def _parsed_system(system: object) -> Iterator[ConversationMessage]:
    if system is None:
        return
    if isinstance(system, str):
        yield ConversationMessage(role="system", content=system)
        return
    for part in _parts_at(object_at(system, "systemInstruction").get("parts"), "systemInstruction.parts"):
        yield _kept(ConversationMessage(role="system", content=_text([part])), [part], "system")


def _parsed(content: object, ids: _CallIds, path: str) -> Iterator[ConversationMessage]:
    given = object_at(content, path)
    role = _ROLES[choice_at(given.get("role") or "user", tuple(_ROLES), f"{path}.role")]
    parts = _parts_at(given.get("parts"), f"{path}.parts")
    for name in given.keys() - {"role", "parts"}:
        raise InvalidInput(f"{path}.{name}: is not a field of a content", field=f"{path}.{name}")
    if role == "assistant":
        yield _parsed_answer(parts, ids, path)
        return
    for is_result, run in groupby(enumerate(parts), key=lambda each: _RESULT in each[1]):
        some = list(run)
        if is_result:
            for at, part in some:
                yield _parsed_result(part, ids, f"{path}.parts[{at}].{_RESULT}")
        else:
            said = [part for _, part in some]
            yield _kept(ConversationMessage(role=role, content=_text(said)), said, role)


def _parsed_answer(parts: list[dict[str, Any]], ids: _CallIds, path: str) -> ConversationMessage:
    calls = []
    for at, part in enumerate(parts):
        if _CALL in part:
            place, call = f"{path}.parts[{at}].{_CALL}", part[_CALL]
            name = text_at(call.get("name"), f"{place}.name")
            arguments = _encode(object_at(call.get("args") or {}, f"{place}.args")).decode()
            calls.append(ToolCall(ids.of(_CALL, call, name, place), name, arguments))
    # Thoughts are worth something to the provider only.
    content = _text([part for part in parts if not part.get("thought")])
    message = ConversationMessage(role="assistant", content=content, tool_calls=tuple(calls))
    return _kept(message, parts, "model")


def _parsed_result(part: dict[str, Any], ids: _CallIds, path: str) -> ConversationMessage:
    result = part[_RESULT]
    name = text_at(result.get("name"), f"{path}.name")
    object_at(result.get("response") or {}, f"{path}.response")
    call_id = ids.of(_RESULT, result, name, path)
    message = ConversationMessage(role="tool", content=_result_text(result), name=name, tool_call_id=call_id)
    return _kept(message, [part], "user")


def _kept(message: ConversationMessage, parts: list[dict[str, Any]], role: str) -> ConversationMessage:
    return keep_native(message, FORM, {"role": role, "parts": parts}, {"role": role, "parts": _expressed(message, {})})


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part for part in map(_part, parts) if isinstance(part, str) and part)


def _part(part: dict[str, Any]) -> Part | None:
    """Return the text or medium of a part."""
    if isinstance(part.get("text"), str):
        return str(part["text"])
    for name, field in _TEXTS.items():
        if name in part:
            return str(part[name].get(field) or "")
    given = next((part[name] for name in _MEDIA if name in part), None)
    if given is None:
        return None
    media_type, url, data, name = (given.get(field) for field in ("mimeType", "fileUri", "data", "displayName"))
    start = str(media_type).partition("/")[0]
    return Media(
        "image" if start == "image" else "audio" if start == "audio" else "file",
        url=url if isinstance(url, str) else None,
        data=data if isinstance(data, str) else None,
        media_type=media_type if isinstance(media_type, str) else "",
        name=name if isinstance(name, str) else "",
    )


def _only_text(response: dict[str, Any]) -> str | None:
    """Return the name of the field that is all of a response, and a text."""
    return next((name for name in _SAID if response.keys() == {name} and isinstance(response[name], str)), None)


def _result_text(result: dict[str, Any]) -> str:
    """Return what a function returned: its text if that is all, otherwise JSON."""
    response = result.get("response") or {}
    name = _only_text(response)
    return str(response[name]) if name else _encode(response).decode() if response else ""


def _parsed_tools(entry: object, path: str) -> Iterator[ToolDefinition]:
    """Yield the functions in an entry, and the tools of the provider: it may have several of both."""
    for kind, given in _spelled(entry, path).items():
        if kind != _FUNCTIONS:
            yield ToolDefinition(name=kind, form=FORM, native={kind: given})
            continue
        for at, each in enumerate(list_at(given, f"{path}.{kind}")):
            place = f"{path}.{kind}[{at}]"
            details = _spelled(each, place)
            schema = details.get("parametersJsonSchema", _json_schema(details.get("parameters")))
            tool = function_tool({**details, "parameters": schema}, place)
            yield with_native(tool, {_FUNCTIONS: [details]}, {_FUNCTIONS: [_declared(tool)]}, FORM)


def _json_schema(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema of this provider as JSON schema: it writes the names of types in capitals."""
    if isinstance(schema, dict):
        return {
            name: value.lower() if name == "type" and isinstance(value, str) else _json_schema(value)
            for name, value in schema.items()
        }
    return [_json_schema(each) for each in schema] if isinstance(schema, list) else schema


def _declared(tool: ToolDefinition) -> dict[str, Any]:
    description = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **description, "parametersJsonSchema": input_schema(tool)}


def _rendered_tools(tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    natives = [tool.native if tool.form == FORM and tool.native else {_FUNCTIONS: [_declared(tool)]} for tool in tools]
    functions = [each for native in natives for each in native.get(_FUNCTIONS, ())]
    return [*([{_FUNCTIONS: functions}] if functions else []), *(each for each in natives if _FUNCTIONS not in each)]


def _expressed(message: ConversationMessage, names: dict[str, str]) -> list[dict[str, Any]]:
    """Return the parts of a message, from its neutral fields alone; ``names``: functions by the id of their call."""
    if message.role == "tool":
        call_id = message.tool_call_id or ""
        name = names.get(call_id) or message.name or call_id
        return [{_RESULT: {"id": call_id, "name": name, "response": {"output": message.content}}}]
    calls = [
        {_CALL: {"id": call.call_id, "name": call.name, "args": json_arguments(call)}} for call in message.tool_calls
    ]
    return [*([{"text": message.content}] if message.content.strip() else []), *calls]


def _units(placed: Sequence[PlacedMessage], info: ModelInfo) -> tuple[list[_Unit], list[_Unit]]:
    """Return the parts of the system and of the contents."""
    system: list[_Unit] = []
    turns: list[_Unit] = []
    # Of the calls so far: some models give the calls of each turn the same ids.
    names: dict[str, str] = {}
    for each in placed:
        message = each.message
        names |= {call.call_id: call.name for call in message.tool_calls}
        if message.role == "system" and turns:
            turns.append(("user", {"text": SYSTEM_NOTE.format(each.text)}))
            continue
        role = "model" if message.role == "assistant" else "user"
        units = [(role, part) for part in _rendered(each, info, names)]
        (system if message.role == "system" else turns).extend(units)
    return system, turns


def _rendered(placed: PlacedMessage, info: ModelInfo, names: dict[str, str]) -> list[dict[str, Any]]:
    message = placed.message
    native = own_native(message, FORM)
    if native is not None:
        return list(native["parts"])
    expressed = _expressed(message, names)
    if not any(isinstance(part, Media) for part in placed.parts):
        return expressed
    if message.role == "tool":
        return [{_RESULT: {**expressed[0][_RESULT], "response": {"output": placed.text}}}]
    carried = with_notes(placed.parts, lambda media: message.role == "user" and accepts(info, media))
    return [*map(_rendered_part, carried), *(part for part in expressed if _CALL in part)]


def _rendered_part(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"text": part}
    about = {"mimeType": part.media_type} if part.media_type else {}
    if part.url is not None:
        return {"fileData": {**about, "fileUri": part.url}}
    return {"inlineData": {**about, "data": part.data}}


def _grouped(units: Sequence[_Unit]) -> list[dict[str, Any]]:
    """Join consecutive parts of one role to a content, in which results of functions come first."""
    contents = []
    for role, run in groupby(units, key=itemgetter(0)):
        parts = sorted((part for _, part in run), key=lambda part: _RESULT not in part)
        contents.append({"role": role, "parts": parts})
    return contents


def _native_parts(native: dict[str, Any], _: Role) -> list[Part]:
    found: list[Part | None] = []
    for part in native["parts"]:
        if _RESULT in part:
            found += [_result_text(part[_RESULT]), *map(_part, part[_RESULT].get("parts") or ())]
        elif not part.get("thought"):
            found.append(_part(part))
    return [part for part in found if part]


def _change_texts(native: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON
    """Return a content with its texts changed, thoughts too: whoever wrote it may have called it a thought."""
    if not isinstance(native, dict):
        return native
    return {**native, "parts": [_changed(part, change) for part in native["parts"]]}


def _changed(part: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return a part with its texts changed. A result that is more than a text becomes one, names of fields included."""
    if isinstance(part.get("text"), str):
        part = {**part, "text": change(part["text"])}
    for name, field in _TEXTS.items():
        if name in part:
            part = {**part, name: {**part[name], field: change(str(part[name].get(field) or ""))}}
    if _RESULT not in part:
        return part
    result = part[_RESULT]
    if "parts" in result:
        result = {**result, "parts": [_changed(each, change) for each in result["parts"]]}
    text = _result_text(result)
    changed = change(text)
    if changed == text:
        return {**part, _RESULT: result}
    name = _only_text(result.get("response") or {}) or "output"
    return {**part, _RESULT: {**result, "response": {name: changed}}}


def _segments(body: dict[str, Any]) -> Iterator[RequestSegment]:
    for part in (body.get("systemInstruction") or {}).get("parts", ()):
        yield RequestSegment("system", part, part)
    for content in body.get("contents", ()):
        role = str(content.get("role"))
        for at, part in enumerate(content["parts"], 1):
            yield RequestSegment(role, part, part, ends_turn=role != "model" and at == len(content["parts"]))


RULES = FormRules(
    form=FORM,
    parse=parse,
    render=render,
    messages_field="contents",
    system_field="systemInstruction",
    # The other spelling of a field that is compared would be read beside it.
    outside_fields=("cachedContent", "cached_content", "system_instruction"),
    parts=_native_parts,
    change_texts=_change_texts,
    message_of=lambda message, parts: {"role": _NAMES.get(message.role, message.role), "parts": parts},
    read_native=_read_native,
    segments=_segments,
    fields=frozenset(
        {
            *("role", "parts", "text", "thought", "id", "name", "args", "response", "output", "data", "code"),
            *("mimeType", "fileUri", "displayName", _CALL, _RESULT, *_MEDIA, *_TEXTS),
        }
    ),
    naming_fields=frozenset({"role", "id", "mimeType"}),
)
