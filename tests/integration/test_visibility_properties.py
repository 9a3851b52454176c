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
from weftline.app.dispatch import CallContext
from weftline.kernel.errors import WeftlineError
from weftline.sessions.events.model import EventFilter
from weftline.transports.resources import parse_uri, read_resource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import Caller, World

pytestmark = pytest.mark.both_databases

VISIBILITIES = ("public", "private", "agent_only", "admin_only")
MARK = re.compile(r"mark[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Member:
    """A principal in the session."""

    name: str
    agent_type: str
    is_admin: bool
    caller: Caller


@dataclass(slots=True)
class Message:
    """A message in the model."""

    number: int
    mark: str
    sender: Member
    visibility: str
    recipient: str | None = None
    seen_by: set[str] = field(default_factory=set)


def may_see(member: Member, message: Message) -> bool:
    """Reference implementation of the visibility rules."""
    if message.visibility == "public":
        return True
    if message.visibility == "private":
        return member.name in (message.sender.name, message.recipient)
    if message.visibility == "agent_only":
        return member.agent_type == message.sender.agent_type
    return member.is_admin


def marks_in(answer: object) -> set[str]:
    return set(MARK.findall(msgspec.json.encode(answer).decode()))


@pytest.fixture
async def members(world: World) -> list[Member]:
    """Return all possible members: three types, sub-agents or not, admins or not, and narrowed tokens."""
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
    """Return the marks each member has in memory, shared by all examples because memory outlives a session."""
    return {}


async def read_paths(member: Member, session: str) -> AsyncIterator[tuple[str, Any, bool]]:
    """Yield each read path, its answer, and whether it must show all visible messages."""
    caller = member.caller.in_session(session)
    app, context = caller.app, CallContext(caller.credential)
    yield "list", await caller.messages(limit=1000), True
    for visibility in VISIBILITIES:
        yield f"list {visibility}", await caller.messages(visibility_filter=visibility), False
    for scope in ("all", "public", "private"):
        answer = await caller.search("marker", limit=100, fuzzy_threshold=0, search_scope=scope)
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
    content = await read_resource(app, parse_uri(f"session://{session}"), context)
    yield "resource", msgspec.json.decode(content), True
    yield "events", await caller.events(session_id=session), False
    yield "inbox", await caller.call("message.inbox", session_id=session, limit=100), False
    span = {"query": "marker", "session_id": session, "top_k": 50, "low_confidence": True}
    yield "search everything", await caller.call("search.query", **span), False
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
        except WeftlineError as error:
            assert error.code == "PERMISSION_DENIED", operation  # noqa: PT017 - refusing is as good as hiding


async def check_read_paths(members: list[Member], session: str, transcript: list[Message]) -> None:
    for member in members:
        allowed = {message.mark for message in transcript if may_see(member, message)}
        async for path, answer, complete in read_paths(member, session):
            shown = marks_in(answer)
            assert shown <= allowed, (path, member.name)
            assert not complete or shown == allowed, (path, member.name)
        await check_events(member, session, transcript)


async def check_events(member: Member, session: str, transcript: list[Message]) -> None:
    """Events name only messages that the member may read now or could read before."""
    for message in transcript:
        if may_see(member, message):
            message.seen_by.add(f"{member.name}/{member.is_admin}")
    answer = await member.caller.events(session_id=session, types=["message.*"])
    published = {event["data"]["message_id"] for event in answer["events"]}
    once = {message.number for message in transcript if f"{member.name}/{member.is_admin}" in message.seen_by}
    now = {message.number for message in transcript if may_see(member, message)}
    assert now <= published <= once, member.name


TEAM = st.lists(st.integers(0, 15), min_size=2, max_size=5, unique=True)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "say", "change"]),
        st.integers(0, 9),
        st.sampled_from(VISIBILITIES),
        st.none() | st.integers(0, 9),
    ),
    min_size=1,
    max_size=14,
)


