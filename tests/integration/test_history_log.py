"""History queries: log, versions, blame, diff, bisect and verify."""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from support.world import refused
from weftline.history import diff as diff_operation
from weftline.history import log as looking_back
from weftline.history.text_diff import text_diff

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.history.text_diff import DiffBudget, TextDiff

LINE = "board:s1"


async def history(caller: Caller, verb: str, **what: Any) -> Any:
    return await caller.call(f"history.{verb}", **{"context_id": LINE, **what})


async def state(caller: Caller, version: str = "head", line: str = LINE) -> dict[str, str | None]:
    answer = await history(caller, "state", version=version, context_id=line)
    return {entry["key"]: entry["value"] for entry in answer["entries"]}


@pytest.fixture
async def filled(world: World) -> World:
    """A board with five versions: two keys written, one changed, one deleted, one hidden from sub-agents."""
    await world.planner.write("goal", "ship", reason="kick-off", step="plan")
    await world.analysis.write("plan", "one\ntwo\nthree", step="plan")
    world.clock.advance(seconds=60)
    await world.planner.write("goal", "ship on Friday", step="work")
    await world.planner.delete("plan", reason="done")
    await world.planner.write("secret", "x", readable_by=["orchestrator"])
    return world


@pytest.mark.req("CE-F20")
@pytest.mark.req("CE-F23")
@pytest.mark.req("CE-F21")
@pytest.mark.req("CE-L1")
async def test_every_way_to_change_a_context_records_reason_and_step(world: World) -> None:
    why = {"reason": "the client asked", "step": "intake"}
    await world.planner.write("goal", "ship", **why)
    await world.planner.snapshot("start")
    await world.planner.write("goal", "later")
    await world.planner.delete("goal", **why)
    await world.admin.call("board.restore_snapshot", session_id="s1", label="start", **why)
    await world.admin.call("history.rollback", context_id="board:s1", target_version="2", **why)
    await world.planner.remember("note", "x", **why)
    await world.planner.forget("note", **why)
    event = {"event_id": "e1", "role": "user", "content": "hello", **why}
    await world.planner.call("context.ingest", session_id="s1", events=[event])
    await world.planner.call("window.checkpoint", session_id="s1", label="early")
    await world.planner.call("context.ingest", session_id="s1", events=[{**event, "event_id": "e2"}])
    await world.planner.call("window.restore", session_id="s1", label="early", **why)

    async def reasons(line: str) -> list[tuple[str, str | None]]:
        commits = (await world.planner.call("history.log", context_id=line))["commits"]
        return [(commit["reason"], commit.get("step")) for commit in reversed(commits)]

    asked = "the client asked"
    assert await reasons("board:s1") == [
        (asked, "intake"),
        ("write", None),
        (asked, "intake"),
        (f"restore start: {asked}", "intake"),
        (f"roll back to version 2: {asked}", "intake"),
    ]
    assert await reasons("memory:planner") == [(asked, "intake"), (asked, "intake")]
    assert (await reasons("window:s1:planner"))[-1] == (f"restore early: {asked}", "intake")


@pytest.mark.req("CE-F23")
@pytest.mark.req("CE-U5")
async def test_the_log_records_author_change_time_reason_and_step(filled: World) -> None:
    log = await history(filled.planner, "log")
    assert [(c["version"], c["author"], c["reason"], c.get("step")) for c in log["commits"]] == [
        (5, "orchestrator:planner", "write", None),
        (4, "orchestrator:planner", "done", None),
        (3, "orchestrator:planner", "write", "work"),
        (2, "subagent:analysis", "write", "plan"),
        (1, "orchestrator:planner", "kick-off", "plan"),
    ]
    assert log["commits"][1]["changes"] == [{"key": "plan", "act": "delete", "key_version": 1}]
    assert log["has_more"] is False
    assert all(len(commit["hash"]) == 64 for commit in log["commits"])


