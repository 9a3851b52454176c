"""Branches of a board."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.world import outcome, refused
from weftline.app.dispatch import CallContext
from weftline.history.line_kinds import CommitMeta
from weftline.history.lines import LineStore
from weftline.history.model import Change, ChangeKind, ChangeMeta, Line, Point, Version, blob_hash
from weftline.history.sql import CheckoutStore
from weftline.state.board import board_writer as writing
from weftline.state.board.history_backend import BoardLines
from weftline.state.board.service import Boards
from weftline.storage.sql.database import Scope
from weftline.transports.resources import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.world import Caller, World
    from weftline.history.model import Head
    from weftline.kernel.transaction import Transaction

pytestmark = pytest.mark.req("CE-F25")

REVIEWERS = ["subagent:review:*"]


async def branch(caller: Caller, name: str, *, of: str = "", version: str = "head") -> None:
    line = f"board:{caller.session}{of and f'@{of}'}"
    await caller.call("history.branch", context_id=line, branch=name, from_version=version)


async def switch(caller: Caller, name: str) -> None:
    await caller.call("history.switch", context_id=f"board:{caller.session}", branch=name)


async def delete_branch(caller: Caller, name: str) -> None:
    await caller.call("history.delete_branch", context_id=f"board:{caller.session}", branch=name, force=True)


async def apply_state(world: World, line_id: str, state: Mapping[str, Version | None], commit_meta: CommitMeta) -> Head:
    """Apply a state to a board's line as the planner, as history operations do."""
    actor = await world.app.identify(CallContext(world.planner.credential))

    async def run(transaction: Transaction) -> Head:
        boards = world.app._container.build(Boards, actor, transaction)
        return await (await BoardLines(boards).to_write(line_id)).apply(state, commit_meta)

    return await world.app.database.write(Scope(world.tenant), run)


async def board_events(caller: Caller, **which: Any) -> list[tuple[str, str, str | None]]:
    """Return type, key and branch of the board events a caller receives."""
    events = (await caller.events(**which))["events"]
    board_events_only = [event for event in events if event["type"].startswith(("board.", "branch."))]
    return [(event["type"], event["subject"], event["data"].get("branch")) for event in board_events_only]


async def test_branches_do_not_see_each_other_s_writes(world: World) -> None:
    await world.planner.write("goal", "ship")
    for caller, name in ((world.analysis, "left"), (world.review, "right")):
        await branch(world.planner, name)
        await switch(caller, name)
    await asyncio.gather(
        *(world.analysis.write(f"left_{number}", "l") for number in range(5)),
        *(world.review.write(f"right_{number}", "r") for number in range(5)),
        world.analysis.write("goal", "ship left"),
        world.review.write("goal", "ship right"),
    )
    assert await world.analysis.keys() == ["goal", *(f"left_{number}" for number in range(5))]
    assert await world.review.keys() == ["goal", *(f"right_{number}" for number in range(5))]
    assert await world.planner.keys() == ["goal"]
    assert [await caller.value("goal") for caller in (world.analysis, world.review, world.planner)] == [
        "ship left",
        "ship right",
        "ship",
    ]
    assert await world.planner.value("goal", branch="right") == "ship right"


async def test_later_changes_of_the_board_are_not_on_its_branch(world: World) -> None:
    await world.planner.write("stays", "1")
    await world.planner.write("goes", "1")
    await branch(world.planner, "try")
    await world.planner.write("stays", "2")
    await world.planner.write("comes", "1")
    await world.planner.delete("goes")
    batch = await world.planner.call("board.read_batch", session_id="s1", keys=["stays", "goes", "comes"], branch="try")
    assert [(entry["key"], entry["value"], entry["version"]) for entry in batch["entries"]] == [
        ("stays", "1", 1),
        ("goes", "1", 1),
    ]
    assert batch["missing"] == ["comes"]


