"""Wire format of both clients: addresses, requests, responses and errors. No I/O."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx2
import msgspec

from weftline.kernel.data_files import error_index, operation_index
from weftline.kernel.errors import (
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
    ServerBusy,
    SystemUnavailable,
    Unavailable,
    WeftlineError,
    shown_path,
)
from weftline.kernel.guards import WARNING_HEADER, CallWarning
from weftline.kernel.json_input import encode_json_field

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8787"
# The server sends a heartbeat every 15 seconds; after four missed ones the connection is considered lost.
STREAM_SILENCE_SECONDS = 60.0
# Read timeout of large exports and imports.
TRANSFER_SECONDS = 600.0
CHUNK_BYTES = 65_536
EXPORT_STREAM, IMPORT_STREAM = "/v1/export/stream", "/v1/import/stream"
UPLOAD = "/v1/domains/{domain}/uploads"
_MAX_SHOWN_URL = 200
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_ANY_JSON = {"metadata", "value"}
_PLACEHOLDER = re.compile(r"\{(\w+):?(int|path)?\}")
_ROUTE = re.compile(r"`([A-Z]+ /[^`]*)`")
_MIN_BACKOFF_SECONDS = 0.1
_MAX_BACKOFF_SECONDS = 5.0
_KINDS: dict[int, type[WeftlineError]] = {
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
    """URL of a server and the credential for it. The credential never appears in a repr or a message."""

    url: str
    api_key: str | None = field(repr=False)

    @classmethod
    def resolve(cls, url: str | None, api_key: str | None) -> Address:
        """Return the given address, completed from the environment and the defaults."""
        url = url or os.environ.get("WEFTLINE_URL") or DEFAULT_URL
        return cls(_checked_url(url), _checked_key(api_key or os.environ.get("WEFTLINE_API_KEY")))

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
    """Return the URL of a server; raise InvalidInput that says what is wrong with it, and what to give instead."""
    if "@" in url:
        # Not repeated: it may hold a password.
        raise InvalidInput("url: pass the credential as the API key, not in the URL.", hint=_url_hint(), field="url")
    problem = _problem_of(url)
    plain = url.rstrip("/")
    if problem is None and plain.endswith("/mcp"):
        base = plain.removesuffix("/mcp")
        raise InvalidInput(f"url: '{url}' is the URL for MCP clients.", hint=_url_hint(base), field="url")
    if problem is None:
        return plain
    guess = f"http://{url.lstrip('/')}"
    likely = None if "://" in url or _problem_of(guess) else guess
    raise InvalidInput(f"url: '{url[:_MAX_SHOWN_URL]}' {problem}.", hint=_url_hint(likely), field="url")


def _problem_of(url: str) -> str | None:
    """Return what is wrong with a URL, or None."""
    if "://" not in url:
        return "has no http:// or https:// in front of it"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "has a host or port that is not valid"
    if parts.scheme not in {"http", "https"}:
        return f"begins with {parts.scheme}://, not with http:// or https://"
    if not parts.hostname or any(letter.isspace() for letter in url):
        return "names no host"
    return "has port 0" if port == 0 else None


def _url_hint(url: str | None = None) -> str:
    return f"Give {url or 'a URL such as ' + DEFAULT_URL}: with --url, in WEFTLINE_URL, or as the url of the client."


def _checked_key(api_key: str | None) -> str | None:
    """Refuse characters that a header cannot hold: the HTTP library would quote the key in its error."""
    if api_key is None or not api_key.strip():
        return None
    api_key = api_key.strip()
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise InvalidInput(
            "api_key: contains a character that no key or token has.",
            hint=(
                "Copy the key again, without spaces, into WEFTLINE_API_KEY, the file of --key, or the client's api_key."
            ),
            field="api_key",
        )
    return api_key


@dataclass(frozen=True, slots=True)
class Outgoing:
    """HTTP request, ready to send."""

    method: str
    target: str
    content: bytes | None
    wait_seconds: float


def outgoing(operation: str, arguments: Mapping[str, Any]) -> Outgoing:
    """Build the request of a call: path parameters, and the rest as the query or a JSON body."""
    route = operation_index()[operation]
    method = route["method"]
    rest = dict(arguments)
    wait_seconds = rest.get("wait_seconds", 0.0)
    for name in _ANY_JSON & rest.keys():
        # Refuse values that JSON cannot represent.
        encode_json_field(name, rest[name])
    try:
        target = _PLACEHOLDER.sub(lambda match: _segment(match[1], rest.pop(match[1]), match[2]), route["path"])
        in_query = method in {"GET", "DELETE"}
        content = None if in_query else msgspec.json.encode(rest)
        target += query(rest) if in_query else ""
    except UnicodeEncodeError:
        raise InvalidInput("A text is not valid Unicode: it contains an unpaired surrogate.") from None
    return Outgoing(method, target, content, wait_seconds if isinstance(wait_seconds, int | float) else 0.0)


def _segment(name: str, value: object, kind: str | None) -> str:
    if kind == "path" and isinstance(value, str):
        return "/".join(_segment(name, part, None) for part in value.split("/"))
    if kind == "int" and isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise InvalidInput(f"{name}: Expected `str`, got `{type(value).__name__}`", field=name)
    if value in {"", ".", ".."} or "/" in value:
        # URL normalisation would drop or split such a segment and change the meaning of the call.
        raise InvalidInput(f"{name}: {value[:100]!r} is not a name", field=name)
    return quote(value, safe="")


def query(fields: Mapping[str, Any]) -> str:
    """Return fields as a query string: lists are repeated, values other than text are JSON."""
    pairs = [
        (name, item if isinstance(item, str) else msgspec.json.encode(item).decode())
        for name, value in msgspec.to_builtins(fields).items()
        for item in (value if isinstance(value, list | tuple) else [value])
    ]
    return f"?{urlencode(pairs)}" if pairs else ""


def stream_target(event_filter: Mapping[str, Any], after: int) -> str:
    fields = {**event_filter, "after": after}
    return "/v1/events/stream" + query({name: value for name, value in fields.items() if value is not None})


@cache
def response_type(operation: str) -> type[Any]:
    """Import the response type of an operation."""
    indexed = operation_index()[operation]
    kind: type[Any] = getattr(import_module(indexed["response_module"]), indexed["response"])
    return kind


def decoded(content: bytes | str, response: type[T], address: Address) -> T:
    """Decode a response body."""
    try:
        return msgspec.json.decode(content, type=response)
    except msgspec.DecodeError as error:
        raise SystemUnavailable(
            f"The server at {address.url} does not answer like this version of Weftline.", url=address.url
        ) from error


def refusal(reply: httpx2.Response, content: bytes) -> WeftlineError:
    """Return the error of an unsuccessful response."""
    try:
        body = msgspec.json.decode(content, type=ErrorBody)
    except msgspec.DecodeError:
        error = _kind(reply.status_code)(f"{reply.url.host} answered with status {reply.status_code}.")
    else:
        error = _to_error(body, _class_of(body.code) or _kind(reply.status_code))
        vars(error)["http_status"] = reply.status_code
    seconds = reply.headers.get("retry-after", "")
    if seconds.isdecimal():
        error.context.setdefault("retry_after_seconds", int(seconds))
    return error


def show_warnings(reply: httpx2.Response) -> None:
    """Issue the server's warnings about a call as Python warnings."""
    header = reply.headers.get(WARNING_HEADER)
    for text in msgspec.json.decode(header, type=list[str]) if header else ():
        warnings.warn(text, CallWarning, stacklevel=5)


