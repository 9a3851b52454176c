"""Agent definitions: set by ancestors only, effective at the next pull."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.contexts import entries, knowledge_entry, problems, pull, push, read_context, stop_at_statement, version_of
from support.world import outcome, refused

if TYPE_CHECKING:
    from support.world import Caller, World

NO_MAIL = {"name": "no-mail", "prohibited_action": ["mail.send"]}
NO_PHONE = {"name": "no-phone", "prohibited_action": ["phone.call"]}
FULL_DEFINITION = {
    "role": "Plans launches",
    "system_prompt": "You plan é 🚢",
    "guardrails": [{"name": "no-mail", "prohibited_action": ["mail.*"]}],
    "config": {"model": "large", "depth": 2},
}


async def define(by: Caller, agent: str, **what: Any) -> Any:
    return await by.call("agent.define", agent_id=agent, **what)


async def definition(by: Caller, agent: str, **which: Any) -> Any:
    return await by.call("agent.read_definition", agent_id=agent, **which)


@pytest.mark.req("CE-F20")
async def test_a_definition_reads_back_unchanged_at_every_version(world: World) -> None:
    empty = await definition(world.admin, "planner")
    assert (empty["version"], empty["role"], empty["guardrails"], empty["config"]) == (0, None, [], {})
    first = await define(world.admin, "planner", **FULL_DEFINITION, reason="founded")
    assert (first["previous_version"], first["version"], first["changed"]) == (0, 1, [*FULL_DEFINITION])
    second = await define(world.admin, "planner", role="Reviews", config=FULL_DEFINITION["config"])
    assert (second["version"], second["context_version"], second["changed"]) == (2, 2, ["role"])
    then = await definition(world.planner, "planner", version="1")
    assert {key: then[key] for key in FULL_DEFINITION} == FULL_DEFINITION
    assert [(await definition(world.planner, "planner", version=v))["role"] for v in ("0", "1", "2", "head")] == [
        None,
        "Plans launches",
        "Reviews",
        "Reviews",
    ]
    again = await define(world.admin, "planner", role="Reviews")
    assert (again["version"], again["changed"]) == (2, [])
    assert await problems(world) == []
    for version in ("3", "nothing", "9" * 20, "../x"):
        with refused("VERSION_NOT_FOUND"):
            await definition(world.planner, "planner", version=version)


@pytest.mark.req("CE-F19")
async def test_only_ancestors_and_cleared_admins_define_an_agent(world: World) -> None:
    child = await world.admin.create_agent("child", parent_id="analysis")
    high = await world.admin.create_agent("high", parent_id="planner", clearance=4)
    lead = await world.admin.create_agent("lead", kind="human", clearance=3)
    low = await world.admin.create_agent("low", kind="human", clearance=2)
    for by, agent, expected in [
        (world.planner, "analysis", "ok"),
        (world.planner, "child", "ok"),
        (world.analysis, "child", "ok"),
        (lead, "planner", "ok"),
        (lead, "high", "PERMISSION_DENIED"),
        (world.admin, "high", "ok"),
        (world.planner, "high", "PERMISSION_DENIED"),
        (world.review, "analysis", "PERMISSION_DENIED"),
        (child, "analysis", "PERMISSION_DENIED"),
        (world.analysis, "planner", "PERMISSION_DENIED"),
        (high, "admin", "PERMISSION_DENIED"),
        (low, "planner", "PERMISSION_DENIED"),
        (lead, "admin", "PERMISSION_DENIED"),
        (world.admin, "nobody", "AGENT_NOT_FOUND"),
        (world.stranger, "planner", "AGENT_NOT_FOUND"),
    ]:
        assert await outcome(define(by, agent, role="x")) == expected, (by, agent)


@pytest.mark.req("CE-E", part="an agent that changes its own definition")
async def test_changing_one_s_own_definition_is_refused_and_audited(world: World) -> None:
    code = "SELF_MODIFICATION"
    for who, agent in ((world.planner, "planner"), (world.analysis, "analysis"), (world.admin, "admin")):
        with refused(code):
            await define(who, agent, role="x", guardrails=[])
        denied = (await world.admin.audit(outcome="denied"))[0]
        assert (denied["action"], denied["agent_id"], denied["detail"]["code"]) == ("agent.define", agent, code)


async def test_a_definition_is_readable_by_the_agent_its_ancestors_and_admins(world: World) -> None:
    await define(world.planner, "analysis", role="Analyses")
    await world.admin.create_agent("auditor", permissions=["read", "admin"])
    for who in (world.analysis, world.planner, world.admin):
        assert (await definition(who, "analysis"))["role"] == "Analyses"
    for who in (world.review, world.stranger):
        with refused("AGENT_NOT_FOUND"):
            await definition(who, "analysis")
    event_types = {event["type"] for event in (await world.analysis.events(session_id="s1"))["events"]}
    assert "agent.defined" not in event_types
    assert "agent.defined" in {event["type"] for event in (await world.planner.events())["events"]}


@pytest.mark.both_databases
async def test_every_way_to_a_definition_needs_the_clearance_that_its_history_does(world: World) -> None:
    """A human below it learns neither role nor settings, by whichever operation."""
    await define(world.planner, "analysis", **FULL_DEFINITION)
    await world.admin.call("team.create", team="lab")
    await world.admin.call("team.add_member", team="lab", agent_id="analysis")
    rule = {"name": "no-news", "prohibited_action": ["news.*"], "message": "Not in the lab."}
    await world.admin.call("layer.define", layer="team:lab", text="Guidelines of the lab.", guardrails=[rule])
    low = await world.admin.create_agent("low", kind="human", clearance=2)
    lead = await world.admin.create_agent("lead", kind="human", clearance=3)
    doors = (
        ("agent.read_definition", "AGENT_NOT_FOUND", {}),
        ("layer.show", "AGENT_NOT_FOUND", {}),
        ("guardrail.list", "AGENT_NOT_FOUND", {}),
        ("history.state", "CONTEXT_NOT_FOUND", {"context_id": "agent:analysis"}),
    )
    for name, code, fields in doors:
        with refused(code):
            await low.call(name, **(fields or {"agent_id": "analysis"}))
    for name, _, fields in doors:
        answer = str(await lead.call(name, **(fields or {"agent_id": "analysis"})))
        assert FULL_DEFINITION["role"] in answer or "guardrail" in name
        # The lead edits the agent, but is not of its team.
        assert "the lab" not in answer, name
    for by in (world.analysis, world.planner, world.admin):
        assert "Guidelines of the lab." in str(await by.call("layer.show", agent_id="analysis"))
        assert "Not in the lab." in str(await by.call("guardrail.list", agent_id="analysis"))


async def test_an_edit_with_an_outdated_if_version_is_refused(world: World) -> None:
    await define(world.admin, "planner", role="First", if_version=0)
    with refused("VERSION_CONFLICT") as caught:
        await define(world.admin, "planner", role="Second", if_version=0)
    conflict = caught.value.context
    assert (conflict["current_version"], conflict["expected_version"]) == (1, 0)
    assert (conflict["agent_id"], conflict["changed"]) == ("admin", ["role"])
    second = await world.another_app()
    calls = [
        define(by, "planner", role=f"r{n}", if_version=1)
        for n, by in enumerate([world.admin, world.admin.at(second)] * 2)
    ]
    assert sorted(await asyncio.gather(*map(outcome, calls))) == ["VERSION_CONFLICT"] * 3 + ["ok"]


async def test_an_invalid_definition_is_refused(world: World) -> None:
    assert (await define(world.admin, "planner"))["changed"] == []
    for what in ({"role": "\ud800"}, {"guardrails": ["text"]}, {"config": [1]}, {"config": {"x": float("inf")}}):
        with refused("INVALID_INPUT_FORMAT"):
            await define(world.admin, "planner", **what)
    with refused("CONTENT_TOO_LARGE"):
        await define(world.admin, "planner", config={"x": "y" * 300_000})
    assert (await definition(world.admin, "planner"))["version"] == 0


async def test_the_audit_log_records_an_edit_without_its_content(world: World) -> None:
    await define(
        world.admin,
        "planner",
        role="s3cr3t",
        guardrails=[{"name": "s3cr3t", "prohibited_action": ["mail.*"]}],
        reason="because",
    )
    (done,) = [row for row in await world.admin.audit() if row["action"] == "agent.define"]
    assert (done["target"], done["detail"]["changed"], done["detail"]["reason"]) == (
        "planner",
        ["role", "guardrails"],
        "because",
    )
    assert "s3cr3t" not in str(await world.admin.audit())
    assert "s3cr3t" not in str(await world.admin.events())


@pytest.mark.req("CE-F22")
@pytest.mark.req("CE-U5")
async def test_rolling_back_a_definition_is_an_edit(world: World) -> None:
    boss = await world.admin.create_agent("boss", clearance=4)
    await define(world.admin, "boss", role="First")
    await define(world.admin, "boss", role="Second", guardrails=[NO_MAIL])
    with refused("SELF_MODIFICATION"):
        await boss.call("history.rollback", context_id="agent:boss", target_version="1")
    with refused("CONTEXT_NOT_FOUND"):
        await world.planner.call("history.rollback", context_id="agent:boss", target_version="1")
    done = await world.admin.call("history.rollback", context_id="agent:boss", target_version="1")
    assert (done["version"], done["written"], done["removed"]) == (3, ["role"], ["guardrails"])
    now = await definition(boss, "boss")
    assert (now["role"], now["guardrails"], now["version"]) == ("First", [], 3)
    assert await version_of(boss) == 3
    changed_fields = [
        event["data"]["changed"] for event in (await boss.events())["events"] if event["type"] == "agent.defined"
    ]
    assert changed_fields[-1] == ["guardrails", "role"]


@pytest.mark.req("CE-F56")
@pytest.mark.req("CE-E", part="an agent that changes its own definition")
async def test_an_agent_cannot_roll_back_its_definition_with_its_context(world: World) -> None:
    boss = await world.admin.create_agent("boss", clearance=4)
    await world.planner.admit("boss")
    await define(world.admin, "boss", guardrails=[])
    await push(boss, knowledge_entry("a", 1), if_version=1)
    await push(boss, knowledge_entry("a", 2), if_version=2)
    await define(world.admin, "boss", guardrails=[NO_MAIL])
    with refused("SELF_MODIFICATION"):
        await boss.call("history.rollback", context_id="context:boss", target_version="2")
    assert (await definition(boss, "boss"))["guardrails"] == [NO_MAIL]
    await boss.call("history.rollback", context_id="context:boss:learned_knowledge", target_version="1")
    pulled = await pull(boss)
    assert (entries(pulled), pulled["context"]["guardrails"]) == ({"a": 1}, [NO_MAIL])
    await world.admin.call("history.rollback", context_id="context:boss", target_version="2")
    pulled = await pull(boss)
    assert (entries(pulled), pulled["context"]["guardrails"]) == ({"a": 1}, [])
    assert await problems(world) == []


@pytest.mark.req("CE-E", part="an agent that changes its own definition")
@pytest.mark.req("CE-F25")
async def test_every_branch_uses_the_current_definition(world: World) -> None:
    await define(world.admin, "planner", guardrails=[])
    await push(world.planner, knowledge_entry("a", 1), if_version=1)
    await world.planner.call("history.branch", context_id="context:planner", branch="lax", from_version="1")
    await define(world.admin, "planner", guardrails=[NO_MAIL])
    pulled = await pull(world.planner, branch="lax")
    assert (pulled["context"]["guardrails"], entries(pulled)) == ([NO_MAIL], {})
    await define(world.admin, "planner", guardrails=[NO_PHONE])
    assert (await read_context(world.planner))["definition"]["guardrails"] == [NO_MAIL]
    assert (await pull(world.planner, branch="lax"))["context"]["guardrails"] == [NO_PHONE]
    await world.planner.call("history.merge", context_id="context:planner", from_context_id="context:planner@lax")
    assert (await definition(world.planner, "planner"))["guardrails"] == [NO_PHONE]
    assert await problems(world) == []


@pytest.mark.req("CE-F56")
@pytest.mark.req("CE-F22")
async def test_a_rollback_of_a_context_rolls_back_every_part_as_one_version(world: World) -> None:
    first = [knowledge_entry("a", 1, metadata={"m": 1}), knowledge_entry("p", 1, memory_type="team_preferences")]
    await push(world.planner, *first, if_version=0)
    await push(world.planner, knowledge_entry("a", 2), knowledge_entry("new", 1), if_version=1)
    workflow = {"memory_type": "conversation_context", "workflow_id": "w"}
    gone = [{"key": "p", "memory_type": "team_preferences"}]
    await push(world.planner, knowledge_entry("c", 1, **workflow), if_version=2, remove=gone)
    with refused("PERMISSION_DENIED") as caught:
        await world.planner.call("history.rollback", context_id="context:planner", target_version="1")
    assert caught.value.context["required_clearance"] == 4
    done = await world.admin.call("history.rollback", context_id="context:planner", target_version="1", reason="bad")
    assert (done["version"], await version_of(world.planner)) == (4, 4)
    pulled = await pull(world.planner)
    assert entries(pulled) == {"a": 1, "p": 1}
    assert pulled["context"]["memory"]["learned_knowledge"][0]["metadata"] == {"m": 1}
    await world.admin.call("history.rollback", context_id="context:planner", target_version="3")
    assert entries(await pull(world.planner)) == {"a": 2, "c": 1, "new": 1}
    assert [row["outcome"] for row in await world.admin.audit() if row["action"] == "history.rollback"][:2] == [
        "done",
        "done",
    ]
    assert await problems(world) == []


@pytest.mark.req("MW-11", part="checkpoints of boards and persistent memory")
async def test_memory_at_a_snapshot_is_copied_to_another_agent(world: World) -> None:
    await push(world.planner, knowledge_entry("a", 1), knowledge_entry("w", "x" * 40_000), if_version=0)
    await world.admin.call("history.snapshot", context_id="context:planner", label="good")
    await push(
        world.planner, knowledge_entry("a", 2), knowledge_entry("p", 1, memory_type="team_preferences"), if_version=1
    )
    await define(world.admin, "planner", role="Plans")
    await push(
        world.analysis, knowledge_entry("own", 1), knowledge_entry("q", 1, memory_type="team_preferences"), if_version=0
    )
    copied = await world.admin.call(
        "context.copy", agent_id="analysis", from_agent_id="planner", version="good", memory_types=["learned_knowledge"]
    )
    assert (copied["from_version"], copied["version"], copied["written"], copied["removed"]) == (1, 2, 2, 1)
    pulled = await pull(world.analysis)
    assert (entries(pulled), pulled["context"]["role"]) == ({"a": 1, "q": 1, "w": None}, None)
    assert (await read_context(world.analysis, key="w"))["entries"][0]["value"] == "x" * 40_000
    await world.admin.call("context.copy", agent_id="analysis", from_agent_id="planner")
    assert entries(await pull(world.analysis)) == {"a": 2, "p": 1, "w": None}
    await world.admin.call("history.rollback", context_id="context:analysis", target_version=copied["snapshot_before"])
    assert entries(await pull(world.analysis)) == {"own": 1, "q": 1}
    assert await problems(world) == []


@pytest.mark.req("MW-11", part="checkpoints of boards and persistent memory")
async def test_copying_needs_clearance_and_access_to_both_agents(world: World) -> None:
    lead = await world.admin.create_agent("lead", kind="human", clearance=3)
    boss = await world.admin.create_agent("boss", clearance=4)
    await push(world.planner, knowledge_entry("a", 1), if_version=0)
    copy = {"agent_id": "analysis", "from_agent_id": "planner"}
    for by in (lead, boss, world.planner, world.stranger):
        assert await outcome(by.call("context.copy", **copy)) in {"PERMISSION_DENIED", "AGENT_NOT_FOUND"}
    for what, code in [
        ({"from_agent_id": "nobody"}, "AGENT_NOT_FOUND"),
        ({"version": "never"}, "VERSION_NOT_FOUND"),
        ({"agent_id": "admin"}, "PERMISSION_DENIED"),
        ({"memory_types": []}, "INVALID_INPUT_FORMAT"),
        ({"memory_types": ["definition"]}, "INVALID_INPUT_FORMAT"),
    ]:
        assert await outcome(world.admin.call("context.copy", **{**copy, **what})) == code
    assert entries(await pull(world.analysis)) == {}


async def test_a_crashed_rollback_of_a_context_leaves_all_parts_old_or_all_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [("a", "learned_knowledge"), ("b", "team_preferences"), ("c", "work_artifacts")]
    for version in range(2):
        await push(
            world.planner, *(knowledge_entry(key, version, memory_type=sort) for key, sort in parts), if_version=version
        )
    rollback = {"context_id": "context:planner", "target_version": "1"}
    heads = "SELECT line_id, seq FROM lines WHERE tenant = $1 ORDER BY line_id"
    before = [tuple(row) for row in await world.rows(heads, world.tenant)]
    for number in range(1, 500):
        with stop_at_statement(world, monkeypatch, number) as ran:
            result = await outcome(world.admin.call("history.rollback", **rollback))
        if len(ran) < number:
            break
        assert result == "INTERNAL_ERROR"
        assert [tuple(row) for row in await world.rows(heads, world.tenant)] == before, ran[-1]
    assert (result, number > 30) == ("ok", True)
    pulled = await pull(world.planner)
    assert entries(pulled) == {"a": 0, "b": 0, "c": None}
    assert (await read_context(world.planner, key="c", memory_type="work_artifacts"))["entries"][0]["value"] == 0
    assert await problems(world) == []


@pytest.mark.req("CE-F19")
async def test_a_definition_does_not_count_toward_the_context_limit(world: World) -> None:
    app = await world.another_app(context_limit_mb=1)
    agent = world.analysis.at(app)
    await push(agent, *(knowledge_entry(f"k{number}", "x" * 30_000) for number in range(34)), if_version=0)
    used = (await agent.call("context.status"))["used_bytes"]
    await agent.call("history.branch", context_id="context:analysis", branch="b")
    many_rules = [{"name": f"r{n}", "prohibited_action": ["mail.send"], "message": "y" * 190} for n in range(200)]
    await define(world.admin.at(app), "analysis", guardrails=many_rules)
    assert (await agent.call("context.status"))["used_bytes"] == used
    assert (await pull(agent, branch="b"))["context"]["guardrails"] == many_rules
    assert (await agent.call("context.status", branch="b"))["used_bytes"] == used


async def test_a_pruned_definition_is_reported_as_not_kept(world: World) -> None:
    await world.admin.call("history.set_retention", subject="agent", days="indefinite", versions=1)
    await define(world.admin, "planner", role="one", guardrails=[NO_MAIL])
    await define(world.admin, "planner", role="two", guardrails=[NO_PHONE])
    await world.admin.call("history.prune")
    with refused("VERSION_PRUNED"):
        await definition(world.admin, "planner", version="1")


async def test_a_rollback_restores_a_value_and_its_metadata_together(world: World) -> None:
    await push(
        world.planner, knowledge_entry("k", "one", metadata={"of": 1}), knowledge_entry("plain", 1), if_version=0
    )
    await push(
        world.planner, knowledge_entry("k", "two", metadata={"of": 1}), knowledge_entry("plain", 2), if_version=1
    )
    await push(
        world.planner, knowledge_entry("k", "two"), knowledge_entry("plain", 2, metadata={"of": 2}), if_version=2
    )
    for target, of_k, of_plain in (("1", ("one", {"of": 1}), (1, {})), ("3", ("two", {}), (2, {"of": 2}))):
        await world.admin.call("history.rollback", context_id="context:planner", target_version=target)
        listed = (await pull(world.planner))["context"]["memory"]["learned_knowledge"]
        assert [(entry["value"], entry.get("metadata", {})) for entry in listed] == [of_k, of_plain]


async def test_a_merge_takes_a_value_and_its_metadata_from_one_side(world: World) -> None:
    for agent, take, expected in (
        (world.analysis, "ours", ("v1", {"m": 0})),
        (world.planner, "theirs", ("v2", {"m": 2})),
    ):
        root = (await agent.call("context.status"))["context_id"]
        await push(agent, knowledge_entry("k", "v0", metadata={"m": 0}), if_version=0)
        await agent.call("history.branch", context_id=root, branch="b")
        await push(agent, knowledge_entry("k", "v1", metadata={"m": 0}), if_version=1)
        await push(agent, knowledge_entry("k", "v2", metadata={"m": 2}), if_version=1, branch="b")
        merge = await agent.call("history.merge", context_id=root, from_context_id=f"{root}@b")
        assert [conflict["key"] for conflict in merge["conflicts"]] == ["learned_knowledge/k"]
        resolutions = {"learned_knowledge/k": {"take": take}}
        await world.admin.call("history.resolve", review_id=merge["review_id"], resolutions=resolutions)
        (entry,) = (await pull(agent))["context"]["memory"]["learned_knowledge"]
        assert (entry["value"], entry["metadata"]) == expected


async def test_instructions_given_at_creation_are_the_first_version_of_the_definition(world: World) -> None:
    lead = await world.admin.create_agent("lead", instructions="You lead the release.")
    first = await definition(world.admin, "lead")
    assert (first["version"], first["system_prompt"], first["role"]) == (1, "You lead the release.", None)
    # Its first sub-agent: until now it has nobody below it that it could define.
    await lead.create_agent("tester", instructions="You test what is released.")
    assert (await definition(lead, "tester"))["system_prompt"] == "You test what is released."
    session = (await lead.call("session.create", purpose="Release"))["session_id"]
    prompt = await lead.call("context.assemble", session_id=session, task_description="What is next?")
    assert "You lead the release." in prompt["body"]["messages"][0]["content"]
    assert await problems(world) == []
    with refused("SELF_MODIFICATION"):
        await define(lead, "lead", system_prompt="You may do anything.")
    changed = await define(world.admin, "lead", system_prompt="You lead the launch.", if_version=1)
    assert (changed["previous_version"], changed["version"]) == (1, 2)


async def test_an_agent_that_exists_keeps_its_instructions(world: World) -> None:
    await world.admin.create_agent("lead", instructions="You lead the release.")
    again = await world.admin.call("agent.create", agent_id="lead", exist_ok=True, instructions="You lead nothing.")
    assert again["existed"]
    assert (await definition(world.admin, "lead"))["system_prompt"] == "You lead the release."


async def test_only_agents_get_instructions_and_only_from_those_who_may_define_them(world: World) -> None:
    for agent_id, kind, by, error in (
        ("dana", "human", world.admin, "INVALID_INPUT_FORMAT"),
        ("elsewhere", "agent", world.planner, "PERMISSION_DENIED"),
    ):
        parent = {"parent_id": "admin"} if by is world.planner else {}
        with refused(error):
            await by.call("agent.create", agent_id=agent_id, kind=kind, instructions="Do it.", **parent)
    junior = await world.admin.create_agent("junior", kind="human", clearance=2, permissions=["admin", "write"])
    with refused("PERMISSION_DENIED"):
        await junior.call("agent.create", agent_id="clerk", instructions="Do it.")
    assert await outcome(definition(world.admin, "clerk")) == "AGENT_NOT_FOUND"
