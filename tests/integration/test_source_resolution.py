"""Source references, resolved against stored content and content of the caller."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from support.world import refused
from weftline.exchange.record_log import resolve_source as sources
from weftline.records.resolution import resolve
from weftline.records.selectors import passage_digest, selectors_for

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("AC-05")

PLAN = "First think.\nThen ship on Friday.\nThen rest."
QUOTE = {"type": "text_quote", "exact": "ship on Friday"}


def source(uri: str, *selectors: dict[str, Any], **more: Any) -> dict[str, Any]:
    ref = {"schema_version": "0.1.0", "source_id": "limit", "uri": uri, "source_kind": "board_entry", **more}
    return {**ref, "selector": list(selectors)} if selectors else ref


async def resolved(caller: Caller, ref: dict[str, Any], **more: Any) -> tuple[str, str | None]:
    answer = await caller.call("records.resolve", source_ref=ref, **more)
    return answer["outcome"], answer.get("text")


async def test_a_passage_of_a_board_is_exact_then_moved_then_lost(world: World) -> None:
    await world.planner.write("plan", PLAN)
    place = {"type": "text_position", "start": 18, "end": 32}
    ref = source("board://s1/plan", QUOTE, place, digest=passage_digest(PLAN))
    assert await resolved(world.analysis, ref) == ("exact", "ship on Friday")
    await world.planner.write("plan", f"Wait. {PLAN}")
    answer = await world.analysis.call("records.resolve", source_ref=ref)
    assert (answer["outcome"], answer["source_unchanged"]) == ("moved", False)
    assert (answer["was"], answer["now"]) == (place, {**place, "start": 24, "end": 38})
    assert (answer["source_id"], answer["uri"], answer["found_by"]) == ("limit", "board://s1/plan", "text_quote")
    await world.planner.write("plan", "Nothing of it.")
    assert await resolved(world.analysis, ref) == ("lost", None)
    await world.planner.delete("plan")
    gone = await world.analysis.call("records.resolve", source_ref=ref)
    assert gone["reason"] == "The source does not exist (any more), or you may not read it."


async def test_an_earlier_version_resolves_to_its_text(world: World) -> None:
    await world.planner.write("plan", PLAN)
    await world.planner.write("plan", "Nothing of it.")
    for uri in ("board://s1/plan?version=1", "board:s1/plan/1.1"):
        assert await resolved(world.analysis, source(uri, QUOTE)) == ("exact", "ship on Friday")
    assert (await resolved(world.analysis, source("board://s1/plan?version=3", QUOTE)))[0] == "lost"
    assert (await resolved(world.analysis, source("board://s1/plan", QUOTE)))[0] == "lost"


async def test_a_branch_is_read_with_its_inherited_versions(world: World) -> None:
    await world.planner.write("plan", PLAN)
    await world.planner.call("history.branch", context_id="board:s1", branch="try")
    ref = source("board://s1/plan?branch=try", QUOTE)
    assert await resolved(world.analysis, ref) == ("exact", "ship on Friday")
    await world.planner.write("plan", "Otherwise.", branch="try")
    assert (await resolved(world.analysis, ref))[0] == "lost"
    assert (await resolved(world.analysis, source("board://s1/plan", QUOTE)))[0] == "exact"
    assert (await resolved(world.analysis, source("board://s1/plan?branch=none", QUOTE)))[0] == "lost"


async def test_an_expired_source_is_lost(world: World) -> None:
    await world.planner.write("plan", PLAN, ttl_seconds=60)
    ref = source("board://s1/plan", QUOTE)
    assert (await resolved(world.analysis, ref))[0] == "exact"
    world.clock.advance(seconds=61)
    assert (await resolved(world.analysis, ref))[0] == "lost"


async def test_a_message_is_found_by_uri_and_id(world: World) -> None:
    number = await world.analysis.say(PLAN)
    for uri in (f"session://s1#message-{number}", f"message:s1/{number}"):
        assert await resolved(world.planner, source(uri, QUOTE)) == ("exact", "ship on Friday")
    assert (await resolved(world.planner, source("session://s1#message-99", QUOTE)))[0] == "lost"


async def test_an_unreadable_source_is_lost_like_a_missing_one(world: World) -> None:
    await world.planner.write("plan", PLAN, readable_by=["orchestrator"])
    number = await world.planner.say(PLAN, visibility="private")
    closed = await world.planner.create_session("closed", members=["orchestrator"])
    await closed.write("plan", PLAN)
    uris = [
        "board://s1/plan",
        "board://s1/plan?version=1",
        "board:s1/plan/1.1",
        f"session://s1#message-{number}",
        "board://closed/plan",
        "board:closed/plan/1.1",
    ]
    absent = await world.analysis.call("records.resolve", source_ref=source("board://nowhere/plan", QUOTE))
    for uri in uris:
        assert (await resolved(world.planner, source(uri, QUOTE)))[0] == "exact", uri
        for caller in (world.analysis, world.stranger):
            hidden = await caller.call("records.resolve", source_ref=source(uri, QUOTE))
            assert {**hidden, "uri": ""} == {**absent, "uri": ""}, uri


async def test_a_recorded_reference_is_resolved_by_id_for_its_audience(world: World) -> None:
    await world.planner.write("plan", PLAN)
    ref = source("board://s1/plan", QUOTE)
    await world.planner.call("records.add", session_id="s1", records=[ref], readable_by=["orchestrator"])
    answer = await world.planner.call("records.resolve", source_id="limit")
    assert (answer["outcome"], answer["text"]) == ("exact", "ship on Friday")
    for caller in (world.analysis, world.stranger):
        with refused("RECORD_NOT_FOUND"):
            await caller.call("records.resolve", source_id="limit")


async def test_resolution_uses_separate_threads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()

    def record_thread(*given: Any) -> Any:
        threads.add(threading.current_thread().name)
        return resolve(*given)

    monkeypatch.setattr(sources, "resolve", record_thread)
    ref = source("https://example.com/plan", QUOTE)
    answers = await asyncio.gather(*(resolved(world.analysis, ref, against=PLAN) for _ in range(8)))
    assert set(answers) == {("exact", "ship on Friday")}
    assert threads
    assert all(name.startswith("weftline-resolve") for name in threads)


async def test_redacted_sources_are_not_shown(world: World) -> None:
    await world.planner.write("plan", PLAN)
    await world.sql(
        "INSERT INTO redactions (tenant, type, record_id, session_id, state, method, reason, redacted_by, redacted_at)"
        " VALUES ($1, 'context_item', 'board:s1/plan/1.1', 's1', 'removed', 'by hand', 'secret', 'orchestrator', 1)",
        world.tenant,
    )
    for uri in ("board://s1/plan", "board:s1/plan/1.1"):
        answer = await world.analysis.call("records.resolve", source_ref=source(uri, QUOTE))
        assert (answer["outcome"], answer.get("text")) == ("lost", None)
        assert "redacted" in answer["reason"]


async def test_an_external_source_is_resolved_against_the_caller_s_text(world: World) -> None:
    ref = source("https://example.com/plan", QUOTE)
    with refused("SOURCE_ELSEWHERE") as caught:
        await world.planner.call("records.resolve", source_ref=ref)
    assert "does not fetch" in caught.value.hint
    assert await resolved(world.planner, ref, against=PLAN) == ("exact", "ship on Friday")
    css = source("https://example.com/plan", {"type": "css", "selector": "li:nth-of-type(2)"}, QUOTE)
    page = "<ul><li>no</li><li>ship on <i>Friday</i></li></ul>"
    assert await resolved(world.planner, css, against=page, media_type="text/html") == ("exact", "ship on Friday")


async def test_every_selector_type_is_accepted(world: World) -> None:
    from msgspec import to_builtins  # noqa: PLC0415 - as it looks on the wire

    selectors = [to_builtins(each) for each in selectors_for(PLAN, 18, 32)]
    assert {each["type"] for each in selectors} == {"text_quote", "text_position", "byte_range", "line_range"}
    for selector in selectors:
        metadata = (
            {"weftline": {"passage_digest": passage_digest(PLAN[18:32])}} if selector["type"] != "line_range" else {}
        )
        ref = source("x:y", selector, metadata=metadata, digest=passage_digest(PLAN))
        assert (await resolved(world.planner, ref, against=PLAN))[0] == "exact", selector


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({}, "source_ref"),
        ({"source_id": "a", "source_ref": {}}, "source_ref"),
        ({"source_ref": {"source_id": "a"}}, "source_ref"),
        ({"source_ref": source("x:y", {"type": "text_quote"})}, "source_ref.selector"),
        ({"source_ref": source("board://s1/plan?incarnation=2")}, "source_ref.uri"),
        ({"source_ref": source("board://s1/plan?version=x")}, "source_ref.uri"),
    ],
)
async def test_a_bad_request_names_the_field(world: World, request_: dict[str, Any], field: str) -> None:
    with refused("INVALID_INPUT_FORMAT") as caught:
        await world.planner.call("records.resolve", **request_)
    assert caught.value.context["field"].startswith(field)
