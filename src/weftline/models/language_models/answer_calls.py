"""Tool calls in a provider's answer: a check may refuse or change each of them before the client gets it.

An answer without such a call keeps its bytes. Calls that the provider runs itself are not looked at: they were made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from weftline.models.language_models.content import WireForm

# Fields of OpenAI Responses with what a call is made with.
_ITEM_ARGUMENTS = ("arguments", "input", "action", "actions", "operation")
_UNREADABLE = "Weftline refused this call of {name}: its arguments are not whole or not valid JSON."
_CALLED = frozenset({"tool_calls", "function_call"})
encode = msgspec.json.Encoder().encode


class Refusal(NamedTuple):
    """A call that the client must not make; the text tells the model and its user why, and what to do."""

    text: str


class Replacement(NamedTuple):
    """A call that may be made with other arguments."""

    arguments: dict[str, Any]


Verdict = Refusal | Replacement | None


class CallChecks(NamedTuple):
    """What decides about calls. ``concerns`` tells by the name of a tool whether its calls have to be decided about."""

    concerns: Callable[[str], bool]
    verdict: Callable[[str, dict[str, Any]], Awaitable[Verdict]]

    async def decide(self, name: str, written: object) -> Verdict:
        """Return the verdict on a call whose arguments are written in this way: as JSON text, or an object."""
        if not self.concerns(name):
            return None
        try:
            given = msgspec.json.decode(written or "{}") if isinstance(written, str) else written
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            return Refusal(_UNREADABLE.format(name=name))
        if given is None:
            given = {}
        return await self.verdict(name, given if isinstance(given, dict) else {"input": given})


async def checked_answer(form: WireForm, answer: bytes, checks: CallChecks) -> bytes:
    """Return an answer that is one JSON value, without the calls that are refused; the same bytes if none is."""
    whole = msgspec.json.decode(answer)
    # A stream of Gemini may be one list of answers.
    parts = whole if isinstance(whole, list) else [whole]
    changes = [await _WHOLE[form](part, checks) for part in parts if isinstance(part, dict)]
    return encode(whole) if any(changes) else answer


def objects(value: object) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list; nothing for anything else."""
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each


