"""Read and write ACLs of keys, on every read path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.world import refused
from weftline.kernel.errors import WeftlineError

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("SC-11")
SECRET = "only for the reviewer"


@pytest.fixture
async def hidden(world: World) -> World:
    """Return a world whose board has one public key and one that only reviewers read."""
    await world.review.write("open", "for all")
    await world.review.write("verdict", SECRET, readable_by=["subagent:review:*"])
    await world.review.snapshot("mark")
    return world


async def test_a_key_is_readable_by_all_by_default(world: World) -> None:
    await world.review.write("note", "x")
    assert await world.analysis.value("note") == "x"
    await world.analysis.write("note", "y")


async def test_a_hidden_key_is_absent_from_lists_but_counts_toward_the_total(hidden: World) -> None:
    listed = await hidden.analysis.list()
    assert [entry["key"] for entry in listed["keys"]] == ["open"]
    assert listed["metadata"]["key_count"] == 2
    assert await hidden.review.keys() == ["open", "verdict"]


async def test_a_hidden_key_cannot_be_read_alone_or_in_a_batch(hidden: World) -> None:
    with refused("KEY_NOT_FOUND") as caught:
        await hidden.analysis.read("verdict")
    assert caught.value.context["available_alternatives"] == []
    assert (await hidden.analysis.batch("open", "verdict"))["missing"] == ["verdict"]
    assert await hidden.review.value("verdict") == SECRET


async def test_a_hidden_key_has_no_history_for_others(hidden: World) -> None:
    with refused("KEY_NOT_FOUND"):
        await hidden.analysis.history("verdict")
    assert len((await hidden.review.history("verdict"))["versions"]) == 1


async def test_hiding_a_key_hides_its_earlier_versions_and_snapshots_too(world: World) -> None:
    await world.review.write("verdict", "was open")
    await world.review.snapshot("open_then")
    await world.review.write("verdict", SECRET, readable_by=["subagent:review:*"])
    with refused("KEY_NOT_FOUND"):
        await world.analysis.history("verdict")
    assert await world.analysis.read_snapshot("open_then") == {}


async def test_versions_written_with_a_narrow_acl_stay_hidden_after_it_is_widened(world: World) -> None:
    await world.review.write("verdict", SECRET, readable_by=["subagent:review:*"])
    await world.review.write("verdict", "public now", readable_by=["*"])
    assert [v["value"] for v in (await world.analysis.history("verdict"))["versions"]] == ["public now"]
    assert [v["value"] for v in (await world.review.history("verdict"))["versions"]] == [SECRET, "public now"]


async def test_a_deleted_hidden_key_stays_hidden_in_history_and_snapshots(hidden: World) -> None:
    await hidden.review.delete("verdict")
    with refused("KEY_NOT_FOUND"):
        await hidden.analysis.history("verdict")
    assert await hidden.analysis.read_snapshot("mark") == {"open": "for all"}
    assert await hidden.review.read_snapshot("mark") == {"open": "for all", "verdict": SECRET}


async def test_comparisons_show_only_readable_keys(hidden: World) -> None:
    await hidden.review.write("verdict", "changed")
    compared = await hidden.analysis.compare("mark")
    assert compared == {"added": [], "removed": [], "modified": [], "unchanged": ["open"]}
    assert (await hidden.review.compare("mark"))["modified"][0]["from_value"] == SECRET
    await hidden.review.snapshot("later")
    assert await hidden.analysis.compare("mark", "later") == compared


async def test_the_check_covers_only_readable_keys(hidden: World) -> None:
    await hidden.review.write("verdict", "password = hunter2hunter2")
    assert (await hidden.analysis.check_board())["checked"] == 1
    assert [f["key"] for f in (await hidden.review.check_board())["findings"]] == ["verdict"]


async def test_events_of_a_hidden_key_reach_only_its_readers(hidden: World) -> None:
    for caller, subjects in ((hidden.analysis, ["open"]), (hidden.review, ["open", "verdict"])):
        events = (await caller.events(session_id="s1"))["events"]
        assert [event["subject"] for event in events if event["type"] == "board.written"] == subjects


async def test_restoring_does_not_reveal_a_hidden_key(hidden: World) -> None:
    await hidden.review.delete("verdict")
    await hidden.review.delete("open")
    assert await hidden.planner.restore("mark") == {"restored": "mark", "written": ["open"], "deleted": []}
    assert await hidden.planner.keys() == ["open"]
    assert await hidden.review.value("verdict") == SECRET


async def test_an_admin_sees_hidden_keys_only_with_inspect(hidden: World) -> None:
    with refused("KEY_NOT_FOUND"):
        await hidden.admin.read("verdict")
    assert [entry["value"] for entry in (await hidden.admin.inspect())["entries"]] == ["for all", SECRET]


async def test_only_principals_in_writable_by_change_a_key(world: World) -> None:
    await world.review.write("verdict", "mine", writable_by=["subagent:review:*"])
    for attempt in (world.analysis.write("verdict", "no"), world.analysis.delete("verdict")):
        with refused("PERMISSION_DENIED"):
            await attempt
    assert await world.analysis.value("verdict") == "mine"
    await world.review.write("verdict", "still mine")
    await world.admin.write("verdict", "repaired")


async def test_a_restore_needs_write_access_to_every_changed_key(world: World) -> None:
    await world.review.write("verdict", "before", writable_by=["subagent:review:*"])
    await world.review.snapshot("mark")
    await world.review.write("verdict", "after")
    with refused("PERMISSION_DENIED"):
        await world.planner.restore("mark")
    assert await world.planner.value("verdict") == "after"


async def test_acls_are_kept_until_a_write_sets_others(world: World) -> None:
    await world.review.write("verdict", "1", readable_by=["subagent:review:*"], writable_by=["subagent:*"])
    await world.review.write("verdict", "2")
    with refused("KEY_NOT_FOUND"):
        await world.analysis.read("verdict")
    info = (await world.review.list())["keys"][0]
    assert (info["readable_by"], info["writable_by"]) == (["subagent:review:*"], ["subagent:*"])


async def test_a_session_does_not_exist_for_those_who_are_not_members(world: World) -> None:
    private = await world.planner.create_session("private", members=["subagent:analysis"])
    insider, outsider = world.analysis.in_session("private"), world.review.in_session("private")
    await insider.write("note", "x")
    for attempt in (
        outsider.list(),
        outsider.read("note"),
        outsider.write("note"),
        outsider.delete("note"),
        outsider.history("note"),
        outsider.snapshot("a"),
        outsider.check_board(),
        outsider.events(session_id="private"),
        outsider.call("board.guidance", session_id="private"),
    ):
        with refused("SESSION_NOT_FOUND"):
            await attempt
    assert await private.value("note") == "x"
    assert await world.admin.in_session("private").value("note") == "x"
    other = await world.admin.create_agent("bystander")
    session_ids = [event["session_id"] for event in (await other.events())["events"]]
    assert "private" not in session_ids
    listed = await other.call("session.list")
    assert listed["sessions"] == []
    with refused("SESSION_NOT_FOUND"):
        await other.call("session.get", session_id="private")
    with refused("SESSION_NOT_FOUND"):
        await other.call("session.delete", session_id="private")


@pytest.mark.req("SC-11")
async def test_writing_to_a_hidden_key_is_refused_without_naming_its_owner(world: World) -> None:
    await world.planner.write("secret", "x", readable_by=["orchestrator"], writable_by=["orchestrator"])
    with refused("PERMISSION_DENIED") as caught:
        await world.analysis.write("secret", "mine now")
    assert "orchestrator" not in caught.value.message
    assert await world.planner.value("secret") == "x"


@pytest.mark.req("SC-11")
@pytest.mark.parametrize("writable_by", [None, ["*"], ["subagent:*", "orchestrator"]])
async def test_who_may_not_read_a_key_neither_changes_it_nor_learns_its_version(
    world: World, writable_by: list[str] | None
) -> None:
    line = "board:s1"
    await world.planner.write("secret", "first", readable_by=["orchestrator"], writable_by=writable_by)
    await world.planner.snapshot("mark")
    await world.planner.call("history.branch", context_id=line, branch="try")
    await world.planner.write("secret", "second")
    await world.planner.write("secret", "third", branch="try")
    other = await world.admin.create_agent("other", clearance=3, kind="human", permissions=["read", "write"])
    await world.planner.admit("other")
    for caller in (world.analysis, other):
        for attempt in (
            *(caller.write("secret", "mine", if_version=version) for version in (None, 0, 1, 2, 9)),
            caller.write("secret", "mine", readable_by=["*"]),
            caller.write("secret", "mine", branch="try"),
            *(caller.delete("secret", if_version=version) for version in (None, 2, 9)),
            caller.restore("mark"),
            caller.call("history.rollback", context_id=line, target_version="1"),
            caller.call("history.rollback", context_id=line, target_version="0"),
        ):
            with pytest.raises(WeftlineError) as caught:
                await attempt
            assert caught.value.code in {"PERMISSION_DENIED", "KEY_NOT_FOUND"}
            assert "version" not in str(caught.value.context)
    assert await world.planner.value("secret") == "second"
    assert await world.planner.value("secret", branch="try") == "third"


@pytest.mark.req("SC-11")
async def test_deleting_a_key_does_not_widen_the_acl_of_its_history(world: World) -> None:
    await world.planner.write("plan", "the first draft, open to all")
    await world.planner.snapshot("early")
    await world.planner.write("plan", "the second", readable_by=["orchestrator"])
    await world.planner.delete("plan")
    with refused("KEY_NOT_FOUND"):
        await world.analysis.history("plan")
    assert await world.analysis.read_snapshot("early") == {}
    assert await world.planner.read_snapshot("early") == {"plan": "the first draft, open to all"}


@pytest.mark.req("SC-16")
async def test_a_recreated_session_reveals_nothing_of_the_deleted_one(world: World) -> None:
    await world.planner.events()
    vault = await world.admin.create_session("vault", members=["human:*"])
    await vault.write("merger_plan", "x")
    await world.admin.call("session.delete", session_id="vault")
    await world.planner.create_session("vault")
    subjects = [event["subject"] for event in (await world.planner.events(session_id="vault"))["events"]]
    assert subjects == ["vault"]


@pytest.mark.req("SC-11")
@pytest.mark.parametrize("field", ["readable_by", "writable_by"])
@pytest.mark.parametrize("pattern", ["planner", "agent:planner", "review-2"])
async def test_a_pattern_that_nobody_matches_is_refused(world: World, field: str, pattern: str) -> None:
    with refused("INVALID_INPUT_FORMAT") as caught:
        await world.planner.write("plan", "ours", **{field: [pattern]})
    assert (caught.value.context["field"], pattern in caught.value.message) == (field, True)
    assert f"principal:{pattern.rpartition(':')[2]}" in str(caught.value.hint)
    assert await world.planner.keys() == []


@pytest.mark.req("SC-11")
@pytest.mark.parametrize("pattern", ["subagent:analysis:analysis", "subagent:analysis:*", "subagent:analysis"])
async def test_an_agent_whose_id_is_its_type_has_both_forms_of_a_name(world: World, pattern: str) -> None:
    await world.planner.write("plan", "for the analysis", readable_by=[pattern, "orchestrator"])
    assert await world.analysis.value("plan") == "for the analysis"
    assert await world.review.keys() == []


@pytest.mark.req("SC-11")
async def test_a_writer_that_locks_itself_out_is_told(world: World) -> None:
    closed = await world.planner.write("plan", "theirs", readable_by=["subagent:review"])
    assert "no longer read" in closed["warning"]
    assert "subagent:review" in closed["warning"]
    kept = await world.planner.write("goal", "theirs to change", writable_by=["subagent:review"])
    assert "no longer change" in kept["warning"]
    assert "warning" not in await world.planner.write("own", "ours", writable_by=["orchestrator:planner"])