async def test_the_log_is_paged_and_filtered_by_key(filled: World) -> None:
    page = await history(filled.planner, "log", limit=2)
    assert ([c["version"] for c in page["commits"]], page["has_more"]) == ([5, 4], True)
    page = await history(filled.planner, "log", limit=3, before_version=4)
    assert ([c["version"] for c in page["commits"]], page["has_more"]) == ([3, 2, 1], False)
    assert [c["version"] for c in (await history(filled.planner, "log", before_version=1))["commits"]] == []
    of_goal = await history(filled.planner, "log", key="goal", limit=1)
    assert ([c["version"] for c in of_goal["commits"]], of_goal["has_more"]) == ([3], True)


async def test_hidden_keys_are_in_no_history_answer(filled: World) -> None:
    log = await history(filled.analysis, "log")
    assert log["commits"][0]["version"] == 5
    assert log["commits"][0]["changes"] == []
    of_secret = await history(filled.analysis, "log", key="secret")
    assert (of_secret["commits"], of_secret["has_more"]) == ([], False)
    assert (await history(filled.analysis, "show", version="5"))["commit"]["changes"] == []
    assert await state(filled.analysis) == {"goal": "ship on Friday"}
    assert (await history(filled.analysis, "state", key="secret"))["entries"] == []
    assert [e["key"] for e in (await history(filled.analysis, "blame"))["entries"]] == ["goal"]
    diff = await history(filled.analysis, "diff", from_version="4")
    assert (diff["added"], diff["removed"], diff["modified"]) == ([], [], [])
    found = await history(filled.analysis, "bisect", key="secret", contains="x")
    assert found["found"] is False


async def test_a_key_hidden_since_is_hidden_in_every_version(filled: World) -> None:
    await filled.planner.write("goal", "ship at night", readable_by=["orchestrator"])
    assert await state(filled.analysis, "1") == {}
    diff = await history(filled.analysis, "diff", from_version="2", to_version="3")
    assert (diff["added"], diff["removed"], diff["modified"]) == ([], [], [])


@pytest.mark.req("CE-F20")
async def test_every_version_reads_back(filled: World) -> None:
    states = [await state(filled.planner, str(version)) for version in range(6)]
    assert states == [
        {},
        {"goal": "ship"},
        {"goal": "ship", "plan": "one\ntwo\nthree"},
        {"goal": "ship on Friday", "plan": "one\ntwo\nthree"},
        {"goal": "ship on Friday"},
        {"goal": "ship on Friday", "secret": "x"},
    ]
    one = await history(filled.planner, "state", version="1", key="goal")
    assert one["entries"][0]["value"] == "ship"
    assert one["entries"][0]["key_version"] == 1


async def test_an_expired_key_is_in_old_versions_but_not_at_head(world: World) -> None:
    await world.planner.write("soon", "x", ttl_seconds=10)
    await world.planner.write("goal", "ship")
    world.clock.advance(seconds=11)
    assert await state(world.planner) == {"goal": "ship"}
    await world.planner.write("goal", "ship it")
    assert await state(world.planner, "2") == {"goal": "ship", "soon": "x"}


@pytest.mark.req("CE-F23")
async def test_blame_names_the_commit_of_each_entry(filled: World) -> None:
    blamed = {entry["key"]: entry for entry in (await history(filled.planner, "blame", version="3"))["entries"]}
    assert blamed["plan"]["author"] == "subagent:analysis"
    assert (blamed["plan"]["version"], blamed["plan"]["step"]) == (2, "plan")
    assert (blamed["goal"]["version"], blamed["goal"]["key_version"], blamed["goal"]["step"]) == (3, 2, "work")


@pytest.mark.req("CE-U5")
@pytest.mark.req("CE-F24")
async def test_any_two_versions_can_be_compared(filled: World) -> None:
    diff = await history(filled.planner, "diff", from_version="2", to_version="5")
    assert [d["key"] for d in diff["added"]] == ["secret"]
    assert [d["key"] for d in diff["removed"]] == ["plan"]
    assert [(d["key"], d["from_version"], d["to_version"]) for d in diff["modified"]] == [("goal", 1, 2)]
    assert diff["modified"][0]["diff"] == "@@ -1 +1 @@\n-ship\n+ship on Friday"
    back = await history(filled.planner, "diff", from_version="5", to_version="2")
    assert [d["key"] for d in back["added"]] == ["plan"]
    assert back["added"][0]["diff"] == "@@ -0,0 +1,3 @@\n+one\n+two\n+three"
    same = await history(filled.planner, "diff", from_version="3", to_version="3")
    assert (same["added"], same["removed"], same["modified"]) == ([], [], [])


