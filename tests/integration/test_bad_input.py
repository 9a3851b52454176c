"""Malformed requests get a helpful error and change nothing."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
import pytest

from support.world import refused
from weftline.app.registry import all_operations
from weftline.kernel.errors import WeftlineError

if TYPE_CHECKING:
    from support.world import World

OPERATIONS = {operation.name: operation for operation in all_operations()}
IN_SESSION = {"session_id": "s1"}
AGENT = {"agent_id": "planner"}
ON_LINE = {"context_id": "board:s1"}
WEBHOOK = {"webhook_id": "webhook_0123456789abcdef"}
SOURCE = {"domain": "handbook", "source_id": "source_0123456789abcdef"}
IN_DOMAIN = {"domain": "handbook"}
DOCUMENT = {**IN_DOMAIN, "document_id": "a.md"}
A_SOURCE = {"schema_version": "0.1.0", "source_id": "x", "uri": "board://s1/goal", "source_kind": "board_entry"}
ENVELOPE = {
    "schema_version": "0.1.0",
    "context_id": "c1",
    "scope": "turn",
    "lifecycle": "draft",
    "created_at": "2026-02-20T00:00:00Z",
}
VALID: dict[str, dict[str, Any]] = {
    "board.list_keys": IN_SESSION,
    "board.read": {**IN_SESSION, "key": "goal"},
    "board.read_batch": {**IN_SESSION, "keys": ["goal"]},
    "board.write": {**IN_SESSION, "key": "goal", "value": "x"},
    "board.delete": {**IN_SESSION, "key": "goal"},
    "board.read_history": {**IN_SESSION, "key": "goal"},
    "board.snapshot": {**IN_SESSION, "label": "mark"},
    "board.list_snapshots": IN_SESSION,
    "board.read_snapshot": {**IN_SESSION, "label": "mark"},
    "board.compare_snapshots": {**IN_SESSION, "from_label": "mark"},
    "board.restore_snapshot": {**IN_SESSION, "label": "mark"},
    "board.check": IN_SESSION,
    "board.guidance": {},
    "conventions.define": {"name": "x", "groups": [{"title": "t", "keys": [{"key": "k", "purpose": "p"}]}]},
    "conventions.list": {},
    "layer.define": {"layer": "tenant", "text": "x"},
    "layer.show": {},
    "guardrail.list": {},
    "guardrail.test": {"tool": "board.delete"},
    "guardrail.check": {"tool": "github.create_issue"},
    "layer.list": {},
    "alerts.list": {},
    "alerts.acknowledge": {"alert_id": "alert_1"},
    "alerts.resolve": {"alert_id": "alert_1"},
    "approval.list": {},
    "approval.show": {"approval_id": "approval_1"},
    "approval.approve": {"approval_id": "approval_1"},
    "approval.reject": {"approval_id": "approval_1"},
    "tools.register": {"tools": [{"name": "github.create_issue", "description": "Create an issue."}]},
    "tools.list": {},
    "tools.remove": {"name": "github.search"},
    "tools.select": {"task_description": "report a bug"},
    "step.define": {"name": "review", "tools": ["shared_context.read"]},
    "step.list": {},
    "step.remove": {"name": "plan"},
    "gateway.add": {"name": "github", "url": "https://receiver.invalid/mcp"},
    "gateway.list": {},
    "gateway.get": {"name": "github"},
    "gateway.refresh": {"name": "github"},
    "gateway.approve": {"name": "github"},
    "gateway.remove": {"name": "github"},
    "gateway.call": {"name": "github__search"},
    "usage.report": {},
    "usage.export": {},
    "budget.set": {"subject": "agent:analysis", "period": "day", "tokens": 1_000_000},
    "budget.list": {},
    "budget.delete": {"subject": "agent:analysis", "period": "day"},
    "plan.show": {},
    "team.create": {"team": "research"},
    "team.list": {},
    "team.show": {"team": "research"},
    "team.update": {"team": "research", "description": "x"},
    "team.delete": {"team": "research"},
    "session.add_members": {**IN_SESSION, "members": ["analysis"]},
    "session.remove_members": {**IN_SESSION, "members": ["review-2"]},
    "session.reinstate": {**IN_SESSION, "agent_id": "analysis"},
    "team.add_member": {"team": "research", "agent_id": "analysis"},
    "team.remove_member": {"team": "research", "agent_id": "analysis"},
    "session.create": {"purpose": "x"},
    "session.get": IN_SESSION,
    "session.list": {},
    "session.archive": IN_SESSION,
    "session.delete": IN_SESSION,
    "session.inspect": IN_SESSION,
    "session.overview": IN_SESSION,
    "message.add": {**IN_SESSION, "content": "x"},
    "message.list": IN_SESSION,
    "message.inbox": {},
    "message.set_visibility": {**IN_SESSION, "message_id": 1, "visibility": "private"},
    "message.inspect": IN_SESSION,
    "search.query": {"query": "x"},
    "search.get_context": {"query": "x"},
    "search.find_similar": {"text": "x"},
    "entity.list": {},
    "message.search": {**IN_SESSION, "query": "x"},
    "message.search_by_sender": {**IN_SESSION, "sender": "planner"},
    "message.search_by_timerange": {**IN_SESSION, "start_time": "2026-02-20", "end_time": "2026-02-20"},
    "knowledge.create_domain": IN_DOMAIN,
    "knowledge.list_domains": {},
    "knowledge.list_templates": {},
    "knowledge.show_template": {"name": "runbooks"},
    "knowledge.evaluate_domain": IN_DOMAIN,
    "knowledge.show_domain": IN_DOMAIN,
    "knowledge.update_domain": {**IN_DOMAIN, "clearance": 2},
    "knowledge.delete_domain": IN_DOMAIN,
    "knowledge.add_document": {**DOCUMENT, "text": "x"},
    "knowledge.add_documents": {**IN_DOMAIN, "documents": [{"document_id": "a.md", "text": "x"}]},
    "knowledge.list_documents": IN_DOMAIN,
    "knowledge.get_document": DOCUMENT,
    "knowledge.read_document": DOCUMENT,
    "knowledge.delete_document": DOCUMENT,
    "knowledge.release_document": {**DOCUMENT, "version": 1},
    "knowledge.discard_document": {**DOCUMENT, "version": 1},
    "trust.trace": {"item": "board:s1/goal"},
    "trust.forget": {"item": "board:s1/goal", "reason": "poisoned"},
    "context.assemble": {**IN_SESSION, "task_description": "Summarise."},
    "context.emit_metrics": {
        **IN_SESSION,
        "receipt_id": "r1",
        "usage": {"input_tokens": 1},
        "response_id": "resp_1",
    },
    "pin.add": {**IN_SESSION, "key": "goal"},
    "pin.remove": {**IN_SESSION, "key": "goal"},
    "pin.list": {},
    "receipt.show": {"receipt_id": "r1"},
    "receipt.list": {},
    "receipt.replay": {"receipt_id": "r1"},
    "context.validate_prompt": {"receipt_id": "r1", "body": {"messages": []}},
    "receipt.savings": {},
    "advise.list": {},
    "advise.show": {"recommendation_id": "analysis.tools.1f9a3c"},
    "advise.try": {"settings": {"min_score": 0.5}},
    "context.ingest": {**IN_SESSION, "events": [{"event_id": "e1", "content": "hello"}]},
    "context.compact": IN_SESSION,
    "conversation.open": {"handle": "wl-7f3a9c2e41d0b865"},
    "conversation.settings": {},
    "conversation.calls": {},
    "compaction.list": IN_SESSION,
    "compaction.show": {"compaction_id": "c1"},
    "compaction.expand": {**IN_SESSION, "ids": ["e1"]},
    "compaction.facts": IN_SESSION,
    "compaction.apply": {"compaction_id": "c1"},
    "compaction.drop": IN_SESSION,
    "window.create": {**IN_SESSION, "model_max_tokens": 8_000, "budgets": {"DIALOG": 0.5}},
    "window.show": IN_SESSION,
    "window.list": IN_SESSION,
    "window.events": IN_SESSION,
    "window.update": {**IN_SESSION, "autosave": False},
    "window.release": {**IN_SESSION, "event_ids": ["e1"]},
    "window.delete": IN_SESSION,
    "window.refresh": IN_SESSION,
    "window.pop": IN_SESSION,
    "window.join": {**IN_SESSION, "with_agent_id": "analysis"},
    "window.leave": IN_SESSION,
    "window.route": {**IN_SESSION, "categories": ["CONTEXT"], "to_types": ["review"]},
    "window.unroute": {**IN_SESSION, "categories": ["CONTEXT"], "to_types": ["review"]},
    "window.checkpoint": {**IN_SESSION, "label": "before"},
    "window.checkpoints": IN_SESSION,
    "window.restore": {**IN_SESSION, "label": "before"},
    "window.branch": {**IN_SESSION, "label": "before", "branch": "try"},
    "memory.set": {"key": "goal", "value": 1},
    "memory.get": {"key": "goal"},
    "memory.list": {},
    "memory.delete": {"key": "goal"},
    "memory.overview": {"agent_id": "admin"},
    "memory.inspect": AGENT,
    "context.push": {"knowledge": [{"key": "goal", "value": 1}], "if_version": 0},
    "context.pull": IN_SESSION,
    "context.read": {},
    "context.status": {},
    "context.copy": {**AGENT, "from_agent_id": "analysis"},
    "agent.define": AGENT,
    "agent.read_definition": AGENT,
    "records.schema": {"type": "context_item"},
    "records.add": {"records": [ENVELOPE]},
    "records.list": {"native_id": "resp_1"},
    "records.show": {"record_id": "board:s1/goal/1.1"},
    "records.set_lifecycle": {"record_id": "c1", "lifecycle": "injected"},
    "records.resolve": {"source_ref": A_SOURCE},
    "records.redact": {"item_id": "board:s1/goal/1.1", "state": "removed", "reason": "a name"},
    "records.reveal": {"item_id": "board:s1/goal/1.1", "reason": "a review"},
    "bundle.export": IN_SESSION,
    "bundle.import": {"bundle": "x"},
    "policy.set": {"name": "outside", "definition": {}},
    "policy.list": {},
    "policy.delete": {"name": "outside"},
    "missing.report": {**IN_SESSION, "question": "Which?"},
    "missing.list": {},
    "missing.request": {"missing_id": "missing_1", "form": "retrieval"},
    "missing.resolve": {"missing_id": "missing_1", "resolution_refs": ["x"]},
    "knowledge.embed": {"texts": ["x"]},
    "knowledge.reindex": IN_DOMAIN,
    "knowledge.reindex_all": {},
    "knowledge.show_reindexing": {},
    "knowledge.list_models": {},
    "knowledge.allow_models": {"models": []},
    "knowledge.start_model_migration": {"model": "none", "shares": [0.1], "min_overlap": 0.5, "keep_hours": 1},
    "knowledge.show_model_migration": {},
    "knowledge.cancel_model_migration": {},
    "knowledge.add_source": {"domain": "handbook", "kind": "hook"},
    "knowledge.list_sources": {"domain": "handbook"},
    "knowledge.update_source": {**SOURCE, "enabled": True},
    "knowledge.remove_source": SOURCE,
    "knowledge.sync_source": SOURCE,
    "events.read": {},
    "webhook.create": {"url": "https://receiver.invalid/hook"},
    "webhook.list": {},
    "webhook.update": {**WEBHOOK, "enabled": True},
    "webhook.delete": WEBHOOK,
    "webhook.test": WEBHOOK,
    "webhook.deliveries": WEBHOOK,
    "webhook.replay": {**WEBHOOK, "dead": True},
    "history.log": ON_LINE,
    "history.show": ON_LINE,
    "history.state": ON_LINE,
    "history.diff": {**ON_LINE, "from_version": "1"},
    "history.blame": ON_LINE,
    "history.verify": ON_LINE,
    "history.bisect": {**ON_LINE, "key": "goal", "contains": "x"},
    "history.snapshot": {**ON_LINE, "label": "another"},
    "history.snapshots": {},
    "history.context_snapshots": ON_LINE,
    "history.delete_snapshot": {**ON_LINE, "label": "before"},
    "history.rollback": {**ON_LINE, "target_version": "1"},
    "history.branch": {**ON_LINE, "branch": "try"},
    "history.branches": ON_LINE,
    "history.switch": ON_LINE,
    "history.delete_branch": {**ON_LINE, "branch": "try"},
    "history.merge": {**ON_LINE, "from_context_id": "board:s1@try"},
    "history.reviews": {},
    "history.review": {"review_id": "review_1"},
    "history.resolve": {"review_id": "review_1", "resolutions": {"goal": {"take": "ours"}}},
    "history.close_review": {"review_id": "review_1"},
    "history.set_retention": {"subject": "board", "days": 365},
    "history.clear_retention": {"subject": "board"},
    "history.retention": {},
    "history.prune": {},
    "history.prune_log": {},
    "token.issue": {"agent_id": "planner", "agent_type": "planning", "api_key": "x"},
    "token.refresh": {},
    "token.revoke": {},
    "agent.create": {"agent_id": "new"},
    "agent.list": {},
    "agent.update": AGENT,
    "key.create": AGENT,
    "key.list": AGENT,
    "key.rotate": {"key_id": "key_1"},
    "key.revoke": {"key_id": "key_1"},
    "signing_key.rotate": {},
    "audit.list": {},
    "performance.read": {},
    "agent.capabilities": {},
    "tools.search": {"query": "undo a change"},
    "tools.describe": {"name": "context_history.log"},
}
# Text that no name may contain.
HOSTILE = ("../x", "..\\x", "key\n", "\x00", "\x1b[2J", "\ud800", "x" * 2_000_000, "' OR 1=1 --", "%", "{}")
# Fields that take any text, which is only compared or stored.
FREE_TEXT = {"value", "purpose", "before", "after", "content", "query", "sender", "reason", "contains"}
FREE_TEXT |= {"question", "needed_for"}
FREE_TEXT |= {"role", "system_prompt", "instructions", "item_id", "turn_id", "task_id", "tool_call_id"}
FREE_TEXT |= {"description", "against", "method"}
FREE_TEXT |= {"bundle", "recipient", "answer", "server", "item"}
FREE_TEXT |= {"action", "target", "prefix", "text", "task_description", "model", "system", "native_id"}
ODD = (True, -1, 2**63, 10**400, 1e308, [], [[]], {"x": []}, {}, "", b"x")


@pytest.fixture
async def filled(world: World) -> World:
    await world.planner.write("goal", "ship")
    await world.planner.say("ship it")
    await world.planner.snapshot("mark")
    return world


async def state(world: World) -> tuple[int, int | None]:
    return await world.last_event(), await world.epoch()


async def expect_refusal(world: World, operation: str, raw: dict[str, Any], *, must: bool = True) -> None:
    before = await state(world)
    if await is_refused(world, operation, raw, must=must):
        assert await state(world) == before, f"{operation} {reprlib.repr(raw)}"


async def is_refused(world: World, operation: str, raw: dict[str, Any], *, must: bool = True) -> bool:
    shown = f"{operation} {reprlib.repr(raw)}"
    refusals: list[WeftlineError] = []
    try:
        await world.admin.call(operation, **raw)
    except WeftlineError as error:
        refusals.append(error)
    assert refusals or not must, f"accepted: {shown}"
    for error in refusals:
        assert error.code != "INTERNAL_ERROR", shown
        assert error.hint
        assert 0 < len(error.message) < 2_000, shown
    return bool(refusals)


def test_every_operation_is_in_the_table() -> None:
    assert set(VALID) == set(OPERATIONS)


@pytest.mark.parametrize("group", sorted({operation.group for operation in OPERATIONS.values()}))
async def test_malformed_requests_are_refused_and_change_nothing(
    filled: World, group: str, subtests: pytest.Subtests
) -> None:
    names = sorted(name for name, operation in OPERATIONS.items() if operation.group == group)
    for name in names:
        with subtests.test(name):
            await expect_malformed_requests_are_refused(filled, name)
    # Last, because these may be accepted and change what the others find.
    for name in names:
        with subtests.test(f"{name}, free text"):
            await expect_free_text_is_accepted_or_refused(filled, name)


async def expect_malformed_requests_are_refused(filled: World, name: str) -> None:
    operation, valid = OPERATIONS[name], VALID[name]
    fields = operation.request.__struct_fields__
    before = await state(filled)
    await is_refused(filled, name, {**valid, "surprise": 1})
    for missing in fields[: len(valid)]:
        if missing in valid:
            await is_refused(filled, name, {k: v for k, v in valid.items() if k != missing})
    hints = get_type_hints(operation.request, include_extras=True)
    for field in fields:
        for malformed in (*ODD, *(HOSTILE if field not in FREE_TEXT else ())):
            if malformed in HOSTILE or not _fits(malformed, hints[field]):
                await is_refused(filled, name, {**valid, field: malformed})
        assert await state(filled) == before, field


async def expect_free_text_is_accepted_or_refused(filled: World, name: str) -> None:
    for field in FREE_TEXT.intersection(OPERATIONS[name].request.__struct_fields__):
        for text in HOSTILE:
            await expect_refusal(filled, name, {**VALID[name], field: text}, must=False)


def _fits(value: Any, hint: Any) -> bool:
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return False
    return True


async def test_hostile_text_inside_lists_and_objects_is_refused(filled: World) -> None:
    for text in HOSTILE:
        await expect_refusal(filled, "board.read_batch", {**IN_SESSION, "keys": ["goal", text]})
        if text != "%":
            patterns = {**VALID["board.write"], "readable_by": [text]}
            await expect_refusal(filled, "board.write", patterns)
            await expect_refusal(filled, "events.read", {"keys": [text]})
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for metadata in ({"a": "\ud800"}, {"\ud800": 1}, {"a": "x" * 100_000}, {"a": deep}):
        await expect_refusal(filled, "session.create", {"purpose": "x", "metadata": metadata})
    for config in ({"max_value_tokens": 0}, {"unknown": 1}, {"tokenizer": "none"}, {"participants": ["*"]}):
        await expect_refusal(filled, "session.create", {"purpose": "x", "config": config})


async def test_numbers_out_of_range_are_refused(filled: World) -> None:
    for field, values in {"if_version": (-1, 2**53 + 1), "ttl_seconds": (0, -1, 315_360_001, 2**63)}.items():
        for value in values:
            await expect_refusal(filled, "board.write", {**VALID["board.write"], field: value})
    for wait in (-1, 61, float("inf"), float("nan")):
        await expect_refusal(filled, "events.read", {"after": 0, "wait_seconds": wait})
    await expect_refusal(filled, "session.list", {"limit": 0})
    await expect_refusal(filled, "session.list", {"limit": 1001})
    await expect_refusal(filled, "session.list", {"cursor": "9" * 19 + ".x"})
    await expect_refusal(filled, "agent.create", {"agent_id": "new", "clearance": 6})


CURSORS = [
    (operation.name, field)
    for operation in OPERATIONS.values()
    for field in ("cursor", "after")
    if str in get_args(hint := get_type_hints(operation.request).get(field)) or hint is str
]


async def test_every_cursor_is_validated_with_the_same_error(filled: World, subtests: pytest.Subtests) -> None:
    await filled.admin.call("knowledge.create_domain", **IN_DOMAIN)
    assert {("knowledge.list_documents", "cursor"), ("records.list", "after"), ("agent.list", "after")} <= set(CURSORS)
    for name, field in CURSORS:
        for value in ("../x", "\0", "x" * 5_000):
            with subtests.test(f"{name} {value[:5]!r}"), refused("INVALID_INPUT_FORMAT") as caught:
                await filled.admin.call(name, **{**VALID[name], field: value})
            assert caught.value.context["field"] == field
            # The cursors of these are names, which callers may choose.
            if name not in {"agent.list", "team.list", "tools.list"}:
                assert caught.value.message == f"{field}: not a next_{field} of this operation"


async def test_the_message_names_the_field_and_what_is_accepted(world: World) -> None:
    with refused("INVALID_INPUT_FORMAT") as caught:
        await world.planner.write("goal", ttl_seconds="soon")
    assert caught.value.context["field"] == "ttl_seconds"
    with refused("INVALID_INPUT_FORMAT") as caught:
        await world.planner.write("goal", surprise=1)
    assert "ttl_seconds" in caught.value.context["accepted_fields"]
    event = {"event_id": "e1", "role": "assistant", "tool_calls": [{"id": "c1"}]}
    with refused("INVALID_INPUT_FORMAT") as caught:
        await world.planner.call("context.ingest", **IN_SESSION, events=[event])
    assert caught.value.context["accepted_fields"] == ["call_id", "name", "arguments"]
    assert caught.value.hint == "events[0].tool_calls[0]: use only call_id, name, arguments."
    with refused("INVALID_INPUT_FORMAT") as caught:
        await world.planner.call("context.ingest", **IN_SESSION, events=[{"event_id": 5, "content": "Hello"}])
    assert caught.value.hint.startswith("events[0].event_id: ")
    for definition in ({"content": "nope"}, {"mask": ["nope"]}):
        with refused("INVALID_INPUT_FORMAT") as caught:
            await world.admin.call("policy.set", name="own", definition=definition)
        assert "; use one of " in caught.value.message
        assert caught.value.context["accepted_values"] in (["full", "reference", "none"], ["secrets", "pii"])


def test_an_unknown_operation_is_an_error() -> None:
    with refused("UNKNOWN_OPERATION"):
        all_operations()["board.explode"]
