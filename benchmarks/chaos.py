"""Chaos: faults at random in a cluster under load; everything acknowledged must be found afterwards, and in order.

    python -m benchmarks.chaos --minutes 10 --random-state 1

Needs what scripts/cluster.py needs. The load is that of the kill campaign, and writes that compare versions. After each
fault it is taken back, and the cluster has to become whole by itself. The longest time without an acknowledged write is
measured for each kind of fault.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Row, save, show
from benchmarks.kill_campaign import conversations, kinds
from benchmarks.kill_campaign.client import CallRefused, Client, OutcomeUnknown, RunningServer
from benchmarks.kill_campaign.compared_writes import ComparedWrites
from benchmarks.kill_campaign.event_stream import EventStream
from benchmarks.kill_campaign.kinds import SESSION, SOURCE
from benchmarks.servers import ROOMY
from weftline.app.app import App
from weftline.settings import Settings

sys.path.append(str(Path(__file__).parents[1] / "scripts"))

from cluster import DATABASES, NODES, WEB, Cluster, address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.kill_campaign.kinds import Kind

_FAULT_SECONDS = (2.0, 6.0)
_CALM_SECONDS = (1.0, 3.0)
_WHOLE_SECONDS = 120.0
_PROBE_SECONDS = 0.05
_SOURCE_KEYS = 30


@dataclass(slots=True)
class Unavailability:
    """The longest time between two acknowledged writes of a probe, by the fault that it began in."""

    fault: str = "none"
    longest: dict[str, float] = field(default_factory=dict)

    async def watch(self, server: RunningServer) -> None:
        client = Client(server)
        last, began_in = time.monotonic(), self.fault
        for number in range(sys.maxsize):
            with contextlib.suppress(OutcomeUnknown, CallRefused):
                await client.call("PUT", f"/v1/sessions/{SESSION}/context/probe", {"value": number})
                now = time.monotonic()
                self.longest[began_in] = max(self.longest.get(began_in, 0.0), now - last)
                last, began_in = now, self.fault
            await asyncio.sleep(_PROBE_SECONDS)


class Faults:
    """One fault at a time; what it has broken is mended before the next."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self.all: dict[str, Callable[[], Awaitable[None]]] = {
            "server_killed": self._kill_server,
            "server_added": self._add_server,
            "server_frozen": lambda: self._freeze(self._chance.choice(WEB)),
            "primary_killed": self._kill_primary,
            "primary_frozen": lambda: self._freeze(self._primary()),
            "standby_frozen": lambda: self._freeze(self._standby()),
            "packets_lost": self._lose_packets,
            "server_without_database": lambda: self._cut(self._chance.choice(WEB), "pool", "proxy"),
            "server_without_valkey": lambda: self._cut(self._chance.choice(WEB), "valkey1"),
            "server_without_bucket": lambda: self._cut(self._chance.choice(WEB), "bucket"),
            "primary_without_etcd": lambda: self._cut(self._primary(), "etcd"),
            "pooler_restarted": self._restart_pooler,
            "valkey_restarted_empty": self._restart_valkey,
            "bucket_frozen": lambda: self._freeze("bucket"),
        }

    async def _hold(self) -> None:
        await asyncio.sleep(self._chance.uniform(*_FAULT_SECONDS))

    def _primary(self) -> str:
        return self._cluster.primary() or DATABASES[0]

    def _standby(self) -> str:
        return self._cluster.standby() or DATABASES[1]

    async def _kill_server(self) -> None:
        node = self._chance.choice(WEB)
        await asyncio.to_thread(self._cluster.kill, node)
        await self._hold()
        self._cluster.start(node)

    async def _add_server(self) -> None:
        self._cluster.start("web4")
        await self._hold()
        await asyncio.to_thread(self._cluster.stop, "web4")

    async def _kill_primary(self) -> None:
        node = self._primary()
        await asyncio.to_thread(self._cluster.kill, node)
        await self._hold()
        self._cluster.start(node)

    async def _freeze(self, node: str) -> None:
        self._cluster.freeze(node)
        try:
            await self._hold()
        finally:
            self._cluster.thaw(node)

    async def _lose_packets(self) -> None:
        node = self._chance.choice([name for name in NODES if name not in {"web4", "etcd"}])
        self._cluster.lose(node, self._chance.choice([5, 20, 50]))
        try:
            await self._hold()
        finally:
            self._cluster.heal(node)

    async def _cut(self, node: str, *others: str) -> None:
        for other in others:
            self._cluster.cut(node, other)
        try:
            await self._hold()
        finally:
            for healed in (node, *others):
                self._cluster.heal(healed)

    async def _restart_pooler(self) -> None:
        await asyncio.to_thread(self._cluster.kill, "pool")
        self._cluster.start("pool")

    async def _restart_valkey(self) -> None:
        await asyncio.to_thread(self._cluster.kill, "valkey1")
        self._cluster.start("valkey1")

    async def wait_until_whole(self) -> None:
        deadline = time.monotonic() + _WHOLE_SECONDS
        while not await asyncio.to_thread(self._is_whole):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster did not become whole: {self._cluster.status()}")
            await asyncio.sleep(0.5)

    def _is_whole(self) -> bool:
        cluster = self._cluster
        return bool(cluster.primary() and cluster.standby()) and all(map(cluster.is_ready, WEB))


