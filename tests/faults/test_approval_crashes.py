"""An approved call is performed exactly once, whenever the process that performs it is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import support.approving_process
from support import forked_python
from support.approvals import Asking
from support.jobs import pause_jobs
from support.world import outcome, refused
from weftline.app.approved_calls import ADVANCE

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.both_databases
TIMEOUT_SECONDS = 60


@pytest.fixture(autouse=True)
def _advances_when_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_jobs(monkeypatch, ADVANCE)


@pytest.fixture
async def approver(world: World) -> Caller:
    return await world.admin.create_agent("approver", kind="human", clearance=3, permissions=["read", "write"])


async def hold(world: World, caller: Caller, operation: str, **raw: Any) -> str:
    world.app.guards.install(Asking(operation))
    with refused("APPROVAL_PENDING") as caught:
        await caller.call(operation, **raw)
    return caught.value.context["approval_id"]


async def approve_and_be_killed(world: World, approver: Caller, approval_id: str, point: str, operation: str) -> None:
    process = await asyncio.create_subprocess_exec(
        forked_python.python(),
        str(Path(support.approving_process.__file__)),
        world.url,
        approver.credential,
        approval_id,
        point,
        operation,
        world.settings.data_dir,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        output, _ = await process.communicate()
    assert output == b"reached"
    assert process.returncode != 0


async def take_over(world: World) -> None:
    world.clock.advance(seconds=61)
    await world.app.scheduler.drain(ADVANCE)


@pytest.mark.parametrize("point", ["decided", "before_commit", "committed"])
async def test_a_killed_approver_neither_loses_nor_repeats_a_call(world: World, approver: Caller, point: str) -> None:
    raw = {"session_id": "s1", "content": "deploy now"}
    approval_id = await hold(world, world.planner, "message.add", **raw)
    await approve_and_be_killed(world, approver, approval_id, point, "message.add")
    assert await world.planner.message_texts() == (["deploy now"] if point == "committed" else [])
    assert await outcome(world.planner.call("message.add", **raw)) == "APPROVAL_PENDING"
    assert await outcome(approver.call("approval.reject", approval_id=approval_id)) == "APPROVAL_CLOSED"
    # The killed process may only be slow: nothing is taken over before its time.
    await world.app.scheduler.drain(ADVANCE)
    assert (await approver.call("approval.show", approval_id=approval_id))["state"] == "approved"
    await take_over(world)
    assert await world.planner.message_texts() == ["deploy now"]
    assert (await world.planner.call("message.add", **raw))["message_id"] == 1
    await take_over(world)
    assert await world.planner.message_texts() == ["deploy now"]


@pytest.mark.parametrize("point", ["decided", "committed"])
async def test_a_call_with_its_own_transactions_is_not_repeated(world: World, approver: Caller, point: str) -> None:
    await world.admin.call("knowledge.create_domain", domain="handbook")
    raw = {"domain": "handbook", "document_id": "a", "content": "text"}
    approval_id = await hold(world, world.admin, "knowledge.add_document", **raw)
    await approve_and_be_killed(world, approver, approval_id, point, "knowledge.add_document")
    await take_over(world)
    expected = {"decided": "ok", "committed": "APPROVAL_INTERRUPTED"}
    assert await outcome(world.admin.call("knowledge.add_document", **raw)) == expected[point]
    documents = await world.rows("SELECT version FROM documents WHERE tenant = $1", world.tenant)
    assert [version for (version,) in documents] == [1]


async def test_processes_that_perform_at_the_same_time_commit_once(world: World, approver: Caller) -> None:
    """A slow performer that was taken over does not commit."""
    raw = {"session_id": "s1", "content": "deploy now"}
    approval_id = await hold(world, world.planner, "message.add", **raw)
    await approve_and_be_killed(world, approver, approval_id, "decided", "message.add")
    others = [await world.another_app() for _ in range(3)]
    for app in others:
        app.guards.install(Asking("message.add"))
    world.clock.advance(seconds=61)
    await asyncio.gather(*(app.scheduler.drain(ADVANCE) for app in (world.app, *others)))
    assert await world.planner.message_texts() == ["deploy now"]
