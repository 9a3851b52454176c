"""Hostile neighbours: latency of two victims while one caller attacks the server they share.

The victims are an agent of the attacker's tenant in another session, and an agent of another tenant. Each reads and
writes its board. Every attack is measured against the quiet server before it, in the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.attacks import End, Tally, Target, attacks, perform
from benchmarks.harness import Baseline, Row, limited, resident_bytes
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import ROOMY, Served, folder, weftline_server
from benchmarks.wire import Connection, Refused, request, run_async
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

_TENANT, _OTHER_TENANT = "default", "other"
# As many as a session may have.
_KEYS, _CHANGED_KEYS = 1_000, 1_000
# The agent that fills the sessions of the attackers, and their limits.
_OWNER = "mallory"
_LARGE = ROOMY | {"max_value_tokens": 50_000}
_ATTACKERS = 4
_READING_WINDOWS = frozenset({"assemblies", "compactions", "key_facts"})
_MAX_RATIO = 5.0
_MAX_GROWTH_MEGABYTES = 600.0
_MEGABYTE = 2**20
_MILLIS = 1_000
# Ten calls a second of each kind and victim: well within every rate limit.
_PAUSE_SECONDS = 0.05
_LOST_SECONDS = 30.0
_SETTLE_SECONDS = 1.0
_QUIET_SECONDS = 3.0
_WATCH_SECONDS = 0.05
# Attacks that hold connections open last longer than the deadlines they should meet.
_ATTACK_SECONDS = {End.CLOSED: 20.0, End.REFUSED: 8.0, End.LIMITED: 8.0, End.SHARED: 8.0}


@dataclass(slots=True)
class Latencies:
    """Seconds of the calls of a victim, by kind."""

    read: list[float] = field(default_factory=list)
    write: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Prepared:
    """API keys and names that a measurement needs; every attack has attackers of its own.

    Those of an earlier one have used up their rate.
    """

    attackers: Mapping[str, tuple[str, ...]]
    victims: tuple[str, str]
    session: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Latencies of both victims before and during an attack, and what became of the attack."""

    name: str
    quiet: list[Latencies]
    during: list[Latencies]
    tally: Tally
    grown_megabytes: float


def run(*, quick: bool) -> list[Row]:
    names = [*attacks()][:3] if quick else [*attacks()]
    rows = run_async(_on_sqlite(names, quick=quick))
    return rows if quick else rows + run_async(_on_postgres(names))


async def _on_sqlite(names: list[str], *, quick: bool) -> list[Row]:
    with folder() as data:
        prepared = await prepare(str(data / "weftline.db"), 50 if quick else _KEYS, names)
        with weftline_server(data, log_level="WARNING", settings={"WEFTLINE_RATE_LIMITS": ""}) as served:
            return await _measure_all("sqlite", served, prepared, names)


async def _on_postgres(names: list[str]) -> list[Row]:
    with postgres_server() as server, folder() as data:
        url = await postgres_database(server, "hostile")
        prepared = await prepare(url, _KEYS, names)
        settings = {"WEFTLINE_DATABASE_URL": url, "WEFTLINE_RATE_LIMITS": ""}
        with weftline_server(data, log_level="WARNING", settings=settings) as served:
            return await _measure_all("postgres", served, prepared, names)


async def prepare(url: str, keys: int, names: Sequence[str]) -> Prepared:
    """Create two tenants, the victims with a session each, sessions at their limits, and the attackers."""
    app = App(Settings(database_url=url, rate_limits="off"))
    await app.open()
    try:
        victims = []
        for tenant in (_TENANT, _OTHER_TENANT):
            await app.tenants.create(tenant)
            victim = await _call(app, tenant, "agent.create", agent_id="victim")
            await _call(app, tenant, "session.create", purpose="work", session_id="daily", members=["*"])
            victims.append(victim["api_key"])
        await _attacker(app, _OWNER)
        await _grow(app, keys)
        attackers = {name: await _attackers(app, name) for name in names}
        return Prepared(attackers, (victims[0], victims[1]), "large")
    finally:
        await app.close()


