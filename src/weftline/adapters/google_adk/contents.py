"""Contents of Google's models as messages of OpenAI's chat API, which Weftline records, and back."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import missing_framework
from weftline.adapters.conversation import identity, text_of

try:
    from google.genai import types
except ImportError as error:
    raise missing_framework("google-adk", error) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def messages_of(contents: Sequence[types.Content]) -> Iterator[tuple[dict[str, Any], Sequence[types.Part]]]:
    """Yield each message with the parts that say it; an answer of a function is a message of its own."""
    calls, answers = _Ids(), _Ids()
    for content in contents:
        parts = content.parts or []
        if content.role == "model":
            called = [part.function_call for part in parts if part.function_call]
            tool_calls = [
                {
                    "id": each.id or calls.next(each.name, each.args),
                    "type": "function",
                    "function": {"name": each.name, "arguments": json.dumps(each.args or {})},
                }
                for each in called
            ]
            message = {"role": "assistant", "content": text_of_parts(parts)}
            yield {**message, **({"tool_calls": tool_calls} if tool_calls else {})}, parts
            continue
        said = [part for part in parts if not part.function_response]
        for part in parts:
            if (answer := part.function_response) is not None:
                name = answer.id or calls.answered(answer.name, answers)
                yield {"role": "tool", "tool_call_id": name, "content": json.dumps(answer.response or {})}, [part]
        if said:
            yield {"role": "user", "content": text_of_parts(said)}, said


def contents_of(
    messages: Sequence[Mapping[str, Any]], told: Sequence[tuple[dict[str, Any], Sequence[types.Part]]]
) -> list[types.Content]:
    """Return messages as contents; what is in ``told`` unchanged keeps its parts, with their signatures and files."""
    own = {identity(message): parts for message, parts in told}
    contents: list[types.Content] = []
    for message in messages:
        parts = list(own.get(identity(message)) or _new_parts(message))
        if message["role"] == "tool" and parts[0].function_response:
            response = parts[0].function_response.model_copy(update={"response": _response(message)})
            parts = [types.Part(function_response=response)]
        role = "model" if message["role"] == "assistant" else "user"
        # The answers to calls of one turn must be in one content.
        if contents and contents[-1].role == role == "user":
            contents[-1] = types.Content(role=role, parts=[*(contents[-1].parts or []), *parts])
        else:
            contents.append(types.Content(role=role, parts=parts))
    return contents


def text_of_parts(parts: Sequence[types.Part]) -> str:
    """Return the text of parts without thoughts; a file is named by its type."""
    texts = []
    for part in parts:
        if part.text and not part.thought:
            texts.append(part.text)
        elif part.inline_data or part.file_data:
            texts.append(f"[{getattr(part.inline_data or part.file_data, 'mime_type', None) or 'a file'}]")
    return "\n".join(texts)


class _Ids:
    """Ids of calls for models that give none: the same in every request that has the same conversation."""

    def __init__(self) -> None:
        self._count = Counter[str]()
        self._by_name: dict[str, list[str]] = {}

    def next(self, name: str | None, arguments: Mapping[str, Any] | None) -> str:
        text = f"{name}{json.dumps(arguments or {}, sort_keys=True, default=str)}"
        self._count[text] += 1
        call_id = f"call-{sha256(f'{text}{self._count[text]}'.encode()).hexdigest()[:20]}"
        self._by_name.setdefault(name or "", []).append(call_id)
        return call_id

    def answered(self, name: str | None, answers: _Ids) -> str:
        """Return the id of the oldest call of a function that has no answer yet."""
        answers._count[name or ""] += 1
        ids, number = self._by_name.get(name or "", []), answers._count[name or ""]
        return ids[number - 1] if number <= len(ids) else f"{name}-{number}"


def _new_parts(message: Mapping[str, Any]) -> list[types.Part]:
    return [types.Part(text=text_of(message.get("content")))]


def _response(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of a function; one that Weftline has shortened is text."""
    text = text_of(message.get("content"))
    try:
        response = json.loads(text)
    except ValueError:
        return {"result": text}
    return response if isinstance(response, dict) else {"result": response}
