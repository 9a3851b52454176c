"""Memory of teams and users: who reads and writes it, conflicts, history, deletion."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported
from support.contexts import artifact, knowledge_entry, problems, push
from support.teams import add_member, create_team, remove_member
from support.world import SESSION, outcome, refused
from weftline.kernel.errors import WeftlineError

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.req("WX-04"), pytest.mark.req("CE-F3")]

TEAM = "team:research"


def preference(key: str = "tone", value: Any = "brief", **fields: Any) -> dict[str, Any]:
    return knowledge_entry(key, value, memory_type="team_preferences", **fields)


async def read(by: Caller, owner: str = TEAM, **filters: Any) -> dict[str, Any]:
    """Return the values of a shared memory, by key."""
    answer = await by.call("context.read", owner=owner, **filters)
    return {entry["key"]: entry.get("value") for entry in answer["entries"]}


@pytest.fixture
async def team(world: World) -> World:
    """A team of two sub-agents, of which one wrote a preference."""
    await create_team(world.admin, "research", "analysis", "review-2")
    await push(world.analysis, preference(), owner=TEAM, if_version=0)
    return world


@pytest.mark.both_databases
async def test_what_one_member_writes_every_member_reads(team: World) -> None:
    answer = await team.review.call("context.read", owner=TEAM, key="tone", memory_type="team_preferences")
    assert (answer["agent_id"], answer["context_id"], answer["version"]) == ("review-2", TEAM, 1)
    (entry,) = answer["entries"]
    assert (entry["value"], entry["memory_type"], entry["written_by"]) == (
        "brief",
        "team_preferences",
        "subagent:analysis",
    )
    status = await team.review.call("context.status", owner=TEAM)
    assert (status["context_id"], status["version"], status["pulled_version"]) == (TEAM, 1, None)
    assert status["used_bytes"] == len("tone") + len('"brief"')
    shown = await team.review.call("team.show", team="research")
    assert (shown["memory_version"], shown["memory_bytes"]) == (1, status["used_bytes"])
    # Own memory stays the agent's own.
    await push(team.review, knowledge_entry("mine", 1), if_version=0)
    assert (await team.review.call("context.read"))["context_id"] == "context:review-2"
    assert await read(team.review) == {"tone": "brief"}


@pytest.mark.both_databases
async def test_concurrent_pushes_of_two_members_conflict_and_lose_nothing(team: World) -> None:
    second = team.review.at(await team.another_app())
    calls = [
        push(team.analysis, preference("a", 1), owner=TEAM, if_version=1),
        push(second, preference("b", 2), owner=TEAM, if_version=1),
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    (error,) = [result for result in results if isinstance(result, Exception)]
    loser = 0 if results[0] is error else 1
    assert getattr(error, "code", None) == "VERSION_CONFLICT"
    context = error.context  # type: ignore[attr-defined]
    assert (context["current_version"], context["expected_version"]) == (2, 1)
    (change,) = context["changed_since"]
    assert (change["memory_type"], change["key"]) == ("team_preferences", "ab"[1 - loser])
    by, entry = [(team.analysis, preference("a", 1)), (second, preference("b", 2))][loser]
    await push(by, entry, owner=TEAM, if_version=2)
    assert await read(team.review) == {"tone": "brief", "a": 1, "b": 2}
    with refused("INVALID_INPUT_FORMAT"):
        await push(team.review, preference("a", 9), owner=TEAM)


@pytest.mark.both_databases
async def test_outsiders_neither_read_nor_write_nor_learn_of_it(team: World) -> None:
    reader = await team.admin.create_agent("reader", permissions=["read"])
    writer = await team.admin.create_agent("writer", permissions=["write"])
    await add_member(team.admin, "reader")
    await add_member(team.admin, "writer")
    for outsider in (team.planner, team.stranger):
        for owner in (TEAM, "team:unknown"):
            assert await outcome(read(outsider, owner)) == "TEAM_NOT_FOUND"
            assert await outcome(outsider.call("context.status", owner=owner)) == "TEAM_NOT_FOUND"
            assert await outcome(push(outsider, preference(), owner=owner, if_version=0)) == "TEAM_NOT_FOUND"
            large = artifact("report", "x" * 100_000)
            assert await outcome(push(outsider, large, owner=owner, if_version=0)) == "TEAM_NOT_FOUND"
            for operation, fields in HISTORY.items():
                call = outsider.call(operation, context_id=owner, **fields)
                assert await outcome(call) == "CONTEXT_NOT_FOUND", operation
                part = outsider.call(operation, context_id=f"{owner}:team_preferences", **fields)
                assert await outcome(part) == "CONTEXT_NOT_FOUND", operation
    assert await read(reader) == {"tone": "brief"}
    assert await outcome(push(reader, preference("b"), owner=TEAM, if_version=1)) == "PERMISSION_DENIED"
    assert await outcome(reader.call("history.branch", context_id=TEAM, branch="b")) == "PERMISSION_DENIED"
    assert await outcome(read(writer)) == "PERMISSION_DENIED"
    assert await read(team.admin) == {"tone": "brief"}
    assert await team.rows("SELECT COUNT(*) FROM lines WHERE line_id = 'team:unknown'") == [(0,)]


HISTORY: dict[str, dict[str, Any]] = {
    "history.log": {},
    "history.state": {},
    "history.diff": {"from_version": "0"},
    "history.verify": {},
    "history.branch": {"branch": "b"},
    "history.snapshot": {"label": "l"},
    "history.merge": {"from_context_id": TEAM},
    "history.branches": {},
    "history.blame": {"key": "tone"},
    "history.bisect": {"contains": "x", "key": "team_preferences/tone"},
    "history.context_snapshots": {},
    "history.switch": {"branch": "b"},
    "history.delete_branch": {"branch": "b"},
}


@pytest.mark.both_databases
async def test_a_removed_or_disabled_member_loses_access_with_its_next_call(team: World) -> None:
    elsewhere = team.review.at(await team.another_app())
    assert await read(elsewhere) == {"tone": "brief"}
    await remove_member(team.admin, "review-2")
    assert await outcome(read(elsewhere)) == "TEAM_NOT_FOUND"
    assert await outcome(push(elsewhere, preference("b"), owner=TEAM, if_version=1)) == "TEAM_NOT_FOUND"
    assert await outcome(elsewhere.call("history.log", context_id=TEAM)) == "CONTEXT_NOT_FOUND"
    await team.admin.call("agent.update", agent_id="analysis", disabled=True)
    assert await outcome(read(team.analysis)) != "ok"


@pytest.mark.both_databases
async def test_shared_memory_has_a_history_with_branches_and_rollback(team: World) -> None:
    await push(team.review, preference(value="long"), owner=TEAM, if_version=1, reason="asked to")
    log = (await team.analysis.call("history.log", context_id=TEAM))["commits"]
    assert [(commit["author"], commit["reason"]) for commit in log] == [
        ("subagent:review:review-2", "asked to"),
        ("subagent:analysis", "push"),
    ]
    diff = await team.analysis.call("history.diff", context_id=TEAM, from_version="1", to_version="2")
    assert "long" in str(diff)
    assert "brief" in str(await team.analysis.call("history.state", context_id=TEAM, version="1"))
    await team.analysis.call("history.branch", context_id=TEAM, branch="try")
    await push(team.analysis, preference("c", 3), owner=TEAM, branch="try", if_version=2)
    assert await read(team.review) == {"tone": "long"}
    await team.review.call("history.merge", context_id=TEAM, from_context_id=f"{TEAM}@try")
    assert await read(team.review) == {"tone": "long", "c": 3}
    await team.analysis.call("history.switch", context_id=TEAM, branch="try")
    await push(team.analysis, preference("d", 4), owner=TEAM, if_version=3)
    assert "d" in await read(team.analysis)
    assert "d" not in await read(team.review)
    # As for the memory of agents, a rollback needs clearance 4.
    back = {"context_id": TEAM, "target_version": "1"}
    assert await outcome(team.review.call("history.rollback", **back)) == "PERMISSION_DENIED"
    await team.admin.call("history.rollback", **back)
    assert await read(team.review) == {"tone": "brief"}
    assert await problems(team) == []


async def test_agents_below_a_human_and_in_its_teams_share_its_memory(world: World) -> None:
    ada = await world.admin.create_agent("ada", kind="human")
    bob = await world.admin.create_agent("bob", kind="human", clearance=4)
    helper = await world.admin.create_agent("helper", parent_id="ada")
    below = await world.admin.create_agent("below", parent_id="helper")
    await push(ada, knowledge_entry("language", "French"), owner="user:ada", if_version=0)
    for by in (ada, helper, below, world.admin):
        assert await read(by, "user:ada") == {"language": "French"}
    for by, owner in [
        (world.planner, "user:ada"),
        (world.analysis, "user:ada"),
        (bob, "user:ada"),
        (world.stranger, "user:ada"),
        (helper, "user:bob"),
        (helper, "user:helper"),
        (world.admin, "user:planner"),
        (world.admin, "user:nobody"),
    ]:
        assert await outcome(read(by, owner)) == "AGENT_NOT_FOUND", owner
        assert await outcome(push(by, knowledge_entry("x"), owner=owner, if_version=1)) == "AGENT_NOT_FOUND", owner
        assert await outcome(by.call("history.log", context_id=owner)) == "CONTEXT_NOT_FOUND", owner
    await push(below, knowledge_entry("phone", "no"), owner="user:ada", if_version=1)
    await create_team(world.admin, "research", "ada", "analysis", "bob")
    assert await read(world.analysis, "user:ada") == {"language": "French", "phone": "no"}
    # A team makes no human share the memory of another.
    assert await outcome(read(bob, "user:ada")) == "AGENT_NOT_FOUND"
    await remove_member(world.admin, "ada")
    assert await outcome(read(world.analysis, "user:ada")) == "AGENT_NOT_FOUND"
    # The human's own memory is not shared.
    await push(ada, knowledge_entry("secret", "x"), if_version=0)
    assert await outcome(helper.call("history.state", context_id="context:ada")) == "CONTEXT_NOT_FOUND"
    assert "secret" not in await read(helper, "user:ada")


@pytest.mark.both_databases
@pytest.mark.req("CE-F16")
async def test_a_session_keeps_the_shared_memory_that_it_pulled(team: World) -> None:
    # Without a snapshot, it reads the current one.
    assert await read(team.analysis, session_id=SESSION) == {"tone": "brief"}
    await team.analysis.call("context.pull", session_id=SESSION)
    await push(team.review, preference("b", 1), owner=TEAM, if_version=1)
    assert await read(team.analysis, session_id=SESSION) == {"tone": "brief"}
    assert await read(team.analysis) == {"tone": "brief", "b": 1}
    shared = await team.analysis.call("context.status", owner=TEAM, session_id=SESSION)
    assert (shared["context_id"], shared["version"], shared["pulled_version"]) == (TEAM, 2, 1)
    pulled = await team.analysis.call("context.pull", session_id=SESSION)
    assert {"context_id": TEAM, "from_version": 1, "version": 2} in pulled["shared"]
    assert await read(team.analysis, session_id=SESSION) == {"tone": "brief", "b": 1}
    # The session of a push is recorded; what it knows of the agent's own context stays.
    await push(team.analysis, preference("b", 2), owner=TEAM, if_version=2, session_id=SESSION)
    status = await team.analysis.call("context.status", session_id=SESSION)
    assert (status["context_id"], status["version"], status["known_version"]) == ("context:analysis", 0, 0)
    with refused("INVALID_INPUT_FORMAT"):
        await push(team.analysis, preference("b", 9), owner=TEAM, session_id=SESSION)


async def test_definitions_cannot_be_reached_through_shared_memory(team: World) -> None:
    for key in ("role", "system_prompt", "guardrails", "layers", "permissions"):
        for owner in (TEAM, "user:admin"):
            await push(team.admin, knowledge_entry(key), owner=owner)
    assert (await team.admin.call("agent.read_definition", agent_id="analysis"))["version"] == 0
    for line in (f"{TEAM}:definition", "user:ada:definition", "agent:team:research", "team:", "user:a:b", f"{TEAM}@"):
        assert await outcome(team.admin.call("history.log", context_id=line)) == "CONTEXT_NOT_FOUND", line
    for owner in ("team:", "team:a b", "research", "context:analysis", "agent:analysis", "layer:tenant", "team:a:b"):
        assert await outcome(read(team.admin, owner)) == "INVALID_INPUT_FORMAT", owner


async def test_pushes_are_announced_to_those_who_share_the_memory(team: World) -> None:
    ada, bob = [await team.admin.create_agent(name, kind="human") for name in ("ada", "bob")]
    await add_member(team.admin, "ada")
    await push(team.analysis, preference("b", 2), owner=TEAM, if_version=1)

    async def seen(by: Caller) -> list[tuple[str, str]]:
        events = (await by.events())["events"]
        return [(e["subject"], e["data"]["context_id"]) for e in events if e["type"] == "context.pushed"]

    assert await seen(ada) == [(TEAM, TEAM), (TEAM, TEAM)]
    assert await seen(bob) == await seen(team.planner) == await seen(team.stranger) == []


@pytest.mark.both_databases
async def test_deleting_a_team_needs_force_and_deletes_its_memory_with_its_history(team: World) -> None:
    await push(team.analysis, artifact("report", "x" * 100_000), owner=TEAM, if_version=1)
    await team.analysis.call("history.branch", context_id=TEAM, branch="try")
    await push(team.analysis, preference("b", 2), owner=TEAM, branch="try", if_version=2)
    with refused("TEAM_NOT_EMPTY") as caught:
        await team.admin.call("team.delete", team="research")
    assert caught.value.context["memory_version"] == 2
    deleted = await team.admin.call("team.delete", team="research", force=True)
    assert deleted["memory_bytes"] == caught.value.context["memory_bytes"] > 100_000
    rows = await team.rows("SELECT line_id FROM lines WHERE tenant = $1 AND line_id LIKE 'team:%'", team.tenant)
    assert rows == []
    for by in (team.analysis, team.admin):
        assert await outcome(read(by)) == "TEAM_NOT_FOUND"
        assert await outcome(push(by, preference(), owner=TEAM, if_version=0)) == "TEAM_NOT_FOUND"
        assert await outcome(by.call("history.log", context_id=TEAM)) == "CONTEXT_NOT_FOUND"
    assert await problems(team) == []


@pytest.mark.both_databases
async def test_a_push_that_races_with_the_deletion_of_the_team_leaves_nothing(team: World) -> None:
    second = team.analysis.at(await team.another_app())
    calls = [
        team.admin.call("team.delete", team="research", force=True),
        *(push(second, preference(f"k{n}"), owner=TEAM, if_version=1) for n in range(3)),
    ]
    await asyncio.gather(*map(outcome, calls))
    rows = await team.rows("SELECT line_id FROM lines WHERE tenant = $1 AND line_id LIKE 'team:%'", team.tenant)
    assert rows == []


async def test_retention_and_limits_hold_for_shared_memory(team: World) -> None:
    await push(team.analysis, artifact("report", {"n": 1}), owner=TEAM, if_version=1)
    team.clock.advance(days=91)
    assert await read(team.review) == {"tone": "brief"}
    await team.admin.call("history.prune", context_id=f"{TEAM}:work_artifacts")
    small = await team.another_app(context_limit_mb=1)
    large = knowledge_entry("big", "x" * 1_100_000)
    assert await outcome(push(team.analysis.at(small), large, owner=TEAM, if_version=3)) == "CONTEXT_LIMIT_EXCEEDED"


async def test_members_find_the_memory_of_their_teams_and_users(team: World) -> None:
    await team.admin.create_agent("ada", kind="human")
    helper = await team.admin.create_agent("helper", parent_id="ada")
    await push(team.analysis, preference("colour", "Charts are drawn in teal."), owner=TEAM, if_version=1)
    await push(helper, knowledge_entry("colour", "Ada likes charts in teal."), owner="user:ada", if_version=0)
    await team.index_sessions()

    async def found(by: Caller) -> list[str | None]:
        results = (await by.call("search.query", query="charts teal", sources=["memory"]))["results"]
        return [result.get("owner") for result in results if result.get("key") == "colour"]

    assert await found(team.review) == [TEAM]
    assert await found(helper) == ["user:ada"]
    assert await found(team.planner) == await found(team.stranger) == []
    await remove_member(team.admin, "review-2")
    assert await found(team.review) == []
    await team.admin.call("team.delete", team="research", force=True)
    assert await found(team.analysis) == []


async def test_records_of_shared_memory_are_for_those_who_share_it(team: World) -> None:
    item = f"{TEAM}:team_preferences/tone/1.1"
    shown = await team.review.call("records.show", record_id=item, type="context_item", session_id=SESSION)
    assert shown["record"]["context_kind"] == "persistent_memory"
    assert shown["record"]["source_refs"] == ["team://research"]
    source = {"record_id": "team://research", "type": "context_source_ref", "session_id": SESSION}
    assert await outcome(team.review.call("records.show", **source)) == "ok"
    for by in (team.planner, team.stranger):
        assert await outcome(by.call("records.show", record_id=item, type="context_item")) == "RECORD_NOT_FOUND"
        source.pop("session_id", None)
        assert await outcome(by.call("records.show", **source)) == "RECORD_NOT_FOUND"


async def test_exports_carry_shared_memory_only_for_those_who_share_it(team: World) -> None:
    await push(team.analysis, preference("b", "The kettle is broken."), owner=TEAM, if_version=1, session_id=SESSION)
    secret = b"kettle is broken"
    assert secret not in await exported(team.planner)
    assert TEAM.encode() not in await exported(team.planner)
    # What a bundle says about shared memory is not restored as such.
    bundle = await exported(team.admin)
    await create_team(team.stranger, "research", "admin")
    forged = (await exported(team.planner)).replace(b"board:s1", b"team:research:learned_knowledge")
    for content, session in ((bundle, "copy"), (forged, "forged")):
        with contextlib.suppress(WeftlineError):
            await imported(team.stranger, content, session_id=session)
    assert await read(team.stranger) == {}


async def test_only_admins_set_the_retention_of_shared_memory(team: World) -> None:
    rule = {"subject": f"{TEAM}:work_artifacts", "days": 30}
    for by in (team.analysis, team.planner, team.stranger):
        assert await outcome(by.call("history.set_retention", **rule)) != "ok"
    await push(team.analysis, artifact("report", 1), owner=TEAM, if_version=1)
    assert (await team.admin.call("history.set_retention", **rule))["days"] == 30
    team.clock.advance(days=31)
    assert await read(team.review) == {"tone": "brief"}
