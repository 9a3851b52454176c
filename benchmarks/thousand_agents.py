"""A thousand concurrent agents, each with its own API key: no call may be refused, lost or slow.

First at the pace of agents, which call every few seconds, under the default rate limits; then as fast as the server
answers, without limits.
"""

from __future__ import annotations

import asyncio
import re
import resource
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import quote

import apsw
import msgspec

from benchmarks.grown_tenant import query
from benchmarks.harness import Row, cpu_seconds, resident_bytes
from benchmarks.servers import call, folder, open_app, prepare, server, weftline_server
from benchmarks.wire import Connection, request, run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from benchmarks.servers import Served

_SERVE = (sys.executable, "-m", "weftline", "serve")
_SESSIONS = 50
_SECONDS_BETWEEN_CALLS = 2.0
_MILLIS = 1_000
_PAGE = 50
_REFUSED_FROM = 400
_CODE = re.compile(rb'"code":"([A-Z_]+)"')
_RATE_LIMITED = "RATE_LIMITED"
_NO_ANSWER = "NO_ANSWER"


class _Message(msgspec.Struct):
    id: int


class _Page(msgspec.Struct):
    messages: list[_Message]


_page = msgspec.json.Decoder(_Page)


@dataclass(frozen=True, slots=True)
class Call:
    """A request, and how the agent handles its answer."""

    name: str
    request: bytes
    handle: Callable[[bytes], None] = lambda _: None


@dataclass(slots=True)
class Agent:
    """One agent: its next request, and its acknowledged writes."""

    number: int
    token: str
    session: str
    draw: Random
    turn: int = 0
    last_id: int = 0
    added: list[str] = field(default_factory=list)
    memory_writes: int = 0
    board_writes: int = 0

    def next(self) -> Call:
        self.turn += 1
        kinds = (
            self._add_message,
            self._get_messages,
            self._search,
            self._remember_or_recall,
            self._write_or_read_board,
        )
        return self.draw.choices(kinds, weights=(40, 25, 10, 15, 10))[0]()

    @property
    def key(self) -> str:
        return f"state_{self.number}"

    def _add_message(self) -> Call:
        content = f"agent {self.number} turn {self.turn}: {query(self.draw.randrange(10_000))}"
        body = {"content": content}
        return Call(
            "add_message", self._ask("POST", self._in_session("messages"), body), lambda _: self._message_added(content)
        )

    def _get_messages(self) -> Call:
        path = self._in_session(f"messages?limit={_PAGE}&after_id={self.last_id}")
        return Call("get_messages", self._ask("GET", path), self._messages_read)

    def _search(self) -> Call:
        path = self._in_session(f"search?query={quote(query(self.draw.randrange(10_000)))}")
        return Call("search_context", self._ask("GET", path))

    def _remember_or_recall(self) -> Call:
        path = f"/v1/memory/{self.key}"
        if self.memory_writes and self.draw.random() < 0.5:
            return Call("get_memory", self._ask("GET", path))
        return Call("set_memory", self._ask("PUT", path, {"value": {"turn": self.turn}}), self._memory_set)

    def _write_or_read_board(self) -> Call:
        path = self._in_session(f"context/{self.key}")
        if self.board_writes and self.draw.random() < 0.5:
            return Call("board_read", self._ask("GET", path))
        return Call("board_write", self._ask("PUT", path, {"value": f"turn {self.turn}"}), self._board_written)

    def _in_session(self, rest: str) -> str:
        return f"/v1/sessions/{self.session}/{rest}"

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        return request(method, path, self.token, body)

    def _message_added(self, content: str) -> None:
        self.added.append(content)

    def _messages_read(self, body: bytes) -> None:
        page = _page.decode(body).messages
        self.last_id = page[-1].id if page else self.last_id

    def _memory_set(self, _body: bytes) -> None:
        self.memory_writes += 1

    def _board_written(self, _body: bytes) -> None:
        self.board_writes += 1


