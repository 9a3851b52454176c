"""Merges, rollbacks and restores never widen a read ACL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.full_run import examples
from support.world import outcome, refused

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.req("SC-11"), pytest.mark.req("CE-F25")]

BOARD = "board:s1"
REVIEWERS = ["subagent:review:*"]
OLD = "the old secret"
PATTERNS = (
    "*",
    "subagent:*",
    "subagent:review:*",
    "subagent:a*",
    "orchestrator:*",
    "orchestrator",
    "human:*",
    "principal:nobody",
)
# With "human:*", so that the admin may resolve the conflict.
ACLS = st.lists(st.sampled_from(PATTERNS), max_size=3, unique=True).map(lambda patterns: ["human:*", *patterns])


async def branch(caller: Caller, name: str, version: str = "head") -> None:
    await caller.call("history.branch", context_id=BOARD, branch=name, from_version=version)


async def merge(caller: Caller, source: str, target: str = "") -> Any:
    lines = [f"{BOARD}@{name}" if name else BOARD for name in (target, source)]
    return await caller.call("history.merge", context_id=lines[0], from_context_id=lines[1])


async def roll_back(caller: Caller, version: str, on: str = "") -> Any:
    line = f"{BOARD}@{on}" if on else BOARD
    return await caller.call("history.rollback", context_id=line, target_version=version)


async def events_of(caller: Caller, after: int) -> list[tuple[str, str]]:
    return [
        (event["type"], event["subject"]) for event in (await caller.events(session_id="s1", after=after))["events"]
    ]


async def check_hidden(caller: Caller, key: str, where: str = "main") -> None:
    """Check that a key is hidden from a caller on every read path."""
    line = BOARD if where == "main" else f"{BOARD}@{where}"
    assert await outcome(caller.read(key, branch=where)) == "KEY_NOT_FOUND"
    assert await outcome(caller.history(key, branch=where)) == "KEY_NOT_FOUND"
    assert key not in await caller.keys(branch=where)
    assert (await caller.call("history.state", context_id=line, key=key))["entries"] == []


@pytest.fixture
async def narrowed(world: World) -> World:
    """Return a world with a key readable by everyone at version 1 and by reviewers only at version 2."""
    await world.review.write("verdict", OLD)
    await world.review.snapshot("while_public")
    await world.review.write("verdict", "new", readable_by=REVIEWERS)
    return world


async def test_merging_a_branch_from_before_an_acl_was_narrowed_does_not_widen_it(narrowed: World) -> None:
    await branch(narrowed.analysis, "early", version="1")
    await branch(narrowed.analysis, "empty", version="0")
    start = await narrowed.last_event()
    assert "taken" not in await merge(narrowed.analysis, "early", "empty")
    await check_hidden(narrowed.analysis, "verdict", "empty")
    assert await narrowed.review.value("verdict", branch="empty") == OLD
    assert "verdict" not in [subject for _, subject in await events_of(narrowed.analysis, start)]
    assert ("branch.written", "verdict") in await events_of(narrowed.review, start)


async def test_a_merge_keeps_an_acl_narrowed_on_the_parent_branch(world: World) -> None:
    await branch(world.planner, "one")
    await world.review.write("verdict", OLD, branch="one")
    await world.planner.call("history.branch", context_id=f"{BOARD}@one", branch="two")
    await world.review.write("verdict", "new", readable_by=REVIEWERS, branch="one")
    await merge(world.analysis, "two")
    await check_hidden(world.analysis, "verdict")
    assert await world.review.value("verdict") == OLD


async def test_a_rollback_does_not_widen_a_read_acl_narrowed_since(narrowed: World) -> None:
    with refused("PERMISSION_DENIED"):
        await roll_back(narrowed.planner, "1")
    await roll_back(narrowed.admin, "1")
    await check_hidden(narrowed.planner, "verdict")
    await check_hidden(narrowed.analysis, "verdict")
    assert await narrowed.review.value("verdict") == OLD


async def test_restoring_a_snapshot_does_not_widen_an_acl_narrowed_since(narrowed: World) -> None:
    with refused("PERMISSION_DENIED"):
        await narrowed.planner.restore("while_public")
    await narrowed.admin.restore("while_public")
    await check_hidden(narrowed.planner, "verdict")
    assert await narrowed.review.value("verdict") == OLD
    await narrowed.review.delete("verdict")
    await narrowed.planner.restore("while_public")
    await check_hidden(narrowed.planner, "verdict")
    assert await narrowed.review.value("verdict") == OLD


async def test_a_rollback_of_a_branch_does_not_widen_the_read_acl_of_the_board(narrowed: World) -> None:
    await branch(narrowed.planner, "early", version="1")
    await narrowed.review.write("verdict", "mine", readable_by=["*"], branch="early")
    await roll_back(narrowed.planner, "1", on="early")
    await check_hidden(narrowed.planner, "verdict", "early")
    assert await narrowed.review.value("verdict", branch="early") == OLD


async def test_a_restored_value_is_readable_by_the_intersection_of_its_acls(world: World) -> None:
    await world.review.write("verdict", "for agents", readable_by=["subagent:*"])
    await world.review.write("verdict", "for reviewers", readable_by=REVIEWERS)
    await world.review.write("plan", "for agents", readable_by=["subagent:*"])
    await world.review.write("plan", "for the planner", readable_by=["orchestrator"])
    await roll_back(world.admin, "3")
    for caller in (world.review, world.analysis, world.planner):
        await check_hidden(caller, "plan")
    await roll_back(world.admin, "1")
    assert await world.review.value("verdict") == "for agents"
    await check_hidden(world.analysis, "verdict")


async def test_a_merge_does_not_widen_the_acl_of_the_target(world: World) -> None:
    await world.review.write("verdict", "1", readable_by=REVIEWERS)
    await branch(world.planner, "try")
    await world.review.write("verdict", "2", readable_by=["*"], branch="try")
    with refused("PERMISSION_DENIED"):
        await merge(world.analysis, "try")
    await merge(world.review, "try")
    await check_hidden(world.analysis, "verdict")
    assert await world.review.value("verdict") == "2"
    assert await world.analysis.value("verdict", branch="try") == "2"


async def test_a_merge_does_not_widen_a_pattern(world: World) -> None:
    await world.review.write("verdict", "1", readable_by=REVIEWERS)
    await branch(world.planner, "try")
    await world.review.write("verdict", "2", readable_by=["subagent:*"], branch="try")
    await merge(world.review, "try")
    await check_hidden(world.analysis, "verdict")
    assert await world.review.value("verdict") == "2"


@pytest.mark.parametrize("side", ["theirs", "base"])
async def test_resolving_a_conflict_does_not_widen_an_acl_narrowed_since_on_the_target(world: World, side: str) -> None:
    human = await world.admin.create_agent("joe", kind="human", permissions=["read", "write"])
    await world.planner.admit("joe")
    await human.write("verdict", "0", readable_by=["human:*", "subagent:*"])
    await branch(human, "try")
    await human.write("verdict", "1", branch="try")
    await human.write("verdict", "2", readable_by=["human:*"])
    review = (await merge(human, "try"))["review_id"]
    await human.call("history.resolve", review_id=review, resolutions={"verdict": {"take": side}})
    await check_hidden(world.analysis, "verdict")
    assert await human.value("verdict") == {"theirs": "1", "base": "0"}[side]


async def test_a_merge_keeps_the_acl_of_a_key_deleted_on_the_target(world: World) -> None:
    await branch(world.planner, "try")
    for acl in (["*"], REVIEWERS):
        await world.review.write("verdict", "1", readable_by=acl)
        await world.review.delete("verdict")
    await world.review.write("verdict", "2", readable_by=["subagent:*"], branch="try")
    await merge(world.analysis, "try")
    await check_hidden(world.analysis, "verdict")
    assert await world.review.value("verdict") == "2"


@pytest.mark.both_databases
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(on_target=ACLS, on_branch=ACLS, later_on_target=st.none() | ACLS)
async def test_no_merge_adds_readers(
    world: World, on_target: list[str], on_branch: list[str], later_on_target: list[str] | None
) -> None:
    """``later_on_target`` makes a conflict, which is resolved with ``theirs``."""
    key = f"key_{await world.last_event()}"
    callers = (world.review, world.analysis, world.planner)
    await world.admin.write(key, "0", readable_by=on_target)
    await branch(world.admin, key)
    await world.admin.write(key, "1", readable_by=on_branch, branch=key)
    if later_on_target is not None:
        await world.admin.write(key, "2", readable_by=later_on_target)
    before = [await outcome(caller.read(key)) == "ok" for caller in callers]
    on_source = [await outcome(caller.read(key, branch=key)) == "ok" for caller in callers]
    review = (await merge(world.admin, key)).get("review_id")
    if review is not None:
        await world.admin.call("history.resolve", review_id=review, resolutions={key: {"take": "theirs"}})
    for caller, target, source in zip(callers, before, on_source, strict=True):
        assert await outcome(caller.read(key)) != "ok" or (target and source)


async def test_resolving_a_conflict_to_the_current_value_keeps_its_acl(world: World) -> None:
    human = await world.admin.create_agent("joe", kind="human", permissions=["read", "write"])
    await world.planner.admit("joe")
    await world.review.write("verdict", "0")
    await branch(world.planner, "try")
    await world.review.write("verdict", "1")
    await human.write("verdict", "2", readable_by=["human:*"], branch="try")
    review = (await merge(human, "try"))["review_id"]
    await human.call("history.resolve", review_id=review, resolutions={"verdict": {"take": "ours"}})
    assert await world.analysis.value("verdict") == "1"


async def test_a_refusal_does_not_name_a_hidden_key(world: World) -> None:
    await world.review.write("hidden_plan", "1", readable_by=REVIEWERS, writable_by=REVIEWERS)
    await world.review.snapshot("mark")
    await branch(world.review, "try")
    await world.review.write("hidden_plan", "2", branch="try")
    for attempt in (merge(world.analysis, "try"), roll_back(world.planner, "0"), roll_back(world.planner, "1", "try")):
        with refused("PERMISSION_DENIED") as caught:
            await attempt
        assert "hidden_plan" not in f"{caught.value.message}{caught.value.context}{caught.value.hint}"
    await world.review.write("hidden_plan", "3")
    with refused("PERMISSION_DENIED") as caught:
        await world.planner.restore("mark")
    assert "hidden_plan" not in f"{caught.value.message}{caught.value.context}"
    await world.review.write("shown_plan", "1", writable_by=REVIEWERS)
    with refused("PERMISSION_DENIED") as caught:
        await world.planner.restore("mark")
    assert "shown_plan" in caught.value.message


async def test_removing_a_key_on_a_branch_is_hidden_from_principals_outside_its_acl(world: World) -> None:
    await world.review.write("verdict", "draft")
    await world.review.write("passing", "draft", ttl_seconds=60)
    await branch(world.planner, "try")
    for key in ("verdict", "passing"):
        await world.review.write(key, "secret", readable_by=REVIEWERS)
    start = await world.last_event()
    await world.review.delete("verdict", branch="try")
    world.clock.advance(seconds=61)
    await world.review.write("other", "x", branch="try")
    assert await events_of(world.analysis, start) == [("branch.written", "other")]
    assert await events_of(world.review, start) == [
        ("branch.deleted", "verdict"),
        ("branch.expired", "passing"),
        ("branch.written", "other"),
    ]
    log = (await world.analysis.call("history.log", context_id=f"{BOARD}@try"))["commits"]
    assert {change["key"] for commit in log for change in commit["changes"]} == {"other"}


async def test_the_shown_acl_of_a_key_is_its_current_one(world: World) -> None:
    await world.review.write("verdict", "draft")
    await branch(world.planner, "try")
    await world.review.write("verdict", "secret", readable_by=REVIEWERS)
    (info,) = (await world.review.list(branch="try"))["keys"]
    assert info["readable_by"] == REVIEWERS


@pytest.mark.req("SC-11")
async def test_a_principal_without_read_access_cannot_change_the_acl(world: World) -> None:
    await world.planner.write("plan", "the old secret")
    await world.planner.write("plan", "closed", readable_by=["orchestrator"])
    with refused("PERMISSION_DENIED"):
        await world.analysis.write("plan", "added without looking")
    with refused("PERMISSION_DENIED"):
        await world.analysis.write("plan", "opened", readable_by=["*"])
    with refused("KEY_NOT_FOUND"):
        await world.analysis.history("plan")
