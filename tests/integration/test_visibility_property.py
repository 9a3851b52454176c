"""Whatever is said by whomever, nobody is shown by any way of reading what the rules forbid.

Each message and each memory carries a mark of its own. Every answer is searched for marks as a whole, so that a leak is
found wherever in an answer it hides.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.app.dispatch import Arrival
from weft.kernel.errors import WeftError
from weft.transports.resources import parse_uri, read_resource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import Caller, World

VISIBILITIES = ("public", "private", "agent_only", "admin_only")
MARK = re.compile(r"mark[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Member:
    """Someone in the session, and what the rules say of it."""

    name: str
    agent_type: str
    is_admin: bool
    caller: Caller


@dataclass(slots=True)
class Said:
    """A message as the rules see it."""

    number: int
    mark: str
    sender: Member
    visibility: str
    seen_by: set[str] = field(default_factory=set)


def may_see(member: Member, said: Said) -> bool:
    """Say the rules once more, in other words than the product's own."""
    if said.visibility == "public":
        return True
    if said.visibility == "private":
        return member.name == said.sender.name
    if said.visibility == "agent_only":
        return member.agent_type == said.sender.agent_type
    return member.is_admin


def marks_in(answer: object) -> set[str]:
    return set(MARK.findall(msgspec.json.encode(answer).decode()))


@pytest.fixture
async def members(world: World) -> list[Member]:
    """Return agents of two types, sub-agents among them, an admin agent, a human admin, and an admin's narrow token."""
    made = [
        ("claude-1", "claude", {}),
        ("claude-2", "claude", {"parent_id": "planner"}),
        ("gemini-1", "gemini", {"parent_id": "planner"}),
        ("boss", "gemini", {"permissions": ["read", "write", "admin"]}),
    ]
    found = [Member("admin", "admin", is_admin=True, caller=world.admin)]
    for name, agent_type, what in made:
        caller = await world.admin.create_agent(name, agent_type=agent_type, **what)
        found.append(Member(name, agent_type, is_admin=name == "boss", caller=caller))
    narrow = await found[-1].caller.with_token("boss", "gemini", requested_permissions=["read", "write"])
    found.append(Member("boss", "gemini", is_admin=False, caller=narrow))
    return found


@pytest.fixture
def owners() -> dict[str, set[str]]:
    """Return the marks that each member keeps, over all examples, as memory outlasts a session."""
    return {}


async def ways_of_reading(member: Member, session: str) -> AsyncIterator[tuple[str, Any, bool]]:
    """Yield the name of each way, its answer, and whether it should show all that the member may see."""
    caller = member.caller.in_session(session)
    app, arrival = caller.app, Arrival(caller.credential)
    yield "list", await caller.messages(limit=1000), True
    for visibility in VISIBILITIES:
        yield f"list {visibility}", await caller.messages(visibility_filter=visibility), False
    for scope in ("all", "public", "private"):
        answer = await caller.search("telltale", limit=100, fuzzy_threshold=0, search_scope=scope)
        yield f"search {scope}", answer, scope == "all"
    yield "search metadata", await caller.search("mark", limit=100, fuzzy_threshold=0), False
    for name in ("claude-1", "claude-2", "gemini-1", "boss", "admin"):
        yield "by sender", await caller.call("search.by_sender", session_id=session, sender=name, limit=100), False
    span = {"start_time": "2000-01-01", "end_time": "2100-01-01", "limit": 200}
    yield "by time", await caller.call("search.by_timerange", session_id=session, **span), True
    yield "overview", await caller.call("session.overview", session_id=session), True
    content = await read_resource(app, parse_uri(f"session://{session}"), arrival)
    yield "resource", msgspec.json.decode(content), True
    yield "events", await caller.events(session_id=session), False
    yield "usage", await caller.call("usage.guidance"), False
    for operation, raw in (
        ("session.get", {"session_id": session}),
        ("session.list", {"limit": 1000}),
        ("performance.read", {}),
        ("audit.list", {"limit": 1000}),
        ("memory.list", {"session_id": "all"}),
    ):
        try:
            yield operation, await caller.call(operation, **raw), operation == "session.get"
        except WeftError as error:
            assert error.code == "PERMISSION_DENIED", operation  # noqa: PT017 - refusing is as good as hiding


