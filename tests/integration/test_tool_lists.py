"""Tool lists: within their token limits, made of what the caller may call, the same for every connection."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator
from test_bad_input import VALID

from support.world import outcome, refused
from weftline.access.steps import DEFAULT_TOOLS, GROUPS, PROFILES
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext, authorise
from weftline.app.registry import all_operations
from weftline.app.tools.toolbox import CALL, WEFTLINE_TOOLS, entry_name, lean_tools
from weftline.kernel.errors import PermissionDenied, WeftlineError
from weftline.kernel.operation import Audience
from weftline.kernel.schema import ACTION
from weftline.providers.tokenizers import TokenizerRegistry
from weftline.transports.mcp.caller import McpCaller, ToolCalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.world import Caller, World
    from weftline.app.tools.toolbox import ToolView
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation

pytestmark = [
    pytest.mark.req("WX-01"),
    pytest.mark.req("CE-F44"),
]

REGISTRY = all_operations()
TOOLS = REGISTRY.tools()
# Tokens by o200k of names, descriptions and input schemas, as a client receives them.
LIMITS = {"subagent": 2_000, "orchestrator": 2_500}
# Operations that refuse the example arguments for some callers, and what these may pass instead.
BY_ARGUMENTS = {
    "agent.update": "nobody changes itself",
    "agent.create": "a parent_id below the caller",
    "budget.set": "an agent below the caller",
    "events.read": "a session_id",
    "key.create": "an agent below the caller",
    "layer.define": "the layer of a team",
    "memory.inspect": "an agent within its clearance",
    "memory.overview": "its own agent_id",
    "missing.list": "a session_id",
    "records.list": "a session_id",
    "records.redact": "an item of its own",
    "session.add_members": "a session of its own",
    "session.delete": "a session of its own",
    "session.remove_members": "a session of its own",
    "token.revoke": "a token of its own",
}


@pytest.fixture
async def roles(world: World) -> dict[str, Caller]:
    """Return a caller of each kind: by place in the tree, permissions and clearance."""
    admin = world.admin
    await world.planner.admit("*")
    return {
        "admin": admin,
        "orchestrator": world.planner,
        "subagent": world.analysis,
        "lonely orchestrator": await admin.create_agent("lonely", clearance=1),
        "reader": await admin.create_agent("reader", permissions=["read"]),
        "writer": await admin.create_agent("writer", permissions=["write"]),
        "agent admin": await admin.create_agent("robot", permissions=["read", "write", "admin"], clearance=1),
        "human": await admin.create_agent("ada", kind="human", clearance=2),
        "editor": await admin.create_agent("bob", kind="human", clearance=4),
    }


async def actor_of(caller: Caller) -> Actor:
    return await caller.app.identify(CallContext(caller.credential))


def tokens(views: list[ToolView]) -> int:
    count = TokenizerRegistry().named("o200k_base")
    return count(json.dumps([view.as_json() for view in views], separators=(",", ":")))


def operations_of(view: ToolView) -> Iterator[Operation]:
    """Yield the operations that a view offers."""
    properties = view.input_schema["properties"]
    if view.name == WEFTLINE_TOOLS:
        return
    if TOOLS[view.name][0].action is None:
        yield TOOLS[view.name][0]
        return
    for action in properties[ACTION]["enum"]:
        yield next(operation for operation in TOOLS[view.name] if operation.action == action)


async def test_default_lists_stay_within_their_token_limits(roles: dict[str, Caller]) -> None:
    for (role, caller), in_session in product(roles.items(), (False, True)):
        views = caller.app.toolbox.listed(await actor_of(caller), in_session=in_session)
        assert tokens(views) <= LIMITS.get(role, 2_500), role
        assert {view.name for view in views} <= set(DEFAULT_TOOLS)
    subagent = roles["subagent"].app.toolbox.listed(await actor_of(roles["subagent"]))
    assert len(subagent) == len(DEFAULT_TOOLS) - 2


@pytest.mark.parametrize("page", ["README.md", "docs/guides/connect-an-agent.md"])
def test_pages_state_these_limits(page: str) -> None:
    text = " ".join((Path(__file__).parents[2] / page).read_text().split())
    fewest, most = len(DEFAULT_TOOLS) - 2, len(DEFAULT_TOOLS)
    assert f"{fewest} to {most} tools" in text
    assert f"at most {LIMITS['subagent']:,} tokens" in text
    assert f"{LIMITS['orchestrator']:,} " in text


async def test_what_is_listed_may_be_called_and_the_rest_is_refused(roles: dict[str, Caller]) -> None:
    for (role, caller), profile, in_session in product(roles.items(), PROFILES, (False, True)):
        actor = await actor_of(caller)
        views = caller.app.toolbox.listed(actor, profile, in_session=in_session)
        offered = {operation.name for view in views for operation in operations_of(view)}
        for name in offered:
            authorise(REGISTRY[name], actor)
        if profile != "full":
            continue
        for operation in REGISTRY:
            if (
                operation.name in offered
                or operation.tool == WEFTLINE_TOOLS
                or operation.audience is Audience.ANONYMOUS
            ):
                continue
            if operation.name == "token.refresh":
                continue
            with pytest.raises(PermissionDenied) as denied:
                authorise(operation, actor)
            assert denied.value.hint, (role, operation.name)
            # An agent that aims at itself or at a layer is refused as that.
            answer = await outcome(caller.call(operation.name, **VALID[operation.name]))
            assert answer in {"PERMISSION_DENIED", "SELF_MODIFICATION"}, (role, operation.name)


async def test_nothing_listed_is_refused_whatever_the_arguments(world: World, roles: dict[str, Caller]) -> None:
    await world.planner.write("goal", "ship")
    denied: dict[str, set[str]] = {}
    for role, caller in roles.items():
        for view in caller.app.toolbox.listed(await actor_of(caller), "full"):
            for operation in operations_of(view):
                try:
                    await caller.call(operation.name, **VALID[operation.name])
                except PermissionDenied as error:
                    denied.setdefault(operation.name, set()).add(f"{role}: {error.message}")
                except WeftlineError:
                    pass
    assert denied.keys() <= BY_ARGUMENTS.keys(), {name: denied[name] for name in denied.keys() - BY_ARGUMENTS.keys()}


async def test_descriptions_name_only_what_the_caller_may_use(roles: dict[str, Caller]) -> None:
    for (role, caller), profile in product(roles.items(), ("default", "full")):
        actor = await actor_of(caller)
        usable = {entry.name for entry in caller.app.toolbox.entries(actor)} | {WEFTLINE_TOOLS}
        tools = {name.partition(".")[0] for name in usable}
        for view in caller.app.toolbox.listed(actor, profile):
            texts = [view.description, *(str(field) for field in view.input_schema["properties"].values())]
            words = set(re.findall(r"[a-z]+(?:_[a-z]+)*", " ".join(texts)))
            own = {operation.action for operation in TOOLS[view.name]}
            # A single word such as search or branch is also a noun in long descriptions and of fields.
            named = {word for word in words - own if word in TOOLS and (profile == "default" or "_" in word)}
            assert named <= tools, (role, view.name)
            hidden = {
                str(o.action) for o in TOOLS[view.name] if o.tool != WEFTLINE_TOOLS and entry_name(o) not in usable
            }
            assert not {action for action in hidden & words if "_" in action}, (role, view.name)
            assert not hidden & set(re.findall(r"[a-z_]+", view.description)), (role, view.name)


async def test_short_views_accept_every_valid_request(world: World) -> None:
    actor = await actor_of(world.planner)
    assert lean_tools().keys() == set(DEFAULT_TOOLS)
    for view in world.app.toolbox.listed(actor):
        lean = lean_tools()[view.name]
        assert "additionalProperties" not in view.input_schema
        validator = Draft202012Validator(view.input_schema)
        for operation in operations_of(view):
            action = {ACTION: operation.action} if operation.action else {}
            assert [error.message for error in validator.iter_errors({**action, **VALID[operation.name]})] == []
            shown = set(lean.fields) & set(operation.request.__struct_fields__)
            assert shown or not lean.fields, operation.name
        if view.name != WEFTLINE_TOOLS:
            known = {name for operation in TOOLS[view.name] for name in operation.request.__struct_fields__}
            assert set(lean.fields) <= known, view.name
    (meta,) = [view for view in world.app.toolbox.listed(actor) if view.name == WEFTLINE_TOOLS]
    assert meta.input_schema["properties"][ACTION]["enum"] == ["search", "describe", CALL]


def test_every_tool_is_in_a_group_and_groups_name_existing_tools() -> None:
    grouped = {tool for group in GROUPS.values() for tool in group}
    assert grouped == TOOLS.keys()
    assert set(DEFAULT_TOOLS) <= TOOLS.keys()


async def test_the_order_of_a_list_is_stable_and_profiles_add_up(world: World) -> None:
    actor, toolbox = await actor_of(world.planner), world.app.toolbox
    names = [view.name for view in toolbox.listed(actor, "full")]
    assert names == [tool for tool in TOOLS if tool in names]
    for profile in ("history,board", "board,history", "board, history"):
        assert [view.name for view in toolbox.listed(actor, profile)] == [
            *[tool for tool in names if tool in {*GROUPS["board"], *GROUPS["history"]}]
        ]
    both = toolbox.listed(actor, "default,board")
    assert {view.name for view in both} == {tool for tool in names if tool in {*DEFAULT_TOOLS, *GROUPS["board"]}}
    assert "restore_snapshot" in str(next(view for view in both if view.name == "shared_context").input_schema)


async def test_a_key_carries_a_profile_and_so_do_its_tokens(world: World) -> None:
    toolbox = world.app.toolbox
    created = await world.admin.call("key.create", agent_id="analysis", tools="board,messages")
    assert created["tools"] == "board,messages"
    with_key = world.analysis.with_credential(created["api_key"])
    with_token = await with_key.with_token("analysis")
    rotated = await with_key.call("key.rotate", key_id=with_key.key_id)
    for caller in (world.analysis.with_credential(rotated["api_key"]),):
        names = {view.name for view in toolbox.listed(await actor_of(caller))}
        assert names == {"shared_context", "get_board_guidance", "list_conventions", "check_board", "add_message"} | {
            "get_messages",
            "inbox",
            "list_agents",
            "search_context",
            "search_by_sender",
            "search_by_timerange",
        }
        # The endpoint goes before the key.
        assert {view.name for view in toolbox.listed(await actor_of(caller), "knowledge")} == {"knowledge"}
    listed = (await world.admin.call("key.list", agent_id="analysis"))["keys"]
    assert sorted(str(key["tools"]) for key in listed) == ["None", "board,messages", "board,messages"]
    with refused("AUTHENTICATION_ERROR"):
        await actor_of(with_token)
    fresh = await world.analysis.with_credential(rotated["api_key"]).with_token("analysis")
    assert (await actor_of(fresh)).tools == "board,messages"


async def test_an_unknown_profile_is_refused_with_the_known_ones(world: World) -> None:
    with refused("UNKNOWN_TOOL_PROFILE") as caught:
        await world.admin.call("key.create", agent_id="analysis", tools="boards")
    assert all(profile in caught.value.hint for profile in PROFILES)
    with refused("INVALID_SETTING") as caught:
        await world.another_app(tools="board,,full")
    assert "WEFTLINE_TOOLS" in caught.value.message
    assert "collaboration" in caught.value.hint
    app = await world.another_app(tools="history")
    actor = await actor_of(world.planner.at(app))
    assert [view.name for view in app.toolbox.listed(actor)] == ["context_history", "rollback_context"]


async def test_an_agent_may_define_others_as_soon_as_it_has_one_below_it(world: World) -> None:
    lead = await world.admin.create_agent("lead")
    assert "define_agent" not in {view.name for view in world.app.toolbox.listed(await actor_of(lead))}
    with refused("PERMISSION_DENIED"):
        await lead.call("agent.define", agent_id="analysis", role="x")
    await world.admin.create_agent("helper", parent_id="lead")
    assert "define_agent" in {view.name for view in world.app.toolbox.listed(await actor_of(lead))}
    assert (await lead.call("agent.define", agent_id="helper", role="x"))["version"] == 1


async def test_a_call_through_weftline_tools_counts_as_the_operation_it_calls(world: World) -> None:
    calls, caller = ToolCalls(world.app), McpCaller(CallContext(world.analysis.credential))
    answer = await calls(caller, WEFTLINE_TOOLS, {"action": "call", "name": "list_memory", "arguments": {}})
    assert not answer.is_error
    denied = await calls(
        caller, WEFTLINE_TOOLS, {"action": "call", "name": "create_agent", "arguments": {"agent_id": "x"}}
    )
    assert denied.is_error
    counted = world.app.metrics.exposition().decode()
    assert 'weftline_calls_total{operation="memory.list",outcome="ok"} 1.0' in counted
    assert 'weftline_calls_total{operation="agent.create",outcome="PERMISSION_DENIED"} 1.0' in counted
    assert "tools." not in counted
    assert (await world.admin.audit(outcome="denied"))[0]["action"] == "agent.create"


async def test_the_rate_limit_of_the_called_operation_applies(world: World) -> None:
    app = await world.another_app(rate_limits="memory=1/minute")
    calls, caller = ToolCalls(app), McpCaller(CallContext(Local(world.tenant, "analysis")))
    called = {"action": "call", "name": "list_memory", "arguments": {}}
    codes = [(await calls(caller, WEFTLINE_TOOLS, called)).content for _ in range(2)]
    assert [getattr(answer, "code", "ok") for answer in codes] == ["ok", "RATE_LIMITED"]
    assert not (await calls(caller, WEFTLINE_TOOLS, {"action": "describe", "name": "list_memory"})).is_error
