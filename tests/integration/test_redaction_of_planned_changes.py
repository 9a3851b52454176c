"""What was planned before a redaction and is written after it brings nothing back, whatever the operation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from support.contexts import knowledge_entry, push
from support.windows import ingest, message
from support.world import SESSION
from weftline.app.dispatch import Dispatcher
from weftline.history.lines import LineStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.world import Caller, World

pytestmark = pytest.mark.req("AC-11")
SECRET = "the vault opens with 4711-zulu"
BOARD, WINDOW, MEMORY = f"board:{SESSION}", f"window:{SESSION}:planner", "context:planner"
# More keys than a transaction plans again by itself.
MANY = 101


class Planned(NamedTuple):
    """A call that is planned before it is written, and the item that is redacted between the two."""

    operation: str
    request: dict[str, Any]
    item_id: str


async def board_rollback(world: World) -> Planned:
    await world.planner.write("goal", SECRET)
    await world.planner.write("goal", "later")
    return Planned("history.rollback", {"context_id": BOARD, "target_version": "1"}, f"{BOARD}/goal/1.1")


async def large_rollback(world: World) -> Planned:
    planned = await board_rollback(world)
    for number in range(MANY):
        await world.planner.write(f"key{number}")
    return planned


async def board_restore(world: World) -> Planned:
    await world.planner.write("goal", SECRET)
    await world.planner.snapshot("early")
    await world.planner.write("goal", "later")
    return Planned("board.restore_snapshot", {"session_id": SESSION, "label": "early"}, f"{BOARD}/goal/1.1")


async def board_merge(world: World) -> Planned:
    await world.planner.write("other")
    await world.planner.call("history.branch", context_id=BOARD, branch="try")
    await world.planner.write("goal", SECRET, branch="try")
    both = {"context_id": BOARD, "from_context_id": f"{BOARD}@try"}
    return Planned("history.merge", both, f"{BOARD}@try/goal/1.1")


async def decided_merge(world: World) -> Planned:
    await world.planner.write("goal", "first")
    await world.planner.write("mine", "first")
    await world.planner.call("history.branch", context_id=BOARD, branch="try")
    for key, value in (("goal", "theirs"), ("mine", SECRET)):
        await world.planner.write(key, value, branch="try")
    await world.planner.write("goal", "ours")
    merged = await world.planner.call("history.merge", context_id=BOARD, from_context_id=f"{BOARD}@try")
    decided = {"review_id": merged["review_id"], "resolutions": {"goal": {"take": "theirs"}}}
    return Planned("history.resolve", decided, f"{BOARD}@try/mine/1.2")


async def window_rollback(world: World) -> Planned:
    await ingest(world.planner, message("first"))
    await ingest(world.planner, message("facts", SECRET))
    await world.planner.call("history.rollback", context_id=WINDOW, target_version="1")
    return Planned("history.rollback", {"context_id": WINDOW, "target_version": "2"}, f"{WINDOW}/facts/1.1")


async def window_restore(world: World) -> Planned:
    await ingest(world.planner, message("first"))
    await ingest(world.planner, message("facts", SECRET))
    await world.planner.call("window.checkpoint", session_id=SESSION, label="early", agent_id="planner")
    await world.planner.call("history.rollback", context_id=WINDOW, target_version="1")
    request = {"session_id": SESSION, "label": "early", "agent_id": "planner"}
    return Planned("window.restore", request, f"{WINDOW}/facts/1.1")


async def restore_from_another_window(world: World) -> Planned:
    await ingest(world.analysis, message("facts", SECRET))
    await ingest(world.planner, message("first"))
    await world.planner.call("window.checkpoint", session_id=SESSION, label="early", agent_id="analysis")
    request = {"session_id": SESSION, "label": "early", "from_agent_id": "analysis", "agent_id": "planner"}
    return Planned("window.restore", request, f"window:{SESSION}:analysis/facts/1.1")


async def _learn(world: World, value: str, version: int, **where: Any) -> None:
    await push(world.planner, knowledge_entry("code", value), if_version=version, **where)


async def rollback_of_a_part(world: World) -> Planned:
    await _learn(world, SECRET, 0)
    await _learn(world, "later", 1)
    part = f"{MEMORY}:learned_knowledge"
    return Planned("history.rollback", {"context_id": part, "target_version": "1"}, f"{part}/code/1.1")


async def rollback_of_the_whole(world: World) -> Planned:
    planned = await rollback_of_a_part(world)
    return planned._replace(request={"context_id": MEMORY, "target_version": "1"})


async def memory_merge(world: World) -> Planned:
    await push(world.planner, knowledge_entry("tone"), if_version=0)
    await world.planner.call("history.branch", context_id=MEMORY, branch="try")
    await _learn(world, SECRET, 1, branch="try")
    await push(world.planner, knowledge_entry("other"), if_version=1)
    both = {"context_id": MEMORY, "from_context_id": f"{MEMORY}@try"}
    return Planned("history.merge", both, f"{MEMORY}:learned_knowledge@try/code/1.1")


async def memory_copy(world: World) -> Planned:
    await _learn(world, SECRET, 0)
    request = {"agent_id": "analysis", "from_agent_id": "planner"}
    return Planned("context.copy", request, f"{MEMORY}:learned_knowledge/code/1.1")


CASES = [
    board_rollback,
    large_rollback,
    board_restore,
    board_merge,
    decided_merge,
    window_rollback,
    window_restore,
    restore_from_another_window,
    rollback_of_a_part,
    rollback_of_the_whole,
    memory_merge,
    memory_copy,
]


async def redact(caller: Caller, item_id: str, state: str = "removed") -> None:
    await caller.call("records.redact", item_id=item_id, state=state, reason="names a code")


async def shown_again(world: World) -> list[str]:
    """Return the keys that show what a redaction hides."""
    hidden = "SELECT h.sealed_hash FROM changes h WHERE h.tenant = $1 AND h.sealed_hash IS NOT NULL"
    assert await world.rows(hidden, world.tenant)
    found = f"SELECT line_id, key FROM changes WHERE tenant = $1 AND blob_hash IN ({hidden})"
    return [f"{line_id}/{key}" for line_id, key in await world.rows(found, world.tenant)]


def between(monkeypatch: pytest.MonkeyPatch, operation: str, act: Callable[[], Awaitable[None]]) -> None:
    """Act once between the preparation of an operation and its transaction."""
    prepare = Dispatcher._prepare
    done: list[bool] = []

    async def prepare_and_act(dispatcher: Dispatcher, call: Any) -> dict[str, Any]:
        plan = await prepare(dispatcher, call)
        if call.operation.name == operation and not done:
            done.append(True)
            await act()
        return plan

    monkeypatch.setattr(Dispatcher, "_prepare", prepare_and_act)


@pytest.mark.both_databases
@pytest.mark.parametrize("case", CASES)
async def test_a_plan_of_before_a_redaction_is_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch, case: Callable[[World], Awaitable[Planned]]
) -> None:
    planned = await case(world)
    between(monkeypatch, planned.operation, lambda: redact(world.admin, planned.item_id))
    await world.admin.call(planned.operation, **planned.request)
    assert await shown_again(world) == []


@pytest.mark.both_databases
async def test_a_plan_shows_what_the_last_redaction_leaves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of redacted versions is the same, and what is left of them is not."""
    planned = await board_rollback(world)
    summarized = {"state": "summarized", "replacement": "a code"}
    await world.admin.call("records.redact", item_id=planned.item_id, reason="names a code", **summarized)
    between(monkeypatch, planned.operation, lambda: redact(world.admin, planned.item_id))
    await world.admin.call(planned.operation, **planned.request)
    assert await world.review.value("goal") == "[content removed]"


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("case", [rollback_of_the_whole, memory_merge])
async def test_a_redaction_waits_for_a_change_of_the_whole(
    world: World, monkeypatch: pytest.MonkeyPatch, case: Callable[[World], Awaitable[Planned]]
) -> None:
    """A redaction that comes while a rollback or a merge is written covers what that writes."""
    planned = await case(world)
    append = LineStore.append
    redacting: list[asyncio.Task[None]] = []

    async def append_late(lines: LineStore, *given: Any, **options: Any) -> Any:
        if not redacting:
            redacting.append(asyncio.create_task(redact(world.admin, planned.item_id)))
            await asyncio.wait(redacting, timeout=0.5)
        return await append(lines, *given, **options)

    monkeypatch.setattr(LineStore, "append", append_late)
    await world.admin.call(planned.operation, **planned.request)
    await redacting[0]
    assert await shown_again(world) == []