@pytest.mark.req("CE-F24")
async def test_text_diffs_are_bounded(world: World) -> None:
    board = await world.planner.create_session("large", max_value_tokens=300_000, max_total_tokens=1_000_000)
    await board.write("a_huge", "x" * (2**20 + 1))
    for number in range(6):
        await board.write(f"k{number}", "".join(f"line {each} of {number}\n" for each in range(2_000)))
    answer = await board.call("history.diff", context_id="board:large", from_version="0")
    found = {d["key"]: d for d in answer["added"]}
    assert "bytes" in found["a_huge"]["no_diff"]
    assert found["k0"]["diff"].startswith("@@ -0,0 +1,2000 @@\n+line 0 of 0\n")
    assert any(d.get("omitted_lines") for d in found.values())
    assert "too long" in found["k5"]["no_diff"]
    assert sum(len(d.get("diff", "")) for d in found.values()) <= 100_000
    without = await board.call("history.diff", context_id="board:large", from_version="0", text=False)
    assert not any("diff" in d or "no_diff" in d for d in without["added"])


@pytest.mark.req("CE-F24")
async def test_a_diff_of_hostile_values_takes_few_steps_and_does_not_block_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = await world.planner.create_session("hostile", max_value_tokens=300_000, max_total_tokens=1_000_000)
    random = Random(1)
    for _ in range(2):
        await board.write("log", "\n".join(random.choice("ab") for _ in range(200_000)))
    threads, left = [], []

    def noted(before: str, after: str, budget: DiffBudget, *, words: bool) -> TextDiff:
        threads.append(threading.current_thread())
        made = text_diff(before, after, budget, words=words)
        left.append(budget.steps)
        return made

    monkeypatch.setattr(diff_operation, "text_diff", noted)
    for words in (False, True):
        diff = await board.call("history.diff", context_id="board:hostile", from_version="1", words=words)
        assert 0 < len(diff["modified"][0]["diff"]) <= 100_000
    assert threading.main_thread() not in threads
    # Where a budget ends, the last comparison may exceed it by its own length; difflib would take 10**10 steps.
    assert min(left) > -1_000_000


@pytest.mark.req("CE-F24")
async def test_changed_words_are_marked(filled: World) -> None:
    diff = await history(filled.planner, "diff", from_version="2", to_version="5", words=True)
    assert diff["modified"][0]["diff"] == "@@ -1 +1 @@\nship{+ on Friday+}"


async def test_versions_are_resolved_by_number_label_or_hash(filled: World) -> None:
    planner = filled.planner
    await filled.admin.call("history.snapshot", context_id=LINE, label="mark")
    shown = await history(planner, "show", version="3")
    commit = shown["commit"]
    for name in ("3", commit["hash"], commit["hash"][:8], commit["hash"][:8].upper()):
        assert (await history(planner, "show", version=name))["commit"] == commit
    assert shown["parent"] == (await history(planner, "show", version="2"))["commit"]["hash"]
    for name in ("head", "latest", "mark", "5"):
        assert (await history(planner, "show", version=name))["commit"]["version"] == 5
    assert (await history(planner, "show"))["snapshots"] == ["mark"]


async def test_a_label_that_looks_like_a_number_or_hash_resolves_after_numbers_and_before_hashes(
    filled: World,
) -> None:
    first = (await history(filled.planner, "log"))["commits"][-1]["hash"][:40]
    await filled.admin.call("history.snapshot", context_id=LINE, label=first)
    assert (await history(filled.planner, "state", version=first))["version"] == 5
    # Such labels may exist from before they were refused.
    for label, version in (("2", 2), ("77", 5)):
        await filled.sql("UPDATE tags SET label = $1 WHERE tenant = $2 AND automatic = 0", label, filled.tenant)
        assert (await history(filled.planner, "state", version=label))["version"] == version


