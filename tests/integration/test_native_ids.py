"""Ids of other systems are kept with records and calls, found by them, and survive export and import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported
from support.world import SESSION, refused, wire_form
from weftline.app.dispatch import CallContext
from weftline.kernel.correlation import Correlation
from weftline.records import sql as records_in_sql

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("AC-12")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
MAPPINGS: dict[str, dict[str, Any]] = {
    "mcp-7": {"native": "mcp", "mcp_session_id": "mcp-7", "jsonrpc_request_id": 3},
    "file:///plan.md": {"native": "mcp", "server_id": "files", "resource_uri": "file:///plan.md"},
    "a2a-task-1": {"native": "a2a", "task_id": "a2a-task-1", "context_id": "a2a-context"},
    TRACE: {"native": "opentelemetry", "trace_id": TRACE, "span_id": "00f067aa0ba902b7"},
    "resp_1": {"native": "model_api", "response_id": "resp_1", "input_tokens": 12},
    "https://example.com/page": {"native": "web_annotation", "target": "https://example.com/page"},
    "prov:entity-1": {"native": "prov", "entity": "prov:entity-1"},
    "cloud-event-1": {"native": "cloudevents", "id": "cloud-event-1", "source": "https://example.com/orders"},
    "https://example.com/plan.json": {"native": "json_schema", "$id": "https://example.com/plan.json"},
    "TICKET-9": {"native": "custom", "system": "jira", "ids": {"ticket": "TICKET-9"}},
}


def record(number: int, mapping: dict[str, Any]) -> dict[str, Any]:
    return {
        "source_id": f"source-{number}",
        "uri": f"https://example.com/{number}",
        "source_kind": "page",
        "external_mappings": [mapping],
    }


async def add(caller: Caller, number: int, mapping: dict[str, Any]) -> None:
    added = {"type": "context_source_ref", "record": {"schema_version": "0.1.0", **record(number, mapping)}}
    await caller.call("records.add", session_id=SESSION, records=[added])


async def found(caller: Caller, native_id: str, **which: Any) -> list[str]:
    listed = await caller.call("records.list", native_id=native_id, **{"session_id": caller.session, **which})
    return [each["id"] for each in listed["records"]]


async def test_a_record_is_found_by_every_kind_of_native_id(world: World) -> None:
    for number, mapping in enumerate(MAPPINGS.values()):
        await add(world.planner, number, mapping)
    for number, (native_id, mapping) in enumerate(MAPPINGS.items()):
        assert await found(world.planner, native_id) == [f"source-{number}"]
        shown = await world.planner.call("records.show", record_id=f"source-{number}", session_id=SESSION)
        assert shown["record"]["external_mappings"] == [mapping]
    assert await found(world.planner, "unknown") == []
    assert await found(world.planner, "mcp-7", types=["context_item"]) == []


@pytest.mark.both_databases
async def test_records_of_others_do_not_hide_those_of_a_caller(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_in_sql, "_MAX_RECORDS_OF_ITEM", 3)
    ticket = MAPPINGS["TICKET-9"]
    await add(world.planner, 9, ticket)
    await world.stranger.create_session("theirs")
    for number, session_id in enumerate((None, None, "theirs", "theirs")):
        taken = {"type": "context_source_ref", "record": {"schema_version": "0.1.0", **record(number, ticket)}}
        await world.stranger.call("records.add", records=[taken], **({"session_id": session_id} if session_id else {}))
    assert await found(world.planner, "TICKET-9") == ["source-9"]


async def test_native_ids_survive_export_and_import(world: World) -> None:
    for number, mapping in enumerate(MAPPINGS.values()):
        await add(world.planner, number, mapping)
    await traced(world.planner, "board.write", session_id=SESSION, key="goal", value="ship")
    bundle = await exported(world.admin)
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    assert await found(world.admin, "TICKET-9", session_id=None) == []
    await imported(world.admin, bundle)
    for number, native_id in enumerate(MAPPINGS):
        assert f"source-{number}" in await found(world.admin, native_id)
    assert f"board:{SESSION}/goal/1.1" in await found(world.admin, TRACE)


async def traced(caller: Caller, operation: str, **fields: Any) -> Any:
    context = CallContext(caller.credential, correlation=Correlation(trace_id=TRACE, span_id="00f067aa0ba902b7"))
    return wire_form(await caller.app.call(caller.app.registry[operation], fields, context))


async def test_what_a_trace_did_is_found_page_by_page(world: World) -> None:
    for number in range(7):
        await traced(world.planner, "board.write", session_id=SESSION, key=f"k{number}", value="x")
        await world.planner.write(f"other{number}", "x")
    names, after = [], None
    while True:
        page = await world.planner.call(
            "records.list", native_id=TRACE, session_id=SESSION, limit=3, **({} if after is None else {"after": after})
        )
        names += [each["id"] for each in page["records"]]
        if not page["has_more"]:
            break
        after = page["next_after"]
    assert names == [f"board:{SESSION}/k{number}/1.1" for number in range(7)]


async def test_calls_are_found_by_task_and_tool_call_too(world: World) -> None:
    context = CallContext(world.planner.credential, correlation=Correlation(task_id="a2a-1", tool_call_id="call_2"))
    fields = {"session_id": SESSION, "key": "goal", "value": "ship"}
    await world.app.call(world.app.registry["board.write"], fields, context)
    for native_id in ("a2a-1", "call_2"):
        assert await found(world.planner, native_id) == [f"board:{SESSION}/goal/1.1"]


async def test_native_ids_reveal_nothing_to_those_who_may_not_read_the_record(world: World) -> None:
    context = CallContext(world.planner.credential, correlation=Correlation(trace_id=TRACE, span_id="1" * 16))
    fields = {"session_id": SESSION, "key": "secret", "value": "x", "readable_by": ["orchestrator"]}
    await world.app.call(world.app.registry["board.write"], fields, context)
    assert await found(world.planner, TRACE)
    assert await found(world.analysis, TRACE) == []
    assert await found(world.stranger, TRACE, session_id=None) == []


async def test_a_prompt_is_found_by_the_id_of_the_model_s_answer(world: World) -> None:
    assembled = await world.planner.call(
        "context.assemble", session_id=SESSION, task_description="Plan the launch.", token_budget=2_000
    )
    usage = {"prompt_tokens": 120, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 64}}
    report = {"session_id": SESSION, "receipt_id": assembled["receipt_id"], "usage": usage}
    await world.planner.call("context.emit_metrics", **report, response_id="chatcmpl-1")
    listed = await world.planner.call("records.list", native_id="chatcmpl-1", session_id=SESSION)
    (shown,) = listed["records"]
    assert shown["type"] == "context_injection"
    assert shown["record"]["native_id"] == "chatcmpl-1"
    assert shown["record"]["external_mappings"] == [
        {"native": "model_api", "response_id": "chatcmpl-1", "input_tokens": 120, "cached_input_tokens": 64}
    ]


async def test_an_item_or_a_native_id_but_not_both(world: World) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.call("records.list", item_id="x", native_id="y", session_id=SESSION)
