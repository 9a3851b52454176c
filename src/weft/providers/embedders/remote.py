"""Embedding by a service that speaks as OpenAI's does: POST /embeddings.

What a service says when it refuses may quote texts or keys, so none of it reaches an error or a log: only its status.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import httpx2
import msgspec

from weft.capabilities.indexing.embeddings.model import EmbedderUnavailable, Model, TextRefused
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.capabilities.indexing.embeddings.model import Purpose, Vectors

_MOST_TOKENS = 8_000
_TRIES = 5
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_TIMEOUT_SECONDS = 60.0
_CALLS_AT_ONCE = 4
# A number of JSON is shorter than this; what is beyond all numbers that were asked for is not read.
_BYTES_PER_NUMBER = 40
_BYTES_BESIDES = 65_536
_TOO_MANY_REQUESTS = 429
_REFUSED_KEY = frozenset({401, 403})
# What is wrong with the request, which may be one of its texts.
_REFUSED_REQUEST = frozenset({400, 413, 422})
# A text that every service takes which takes any.
_HARMLESS = "text"
_TRY_AGAIN = frozenset({408, 409, 425, _TOO_MANY_REQUESTS, 500, 502, 503, 504, 529})


class _Answered(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Answered]


class _TryAgain(Exception):
    """It may work later; in so many seconds, if the service says so."""

    def __init__(self, reason: str, seconds: float | None = None) -> None:
        super().__init__(reason)
        self.seconds = seconds


class _Refused(Exception):
    """The service does not take these texts as they are."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")


class _Asked(NamedTuple):
    """Texts that were sent together, and what was answered; None if the service refuses them for good."""

    texts: Sequence[str]
    answer: bytes | None


_answer = msgspec.json.Decoder(_Answer).decode


class RemoteEmbedder:
    """Asks a service for vectors: so many texts a call, a few calls at once, again where that may help."""

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
        self._model = Model(f"remote:{model}@{dimensions}", dimensions, _MOST_TOKENS)
        self._key = key
        self._batch = batch
        self._pause = pause
        self._room = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._http: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<RemoteEmbedder {self._model.name}>"  # the key has no place in a log or a traceback

    @property
    def model(self) -> Model:
        return self._model

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        del purpose  # the services that this is spoken with make no difference
        batches = [texts[start : start + self._batch] for start in range(0, len(texts), self._batch)]
        asked = [each for some in await asyncio.gather(*map(self._asked, batches)) for each in some]
        refused = frozenset(text for each in asked if each.answer is None for text in each.texts)
        if refused:
            error = TextRefused("The embedding service refuses a text for good, while it takes others.")
            error.texts = refused
            raise error
        # Taking thousands of numbers apart would keep everyone else waiting.
        return await asyncio.to_thread(self._unit_vectors, asked)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def _asked(self, texts: Sequence[str]) -> list[_Asked]:
        """Ask for texts together; where the service refuses that, find out which of them it refuses."""
        try:
            return [_Asked(texts, await self._answered(texts))]
        except _Refused as refusal:
            await self._check_that_others_are_taken(refusal)
        return await self._asked_apart(texts)

    async def _asked_apart(self, texts: Sequence[str]) -> list[_Asked]:
        if len(texts) == 1:
            return [_Asked(texts, None)]
        middle, asked = len(texts) // 2, []
        for half in (texts[:middle], texts[middle:]):
            try:
                asked += [_Asked(half, await self._answered(half))]
            except _Refused:
                asked += await self._asked_apart(half)
        return asked

    async def _check_that_others_are_taken(self, refusal: _Refused) -> None:
        """Tell a text that is refused from a service that refuses everything, as one without this model does."""
        try:
            await self._answered([_HARMLESS])
        except _Refused:
            raise _refusing(str(refusal)) from None

    async def _answered(self, texts: Sequence[str]) -> bytes:
        """Ask until there is an answer, or no hope of one."""
        for attempt in range(_TRIES):
            try:
                async with self._room:
                    return await self._post(texts)
            except _TryAgain as failure:
                if attempt == _TRIES - 1:
                    raise EmbedderUnavailable(f"The embedding service does not answer ({failure}).") from None
                await self._pause(_seconds(attempt, failure.seconds))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _post(self, texts: Sequence[str]) -> bytes:
        body = {"model": self._name, "input": [_fitting(text) for text in texts], "encoding_format": "float"}
        most = len(texts) * self._model.dimensions * _BYTES_PER_NUMBER + _BYTES_BESIDES
        try:
            async with self._client().stream("POST", self._url, json=body) as reply:
                _check_status(reply)
                return await _read(reply, most)
        except httpx2.TimeoutException:
            raise _TryAgain("it takes too long") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise _TryAgain(type(error).__name__) from None

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            # No redirects: a key is for the address it was given for.
            self._http = httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_SECONDS, follow_redirects=False)
        return self._http

    def _unit_vectors(self, asked: Sequence[_Asked]) -> Vectors:
        import numpy as np  # noqa: PLC0415 - only who embeds has it

        rows = [row for each in asked if each.answer is not None for row in self._rows(each.answer, len(each.texts))]
        vectors = np.array(rows, np.float64).reshape(len(rows), self._model.dimensions)
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.all(np.isfinite(lengths) & (lengths > 0)):
            raise _unusable("a vector of no length")
        unit: Vectors = (vectors / lengths).astype(np.float32)
        return unit

    def _rows(self, content: bytes, asked: int) -> list[list[float]]:
        """Return the vectors in the order of the texts, if they are what was asked for."""
        try:
            rows = sorted(_answer(content).data, key=lambda row: row.index)
        except msgspec.MsgspecError:
            raise _unusable("no list of embeddings") from None
        if [row.index for row in rows] != list(range(asked)):
            raise _unusable(f"{len(rows)} vectors for {asked} texts")
        for row in rows:
            if len(row.embedding) != self._model.dimensions:
                raise _unusable(f"vectors of {len(row.embedding)} dimensions instead of {self._model.dimensions}")
        return [row.embedding for row in rows]