async def _attackers(app: App, name: str) -> tuple[str, ...]:
    """Create the agents of an attack, and a window of the first if the attack reads it."""
    agents = [f"{name}{number}" for number in range(_ATTACKERS)]
    keys = [await _attacker(app, agent) for agent in agents]
    if name in _READING_WINDOWS:
        events = [{"event_id": f"e{number}", "content": f"Decision {number}: {'word ' * 200}"} for number in range(200)]
        await _as(app, agents[0], "context.ingest", session_id="large", events=events)
    return tuple(keys)


async def _attacker(app: App, agent: str) -> str:
    created = await _call(app, _TENANT, "agent.create", agent_id=agent, clearance=3)
    return str(created["api_key"])


async def _grow(app: App, keys: int) -> None:
    """Create the sessions of the attackers: one large, and four to be changed at once."""
    for session, size in {
        "large": keys,
        **{f"large-{number}": min(keys, _CHANGED_KEYS) for number in range(4)},
    }.items():
        await _as(app, _OWNER, "session.create", purpose="large", session_id=session, members=["*"], config=_LARGE)
        await _write_all(app, session, size, "first")
        await _as(app, _OWNER, "board.snapshot", session_id=session, label="first")
        if session == "large":
            await _as(app, _OWNER, "history.branch", context_id="board:large", branch="other")
            await _write_all(app, session, size, "other", branch="other")
        await _write_all(app, session, size, "second")
        await _as(app, _OWNER, "board.snapshot", session_id=session, label="second")
    await _call(app, _TENANT, "knowledge.create_domain", domain="attack")
    await _add_template(app)
    for number in range(min(keys, 2_000)):
        content = f"Message {number} about the retry budget and the deploy."
        await _as(app, _OWNER, "message.add", session_id="large", content=content)


async def _add_template(app: App) -> None:
    """Create a domain with as many example questions, metadata fields and patterns as a template may have."""
    phrases = [f"retry budget {number}" for number in range(20)]
    template = {
        "name": "large",
        "metadata": [{"name": f"field{number}", "values": phrases} for number in range(50)],
        "pinned": [f"{'*a' * 90}z{number}" for number in range(20)],
        "questions": [
            {"question": f"How is the retry budget of service {number} spent?", "contains": phrases[:1]}
            for number in range(50)
        ],
    }
    await _call(app, _TENANT, "knowledge.create_domain", domain="questions", template=template)
    for number in range(20):
        text = f"# Service {number}\n\n" + "The retry budget is spent by the second attempt. " * 40
        await _as(app, _OWNER, "knowledge.add_document", domain="questions", document_id=f"s{number}", text=text)


async def _write_all(app: App, session: str, keys: int, word: str, **more: Any) -> None:  # noqa: ANN401 - JSON
    text = f"{word} " * 40
    for start in range(0, keys, 500):
        writes = (
            _as(app, _OWNER, "board.write", session_id=session, key=f"key_{number}", value=text, **more)
            for number in range(start, min(start + 500, keys))
        )
        await asyncio.gather(*writes)


async def _as(app: App, principal: str, operation: str, **raw: Any) -> Any:  # noqa: ANN401 - JSON
    return msgspec.to_builtins(await app.call(app.registry[operation], raw, CallContext(Local(_TENANT, principal))))


async def _call(app: App, tenant: str, operation: str, **raw: Any) -> Any:  # noqa: ANN401 - JSON
    return msgspec.to_builtins(await app.call(app.registry[operation], raw, CallContext(Local(tenant, "admin"))))


async def _measure_all(database: str, served: Served, prepared: Prepared, names: list[str]) -> list[Row]:
    measured = []
    for name in names:
        measured.append(await _measure(name, served, prepared))
        _report(database, measured[-1])
    rows = [row for one in measured for row in _rows(database, one)]
    worst = max(one.grown_megabytes for one in measured)
    ended = sum(one.tally.meets(attacks()[one.name].end) for one in measured)
    return [
        *rows,
        limited(f"hostile.{database}.memory", worst, "MB", below=_MAX_GROWTH_MEGABYTES),
        Row(f"hostile.{database}.ended", ended, "attacks", target=f"{len(names)}", met=ended == len(names)),
    ]


