"""Creates the configured chat model."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weftline.models.language_models.chat_model import ChatCaller, ChatMessage, ChatRequest
from weftline.settings import InvalidSetting

if TYPE_CHECKING:
    from weftline.models.language_models.answer_usage import Usage
    from weftline.models.language_models.chat_model import ChatMeter, ChatModel
    from weftline.providers.chat_models.endpoint import ChatWire
    from weftline.settings import Settings

_MAX_NAME = 200
_MAX_TIMEOUT_SECONDS = 600
_MAX_CONCURRENCY = 64
_PROVIDERS = ("openai", "anthropic")
# A request that every working model answers, to check that one does.
PROBE = ChatRequest(
    system="You answer with one word.",
    messages=(ChatMessage("user", "Answer with the word: ready"),),
    max_output_tokens=256,
    caller=ChatCaller(""),
    timeout=20.0,
)


class _NoMeter:
    def count_chat_call(self, caller: ChatCaller, outcome: str, seconds: float, usage: Usage | None) -> None:
        """Count nothing."""


NO_METER = _NoMeter()


def configured_chat_model(settings: Settings, meter: ChatMeter) -> ChatModel | None:
    """Return the model of WEFTLINE_CHAT_MODEL; None if there is none. Raises InvalidSetting for what cannot work."""
    if not settings.chat_model:
        _check_unused(settings)
        return None
    # Loading the HTTP client takes time, and few processes have a model.
    from weftline.providers.chat_models.endpoint import (  # noqa: PLC0415
        CallLimits,
        ChatEndpoint,
        ResilientChatModel,
    )

    provider, model = _provider_and_model(settings.chat_model)
    wire, default_url = _wire_of(provider, settings)
    url = settings.chat_url or default_url
    _check_url(url)
    if not settings.chat_url and not settings.chat_api_key:
        raise InvalidSetting(
            "WEFTLINE_CHAT_MODEL needs WEFTLINE_CHAT_API_KEY, or WEFTLINE_CHAT_URL of an endpoint without keys."
        )
    if not settings.chat_api_key.isascii() or not settings.chat_api_key.isprintable():
        raise InvalidSetting("WEFTLINE_CHAT_API_KEY contains characters that no key has.")
    _check_range("WEFTLINE_CHAT_TIMEOUT_SECONDS", settings.chat_timeout_seconds, _MAX_TIMEOUT_SECONDS)
    _check_range("WEFTLINE_CHAT_CONCURRENCY", settings.chat_concurrency, _MAX_CONCURRENCY)
    return ResilientChatModel(
        ChatEndpoint(wire, url, model, settings.chat_api_key),
        CallLimits(float(settings.chat_timeout_seconds), settings.chat_concurrency),
        meter,
    )


def _check_unused(settings: Settings) -> None:
    if settings.chat_url or settings.chat_api_key:
        raise InvalidSetting("WEFTLINE_CHAT_URL or WEFTLINE_CHAT_API_KEY is set, but WEFTLINE_CHAT_MODEL is not.")


def _provider_and_model(value: str) -> tuple[str, str]:
    provider, _, model = value.partition(":")
    if provider not in _PROVIDERS or not model.strip() or not model.isprintable() or len(model) > _MAX_NAME:
        raise InvalidSetting(f"WEFTLINE_CHAT_MODEL: '{value[:_MAX_NAME]}' is not openai:MODEL or anthropic:MODEL.")
    return provider, model.strip()


def _wire_of(provider: str, settings: Settings) -> tuple[ChatWire, str]:
    from weftline.providers.chat_models.endpoint import ANTHROPIC_URL, OPENAI_URL, Anthropic, OpenAICompatible  # noqa: PLC0415 - only if configured  # noqa: PLC0415 - likewise

    if provider == "anthropic":
        return Anthropic(), ANTHROPIC_URL
    is_openai = urlsplit(settings.chat_url or OPENAI_URL).hostname == urlsplit(OPENAI_URL).hostname
    return OpenAICompatible(is_openai=is_openai), OPENAI_URL


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InvalidSetting("WEFTLINE_CHAT_URL must be an http:// or https:// URL, such as http://127.0.0.1:11434/v1.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidSetting(
            "WEFTLINE_CHAT_URL must have no credentials, query or fragment; set WEFTLINE_CHAT_API_KEY."
        )


def _check_range(env: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InvalidSetting(f"{env}: {value} must be 1 to {most}.")
