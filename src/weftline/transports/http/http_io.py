"""Reading of request bodies, and JSON and error responses."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.app.dispatch import CallContext
from weftline.kernel.client_gone import ClientGone
from weftline.kernel.correlation import BAGGAGE, NO_CORRELATION, TRACEPARENT, ids_from_headers, is_sampled, with_ids
from weftline.kernel.errors import (
    AuthenticationError,
    ContentTooLarge,
    InvalidInput,
    RateLimited,
    ServerBusy,
    WeftlineError,
)
from weftline.kernel.guards import WARNING_HEADER
from weftline.transports.answer_json import encode_answer
from weftline.transports.http.connections import connection_of
from weftline.transports.references import route_reference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.types import Message, Receive, Scope, Send

    from weftline.app.app import App
    from weftline.kernel.clock import Clock
    from weftline.kernel.errors import ErrorBody, Reference
    from weftline.kernel.identity import Actor

_JSON = (b"content-type", b"application/json")
_ABOUT_CALLER = (b"authorization", TRACEPARENT.encode(), BAGGAGE.encode())
# The body of a request from a caller without a credential.
ANONYMOUS_BODY_BYTES = 65_536
# A connection whose requests are refused by a limit is answered later each time.
_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.02, 1.0
# Statuses of refusals by a limit: of calls in a time, of connections and subscriptions, of what may wait.
_LIMITED = frozenset({RateLimited.http_status, ServerBusy.http_status})


def context_of(scope: Scope) -> CallContext:
    """Return the credential, peer address and correlation ids of a request."""
    client = scope.get("client")
    peer = client[0] if client else "local"
    given = [header for header in scope["headers"] if header[0] in _ABOUT_CALLER]
    if len(given) == 1 and given[0][0] == b"authorization":
        return CallContext(_credential(given[0][1]), peer)
    proofs, traces, baggage = ([value for name, value in given if name == wanted] for wanted in _ABOUT_CALLER)
    # A repeated traceparent is invalid; baggage may be repeated.
    trace = traces[0].decode("latin-1").strip() if len(traces) == 1 else None
    ids = ids_from_headers(trace, b",".join(baggage).decode("latin-1"))
    proof = _credential(proofs[0]) if len(proofs) == 1 else None
    return CallContext(proof, peer, with_ids(NO_CORRELATION, ids), is_sampled(trace))


def _credential(header: bytes) -> str | None:
    scheme, _, credential = header.decode("latin-1").strip().partition(" ")
    return credential.strip() if scheme.lower() == "bearer" and credential else None


def note_caller(scope: Scope, caller: Actor) -> None:
    """Tell the connection of a request whose it is; raises ServerBusy if that caller has too many."""
    connection = connection_of(scope)
    if connection is not None:
        connection.identified(caller)


async def admit(app: App, scope: Scope) -> tuple[CallContext, Actor]:
    """Identify the caller of a request by its headers, before anything of its body is read."""
    context = context_of(scope)
    caller = await app.identify(context)
    note_caller(scope, caller)
    return context, caller


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Return the body; refuse it as soon as it exceeds the limit, or what is kept for its caller."""
    check_length(scope, limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False) and message["type"] == "http.request":
        # Nearly all requests arrive as one.
        if len(body) > limit:
            raise _too_large(limit)
        return body
    chunks, size = [], 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        hold(scope, len(chunk))
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)
        message = await receive()


def check_length(scope: Scope, limit: int) -> None:
    """Refuse a request that announces a larger body."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise _too_large(limit)


def hold(scope: Scope, size: int) -> None:
    """Count bytes that are kept until a request is answered; raises ServerBusy."""
    connection = connection_of(scope)
    if connection is not None:
        connection.hold(size, scope)


def parse_object(body: bytes) -> dict[str, Any]:
    """Decode a JSON object; an empty body is an empty object."""
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
    body = await encode_answer(content)
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [_JSON, (b"content-length", b"%d" % len(body)), *(headers or {}).items()],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})


def warning_headers(warnings: Sequence[str]) -> dict[bytes, bytes] | None:
    """Return the header with the warnings about a call, as a JSON list in ASCII; None if there are none."""
    return {WARNING_HEADER.encode(): json.dumps(warnings).encode()} if warnings else None


async def send_error(send: Send, error: WeftlineError, clock: Clock, reference: Reference = route_reference) -> None:
    """Send an error whose hint calls operations by ``reference``."""
    await send_json(send, error.http_status, error_body(error, clock, reference), error_headers(error))


def error_headers(error: WeftlineError) -> dict[bytes, bytes]:
    """Return the headers that say how to authenticate, or when to retry."""
    headers: dict[bytes, bytes] = {}
    if isinstance(error, AuthenticationError):
        headers[b"www-authenticate"] = b'Bearer realm="weftline"'
    if isinstance(error, RateLimited | ServerBusy):
        headers[b"retry-after"] = b"%d" % error.context["retry_after_seconds"]
    return headers


async def refuse(
    scope: Scope, send: Send, error: WeftlineError, clock: Clock, reference: Reference = route_reference
) -> None:
    """Send an error that ends a request."""
    await delay_refusal(scope, error)
    await send_error(send, error, clock, reference)


async def delay_refusal(scope: Scope, error: WeftlineError) -> None:
    """Let a client that goes on calling above a limit wait longer each time, so that this costs little."""
    connection = connection_of(scope) if error.http_status in _LIMITED else None
    if connection is not None:
        await asyncio.sleep(min(_MAX_DELAY_SECONDS, _DELAY_SECONDS * connection.refused_again()))


def error_body(error: WeftlineError, clock: Clock, reference: Reference = route_reference) -> ErrorBody:
    return error.body(clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"), reference)


def _too_large(limit: int) -> ContentTooLarge:
    return ContentTooLarge(f"The body is larger than {limit} bytes.", limit_bytes=limit)
