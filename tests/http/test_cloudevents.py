"""Every event class of Agent Context as a CloudEvent: by stream, MCP, webhook and client."""

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
from weftline import Client
from weftline.records.vocabulary import EVENT_CLASSES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.req("AC-13")
STREAM = "/v1/events/stream"
NATIVE = {"context.surface.created": "session.created", "context.item.added": "board.written"}


@pytest.fixture(scope="module")
def team_with_webhooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Return a team whose server may send webhooks to this machine."""
    with team_process(tmp_path_factory.mktemp("webhooks"), webhook_private_hosts="127.0.0.1") as team:
        yield team


def add_event_of_every_class(team: Team, session: str) -> None:
    """Add one event record of each class to a session."""
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
    """Open the stream and yield its blocks of fields."""

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
        httpx2.AsyncClient(base_url=team.url, headers=team.headers("planner"), timeout=60, verify=False) as http,
        http.stream("GET", STREAM, params={"format": "cloudevents", **query}) as answer,
    ):
        assert answer.status_code == 200
        yield blocks(answer.aiter_lines())


def read(event: Any) -> Any:
    """Parse an event with the CloudEvents SDK, which rejects invalid ones."""
    body = json.dumps(event).encode()
    return from_structured(
        HTTPMessage({"content-type": "application/cloudevents+json"}, body), JSONFormat(), CloudEvent
    )


async def test_every_class_is_delivered_by_stream_mcp_and_webhook(team_with_webhooks: Team) -> None:
    team = team_with_webhooks
    session = await asyncio.to_thread(team.new_session)
    async with receiver() as webhook_receiver, following(team, session_id=session) as stream:
        hook = {"url": webhook_receiver.url, "session_id": session}
        made = await asyncio.to_thread(team.ask, "POST", "/v1/webhooks", "admin", json=hook)
        assert made.status_code == 201, made.text
        await asyncio.to_thread(add_event_of_every_class, team, session)
        streamed = [await with_timeout(anext(stream)) for _ in EVENT_CLASSES]
        assert {block["event"] for block in streamed} == EVENT_CLASSES
        for block in streamed:
            event = read(json.loads(block["data"]))
            assert (event.get_type(), event.get_extension("sessionid")) == (block["event"], session)
            assert event.get_data()["event_type"] == block["event"]
            assert int(event.get_extension("sequence")) == int(block["id"])
        await webhook_receiver.wait_for_calls(len(EVENT_CLASSES))
        assert {parsed(sent).get_type() for sent in webhook_receiver.calls} == EVENT_CLASSES
        assert [sent.event for sent in webhook_receiver.calls] == [json.loads(block["data"]) for block in streamed]
    for era in (LEGACY, MODERN):
        async with over_http(team, "planner", era) as client:
            answer = await call(client, "read_events", session_id=session, after=0, format="cloudevents")
            content = answer.structured_content
            assert content is not None
            assert content["events"] == []
            assert {read(event).get_type() for event in content["cloudevents"]} == EVENT_CLASSES


async def test_native_events_have_their_class(team: Team, session: str) -> None:
    await asyncio.to_thread(team.write, session, "goal")
    async with following(team, session_id=session, after=0) as stream:
        for event_class, event_type in NATIVE.items():
            event = read(json.loads((await with_timeout(anext(stream)))["data"]))
            assert (event.get_type(), event.get_data()["data"]["type"]) == (event_class, event_type)
            assert event.get_dataschema().endswith("context_event")
            assert event.get_extension("actor") == "orchestrator:planner"
            assert event.get_extension("agentid") == "planner"


@pytest.mark.parametrize("pattern", ["context.item.*", "board.written", "context.*.added"])
async def test_type_patterns_match_classes_and_native_types(team: Team, session: str, pattern: str) -> None:
    await asyncio.to_thread(team.write, session, "goal")
    await asyncio.to_thread(team.ask, "POST", f"/v1/sessions/{session}/snapshots", json={"label": "mark"})
    query = {"session_id": session, "after": 0, "types": pattern}
    for form, name in (("native", "board.written"), ("cloudevents", "context.item.added")):
        answer = await asyncio.to_thread(team.ask, "GET", "/v1/events", params={**query, "format": form})
        events = answer.json()["events"] or answer.json()["cloudevents"]
        assert [event["type"] for event in events] == [name]


def test_events_without_a_class_have_a_weftline_type(team: Team) -> None:
    answer = team.ask("POST", "/v1/webhooks", "admin", json={"url": "https://receiver.invalid/", "types": ["never.*"]})
    webhook_id = answer.json()["webhook_id"]
    page = team.ask("GET", "/v1/events", "admin", params={"after": 0, "types": "webhook.*", "format": "cloudevents"})
    event = read(page.json()["cloudevents"][-1])
    assert (event.get_type(), event.get_subject()) == ("weftline.webhook.created", webhook_id)
    assert event.get_dataschema() is None
    assert team.ask("DELETE", f"/v1/webhooks/{webhook_id}", "admin").status_code == 200


def test_an_unknown_format_is_refused(team: Team) -> None:
    for path in ("/v1/events", STREAM):
        assert team.ask("GET", path, params={"format": "xml"}).status_code == 400


async def test_the_client_reads_cloudevents_as_typed_objects(team: Team, session: str) -> None:
    await asyncio.to_thread(team.write, session, "goal")
    async with Client(team.url, team.keys["planner"]) as client:
        native = await client.events.read(session_id=session, after=0)
        cloudevents = await client.events.read(session_id=session, after=0, format="cloudevents")
    assert not native.cloudevents
    assert [event.id for event in cloudevents.cloudevents] == [str(event.seq) for event in native.events]
    assert cloudevents.cloudevents[0].specversion == "1.0"
    assert cloudevents.next_after == native.next_after
