"""The queue of SQLite's writer: fair by tenant and principal, and bounded."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from weftline.kernel.errors import ServerBusy
from weftline.storage.sql.database import Scope
from weftline.storage.sql.dialects import sqlite
from weftline.storage.sql.dialects.sqlite import SqliteDatabase
from weftline.storage.sql.dialects.sqlite_writes import (
    GROUP_SECONDS,
    LONE_GROUP_SECONDS,
    MAX_WAITING,
    WorkClock,
    WriteJob,
    WriteQueue,
)

if TYPE_CHECKING:
    from pathlib import Path

    from weftline.kernel.transaction import Transaction

_LOOP = asyncio.new_event_loop()


async def _nothing(_: object) -> None:
    """Do nothing: the queue runs no work."""


def job(tenant: str, principal: str) -> WriteJob:
    return WriteJob(Scope(tenant, None, principal), _nothing, _LOOP.create_future())


def drained(queue: WriteQueue) -> list[str]:
    found, job = [], queue.first(1)
    while job is not None:
        found.append(job.scope.principal)
        queue.charge(job, 0.001)
        job = queue.following()
    return found


def test_a_principal_with_many_writes_takes_turns_with_others() -> None:
    queue = WriteQueue()
    for _ in range(50):
        queue.put(job("t", "mallory"))
    queue.put(job("t", "ann"))
    queue.put(job("other", "bob"))
    order = drained(queue)
    assert len(order) == 52
    assert order.index("ann") <= 3
    assert order.index("bob") <= 3


def test_writes_of_one_principal_stay_in_order() -> None:
    queue = WriteQueue()
    jobs = [job("t", "ann") for _ in range(20)]
    for each in jobs:
        queue.put(each)
    found = [queue.first(1)]
    queue.put(job("t", "bob"))
    while (following := queue.following()) is not None:
        found.append(following)
    assert [each for each in found if each is not None and each.scope.principal == "ann"] == jobs


def test_a_principal_whose_last_write_took_long_is_committed_without_others() -> None:
    queue = WriteQueue()
    queue.put(job("t", "mallory"))
    slow = queue.first(1)
    assert slow is not None
    queue.charge(slow, 0.2)
    queue.put(job("t", "ann"))
    queue.put(job("t", "mallory"))
    first = queue.first(1)
    assert first is not None
    assert first.scope.principal == "ann"
    assert queue.following() is None
    following = queue.first(1)
    assert following is not None
    assert following.scope.principal == "mallory"


def test_waiting_writes_of_one_principal_are_bounded_and_those_of_background_work_are_not() -> None:
    queue = WriteQueue()
    waiting = [job("t", "mallory") for _ in range(MAX_WAITING)]
    for each in waiting:
        queue.put(each)
    with pytest.raises(ServerBusy) as refused:
        queue.put(job("t", "mallory"))
    assert refused.value.context["retry_after_seconds"] >= 1
    queue.put(job("t", "ann"))
    for _ in range(MAX_WAITING + 1):
        queue.put(job("t", ""))
    queue.settle(waiting[0])
    queue.put(job("t", "mallory"))


def test_a_closed_queue_is_emptied_before_the_writer_ends() -> None:
    queue = WriteQueue()
    queue.put(job("t", "ann"))
    queue.put(job("t", "bob"))
    queue.close()
    assert sorted(drained(queue)) == ["ann", "bob"]
    assert queue.first(1) is None


def test_a_group_may_take_longer_while_no_other_principal_waits() -> None:
    queue = WriteQueue()
    for _ in range(3):
        queue.put(job("t", "ann"))
    queue.first(1)
    assert not queue.is_time_spent(2 * GROUP_SECONDS)
    assert queue.is_time_spent(2 * LONE_GROUP_SECONDS)
    queue.put(job("t", "bob"))
    queue.following()
    assert queue.is_time_spent(2 * GROUP_SECONDS)


def test_time_that_a_write_waited_is_not_charged() -> None:
    clock = WorkClock()
    time.sleep(0.05)
    assert clock.lap() < 0.04
    assert clock.total < 0.04


async def test_a_write_that_waited_too_long_is_refused_unless_it_is_background_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = SqliteDatabase(tmp_path / "weftline.db")
    await database.open()
    ran: list[str] = []

    async def write(tenant: str, principal: str) -> None:
        async def work(_: object) -> None:
            ran.append(principal)

        await database.write(Scope(tenant, None, principal), work)

    try:
        # Every wait is too long.
        monkeypatch.setattr(sqlite, "MAX_WAIT_SECONDS", -1.0)
        late = await asyncio.gather(write("t", "ann"), write("t", ""), write("t", "bob"), return_exceptions=True)
        assert [type(each) for each in late] == [ServerBusy, type(None), ServerBusy]
        assert isinstance(late[0], ServerBusy)
        assert late[0].context["retry_after_seconds"] >= 1
        assert ran == [""]
        monkeypatch.undo()
        await write("t", "ann")
        assert ran == ["", "ann"]
    finally:
        await database.close()


async def test_a_refused_write_stays_refused_when_its_group_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = SqliteDatabase(tmp_path / "weftline.db")
    await database.open()
    ran: list[str] = []

    async def create(transaction: Transaction) -> None:
        await transaction.run("CREATE TABLE notes (text TEXT)")

    async def add_then_fail(transaction: Transaction) -> None:
        await transaction.run("INSERT INTO notes VALUES ('lost')")
        raise ValueError

    async def late(_: object) -> None:
        ran.append("late")

    try:
        await database.write(Scope("t"), create)
        monkeypatch.setattr(sqlite, "MAX_WAIT_SECONDS", -1.0)
        # The second write fails after it has changed rows, so the whole group is repeated.
        answers = await asyncio.gather(
            database.write(Scope("t", None, "ann"), late),
            database.write(Scope("t"), add_then_fail),
            return_exceptions=True,
        )
        assert [type(each) for each in answers] == [ServerBusy, ValueError]
        assert not ran
    finally:
        await database.close()
