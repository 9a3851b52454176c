"""Usage and model of a provider's answer, read from its bytes while they pass.

What is kept is bounded: the whole of an answer in one piece, or one event of a stream, and of both no more than
``MAX_KEPT_BYTES``. Beyond that, or if the bytes cannot be read, the usage is not known.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.models.language_models.usage import Usage, normalise_usage

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_KEPT_BYTES = 4 * 2**20
# Of Gemini too, which calls it usageMetadata.
_USAGE = b'"usage'
_DATA = b"data:"
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


class _Named(msgspec.Struct):
    model: Any = None


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
