"""Where the messages of a request stand in its bytes: results of tools, calls of tools, and the text in them.

A request is edited by replacing spans of its bytes. ``msgspec.Raw`` is a view of the bytes that it was decoded from, so
that its address says exactly where it stands. A request repeats the messages of the one before, so the places of parts
in a message are kept by its digest, without its words: that takes a third of the time.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weftline.models.language_models.content import CACHE_MARKS, TEXT_FIELDS
from weftline.models.language_models.conversation_requests import RequestBody, decode_body
from weftline.models.language_models.wire_forms import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.models.language_models.content import WireForm

_MARKS = tuple(f'"{name}"'.encode() for name in CACHE_MARKS)
_DIGEST_BYTES = 12
# Of each about half a kilobyte is kept.
_MAX_KNOWN = 20_000
_ANSWER_ROLES = frozenset({"assistant", "model"})
_SYSTEM_ROLES = frozenset({"system", "developer"})
_RESPONSES_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})
_RESPONSES_INPUTS = frozenset({"message", "item_reference", None})


class _Function(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: Raw | UnsetType = UNSET


class _ToolCall(msgspec.Struct):
    id: Any = None
    function: _Function = _Function()
    custom: Any = None


class _Item(msgspec.Struct):
    """A message, or an item of a response."""

    type: Any = None
    role: Any = None
    content: Raw | UnsetType = UNSET
    parts: Raw | UnsetType = UNSET
    output: Raw | UnsetType = UNSET
    call_id: Any = None
    name: Any = None
    arguments: Raw | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
    tool_call_id: Any = None
    tool_calls: list[_ToolCall] | None = None


class _Block(msgspec.Struct):
    type: Any = None
    id: Any = None
    name: Any = None
    input: Raw | UnsetType = UNSET
    tool_use_id: Any = None
    is_error: Any = None
    content: Raw | UnsetType = UNSET
    text: Raw | UnsetType = UNSET


class _Named(msgspec.Struct):
    """A call of a function of Gemini, or the response of one."""

    id: Any = None
    name: Any = None
    args: Raw | UnsetType = UNSET
    response: Raw | UnsetType = UNSET


class _Part(msgspec.Struct):
    text: Raw | UnsetType = UNSET
    function_call: _Named | None = msgspec.field(name="functionCall", default=None)
    function_response: _Named | None = msgspec.field(name="functionResponse", default=None)


_raws = msgspec.json.Decoder(list[Raw])
_item = msgspec.json.Decoder(_Item)
_blocks = msgspec.json.Decoder(list[_Block])
_parts = msgspec.json.Decoder(list[_Part])
_fields = msgspec.json.Decoder(dict[str, Raw])
_text = msgspec.json.Decoder(str)


class TextRoom(NamedTuple):
    """Where a text has room in a result without one: at the end of a list, the start of an object, or for a null.

    ``before`` and ``after`` are what stands around the text there.
    """

    place: Raw
    before: bytes = b""
    after: bytes = b""


class ToolResult(NamedTuple):
    """A result of a tool.

    ``texts``: its texts as JSON strings; ``arguments``: those of its call, as JSON; ``content``: all that was returned;
    ``digest``: that of its call's id and texts.
    """

    message: int
    call_id: str
    texts: tuple[Raw, ...]
    is_error: bool
    arguments: bytes
    room: TextRoom | None = None
    content: Raw | None = None
    digest: str = ""

    def decoded(self, number: int) -> str:
        """Return one of its texts; raises msgspec.MsgspecError if it is not valid."""
        return _text.decode(self.texts[number])


class SpannedMessage(NamedTuple):
    """A message of a request. ``content``: a JSON string, or a list of blocks or parts."""

    raw: Raw
    role: str
    is_marked: bool
    content: Raw | None

    @property
    def texts(self) -> tuple[Raw, ...]:
        """Return the texts of its content, as JSON strings."""
        return () if self.content is None else _texts(self.content)


class SpannedRequest(NamedTuple):
    """A request, and where its parts stand. ``system``: its system text, outside or in its first message."""

    form: WireForm
    body: bytes
    given: RequestBody
    messages: tuple[SpannedMessage, ...]
    results: tuple[ToolResult, ...]
    system: Raw | None
    list_start: int

    @property
    def first_new(self) -> int:
        """Return the place of the first message after the last answer: what comes before was forwarded before."""
        answers = [at for at, message in enumerate(self.messages) if message.role == "assistant"]
        return answers[-1] + 1 if answers else 0

    @property
    def last_mark(self) -> int:
        """Return the place of the last message but the newest with a cache mark; -1 if there is none."""
        return max((at for at, message in enumerate(self.messages[:-1]) if message.is_marked), default=-1)

    def span(self, raw: Raw) -> slice:
        """Return where a part stands in the body."""
        start = _address(raw) - _address(self.body)
        found = slice(start, start + len(memoryview(raw)))
        if start < 0 or self.body[found] != bytes(raw):
            raise ValueError("a part of a request does not stand in its bytes")
        return found


class _PlacedCall(NamedTuple):
    """A call of a tool, and where its arguments stand in a message."""

    call_id: str
    arguments: slice


class _PlacedResult(NamedTuple):
    """A result of a tool, and where its parts stand in a message. ``room`` is what stands around a text there."""

    call_id: str
    texts: tuple[slice, ...]
    is_error: bool
    room: tuple[slice, bytes, bytes] | None
    content: slice | None
    digest: str

    def standing_in(self, view: memoryview, at: int, arguments: bytes) -> ToolResult:
        """Return the result in a message of a request."""
        texts = tuple([Raw(view[place]) for place in self.texts])
        room = None if self.room is None else TextRoom(Raw(view[self.room[0]]), *self.room[1:])
        content = None if self.content is None else Raw(view[self.content])
        return ToolResult(at, self.call_id, texts, self.is_error, arguments, room, content, self.digest)


class _MessageParts(NamedTuple):
    """What stands where in a message; its calls and results of tools in their order."""

    role: str
    is_marked: bool
    content: slice | None
    tools: tuple[_PlacedCall | _PlacedResult, ...]


class KnownParts:
    """The parts of messages that were read, by whose they are and by their digests."""

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[object, WireForm, bytes], _MessageParts] = OrderedDict()

    def read(self, owner: object, form: WireForm, raw: Raw, view: memoryview) -> _MessageParts:
        """Return the parts of a message; raises msgspec.MsgspecError if it cannot be read."""
        # Of large messages, SHA-256 takes a third of the time of BLAKE2.
        key = owner, form, hashlib.sha256(view).digest()
        parts = self._parts.get(key)
        if parts is None:
            parts = self._parts[key] = _read_parts(form, raw)
            if len(self._parts) > _MAX_KNOWN:
                self._parts.popitem(last=False)
        else:
            self._parts.move_to_end(key)
        return parts


def system_parts(instruction: Raw) -> Raw | None:
    """Return the parts of a system instruction of Gemini."""
    return _fields.decode(instruction).get("parts") if _starts(instruction, b"{") else None


def has_messages(form: WireForm, body: bytes) -> bool:
    """Tell whether a request may have a list of messages, whether that can be read or not."""
    try:
        listed = decode_body(body).part(FORMS[form].messages_field)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True
    return listed is not None and _starts(listed, b"[")


def read_spans(
    form: WireForm, body: bytes, known: KnownParts | None = None, owner: object = None
) -> SpannedRequest | None:
    """Return where the parts of a request stand; None if it has no list of messages in this form.

    ``known`` has the parts of messages of an owner that were read before, and is given those of new ones.
    """
    known = KnownParts() if known is None else known
    try:
        given = decode_body(body)
        listed, system = given.part(FORMS[form].messages_field), given.part(FORMS[form].system_field)
        if listed is None or not _starts(listed, b"["):
            return None
        raws = _raws.decode(listed)
        messages: list[SpannedMessage] = []
        results: list[ToolResult] = []
        calls = _Calls()
        for at, raw in enumerate(raws):
            view = memoryview(raw)
            parts = known.read(owner, form, raw, view)
            for tool in parts.tools:
                if isinstance(tool, _PlacedCall):
                    calls.add(tool.call_id, Raw(view[tool.arguments]))
                else:
                    results.append(tool.standing_in(view, at, calls.take(tool.call_id)))
            content = None if parts.content is None else Raw(view[parts.content])
            messages.append(SpannedMessage(raw, parts.role, parts.is_marked, content))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return SpannedRequest(
        form=form,
        body=body,
        given=given,
        messages=tuple(messages),
        results=tuple(results),
        system=system,
        list_start=_address(listed) - _address(body) + 1,
    )


def _address(part: bytes | Raw) -> int:
    import numpy as np  # noqa: PLC0415 - slow to import

    start: int = np.frombuffer(part, dtype=np.uint8).__array_interface__["data"][0]
    return start


def parts_digest(*parts: bytes | Raw) -> str:
    """Return what parts of a request are known by, as edits of them are stored."""
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        state.update(b"%d:" % len(memoryview(part)))
        state.update(part)
    return state.hexdigest()


def _read_parts(form: WireForm, raw: Raw) -> _MessageParts:
    item, start, tools = _item.decode(raw), _address(raw), _Tools()
    for result in _READ[form](raw, item, tools):
        tools.given.append(result)

    def place(part: Raw) -> slice:
        at = _address(part) - start
        return slice(at, at + len(memoryview(part)))

    def placed(tool: ToolResult | tuple[str, Raw]) -> _PlacedCall | _PlacedResult:
        if not isinstance(tool, ToolResult):
            return _PlacedCall(tool[0], place(tool[1]))
        return _PlacedResult(
            call_id=tool.call_id,
            texts=tuple(map(place, tool.texts)),
            is_error=tool.is_error,
            room=None if tool.room is None else (place(tool.room.place), tool.room.before, tool.room.after),
            content=None if tool.content is None else place(tool.content),
            digest=parts_digest(tool.call_id.encode(), *tool.texts),
        )

    content = item.parts if form == "gemini" else item.content
    return _MessageParts(
        role=_role(form, item),
        is_marked=any(mark in bytes(raw) for mark in _MARKS),
        content=None if isinstance(content, UnsetType) else place(content),
        tools=tuple(map(placed, tools.given)),
    )


def _role(form: WireForm, item: _Item) -> str:
    """Return who said a message; of a response, what is neither said nor returned by the user is of the model."""
    if item.role in _SYSTEM_ROLES:
        return "system"
    if form == "openai_responses" and item.role is None:
        if item.type in _RESPONSES_RESULTS or str(item.type).endswith("_output"):
            return "tool"
        return "user" if item.type in _RESPONSES_INPUTS else "assistant"
    if item.role in _ANSWER_ROLES:
        return "assistant"
    return "tool" if item.role == "tool" else "user"


class _Tools:
    """Calls and results of tools in a message, in their order."""

    def __init__(self) -> None:
        self.given: list[ToolResult | tuple[str, Raw]] = []

    def add(self, call_id: str, arguments: Raw) -> None:
        self.given.append((call_id, arguments))


class _Calls:
    """Arguments of calls by id. An id may come again: a result is that of the first call that has none yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[bytes]] = {}
        self._answered: dict[str, bytes] = {}

    def add(self, call_id: str, arguments: Raw) -> None:
        self._waiting.setdefault(call_id, deque()).append(bytes(arguments))

    def take(self, call_id: str) -> bytes:
        """Return the arguments of the call of a result; of a second result of a call the same ones."""
        if self._waiting.get(call_id):
            self._answered[call_id] = self._waiting[call_id].popleft()
        return self._answered.get(call_id, b"")