async def test_a_branch_can_start_at_any_earlier_version(world: World) -> None:
    await world.planner.write("goal", "1")
    await world.planner.write("late", "1")
    await world.planner.write("goal", "2")
    await branch(world.planner, "early", version="1")
    await branch(world.planner, "empty", version="0")
    assert await world.planner.keys(branch="early") == ["goal"]
    assert await world.planner.value("goal", branch="early") == "1"
    assert await world.planner.size(branch="early") == 1
    assert await world.planner.keys(branch="empty") == []
    await world.planner.write("goal", "mine", branch="empty")
    assert (await world.planner.read("goal", branch="empty"))["version"] == 1


async def test_a_branch_can_start_at_another_branch(world: World) -> None:
    await world.planner.write("goal", "main")
    await branch(world.planner, "one")
    await world.planner.write("goal", "one", branch="one")
    await world.planner.write("of_one", "x", branch="one")
    await branch(world.planner, "two", of="one")
    await world.planner.write("of_two", "y", branch="two")
    await world.planner.delete("of_one", branch="two")
    await world.planner.write("goal", "one again", branch="one")
    assert await world.planner.keys(branch="two") == ["goal", "of_two"]
    assert await world.planner.value("goal", branch="two") == "one"
    assert await world.planner.keys(branch="one") == ["goal", "of_one"]
    assert await world.planner.keys() == ["goal"]


async def test_deleting_a_key_on_a_branch_leaves_it_on_the_board(world: World) -> None:
    await world.planner.write("goal", "ship")
    await branch(world.planner, "try")
    deleted = await world.planner.delete("goal", branch="try", if_version=1)
    assert deleted == {"deleted": "goal", "previous_version": 1}
    with refused("KEY_NOT_FOUND") as caught:
        await world.planner.read("goal", branch="try")
    assert "try" in caught.value.message
    assert await world.planner.value("goal") == "ship"
    await world.planner.write("goal", "again", branch="try")
    past = await world.planner.history("goal", branch="try")
    assert (past["incarnation"], past["incarnations"], past["versions"][0]["version"]) == (2, 2, 2)
    assert (await world.planner.history("goal"))["incarnations"] == 1


async def test_versions_on_a_branch_continue_from_its_base(world: World) -> None:
    await world.planner.write("goal", "1")
    await branch(world.planner, "try")
    await world.planner.write("goal", "main 2")
    with refused("VERSION_CONFLICT"):
        await world.planner.write("goal", "no", branch="try", if_version=2)
    await world.analysis.write("goal", "try 2", branch="try", if_version=1)
    past = (await world.planner.history("goal", branch="try"))["versions"]
    assert [(v["version"], v["value"], v["written_by"]) for v in past] == [
        (1, "1", "orchestrator:planner"),
        (2, "try 2", "subagent:analysis"),
    ]


async def test_each_branch_has_a_separate_token_limit(world: World) -> None:
    small = await world.planner.create_session("small", max_total_tokens=10)
    await small.write("a", "abcd" * 6)
    await branch(small, "try")
    await small.write("b", "abcd" * 4, branch="try")
    with refused("STORE_FULL"):
        await small.write("c", "abcd", branch="try")
    assert (await small.size(), await small.size(branch="try")) == (6, 10)
    await small.write("b", "abcd" * 3)
    await small.delete("a", branch="try")
    await small.write("c", "abcd" * 6, branch="try")
    assert (await small.size(), await small.size(branch="try")) == (9, 10)


@pytest.mark.req("SC-14")
async def test_keys_of_a_branch_expire_on_the_branch(world: World) -> None:
    await world.planner.write("both", "x", ttl_seconds=10)
    await branch(world.planner, "try")
    await world.planner.write("own", "x", ttl_seconds=5, branch="try")
    await world.planner.write("both", "kept", branch="try")
    world.clock.advance(seconds=5)
    assert await world.planner.keys(branch="try") == ["both"]
    world.clock.advance(seconds=5)
    assert (await world.planner.keys(), await world.planner.keys(branch="try")) == ([], ["both"])
    await world.planner.write("goal", "x", branch="try")
    assert ("branch.expired", "own", "try") in await board_events(world.planner)
    assert (await world.planner.history("own", branch="try"))["ended"] == "expired"


