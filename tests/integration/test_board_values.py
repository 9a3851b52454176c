"""Board values of every JSON type come back as they were written, wherever a board is read, copied or restored."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.bundles import exported, imported, items
from support.full_run import examples
from support.json_values import JSON, VALUES, typed
from support.world import SESSION, World, refused
from weftline.kernel.ports import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.settings import Settings
    from weftline.testing.clock import FrozenClock

pytestmark = pytest.mark.req("SC-03")

BOARD = f"board:{SESSION}"
# Values whose texts are equal, but not their types.
ALIKE: tuple[Any, ...] = ("1", 1, "true", True, '{"a":1}', {"a": 1})


async def read_everywhere(world: World, key: str) -> list[Any]:
    """Return the value of a key as every operation that reads it gives it."""
    caller = world.analysis
    state = await caller.call("history.state", context_id=BOARD, key=key)
    return [
        await caller.value(key),
        (await caller.batch(key))["entries"][0]["value"],
        next(each["value"] for each in (await caller.list(values=True))["keys"] if each["key"] == key),
        (await caller.history(key))["versions"][-1]["value"],
        state["entries"][0]["value"],
        next(each["value"] for each in (await world.admin.inspect())["entries"] if each["info"]["key"] == key),
    ]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_a_value_is_read_as_it_was_written(world: World, value: Any) -> None:
    await world.planner.write("state", value)
    assert [typed(each) for each in await read_everywhere(world, "state")] == [typed(value)] * 6


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def one_world(runner: asyncio.Runner, database_url: str, clock: FrozenClock, settings: Settings) -> Iterator[World]:
    world = World(database_url, clock, settings)
    runner.run(world.open())
    yield world
    runner.run(world.close())


@hypothesis.settings(
    max_examples=examples(20), suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None
)
@given(values=st.lists(JSON, min_size=1, max_size=5))
def test_any_values_survive_snapshots_branches_and_merges(
    values: list[Any], runner: asyncio.Runner, one_world: World
) -> None:
    written = {f"k{number}": value for number, value in enumerate(values)}

    async def check() -> None:
        # One session for each example.
        session = f"s_{secrets.token_hex(6)}"
        board, planner = f"board:{session}", await one_world.planner.create_session(session)
        branch = await planner.call("history.branch", context_id=board, branch="try")
        for key, value in written.items():
            await planner.write(key, value, branch="try")
        on_branch = {key: await planner.value(key, branch="try") for key in written}
        await planner.call("history.merge", context_id=board, from_context_id=branch["context_id"])
        merged = {key: await planner.value(key) for key in written}
        await planner.snapshot("merged")
        for key in written:
            await planner.write(key, "replaced")
        await planner.call("history.rollback", context_id=board, target_version="merged")
        rolled_back = {key: await planner.value(key) for key in written}
        in_snapshot = await planner.read_snapshot("merged")
        assert [typed(each) for each in (on_branch, merged, rolled_back, in_snapshot)] == [typed(written)] * 4

    runner.run(check())


async def test_a_value_is_counted_as_its_json_text(world: World) -> None:
    await world.planner.write("state", {"done": ["scope", "risks"], "left": 2})
    assert await world.planner.size() == approximate_tokens('{"done":["scope","risks"],"left":2}')


async def test_values_with_one_text_but_two_types_differ(world: World) -> None:
    for text, value in zip(ALIKE[::2], ALIKE[1::2], strict=True):
        label = f"before_{type(value).__name__}"
        await world.planner.write("state", text)
        await world.planner.snapshot(label)
        await world.planner.write("state", value)
        (changed,) = (await world.planner.compare(label))["modified"]
        assert (typed(changed["from_value"]), typed(changed["to_value"])) == (typed(text), typed(value))
        diff = await world.planner.call("history.diff", context_id=BOARD, from_version=label, text=True)
        assert "type" in diff["modified"][0]["no_diff"]
        await world.planner.restore(label)
        assert typed(await world.planner.value("state")) == typed(text)
    assert (await world.admin.inspect())["history_intact"]
    assert (await world.admin.call("history.verify", context_id=BOARD))["intact"]


async def test_a_type_changed_on_both_sides_is_a_conflict(world: World) -> None:
    await world.planner.write("state", "base")
    branch = await world.planner.call("history.branch", context_id=BOARD, branch="try")
    await world.planner.write("state", "1", branch="try")
    await world.planner.write("state", 1)
    merged = await world.planner.call("history.merge", context_id=BOARD, from_context_id=branch["context_id"])
    review = await world.admin.call("history.review", review_id=merged["review_id"])
    (conflict,) = review["conflicts"]
    assert (typed(conflict["ours"]["value"]), typed(conflict["theirs"]["value"])) == (typed(1), typed("1"))
    decided = {"state": {"take": "value", "value": {"n": [1, 1.0]}}}
    await world.admin.call("history.resolve", review_id=merged["review_id"], resolutions=decided)
    assert typed(await world.planner.value("state")) == typed({"n": [1, 1.0]})


async def test_compare_and_set_replaces_a_value_of_another_type(world: World) -> None:
    await world.planner.write("state", {"n": 1})
    with refused("VERSION_CONFLICT"):
        await world.planner.write("state", "late", if_version=0)
    await world.planner.write("state", "now text", if_version=1)
    assert [each["value"] for each in (await world.planner.history("state"))["versions"]] == [{"n": 1}, "now text"]


@pytest.mark.req("AC-14")
@pytest.mark.parametrize("history", [True, False])
async def test_a_bundle_keeps_types(world: World, *, history: bool) -> None:
    for number, value in enumerate(VALUES):
        await world.planner.write(f"k{number}", value)
    bundle = await exported(world.admin, history=history)
    kinds = {item["title"]: item["mime_type"] for item in items(bundle).values() if item["title"].startswith("k")}
    assert kinds["k0"] == "application/json"
    assert kinds[f"k{VALUES.index('all')}"] == "text/plain"
    await imported(world.stranger, bundle)
    for number, value in enumerate(VALUES):
        assert typed(await world.stranger.value(f"k{number}")) == typed(value)
    assert (await world.stranger.inspect())["history_intact"]


async def test_pruned_and_null_are_told_apart(world: World) -> None:
    caller = await world.planner.create_session("short", keep_versions=1)
    await caller.write("state", None)
    assert "pruned" not in (await caller.history("state"))["versions"][0]
    await world.sql("UPDATE changes SET pruned = 1 WHERE tenant = $1 AND key = 'state'", world.tenant)
    assert (await caller.history("state"))["versions"][0]["pruned"] is True


async def test_json_stays_json_where_it_is_masked_or_redacted(world: World) -> None:
    await world.admin.call("layer.define", layer="tenant", policy={"pii": {"write": "mask"}})
    for value, shown in (
        (4111111111111111, "[card 1]"),
        ({"card": 4111111111111111, "n": 1}, {"card": "[card 1]", "n": 1}),
        ([["4111111111111111"]], [["[card 1]"]]),
    ):
        await world.planner.write("paid", value)
        assert await read_everywhere(world, "paid") == [shown] * 6
        await world.planner.remember("paid", value)
        assert await world.planner.recalled("paid") == shown


@pytest.mark.parametrize(
    ("state", "shown"), [("masked", {"mail": "[email 1]", "n": 1}), ("removed", "[content removed]")]
)
async def test_a_redacted_value_is_still_json(world: World, state: str, shown: Any) -> None:
    value = {"mail": "dana@example.com", "n": 1}
    await world.planner.write("contact", value)
    redaction = {"item_id": f"{BOARD}/contact/1.1", "reason": "names a person"}
    await world.planner.call("records.redact", **redaction, state=state)
    assert await read_everywhere(world, "contact") == [shown] * 6
    await world.admin.call("records.redact", **redaction, state="none")
    assert await read_everywhere(world, "contact") == [value] * 6


async def test_a_rule_sees_json_in_a_rollback_as_in_a_write(world: World) -> None:
    await world.planner.write("limits", {"max": 5})
    await world.planner.write("limits", {"max": 1})
    rule = {
        "name": "low",
        "prohibited_action": ["board.write"],
        "condition": "arguments.value.max > 2",
        "violation_response": "block",
    }
    await world.admin.call("layer.define", layer="tenant", guardrails=[rule])
    with refused("GUARDRAIL_VIOLATION"):
        await world.planner.write("limits", {"max": 5})
    with refused("GUARDRAIL_VIOLATION"):
        await world.planner.call("history.rollback", context_id=BOARD, target_version="1")
