"""Attacks of one caller on a running server: each is refused or gets its share, and others go on working.

``make bench ARGS=hostile`` measures how long others wait meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from benchmarks.attacks import Attack, End, Tally, Target, attack_for, attacks
from benchmarks.harness import resident_bytes
from benchmarks.hostile import Prepared, key_id, prepare
from benchmarks.servers import Served, weftline_server
from benchmarks.wire import Connection, aborting_connections, request

from support.databases import new_postgres_database
from support.full_run import FULL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

# Attackers leave connections behind, which the garbage collector finds.
pytestmark = [pytest.mark.req("MS-11"), pytest.mark.filterwarnings("ignore::ResourceWarning")]
# Those that the server ends by deadlines take longer than a test: see tests/http/test_connection_limits.py.
QUICK = [name for name, attack in attacks().items() if attack.end is not End.CLOSED]
NAMES = QUICK if FULL else QUICK[::4]
# On PostgreSQL those that work on its pool, its threads and its locks; all of them with the command.
ON_POSTGRES = QUICK[::4] if FULL else ["comparisons", "restored_snapshots"]
MOST_BYTES = 300_000_000
# Low enough that a flood reaches them soon, and more than a victim needs.
RATES = "board=1500/minute session=300/minute search=1500/minute"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Prepared]]:
    """Start a server with default limits, two victims, and attackers for each attack."""
    data = tmp_path_factory.mktemp("attacked")
    prepared = asyncio.run(prepare(str(data / "weftline.db"), 40, NAMES))
    with weftline_server(data, log_level="ERROR", settings={"WEFTLINE_RATE_LIMITS": RATES}) as served:
        yield served, prepared


@pytest.fixture(scope="module")
def attacked_on_postgres(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Prepared]]:
    url = asyncio.run(new_postgres_database(postgres, f"weftline_attacked_{secrets.token_hex(4)}"))
    prepared = asyncio.run(prepare(url, 40, ON_POSTGRES))
    settings = {"WEFTLINE_RATE_LIMITS": RATES, "WEFTLINE_DATABASE_URL": url}
    with weftline_server(tmp_path_factory.mktemp("attacked"), log_level="ERROR", settings=settings) as served:
        yield served, prepared


class Victim:
    """A caller that reads and writes on one connection, which it opened before the attack."""

    def __init__(self, connection: Connection, key: str) -> None:
        self._connection = connection
        self._key = key
        self.statuses: list[int] = []

    async def work(self) -> None:
        for method, body in (("PUT", {"value": "ship"}), ("GET", None)):
            asked = request(method, "/v1/sessions/daily/context/goal", self._key, body)
            self.statuses.append((await self._connection.exchange(asked)).status)

    async def work_until(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            await self.work()
            await asyncio.sleep(0.1)


@asynccontextmanager
async def working(port: int, keys: Sequence[str]) -> AsyncIterator[list[Victim]]:
    """Let victims work during the block."""
    with aborting_connections():
        victims = [Victim(await Connection.open(port), key) for key in keys]
        for victim in victims:
            await victim.work()
        ended = asyncio.Event()
        tasks = [asyncio.create_task(victim.work_until(ended)) for victim in victims]
        yield victims
        ended.set()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("name", NAMES)
async def test_others_are_served_while_one_caller_attacks(attacked: tuple[Served, Prepared], name: str) -> None:
    await others_are_served_during(name, *attacked)


@pytest.mark.parametrize("name", ON_POSTGRES)
async def test_others_are_served_on_postgres(attacked_on_postgres: tuple[Served, Prepared], name: str) -> None:
    await others_are_served_during(name, *attacked_on_postgres)


async def others_are_served_during(name: str, served: Served, prepared: Prepared) -> None:
    chosen, tally = attacks()[name], Tally()
    attackers, victim = prepared.attackers[name], key_id(prepared.victims[0])
    target = Target(served.port, attackers, prepared.session, victim, 20.0, connections=8)
    before = resident_bytes(served.pid)
    async with working(served.port, prepared.victims) as victims:
        attacking = asyncio.create_task(attack_for(chosen, target, tally))
        await until_it_ends(chosen, tally)
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
    gc.collect()
    assert {status for victim in victims for status in victim.statuses} == {200}
    assert tally.meets(chosen.end), tally
    assert not tally.failed, tally
    assert resident_bytes(served.pid) - before < MOST_BYTES


async def until_it_ends(chosen: Attack, tally: Tally) -> None:
    """Wait until the attack is ended as it must be, or has gone on for a while."""
    async with asyncio.timeout(30):
        for turn in itertools.count():
            await asyncio.sleep(0.05)
            if tally.meets(chosen.end) and (chosen.end is not End.SHARED or turn > 10):
                return