@pytest.mark.parametrize("version", ["6", "nowhere", "abcdef", "ab", "9" * 40, "-1", "1.0", "%", "\x00", "ship it"])
async def test_an_unknown_version_is_not_found(filled: World, version: str) -> None:
    with refused("VERSION_NOT_FOUND"):
        await history(filled.planner, "state", version=version)


async def test_an_ambiguous_hash_is_refused(filled: World) -> None:
    for seq in (1, 2):
        await filled.sql(
            "UPDATE commits SET hash = $1 WHERE tenant = $2 AND seq = $3",
            bytes.fromhex("abcdef") + bytes([seq]) * 29,
            filled.tenant,
            seq,
        )
    with refused("VERSION_NOT_FOUND") as caught:
        await history(filled.planner, "show", version="abcdef")
    assert "More than one" in caught.value.message
    assert (await history(filled.planner, "show", version="abcdef01"))["commit"]["version"] == 1


UNKNOWN_LINES = (
    *("board:nowhere", "board:", "board:s1:s2", "board:s1@", "board:s1@none", "board:s1@main", "agent", "x:s1", "s1"),
    *("context:a:b:c:d", "memory:", "memory:planner@x", "board:../s1", "@", ":", "board:s1@a@b"),
)


@pytest.mark.parametrize("line", UNKNOWN_LINES)
async def test_an_unknown_line_is_not_found(filled: World, line: str) -> None:
    for verb in ("log", "show", "state", "blame", "verify", "branches"):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - one of two codes
            await history(filled.planner, verb, context_id=line)
        assert caught.value.code in {"CONTEXT_NOT_FOUND", "BRANCH_NOT_FOUND"}, verb  # type: ignore[attr-defined]


async def test_lines_are_hidden_from_other_tenants_and_non_participants(filled: World) -> None:
    closed = await filled.planner.create_session("closed", members=["orchestrator"])
    await closed.write("goal", "x")
    for caller, line in ((filled.stranger, LINE), (filled.analysis, "board:closed")):
        with refused("CONTEXT_NOT_FOUND"):
            await history(caller, "log", context_id=line)


@pytest.mark.req("CE-U5")
async def test_verification_finds_altered_history(filled: World) -> None:
    await filled.planner.call("history.branch", context_id=LINE, branch="try")
    branch = {"context_id": f"{LINE}@try"}
    assert await history(filled.planner, "verify") == {
        "context_id": LINE,
        "intact": True,
        "commits": 5,
        "contexts": 1,
    }
    assert (await filled.planner.call("history.verify", **branch, deep=True))["contexts"] == 2
    await filled.sql("UPDATE commits SET reason = 'x' WHERE tenant = $1 AND seq = 2", filled.tenant)
    found = await history(filled.planner, "verify")
    assert (found["intact"], found["problem"]) == (False, "commit 2 is not what was written")
    assert (await filled.planner.call("history.verify", **branch))["intact"] is True
    deep = await filled.planner.call("history.verify", **branch, deep=True)
    assert deep["problem"] == f"{LINE}: commit 2 is not what was written"


async def test_bisect_finds_the_first_version_with_the_value(world: World) -> None:
    for number in range(1, 33):
        await world.planner.write("notes", f"draft {number}" + (" with a bug" if number >= 21 else ""))
        await world.planner.write("other", str(number))
    found = await history(world.planner, "bisect", key="notes", contains="bug")
    assert (found["found"], found["first"]["key_version"], found["first"]["version"]) == (True, 21, 41)
    assert found["versions_checked"] <= 7
    early = await history(world.planner, "bisect", key="notes", contains="bug", to_version="40")
    assert (early["found"], "first" in early) == (False, False)
    late = await history(world.planner, "bisect", key="notes", contains="bug", from_version="50")
    assert late["first"]["key_version"] == 25
    with refused("INVALID_INPUT_FORMAT"):
        await history(world.planner, "bisect", key="notes", contains="bug", from_version="9", to_version="3")