def _anthropic(_raw: Raw, item: _Item, calls: _Tools) -> Iterator[ToolResult]:
    raws: list[Raw] = []
    for at, block in enumerate(_blocks_of(item.content)):
        if block.type == "tool_result":
            if isinstance(block.content, UnsetType) and isinstance(item.content, Raw):
                raws = raws or _raws.decode(item.content)
            room = _room(block.content, raws[at] if raws else None, b'"content":', b"text")
            yield _result(block.tool_use_id, block.content, room, is_error=bool(block.is_error))
        elif block.type == "tool_use" and not isinstance(block.input, UnsetType):
            calls.add(str(block.id), block.input)


def _chat(raw: Raw, item: _Item, calls: _Tools) -> Iterator[ToolResult]:
    if item.role == "tool":
        room = _room(item.content, raw, b'"content":', b"text")
        yield _result(item.tool_call_id, item.content, room)
    for call in item.tool_calls or ():
        if not isinstance(call.function.arguments, UnsetType):
            calls.add(str(call.id), call.function.arguments)


def _responses(raw: Raw, item: _Item, calls: _Tools) -> Iterator[ToolResult]:
    given = item.arguments if isinstance(item.input, UnsetType) else item.input
    if item.type in _RESPONSES_RESULTS:
        room = _room(item.output, raw, b'"output":', b"input_text")
        yield _result(item.call_id, item.output, room)
    elif str(item.type).endswith("_output"):
        # Of tools with results of their own shape, such as a shell's: their texts are not known.
        yield _result(item.call_id, item.output)._replace(texts=())
    elif isinstance(item.call_id, str) and not isinstance(given, UnsetType):
        calls.add(item.call_id, given)