async def run(minutes: float, random_state: int, only: list[str]) -> list[Row]:
    chance = random.Random(random_state)
    cluster = Cluster(Path(".cluster"))
    await asyncio.to_thread(cluster.up)
    try:
        return await _in(cluster, chance, minutes, only)
    finally:
        cluster.down()


async def _in(cluster: Cluster, chance: random.Random, minutes: float, only: list[str]) -> list[Row]:
    server = RunningServer(address("proxy"), 8787)
    load = await _prepare(cluster, server)
    faults, counts, unavailability = Faults(cluster, chance), Counter[str](), Unavailability()
    tasks = [asyncio.create_task(kind.keep_working()) for kind in load]
    tasks.append(asyncio.create_task(unavailability.watch(server)))
    until = time.monotonic() + 60 * minutes
    try:
        while time.monotonic() < until:
            await asyncio.sleep(chance.uniform(*_CALM_SECONDS))
            name = chance.choice(only or list(faults.all))
            unavailability.fault = name
            print(f"  {time.strftime('%H:%M:%S')} {name}", flush=True)
            await faults.all[name]()
            await faults.wait_until_whole()
            unavailability.fault = "none"
            counts[name] += 1
            for task in tasks:
                if task.done():
                    task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    app = await _open(cluster)
    try:
        rows = [await _row(kind, app) for kind in load]
        rows.append(await _intact(app))
    finally:
        await app.close()
    rows += [Row(f"chaos.faults.{name}", count, "faults") for name, count in sorted(counts.items())]
    gaps = sorted(unavailability.longest.items())
    return rows + [Row(f"chaos.longest_gap.{name}", round(seconds, 2), "s") for name, seconds in gaps]


async def _open(cluster: Cluster) -> App:
    os.environ |= {"AWS_ACCESS_KEY_ID": "weftline", "AWS_SECRET_ACCESS_KEY": "weftline"}
    settings = Settings(
        database_url=cluster.direct_url(),
        data_dir=str(cluster.folder / "commands"),
        object_store_url="s3://weftline/values",
        object_store_endpoint=f"http://{address('bucket')}:5000",
        rate_limits="off",
    )
    app = App(settings)
    await app.open()
    return app


async def _prepare(cluster: Cluster, server: RunningServer) -> list[Kind]:
    app = await _open(cluster)
    try:
        await app.tenants.ensure_default()
        await app.tenants.set_plan("default", "enterprise", memory_entries=1_000_000)
        created = await kinds.as_admin(
            app, "agent.create", agent_id="worker", clearance=5, permissions=["read", "write", "admin"]
        )
        server.api_key = created["api_key"]
        await kinds.as_agent(app, "agent.create", agent_id=conversations.SPENDER)
        for session in (SESSION, SOURCE, *conversations.SESSIONS):
            config = {**ROOMY, "keep_versions": 10_000}
            await kinds.as_agent(
                app, "session.create", purpose="chaos", session_id=session, members=["*"], config=config
            )
        for number in range(_SOURCE_KEYS):
            await kinds.as_agent(app, "board.write", session_id=SOURCE, key=f"k{number}", value=f"source {number}")
    finally:
        await app.close()
    plain = (kinds.Writes, kinds.Messages, kinds.MemoryEntries, kinds.Pushes, kinds.Merges, kinds.Snapshots)
    talks = (conversations.IngestedEvents, conversations.Assemblies, conversations.Compactions)
    return [kind(server) for kind in (ComparedWrites, *plain, kinds.DeletedSessions, *talks, EventStream)]


async def _row(kind: Kind, app: App) -> Row:
    found, acknowledged = await kind.found(app), len(kind.acknowledged)
    for refusal, count in Counter(text[:160] for text in kind.refusals).most_common(3):
        print(f"  {kind.name}: {count} times {refusal}", flush=True)
    target = f"{acknowledged} acknowledged ({kind.interrupted} without an answer)"
    return Row(f"chaos.{kind.name}", found, "found", target=target, met=found == acknowledged > len(kind.refusals))


async def _intact(app: App) -> Row:
    lines = [f"board:{session}" for session in (SESSION, SOURCE)] + ["context:worker"]
    verified = [await kinds.as_admin(app, "history.verify", context_id=line, deep=True) for line in lines]
    intact = sum(one["intact"] for one in verified)
    return Row("chaos.intact", intact, "lines", target=str(len(lines)), met=intact == len(lines))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--random-state", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--only", nargs="*", default=[], metavar="FAULT")
    parser.add_argument("--results", type=Path, default=Path(".results"))
    options = parser.parse_args()
    print(f"random state {options.random_state}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rows = asyncio.run(run(options.minutes, options.random_state, options.only))
    show(rows)
    save(options.results, rows)
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
