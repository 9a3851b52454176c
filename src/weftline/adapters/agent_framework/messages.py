"""Messages of Microsoft Agent Framework as messages of OpenAI's chat API, which Weftline records, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import missing_framework
from weftline.adapters.conversation import identity, text_of

try:
    from agent_framework import Content, Message
except ImportError as error:
    raise missing_framework("agent-framework", error) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Told = tuple[dict[str, Any], Message | Content]


def messages_of(messages: Sequence[Message]) -> Iterator[Told]:
    """Yield each message with what says it, without the system's; a result of a function is a message of its own."""
    for message in messages:
        if message.role == "system":
            continue
        others = []
        for content in message.contents:
            if content.type == "function_result":
                yield {"role": "tool", "tool_call_id": content.call_id, "content": str(content.result or "")}, content
            else:
                others.append(content)
        if others:
            said = {"role": "assistant" if message.role == "assistant" else "user", "content": _text(others)}
            calls = [_call(content) for content in others if content.type == "function_call"]
            yield {**said, **({"tool_calls": calls} if calls else {})}, message


def new_messages(messages: Sequence[Mapping[str, Any]], told: Sequence[Told]) -> list[Message]:
    """Return assembled messages; what is in ``told`` unchanged stays the object it was."""
    own = {identity(message): each for message, each in told}
    result: list[Message] = []
    for message in messages:
        known, text = own.get(identity(message)), text_of(message.get("content"))
        if message["role"] != "tool":
            result.append(known if isinstance(known, Message) else Message(message["role"], [text]))
            continue
        content = known
        if not isinstance(content, Content) or str(content.result or "") != text:
            content = Content.from_function_result(str(message["tool_call_id"]), result=text)
        # The results of one turn belong together.
        if result and result[-1].role == "tool":
            result[-1] = Message("tool", [*result[-1].contents, content])
        else:
            result.append(Message("tool", [content]))
    return result


def _text(contents: Sequence[Content]) -> str:
    """Return the text of contents without thoughts and calls; a file is named by its type."""
    texts = []
    for content in contents:
        if content.type == "text":
            texts.append(content.text or "")
        elif content.type in {"data", "uri", "hosted_file"}:
            texts.append(f"[{content.media_type or 'a file'}]")
    return "\n".join(texts)


def _call(content: Content) -> dict[str, Any]:
    arguments = content.arguments or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": content.call_id, "type": "function", "function": {"name": content.name, "arguments": text}}