async def test_the_line_of_private_memory_is_visible_to_its_owner_without_values(world: World) -> None:
    await world.analysis.remember("plan", "secret thoughts")
    await world.analysis.remember("plan", "more thoughts")
    line = {"context_id": "memory:analysis"}
    log = await world.analysis.call("history.log", **line)
    assert [c["changes"][0]["key"] for c in log["commits"]] == ["plan", "plan"]
    shown = await world.analysis.call("history.state", **line)
    assert [(e["key"], e["value"]) for e in shown["entries"]] == [("plan", None)]
    assert (await world.analysis.call("history.blame", **line))["entries"][0]["key_version"] == 2
    for caller in (world.admin, world.planner, world.stranger):
        with refused("CONTEXT_NOT_FOUND"):
            await caller.call("history.log", **line)


async def test_private_memory_cannot_be_rolled_back(world: World) -> None:
    await world.planner.remember("plan", 1)
    with refused("HISTORY_NOT_KEPT"):
        await world.planner.call("history.rollback", context_id="memory:planner", target_version="0")
    with refused("HISTORY_NOT_KEPT"):
        await world.planner.call("history.branch", context_id="memory:planner", branch="b")
    with refused("CONTEXT_NOT_FOUND"):
        await world.planner.call("history.rollback", context_id="memory:analysis", target_version="0")


async def test_a_long_diff_does_not_block_other_callers(world: World) -> None:
    board = await world.planner.create_session("busy", max_value_tokens=300_000, max_total_tokens=1_000_000)
    for number in range(6):
        await board.write(f"k{number}", "\n".join(f"{line % 7} {number}" for line in range(400)))
        await board.write(f"k{number}", "\n".join(f"{line % 5} {number}" for line in range(400)))
    diff = board.call("history.diff", context_id="board:busy", from_version="1")
    answers = await asyncio.gather(diff, *(board.read("k1") for _ in range(10)))
    assert answers[0]["modified"][0]["key"] == "k0"


@pytest.mark.req("CE-F23")
async def test_every_answer_names_the_agent_of_a_change(filled: World) -> None:
    log = await history(filled.planner, "log")
    assert [commit["agent_id"] for commit in log["commits"]] == ["planner", "planner", "planner", "analysis", "planner"]
    assert (await history(filled.planner, "show", version=2))["commit"]["agent_id"] == "analysis"
    for verb in ("state", "blame"):
        (entry,) = (await history(filled.planner, verb, version=2, key="plan"))["entries"]
        assert (entry["author"], entry["agent_id"]) == ("subagent:analysis", "analysis")


async def test_versions_are_accepted_as_numbers_and_as_the_log_prints_them(filled: World) -> None:
    for name in (3, "3", "v3"):
        assert (await history(filled.planner, "show", version=name))["commit"]["version"] == 3
        assert (await history(filled.planner, "log", before_version=name, limit=1))["commits"][0]["version"] == 2
    diff = await history(filled.planner, "diff", from_version=0, to_version="v1")
    assert [d["key"] for d in diff["added"]] == ["goal"]
    for name in (6, "v6", "v", "v-1", "V3"):
        with refused("VERSION_NOT_FOUND"):
            await history(filled.planner, "state", version=name)
    for name in (-1, 1.5, True):
        with refused("INVALID_INPUT_FORMAT"):
            await history(filled.planner, "state", version=name)


async def test_a_label_named_v2_is_resolved_before_version_2(filled: World) -> None:
    await filled.admin.call("history.snapshot", context_id=LINE, label="mark")
    # Such labels may exist from before they were refused.
    await filled.sql("UPDATE tags SET label = 'v2' WHERE tenant = $1 AND label = 'mark'", filled.tenant)
    assert (await history(filled.planner, "state", version="v2"))["version"] == 5
    assert (await history(filled.planner, "state", version="2"))["version"] == 2


async def test_state_blame_and_commits_are_paged(world: World) -> None:
    for number in range(5):
        await world.planner.write(f"k{number}", str(number))
    await world.admin.call("history.snapshot", context_id=LINE, label="full")
    for number in range(5):
        await world.planner.delete(f"k{number}")
    await history(world.admin, "rollback", target_version="full")
    for verb in ("state", "blame", "show"):
        keys, cursor = [], None
        while True:
            page = await history(world.planner, verb, limit=2, cursor=cursor)
            listed = page["commit"]["changes"] if verb == "show" else page["entries"]
            assert len(listed) <= 2
            keys += [entry["key"] for entry in listed]
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        assert keys == ["k0", "k1", "k2", "k3", "k4"], verb


