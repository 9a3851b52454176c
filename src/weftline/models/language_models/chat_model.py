"""The port to a language model that answers chat requests, for work that Weftline does itself, such as summaries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from weftline.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.models.language_models.answer_usage import Usage

T = TypeVar("T")

# ``rejected``: the endpoint does not accept the request, the key or the model. ``malformed``: the answer is not what
# the API or the schema says. ``refused``: the model declines. ``too_long``: the input exceeds its context.
ChatErrorKind = Literal["timeout", "unavailable", "rate_limited", "rejected", "malformed", "refused", "too_long"]
# ``length``: the answer was cut off at ``max_output_tokens``.
FinishReason = Literal["stop", "length"]
DEFAULT_TIMEOUT_SECONDS = 60.0
# What reasoning models write before their answer, and the fence that many put around JSON.
_REASONING = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)


class ChatModelError(Unavailable):
    """The language model gave no usable answer."""

    code = "CHAT_MODEL_UNAVAILABLE"
    hint = "Nothing is lost: Weftline goes on without the model. weftline doctor reports what is wrong with it."

    def __init__(
        self,
        message: str | None = None,
        /,
        *,
        kind: ChatErrorKind = "unavailable",
        hint: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind: ChatErrorKind = kind
        # Seconds that the endpoint asks to wait.
        self.retry_after = retry_after


class ChatCaller(NamedTuple):
    """Whom a model call is made for: its tenant shares the endpoint with others and is charged for it."""

    tenant: str
    agent_id: str = ""
    session_id: str = ""


class ChatMessage(NamedTuple):
    """One turn of a chat request."""

    role: Literal["user", "assistant"]
    content: str


class ChatRequest(NamedTuple):
    """A request to a chat model.

    ``json_schema``: the answer is a JSON object of this schema; endpoints without structured output answer in text, so
    the instructions must ask for it too. ``timeout``: seconds for everything: waiting, attempts, the pauses between.
    """

    system: str
    messages: tuple[ChatMessage, ...]
    max_output_tokens: int
    caller: ChatCaller
    json_schema: Mapping[str, Any] | None = None
    timeout: float = DEFAULT_TIMEOUT_SECONDS


class ChatAnswer(NamedTuple):
    """What a chat model answered. ``usage`` is None if the endpoint does not report it."""

    text: str
    finish: FinishReason
    usage: Usage | None = None


class ChatModel(Protocol):
    """Answers chat requests. Every failure is a ChatModelError; it is raised within the timeout of the request."""

    @property
    def name(self) -> str:
        """Return the name of the model, as in the catalog."""
        ...

    async def complete(self, request: ChatRequest) -> ChatAnswer: ...

    async def close(self) -> None: ...


class ChatMeter(Protocol):
    """Counts model calls for the tenant they were made for."""

    def count_chat_call(self, caller: ChatCaller, outcome: str, seconds: float, usage: Usage | None) -> None:
        """Count one call with all its attempts; ``outcome`` is ``ok`` or the kind of the error."""
        ...


def decode_answer(answer: ChatAnswer, decoder: msgspec.json.Decoder[T]) -> T:
    """Return the JSON object in an answer, also from inside a code fence or after reasoning; raises ChatModelError."""
    if answer.finish == "length":
        raise ChatModelError("The answer of the model was cut off.", kind="malformed")
    text = _REASONING.sub("", answer.text)
    start, end = text.find("{"), text.rfind("}")
    try:
        return decoder.decode(text[start : end + 1] if start >= 0 else text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        # The text of the error would quote the answer.
        raise ChatModelError("The answer of the model is not JSON of the requested form.", kind="malformed") from None
