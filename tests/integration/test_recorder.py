"""Records that operations of Weftline store, one by one or several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.records import all_records
from support.world import SESSION, refused
from weftline.app.dispatch import CallContext
from weftline.records.model import ContextBudget
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.sessions.model import lock_active_session
from weftline.sessions.recorder import Recorder
from weftline.sessions.sql import SessionStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.world import World
    from weftline.kernel.transaction import Transaction
    from weftline.records.schemas import StoredRecord


def budget(name: str, max_items: int = 1) -> ContextBudget:
    at = "2025-01-15T10:00:00Z"
    return ContextBudget(
        schema_version=SCHEMA_VERSION, budget_id=name, target="m", created_at=at, max_items=max_items, actual_items=1
    )


async def add_all(world: World, *records: ContextBudget) -> Sequence[StoredRecord]:
    actor = await world.app.identify(CallContext(world.planner.credential))

    async def work(tx: Transaction) -> Sequence[StoredRecord]:
        recorder = world.app._container.build(Recorder, actor, tx)
        sessions = world.app._container.build(SessionStore, actor, tx)
        session, _ = await lock_active_session(SESSION, actor, sessions)
        return await recorder.add_all(records, session)

    return await world.app.database.write(Scope(world.tenant), work)


async def test_several_records_are_stored_with_the_numbers_of_their_events(world: World) -> None:
    stored = await add_all(world, *(budget(f"b{number}") for number in range(5)))
    first = stored[0].seq
    assert [row.seq for row in stored] == list(range(first, first + 5))
    entries = [
        each for each in await all_records(world.planner, session_id=SESSION) if each["type"] == "context_budget"
    ]
    assert [(each["record"]["budget_id"], each["seq"]) for each in entries] == [
        (f"b{number}", first + number) for number in range(5)
    ]
    events = (await world.planner.events(session_id=SESSION))["events"]
    budgets = [(each["subject"], each["seq"]) for each in events if each["type"] == "context.budget.applied"]
    assert budgets == [(f"b{number}", first + number) for number in range(5)]


async def test_records_that_are_stored_already_are_returned_without_an_event(world: World) -> None:
    known = await add_all(world, budget("b1"))
    before = await world.last_event()
    assert list(await add_all(world, budget("b1"))) == list(known)
    assert await world.last_event() == before
    again = await add_all(world, budget("b0"), budget("b1"), budget("b2"))
    assert [row.record_id for row in again] == ["b0", "b1", "b2"]
    assert await world.last_event() == before + 2


@pytest.mark.parametrize(
    "records", [(budget("b1", 2),), (budget("b2"), budget("b2", 2))], ids=["stored", "in the batch"]
)
async def test_an_id_with_other_content_is_refused_and_nothing_is_stored(
    world: World, records: Sequence[ContextBudget]
) -> None:
    await add_all(world, budget("b1"))
    before = await world.last_event()
    with refused("RECORD_EXISTS"):
        await add_all(world, budget("b3"), *records)
    assert await world.last_event() == before
