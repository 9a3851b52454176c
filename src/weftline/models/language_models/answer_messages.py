"""The messages in a provider's answer, also from the events of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.models.language_models.conversation_requests import parse_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weftline.models.language_models.conversation_requests import RequestForm
    from weftline.models.language_models.model import ConversationMessage

_DATA = b"data:"
# Parts of an event that are joined, by where they are.
_TEXTS = ("text", "thinking", "signature")
_encode = msgspec.json.Encoder().encode


class AnswerMessages(NamedTuple):
    """What a model answered; ``answer_id``: how a later request may refer to it."""

    messages: list[ConversationMessage]
    answer_id: str = ""


def read_answer_messages(form: RequestForm, answer: bytes, *, is_stream: bool) -> AnswerMessages:
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
