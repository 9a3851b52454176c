"""Fetches documents over HTTP, from allowed addresses only.

The resolved address is checked before each connection, also after a redirect, as for webhooks.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin, urlsplit

import httpcore2
import msgspec

from weftline.knowledge.model import MediaType
from weftline.knowledge.sources import FetchResult
from weftline.providers.webhook_sender import CheckedNetwork, Reach, failure_of
from weftline.sessions.events.webhooks import AddressNotAllowed

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping

_TIMEOUT_SECONDS = 60.0
_MAX_REDIRECTS = 5
_MAX_VALIDATOR = 200
_SUCCESS, _UNCHANGED = 200, 304
_GONE = frozenset({404, 410})
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_USER_AGENT = f"Weftline/{version('weftline')}"
_HINT = "Use a public address, or have the operator add the host to WEFTLINE_FETCH_PRIVATE_HOSTS."
_ACCEPT = "text/markdown, text/html, text/plain, application/pdf, application/json, */*;q=0.5"


class _Validators(msgspec.Struct, frozen=True, omit_defaults=True):
    """HTTP validators of a response (ETag, Last-Modified), for conditional requests."""

    etag: str = ""
    last_modified: str = ""


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpFetcher:
    """Fetches a URL with a conditional request."""

    def __init__(self, private_hosts: Iterable[str] = (), trusted: ssl.SSLContext | None = None) -> None:
        self._reach = Reach(frozenset(host.lower() for host in private_hosts))
        self._trusted = trusted

    async def check(self, url: str) -> None:
        try:
            await self._reach.check(url)
        except AddressNotAllowed as error:
            raise AddressNotAllowed(error.message, hint=_HINT) from None

    async def fetch(self, url: str, validator: str, max_bytes: int) -> FetchResult:
        known = msgspec.json.decode(validator, type=_Validators) if validator else _Validators()
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                answer = await self._get(url, _headers(known), max_bytes)
        except Exception as error:  # noqa: BLE001 - whatever the server does must not fail the job
            return FetchResult(validator=validator, error=failure_of(error))
        return _to_result(answer, validator, max_bytes)

    async def _get(self, url: str, headers: Mapping[str, str], max_bytes: int) -> _Answer:
        trusted = self._trusted or httpcore2.default_ssl_context()
        network = CheckedNetwork(self._reach)
        async with httpcore2.AsyncConnectionPool(ssl_context=trusted, network_backend=network) as pool:
            for _ in range(_MAX_REDIRECTS + 1):
                answer = await _request(pool, url, headers, max_bytes)
                target = _redirect_target(url, answer)
                if target is None:
                    return answer
                url = target
        return answer


def _headers(known: _Validators) -> dict[str, str]:
    headers = {"user-agent": _USER_AGENT, "accept": _ACCEPT}
    if known.etag:
        headers["if-none-match"] = known.etag
    if known.last_modified:
        headers["if-modified-since"] = known.last_modified
    return headers


async def _request(
    pool: httpcore2.AsyncConnectionPool, url: str, headers: Mapping[str, str], max_bytes: int
) -> _Answer:
    async with pool.stream("GET", url, headers=list(headers.items())) as response:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        body = bytearray()
        if response.status == _SUCCESS:
            async for part in response.aiter_stream():
                body += part
                if len(body) > max_bytes:
                    break
        return _Answer(response.status, headers, bytes(body))


def _redirect_target(url: str, answer: _Answer) -> str | None:
    """Return the target of a redirect, if any; never from https to http."""
    if answer.status not in _REDIRECT_STATUSES or "location" not in answer.headers:
        return None
    target = urljoin(url, answer.headers["location"])
    schemes = {"https"} if urlsplit(url).scheme == "https" else {"http", "https"}
    return target if urlsplit(target).scheme in schemes else None


def _to_result(answer: _Answer, validator: str, max_bytes: int) -> FetchResult:
    if answer.status == _UNCHANGED:
        return FetchResult(validator=validator)
    if answer.status in _GONE:
        return FetchResult(gone=True)
    if answer.status != _SUCCESS:
        return FetchResult(
            validator=validator,
            error="redirected" if answer.status in _REDIRECT_STATUSES else f"answered {answer.status}",
        )
    if len(answer.body) > max_bytes:
        return FetchResult(validator=validator, error="too_large")
    headers = answer.headers
    validators = _Validators(_echoable(headers.get("etag", "")), _echoable(headers.get("last-modified", "")))
    return FetchResult(
        answer.body, _media_type(headers.get("content-type", "")), msgspec.json.encode(validators).decode()
    )


def _echoable(validator: str) -> str:
    """Return a validator, if it can be sent back unchanged."""
    return validator if len(validator) <= _MAX_VALIDATOR and validator.isascii() and validator.isprintable() else ""


def _media_type(content_type: str) -> str | None:
    try:
        return msgspec.convert(content_type.partition(";")[0].strip().lower(), MediaType)
    except msgspec.ValidationError:
        return None
