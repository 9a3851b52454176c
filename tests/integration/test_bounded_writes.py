"""Work in a write transaction is bounded: plans are made before it, and settings of sessions have ceilings."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from support.bundles import exported, imported
from support.world import refused
from weftline.access.plans import ALLOWANCES
from weftline.history import merge_operations, rollback
from weftline.state.agent_context import service
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.world import Caller, World

BOARD, DRAFT = "board:s1", "board:s1@draft"


async def write_draft(caller: Caller, keys: int) -> None:
    await caller.call("history.branch", context_id=BOARD, branch="draft")
    for number in range(keys):
        await caller.write(f"k{number}", "draft", branch="draft")


def changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, change: Callable[[], Awaitable[object]], times: int
) -> list[int]:
    """Let another caller write after each of the first plans; the list counts them."""
    plan, planned = getattr(module, name), []

    async def plan_then_change(*given: Any, **options: Any) -> Any:
        made = await plan(*given, **options)
        planned.append(1)
        if len(planned) <= times:
            await change()
        return made

    monkeypatch.setattr(module, name, plan_then_change)
    return planned


async def test_a_merge_is_planned_again_if_a_side_has_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await write_draft(world.planner, 3)
    monkeypatch.setattr(merge_operations, "SMALL_CHANGE", 0)
    planned = changed_meanwhile(
        monkeypatch, merge_operations, "planned", lambda: world.analysis.write("other", "theirs"), 1
    )
    merged = await world.planner.call("history.merge", context_id=BOARD, from_context_id=DRAFT)
    assert merged["taken"] == ["k0", "k1", "k2"]
    assert len(planned) == 2
    assert await world.planner.value("other") == "theirs"


async def test_a_merge_that_others_keep_outdating_is_refused_with_a_time_to_retry(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_draft(world.planner, 3)
    monkeypatch.setattr(merge_operations, "SMALL_CHANGE", 0)
    changed_meanwhile(monkeypatch, merge_operations, "planned", lambda: world.analysis.write("other", "again"), 99)
    with refused("SERVER_BUSY") as caught:
        await world.planner.call("history.merge", context_id=BOARD, from_context_id=DRAFT)
    assert caught.value.context["retry_after_seconds"] > 0
    with refused("KEY_NOT_FOUND"):
        await world.planner.value("k0")


async def test_a_small_merge_is_planned_in_its_transaction_if_a_side_has_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_draft(world.planner, 3)
    planned = changed_meanwhile(
        monkeypatch, merge_operations, "planned", lambda: world.analysis.write("k0", "ours"), 99
    )
    merged = await world.planner.call("history.merge", context_id=BOARD, from_context_id=DRAFT)
    assert [conflict["key"] for conflict in merged["conflicts"]] == ["k0"], "made from the state of now"
    assert len(planned) == 1


async def test_a_rollback_is_planned_again_if_the_board_has_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("first", "second"):
        await world.planner.write("goal", value)
    monkeypatch.setattr(rollback, "SMALL_CHANGE", 0)
    planned = changed_meanwhile(monkeypatch, rollback, "planned", lambda: world.analysis.write("other", "x"), 1)
    done = await world.admin.call("history.rollback", context_id=BOARD, target_version=1)
    assert (done["written"], done["removed"]) == (["goal"], ["other"])
    assert len(planned) == 2


async def test_expiry_that_is_due_does_not_outdate_a_plan(world: World) -> None:
    await world.planner.write("short", "x", ttl_seconds=1)
    await write_draft(world.planner, 2)
    world.clock.advance(seconds=2)
    merged = await world.planner.call("history.merge", context_id=BOARD, from_context_id=DRAFT)
    assert merged["taken"] == ["k0", "k1"]


async def test_a_board_has_as_many_keys_as_its_session_allows(world: World) -> None:
    small = await world.planner.create_session("small", max_keys=3)
    for number in range(3):
        await small.write(f"k{number}", "two words")
    with refused("STORE_FULL") as caught:
        await small.write("k3", "x")
    assert caught.value.context["limit_keys"] == 3
    await small.write("k0", "replaced")
    await small.delete("k1")
    await small.write("k3", "x")
    await small.call("history.branch", context_id="board:small", branch="draft")
    with refused("STORE_FULL"):
        await small.write("k4", "x", branch="draft")


async def test_a_new_session_gets_the_keys_of_its_plan_and_settings_above_it_are_refused(world: World) -> None:
    allowance = ALLOWANCES["enterprise"]
    await world.planner.create_session("usual")
    session = (await world.planner.call("session.get", session_id="usual"))["session"]
    assert session["config"]["max_keys"] == allowance.session_keys
    for name, limit in (
        ("max_keys", allowance.session_keys),
        ("max_total_tokens", allowance.session_tokens),
        ("max_value_tokens", allowance.value_tokens),
        ("keep_versions", allowance.session_versions),
    ):
        with refused("QUOTA_EXCEEDED") as caught:
            await world.planner.create_session("large", **{name: limit + 1})
        assert caught.value.context[f"limit_{name}"] == limit
        # There is no larger plan to ask for.
        assert caught.value.hint == f"Lower {name}."


async def test_an_imported_session_gets_the_ceilings_of_the_plan(world: World) -> None:
    high = {"max_keys": 900, "max_total_tokens": 900_000, "max_value_tokens": 200_000}
    board = await world.planner.create_session("rich", **high)
    await board.write("goal", "ship")
    bundle = await exported(board)
    await world.app.tenants.set_plan(world.tenant, "free")
    await imported(world.admin, bundle, session_id="copy")
    config = (await world.admin.call("session.get", session_id="copy"))["session"]["config"]
    free = ALLOWANCES["free"]
    assert {name: config[name] for name in high} == {
        "max_keys": free.session_keys,
        "max_total_tokens": free.session_tokens,
        "max_value_tokens": free.value_tokens,
    }


async def test_a_persistent_memory_has_as_many_entries_as_the_plan_allows(world: World) -> None:
    await world.app.tenants.set_plan(world.tenant, "enterprise", memory_entries=4)

    async def push(*keys: str, remove: tuple[str, ...] = (), of: str = "learned_knowledge") -> Any:
        return await world.planner.call(
            "context.push",
            knowledge=[{"key": key, "value": "x", "memory_type": of, "metadata": {"a": 1}} for key in keys],
            remove=[{"key": key, "memory_type": of} for key in remove],
            if_version=(await world.planner.call("context.read"))["version"],
        )

    await push("a", "b")
    await push("c", "d", of="work_artifacts")
    with refused("QUOTA_EXCEEDED") as caught:
        await push("e")
    assert caught.value.context["limit_memory_entries"] == 4
    assert "context.push" in (caught.value.hint or "")
    await push("e", remove=("a",))
    with refused("QUOTA_EXCEEDED"):
        await push("f")


async def test_entries_of_a_memory_that_were_never_counted_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = service.OpenContext._names

    async def uncounted(self: Any, part: Any) -> Any:
        change = await names(self, part)
        return structs.replace(change, meta=structs.replace(change.meta, entries=None))

    with monkeypatch.context() as before:
        before.setattr(service.OpenContext, "_names", uncounted)
        await world.planner.call("context.push", knowledge=[{"key": key, "value": "x"} for key in "abc"])
    await world.app.tenants.set_plan(world.tenant, "enterprise", memory_entries=3)
    push = partial(world.planner.call, "context.push")
    new = {"knowledge": [{"key": "d", "value": "x"}]}
    with refused("QUOTA_EXCEEDED"):
        await push(**new)
    await push(knowledge=[], remove=[{"key": "a"}], if_version=1)
    await push(**new)
    with refused("QUOTA_EXCEEDED"):
        await push(knowledge=[{"key": "e", "value": "x"}])


@pytest.mark.both_databases
async def test_a_window_has_as_many_bytes_as_the_plan_allows(world: World) -> None:
    await world.app.tenants.set_plan(world.tenant, "pro", window_bytes=20_000)

    async def ingest(event_id: str, **event: Any) -> Any:
        return await world.planner.call("context.ingest", session_id="s1", events=[{"event_id": event_id, **event}])

    await ingest("a", content="x" * 9_000)
    # Whatever part of an event it is: a script of three bytes a character, arguments of a call, or references.
    references = [f"{number}-{'r' * 190}" for number in range(100)]
    for event in (
        {"content": "語" * 4_000},
        {"content": "", "role": "assistant", "tool_calls": [{"call_id": "c", "name": "t", "arguments": "y" * 11_000}]},
        {"content": "short", "references": references},
    ):
        with refused("QUOTA_EXCEEDED") as caught:
            await ingest("b", **event)
        assert caught.value.context["limit_window_bytes"] == 20_000
        assert 9_000 < caught.value.context["used_window_bytes"] < 10_000
        assert "source_refs" in (caught.value.hint or "")
    given = {"form": "neutral", "messages": [{"role": "user", "content": "z" * 12_000}]}
    with refused("QUOTA_EXCEEDED"):
        await world.planner.call("context.assemble", session_id="s1", task_description="Sum up.", **given)
    await ingest("b", content="x" * 9_000)
    assert not (await ingest("a", content="x" * 9_000))["events"][0]["added"]
    await world.planner.call("window.delete", session_id="s1")
    await ingest("c", content="x" * 9_000)


async def test_a_window_has_as_many_events_as_the_plan_allows(world: World) -> None:
    await world.app.tenants.set_plan(world.tenant, "enterprise", window_events=3)

    async def ingest(*ids: str) -> Any:
        events = [{"event_id": each, "content": f"Event {each}."} for each in ids]
        return await world.planner.call("context.ingest", session_id="s1", events=events)

    await ingest("a", "b")
    with refused("QUOTA_EXCEEDED") as caught:
        await ingest("c", "d")
    assert caught.value.context["limit_window_events"] == 3
    assert "window.delete" in (caught.value.hint or "")
    await ingest("c")
    repeated = await ingest("a", "c")
    assert not any(event["added"] for event in repeated["events"])
    with refused("QUOTA_EXCEEDED"):
        await ingest("d")


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_reads_find_a_connection_while_writes_of_their_tenant_wait_for_each_other(world: World) -> None:
    await world.planner.write("goal", "ship")
    unlocked = asyncio.Event()
    waiting = [
        asyncio.create_task(
            world.app.database.write(Scope(world.tenant, principal=f"writer{number}"), lambda _: unlocked.wait())
        )
        for number in range(40)
    ]
    try:
        async with asyncio.timeout(60):
            assert await world.planner.value("goal") == "ship"
    finally:
        unlocked.set()
        await asyncio.gather(*waiting)