@dataclass(slots=True)
class Outcome:
    """Results of the calls."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: Counter[str] = field(default_factory=Counter)
    wall_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    resident_megabytes: float = 0.0

    @property
    def calls(self) -> int:
        return sum(map(len, self.seconds.values()))

    @property
    def errors(self) -> int:
        return sum(self.refused.values()) - self.refused[_RATE_LIMITED]

    def millis(self, share: float, name: str | None = None) -> float:
        """Return a percentile of the latencies."""
        latencies = sorted(chain(*self.seconds.values()) if name is None else self.seconds[name])
        return round(latencies[min(int(len(latencies) * share), len(latencies) - 1)] * _MILLIS, 1)


def run(*, quick: bool) -> list[Row]:
    _, max_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    agents, seconds, burst = (20, 2, 1) if quick else (1_000, 60, 10)
    pace = _SECONDS_BETWEEN_CALLS / 10 if quick else _SECONDS_BETWEEN_CALLS
    return [
        *run_async(_measure("paced", agents, seconds, pace, _serve_with_default_limits)),
        *run_async(_measure("burst", agents, burst, 0.0, weftline_server)),
    ]


def _serve_with_default_limits(data: Path) -> AbstractContextManager[Served]:
    return server(_SERVE, {"WEFTLINE_DATA_DIR": str(data)}, "/ready")


async def _measure(
    name: str, count: int, seconds: float, pace: float, serve: Callable[[Path], AbstractContextManager[Served]]
) -> list[Row]:
    with folder() as data:
        agents = await _make_agents(str(data / "weftline.db"), count)
        with serve(data) as served:
            outcome = await _work(served, agents, seconds, pace)
        return _rows(f"thousand_agents.{name}", outcome, _lost(str(data / "weftline.db"), agents))


async def _make_agents(url: str, count: int) -> list[Agent]:
    sessions = [f"s{number}" for number in range(min(_SESSIONS, count))]
    await prepare(url, sessions)
    app = await open_app(url)
    created = await asyncio.gather(*(call(app, "agent.create", agent_id=f"agent_{number}") for number in range(count)))
    await app.close()
    return [
        Agent(number, one["api_key"], sessions[number % len(sessions)], Random(number))
        for number, one in enumerate(created)
    ]


async def _work(served: Served, agents: Sequence[Agent], seconds: float, pace: float) -> Outcome:
    outcome = Outcome()
    connections = [await _accepted(served.port) for _ in agents]
    cpu, started = cpu_seconds(served.pid), time.monotonic()
    async with asyncio.TaskGroup() as group:
        for agent, connection in zip(agents, connections, strict=True):
            group.create_task(_run_agent(agent, connection, started + seconds, pace, outcome))
    outcome.wall_seconds = time.monotonic() - started
    outcome.server_cpu_seconds = cpu_seconds(served.pid) - cpu
    outcome.resident_megabytes = resident_bytes(served.pid) / 1_000_000
    await asyncio.gather(*(connection.close() for connection in connections))
    return outcome


async def _accepted(port: int) -> Connection:
    """Open a connection and wait for one answer: before that it may exist only in the kernel's backlog."""
    connection = await Connection.open(port)
    await connection.ask(request("GET", "/health", None))
    return connection


async def _run_agent(agent: Agent, connection: Connection, until: float, pace: float, outcome: Outcome) -> None:
    next_call = time.monotonic() + agent.draw.random() * pace
    while next_call < until:
        await asyncio.sleep(max(next_call - time.monotonic(), 0))
        await _ask(agent.next(), connection, outcome)
        next_call = next_call + pace if pace else time.monotonic()


async def _ask(call_: Call, connection: Connection, outcome: Outcome) -> None:
    started = time.monotonic()
    try:
        answer = await connection.exchange(call_.request)
    except (OSError, EOFError) as error:
        outcome.refused[f"{_NO_ANSWER} {type(error).__name__}"] += 1
        return
    outcome.seconds[call_.name].append(time.monotonic() - started)
    if answer.status < _REFUSED_FROM:
        call_.handle(answer.body)
    else:
        found = _CODE.search(answer.body)
        outcome.refused[found[1].decode() if found else str(answer.status)] += 1


def _lost(path: str, agents: Sequence[Agent]) -> int:
    """Count acknowledged writes that are missing from the database."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    stored = {row[0].decode() for row in connection.execute("SELECT content FROM messages")}
    memory = dict(connection.execute("SELECT principal_id, version FROM memory_entries"))
    board = dict(connection.execute("SELECT key, version FROM entries"))
    connection.close()
    return sum(
        len(set(agent.added) - stored)
        + max(agent.memory_writes - memory.get(f"agent_{agent.number}", 0), 0)
        + max(agent.board_writes - board.get(agent.key, 0), 0)
        for agent in agents
    )


def _rows(name: str, outcome: Outcome, lost: int) -> list[Row]:
    busy = outcome.server_cpu_seconds / outcome.wall_seconds * 100
    return [
        Row(f"{name}.calls", outcome.calls, "calls"),
        Row(f"{name}.errors", outcome.errors, "calls", target="0", met=outcome.errors == 0),
        Row(f"{name}.rate_limited", outcome.refused[_RATE_LIMITED], "calls"),
        *(Row(f"{name}.errors.{code}", times, "calls") for code, times in sorted(outcome.refused.items())),
        Row(f"{name}.lost", lost, "writes", target="0", met=lost == 0),
        Row(f"{name}.rate", round(outcome.calls / outcome.wall_seconds), "calls/s"),
        Row(f"{name}.server_cpu", round(busy, 1), "% of a core"),
        Row(f"{name}.cost", round(outcome.server_cpu_seconds / outcome.calls * _MILLIS, 3), "ms CPU/call"),
        Row(f"{name}.resident", round(outcome.resident_megabytes, 1), "MB"),
        *(Row(f"{name}.p{share}", outcome.millis(share / 100), "ms") for share in (50, 95, 99)),
        *(
            Row(f"{name}.p{share}.{each}", outcome.millis(share / 100, each), "ms")
            for each in sorted(outcome.seconds)
            for share in (50, 95, 99)
        ),
    ]
