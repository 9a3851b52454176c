"""HTTP as we read and write it: bodies in, JSON out, errors in one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.app.dispatch import Arrival
from weft.kernel.errors import AuthenticationError, ContentTooLarge, InvalidInput, RateLimited, WeftError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Message, Receive, Scope, Send

    from weft.kernel.clock import Clock

_JSON = (b"content-type", b"application/json")
_encode = msgspec.json.Encoder().encode


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


def arrival_of(scope: Scope) -> Arrival:
    """Return the credential a request carries and the address it came from."""
    client = scope.get("client")
    peer = client[0] if client else "local"
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) != 1:
        return Arrival(None, peer)
    scheme, _, credential = given[0].decode("latin-1").strip().partition(" ")
    return Arrival(credential.strip() if scheme.lower() == "bearer" and credential else None, peer)


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Return the whole body, refusing one that is larger than allowed before it is all here."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object a body holds; an empty body is an empty object."""
    if not body:
        return {}
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"The body is not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise InvalidInput("The body must be a JSON object.")
    return parsed


async def send_json(send: Send, status: int, content: object, headers: Mapping[bytes, bytes] | None = None) -> None:
    body = _encode(content)
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [_JSON, (b"content-length", b"%d" % len(body)), *(headers or {}).items()],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: WeftError, clock: Clock) -> None:
    headers: dict[bytes, bytes] = {}
    if isinstance(error, AuthenticationError):
        headers[b"www-authenticate"] = b'Bearer realm="weft"'
    if isinstance(error, RateLimited):
        headers[b"retry-after"] = b"%d" % error.context["retry_after_seconds"]
    await send_json(send, error.http_status, error_body(error, clock), headers)


def error_body(error: WeftError, clock: Clock) -> msgspec.Struct:
    return error.body(clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"))


def _too_large(limit: int) -> ContentTooLarge:
    return ContentTooLarge(f"The body is larger than {limit} bytes.", limit_bytes=limit)
