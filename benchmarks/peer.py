"""Weftline against the public shared-context-server, over MCP: the same client and calls, in turn."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from statistics import median, quantiles
from typing import TYPE_CHECKING

from benchmarks.environments import NotInstallable
from benchmarks.harness import Baseline, Compared, Row, limited, resident_bytes
from benchmarks.peer_load import OPERATIONS, Access, Party, crowd, lost
from benchmarks.peer_server import API_KEY, NAME, PEER, peer_server
from benchmarks.real_clients import LISTED, UNLISTED, WITH_SCHEMAS, available_clients, client_costs
from benchmarks.servers import AGENT, METRICS_TOKEN, folder, prepare, weftline_server
from benchmarks.wire import LEGACY, MODERN, Connection, request, run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from benchmarks.peer_load import Crowd
    from benchmarks.real_clients import ClientCosts, Load
    from benchmarks.servers import Served

    Serve = Callable[[Path], AbstractContextManager[Served]]

_CPU_AT_LEAST = 30
_SEARCH_AT_LEAST = 8
_RATE_AT_LEAST = 50
_RESIDENT_BELOW = 200
# Offset between the protocol eras, so that no call repeats one of the other era.
_MODERN_TURNS = 500


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of calls."""

    messages: int
    rounds: int
    calls: int
    writers: int
    seconds: float


_QUICK = Sizes(messages=20, rounds=2, calls=3, writers=4, seconds=0.3)
_FULL = Sizes(messages=1_000, rounds=5, calls=20, writers=20, seconds=6)


# The other server does not log either.
quiet_weftline = partial(weftline_server, log_level="ERROR")


def run(*, quick: bool) -> list[Row]:
    return run_async(_run(_QUICK, peer=False) if quick else _run(_FULL, peer=True))


async def _run(sizes: Sizes, *, peer: bool) -> list[Row]:
    with folder() as ours, folder() as theirs:
        access = Access(token=await prepare(str(ours / "weftline.db"), []))
        with ExitStack() as stack:
            weftline = Party(stack.enter_context(quiet_weftline(ours)), access, LEGACY)
            other = await peer_party(stack, theirs) if peer else None
            rows = await _operations(sizes, weftline, other)
            rows += await _real_clients(sizes, weftline, other)
            rows.append(_resident(weftline, other))
            crowds = [await crowd(party, sizes.writers, sizes.seconds) for party in (weftline, other) if party]
        # Read back by a restarted server, so that only durable data counts.
        sides: list[tuple[Serve, Path, Access]] = [(quiet_weftline, ours, access)]
        if other:
            sides.append((peer_server, theirs, other.access))
        missing = [await _lost(*side, result) for side, result in zip(sides, crowds, strict=True)]
    return rows + _crowd_rows(crowds, missing)


async def peer_party(stack: ExitStack, data: Path) -> Party | None:
    """Install and start the other server; if that fails, report it and continue without."""
    try:
        PEER.install()
        served = stack.enter_context(peer_server(data))
    except (NotInstallable, RuntimeError, TimeoutError) as error:
        print(f"peer: only Weftline is measured, without {NAME}: {error}", flush=True)
        return None
    party = Party(served, Access(headers={"x_api_key": API_KEY}), LEGACY)
    client = await party.client()
    party.access.arguments["auth_token"] = (
        await party.ask(client, "authenticate_agent", agent_id=AGENT, agent_type="claude")
    )["token"]
    return party


async def _operations(sizes: Sizes, weftline: Party, other: Party | None) -> list[Row]:
    await weftline.fill(sizes.messages)
    modern = Party(
        weftline.served, weftline.access, MODERN, weftline.filled, weftline.open, weftline.messages, _MODERN_TURNS
    )
    parties = [weftline, modern]
    if other:
        await other.fill(sizes.messages)
        parties.append(other)
    rows = []
    for operation in OPERATIONS:
        rounds = [[await party.cost(operation, sizes.calls) for party in parties] for _ in range(sizes.rounds + 1)]
        rows += _cpu_rows(operation, rounds[1:])
        rows += _latency_rows(operation, [party.seconds[operation][sizes.calls :] for party in parties])
    return rows


