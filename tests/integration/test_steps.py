"""Steps of a task: a caller in one has its tools only, on every interface, and cannot leave it by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_bad_input import OPERATIONS, VALID

from support.world import outcome, refused, wire_form
from weftline.app.authentication import InStep
from weftline.app.dispatch import CallContext
from weftline.kernel.operation import Audience
from weftline.sessions.events.model import EventFilter
from weftline.transports.resources import parse_uri, read_resource

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("CE-F44")
READING = ["shared_context.read", "shared_context.list_keys"]
# Every step has these as well.
IN_EVERY_STEP = ["refresh_token", "guardrails.check", "mcp_gateway.call", "proxied_conversations.open"]


async def define(caller: Caller, name: str = "review", tools: list[str] | None = None, **fields: Any) -> Any:
    return await caller.call("step.define", name=name, tools=READING if tools is None else tools, **fields)


@pytest.fixture
async def reviewing(world: World) -> Caller:
    """Return the analysis agent with a token that is bound to the step review."""
    await world.planner.write("goal", "ship")
    await define(world.admin)
    return await world.analysis.with_token("analysis", step="review")


async def listed(caller: Caller, step: str | None = None) -> dict[str, Any]:
    credential = caller.credential if step is None else InStep(caller.credential, step)
    actor = await caller.app.identify(CallContext(credential))
    return {view.name: view for view in caller.app.toolbox.listed(actor)}


async def test_a_step_lists_its_tools_and_actions_alone(world: World, reviewing: Caller) -> None:
    tools = await listed(reviewing)
    assert list(tools) == ["shared_context"]
    assert tools["shared_context"].input_schema["properties"]["action"]["enum"] == ["list_keys", "read"]
    assert await listed(world.analysis, "review") == tools
    await define(world.admin, "recall", ["get_memory", "shared_context", "add_message"])
    whole = await listed(world.analysis, "recall")
    # In the order of every list, and with every action that may be called.
    assert list(whole) == ["shared_context", "add_message", "get_memory"]
    actions = set(whole["shared_context"].input_schema["properties"]["action"]["enum"])
    every = {each.action for each in OPERATIONS.values() if each.tool == "shared_context"}
    assert actions == every - {"restore_snapshot"}, "which a sub-agent may not use"


async def test_every_operation_outside_of_the_step_is_refused(world: World, reviewing: Caller) -> None:
    assert await reviewing.value("goal") == "ship"
    allowed = {"board.read", "board.list_keys", "token.refresh", "guardrail.check"}
    # Which tools of servers the step has is checked by the call: see test_gateway.py.
    allowed.add("gateway.call")
    # What was left out of an answer within a step can be read in it; it is the agent's own.
    allowed.add("conversation.open")
    answers = {}
    for name, operation in OPERATIONS.items():
        if operation.audience is not Audience.ANONYMOUS and name not in allowed:
            answers[name] = await outcome(reviewing.call(name, **VALID[name]))
    # Some requests nobody may make, whatever its step.
    expected = {"TOOL_NOT_IN_STEP", "SELF_MODIFICATION"}
    assert {name: code for name, code in answers.items() if code not in expected} == {}
    assert "analysis" in {row["agent_id"] for row in await world.admin.audit(outcome="denied")}


async def test_resources_and_calls_through_weftline_tools_obey_the_step(world: World, reviewing: Caller) -> None:
    context = CallContext(reviewing.credential)
    await read_resource(world.app, parse_uri("board://s1/goal"), context)
    with refused("TOOL_NOT_IN_STEP"):
        await read_resource(world.app, parse_uri("session://s1"), context)
    inner = {"action": "call", "name": "shared_context.read", "arguments": {"session_id": "s1", "key": "goal"}}
    with refused("TOOL_NOT_IN_STEP"):
        await world.app.resolve_tool("weftline_tools", inner, context)
    await define(world.admin, tools=[*READING, "weftline_tools"])
    operation, raw = await world.app.resolve_tool("weftline_tools", inner, context)
    assert wire_form(await world.app.call(operation, raw, context))["value"] == "ship"
    found = await reviewing.call("tools.search", query="write a value to the board", limit=50)
    assert {tool["name"] for tool in found["tools"]} == {*READING, *IN_EVERY_STEP}
    with refused("TOOL_NOT_IN_STEP"):
        await reviewing.call("tools.describe", name="shared_context.write")


async def test_a_step_grants_nothing(world: World) -> None:
    await define(world.admin, "all", ["define_agent", "list_sessions", "shared_context", "get_audit_log"])
    everything = await world.analysis.with_token("analysis", step="all")
    assert list(await listed(everything)) == ["shared_context"]
    for name in ("agent.define", "session.list", "audit.list"):
        with refused("PERMISSION_DENIED"):
            await everything.call(name, **VALID[name])
    reading = await world.admin.create_agent("reading", permissions=["read"])
    bound = await reading.with_token("reading", step="all")
    with refused("PERMISSION_DENIED"):
        await bound.write("goal", "x")


async def test_a_token_keeps_its_step_when_it_is_refreshed(world: World, reviewing: Caller) -> None:
    renewed = await reviewing.call("token.refresh")
    assert renewed["step"] == "review"
    again = reviewing.with_credential(renewed["token"])
    assert await again.value("goal") == "ship"
    with refused("TOOL_NOT_IN_STEP"):
        await again.write("goal", "x")
    del world


async def test_a_bound_key_gives_no_other_credential(world: World) -> None:
    await define(world.admin, tools=["shared_context.read", "rotate_key", "create_api_key", "create_agent"])
    await define(world.admin, "write", ["shared_context"])
    made = await world.admin.call("key.create", agent_id="planner", step="review")
    assert made["step"] == "review"
    bound = world.planner.with_credential(made["api_key"])
    assert (await bound.with_token("planner", "planning")).credential
    for step in ("write", "unknown"):
        with refused("BOUND_TO_STEP"):
            await bound.with_token("planner", "planning", step=step)
        with refused("BOUND_TO_STEP"):
            await world.app.identify(CallContext(InStep(bound.credential, step)))
    # Whatever it makes is bound to the same step.
    token = await bound.with_token("planner", "planning")
    child = await token.create_agent("child", parent_id="planner")
    key = await token.call("key.create", agent_id="analysis")
    rotated = await token.call("key.rotate", key_id=bound.key_id)
    assert (key["step"], rotated["step"]) == ("review", "review")
    for caller in (child, world.analysis.with_credential(key["api_key"]), bound.with_credential(rotated["api_key"])):
        with refused("TOOL_NOT_IN_STEP"):
            await caller.write("goal", "x")
    listed_keys = await world.admin.call("key.list", agent_id="analysis")
    assert {each["step"] for each in listed_keys["keys"]} == {"review", None}


async def test_a_refused_attempt_to_leave_a_step_is_audited(world: World, reviewing: Caller) -> None:
    await define(world.admin, "write", ["shared_context"])
    with refused("BOUND_TO_STEP"):
        await world.app.identify(CallContext(InStep(reviewing.credential, "write")))
    await world.app.flush_refusals()
    assert "BOUND_TO_STEP" in {row["detail"].get("code") for row in await world.admin.audit()}


async def test_a_changed_step_holds_from_the_next_call(world: World, reviewing: Caller) -> None:
    with refused("TOOL_NOT_IN_STEP"):
        await reviewing.write("goal", "x")
    await define(world.admin, tools=["shared_context.write"])
    await reviewing.write("goal", "x")
    with refused("TOOL_NOT_IN_STEP"):
        await reviewing.value("goal")
    elsewhere = reviewing.at(await world.another_app())
    await elsewhere.write("goal", "y")
    await world.admin.call("step.remove", name="review")
    # A credential that is bound to a removed step may do nothing, rather than everything.
    for caller in (reviewing, elsewhere):
        with refused("TOOL_NOT_IN_STEP"):
            await caller.write("goal", "x")
    with refused("STEP_NOT_FOUND"):
        await world.app.identify(CallContext(InStep(world.analysis.credential, "review")))
    with refused("STEP_NOT_FOUND"):
        await world.analysis.with_token("analysis", step="review")
    with refused("STEP_NOT_FOUND"):
        await world.admin.call("step.remove", name="review")


async def test_orchestrators_define_steps_for_their_tree(world: World) -> None:
    made = await define(world.planner, "draft")
    assert (made["owner"], made["endpoint"]) == ("planner", "/mcp/step/draft")
    assert await listed(world.analysis, "draft")
    other = await world.admin.create_agent("other")
    with refused("STEP_NOT_FOUND"):
        await world.app.identify(CallContext(InStep(other.credential, "draft")))
    assert (await other.call("step.list")) == {"steps": []}
    with refused("PERMISSION_DENIED"):
        await define(world.planner, "draft", shared_with="tenant")
    with refused("PERMISSION_DENIED"):
        await define(world.analysis, "draft")
    low = await world.admin.create_agent("clerk", kind="human", clearance=2)
    assert (await define(low, "draft"))["owner"] == "clerk"
    with refused("PERMISSION_DENIED"):
        await define(low, "draft", shared_with="tenant")
    with refused("STEP_NOT_FOUND"):
        await world.stranger.call("step.remove", name="draft")


async def test_the_step_of_the_tenant_comes_before_that_of_a_tree(world: World) -> None:
    await define(world.planner, tools=["shared_context"])
    await define(world.admin)
    bound = await world.analysis.with_token("analysis", step="review")
    with refused("TOOL_NOT_IN_STEP"):
        await bound.write("goal", "x")
    assert [step["owner"] for step in (await world.analysis.call("step.list"))["steps"]] == [""]


async def test_a_caller_in_a_step_changes_no_step(world: World) -> None:
    await define(world.admin, tools=["steps"])
    bound = await world.planner.with_token("planner", "planning", step="review")
    assert [step["name"] for step in (await bound.call("step.list"))["steps"]] == ["review"]
    for change in (define(bound, tools=["shared_context"]), bound.call("step.remove", name="review")):
        assert await outcome(change) == "PERMISSION_DENIED"


async def test_a_step_names_tools_that_exist(world: World) -> None:
    with refused("UNKNOWN_TOOL") as caught:
        await define(world.admin, tools=["shared_contest.read"])
    assert "shared_context.read" in caught.value.hint
    with refused("UNKNOWN_TOOL"):
        await define(world.admin, tools=["github.create_issue"])
    await world.admin.call("tools.register", tools=[{"name": "github.create_issue"}])
    await define(world.admin, tools=["github.create_issue"])


async def test_the_number_of_steps_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.prompts.tools.operations.MAX_STEPS", 2)
    for name in ("a", "b", "a"):
        await define(world.admin, name)
    with refused("QUOTA_EXCEEDED"):
        await define(world.admin, "c")
    assert len((await world.admin.call("step.list"))["steps"]) == 2


async def test_runtimes_ask_whether_a_tool_of_theirs_is_in_the_step(world: World) -> None:
    await world.admin.call("tools.register", tools=[{"name": "github.search"}, {"name": "github.delete"}])
    await define(world.admin, tools=["github.search"])
    bound = await world.analysis.with_token("analysis", step="review")
    await bound.call("guardrail.check", tool="github.search")
    with refused("TOOL_NOT_IN_STEP"):
        await bound.call("guardrail.check", tool="github.delete")
    await world.analysis.call("guardrail.check", tool="github.delete")


async def test_event_streams_obey_the_step(world: World, reviewing: Caller) -> None:

    with refused("TOOL_NOT_IN_STEP"):
        await anext(aiter(reviewing.follow(EventFilter("s1"), 0)))
    del world
