"""CPU cost of messages, search and memory as a tenant grows, and as one session grows.

A tenant with a thousand times the messages has a thousand times the sessions and agents. A call should cost the same:
the ratio compares the larger tenant with the smallest. A growing session has no target, only a curve.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from secrets import randbits
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.grown_tenant import READER, Size, fill, query
from benchmarks.harness import SECOND_IN_MICROS, Row, compared, cpu_seconds
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import TENANT, folder, open_app
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator

    from weftline.app.app import App

_MAX_RATIO = 1.5
_PAGE = 50
_MILLIS = 1_000
# Coprime to every number of sessions and pages: visits each of them once before repeating one.
_STRIDE = 37
# Agents are looked up once; message pages never repeat.
_MEMORY_AGENTS = 100
# Few enough for all of their indexes to stay in memory.
_SEARCHED_SESSIONS = 10


@dataclass(slots=True)
class Tenant:
    """An open tenant of one size, with the CPU clock of its process and database."""

    size: Size
    app: App
    database: str | None = None
    _turns: dict[str, Iterator[int]] = field(default_factory=dict)

    def clock(self) -> Callable[[], float]:
        """Return a clock of the CPU time of this process and of PostgreSQL's processes for this tenant."""
        backends = _backends(self.database) if self.database else []
        return lambda: time.process_time() + cpu_seconds(*backends)

    def turns(self, name: str, calls: int) -> Iterator[int]:
        """Yield turn numbers that no earlier measurement of this name used."""
        return islice(self._turns.setdefault(name, count()), calls)

    def session(self, turn: int, among: int | None = None) -> str:
        return f"s_{self._owner(turn, among)}"

    def offset(self, turn: int) -> int:
        return turn * _STRIDE % (self.size.readable - _PAGE)

    async def call(self, operation: str, context: CallContext = READER, /, **raw: Any) -> Any:  # noqa: ANN401 - a response
        return await self.app.call(self.app.registry[operation], raw, context)

    async def remember(self, operation: str, turn: int, **raw: Any) -> None:  # noqa: ANN401 - JSON
        agent = f"agent_{self._owner(turn, _MEMORY_AGENTS)}"
        await self.call(operation, CallContext(Local(TENANT, agent)), **raw)

    async def forget_index(self, session_id: str) -> None:
        """Invalidate the session's search indexes, so that the next search builds them again."""
        await self.app.database.write(
            Scope(TENANT),
            lambda tx: tx.run(
                "UPDATE message_audiences SET stamp = $1 WHERE tenant = $2 AND session_id = $3 AND audience = '*'",
                randbits(62),
                TENANT,
                session_id,
            ),
        )

    def _owner(self, turn: int, among: int | None) -> int:
        touched = min(among or self.size.owners, self.size.owners)
        return turn * _STRIDE % touched * (self.size.owners // touched)


async def _get_messages(tenant: Tenant, turn: int) -> None:
    await tenant.call("message.list", session_id=tenant.session(turn), offset=tenant.offset(turn), limit=_PAGE)


async def _add_message(tenant: Tenant, turn: int) -> None:
    await tenant.call("message.add", session_id=tenant.session(turn), content=f"{turn} {query(turn) * 4}")


async def _search(tenant: Tenant, turn: int) -> None:
    await tenant.call("message.search", session_id=tenant.session(turn, _SEARCHED_SESSIONS), query=query(turn))


async def _set_memory(tenant: Tenant, turn: int) -> None:
    await tenant.remember("memory.set", turn, key=_key(tenant, turn), value={"note": f"{turn} {query(turn)}"})


async def _get_memory(tenant: Tenant, turn: int) -> None:
    await tenant.remember("memory.get", turn, key=_key(tenant, turn))


async def _list_memory(tenant: Tenant, turn: int) -> None:
    await tenant.remember("memory.list", turn, limit=_PAGE, cursor=f".{_key(tenant, turn)}")


def _key(tenant: Tenant, turn: int) -> str:
    return f"key_{tenant.offset(turn)}"


async def _forget_search_index(tenant: Tenant, turn: int) -> None:
    await tenant.forget_index(tenant.session(turn, _SEARCHED_SESSIONS))


async def _do_nothing(_tenant: Tenant, _turn: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """A call, its unmeasured preparation, and its share of the usual number of calls."""

    name: str
    call: Callable[[Tenant, int], Awaitable[None]]
    before: Callable[[Tenant, int], Awaitable[None]] = _do_nothing
    share: float = 1.0


_MEASURED_CALLS = (
    MeasuredCall("get_messages", _get_messages),
    MeasuredCall("search_warm", _search),
    MeasuredCall("search_cold", _search, before=_forget_search_index, share=0.1),
    MeasuredCall("add_message", _add_message),
    MeasuredCall("set_memory", _set_memory),
    MeasuredCall("get_memory", _get_memory),
    MeasuredCall("list_memory", _list_memory),
)


def run(*, quick: bool) -> list[Row]:
    each, rounds, calls = (100, 2, 10) if quick else (1_000, 5, 100)
    owners = (1, 4) if quick else (1, 10, 100, 1_000)
    sizes = [Size(number, each) for number in owners]
    long = (200,) if quick else (1_000, 10_000, 100_000, 300_000, 1_000_000)
    return [
        *(row for messages in long for row in _one_session(messages)),
        *asyncio.run(_on_sqlite(sizes, rounds, calls)),
        *asyncio.run(_on_postgres(sizes[:2] if quick else sizes[:3], rounds, calls)),
    ]


async def _on_sqlite(sizes: list[Size], rounds: int, calls: int) -> list[Row]:
    with folder() as data:
        tenants = [await _sqlite_tenant(data, size) for size in sizes]
        rows = [
            row
            for measured in _MEASURED_CALLS
            async for row in _tenant_rows("sqlite", measured, tenants, rounds, calls)
        ]
        for tenant in tenants:
            await tenant.app.close()
        return rows


async def _on_postgres(sizes: list[Size], rounds: int, calls: int) -> list[Row]:
    with postgres_server() as server:
        tenants = []
        for size in sizes:
            name = f"tenant_{size.messages}"
            url = await postgres_database(server, name)
            await fill(url, size)
            tenants.append(Tenant(size, await open_app(url), name))
        rows = [
            row
            for measured in _MEASURED_CALLS
            async for row in _tenant_rows("postgres", measured, tenants, rounds, calls)
        ]
        for tenant in tenants:
            await tenant.app.close()
        return rows


async def _sqlite_tenant(data: Path, size: Size) -> Tenant:
    place = data / str(size.messages)
    place.mkdir()
    await fill(str(place / "weftline.db"), size)
    return Tenant(size, await open_app(str(place / "weftline.db")))


async def _tenant_rows(
    where: str, measured: MeasuredCall, tenants: list[Tenant], rounds: int, calls: int
) -> AsyncIterator[Row]:
    """Measure one call on all tenants in turn, so that other load on the machine affects all of them equally."""
    calls = max(round(calls * measured.share), 1)
    for tenant in tenants:
        await _cost(tenant, measured, calls)
    costs = [[await _cost(tenant, measured, calls) for tenant in tenants] for _ in range(rounds)]
    for place, tenant in enumerate(tenants[1:], 1):
        result = compared([(round_[place], round_[0]) for round_ in costs])
        yield result.row(
            f"collaboration_growth.{where}.{measured.name}.{tenant.size.messages}",
            "us CPU/call",
            f"with {tenants[0].size.messages} messages",
            at_most=_MAX_RATIO if tenant is tenants[-1] else None,
        )


async def _cost(tenant: Tenant, measured: MeasuredCall, calls: int) -> float:
    clock, spent = tenant.clock(), 0.0
    for turn in tenant.turns(measured.name, calls):
        await measured.before(tenant, turn)
        before = clock()
        await measured.call(tenant, turn)
        spent += clock() - before
    return spent / calls * SECOND_IN_MICROS


def _backends(database: str) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "postgres" and f" {database} " in " ".join(process.info["cmdline"] or [])
    ]


def _one_session(messages: int) -> list[Row]:
    """Fill and measure in separate processes, so that resident memory is this session's only."""
    public, mixed = [Size(1, messages, private=private, memory=False) for private in (False, True)]
    rows: list[Row] = []
    with folder() as data, ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for size, name in ((public, "public"), (mixed, "mixed")):
            path = str(data / f"{name}.db")
            pool.submit(_run_coroutine, fill, path, size).result()
            rows += pool.submit(_run_coroutine, _long_session, path, size, name).result()
    return rows


def _run_coroutine(work: Callable[..., Coroutine[Any, Any, Any]], *arguments: object) -> Any:  # noqa: ANN401 - what it returns
    return asyncio.run(work(*arguments))


async def _long_session(path: str, size: Size, name: str) -> list[Row]:
    tenant = Tenant(size, await open_app(path))
    rows = await _pages(tenant, name)
    if not size.private:
        rows += await _searches(tenant)
    await tenant.app.close()
    return rows


async def _pages(tenant: Tenant, name: str) -> list[Row]:
    """Measure both ends of a long transcript; ``mixed`` hides a part of it from the reader."""
    end = tenant.size.readable - _PAGE
    places: dict[str, Callable[[int], dict[str, int]]] = {
        "first_page": lambda turn: {"offset": turn},
        "last_page": lambda turn: {"offset": end - turn},
        "after_id": lambda turn: {"after_id": tenant.size.each - _PAGE - turn},
    }
    return [
        _session_row(tenant, f"{name}.{place}", await _median_millis(tenant, where), "ms CPU/call")
        for place, where in places.items()
    ]


async def _median_millis(tenant: Tenant, where: Callable[[int], dict[str, int]]) -> float:
    costs = []
    for turn in range(20):
        before = time.process_time()
        await tenant.call("message.list", session_id="s_0", limit=_PAGE, **where(turn))
        costs.append(time.process_time() - before)
    return median(costs) * _MILLIS


async def _searches(tenant: Tenant) -> list[Row]:
    """Measure the first search, which builds the index, and more, which use it if it was cached."""
    # Warm-up: modules that any first search loads are not counted.
    await tenant.call("message.search", session_id="template", query=query(0))
    before = _resident_megabytes("VmRSS")
    _reset_peak_memory()
    build = await _search_millis(tenant, 0)
    added_megabytes = max(_resident_megabytes("VmHWM") - before, 0)
    warm = [await _search_millis(tenant, 1)]
    if warm[0] < build / 2:
        warm += [await _search_millis(tenant, turn) for turn in range(2, 10)]
    return [
        _session_row(tenant, "search_cold", build, "ms CPU/call"),
        _session_row(tenant, "search_warm", median(warm), "ms CPU/call"),
        _session_row(tenant, "search_cold.resident", added_megabytes, "MB"),
    ]


async def _search_millis(tenant: Tenant, turn: int) -> float:
    before = time.process_time()
    await tenant.call("message.search", session_id="s_0", query=query(turn))
    return (time.process_time() - before) * _MILLIS


def _reset_peak_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _resident_megabytes(which: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    kibibytes = next(int(line.split()[1]) for line in lines if line.startswith(f"{which}:"))
    return kibibytes * 1024 / 1_000_000


def _session_row(tenant: Tenant, name: str, value: float, unit: str) -> Row:
    return Row(f"collaboration_growth.one_session.{name}.{tenant.size.each}", round(value, 3), unit)