@pytest.mark.req("SC-14")
async def test_inherited_keys_expire_on_a_branch_without_a_write(world: World) -> None:
    await world.planner.write("inherited", "x", ttl_seconds=10)
    await branch(world.planner, "try")
    world.clock.advance(seconds=10)
    await world.app.scheduler.drain("keys.expire")
    board_events_only = await board_events(world.planner)
    assert ("board.expired", "inherited", None) in board_events_only
    assert ("branch.expired", "inherited", "try") in board_events_only
    assert await world.planner.size(branch="try") == 0
    due = await world.rows("SELECT next_expiry_at FROM lines WHERE tenant = $1", world.tenant)
    assert [row[0] for row in due] == [None, None]


async def test_a_switch_is_per_caller_and_overridden_by_a_named_branch(world: World) -> None:
    await world.planner.write("goal", "main")
    await branch(world.planner, "try")
    await switch(world.analysis, "try")
    await world.analysis.write("goal", "try")
    assert (await world.analysis.value("goal"), await world.planner.value("goal")) == ("try", "main")
    assert await world.analysis.value("goal", branch="main") == "main"
    assert await world.planner.value("goal", branch="try") == "try"
    assert (await world.analysis.check_board())["checked"] == 1
    await switch(world.analysis, "main")
    assert await world.analysis.value("goal") == "main"


async def test_a_board_uri_reads_the_main_line_despite_a_switch(world: World) -> None:
    assert parse_uri("board://s1/goal").request["branch"] == "main"
    assert parse_uri("board://s1/*").request["branch"] == "main"
    assert parse_uri("board://s1").request["branch"] == "main"
    await world.planner.write("goal", "main")
    await branch(world.planner, "try")
    await world.planner.write("goal", "try", branch="try")
    assert await world.planner.value("goal") == "main"


async def test_an_unknown_branch_error_suggests_similar_names(world: World) -> None:
    await world.planner.write("goal", "x")
    for attempt in (world.planner.read("goal", branch="experimint"), world.planner.write("b", branch="experimint")):
        with refused("BRANCH_NOT_FOUND") as caught:
            await attempt
        assert caught.value.context["resource_id"] == "experimint"
        assert caught.value.context["available_alternatives"] == []
    await branch(world.planner, "experiment")
    for operation, fields in (
        ("board.list_keys", {}),
        ("board.read", {"key": "goal"}),
        ("board.read_batch", {"keys": ["goal"]}),
        ("board.write", {"key": "goal", "value": "y"}),
        ("board.delete", {"key": "goal"}),
        ("board.read_history", {"key": "goal"}),
        ("board.snapshot", {"label": "mark"}),
        ("board.list_snapshots", {}),
        ("board.read_snapshot", {"label": "mark"}),
        ("board.compare_snapshots", {"from_label": "mark"}),
        ("board.restore_snapshot", {"label": "mark"}),
        ("board.check", {}),
    ):
        with refused("BRANCH_NOT_FOUND") as caught:
            await world.planner.call(operation, session_id="s1", branch="experimint", **fields)
        assert caught.value.context["available_alternatives"] == ["experiment"]
    assert await world.planner.value("goal") == "x"


async def test_calls_on_a_deleted_checked_out_branch_are_refused(world: World) -> None:
    await world.planner.write("goal", "main")
    await branch(world.planner, "try")
    await switch(world.analysis, "try")
    await delete_branch(world.planner, "try")
    for attempt in (world.analysis.read("goal"), world.analysis.write("goal", "lost"), world.analysis.keys()):
        with refused("BRANCH_NOT_FOUND") as caught:
            await attempt
        assert "switch" in caught.value.hint
    with refused("BRANCH_NOT_FOUND"):
        await world.planner.read("goal", branch="try")
    await switch(world.analysis, "main")
    assert await world.analysis.value("goal") == "main"


