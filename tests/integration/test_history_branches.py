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
async def parted(world: World) -> World:
    """A board with two keys and a branch made from it."""
    await world.planner.write("goal", "ship")
    await world.planner.write("plan", "first this")
    await history(world.planner, "branch", branch="try")
    return world


@pytest.mark.req("CE-F25")
async def test_a_branch_changes_independently(parted: World) -> None:
    await parted.planner.write("goal", "ship early", branch="try")
    await parted.analysis.write("extra", "x", branch="try")
    await parted.planner.write("plan", "then that")
    assert await state(parted.planner, TRY) == {"goal": "ship early", "plan": "first this", "extra": "x"}
    assert await state(parted.planner) == {"goal": "ship", "plan": "then that"}
    listed = await history(parted.planner, "branches")
    assert [(b["branch"], b["version"], b["from_version"]) for b in listed["branches"]] == [("try", 4, 2)]
    assert listed["current"] == "main"
    between = await history(parted.planner, "diff", from_version="head", other_context_id=TRY)
    assert [d["key"] for d in between["modified"]] == ["goal", "plan"]


@pytest.mark.req("CE-F25")
async def test_a_branch_can_begin_at_any_version_and_at_another_branch(parted: World) -> None:
    await history(parted.planner, "branch", branch="old", from_version="1")
    await history(parted.planner, "branch", branch="empty", from_version="0")
    await parted.planner.write("goal", "later", branch="try")
    made = await history(parted.planner, "branch", context_id=TRY, branch="child")
    assert (made["context_id"], made["from_context_id"], made["from_version"]) == ("board:s1@child", TRY, 3)
    assert await state(parted.planner, "board:s1@old") == {"goal": "ship"}
    assert await state(parted.planner, "board:s1@empty") == {}
    assert await state(parted.planner, "board:s1@child") == {"goal": "later", "plan": "first this"}


async def test_names_of_branches_are_taken_once(parted: World) -> None:
    with refused("BRANCH_EXISTS"):
        await history(parted.planner, "branch", branch="try")
    for name in ("main", "head"):
        with refused("INVALID_INPUT_FORMAT"):
            await history(parted.planner, "branch", branch=name)
    with refused("VERSION_NOT_FOUND"):
        await history(parted.planner, "branch", branch="b", from_version="99")


@pytest.mark.req("CE-F25")
async def test_a_switch_changes_what_the_callers_own_calls_mean(parted: World) -> None:
    switched = await history(parted.analysis, "switch", branch="try")
    assert switched == {"context_id": TRY, "branch": "try"}
    await parted.analysis.write("goal", "explored")
    assert await parted.planner.value("goal") == "ship"
    assert await parted.analysis.value("goal") == "explored"
    assert (await history(parted.analysis, "branches"))["current"] == "try"
    await history(parted.analysis, "switch", branch="main")
    assert await parted.analysis.value("goal") == "ship"
    with refused("BRANCH_NOT_FOUND"):
        await history(parted.analysis, "switch", branch="none")


@pytest.mark.req("CE-F26")
async def test_what_only_one_side_changed_is_merged_by_itself(parted: World) -> None:
    await parted.planner.write("goal", "ship early", branch="try")
    await parted.planner.write("extra", "x", branch="try")
    await parted.planner.delete("plan", branch="try")
    await parted.planner.write("other", "y")
    merged = await merge(parted.planner, reason="good idea", step="decide")
    assert merged == {"context_id": MAIN, "merged": True, "version": 4, "taken": ["extra", "goal", "plan"]}
    assert await state(parted.planner) == {"goal": "ship early", "extra": "x", "other": "y"}
    commit = (await history(parted.planner, "show"))["commit"]
    assert (commit["reason"], commit["step"]) == ("good idea", "decide")
    assert (commit["merged"]["context_id"], commit["merged"]["version"]) == (TRY, 5)
    assert (await history(parted.planner, "verify"))["intact"]
    labels = [s["label"] for s in (await parted.planner.call("history.snapshots", context_id=MAIN))["snapshots"]]
    assert labels == ["before-merge-v3"]


