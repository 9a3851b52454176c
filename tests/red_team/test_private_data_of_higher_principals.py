"""An admin does not read the private data of principals with a higher clearance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.assemblies import assemble, ingest
from support.contexts import knowledge_entry, push
from support.world import SESSION
from weftline.kernel.errors import WeftlineError

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.both_databases

SECRET = "zebra-crossing-4711"
EVERY = ["read", "write", "admin"]
LINES = ("context:planner", "context:planner:learned_knowledge", "memory:planner", f"window:{SESSION}/planner")
HISTORY = (
    ("history.log", {}),
    ("history.show", {"version": "1"}),
    ("history.state", {}),
    ("history.diff", {"from_version": "0"}),
    ("history.blame", {}),
)


@pytest.fixture
async def private(world: World) -> dict[str, Any]:
    """Fill every private store of the planner, whose clearance is 3, and of a human with 4."""
    await world.planner.remember("plan", SECRET)
    await world.planner.remember("plan", SECRET, session_id=SESSION)
    await push(world.planner, knowledge_entry("plan", SECRET))
    await ingest(world.planner, {"role": "user", "content": SECRET})
    prompt = await assemble(world.planner)
    ada = await world.admin.create_agent("ada", kind="human", clearance=4)
    await push(ada, knowledge_entry("plan", SECRET), owner="user:ada")
    return {"receipt_id": prompt["receipt_id"]}


def attempts(private: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return every call that shows somebody else's private data to an admin with the clearance."""
    planner, session = {"agent_id": "planner"}, {"session_id": SESSION}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory.inspect", planner),
        ("memory.overview", planner),
        ("context.status", planner),
        ("context.pull", {"owner": "user:ada", **session}),
        ("context.read", {"owner": "user:ada", "key": "plan", **session}),
        ("window.show", {**planner, **session}),
        ("window.events", {**planner, **session}),
        ("window.list", session),
        ("receipt.show", private),
        ("receipt.replay", private),
        ("receipt.list", session),
        ("records.list", session),
        ("records.show", {"record_id": f"receipt:{private['receipt_id']}/assembly"}),
        ("search.query", {"query": SECRET}),
        ("agent.read_definition", planner),
        ("bundle.export", session),
        ("events.read", {}),
    ]
    return calls + [(name, {"context_id": line, **what}) for line in LINES for name, what in HISTORY]


async def sights(caller: Caller, private: dict[str, Any]) -> set[str]:
    """Return the calls by which a caller sees the secret."""
    seen = set()
    for name, raw in attempts(private):
        try:
            answer: Any = await caller.call(name, **raw)
        except WeftlineError as refusal:
            answer = [refusal.message, refusal.hint, refusal.context]
        if SECRET in json.dumps(answer, default=str):
            seen.add(name)
    return seen


@pytest.mark.parametrize("kind", ["human", "agent"])
async def test_an_admin_of_lower_clearance_reads_nothing_private(
    world: World, private: dict[str, Any], kind: str
) -> None:
    junior = await world.admin.create_agent("junior", kind=kind, clearance=2, permissions=EVERY)
    assert await sights(junior.in_session(SESSION), private) == set()


async def test_an_admin_with_the_clearance_reads_it(world: World, private: dict[str, Any]) -> None:
    seen = await sights(world.admin, private)
    assert {"memory.inspect", "context.read", "window.events", "receipt.replay", "history.state"} <= seen


async def test_an_agent_whose_descendant_has_a_higher_clearance_does_not_read_its_window(world: World) -> None:
    below = await world.admin.create_agent("deep", parent_id="planner", clearance=5)
    await ingest(below.in_session(SESSION), {"role": "user", "content": SECRET})
    for name in ("window.show", "window.events"):
        with pytest.raises(WeftlineError):
            await world.planner.call(name, session_id=SESSION, agent_id="deep")


async def test_totals_of_an_admin_have_no_figures_of_principals_above_its_clearance(
    world: World, private: dict[str, Any]
) -> None:
    junior = await world.admin.create_agent("junior", kind="human", clearance=2, permissions=EVERY)
    await assemble((await world.planner.create_agent("low", clearance=1)).in_session(SESSION))
    for by in ("agent", "tenant", "session", "model"):
        (row,) = (await junior.call("receipt.savings", by=by))["rows"]
        assert row["calls"] == 1
    assert sum(row["calls"] for row in (await world.admin.call("receipt.savings", by="agent"))["rows"]) == 2
    assert {each["agent_id"] for each in (await junior.call("receipt.list"))["receipts"]} == {"low"}
    assert {each["agent_id"] for each in (await world.admin.call("receipt.list"))["receipts"]} == {"low", "planner"}


async def budgets_of(caller: Caller, **fields: Any) -> dict[str, Any]:
    found = (await caller.call("budget.list", **fields))["budgets"]
    return {each["subject"]: each["used_tokens"] for each in found}


async def test_budgets_show_no_spend_of_principals_above_the_clearance(world: World, private: dict[str, Any]) -> None:
    junior = await world.admin.create_agent("junior", kind="human", clearance=2, permissions=EVERY)
    low = (await world.planner.create_agent("low", clearance=1)).in_session(SESSION)
    for team, member in (("research", "planner"), ("writing", "low")):
        await world.admin.call("team.create", team=team)
        await world.admin.call("team.add_member", team=team, agent_id=member)
    subjects = ("tenant", "team:research", "team:writing", "agent:planner", "agent:low")
    for subject in subjects:
        await world.admin.call("budget.set", subject=subject, period="day", tokens=1, warn_at=0.1)
    await assemble(low)
    assert None not in (await budgets_of(world.admin)).values()
    shown = await budgets_of(junior)
    assert set(shown) == set(subjects)
    assert {subject for subject, used in shown.items() if used is not None} == {"team:writing", "agent:low"}
    assert (await budgets_of(junior, agent_id="planner")).keys() <= {"tenant", "team:research", "agent:planner"}
    assert set((await budgets_of(junior, agent_id="planner")).values()) == {None}
    # Nor do the answer to a new limit, alerts and their events.
    set_again = await junior.call("budget.set", subject="tenant", period="day", tokens=1)
    assert (set_again["used_tokens"], set_again["used_cost"], set_again["calls"]) == (None, None, None)
    await assemble(low, fresh=True)
    alerts = (await junior.call("alerts.list", state="all"))["alerts"]
    assert "tenant" in {each["subject"] for each in alerts}
    told = [*alerts, *(await junior.call("events.read", types=["alert.opened", "budget.exceeded"]))["events"]]
    assert not [each for each in told if {"used_tokens", "used_cost"} & each["data"].keys()]


async def test_a_budget_with_a_descendant_above_the_clearance_shows_no_spend(world: World) -> None:
    deep = await world.admin.create_agent("deep", parent_id="planner", clearance=5)
    for subject in ("agent:planner", "agent:deep"):
        await world.admin.call("budget.set", subject=subject, period="day", tokens=1)
    await assemble(deep.in_session(SESSION))
    assert await budgets_of(world.planner) == {"agent:planner": None}
    assert set((await budgets_of(world.planner, agent_id="deep")).values()) == {None}
    assert (await budgets_of(deep))["agent:deep"] > 0
