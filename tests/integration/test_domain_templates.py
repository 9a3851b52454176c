"""Domains created from templates: metadata, pinned documents, retention, and the evaluation of example questions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from support.jobs import pause_jobs
from support.knowledge import HANDBOOK, document, domain, embed_quickly, put
from support.world import refused
from weftline.knowledge.templates import model

if TYPE_CHECKING:
    from support.knowledge import QuickEmbedder
    from support.world import Caller, World

pytestmark = pytest.mark.req("CE-K")

TEMPLATE = {
    "name": "team_rules",
    "version": 3,
    "description": "How we work",
    "chunking": {"chunk_tokens": 128, "overlap_tokens": 16},
    "metadata": [
        {"name": "status", "required": True, "values": ["draft", "final"]},
        {"name": "reviewed_on", "type": "date"},
        {"name": "pages", "type": "integer"},
    ],
    "pinned": ["glossary*"],
    "retention_days": 30,
    "questions": [
        {"question": "How many days of vacation do I have?", "contains": ["thirty days", "Vacation"]},
        {"question": "Who approves flights?", "contains_any": ["director", "board"]},
        {"question": "What does the abbreviation PTO mean?", "contains": ["paid time off"]},
    ],
}
FINAL = {"status": "final"}
LEAVE = "# Leave\n\nEveryone has thirty days of vacation a year."


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> QuickEmbedder:
    pause_jobs(monkeypatch, "knowledge.evaluate", "knowledge.prune")
    return embed_quickly(monkeypatch)


async def shown(caller: Caller) -> Any:
    return await caller.call("knowledge.show_domain", domain=HANDBOOK)


async def ingest(world: World) -> None:
    await world.app.scheduler.drain("knowledge.ingest")
    await world.app.scheduler.drain("knowledge.evaluate")


async def test_every_included_template_makes_a_domain(world: World) -> None:
    listed = (await world.planner.call("knowledge.list_templates"))["templates"]
    assert [each["name"] for each in listed] == [
        *("clinical_notes", "codebase", "legal_contracts", "research_papers", "runbooks", "support_handbook")
    ]
    for name in (each["name"] for each in listed):
        template = await world.planner.call("knowledge.show_template", name=name)
        made = await domain(world.admin, name, template=name)
        assert (made["template"], made["template_version"]) == (name, template["version"])
        assert (made["chunking"], made["description"]) == (template["chunking"], template["description"])
        assert (await world.admin.call("knowledge.show_domain", domain=name))["template_copy"] == template
        assert template["questions"]


async def test_given_fields_prevail_over_the_template(world: World) -> None:
    made = await domain(world.admin, template=TEMPLATE, description="Rules", chunking={"chunk_tokens": 96})
    assert (made["description"], made["chunking"]) == ("Rules", {"chunk_tokens": 96, "overlap_tokens": 64})


async def test_unknown_and_contradictory_templates_are_refused(world: World) -> None:
    with refused("TEMPLATE_NOT_FOUND") as caught:
        await domain(world.admin, template="suport_handbook")
    assert caught.value.context["available_alternatives"][0] == "support_handbook"
    wrong = [
        ({"metadata": [{"name": "a"}, {"name": "a"}]}, "defined twice"),
        ({"metadata": [{"name": "a", "type": "integer", "values": ["1"]}]}, "type must be string"),
        ({"questions": [{"question": "Why?"}]}, "evidence of question 1"),
        ({"chunking": {"chunk_tokens": 64, "overlap_tokens": 64}}, "below chunk_tokens"),
        ({"retention": 3}, "retention"),
    ]
    for fields, message in wrong:
        with refused("INVALID_INPUT_FORMAT") as caught:
            await domain(world.admin, template={"name": "own", **fields})
        assert message in caught.value.message
    assert (await world.admin.call("knowledge.list_domains"))["domains"] == []


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "status is missing, it must be one of draft, final"),
        ({"status": "old"}, "status must be one of draft, final"),
        ({"status": "final", "pages": True}, "pages must be an integer"),
        ({"status": "final", "reviewed_on": "spring"}, "reviewed_on must be a date such as 2026-01-31"),
    ],
)
async def test_documents_must_have_the_metadata(world: World, metadata: dict[str, Any], message: str) -> None:
    await domain(world.admin, template=TEMPLATE)
    with refused("METADATA_MISMATCH") as caught:
        await put(world.planner, "a.md", LEAVE, metadata=metadata)
    assert caught.value.message == f"metadata: {message}."
    assert caught.value.context["template"] == "team_rules"
    assert (await shown(world.admin))["documents"] == 0


async def test_searches_filter_by_the_metadata(world: World) -> None:
    await domain(world.admin, template=TEMPLATE)
    await put(world.planner, "a.md", LEAVE, metadata=FINAL)
    await put(world.planner, "b.md", LEAVE + " So far.", metadata={"status": "draft", "pages": 2, "other": 1})
    await ingest(world)
    found = await world.planner.call("search.query", query="vacation", domains=[HANDBOOK], metadata={"status": "draft"})
    assert [each["document_id"] for each in found["results"]] == ["b.md"]


async def test_documents_of_the_rule_are_pinned_by_who_may_pin(world: World) -> None:
    await domain(world.admin, template=TEMPLATE)
    with refused("PERMISSION_DENIED"):
        await put(world.review, "glossary.md", "PTO is paid time off.", metadata=FINAL)
    await put(world.admin, "glossary.md", "PTO is paid time off.", metadata=FINAL)
    await put(world.review, "leave.md", LEAVE, metadata=FINAL)
    assert (await document(world.admin, "glossary.md"))["pinned"]
    assert not (await document(world.admin, "leave.md"))["pinned"]


async def test_questions_are_evaluated_once_documents_are_indexed(world: World) -> None:
    await domain(world.admin, template=TEMPLATE)
    assert "evaluation" not in await shown(world.admin)
    await put(world.admin, "leave.md", LEAVE, metadata=FINAL)
    await put(world.admin, "glossary.md", "PTO is paid time off.", metadata=FINAL)
    await world.app.scheduler.drain("knowledge.evaluate")
    assert "evaluation" not in await shown(world.admin)  # documents wait for indexing
    await ingest(world)
    evaluation = (await shown(world.planner))["evaluation"]
    vacation, flights, abbreviation = evaluation["questions"]
    assert (evaluation["found"], evaluation["documents"], evaluation["version"]) == (2, 2, 3)
    assert (vacation["rank"], vacation["document_id"]) == (1, "leave.md")
    assert (flights["found"], flights["rank"], flights["document_id"]) == (False, None, None)
    assert (abbreviation["rank"], abbreviation["document_id"]) == (0, "glossary.md")
    assert all(0 <= each["confidence"] <= 1 for each in evaluation["questions"])
    await put(world.admin, "travel.md", "A director approves flights.", metadata=FINAL)
    await ingest(world)
    assert (await shown(world.planner))["evaluation"]["found"] == 3
    await world.admin.call("knowledge.delete_document", domain=HANDBOOK, document_id="leave.md")
    await ingest(world)
    assert (await shown(world.planner))["evaluation"]["found"] == 2


async def test_readers_evaluate_at_any_time(world: World) -> None:
    await domain(world.admin, template=TEMPLATE, agents=["orchestrator"])
    await put(world.admin, "leave.md", LEAVE, metadata=FINAL)
    await ingest(world)
    evaluated = await world.planner.call("knowledge.evaluate_domain", domain=HANDBOOK)
    stored = (await shown(world.planner))["evaluation"]
    assert evaluated["domain"] == HANDBOOK
    assert evaluated["questions"] == stored["questions"]
    with refused("DOMAIN_NOT_FOUND"):
        await world.review.call("knowledge.evaluate_domain", domain=HANDBOOK)
    await domain(world.admin, "plain")
    with refused("DOMAIN_WITHOUT_TEMPLATE"):
        await world.planner.call("knowledge.evaluate_domain", domain="plain")
    events = (await world.admin.events())["events"]
    assert not [event for event in events if event["type"] == "search.low_relevance"]


async def test_documents_past_retention_are_deleted(world: World) -> None:
    await domain(world.admin, template=TEMPLATE)
    await domain(world.admin, "plain")
    now = world.clock.now()
    await put(world.admin, "old.md", LEAVE, metadata=FINAL, timestamp=(now - timedelta(days=29)).isoformat())
    await put(world.admin, "new.md", LEAVE, metadata=FINAL)
    long_ago = datetime(2001, 1, 1, tzinfo=UTC).isoformat()
    await put(world.admin, "ancient.md", LEAVE, domain="plain", timestamp=long_ago)
    with refused("INVALID_INPUT_FORMAT") as caught:
        await put(world.admin, "ancient.md", LEAVE, metadata=FINAL, timestamp=long_ago)
    assert "30 days" in caught.value.message
    await world.app.scheduler.drain("knowledge.prune")
    assert (await shown(world.admin))["documents"] == 2
    world.clock.advance(days=2)
    await world.app.scheduler.drain("knowledge.prune")
    left = await world.admin.call("knowledge.list_documents", domain=HANDBOOK)
    assert [each["document_id"] for each in left["documents"]] == ["new.md"]
    assert (await document(world.admin, "ancient.md", "plain"))["document_id"] == "ancient.md"
    removed = [each for each in (await world.admin.events())["events"] if each["type"] == "document.removed"]
    assert [each["subject"] for each in removed] == [f"{HANDBOOK}/old.md"]


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"metadata": [{"name": f"field{number}"} for number in range(2_000)]}, "INVALID_INPUT_FORMAT"),
        ({"questions": [{"question": "Why?", "contains": ["so"]}] * 10_000}, "INVALID_INPUT_FORMAT"),
        ({"pinned": ["*a" * 200]}, "INVALID_INPUT_FORMAT"),
        ({"pinned": ["*"] * 21}, "INVALID_INPUT_FORMAT"),
        (
            {"metadata": [{"name": f"f{n}", "values": [f"{v:0200}" for v in range(20)]} for n in range(20)]},
            "CONTENT_TOO_LARGE",
        ),
        ({"questions": [{"question": "Why? " * 190, "contains": ["x" * 200] * 20}] * 20}, "CONTENT_TOO_LARGE"),
    ],
)
async def test_templates_without_bounds_are_refused(world: World, parts: dict[str, Any], code: str) -> None:
    with refused(code):
        await domain(world.admin, template={"name": "huge", **parts})
    assert (await world.admin.call("knowledge.list_domains"))["domains"] == []


async def test_patterns_that_match_almost_everything_are_matched_at_once(world: World) -> None:
    """A matcher that tries every way to fill the asterisks would not end."""
    await domain(world.admin, template={"name": "own", "pinned": ["*a" * 90 + "b", "[!a]*" * 40, "?*" * 99 + "?b"]})
    await put(world.admin, "a" * 200, "Nothing is pinned.")
    assert not (await document(world.admin, "a" * 200))["pinned"]


async def test_refusals_of_metadata_stay_short(world: World) -> None:
    fields = [
        {"name": f"f{number}", "required": True, "values": [f"value {value}" for value in range(40)]}
        for number in range(40)
    ]
    await domain(world.admin, template={"name": "own", "metadata": fields})
    with refused("METADATA_MISMATCH") as caught:
        await put(world.planner, "a.md", LEAVE)
    assert "value 9, 30 more; f1 is missing" in caught.value.message
    assert caught.value.message.endswith("; 30 more.")
    with refused("INVALID_INPUT_FORMAT"):
        await put(world.planner, "a.md", LEAVE, metadata={f"m{number}": "x" * 20 for number in range(5_000)})


async def test_a_template_of_another_tenant_does_not_exist(world: World) -> None:
    await domain(world.admin, template=TEMPLATE)
    await put(world.admin, "leave.md", LEAVE, metadata=FINAL)
    await ingest(world)
    stranger = world.stranger
    for operation in ("knowledge.show_domain", "knowledge.evaluate_domain"):
        with refused("DOMAIN_NOT_FOUND"):
            await stranger.call(operation, domain=HANDBOOK)
    with refused("TEMPLATE_NOT_FOUND") as caught:
        await domain(stranger, template="team_rules")
    assert "team_rules" not in str(caught.value.context["available_alternatives"])
    with refused("TEMPLATE_NOT_FOUND"):
        await stranger.call("knowledge.show_template", name="team_rules")
    # A domain of the same name has its own template, documents and evaluation.
    await domain(stranger, template={**TEMPLATE, "metadata": [], "questions": TEMPLATE["questions"][:1]})
    await put(stranger, "other.md", "Nothing about it.")
    await ingest(world)
    (question,) = (await shown(stranger))["evaluation"]["questions"]
    assert (question["found"], question["document_id"]) == (False, None)
    assert (await shown(world.admin))["evaluation"]["found"] == 1


async def test_a_domain_keeps_its_copy_when_the_template_changes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await domain(world.admin, template="runbooks")
    before = await shown(world.admin)
    changed = structs.replace(model.find_template("runbooks"), version=2, metadata=(), questions=())
    monkeypatch.setattr(model, "included_templates", lambda: {"runbooks": changed})
    assert (await domain(world.admin, "later", template="runbooks"))["template_version"] == 2
    assert await shown(world.admin) == before
    assert before["template_version"] == 1
    with refused("METADATA_MISMATCH"):
        await put(world.admin, "a.md", "text")


async def quality_alerts(caller: Caller) -> list[tuple[str, str]]:
    alerts = (await caller.call("alerts.list", state="all"))["alerts"]
    return [(each["state"], each["message"]) for each in alerts if each["condition"] == "quality.dropped"]


@pytest.mark.both_databases
@pytest.mark.req("CE-L5")
async def test_fewer_answers_to_ones_own_questions_are_an_alert_until_they_are_found_again(world: World) -> None:
    await domain(world.admin, template=TEMPLATE)
    await put(world.admin, "leave.md", LEAVE, metadata=FINAL)
    await put(world.admin, "glossary.md", "PTO is paid time off.", metadata=FINAL)
    await ingest(world)
    assert (await world.planner.call("knowledge.evaluate_domain", domain=HANDBOOK))["score"] == 0.6667
    assert await quality_alerts(world.admin) == []
    for document_id in ("leave.md", "glossary.md"):
        await world.admin.call("knowledge.delete_document", domain=HANDBOOK, document_id=document_id)
        await put(world.admin, f"note-{document_id}", "The kettle is blue.", metadata=FINAL)
        await ingest(world)
    ((state, text),) = await quality_alerts(world.admin)
    assert (state, text) == ("open", f"33% of the questions of the domain {HANDBOOK} find their evidence, 67% before.")
    await put(world.admin, "leave.md", LEAVE, metadata=FINAL)
    await ingest(world)
    assert [state for state, _ in await quality_alerts(world.admin)] == ["open"]
    await put(world.admin, "travel.md", "A director approves flights.", metadata=FINAL)
    await ingest(world)
    assert [state for state, _ in await quality_alerts(world.admin)] == ["resolved"]


@pytest.mark.req("CE-L5")
async def test_an_alert_does_not_name_a_domain_that_not_every_admin_may_see(world: World) -> None:
    await domain(world.admin, template=TEMPLATE, clearance=4)
    await put(world.admin, "leave.md", LEAVE, metadata=FINAL)
    await ingest(world)
    await world.admin.call("knowledge.delete_document", domain=HANDBOOK, document_id="leave.md")
    await ingest(world)
    ((_, text),) = await quality_alerts(world.admin)
    assert HANDBOOK not in text