@pytest.mark.req("CE-F26")
async def test_merges_go_both_ways_and_each_change_is_merged_once(parted: World) -> None:
    await parted.planner.write("goal", "one", branch="try")
    await merge(parted.planner)
    assert (await merge(parted.planner))["version"] == 3
    await parted.planner.write("plan", "main again")
    back = await merge(parted.planner, source=MAIN, target=TRY)
    assert (back["merged"], back["taken"]) == (True, ["plan"])
    await parted.planner.write("goal", "two", branch="try")
    await parted.planner.write("plan", "main once more")
    assert (await merge(parted.planner))["taken"] == ["goal"]
    assert await state(parted.planner) == {"goal": "two", "plan": "main once more"}
    assert (await merge(parted.planner, source=MAIN, target=TRY))["taken"] == ["plan"]
    assert await state(parted.planner, TRY) == await state(parted.planner)


@pytest.mark.req("CE-F26")
async def test_the_same_change_on_both_sides_is_no_conflict(parted: World) -> None:
    await parted.planner.write("goal", "same", branch="try")
    await parted.planner.write("goal", "same")
    merged = await merge(parted.planner)
    assert (merged["merged"], merged["version"], merged.get("taken")) == (True, 4, None)
    await parted.planner.write("goal", "moved on", branch="try")
    assert (await merge(parted.planner))["taken"] == ["goal"]


async def test_unrelated_lines_cannot_be_merged(parted: World) -> None:
    await parted.planner.create_session("s2")
    with refused("UNRELATED_CONTEXTS"):
        await merge(parted.planner, source="board:s2")


@pytest.fixture
async def at_odds(parted: World) -> World:
    """Both sides changed the goal; only the branch changed the plan."""
    await parted.planner.write("goal", "theirs", branch="try")
    await parted.planner.write("plan", "theirs", branch="try")
    await parted.planner.write("goal", "ours")
    return parted


@pytest.mark.req("CE-F26")
async def test_what_both_sides_changed_waits_for_a_human(at_odds: World) -> None:
    answer = await merge(at_odds.planner, reason="try it")
    assert (answer["merged"], answer["version"]) == (False, 3)
    (conflict,) = answer["conflicts"]
    assert conflict["key"] == "goal"
    assert [conflict[side]["value"] for side in ("base", "ours", "theirs")] == ["ship", "ours", "theirs"]
    assert await state(at_odds.planner) == {"goal": "ours", "plan": "first this"}
    (review,) = (await at_odds.admin.call("history.reviews", state="open"))["reviews"]
    assert (review["review_id"], review["reason"], review["conflicts"]) == (
        answer["review_id"],
        "try it",
        answer["conflicts"],
    )
    again = await merge(at_odds.planner)
    assert again["review_id"] == answer["review_id"]
    assert await events(at_odds.admin, "history.review") == ["history.review_opened"]


@pytest.mark.req("CE-F26")
@pytest.mark.parametrize(
    ("resolution", "value"),
    [
        ({"take": "ours"}, "ours"),
        ({"take": "theirs"}, "theirs"),
        ({"take": "base"}, "ship"),
        ({"take": "value", "value": "both"}, "both"),
    ],
)
async def test_a_human_decides(at_odds: World, resolution: dict[str, str], value: str) -> None:
    review_id = (await merge(at_odds.planner))["review_id"]
    resolved = await at_odds.admin.call("history.resolve", review_id=review_id, resolutions={"goal": resolution})
    assert (resolved["version"], resolved["taken"]) == (4, ["goal", "plan"])
    assert await state(at_odds.planner) == {"goal": value, "plan": "theirs"}
    assert (await merge(at_odds.planner)) == {"context_id": MAIN, "merged": True, "version": 4}
    (review,) = (await at_odds.admin.call("history.reviews"))["reviews"]
    assert (review["state"], review["decided_by"]) == ("resolved", "human:admin")
    with refused("REVIEW_CLOSED"):
        await at_odds.admin.call("history.resolve", review_id=review_id, resolutions={"goal": resolution})
    audited = [row for row in await at_odds.admin.audit() if row["action"] == "history.resolve"]
    assert [row["outcome"] for row in audited] == ["done"]
    assert "resolutions" not in audited[0]["detail"]
    assert await at_odds.rows("SELECT 1 FROM pins WHERE tenant = $1", at_odds.tenant) == []


