"""Answers on their way to the client: the bytes of a tool call are held back until it is decided about."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import msgspec

from weftline.kernel.errors import Unavailable
from weftline.models.language_models.answer_calls import (
    Refusal,
    Replacement,
    change_item,
    chat_call,
    chat_calls,
    checked_answer,
    encode,
    finish_without_calls,
    free_text,
    gemini_answer,
    gemini_calls,
    is_call_item,
    item_call,
    objects,
    set_chat_arguments,
    text_of_field,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from weftline.models.language_models.answer_calls import CallChecks, Verdict
    from weftline.models.language_models.content import WireForm

# Of one answer that is held back: a whole one, or the calls of a stream.
MAX_HELD_BYTES = 8 * 2**20
_EVENT_END = re.compile(rb"\n\r?\n")
# Of the end of an event, what may have come before the newest bytes.
_MAX_BEGUN_END = 2
_LINE = re.compile(rb"\r?\n")
_DATA = b"data:"
_ITEM_DONE = "response.output_item.done"
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_MESSAGE_ENDS = frozenset({"message_delta", "message_stop", "error"})
_COMPRESSED, _PLAIN = frozenset({b"gzip", b"x-gzip", b"deflate"}), frozenset({b"", b"identity"})


class AnswerTooLarge(Unavailable):
    """An answer of a model, or a tool call in it, is too large to be checked."""

    code = "ANSWER_TOO_LARGE"
    hint = "Ask the model for a shorter answer."


class AnswerFilter(Protocol):
    """Passes an answer on, with the calls that are refused replaced by texts."""

    def feed(self, data: bytes) -> AsyncIterator[bytes]:
        """Take the next bytes, and yield those that may go to the client."""
        ...

    def finish(self) -> AsyncIterator[bytes]:
        """Yield what is left at the end of the answer."""
        ...

    def give_up(self) -> bytes:
        """Return what was taken and not passed on; what follows is passed on unchecked."""
        ...


def is_readable(content_type: bytes, encoding: bytes) -> bool:
    """Tell whether the calls of an answer with these headers can be found."""
    kind = content_type.partition(b";")[0].strip().lower()
    return kind in {b"application/json", b"text/event-stream"} and encoding.lower() in _COMPRESSED | _PLAIN


def answer_filter(form: WireForm, encoding: bytes, checks: CallChecks, *, is_stream: bool) -> AnswerFilter:
    """Return what checks the calls of an answer. What it passes on is not compressed."""
    found = StreamFilter(_FORMS[form](checks)) if is_stream else WholeFilter(form, checks)
    return InflatingFilter(found) if encoding.lower() in _COMPRESSED else found


class WholeFilter:
    """An answer that is one JSON value; it is held back until its end."""

    def __init__(self, form: WireForm, checks: CallChecks) -> None:
        self._form: WireForm = form
        self._checks = checks
        self._held = bytearray()
        self._gave_up = False

    async def feed(self, data: bytes) -> AsyncIterator[bytes]:
        if self._gave_up:
            yield data
            return
        self._held += data
        _check_size(len(self._held))

    async def finish(self) -> AsyncIterator[bytes]:
        if self._held:
            checked = await checked_answer(self._form, bytes(self._held), self._checks)
            self._held.clear()
            yield checked

    def give_up(self) -> bytes:
        self._gave_up = True
        held, self._held = bytes(self._held), bytearray()
        return held


class InflatingFilter:
    """An answer that was compressed although none was asked for."""

    def __init__(self, answer: AnswerFilter) -> None:
        self._answer = answer
        self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)

    async def feed(self, data: bytes) -> AsyncIterator[bytes]:
        while data:
            try:
                piece = self._inflate.decompress(data, MAX_HELD_BYTES // 4)
            except zlib.error as error:
                raise ConnectionError("the answer is not compressed as its headers say") from error
            data = self._inflate.unconsumed_tail
            async for part in self._answer.feed(piece):
                yield part

    def finish(self) -> AsyncIterator[bytes]:
        return self._answer.finish()

    def give_up(self) -> bytes:
        return self._answer.give_up()


class _Event(NamedTuple):
    """A server-sent event: its bytes with the empty line behind it, and its data; empty if that is no object.

    ``is_end``: its data says that the stream is over.
    """

    raw: bytes
    data: dict[str, Any]
    is_end: bool

    @property
    def type(self) -> str:
        return text_of_field(self.data, "type")

    def with_data(self, data: dict[str, Any]) -> bytes:
        """Return the bytes of the event with other data."""
        lines = [line for line in _LINE.split(self.raw.rstrip(b"\r\n")) if not line.startswith(_DATA)]
        return b"\n".join([*lines, b"data: " + encode(data), b"", b""])


class StreamFilter:
    """Server-sent events. Those of a call are held back, and all that follow until it is decided about."""

    def __init__(self, form: _StreamForm) -> None:
        self._form = form
        self._buffer = bytearray()
        # Where the end of an event may begin: large events come in many pieces.
        self._searched = 0
        self._ready: list[bytes] = []
        self._held: list[_Event] = []
        self._size = 0
        self._gave_up = False

    async def feed(self, data: bytes) -> AsyncIterator[bytes]:
        if self._gave_up:
            yield data
            return
        self._buffer += data
        for event in self._events():
            is_first = not self._held
            self._held.append(event)
            if is_first and not self._form.begins(event):
                self._ready.append(self._form.shown(event))
                self._held.clear()
                continue
            self._size += len(event.raw)
            if self._form.ends(event):
                if self._ready:
                    yield self._take_ready()
                await self._decide()
        if self._ready:
            yield self._take_ready()
        _check_size(self._size + len(self._buffer))

    async def finish(self) -> AsyncIterator[bytes]:
        if self._buffer:
            # Some clients read an event without the empty line behind it.
            raw = bytes(self._buffer)
            event = _Event(raw, *_data_of(raw))
            if self._held or self._form.begins(event):
                self._held.append(event)
            else:
                self._ready.append(self._form.shown(event))
            self._buffer.clear()
        if self._held:
            # The stream ended within a call.
            await self._decide()
        if self._ready:
            yield self._take_ready()

    def give_up(self) -> bytes:
        self._gave_up = True
        rest = self._take_ready() + b"".join(event.raw for event in self._held) + bytes(self._buffer)
        self._held.clear()
        self._buffer.clear()
        return rest

    async def _decide(self) -> None:
        self._ready += await self._form.decide(self._held)
        self._held.clear()
        self._size = 0

    def _take_ready(self) -> bytes:
        ready, self._ready = b"".join(self._ready), []
        return ready

    def _events(self) -> Iterable[_Event]:
        while (end := _EVENT_END.search(self._buffer, self._searched)) is not None:
            raw = bytes(self._buffer[: end.end()])
            del self._buffer[: end.end()]
            self._searched = 0
            yield _Event(raw, *_data_of(raw))
        self._searched = max(0, len(self._buffer) - _MAX_BEGUN_END)


class _StreamForm(Protocol):
    """How a provider streams calls. ``decide`` returns what takes the place of held events, the call's and others."""

    def begins(self, event: _Event) -> bool: ...

    def ends(self, event: _Event) -> bool: ...

    async def decide(self, events: Sequence[_Event]) -> list[bytes]: ...

    def shown(self, event: _Event) -> bytes:
        """Return an event that is not held back."""
        ...


