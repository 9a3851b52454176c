"""What the wire forms of chat endpoints have in common: options of a request, and how errors are classified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from weftline.kernel.errors import InvalidInput
from weftline.models.language_models.chat_model import ChatModelError
from weftline.models.language_models.usage import normalise_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.models.language_models.chat_model import ChatAnswer, ChatRequest
    from weftline.models.language_models.usage import Usage

# Parts of the errors with which endpoints say that the input exceeds the context, in lower case.
_TOO_LONG = (
    "context length",
    "context_length",
    "context size",
    "context window",
    "context limit",
    "exceed_context",
    "prompt is too long",
    "input is too long",
    "too many tokens",
    "maximum input length",
)
_TOO_LARGE_STATUS = 413


class RequestOptions(NamedTuple):
    """Optional parts of a request. An endpoint that refuses one gets requests without it."""

    structured: bool = True
    temperature: bool = True
    # The newer name of the limit of output tokens; many servers know the older one only.
    completion_limit: bool = False

    def after_refusal(self, error_text: str) -> RequestOptions | None:
        """Return the options to try after a request was refused; None if it cannot be due to any of them."""
        lowered = error_text.lower()
        if self.temperature and "temperature" in lowered:
            return self._replace(temperature=False)
        if not self.completion_limit and "max_completion_tokens" in lowered:
            return self._replace(completion_limit=True)
        if self.completion_limit and "max_completion_tokens" in lowered:
            return self._replace(completion_limit=False)
        return self._replace(structured=False) if self.structured else None


class ChatWire(Protocol):
    """One wire form: how a request is written, and how an answer is read."""

    path: str
    options: RequestOptions

    def headers(self, api_key: str) -> dict[str, str]: ...

    def body(self, model: str, request: ChatRequest, options: RequestOptions) -> dict[str, Any]: ...

    def answer(self, body: bytes) -> ChatAnswer:
        """Return the answer in a response; raises ChatModelError if it is malformed or a refusal."""
        ...


def is_too_long(status: int, error_text: str) -> bool:
    """Tell whether an error says that the input exceeds the context of the model."""
    lowered = error_text.lower()
    return status == _TOO_LARGE_STATUS or any(sign in lowered for sign in _TOO_LONG)


def malformed(what: str) -> ChatModelError:
    return ChatModelError(f"The endpoint of the model answers with {what}.", kind="malformed")


def refused() -> ChatModelError:
    return ChatModelError("The model refuses to answer.", kind="refused")


def usage_of(reported: Mapping[str, Any] | None) -> Usage | None:
    """Return the reported usage; None if there is none, or if its numbers cannot be."""
    try:
        return normalise_usage(reported) if reported else None
    except InvalidInput:
        return None
