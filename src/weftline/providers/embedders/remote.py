"""Embedder that calls a service with the OpenAI API (POST /embeddings).

Error bodies may quote texts or keys, so only the status reaches errors and logs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import httpx2
import msgspec

from weftline.indexing.embeddings import EmbedderUnavailable, Model, TextRefused
from weftline.kernel.ports import approximate_tokens
from weftline.kernel.thread_pools import SHORT_THREADS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weftline.indexing.embeddings import Purpose, Vectors

_MAX_TOKENS = 8_000
_MAX_ATTEMPTS = 5
_MIN_BACKOFF_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 30.0
_TIMEOUT_SECONDS = 60.0
_MAX_CONCURRENT_CALLS = 4
# JSON numbers are shorter than this; larger answers are not read.
_BYTES_PER_NUMBER = 40
_OVERHEAD_BYTES = 65_536
_TOO_MANY_REQUESTS = 429
_KEY_STATUSES = frozenset({401, 403})
# The request is invalid, possibly because of one text.
_REFUSED_STATUSES = frozenset({400, 413, 422})
# A text that every working service accepts.
_PROBE_TEXT = "text"
_RETRY_STATUSES = frozenset({408, 409, 425, _TOO_MANY_REQUESTS, 500, 502, 503, 504, 529})


class _Answered(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Answered]


class _TemporaryFailure(Exception):
    """A temporary failure; ``seconds`` is the service's Retry-After, if any."""

    def __init__(self, reason: str, seconds: float | None = None) -> None:
        super().__init__(reason)
        self.seconds = seconds


