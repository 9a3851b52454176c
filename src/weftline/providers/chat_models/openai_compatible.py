"""Wire form of OpenAI's chat completions, which vLLM, Ollama, llama.cpp and most gateways serve too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.models.language_models.chat_model import ChatAnswer
from weftline.providers.chat_models.wire import RequestOptions, malformed, refused, usage_of

if TYPE_CHECKING:
    from weftline.models.language_models.chat_model import ChatRequest

OPENAI_URL = "https://api.openai.com/v1"
_SCHEMA_NAME = "answer"


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Completion).decode


class OpenAICompatible:
    """POST /chat/completions."""

    path = "/chat/completions"

    def __init__(self, *, is_openai: bool = False) -> None:
        self.options = RequestOptions(completion_limit=is_openai)

    def headers(self, api_key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def body(self, model: str, request: ChatRequest, options: RequestOptions) -> dict[str, Any]:
        messages = [{"role": "system", "content": request.system}]
        messages += [{"role": message.role, "content": message.content} for message in request.messages]
        limit = "max_completion_tokens" if options.completion_limit else "max_tokens"
        body: dict[str, Any] = {"model": model, "messages": messages, limit: request.max_output_tokens}
        if options.temperature:
            body["temperature"] = 0
        if options.structured and request.json_schema is not None:
            schema = {"name": _SCHEMA_NAME, "strict": True, "schema": request.json_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def answer(self, body: bytes) -> ChatAnswer:
        try:
            completion = _decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise malformed("no chat completion") from None
        if not completion.choices:
            raise malformed("a completion without a choice")
        choice = completion.choices[0]
        if choice.message.refusal or choice.finish_reason == "content_filter":
            raise refused()
        finish = "length" if choice.finish_reason == "length" else "stop"
        return ChatAnswer(choice.message.content or "", finish, usage_of(completion.usage))  # type: ignore[arg-type]