async def test_a_recreated_branch_shares_nothing_with_the_deleted_one(world: World) -> None:
    await world.planner.write("goal", "main")
    await branch(world.planner, "try")
    await switch(world.analysis, "try")
    await delete_branch(world.planner, "try")
    await branch(world.planner, "try")
    for attempt in (world.analysis.read("goal"), world.analysis.write("goal", "lost"), world.analysis.keys()):
        with refused("BRANCH_NOT_FOUND") as caught:
            await attempt
        assert "switch" in caught.value.hint
        assert caught.value.context["available_alternatives"] == ["try"]
    assert await world.analysis.value("goal", branch="try") == "main"
    await switch(world.analysis, "try")
    await world.analysis.write("goal", "here now")
    assert await world.planner.value("goal", branch="try") == "here now"


async def test_the_number_of_branches_of_a_board_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_BRANCHES", 3)
    for name in ("a", "b", "c"):
        await branch(world.planner, name)
    for of in ("", "a"):
        with refused("BRANCH_LIMIT") as caught:
            await branch(world.planner, "d", of=of)
        assert caught.value.context["limit"] == 3
    await delete_branch(world.planner, "b")
    await branch(world.planner, "d", of="a")
    assert (await world.planner.call("session.get", session_id="s1"))["session"]["branches"] == ["a", "c", "d"]


async def test_concurrent_writers_on_branches_and_board_lose_nothing(world: World) -> None:
    await world.planner.write("count", "0")
    await branch(world.planner, "try")
    second = await world.another_app()
    writers = [caller.at(app) for caller in (world.planner, world.analysis) for app in (world.app, second)]
    for place, version in (("main", 1), ("try", 1)):
        codes = await asyncio.gather(
            *(outcome(each.write("count", place, branch=place, if_version=version)) for each in writers)
        )
        assert sorted(codes) == ["VERSION_CONFLICT"] * 3 + ["ok"]
    await asyncio.gather(
        *(
            each.write(f"k{number}", "x", branch=place)
            for place in ("main", "try")
            for number, each in enumerate(writers)
        )
    )
    for place in ("main", "try"):
        assert await world.planner.keys(branch=place) == ["count", "k0", "k1", "k2", "k3"]
        assert await world.planner.value("count", branch=place) == place
    assert (await world.admin.inspect())["history_intact"]


async def test_concurrent_writes_to_a_deleted_branch_leave_no_changes(world: World) -> None:
    await branch(world.planner, "try")
    second = await world.another_app()
    codes = await asyncio.gather(
        *(outcome(world.analysis.at(second).write(f"k{number}", branch="try")) for number in range(6)),
        outcome(delete_branch(world.planner, "try")),
    )
    assert codes[-1] == "ok"
    assert set(codes) <= {"ok", "BRANCH_NOT_FOUND"}
    left = await world.rows("SELECT 1 FROM changes WHERE tenant = $1 AND line_id = 'board:s1@try'", world.tenant)
    assert not left


async def test_events_of_a_branch_name_the_branch(world: World) -> None:
    await world.planner.write("goal", "x")
    await branch(world.planner, "try")
    start = await world.last_event()
    await world.planner.write("goal", "y", branch="try")
    await world.planner.delete("goal", branch="try")
    await world.planner.snapshot("mark", branch="try")
    await world.planner.restore("mark", branch="try")
    assert await board_events(world.planner, after=start) == [
        ("branch.written", "goal", "try"),
        ("branch.deleted", "goal", "try"),
        ("branch.snapshot", "mark", "try"),
        ("branch.restored", "mark", "try"),
    ]
    assert await board_events(world.planner, after=start, types=["board.*"]) == []
    assert await board_events(world.planner, after=start, keys=["goal"]) == [
        ("branch.written", "goal", "try"),
        ("branch.deleted", "goal", "try"),
    ]


@pytest.mark.req("SC-11")
async def test_acls_apply_on_a_branch(world: World) -> None:
    await branch(world.planner, "try")
    await world.review.write("verdict", "secret", branch="try", readable_by=REVIEWERS, writable_by=REVIEWERS)
    assert await world.analysis.keys(branch="try") == []
    for attempt in (world.analysis.read("verdict", branch="try"), world.analysis.history("verdict", branch="try")):
        with refused("KEY_NOT_FOUND"):
            await attempt
    with refused("PERMISSION_DENIED"):
        await world.analysis.write("verdict", "no", branch="try")
    assert await world.review.value("verdict", branch="try") == "secret"
    events = [event["type"] for event in (await world.analysis.events(session_id="s1"))["events"]]
    assert "branch.written" not in events


