"""Board entries: write, read, list and delete in the specified shapes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.world import SESSION, outcome, refused

if TYPE_CHECKING:
    from support.world import World

NOW = "2026-02-20T14:30:00Z"
LATER = "2026-02-20T15:45:00Z"


@pytest.mark.req("SC-02")
@pytest.mark.req("SC-03")
async def test_write_returns_the_specified_shape(world: World) -> None:
    await world.planner.write("problem_summary", "It broke.")
    world.clock.advance(minutes=75)
    assert await world.analysis.write("problem_summary", "It broke on Monday.") == {
        "key": "problem_summary",
        "version": 2,
        "written_by": "subagent:analysis",
        "written_at": LATER,
    }


@pytest.mark.req("SC-03")
async def test_read_returns_the_specified_shape(world: World) -> None:
    await world.planner.write("problem_summary", "It broke.")
    assert await world.analysis.read("problem_summary") == {
        "key": "problem_summary",
        "value": "It broke.",
        "written_by": "orchestrator:planner",
        "written_at": NOW,
        "version": 1,
    }


async def test_list_keys_has_the_values_of_a_prefix_if_asked_for(world: World) -> None:
    await world.planner.write("plan_a", "ship")
    await world.planner.write("plan_b", {"n": 1})
    await world.planner.write("plan_c", "secret", readable_by=["orchestrator:*"])
    await world.planner.write("scope", "all")
    listed = await world.review.list(prefix="plan_", values=True)
    assert {entry["key"]: entry["value"] for entry in listed["keys"]} == {"plan_a": "ship", "plan_b": {"n": 1}}
    assert listed["metadata"]["key_count"] == 4
    assert await world.review.keys(prefix="s") == ["scope"]
    assert await world.review.keys(prefix="plan_c", values=True) == []
    assert all("value" not in entry for entry in (await world.review.list())["keys"])


@pytest.mark.req("SC-03")
@pytest.mark.req("SC-04")
async def test_list_keys_returns_sizes_and_the_total_but_no_values(world: World) -> None:
    await world.planner.write("problem_summary", "x" * 41)
    await world.review.write("a_note", "yyyy")
    assert await world.analysis.list() == {
        "keys": [
            {
                "key": "a_note",
                "written_by": "subagent:review:review-2",
                "written_at": NOW,
                "version": 1,
                "value_size_tokens": 1,
            },
            {
                "key": "problem_summary",
                "written_by": "orchestrator:planner",
                "written_at": NOW,
                "version": 1,
                "value_size_tokens": 11,
            },
        ],
        "metadata": {
            "total_size_tokens": 12,
            "limit_tokens": 10_000,
            "value_limit_tokens": 1_000,
            "key_count": 2,
        },
    }


@pytest.mark.req("SC-03")
async def test_delete_returns_the_specified_shape(world: World) -> None:
    await world.planner.write("open_questions", "a")
    await world.planner.write("open_questions", "b")
    assert await world.analysis.delete("open_questions") == {"deleted": "open_questions", "previous_version": 2}


@pytest.mark.req("SC-02")
async def test_versions_are_counted_per_key(world: World) -> None:
    versions = [(await world.planner.write(key))["version"] for key in ("a", "b", "a", "a", "b")]
    assert versions == [1, 1, 2, 3, 2]


@pytest.mark.req("SC-02")
async def test_concurrent_writers_of_one_key_get_each_version_once(world: World) -> None:
    second = world.analysis.at(await world.another_app())
    answers = await asyncio.gather(
        *(caller.write("shared", f"{n}") for n in range(40) for caller in (world.planner, second))
    )
    assert sorted(answer["version"] for answer in answers) == list(range(1, 81))


async def test_values_round_trip_unchanged(world: World) -> None:
    for value in (
        "",
        " ",
        "line\r\nline\n",
        "\x00\x01",
        "naïve 漢字 🧵",
        '{"json": [1, 2]}',
        "'; DROP TABLE entries; --",
    ):
        await world.planner.write("exact", value)
        assert await world.analysis.value("exact") == value


@pytest.mark.req("SC-09")
@pytest.mark.parametrize("action", ["read", "delete"])
async def test_a_missing_key_error_suggests_similar_keys(world: World, action: str) -> None:
    await world.planner.write("problem_summary")
    with refused("KEY_NOT_FOUND") as caught:
        await getattr(world.planner, action)("problem_sumary")
    assert caught.value.context["available_alternatives"] == ["problem_summary"]
    assert "list_keys" in caught.value.hint


@pytest.mark.req("SC-06")
@pytest.mark.req("SC-09")
async def test_an_invalid_key_is_refused_by_every_operation(world: World) -> None:
    refused_keys = (
        "",
        "Upper",
        "with space",
        "dot.dot",
        "a/b",
        "a:b",
        "ü",
        "key\n",
        "\nkey",
        "a" * 65,
        "-",
        "../x",
        "٣",
    )
    for key in refused_keys:
        for use in (world.planner.write, world.planner.read, world.planner.delete, world.planner.batch):
            with refused("INVALID_KEY"):
                await use(key)
        with refused("INVALID_KEY"):
            await world.planner.history(key)


@pytest.mark.req("SC-06")
async def test_keys_of_one_to_64_lowercase_characters_are_accepted(world: World) -> None:
    for key in ("a", "_", "0", "a" * 64):
        assert (await world.planner.write(key))["key"] == key


@pytest.mark.req("SC-06")
async def test_namespaced_keys_are_enabled_per_session(world: World) -> None:
    planner = await world.planner.create_session("spaces", namespaces=True)
    await planner.write("inv:findings", "by prefix")
    await planner.write("findings", "flat")
    assert await planner.keys() == ["findings", "inv:findings"]
    assert await planner.value("inv:findings") == "by prefix"
    await planner.write("n" * 64 + ":" + "k" * 64)
    for key in ("a:b:c", ":a", "a:", "inv:Up"):
        with refused("INVALID_KEY"):
            await planner.write(key)


@pytest.mark.req("SC-07")
async def test_the_last_write_wins_without_if_version(world: World) -> None:
    await world.planner.write("goal", "first")
    await world.analysis.write("goal", "second")
    await world.planner.write("goal", "third")
    assert await world.review.value("goal") == "third"


@pytest.mark.req("SC-07")
async def test_if_version_overwrites_only_the_given_version(world: World) -> None:
    await world.planner.write("goal", "first")
    await world.analysis.write("goal", "second", if_version=1)
    with refused("VERSION_CONFLICT") as caught:
        await world.planner.write("goal", "lost", if_version=1)
    assert caught.value.context | {"changed_at": None} == {
        "key": "goal",
        "current_version": 2,
        "expected_version": 1,
        "changed_by": "subagent:analysis",
        "agent_id": "analysis",
        "changed_at": None,
        "diff": "@@ -1 +1 @@\n-first\n+second",
    }
    assert await world.planner.value("goal") == "second"


@pytest.mark.req("WX-08")
async def test_a_conflict_shows_nothing_that_the_caller_may_not_read(world: World) -> None:
    await world.planner.write("goal", "the old secret", readable_by=["orchestrator"])
    await world.planner.write("goal", "the new secret")
    for if_version in (0, 1, 2, None):
        with refused("PERMISSION_DENIED") as caught:
            await world.analysis.write("goal", "lost", if_version=if_version)
        assert caught.value.context == {"key": "goal"}
    # Opening the key does not open the versions from before.
    await world.planner.write("goal", "for all", readable_by=["*"])
    with refused("VERSION_CONFLICT") as caught:
        await world.analysis.write("goal", "lost", if_version=2)
    assert caught.value.context["changed_by"] == "orchestrator:planner"
    assert "diff" not in caught.value.context
    assert "secret" not in str(caught.value.context)


@pytest.mark.req("WX-08")
async def test_a_conflict_with_a_deletion_names_who_deleted(world: World) -> None:
    await world.planner.write("goal", "first")
    await world.analysis.delete("goal")
    with refused("VERSION_CONFLICT") as caught:
        await world.planner.write("goal", "second", if_version=1)
    assert (caught.value.context["change"], caught.value.context["agent_id"]) == ("delete", "analysis")


@pytest.mark.req("WX-08")
async def test_the_diff_of_a_conflict_is_short(world: World) -> None:
    await world.planner.write("goal", "\n".join(f"line {number}" for number in range(200)))
    await world.planner.write("goal", "\n".join(f"other {number}" for number in range(200)))
    with refused("VERSION_CONFLICT") as caught:
        await world.analysis.write("goal", "lost", if_version=1)
    assert len(caught.value.context["diff"]) <= 600
    assert caught.value.context["omitted_lines"] > 300


@pytest.mark.req("SC-07")
@pytest.mark.parametrize("end", ["delete", "expire", "restore"])
async def test_a_version_of_a_key_never_occurs_twice(world: World, end: str) -> None:
    await world.planner.snapshot("empty")
    await world.planner.write("plan", "read by the analysis", ttl_seconds=60 if end == "expire" else None)
    if end == "delete":
        await world.planner.delete("plan")
    elif end == "expire":
        world.clock.advance(minutes=2)
    else:
        await world.planner.restore("empty")
    await world.planner.write("plan", "never read by the analysis")
    with refused("VERSION_CONFLICT") as caught:
        await world.analysis.write("plan", "made of the first plan", if_version=1)
    assert caught.value.context["current_version"] == 2
    with refused("VERSION_CONFLICT"):
        await world.analysis.delete("plan", if_version=1)
    assert await world.planner.value("plan") == "never read by the analysis"


@pytest.mark.req("SC-07")
async def test_if_version_zero_creates_only(world: World) -> None:
    await world.planner.write("goal", "mine", if_version=0)
    with refused("VERSION_CONFLICT") as caught:
        await world.analysis.write("goal", "mine too", if_version=0)
    assert caught.value.context["current_version"] == 1
    with refused("VERSION_CONFLICT") as caught:
        await world.analysis.write("absent", if_version=3)
    assert caught.value.context["current_version"] == 0


@pytest.mark.req("SC-07")
async def test_if_version_deletes_only_the_given_version(world: World) -> None:
    await world.planner.write("goal")
    with refused("VERSION_CONFLICT"):
        await world.planner.delete("goal", if_version=2)
    await world.planner.delete("goal", if_version=1)
    with refused("KEY_NOT_FOUND"):
        await world.planner.delete("goal", if_version=1)


@pytest.mark.req("SC-07")
async def test_exactly_one_concurrent_compare_and_set_writer_wins_each_version(world: World) -> None:
    second = world.analysis.at(await world.another_app())
    await world.planner.write("counter", "0")

    outcomes = await asyncio.gather(
        *(outcome(caller.write("counter", "1", if_version=1)) for _ in range(15) for caller in (world.planner, second))
    )
    assert sorted(outcomes) == ["VERSION_CONFLICT"] * 29 + ["ok"]


@pytest.mark.req("SC-13")
async def test_read_batch_returns_existing_keys_in_request_order_and_lists_missing_ones(world: World) -> None:
    await world.planner.write("a", "1")
    await world.planner.write("b", "2")
    answer = await world.analysis.batch("b", "none", "a", "b")
    assert answer == {
        "entries": [
            {"key": "b", "value": "2", "written_by": "orchestrator:planner", "written_at": NOW, "version": 1},
            {"key": "a", "value": "1", "written_by": "orchestrator:planner", "written_at": NOW, "version": 1},
        ],
        "missing": ["none"],
    }


@pytest.mark.req("SC-08")
async def test_sessions_are_isolated(world: World) -> None:
    other_session = await world.planner.create_session("s2")
    await world.planner.write("goal", "here")
    await world.planner.snapshot("mark")
    assert await other_session.keys() == []
    with refused("KEY_NOT_FOUND"):
        await other_session.read("goal")
    with refused("KEY_NOT_FOUND"):
        await other_session.history("goal")
    with refused("SNAPSHOT_NOT_FOUND"):
        await other_session.read_snapshot("mark")
    await other_session.write("goal", "there")
    assert await world.planner.value("goal") == "here"


@pytest.mark.req("SC-17")
async def test_written_by_comes_from_the_credential(world: World) -> None:
    human = await world.admin.create_agent("dana", kind="human")
    below_human = await world.admin.create_agent("solo", parent_id="dana")
    await world.planner.admit("tree:dana")
    names = {
        "orchestrator:planner": world.planner,
        "subagent:analysis": world.analysis,
        "subagent:review:review-2": world.review,
        "human:dana": human,
        "human:admin": world.admin,
    }
    for name, caller in names.items():
        assert (await caller.write("who"))["written_by"] == name
        assert (await caller.read("who"))["written_by"] == name
        [last] = (await world.admin.call("history.log", context_id="board:s1", limit=1))["commits"]
        assert (last["author"], last["agent_id"]) == (name, name.rpartition(":")[2])
    assert (await below_human.write("who"))["written_by"] == "orchestrator:solo"


@pytest.mark.req("SC-17")
async def test_a_request_cannot_set_written_by(world: World) -> None:
    with refused("INVALID_INPUT_FORMAT") as caught:
        await world.analysis.write("who", written_by="orchestrator")
    assert "written_by" in caught.value.message
    assert await world.planner.keys() == []


@pytest.mark.req("SC-21")
async def test_the_specified_interaction_cycle_runs(world: World) -> None:
    planner, analysis = world.planner, world.analysis
    await planner.write("current_phase", "analysis")
    await planner.write("problem_summary", "Throughput dropped 30% after config change on Feb 18.")
    await planner.write("scope", "Identify which config parameter caused degradation.")
    await planner.write("constraints", "Read-only access to prod.")
    assert await analysis.keys() == ["constraints", "current_phase", "problem_summary", "scope"]
    await analysis.batch("problem_summary", "scope", "constraints")
    await analysis.write("findings_summary", "Pool size went from 200 to 20; restoring it resolves throughput.")
    await analysis.write("open_questions", "Was the pool size change intentional?")
    assert (await planner.read("open_questions"))["written_by"] == "subagent:analysis"
    await planner.write("decisions_made", "Config change was accidental. User approves the revert.")
    await planner.delete("open_questions")
    remediation = await world.admin.create_agent("remediation", parent_id="planner")
    found = await remediation.batch("findings_summary", "decisions_made", "open_questions")
    assert [entry["key"] for entry in found["entries"]] == ["findings_summary", "decisions_made"]
    assert found["missing"] == ["open_questions"]


async def test_json_beyond_the_limit_is_refused_as_text_is(world: World) -> None:
    with refused("VALUE_TOO_LARGE"):
        await world.planner.call("board.write", session_id=SESSION, key="state", value=["word"] * 2_000)
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.call("board.write", session_id=SESSION, key="state", value={"half": "\ud800"})