class _AnthropicStream:
    """Blocks follow one another; a call is one of them."""

    def __init__(self, checks: CallChecks) -> None:
        self._checks = checks
        self._at: object = None
        self._calls = self._refused = 0

    def begins(self, event: _Event) -> bool:
        if event.type != "content_block_start":
            return False
        self._at = event.data.get("index")
        block = event.data.get("content_block")
        if not isinstance(block, dict) or block.get("type") != "tool_use":
            return False
        self._calls += 1
        return self._checks.concerns(text_of_field(block, "name"))

    def ends(self, event: _Event) -> bool:
        is_own = event.type == "content_block_stop" and event.data.get("index") == self._at
        return is_own or event.type in _MESSAGE_ENDS

    async def decide(self, events: Sequence[_Event]) -> list[bytes]:
        start, *following = events
        block = start.data["content_block"]
        written = "".join(_at(event.data, "delta", "partial_json") for event in following)
        verdict = await self._checks.decide(text_of_field(block, "name"), written or block.get("input"))
        after = [event for event in events if event.type in _MESSAGE_ENDS]
        held = [event for event in events if event.type not in _MESSAGE_ENDS]
        if verdict is None:
            return [*(event.raw for event in held), *map(self.shown, after)]
        index = {"index": start.data.get("index")}
        if isinstance(verdict, Refusal):
            self._refused += 1
            shown, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": verdict.text}
        else:
            shown = block
            delta = {"type": "input_json_delta", "partial_json": encode(verdict.arguments).decode()}
        changed = [
            {"type": "content_block_start", **index, "content_block": shown},
            {"type": "content_block_delta", **index, "delta": delta},
            {"type": "content_block_stop", **index},
        ]
        return [*map(_named_event, changed), *map(self.shown, after)]

    def shown(self, event: _Event) -> bytes:
        if event.type != "message_delta" or not self._refused or self._refused < self._calls:
            return event.raw
        delta = event.data.get("delta")
        if not isinstance(delta, dict) or delta.get("stop_reason") != "tool_use":
            return event.raw
        return event.with_data({**event.data, "delta": {**delta, "stop_reason": "end_turn"}})


