"""Faults known from other servers of this API, one test each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION, outcome, refused
from weftline.app.dispatch import CallContext

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.testing.clock import FrozenClock

SECRETS = ["for admins", "for planners", "for the planner"]
MESSAGE_CHARACTERS, METADATA_BYTES, VALUE_BYTES, QUERY_CHARACTERS = 10_000, 65_536, 1_048_576, 500


@pytest.fixture
async def secrets(world: World) -> None:
    """Add messages that neither sub-agent may read."""
    await world.admin.say("for admins", visibility="admin_only")
    await world.planner.say("for planners", visibility="agent_only")
    await world.planner.say("for the planner", visibility="private")
    await world.planner.say("for all")


async def texts(caller: Caller, operation: str, **which: Any) -> list[str]:
    answer = await caller.call(operation, session_id=SESSION, **which)
    return [message["content"] for message in answer["messages"]]


@pytest.mark.req("MS-04")
@pytest.mark.parametrize("visibility", ["admin_only", "agent_only", "private"])
async def test_a_visibility_filter_gives_no_access(world: World, secrets: None, visibility: str) -> None:
    assert await world.analysis.message_texts(visibility_filter=visibility) == []
    assert await world.analysis.message_texts(visibility_filter=visibility, offset=0, limit=1000) == []
    with refused("PERMISSION_DENIED"):
        await world.analysis.call("message.set_visibility", session_id=SESSION, message_id=1, visibility="public")
    with refused("PERMISSION_DENIED"):
        await world.analysis.call("message.inspect", session_id=SESSION)


@pytest.mark.req("MS-04")
@pytest.mark.parametrize(
    "nonsense", ["all", "ADMIN_ONLY", "public' OR '1'='1", "", "admin_only,public", 1, ["private"]]
)
async def test_an_unknown_visibility_is_refused(world: World, secrets: None, nonsense: Any) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.analysis.messages(visibility_filter=nonsense)
    with refused("INVALID_INPUT_FORMAT"):
        await world.analysis.search("for", search_scope=nonsense if nonsense != "all" else "admin_only")


@pytest.mark.req("MS-05")
@pytest.mark.req("MS-06")
@pytest.mark.parametrize("scope", ["all", "public", "private"])
async def test_no_search_returns_hidden_messages(world: World, secrets: None, scope: str) -> None:
    for query in (*SECRETS, "for", "adminz"):
        found = await world.analysis.found(query, search_scope=scope, fuzzy_threshold=0, limit=100)
        assert set(found) <= {"for all"}
    for sender in ("admin", "planner", "%", "*", "analysis"):
        assert set(await texts(world.analysis, "message.search_by_sender", sender=sender)) <= {"for all"}
    everything = {"start_time": "1970-01-01", "end_time": "9999-12-31"}
    assert await texts(world.analysis, "message.search_by_timerange", **everything) == ["for all"]


@pytest.mark.req("MS-04")
async def test_no_offset_or_limit_returns_hidden_messages(world: World, secrets: None) -> None:
    for offset in range(6):
        for limit in (1, 1000):
            expected = ["for all"] if offset == 0 else []
            assert await world.analysis.message_texts(offset=offset, limit=limit) == expected
        assert set(await world.analysis.message_texts(after_id=offset)) <= {"for all"}
    assert (await world.analysis.messages())["total_count"] == 1


@pytest.mark.req("MS-01")
@pytest.mark.parametrize(
    ("claim", "code"),
    [
        ({"agent_id": "admin", "agent_type": "admin"}, "INVALID_API_KEY"),
        ({"agent_id": "planner", "agent_type": "planning"}, "INVALID_API_KEY"),
        ({"agent_id": "analysis", "agent_type": "planning"}, "AUTHENTICATION_ERROR"),
        ({"agent_id": "analysis", "agent_type": "admin"}, "AUTHENTICATION_ERROR"),
        (
            {"agent_id": "analysis", "agent_type": "analysis", "requested_permissions": ["admin"]},
            "PERMISSION_DENIED",
        ),
    ],
)
async def test_a_key_authenticates_only_its_own_agent(world: World, claim: dict[str, Any], code: str) -> None:
    with refused(code):
        await world.analysis.token(**claim)
    (row, *_) = await world.admin.audit(outcome="refused")
    assert (row["action"], row["target"], row["detail"]["code"]) == ("token.issue", claim["agent_id"], code)
    assert row["detail"]["key_id"] == world.analysis.key_id


@pytest.mark.req("MS-01")
async def test_a_missing_key_is_an_invalid_key(world: World) -> None:
    for key in ({}, {"api_key": None}, {"api_key": ""}, {"api_key": "nonsense"}):
        with refused("INVALID_API_KEY"):
            await world.app.call(
                world.app.registry["token.issue"], {"agent_id": "a", "agent_type": "b", **key}, CallContext(None)
            )


@pytest.mark.req("MS-01")
async def test_refreshing_a_token_never_adds_permissions(world: World) -> None:
    asked = await world.analysis.with_token("analysis", requested_permissions=["read", "write", "admin"])
    narrow = await world.analysis.with_token("analysis", requested_permissions=["read"])
    for token, expected in ((asked, ["read", "write"]), (narrow, ["read"])):
        with refused("INVALID_INPUT_FORMAT"):
            await token.call("token.refresh", requested_permissions=["admin"])
        refreshed = await token.call("token.refresh")
        assert sorted(refreshed["permissions"]) == expected
        again = token.with_credential(refreshed["token"])
        assert await outcome(again.call("performance.read")) == "PERMISSION_DENIED"
    assert await outcome(narrow.say("no")) == "PERMISSION_DENIED"


@pytest.mark.req("MS-01")
async def test_revoked_permissions_are_lost_in_existing_tokens(world: World) -> None:
    token = await world.analysis.with_token("analysis", requested_permissions=["read", "write"])
    await world.admin.call("agent.update", agent_id="analysis", permissions=["read"])
    refreshed = await token.call("token.refresh")
    for caller in (token, token.with_credential(refreshed["token"])):
        assert await outcome(caller.say("no")) == "PERMISSION_DENIED"
        assert await outcome(caller.remember("k")) == "PERMISSION_DENIED"


@pytest.mark.req("MS-03")
@pytest.mark.parametrize("forged", ["sender", "sender_type", "agent_id", "agent_type", "owner"])
async def test_no_parameter_changes_the_author_of_messages_and_memories(world: World, forged: str) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.analysis.say("hello", **{forged: "planner"})
    with refused("INVALID_INPUT_FORMAT"):
        await world.analysis.remember("note", **{forged: "planner"})


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-09")
async def test_agent_only_messages_are_on_every_read_path_of_the_agent_type(world: World) -> None:
    peer = await world.admin.create_agent("analysis-2", agent_type="analysis", parent_id="planner")
    number = await world.analysis.say("among analysts: quokka", visibility="agent_only")
    for caller, expected in ((peer, ["among analysts: quokka"]), (world.review, [])):
        assert await caller.message_texts() == expected
        assert await caller.message_texts(visibility_filter="agent_only") == expected
        assert await caller.found("quokka") == expected
        assert await texts(caller, "message.search_by_sender", sender="analysis") == expected
        assert await texts(caller, "session.overview") == expected
        events = (await caller.events(session_id=SESSION, types=["message.*"]))["events"]
        assert [event["subject"] for event in events] == [str(number)] * len(expected)


@pytest.mark.req("MS-09")
async def test_a_filter_on_personal_events_returns_no_more_than_no_filter(world: World) -> None:
    closed = await world.admin.create_session("closed", members=["human:*"])
    await closed.write("plan", readable_by=["principal:planner"])
    await world.planner.remember("note")
    for which in ({}, {"personal": True}):
        events = (await world.planner.events(**which))["events"]
        assert {event["session_id"] for event in events} <= {SESSION, None}
    assert [(event["type"], event["subject"]) for event in events] == [("memory.written", "note")]


@pytest.mark.req("MS-07")
@pytest.mark.parametrize("value", ["text", "", 5, -0.5, 1e300, [], [1, [2]], True, False, None, {}, {"a": None}])
async def test_memory_accepts_every_json_type(world: World, value: Any) -> None:
    await world.analysis.remember("k", value)
    found = await world.analysis.recalled("k")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-05")
async def test_equal_texts_keep_separate_ids(world: World) -> None:
    ids = [await caller.say("The build is green.") for caller in (world.planner, world.analysis, world.planner)]
    assert ids == [1, 2, 3]
    assert [message["id"] for message in (await world.review.messages())["messages"]] == ids
    results = (await world.review.search("build green"))["results"]
    assert sorted(result["message"]["id"] for result in results) == ids
    sent = await world.review.call("message.search_by_sender", session_id=SESSION, sender="planner")
    assert [message["id"] for message in sent["messages"]] == [3, 1]
    events = (await world.review.events(session_id=SESSION, types=["message.*"]))["events"]
    assert [event["subject"] for event in events] == ["1", "2", "3"]


@pytest.mark.req("MS-05")
@pytest.mark.req("MS-06")
async def test_the_first_of_more_than_a_thousand_messages_is_found_by_every_search(
    world: World, clock: FrozenClock
) -> None:
    first = "The quokka enclosure opens at nine."
    start = clock.now().isoformat()
    await world.planner.say(first)
    clock.advance(minutes=1)
    await asyncio.gather(*(world.analysis.say(f"routine report {number}") for number in range(1_100)))
    assert await world.review.found("quoka enclosure") == [first]
    assert await texts(world.review, "message.search_by_sender", sender="planner") == [first]
    assert await texts(world.review, "message.search_by_timerange", start_time=start, end_time=start) == [first]
    assert await world.review.message_texts(limit=1) == [first]


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-07")
async def test_size_limits_are_inclusive(world: World) -> None:
    async def outcomes_with(extra: int) -> list[str]:
        metadata = {"m": "x" * (METADATA_BYTES - len('{"m":""}') + extra)}
        return [
            await outcome(world.analysis.say("x" * (MESSAGE_CHARACTERS + extra))),
            await outcome(world.analysis.say("x", metadata=metadata)),
            await outcome(world.analysis.remember("k", "x" * (VALUE_BYTES - len('""') + extra))),
            await outcome(world.analysis.remember("k", metadata=metadata)),
            await outcome(world.analysis.search("x" * (QUERY_CHARACTERS + extra))),
        ]

    assert await outcomes_with(0) == ["ok"] * 5
    assert await outcomes_with(1) == [
        "CONTENT_TOO_LARGE",
        "INVALID_INPUT_FORMAT",
        "CONTENT_TOO_LARGE",
        "INVALID_INPUT_FORMAT",
        "INVALID_INPUT_FORMAT",
    ]
    assert len(await world.analysis.message_texts()) == 2


@pytest.mark.req("MS-11")
async def test_every_class_of_calls_is_rate_limited(world: World) -> None:
    app = await world.another_app(rate_limits="message=2/hour search=2/hour memory=2/hour")
    caller = world.analysis.at(app)
    for call in (
        lambda: caller.say("hello"),
        lambda: caller.search("hello"),
        lambda: caller.remember("k"),
    ):
        assert [await outcome(call()) for _ in range(3)] == ["ok", "ok", "RATE_LIMITED"]


@pytest.mark.req("MS-10")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (2, "MESSAGE_NOT_FOUND"),
        (2**31, "MESSAGE_NOT_FOUND"),
        (2**53, "MESSAGE_NOT_FOUND"),
        (2.0, "MESSAGE_NOT_FOUND"),
        (2**53 + 1, "INVALID_INPUT_FORMAT"),
        (2**63, "INVALID_INPUT_FORMAT"),
        (10**40, "INVALID_INPUT_FORMAT"),
        (0, "INVALID_INPUT_FORMAT"),
        (-1, "INVALID_INPUT_FORMAT"),
        (-(2**70), "INVALID_INPUT_FORMAT"),
        (1.5, "INVALID_INPUT_FORMAT"),
        (float("inf"), "INVALID_INPUT_FORMAT"),
        (float("nan"), "INVALID_INPUT_FORMAT"),
        ("1", "INVALID_INPUT_FORMAT"),
        (True, "INVALID_INPUT_FORMAT"),
    ],
)
async def test_an_invalid_message_id_is_a_client_error(world: World, number: Any, code: str) -> None:
    await world.planner.say("hello")
    assert await outcome(world.analysis.say("answer", parent_message_id=number)) == code
    changed = {"session_id": SESSION, "message_id": number, "visibility": "private"}
    assert await outcome(world.admin.call("message.set_visibility", **changed)) == code
    assert await world.planner.message_texts() == ["hello"]


@pytest.mark.req("MS-10")
@pytest.mark.parametrize(
    "session",
    ["nowhere", "", " ", "x" * 10_000, "session_" + "0" * 16, "s1\x00", "'; --", "S1", "../s1", "\ud800"],
    ids=lambda name: ascii(name)[:20],
)
async def test_an_invalid_session_id_is_not_found(world: World, session: str) -> None:
    caller = world.analysis.in_session(session)
    outcomes = [
        await outcome(caller.say("hello")),
        await outcome(caller.messages()),
        await outcome(caller.search("hello")),
        await outcome(caller.remember("k", session_id=session)),
        await outcome(caller.memories(session_id=session)),
        await outcome(caller.write("k")),
    ]
    assert outcomes == ["SESSION_NOT_FOUND"] * 6


@pytest.mark.req("MS-14", part="20 concurrent agents")
async def test_twenty_concurrent_writers_lose_nothing(world: World) -> None:
    apps = [world.app, await world.another_app()]
    agents = [await world.admin.create_agent(f"agent-{number}") for number in range(20)]
    await world.planner.admit("orchestrator")

    async def work(number: int) -> list[str]:
        caller = agents[number].at(apps[number % 2])
        return [
            await outcome(call)
            for turn in range(5)
            for call in (
                caller.say(f"{number}/{turn}"),
                caller.remember(f"turn_{turn}", turn),
                caller.write(f"k{number}_{turn}", "done"),
                caller.search("turn"),
            )
        ]

    ends = await asyncio.gather(*map(work, range(20)))
    assert {end for own in ends for end in own} == {"ok"}
    contents = await world.planner.message_texts(limit=1000)
    assert sorted(contents) == sorted(f"{number}/{turn}" for number in range(20) for turn in range(5))
    assert len(await world.planner.keys()) == 100
    for agent in agents:
        assert [await agent.recalled(f"turn_{turn}") for turn in range(5)] == list(range(5))