@pytest.mark.req("SC-11")
async def test_branching_from_before_an_acl_was_narrowed_does_not_widen_it(world: World) -> None:
    await world.review.write("verdict", "draft")
    await world.review.write("verdict", "secret", readable_by=REVIEWERS)
    await world.review.write("gone", "draft")
    await world.review.write("gone", "secret", readable_by=REVIEWERS)
    await world.review.delete("gone")
    await branch(world.planner, "early", version="1")
    await branch(world.planner, "open", version="3")
    await branch(world.planner, "deeper", of="open")
    for name in ("early", "open", "deeper"):
        for attempt in (
            world.analysis.read("verdict", branch=name),
            world.analysis.read("gone", branch=name),
            world.analysis.history("verdict", branch=name),
        ):
            with refused("KEY_NOT_FOUND"):
                await attempt
        assert await world.analysis.keys(branch=name) == []
    assert await world.review.value("verdict", branch="early") == "draft"
    with refused("PERMISSION_DENIED"):
        await world.analysis.write("verdict", "mine", branch="early")
    await world.review.write("verdict", "on top", branch="early")
    assert await world.analysis.keys(branch="early") == []
    assert await world.review.value("verdict", branch="early") == "on top"


@pytest.mark.req("SC-11")
async def test_narrowing_the_acl_of_many_keys_applies_on_branches(world: World) -> None:
    keys = [f"k{number:02}" for number in range(30)]
    for key in keys:
        await world.review.write(key, "draft")
    await branch(world.planner, "try")
    assert await world.analysis.keys(branch="try") == keys
    for key in keys[:15]:
        await world.review.write(key, "secret", readable_by=REVIEWERS)
    for key in keys[15:20]:
        await world.review.delete(key)
    assert await world.analysis.keys(branch="try") == keys[15:]
    assert await world.review.keys(branch="try") == keys
    await world.review.write(keys[0], "written on the branch", readable_by=["*"], branch="try")
    assert await world.analysis.value(keys[0], branch="try") == "written on the branch"
    shown = (await world.analysis.history(keys[0], branch="try"))["versions"]
    assert [version["value"] for version in shown] == ["written on the branch"]


@pytest.mark.req("SC-15")
async def test_a_branch_has_its_snapshots_and_those_before_its_base(world: World) -> None:
    await world.planner.write("goal", "1")
    await world.planner.snapshot("shared")
    await branch(world.planner, "try")
    await world.planner.write("main_only", "x")
    await world.planner.snapshot("later")
    await world.planner.write("goal", "2", branch="try")
    await world.planner.write("extra", "x", branch="try")
    await world.planner.snapshot("own", branch="try")
    assert await world.planner.snapshots(branch="try") == ["own", "shared"]
    assert await world.planner.snapshots() == ["later", "shared"]
    restored = await world.planner.restore("shared", branch="try")
    assert restored == {"restored": "shared", "written": ["goal"], "deleted": ["extra"]}
    assert await world.planner.value("goal", branch="try") == "1"
    assert (await world.planner.read("goal"))["version"] == 1
    compared = await world.planner.call(
        "board.compare_snapshots", session_id="s1", from_label="own", to_label="shared", branch="try"
    )
    assert [entry["key"] for entry in compared["removed"]] == ["extra"]
    with refused("SNAPSHOT_NOT_FOUND"):
        await world.planner.restore("later", branch="try")


