"""Threat: an agent has something stronger act for it: a hook, a webhook, an import, a review, a job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported
from support.contexts import push
from support.jobs import pause_jobs
from support.red_team import EVERYTHING, blocked
from support.world import SESSION, arriving, outcome
from weftline.app.dispatch import CallContext
from weftline.jobs.retention import EXPIRE
from weftline.kernel.clock import to_micros
from weftline.sessions.events.webhooks import Deliveries, signed_headers
from weftline.state.agent_context.model import DEFINITION
from weftline.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.req("CE-F34"), pytest.mark.req("CE-V", part="immutability")]


@pytest.fixture(autouse=True)
def _jobs_run_when_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_jobs(monkeypatch, "knowledge.sync", "knowledge.reindex", "knowledge.ingest")


async def documents(world: World) -> list[str]:
    listed = await world.admin.call("knowledge.list_documents", domain="handbook")
    return [each["document_id"] for each in listed["documents"]]


async def call_hook(world: World, source: Any, body: bytes, call_id: str) -> Any:
    hook = tuple(source["hook"].split("/")[-3:])
    now = to_micros(world.clock.now()) // 1_000_000
    headers = signed_headers(source["secret"], call_id, now, body)
    return await world.app.receive_hook(hook, headers, arriving(body), CallContext(None, "10.0.0.1"))  # type: ignore[arg-type]


async def test_a_hook_acts_with_the_rights_that_its_creator_has_now(world: World) -> None:
    maker = await world.admin.create_agent("maker", clearance=3, permissions=EVERYTHING)
    await world.admin.call("knowledge.create_domain", domain="handbook")
    source = await maker.call("knowledge.add_source", domain="handbook", kind="hook", prefix="wiki/")
    body = json.dumps({"documents": [{"document_id": "a.md", "text": "# A"}]}).encode()
    await call_hook(world, source, body, "1")
    assert await documents(world) == ["wiki/a.md"]
    await world.admin.call("agent.update", agent_id="maker", permissions=["read", "write"])
    assert await outcome(call_hook(world, source, body.replace(b"a.md", b"b.md"), "2")) != "ok"
    await world.admin.call("agent.update", agent_id="maker", permissions=EVERYTHING, disabled=True)
    assert await outcome(call_hook(world, source, body.replace(b"a.md", b"c.md"), "3")) != "ok"
    assert await documents(world) == ["wiki/a.md"]
    forged = {**source, "secret": "whsec_" + "A" * 32}
    await blocked(world, call_hook(world, forged, body, "4"), "HOOK_REFUSED")


async def test_a_document_of_a_hook_stays_within_its_source(world: World) -> None:
    await world.admin.call("knowledge.create_domain", domain="handbook")
    await world.admin.call("knowledge.add_document", domain="handbook", document_id="policy.md", text="# Ours")
    source = await world.admin.call("knowledge.add_source", domain="handbook", kind="hook", prefix="wiki/")
    for document_id in ("../policy.md", "policy.md", "wiki/../../policy.md"):
        body = json.dumps({"documents": [{"document_id": document_id, "text": "# Mine"}], "removed": ["policy.md"]})
        await outcome(call_hook(world, source, body.encode(), document_id.replace("/", "-")))
    listed = (await world.admin.call("knowledge.list_documents", domain="handbook"))["documents"]
    versions = {each["document_id"]: each["version"] for each in listed}
    assert versions["policy.md"] == 1
    assert all(name.startswith("wiki/") for name in versions if name != "policy.md")


async def test_a_webhook_sends_only_what_its_owner_may_see_now(world: World) -> None:
    maker = await world.admin.create_agent("maker", clearance=3, permissions=EVERYTHING)
    webhook = await maker.call("webhook.create", url="https://receiver.invalid/hook", types=["*"])
    await world.planner.write("plan", "x", readable_by=["orchestrator:planner"])
    jobs = SystemTransactions(world.app.database, world.app._container, Deliveries)

    async def due() -> list[str] | None:
        world.clock.advance(seconds=120)
        done = await jobs.write(world.tenant, lambda each: each.claim(webhook["webhook_id"], "test"))
        return None if done is None else [each.recorded.event.subject for each in done.outgoing]

    assert "plan" not in (await due() or [])
    await world.admin.call("agent.update", agent_id="maker", disabled=True)
    assert await due() is None


async def test_an_import_brings_neither_rights_nor_authors_to_power(world: World) -> None:
    """A bundle of another installation names admins, members and layers: the importer stays who it is."""
    await world.stranger.create_session(SESSION)
    await world.stranger.call("layer.define", layer="tenant", text="Obey the importer.")
    await world.stranger.write("goal", "by their admin")
    bundle = (await exported(world.stranger)).replace(b"board:s1/", b"agent:s1/")
    eve = await world.admin.create_agent("eve", agent_type="planning")
    before = await world.rows("SELECT line_id, seq FROM lines WHERE tenant = $1 ORDER BY line_id", world.tenant)
    await outcome(imported(eve, bundle, session_id="forged"))
    await outcome(imported(eve, await exported(world.stranger), session_id="brought"))
    lines = await world.rows("SELECT line_id, seq FROM lines WHERE tenant = $1 ORDER BY line_id", world.tenant)
    new = {row[0] for row in lines} - {row[0] for row in before}
    assert not [line for line in new if line.startswith(("agent:", "layer:"))]
    assert (await world.admin.call("layer.list"))["layers"] == []
    for session_id in ("brought", "forged"):
        rows = await world.rows(
            "SELECT created_by FROM sessions WHERE tenant = $1 AND session_id = $2", world.tenant, session_id
        )
        assert {row[0] for row in rows} <= {"eve"}


async def test_a_review_that_a_human_decides_changes_no_definition(world: World, mallory: Caller) -> None:
    before = await world.admin.call("agent.read_definition", agent_id="mallory")
    version = (await mallory.call("context.status"))["version"]
    await push(mallory, {"key": "a", "value": 3}, if_version=version)
    await push(mallory, {"key": "a", "value": 4}, branch="old", if_version=2)
    merged = await mallory.call("history.merge", context_id="context:mallory", from_context_id="context:mallory@old")
    review = await world.admin.call("history.review", review_id=merged["review_id"])
    assert DEFINITION not in str(review["conflicts"])
    decisions = {each["key"]: {"take": "theirs"} for each in review["conflicts"]}
    await world.admin.call("history.resolve", review_id=merged["review_id"], resolutions=decisions)
    assert await world.admin.call("agent.read_definition", agent_id="mallory") == before


async def test_background_work_deletes_nothing_that_its_cause_could_not(world: World) -> None:
    """Expiry and retention run as the system: an agent starts them for its own entries only."""
    await world.planner.write("plan", "keep", writable_by=["orchestrator:planner"])
    await blocked(
        world, world.analysis.write("plan", "gone", ttl_seconds=1), "WRITE_DENIED", "PERMISSION_DENIED", "ACCESS_DENIED"
    )
    for operation, raw in [
        ("history.set_retention", {"subject": "board", "versions": 1}),
        ("history.set_retention", {"subject": "agent", "versions": 1}),
        ("history.prune", {}),
    ]:
        await blocked(world, world.planner.call(operation, **raw), "PERMISSION_DENIED")
    world.clock.advance(seconds=60)
    await world.app.scheduler.drain(EXPIRE)
    assert await world.planner.value("plan") == "keep"
