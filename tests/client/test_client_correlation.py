"""A client says what its calls are part of: over HTTP, blocking or not, and inside the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from client_support import Product, Script, hangs_up, says
from opentelemetry import trace

from support.correlation import CORRELATION, SPAN, TASK, TOOL_CALL, TRACE, TRACEPARENT, TURN, events_of, the_event
from weft import SyncClient, Weft
from weft.errors import InvalidInput
from weft.kernel.correlation import NO_CORRELATION, Correlation

pytestmark = pytest.mark.req("AC-12")
NO_SESSIONS = {"success": True, "sessions": [], "count": 0, "has_more": False, "next_cursor": None}
IDS = {"turn_id": TURN, "task_id": TASK, "tool_call_id": TOOL_CALL, "traceparent": TRACEPARENT}


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Weft]:
    async with Weft.open(tmp_path / "inside") as weft:
        yield weft


@asynccontextmanager
async def in_product(product: Product) -> AsyncIterator[Weft]:
    """Open the product's database beside its server, to look at its events."""
    async with Weft.open(product.database) as weft:
        yield weft


def current_span(trace_id: str = TRACE, span_id: str = SPAN) -> Any:
    """Be in a span, as an application that is traced."""
    context = trace.SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=trace.TraceFlags(1))
    return trace.use_span(trace.NonRecordingSpan(context))


async def test_writes_of_a_client_are_found_by_its_ids(connect: Any, product: Product) -> None:
    async with connect(product.url, product.admin_key) as client:
        session = (await client.session.create("try it")).session_id
        target = client._target if hasattr(client, "_target") else client
        part = target.with_correlation(**IDS)
        if isinstance(part, SyncClient):
            await asyncio.to_thread(part.board.write, session, "goal", "ship")
        else:
            await part.board.write(session, "goal", "ship")
        await client.board.write(session, "goal", "later")
    async with in_product(product) as weft:
        assert (await the_event(weft.app, session_id=session)).correlation == CORRELATION
        later = (await events_of(weft.app, "default", session_id=session))[-1]
        assert (later.event.subject, later.correlation) == ("goal", NO_CORRELATION)


async def test_in_process_calls_record_the_ids(inside: Weft) -> None:
    await inside.session.create("try it", session_id="s")
    part = inside.with_correlation(**IDS)
    await part.board.write("s", "goal", "ship")
    await inside.board.write("s", "goal", "later")
    assert (await the_event(inside.app)).correlation == CORRELATION


async def test_the_turn_applies_to_every_principal(inside: Weft) -> None:
    await inside.session.create("try it", session_id="s")
    made = await inside.agent.create("planner")
    part = inside.with_correlation(turn_id="t1")
    await part.acting_as("planner").board.write("s", "a", "x")
    await part.with_key(made.api_key).board.write("s", "b", "x")
    assert [e.event.subject for e in await events_of(inside.app, "default", turn_id="t1")] == ["a", "b"]


async def test_nested_turn_and_task_are_both_recorded(inside: Weft) -> None:
    await inside.session.create("try it", session_id="s")
    task = inside.with_correlation(task_id="k1", run_id="r1")
    await task.with_correlation(turn_id="t1").board.write("s", "a", "x")
    await task.with_correlation(turn_id="t2", run_id=None).board.write("s", "b", "x")
    await task.board.write("s", "c", "x")
    assert [event.correlation for event in await events_of(inside.app, "default", task_id="k1")] == [
        Correlation(turn_id="t1", task_id="k1", run_id="r1"),
        Correlation(turn_id="t2", task_id="k1"),
        Correlation(task_id="k1", run_id="r1"),
    ]


async def test_turns_at_the_same_time_are_kept_apart(inside: Weft) -> None:
    await inside.session.create("try it", session_id="s")
    await asyncio.gather(
        *(inside.with_correlation(turn_id=f"t{n}").board.write("s", f"key_{n}", "x") for n in range(20))
    )
    for number in range(20):
        (event,) = await events_of(inside.app, "default", turn_id=f"t{number}")
        assert event.event.subject == f"key_{number}"


async def test_the_current_span_is_sent_automatically(product: Product, inside: Weft) -> None:
    await inside.session.create("try it", session_id="s")
    with SyncClient(product.url, product.admin_key) as client:
        session = client.session.create("try it").session_id
        with current_span():
            client.board.write(session, "goal", "ship")
            await inside.board.write("s", "goal", "ship")
        with current_span(span_id="c7ad6b7169203331"):
            client.with_correlation(traceparent=TRACEPARENT).board.write(session, "named", "x")
            await inside.with_correlation(traceparent=TRACEPARENT).board.write("s", "named", "x")
    traced = Correlation(trace_id=TRACE, span_id=SPAN)
    async with in_product(product) as weft:
        for app, where in ((weft.app, session), (inside.app, "s")):
            for key in ("goal", "named"):
                (event,) = await events_of(app, "default", session_id=where, subject=key)
                assert event.correlation == traced


def test_retries_send_the_ids_again(script: Script) -> None:
    heard: list[str | None] = []

    def listening(answer: Any) -> Any:
        def answering(handler: Any) -> None:
            heard.append(handler.headers.get("baggage"))
            answer(handler)

        return answering

    script.will(listening(hangs_up), listening(says(200, NO_SESSIONS)))
    with SyncClient(script.url, "key") as client:
        client.with_correlation(turn_id="t1").session.list()
        script.will(listening(says(200, NO_SESSIONS)))
        client.session.list()
    assert heard == ["weft.turn_id=t1", "weft.turn_id=t1", None]


@pytest.mark.parametrize("ids", [{"turn_id": "a b"}, {"task_id": ""}, {"traceparent": "00-12-34-01"}, {"run_id": 5}])
async def test_invalid_ids_are_refused_before_the_call(inside: Weft, ids: dict[str, Any]) -> None:
    with SyncClient("http://127.0.0.1:1") as client:
        for where in (inside, client):
            with pytest.raises(InvalidInput, match=next(iter(ids))):
                where.with_correlation(**ids)


def test_clients_with_ids_share_connections() -> None:
    with SyncClient("http://127.0.0.1:1") as client:
        part = client.with_correlation(turn_id="t1")
        assert part._connection._http is client._connection._http
        assert part._connection is not client._connection
        assert type(part) is SyncClient
