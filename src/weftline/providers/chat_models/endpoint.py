"""One attempt at a chat endpoint over HTTP.

Error bodies may quote texts or keys: they are read to classify the error, and only the status reaches errors and logs.
"""

from __future__ import annotations

import asyncio
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, NamedTuple

import httpx2

from weftline.models.language_models.chat_model import ChatModelError
from weftline.providers.chat_models.wire import is_too_long, malformed

if TYPE_CHECKING:
    from weftline.models.language_models.chat_model import ChatAnswer, ChatErrorKind, ChatRequest
    from weftline.providers.chat_models.wire import ChatWire, RequestOptions

_MAX_BYTES = 8 * 2**20
_MAX_ERROR_BYTES = 65_536
_IDENTITY = "identity"
_CONNECT_SECONDS = 10.0
_TOO_MANY_REQUESTS = 429
_KEY_STATUSES = frozenset({401, 403})
# The request is invalid, possibly because of one of its options.
_INVALID_STATUSES = frozenset({400, 422})
_TEMPORARY_STATUSES = frozenset({408, 409, 425, 500, 502, 503, 504, 529})
_CHECK_KEY = "The operator must set WEFTLINE_CHAT_API_KEY to a key that the endpoint accepts."
_CHECK_ADDRESS = "The operator must check WEFTLINE_CHAT_URL and WEFTLINE_CHAT_MODEL."


class _Response(NamedTuple):
    status: int
    retry_after: float | None
    body: bytes

    @property
    def error_text(self) -> str:
        return self.body.decode("utf-8", "replace")


class ChatEndpoint:
    """Sends requests to one model of an endpoint, without the options that it refuses."""

    def __init__(self, wire: ChatWire, url: str, model: str, api_key: str = "") -> None:
        self.model = model
        self._wire = wire
        self._url = f"{url.rstrip('/')}{wire.path}"
        self._key = api_key
        self._options = wire.options
        self._http: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<ChatEndpoint {self.model}>"  # without the key

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def attempt(self, request: ChatRequest, seconds: float) -> ChatAnswer:
        """Send a request once; again only without an option that the endpoint refuses. Raises ChatModelError."""
        try:
            # Over everything: an endpoint that sends a byte now and then does not time out otherwise.
            async with asyncio.timeout(seconds):
                return await self._attempt(request)
        except (TimeoutError, httpx2.TimeoutException):
            raise ChatModelError("The endpoint of the model takes too long.", kind="timeout") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            reason = type(error).__name__
            raise ChatModelError(
                f"The endpoint of the model cannot be reached ({reason}).", kind="unavailable"
            ) from None

    async def _attempt(self, request: ChatRequest) -> ChatAnswer:
        options: RequestOptions | None = self._options
        tried: set[RequestOptions] = set()
        while options is not None and options not in tried:
            tried.add(options)
            sent = options
            response = await self._post(request, sent)
            options = _without_refused(response, sent, request)
        _check_status(response)
        # The endpoint accepts these options, so the next request starts with them.
        self._options = sent
        return self._wire.answer(response.body)

    async def _post(self, request: ChatRequest, options: RequestOptions) -> _Response:
        body = self._wire.body(self.model, request, options)
        async with self._client().stream("POST", self._url, json=body) as reply:
            content = await _read(reply)
            return _Response(reply.status_code, _retry_after(reply.headers.get("retry-after", "")), content)

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
            # No redirects: they could leak the key to another host.
            headers = {**self._wire.headers(self._key), "Accept-Encoding": _IDENTITY}
            self._http = httpx2.AsyncClient(headers=headers, timeout=timeout, follow_redirects=False)
        return self._http


def _without_refused(response: _Response, sent: RequestOptions, request: ChatRequest) -> RequestOptions | None:
    """Return the options to try next if the request may have been refused because of one; None if not."""
    if response.status not in _INVALID_STATUSES or is_too_long(response.status, response.error_text):
        return None
    changed = sent.after_refusal(response.error_text)
    # Without a schema, the request had no structured output that could be refused.
    return changed if changed is None or changed.structured or request.json_schema is not None else None


async def _read(reply: httpx2.Response) -> bytes:
    if reply.headers.get("content-encoding", _IDENTITY) != _IDENTITY:
        # A few kilobytes may become gigabytes before the limit is checked.
        raise malformed("compressed content, which was not asked for")
    limit = _MAX_BYTES if reply.is_success else _MAX_ERROR_BYTES
    content = bytearray()
    async for part in reply.aiter_bytes():
        content += part
        if len(content) > limit:
            if reply.is_success:
                raise malformed("more than was asked for")
            break
    return bytes(content)


def _check_status(response: _Response) -> None:
    status = response.status
    if 200 <= status < 300:  # noqa: PLR2004 - success
        return
    if is_too_long(status, response.error_text):
        raise ChatModelError("The input exceeds the context of the model.", kind="too_long")
    if status in _KEY_STATUSES:
        raise _error("does not accept the key", status, "rejected", hint=_CHECK_KEY)
    if status == _TOO_MANY_REQUESTS:
        raise _error("limits the rate", status, "rate_limited", retry_after=response.retry_after)
    if status in _TEMPORARY_STATUSES:
        raise _error("fails", status, "unavailable", retry_after=response.retry_after)
    raise _error("refuses the request", status, "rejected", hint=_CHECK_ADDRESS)


def _error(
    what: str, status: int, kind: ChatErrorKind, *, hint: str | None = None, retry_after: float | None = None
) -> ChatModelError:
    message = f"The endpoint of the model {what} (status {status})."
    return ChatModelError(message, kind=kind, hint=hint, retry_after=retry_after)


def _retry_after(header: str) -> float | None:
    """Return the seconds of a Retry-After header, given as a number or as a date."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time()
        except (ValueError, IndexError, OverflowError):
            return None
    # Neither negative nor NaN, which no comparison accepts.
    return seconds if 0 <= seconds < float("inf") else None