def reported(content: str, address: Address) -> WeftlineError:
    """Return the error that ended a stream."""
    body = decoded(content, ErrorBody, address)
    return _to_error(body, _class_of(body.code) or InternalError)


def _to_error(body: ErrorBody, kind: type[WeftlineError]) -> WeftlineError:
    error = kind(body.error, **{**body.context, "hint": _template(" ".join(body.suggestions))})
    # The server may be newer than this client: its text takes precedence over that of the class.
    vars(error).update(
        code=body.code,
        related=tuple(body.related_resources),
        severity=body.severity,
        recoverable=body.recoverable,
    )
    return error


def _template(hint: str) -> str:
    """Return the hint of a REST response with operations instead of routes."""
    return _ROUTE.sub(lambda route: f"`{_operations()[route[1]]}`" if route[1] in _operations() else route[0], hint)


@cache
def _operations() -> dict[str, str]:
    """Return the operation of each route."""
    return {f"{each['method']} {shown_path(each['path'])}": name for name, each in operation_index().items()}


def _class_of(code: str) -> type[WeftlineError] | None:
    for indexed in error_index().values():
        if indexed.get("code") == code:
            import_module(indexed["module"])
    return next((error for error in _with_code(WeftlineError) if error.code == code), None)


def _with_code(kind: type[WeftlineError]) -> Iterator[type[WeftlineError]]:
    """Yield the classes that define a code, and InternalError, which inherits the code of the base."""
    for leaf in kind.__subclasses__():
        if "code" in vars(leaf) or leaf is InternalError:
            yield leaf
        yield from _with_code(leaf)


def _kind(status: int) -> type[WeftlineError]:
    if status in _KINDS:
        return _KINDS[status]
    return Rejected if 400 <= status < 500 else Unavailable  # noqa: PLR2004 - the client-error statuses


def unreachable(address: Address, cause: httpx2.RequestError) -> SystemUnavailable:
    """Return the error for a call without a response."""
    late = isinstance(cause, httpx2.TimeoutException)
    problem = "did not answer in time" if late else "cannot be reached"
    lost = not isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
    reason = f" ({cause})" if str(cause) else ""
    return SystemUnavailable(
        f"Weftline {problem} at {address.url}{reason}. Start it with 'weftline serve', or set WEFTLINE_URL to its URL.",
        hint="The change may have been made: read the current state before you repeat the call." if lost else None,
        url=address.url,
    )


@dataclass(frozen=True, slots=True)
class Retries:
    """Retry policy: a bounded number of times, and only where it is safe."""

    limit: int
    max_wait_seconds: float

    def pause(self, method: str, error: Unavailable, attempts: int) -> float | None:
        """Return the backoff before the next attempt; None for no further attempt."""
        if attempts > self.limit:
            return None
        if isinstance(error, RateLimited | ServerBusy):
            wait = float(error.context.get("retry_after_seconds", 1.0))
            return wait if wait <= self.max_wait_seconds else None
        unanswered = isinstance(error.__cause__, httpx2.TransportError)
        return pause_after(attempts) if unanswered and method == "GET" else None


def pause_after(failures: int) -> float:
    """Return the exponential backoff after a number of consecutive failures."""
    return float(min(_MAX_BACKOFF_SECONDS, _MIN_BACKOFF_SECONDS * 2 ** min(failures, 10)))
