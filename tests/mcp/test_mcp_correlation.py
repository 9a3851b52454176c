"""Correlation ids of MCP tool calls are recorded: both protocol versions, fast path and SDK, HTTP and stdio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from test_mcp_fast_path import ENVELOPE, ERAS, LEGACY, MODERN, both

from support.correlation import (
    BAGGAGE,
    CORRELATION,
    HEADERS,
    META,
    TASK,
    TRACE,
    TRACEPARENT,
    TURN,
    events_of,
    the_event,
)
from support.team import opened
from weftline.kernel.correlation import META_KEYS, NO_CORRELATION, Correlation

if TYPE_CHECKING:
    from test_mcp_fast_path import Json, Served

    from conftest import Connect
    from support.team import Team
    from support.world import World

pytestmark = pytest.mark.req("AC-12")
SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
RESERVED_KEY = {"io.modelcontextprotocol/related-task": {"taskId": "t"}}


async def write(
    served: Served, key: str, era: str, meta: Json, headers: Any = (), name: str = "goal", request_id: Any = 7
) -> Any:
    """Write a key with request metadata and return the answer."""
    arguments = {"action": "write", "session_id": "$", "key": name, "value": "ship"}
    body, given = await served.plain(key, era, "shared_context", arguments)
    params = {**body["params"], "_meta": {**(ENVELOPE if era == MODERN else {}), **meta}}
    answer = await served.post(key, {**body, "id": request_id, "params": params}, given | dict(headers))
    assert answer.status_code == 200, answer.text
    return answer.json()


def native(era: str, served: Served, key: str) -> dict[str, Any]:
    """Return MCP's own ids: of the request, and of the connection if there is one."""
    return {"jsonrpc_request_id": 7, "mcp_session_id": served.connections[key] if era == LEGACY else None}


@ERAS
async def test_a_write_is_found_by_turn_and_task_on_the_fast_path_and_the_sdk(world: World, era: str) -> None:
    key = world.planner.credential
    async with both(world) as (fast, sdk):
        for served in (fast, sdk):
            answer = await write(served, key, era, META)
            assert not answer["result"]["isError"]
            event = await the_event(world.app, world.tenant, session_id=served.session)
            assert event.event.subject == "goal"
            ids = {name: getattr(CORRELATION, name) for name in CORRELATION.__struct_fields__}
            assert event.correlation == Correlation(**{**ids, **native(era, served, key)})
        assert fast.sdk == []


@SQLITE
@ERAS
@pytest.mark.parametrize("name", sorted(META_KEYS))
async def test_each_meta_key_is_handled_by_the_fast_path_like_the_sdk(world: World, era: str, name: str) -> None:
    values = {"traceparent": TRACEPARENT, "tracestate": "vendor=1", "baggage": BAGGAGE}
    async with both(world) as (fast, sdk):
        answers = [
            await write(served, world.planner.credential, era, {name: values.get(name, "x")}) for served in (fast, sdk)
        ]
        assert [answer["result"]["isError"] for answer in answers] == [False, False]
        assert answers[0].keys() == answers[1].keys()
        assert answers[0]["result"].keys() == answers[1]["result"].keys()
        assert fast.sdk == []


@SQLITE
@ERAS
async def test_other_meta_keys_are_passed_to_the_sdk(world: World, era: str) -> None:
    async with both(world) as (fast, _):
        await write(fast, world.planner.credential, era, META | RESERVED_KEY)
        assert len(fast.sdk) == 1
    assert (await the_event(world.app, world.tenant)).correlation.trace_id == TRACE


@SQLITE
@ERAS
async def test_request_headers_are_used_where_metadata_has_no_ids(world: World, era: str) -> None:
    key, other = world.planner.credential, {"traceparent": TRACEPARENT.replace("b7", "c7")}
    async with both(world) as (fast, sdk):
        for served in (fast, sdk):
            await write(served, key, era, {}, HEADERS, "by_header")
            await write(served, key, era, {"weftline/turn_id": "t2"}, HEADERS, "by_both")
            await write(served, key, era, {"traceparent": TRACEPARENT}, other, "by_meta")
            found = {
                event.event.subject: event.correlation
                for event in await events_of(world.app, world.tenant, session_id=served.session)
            }
            assert found["by_header"].turn_id == TURN
            assert found["by_header"].jsonrpc_request_id == 7
            assert (found["by_both"].turn_id, found["by_both"].task_id) == ("t2", TASK)
            assert found["by_meta"].span_id == CORRELATION.span_id
        assert fast.sdk == []


