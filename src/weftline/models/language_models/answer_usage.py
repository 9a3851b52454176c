"""Usage and model of a provider's answer, read from its bytes while they pass.

What is kept is bounded: the whole of an answer in one piece, or one event of a stream, and of both no more than
``MAX_KEPT_BYTES``. Beyond that, or if the bytes cannot be read, the usage is not known.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from weftline.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable


# Token usage as providers report it, in one shape.

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


MAX_KEPT_BYTES = 4 * 2**20
# Of Gemini too, which calls it usageMetadata.
_USAGE = b'"usage'
_DATA = b"data:"
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


class _Named(msgspec.Struct):
    model: Any = None


class _Request(_Named):
    background: Any = None


class _Answer(_Named, rename={"model_version": "modelVersion", "usage_metadata": "usageMetadata"}):
    usage: dict[str, Any] | None = None
    model_version: Any = None
    usage_metadata: dict[str, Any] | None = None

    @property
    def reported(self) -> dict[str, Any]:
        return self.usage or self.usage_metadata or {}


class _Event(_Answer):
    """An event of a stream: Anthropic begins with a ``message``, OpenAI Responses end with a ``response``."""

    message: _Answer | None = None
    response: _Answer | None = None


_T = TypeVar("_T")


class AnswerReader(Protocol):
    """Reads the usage of one answer."""

    @property
    def model(self) -> str:
        """Return the model that the answer names; empty if it names none."""
        ...

    def feed(self, data: bytes) -> None:
        """Take the next bytes, decompressed."""
        ...

    def finish(self) -> Usage | None:
        """Return the usage; None if the answer has none that can be read."""
        ...


class WholeAnswer:
    """An answer that is one JSON object."""

    def __init__(self) -> None:
        self.model = ""
        self._kept: bytearray | None = bytearray()

    def feed(self, data: bytes) -> None:
        if self._kept is not None:
            self._kept += data
            if len(self._kept) > MAX_KEPT_BYTES:
                self._kept = None

    def finish(self) -> Usage | None:
        kept, self._kept = self._kept, None
        answer = None if kept is None else _parsed_answer(bytes(kept))
        if answer is None:
            return None
        self.model = _model(answer)
        return _usage(answer.reported)


class StreamedAnswer:
    """Server-sent events. Anthropic reports what was sent first, what was answered last; OpenAI all of it last."""

    def __init__(self) -> None:
        self.model = ""
        self._line = bytearray()
        self._is_too_long = False
        self._reported: dict[str, Any] = {}

    def feed(self, data: bytes) -> None:
        end = data.rfind(b"\n")
        if end < 0:
            self._keep(data)
            return
        self._keep(data[:end])
        lines, self._line = self._line, bytearray()
        is_first_lost, self._is_too_long = self._is_too_long, False
        if _USAGE in lines or not self.model:
            self._read(bytes(lines).split(b"\n")[is_first_lost:])
        self._keep(data[end + 1 :])

    def finish(self) -> Usage | None:
        return _usage(self._reported)

    def _keep(self, data: bytes) -> None:
        self._line += data
        if len(self._line) > MAX_KEPT_BYTES:
            self._line.clear()
            self._is_too_long = True

    def _read(self, lines: list[bytes]) -> None:
        for line in lines:
            is_read = line.startswith(_DATA) and (_USAGE in line or not self.model)
            event = _parsed(line[len(_DATA) :], _Event) if is_read else None
            if event is None:
                continue
            for part in (event, event.message, event.response):
                if part is not None:
                    self.model = _model(part) or self.model
                    # Anthropic repeats only some numbers at the end.
                    self._reported |= {name: value for name, value in part.reported.items() if value is not None}


class CompressedAnswer:
    """An answer that the provider has compressed with gzip or deflate."""

    def __init__(self, answer: AnswerReader) -> None:
        self._answer = answer
        self._inflate: zlib._Decompress | None = zlib.decompressobj(_GZIP_OR_ZLIB)

    @property
    def model(self) -> str:
        return self._answer.model

    def feed(self, data: bytes) -> None:
        try:
            # In pieces: a few kilobytes may become gigabytes.
            while self._inflate is not None and data:
                self._answer.feed(self._inflate.decompress(data, MAX_KEPT_BYTES // 4))
                data = self._inflate.unconsumed_tail
        except zlib.error:
            self._inflate = None

    def finish(self) -> Usage | None:
        return None if self._inflate is None else self._answer.finish()


class KeptAnswer:
    """An answer whose bytes somebody else gets too, decompressed."""

    def __init__(self, answer: AnswerReader, keep: Callable[[bytes], None]) -> None:
        self._answer = answer
        self._keep = keep

    @property
    def model(self) -> str:
        return self._answer.model

    def feed(self, data: bytes) -> None:
        self._keep(data)
        self._answer.feed(data)

    def finish(self) -> Usage | None:
        return self._answer.finish()


def is_event_stream(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == b"text/event-stream"


def answer_reader(
    content_type: bytes, encoding: bytes, keep: Callable[[bytes], None] | None = None
) -> AnswerReader | None:
    """Return what reads an answer with these headers, and passes its bytes to ``keep``; None if nothing can."""
    kind = content_type.partition(b";")[0].strip().lower()
    if kind not in {b"application/json", b"text/event-stream"}:
        return None
    answer: AnswerReader = StreamedAnswer() if is_event_stream(content_type) else WholeAnswer()
    answer = answer if keep is None else KeptAnswer(answer, keep)
    if encoding.lower() in {b"gzip", b"x-gzip", b"deflate"}:
        return CompressedAnswer(answer)
    return None if encoding.lower() not in {b"", b"identity"} else answer


def requested_model(body: bytes) -> str:
    """Return the model that a request names; empty if none can be read."""
    request = _parsed(body, _Named)
    return "" if request is None else _model(request)


def is_answered_later(body: bytes) -> bool:
    """Tell whether the usage of a request is not in its answer, or cannot be known to be: it runs in the background."""
    request = _parsed(body, _Request)
    return request is None or bool(request.background)


def _parsed_answer(text: bytes) -> _Answer | None:
    """Return an answer; of a stream of Gemini that is one list of answers, the last, which has the usage of all."""
    if not text.lstrip().startswith(b"["):
        return _parsed(text, _Answer)
    parts = _parsed(text, list[_Answer])
    return parts[-1] if parts else None


def _parsed(text: bytes, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _model(part: _Named) -> str:
    named = part.model_version if isinstance(part, _Answer) and part.model is None else part.model
    return named if isinstance(named, str) else ""


def _usage(reported: dict[str, Any]) -> Usage | None:
    try:
        return normalise_usage(reported)
    except InvalidInput:
        return None
