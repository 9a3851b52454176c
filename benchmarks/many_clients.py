"""A thousand concurrent MCP clients, on one session and on a session each: every write must be answered and stored."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.harness import Row
from benchmarks.servers import call, folder, open_app, prepare, weftline_server
from benchmarks.wire import LEGACY, Connection, McpClient, Refused, run_async

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SHARED_KEYS = 50
_FILES_NEEDED = 4_096
_WRITTEN = "board.written"


@dataclass(slots=True)
class Outcome:
    """Acknowledged writes by session and key."""

    acknowledged: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    wall_seconds: float = 0.0

    @property
    def written(self) -> int:
        return sum(map(len, self.acknowledged.values()))


def run(*, quick: bool) -> list[Row]:
    _allow_many_files()
    clients, writes = (20, 2) if quick else (1_000, 5)
    return [
        *run_async(_measure("one_session", clients, writes, sessions=1)),
        *run_async(_measure("own_sessions", clients, writes, sessions=clients)),
    ]


async def _measure(name: str, clients: int, writes: int, *, sessions: int) -> list[Row]:
    names = [f"s{number}" for number in range(sessions)]
    with folder() as data:
        token = await prepare(str(data / "weftline.db"), names, keep_versions=10_000)
        with weftline_server(data) as served:
            outcome = await _write(served.port, token, names, clients, writes)
        lost = await _lost(data / "weftline.db", outcome)
    expected = clients * writes
    return [
        _zero_row(f"many_clients.{name}.failed", expected - outcome.written),
        _zero_row(f"many_clients.{name}.lost", lost),
        Row(f"many_clients.{name}.rate", round(outcome.written / outcome.wall_seconds), "writes/s"),
        Row(f"many_clients.{name}.p95", round(sorted(outcome.seconds)[int(expected * 0.95) - 1], 3), "s"),
    ]


async def _write(port: int, token: str, sessions: Sequence[str], count: int, writes: int) -> Outcome:
    outcome = Outcome()
    clients = [McpClient(await Connection.open(port), token, LEGACY) for _ in range(count)]
    await asyncio.gather(*(client.start() for client in clients))
    started = time.monotonic()
    await asyncio.gather(
        *(
            _write_as(client, number, sessions[number % len(sessions)], writes, outcome)
            for number, client in enumerate(clients)
        )
    )
    outcome.wall_seconds = time.monotonic() - started
    for failure in outcome.failures[:3]:
        print(f"  failed: {failure}")
    await asyncio.gather(*(client.connection.close() for client in clients))
    return outcome


async def _write_as(client: McpClient, number: int, session_id: str, writes: int, outcome: Outcome) -> None:
    key = f"key_{number % _SHARED_KEYS}"
    for turn in range(writes):
        value = f"client {number} write {turn}"
        started = time.monotonic()
        try:
            await client.connection.ask(client.write(session_id, key, value))
        except (Refused, OSError, EOFError) as error:
            outcome.failures.append(repr(error))
        else:
            outcome.acknowledged[session_id, key].append(value)
        outcome.seconds.append(time.monotonic() - started)


async def _lost(path: Path, outcome: Outcome) -> int:
    """Count acknowledged writes that are missing from history or events, or that have a wrong version."""
    app = await open_app(str(path))
    try:
        lost = 0
        for (session_id, key), values in outcome.acknowledged.items():
            versions = (await call(app, "board.read_history", session_id=session_id, key=key))["versions"]
            lost += len(set(values) - {version["value"] for version in versions})
            lost += [version["version"] for version in versions] != list(range(1, len(versions) + 1))
        event_count = 0
        after = 0
        while events := (await call(app, "events.read", after=after))["events"]:
            event_count += sum(event["type"] == _WRITTEN for event in events)
            after = events[-1]["seq"]
        return lost + max(outcome.written - event_count, 0)
    finally:
        await app.close()


def _zero_row(name: str, count: int) -> Row:
    return Row(name, count, "writes", target="0", met=count == 0)


def _allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES_NEEDED:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES_NEEDED, hard), hard))
