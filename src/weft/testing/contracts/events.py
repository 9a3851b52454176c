"""The contract of Outbox and EventStore, which are two ends of one table."""
# ruff: noqa: S101, PLR2004 - tests that others run

from __future__ import annotations

from weft.kernel.events import NewEvent
from weft.testing.contracts.stores import Stores


def event(subject: str, session_id: str | None = "s1") -> NewEvent:
    return NewEvent(
        type="board.written",
        session_id=session_id,
        subject=subject,
        actor="orchestrator",
        participants=("subagent:*",),
        data={"version": 1},
    )


class EventStoreContract:
    """Events are numbered without gaps and come back in order."""

    async def test_events_are_numbered_from_one_without_gaps(self, stores: Stores) -> None:
        assert await stores.events.last_seq() == 0
        await stores.outbox.publish(event("a"), event("b"))
        await stores.outbox.publish()
        await stores.outbox.publish(event("c"))
        found = await stores.events.after(0, None, 10)
        assert [(each.event.seq, each.event.subject) for each in found] == [(1, "a"), (2, "b"), (3, "c")]
        assert await stores.events.last_seq() == 3

    async def test_an_event_comes_back_with_those_who_may_be_told(self, stores: Stores) -> None:
        await stores.outbox.publish(event("a"))
        (found,) = await stores.events.after(0, None, 10)
        assert (found.participants, found.readable_by) == (("subagent:*",), ("*",))
        assert (found.event.type, found.event.actor, found.event.data) == (
            "board.written",
            "orchestrator",
            {"version": 1},
        )

    async def test_events_are_read_from_an_offset_by_session_up_to_a_limit(self, stores: Stores) -> None:
        await stores.outbox.publish(event("a"), event("b", "s2"), event("c"), event("d", None))
        assert [each.event.subject for each in await stores.events.after(1, None, 2)] == ["b", "c"]
        assert [each.event.subject for each in await stores.events.after(0, "s1", 10)] == ["a", "c"]
        assert await stores.events.after(4, None, 10) == []

    async def test_tenants_count_their_own_events(self, stores: Stores, elsewhere: Stores) -> None:
        await stores.outbox.publish(event("a"), event("b"))
        await elsewhere.outbox.publish(event("c"))
        assert (await stores.events.last_seq(), await elsewhere.events.last_seq()) == (2, 1)
        assert [each.event.subject for each in await elsewhere.events.after(0, None, 10)] == ["c"]
