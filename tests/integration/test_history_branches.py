"""Branches of any line, merges, and reviews by humans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import refused

if TYPE_CHECKING:
    from support.world import Caller, World

MAIN = "board:s1"
TRY = "board:s1@try"


async def history(caller: Caller, verb: str, **what: Any) -> Any:
    return await caller.call(f"history.{verb}", **{"context_id": MAIN, **what})


async def state(caller: Caller, line: str = MAIN, version: str = "head") -> dict[str, str]:
    answer = await history(caller, "state", context_id=line, version=version)
    return {entry["key"]: entry["value"] for entry in answer["entries"]}


async def merge(caller: Caller, source: str = TRY, target: str = MAIN, **what: Any) -> Any:
    return await history(caller, "merge", context_id=target, from_context_id=source, **what)


async def events(caller: Caller, *types: str) -> list[str]:
    return [e["type"] for e in (await caller.events(session_id="s1"))["events"] if e["type"].startswith(types)]


@pytest.fixture
async def branched(world: World) -> World:
    """A board with two keys and a branch made from it."""
    await world.planner.write("goal", "ship")
    await world.planner.write("plan", "first this")
    await history(world.planner, "branch", branch="try")
    return world


@pytest.mark.req("CE-F25")
async def test_a_branch_changes_independently(branched: World) -> None:
    await branched.planner.write("goal", "ship early", branch="try")
    await branched.analysis.write("extra", "x", branch="try")
    await branched.planner.write("plan", "then that")
    assert await state(branched.planner, TRY) == {"goal": "ship early", "plan": "first this", "extra": "x"}
    assert await state(branched.planner) == {"goal": "ship", "plan": "then that"}
    listed = await history(branched.planner, "branches")
    assert [(b["branch"], b["version"], b["from_version"]) for b in listed["branches"]] == [("try", 4, 2)]
    assert listed["current"] == "main"
    between = await history(branched.planner, "diff", from_version="head", other_context_id=TRY)
    assert [d["key"] for d in between["modified"]] == ["goal", "plan"]


@pytest.mark.req("CE-F25")
async def test_a_branch_can_start_at_any_version_and_at_another_branch(branched: World) -> None:
    await history(branched.planner, "branch", branch="old", from_version="1")
    await history(branched.planner, "branch", branch="empty", from_version="0")
    await branched.planner.write("goal", "later", branch="try")
    made = await history(branched.planner, "branch", context_id=TRY, branch="child")
    assert (made["context_id"], made["from_context_id"], made["from_version"]) == ("board:s1@child", TRY, 3)
    assert await state(branched.planner, "board:s1@old") == {"goal": "ship"}
    assert await state(branched.planner, "board:s1@empty") == {}
    assert await state(branched.planner, "board:s1@child") == {"goal": "later", "plan": "first this"}


async def test_branch_names_are_unique(branched: World) -> None:
    with refused("BRANCH_EXISTS"):
        await history(branched.planner, "branch", branch="try")
    for name in ("main", "head"):
        with refused("INVALID_INPUT_FORMAT"):
            await history(branched.planner, "branch", branch=name)
    with refused("VERSION_NOT_FOUND"):
        await history(branched.planner, "branch", branch="b", from_version="99")


@pytest.mark.req("CE-F25")
async def test_a_switch_applies_to_the_caller_s_own_calls(branched: World) -> None:
    switched = await history(branched.analysis, "switch", branch="try")
    assert switched == {"context_id": TRY, "branch": "try"}
    await branched.analysis.write("goal", "explored")
    assert await branched.planner.value("goal") == "ship"
    assert await branched.analysis.value("goal") == "explored"
    assert (await history(branched.analysis, "branches"))["current"] == "try"
    await history(branched.analysis, "switch", branch="main")
    assert await branched.analysis.value("goal") == "ship"
    with refused("BRANCH_NOT_FOUND"):
        await history(branched.analysis, "switch", branch="none")


@pytest.mark.req("CE-F26")
async def test_changes_of_one_side_are_merged_automatically(branched: World) -> None:
    await branched.planner.write("goal", "ship early", branch="try")
    await branched.planner.write("extra", "x", branch="try")
    await branched.planner.delete("plan", branch="try")
    await branched.planner.write("other", "y")
    merged = await merge(branched.planner, reason="good idea", step="decide")
    assert merged == {"context_id": MAIN, "merged": True, "version": 4, "taken": ["extra", "goal", "plan"]}
    assert await state(branched.planner) == {"goal": "ship early", "extra": "x", "other": "y"}
    commit = (await history(branched.planner, "show"))["commit"]
    assert (commit["reason"], commit["step"]) == ("good idea", "decide")
    assert (commit["merged"]["context_id"], commit["merged"]["version"]) == (TRY, 5)
    assert (await history(branched.planner, "verify"))["intact"]
    labels = [s["label"] for s in (await branched.planner.call("history.snapshots", context_id=MAIN))["snapshots"]]
    assert labels == ["before-merge-v3"]


@pytest.mark.req("CE-F26")
async def test_merges_work_in_both_directions_and_merge_each_change_once(branched: World) -> None:
    await branched.planner.write("goal", "one", branch="try")
    await merge(branched.planner)
    assert (await merge(branched.planner))["version"] == 3
    await branched.planner.write("plan", "main again")
    back = await merge(branched.planner, source=MAIN, target=TRY)
    assert (back["merged"], back["taken"]) == (True, ["plan"])
    await branched.planner.write("goal", "two", branch="try")
    await branched.planner.write("plan", "main once more")
    assert (await merge(branched.planner))["taken"] == ["goal"]
    assert await state(branched.planner) == {"goal": "two", "plan": "main once more"}
    assert (await merge(branched.planner, source=MAIN, target=TRY))["taken"] == ["plan"]
    assert await state(branched.planner, TRY) == await state(branched.planner)


@pytest.mark.req("CE-F26")
async def test_the_same_change_on_both_sides_is_no_conflict(branched: World) -> None:
    await branched.planner.write("goal", "same", branch="try")
    await branched.planner.write("goal", "same")
    merged = await merge(branched.planner)
    assert (merged["merged"], merged["version"], merged.get("taken")) == (True, 4, None)
    await branched.planner.write("goal", "moved on", branch="try")
    assert (await merge(branched.planner))["taken"] == ["goal"]


async def test_unrelated_lines_cannot_be_merged(branched: World) -> None:
    await branched.planner.create_session("s2")
    with refused("UNRELATED_CONTEXTS"):
        await merge(branched.planner, source="board:s2")


@pytest.fixture
async def conflicting(branched: World) -> World:
    """Both sides changed the goal; only the branch changed the plan."""
    await branched.planner.write("goal", "theirs", branch="try")
    await branched.planner.write("plan", "theirs", branch="try")
    await branched.planner.write("goal", "ours")
    return branched


@pytest.mark.req("CE-F26")
async def test_conflicts_wait_for_a_human_review(conflicting: World) -> None:
    answer = await merge(conflicting.planner, reason="try it")
    assert (answer["merged"], answer["version"]) == (False, 3)
    (conflict,) = answer["conflicts"]
    assert conflict["key"] == "goal"
    assert [conflict[side]["value"] for side in ("base", "ours", "theirs")] == ["ship", "ours", "theirs"]
    assert await state(conflicting.planner) == {"goal": "ours", "plan": "first this"}
    (review,) = (await conflicting.admin.call("history.reviews", state="open"))["reviews"]
    assert (review["review_id"], review["reason"], review["conflicts"]) == (
        answer["review_id"],
        "try it",
        answer["conflicts"],
    )
    again = await merge(conflicting.planner)
    assert again["review_id"] == answer["review_id"]
    assert await events(conflicting.admin, "history.review") == ["history.review_opened"]


@pytest.mark.req("CE-F26")
@pytest.mark.parametrize(
    ("resolution", "value"),
    [
        ({"take": "ours"}, "ours"),
        ({"take": "theirs"}, "theirs"),
        ({"take": "base"}, "ship"),
        ({"take": "value", "value": "both"}, "both"),
        ({"take": "value", "value": {"a": None}}, {"a": None}),
    ],
)
async def test_a_human_resolves_a_conflict(conflicting: World, resolution: dict[str, Any], value: Any) -> None:
    review_id = (await merge(conflicting.planner))["review_id"]
    resolved = await conflicting.admin.call("history.resolve", review_id=review_id, resolutions={"goal": resolution})
    assert (resolved["version"], resolved["taken"]) == (4, ["goal", "plan"])
    assert await state(conflicting.planner) == {"goal": value, "plan": "theirs"}
    assert (await merge(conflicting.planner)) == {"context_id": MAIN, "merged": True, "version": 4}
    (review,) = (await conflicting.admin.call("history.reviews"))["reviews"]
    assert (review["state"], review["decided_by"]) == ("resolved", "human:admin")
    with refused("REVIEW_CLOSED"):
        await conflicting.admin.call("history.resolve", review_id=review_id, resolutions={"goal": resolution})
    audited = [row for row in await conflicting.admin.audit() if row["action"] == "history.resolve"]
    assert [row["outcome"] for row in audited] == ["done"]
    assert "resolutions" not in audited[0]["detail"]
    assert await conflicting.rows("SELECT 1 FROM pins WHERE tenant = $1", conflicting.tenant) == []


@pytest.mark.req("CE-F26")
async def test_only_a_human_resolves_and_only_all_conflicts_at_once(conflicting: World) -> None:
    review_id = (await merge(conflicting.planner))["review_id"]
    ours = {"goal": {"take": "ours"}}
    with refused("PERMISSION_DENIED"):
        await conflicting.planner.call("history.resolve", review_id=review_id, resolutions=ours)
    for wrong in ({}, {**ours, "plan": {"take": "ours"}}, {"goal": {"take": "value"}}):
        with refused("INVALID_INPUT_FORMAT"):
            await conflicting.admin.call("history.resolve", review_id=review_id, resolutions=wrong)
    with refused("VALUE_TOO_LARGE"):
        large = {"goal": {"take": "value", "value": "word " * 5_000}}
        await conflicting.admin.call("history.resolve", review_id=review_id, resolutions=large)
    with refused("REVIEW_NOT_FOUND"):
        await conflicting.admin.call("history.resolve", review_id="review_none", resolutions=ours)
    assert await state(conflicting.planner) == {"goal": "ours", "plan": "first this"}


@pytest.mark.req("CE-F26")
async def test_an_outdated_resolution_is_refused_and_the_review_refreshed(
    conflicting: World,
) -> None:
    review_id = (await merge(conflicting.planner))["review_id"]
    await conflicting.planner.write("plan", "ours too")
    await conflicting.planner.write("other", "no matter", branch="try")
    with refused("VERSION_CONFLICT") as caught:
        await conflicting.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "ours"}})
    assert caught.value.context["conflicts"] == ["goal", "plan"]
    (review,) = (await conflicting.admin.call("history.reviews", context_id=MAIN))["reviews"]
    assert [c["key"] for c in review["conflicts"]] == ["goal", "plan"]
    decided = {"goal": {"take": "ours"}, "plan": {"take": "theirs"}}
    await conflicting.admin.call("history.resolve", review_id=review_id, resolutions=decided)
    assert await state(conflicting.planner) == {"goal": "ours", "plan": "theirs", "other": "no matter"}


@pytest.mark.req("CE-F26")
async def test_a_review_stays_valid_while_other_keys_change(conflicting: World) -> None:
    review_id = (await merge(conflicting.planner))["review_id"]
    await conflicting.planner.write("other", "no matter")
    await conflicting.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "theirs"}})
    assert (await state(conflicting.planner))["goal"] == "theirs"


async def test_a_review_can_be_closed(conflicting: World) -> None:
    review_id = (await merge(conflicting.planner))["review_id"]
    assert (await conflicting.planner.call("history.close_review", review_id=review_id))["state"] == "abandoned"
    with refused("REVIEW_CLOSED"):
        await conflicting.planner.call("history.close_review", review_id=review_id)
    assert (await merge(conflicting.planner))["review_id"] != review_id
    assert await events(conflicting.admin, "history.review") == [
        "history.review_opened",
        "history.review_closed",
        "history.review_opened",
    ]


async def test_unreadable_conflicts_are_only_counted(conflicting: World) -> None:
    closed = {"readable_by": ["orchestrator", "human:*"]}
    await conflicting.planner.write("secret", "a", branch="try", **closed)
    await conflicting.planner.write("secret", "b", **closed)
    answer = await merge(conflicting.analysis)
    assert ([c["key"] for c in answer["conflicts"]], answer["hidden_conflicts"]) == (["goal"], 1)
    (review,) = (await conflicting.analysis.call("history.reviews", context_id="board:s1"))["reviews"]
    assert ([c["key"] for c in review["conflicts"]], review["hidden_conflicts"]) == (["goal"], 1)
    (whole,) = (await conflicting.admin.call("history.reviews"))["reviews"]
    assert [c["key"] for c in whole["conflicts"]] == ["goal", "secret"]


async def test_resolving_needs_read_access_to_every_conflict(conflicting: World) -> None:
    for branch in ("try", "main"):
        await conflicting.planner.write("secret", branch, branch=branch, readable_by=["orchestrator"])
    review_id = (await merge(conflicting.planner))["review_id"]
    with refused("PERMISSION_DENIED"):
        await conflicting.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "ours"}})


async def test_a_merge_does_not_reveal_hidden_keys(branched: World) -> None:
    await branched.planner.write("secret", "x", branch="try", readable_by=["orchestrator"])
    await branched.planner.write("goal", "new", branch="try")
    merged = await merge(branched.analysis)
    assert merged["taken"] == ["goal"]
    assert (await state(branched.planner))["secret"] == "x"
    assert "secret" not in await state(branched.analysis)


@pytest.mark.req("CE-F25")
async def test_a_branch_is_deleted_if_merged_or_forced(branched: World) -> None:
    await branched.planner.write("goal", "tried", branch="try")
    with refused("BRANCH_NOT_MERGED"):
        await history(branched.planner, "delete_branch", branch="try")
    await history(branched.planner, "branch", context_id=TRY, branch="child")
    with refused("BRANCH_IN_USE") as caught:
        await history(branched.planner, "delete_branch", branch="try", force=True)
    assert caught.value.context["branches"] == ["board:s1@child"]
    await history(branched.planner, "delete_branch", branch="child")
    await merge(branched.planner)
    deleted = await history(branched.planner, "delete_branch", branch="try")
    assert (deleted["deleted"], deleted["version"]) == ("try", 3)
    with refused("BRANCH_NOT_FOUND"):
        await history(branched.planner, "delete_branch", branch="try")
    assert await state(branched.planner) == {"goal": "tried", "plan": "first this"}
    assert (await history(branched.planner, "verify"))["intact"]


async def test_calls_on_a_deleted_checked_out_branch_name_the_branch(branched: World) -> None:
    await history(branched.analysis, "switch", branch="try")
    await history(branched.planner, "delete_branch", branch="try", force=True)
    for verb in ("log", "state", "blame"):
        with refused("BRANCH_NOT_FOUND"):
            await history(branched.planner, verb, context_id=TRY)
    with refused("BRANCH_NOT_FOUND"):
        await merge(branched.planner)


async def test_deleting_a_branch_closes_its_reviews(conflicting: World) -> None:
    into_main = (await merge(conflicting.planner))["review_id"]
    into_branch = (await merge(conflicting.planner, source=MAIN, target=TRY))["review_id"]
    await history(conflicting.planner, "delete_branch", branch="try", force=True)
    reviews = (await conflicting.admin.call("history.reviews"))["reviews"]
    assert {r["review_id"]: r["state"] for r in reviews} == {into_main: "abandoned", into_branch: "abandoned"}
    of_branch = (await conflicting.admin.call("history.reviews", context_id=TRY))["reviews"]
    assert [review["review_id"] for review in of_branch] == [into_branch]
    decided = await conflicting.admin.call("history.review", review_id=into_branch)
    assert decided["decided_by"] == "orchestrator:planner"
    with refused("REVIEW_NOT_FOUND"):
        await conflicting.stranger.call("history.review", review_id=into_branch)
    assert await conflicting.rows("SELECT 1 FROM pins WHERE tenant = $1", conflicting.tenant) == []
    with refused("REVIEW_CLOSED"):
        await conflicting.admin.call("history.resolve", review_id=into_main, resolutions={"goal": {"take": "ours"}})


async def test_a_recreated_branch_shares_nothing_with_the_deleted_one(branched: World) -> None:
    await branched.planner.write("goal", "first try", branch="try")
    await merge(branched.planner)
    await history(branched.planner, "delete_branch", branch="try")
    await history(branched.planner, "branch", branch="try", from_version="2")
    assert await state(branched.planner, TRY) == {"goal": "ship", "plan": "first this"}
    await branched.planner.write("plan", "second try", branch="try")
    assert (await merge(branched.planner))["taken"] == ["plan"]


async def test_sub_agents_cannot_delete_branches(branched: World) -> None:
    with refused("PERMISSION_DENIED"):
        await history(branched.analysis, "delete_branch", branch="try")


async def test_branches_and_merges_are_published_as_events(branched: World) -> None:
    await branched.planner.write("goal", "x", branch="try")
    await merge(branched.planner)
    await history(branched.planner, "delete_branch", branch="try")
    assert await events(branched.analysis, "history.") == [
        "history.branched",
        "history.merged",
        "history.branch_deleted",
    ]
    with refused("SESSION_NOT_FOUND"):
        await events(branched.stranger, "history.")


@pytest.mark.req("CE-F26")
async def test_a_review_is_closed_by_a_clean_merge_or_with_its_branch(conflicting: World) -> None:
    await merge(conflicting.planner)
    (review,) = (await history(conflicting.planner, "reviews"))["reviews"]
    shown = await conflicting.analysis.call("history.review", review_id=review["review_id"])
    assert (shown["state"], shown["conflicts"]) == ("open", review["conflicts"])
    await conflicting.planner.write("goal", await conflicting.planner.value("goal", branch="try"))
    assert (await merge(conflicting.planner))["merged"]
    assert await events(conflicting.analysis, "history.review") == ["history.review_opened", "history.review_closed"]
    shown = await conflicting.analysis.call("history.review", review_id=review["review_id"])
    assert (shown["state"], shown["decided_by"]) == ("superseded", "orchestrator:planner")
    listed = (await conflicting.analysis.call("history.reviews", context_id="board:s1", state="superseded"))["reviews"]
    assert [each["review_id"] for each in listed] == [review["review_id"]]
    await conflicting.planner.write("goal", "here")
    await conflicting.planner.write("goal", "there", branch="try")
    await merge(conflicting.planner)
    await history(conflicting.planner, "delete_branch", branch="try", force=True)
    assert (await events(conflicting.analysis, "history.review"))[2:] == [
        "history.review_opened",
        "history.review_closed",
    ]
    for caller, review_id in ((conflicting.stranger, review["review_id"]), (conflicting.planner, "review_none")):
        with refused("REVIEW_NOT_FOUND"):
            await caller.call("history.review", review_id=review_id)


@pytest.mark.req("CE-F25")
@pytest.mark.req("CE-F26")
async def test_an_agents_whole_context_branches_and_merges_entry_by_entry(world: World) -> None:
    def learned(**entries: str) -> list[dict[str, str]]:
        return [{"memory_type": "learned_knowledge", "key": key, "value": value} for key, value in entries.items()]

    planner, line = world.planner, "context:planner"
    await planner.call("context.push", knowledge=learned(tone="formal", style="short"), if_version=0)
    await history(planner, "branch", context_id=line, branch="try")
    await planner.call("context.push", knowledge=learned(tone="casual"), if_version=1, branch="try")
    await planner.call("context.push", knowledge=learned(style="long"), if_version=1)
    merged = await merge(planner, source=f"{line}@try", target=line)
    assert (merged["merged"], merged["taken"]) == (True, ["learned_knowledge/tone"])
    assert await state(planner, f"{line}:learned_knowledge") == {"tone": "casual", "style": "long"}
    version = merged["version"]
    await planner.call("context.push", knowledge=learned(tone="rude"), if_version=2, branch="try")
    await planner.call("context.push", knowledge=learned(tone="kind"), if_version=version)
    answer = await merge(planner, source=f"{line}@try", target=line)
    (conflict,) = answer["conflicts"]
    assert conflict["key"] == "learned_knowledge/tone"
    assert [conflict[side]["value"] for side in ("base", "ours", "theirs")] == ["casual", "kind", "rude"]
    (review,) = (await world.admin.call("history.reviews"))["reviews"]
    assert review["conflicts"] == answer["conflicts"]
    chosen = {"learned_knowledge/tone": {"take": "value", "value": "friendly"}}
    await world.admin.call("history.resolve", review_id=review["review_id"], resolutions=chosen)
    assert await state(planner, f"{line}:learned_knowledge") == {"tone": "friendly", "style": "long"}
    between = await history(planner, "diff", context_id=line, from_version=str(version))
    assert [d["key"] for d in between["modified"]] == ["learned_knowledge/tone"]
    assert (await history(planner, "verify", context_id=line, deep=True))["intact"]


async def test_deleting_a_session_deletes_its_reviews_even_of_deleted_branches(conflicting: World) -> None:
    await merge(conflicting.planner)
    await merge(conflicting.planner, source=MAIN, target=TRY)
    await history(conflicting.planner, "delete_branch", branch="try", force=True)
    await conflicting.planner.call("session.archive", session_id="s1")
    await conflicting.admin.call("session.delete", session_id="s1", force=True)
    assert await conflicting.rows("SELECT 1 FROM reviews WHERE tenant = $1", conflicting.tenant) == []


@pytest.mark.req("CE-F26")
@pytest.mark.parametrize("what", [{"readable_by": ["orchestrator", "human:*"]}, {"ttl_seconds": 500}])
async def test_a_changed_acl_or_ttl_makes_a_resolution_outdated(conflicting: World, what: dict[str, Any]) -> None:
    review_id = (await merge(conflicting.planner))["review_id"]
    await conflicting.planner.write("goal", "theirs", branch="try", **what)
    with refused("VERSION_CONFLICT"):
        await conflicting.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "theirs"}})
    await conflicting.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "theirs"}})
    assert (await state(conflicting.planner))["goal"] == "theirs"


async def test_a_refused_resolution_names_no_hidden_key(conflicting: World) -> None:
    review_id = (await merge(conflicting.planner))["review_id"]
    for branch in ("try", "main"):
        await conflicting.planner.write("secret", branch, branch=branch, readable_by=["orchestrator"])
    with refused("VERSION_CONFLICT") as caught:
        await conflicting.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "ours"}})
    assert (caught.value.context["conflicts"], caught.value.context["hidden_conflicts"]) == (["goal"], 1)


async def test_a_branch_that_is_a_merge_base_is_deleted_only_when_forced(branched: World) -> None:
    await history(branched.planner, "branch", branch="other")
    await branched.planner.write("goal", "tried", branch="try")
    await merge(branched.planner)
    await merge(branched.planner, target="board:s1@other")
    with refused("BRANCH_IN_USE") as caught:
        await history(branched.planner, "delete_branch", branch="try")
    assert caught.value.context["merged_by"] == [MAIN, "board:s1@other"]
    await history(branched.planner, "delete_branch", branch="try", force=True)
    assert await state(branched.planner) == await state(branched.planner, "board:s1@other")


async def test_merges_are_audited(branched: World) -> None:
    await branched.planner.write("goal", "tried", branch="try")
    await merge(branched.planner)
    (row,) = [row for row in await branched.admin.audit() if row["action"] == "history.merge"]
    assert (row["outcome"], row["target"], row["detail"]) == ("done", f"{MAIN}/{TRY}", {"merged": True, "version": 3})


async def test_changes_to_an_archived_session_are_refused(branched: World) -> None:
    await branched.planner.write("goal", "tried", branch="try")
    await branched.planner.call("session.archive", session_id="s1")
    calls: dict[str, dict[str, Any]] = {
        "merge": {"from_context_id": TRY},
        "branch": {"branch": "late"},
        "snapshot": {"label": "late"},
        "rollback": {"target_version": 1},
    }
    for verb, what in calls.items():
        with refused("SESSION_ARCHIVED") as caught:
            await history(branched.admin, verb, **what)
        operation = branched.app.registry[f"history.{verb}"]
        assert type(caught.value) in operation.errors, verb