def _fitting(text: str) -> str:
    """Cut a text to what a service takes in; none is empty, as some refuse that."""
    while approximate_tokens(text) > _MOST_TOKENS:
        text = text[: len(text) * _MOST_TOKENS // approximate_tokens(text)]
    return text or " "


def _check_status(reply: httpx2.Response) -> None:
    status = reply.status_code
    if status in _TRY_AGAIN:
        said = reply.headers.get("retry-after", "")
        raise _TryAgain(f"status {status}", float(said) if said.isdecimal() else None)
    if status in _REFUSED_KEY:
        raise EmbedderUnavailable(
            f"The embedding service does not accept the key (status {status}).",
            hint="Whoever runs Weft sets WEFT_EMBEDDING_KEY to a key that the service accepts.",
        )
    if status in _REFUSED_REQUEST:
        raise _Refused(status)
    if not reply.is_success:
        raise _refusing(f"status {status}")


async def _read(reply: httpx2.Response, most: int) -> bytes:
    content = bytearray()
    async for part in reply.aiter_bytes():
        content += part
        if len(content) > most:
            raise _unusable("more than was asked for")
    return bytes(content)


def _seconds(attempt: int, said: float | None) -> float:
    """Return how long to wait: as the service says, or twice as long each time, not all callers at the same moment."""
    longer = _FIRST_PAUSE_SECONDS * 2**attempt * random.uniform(1, 1.5)  # noqa: S311 - no secret
    return min(_LONGEST_PAUSE_SECONDS, longer if said is None else said)


def _refusing(why: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The embedding service refuses the request ({why}).",
        hint="Whoever runs Weft checks WEFT_EMBEDDING_URL and WEFT_EMBEDDING_MODEL: the service has no such thing.",
    )


def _unusable(what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The embedding service answers with {what}.",
        hint="Whoever runs Weft sets WEFT_EMBEDDING_MODEL and WEFT_EMBEDDING_DIMENSIONS to what the service has.",
    )