def text_of_field(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


async def _anthropic(answer: dict[str, Any], checks: CallChecks) -> bool:
    is_changed = False
    for block in objects(answer.get("content")):
        if block.get("type") != "tool_use":
            continue
        match await checks.decide(text_of_field(block, "name"), block.get("input")):
            case Refusal(text):
                block.clear()
                block |= {"type": "text", "text": text}
            case Replacement(arguments):
                block["input"] = arguments
            case None:
                continue
        is_changed = True
    calls = [block for block in objects(answer.get("content")) if block.get("type") == "tool_use"]
    if is_changed and not calls and answer.get("stop_reason") == "tool_use":
        answer["stop_reason"] = "end_turn"
    return is_changed


async def _chat(answer: dict[str, Any], checks: CallChecks) -> bool:
    is_changed = False
    for choice in objects(answer.get("choices")):
        message = choice.get("message")
        if not isinstance(message, dict):
            continue
        calls, refusals = [], []
        for call in chat_calls(message):
            match await checks.decide(*chat_call(call)):
                case Refusal(text):
                    refusals.append(text)
                    continue
                case Replacement(arguments):
                    set_chat_arguments(call, arguments)
                    is_changed = True
            calls.append(call)
        if refusals:
            is_changed = True
            message.pop("function_call", None)
            message["tool_calls"] = calls
            if not calls:
                del message["tool_calls"]
                choice["finish_reason"] = finish_without_calls(choice.get("finish_reason"))
            said = message.get("content")
            message["content"] = "\n\n".join([said, *refusals] if isinstance(said, str) and said else refusals)
    return is_changed


def chat_calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of a message or delta of Chat Completions; that of older models in the form of the others."""
    calls = [*objects(message.get("tool_calls"))]
    older = message.get("function_call")
    return [*calls, {"function": older}] if isinstance(older, dict) else calls


def chat_call(call: dict[str, Any]) -> tuple[str, object]:
    """Return the name and the arguments of a call of Chat Completions."""
    custom = call.get("custom")
    if isinstance(custom, dict):
        return text_of_field(custom, "name"), {"input": custom.get("input")}
    function = call.get("function")
    given = function if isinstance(function, dict) else {}
    return text_of_field(given, "name"), given.get("arguments")


def set_chat_arguments(call: dict[str, Any], arguments: dict[str, Any]) -> None:
    if isinstance(call.get("custom"), dict):
        call["custom"]["input"] = free_text(arguments)
    else:
        call["function"]["arguments"] = encode(arguments).decode()


def free_text(arguments: dict[str, Any]) -> str:
    """Return the arguments of a tool that takes a text."""
    given = arguments.get("input")
    return given if isinstance(given, str) else encode(arguments).decode()


def finish_without_calls(reason: object) -> object:
    return "stop" if reason in _CALLED else reason


async def _responses(answer: dict[str, Any], checks: CallChecks) -> bool:
    is_changed = False
    for item in objects(answer.get("output")):
        verdict = await checks.decide(*item_call(item)) if is_call_item(item) else None
        if verdict is not None:
            change_item(item, verdict)
            is_changed = True
    return is_changed


def is_call_item(item: dict[str, Any]) -> bool:
    """Tell whether an item of OpenAI Responses is a call that the client is to make: others have no call_id."""
    return text_of_field(item, "type").endswith("_call") and "call_id" in item


def item_call(item: dict[str, Any]) -> tuple[str, object]:
    """Return the name and the arguments of a call; tools without a name, such as a shell, are named by their type."""
    kind, field = text_of_field(item, "type"), _arguments_field(item)
    given = item.get(field)
    name = text_of_field(item, "name") or kind
    return name, {"input": given} if kind == "custom_tool_call" else given


def change_item(item: dict[str, Any], verdict: Refusal | Replacement) -> None:
    """Make a message of a refused call, or replace its arguments."""
    if isinstance(verdict, Refusal):
        message = message_item(text_of_field(item, "id"), verdict.text)
        item.clear()
        item |= message
        return
    field = _arguments_field(item)
    if item.get("type") == "custom_tool_call":
        item[field] = free_text(verdict.arguments)
    elif isinstance(item.get(field), str):
        item[field] = encode(verdict.arguments).decode()
    else:
        item[field] = verdict.arguments.get("input") if isinstance(item.get(field), list) else verdict.arguments


def message_item(call_item: str, text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    item_id = f"msg_{call_item.partition('_')[2] or call_item}"
    return {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def _arguments_field(item: dict[str, Any]) -> str:
    return next((name for name in _ITEM_ARGUMENTS if name in item), "arguments")


async def gemini_answer(answer: dict[str, Any], checks: CallChecks) -> bool:
    """Change the refused calls of an answer of Gemini; tell whether there was one."""
    is_changed = False
    for part in gemini_calls(answer):
        call = cast("dict[str, Any]", part["functionCall"])
        # Arguments that come in pieces cannot be read.
        written = call.get("args") if "partialArgs" not in call and not call.get("willContinue") else "..."
        match await checks.decide(text_of_field(call, "name"), written):
            case Refusal(text):
                part.clear()
                part["text"] = text
            case Replacement(arguments):
                call["args"] = arguments
            case None:
                continue
        is_changed = True
    return is_changed


def gemini_calls(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of an answer that are calls."""
    for candidate in objects(answer.get("candidates")):
        content = candidate.get("content")
        for part in objects(content.get("parts")) if isinstance(content, dict) else ():
            if isinstance(part.get("functionCall"), dict):
                yield part


_WHOLE = {"anthropic": _anthropic, "openai_chat": _chat, "openai_responses": _responses, "gemini": gemini_answer}
