"""The identical load of both servers: single calls in sequence, and many concurrent writers."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.harness import cpu_seconds
from benchmarks.wire import Connection, McpClient, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.servers import Served

    Arguments = dict[str, Any]

PAGE = 50
_MAX_PAGE = 1_000
_CALL_SECONDS = 30
_PAUSE_SECONDS, _MAX_PAUSES = 0.25, 240
# Share of a core below which a server counts as idle.
_IDLE_SHARE = 0.05
_MILLIS = 1_000
# Step between pages: visits every page once before repeating one.
_STRIDE = 37
_WHO = ("planner", "reviewer", "researcher", "builder", "tester", "writer", "critic", "operator", "analyst", "editor")
_DOES = ("moved", "measured", "rejected", "rewrote", "finished", "postponed", "checked", "split", "merged", "described")
_WHAT = (
    *("retry budget", "search index", "release notes", "login page", "invoice export", "vector store", "test plan"),
    *("rate limiter", "data model", "token count", "error report", "queue worker", "cache policy", "schema change"),
)
_WHEN = ("before the deploy", "after the review", "on Monday", "within the limit", "as agreed", "at the last stage")


def text(number: int) -> str:
    """Return a message of 100 to 200 characters, always the same for the same number."""
    draw = Random(number)
    sentences = [
        f"The {draw.choice(_WHO)} {draw.choice(_DOES)} the {draw.choice(_WHAT)} {draw.choice(_WHEN)}." for _ in range(3)
    ]
    return f"{number}: {' '.join(sentences)}"


def query(number: int) -> str:
    """Return a unique query: a few words of a message and its number."""
    return " ".join([*text(number).split()[2:7], str(number)])


@dataclass(slots=True)
class Access:
    """How the benchmark authenticates with a server."""

    token: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    arguments: Arguments = field(default_factory=dict)


@dataclass(slots=True)
class Party:
    """One server under one protocol era, with a session to read, one to write, and the latencies of its calls."""

    served: Served
    access: Access
    era: str
    filled: str = ""
    open: str = ""
    messages: int = 0
    first_turn: int = 0
    path: str = "/mcp"
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _turns: dict[str, Iterator[int]] = field(default_factory=dict)

    async def client(self) -> McpClient:
        connection = await Connection.open(self.served.port)
        client = McpClient(connection, self.access.token, self.era, self.access.headers, self.path)
        await client.start()
        return client

    def request(self, client: McpClient, tool: str, **arguments: Any) -> bytes:  # noqa: ANN401 - JSON
        return client.call(tool, arguments | self.access.arguments)

    async def ask(self, client: McpClient, tool: str, **arguments: Any) -> Any:  # noqa: ANN401 - JSON
        return (await client.connection.ask(self.request(client, tool, **arguments))).result()

    async def fill(self, messages: int) -> None:
        """Create a session with messages to read, and an empty one to write."""
        client = await self.client()
        self.messages = messages
        self.filled, self.open = [
            (await self.ask(client, "create_session", purpose=purpose))["session_id"] for purpose in ("read", "write")
        ]
        for number in range(messages):
            await self.ask(client, "add_message", session_id=self.filled, content=text(number))
        await client.connection.close()

    def turns(self, operation: str) -> Iterator[int]:
        """Return the numbers of the next calls of an operation, each used once."""
        return self._turns.setdefault(operation, count(self.first_turn))

    async def cost(self, operation: str, calls: int) -> float:
        """Return the server's CPU per call in milliseconds, and record the latencies."""
        # A new connection per measurement: servers close idle ones while the others are measured.
        client = await self.client()
        requests = [
            self.request(client, operation, **OPERATIONS[operation](self, turn))
            for turn in islice(self.turns(operation), calls)
        ]
        await settled(self.served.pid)
        before = cpu_with_children(self.served.pid)
        for request in requests:
            started = time.perf_counter()
            await client.connection.ask(request)
            self.seconds[operation].append(time.perf_counter() - started)
        used = cpu_with_children(self.served.pid) - before
        await client.connection.close()
        return used / calls * _MILLIS


# No call repeats another, so that no answer comes from a cache.
OPERATIONS: dict[str, Callable[[Party, int], Arguments]] = {
    "create_session": lambda _party, turn: {"purpose": text(turn)},
    "add_message": lambda party, turn: {"session_id": party.open, "content": text(turn)},
    "get_messages": lambda party, turn: {
        "session_id": party.filled,
        "limit": PAGE,
        "offset": turn * _STRIDE % max(party.messages - PAGE, 1),
    },
    "search_context": lambda party, turn: {"session_id": party.filled, "query": query(turn)},
    "set_memory": lambda _party, turn: {"key": f"key_{turn}", "value": {"note": text(turn)}},
    "get_memory": lambda _party, turn: {"key": f"key_{turn}"},
}


@dataclass(slots=True)
class Crowd:
    """Results of many concurrent writers to one session."""

    session_id: str
    acknowledged: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.acknowledged) / self.seconds


async def crowd(party: Party, writers: int, seconds: float) -> Crowd:
    clients = [await party.client() for _ in range(writers)]
    result = Crowd((await party.ask(clients[0], "create_session", purpose="a crowd"))["session_id"])
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(_write(party, client, number, started + seconds, result))
    result.seconds = time.monotonic() - started
    return result


async def _write(party: Party, client: McpClient, writer: int, deadline: float, result: Crowd) -> None:
    for turn in count():
        if time.monotonic() >= deadline:
            break
        content = text(writer * 1_000_000 + turn)
        request = party.request(client, "add_message", session_id=result.session_id, content=content)
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await client.connection.ask(request)
        except Refused as error:
            result.failures.append(str(error))
        except (OSError, EOFError) as error:
            # The connection is broken; this writer stops.
            result.failures.append(repr(error))
            return
        else:
            result.acknowledged.append(content)
    await client.connection.close()


async def lost(party: Party, result: Crowd) -> int:
    """Count acknowledged messages that are missing from the session."""
    client = await party.client()
    stored: set[str] = set()
    for offset in count(0, _MAX_PAGE):
        page = await party.ask(client, "get_messages", session_id=result.session_id, limit=_MAX_PAGE, offset=offset)
        stored |= {message["content"] for message in page["messages"]}
        if not page["has_more"]:
            break
    return len(set(result.acknowledged) - stored)


async def settled(pid: int) -> None:
    """Wait until a server has finished its background work, so that only the calls are measured."""
    for _ in range(_MAX_PAUSES):
        before = cpu_with_children(pid)
        await asyncio.sleep(_PAUSE_SECONDS)
        if cpu_with_children(pid) - before < _PAUSE_SECONDS * _IDLE_SHARE:
            return


def cpu_with_children(pid: int) -> float:
    return cpu_seconds(pid, *_children(pid))


def _children(pid: int) -> list[int]:
    below = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return below + [grandchild for child in below for grandchild in _children(child)]
