"""No read path returns a message or memory outside its visibility, for random authors and readers.

Each message and memory contains a unique marker. Whole responses are searched for markers, so a leak is found in any
field.
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

from support.full_run import examples
from support.world import outcome
from weft.app.dispatch import CallContext
from weft.capabilities.events.model import EventFilter
from weft.kernel.errors import WeftError
from weft.transports.resources import parse_uri, read_resource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import Caller, World

pytestmark = pytest.mark.both_databases

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
    """Return everyone a team may be drawn from: of three types, sub-agents or not, admins or not, and narrow tokens."""
    found = [Member("admin", "admin", is_admin=True, caller=world.admin)]
    for agent_type in ("claude", "gemini", "custom"):
        for parent in (None, "planner"):
            for permissions in (["read", "write"], ["read", "write", "admin"]):
                name = f"{agent_type}-{'sub' if parent else 'top'}-{len(permissions)}"
                what = {"agent_type": agent_type, "parent_id": parent, "permissions": permissions}
                caller = await world.admin.create_agent(name, **what)
                found.append(Member(name, agent_type, is_admin="admin" in permissions, caller=caller))
    for boss in [member for member in found if member.is_admin and member.name.endswith("top-3")]:
        narrow = await boss.caller.with_token(boss.name, boss.agent_type, requested_permissions=["read", "write"])
        found.append(Member(boss.name, boss.agent_type, is_admin=False, caller=narrow))
    return found


@pytest.fixture
def owners() -> dict[str, set[str]]:
    """Return the marks that each member keeps, over all examples, as memory outlasts a session."""
    return {}


async def ways_of_reading(member: Member, session: str) -> AsyncIterator[tuple[str, Any, bool]]:
    """Yield the name of each way, its answer, and whether it should show all that the member may see."""
    caller = member.caller.in_session(session)
    app, arrival = caller.app, CallContext(caller.credential)
    yield "list", await caller.messages(limit=1000), True
    for visibility in VISIBILITIES:
        yield f"list {visibility}", await caller.messages(visibility_filter=visibility), False
    for scope in ("all", "public", "private"):
        answer = await caller.search("telltale", limit=100, fuzzy_threshold=0, search_scope=scope)
        yield f"search {scope}", answer, scope == "all"
    yield "search metadata", await caller.search("mark", limit=100, fuzzy_threshold=0), False
    for name in {message["sender"] for message in (await caller.messages(limit=1000))["messages"]} | {"admin"}:
        yield (
            "by sender",
            await caller.call("message.search_by_sender", session_id=session, sender=name, limit=100),
            False,
        )
    span = {"start_time": "2000-01-01", "end_time": "2100-01-01", "limit": 200}
    yield "by time", await caller.call("message.search_by_timerange", session_id=session, **span), True
    yield "overview", await caller.call("session.overview", session_id=session), True
    content = await read_resource(app, parse_uri(f"session://{session}"), arrival)
    yield "resource", msgspec.json.decode(content), True
    yield "events", await caller.events(session_id=session), False
    yield "usage", await caller.call("agent.capabilities"), False
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
    now = {said.number for said in transcript if may_see(member, said)}
    assert now <= told <= once, member.name


TEAM = st.lists(st.integers(0, 15), min_size=2, max_size=5, unique=True)
STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "say", "say", "change"]), st.integers(0, 9), st.sampled_from(VISIBILITIES)),
    min_size=1,
    max_size=14,
)


class Follower:
    """A live subscription of one member, begun before anything is said."""

    def __init__(self, member: Member, session: str, after: int) -> None:
        self.member = member
        self.told: set[int] = set()
        self._pages = member.caller.follow(EventFilter(session, types=("message.*",)), after)

    async def up_to(self, seq: int) -> None:
        """Follow until an event that everyone is told of has come."""
        async for page in self._pages:
            self.told |= {event.data["message_id"] for event in page.events if event.type.startswith("message.")}
            if page.reached >= seq:
                return


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-04")
@pytest.mark.req("MS-05")
@pytest.mark.req("MS-06")
@pytest.mark.req("MS-09")
@pytest.mark.req("MS-15")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(12), deadline=None)
@given(team=TEAM, steps=STEPS)
async def test_no_reader_sees_a_message_outside_its_visibility(
    world: World, members: list[Member], team: list[int], steps: list[tuple[str, int, str]]
) -> None:
    session = f"s{secrets.token_hex(6)}"
    await world.planner.create_session(session)
    chosen = [members[number % len(members)] for number in team]
    followers = [Follower(member, session, await world.last_event()) for member in chosen]
    transcript: list[Said] = []
    for act, who, visibility in steps:
        member = chosen[who % len(chosen)]
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
            await check_everything(chosen, session, transcript)
            await world.admin.call(
                "message.set_visibility", session_id=session, message_id=said.number, visibility=visibility
            )
            said.visibility = visibility
    await check_everything(chosen, session, transcript)
    await world.planner.in_session(session).say("the end")
    for follower in followers:
        await follower.up_to(await world.last_event())
        seen = {
            said.number for said in transcript if f"{follower.member.name}/{follower.member.is_admin}" in said.seen_by
        }
        assert follower.told - {len(transcript) + 1} <= seen, follower.member.name
    await check_outsiders(world, session)


async def check_outsiders(world: World, session: str) -> None:
    """To those who take no part, a session says nothing, whatever they ask."""
    closed = f"{session}-closed"
    await world.planner.create_session(closed, participants=["orchestrator"])
    await world.planner.in_session(closed).say(f"telltale mark{secrets.token_hex(6)}")
    for caller, name in ((world.review, closed), (world.stranger, closed), (world.stranger, session)):
        outside = caller.in_session(name)
        for call in (outside.messages(), outside.search("telltale"), outside.say("hello")):
            assert await outcome(call) == "SESSION_NOT_FOUND"
        assert not marks_in(await caller.events(personal=True))


@pytest.mark.req("MS-07")
@pytest.mark.req("MS-09")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(8), deadline=None)
@given(kept=st.lists(st.tuples(st.integers(0, 15), st.booleans()), min_size=1, max_size=8))
async def test_no_agent_sees_the_memory_of_another(
    world: World, members: list[Member], owners: dict[str, set[str]], kept: list[tuple[int, bool]]
) -> None:
    session = f"s{secrets.token_hex(6)}"
    await world.planner.create_session(session)
    for who, of_session in kept:
        mark = f"mark{secrets.token_hex(6)}"
        owner = members[who % len(members)]
        await owner.caller.call(
            "memory.set",
            key=mark,
            value={"inside": mark},
            metadata={"also": mark},
            session_id=session if of_session else None,
        )
        owners.setdefault(owner.name, set()).add(mark)
    for member in members[:6]:
        for answer in [answer async for _, answer, _ in ways_of_reading(member, session)]:
            assert marks_in(answer) <= owners.get(member.name, set()), member.name
        await check_memory_doors(member, members, owners, session)


async def check_memory_doors(member: Member, members: list[Member], owners: dict[str, set[str]], session: str) -> None:
    arrival = CallContext(member.caller.credential)
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