async def _measure(name: str, served: Served, prepared: Prepared) -> Measured:
    """Measure the victims before and during one attack."""
    chosen = attacks()[name]
    seconds = _ATTACK_SECONDS[chosen.end]
    target = Target(served.port, prepared.attackers[name], prepared.session, key_id(prepared.victims[0]), seconds)
    quiet = await _victims(served.port, prepared, _QUIET_SECONDS)
    memory = PeakMemory(served.pid)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        attacking = asyncio.wrap_future(pool.submit(perform, name, target))
        await asyncio.sleep(_SETTLE_SECONDS)
        async with memory.watching():
            during = await _victims(served.port, prepared, seconds - _SETTLE_SECONDS)
            tally = await attacking
    await asyncio.sleep(_SETTLE_SECONDS)
    return Measured(name, quiet, during, tally, memory.grown_bytes / _MEGABYTE)


class PeakMemory:
    """The most memory of a process while it is watched."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._peak = resident_bytes(pid)

    @property
    def grown_bytes(self) -> int:
        return self._peak - self._before

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        while True:
            self._peak = max(self._peak, resident_bytes(self._pid))
            await asyncio.sleep(_WATCH_SECONDS)


async def _victims(port: int, prepared: Prepared, seconds: float) -> list[Latencies]:
    """Let both victims read and write for some seconds."""
    return await asyncio.gather(*(_work(port, key, seconds) for key in prepared.victims))


async def _work(port: int, key: str, seconds: float) -> Latencies:
    latencies = Latencies()
    read = request("GET", "/v1/sessions/daily/context/goal", key)
    deadline = time.monotonic() + seconds
    connection: Connection | None = None
    for number in count():
        if time.monotonic() >= deadline:
            return latencies
        write = request("PUT", "/v1/sessions/daily/context/goal", key, {"value": f"ship {number}"})
        for prepared, spent in ((write, latencies.write), (read, latencies.read)):
            connection, taken = await _timed(port, connection, prepared, latencies)
            spent.append(taken)
        await asyncio.sleep(_PAUSE_SECONDS)
    return latencies


async def _timed(
    port: int, connection: Connection | None, prepared: bytes, latencies: Latencies
) -> tuple[Connection | None, float]:
    """Make one call; a call without a good answer counts as the longest wait."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_LOST_SECONDS):
            connection = connection or await Connection.open(port)
            await connection.ask(prepared)
    except (OSError, EOFError, Refused) as error:
        latencies.failures.append(repr(error)[:200])
        return None, _LOST_SECONDS
    return connection, time.perf_counter() - started


def _rows(database: str, measured: Measured) -> Iterator[Row]:
    for kind in ("read", "write"):
        quiet = max(_p95(getattr(each, kind)) for each in measured.quiet)
        during = max(_p95(getattr(each, kind)) for each in measured.during)
        ratio = during / quiet
        yield Row(
            f"hostile.{database}.{measured.name}.{kind}",
            round(during, 2),
            "ms",
            Baseline("quiet", round(quiet, 2)),
            round(ratio, 2),
            f"at most {_MAX_RATIO:g} x",
            ratio <= _MAX_RATIO,
        )


def _p95(seconds: list[float]) -> float:
    """Return the 95th percentile in milliseconds."""
    return sorted(seconds)[int(len(seconds) * 0.95)] * _MILLIS


def _report(database: str, measured: Measured) -> None:
    """Print what became of the attacker: the rows are about the victims."""
    tally = measured.tally
    failures = [failure for each in measured.during for failure in each.failures]
    print(
        f"  {database} {measured.name}: {tally.answered} answered, {tally.refused} refused, {tally.closed} closed, "
        f"{tally.failed} failed, {measured.grown_megabytes:.0f} MB",
        *failures[:1],
        flush=True,
    )


def key_id(api_key: str) -> str:
    """Return an API key without its secret."""
    return api_key.rpartition(".")[0]