@pytest.mark.req("SC-12")
async def test_a_branch_prunes_only_its_own_commits(world: World) -> None:
    short = await world.planner.create_session("short", keep_versions=2)
    for number in range(3):
        await short.write("goal", f"main {number}")
    await branch(short, "try")
    for number in range(20):
        await short.write("goal", f"try {number}", branch="try")
    past = (await short.history("goal", branch="try"))["versions"]
    assert [version["value"] for version in past] == ["try 18", "try 19"]
    await branch(short, "again", version="3")
    assert await short.value("goal", branch="again") == "main 2"
    assert (await world.admin.in_session("short").inspect())["history_intact"]


async def test_a_session_shows_its_branches_and_when_they_were_last_written(world: World) -> None:
    await branch(world.planner, "b")
    await branch(world.planner, "a")
    world.clock.advance(minutes=2)
    await world.planner.write("goal", "x", branch="a")
    shown = (await world.planner.call("session.get", session_id="s1"))["session"]
    assert (shown["branches"], shown["updated_at"]) == (["a", "b"], "2026-02-20T14:32:00Z")
    inspected = await world.admin.call("session.inspect", session_id="s1", branch="a")
    assert [entry["info"]["key"] for entry in inspected["entries"]] == ["goal"]
    assert inspected["session"]["branches"] == ["a", "b"]
    assert (await world.admin.inspect())["entries"] == []


async def test_damage_on_a_branch_is_found_by_inspecting_the_session(world: World) -> None:
    await branch(world.planner, "try")
    await world.planner.write("goal", "x", branch="try")
    assert (await world.admin.inspect())["history_intact"]
    await world.sql("UPDATE commits SET author = 'nobody' WHERE tenant = $1 AND line_id = 'board:s1@try'", world.tenant)
    assert not (await world.admin.inspect())["history_intact"]


async def test_branches_of_an_archived_session_stay_readable(world: World) -> None:
    await branch(world.planner, "try")
    await world.planner.write("goal", "x", branch="try", ttl_seconds=60)
    await world.planner.call("session.archive", session_id="s1")
    assert await world.planner.value("goal", branch="try") == "x"
    with refused("SESSION_ARCHIVED"):
        await world.planner.write("goal", "y", branch="try")
    due = await world.rows("SELECT next_expiry_at FROM lines WHERE tenant = $1", world.tenant)
    assert [row[0] for row in due] == [None, None]


async def test_a_deleted_session_deletes_its_branches(world: World) -> None:
    await world.planner.write("goal", "1")
    for name in ("left", "right"):
        await branch(world.planner, name)
        await world.planner.write("goal", name, branch=name)
        await world.planner.snapshot("mark", branch=name)
    await switch(world.analysis, "left")
    await world.planner.call("history.merge", context_id="board:s1@left", from_context_id="board:s1@right")
    await world.planner.call("session.delete", session_id="s1")
    tables = ("entries", "blobs", "lines", "commits", "changes", "tags", "pins", "switches", "reviews", "sessions")
    for table in tables:
        assert not await world.rows(f"SELECT 1 FROM {table} WHERE tenant = $1", world.tenant), table
    fresh = await world.planner.create_session("s1")
    assert await world.analysis.keys() == []
    with refused("BRANCH_NOT_FOUND"):
        await fresh.keys(branch="left")


