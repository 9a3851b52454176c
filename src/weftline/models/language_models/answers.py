"""Answers of models: text and tool calls, from the form in which a provider returns them."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.kernel.json_input import encode_json_field
from weftline.models.language_models.content import TEXT_FIELDS
from weftline.models.language_models.conversation_requests import parse_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weftline.models.language_models.content import ConversationMessage, WireForm


# Tokens of the longest answers of today's models, four characters each.
MAX_ANSWER = 512_000
MAX_TOOL_CALLS = 1_000
# Parts of an answer that are a call of a tool: Anthropic, OpenAI Responses.
_CALLS = frozenset({"tool_use", "server_tool_use", "function_call", "custom_tool_call", "mcp_call"})
# Where a response or message has its content: OpenAI Chat, OpenAI Responses, Anthropic, Gemini.
_CONTENTS = ("message", "output", "content", "parts")
# What any response, message or part of these has at least one of; other JSON is the output itself.
_FORMS = frozenset(
    {*_CONTENTS, "choices", "candidates", "tool_calls", "functionCall", "role", "object", "type", "text"}
)
# Where a call has its arguments, in any form.
_ARGUMENTS = ("arguments", "input", "args")
_encode = msgspec.json.Encoder().encode


class CalledTool(NamedTuple):
    """A call of a tool: its name, and its arguments as text."""

    name: str
    arguments: str = ""


class ModelAnswer(NamedTuple):
    """What a model answered: text, and calls of tools."""

    text: str
    tool_calls: tuple[CalledTool, ...] = ()

    @property
    def written(self) -> str:
        """Return everything that the model wrote: the text, and the arguments of calls."""
        return "\n".join([self.text, *(call.arguments for call in self.tool_calls)])


def read_answer(answer: object, tool_calls: object = None) -> ModelAnswer:
    """Return an answer given as text, or as OpenAI Chat, OpenAI Responses, Anthropic or Gemini return it.

    That is a whole response, its message, or a list of content blocks or output items; other JSON is taken as output in
    a form that the caller asked for. ``tool_calls`` are further calls, in any of these forms. Raises InvalidInput if
    there is neither text nor a call in it, or too much.
    """
    encode_json_field("answer", answer)
    encode_json_field("tool_calls", tool_calls)
    found = _Reader()
    found.read(_encode(answer).decode() if _is_output(answer) else answer)
    for call in tool_calls if isinstance(tool_calls, list) else ():
        found.call(call, "tool_calls")
    read = ModelAnswer("\n".join(found.texts), tuple(found.calls))
    if not any(map(str.strip, chain([read.text], *((call.name,) for call in read.tool_calls)))):
        raise _invalid("has neither text nor a call of a tool")
    if len(read.written) > MAX_ANSWER or len(read.tool_calls) > MAX_TOOL_CALLS:
        raise _invalid(f"at most {MAX_ANSWER} characters and {MAX_TOOL_CALLS} calls of tools")
    return read


class _Reader:
    """Collects the texts and calls of an answer in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[CalledTool] = []

    def read(self, answer: Any) -> None:  # noqa: ANN401 - what a caller sent
        if answer is None:
            return
        if isinstance(answer, str):
            self.texts.append(answer)
        elif isinstance(answer, list):
            for part in answer:
                self._part(part)
        elif isinstance(answer, dict):
            self._object(answer)
        else:
            raise _invalid("must be text, or an answer as the provider returns it")

    def call(self, call: Any, field: str) -> None:  # noqa: ANN401 - likewise
        """Add a call in the form of any provider."""
        inner = call.get("function", call) if isinstance(call, dict) else None
        name = inner.get("name") if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or not isinstance(name, str) or not name:
            raise InvalidInput(f"{field}: a call needs the name of a tool", field=field)
        given = next((inner[key] for key in _ARGUMENTS if inner.get(key) is not None), "")
        self.calls.append(CalledTool(name, given if isinstance(given, str) else _encode(given).decode()))

    def _object(self, answer: dict[str, Any]) -> None:
        """Read a whole response or a message: both have their content in one field."""
        for several in ("choices", "candidates"):
            found = answer.get(several)
            if isinstance(found, list):
                return self.read(found[0] if found else None)
        self.read(next((answer[name] for name in _CONTENTS if name in answer), None))
        calls = answer.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self.call(call, "answer")
        return None

    def _part(self, part: Any) -> None:  # noqa: ANN401 - likewise
        """Read a content block or an output item; reasoning and unknown parts are not part of the answer."""
        if isinstance(part, str):
            self.texts.append(part)
        if not isinstance(part, dict):
            return
        # Parts of Gemini have no type.
        kind = str(part.get("type", "text" if "text" in part else ""))
        if kind in _CALLS:
            self.call(part, "answer")
        elif "functionCall" in part:
            self.call(part["functionCall"], "answer")
        elif kind in TEXT_FIELDS:
            self.texts.append(str(part.get(TEXT_FIELDS[kind]) or ""))
        elif kind == "message":
            self.read(part.get("content"))


def _is_output(answer: object) -> bool:
    """Tell whether JSON has no form of a provider: structured output."""
    if isinstance(answer, dict):
        return bool(answer) and _FORMS.isdisjoint(answer)
    if isinstance(answer, list):
        return bool(answer) and not any(
            isinstance(each, str) or (isinstance(each, dict) and not _FORMS.isdisjoint(each)) for each in answer
        )
    return False


