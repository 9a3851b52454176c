"""Client, SyncClient and Weftline.open have the same methods, answers and errors."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing
from functools import partial
from keyword import iskeyword
from pathlib import Path
from typing import Any

import msgspec
import pytest
from client_support import WeftlineServer, threaded_client

from support.attribution import SYSTEM, named_agents
from weftline import Client, SyncClient, Weftline
from weftline.app.registry import all_operations
from weftline.exchange.transfer.policy_filter import PolicyDefinition
from weftline.history.merge_reviews import ConflictResolution
from weftline.indexing.chunking.model import ChunkingOptions
from weftline.kernel.errors import WeftlineError
from weftline.knowledge.document_operations import NewDocument
from weftline.sessions.model import SessionConfig
from weftline.state.board.guidance import ConventionGroup, KeyConvention

CLIENT_NAMES = ("async", "blocking", "inprocess")
# Fields that differ from call to call: times, ids, secrets, positions and measurements.
VOLATILE = re.compile(
    r"(_at|^at|^as_of|^hash|^snapshot|^parent|^review_id|^pruning_id|^token|^api_key|^key_id|^audit_id|^seq|^next_after|^next_cursor|^last_updated|^timestamp|^last_activity"
    r"|_ms|^measured_since|^database_performance|^system_(info|performance)|^performance_trends|^operations|^background"
    r"|^bundle|^bundle_id|^digest|^tools_digest|^prompt_hash|^block_id|^bytes"
    r"|^source_id|^hook|^webhook_id|^secret|^behind|^id|^time|^sequence|^event_id|^events|^vectors|^available_alternatives|^until)$"
)

# Fields that are there only while something is being indexed in the background.
TRANSIENT = re.compile(r"^pending(_documents|_events|_by_words)?$")


class AnswerLog:
    """The answers of one client in wire form, without volatile fields."""

    def __init__(self, client_name: str) -> None:
        self.client_name = client_name
        self.answers: dict[str, list[Any]] = {}
        self.named: dict[str, str] = {}

    async def note(self, operation: str, call: Awaitable[Any]) -> Any:
        try:
            answer = await call
        except WeftlineError as error:
            details = [type(error).__name__, error.code, error.message, error.context, error.hint, error.http_status]
            self._add(operation, details)
            return None
        self._add(operation, [type(answer).__name__, answer])
        self.named |= {agent_id: f"{operation}{path}" for path, agent_id in named_agents(msgspec.to_builtins(answer))}
        return answer

    def _add(self, operation: str, answer: Any) -> None:
        self.answers.setdefault(operation, []).append(self._stable(msgspec.to_builtins(answer)))

    def _stable(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                self._stable(name): "…" if VOLATILE.search(name) else self._stable(part)
                for name, part in value.items()
                if not TRANSIENT.search(name)
            }
        if isinstance(value, list | tuple):
            return [self._stable(part) for part in value]
        if not isinstance(value, str):
            return value
        return re.sub(
            r"((key|receipt|review|selection|session|source|webhook)_|urn:weftline:)[0-9a-f]{16,28}|^([0-9a-f]{16}|[0-9a-f]{28}|[0-9a-f]{32})$"
            r"|\d{4}-\d\d-\d\d \d\d:\d\d( to [-\d ]*\d\d:\d\d)?"
            r'|\d{4}-\d\d-\d\dT\d\d:\d\d:00Z|(?<=_micros":)\d+',
            "…",
            value.replace(self.client_name, "CLIENT"),
        )


async def _call_knowledge_operations(weftline: Any, client_name: str, note: Any) -> None:
    d, name = f"d-{client_name}", "guides/start é.md"
    chunking = ChunkingOptions(chunk_tokens=64, overlap_tokens=8)
    await note("knowledge.create_domain", weftline.knowledge.create_domain(d, description="x", chunking=chunking))
    await note("knowledge.create_domain", weftline.knowledge.create_domain(d))
    await note("knowledge.update_domain", weftline.knowledge.update_domain(d, clearance=2, agents=["human:*"]))
    await note("knowledge.update_domain", weftline.knowledge.update_domain(d))
    await note("knowledge.add_document", weftline.knowledge.add_document(d, name, text="é", metadata={"a": 1}))
    await note("knowledge.add_document", weftline.knowledge.add_document(d, name, text="é", metadata={"a": 1}))
    await note("knowledge.add_document", weftline.knowledge.add_document(d, "../x", text="x"))
    several = [NewDocument(document_id="b", content="aGVsbG8="), NewDocument(document_id="c", text="x", pinned=True)]
    await note("knowledge.add_documents", weftline.knowledge.add_documents(d, several))
    await note("knowledge.add_documents", weftline.knowledge.add_documents(d, []))
    await note("knowledge.list_documents", weftline.knowledge.list_documents(d, limit=2))
    await note("knowledge.list_documents", weftline.knowledge.list_documents(f"none-{client_name}"))
    await note("knowledge.get_document", weftline.knowledge.get_document(d, name))
    await note("knowledge.get_document", weftline.knowledge.get_document(d, "none"))
    await note("knowledge.read_document", weftline.knowledge.read_document(d, "none", start=3))
    await note("knowledge.release_document", weftline.knowledge.release_document(d, "b", 1))
    await note("knowledge.discard_document", weftline.knowledge.discard_document(d, "none", 1))
    await note("knowledge.delete_document", weftline.knowledge.delete_document(d, "b"))
    await note("knowledge.delete_document", weftline.knowledge.delete_document(d, "b"))
    await note("knowledge.reindex", weftline.knowledge.reindex(d, reembed=True))
    await note("knowledge.reindex", weftline.knowledge.reindex(f"none-{client_name}"))
    await note("knowledge.show_domain", weftline.knowledge.show_domain(d))
    await note("knowledge.list_templates", weftline.knowledge.list_templates())
    await note("knowledge.show_template", weftline.knowledge.show_template("runbooks"))
    await note("knowledge.show_template", weftline.knowledge.show_template("none"))
    await note("knowledge.evaluate_domain", weftline.knowledge.evaluate_domain(d))
    await note("knowledge.list_domains", weftline.knowledge.list_domains())
    await note("knowledge.delete_domain", weftline.knowledge.delete_domain(d))
    await note("knowledge.delete_domain", weftline.knowledge.delete_domain(d))


async def call_every_operation(weftline: Any, client_name: str, admin_key: str) -> dict[str, list[Any]]:  # noqa: PLR0915 - a list of calls
    """Call every operation, and once more with an error where possible."""
    record = AnswerLog(client_name)
    note = record.note
    s, agent = f"s-{client_name}", f"agent-{client_name}"
    await note("session.create", weftline.session.create("parity", session_id=s, config=SessionConfig(keep_versions=9)))
    await note("session.create", weftline.session.create("parity", session_id=s))
    await note("session.create", weftline.session.create("", metadata={"a": [1, None]}))
    await note("session.get", weftline.session.get(s))
    await note("session.get", weftline.session.get("no such/session"[:7]))
    await note("session.add_members", weftline.session.add_members(s, ["subagent:*", "*"]))
    await note("session.add_members", weftline.session.add_members(s, ["no_such_agent"]))
    await note("session.remove_members", weftline.session.remove_members(s, ["*", "orchestrator:*"]))
    await note("session.remove_members", weftline.session.remove_members("nowhere", ["*"]))
    await note("session.reinstate", weftline.session.reinstate(s, "no_such_agent"))
    await note("board.write", weftline.board.write(s, "goal", "ship it", readable_by=["human:*", "orchestrator"]))
    await note("board.write", weftline.board.write(s, "goal", "ship é 🚢", if_version=1, ttl_seconds=3600))
    await note("board.write", weftline.board.write(s, "goal", "late", if_version=1))
    await note("board.write", weftline.board.write(s, "Not A Key", "x"))
    await note("board.write", weftline.board.write(s, "big", "word " * 5_000))
    await note("board.write", weftline.board.write(s, "goal", "x", ttl_seconds=0))
    await note("board.write", weftline.board.write(s, "goal", 5))
    await note("board.list_keys", weftline.board.list_keys(s))
    await note("board.read", weftline.board.read(s, "goal"))
    await note("board.read", weftline.board.read(s, "goat"))
    await note("board.read_batch", weftline.board.read_batch(s, ["goal", "none"]))
    await note("board.read_batch", weftline.board.read_batch(s, []))
    await note("board.read_history", weftline.board.read_history(s, "goal", versions=[1, 2], incarnation=1))
    await note("board.read_history", weftline.board.read_history(s, "goal", versions=[0]))
    await note("board.snapshot", weftline.board.snapshot(s, "before"))
    await note("board.snapshot", weftline.board.snapshot(s, "before"))
    await note("board.delete", weftline.board.delete(s, "goal", if_version=2))
    await note("board.delete", weftline.board.delete(s, "goal"))
    await note("board.list_snapshots", weftline.board.list_snapshots(s))
    await note("board.read_snapshot", weftline.board.read_snapshot(s, "before"))
    await note("board.read_snapshot", weftline.board.read_snapshot(s, "never"))
    await note("board.compare_snapshots", weftline.board.compare_snapshots(s, "before"))
    await note("board.restore_snapshot", weftline.board.restore_snapshot(s, "before"))
    await note("board.check", weftline.board.check(s, stale_hours=0.5))
    await note("board.check", weftline.board.check(s, stale_hours=-1.0))
    await note("board.guidance", weftline.board.guidance(session_id=s, part="writing"))
    await note("board.guidance", weftline.board.guidance(conventions="nowhere"))
    group = ConventionGroup(title="Work", keys=[KeyConvention(key="goal", purpose="what to do")])
    await note("conventions.define", weftline.conventions.define("work", [group]))
    await note("conventions.list", weftline.conventions.list())
    line, branch = f"board:{s}", f"board:{s}@try"
    await note("history.log", weftline.history.log(line, limit=2))
    await note("history.log", weftline.history.log("nothing"))
    await note("history.show", weftline.history.show(line, version=1))
    await note("history.show", weftline.history.show(line, version="never"))
    await note("history.state", weftline.history.state(line, key="goal"))
    await note("history.blame", weftline.history.blame(line, version="before"))
    await note("history.diff", weftline.history.diff(line, 1, to_version="v2"))
    await note("history.verify", weftline.history.verify(line, deep=True))
    await note("history.bisect", weftline.history.bisect(line, "goal", "🚢"))
    await note("history.snapshot", weftline.history.snapshot(line, "named"))
    await note("history.snapshot", weftline.history.snapshot(line, "named"))
    await note("history.snapshots", weftline.history.snapshots(context_id=line, limit=1))
    await note("history.context_snapshots", weftline.history.context_snapshots(line, limit=1))
    await note("history.snapshot", weftline.history.snapshot(line, "unwanted"))
    await note("history.delete_snapshot", weftline.history.delete_snapshot(line, "unwanted"))
    await note("history.delete_snapshot", weftline.history.delete_snapshot(line, "unwanted"))
    await note("history.branch", weftline.history.branch(line, "try"))
    await note("history.branch", weftline.history.branch(line, "try", from_version="1"))
    await note("history.switch", weftline.history.switch(line, branch="try"))
    await note("board.write", weftline.board.write(s, "phase", "theirs"))
    await note("history.switch", weftline.history.switch(line))
    await note("board.write", weftline.board.write(s, "phase", "ours"))
    await note("history.branches", weftline.history.branches(line))
    merged = await note("history.merge", weftline.history.merge(line, branch, reason="try it"))
    await note("history.merge", weftline.history.merge(line, "board:nowhere"))
    await note("history.reviews", weftline.history.reviews(context_id=line, state="open"))
    await note("history.review", weftline.history.review(merged.review_id))
    await note("history.review", weftline.history.review("review_none"))
    await note("history.resolve", weftline.history.resolve(merged.review_id, {"phase": ConflictResolution("perhaps")}))
    await note("history.resolve", weftline.history.resolve(merged.review_id, {"phase": ConflictResolution("theirs")}))
    await note("history.resolve", weftline.history.resolve(merged.review_id, {"phase": ConflictResolution("theirs")}))
    await note("history.close_review", weftline.history.close_review(merged.review_id))
    await note("history.close_review", weftline.history.close_review("review_none"))
    await note("history.delete_branch", weftline.history.delete_branch(line, "try"))
    await note("history.delete_branch", weftline.history.delete_branch(line, "try"))
    await note("history.rollback", weftline.history.rollback(line, "named", reason="back"))
    await note("history.rollback", weftline.history.rollback(line, "999"))
    await note("history.set_retention", weftline.history.set_retention(line, days=30, versions=1))
    await note("history.set_retention", weftline.history.set_retention("nothing"))
    await note("history.retention", weftline.history.retention())
    await note("history.clear_retention", weftline.history.clear_retention(line))
    await note("history.clear_retention", weftline.history.clear_retention(line))
    await note("history.set_retention", weftline.history.set_retention(line, days=30, versions=1))
    await note("history.prune", weftline.history.prune(context_id=line))
    await note("history.prune_log", weftline.history.prune_log(context_id=line))
    await note(
        "message.add", weftline.message.add(s, "  Ready é 🚢\n", metadata={"a": [1, None]}, recipient_id="planner")
    )
    await note("message.add", weftline.message.add(s, "to me", recipient_id="admin"))
    await note("message.add", weftline.message.add(s, "to nobody", recipient_id="nobody"))
    await note("message.inbox", weftline.message.inbox(session_id=s, limit=1))
    await note("message.inbox", weftline.message.inbox(acknowledge=[f"{s}/1", f"{s}/2"]))
    await note("message.inbox", weftline.message.inbox(acknowledge=["nonsense"]))
    await note("message.add", weftline.message.add(s, "between admins", visibility="admin_only", parent_message_id=1))
    await note("message.add", weftline.message.add(s, "to nobody", parent_message_id=77))
    await note("message.add", weftline.message.add(s, ""))
    await note("message.add", weftline.message.add(s, "x" * 10_001))
    await note("message.list", weftline.message.list(s, limit=1, visibility_filter="admin_only"))
    await note("message.list", weftline.message.list(s, after_id=1))
    await note("message.list", weftline.message.list(s, limit=0))
    await note("message.set_visibility", weftline.message.set_visibility(s, 1, "private"))
    await note("message.set_visibility", weftline.message.set_visibility(s, 77, "private"))
    await note("message.inspect", weftline.message.inspect(s, offset=1))
    later = {"since": "2099-01-01", "types": ["text/markdown"]}
    await note("search.query", weftline.search.query("release é", top_k=3, explain=True, low_confidence=True, **later))
    await note("search.query", weftline.search.query("release", domain=f"none-{client_name}"))
    await note("search.get_context", weftline.search.get_context(query="release", max_tokens=500, **later))
    await note("search.get_context", weftline.search.get_context(ref="sessions/999999999"))
    await note("search.find_similar", weftline.search.find_similar(text="release", **later))
    await note("search.find_similar", weftline.search.find_similar())
    await note("entity.list", weftline.entity.list(session_id=s, type="person", query="ada", limit=5))
    await note("entity.list", weftline.entity.list(domain=f"none-{client_name}"))
    await note("message.search", weftline.message.search(s, "redy", fuzzy_threshold=40.5, search_scope="private"))
    await note("message.search", weftline.message.search(s, " "))
    await note("message.search_by_sender", weftline.message.search_by_sender(s, "admin", limit=1))
    await note(
        "message.search_by_timerange",
        weftline.message.search_by_timerange(s, "2026-01-01T00:00:00+02:00", "2099-01-01"),
    )
    await note("message.search_by_timerange", weftline.message.search_by_timerange(s, "never", "2099-01-01"))
    await note("knowledge.embed", weftline.knowledge.embed(texts=[f"é of {client_name}"], purpose="query"))
    await note("knowledge.embed", weftline.knowledge.embed(texts=[]))
    await _call_knowledge_operations(weftline, client_name, note)
    await note("knowledge.embed", weftline.knowledge.embed(texts=["x"], model="none"))
    await note("knowledge.list_models", weftline.knowledge.list_models())
    await note("knowledge.show_reindexing", weftline.knowledge.show_reindexing())
    await note("knowledge.reindex_all", weftline.knowledge.reindex_all())
    await note("knowledge.allow_models", weftline.knowledge.allow_models([]))
    await note("knowledge.allow_models", weftline.knowledge.allow_models(["none"]))
    await note("knowledge.start_model_migration", weftline.knowledge.start_model_migration("none"))
    await note("knowledge.show_model_migration", weftline.knowledge.show_model_migration())
    await note("knowledge.cancel_model_migration", weftline.knowledge.cancel_model_migration())
    collection = f"sources-{client_name}"
    await weftline.knowledge.create_domain(collection)
    feed = await note("knowledge.add_source", weftline.knowledge.add_source(collection, "hook", prefix="pushed/"))
    await note("knowledge.add_source", weftline.knowledge.add_source(collection, "folder", folder="/nowhere"))
    await note("knowledge.list_sources", weftline.knowledge.list_sources(collection))
    await note("knowledge.list_sources", weftline.knowledge.list_sources("nowhere"))
    await note("knowledge.update_source", weftline.knowledge.update_source(collection, feed.source_id, enabled=False))
    await note("knowledge.update_source", weftline.knowledge.update_source(collection, feed.source_id))
    await note("knowledge.sync_source", weftline.knowledge.sync_source(collection, feed.source_id, full=True))
    await note("knowledge.remove_source", weftline.knowledge.remove_source(collection, feed.source_id, documents=True))
    await note("knowledge.remove_source", weftline.knowledge.remove_source(collection, feed.source_id))
    await weftline.knowledge.delete_domain(collection)
    await note("session.overview", weftline.session.overview(s))
    await note("session.overview", weftline.session.overview("nowhere"))
    gap = f"missing_{client_name}"
    await note("missing.report", weftline.missing.report(s, "Who decides é?", severity="high", missing_id=gap))
    await note("missing.report", weftline.missing.report(s, "who  decides É?", blocked_actions=["ship"]))
    await note("missing.report", weftline.missing.report(s, " "))
    await note("missing.request", weftline.missing.request(gap, "policy_request", requested_from="legal", session_id=s))
    await note("missing.request", weftline.missing.request(gap, "retrieval"))
    await note("missing.request", weftline.missing.request(gap, "peer_task", agent_id="nobody"))
    await note("missing.request", weftline.missing.request(gap, "tool_invocation"))
    await note("missing.list", weftline.missing.list(session_id=s, severity="medium"))
    await note("missing.list", weftline.missing.list(session_id=s, after="missing_none"))
    await note("session.get", weftline.session.get(s))
    await note("missing.resolve", weftline.missing.resolve(gap, resolution_refs=["x", "https://example.com"]))
    await note("missing.resolve", weftline.missing.resolve(gap, answer="Dana"))
    await note("missing.resolve", weftline.missing.resolve("missing_none", resolution_refs=["x"]))
    await note("missing.list", weftline.missing.list(session_id=s, status="all", limit=1))
    await note("agent.capabilities", weftline.agent.capabilities())
    await note("agent.capabilities", weftline.agent.capabilities(guidance_type="security"))
    await note("tools.search", weftline.tools.search("go back to an earlier version of the board"))
    await note("tools.describe", weftline.tools.describe("context_history.log"))
    runtime_tool: Any = {"name": f"{client_name}.é", "description": "Sends"}
    await note("tools.register", weftline.tools.register([runtime_tool]))
    runtime_tool = {**runtime_tool, "name": "mail.letter"}
    await note("tools.register", weftline.tools.register([runtime_tool], server="mail", complete=True))
    await note("tools.list", weftline.tools.list(limit=1))
    await note("tools.select", weftline.tools.select("send a letter é", session_id=s))
    await note("step.define", weftline.step.define(client_name, ["search", "mail.letter"], description="é"))
    await note("step.define", weftline.step.define(client_name, ["nonsense"]))
    await note("step.list", weftline.step.list())
    await note("step.remove", weftline.step.remove(client_name))
    await note("step.remove", weftline.step.remove(client_name))
    await note("tools.remove", weftline.tools.remove("mail.letter"))
    await note("tools.remove", weftline.tools.remove("mail.letter"))
    await note("performance.read", weftline.performance.read())
    await note("records.schema", weftline.records.schema("context_item"))
    await note("records.schema", weftline.records.schema("context"))
    kept = {
        "schema_version": "0.1.0",
        "context_id": f"c-{client_name}",
        "scope": "turn",
        "created_at": "2026-01-01T00:00:00Z",
    }
    await note(
        "records.add", weftline.records.add([{**kept, "lifecycle": "draft", "metadata": {"é": [1.0]}}], session_id=s)
    )
    await note("records.add", weftline.records.add([{**kept, "lifecycle": "asleep"}], session_id=s))
    await note("records.add", weftline.records.add([], session_id=s))
    await note("records.set_lifecycle", weftline.records.set_lifecycle(f"c-{client_name}", "selected"))
    await note("records.set_lifecycle", weftline.records.set_lifecycle(f"c-{client_name}", "draft"))
    await note(
        "records.list", weftline.records.list(session_id=s, types=["context_item", "context_envelope"], limit=200)
    )
    await note("records.list", weftline.records.list(session_id="nowhere"))
    await note("records.list", weftline.records.list(after="x"))
    await note("records.show", weftline.records.show(f"board:{s}/phase/1.1", with_content=True))
    await note("records.show", weftline.records.show("nothing"))
    await note("records.redact", weftline.records.redact(f"board:{s}/phase/1.1", "removed", "a name in it"))
    await note("records.redact", weftline.records.redact("nothing", "masked", "a name in it"))
    await note("records.reveal", weftline.records.reveal(f"board:{s}/phase/1.1", "asked by its author"))
    await note("records.reveal", weftline.records.reveal("nothing", "asked by its author"))
    await note("trust.trace", weftline.trust.trace(f"board:{s}/phase"))
    await note("trust.trace", weftline.trust.trace("nothing"))
    await note("trust.forget", weftline.trust.forget(f"board:{s}/phase", "é"))
    await note("trust.forget", weftline.trust.forget("nothing", "é"))
    whole = await note("bundle.export", weftline.bundle.export(session_id=s, format="json"))
    await note("bundle.export", weftline.bundle.export(session_id=s, scope="turn"))
    await note("bundle.export", weftline.bundle.export(session_id="nowhere"))
    await note("bundle.import", weftline.bundle.import_(whole.bundle, expected_digest=whole.digest))
    await note("bundle.import", weftline.bundle.import_("é", dry_run=True))
    await note(
        "policy.set",
        weftline.policy.set(f"to-{client_name}", PolicyDefinition(description="é", mask=("secrets", "pii"))),
    )
    await note("policy.set", weftline.policy.set("full", PolicyDefinition()))
    await note("policy.list", weftline.policy.list())
    await note("policy.delete", weftline.policy.delete(f"to-{client_name}"))
    await note("policy.delete", weftline.policy.delete(f"to-{client_name}"))
    quoted = {"schema_version": "0.1.0", "source_id": "q", "uri": f"board://{s}/goal", "source_kind": "board_entry"}
    await note("records.resolve", weftline.records.resolve(source_ref=quoted))
    await note("records.resolve", weftline.records.resolve(source_id="nowhere"))
    await note("events.read", weftline.events.read(session_id=s, keys=["goal", "before"], after=0))
    await note("events.read", weftline.events.read(session_id="nowhere"))
    await note(
        "events.read", weftline.events.read(session_id=s, types=["context.item.*"], format="cloudevents", after=0)
    )
    await note("gateway.add", weftline.gateway.add("parity", command="a-server"))
    await note("gateway.list", weftline.gateway.list())
    for verb in ("get", "refresh", "approve", "remove"):
        await note(f"gateway.{verb}", getattr(weftline.gateway, verb)("parity"))
    await note("gateway.call", weftline.gateway.call("parity__search", arguments={"é": 1}))
    hook = await note("webhook.create", weftline.webhook.create("http://receiver.invalid/", types=["never.*"]))
    await note("webhook.create", weftline.webhook.create("http://127.0.0.1/"))
    await note("webhook.create", weftline.webhook.create("nowhere"))
    await note("webhook.list", weftline.webhook.list())
    await note("webhook.update", weftline.webhook.update(hook.webhook_id, enabled=False))
    await note("webhook.test", weftline.webhook.test(hook.webhook_id))
    await note("webhook.deliveries", weftline.webhook.deliveries(hook.webhook_id, state="dead"))
    await note("webhook.replay", weftline.webhook.replay(hook.webhook_id, dead=True))
    await note("webhook.replay", weftline.webhook.replay(hook.webhook_id))
    await note("webhook.delete", weftline.webhook.delete(hook.webhook_id))
    await note("webhook.delete", weftline.webhook.delete(hook.webhook_id))
    await note("pin.add", weftline.pin.add(session_id=s, memory_key="goal"))
    await note("pin.add", weftline.pin.add(session_id=s, key="no_such_key"))
    await note("pin.list", weftline.pin.list(session_id=s))
    await note("pin.remove", weftline.pin.remove(session_id=s, memory_key="goal"))
    await note("pin.remove", weftline.pin.remove(session_id=s, memory_key="goal"))
    await note("context.ingest", weftline.context.ingest(s, [{"event_id": "e1", "content": "hello é"}]))
    await note("context.ingest", weftline.context.ingest(s, [{"event_id": "e1", "content": "other"}]))
    # A session of its own: names of clients have several lengths, and tokens are counted. Workflow events are not
    # indexed, so that the answers do not depend on how far indexing is.
    own = (await weftline.session.create(purpose="Assemble")).session_id
    await weftline.context.ingest(own, [{"event_id": "e1", "content": "hello é", "kind": "workflow"}])
    made = await note(
        "context.assemble", weftline.context.assemble(own, "Greet them.", model="claude-sonnet-5", domains=[])
    )
    await note("context.assemble", weftline.context.assemble(own, "Greet them.", token_budget=5, domains=[]))
    usage = {"input_tokens": 900, "output_tokens": 5}
    await note("context.emit_metrics", weftline.context.emit_metrics(own, made.receipt_id, usage))
    await note("context.emit_metrics", weftline.context.emit_metrics(own, "receipt_unknown", usage))
    await note("receipt.show", weftline.receipt.show(made.receipt_id))
    await note("receipt.show", weftline.receipt.show("receipt_unknown"))
    await note("receipt.list", weftline.receipt.list(session_id=own))
    await note("receipt.replay", weftline.receipt.replay(made.receipt_id, form="anthropic"))
    await note("context.validate_prompt", weftline.context.validate_prompt(made.receipt_id, made.body))
    await note("context.validate_prompt", weftline.context.validate_prompt(made.receipt_id, {"messages": []}))
    await note("advise.list", weftline.advise.list(calls=1))
    await note("advise.show", weftline.advise.show("nobody.tools.000000"))
    await note("advise.try", weftline.advise.try_(calls=1))
    await note("receipt.savings", weftline.receipt.savings(by="model", session_id=own))
    turns = [{"event_id": f"t{n}", "content": f"We agreed on step {n}. " * 20} for n in range(30)]
    await weftline.context.ingest(own, turns)
    compacted = await note("context.compact", weftline.context.compact(own, keep_recent=4, wait_seconds=60))
    await note("context.compact", weftline.context.compact("nowhere"))
    await note("compaction.list", weftline.compaction.list(own))
    await note("compaction.show", weftline.compaction.show(compacted.compaction_id, limit=1))
    await note("compaction.show", weftline.compaction.show("unknown"))
    await note("compaction.expand", weftline.compaction.expand(own, ["t1", "never"]))
    await note("compaction.facts", weftline.compaction.facts(own, kind="decision", limit=2))
    await note("compaction.apply", weftline.compaction.apply(compacted.compaction_id))
    await note("compaction.drop", weftline.compaction.drop(own))
    await note("conversation.settings", weftline.conversation.settings(agent_id=agent))
    await note("conversation.calls", weftline.conversation.calls(agent_id=agent, limit=1))
    await note("conversation.open", weftline.conversation.open("wl-7f3a9c2e41d0b865"))
    await note(
        "window.create", weftline.window.create(s, agent_id=agent, model_max_tokens=9_000, budgets={"DIALOG": 0.5})
    )
    await note("window.create", weftline.window.create(s, agent_id=agent))
    await note("window.show", weftline.window.show(s))
    await note("window.list", weftline.window.list(s))
    await note("window.events", weftline.window.events(s))
    await note("window.update", weftline.window.update(s, model="gpt-4o"))
    await note("window.release", weftline.window.release(s, ["never"]))
    await note("window.pop", weftline.window.pop(s))
    await note("window.refresh", weftline.window.refresh(s, agent_id=agent))
    await note("window.join", weftline.window.join(s, agent))
    await note("window.leave", weftline.window.leave(s))
    await note("window.route", weftline.window.route(s, ["CONTEXT"], to_types=["review"]))
    await note("window.route", weftline.window.route(s, ["CONTEXT"]))
    await note("window.unroute", weftline.window.unroute(s, ["CONTEXT"], to_types=["review"]))
    await note("window.checkpoint", weftline.window.checkpoint(s, "start"))
    await note("window.checkpoints", weftline.window.checkpoints(s))
    await note("window.branch", weftline.window.branch(s, "start", "again"))
    await note("window.restore", weftline.window.restore(s, "start", all_agents=True))
    await note("window.restore", weftline.window.restore(s, "never"))
    await note("window.delete", weftline.window.delete(s, agent_id=agent))
    await note(
        "memory.set", weftline.memory.set(f"goal-{client_name}", None, metadata={"a": [1.0, "é"]}, expires_in=3600)
    )
    await note("memory.set", weftline.memory.set(f"goal-{client_name}", {"n": 2**70, "f": 1.0}, if_version=1))
    await note("memory.set", weftline.memory.set(f"goal-{client_name}", 1, overwrite=False))
    await note("memory.set", weftline.memory.set(f"goal-{client_name}", 1, if_version=1))
    await note("memory.set", weftline.memory.set("phase", [False], session_id=s))
    await note("memory.set", weftline.memory.set("not a key", 1))
    await note("memory.set", weftline.memory.set(f"goal-{client_name}", "x" * 1_100_000))
    await note("memory.get", weftline.memory.get(f"goal-{client_name}"))
    await note("memory.get", weftline.memory.get("goat"))
    await note("memory.get", weftline.memory.get("phase", session_id=s))
    await note("memory.list", weftline.memory.list(session_id="all", prefix="p", limit=1))
    await note("memory.list", weftline.memory.list(session_id="nowhere"))
    await note("memory.inspect", weftline.memory.inspect("admin", limit=1))
    await note("memory.inspect", weftline.memory.inspect("nobody"))
    await note("memory.delete", weftline.memory.delete("phase", session_id=s))
    await note("memory.overview", weftline.memory.overview("admin"))
    await note("memory.overview", weftline.memory.overview("nobody"))
    await note("memory.delete", weftline.memory.delete(f"goal-{client_name}", if_version=2))
    await note("memory.delete", weftline.memory.delete(f"goal-{client_name}"))
    # A branch for each client, because all of them are the same principal.
    await note("context.status", weftline.context.status(session_id=s))
    await note("context.read", weftline.context.read(session_id=s))
    await note("context.pull", weftline.context.pull(s))
    await weftline.history.branch("context:admin", client_name, from_version="0")
    push = partial(weftline.context.push, branch=client_name)
    await note("context.push", push([{"key": "limit", "value": {"n": 1.0}}], if_version=0, step="read"))
    await note("context.push", push([{"key": "limit", "value": None}], if_version=0))
    await note("context.push", push([{"key": "role", "value": "x"}], if_version=0))
    await note("context.push", push([{"key": "a", "value": 1}]))
    await note("context.push", push([{"key": "file", "base64": b"\x00\xff", "metadata": {"a": [None]}}], if_version=1))
    await note("context.pull", weftline.context.pull(s, branch=client_name))
    await note("context.pull", weftline.context.pull("nowhere"))
    await note("context.read", weftline.context.read(session_id=s, memory_type="learned_knowledge", limit=1))
    await note("context.read", weftline.context.read(session_id=s, key="file"))
    await note("context.read", weftline.context.read(session_id=s, key="nothing"))
    await note("context.push", push([], remove=[{"key": "limit"}], session_id=s))
    await note("context.status", weftline.context.status(session_id=s, branch=client_name))
    await note("context.status", weftline.context.status(branch="nowhere"))
    await note("session.inspect", weftline.session.inspect(s))
    await note("session.list", weftline.session.list(limit=1))
    await note("session.list", weftline.session.list(limit=0))
    await note("session.list", weftline.session.list(cursor="nonsense"))
    await note("session.archive", weftline.session.archive(s))
    await note("session.archive", weftline.session.archive(s))
    await note("board.write", weftline.board.write(s, "goal", "too late"))
    await note("session.delete", weftline.session.delete(s))
    await note("session.delete", weftline.session.delete(s))
    made = await note("agent.create", weftline.agent.create(agent, agent_type="tester", clearance=2))
    await note("agent.create", weftline.agent.create(agent))
    await note("agent.create", weftline.agent.create("child", parent_id="nobody"))
    await note("agent.update", weftline.agent.update(agent, disabled=False, permissions=["read"]))
    await note("agent.update", weftline.agent.update("nobody", clearance=1))
    guardrails = [{"name": "no-mail", "prohibited_action": ["mail.*"], "message": "é"}]
    await note("agent.define", weftline.agent.define(agent, role="Tests", guardrails=guardrails, config={"n": 1}))
    await note("agent.define", weftline.agent.define(agent, role="Late", if_version=0))
    await note("agent.define", weftline.agent.define("admin", role="Itself"))
    await note("agent.read_definition", weftline.agent.read_definition(agent))
    await note("agent.read_definition", weftline.agent.read_definition(agent, version="never"))
    await note("team.create", weftline.team.create(agent, description="Tests é"))
    await note("team.create", weftline.team.create(agent))
    await note("team.add_member", weftline.team.add_member(agent, agent))
    await note("team.add_member", weftline.team.add_member("nobody", agent))
    await note("team.list", weftline.team.list(after=agent[:-1], limit=1))
    await note("usage.report", weftline.usage.report(by="model", kind="assembly", session_id=own))
    await note("usage.export", weftline.usage.export(unit="hour", form="json", session_id=own))
    await note("budget.set", weftline.budget.set(f"team:{agent}", "month", cost=2.5, at_limit="downgrade"))
    await note("budget.set", weftline.budget.set("tenant", "day"))
    await note("budget.list", weftline.budget.list(limit=1))
    await note("budget.delete", weftline.budget.delete(f"team:{agent}", "month"))
    await note("budget.delete", weftline.budget.delete(f"team:{agent}", "month"))
    await note("plan.show", weftline.plan.show())
    await note("team.show", weftline.team.show(agent))
    await note("team.update", weftline.team.update(agent, "Tests more"))
    layer = f"team:{agent}"
    await note("layer.define", weftline.layer.define(layer, text="Cite sources é.", critical=True))
    await note("layer.define", weftline.layer.define(layer, text="Late", if_version=0))
    await note("layer.show", weftline.layer.show(agent_id=agent))
    await note("guardrail.list", weftline.guardrail.list(agent_id=agent))
    await note("guardrail.test", weftline.guardrail.test("mail.send", arguments={"to": "é"}, agent_id=agent))
    await note("guardrail.check", weftline.guardrail.check("github.create_issue", arguments={"title": "é"}))
    await note("layer.show", weftline.layer.show(agent_id="nobody"))
    await note("layer.list", weftline.layer.list(cursor=layer[:-1], limit=1))
    await note("guardrail.list", weftline.guardrail.list(agent_id=agent))
    await note("guardrail.list", weftline.guardrail.list(agent_id="nobody"))
    await note("guardrail.test", weftline.guardrail.test("mail.send", arguments={"to": "é"}, agent_id=agent))
    await note("guardrail.check", weftline.guardrail.check("mail.send", arguments={"to": "é"}))
    await note("alerts.list", weftline.alerts.list(state="all", limit=1))
    await note("alerts.acknowledge", weftline.alerts.acknowledge("alert_1"))
    await note("alerts.resolve", weftline.alerts.resolve("alert_1"))
    await note("approval.list", weftline.approval.list(state="pending", limit=1))
    await note("approval.show", weftline.approval.show("approval_1"))
    await note("approval.approve", weftline.approval.approve("approval_1", reason="é"))
    await note("approval.reject", weftline.approval.reject("approval_1"))
    await note("team.delete", weftline.team.delete(agent))
    await note("team.remove_member", weftline.team.remove_member(agent, agent))
    await note("team.delete", weftline.team.delete(agent, force=True))
    await note("context.copy", weftline.context.copy(agent, "nobody"))
    await note("context.copy", weftline.context.copy(agent, agent))
    await note("agent.list", weftline.agent.list(after=agent[:-1], limit=1))
    await note("agent.list", weftline.agent.list(session_id="nowhere"))
    key = await note("key.create", weftline.key.create(agent, expires_in=600))
    await note("key.list", weftline.key.list(agent))
    await note("key.rotate", weftline.key.rotate(key.key_id))
    await note("key.rotate", weftline.key.rotate("nonsense"))
    await note("key.revoke", weftline.key.revoke(key.key_id))
    await note("key.revoke", weftline.key.revoke("nonsense"))
    await note("token.issue", weftline.token.issue(agent, "tester", made.api_key, requested_permissions=["read"]))
    await note("token.issue", weftline.token.issue(agent, "tester", admin_key))
    await note("token.refresh", weftline.token.refresh())
    await note("token.revoke", weftline.token.revoke(token_id="nonsense"))
    await note("signing_key.rotate", weftline.signing_key.rotate(revoke_existing=False))
    await note("audit.list", weftline.audit.list(outcome="done", limit=3))
    await note("audit.list", weftline.audit.list(outcome="perhaps"))
    known = {each.agent_id for each in (await weftline.agent.list(limit=1000)).agents} | {SYSTEM}
    assert {agent_id: where for agent_id, where in record.named.items() if agent_id not in known} == {}
    return record.answers


@pytest.fixture
async def clients(product: WeftlineServer) -> AsyncIterator[dict[str, Any]]:
    async with (
        Client(product.url, product.admin_key) as client,
        threaded_client(product.url, product.admin_key) as blocking,
        Weftline.open(product.database) as inprocess,
    ):
        yield dict(zip(CLIENT_NAMES, (client, blocking, inprocess), strict=True))


@pytest.mark.req("WX-02")
async def test_every_client_gives_the_same_answers_and_errors(clients: dict[str, Any], product: WeftlineServer) -> None:
    answers = {}
    for client_name, weftline in clients.items():
        answers[client_name] = await call_every_operation(weftline, client_name, product.admin_key)
        await clients["inprocess"].agent.update(f"agent-{client_name}", disabled=True)
    # An overview lists the keys that the clients before have set.
    for operation in (each for each in all_operations() if each.name != "memory.overview"):
        expected = answers["inprocess"][operation.name]
        assert answers["async"][operation.name] == expected, operation.name
        assert answers["blocking"][operation.name] == expected, operation.name


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_every_operation_gives_the_same_answer_on_both_databases(database_url: str, tmp_path: Path) -> None:
    answers = []
    for url in (str(tmp_path / "weftline.db"), database_url):
        async with Weftline.open(database_url=url, data_dir=str(tmp_path)) as weftline:
            answers.append(await call_every_operation(weftline, "inprocess", "not a key"))
    on_sqlite, on_postgres = answers
    for operation in all_operations():
        assert on_postgres[operation.name] == on_sqlite[operation.name], operation.name


@pytest.mark.parametrize("kind", [Client, SyncClient, Weftline])
def test_every_operation_is_a_method(kind: type) -> None:
    groups = inspect.signature(kind.__mro__[1].__init__)
    assert list(groups.parameters) == ["self", "caller"]
    operations = kind.__mro__[1](None)
    for operation in all_operations():
        verb = f"{operation.verb}_" if iskeyword(operation.verb) else operation.verb
        method = getattr(getattr(operations, operation.group), verb)
        parameters = inspect.signature(method).parameters
        assert list(parameters) == sorted(
            operation.request.__struct_fields__,
            key=lambda name: parameters[name].kind is inspect.Parameter.KEYWORD_ONLY,
        )


@pytest.mark.req("SC-16")
async def test_all_clients_follow_the_same_events(clients: dict[str, Any]) -> None:
    writer = clients["inprocess"]
    session = (await writer.session.create("follow")).session_id

    async def two(weftline: Any) -> list[tuple[int, str]]:
        async with aclosing(weftline.follow(session, ["a*"], after=0)) as events:
            return [((event := await anext(events)).seq, event.subject) for _ in range(2)]

    following = [asyncio.create_task(two(weftline)) for weftline in clients.values()]
    for key in ("a1", "b", "a2"):
        await writer.board.write(session, key, "x")
    seen = await asyncio.wait_for(asyncio.gather(*following), 60)
    assert seen[0] == seen[1] == seen[2]
    assert [subject for _, subject in seen[0]] == ["a1", "a2"]


async def test_following_an_unknown_session_is_the_same_error_everywhere(clients: dict[str, Any]) -> None:
    errors = []
    for weftline in clients.values():
        with pytest.raises(WeftlineError) as caught:
            await anext(weftline.follow("nowhere"))
        errors.append((type(caught.value), caught.value.message))
    assert errors[0] == errors[1] == errors[2]


async def test_a_caller_without_a_key_is_refused(product: WeftlineServer) -> None:
    async with Client(product.url) as weftline:
        with pytest.raises(WeftlineError) as caught:
            await weftline.session.list()
    assert caught.value.code == "AUTHENTICATION_ERROR"
