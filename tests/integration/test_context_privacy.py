"""Isolation of contexts between agents and tenants."""

from __future__ import annotations

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
async def kept(world: World) -> World:
    await world.admin.call("agent.define", agent_id="planner", role="Plans")
    await push(world.planner, knowledge_entry("secret", SECRET), artifact("report", SECRET), if_version=1)
    await world.planner.call("history.branch", context_id="context:planner", branch="try")
    await pull(world.planner)
    return world


async def every_answer(caller: Caller, line_id: str) -> list[str]:
    """Ask for a line in every way there is, and return how each call ended."""
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


async def test_another_agent_finds_no_line_of_it(kept: World) -> None:
    for caller in (kept.analysis, kept.review, kept.stranger):
        for line_id in LINES:
            assert set(await every_answer(caller, line_id)) <= {"CONTEXT_NOT_FOUND", "PERMISSION_DENIED"}
        with refused("CONTEXT_NOT_FOUND"):
            await caller.call("history.state", context_id="context:planner:learned_knowledge")
        shown = await caller.call("history.snapshots", agent_id="planner")
        assert shown["snapshots"] == []


async def test_another_agent_pulls_and_reads_its_own(kept: World) -> None:
    for caller in (kept.analysis, kept.review, kept.admin):
        pulled = await pull(caller)
        assert (entries(pulled), pulled["context_id"]) == ({}, f"context:{pulled['agent_id']}")
        assert SECRET not in str(pulled)
        with refused("CONTEXT_KEY_NOT_FOUND"):
            await read_context(caller, key="secret")
        with refused("PERMISSION_DENIED"):
            await caller.call("context.status", agent_id="planner")


async def test_an_agent_of_the_same_name_in_another_tenant_shares_nothing(kept: World) -> None:
    namesake = await kept.stranger.create_agent("planner", agent_type="planning")
    namesake = await namesake.create_session(SESSION)
    assert await version_of(namesake) == 0
    assert entries(await pull(namesake)) == {}
    await push(namesake, knowledge_entry("secret", "another"), artifact("report", SECRET), if_version=0)
    assert entries(await pull(kept.planner))["secret"] == SECRET
    log = (await namesake.call("history.log", context_id="context:planner"))["commits"]
    assert [commit["version"] for commit in log] == [1]
    await kept.stranger.call("agent.define", agent_id="planner", role="Another")
    assert (await pull(kept.planner))["context"]["role"] == "Plans"


async def test_those_above_an_agent_may_look_into_its_memory_if_cleared(kept: World) -> None:
    lead = await kept.admin.create_agent("lead", kind="human", clearance=3)
    low = await kept.admin.create_agent("low", kind="human", clearance=2)
    auditor = await kept.admin.create_agent("auditor", permissions=["read", "admin"])
    for caller in (kept.planner, kept.admin, lead, auditor):
        state = await caller.call("history.state", context_id="context:planner:learned_knowledge")
        assert [entry["key"] for entry in state["entries"]] == ["secret"]
    with refused("CONTEXT_NOT_FOUND"):
        await low.call("history.state", context_id="context:planner:learned_knowledge")
    await push(kept.analysis, knowledge_entry("a", 1), if_version=0)
    assert (await kept.planner.call("history.log", context_id="context:analysis"))["commits"]
    with refused("CONTEXT_NOT_FOUND"):
        await kept.analysis.call("history.log", context_id="context:planner")


async def test_read_access_is_not_write_access(kept: World) -> None:
    auditor = await kept.admin.create_agent("auditor", permissions=["read", "write", "admin"], clearance=4)
    line = {"context_id": "context:planner:learned_knowledge"}
    assert (await auditor.call("history.state", **line))["entries"]
    for name, what in (("history.rollback", {"target_version": "0"}), ("history.snapshot", {"label": "x"})):
        with refused("PERMISSION_DENIED"):
            await auditor.call(name, **line, **what)
    assert entries(await pull(kept.planner))["secret"] == SECRET


@pytest.mark.parametrize(
    "line_id",
    [
        *("context:", "context::", "context:planner:", "context:planner:nothing", "context:planner:definition"),
        *(
            "context:planner:conversation_context",
            "context:planner:learned_knowledge:w",
            "agent:",
            "agent:planner:role",
        ),
        *("agent:planner@try", "context:planner@", "context:planner@a@b", "context:../planner", "context:%70lanner"),
        *("context:planner:learned_knowledge@never", "context:nobody", "agent:nobody", "Context:planner"),
    ],
)
async def test_a_line_that_cannot_be_is_not_found(kept: World, line_id: str) -> None:
    for caller in (kept.admin, kept.planner):
        for answer in await every_answer(caller, line_id):
            assert answer in {"CONTEXT_NOT_FOUND", "INVALID_INPUT_FORMAT", "SELF_MODIFICATION"}, line_id
    await pull(kept.planner)
    assert (await pull(kept.planner))["context"]["role"] == "Plans"


async def test_denied_reads_are_audited(kept: World) -> None:
    with refused("CONTEXT_NOT_FOUND"):
        await kept.analysis.call("history.state", context_id="context:planner")
    denied = (await kept.admin.audit(outcome="denied"))[0]
    assert (denied["action"], denied["principal_id"]) == ("history.state", "analysis")
