"""Reads whose cost grows with what is stored do not keep the event loop, the threads or the connections of others."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from support.grown_world import grow
from support.knowledge import embed_quickly
from support.world import SESSION, World, refused
from weftline.kernel.errors import WeftlineError
from weftline.kernel.operation import Effect
from weftline.prompts.assembly import sql as receipts
from weftline.storage.sql.database import AccessChanged, Scope
from weftline.storage.sql.dialects import heavy_reads, sqlite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.operation import Operation
    from weftline.kernel.transaction import Transaction

_MANY = 320
_MAX_STEPS = 300
# Small boards are answered on the event loop; a large one is noticed after a millisecond, and moved. A message search
# reads what its index lacks in slices.
_MOVED = {"board.list_keys", "message.search"}
_ROWS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT i FROM n"


async def _rows(transaction: Transaction, count: int) -> tuple[str, Sequence[Any]]:
    rows = await transaction.all(_ROWS.replace("{}", str(count)))
    return threading.current_thread().name, rows


async def test_a_read_of_many_rows_is_moved_to_a_thread(world: World) -> None:
    scope = Scope(world.tenant, principal="planner")
    short, few = await world.app.database.read(scope, lambda tx: _rows(tx, 10))
    long, many = await world.app.database.read(scope, lambda tx: _rows(tx, 5_000))
    declared, _ = await world.app.database.read(scope, lambda tx: _rows(tx, 10), heavy=True)
    assert (len(few), len(many)) == (10, 5_000)
    assert short == threading.main_thread().name
    assert long.startswith("weftline-reads")
    assert declared.startswith("weftline-reads")


async def test_many_statements_are_too_much_as_well(world: World) -> None:
    async def look(transaction: Transaction) -> str:
        for number in range(heavy_reads.MAX_STEPS):
            await transaction.one("SELECT CAST($1 AS INTEGER)", number)
        return threading.current_thread().name

    assert (await world.app.database.read(Scope(world.tenant, principal="planner"), look)).startswith("weftline-reads")


async def test_a_principal_and_a_tenant_leave_threads_to_others(world: World) -> None:
    database, release = world.app.database, threading.Event()

    async def block(transaction: Transaction) -> None:
        await transaction.all("SELECT 1")
        release.wait(240)

    async def look(transaction: Transaction) -> int:
        return len(await transaction.all("SELECT 1"))

    def read(tenant: str, principal: str, work: Any) -> Any:
        return database.read(Scope(tenant, principal=principal), work, heavy=True)

    greedy = [asyncio.create_task(read(world.tenant, "planner", block)) for _ in range(10)]
    try:
        async with asyncio.timeout(120):
            assert await read(world.tenant, "analysis", look) == 1
            second = asyncio.create_task(read(world.tenant, "analysis", block))
            assert await read(world.other_tenant, "admin", look) == 1
            # Short reads and writes do not wait for heavy ones.
            await world.planner.write("goal", "ship")
            assert (await world.planner.read("goal"))["value"] == "ship"
    finally:
        release.set()
    await asyncio.gather(*greedy, second)


async def test_too_many_heavy_reads_of_one_principal_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(world.app.database._heavy_reads._threads, "_max_waiting", 2)  # type: ignore[attr-defined]

    async def block(_: Transaction) -> None:
        release.wait(240)

    scope = Scope(world.tenant, principal="planner")
    waiting = [asyncio.create_task(world.app.database.read(scope, block, heavy=True)) for _ in range(3)]
    await asyncio.sleep(0.05)
    try:
        with refused("SERVER_BUSY") as error:
            await world.planner.call("board.check", session_id=SESSION)
        assert error.value.context["retry_after_seconds"] >= 1
        await world.analysis.call("board.list_keys", session_id=SESSION)
    finally:
        release.set()
    await asyncio.gather(*waiting)
    await world.planner.call("board.check", session_id=SESSION)


async def test_a_heavy_read_sees_the_access_rules_of_now(world: World) -> None:
    async def look(_: Transaction) -> None: ...

    with pytest.raises(AccessChanged):
        await world.app.database.read(Scope(world.tenant, 10**6, "planner"), look, heavy=True)


class Walk:
    """What the reads of an operation did on the event loop."""

    def __init__(self) -> None:
        self.steps = 0
        self.moved = False


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> Walk:
    walk = Walk()
    read = sqlite._read

    def noted(connection: Any, scope: Any, work: Any, usage: Any, max_steps: int = heavy_reads.UNLIMITED_STEPS) -> Any:
        opened: list[Any] = []

        async def inside(inner: Any) -> Any:
            opened.append(inner)
            return await work(inner)

        on_loop = threading.current_thread() is threading.main_thread()
        try:
            return read(connection, scope, inside, usage, max_steps)
        except heavy_reads.TooManySteps:
            walk.moved = True
            raise
        finally:
            if on_loop and opened:
                walk.steps = max(walk.steps, max_steps - opened[0]._steps_left)

    monkeypatch.setattr(sqlite, "_read", noted)
    monkeypatch.setattr(sqlite, "MAX_STEPS", _MAX_STEPS)
    return walk


_GIVEN: dict[str, Any] = {
    "session_id": SESSION,
    "context_id": f"board:{SESSION}",
    "agent_id": "planner",
    "label": "first",
    "from_label": "first",
    "to_label": "second",
    "key": "key_1",
    "keys": ["key_1", "key_2"],
    "query": "retry budget",
    "sender": "planner",
    "from_version": 1,
    "to_version": 300,
    "version": 300,
    "contains": "changed",
    "start_time": "2020-01-01T00:00:00Z",
    "end_time": "2030-01-01T00:00:00Z",
    "task_description": "What was decided about the retry budget?",
    "token_budget": 20_000,
    "ids": ["e1"],
}


def _request(operation: Operation, limit: int | None) -> dict[str, Any]:
    fields = operation.request.__struct_fields__
    raw = {name: value for name, value in _GIVEN.items() if name in fields}
    if operation.name == "events.read":
        raw = {"session_id": SESSION, "after": 0}
    return raw | ({"limit": limit} if "limit" in fields and limit else {})


@pytest.fixture
def _quick_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    embed_quickly(monkeypatch)


@pytest.mark.usefixtures("_quick_embedder")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_no_operation_reads_much_on_the_event_loop(world: World, walked: Walk) -> None:
    await grow(world, _MANY)
    await world.index_sessions()
    answered, long, moved = set(), {}, set()
    for operation in world.app.registry:
        if operation.effect is Effect.WRITE:
            continue
        for caller in (world.planner, world.admin):
            for limit in (200, 100, 50, None):
                walked.steps, walked.moved = 0, False
                try:
                    await caller.call(operation.name, **_request(operation, limit))
                except WeftlineError:
                    continue
                answered.add(operation.name)
                if walked.steps > _MAX_STEPS + heavy_reads.STATEMENT_STEPS + 1:
                    long[operation.name] = walked.steps
                if walked.moved:
                    moved.add(operation.name)
                break
    assert {"board.list_keys", "events.read", "history.state", "message.list", "search.query"} <= answered
    assert len(answered) > 50
    assert not long
    assert moved == _MOVED, "declare these heavy"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_large_batch_of_keys_is_not_read_on_the_event_loop(world: World, walked: Walk) -> None:
    keys = [f"key_{number}" for number in range(60)]
    await asyncio.gather(*(world.planner.write(key, "value") for key in keys))
    walked.steps = 0
    found = await world.planner.call("board.read_batch", session_id=SESSION, keys=keys)
    assert len(found["entries"]) == len(keys)
    assert walked.steps < len(keys)
    assert not walked.moved
    walked.steps = 0
    await world.planner.call("board.read_batch", session_id=SESSION, keys=keys[:5])
    assert walked.steps > 5, "few keys are not worth a thread"


@pytest.mark.usefixtures("_quick_embedder")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_no_operation_decodes_receipts_on_the_event_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, decoded = receipts._stored, []

    def noted(row: Any) -> Any:
        decoded.append(threading.current_thread())
        return decode(row)

    monkeypatch.setattr(receipts, "_stored", noted)
    for number in range(3):
        await world.planner.call("context.assemble", session_id=SESSION, task_description=f"Task {number}")
    found = {}
    for operation in world.app.registry:
        if operation.effect is Effect.WRITE or operation.name == "context.assemble":
            continue
        decoded.clear()
        with contextlib.suppress(WeftlineError):
            await world.planner.call(operation.name, **_request(operation, 50))
            found[operation.name] = list(decoded)
    decoding = {name: threads for name, threads in found.items() if threads}
    assert len(decoding["receipt.list"]) == 3
    assert {name for name, threads in decoding.items() if threading.main_thread() in threads} == set()