async def test_values_in_an_answer_are_bounded_and_the_rest_is_read_by_key(world: World) -> None:
    board = await world.planner.create_session("large", max_value_tokens=300_000, max_total_tokens=1_000_000)
    line = {"context_id": "board:large"}
    for number in range(3):
        await board.write(f"k{number}", str(number) * 120_000)
    await board.write("k3", "small")
    entries = {e["key"]: e for e in (await board.call("history.state", **line))["entries"]}
    assert [e.get("truncated", False) for e in entries.values()] == [False, False, True, False]
    assert (entries["k2"]["value"], entries["k2"]["size"]) == (None, 120_000)
    (alone,) = (await board.call("history.state", **line, key="k2"))["entries"]
    assert (alone["value"], alone.get("truncated", False)) == ("2" * 120_000, False)


@pytest.mark.parametrize("label", ["head", "latest", "7", "v7", "before-merge-v3", "after-plan-v2", "after-plan-v2-2"])
async def test_a_label_cannot_be_a_reserved_revision_name(filled: World, label: str) -> None:
    for name, what in (("history.snapshot", {"context_id": LINE}), ("board.snapshot", {"session_id": "s1"})):
        with refused("INVALID_INPUT_FORMAT") as caught:
            await filled.admin.call(name, **what, label=label)
        assert caught.value.context["field"] == "label"


async def test_the_reason_of_a_commit_is_visible_to_readers_of_one_of_its_keys(world: World) -> None:
    closed = {"readable_by": ["orchestrator"]}
    await world.planner.write("secret", "x", reason="fire someone", step="layoffs", **closed)
    await world.planner.write("secret", "y", step="next", **closed)
    for version in (1, 2):
        shown = await history(world.analysis, "show", version=version)
        assert (shown["commit"]["reason"], shown["commit"].get("step"), shown.get("snapshots")) == ("", None, None)
    log = (await history(world.analysis, "log"))["commits"]
    assert [(commit["version"], commit["reason"], commit.get("step")) for commit in log] == [
        (2, "", None),
        (1, "", None),
    ]
    shown = await history(world.planner, "show", version=1)
    assert (shown["commit"]["reason"], shown["snapshots"]) == ("fire someone", ["after-layoffs-v1"])


async def test_bisect_does_not_reveal_a_hidden_key(filled: World) -> None:
    hidden, unknown = [await history(filled.analysis, "bisect", key=key, contains="x") for key in ("secret", "nothing")]
    assert {**hidden, "key": ""} == {**unknown, "key": ""}


async def test_admins_see_which_key_is_damaged(filled: World) -> None:
    await filled.sql("UPDATE blobs SET content = $1 WHERE tenant = $2", b"txet", filled.tenant)
    to_admin, to_agent = [(await history(who, "verify"))["problem"] for who in (filled.admin, filled.analysis)]
    assert to_admin == "the value of 'goal' version 1 is not what was written"
    assert to_agent == "a value of version 1 is not what was written"


async def test_the_log_of_a_key_scans_a_bounded_number_of_commits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking_back, "_SCAN_PAGE", 2)
    monkeypatch.setattr(looking_back, "_MAX_SCAN_PAGES", 2)
    closed = {"readable_by": ["orchestrator"]}
    for number in range(6):
        await world.planner.write("secret", str(number), **closed)
        await world.planner.write("goal", str(number))
    of_hidden = await history(world.analysis, "log", key="secret", limit=1)
    assert (of_hidden["commits"], of_hidden["has_more"]) == ([], False)
    of_goal = await history(world.analysis, "log", key="goal", limit=3)
    assert ([c["version"] for c in of_goal["commits"]], of_goal["has_more"]) == ([12, 10, 8], True)
    older = await history(world.analysis, "log", key="goal", limit=3, before_version=8)
    assert ([c["version"] for c in older["commits"]], older["has_more"]) == ([6, 4, 2], False)
    operation = world.app.registry["history.log"]
    requests = [operation.parse({"context_id": LINE, "limit": 1, **key}, strict=True) for key in ({}, {"key": "goal"})]
    assert [operation.heavy(request) for request in requests] == [False, True]
