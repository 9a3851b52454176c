"""Wire form of Anthropic's Messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.models.language_models.chat_model import ChatAnswer
from weftline.providers.chat_models.wire import RequestOptions, malformed, refused, usage_of

if TYPE_CHECKING:
    from weftline.models.language_models.chat_model import ChatRequest

ANTHROPIC_URL = "https://api.anthropic.com/v1"
_VERSION = "2023-06-01"


class _Block(msgspec.Struct):
    type: str
    text: str = ""


class _Message(msgspec.Struct):
    content: list[_Block]
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Message).decode


class Anthropic:
    """POST /messages."""

    path = "/messages"
    options = RequestOptions()

    def headers(self, api_key: str) -> dict[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": api_key} if api_key else {})}

    def body(self, model: str, request: ChatRequest, options: RequestOptions) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": request.max_output_tokens,
            "system": [_text(request.system)],
            "messages": [{"role": each.role, "content": [_text(each.content)]} for each in request.messages],
        }
        if options.temperature:
            body["temperature"] = 0
        if options.structured and request.json_schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.json_schema}}
        return body

    def answer(self, body: bytes) -> ChatAnswer:
        try:
            message = _decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise malformed("no message") from None
        if message.stop_reason == "refusal":
            raise refused()
        text = "".join(block.text for block in message.content if block.type == "text")
        finish = "length" if message.stop_reason == "max_tokens" else "stop"
        return ChatAnswer(text, finish, usage_of(message.usage))  # type: ignore[arg-type]


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
