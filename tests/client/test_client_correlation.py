"""Correlation ids of clients: over HTTP, asynchronous and blocking, and in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from client_support import ScriptedServer, WeftlineServer, disconnects, responds
from opentelemetry import trace

from support.correlation import CORRELATION, SPAN, TASK, TOOL_CALL, TRACE, TRACEPARENT, TURN, events_of, the_event
from weftline import SyncClient, Weftline
from weftline.errors import InvalidInput
from weftline.kernel.correlation import NO_CORRELATION, Correlation

pytestmark = pytest.mark.req("AC-12")
NO_SESSIONS = {"success": True, "sessions": [], "count": 0, "has_more": False, "next_cursor": None}
IDS = {"turn_id": TURN, "task_id": TASK, "tool_call_id": TOOL_CALL, "traceparent": TRACEPARENT}


@pytest.fixture
async def in_process(tmp_path: Path) -> AsyncIterator[Weftline]:
    async with Weftline.open(tmp_path / "inside") as weftline:
        yield weftline


@asynccontextmanager
async def opened_database(product: WeftlineServer) -> AsyncIterator[Weftline]:
    """Open the server's database in this process, to read its events."""
    async with Weftline.open(product.database) as weftline:
        yield weftline


def current_span(trace_id: str = TRACE, span_id: str = SPAN) -> Any:
    """Set the current span, as a traced application does."""
    context = trace.SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=trace.TraceFlags(1))
    return trace.use_span(trace.NonRecordingSpan(context))


async def test_writes_of_a_client_are_found_by_its_ids(connect: Any, product: WeftlineServer) -> None:
    async with connect(product.url, product.admin_key) as client:
        session = (await client.session.create("try it")).session_id
        target = client._target if hasattr(client, "_target") else client
        correlated = target.with_correlation(**IDS)
        if isinstance(correlated, SyncClient):
            await asyncio.to_thread(correlated.board.write, session, "goal", "ship")
        else:
            await correlated.board.write(session, "goal", "ship")
        await client.board.write(session, "goal", "later")
    async with opened_database(product) as weftline:
        assert (await the_event(weftline.app, session_id=session)).correlation == CORRELATION
        later = (await events_of(weftline.app, "default", session_id=session))[-1]
        assert (later.event.subject, later.correlation) == ("goal", NO_CORRELATION)


async def test_in_process_calls_record_the_ids(in_process: Weftline) -> None:
    await in_process.session.create("try it", session_id="s")
    correlated = in_process.with_correlation(**IDS)
    await correlated.board.write("s", "goal", "ship")
    await in_process.board.write("s", "goal", "later")
    assert (await the_event(in_process.app)).correlation == CORRELATION


async def test_the_turn_applies_to_every_principal(in_process: Weftline) -> None:
    await in_process.session.create("try it", session_id="s", members=["*"])
    made = await in_process.agent.create("planner")
    correlated = in_process.with_correlation(turn_id="t1")
    await correlated.acting_as("planner").board.write("s", "a", "x")
    await correlated.with_key(made.api_key).board.write("s", "b", "x")
    assert [e.event.subject for e in await events_of(in_process.app, "default", turn_id="t1")] == ["a", "b"]


async def test_nested_turn_and_task_are_both_recorded(in_process: Weftline) -> None:
    await in_process.session.create("try it", session_id="s")
    task = in_process.with_correlation(task_id="k1", run_id="r1")
    await task.with_correlation(turn_id="t1").board.write("s", "a", "x")
    await task.with_correlation(turn_id="t2", run_id=None).board.write("s", "b", "x")
    await task.board.write("s", "c", "x")
    assert [event.correlation for event in await events_of(in_process.app, "default", task_id="k1")] == [
        Correlation(turn_id="t1", task_id="k1", run_id="r1"),
        Correlation(turn_id="t2", task_id="k1"),
        Correlation(task_id="k1", run_id="r1"),
    ]


async def test_concurrent_calls_keep_their_turn_ids(in_process: Weftline) -> None:
    await in_process.session.create("try it", session_id="s")
    await asyncio.gather(
        *(in_process.with_correlation(turn_id=f"t{n}").board.write("s", f"key_{n}", "x") for n in range(20))
    )
    for number in range(20):
        (event,) = await events_of(in_process.app, "default", turn_id=f"t{number}")
        assert event.event.subject == f"key_{number}"


async def test_the_current_span_is_sent_automatically(product: WeftlineServer, in_process: Weftline) -> None:
    await in_process.session.create("try it", session_id="s")
    with SyncClient(product.url, product.admin_key) as client:
        session = client.session.create("try it").session_id
        with current_span():
            client.board.write(session, "goal", "ship")
            await in_process.board.write("s", "goal", "ship")
        with current_span(span_id="c7ad6b7169203331"):
            client.with_correlation(traceparent=TRACEPARENT).board.write(session, "named", "x")
            await in_process.with_correlation(traceparent=TRACEPARENT).board.write("s", "named", "x")
    traced = Correlation(trace_id=TRACE, span_id=SPAN)
    async with opened_database(product) as weftline:
        for app, where in ((weftline.app, session), (in_process.app, "s")):
            for key in ("goal", "named"):
                (event,) = await events_of(app, "default", session_id=where, subject=key)
                assert event.correlation == traced


def test_retries_send_the_ids_again(script: ScriptedServer) -> None:
    sent: list[str | None] = []

    def recording(answer: Any) -> Any:
        def record_and_answer(handler: Any) -> None:
            sent.append(handler.headers.get("baggage"))
            answer(handler)

        return record_and_answer

    script.answer_with(recording(disconnects), recording(responds(200, NO_SESSIONS)))
    with SyncClient(script.url, "key") as client:
        client.with_correlation(turn_id="t1").session.list()
        script.answer_with(recording(responds(200, NO_SESSIONS)))
        client.session.list()
    assert sent == ["weftline.turn_id=t1", "weftline.turn_id=t1", None]


@pytest.mark.parametrize("ids", [{"turn_id": "a b"}, {"task_id": ""}, {"traceparent": "00-12-34-01"}, {"run_id": 5}])
async def test_invalid_ids_are_refused_before_the_call(in_process: Weftline, ids: dict[str, Any]) -> None:
    with SyncClient("http://127.0.0.1:1") as client:
        for where in (in_process, client):
            with pytest.raises(InvalidInput, match=next(iter(ids))):
                where.with_correlation(**ids)


def test_clients_with_ids_share_connections() -> None:
    with SyncClient("http://127.0.0.1:1") as client:
        correlated = client.with_correlation(turn_id="t1")
        assert correlated._connection._http is client._connection._http
        assert correlated._connection is not client._connection
        assert type(correlated) is SyncClient