async def test_a_board_without_branches_runs_no_branch_queries(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise AssertionError("read the branches")

    find = LineStore.find

    async def find_board(lines: LineStore, line_id: str) -> Line | None:
        assert line_id == "board:s1", "read the branches"
        return await find(lines, line_id)

    monkeypatch.setattr(CheckoutStore, "of", fail)
    monkeypatch.setattr(LineStore, "find", find_board)
    for method in ("lock", "branches"):
        monkeypatch.setattr(LineStore, method, fail)
    await world.planner.write("goal", "x")
    assert await world.planner.value("goal", branch="main") == "x"
    assert await world.planner.keys() == ["goal"]
    await world.planner.snapshot("mark")
    await world.planner.delete("goal")
    await world.planner.restore("mark")
    assert (await world.planner.history("goal"))["incarnations"] == 2
    assert await world.planner.read_snapshot("mark") == {"goal": "x"}
    await world.planner.call("session.get", session_id="s1")
    await world.planner.call("session.archive", session_id="s1")


@pytest.mark.parametrize(
    "line_id",
    [
        "board:",
        "board:nobody",
        "board:s1@",
        "board:s1@main",
        "board:s1@a@b",
        "board:s1@a b",
        "board:s1:x",
        "s1",
        "x:s1",
    ],
)
async def test_an_unknown_board_line_is_not_found(world: World, line_id: str) -> None:
    for action in ("history.log", "history.verify"):
        with refused("CONTEXT_NOT_FOUND"):
            await world.planner.call(action, context_id=line_id)
    with refused("CONTEXT_NOT_FOUND"):
        await world.planner.call("history.branch", context_id=line_id, branch="try")


async def test_the_line_of_a_session_is_visible_to_participants_only(world: World) -> None:
    await world.planner.create_session("closed", members=["orchestrator"])
    with refused("CONTEXT_NOT_FOUND"):
        await world.analysis.call("history.log", context_id="board:closed")
    with refused("BRANCH_NOT_FOUND"):
        await world.planner.call("history.log", context_id="board:closed@none")


def version(key: str, value: str | None, **meta: Any) -> Version:
    """Return a version of a key on another line; without a value it was pruned."""
    change = Change(key, 1, 1, ChangeKind.WRITE, blob_hash(value or "lost"), ChangeMeta(**meta))
    return Version(change, 1, "orchestrator:planner", 0, value)


async def test_applying_a_state_is_one_commit_that_names_its_source(world: World) -> None:
    await world.planner.write("stays", "same")
    await world.planner.write("goes", "x")
    await branch(world.planner, "try")
    start = await world.last_event()
    merged = Point("board:s1@try", 2, bytes(32))
    state = {
        "stays": version("stays", "same", tokens=1),
        "goes": None,
        "comes": version("comes", "new"),
        "never": None,
        "over": version("over", "late", tokens=1, expires_at=1),
    }
    head = await apply_state(world, "board:s1", state, CommitMeta("merge", "join", merged))
    assert head.seq == 3
    assert await world.planner.keys() == ["comes", "stays"]
    assert (await world.planner.read("stays"))["version"] == 1
    assert await world.planner.size() == 2
    events = (await world.planner.events(after=start))["events"]
    assert [(event["type"], event["subject"], event["data"]["merged_from"]) for event in events] == [
        ("board.written", "comes", "board:s1@try"),
        ("board.deleted", "goes", "board:s1@try"),
    ]
    assert (await world.admin.inspect())["history_intact"]


async def test_an_unchanged_state_is_no_commit_unless_it_is_a_merge(world: World) -> None:
    await world.planner.write("goal", "x")
    state = {"goal": version("goal", "x", tokens=1)}
    assert (await apply_state(world, "board:s1", state, CommitMeta("again"))).seq == 1
    merged = Point("board:s1@try", 1, bytes(32))
    commit_meta = CommitMeta("merge", merged=merged)
    assert (await apply_state(world, "board:s1", state, commit_meta)).seq == 2


@pytest.mark.req("SC-09")
async def test_applying_a_state_obeys_limits_acls_and_retention(world: World) -> None:
    small = await world.planner.create_session("small", max_total_tokens=10, max_value_tokens=5)
    await small.write("a", "abcd" * 5)
    await world.review.write("verdict", "mine", writable_by=REVIEWERS)
    for line_id, state, code in (
        ("board:small", {"b": version("b", "abcd" * 6)}, "VALUE_TOO_LARGE"),
        ("board:small", {"b": version("b", "x", tokens=6)}, "STORE_FULL"),
        ("board:small", {"b": version("b", None, tokens=1)}, "VERSION_PRUNED"),
        ("board:s1", {"verdict": None}, "PERMISSION_DENIED"),
        ("board:s1", {"verdict": version("verdict", "theirs", tokens=1)}, "PERMISSION_DENIED"),
    ):
        with refused(code):
            await apply_state(world, line_id, state, CommitMeta("x"))
    assert await small.keys() == ["a"]
    assert await world.planner.value("verdict") == "mine"
