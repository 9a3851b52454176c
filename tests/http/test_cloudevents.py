"""All classes of events of Agent Context, as CloudEvents, by every way of following them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from support.team import LEGACY, MODERN, Team, call, over_http, team_process, with_timeout
from support.webhook_receiver import receiver
from support.webhooks import parsed
from weft import Client
from weft.capabilities.records.vocabulary import EVENT_CLASSES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.req("AC-13")
STREAM = "/v1/events/stream"
NATIVE = {"context.surface.created": "session.created", "context.item.added": "board.written"}


@pytest.fixture(scope="module")
def reaching_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Return a team on a server that may call this machine."""
    with team_process(tmp_path_factory.mktemp("reaching"), webhook_private_hosts="127.0.0.1") as team:
        yield team


def tell_of_every_class(team: Team, session: str) -> None:
    """Have one event of each class published in a session: as its own record, where the engine has no reason to yet."""
    records = [
        {
            "schema_version": "0.1.0",
            "event_id": f"{session}-{event_class}",
            "event_type": event_class,
            "source": "urn:test:framework",
            "time": "2026-02-20T14:30:00Z",
        }
        for event_class in sorted(EVENT_CLASSES)
    ]
    answer = team.ask("POST", "/v1/records", json={"session_id": session, "records": records})
    assert answer.status_code == 201, answer.text


@asynccontextmanager
async def following(team: Team, **query: Any) -> AsyncIterator[AsyncIterator[dict[str, str]]]:
    """Follow the stream, one block of fields after the other."""

    async def blocks(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, str]]:
        fields: dict[str, str] = {}
        async for line in lines:
            if line.startswith(":"):
                continue
            name, _, value = line.partition(":")
            if line:
                fields[name] = value.strip()
            elif fields:
                yield fields
                fields = {}

    async with (
        httpx2.AsyncClient(base_url=team.url, headers=team.headers("planner"), timeout=30, verify=False) as http,
        http.stream("GET", STREAM, params={"format": "cloudevents", **query}) as answer,
    ):
        assert answer.status_code == 200
        yield blocks(answer.aiter_lines())


def read(event: Any) -> Any:
    """Return an event as the SDK of CloudEvents reads it, which refuses what is not one."""
    body = json.dumps(event).encode()
    return from_structured(
        HTTPMessage({"content-type": "application/cloudevents+json"}, body), JSONFormat(), CloudEvent
    )


async def test_every_class_reaches_followers_by_stream_by_mcp_and_by_webhook(reaching_out: Team) -> None:
    team = reaching_out
    session = await asyncio.to_thread(team.new_session)
    async with receiver() as there, following(team, session_id=session) as stream:
        hook = {"url": there.url, "session_id": session}
        made = await asyncio.to_thread(team.ask, "POST", "/v1/webhooks", "admin", json=hook)
        assert made.status_code == 201, made.text
        await asyncio.to_thread(tell_of_every_class, team, session)
        streamed = [await with_timeout(anext(stream)) for _ in EVENT_CLASSES]
        assert {block["event"] for block in streamed} == EVENT_CLASSES
        for block in streamed:
            event = read(json.loads(block["data"]))
            assert (event.get_type(), event.get_extension("sessionid")) == (block["event"], session)
            assert event.get_data()["event_type"] == block["event"]
            assert int(event.get_extension("sequence")) == int(block["id"])
        await there.wait_for_calls(len(EVENT_CLASSES))
        assert {parsed(sent).get_type() for sent in there.calls} == EVENT_CLASSES
        assert [sent.event for sent in there.calls] == [json.loads(block["data"]) for block in streamed]
    for era in (LEGACY, MODERN):
        async with over_http(team, "planner", era) as client:
            answer = await call(client, "read_events", session_id=session, after=0, format="cloudevents")
            told = answer.structured_content
            assert told is not None
            assert told["events"] == []
            assert {read(event).get_type() for event in told["cloudevents"]} == EVENT_CLASSES


async def test_the_engines_own_events_have_their_class(team: Team, session: str) -> None:
    await asyncio.to_thread(team.write, session, "goal")
    async with following(team, session_id=session, after=0) as stream:
        for event_class, event_type in NATIVE.items():
            event = read(json.loads((await with_timeout(anext(stream)))["data"]))
            assert (event.get_type(), event.get_data()["data"]["type"]) == (event_class, event_type)
            assert event.get_dataschema().endswith("context_event")
            assert event.get_extension("actor") == "orchestrator"


@pytest.mark.parametrize("pattern", ["context.item.*", "board.written", "context.*.added"])
async def test_types_are_matched_by_class_and_by_name(team: Team, session: str, pattern: str) -> None:
    await asyncio.to_thread(team.write, session, "goal")
    await asyncio.to_thread(team.ask, "POST", f"/v1/sessions/{session}/snapshots", json={"label": "mark"})
    query = {"session_id": session, "after": 0, "types": pattern}
    for form, name in (("native", "board.written"), ("cloudevents", "context.item.added")):
        answer = await asyncio.to_thread(team.ask, "GET", "/v1/events", params={**query, "format": form})
        told = answer.json()["events"] or answer.json()["cloudevents"]
        assert [event["type"] for event in told] == [name]


def test_events_without_a_class_are_cloudevents_as_well(team: Team) -> None:
    answer = team.ask("POST", "/v1/webhooks", "admin", json={"url": "https://receiver.invalid/", "types": ["never.*"]})
    webhook_id = answer.json()["webhook_id"]
    told = team.ask("GET", "/v1/events", "admin", params={"after": 0, "types": "webhook.*", "format": "cloudevents"})
    event = read(told.json()["cloudevents"][-1])
    assert (event.get_type(), event.get_subject()) == ("weft.webhook.created", webhook_id)
    assert event.get_dataschema() is None
    assert team.ask("DELETE", f"/v1/webhooks/{webhook_id}", "admin").status_code == 200


def test_an_unknown_format_is_refused(team: Team) -> None:
    for path in ("/v1/events", STREAM):
        assert team.ask("GET", path, params={"format": "xml"}).status_code == 400


async def test_a_client_reads_them_as_a_type(team: Team, session: str) -> None:
    await asyncio.to_thread(team.write, session, "goal")
    async with Client(team.url, team.keys["planner"]) as client:
        native = await client.events.read(session_id=session, after=0)
        told = await client.events.read(session_id=session, after=0, format="cloudevents")
    assert not native.cloudevents
    assert [event.id for event in told.cloudevents] == [str(event.seq) for event in native.events]
    assert told.cloudevents[0].specversion == "1.0"
    assert told.next_after == native.next_after