async def check_everything(members: list[Member], session: str, transcript: list[Said]) -> None:
    for member in members:
        allowed = {said.mark for said in transcript if may_see(member, said)}
        async for way, answer, complete in ways_of_reading(member, session):
            shown = marks_in(answer)
            assert shown <= allowed, (way, member.name)
            assert not complete or shown == allowed, (way, member.name)
        await check_events(member, session, transcript)


async def check_events(member: Member, session: str, transcript: list[Said]) -> None:
    """Events name messages by number: of those that the member may see, or once could."""
    for said in transcript:
        if may_see(member, said):
            said.seen_by.add(f"{member.name}/{member.is_admin}")
    answer = await member.caller.events(session_id=session, types=["message.*"])
    told = {event["data"]["message_id"] for event in answer["events"]}
    once = {said.number for said in transcript if f"{member.name}/{member.is_admin}" in said.seen_by}
    assert told <= once, member.name


STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "say", "say", "change"]), st.integers(0, 5), st.sampled_from(VISIBILITIES)),
    min_size=1,
    max_size=14,
)


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-04")
@pytest.mark.req("MS-05")
@pytest.mark.req("MS-06")
@pytest.mark.req("MS-09")
@pytest.mark.req("MS-15")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12, deadline=None)
@given(steps=STEPS)
async def test_nobody_is_shown_a_message_that_is_not_for_it(
    world: World, members: list[Member], steps: list[tuple[str, int, str]]
) -> None:
    session = f"s{secrets.token_hex(6)}"
    await world.planner.create_session(session)
    transcript: list[Said] = []
    for act, who, visibility in steps:
        member = members[who]
        if act == "say":
            if visibility == "admin_only" and not member.is_admin:
                continue
            mark = f"mark{secrets.token_hex(6)}"
            number = await member.caller.in_session(session).say(
                f"telltale {mark}", visibility=visibility, metadata={"also": mark}
            )
            transcript.append(Said(number, mark, member, visibility))
        elif transcript:
            said = transcript[who % len(transcript)]
            # Noted before it changes: what was once shown may have been told of.
            await check_everything(members, session, transcript)
            await world.admin.call(
                "message.set_visibility", session_id=session, message_id=said.number, visibility=visibility
            )
            said.visibility = visibility
    await check_everything(members, session, transcript)


@pytest.mark.req("MS-07")
@pytest.mark.req("MS-09")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8, deadline=None)
@given(kept=st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=8))
async def test_nobody_is_shown_the_memory_of_another(
    world: World, members: list[Member], owners: dict[str, set[str]], kept: list[tuple[int, bool]]
) -> None:
    session = f"s{secrets.token_hex(6)}"
    await world.planner.create_session(session)
    for who, of_session in kept:
        mark = f"mark{secrets.token_hex(6)}"
        await members[who].caller.call(
            "memory.set",
            key=mark,
            value={"inside": mark},
            metadata={"also": mark},
            session_id=session if of_session else None,
        )
        owners.setdefault(members[who].name, set()).add(mark)
    for member in members:
        for answer in [answer async for _, answer, _ in ways_of_reading(member, session)]:
            assert marks_in(answer) <= owners.get(member.name, set()), member.name
        await check_memory_doors(member, members, owners, session)


async def check_memory_doors(member: Member, members: list[Member], owners: dict[str, set[str]], session: str) -> None:
    arrival = Arrival(member.caller.credential)
    for other in members:
        uri = parse_uri(f"agent://{other.name}/memory")
        if other.name == member.name:
            own = msgspec.json.decode(await read_resource(member.caller.app, uri, arrival))
            assert owners.get(member.name, set()) <= marks_in(own)
            continue
        with pytest.raises(WeftError) as refusal:
            await read_resource(member.caller.app, uri, arrival)
        assert refusal.value.code == "PERMISSION_DENIED"
        for mark in owners.get(other.name, set()):
            for scope in (None, session):
                with pytest.raises(WeftError) as absent:
                    await member.caller.call("memory.get", key=mark, session_id=scope)
                assert absent.value.code == "MEMORY_NOT_FOUND"
                assert marks_in(absent.value.body("").context) <= {mark} | owners.get(member.name, set())
