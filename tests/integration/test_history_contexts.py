"""The history of what agents know: entries with their values as JSON, whole contexts by PART/KEY, nothing of how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.contexts import artifact, known, push
from support.world import refused

if TYPE_CHECKING:
    from support.world import Caller, World

WHOLE = "context:planner"
PART = "context:planner:learned_knowledge"


async def history(caller: Caller, verb: str, **what: Any) -> Any:
    return await caller.call(f"history.{verb}", **{"context_id": PART, **what})


async def state(caller: Caller, line: str = PART, **which: Any) -> dict[str, Any]:
    answer = await history(caller, "read", context_id=line, **which)
    return {entry["key"]: entry["value"] for entry in answer["entries"]}


@pytest.fixture
async def at_odds(world: World) -> World:
    """A context and its branch that say different things of one entry, and of what belongs to it."""
    planner = world.planner
    await push(planner, known("limits", {"calls": 1}, metadata={"from": "base"}), if_version=0)
    await history(planner, "branch", context_id=WHOLE, branch="try")
    await push(planner, known("limits", {"calls": 2}, metadata={"from": "try"}), if_version=1, branch="try")
    await push(planner, known("limits", ["none"], metadata={"from": "main"}), if_version=1)
    return world


async def open_review(world: World) -> Any:
    return await history(world.planner, "merge", context_id=WHOLE, from_context_id=f"{WHOLE}@try")


async def metadata(world: World) -> Any:
    pulled = await world.planner.call("context.pull", session_id="s1")
    (entry,) = pulled["context"]["memory"]["learned_knowledge"]
    return entry["metadata"]


@pytest.mark.req("CE-F20")
async def test_values_are_shown_as_the_json_they_are(world: World) -> None:
    await push(world.planner, known("a", {"calls": 100}), known("b", "text"), known("c", None), if_version=0)
    assert await state(world.planner) == {"a": {"calls": 100}, "b": "text", "c": None}
    assert await state(world.planner, key="a") == {"a": {"calls": 100}}
    diff = await history(world.planner, "diff", from_version=0)
    assert [d["diff"].split("\n")[-1] for d in diff["added"]] == ['+{"calls":100}', '+"text"', "+null"]


@pytest.mark.req("CE-F26")
async def test_what_a_conflict_shows_can_be_sent_back_and_means_the_same(at_odds: World) -> None:
    answer = await open_review(at_odds)
    (conflict,) = answer["conflicts"]
    assert [conflict[side]["value"] for side in ("base", "ours", "theirs")] == [{"calls": 1}, ["none"], {"calls": 2}]
    assert {conflict[side]["agent_id"] for side in ("base", "ours", "theirs")} == {"planner"}
    chosen = {"learned_knowledge/limits": {"take": "value", "value": conflict["theirs"]["value"]}}
    await at_odds.admin.call("history.resolve", review_id=answer["review_id"], resolutions=chosen)
    assert await state(at_odds.planner) == {"limits": {"calls": 2}}


@pytest.mark.req("CE-F26")
@pytest.mark.parametrize(("take", "said"), [("ours", "main"), ("theirs", "try"), ("base", "base"), ("value", "main")])
async def test_what_was_said_about_an_entry_goes_where_the_entry_goes(at_odds: World, take: str, said: str) -> None:
    answer = await open_review(at_odds)
    assert [conflict["key"] for conflict in answer["conflicts"]] == ["learned_knowledge/limits"]
    await at_odds.admin.call(
        "history.resolve",
        review_id=answer["review_id"],
        resolutions={"learned_knowledge/limits": {"take": take, **({"value": 7} if take == "value" else {})}},
    )
    assert await metadata(at_odds) == {"from": said}
    assert (await history(at_odds.planner, "verify", context_id=WHOLE, deep=True))["intact"]


@pytest.mark.req("CE-F24")
async def test_how_metadata_is_kept_shows_nowhere_but_its_entry_counts_as_modified(world: World) -> None:
    await push(world.planner, known("a", 1, metadata={"v": 1}), if_version=0)
    await push(world.planner, known("a", 1, metadata={"v": 2}), if_version=1)
    for line, key in ((PART, "a"), (WHOLE, "learned_knowledge/a")):
        assert list(await state(world.planner, line)) == [key]
        assert [e["key"] for e in (await history(world.planner, "blame", context_id=line))["entries"]] == [key]
        diff = await history(world.planner, "diff", context_id=line, from_version=1)
        assert [(d["key"], "same" in d["no_diff"]) for d in diff["modified"]] == [(key, True)]
        assert (diff["added"], diff["removed"]) == ([], [])
    log = await history(world.planner, "log")
    assert [[change["key"] for change in commit["changes"]] for commit in log["commits"]] == [["a"], ["a"]]
    assert [c["key"] for c in (await history(world.planner, "show"))["commit"]["changes"]] == ["a"]


@pytest.mark.req("CE-F20")
@pytest.mark.req("CE-F23")
async def test_a_whole_context_shows_its_entries_by_part_and_key(world: World) -> None:
    await push(world.planner, known("a", 1), known("b", 2, memory_type="team_preferences"), if_version=0)
    await push(world.planner, known("a", 3), if_version=1)
    await world.admin.call("agent.define", agent_id="planner", role="Plans.")
    now = {"learned_knowledge/a": 3, "team_preferences/b": 2, "definition/role": "Plans."}
    assert await state(world.planner, WHOLE) == now
    assert await state(world.planner, WHOLE, version=1) == {"learned_knowledge/a": 1, "team_preferences/b": 2}
    assert await state(world.planner, WHOLE, key="team_preferences/b") == {"team_preferences/b": 2}
    assert await state(world.planner, WHOLE, key="team_preferences") == {}
    blamed = {e["key"]: e for e in (await history(world.planner, "blame", context_id=WHOLE))["entries"]}
    assert {key: entry["agent_id"] for key, entry in blamed.items()} == {
        "definition/role": "admin",
        "learned_knowledge/a": "planner",
        "team_preferences/b": "planner",
    }
    assert blamed["learned_knowledge/a"]["version"] == 2


@pytest.mark.req("CE-F57")
async def test_what_retention_has_ended_is_not_told_by_the_whole_context_either(world: World) -> None:
    await push(world.planner, artifact("report", "secret"), known("a", 1), if_version=0)
    world.clock.advance(days=91)
    answer = await history(world.planner, "read", context_id=WHOLE)
    assert {e["key"]: (e["value"], e.get("pruned", False)) for e in answer["entries"]} == {
        "learned_knowledge/a": (1, False),
        "work_artifacts/report": (None, True),
    }
    with refused("VERSION_PRUNED"):
        await history(world.planner, "bisect", context_id=WHOLE, key="work_artifacts/report", contains="secret")


async def test_bisect_reads_what_is_kept_outside_the_database(world: World) -> None:
    for number in range(8):
        text = f"draft {number} " + "x" * 40_000 + (" bug" if number >= 5 else "")
        await push(world.planner, artifact("report", text), if_version=number)
    for line, key in (("context:planner:work_artifacts", "report"), (WHOLE, "work_artifacts/report")):
        found = await history(world.planner, "bisect", context_id=line, key=key, contains="bug")
        assert (found["found"], found["first"]["version"], found["first"]["key"]) == (True, 6, key)
        early = await history(world.planner, "bisect", context_id=line, key=key, contains="bug", to_version="v5")
        assert (early["found"], "Version 5 does not have it" in early["remark"]) == (False, True)


async def test_bisect_of_a_whole_context_asks_for_one_of_its_entries(world: World) -> None:
    await push(world.planner, known("a", 1), if_version=0)
    with refused("INVALID_INPUT_FORMAT") as caught:
        await history(world.planner, "bisect", context_id=WHOLE, key="learned_knowledge", contains="1")
    assert "PART/KEY" in caught.value.message


async def test_what_nobody_has_written_yet_is_empty_to_those_who_may_look(world: World) -> None:
    await world.admin.create_agent("quiet", clearance=1)
    lines = ("context:quiet", "context:quiet:learned_knowledge", "agent:quiet", "context:quiet:conversation_context:w")
    for line in lines:
        log = await history(world.admin, "log", context_id=line)
        assert (log["commits"], log["has_more"]) == ([], False)
        assert await state(world.admin, line) == {}
        assert (await history(world.admin, "blame", context_id=line))["entries"] == []
        assert (await history(world.admin, "verify", context_id=line))["intact"]
        for caller in (world.analysis, world.stranger):
            with refused("LINE_NOT_FOUND"):
                await history(caller, "log", context_id=line)
    own = await world.analysis.call("history.log", context_id="context:analysis")
    assert own["commits"] == []
    for line in ("context:quiet@try", "context:quiet:learned_knowledge@try", "context:quiet:nonsense"):
        with refused("LINE_NOT_FOUND"):
            await history(world.admin, "log", context_id=line)


@pytest.mark.req("CE-F56")
async def test_parts_that_went_back_with_their_context_name_it(world: World) -> None:
    for number in range(3):
        await push(world.analysis, known("a", number), if_version=number)
    await world.admin.call("history.rollback", context_id="context:analysis", target_version="v1")
    for line in ("context:analysis", "context:analysis:learned_knowledge"):
        shown = await world.analysis.call("history.show", context_id=line)
        assert shown["commit"]["reason"] == "roll back context:analysis to version 1"
        assert (shown["commit"]["author"], shown["commit"]["agent_id"]) == ("human:admin", "admin")
    assert await state(world.analysis, "context:analysis:learned_knowledge") == {"a": 0}


@pytest.mark.parametrize("line", ["context:planner@a@b", "context:planner@", "context:planner:x:y:z", "context:"])
async def test_a_switch_refuses_what_names_no_line(world: World, line: str) -> None:
    await push(world.planner, known("a", 1), if_version=0)
    for verb, what in (("switch", {}), ("delete_branch", {"branch": "try"})):
        with refused("LINE_NOT_FOUND"):
            await history(world.planner, verb, context_id=line, **what)
