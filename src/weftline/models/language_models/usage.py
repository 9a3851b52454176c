"""Token usage as providers report it, in one shape."""

from __future__ import annotations

from typing import Any

import msgspec

from weftline.kernel.errors import InvalidInput

# No provider takes a request of this size; a larger number is a mistake. Sums of many reports stay within 64 bits.
_MAX_TOKENS = 20_000_000


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one model call. ``input_tokens`` is everything sent, with what the cache read and wrote.

    ``cache_write_1h_tokens`` is the part of ``cache_write_tokens`` with a lifetime of one hour, ``reasoning_tokens``
    the part of ``output_tokens`` that is not in the answer.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def uncached_tokens(self) -> int:
        return self.input_tokens - self.cache_read_tokens - self.cache_write_tokens


def normalise_usage(reported: object) -> Usage:
    """Return the usage object of OpenAI Chat, OpenAI Responses, Anthropic or Gemini in one shape.

    The form is recognised by its fields. Raises InvalidInput for numbers that cannot be: negative, too large, or more
    tokens from the cache than were sent.
    """
    if not isinstance(reported, dict):
        raise InvalidInput("usage: must be an object", field="usage")
    usage = _read(reported)
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    if cached > usage.input_tokens:
        raise InvalidInput("usage: more tokens read from and written to the cache than sent", field="usage")
    if usage.cache_write_1h_tokens > usage.cache_write_tokens:
        raise InvalidInput("usage.cache_creation: more tokens for one hour than written in all", field="usage")
    if usage.reasoning_tokens > usage.output_tokens:
        raise InvalidInput("usage: more reasoning tokens than output tokens", field="usage")
    return usage


def _read(reported: dict[str, Any]) -> Usage:
    if "promptTokenCount" in reported or "usageMetadata" in reported:
        return _gemini(_inner(reported, "usageMetadata") or reported)
    if "prompt_tokens" in reported:
        return _chat(reported)
    if (
        "cache_creation_input_tokens" in reported
        or "cache_read_input_tokens" in reported
        or "cache_creation" in reported
    ):
        return _anthropic(reported)
    if "input_tokens" in reported:
        return _responses(reported)
    raise InvalidInput(
        "usage: has none of prompt_tokens, input_tokens and promptTokenCount",
        field="usage",
        hint="Send the usage object of the provider's answer as it is.",
    )


def _chat(reported: dict[str, Any]) -> Usage:
    read = _inner(reported, "prompt_tokens_details")
    written = _inner(reported, "completion_tokens_details")
    return Usage(
        input_tokens=_given(reported, "prompt_tokens"),
        output_tokens=_number(reported, "completion_tokens"),
        # DeepSeek reports hits outside the details.
        cache_read_tokens=_number(read, "cached_tokens") or _number(reported, "prompt_cache_hit_tokens"),
        cache_write_tokens=_number(read, "cache_write_tokens"),
        reasoning_tokens=_number(written, "reasoning_tokens"),
    )


def _responses(reported: dict[str, Any]) -> Usage:
    read = _inner(reported, "input_tokens_details")
    written = _inner(reported, "output_tokens_details")
    return Usage(
        input_tokens=_given(reported, "input_tokens"),
        output_tokens=_number(reported, "output_tokens"),
        cache_read_tokens=_number(read, "cached_tokens"),
        cache_write_tokens=_number(read, "cache_write_tokens"),
        reasoning_tokens=_number(written, "reasoning_tokens"),
    )


def _anthropic(reported: dict[str, Any]) -> Usage:
    read = _number(reported, "cache_read_input_tokens")
    by_lifetime = _inner(reported, "cache_creation")
    one_hour = _number(by_lifetime, "ephemeral_1h_input_tokens")
    written = _number(reported, "cache_creation_input_tokens")
    written = written or one_hour + _number(by_lifetime, "ephemeral_5m_input_tokens")
    return Usage(
        input_tokens=_given(reported, "input_tokens") + read + written,
        output_tokens=_number(reported, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=one_hour,
    )


def _gemini(reported: dict[str, Any]) -> Usage:
    thoughts = _number(reported, "thoughtsTokenCount")
    return Usage(
        input_tokens=_given(reported, "promptTokenCount") + _number(reported, "toolUsePromptTokenCount"),
        output_tokens=_number(reported, "candidatesTokenCount") + thoughts,
        cache_read_tokens=_number(reported, "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )


def _inner(reported: dict[str, Any], name: str) -> dict[str, Any]:
    found = reported.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidInput(f"usage.{name}: must be an object", field=f"usage.{name}")
    return found


def _given(reported: dict[str, Any], name: str) -> int:
    """Return a number that every report has: what is not known is not counted as nothing."""
    if reported.get(name) is None:
        raise InvalidInput(f"usage.{name}: is missing", field=f"usage.{name}")
    return _number(reported, name)


def _number(reported: dict[str, Any], name: str) -> int:
    found = reported.get(name)
    if found is None:
        return 0
    if type(found) is not int or not 0 <= found <= _MAX_TOKENS:
        raise InvalidInput(f"usage.{name}: must be a whole number from 0 to {_MAX_TOKENS}", field=f"usage.{name}")
    return found
