"""Isolation of contexts between agents and tenants."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from support.contexts import artifact, entries, knowledge_entry, pull, push, read_context, version_of
from support.world import SESSION, outcome, refused

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("CE-F2")
LINES = ["context:planner", "context:planner:learned_knowledge", "agent:planner", "context:planner@try"]
SECRET = "only the planner knows"


@pytest.fixture
async def filled(world: World) -> World:
    await world.admin.call("agent.define", agent_id="planner", role="Plans")
    await push(world.planner, knowledge_entry("secret", SECRET), artifact("report", SECRET), if_version=1)
    await world.planner.call("history.branch", context_id="context:planner", branch="try")
    await pull(world.planner)
    return world


async def outcomes(caller: Caller, line_id: str) -> list[str]:
    """Call every history operation on a line and return the outcomes."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("history.log", {}),
        ("history.show", {"version": "1"}),
        ("history.state", {}),
        ("history.diff", {"from_version": "0"}),
        ("history.blame", {}),
        ("history.verify", {}),
        ("history.branches", {}),
        ("history.branch", {"branch": "mine"}),
        ("history.merge", {"from_context_id": "context:planner@try"}),
    ]
    return [await outcome(caller.call(name, context_id=line_id, **what)) for name, what in calls]


async def test_lines_are_not_found_by_other_agents(filled: World) -> None:
    for caller in (filled.analysis, filled.review, filled.stranger):
        for line_id in LINES:
            assert set(await outcomes(caller, line_id)) <= {"CONTEXT_NOT_FOUND", "PERMISSION_DENIED"}
        with refused("CONTEXT_NOT_FOUND"):
            await caller.call("history.state", context_id="context:planner:learned_knowledge")
        shown = await caller.call("history.snapshots", agent_id="planner")
        assert shown["snapshots"] == []


async def test_agents_pull_and_read_only_their_own_context(filled: World) -> None:
    for caller in (filled.analysis, filled.review, filled.admin):
        pulled = await pull(caller)
        assert (entries(pulled), pulled["context_id"]) == ({}, f"context:{pulled['agent_id']}")
        assert SECRET not in str(pulled)
        with refused("CONTEXT_KEY_NOT_FOUND"):
            await read_context(caller, key="secret")
        with refused("PERMISSION_DENIED"):
            await caller.call("context.status", agent_id="planner")


async def test_an_agent_of_the_same_name_in_another_tenant_shares_nothing(filled: World) -> None:
    namesake = await filled.stranger.create_agent("planner", agent_type="planning")
    namesake = await namesake.create_session(SESSION)
    assert await version_of(namesake) == 0
    assert entries(await pull(namesake)) == {}
    await push(namesake, knowledge_entry("secret", "another"), artifact("report", SECRET), if_version=0)
    assert entries(await pull(filled.planner))["secret"] == SECRET
    log = (await namesake.call("history.log", context_id="context:planner"))["commits"]
    assert [commit["version"] for commit in log] == [1]
    await filled.stranger.call("agent.define", agent_id="planner", role="Another")
    assert (await pull(filled.planner))["context"]["role"] == "Plans"


async def test_cleared_ancestors_may_read_an_agent_s_memory(filled: World) -> None:
    lead = await filled.admin.create_agent("lead", kind="human", clearance=3)
    low = await filled.admin.create_agent("low", kind="human", clearance=2)
    auditor = await filled.admin.create_agent("auditor", permissions=["read", "admin"], clearance=3)
    junior = await filled.admin.create_agent("junior", permissions=["read", "admin"], clearance=2)
    for caller in (filled.planner, filled.admin, lead, auditor):
        state = await caller.call("history.state", context_id="context:planner:learned_knowledge")
        assert [entry["key"] for entry in state["entries"]] == ["secret"]
    for caller in (low, junior):
        with refused("CONTEXT_NOT_FOUND"):
            await caller.call("history.state", context_id="context:planner:learned_knowledge")
    await push(filled.analysis, knowledge_entry("a", 1), if_version=0)
    assert (await filled.planner.call("history.log", context_id="context:analysis"))["commits"]
    with refused("CONTEXT_NOT_FOUND"):
        await filled.analysis.call("history.log", context_id="context:planner")


async def test_read_access_is_not_write_access(filled: World) -> None:
    auditor = await filled.admin.create_agent("auditor", permissions=["read", "write", "admin"], clearance=4)
    line = {"context_id": "context:planner:learned_knowledge"}
    assert (await auditor.call("history.state", **line))["entries"]
    for name, what in (("history.rollback", {"target_version": "0"}), ("history.snapshot", {"label": "x"})):
        with refused("PERMISSION_DENIED"):
            await auditor.call(name, **line, **what)
    assert entries(await pull(filled.planner))["secret"] == SECRET


INVALID_LINES = (
    *("context:", "context::", "context:planner:", "context:planner:nothing", "context:planner:definition"),
    *(
        "context:planner:conversation_context",
        "context:planner:learned_knowledge:w",
        "agent:",
        "agent:planner:role",
    ),
    *("agent:planner@try", "context:planner@", "context:planner@a@b", "context:../planner", "context:%70lanner"),
    *("context:planner:learned_knowledge@never", "context:nobody", "agent:nobody", "Context:planner"),
)


async def test_an_invalid_line_id_is_not_found(filled: World) -> None:
    for line_id, caller in product(INVALID_LINES, (filled.admin, filled.planner)):
        for answer in await outcomes(caller, line_id):
            assert answer in {"CONTEXT_NOT_FOUND", "INVALID_INPUT_FORMAT", "SELF_MODIFICATION"}, line_id
    await pull(filled.planner)
    assert (await pull(filled.planner))["context"]["role"] == "Plans"


async def test_denied_reads_are_audited(filled: World) -> None:
    with refused("CONTEXT_NOT_FOUND"):
        await filled.analysis.call("history.state", context_id="context:planner")
    denied = (await filled.admin.audit(outcome="denied"))[0]
    assert (denied["action"], denied["agent_id"]) == ("history.state", "analysis")
