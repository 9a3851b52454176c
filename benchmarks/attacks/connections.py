"""Attacks by connections that are opened and left, or that send and read slowly."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from benchmarks.attacks import End, attack, flood, hold
from benchmarks.wire import Connection, request

if TYPE_CHECKING:
    from benchmarks.attacks import Tally, Target

_SOCKETS = 8_000
_HEAD = b"POST /v1/sessions HTTP/1.1\r\nhost: 127.0.0.1\r\n"


@attack(End.CLOSED)
async def idle_sockets(target: Target, tally: Tally) -> None:
    await hold(target, tally, _SOCKETS, b"")


@attack(End.CLOSED)
async def half_request_lines(target: Target, tally: Tally) -> None:
    await hold(target, tally, 2_000, b"GET /v1/sess", drip=b"i")


@attack(End.CLOSED)
async def half_headers(target: Target, tally: Tally) -> None:
    """A header line every second, never the last."""
    await hold(target, tally, 2_000, _HEAD, drip=b"x-more: 1\r\n")


@attack(End.CLOSED)
async def half_bodies(target: Target, tally: Tally) -> None:
    """Four megabytes are announced and most of them sent, without a credential."""
    await hold(target, tally, 100, _HEAD + b"content-length: 4000000\r\n\r\n" + b" " * 3_900_000)


@attack(End.CLOSED)
async def half_bodies_of_a_member(target: Target, tally: Tally) -> None:
    head = _HEAD + f"authorization: Bearer {target.key}\r\ncontent-length: 4000000\r\n\r\n".encode()
    await hold(target, tally, 100, head + b" " * 3_900_000)


@attack(End.CLOSED)
async def dripping_bodies(target: Target, tally: Tally) -> None:
    head = _HEAD + f"authorization: Bearer {target.key}\r\ncontent-length: 4000000\r\n\r\n".encode()
    await hold(target, tally, 1_000, head, drip=b" ")


@attack(End.CLOSED)
async def large_headers(target: Target, tally: Tally) -> None:
    await hold(target, tally, 200, _HEAD + b"x-long: " + b"a" * 1_000_000)


@attack(End.SHARED)
async def connection_churn(target: Target, tally: Tally) -> None:
    """A new connection for each call."""
    closing = request("GET", "/health", None, connection="close")
    await flood(target, tally, lambda _: itertools.repeat(closing))


@attack(End.REFUSED)
async def pipelined_calls(target: Target, tally: Tally) -> None:
    """Thousands of calls on one connection, sent without waiting for an answer and without reading any."""
    call = request("GET", f"/v1/sessions/{target.session}/context", target.key)
    await _leave_unread(target, tally, call * 2_000, 8)


@attack(End.SHARED)
async def unread_answers(target: Target, tally: Tally) -> None:
    """Large answers that are never read."""
    await _leave_unread(target, tally, request("GET", "/openapi.json", None) * 8, 200)


@attack(End.REFUSED)
async def unread_event_streams(target: Target, tally: Tally) -> None:
    """Event streams that are never read, beside writes that fill them."""
    stream = request("GET", f"/v1/events/stream?session_id={target.session}&after=0", target.key)
    write = request("PUT", f"/v1/sessions/{target.session}/context/stream", target.key, {"value": "x" * 4_000})
    await asyncio.gather(
        flood(target, tally, lambda _: itertools.repeat(write), 4), _leave_unread(target, tally, stream, 1_500)
    )


async def _leave_unread(target: Target, tally: Tally, content: bytes, count: int) -> None:
    """Open connections that send requests and do not read the answers."""

    async def leave() -> Connection | None:
        try:
            connection = await Connection.open(target.port)
            tally.statuses[await connection.leave_unread(content)] += 1
        except (OSError, EOFError):
            tally.closed += 1
            return None
        return connection

    open_connections = await asyncio.gather(*(leave() for _ in range(count)))
    await asyncio.sleep(target.seconds)
    assert len(open_connections) == count  # they stay open until here