class _ChatStream:
    """Calls come in pieces by choice and index; only the end of a choice says that its calls are complete."""

    def __init__(self, checks: CallChecks) -> None:
        self._checks = checks
        # Calls of each choice that were passed on, and whether it has a text.
        self._passed: dict[object, set[object]] = {}
        self._with_text: set[object] = set()
        self._open: set[object] = set()

    def begins(self, event: _Event) -> bool:
        for choice in objects(event.data.get("choices")):
            if any(self._checks.concerns(chat_call(call)[0]) for call in _delta_calls(choice)):
                self._note_open(event)
                return True
        for choice in objects(event.data.get("choices")):
            own = self._passed.setdefault(choice.get("index"), set())
            own |= {call.get("index") for call in _delta_calls(choice)}
            if _at(choice, "delta", "content"):
                self._with_text.add(choice.get("index"))
        return False

    def ends(self, event: _Event) -> bool:
        self._note_open(event)
        return not self._open or event.is_end or "error" in event.data

    async def decide(self, events: Sequence[_Event]) -> list[bytes]:
        calls: dict[tuple[object, object], dict[str, Any]] = {}
        for event in events:
            for choice in objects(event.data.get("choices")):
                for piece in _delta_calls(choice):
                    _join(calls.setdefault((choice.get("index"), piece.get("index")), {}), piece)
        verdicts = {at: await self._checks.decide(*chat_call(call)) for at, call in calls.items()}
        self._open.clear()
        if not any(verdicts.values()):
            return [event.raw for event in events]
        rewrite = _ChatRewrite(calls, verdicts, self._passed, self._with_text)
        return [rewrite.event(event) for event in events]

    def shown(self, event: _Event) -> bytes:
        return event.raw

    def _note_open(self, event: _Event) -> None:
        for choice in objects(event.data.get("choices")):
            if choice.get("finish_reason"):
                self._open.discard(choice.get("index"))
            elif _delta_calls(choice):
                self._open.add(choice.get("index"))


class _ChatRewrite:
    """Held events of Chat Completions without the refused calls; those that stay get consecutive indexes."""

    def __init__(
        self,
        calls: dict[tuple[object, object], dict[str, Any]],
        verdicts: dict[tuple[object, object], Verdict],
        passed: dict[object, set[object]],
        with_text: set[object],
    ) -> None:
        self._calls = calls
        self._verdicts = verdicts
        self._with_text = with_text
        self._begun: set[tuple[object, object]] = set()
        self._index: dict[tuple[object, object], int] = {}
        self._left = {choice: len(own) for choice, own in passed.items()}
        for at, verdict in verdicts.items():
            if at[1] in passed.get(at[0], ()):
                # The end of a call that began before.
                self._index[at] = cast("int", at[1])
            elif not isinstance(verdict, Refusal):
                self._index[at] = self._left.get(at[0], 0)
                self._left[at[0]] = self._index[at] + 1

    def event(self, event: _Event) -> bytes:
        is_changed = False
        for choice in objects(event.data.get("choices")):
            pieces = _delta_calls(choice)
            if pieces:
                self._change(choice, pieces)
                is_changed = True
            if not self._left.get(choice.get("index")) and choice.get("finish_reason"):
                choice["finish_reason"] = finish_without_calls(choice["finish_reason"])
                is_changed = True
        return event.with_data(event.data) if is_changed else event.raw

    def _change(self, choice: dict[str, Any], pieces: list[dict[str, Any]]) -> None:
        delta, kept = choice["delta"], []
        for piece in pieces:
            at = choice.get("index"), piece.get("index")
            verdict, is_first = self._verdicts[at], at not in self._begun
            self._begun.add(at)
            if isinstance(verdict, Refusal):
                if is_first:
                    self._add_text(choice, verdict.text)
                continue
            if isinstance(verdict, Replacement):
                if not is_first:
                    continue
                piece = dict(self._calls[at])  # noqa: PLW2901 - all of the call at once
                set_chat_arguments(piece, verdict.arguments)
            kept.append({**piece, "index": self._index[at]} if "index" in piece else piece)
        is_older = delta.pop("function_call", None) is not None
        delta.pop("tool_calls", None)
        if kept and is_older:
            delta["function_call"] = kept[0]["function"]
        elif kept:
            delta["tool_calls"] = kept

    def _add_text(self, choice: dict[str, Any], text: str) -> None:
        before = _at(choice, "delta", "content")
        gap = "\n\n" if before or choice.get("index") in self._with_text else ""
        self._with_text.add(choice.get("index"))
        choice["delta"]["content"] = f"{before}{gap}{text}"


