"""The gateway: MCP servers of others behind Weftline, over stdio and HTTP, with real servers as processes."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.gateway import ATTACK, Upstream, add, call, http_upstream, text
from support.world import SESSION, outcome, refused
from weftline.app.dispatch import CallContext

if TYPE_CHECKING:
    from pathlib import Path

    from support.world import World
    from weftline.settings import Settings

pytestmark = pytest.mark.req("CE-F44")


@pytest.fixture
def settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TOKEN_OF_UPSTREAM", "from the environment")
    return replace(
        settings,
        gateway_commands="on",
        gateway_environment="TOKEN_OF_UPSTREAM",
        gateway_private_hosts="127.0.0.1",
    )


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


def states(server: Any) -> dict[str, str]:
    return {tool["name"]: tool["state"] for tool in server["tools"]}


@pytest.mark.both_databases
async def test_agents_call_tools_of_a_server_that_an_admin_added(world: World) -> None:
    added = await add(world.admin)
    assert (added["kind"], added["approved"], added["held"], added["quarantined"]) == ("command", 6, 0, 0)
    echo = next(tool for tool in added["tools"] if tool["name"] == "up__echo")
    assert echo == {
        "name": "up__echo", "description": "Return a text as it is", "state": "approved", "read_only": True
    }  # fmt: skip
    for caller in (world.planner, world.analysis):
        answer = await call(caller, "up__echo", text="hello")
        assert answer == {"content": [{"type": "text", "text": "hello"}], "structured": {"text": "hello"}}
    assert (await call(world.analysis, "up__fail"))["is_error"] is True
    # What the server refuses is an answer, too.
    assert (await call(world.analysis, "up__echo"))["is_error"] is True
    with refused("GATEWAY_TOOL_NOT_FOUND"):
        await call(world.analysis, "up__nothing")
    (listed,) = (await world.admin.call("gateway.list"))["servers"]
    assert (listed["name"], listed["approved"], listed["problem"]) == ("up", 6, "")
    await world.admin.call("gateway.remove", name="up")
    assert (await world.admin.call("gateway.list"))["servers"] == []
    with refused("GATEWAY_TOOL_NOT_FOUND"):
        await call(world.analysis, "up__echo", text="hello")
    assert (await world.analysis.call("tools.list"))["tools"] == []


async def test_a_server_over_http_gets_its_headers(world: World) -> None:
    async with http_upstream() as url:
        await add(world.admin, command=None, url=url, variables={"Authorization": "Bearer ${TOKEN_OF_UPSTREAM}"})
        assert await text(world.planner, "up__headers") == "Bearer from the environment"
        shown = await world.admin.call("gateway.get", name="up")
        assert shown["variables"] == {"Authorization": "Bearer ${TOKEN_OF_UPSTREAM}"}
        assert shown["target"] == url


async def test_only_admins_add_servers_and_only_what_the_operator_allows(world: World, settings: Settings) -> None:
    for caller in (world.planner, world.analysis):
        assert await outcome(add(caller)) == "PERMISSION_DENIED"
    with refused("INVALID_INPUT_FORMAT"):
        await add(world.admin, url="https://example.com/mcp")
    with refused("ADDRESS_REFUSED"):
        await add(world.admin, command=None, url="http://localhost:1/mcp")
    with refused("GATEWAY_COMMANDS_OFF") as caught:
        await add(world.admin, variables={"SECRET": "${HOME}"})
    assert "WEFTLINE_GATEWAY_ENVIRONMENT" in caught.value.message
    with refused("GATEWAY_SECRET_REFUSED"):
        await add(world.admin, variables={"GIVEN": "a secret"})
    world.app.gateway.connections._commands = False
    with refused("GATEWAY_COMMANDS_OFF"):
        await add(world.admin)
    assert (await world.admin.call("gateway.list"))["servers"] == []


async def test_a_server_that_does_not_work_is_not_added(world: World) -> None:
    for command, reason in (
        ("nothing-of-this-name", "there is no such program"),
        (shlex.join([sys.executable, "-c", "pass"]), "it ended the connection"),
    ):
        with refused("GATEWAY_SERVER_FAILED") as caught:
            await add(world.admin, command=command)
        assert reason in caught.value.message
    assert (await world.admin.call("gateway.list"))["servers"] == []
    await add(world.admin)
    with refused("GATEWAY_SERVER_EXISTS"):
        await add(world.admin)
    with refused("TOOL_NAME_TAKEN"):
        await add(world.admin, "weftline")


async def test_servers_are_for_those_who_are_named(world: World) -> None:
    await add(world.admin, agents=["principal:analysis"])
    assert await text(world.analysis, "up__echo", text="x") == "x"
    assert await outcome(call(world.planner, "up__echo", text="x")) == "GATEWAY_TOOL_NOT_FOUND"
    chosen = [
        await caller.call("tools.select", task_description="return a text")
        for caller in (world.analysis, world.planner)
    ]
    assert ["up__echo" in [tool["name"] for tool in each["tools"]] for each in chosen] == [True, False]
    assert await outcome(world.planner.call("tools.describe", name="up__echo")) == "UNKNOWN_OPERATION"
    described = await world.analysis.call("tools.describe", name="up__echo")
    assert (described["read_only"], list(described["input_schema"]["properties"])) == (True, ["text"])
    assert "runtime" not in described


async def test_tools_of_servers_are_found_by_those_who_may_call_them(world: World) -> None:
    await add(world.admin, agents=["principal:analysis"])
    found = [await caller.call("tools.search", query="return a text") for caller in (world.analysis, world.planner)]
    assert ["up__echo" in [tool["name"] for tool in each["tools"]] for each in found] == [True, False]
    assert not any("runtime" in tool for tool in found[0]["tools"])


async def test_other_tenants_have_no_part_of_it(world: World) -> None:
    await add(world.admin)
    stranger = world.stranger
    assert await outcome(call(stranger, "up__echo", text="x")) == "GATEWAY_TOOL_NOT_FOUND"
    assert (await stranger.call("gateway.list"))["servers"] == []


async def test_a_definition_that_changes_is_held_until_it_is_approved(world: World, upstream: Upstream) -> None:
    upstream.say(echo="Return a text", old="What will go")
    await add(world.admin, command=upstream.command)
    upstream.say(echo="Return a text, and publish it", new="What was added")
    server = await world.admin.call("gateway.refresh", name="up")
    assert states(server) == {"up__echo": "held", "up__new": "held"}
    assert [tool["reason"] for tool in server["tools"]] == [
        "its definition changed after it was approved",
        "the server added it after it was approved",
    ]
    with refused("GATEWAY_TOOL_HELD"):
        await call(world.planner, "up__echo", text="x")
    assert (await world.planner.call("tools.list"))["tools"] == []
    approved = await world.admin.call("gateway.approve", name="up", tools=["up__echo"])
    assert states(approved) == {"up__echo": "approved", "up__new": "held"}
    assert await text(world.planner, "up__echo", text="x") == "x"
    # What was approved before is known.
    upstream.say(echo="Return a text")
    assert states(await world.admin.call("gateway.refresh", name="up")) == {"up__echo": "held"}
    upstream.say(echo="Return a text, and publish it")
    assert states(await world.admin.call("gateway.refresh", name="up")) == {"up__echo": "approved"}


async def test_a_change_is_seen_when_the_server_is_started_again(world: World, upstream: Upstream) -> None:
    upstream.say(echo="Return a text", leave="End")
    await add(world.admin, command=upstream.command)
    upstream.say(echo="Return another text", leave="End")
    with refused("GATEWAY_SERVER_FAILED"):
        await call(world.planner, "up__leave")
    with refused("GATEWAY_TOOL_HELD"):
        await call(world.planner, "up__echo", text="x")
    assert await outcome(call(world.analysis, "up__leave")) == "GATEWAY_SERVER_FAILED"


async def test_a_poisoned_description_is_quarantined(world: World, upstream: Upstream) -> None:
    upstream.say(echo="Return a text", evil=ATTACK)
    added = await add(world.admin, command=upstream.command)
    assert states(added) == {"up__echo": "approved", "up__evil": "quarantined"}
    assert [tool["name"] for tool in (await world.planner.call("tools.list"))["tools"]] == ["up__echo"]
    assert await outcome(call(world.planner, "up__evil")) == "GATEWAY_TOOL_HELD"
    # Approving all that is held does not approve it, and by its name a human has to.
    assert states(await world.admin.call("gateway.approve", name="up"))["up__evil"] == "quarantined"
    assert await outcome(world.admin.call("gateway.approve", name="up", tools=["up__evil"])) != "ok"
    assert states(await world.admin.call("gateway.get", name="up"))["up__evil"] == "quarantined"


async def test_an_answer_that_attacks_is_withheld(world: World) -> None:
    await add(world.admin)
    with refused("GATEWAY_RESULT_WITHHELD") as caught:
        await call(world.planner, "up__echo", text=ATTACK)
    assert ATTACK not in caught.value.message
    # The call was made, and is on record without its arguments.
    rows = (await world.admin.call("audit.list"))["entries"]
    calls = [row for row in rows if row["action"] == "gateway.call"]
    assert {row["outcome"] for row in calls} == {"done", "denied"}
    assert all(row["target"] == "up__echo" for row in calls)
    assert "attacker" not in json.dumps(calls)


async def test_guardrails_know_tools_of_servers_by_their_names(world: World) -> None:
    await add(world.admin)
    rule = {"name": "no-echo", "prohibited_action": ["up__ec*"], "condition": "arguments.arguments.text == 'no'"}
    await world.admin.call("layer.define", layer="tenant", guardrails=[rule])
    assert await outcome(call(world.planner, "up__echo", text="no")) == "GUARDRAIL_VIOLATION"
    assert await text(world.planner, "up__echo", text="yes") == "yes"
    assert await outcome(call(world.planner, "up__fail")) == "ok"


async def test_lists_have_tools_of_servers_if_they_are_few_or_asked_for(world: World, upstream: Upstream) -> None:
    app, context = world.app, CallContext(world.planner.credential)

    async def listed(profile: str | None = None) -> list[str]:
        actor = await app.identify(context)
        return [view.name for view in await app.listed_tools(actor, profile, in_session=False) if "up__" in view.name]

    upstream.say(**{f"tool{number}": "A tool" for number in range(10)})
    await add(world.admin, command=upstream.command)
    assert len(await listed()) == 10
    assert await listed("board") == []
    upstream.say(**{f"tool{number}": "A tool" for number in range(11)})
    await world.admin.call("gateway.refresh", name="up")
    assert len(await listed()) == 10
    await world.admin.call("gateway.approve", name="up")
    assert await listed() == []
    assert len(await listed("gateway")) == len(await listed("full")) == 11
    operation, raw = await app.resolve_tool(
        "weftline_tools", {"action": "call", "name": "up__tool1", "arguments": {"a": 1}}, context
    )
    assert (operation.name, raw) == ("gateway.call", {"name": "up__tool1", "arguments": {"a": 1}})
    with refused("UNKNOWN_OPERATION"):
        await app.resolve_tool("up__nothing", {}, context)


@pytest.mark.req("WX-13")
async def test_a_rule_limits_how_often_agents_call_a_server(world: World) -> None:
    await add(world.admin)
    rule = {"name": "few", "prohibited_action": ["up__*"], "condition": "calls.hour > 2"}
    await world.admin.call("layer.define", layer="tenant", guardrails=[rule])
    assert [await text(world.planner, "up__echo", text=name) for name in ("a", "b")] == ["a", "b"]
    assert await outcome(call(world.planner, "up__echo", text="c")) == "GUARDRAIL_VIOLATION"
    # Each agent has its own budget.
    assert await text(world.analysis, "up__echo", text="c") == "c"


@pytest.mark.both_databases
async def test_of_many_tools_lists_have_those_that_were_chosen_for_the_task(world: World, upstream: Upstream) -> None:
    app = world.app

    async def listed(key: str, session_id: str | None = None) -> list[str]:
        actor = await app.identify(CallContext(key, session_id=session_id))
        return [view.name for view in await app.listed_tools(actor, None, in_session=False) if "up__" in view.name]

    upstream.say(
        invoice="Write an invoice for a customer",
        refund="Pay money back to a customer",
        **{f"planet{number}": f"Tell the distance of planet number {number} from its star" for number in range(12)},
    )
    await add(world.admin, command=upstream.command)
    planner, analysis = world.planner.credential, world.analysis.credential
    assert await listed(planner) == []
    chosen = await world.planner.call("tools.select", task_description="write the customer an invoice")
    loaded = sorted(tool["name"] for tool in chosen["tools"])
    # Relevance decides how many.
    assert "up__invoice" in loaded
    assert len(loaded) < 10
    assert await listed(planner) == loaded
    assert await listed(analysis) == []
    since = await app.gateway.chosen_since(world.tenant, 0)
    assert list(since) == ["planner"]
    # That of a session is for the connections that are bound to it, and the newest for the others.
    world.clock.advance(seconds=1)
    task = "how far is planet number 3"
    chosen = await world.planner.call("tools.select", task_description=task, session_id=SESSION)
    in_session = sorted(tool["name"] for tool in chosen["tools"])
    assert "up__planet3" in in_session
    assert await listed(planner, SESSION) == await listed(planner) == in_session
    # Whoever loses the right to a tool has it in no list.
    await world.admin.call("gateway.remove", name="up")
    assert await listed(planner) == []


async def test_a_step_has_only_its_tools(world: World) -> None:
    await add(world.admin)
    await world.admin.call("step.define", name="review", tools=["up__echo"])
    key = (await world.admin.call("key.create", agent_id="analysis", step="review"))["api_key"]
    reviewer = world.analysis.with_credential(key)
    assert await text(reviewer, "up__echo", text="x") == "x"
    assert await outcome(call(reviewer, "up__fail")) == "TOOL_NOT_IN_STEP"


async def test_a_broken_server_pauses_longer_each_time_and_others_go_on(world: World, upstream: Upstream) -> None:
    upstream.say(leave="End the program")
    await add(world.admin, "bad", command=upstream.command)
    await add(world.admin)
    assert await text(world.planner, "up__echo", text="x") == "x"
    assert await outcome(call(world.planner, "bad__leave")) == "GATEWAY_SERVER_FAILED"
    health = next(health for key, health in world.app.gateway.connections._health.items() if key.server == "bad")
    world.app.gateway.connections._commands = False
    # It may not be started any more: the first call tries, the next one is refused at once.
    assert await outcome(call(world.planner, "bad__leave")) == "GATEWAY_COMMANDS_OFF"
    with refused("GATEWAY_SERVER_FAILED") as caught:
        await call(world.planner, "bad__leave")
    assert caught.value.context["retry_after_seconds"] == 1
    assert health.failures == 1
    assert await text(world.planner, "up__echo", text="x") == "x"
    problems = {each["name"]: each["problem"] for each in (await world.admin.call("gateway.list"))["servers"]}
    assert problems["up"] == ""
    assert "WEFTLINE_GATEWAY_COMMANDS" in problems["bad"]


async def test_a_cancelled_call_is_cancelled_at_the_server(world: World, upstream: Upstream) -> None:
    upstream.say(wait="Wait", echo="Return a text")
    await add(world.admin, command=upstream.command)
    waiting = asyncio.create_task(call(world.planner, "up__wait"))
    slots = world.app.gateway.connections._slots
    while not any(each.connection and each.connection.calls for each in slots.values()):  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0.01)
    assert await text(world.planner, "up__echo", text="meanwhile") == "meanwhile"
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await text(world.planner, "up__echo", text="after") == "after"
    while not upstream.notes.exists():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)


class TestSecrets:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, signing_secret="a secret of the tests")

    @pytest.mark.both_databases
    async def test_values_are_encrypted_and_never_shown(self, world: World) -> None:
        added = await add(world.admin, variables={"GIVEN": "hunter2-secret", "GIVEN_REF": "${TOKEN_OF_UPSTREAM}"})
        assert added["variables"] == {"GIVEN": "(stored encrypted)", "GIVEN_REF": "${TOKEN_OF_UPSTREAM}"}
        seen = json.loads(await text(world.planner, "up__variables"))
        assert seen == {"GIVEN": "hunter2-secret", "GIVEN_REF": "from the environment"}
        ((stored,),) = await world.rows("SELECT variables FROM gateway_servers WHERE tenant = $1", world.tenant)
        assert "hunter2" not in stored
        rows = json.dumps(await world.admin.call("audit.list"))
        assert "gateway.add" in rows
        assert "hunter2" not in rows