async def _real_clients(sizes: Sizes, weftline: Party, other: Party | None) -> list[Row]:
    """Measure with real clients: on the endpoint that lists the tools of the other server, and on the default one."""
    # Lists the same tools as the other server.
    listed = replace(weftline, path="/mcp/collaboration")
    rows: list[Row] = []
    for client in available_clients() if other else ("official",):
        name = f"peer.{client}"
        costs = await client_costs(client, [listed, *([other] if other else [])], LISTED, sizes.rounds, sizes.calls)
        rows += _client_rows(f"{name}.{{}}", LISTED, costs)
        for load, path, suffix in ((UNLISTED, weftline, "unlisted"), (WITH_SCHEMAS, listed, "with_schemas")):
            costs = await client_costs(client, [path], load, sizes.rounds, sizes.calls)
            rows += _client_rows(f"{name}.{{}}.{suffix}", load, costs)
    return [*rows, await _slow_calls(weftline)]


async def _slow_calls(weftline: Party) -> Row:
    """Return the number of tool calls that did not take the fast path."""
    connection = await Connection.open(weftline.served.port)
    metrics = (await connection.ask(request("GET", "/metrics", METRICS_TOKEN))).body.decode()
    await connection.close()
    counted = re.search(r'^weftline_tool_calls_total\{path="sdk"\} (\d+)', metrics, re.MULTILINE)
    slow = int(counted[1]) if counted else 0
    return Row("peer.slow_calls", slow, "calls", target="0", met=slow == 0)


def _client_rows(name: str, load: Load, costs: Sequence[ClientCosts]) -> Iterator[Row]:
    for operation in load.operations:
        named = name.format(operation)
        yield _less(f"{named}_cpu", "ms CPU/call", *(cost.server_cpu[operation] for cost in costs))
        yield _less(f"{named}_client_cpu", "ms CPU/call", *(cost.client_cpu[operation] for cost in costs))
        yield from _percentile_rows(named, [cost.seconds[operation] for cost in costs])


def _cpu_rows(operation: str, rounds: Sequence[Sequence[float]]) -> list[Row]:
    ours, modern, *theirs = zip(*rounds, strict=True)
    at_least = _SEARCH_AT_LEAST if operation == "search_context" else _CPU_AT_LEAST
    return [
        _less(f"peer.{operation}_cpu", "ms CPU/call", ours, *theirs, at_least=at_least),
        _less(f"peer.{operation}_cpu.{MODERN}", "ms CPU/call", modern, *theirs),
    ]


def _latency_rows(operation: str, seconds: Sequence[Sequence[float]]) -> list[Row]:
    return _percentile_rows(f"peer.{operation}", [seconds[0], *seconds[2:]])


def _percentile_rows(name: str, seconds: Sequence[Sequence[float]]) -> list[Row]:
    """Return p50 and p95 of each server's latencies."""
    spread = [quantiles((second * 1_000 for second in each), n=20) for each in seconds]
    return [
        _less(f"{name}_{percentile}", "ms", *([cuts[place]] for cuts in spread))
        for percentile, place in (("p50", 9), ("p95", 18))
    ]


def _less(
    name: str, unit: str, ours: Sequence[float], theirs: Sequence[float] = (), *, at_least: float | None = None
) -> Row:
    """Return a row with the ratio of their cost to ours."""
    if not theirs:
        return Row(name, _rounded(median(ours)), unit)
    ratio = median(their / our for our, their in zip(ours, theirs, strict=True))
    return Compared(median(ours), median(theirs), ratio).rate_row(name, unit, NAME, at_least=at_least)


def _resident(weftline: Party, other: Party | None) -> Row:
    ours, *theirs = [resident_bytes(party.served.pid) / 1_000_000 for party in (weftline, other) if party]
    row = limited("peer.resident", ours, "MB", below=_RESIDENT_BELOW)
    return (
        replace(row, baseline=Baseline(NAME, _rounded(theirs[0])), ratio=round(theirs[0] / ours, 3)) if theirs else row
    )


async def _lost(serve: Serve, data: Path, access: Access, result: Crowd) -> int:
    with serve(data) as served:
        return await lost(Party(served, access, LEGACY), result)


def _crowd_rows(crowds: Sequence[Crowd], missing: Sequence[int]) -> list[Row]:
    ours, *theirs = [result.rate for result in crowds]
    if theirs:
        compared = Compared(ours, theirs[0], ours / theirs[0])
        rows = [compared.rate_row("peer.throughput", "messages/s", NAME, at_least=_RATE_AT_LEAST)]
    else:
        rows = [Row("peer.throughput", _rounded(ours), "messages/s")]
    for result, gone, whose in zip(crowds, missing, ("", ".theirs"), strict=False):
        for name, number in (("failed", len(result.failures)), ("lost", gone)):
            row = Row(f"peer.{name}{whose}", number, "messages")
            rows.append(row if whose else replace(row, target="0", met=number == 0))
    return rows


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
