"""The wire as both clients speak it: addresses, requests, answers and errors. Nothing here does I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx2
import msgspec

from weft.client._operations import ROUTES
from weft.kernel.errors import (
    AuthenticationError,
    Conflict,
    ContentTooLarge,
    ErrorBody,
    Forbidden,
    InternalError,
    InvalidInput,
    NotFound,
    RateLimited,
    Rejected,
    SystemUnavailable,
    Unavailable,
    WeftError,
)
from weft.kernel.json_input import encode_given

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8787"
# The server gives a sign of life every 15 seconds; four missed ones mean that nobody is there any more.
SILENCE_SECONDS = 60.0
# How long a large export or import may take before anything is heard of it.
LONG_SECONDS = 600.0
CHUNK_BYTES = 65_536
EXPORT_STREAM, IMPORT_STREAM = "/v1/export/stream", "/v1/import/stream"
UPLOAD = "/v1/domains/{domain}/uploads"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_ANY_JSON = {"metadata", "value"}
_PLACEHOLDER = re.compile(r"\{(\w+)(:int)?\}")
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_KINDS: dict[int, type[WeftError]] = {
    401: AuthenticationError,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: ContentTooLarge,
    429: RateLimited,
    500: InternalError,
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where Weft is, and the credential it is shown. The credential never shows in a repr or a message."""

    url: str
    api_key: str | None = field(repr=False)

    @classmethod
    def resolve(cls, url: str | None, api_key: str | None) -> Address:
        """Return the address given, with the environment and the defaults behind it."""
        url = (url or os.environ.get("WEFT_URL") or DEFAULT_URL).rstrip("/")
        return cls(_checked_url(url), _checked_key(api_key or os.environ.get("WEFT_API_KEY")))

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}

    @property
    def secure(self) -> bool:
        return self.url.startswith("https:")

    @property
    def loopback(self) -> bool:
        return urlsplit(self.url).hostname in _LOOPBACK


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInput("url: give the server's address, such as http://127.0.0.1:8787.", field="url")
    if "@" in parts.netloc:
        raise InvalidInput("url: pass the credential as api_key, not inside the address.", field="url")
    return url


