"""History of contexts: entries with JSON values, whole contexts by PART/KEY."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from support.contexts import artifact, knowledge_entry, push
from support.world import refused

if TYPE_CHECKING:
    from support.world import Caller, World

WHOLE = "context:planner"
PART = "context:planner:learned_knowledge"


async def history(caller: Caller, verb: str, **what: Any) -> Any:
    return await caller.call(f"history.{verb}", **{"context_id": PART, **what})


async def state(caller: Caller, line: str = PART, **which: Any) -> dict[str, Any]:
    answer = await history(caller, "state", context_id=line, **which)
    return {entry["key"]: entry["value"] for entry in answer["entries"]}


@pytest.fixture
async def conflicting(world: World) -> World:
    """A context and a branch with conflicting values and metadata of one entry."""
    planner = world.planner
    await push(planner, knowledge_entry("limits", {"calls": 1}, metadata={"from": "base"}), if_version=0)
    await history(planner, "branch", context_id=WHOLE, branch="try")
    await push(planner, knowledge_entry("limits", {"calls": 2}, metadata={"from": "try"}), if_version=1, branch="try")
    await push(planner, knowledge_entry("limits", ["none"], metadata={"from": "main"}), if_version=1)
    return world


async def open_review(world: World) -> Any:
    return await history(world.planner, "merge", context_id=WHOLE, from_context_id=f"{WHOLE}@try")


async def metadata(world: World) -> Any:
    pulled = await world.planner.call("context.pull", session_id="s1")
    (entry,) = pulled["context"]["memory"]["learned_knowledge"]
    return entry["metadata"]


@pytest.mark.req("CE-F20")
async def test_values_are_shown_as_json(world: World) -> None:
    await push(
        world.planner,
        knowledge_entry("a", {"calls": 100}),
        knowledge_entry("b", "text"),
        knowledge_entry("c", None),
        if_version=0,
    )
    assert await state(world.planner) == {"a": {"calls": 100}, "b": "text", "c": None}
    assert await state(world.planner, key="a") == {"a": {"calls": 100}}
    diff = await history(world.planner, "diff", from_version=0)
    assert [d["diff"].partition("@@\n")[2] for d in diff["added"]] == ['+{\n+  "calls": 100\n+}', "+text", "+null"]


@pytest.mark.req("CE-F26")
async def test_a_value_shown_in_a_conflict_can_be_sent_as_its_resolution(conflicting: World) -> None:
    answer = await open_review(conflicting)
    (conflict,) = answer["conflicts"]
    assert [conflict[side]["value"] for side in ("base", "ours", "theirs")] == [{"calls": 1}, ["none"], {"calls": 2}]
    assert {conflict[side]["agent_id"] for side in ("base", "ours", "theirs")} == {"planner"}
    chosen = {"learned_knowledge/limits": {"take": "value", "value": conflict["theirs"]["value"]}}
    await conflicting.admin.call("history.resolve", review_id=answer["review_id"], resolutions=chosen)
    assert await state(conflicting.planner) == {"limits": {"calls": 2}}


@pytest.mark.req("CE-F26")
@pytest.mark.parametrize(("take", "source"), [("ours", "main"), ("theirs", "try"), ("base", "base"), ("value", "main")])
async def test_a_resolution_takes_the_metadata_with_the_value(conflicting: World, take: str, source: str) -> None:
    answer = await open_review(conflicting)
    assert [conflict["key"] for conflict in answer["conflicts"]] == ["learned_knowledge/limits"]
    await conflicting.admin.call(
        "history.resolve",
        review_id=answer["review_id"],
        resolutions={"learned_knowledge/limits": {"take": take, **({"value": 7} if take == "value" else {})}},
    )
    assert await metadata(conflicting) == {"from": source}
    assert (await history(conflicting.planner, "verify", context_id=WHOLE, deep=True))["intact"]


@pytest.mark.req("CE-F24")
async def test_a_metadata_change_is_shown_as_a_change_of_its_entry(world: World) -> None:
    await push(world.planner, knowledge_entry("a", 1, metadata={"v": 1}), if_version=0)
    await push(world.planner, knowledge_entry("a", 1, metadata={"v": 2}), if_version=1)
    for line, key in ((PART, "a"), (WHOLE, "learned_knowledge/a")):
        assert list(await state(world.planner, line)) == [key]
        assert [e["key"] for e in (await history(world.planner, "blame", context_id=line))["entries"]] == [key]
        diff = await history(world.planner, "diff", context_id=line, from_version=1)
        assert [(d["key"], "same" in d["no_diff"]) for d in diff["modified"]] == [(key, True)]
        assert (diff["added"], diff["removed"]) == ([], [])
    log = await history(world.planner, "log")
    assert [[change["key"] for change in commit["changes"]] for commit in log["commits"]] == [["a"], ["a"]]
    assert [c["key"] for c in (await history(world.planner, "show"))["commit"]["changes"]] == ["a"]


@pytest.mark.req("CE-F24")
async def test_artifacts_are_compared_as_text(world: World) -> None:
    page = {"memory_type": "work_artifacts", "key": "page", "media_type": "text/markdown"}
    texts = ["# Plan\n\nShip on Friday.\n", "# Plan\n\nShip on Monday.\nTell sales.\n"]
    for version, text in enumerate(texts):
        report, data = artifact("report", text), artifact("data", {"day": "Friday", "done": bool(version)})
        encoded = {**page, "base64": base64.b64encode(text.encode()).decode()}
        await push(world.planner, report, data, encoded, if_version=version)
    changed = "@@ -1,3 +1,4 @@\n # Plan\n \n-Ship on Friday.\n+Ship on Monday.\n+Tell sales."
    for line, part in ((f"{WHOLE}:work_artifacts", ""), (WHOLE, "work_artifacts/")):
        diff = await history(world.planner, "diff", context_id=line, from_version=1)
        shown = {each["key"]: each["diff"] for each in diff["modified"]}
        assert shown[f"{part}report"] == shown[f"{part}page"] == changed
        assert '-  "done": false\n+  "done": true' in shown[f"{part}data"]
    by_words = await history(world.planner, "diff", context_id=f"{WHOLE}:work_artifacts", from_version=1, words=True)
    shown = {each["key"]: each["diff"] for each in by_words["modified"]}
    assert "Ship on [-Friday-]{+Monday.\nTell sales+}." in shown["report"]


@pytest.mark.req("CE-F24")
async def test_a_lost_artifact_is_named_and_the_others_are_compared(world: World) -> None:
    for version, text in enumerate(("one", "two")):
        await push(world.planner, artifact("lost", text), artifact("there", text * 2), if_version=version)
    lost = hashlib.sha256(b'"one"').hexdigest()
    (path,) = [path for path in (world.settings.object_store_folder / world.tenant).rglob("*") if path.name == lost]
    path.unlink()
    diff = await history(world.planner, "diff", context_id=f"{WHOLE}:work_artifacts", from_version=1)
    found = {each["key"]: each for each in diff["modified"]}
    assert "could not be read" in found["lost"]["no_diff"]
    assert found["there"]["diff"] == "@@ -1 +1 @@\n-oneone\n+twotwo"


@pytest.mark.req("CE-F20")
@pytest.mark.req("CE-F23")
async def test_a_whole_context_shows_its_entries_by_part_and_key(world: World) -> None:
    await push(
        world.planner, knowledge_entry("a", 1), knowledge_entry("b", 2, memory_type="team_preferences"), if_version=0
    )
    await push(world.planner, knowledge_entry("a", 3), if_version=1)
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
async def test_expired_values_are_hidden_in_the_whole_context_too(world: World) -> None:
    await push(world.planner, artifact("report", "secret"), knowledge_entry("a", 1), if_version=0)
    world.clock.advance(days=91)
    answer = await history(world.planner, "state", context_id=WHOLE)
    assert {e["key"]: (e["value"], e.get("pruned", False)) for e in answer["entries"]} == {
        "learned_knowledge/a": (1, False),
        "work_artifacts/report": (None, True),
    }
    with refused("VERSION_PRUNED"):
        await history(world.planner, "bisect", context_id=WHOLE, key="work_artifacts/report", contains="secret")


async def test_bisect_reads_values_in_object_storage(world: World) -> None:
    for number in range(8):
        text = f"draft {number} " + "x" * 40_000 + (" bug" if number >= 5 else "")
        await push(world.planner, artifact("report", text), if_version=number)
    for line, key in (("context:planner:work_artifacts", "report"), (WHOLE, "work_artifacts/report")):
        found = await history(world.planner, "bisect", context_id=line, key=key, contains="bug")
        assert (found["found"], found["first"]["version"], found["first"]["key"]) == (True, 6, key)
        early = await history(world.planner, "bisect", context_id=line, key=key, contains="bug", to_version="v5")
        assert (early["found"], "Version 5 does not contain the text" in early["remark"]) == (False, True)


async def test_bisect_of_a_whole_context_needs_an_entry(world: World) -> None:
    await push(world.planner, knowledge_entry("a", 1), if_version=0)
    with refused("INVALID_INPUT_FORMAT") as caught:
        await history(world.planner, "bisect", context_id=WHOLE, key="learned_knowledge", contains="1")
    assert "PART/KEY" in caught.value.message


async def test_an_unwritten_context_is_empty_for_readers(world: World) -> None:
    await world.admin.create_agent("quiet", clearance=1)
    lines = ("context:quiet", "context:quiet:learned_knowledge", "agent:quiet", "context:quiet:conversation_context:w")
    for line in lines:
        log = await history(world.admin, "log", context_id=line)
        assert (log["commits"], log["has_more"]) == ([], False)
        assert await state(world.admin, line) == {}
        assert (await history(world.admin, "blame", context_id=line))["entries"] == []
        assert (await history(world.admin, "verify", context_id=line))["intact"]
        for caller in (world.analysis, world.stranger):
            with refused("CONTEXT_NOT_FOUND"):
                await history(caller, "log", context_id=line)
    own = await world.analysis.call("history.log", context_id="context:analysis")
    assert own["commits"] == []
    for line in ("context:quiet@try", "context:quiet:learned_knowledge@try", "context:quiet:nonsense"):
        with refused("CONTEXT_NOT_FOUND"):
            await history(world.admin, "log", context_id=line)


@pytest.mark.req("CE-F56")
async def test_parts_rolled_back_with_their_context_name_it_in_the_reason(world: World) -> None:
    for number in range(3):
        await push(world.analysis, knowledge_entry("a", number), if_version=number)
    await world.admin.call("history.rollback", context_id="context:analysis", target_version="v1")
    for line in ("context:analysis", "context:analysis:learned_knowledge"):
        shown = await world.analysis.call("history.show", context_id=line)
        assert shown["commit"]["reason"] == "roll back context:analysis to version 1"
        assert (shown["commit"]["author"], shown["commit"]["agent_id"]) == ("human:admin", "admin")
    assert await state(world.analysis, "context:analysis:learned_knowledge") == {"a": 0}


@pytest.mark.parametrize("line", ["context:planner@a@b", "context:planner@", "context:planner:x:y:z", "context:"])
async def test_switching_or_deleting_a_branch_of_an_unknown_line_is_not_found(world: World, line: str) -> None:
    await push(world.planner, knowledge_entry("a", 1), if_version=0)
    for verb, what in (("switch", {}), ("delete_branch", {"branch": "try"})):
        with refused("CONTEXT_NOT_FOUND"):
            await history(world.planner, verb, context_id=line, **what)


@pytest.mark.req("CE-F26")
async def test_deleting_a_branch_closes_reviews_of_its_parts(conflicting: World) -> None:
    opened = await history(conflicting.planner, "merge", from_context_id=f"{PART}@try")
    await open_review(conflicting)
    await history(conflicting.planner, "delete_branch", context_id=WHOLE, branch="try", force=True)
    for caller in (conflicting.planner, conflicting.admin):
        reviews = (await caller.call("history.reviews"))["reviews"]
        assert [(review["context_id"], review["state"]) for review in reviews] == [
            (WHOLE, "abandoned"),
            (PART, "abandoned"),
        ]
    assert (await conflicting.planner.call("history.review", review_id=opened["review_id"]))["state"] == "abandoned"
    closed = [
        e["subject"] for e in (await conflicting.planner.events())["events"] if e["type"] == "history.review_closed"
    ]
    assert opened["review_id"] in closed
    await history(conflicting.admin, "prune", context_id=None)
    assert len((await conflicting.planner.call("history.reviews"))["reviews"]) == 2


async def test_a_review_with_an_unreadable_source_is_shown_without_content(conflicting: World) -> None:
    opened = await open_review(conflicting)
    await conflicting.sql(
        "UPDATE reviews SET source_line = $1 WHERE tenant = $2", "context:planner@lost", conflicting.tenant
    )
    (review,) = (await conflicting.planner.call("history.reviews"))["reviews"]
    assert (review["review_id"], review["state"]) == (opened["review_id"], "open")
    assert ("conflicts" in review, review["hidden_conflicts"]) == (False, 1)


@pytest.mark.req("CE-F57")
async def test_values_of_an_open_review_are_not_pruned(conflicting: World) -> None:
    opened = await open_review(conflicting)
    for number in range(3):
        await push(conflicting.planner, knowledge_entry("limits", number), if_version=2 + number)
    await conflicting.admin.call("history.set_retention", subject="learned_knowledge", versions=1)
    await conflicting.admin.call("history.prune")
    (review,) = (await conflicting.planner.call("history.reviews"))["reviews"]
    assert review["conflicts"] == opened["conflicts"]
    await conflicting.planner.call("history.close_review", review_id=opened["review_id"])
    await history(conflicting.planner, "delete_branch", context_id=WHOLE, branch="try", force=True)
    # The first run prunes the branch, the second what only the branch needed.
    for _ in range(2):
        await conflicting.admin.call("history.prune")
    assert [(await state(conflicting.planner, version=version))["limits"] for version in (1, 2, 5)] == [None, None, 2]


async def test_a_branch_pulled_by_a_session_is_deleted_only_when_forced(conflicting: World) -> None:
    await conflicting.planner.call("context.pull", session_id="s1", branch="try")
    review = await open_review(conflicting)
    chosen = {"learned_knowledge/limits": {"take": "ours"}}
    await conflicting.admin.call("history.resolve", review_id=review["review_id"], resolutions=chosen)
    with refused("BRANCH_IN_USE") as caught:
        await history(conflicting.planner, "delete_branch", context_id=WHOLE, branch="try")
    assert caught.value.context["sessions"] == 1
    await conflicting.planner.call("context.pull", session_id="s1", branch="main")
    await history(conflicting.planner, "delete_branch", context_id=WHOLE, branch="try")


@pytest.mark.req("CE-F26")
async def test_a_custom_resolution_is_validated_like_a_push(
    conflicting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.state.agent_context.model.MAX_VALUE_BYTES", 1_000)
    review_id = (await open_review(conflicting))["review_id"]
    deep: Any = 1
    for _ in range(40):
        deep = [deep]

    async def decide(key: str, value: Any) -> None:
        resolutions = {"learned_knowledge/limits": {"take": "ours"}, key: {"take": "value", "value": value}}
        await conflicting.admin.call("history.resolve", review_id=review_id, resolutions=resolutions)

    for wrong in (float("inf"), float("nan"), deep, "\ud800"):
        with refused("INVALID_INPUT_FORMAT"):
            await decide("learned_knowledge/limits", wrong)
    with refused("INVALID_INPUT_FORMAT"):
        await decide("learned_knowledge/limits#metadata", {"from": "nobody"})
    with refused("CONTENT_TOO_LARGE"):
        await decide("learned_knowledge/limits", "x" * 1_001)
    assert await state(conflicting.planner) == {"limits": ["none"]}


@pytest.mark.req("CE-F57")
async def test_no_diff_or_conflict_reveals_expired_values(world: World) -> None:
    planner = world.planner
    await push(planner, artifact("report", "first secret"), if_version=0)
    await history(planner, "branch", context_id=WHOLE, branch="try")
    await push(planner, artifact("report", "their secret"), if_version=1, branch="try")
    await push(planner, artifact("report", "our secret"), if_version=1)
    answer = await open_review(world)
    assert len(answer["conflicts"]) == 1
    world.clock.advance(days=91)
    for versions in ({"from_version": 1}, {"from_version": "head", "other_context_id": f"{WHOLE}@try"}):
        diff = await history(planner, "diff", context_id=WHOLE, **versions)
        assert "secret" not in str(diff)
    assert "secret" not in str(await planner.call("history.reviews"))


@pytest.mark.req("CE-F57")
async def test_only_values_in_a_snapshot_outlive_their_retention(world: World) -> None:
    await world.admin.call("history.set_retention", subject="learned_knowledge", days=30)
    for number in range(4):
        await push(world.planner, knowledge_entry("a", number), if_version=number)
        if number == 2:
            await history(world.admin, "snapshot", context_id=WHOLE, label="keep")
    world.clock.advance(days=31)
    for line, key in ((PART, "a"), (WHOLE, "learned_knowledge/a")):
        values = [(await state(world.planner, line, version=version))[key] for version in range(1, 5)]
        assert values == [None, None, 2, None]


async def test_a_deep_verify_finds_damaged_and_missing_objects(world: World) -> None:
    await push(world.planner, knowledge_entry("large", "x" * 40_000), if_version=0)
    (stored,) = [path for path in (world.settings.object_store_folder / world.tenant).rglob("*") if path.is_file()]
    for line in (WHOLE, PART):
        assert (await history(world.planner, "verify", context_id=line, deep=True))["intact"]
    for damage, kind in ((lambda: stored.write_bytes(b"y"), "not what was stored"), (stored.unlink, "missing")):
        damage()
        assert (await history(world.planner, "verify"))["intact"]
        for line in (WHOLE, PART):
            to_admin = await history(world.admin, "verify", context_id=line, deep=True)
            to_agent = await history(world.planner, "verify", context_id=line, deep=True)
            assert (to_admin["intact"], stored.name in to_admin["problem"]) == (False, True)
            assert (to_agent["intact"], to_agent["problem"]) == (False, f"a value in object storage is {kind}")