class _ResponsesStream:
    """Items have events of their own, and all of them are repeated with the end of the answer."""

    def __init__(self, checks: CallChecks) -> None:
        self._checks = checks
        # The place of the item that is held back.
        self._at: object = None
        self._verdicts: dict[object, Verdict] = {}
        # What was added to the numbers of later events.
        self._shift = 0

    def begins(self, event: _Event) -> bool:
        item = event.data.get("item")
        if event.type in {"response.output_item.added", _ITEM_DONE} and isinstance(item, dict):
            at = _place(event)
            if at in self._verdicts or not is_call_item(item) or not self._checks.concerns(item_call(item)[0]):
                return False
            self._at = at
            return True
        return bool(self._undecided(event))

    def ends(self, event: _Event) -> bool:
        is_own = event.type == _ITEM_DONE and _place(event) == self._at
        return is_own or event.type == "error" or isinstance(_response(event), dict)

    async def decide(self, events: Sequence[_Event]) -> list[bytes]:
        own = [] if self._at is None else [event for event in events if _place(event) == self._at]
        verdict: Verdict = None
        if own:
            item, last = own[0].data["item"], own[-1].data.get("item")
            # Without its last event, the call is not whole.
            whole = last if own[-1].type == _ITEM_DONE and isinstance(last, dict) else {**item, "arguments": "{"}
            verdict = self._verdicts[self._at] = await self._checks.decide(*item_call(whole))
        for at, item in self._undecided(events[-1]).items():
            self._verdicts[at] = await self._checks.decide(*item_call(item))
        replaced = {id(event) for event in own} if verdict is not None else set()
        out: list[bytes] = []
        for event in events:
            if id(event) not in replaced:
                out.append(self.shown(event))
            elif verdict is not None and event is own[0]:
                others = self._replaced(own, verdict)
                out += others
                self._shift += len(others) - len(own)
        self._at = None
        return out

    def shown(self, event: _Event) -> bytes:
        response = _response(event)
        changed = False
        if isinstance(response, dict):
            for at, item in enumerate(objects(response.get("output"))):
                verdict = self._verdicts.get(at)
                if verdict is not None and is_call_item(item):
                    change_item(item, verdict)
                    changed = True
        number = event.data.get("sequence_number")
        if self._shift and isinstance(number, int):
            event.data["sequence_number"] = number + self._shift
            changed = True
        return event.with_data(event.data) if changed else event.raw

    def _undecided(self, event: _Event) -> dict[int, dict[str, Any]]:
        """Return the calls in a whole answer that had no events of their own."""
        response = _response(event)
        items = enumerate(objects(response.get("output"))) if isinstance(response, dict) else ()
        return {
            at: item
            for at, item in items
            if at not in self._verdicts and is_call_item(item) and self._checks.concerns(item_call(item)[0])
        }

    def _replaced(self, own: Sequence[_Event], verdict: Refusal | Replacement) -> list[bytes]:
        first, last = own[0].data, own[-1].data
        item = dict(last["item"] if isinstance(last.get("item"), dict) else first["item"])
        call_item = dict(item)
        change_item(item, verdict)
        at = {"output_index": first.get("output_index")}
        of_item = {"item_id": item.get("id"), **at}
        if isinstance(verdict, Refusal):
            part, place = item["content"][0], {**of_item, "content_index": 0}
            events: list[dict[str, Any]] = [
                {"type": "response.output_item.added", **at, "item": {**item, "status": "in_progress", "content": []}},
                {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
                {"type": "response.output_text.delta", **place, "delta": verdict.text},
                {"type": "response.output_text.done", **place, "text": verdict.text},
                {"type": "response.content_part.done", **place, "part": part},
                {"type": "response.output_item.done", **at, "item": item},
            ]
        else:
            begun = {**first["item"], **{name: item[name] for name in ("action", "operation") if name in item}}
            events = [{"type": "response.output_item.added", **at, "item": begun}]
            if "arguments" in call_item:
                text, kind = item["arguments"], "response.function_call_arguments"
                events += [
                    {"type": f"{kind}.delta", **of_item, "delta": text},
                    {"type": f"{kind}.done", **of_item, "arguments": text},
                ]
            elif "input" in call_item:
                text, kind = free_text({"input": item["input"]}), "response.custom_tool_call_input"
                events += [
                    {"type": f"{kind}.delta", **of_item, "delta": text},
                    {"type": f"{kind}.done", **of_item, "input": text},
                ]
            events.append({"type": "response.output_item.done", **at, "item": item})
        number = first.get("sequence_number")
        if isinstance(number, int):
            for place_in_stream, event in enumerate(events, number + self._shift):
                event["sequence_number"] = place_in_stream
        return [*map(_named_event, events)]


class _GeminiStream:
    """A call comes whole, in one event."""

    def __init__(self, checks: CallChecks) -> None:
        self._checks = checks

    def begins(self, event: _Event) -> bool:
        return any(
            self._checks.concerns(text_of_field(part["functionCall"], "name")) for part in gemini_calls(event.data)
        )

    def ends(self, event: _Event) -> bool:  # noqa: ARG002 - of the form
        return True

    async def decide(self, events: Sequence[_Event]) -> list[bytes]:
        return [
            event.with_data(event.data) if await gemini_answer(event.data, self._checks) else event.raw
            for event in events
        ]

    def shown(self, event: _Event) -> bytes:
        return event.raw


_FORMS: dict[WireForm, Callable[[CallChecks], _StreamForm]] = {
    "anthropic": _AnthropicStream,
    "openai_chat": _ChatStream,
    "openai_responses": _ResponsesStream,
    "gemini": _GeminiStream,
}


def _data_of(raw: bytes) -> tuple[dict[str, Any], bool]:
    lines = [line[len(_DATA) :].removeprefix(b" ") for line in _LINE.split(raw) if line.startswith(_DATA)]
    text = b"\n".join(lines)
    try:
        data = msgspec.json.decode(text) if text.startswith(b"{") else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}, False
    return (data if isinstance(data, dict) else {}), text.strip() == b"[DONE]"