def _checked_key(api_key: str | None) -> str | None:
    """Refuse what cannot stand in a header here: the HTTP library would quote it in its own message."""
    if api_key is None or not api_key.strip():
        return None
    api_key = api_key.strip()
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise InvalidInput("api_key: holds a character that no key or token has.", field="api_key")
    return api_key


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One request, ready to be sent."""

    method: str
    target: str
    content: bytes | None
    wait_seconds: float


def outgoing(operation: str, arguments: Mapping[str, Any]) -> Outgoing:
    """Lay out a call: fields named in the path go there, the rest into the query or one JSON object."""
    method, template = ROUTES[operation]
    rest = dict(arguments)
    wait_seconds = rest.get("wait_seconds", 0.0)
    for name in _ANY_JSON & rest.keys():
        # What JSON has no words for would be sent as something else.
        encode_given(name, rest[name])
    try:
        target = _PLACEHOLDER.sub(lambda match: _segment(match[1], rest.pop(match[1]), match[2]), template)
        in_query = method in {"GET", "DELETE"}
        content = None if in_query else msgspec.json.encode(rest)
        target += query(rest) if in_query else ""
    except UnicodeEncodeError:
        raise InvalidInput("A text is not valid: it holds half of a surrogate pair.") from None
    return Outgoing(method, target, content, wait_seconds if isinstance(wait_seconds, int | float) else 0.0)


def _segment(name: str, value: object, number: str | None) -> str:
    if number and isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise InvalidInput(f"{name}: Expected `str`, got `{type(value).__name__}`", field=name)
    if value in {"", ".", ".."} or "/" in value:
        # On the way to the server such a segment disappears or falls apart, and the call would mean another thing.
        raise InvalidInput(f"{name}: {value[:100]!r} is not a name", field=name)
    return quote(value, safe="")


def query(fields: Mapping[str, Any]) -> str:
    """Return fields as a query string: lists repeated, everything but text as JSON."""
    pairs = [
        (name, item if isinstance(item, str) else msgspec.json.encode(item).decode())
        for name, value in msgspec.to_builtins(fields).items()
        for item in (value if isinstance(value, list | tuple) else [value])
    ]
    return f"?{urlencode(pairs)}" if pairs else ""


def stream_target(wanted: Mapping[str, Any], after: int) -> str:
    fields = {**wanted, "after": after}
    return "/v1/events/stream" + query({name: value for name, value in fields.items() if value is not None})


def decoded(content: bytes | str, response: type[T], address: Address) -> T:
    """Return an answer as its type."""
    try:
        return msgspec.json.decode(content, type=response)
    except msgspec.DecodeError as error:
        raise SystemUnavailable(
            f"What answers at {address.url} does not speak as this version of Weft does.", url=address.url
        ) from error


def refusal(reply: httpx2.Response, content: bytes) -> WeftError:
    """Return the error that an answer stands for."""
    try:
        body = msgspec.json.decode(content, type=ErrorBody)
    except msgspec.DecodeError:
        error = _kind(reply.status_code)(f"{reply.url.host} answered with status {reply.status_code}.")
    else:
        error = _restored(body, _class_of(body.code) or _kind(reply.status_code))
        vars(error)["http_status"] = reply.status_code
    seconds = reply.headers.get("retry-after", "")
    if seconds.isdecimal():
        error.context.setdefault("retry_after_seconds", int(seconds))
    return error


def reported(content: str, address: Address) -> WeftError:
    """Return the error that a stream ended with."""
    body = decoded(content, ErrorBody, address)
    return _restored(body, _class_of(body.code) or InternalError)


def _restored(body: ErrorBody, kind: type[WeftError]) -> WeftError:
    error = kind(body.error, **body.context)
    # The server may be newer than this client: what it says of the error goes before what the class says.
    vars(error).update(
        code=body.code,
        hint=" ".join(body.suggestions),
        related=tuple(body.related_resources),
        severity=body.severity,
        recoverable=body.recoverable,
    )
    return error


def _class_of(code: str) -> type[WeftError] | None:
    return next((error for error in _with_code(WeftError) if error.code == code), None)


def _with_code(kind: type[WeftError]) -> Iterator[type[WeftError]]:
    """Yield the classes that have a code of their own, and the one that inherits the base's."""
    for leaf in kind.__subclasses__():
        if "code" in vars(leaf) or leaf is InternalError:
            yield leaf
        yield from _with_code(leaf)


def _kind(status: int) -> type[WeftError]:
    if status in _KINDS:
        return _KINDS[status]
    return Rejected if 400 <= status < 500 else Unavailable  # noqa: PLR2004 - the client-error statuses


def unreachable(address: Address, cause: httpx2.RequestError) -> SystemUnavailable:
    """Return the error for a call that got no answer."""
    late = isinstance(cause, httpx2.TimeoutException)
    problem = "did not answer in time" if late else "cannot be reached"
    error = SystemUnavailable(
        f"Weft {problem} at {address.url} ({type(cause).__name__}). "
        "Start it with 'weft serve', or say where it runs with WEFT_URL.",
        url=address.url,
    )
    if not isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
        vars(error)["hint"] = "A change may or may not have been made: read what is there before you repeat the call."
    return error


@dataclass(frozen=True, slots=True)
class Retries:
    """When a call is made again by itself: a bounded number of times, and only where that is safe."""

    limit: int
    longest_wait_seconds: float

    def pause(self, method: str, error: Unavailable, tried: int) -> float | None:
        """Return how long to wait before the next try; None if there shall be none."""
        if tried > self.limit:
            return None
        if isinstance(error, RateLimited):
            wait = float(error.context.get("retry_after_seconds", 1.0))
            return wait if wait <= self.longest_wait_seconds else None
        unanswered = isinstance(error.__cause__, httpx2.TransportError)
        return pause_after(tried) if unanswered and method == "GET" else None


def pause_after(failures: int) -> float:
    """Return how long to wait after so many failures in a row."""
    return float(min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(failures, 10)))
