"""Attacks by a member whose writes are large, many, or take long."""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING

from benchmarks.attacks import End, attack, flood
from benchmarks.wire import request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.attacks import Tally, Target

# Every target has these keys.
_KEYS = 40


@attack(End.LIMITED)
async def small_writes(target: Target, tally: Tally) -> None:
    """As many writes as connections carry, by one agent."""
    await flood(target, tally, lambda number: _writes(target, target.key, number, "x"), 64)


@attack(End.LIMITED)
async def small_writes_of_many_agents(target: Target, tally: Tally) -> None:
    await flood(target, tally, lambda number: _writes(target, target.keys[number % len(target.keys)], number, "x"), 64)


@attack(End.SHARED)
async def large_writes(target: Target, tally: Tally) -> None:
    """Values of tens of thousands of tokens, until the session is full."""
    await flood(target, tally, lambda number: _writes(target, target.key, number, "word " * 20_000))


@attack(End.REFUSED)
async def nested_values(target: Target, tally: Tally) -> None:
    """Bodies of four megabytes by a member, nested as deep as they are long."""
    head = (
        f"PUT /v1/sessions/{target.session}/context/deep HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"authorization: Bearer {target.key}\r\ncontent-length: 4000000\r\n\r\n"
    )
    await flood(target, tally, lambda _: itertools.repeat(head.encode() + b"[" * 4_000_000), 4)


@attack(End.SHARED)
async def restored_snapshots(target: Target, tally: Tally) -> None:
    """Restore thousands of keys, back and forth."""

    def requests(number: int) -> Iterator[bytes]:
        for label in itertools.cycle(("first", "second")):
            path = f"/v1/sessions/{target.session}-{number % 4}/snapshots/{label}/restore"
            yield request("POST", path, target.key, {})

    await flood(target, tally, requests, 4)


@attack(End.SHARED)
async def merges_with_conflicts(target: Target, tally: Tally) -> None:
    """Merge a branch in which every key conflicts."""
    path = f"/v1/history/board:{target.session}/merge"
    body = {"from_context_id": f"board:{target.session}@other"}
    await flood(target, tally, lambda _: itertools.repeat(request("POST", path, target.key, body)), 4)


@attack(End.SHARED)
async def rollbacks(target: Target, tally: Tally) -> None:
    """Roll a board back by a thousand versions, and forth."""

    def requests(number: int) -> Iterator[bytes]:
        for version in itertools.cycle(("first", "second")):
            path = f"/v1/history/board:{target.session}-{number % 4}/rollback"
            yield request("POST", path, target.key, {"target_version": version})

    await flood(target, tally, requests, 4)


@attack(End.SHARED)
async def created_and_deleted_sessions(target: Target, tally: Tally) -> None:
    def requests(_: int) -> Iterator[bytes]:
        while True:
            name = f"short-{secrets.token_hex(8)}"
            yield request("POST", "/v1/sessions", target.key, {"purpose": "short", "session_id": name})
            yield request("PUT", f"/v1/sessions/{name}/context/a", target.key, {"value": "x" * 10_000})
            yield request("DELETE", f"/v1/sessions/{name}?force=true", target.key)

    await flood(target, tally, requests)


@attack(End.SHARED)
async def pushes(target: Target, tally: Tally) -> None:
    """Two hundred entries of agent context in each call."""

    def requests(number: int) -> Iterator[bytes]:
        for turn in itertools.count():
            entries = [{"key": f"k{number}_{turn}_{place}", "value": "word " * 200} for place in range(200)]
            yield request("POST", "/v1/context/push", target.keys[number % len(target.keys)], {"knowledge": entries})

    await flood(target, tally, requests, 8)


@attack(End.SHARED)
async def ingested_events(target: Target, tally: Tally) -> None:
    """Two hundred events for a window in each call."""

    def requests(number: int) -> Iterator[bytes]:
        for turn in itertools.count():
            events = [{"event_id": f"e{number}_{turn}_{place}", "content": "word " * 200} for place in range(200)]
            yield request("POST", f"/v1/sessions/{target.session}/ingest", target.key, {"events": events})

    await flood(target, tally, requests, 8)


@attack(End.SHARED)
async def compactions(target: Target, tally: Tally) -> None:
    path = f"/v1/sessions/{target.session}/compact"
    await flood(target, tally, lambda _: itertools.repeat(request("POST", path, target.key, {"wait_seconds": 2})), 8)


@attack(End.SHARED)
async def large_documents(target: Target, tally: Tally) -> None:
    text = "# Part\n\n" + "The retry budget is spent by the second attempt. " * 40_000

    def requests(number: int) -> Iterator[bytes]:
        for turn in itertools.count():
            body = {"document_id": f"d{number}_{turn}", "text": text}
            yield request("POST", "/v1/domains/attack/documents", target.key, body)

    await flood(target, tally, requests, 4)


@attack(End.SHARED)
async def documents_of_a_template(target: Target, tally: Tally) -> None:
    """Documents with hundreds of metadata fields, whose ids nearly match each pattern; all make an evaluation due."""
    metadata = {f"other{number}": "x" for number in range(400)}

    def requests(number: int) -> Iterator[bytes]:
        for turn in itertools.count():
            body = {"document_id": f"{'a' * 180}{number}", "text": f"Turn {turn}.", "metadata": metadata}
            yield request("POST", "/v1/domains/questions/documents", target.key, body)

    await flood(target, tally, requests, 8)


def _writes(target: Target, key: str, number: int, value: str) -> Iterator[bytes]:
    """Yield writes to a few keys of a connection, which exist: new ones would be refused, the board is full."""
    for turn in itertools.count():
        path = f"/v1/sessions/{target.session}/context/key_{(number * 8 + turn % 8) % _KEYS}"
        yield request("PUT", path, key, {"value": f"{turn} {value}"})