def _named_event(data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), encode(data))


def _at(value: dict[str, Any], name: str, inner: str) -> str:
    found = value.get(name)
    return text_of_field(found, inner) if isinstance(found, dict) else ""


def _response(event: _Event) -> object:
    """Return the whole answer in the last event of a stream of OpenAI Responses."""
    is_last = event.type in {"response.completed", "response.incomplete", "response.failed"}
    return event.data.get("response") if is_last else None


def _place(event: _Event) -> object:
    """Return what an event of OpenAI Responses says about the item that it belongs to; None if it belongs to none."""
    item = event.data.get("item")
    given = event.data.get("output_index", event.data.get("item_id"))
    return item.get("id") if given is None and isinstance(item, dict) else given


def _delta_calls(choice: dict[str, Any]) -> list[dict[str, Any]]:
    delta = choice.get("delta")
    return chat_calls(delta) if isinstance(delta, dict) else []


def _join(call: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece of a streamed call to what came before."""
    for name, value in piece.items():
        if isinstance(value, dict):
            _join(call.setdefault(name, {}), value)
        elif isinstance(value, str) and name in {"name", "arguments", "input"}:
            # Some servers repeat the name with each piece.
            call[name] = value if name == "name" and call.get(name) == value else call.get(name, "") + value
        elif value is not None:
            call[name] = value


def _check_size(size: int) -> None:
    if size > MAX_HELD_BYTES:
        raise AnswerTooLarge