@pytest.mark.req("CE-F26")
async def test_only_a_human_can_decide_and_only_about_everything(at_odds: World) -> None:
    review_id = (await merge(at_odds.planner))["review_id"]
    ours = {"goal": {"take": "ours"}}
    with refused("PERMISSION_DENIED"):
        await at_odds.planner.call("history.resolve", review_id=review_id, resolutions=ours)
    for wrong in ({}, {**ours, "plan": {"take": "ours"}}, {"goal": {"take": "value", "value": {"a": 1}}}):
        with refused("INVALID_INPUT_FORMAT"):
            await at_odds.admin.call("history.resolve", review_id=review_id, resolutions=wrong)
    with refused("VALUE_TOO_LARGE"):
        large = {"goal": {"take": "value", "value": "word " * 5_000}}
        await at_odds.admin.call("history.resolve", review_id=review_id, resolutions=large)
    with refused("REVIEW_NOT_FOUND"):
        await at_odds.admin.call("history.resolve", review_id="review_none", resolutions=ours)
    assert await state(at_odds.planner) == {"goal": "ours", "plan": "first this"}


@pytest.mark.req("CE-F26")
async def test_an_outdated_resolution_is_refused_and_the_review_refreshed(
    at_odds: World,
) -> None:
    review_id = (await merge(at_odds.planner))["review_id"]
    await at_odds.planner.write("plan", "ours too")
    await at_odds.planner.write("other", "no matter", branch="try")
    with refused("VERSION_CONFLICT") as caught:
        await at_odds.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "ours"}})
    assert caught.value.context["conflicts"] == ["goal", "plan"]
    (review,) = (await at_odds.admin.call("history.reviews", context_id=MAIN))["reviews"]
    assert [c["key"] for c in review["conflicts"]] == ["goal", "plan"]
    decided = {"goal": {"take": "ours"}, "plan": {"take": "theirs"}}
    await at_odds.admin.call("history.resolve", review_id=review_id, resolutions=decided)
    assert await state(at_odds.planner) == {"goal": "ours", "plan": "theirs", "other": "no matter"}


@pytest.mark.req("CE-F26")
async def test_a_review_stays_good_while_the_sides_move_elsewhere(at_odds: World) -> None:
    review_id = (await merge(at_odds.planner))["review_id"]
    await at_odds.planner.write("other", "no matter")
    await at_odds.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "theirs"}})
    assert (await state(at_odds.planner))["goal"] == "theirs"


async def test_a_review_can_be_given_up(at_odds: World) -> None:
    review_id = (await merge(at_odds.planner))["review_id"]
    assert (await at_odds.planner.call("history.close_review", review_id=review_id))["state"] == "abandoned"
    with refused("REVIEW_CLOSED"):
        await at_odds.planner.call("history.close_review", review_id=review_id)
    assert (await merge(at_odds.planner))["review_id"] != review_id
    assert await events(at_odds.admin, "history.review") == [
        "history.review_opened",
        "history.review_closed",
        "history.review_opened",
    ]


async def test_conflicts_about_what_a_caller_may_not_read_are_only_counted(at_odds: World) -> None:
    closed = {"readable_by": ["orchestrator", "human:*"]}
    await at_odds.planner.write("secret", "a", branch="try", **closed)
    await at_odds.planner.write("secret", "b", **closed)
    answer = await merge(at_odds.analysis)
    assert ([c["key"] for c in answer["conflicts"]], answer["hidden_conflicts"]) == (["goal"], 1)
    (review,) = (await at_odds.analysis.call("history.reviews"))["reviews"]
    assert ([c["key"] for c in review["conflicts"]], review["hidden_conflicts"]) == (["goal"], 1)
    (whole,) = (await at_odds.admin.call("history.reviews"))["reviews"]
    assert [c["key"] for c in whole["conflicts"]] == ["goal", "secret"]


async def test_who_cannot_read_all_that_is_in_conflict_cannot_decide(at_odds: World) -> None:
    for branch in ("try", "main"):
        await at_odds.planner.write("secret", branch, branch=branch, readable_by=["orchestrator"])
    review_id = (await merge(at_odds.planner))["review_id"]
    with refused("PERMISSION_DENIED"):
        await at_odds.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "ours"}})


async def test_a_merge_does_not_reveal_hidden_keys(parted: World) -> None:
    await parted.planner.write("secret", "x", branch="try", readable_by=["orchestrator"])
    await parted.planner.write("goal", "new", branch="try")
    merged = await merge(parted.analysis)
    assert merged["taken"] == ["goal"]
    assert (await state(parted.planner))["secret"] == "x"
    assert "secret" not in await state(parted.analysis)