@SQLITE
@ERAS
async def test_a_call_without_ids_records_those_of_its_connection(world: World, era: str) -> None:
    key = world.planner.credential
    async with both(world) as (fast, sdk):
        for served in (fast, sdk):
            await write(served, key, era, {})
            await write(served, key, era, {"weftline/turn_id": "no id", "traceparent": "garbage"})
            for event in (await events_of(world.app, world.tenant, session_id=served.session, subject="goal"))[-2:]:
                expected = Correlation(**native(era, served, key)) if era == LEGACY else NO_CORRELATION
                assert event.correlation == expected


@SQLITE
async def test_what_an_mcp_connection_did_is_found_by_its_id(world: World) -> None:
    key = world.planner.credential
    async with both(world) as (fast, _):
        await write(fast, key, LEGACY, {}, name="by_mcp")
        connection, session = fast.connections[key], fast.session
    listed = await world.planner.call(
        "records.list", native_id=connection, session_id=session, types=["context_item", "context_event"]
    )
    assert [each["id"] for each in listed["records"] if each["type"] == "context_item"] == [
        f"board:{session}/by_mcp/1.1"
    ]
    (event,) = [each["record"] for each in listed["records"] if each["type"] == "context_event"]
    (mapping,) = event["external_mappings"]
    assert (mapping["native"], mapping["mcp_session_id"], mapping["jsonrpc_request_id"]) == ("mcp", connection, 7)
    assert mapping["server_id"] == event["source"]


@SQLITE
@ERAS
@pytest.mark.parametrize(
    "meta", [{"weftline/turn_id": 5}, {"traceparent": None}, {"baggage": ["x"]}, {"weftline/task_id": {}}]
)
async def test_non_text_ids_are_ignored(world: World, era: str, meta: Json) -> None:
    async with both(world) as (fast, sdk):
        seen = [await write(served, world.planner.credential, era, meta) for served in (fast, sdk)]
        assert seen[0].keys() == seen[1].keys()
        assert len(fast.sdk) == 1
    for event in await events_of(world.app, world.tenant, subject="goal"):
        assert event.correlation.turn_id is event.correlation.trace_id is None


@SQLITE
@ERAS
async def test_concurrent_calls_on_one_connection_keep_their_turn_ids(world: World, era: str) -> None:
    key = world.planner.credential
    async with both(world) as (fast, sdk):
        for served in (fast, sdk):
            await served.connection(key)
            metas = [{"weftline/turn_id": f"t{number}"} if number % 3 else {} for number in range(30)]
            await asyncio.gather(
                *(write(served, key, era, meta, (), f"key_{n}", f"r{n}") for n, meta in enumerate(metas))
            )
            for number in range(30):
                wanted = {"session_id": served.session, "subject": f"key_{number}"}
                (event,) = await events_of(world.app, world.tenant, **wanted)
                request_id = f"r{number}" if number % 3 or era == LEGACY else None
                expected = (f"t{number}" if number % 3 else None, request_id)
                assert (event.correlation.turn_id, event.correlation.jsonrpc_request_id) == expected
        assert fast.sdk == []


@SQLITE
async def test_envelopes_with_ids_are_not_cached(world: World) -> None:
    async with both(world) as (fast, _):
        for number in range(20):
            await write(fast, world.planner.credential, MODERN, {"weftline/turn_id": f"t{number}"})
        assert len(fast.fast_path._envelopes) == 1
        assert len(fast.application.mcp._users) == 1
        assert fast.sdk == []


@SQLITE
async def test_cached_principals_carry_no_correlation_ids(world: World) -> None:
    async with both(world) as (fast, _):
        for number in range(20):
            await write(fast, world.planner.credential, MODERN, {}, {"baggage": f"weftline.turn_id=t{number}"})
        assert len(fast.application.mcp._users) == 1
    assert len(await events_of(world.app, world.tenant, turn_id="t7")) == 1


async def test_every_transport_and_protocol_version_carries_the_ids(connect: Connect, team: Team, session: str) -> None:
    arguments = {"action": "write", "session_id": session, "key": "goal", "value": "ship"}
    async with connect("planner") as client:
        done = await client.call_tool("shared_context", arguments, meta=META)
        assert not done.is_error
    async with opened(team.data) as app:
        event = await the_event(app, session_id=session)
    assert event.correlation.jsonrpc_request_id is not None
    assert bool(event.correlation.mcp_session_id) == (connect.transport == "http" and connect.era == "legacy")
