"""Windows: each agent's conversation in a session, with its own events, limit and rights."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.windows import contents, ingest, message, window_events
from support.world import SESSION, World, outcome, refused

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.req("MW-01", "CE-F1")
@pytest.mark.req("CE-A")
async def test_events_are_added_in_order_and_only_once(world: World) -> None:
    first = await ingest(world.analysis, message("a", "one"), message("b", "two", role="assistant"))
    assert [(event["number"], event["added"]) for event in first["events"]] == [(1, True), (2, True)]
    again = await ingest(world.analysis, message("b", "two", role="assistant"), message("c", "three"))
    assert [(event["number"], event["added"]) for event in again["events"]] == [(2, False), (3, True)]
    assert again["tokens"] == first["tokens"] + again["events"][1]["tokens"]


async def test_an_event_id_with_other_content_is_refused_and_nothing_is_added(world: World) -> None:
    await ingest(world.analysis, message("a", "one"))
    with refused("EVENT_EXISTS"):
        await ingest(world.analysis, message("new"), message("a", "other"))
    with refused("EVENT_EXISTS"):
        await ingest(world.analysis, message("x", "one"), message("x", "two"))
    assert (await ingest(world.analysis, message("new")))["events"][0]["number"] == 2


@pytest.mark.req("CE-F1")
@pytest.mark.parametrize(
    ("event", "category"),
    [
        ({"role": "system"}, "SYSTEM"),
        ({"role": "user"}, "DIALOG"),
        ({"role": "assistant"}, "DIALOG"),
        ({"role": "tool", "tool_call_id": "c"}, "SYSTEM_OUTPUT"),
        ({"kind": "workflow"}, "INTERNAL"),
        ({"role": "tool", "category": "ERROR"}, "ERROR"),
    ],
)
async def test_the_category_follows_from_role_and_kind(world: World, event: dict[str, Any], category: str) -> None:
    answer = await ingest(world.planner, message("a", **event), agent_id="analysis")
    assert answer["events"][0]["category"] == category


async def test_concurrent_ingestion_of_one_event_adds_it_once(world: World) -> None:
    apps = [world.app, await world.another_app()]
    calls = [ingest(world.analysis.at(apps[number % 2]), message("a", "same")) for number in range(8)]
    answers = await asyncio.gather(*calls)
    assert [event["number"] for answer in answers for event in answer["events"]] == [1] * 8
    assert sum(answer["events"][0]["added"] for answer in answers) == 1


async def test_concurrent_ingestion_numbers_every_event_once(world: World) -> None:
    answers = await asyncio.gather(*(ingest(world.analysis, message(f"e{number}")) for number in range(12)))
    assert sorted(answer["events"][0]["number"] for answer in answers) == list(range(1, 13))


async def test_a_large_content_is_stored_once(world: World) -> None:
    large = "tool output " * 5_000
    await ingest(world.analysis, message("a", large, role="tool"), message("b", large, role="tool"))
    await ingest(world.review, message("c", large, role="tool"))
    rows = await world.rows("SELECT hash FROM blobs WHERE tenant = $1", world.tenant)
    contents = await world.rows(
        "SELECT DISTINCT blob_hash FROM changes WHERE tenant = $1 AND key LIKE '%#content'", world.tenant
    )
    assert len(contents) == 1
    assert contents[0][0] in {row[0] for row in rows}


@pytest.mark.parametrize("content", ["", "\x00", "naïve 漢 🙂", "x" * 1_048_576])
async def test_content_round_trips_unchanged(world: World, content: str) -> None:
    await ingest(world.analysis, message("a", content))
    assert (await ingest(world.analysis, message("a", content)))["events"][0]["added"] is False
    assert await contents(world.analysis) == [content]


async def test_a_content_above_one_mebibyte_is_refused(world: World) -> None:
    with refused("CONTENT_TOO_LARGE"):
        await ingest(world.analysis, message("a", "x" * 1_048_577))


@pytest.mark.parametrize(
    "events",
    [
        [], [message("a/b")], [message("a#content")], [message("")], [message("a", role="me")],
        [message("a", category="NEWS")], [message("a", importance=2)], [message("a", unknown=1)],
        [message(f"e{number}") for number in range(201)], "text", [message("a", native=float("nan"))],
    ],
)  # fmt: skip
async def test_bad_input_is_refused(world: World, events: Sequence[Any]) -> None:
    assert await outcome(world.analysis.call("context.ingest", session_id=SESSION, events=events)) == (
        "INVALID_INPUT_FORMAT"
    )


@pytest.mark.req("MW-07")
async def test_a_window_is_reached_by_its_agent_its_ancestors_and_admins_only(world: World) -> None:
    await ingest(world.analysis, message("own"))
    assert (await ingest(world.planner, message("by-parent"), agent_id="analysis"))["events"][0]["number"] == 2
    assert (await ingest(world.admin, message("by-admin"), agent_id="analysis"))["events"][0]["number"] == 3
    with refused("PERMISSION_DENIED"):
        await ingest(world.review, message("by-sibling"), agent_id="analysis")
    with refused("PERMISSION_DENIED"):
        await ingest(world.analysis, message("by-child"), agent_id="planner")
    with refused("PERMISSION_DENIED"):
        await ingest(world.review, message("nobody"), agent_id="no-such-agent")
    with refused("AGENT_NOT_FOUND"):
        await ingest(world.admin, message("nobody"), agent_id="no-such-agent")


@pytest.mark.req("MW-01", "CE-F2")
async def test_nobody_else_reads_a_window(world: World) -> None:
    await ingest(world.analysis, message("own", "secret words"))
    for caller in (world.review, world.stranger):
        assert await outcome(window_events(caller, agent_id="analysis")) in {"PERMISSION_DENIED", "SESSION_NOT_FOUND"}
        assert await outcome(caller.call("history.log", context_id=f"window:{SESSION}:analysis")) == "CONTEXT_NOT_FOUND"
    assert (await world.review.call("window.list", session_id=SESSION))["windows"] == []
    seen = await world.review.events(session_id=SESSION)
    assert not [event for event in seen["events"] if event["type"].startswith("window.")]
    assert await contents(world.planner, agent_id="analysis") == ["secret words"]


async def test_other_tenants_and_non_participants_get_session_not_found(world: World) -> None:
    await ingest(world.analysis, message("own"))
    with refused("SESSION_NOT_FOUND"):
        await ingest(world.stranger, message("a"), agent_id="analysis")
    closed = await world.planner.create_session("closed", members=["orchestrator"])
    with refused("SESSION_NOT_FOUND"):
        await ingest(world.analysis.in_session("closed"), message("a"))
    with refused("NOT_A_MEMBER"):
        await ingest(closed, message("a"), agent_id="analysis")


async def test_an_archived_session_accepts_no_events(world: World) -> None:
    await ingest(world.analysis, message("a"))
    await world.planner.call("session.archive", session_id=SESSION)
    with refused("SESSION_ARCHIVED"):
        await ingest(world.analysis, message("b"))
    with refused("SESSION_ARCHIVED"):
        await ingest(world.review, message("b"))


@pytest.mark.req("MW-08")
async def test_every_event_is_tagged_with_its_agent_and_addressee(world: World) -> None:
    await ingest(
        world.planner,
        message("a", "please review", recipient_id="review-2", message_type="request", references=["b"]),
        agent_id="analysis",
    )
    (event,) = (await window_events(world.analysis))["events"]
    assert (event["agent_id"], event["recipient_id"], event["message_type"]) == ("analysis", "review-2", "request")
    assert (event["author"], event["references"]) == ("orchestrator:planner", ["b"])
    published = [
        each
        for each in (await world.analysis.events(session_id=SESSION))["events"]
        if each["type"] == "window.ingested"
    ]
    assert published[-1]["subject"] == published[-1]["data"]["agent_id"] == "analysis"
    assert published[-1]["data"] == {
        "agent_id": "analysis", "first": 1, "last": 1, "categories": {"DIALOG": 1}, "tokens": 4,
        "context_id": f"window:{SESSION}:analysis", "version": 1,
    }  # fmt: skip


async def test_a_second_process_and_a_restart_read_what_was_added(world: World) -> None:
    await ingest(world.analysis, message("a", "one"))
    other = await world.another_app()
    assert await contents(world.analysis.at(other)) == ["one"]
    await ingest(world.analysis, message("b", "two"))
    assert await contents(world.analysis.at(other)) == ["one", "two"]
    await ingest(world.analysis.at(other), message("c", "three " * 2_000))
    assert await contents(world.analysis) == ["one", "two", "three " * 2_000]


async def test_a_deleted_session_takes_its_windows_along(world: World) -> None:
    await ingest(world.analysis, message("a", "secret " * 1_000), message("b", "small secret"))
    await world.planner.call("history.branch", context_id=f"window:{SESSION}:analysis", branch="try")
    await world.planner.call("window.route", session_id=SESSION, categories=["DIALOG"], to_types=["review"])
    await world.planner.call("session.delete", session_id=SESSION, force=True)
    for table in ("windows", "window_routes", "lines WHERE line_id LIKE 'window:%'", "changes WHERE line_id LIKE 'w%'"):
        assert (await world.rows(f"SELECT COUNT(*) FROM {table}"))[0][0] == 0
    await world.planner.create_session(SESSION)
    with refused("WINDOW_NOT_FOUND"):
        await window_events(world.analysis)
    await ingest(world.analysis, message("a", "new"))
    assert await contents(world.analysis) == ["new"]


@pytest.mark.req("MW-07")
@pytest.mark.parametrize(
    ("operation", "given"),
    [
        ("window.show", {}), ("window.events", {}), ("window.update", {"autosave": False}),
        ("window.checkpoint", {"label": "one"}), ("window.checkpoints", {}), ("window.leave", {}),
        ("window.route", {"categories": ["DIALOG"], "to_types": ["review"]}), ("window.delete", {}),
        ("context.ingest", {"events": [message("more")]}),
    ],
)  # fmt: skip
async def test_every_entry_point_reaches_the_window_of_the_agent_it_names(
    world: World, operation: str, given: dict[str, Any]
) -> None:
    await ingest(world.planner, message("p", "of the planner"))
    await ingest(world.analysis, message("a", "of the analysis"))
    answer = await world.planner.call(operation, session_id=SESSION, agent_id="analysis", **given)
    assert "planner" not in {answer.get("agent_id"), *(each["agent_id"] for each in answer.get("windows", ()))}
    with refused("PERMISSION_DENIED"):
        await world.review.call(operation, session_id=SESSION, agent_id="analysis", **given)


async def test_a_redacted_event_is_not_read_any_more(world: World) -> None:
    await ingest(world.analysis, message("a", "the password is hunter2"), message("b", "long secret " * 1_000))
    items = [event["item_id"] for event in (await window_events(world.analysis))["events"]]
    for item in items:
        await world.analysis.call("records.redact", item_id=item, state="removed", reason="secret")
    assert await contents(world.analysis) == ["[content removed]", "[content removed]"]
    # Neither a rollback nor a branch shows it again.
    line = f"window:{SESSION}:analysis"
    await world.planner.call("history.rollback", context_id=line, target_version=0)
    await world.planner.call("history.rollback", context_id=line, target_version=1)
    assert await contents(world.analysis) == ["[content removed]", "[content removed]"]


async def test_a_masked_event_keeps_its_words_without_the_secret(world: World) -> None:
    await ingest(world.analysis, message("a", "mail bob@example.com about it"))
    (event,) = (await window_events(world.analysis))["events"]
    await world.analysis.call("records.redact", item_id=event["item_id"], state="masked", reason="privacy")
    (text,) = await contents(world.analysis)
    assert text.startswith("mail ")
    assert "bob@example.com" not in text


@pytest.mark.req("AC-15", part="events of windows are items")
async def test_events_are_record_items_of_their_agent_only(world: World) -> None:
    await ingest(world.analysis, message("a", "one"), message("long", "x" * 5_000))
    listed = await world.analysis.call("records.list", session_id=SESSION, types=["context_item"])
    assert [each["id"] for each in listed["records"]] == [
        f"window:{SESSION}:analysis/a/1.1", f"window:{SESSION}:analysis/long/1.1"
    ]  # fmt: skip
    assert (await world.review.call("records.list", session_id=SESSION, types=["context_item"]))["records"] == []
    with refused("RECORD_NOT_FOUND"):
        await world.review.call("records.show", type="context_item", record_id=f"window:{SESSION}:analysis/a/1.1")


async def test_an_event_takes_content_parts_and_the_role_developer_and_gets_an_id(world: World) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/plan.png"}}
    events = [
        {"content": "No id."},
        {"event_id": "parts", "content": [{"type": "text", "text": "Look at the plan."}, picture]},
        {"event_id": "text", "content": [{"type": "text", "text": "Only text."}]},
        {"event_id": "claude", "form": "anthropic", "content": [{"type": "text", "text": "A block."}]},
    ]
    added = await world.planner.call("context.ingest", session_id=SESSION, events=events)
    assert added["events"][0]["event_id"].startswith("event_")
    again = await world.planner.call("context.ingest", session_id=SESSION, events=events)
    assert [each["added"] for each in again["events"]] == [True, False, False, False]
    shown = (await world.planner.call("window.events", session_id=SESSION))["events"]
    by_id = {each["event_id"]: each for each in shown}
    assert by_id["parts"]["content"] == "Look at the plan."
    assert by_id["parts"]["native"]["content"][1] == picture
    assert "native" not in by_id["text"]
    assert (by_id["text"]["content"], by_id["claude"]["content"]) == ("Only text.", "A block.")
    instruction = [{"event_id": "d", "role": "developer", "content": "Answer in French."}]
    added = await world.admin.call("context.ingest", session_id=SESSION, events=instruction)
    assert added["events"][0]["category"] == "SYSTEM"


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"content": ["no part"]}, "content"),
        ({"content": [], "native": {"role": "user", "content": "x"}, "form": "openai_chat"}, "content"),
        ({"role": "assistant", "content": [], "tool_calls": [{"call_id": "c", "name": "n"}]}, "content"),
        ({"role": "narrator", "content": "x"}, "role"),
    ],
)
async def test_content_parts_that_no_provider_takes_are_refused(world: World, event: Any, field: str) -> None:
    with refused("INVALID_INPUT_FORMAT") as caught:
        await world.planner.call("context.ingest", session_id=SESSION, events=[event])
    assert field in caught.value.message


async def test_pop_removes_the_newest_event_and_returns_it(world: World) -> None:
    await ingest(world.analysis, message("a", "one"), message("b", "x" * 5_000, role="assistant"))
    popped = await world.analysis.call("window.pop", session_id=SESSION)
    assert (popped["event"]["event_id"], popped["event"]["content"], popped["count"]) == ("b", "x" * 5_000, 1)
    assert await contents(world.analysis) == ["one"]
    # The number of a removed event is not given again, so that nothing that names it means another one.
    again = await ingest(world.analysis, message("b", "two", role="assistant"))
    assert (again["events"][0]["number"], again["events"][0]["added"]) == (3, True)
    for left, event_id in ((1, "b"), (0, "a")):
        popped = await world.planner.call("window.pop", session_id=SESSION, agent_id="analysis")
        assert (popped["event"]["event_id"], popped["count"]) == (event_id, left)
    assert (await world.analysis.call("window.pop", session_id=SESSION))["event"] is None
    log = await world.analysis.call("history.log", context_id=f"window:{SESSION}:analysis")
    assert [commit["reason"] for commit in log["commits"]].count("pop") == 3
    with refused("PERMISSION_DENIED"):
        await world.review.call("window.pop", session_id=SESSION, agent_id="analysis")


async def test_an_agent_does_not_pop_what_those_above_it_told_it(world: World) -> None:
    await ingest(world.planner, message("order", "Answer in French.", role="system"), agent_id="analysis")
    with refused("SELF_MODIFICATION"):
        await world.analysis.call("window.pop", session_id=SESSION)
    assert await contents(world.analysis) == ["Answer in French."]
    assert (await world.planner.call("window.pop", session_id=SESSION, agent_id="analysis"))["count"] == 0
