"""Attacks on a running server by one caller, for the benchmark and the tests of hostile neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING

from benchmarks.wire import Connection, aborting_connections, request, run_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

_MODULES = ("anonymous", "connections", "floods", "heavy_reads", "heavy_writes")
_PAUSE_SECONDS = 0.05
_FILES_NEEDED = 16_384
_LOWEST_PRIORITY = 19
_REFUSED = 400


class End(StrEnum):
    """How the server must end an attack."""

    # Every call, or some of them, are answered with an error.
    REFUSED = "refused"
    # Calls succeed until a limit refuses them.
    LIMITED = "limited"
    # The server closes connections.
    CLOSED = "closed"
    # The attacker gets its share of the server, no more.
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and what the attacker has there: API keys of its agents, and sessions grown to their limits."""

    port: int
    keys: tuple[str, ...]
    session: str
    victim_key_id: str
    seconds: float
    connections: int = 32

    @property
    def key(self) -> str:
        return self.keys[0]


@dataclass(slots=True)
class Tally:
    """What became of an attack: statuses of responses, and connections that the server closed or did not accept."""

    statuses: Counter[int] = field(default_factory=Counter)
    closed: int = 0

    @property
    def answered(self) -> int:
        return sum(count for status, count in self.statuses.items() if status < _REFUSED)

    @property
    def refused(self) -> int:
        return sum(count for status, count in self.statuses.items() if status >= _REFUSED)

    @property
    def failed(self) -> int:
        """Responses that say the server itself failed; 503 is a refusal."""
        return sum(count for status, count in self.statuses.items() if status >= 500 and status not in {503, 507})

    def meets(self, end: End) -> bool:
        """Return whether the attack ended as it must."""
        if end is End.REFUSED:
            return self.refused > 0 and not self.failed
        if end is End.LIMITED:
            return self.answered > 0 and self.refused > 0 and not self.failed
        if end is End.CLOSED:
            return self.closed + self.refused > 0 and not self.failed
        return self.answered > 0 and not self.failed


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to harm others; runs until it is cancelled."""

    name: str
    end: End
    run: Callable[[Target, Tally], Awaitable[None]]


_attacks: dict[str, Attack] = {}


def attack(
    end: End,
) -> Callable[[Callable[[Target, Tally], Awaitable[None]]], Callable[[Target, Tally], Awaitable[None]]]:
    """Register a function as an attack that the server must end in this way."""

    def register(run: Callable[[Target, Tally], Awaitable[None]]) -> Callable[[Target, Tally], Awaitable[None]]:
        name = run.__name__
        _attacks[name] = Attack(name, end, run)
        return run

    return register


def attacks() -> Mapping[str, Attack]:
    """Return all attacks by name."""
    for module in _MODULES:
        import_module(f"benchmarks.attacks.{module}")
    return _attacks


def perform(name: str, target: Target) -> Tally:
    """Perform an attack in this process, at the lowest priority: a real attacker has a machine of its own."""
    os.nice(_LOWEST_PRIORITY)
    allow_many_files()
    return run_async(attack_for(attacks()[name], target, Tally()))


async def attack_for(chosen: Attack, target: Target, tally: Tally) -> Tally:
    """Run an attack for its seconds and return what became of it."""
    with contextlib.suppress(TimeoutError), aborting_connections():
        async with asyncio.timeout(target.seconds):
            await chosen.run(target, tally)
    return tally


def allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES_NEEDED:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES_NEEDED, hard), hard))


async def flood(target: Target, tally: Tally, requests: Callable[[int], Iterator[bytes]], connections: int = 0) -> None:
    """Send requests over many connections, each as fast as it is answered; ``requests`` gets a connection's number."""
    async with asyncio.TaskGroup() as group:
        for number in range(connections or target.connections):
            group.create_task(_keep_asking(target, tally, requests(number)))


async def _keep_asking(target: Target, tally: Tally, requests: Iterator[bytes]) -> None:
    connection: Connection | None = None
    for prepared in requests:
        try:
            connection = connection or await Connection.open(target.port)
            answer = await connection.exchange(prepared)
        except (OSError, EOFError, ValueError):
            tally.closed += 1
            connection = None
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        # MCP answers 200 to a call that is refused.
        status = _REFUSED if answer.status < _REFUSED and answer.is_refusal else answer.status
        tally.statuses[status] += 1
        if answer.header("connection") == "close":
            await _end(connection)
            connection = None
        if status >= _REFUSED:
            # As an impatient client does, which ignores how long it should wait.
            await asyncio.sleep(_PAUSE_SECONDS / 10)


async def hold(target: Target, tally: Tally, count: int, start: bytes, drip: bytes = b"") -> None:
    """Hold many connections open after sending the start of a request; send ``drip`` every second, if given."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(_keep_open(target, tally, start, drip))
            await asyncio.sleep(0)


async def _keep_open(target: Target, tally: Tally, start: bytes, drip: bytes) -> None:
    while True:
        try:
            connection = await Connection.open(target.port)
            tally.statuses.update(await connection.hold(start, drip))
        except (OSError, EOFError, ValueError):
            pass
        tally.closed += 1
        await asyncio.sleep(_PAUSE_SECONDS)


async def _end(connection: Connection) -> None:
    with contextlib.suppress(OSError):
        await connection.close()


def repeated(
    method: str, path: str, key: str | None, body: object = None, **headers: str
) -> Callable[[int], Iterator[bytes]]:
    """Return the requests of every connection: the same one again and again."""
    prepared = request(method, path, key, body, **headers)

    def same(_: int) -> Iterator[bytes]:
        while True:
            yield prepared

    return same