@pytest.mark.req("CE-F25")
async def test_a_branch_is_deleted_when_it_is_merged_or_on_purpose(parted: World) -> None:
    await parted.planner.write("goal", "tried", branch="try")
    with refused("BRANCH_NOT_MERGED"):
        await history(parted.planner, "delete_branch", branch="try")
    await history(parted.planner, "branch", context_id=TRY, branch="child")
    with refused("BRANCH_IN_USE") as caught:
        await history(parted.planner, "delete_branch", branch="try", force=True)
    assert caught.value.context["branches"] == ["board:s1@child"]
    await history(parted.planner, "delete_branch", branch="child")
    await merge(parted.planner)
    deleted = await history(parted.planner, "delete_branch", branch="try")
    assert (deleted["deleted"], deleted["version"]) == ("try", 3)
    with refused("BRANCH_NOT_FOUND"):
        await history(parted.planner, "delete_branch", branch="try")
    assert await state(parted.planner) == {"goal": "tried", "plan": "first this"}
    assert (await history(parted.planner, "verify"))["intact"]


async def test_a_branch_deleted_under_its_users_is_named(parted: World) -> None:
    await history(parted.analysis, "switch", branch="try")
    await history(parted.planner, "delete_branch", branch="try", force=True)
    for verb in ("log", "state", "blame"):
        with refused("BRANCH_NOT_FOUND"):
            await history(parted.planner, verb, context_id=TRY)
    with refused("BRANCH_NOT_FOUND"):
        await merge(parted.planner)


async def test_a_branch_is_deleted_with_what_was_to_be_decided_about_it(at_odds: World) -> None:
    into_main = (await merge(at_odds.planner))["review_id"]
    into_branch = (await merge(at_odds.planner, source=MAIN, target=TRY))["review_id"]
    await history(at_odds.planner, "delete_branch", branch="try", force=True)
    reviews = (await at_odds.admin.call("history.reviews"))["reviews"]
    assert {r["review_id"]: r["state"] for r in reviews} == {into_main: "abandoned", into_branch: "abandoned"}
    of_branch = (await at_odds.admin.call("history.reviews", context_id=TRY))["reviews"]
    assert [review["review_id"] for review in of_branch] == [into_branch]
    assert (await at_odds.admin.call("history.review", review_id=into_branch))["decided_by"] == "orchestrator"
    with refused("REVIEW_NOT_FOUND"):
        await at_odds.stranger.call("history.review", review_id=into_branch)
    assert await at_odds.rows("SELECT 1 FROM pins WHERE tenant = $1", at_odds.tenant) == []
    with refused("REVIEW_CLOSED"):
        await at_odds.admin.call("history.resolve", review_id=into_main, resolutions={"goal": {"take": "ours"}})


async def test_a_branch_of_the_same_name_shares_nothing_with_the_one_deleted(parted: World) -> None:
    await parted.planner.write("goal", "first try", branch="try")
    await merge(parted.planner)
    await history(parted.planner, "delete_branch", branch="try")
    await history(parted.planner, "branch", branch="try", from_version="2")
    assert await state(parted.planner, TRY) == {"goal": "ship", "plan": "first this"}
    await parted.planner.write("plan", "second try", branch="try")
    assert (await merge(parted.planner))["taken"] == ["plan"]


async def test_sub_agents_delete_no_branches(parted: World) -> None:
    with refused("PERMISSION_DENIED"):
        await history(parted.analysis, "delete_branch", branch="try")


async def test_branches_and_merges_are_published_as_events(parted: World) -> None:
    await parted.planner.write("goal", "x", branch="try")
    await merge(parted.planner)
    await history(parted.planner, "delete_branch", branch="try")
    assert await events(parted.analysis, "history.") == [
        "history.branched",
        "history.merged",
        "history.branch_deleted",
    ]
    with refused("SESSION_NOT_FOUND"):
        await events(parted.stranger, "history.")