class _Refused(Exception):
    """The service refuses these texts."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")


class _Exchange(NamedTuple):
    """Texts of one request and the answer; None if the service refuses them permanently."""

    texts: Sequence[str]
    answer: bytes | None


_answer = msgspec.json.Decoder(_Answer).decode


class RemoteEmbedder:
    """Requests vectors from a service in batches, a few requests at a time, with retries."""

    def __init__(
        self,
        url: str,
        model: str,
        dimensions: int,
        key: str = "",
        *,
        batch: int = 64,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._url = f"{url.rstrip('/')}/embeddings"
        self._name = model
        self._model = Model(f"remote:{model}@{dimensions}", dimensions, _MAX_TOKENS)
        self._key = key
        self._batch = batch
        self._pause = pause
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_CALLS)
        self._http: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<RemoteEmbedder {self._model.name}>"  # without the key

    @property
    def model(self) -> Model:
        return self._model

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        del purpose  # not supported by the API
        batches = [texts[start : start + self._batch] for start in range(0, len(texts), self._batch)]
        exchanges = [each for batch in await asyncio.gather(*map(self._request, batches)) for each in batch]
        refused = frozenset(text for each in exchanges if each.answer is None for text in each.texts)
        if refused:
            error = TextRefused("The embedding service permanently refuses a text, while it accepts others.")
            error.texts = refused
            raise error
        # In a thread: decoding thousands of numbers would block the event loop.
        return await SHORT_THREADS.run(self._unit_vectors, exchanges)

    async def release_idle(self, seconds: float) -> bool:
        """Return False: the model is in the memory of the service."""
        del seconds
        return False

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def _request(self, texts: Sequence[str]) -> list[_Exchange]:
        """Request texts together; if refused, bisect to find the refused ones."""
        try:
            return [_Exchange(texts, await self._post_with_retries(texts))]
        except _Refused as refusal:
            await self._check_accepts_others(refusal)
        return await self._bisect(texts)

    async def _bisect(self, texts: Sequence[str]) -> list[_Exchange]:
        if len(texts) == 1:
            return [_Exchange(texts, None)]
        middle, exchanges = len(texts) // 2, []
        for half in (texts[:middle], texts[middle:]):
            try:
                exchanges += [_Exchange(half, await self._post_with_retries(half))]
            except _Refused:
                exchanges += await self._bisect(half)
        return exchanges

    async def _check_accepts_others(self, refusal: _Refused) -> None:
        """Distinguish a refused text from a service that refuses everything, for example without this model."""
        try:
            await self._post_with_retries([_PROBE_TEXT])
        except _Refused:
            raise _refusing(str(refusal)) from None

    async def _post_with_retries(self, texts: Sequence[str]) -> bytes:
        """Request with retries until there is an answer or a permanent failure."""
        for attempt in range(_MAX_ATTEMPTS):
            try:
                async with self._slots:
                    return await self._post(texts)
            except _TemporaryFailure as failure:
                if attempt == _MAX_ATTEMPTS - 1:
                    raise EmbedderUnavailable(f"The embedding service does not answer ({failure}).") from None
                await self._pause(_seconds(attempt, failure.seconds))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _post(self, texts: Sequence[str]) -> bytes:
        body = {"model": self._name, "input": [_fitting(text) for text in texts], "encoding_format": "float"}
        max_bytes = len(texts) * self._model.dimensions * _BYTES_PER_NUMBER + _OVERHEAD_BYTES
        try:
            async with self._client().stream("POST", self._url, json=body) as reply:
                _check_status(reply)
                return await _read(reply, max_bytes)
        except httpx2.TimeoutException:
            raise _TemporaryFailure("it takes too long") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise _TemporaryFailure(type(error).__name__) from None

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            # No redirects: they could leak the key to another host.
            self._http = httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_SECONDS, follow_redirects=False)
        return self._http

    def _unit_vectors(self, exchanges: Sequence[_Exchange]) -> Vectors:
        import numpy as np  # noqa: PLC0415 - slow to import

        rows = [
            row for each in exchanges if each.answer is not None for row in self._rows(each.answer, len(each.texts))
        ]
        vectors = np.array(rows, np.float64).reshape(len(rows), self._model.dimensions)
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.all(np.isfinite(lengths) & (lengths > 0)):
            raise _unusable("a vector of no length")
        unit: Vectors = (vectors / lengths).astype(np.float32)
        return unit

    def _rows(self, content: bytes, exchanges: int) -> list[list[float]]:
        """Return the vectors in the order of the texts; raises if they do not match the request."""
        try:
            rows = sorted(_answer(content).data, key=lambda row: row.index)
        except msgspec.MsgspecError:
            raise _unusable("no list of embeddings") from None
        if [row.index for row in rows] != list(range(exchanges)):
            raise _unusable(f"{len(rows)} vectors for {exchanges} texts")
        for row in rows:
            if len(row.embedding) != self._model.dimensions:
                raise _unusable(f"vectors of {len(row.embedding)} dimensions instead of {self._model.dimensions}")
        return [row.embedding for row in rows]


def _fitting(text: str) -> str:
    """Truncate a text to the service's limit; an empty text becomes a space, because some services refuse it."""
    while approximate_tokens(text) > _MAX_TOKENS:
        text = text[: len(text) * _MAX_TOKENS // approximate_tokens(text)]
    return text or " "


def _check_status(reply: httpx2.Response) -> None:
    status = reply.status_code
    if status in _RETRY_STATUSES:
        retry_after = reply.headers.get("retry-after", "")
        raise _TemporaryFailure(f"status {status}", float(retry_after) if retry_after.isdecimal() else None)
    if status in _KEY_STATUSES:
        raise EmbedderUnavailable(
            f"The embedding service does not accept the key (status {status}).",
            hint="The operator must set WEFTLINE_EMBEDDING_KEY to a key that the service accepts.",
        )
    if status in _REFUSED_STATUSES:
        raise _Refused(status)
    if not reply.is_success:
        raise _refusing(f"status {status}")


async def _read(reply: httpx2.Response, max_bytes: int) -> bytes:
    content = bytearray()
    async for part in reply.aiter_bytes():
        content += part
        if len(content) > max_bytes:
            raise _unusable("more than was asked for")
    return bytes(content)


def _seconds(attempt: int, retry_after: float | None) -> float:
    """Return the pause: the service's Retry-After, or exponential backoff with jitter."""
    backoff = _MIN_BACKOFF_SECONDS * 2**attempt * random.uniform(1, 1.5)  # noqa: S311 - no secret
    return min(_MAX_BACKOFF_SECONDS, backoff if retry_after is None else retry_after)


def _refusing(why: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The embedding service refuses the request ({why}).",
        hint="The operator must check WEFTLINE_EMBEDDING_URL and WEFTLINE_EMBEDDING_MODEL.",
    )


def _unusable(what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The embedding service answers with {what}.",
        hint="The operator must set WEFTLINE_EMBEDDING_MODEL and WEFTLINE_EMBEDDING_DIMENSIONS to match the service.",
    )