def _invalid(problem: str) -> InvalidInput:
    return InvalidInput(
        f"answer: {problem}",
        field="answer",
        hint="Send the text of the answer, or the answer as the provider returns it.",
    )


# The messages in a provider's answer, also from the events of a stream.

_DATA = b"data:"
# Parts of an event that are joined, by where they are.
_TEXTS = ("text", "thinking", "signature")


class AnswerMessages(NamedTuple):
    """What a model answered; ``answer_id``: how a later request may refer to it."""

    messages: list[ConversationMessage]
    answer_id: str = ""


def read_answer_messages(form: WireForm, answer: bytes, *, is_stream: bool) -> AnswerMessages:
    """Return the messages of an answer; none if it cannot be read."""
    try:
        if is_stream:
            found = _FROM_EVENTS[form](_events(answer))
        else:
            whole = msgspec.json.decode(answer)
            found = _FROM_EVENTS["gemini"](whole) if isinstance(whole, list) else _WHOLE[form](whole)
        wire, answer_id = found
        messages = [message for each in wire for message in parse_message(form, _encode(each))]
    except (msgspec.MsgspecError, InvalidInput, RecursionError, AttributeError, LookupError, TypeError, ValueError):
        # An answer in a form of its own is no conversation that Weftline knows.
        return AnswerMessages([])
    return AnswerMessages([each for each in messages if each.content or each.tool_calls or each.native], answer_id)


_Found = tuple[list[dict[str, Any]], str]


def _events(stream: bytes) -> Iterator[dict[str, Any]]:
    for line in stream.split(b"\n"):
        data = line[len(_DATA) :].strip() if line.startswith(_DATA) else b""
        if data.startswith(b"{"):
            yield msgspec.json.decode(data)


def _anthropic(answer: dict[str, Any]) -> _Found:
    blocks = [each for each in answer["content"] if isinstance(each, dict)]
    return ([{"role": "assistant", "content": blocks}] if blocks else []), str(answer.get("id", ""))


def _anthropic_events(events: Iterable[dict[str, Any]]) -> _Found:
    blocks: dict[int, dict[str, Any]] = {}
    arguments: dict[int, list[str]] = {}
    answer_id = ""
    for event in events:
        match event.get("type"):
            case "message_start":
                answer_id = str(event["message"].get("id", ""))
            case "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                delta, at = event["delta"], event["index"]
                if "partial_json" in delta:
                    arguments.setdefault(at, []).append(delta["partial_json"])
                for name in _TEXTS:
                    if name in delta:
                        blocks[at][name] = blocks[at].get(name, "") + delta[name]
    for at, parts in arguments.items():
        blocks[at]["input"] = msgspec.json.decode("".join(parts) or "{}")
    return _anthropic({"content": [blocks[at] for at in sorted(blocks)], "id": answer_id})


def _chat(answer: dict[str, Any]) -> _Found:
    message = {name: value for name, value in answer["choices"][0]["message"].items() if value is not None}
    kept = {name: message[name] for name in ("role", "content", "tool_calls") if message.get(name)}
    return [{"role": "assistant", **kept}], str(answer.get("id", ""))


def _chat_events(events: Iterable[dict[str, Any]]) -> _Found:
    texts: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    answer_id = ""
    for event in events:
        answer_id = str(event.get("id") or answer_id)
        for choice in event.get("choices", ())[:1]:
            delta = choice.get("delta") or {}
            texts.append(delta.get("content") or "")
            for part in delta.get("tool_calls") or ():
                call = calls.setdefault(
                    part.get("index", 0), {"id": "", "type": "function", "name": "", "arguments": ""}
                )
                function = part.get("function") or {}
                call["id"] = part.get("id") or call["id"]
                call["name"] += function.get("name") or ""
                call["arguments"] += function.get("arguments") or ""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for _, call in sorted(calls.items())
        ]
    return _chat({"choices": [{"message": message}], "id": answer_id})


def _responses(answer: dict[str, Any]) -> _Found:
    return [item for item in answer["output"] if isinstance(item, dict)], str(answer.get("id", ""))


def _responses_events(events: Iterable[dict[str, Any]]) -> _Found:
    items: dict[int, dict[str, Any]] = {}
    answer_id = ""
    for event in events:
        if isinstance(event.get("response"), dict):
            answer_id = str(event["response"].get("id") or answer_id)
        if event.get("type") == "response.output_item.done":
            items[event.get("output_index", len(items))] = event["item"]
        elif event.get("type") in {"response.completed", "response.incomplete"} and not items:
            items = dict(enumerate(event["response"].get("output") or ()))
    return [items[at] for at in sorted(items)], answer_id


def _gemini(answer: dict[str, Any]) -> _Found:
    return _gemini_events([answer])


def _gemini_events(events: Iterable[dict[str, Any]]) -> _Found:
    parts: list[dict[str, Any]] = []
    answer_id = ""
    for event in events:
        answer_id = str(event.get("responseId") or answer_id)
        for candidate in event.get("candidates", ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                last = parts[-1] if parts else {}
                if part.keys() == last.keys() == {"text"}:
                    last["text"] += part["text"]
                else:
                    parts.append(dict(part))
    return ([{"role": "model", "parts": parts}] if parts else []), answer_id


_WHOLE = {"anthropic": _anthropic, "openai_chat": _chat, "openai_responses": _responses, "gemini": _gemini}
_FROM_EVENTS = {
    "anthropic": _anthropic_events,
    "openai_chat": _chat_events,
    "openai_responses": _responses_events,
    "gemini": _gemini_events,
}