@pytest.mark.req("CE-F26")
async def test_a_review_is_closed_for_everyone_by_a_clean_merge_or_with_its_branch(at_odds: World) -> None:
    await merge(at_odds.planner)
    (review,) = (await history(at_odds.planner, "reviews"))["reviews"]
    shown = await at_odds.analysis.call("history.review", review_id=review["review_id"])
    assert (shown["state"], shown["conflicts"]) == ("open", review["conflicts"])
    await at_odds.planner.write("goal", await at_odds.planner.value("goal", branch="try"))
    assert (await merge(at_odds.planner))["merged"]
    assert await events(at_odds.analysis, "history.review") == ["history.review_opened", "history.review_closed"]
    shown = await at_odds.analysis.call("history.review", review_id=review["review_id"])
    assert (shown["state"], shown["decided_by"]) == ("superseded", "orchestrator")
    listed = (await at_odds.analysis.call("history.reviews", state="superseded"))["reviews"]
    assert [each["review_id"] for each in listed] == [review["review_id"]]
    await at_odds.planner.write("goal", "here")
    await at_odds.planner.write("goal", "there", branch="try")
    await merge(at_odds.planner)
    await history(at_odds.planner, "delete_branch", branch="try", force=True)
    assert (await events(at_odds.analysis, "history.review"))[2:] == ["history.review_opened", "history.review_closed"]
    for caller, review_id in ((at_odds.stranger, review["review_id"]), (at_odds.planner, "review_none")):
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


async def test_reviews_of_a_session_go_with_it_even_of_branches_that_are_gone(at_odds: World) -> None:
    await merge(at_odds.planner)
    await merge(at_odds.planner, source=MAIN, target=TRY)
    await history(at_odds.planner, "delete_branch", branch="try", force=True)
    await at_odds.planner.call("session.archive", session_id="s1")
    await at_odds.admin.call("session.delete", session_id="s1")
    assert await at_odds.rows("SELECT 1 FROM reviews WHERE tenant = $1", at_odds.tenant) == []


@pytest.mark.req("CE-F26")
@pytest.mark.parametrize("what", [{"readable_by": ["orchestrator", "human:*"]}, {"ttl_seconds": 500}])
async def test_a_decision_is_about_readers_and_times_too_not_only_about_values(
    at_odds: World, what: dict[str, Any]
) -> None:
    review_id = (await merge(at_odds.planner))["review_id"]
    await at_odds.planner.write("goal", "theirs", branch="try", **what)
    with refused("VERSION_CONFLICT"):
        await at_odds.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "theirs"}})
    await at_odds.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "theirs"}})
    assert (await state(at_odds.planner))["goal"] == "theirs"


async def test_a_refused_decision_names_no_key_that_is_hidden_from_who_decides(at_odds: World) -> None:
    review_id = (await merge(at_odds.planner))["review_id"]
    for branch in ("try", "main"):
        await at_odds.planner.write("secret", branch, branch=branch, readable_by=["orchestrator"])
    with refused("VERSION_CONFLICT") as caught:
        await at_odds.admin.call("history.resolve", review_id=review_id, resolutions={"goal": {"take": "ours"}})
    assert (caught.value.context["conflicts"], caught.value.context["hidden_conflicts"]) == (["goal"], 1)


async def test_a_branch_that_is_a_merge_base_is_deleted_only_when_forced(parted: World) -> None:
    await history(parted.planner, "branch", branch="other")
    await parted.planner.write("goal", "tried", branch="try")
    await merge(parted.planner)
    await merge(parted.planner, target="board:s1@other")
    with refused("BRANCH_IN_USE") as caught:
        await history(parted.planner, "delete_branch", branch="try")
    assert caught.value.context["merged_by"] == [MAIN, "board:s1@other"]
    await history(parted.planner, "delete_branch", branch="try", force=True)
    assert await state(parted.planner) == await state(parted.planner, "board:s1@other")


async def test_merges_are_audited(parted: World) -> None:
    await parted.planner.write("goal", "tried", branch="try")
    await merge(parted.planner)
    (row,) = [row for row in await parted.admin.audit() if row["action"] == "history.merge"]
    assert (row["outcome"], row["target"], row["detail"]) == ("done", f"{MAIN}/{TRY}", {"merged": True, "version": 3})


async def test_changes_to_a_closed_session_are_refused_by_name(parted: World) -> None:
    await parted.planner.write("goal", "tried", branch="try")
    await parted.planner.call("session.archive", session_id="s1")
    calls: dict[str, dict[str, Any]] = {
        "merge": {"from_context_id": TRY},
        "branch": {"branch": "late"},
        "snapshot": {"label": "late"},
        "rollback": {"target_version": 1},
    }
    for verb, what in calls.items():
        with refused("SESSION_ARCHIVED") as caught:
            await history(parted.admin, verb, **what)
        operation = parted.app.registry[f"history.{verb}"]
        assert type(caught.value) in operation.errors, verb
