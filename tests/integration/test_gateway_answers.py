"""Answers of servers behind the gateway: their size, who has which connection, and which are known already."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.gateway import Upstream, add, call, text
from support.mcp_upstream import LONG
from support.world import outcome
from weftline.app import gateway_connections

if TYPE_CHECKING:
    from pathlib import Path

    from support.world import World
    from weftline.settings import Settings

pytestmark = pytest.mark.req("WX-13")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, gateway_commands="on")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


def handle_in(shown: str) -> str:
    found = re.search(r"wl-[0-9a-f]{16}", shown.splitlines()[-1])
    assert found is not None
    return found[0]


@pytest.mark.both_databases
async def test_a_long_answer_is_shortened_to_what_was_asked_for_with_a_handle_to_the_whole(
    world: World, upstream: Upstream
) -> None:
    upstream.say(long="Return a log")
    await add(world.admin, command=upstream.command)
    short = await text(world.planner, "up__long")
    assert len(short) < 8_000
    assert LONG[0] in short
    assert LONG[1203] not in short
    # What the arguments name stays.
    assert f"\n{LONG[1203]}\n" in await text(world.planner, "up__long", near="1203")
    handle = handle_in(short)
    opened = await world.planner.call("conversation.open", handle=handle)
    assert opened["text"].splitlines() == LONG
    part = await world.planner.call("conversation.open", handle=handle, first_line=1204, last_line=1204)
    assert part["text"] == LONG[1203]
    # It is the answer of one agent.
    for other in (world.analysis, world.stranger):
        assert await outcome(other.call("conversation.open", handle=handle)) == "OUTPUT_NOT_FOUND"


async def test_an_agent_in_a_step_reads_the_whole_of_its_answers(world: World, upstream: Upstream) -> None:
    upstream.say(long="Return a log")
    await add(world.admin, command=upstream.command, answer_tokens=20_000)
    await world.admin.call("step.define", name="read", tools=["up__long"])
    key = (await world.admin.call("key.create", agent_id="analysis", step="read"))["api_key"]
    reader = world.analysis.with_credential(key)
    short = await text(reader, "up__long")
    assert 20_000 < len(short) < 40_000
    assert (await reader.call("conversation.open", handle=handle_in(short)))["lines"] == len(LONG)


async def test_whole_answers_are_deleted_with_old_receipts(world: World, upstream: Upstream) -> None:
    upstream.say(long="Return a log")
    await add(world.admin, command=upstream.command)
    handle = handle_in(await text(world.planner, "up__long"))
    pruning = world.app.receipt_pruning
    world.clock.advance(days=world.app.settings.receipt_days - 1)
    assert world.tenant not in [work.tenant for work in await pruning.due(world.app.scheduler)]
    world.clock.advance(days=2)
    work = next(work for work in await pruning.due(world.app.scheduler) if work.tenant == world.tenant)
    assert await pruning.run(work) is False
    ((left,),) = await world.rows("SELECT COUNT(*) FROM proxied_outputs WHERE tenant = $1", world.tenant)
    assert left == 0
    assert handle


async def test_a_call_takes_one_transaction_that_writes(
    world: World, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a call costs besides the two ends of the protocol: its audit row, and the check of its answer."""
    upstream.say(echo="Return a text")
    await add(world.admin, command=upstream.command)
    await text(world.planner, "up__echo", text="first")
    taken = []
    for kind in ("read", "write"):
        run = getattr(world.app.database, kind)

        async def counted(scope: Any, work: Any, *, run: Any = run, kind: str = kind) -> Any:
            if scope.tenant == world.tenant:
                taken.append(kind)
            return await run(scope, work)

        monkeypatch.setattr(world.app.database, kind, counted)
    await text(world.planner, "up__echo", text="again")
    assert taken == ["read", "write"]


async def test_an_answer_that_is_too_large_is_an_error_for_the_model(world: World, upstream: Upstream) -> None:
    upstream.say(large="Return too much")
    await add(world.admin, command=upstream.command)
    answer = await call(world.planner, "up__large")
    assert answer["is_error"] is True
    assert "at most 16 MiB" in answer["content"][0]["text"]


async def test_agents_share_a_connection_only_if_the_server_says_so(world: World, upstream: Upstream) -> None:
    upstream.say(count="Count the calls of this program")
    await add(world.admin, "own", command=upstream.command)
    await add(world.admin, "one", command=upstream.command, connection="tenant")
    callers = (world.planner, world.analysis, world.planner)
    assert [await text(caller, "own__count") for caller in callers] == ["1", "1", "2"]
    assert [await text(caller, "one__count") for caller in callers] == ["1", "2", "3"]
    shown = (await world.admin.call("gateway.list"))["servers"]
    assert {each["name"]: each["connection"] for each in shown} == {"own": "agent", "one": "tenant"}


async def test_the_connection_that_is_idle_for_longest_makes_room(
    world: World, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_connections, "MAX_CONNECTIONS", 2)
    upstream.say(count="Count the calls of this program")
    await add(world.admin, command=upstream.command)
    callers = (world.planner, world.analysis, world.analysis)
    assert [await text(caller, "up__count") for caller in callers] == ["1", "1", "2"]
    # That of the administrator, who asked for the tools, and then the planner's made room.
    assert await text(world.review, "up__count") == "1"
    assert [await text(caller, "up__count") for caller in (world.analysis, world.planner)] == ["3", "1"]


async def test_the_same_read_only_call_has_the_same_answer_for_its_caller_if_the_server_says_so(
    world: World, upstream: Upstream
) -> None:
    upstream.say(count="Count the calls of this program")
    await add(world.admin, command=upstream.command, connection="tenant", cache_seconds=60)
    assert [await text(world.planner, "up__count", of=name) for name in ("a", "a", "b")] == ["1", "1", "2"]
    # Others get an answer of their own, whoever asked before.
    assert await text(world.analysis, "up__count", of="a") == "3"
    world.clock.advance(seconds=61)
    assert await text(world.planner, "up__count", of="a") == "4"
    # Each of the calls is audited.
    rows = (await world.admin.call("audit.list"))["entries"]
    assert sum(row["action"] == "gateway.call" for row in rows) == 5
    # A change of who may do what ends it: another rule may hold for the answer.
    await world.admin.call("step.define", name="other", tools=["up__count"])
    assert await text(world.planner, "up__count", of="a") == "5"
