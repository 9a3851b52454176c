"""Domains: ACLs, updates and quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.knowledge import HANDBOOK, chunks, document, domain, embed_quickly, put
from support.world import outcome, refused
from weftline.access.plans import AssignedPlan

if TYPE_CHECKING:
    from support.knowledge import QuickEmbedder
    from support.world import Caller, World

pytestmark = [pytest.mark.req("CE-F38"), pytest.mark.req("CE-F40")]


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> QuickEmbedder:
    return embed_quickly(monkeypatch)


async def names(caller: Caller) -> list[str]:
    return [each["domain"] for each in (await caller.call("knowledge.list_domains"))["domains"]]


async def knowledge_events(caller: Caller) -> list[str]:
    events = (await caller.events())["events"]
    return [event["type"] for event in events if event["type"].startswith(("domain.", "document."))]


@pytest.mark.req("CE-F48")
async def test_a_domain_is_shown_as_created(world: World) -> None:
    made = await domain(world.admin, description="How we work", clearance=2, agents=["orchestrator"], importance=0.8)
    assert made["chunking"] == {"chunk_tokens": 512, "overlap_tokens": 64}
    assert (made["clearance"], made["agents"], made["importance"]) == (2, ["orchestrator"], 0.8)
    assert (made["documents"], made["chunks"], made["bytes"], made["pending"], made["failed"]) == (0, 0, 0, 0, 0)
    assert await world.planner.call("knowledge.show_domain", domain=HANDBOOK) == made
    with refused("DOMAIN_EXISTS"):
        await domain(world.admin)


async def test_only_admins_create_update_and_delete_domains(world: World) -> None:
    await domain(world.admin)
    for operation, what in (("create_domain", {}), ("update_domain", {"clearance": 1}), ("delete_domain", {})):
        with refused("PERMISSION_DENIED"):
            await world.planner.call(f"knowledge.{operation}", domain=HANDBOOK, **what)


@pytest.mark.parametrize(
    ("terms", "may"),
    [
        ({}, {"planner", "analysis", "review"}),
        ({"clearance": 3}, {"planner"}),
        ({"clearance": 5}, set()),
        ({"agents": ["subagent:*"]}, {"analysis", "review"}),
        ({"agents": ["type:review", "orchestrator"]}, {"planner", "review"}),
        ({"agents": ["subagent:*"], "clearance": 3}, set()),
    ],
)
async def test_a_hidden_domain_looks_like_a_missing_one(world: World, terms: dict[str, Any], may: set[str]) -> None:
    await domain(world.admin, **terms)
    await put(world.admin, "a.md", "text")
    for name in ("planner", "analysis", "review"):
        caller: Caller = getattr(world, name)
        looks = [
            *(("show_domain", {}), ("list_documents", {}), ("get_document", {"document_id": "a.md"})),
            *(("read_document", {"document_id": "a.md"}), ("add_document", {"document_id": "b.md", "text": "x"})),
            ("delete_document", {"document_id": "c.md"}),
        ]
        for operation, what in looks:
            seen = await outcome(caller.call(f"knowledge.{operation}", domain=HANDBOOK, **what))
            assert (seen != "DOMAIN_NOT_FOUND") is (name in may), (name, operation)
        assert await names(caller) == ([HANDBOOK] if name in may else [])
    assert bool(await knowledge_events(world.planner)) is ("planner" in may)
    assert await knowledge_events(world.admin)
    assert await names(world.admin) == [HANDBOOK]


async def test_an_unknown_and_a_hidden_domain_give_the_same_error(world: World) -> None:
    await domain(world.admin, "secrets", clearance=5)
    answers = []
    for name in ("secrets", "secretz"):
        with refused("DOMAIN_NOT_FOUND") as caught:
            await world.planner.call("knowledge.show_domain", domain=name)
        answers.append((caught.value.message.replace(name, "NAME"), caught.value.hint, caught.value.context.keys()))
        assert caught.value.context["available_alternatives"] == []
    assert answers[0] == answers[1]


async def test_domains_above_the_caller_s_clearance_are_refused(world: World) -> None:
    lead = await world.admin.create_agent(
        "lead", agent_type="lead", clearance=3, permissions=["read", "write", "admin"]
    )
    await domain(world.admin, clearance=3)
    with refused("PERMISSION_DENIED"):
        await lead.call("knowledge.update_domain", domain=HANDBOOK, clearance=4)
    await world.admin.call("knowledge.update_domain", domain=HANDBOOK, clearance=5)
    assert await names(lead) == []
    with refused("DOMAIN_NOT_FOUND"):
        await lead.call("knowledge.delete_domain", domain=HANDBOOK)


async def test_only_the_highest_clearance_learns_whether_a_name_is_taken(world: World) -> None:
    lead = await world.admin.create_agent(
        "lead", agent_type="lead", clearance=4, permissions=["read", "write", "admin"]
    )
    await domain(world.admin, "secrets", clearance=5)
    answers = []
    for name in ("secrets", "free"):
        with refused("PERMISSION_DENIED") as caught:
            await domain(lead, name)
        answers.append((caught.value.message, caught.value.context))
    assert answers[0] == answers[1]


async def test_a_domain_has_a_write_acl(world: World) -> None:
    made = await domain(world.admin, writers=["type:review"])
    assert made["writers"] == ["type:review"]
    await put(world.review, "a.md", "one")
    await put(world.admin, "b.md", "an admin always may")
    for operation, what in (
        ("add_document", {"document_id": "a.md", "text": "other"}),
        ("add_documents", {"documents": [{"document_id": "c.md", "text": "other"}]}),
        ("delete_document", {"document_id": "a.md"}),
    ):
        with refused("PERMISSION_DENIED"):
            await world.analysis.call(f"knowledge.{operation}", domain=HANDBOOK, **what)
    assert (await document(world.analysis, "a.md"))["version"] == 1
    await world.admin.call("knowledge.update_domain", domain=HANDBOOK, writers=["*"])
    await put(world.analysis, "a.md", "other")


async def test_a_change_of_the_read_acl_takes_effect_at_once(world: World) -> None:
    await domain(world.admin)
    assert await names(world.analysis) == [HANDBOOK]
    changed = await world.admin.call("knowledge.update_domain", domain=HANDBOOK, agents=["orchestrator"])
    assert (changed["agents"], changed["reindexing"]) == (["orchestrator"], False)
    assert await names(world.analysis) == []
    assert await names(world.planner) == [HANDBOOK]
    with refused("INVALID_INPUT_FORMAT"):
        await world.admin.call("knowledge.update_domain", domain=HANDBOOK)


@pytest.mark.req("CE-F52")
async def test_a_change_of_chunking_reindexes_every_document(world: World) -> None:
    await domain(world.admin)
    text = "One sentence of several words is here. " * 60
    for name in ("a.txt", "b.txt", "c.txt"):
        await put(world.planner, name, text)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    before = [(await document(world.planner, name))["chunks"] for name in ("a.txt", "b.txt", "c.txt")]
    chunking = {"chunk_tokens": 64, "overlap_tokens": 8}
    changed = await world.admin.call("knowledge.update_domain", domain=HANDBOOK, chunking=chunking)
    assert changed["reindexing"]
    assert (await document(world.planner, "a.txt"))["chunks"] == before[0]
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    shown = await world.planner.call("knowledge.show_domain", domain=HANDBOOK)
    assert (shown["pending"], shown["reindexing"]) == (0, False)
    for name, chunks_before in zip(("a.txt", "b.txt", "c.txt"), before, strict=True):
        now = await document(world.planner, name)
        assert now["chunks"] > chunks_before
        assert (now["version"], now["indexed_version"], now["state"]) == (2, 2, "indexed")
        assert {chunk.version for chunk in await chunks(world, name)} == {2}


async def test_an_overlap_as_large_as_the_chunk_is_refused(world: World) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await domain(world.admin, chunking={"chunk_tokens": 64, "overlap_tokens": 64})


@pytest.mark.req("CE-F38")
async def test_a_domain_is_searched_and_deleted_without_others(world: World) -> None:
    for name in (HANDBOOK, "recipes"):
        await domain(world.admin, name)
        await put(world.planner, "soup.md", f"Soup of the {name} is served at noon.", domain=name)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")

    async def found(**where: Any) -> list[str]:
        answer = await world.planner.call("search.query", query="When is soup served?", low_confidence=True, **where)
        return sorted(result["text"] for result in answer["results"])

    both = ["Soup of the handbook is served at noon.", "Soup of the recipes is served at noon."]
    assert await found() == both
    assert await found(domain="recipes") == both[1:]
    await world.admin.call("knowledge.delete_domain", domain="recipes")
    assert await found() == both[:1]


async def test_deleting_a_domain_deletes_all_its_data(world: World) -> None:
    await domain(world.admin)
    await put(world.planner, "a.md", "one")
    await put(world.planner, "b.md", "two")
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await put(world.planner, "c.md", "three")
    gone = await world.admin.call("knowledge.delete_domain", domain=HANDBOOK)
    assert gone["documents"] == 3
    for table in ("domains", "documents", "document_contents", "chunks", "chunk_vectors"):
        assert not list(await world.rows(f"SELECT 1 FROM {table} WHERE tenant = $1", world.tenant)), table
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    made = await domain(world.admin)
    assert (made["documents"], made["chunks"]) == (0, 0)
    done = [entry["action"] for entry in await world.admin.audit()]
    assert [each for each in done if each.startswith("knowledge.") and each.endswith("_domain")] == [
        *("knowledge.create_domain", "knowledge.delete_domain", "knowledge.create_domain")
    ]


async def test_domains_are_isolated_by_tenant(world: World) -> None:
    await domain(world.admin)
    await put(world.admin, "a.md", "ours")
    assert await names(world.stranger) == []
    for operation in ("show_domain", "list_documents", "delete_domain"):
        with refused("DOMAIN_NOT_FOUND"):
            await world.stranger.call(f"knowledge.{operation}", domain=HANDBOOK)
    await domain(world.stranger)
    shown = await world.stranger.call("knowledge.show_domain", domain=HANDBOOK)
    assert (shown["documents"], shown["bytes"]) == (0, 0)


@pytest.mark.req("CE-T", part="all limits of what exists")
async def test_a_plan_limits_domains_and_bytes(world: World) -> None:
    await world.app.tenants.set_plan(world.tenant, "free")
    await domain(world.admin)
    with refused("QUOTA_EXCEEDED") as caught:
        await domain(world.admin, "second")
    assert caught.value.context == {"plan": "free", "limit_domains": 1, "used_domains": 1}
    assert await names(world.admin) == [HANDBOOK]
    await put(world.planner, "a.md", "12345")
    await world.sql("UPDATE domains SET bytes = $1 WHERE tenant = $2", 2**30 - 2, world.tenant)
    with refused("QUOTA_EXCEEDED") as full:
        await put(world.planner, "b.md", "12345")
    # The error does not reveal usage, which includes domains hidden from the caller.
    assert full.value.context == {"plan": "free", "limit_bytes": 2**30}
    assert str(2**30 + 3) not in full.value.message
    assert await outcome(document(world.planner, "b.md")) == "DOCUMENT_NOT_FOUND"
    # Existing documents can still be shrunk and deleted.
    await put(world.planner, "a.md", "123")
    await world.app.tenants.set_plan(world.tenant, "pro")
    assert (await world.admin.call("knowledge.list_domains"))["plan"] == "pro"
    await domain(world.admin, "second")
    await put(world.planner, "b.md", "12345")
    assert await world.app.tenants.plan(world.tenant) == AssignedPlan("pro")


@pytest.mark.req("CE-T", part="all limits of what exists")
async def test_the_default_plan_applies_to_tenants_without_one(world: World) -> None:
    assert await world.app.tenants.plan(world.tenant) is None
    assert (await world.admin.call("knowledge.list_domains"))["plan"] == "enterprise"
    other = await world.another_app(default_plan="free")
    assert (await world.admin.at(other).call("knowledge.list_domains"))["plan"] == "free"
    with refused("TENANT_NOT_FOUND"):
        await world.app.tenants.set_plan("nobody", "free")
    with refused("INVALID_SETTING"):
        await world.another_app(default_plan="golden")


@pytest.mark.req("CE-F42")
@pytest.mark.parametrize("narrowed", [{"clearance": 5}, {"agents": ["human:*"]}])
async def test_events_of_a_domain_follow_its_current_acl(world: World, narrowed: dict[str, Any]) -> None:
    async def knowledge_events(caller: Caller) -> list[tuple[str, str]]:
        events = (await caller.events())["events"]
        return [(event["type"], event["subject"]) for event in events if "deal" in event["subject"]]

    await domain(world.admin, "deal")
    await domain(world.admin, "deal-2")
    for name in ("deal", "deal-2"):
        await put(world.admin, "price.md", "42", domain=name)
    newcomer = await world.admin.create_agent("newcomer", agent_type="x", clearance=1)
    await newcomer.remember("deal", "mine")
    everything = await knowledge_events(newcomer)
    assert ("document.added", "deal/price.md") in everything
    await world.admin.call("knowledge.update_domain", domain="deal", **narrowed)
    others = [each for each in everything if each[1] not in {"deal", "deal/price.md"} or each[0] == "memory.written"]
    assert await knowledge_events(newcomer) == others
    assert ("document.added", "deal-2/price.md") in others
    assert ("document.added", "deal/price.md") in await knowledge_events(world.admin)
    widened = {"clearance": 1, "agents": ["*"]}
    await world.admin.call("knowledge.update_domain", domain="deal", **widened)
    assert set(everything) < set(await knowledge_events(newcomer))