def _gemini(_raw: Raw, item: _Item, calls: _Tools) -> Iterator[ToolResult]:
    for part in _parts_of(item.parts):
        call, response = part.function_call, part.function_response
        if call is not None and not isinstance(call.args, UnsetType):
            calls.add(str(call.id or call.name), call.args)
        if response is not None and not isinstance(response.response, UnsetType):
            is_object = _starts(response.response, b"{")
            fields = _fields.decode(response.response) if is_object else {}
            texts = tuple(value for value in fields.values() if _starts(value, b'"'))
            name = b'"weftline":' if "output" in fields else b'"output":'
            room = TextRoom(response.response, name) if is_object else None
            result = _result(response.id or response.name, response.response, room, is_error="error" in fields)
            yield result._replace(texts=texts)


def _room(content: Raw | UnsetType, holder: Raw | None, field: bytes, block: bytes) -> TextRoom | None:
    """Return the room in a content that is a list of blocks or null, or in the object that has none."""
    if isinstance(content, UnsetType):
        return None if holder is None else TextRoom(holder, field)
    if _starts(content, b"["):
        return TextRoom(content, b'{"type":"%b","text":' % block, b"}")
    return TextRoom(content) if _starts(content, b"n") else None


# Yields the results of tools in a message, and notes its calls.
_READ: dict[WireForm, Callable[[Raw, _Item, _Tools], Iterator[ToolResult]]] = {
    "anthropic": _anthropic,
    "openai_chat": _chat,
    "openai_responses": _responses,
    "gemini": _gemini,
}


