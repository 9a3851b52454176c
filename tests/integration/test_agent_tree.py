"""Orchestrators rule the agents below them; disabling reaches everything below."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from support.full_run import FULL
from support.world import outcome, refused
from weftline.access.agent_tree import MAX_DEPTH
from weftline.sessions.events.model import EventFilter

if TYPE_CHECKING:
    from support.world import Caller, World

EVERY = ["read", "write", "admin"]


async def active(world: World) -> set[str]:
    agents = (await world.admin.call("agent.list"))["agents"]
    return {agent["agent_id"] for agent in agents if not agent["disabled"]}


async def disable(caller: Caller, agent_id: str, *, disabled: bool = True) -> Any:
    return await caller.call("agent.update", agent_id=agent_id, disabled=disabled)


@pytest.fixture
async def tree(world: World) -> dict[str, Caller]:
    """The planner creates scout, below it guide, below that helper; a rival has a tree of its own."""
    made = {"scout": await world.planner.create_agent("scout")}
    made["guide"] = await world.planner.create_agent("guide", parent_id="scout", clearance=2)
    made["helper"] = await world.planner.create_agent("helper", parent_id="guide")
    made["rival"] = await world.admin.create_agent("rival", clearance=3)
    made["pawn"] = await made["rival"].create_agent("pawn")
    return made


@pytest.mark.req("CE-F33")
async def test_an_orchestrator_creates_agents_below_itself(world: World, tree: dict[str, Caller]) -> None:
    created = await world.planner.call("agent.create", agent_id="new", agent_type="helper")
    assert (created["parent_id"], created["participant"]) == ("planner", "subagent:helper:new")
    await tree["helper"].write("note")
    rows = [row for row in await world.admin.audit(outcome="done") if row["action"] == "agent.create"]
    assert (rows[0]["agent_id"], rows[0]["target"]) == ("planner", "new")


@pytest.mark.req("CE-F32")
async def test_an_orchestrator_cannot_give_an_agent_the_access_of_another_type(
    world: World, tree: dict[str, Caller]
) -> None:
    await world.analysis.write("findings", "closed", readable_by=["subagent:analysis"])
    for fields in ({"agent_type": "analysis"}, {"agent_type": "planning"}, {"agent_type": "review"}):
        with refused("PERMISSION_DENIED"):
            await tree["rival"].create_agent("spy", **fields)
    # Messages of a human with the visibility agent_only are for its type: its id, unless an admin chose another.
    await world.admin.create_agent("maria", kind="human")
    with refused("PERMISSION_DENIED"):
        await tree["rival"].create_agent("spy", agent_type="maria")
    await tree["rival"].create_agent("pawn-2", agent_type="pawn")
    second = await world.planner.create_agent("analysis-2", agent_type="analysis")
    assert await second.value("findings") == "closed"
    await world.admin.create_agent("analysis-3", agent_type="analysis", parent_id="rival")


@pytest.mark.req("CE-F33")
async def test_an_orchestrator_creates_agents_of_its_own_type_and_of_types_in_its_tree(world: World) -> None:
    first = await world.admin.create_agent("lead-1", agent_type="claude")
    second = await world.admin.create_agent("lead-2", agent_type="claude")
    await first.create_agent("worker-1", agent_type="claude")
    await second.create_agent("worker-2", agent_type="claude")
    await first.create_agent("critic-1", agent_type="critic")
    with refused("PERMISSION_DENIED") as caught:
        await second.create_agent("critic-2", agent_type="critic")
    assert "Others have the agent_type 'critic'" in caught.value.message
    await world.admin.create_agent("critic-2", agent_type="critic", parent_id="lead-2")
    await second.create_agent("critic-3", agent_type="critic")
    await first.create_agent("critic-4", agent_type="critic")
    # What an admin disabled does not come back under another id.
    for agent_id in ("critic-2", "critic-3"):
        await world.admin.call("agent.update", agent_id=agent_id, disabled=True)
    with refused("PERMISSION_DENIED"):
        await second.create_agent("critic-5", agent_type="critic")


PATTERNS = (
    "type:legal",
    "subagent:legal",
    "subagent:legal:*",
    "subagent:legal:legal-1",
    "subagent:leg*",
    "subagent:l?gal",
)
DOORS = ("board", "writers", "session", "domain", "record", "policy")


@pytest.mark.parametrize(
    ("door", "pattern"),
    # Members of a session cannot be named by type:NAME, nor by a part of a name.
    [
        (door, pattern)
        for door, pattern in itertools.product(DOORS, PATTERNS)
        if door != "session" or pattern in {"subagent:legal", "subagent:legal:*", "subagent:legal:legal-1"}
    ][:: 1 if FULL else 5],  # each door, and each pattern
)
async def test_a_type_that_others_name_in_an_acl_is_granted_not_chosen(
    world: World, tree: dict[str, Caller], pattern: str, door: str
) -> None:
    record = {"schema_version": "0.1.0", "context_id": "c", "scope": "turn", "lifecycle": "draft"}
    record |= {"created_at": "2026-01-01T00:00:00Z"}
    await {
        "board": lambda: world.planner.write("verdict", "closed", readable_by=[pattern]),
        "writers": lambda: world.planner.write("verdict", "open", writable_by=[pattern]),
        "session": lambda: world.planner.create_session("court", members=[pattern]),
        "domain": lambda: world.admin.call("knowledge.create_domain", domain="law", agents=[pattern]),
        "policy": lambda: world.admin.call("policy.set", name="courts", definition={"who": [pattern]}),
        "record": lambda: world.planner.call("records.add", session_id="s1", records=[record], readable_by=[pattern]),
    }[door]()
    for fields in ({"agent_id": "legal-1", "agent_type": "legal"}, {"agent_id": "legal"}):
        with refused("PERMISSION_DENIED") as caught:
            await tree["rival"].call("agent.create", **fields)
        assert "Access rules of others name the agent_type 'legal'" in caught.value.message
    if door not in {"domain", "policy"}:
        # Who names it may create it, and what an admin created may be repeated.
        await world.planner.create_agent("legal-2", agent_type="legal")
    await world.admin.create_agent("legal-3", agent_type="legal", parent_id="rival")
    await tree["rival"].create_agent("legal-4", agent_type="legal")


@pytest.mark.req("CE-F32")
async def test_a_type_is_granted_by_human_admins_up_to_their_clearance(world: World) -> None:
    await world.planner.write("findings", "closed", readable_by=["type:auditor"])
    await world.admin.create_agent("auditor", clearance=4)
    junior = await world.admin.create_agent("junior", kind="human", clearance=3, permissions=EVERY)
    ruler = await world.admin.create_agent("ruler", clearance=5, permissions=EVERY)
    for caller in (junior, ruler):
        with refused("PERMISSION_DENIED"):
            await caller.create_agent("spy", agent_type="auditor")
    await junior.create_agent("helper-2", agent_type="review")
    senior = await world.admin.create_agent("senior", kind="human", clearance=4, permissions=EVERY)
    spy = await senior.create_agent("auditor-2", agent_type="auditor")
    await world.planner.admit("auditor-2")
    assert await spy.in_session("s1").value("findings") == "closed"


async def test_no_principal_has_the_name_of_weftline_itself(world: World) -> None:
    for caller in (world.admin, world.planner):
        with refused("AGENT_EXISTS"):
            await caller.create_agent("system")


@pytest.mark.req("CE-F33")
@pytest.mark.req("CE-F32")
async def test_nobody_creates_outside_its_tree_or_above_its_rights(world: World, tree: dict[str, Caller]) -> None:
    for fields in (
        {"parent_id": "rival"},
        {"parent_id": "pawn"},
        {"parent_id": "admin"},
        {"clearance": 4},
        {"permissions": EVERY},
        {"permissions": ["admin"]},
        {"kind": "human"},
        {"parent_id": "analysis", "kind": "human"},
    ):
        with refused("PERMISSION_DENIED"):
            await world.planner.call("agent.create", agent_id="new", **fields)
    for caller in (world.analysis, tree["guide"]):
        with refused("PERMISSION_DENIED"):
            await caller.call("agent.create", agent_id="new")
    reader = await world.admin.create_agent("reader", permissions=["read"])
    person = await world.admin.create_agent("person", kind="human", clearance=5)
    narrow = await world.planner.with_token("planner", "planning", requested_permissions=["read"])
    for caller in (reader, person, narrow):
        with refused("PERMISSION_DENIED"):
            await caller.call("agent.create", agent_id="new")
    assert "new" not in await active(world)


@pytest.mark.req("CE-F32")
async def test_an_orchestrator_changes_only_agents_below_it(world: World, tree: dict[str, Caller]) -> None:
    changed = await world.planner.call("agent.update", agent_id="helper", clearance=3, permissions=["read"])
    assert (changed["clearance"], changed["permissions"]) == (3, ["read"])
    await world.admin.create_agent("cleared", parent_id="scout", clearance=4)
    for change in (
        {"agent_id": "planner", "clearance": 3},
        {"agent_id": "rival", "disabled": True},
        {"agent_id": "pawn", "clearance": 1},
        {"agent_id": "admin", "disabled": True},
        {"agent_id": "cleared", "disabled": True},
        {"agent_id": "helper", "clearance": 4},
        {"agent_id": "helper", "permissions": ["admin"]},
    ):
        with refused("SELF_MODIFICATION" if change["agent_id"] == "planner" else "PERMISSION_DENIED"):
            await world.planner.call("agent.update", **change)
    # The same answer for all outside its tree: it learns nothing of their kind and clearance.
    reasons = set()
    for agent_id in ("helper", "cleared", "admin"):
        with refused("PERMISSION_DENIED") as caught:
            await tree["rival"].call("agent.update", agent_id=agent_id, disabled=True)
        reasons.add(caught.value.message)
    assert len(reasons) == 1
    with refused("PERMISSION_DENIED"):
        await tree["guide"].call("agent.update", agent_id="helper", clearance=1)


async def test_an_orchestrator_holds_keys_of_its_own_agents_only(world: World, tree: dict[str, Caller]) -> None:
    admin_below = await world.admin.create_agent("deputy", parent_id="planner", permissions=EVERY)
    made = await world.planner.call("key.create", agent_id="helper")
    await tree["helper"].with_credential(made["api_key"]).list()
    assert made["key_id"] in [
        key["key_id"] for key in (await world.planner.call("key.list", agent_id="helper"))["keys"]
    ]
    rotated = await world.planner.call("key.rotate", key_id=made["key_id"])
    await world.planner.call("key.revoke", key_id=rotated["key_id"])
    with refused("INVALID_API_KEY"):
        await tree["helper"].with_credential(rotated["api_key"]).list()
    for agent_id in ("rival", "pawn", "admin", "deputy"):
        with refused("PERMISSION_DENIED"):
            await world.planner.call("key.create", agent_id=agent_id)
    for agent_id in ("rival", "pawn", "admin"):
        with refused("PERMISSION_DENIED"):
            await world.planner.call("key.list", agent_id=agent_id)
    with refused("PERMISSION_DENIED"):  # it has more than the caller
        await world.planner.call("key.rotate", key_id=admin_below.key_id)
    with refused("SELF_MODIFICATION"):  # it would outlive the rotation of a stolen key
        await world.planner.call("key.create", agent_id="planner")
    for key_id in (tree["rival"].key_id, tree["pawn"].key_id, world.admin.key_id, "key_0"):
        for operation in ("key.rotate", "key.revoke"):
            with refused("API_KEY_NOT_FOUND"):
                await world.planner.call(operation, key_id=key_id)
    await tree["pawn"].call("agent.capabilities")


@pytest.mark.req("CE-F31")
async def test_defining_oneself_is_self_modification_for_every_caller(world: World, tree: dict[str, Caller]) -> None:
    await world.planner.call("agent.define", agent_id="helper", role="helps")
    reader = await world.admin.create_agent("reader", permissions=["read"])
    callers = {"admin": world.admin, "planner": world.planner, "analysis": world.analysis, "reader": reader}
    for agent_id, caller in (*callers.items(), *tree.items()):
        with refused("SELF_MODIFICATION"):
            await caller.call("agent.define", agent_id=agent_id, role="mine")
    denied = [row for row in await world.admin.audit(outcome="denied") if row["action"] == "agent.define"]
    assert {row["agent_id"] for row in denied} == {*callers, *tree}
    with refused("PERMISSION_DENIED"):
        await world.analysis.call("agent.define", agent_id="planner", role="mine")


async def test_disabling_a_principal_disables_its_tree_and_enabling_restores_exactly_that(
    world: World, tree: dict[str, Caller]
) -> None:
    elsewhere = tree["helper"].at(await world.another_app())
    token = await tree["helper"].with_token("helper")
    await elsewhere.list()
    await disable(world.planner, "analysis")
    changed = await disable(world.admin, "planner")
    assert changed["also_disabled"] == ["guide", "helper", "review-2", "scout"]
    assert changed["also_changed"] == 4
    for caller in (world.planner, *(tree[name] for name in ("scout", "guide", "helper")), elsewhere, token):
        with refused("AUTHENTICATION_ERROR"):
            await caller.list()
    assert await active(world) == {"admin", "rival", "pawn"}
    assert (await disable(world.admin, "planner"))["disabled"] is True
    with refused("INVALID_PARENT") as caught:
        await disable(world.admin, "guide", disabled=False)
    assert caught.value.context["disabled_parent"] == "scout"
    restored = await disable(world.admin, "planner", disabled=False)
    assert restored["also_enabled"] == ["guide", "helper", "review-2", "scout"]
    assert await active(world) == {"admin", "rival", "pawn", "planner", "guide", "helper", "review-2", "scout"}
    await token.list()
    (row, *_) = [row for row in await world.admin.audit() if row["action"] == "agent.update"]
    assert row["detail"]["also_enabled"] == ["guide", "helper", "review-2", "scout"]


async def test_a_branch_disabled_by_itself_stays_disabled(world: World, tree: dict[str, Caller]) -> None:
    assert (await disable(world.planner, "guide"))["also_disabled"] == ["helper"]
    await disable(world.admin, "planner")
    await disable(world.admin, "scout")  # disabled with the planner so far, now by itself
    assert (await disable(world.admin, "planner", disabled=False))["also_enabled"] == ["analysis", "review-2"]
    with refused("INVALID_PARENT"):
        await disable(world.planner, "guide", disabled=False)
    await disable(world.admin, "scout", disabled=False)
    assert "guide" not in await active(world)
    assert (await disable(world.planner, "guide", disabled=False))["also_enabled"] == ["helper"]
    await tree["helper"].list()


async def test_an_agent_cannot_undo_what_a_human_disabled(world: World, tree: dict[str, Caller]) -> None:
    del tree
    await disable(world.admin, "guide")
    await disable(world.planner, "guide")  # does not make it the planner's own decision
    with refused("PERMISSION_DENIED") as caught:
        await disable(world.planner, "guide", disabled=False)
    assert caught.value.context["disabled_by"] == "admin"
    await disable(world.admin, "guide", disabled=False)
    await disable(world.planner, "guide")
    await disable(world.planner, "guide", disabled=False)


async def test_nobody_disables_itself_with_a_principal_above(world: World) -> None:
    deputy = await world.admin.create_agent(
        "deputy", kind="human", parent_id="admin", clearance=5, permissions=["read", "write", "admin"]
    )
    with refused("PERMISSION_DENIED"):
        await disable(deputy, "admin")
    assert {"admin", "deputy"} <= await active(world)


@pytest.mark.req("CE-F32")
async def test_no_agent_changes_a_human(world: World) -> None:
    lead = await world.admin.create_agent("lead", clearance=3, permissions=EVERY)
    await world.admin.create_agent("dana", kind="human", parent_id="lead")
    for caller in (lead, world.planner):
        with refused("PERMISSION_DENIED"):
            await disable(caller, "dana")
        with refused("PERMISSION_DENIED"):
            await caller.call("agent.define", agent_id="dana", role="obeys")


async def test_lowering_an_agent_names_those_below_that_have_more(world: World, tree: dict[str, Caller]) -> None:
    del tree
    lowered = await world.admin.call("agent.update", agent_id="planner", clearance=1)
    assert lowered["exceeded_by"] == ["guide"]
    lowered = await world.admin.call("agent.update", agent_id="scout", permissions=["read"])
    assert lowered["exceeded_by"] == ["guide", "helper"]
    assert "exceeded_by" not in await world.admin.call("agent.update", agent_id="planner", clearance=3)


async def test_nothing_is_created_below_a_disabled_tree(world: World, tree: dict[str, Caller]) -> None:
    del tree
    other = world.admin.at(await world.another_app())
    creating = [outcome(world.admin.call("agent.create", agent_id=f"n{n}", parent_id="guide")) for n in range(8)]
    await asyncio.gather(*creating[:4], disable(other, "planner"), *creating[4:])
    assert await active(world) == {"admin", "rival", "pawn"}


async def test_a_stream_ends_at_once_when_the_parent_is_disabled(world: World, tree: dict[str, Caller]) -> None:
    pages = tree["helper"].follow(EventFilter("s1"), await world.last_event())
    following = asyncio.ensure_future(anext(pages))
    await asyncio.sleep(0.1)
    await disable(world.admin.at(await world.another_app()), "planner")
    with refused("AUTHENTICATION_ERROR"):
        async with asyncio.timeout(60):
            await following


async def test_a_tree_has_a_limited_depth(world: World) -> None:
    parent = "planner"
    for level in range(1, MAX_DEPTH):
        await world.planner.call("agent.create", agent_id=f"level{level}", parent_id=parent)
        parent = f"level{level}"
    with refused("INVALID_PARENT") as caught:
        await world.planner.call("agent.create", agent_id="too-deep", parent_id=parent)
    assert caught.value.context["max_depth"] == MAX_DEPTH
    assert len((await disable(world.admin, "planner"))["also_disabled"]) == MAX_DEPTH + 1


async def test_the_number_of_active_agents_is_limited(world: World) -> None:
    app = await world.another_app(agent_limit=8)
    admin, planner = world.admin.at(app), world.planner.at(app)
    for name in ("a", "b"):  # with analysis and review-2 half of the limit
        await planner.call("agent.create", agent_id=name)
    with refused("QUOTA_EXCEEDED") as caught:
        await planner.call("agent.create", agent_id="c")
    assert (caught.value.context["setting"], caught.value.context["limit_agents"]) == ("WEFTLINE_AGENT_LIMIT", 4)
    await disable(planner, "a")
    await planner.call("agent.create", agent_id="c")
    with refused("QUOTA_EXCEEDED"):
        await disable(planner, "a", disabled=False)
    codes = await asyncio.gather(*(outcome(admin.call("agent.create", agent_id=f"o{n}")) for n in range(6)))
    assert sorted(codes) == ["QUOTA_EXCEEDED"] * 3 + ["ok"] * 3
    await admin.call("agent.create", agent_id="person", kind="human")
    assert len(await active(world)) == 8 + 2


async def test_what_an_orchestrator_is_offered_it_may_call(world: World) -> None:
    lonely = await world.admin.create_agent("lonely")

    async def offered(caller: Caller) -> set[str]:
        topics = (await caller.call("agent.capabilities"))["topics"]
        return {tool for tools in topics.values() for tool in tools}

    managing = {"update_agent", "create_api_key", "list_api_keys", "revoke_key", "define_agent", "rollback_context"}
    assert await offered(lonely) & {*managing, "create_agent"} == {"create_agent"}
    await lonely.call("agent.create", agent_id="first")
    assert managing <= await offered(lonely)
    assert not await offered(world.analysis) & {*managing, "create_agent"}


async def learn(caller: Caller, text: str) -> None:
    version = (await caller.call("context.status"))["version"]
    await caller.call("context.push", knowledge=[{"key": "fact", "value": text}], if_version=version)


async def learned(caller: Caller, agent_id: str) -> str:
    line = f"context:{agent_id}:learned_knowledge"
    (entry,) = (await caller.call("history.state", context_id=line, version="head"))["entries"]
    return str(entry["value"])


async def let_trees_roll_back(world: World) -> None:
    await world.admin.call("layer.define", layer="tenant", policy={"rollback_by_tree": True})


@pytest.mark.req("CE-F56")
@pytest.mark.req("CE-F22")
@pytest.mark.req("CE-U5")
async def test_an_orchestrator_needs_the_clearance_to_roll_back_agents_below_it(world: World) -> None:
    clerk = await world.admin.create_agent("clerk", clearance=1)
    worker = await clerk.create_agent("worker")
    senior = await world.admin.create_agent("senior", clearance=3)
    await senior.create_agent("junior")
    for text in ("good", "bad"):
        await learn(worker, text)
        await clerk.call("agent.define", agent_id="worker", role=text)
        await senior.call("agent.define", agent_id="junior", role=text)
    for line, needed in (("context:worker:learned_knowledge", 4), ("agent:worker", 3)):
        with refused("PERMISSION_DENIED") as caught:
            await clerk.call("history.rollback", context_id=line, target_version="1")
        assert (caught.value.context["required_clearance"], caught.value.context["who_can"]) == (needed, [])
    await senior.call("history.rollback", context_id="agent:junior", target_version="1")
    with refused("PERMISSION_DENIED") as caught:
        await senior.call("history.rollback", context_id="context:junior", target_version="1")
    assert caught.value.context["required_clearance"] == 4
    await let_trees_roll_back(world)
    await clerk.call("history.rollback", context_id="context:worker:learned_knowledge", target_version="1")
    assert await learned(clerk, "worker") == "good"
    await clerk.call("history.rollback", context_id="agent:worker", target_version="1")
    assert (await worker.call("agent.read_definition", agent_id="worker"))["role"] == "good"
    await world.admin.call("layer.define", layer="tenant", policy={})
    with refused("PERMISSION_DENIED"):
        await clerk.call("history.rollback", context_id="agent:worker", target_version="2")


@pytest.mark.req("CE-F56")
@pytest.mark.req("CE-F22")
@pytest.mark.req("CE-U5")
@pytest.mark.req("CE-F32")
async def test_bad_memory_is_rolled_back_by_those_above_and_by_cleared_humans(world: World) -> None:
    boss = await world.admin.create_agent("boss", clearance=1)
    worker = await boss.create_agent("worker")
    lead = await world.admin.create_agent("lead", kind="human", clearance=4)
    deputy = await world.admin.create_agent("deputy", kind="human", clearance=3)
    await let_trees_roll_back(world)
    for text in ("good", "bad"):
        await learn(worker, text)
    back = {"context_id": "context:worker", "target_version": "1"}
    with refused("PERMISSION_DENIED") as caught:
        await worker.call("history.rollback", **back)
    assert "the orchestrator that started you" in caught.value.hint
    with refused("PERMISSION_DENIED") as caught:
        await (await world.admin.create_agent("single")).call("history.rollback", **back)
    assert "a human with clearance 3" in caught.value.hint
    with refused("PERMISSION_DENIED") as caught:
        await deputy.call("history.rollback", **back)
    assert caught.value.context["who_can"] == ["boss"]
    assert "'boss' or a human with clearance 4" in caught.value.hint
    for caller in (world.planner, world.analysis):
        with refused("PERMISSION_DENIED") as caught:
            await caller.call("history.rollback", **back)
        assert "who_can" not in caught.value.context
    assert await learned(boss, "worker") == "bad"
    for number, caller in enumerate((boss, lead)):
        await caller.call("history.rollback", **back)
        assert await learned(caller, "worker") == "good"
        await learn(worker, f"bad again {number}")
    rows = [row for row in await world.admin.audit(outcome="done") if row["action"] == "history.rollback"]
    assert [row["agent_id"] for row in rows] == ["lead", "boss"]


@pytest.mark.req("CE-F32")
async def test_no_agent_rolls_back_upwards_or_above_its_clearance(world: World) -> None:
    boss = await world.admin.create_agent("boss", clearance=2)
    worker = await boss.create_agent("worker")
    below = await boss.create_agent("below", parent_id="worker")
    expert = await world.admin.create_agent("expert", parent_id="boss", clearance=3)
    await let_trees_roll_back(world)
    for caller in (boss, below, expert, world.planner):
        await learn(caller, "good")
        await learn(caller, "bad")
    for owner in ("planner", "expert", "nobody"):
        with refused("PERMISSION_DENIED") as caught:
            await boss.call("history.rollback", context_id=f"context:{owner}", target_version="1")
        assert "who_can" not in caught.value.context
    with refused("PERMISSION_DENIED"):  # its own
        await boss.call("history.rollback", context_id="context:boss", target_version="1")
    with refused("PERMISSION_DENIED"):  # boards need the clearance from everyone
        await boss.call("history.rollback", context_id="board:s1", target_version="0")
    await boss.call("history.rollback", context_id="context:below", target_version="1")
    assert await learned(boss, "below") == "good"
    await boss.call("agent.define", agent_id="worker", role="first")
    await boss.call("agent.define", agent_id="worker", role="second")
    await boss.call("history.rollback", context_id="agent:worker", target_version="1")
    assert (await worker.call("agent.read_definition", agent_id="worker"))["role"] == "first"


@pytest.mark.req("CE-F33")
@pytest.mark.req("CE-F34")
async def test_a_human_moves_an_agent_with_its_memory_and_those_below_it(world: World, tree: dict[str, Caller]) -> None:
    await learn(tree["guide"], "where the wells are")
    board = await tree["rival"].create_session("quarry")
    with refused("SESSION_NOT_FOUND"):
        await tree["helper"].in_session("quarry").write("stone")
    moved = await world.admin.call("agent.update", agent_id="guide", parent_id="rival")
    assert (moved["parent_id"], moved["participant"], moved["clearance"]) == ("rival", "subagent:guide", 2)
    await tree["helper"].in_session("quarry").write("stone")
    assert await board.value("stone") == "text"
    with refused("SESSION_NOT_FOUND"):
        await tree["helper"].write("stone")
    assert await learned(tree["rival"], "guide") == "where the wells are"
    assert await learned(tree["guide"], "guide") == "where the wells are"
    await tree["rival"].call("agent.define", agent_id="helper", role="Digs")
    with refused("PERMISSION_DENIED"):
        await world.planner.call("agent.update", agent_id="helper", clearance=1)
    rows = [row for row in await world.admin.audit(outcome="done") if row["action"] == "agent.update"]
    assert (rows[0]["target"], rows[0]["agent_id"]) == ("guide/rival", "admin")


@pytest.mark.req("CE-F33")
@pytest.mark.req("CE-F31")
async def test_nothing_moves_below_itself_out_of_reach_or_by_an_agent(world: World, tree: dict[str, Caller]) -> None:
    for agent_id, parent_id in (("scout", "scout"), ("scout", "helper"), ("scout", "nobody"), ("admin", "scout")):
        with refused("PERMISSION_DENIED" if agent_id == "admin" else "INVALID_PARENT"):
            await world.admin.call("agent.update", agent_id=agent_id, parent_id=parent_id)
    await world.admin.create_agent("person", kind="human")
    with refused("INVALID_PARENT"):
        await world.admin.call("agent.update", agent_id="person", parent_id="scout")
    with refused("PERMISSION_DENIED"):
        await world.planner.call("agent.update", agent_id="helper", parent_id="planner")
    with refused("SELF_MODIFICATION"):
        await world.planner.call("agent.update", agent_id="planner", parent_id="rival")
    deputy = await world.admin.create_agent("deputy", kind="human", clearance=3, permissions=EVERY)
    with refused("PERMISSION_DENIED"):
        await deputy.call("agent.update", agent_id="helper", parent_id="admin")
    last = "pawn"
    for number in range(MAX_DEPTH - 3):
        await world.admin.create_agent(f"level-{number}", parent_id=last)
        last = f"level-{number}"
    with refused("INVALID_PARENT"):
        await world.admin.call("agent.update", agent_id="guide", parent_id=last)
    await world.admin.call("agent.update", agent_id="helper", parent_id=last)
    await disable(world.admin, "scout")
    await world.admin.call("agent.update", agent_id="guide", parent_id="planner")
    await disable(world.admin, "scout", disabled=False)
    assert "guide" not in await active(world)
    await disable(world.admin, "guide", disabled=False)
    assert "guide" in await active(world)


async def test_an_agent_can_be_taken_up_again_but_keeps_its_key_to_itself(world: World) -> None:
    made = await world.planner.call("agent.create", agent_id="scout", exist_ok=True)
    assert made["api_key"]
    again = await world.planner.call("agent.create", agent_id="scout", clearance=1, exist_ok=True)
    assert (again["api_key"], again["existed"], again["parent_id"]) == ("", True, "planner")
    mallory = await world.admin.create_agent("mallory", agent_type="planning")
    for caller, agent_id in ((mallory, "scout"), (world.planner, "mallory")):
        with refused("AGENT_EXISTS"):
            await caller.call("agent.create", agent_id=agent_id, agent_type="planning", exist_ok=True)