class Subscription:
    """A live subscription of one member, started before the first message."""

    def __init__(self, member: Member, session: str, after: int) -> None:
        self.member = member
        self.message_ids: set[int] = set()
        self._pages = member.caller.follow(EventFilter(session, types=("message.*",)), after)

    async def up_to(self, seq: int) -> None:
        """Follow until an event visible to everyone has arrived."""
        async for page in self._pages:
            self.message_ids |= {event.data["message_id"] for event in page.events if event.type.startswith("message.")}
            if page.reached >= seq:
                return


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-04")
@pytest.mark.req("MS-05")
@pytest.mark.req("MS-06")
@pytest.mark.req("MS-09")
@pytest.mark.req("MS-15")
@pytest.mark.req("WX-03")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(12), deadline=None)
@given(team=TEAM, steps=STEPS)
async def test_no_reader_sees_a_message_outside_its_visibility(
    world: World, members: list[Member], team: list[int], steps: list[tuple[str, int, str, int | None]]
) -> None:
    session = f"s{secrets.token_hex(6)}"
    await world.planner.create_session(session, members=["*"])
    chosen = [members[number % len(members)] for number in team]
    subscriptions = [Subscription(member, session, await world.last_event()) for member in chosen]
    transcript: list[Message] = []
    for act, who, visibility, to in steps:
        member = chosen[who % len(chosen)]
        if act == "say":
            if visibility == "admin_only" and not member.is_admin:
                continue
            mark = f"mark{secrets.token_hex(6)}"
            addressed = to is not None and visibility in ("public", "private")
            recipient = chosen[to % len(chosen)].name if addressed else None
            number = await member.caller.in_session(session).say(
                f"marker {mark}", visibility=visibility, metadata={"also": mark}, recipient_id=recipient
            )
            transcript.append(Message(number, mark, member, visibility, recipient))
        elif transcript:
            message = transcript[who % len(transcript)]
            # Recorded before the change: a message visible before may have been published.
            await check_read_paths(chosen, session, transcript)
            await world.admin.call(
                "message.set_visibility", session_id=session, message_id=message.number, visibility=visibility
            )
            message.visibility = visibility
    await check_read_paths(chosen, session, transcript)
    await world.planner.in_session(session).say("the end")
    for subscription in subscriptions:
        await subscription.up_to(await world.last_event())
        seen = {
            message.number
            for message in transcript
            if f"{subscription.member.name}/{subscription.member.is_admin}" in message.seen_by
        }
        assert subscription.message_ids - {len(transcript) + 1} <= seen, subscription.member.name
    await check_outsiders(world, session)


async def check_outsiders(world: World, session: str) -> None:
    """A session is not found by those who are not members."""
    closed = f"{session}-closed"
    await world.planner.create_session(closed, members=["orchestrator"])
    await world.planner.in_session(closed).say(f"marker mark{secrets.token_hex(6)}")
    for caller, name in ((world.review, closed), (world.stranger, closed), (world.stranger, session)):
        outside = caller.in_session(name)
        for call in (outside.messages(), outside.search("marker"), outside.say("hello")):
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
    await world.planner.create_session(session, members=["*"])
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
        for answer in [answer async for _, answer, _ in read_paths(member, session)]:
            assert marks_in(answer) <= owners.get(member.name, set()), member.name
        await check_memory_of_others(member, members, owners, session)


async def check_memory_of_others(
    member: Member, members: list[Member], owners: dict[str, set[str]], session: str
) -> None:
    context = CallContext(member.caller.credential)
    for other in members:
        uri = parse_uri(f"agent://{other.name}/memory")
        if other.name == member.name:
            own = msgspec.json.decode(await read_resource(member.caller.app, uri, context))
            assert owners.get(member.name, set()) <= marks_in(own)
            continue
        with pytest.raises(WeftlineError) as refusal:
            await read_resource(member.caller.app, uri, context)
        assert refusal.value.code == "PERMISSION_DENIED"
        for mark in owners.get(other.name, set()):
            for scope in (None, session):
                with pytest.raises(WeftlineError) as absent:
                    await member.caller.call("memory.get", key=mark, session_id=scope)
                assert absent.value.code == "MEMORY_NOT_FOUND"
                assert marks_in(absent.value.body("").context) <= {mark} | owners.get(member.name, set())