def _result(
    call_id: Any,  # noqa: ANN401 - JSON
    content: Raw | UnsetType,
    room: TextRoom | None = None,
    *,
    is_error: bool = False,
) -> ToolResult:
    given = None if isinstance(content, UnsetType) else content
    return ToolResult(0, str(call_id), _texts(content), is_error, b"", room, given)


def _texts(content: Raw | UnsetType) -> tuple[Raw, ...]:
    """Return the texts of a content: itself, or those of its blocks."""
    if isinstance(content, UnsetType):
        return ()
    if _starts(content, b'"'):
        return (content,)
    return tuple(
        block.text
        for block in _blocks_of(content)
        # The parts of Gemini have no type.
        if (block.type is None or block.type in TEXT_FIELDS)
        and not isinstance(block.text, UnsetType)
        and _starts(block.text, b'"')
    )


def _blocks_of(content: Raw | UnsetType) -> list[_Block]:
    return _blocks.decode(content) if not isinstance(content, UnsetType) and _starts(content, b"[") else []


def _parts_of(parts: Raw | UnsetType) -> list[_Part]:
    return _parts.decode(parts) if not isinstance(parts, UnsetType) and _starts(parts, b"[") else []


def _starts(raw: Raw, token: bytes) -> bool:
    return memoryview(raw)[:1] == token
