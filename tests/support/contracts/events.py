"""The contract of Outbox and EventStore: they write and read the same table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.kernel.clock import from_micros
from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.events import Event, NewEvent, Origin, StoredEvent
from weftline.sessions.events.model import EventQuery
from weftline.sessions.model import Session, SessionConfig


def event(subject: str, session_id: str | None = "s1") -> NewEvent:
    return NewEvent(
        type="board.written",
        session_id=session_id,
        subject=subject,
        actor="orchestrator",
        participants=("subagent:*",),
        data={"version": 1},
    )


def foreign_event(
    subject: str, at: int, correlation: Correlation = NO_CORRELATION, origin: Origin | None = None
) -> StoredEvent:
    """Return an event of another installation."""
    happened = Event(
        seq=1,
        type="record.added",
        session_id="s1",
        subject=subject,
        actor="orchestrator:planner",
        agent_id="planner",
        at=from_micros(at),
        data={},
    )
    return StoredEvent(happened, ("*",), ("*",), correlation, origin)


async def republish(stores: ContractStores, *past: StoredEvent) -> None:
    first = await stores.past.reserve(len(past))
    await stores.past.republish(
        [replace(each, event=structs.replace(each.event, seq=seq)) for seq, each in enumerate(past, first)]
    )


class EventStoreContract:
    """Events are numbered without gaps and read in order."""

    async def test_events_are_numbered_from_one_without_gaps(self, stores: ContractStores) -> None:
        assert await stores.events.last_seq() == 0
        await stores.outbox.publish(event("a"), event("b"))
        await stores.outbox.publish()
        await stores.outbox.publish(event("c"))
        found = await stores.events.after(0, None, 10)
        assert [(each.event.seq, each.event.subject) for each in found] == [(1, "a"), (2, "b"), (3, "c")]
        assert await stores.events.last_seq() == 3

    async def test_a_batch_of_events_takes_consecutive_numbers_in_order(self, stores: ContractStores) -> None:
        await stores.outbox.publish(event("first"))
        await stores.outbox.publish(*(event(f"{number}") for number in range(60)))
        found = await stores.events.after(1, None, 100)
        assert [(each.event.seq, each.event.subject) for each in found] == [(n + 2, f"{n}") for n in range(60)]

    async def test_the_log_is_read_backwards_as_well(self, stores: ContractStores) -> None:
        await stores.outbox.publish(*map(event, "abcd"))
        assert [each.event.subject for each in await stores.events.before(4, 2)] == ["c", "b"]
        assert [each.event.subject for each in await stores.events.before(2, 10)] == ["a"]
        assert list(await stores.events.before(1, 10)) == []

    async def test_an_event_is_read_with_its_audience(self, stores: ContractStores) -> None:
        await stores.outbox.publish(event("a", session_id=None))
        (found,) = await stores.events.after(0, None, 10)
        assert (found.participants, found.readable_by) == (("subagent:*",), ("*",))
        assert (found.event.type, found.event.actor, found.event.data) == (
            "board.written",
            "orchestrator",
            {"version": 1},
        )

    async def test_an_event_of_a_session_is_for_its_members_of_now(self, stores: ContractStores) -> None:
        async def readers() -> list[tuple[str, ...]]:
            return [each.participants for each in await stores.events.after(0, None, 10)]

        session = Session("s1", "x", {}, SessionConfig(), "planner", 1, 1, None, members=("tree:planner",))
        await stores.outbox.publish(event("a"), structs.replace(event("s1"), type="session.deleted"))
        assert await readers() == [(), ("subagent:*",)]
        await stores.sessions.add(session)
        assert await readers() == [("principal:planner", "tree:planner"), ("subagent:*",)]
        await stores.sessions.set_members(structs.replace(session, members=("*",)))
        assert await readers() == [("principal:planner", "*"), ("subagent:*",)]
        await stores.sessions.erase("s1")
        await stores.outbox.publish(event("b"))
        assert await readers() == [()]

    async def test_events_are_read_from_an_offset_by_session_up_to_a_limit(self, stores: ContractStores) -> None:
        await stores.outbox.publish(event("a"), event("b", "s2"), event("c"), event("d", None))
        assert [each.event.subject for each in await stores.events.after(1, None, 2)] == ["b", "c"]
        assert [each.event.subject for each in await stores.events.after(0, "s1", 10)] == ["a", "c"]
        assert await stores.events.after(4, None, 10) == []

    async def test_events_are_found_by_their_fields(self, stores: ContractStores) -> None:
        await stores.outbox.publish(event("a"), event("b", "s2"), event("c"))
        part = Correlation(turn_id="t1", task_id="x", run_id="r")
        other = Correlation(turn_id="t1", tool_call_id="c1", trace_id="a" * 32, mcp_session_id="m1")
        await republish(stores, foreign_event("d", at=5, correlation=part), foreign_event("e", at=7, correlation=other))

        async def subjects(after: int = 0, limit: int = 9, **wanted: Any) -> list[str]:
            return [each.event.subject for each in await stores.events.find(EventQuery(**wanted), after, limit)]

        assert await subjects() == ["a", "b", "c", "d", "e"]
        assert await subjects(after=1, limit=2) == ["b", "c"]
        assert await subjects(upto=2) == ["a", "b"]
        assert await subjects(session_id="s2") == ["b"]
        assert await subjects(actor="orchestrator:planner") == ["d", "e"]
        assert await subjects(subject="c") == ["c"]
        assert await subjects(turn_id="t1") == ["d", "e"]
        assert await subjects(turn_id="t1", task_id="x") == ["d"]
        assert await subjects(tool_call_id="c1", session_id="s1") == ["e"]
        assert await subjects(tool_call_id="c1", session_id="s2") == []
        assert await subjects(trace_id="a" * 32) == ["e"]
        assert await subjects(native_id="m1") == ["e"]
        assert await subjects(native_id="m2") == []
        assert await subjects(items=False) == ["d", "e"]

    async def test_events_are_found_by_time_regardless_of_their_number(self, stores: ContractStores) -> None:
        for subject, at in (("late", 9), ("early", 3), ("middle", 6)):
            await republish(stores, foreign_event(subject, at=at))

        async def subjects(after: int = 0, **wanted: Any) -> list[str]:
            return [each.event.subject for each in await stores.events.find(EventQuery(**wanted), after, 9)]

        assert await subjects(since=4) == ["late", "middle"]
        assert await subjects(until=6) == ["early"]
        assert await subjects(since=6, until=9) == ["middle"]
        assert await subjects(since=3, until=10, after=1) == ["early", "middle"]
        assert await subjects(since=10) == []

    async def test_events_are_found_by_their_numbers(self, stores: ContractStores) -> None:
        for start in range(0, 120, 40):
            await stores.outbox.publish(*(event(f"k{n}") for n in range(start, start + 40)))
        found = await stores.events.numbered([118, 999, *range(100, 2, -1)])
        assert [each.event.seq for each in found] == [*range(3, 101), 118]
        assert await stores.events.numbered([]) == []

    async def test_an_imported_event_keeps_its_time_origin_and_correlation(self, stores: ContractStores) -> None:
        correlation = Correlation(turn_id="t1", trace_id="0" * 32, mcp_session_id="m")
        await republish(stores, foreign_event("a", at=5, correlation=correlation, origin=Origin("urn:there", "77")))
        (found,) = await stores.events.find(EventQuery(turn_id="t1"), 0, 9)
        assert (found.correlation, found.origin, found.event.at) == (
            correlation,
            Origin("urn:there", "77"),
            from_micros(5),
        )

    async def test_reserved_sequence_numbers_follow_all_existing_ones(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        await stores.outbox.publish(event("a"), event("b"))
        assert await stores.past.reserve(3) == 3
        await stores.outbox.publish(event("c"))
        assert await stores.events.last_seq() == 6
        assert await elsewhere.past.reserve(1) == 1

    async def test_tenants_count_their_own_events(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.outbox.publish(event("a"), event("b"))
        await elsewhere.outbox.publish(event("c"))
        assert (await stores.events.last_seq(), await elsewhere.events.last_seq()) == (2, 1)
        assert [each.event.subject for each in await elsewhere.events.after(0, None, 10)] == ["c"]
