"""The context engine as specified: the relevant context for each model call, within its limit, metered."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from support.assemblies import TASK, add_documents, assemble, ingest, receipt, texts
from support.teams import create_team
from support.windows import create, published
from support.wire_forms import MODELS
from support.world import SESSION, World, outcome, refused
from weftline.models.language_models import wire_forms
from weftline.models.language_models.content import PROMPT_FORMS
from weftline.prompts.assembly import service
from weftline.state.layers.prefix import render_layers, sections_of

TOPICS = ("vacation", "travel", "passwords", "parking", "canteen", "pensions", "printers", "visitors", "training")


def section(topic: str) -> str:
    return f"## {topic.title()}\n\n" + f"The rule about {topic} is kept by the {topic} office. " * 30 + "\n\n"


HANDBOOK = "# Handbook\n\n" + "".join(map(section, TOPICS)) + "The code of the parking barrier is 7319.\n"


def prompt(answer: Any) -> str:
    return "\n".join(texts(answer))


async def passages(world: World, answer: Any) -> list[Any]:
    """Return the candidate passages of a prompt that are in it, best first."""
    shown = await receipt(world.analysis, answer)
    included = {ref for block in shown["blocks"] if block["kind"] == "retrieved" for ref in block["items"]}
    return [each for each in shown["candidates"] if each["ref"] in included and "score" in each]


@pytest.mark.both_databases
@pytest.mark.req("CE-A")
@pytest.mark.req("CE-U1", part="relevant sections only, with fewer tokens than the baseline")
async def test_only_the_relevant_sections_of_a_large_document_are_in_the_prompt(world: World) -> None:
    await add_documents(world, HANDBOOK)
    answer = await assemble(world.analysis, "Which rule is there about passwords?", token_budget=2_000)
    found = prompt(answer)
    assert "The rule about passwords is kept" in found
    assert sum(f"The rule about {topic} is kept" in found for topic in TOPICS) <= 3
    savings = answer["savings"]
    assert savings["engine_assembled_tokens"] == answer["tokens"] <= 2_000
    assert savings["savings_ratio_with_documents"] >= 0.4


@pytest.mark.req("CE-F11")
@pytest.mark.req("CE-U8", part="memory, conversation and knowledge by relevance and recency, above a threshold")
async def test_memory_conversation_and_knowledge_are_searched_before_a_call(world: World) -> None:
    await add_documents(world, "The launch of the falcon is planned for Friday.", "Soup is served on Mondays.")
    await world.analysis.remember("launch", "The falcon launch needs the approval of Dana.")
    old = {"role": "assistant", "content": "The falcon launch was moved once, because of the wind."}
    chatter = [{"role": "assistant", "content": f"Something else, part {number}. " * 60} for number in range(20)]
    await ingest(world.analysis, old, *chatter, {"content": "Go on."})
    await world.index_sessions()
    task = "What do we know about the launch of the falcon?"
    answer = await assemble(world.analysis, task, token_budget=1_600)
    found = prompt(answer)
    for text in ("planned for Friday", "approval of Dana", "because of the wind"):
        assert text in found
    assert answer["tokens"] <= 1_600
    scores = [each["score"] for each in await passages(world, answer)]
    assert scores == sorted(scores, reverse=True)
    assert not answer["widened"]
    assert "Soup" not in found
    assert answer["omitted"]["low_relevance"]


UNCLEAR = (
    "Where would one ask about the thing from before?",
    "Which rooms upstairs belong to the people that I met there yesterday?",
    "Who works on the upper levels of the building in the summer?",
    "Tell me which office would handle this letter from my bank.",
    "Is there a lift that goes to every level of the house?",
)


@pytest.mark.req("CE-F11")
@pytest.mark.req("CE-S", part="in doubt, more is included")
async def test_low_confidence_includes_more_passages(world: World) -> None:
    await add_documents(world, *(f"The {topic} office is on floor {floor}." for floor, topic in enumerate(TOPICS)))
    sure = await assemble(world.analysis, "On which floor is the pensions office?", fresh=True)
    assert not sure["widened"]
    asked = [await assemble(world.analysis, task, fresh=True) for task in UNCLEAR]
    unsure = next(answer for answer in asked if answer["widened"])
    included = await passages(world, unsure)
    assert all(each["doubtful"] for each in included)
    shown = await receipt(world.analysis, unsure)
    assert 0 < sum(each["tokens"] for each in included) <= shown["confidence"]["doubt_tokens"]


@pytest.mark.req("CE-F11")
async def test_of_equally_relevant_passages_the_newer_comes_first(world: World) -> None:
    for text in ("The launch is on Monday.", "Soup is served at noon.", "The launch is on Monday."):
        await world.planner.say(text)
        world.clock.advance(days=20)
    await world.index_sessions()
    answer = await assemble(world.analysis, "When is the launch?")
    scores = {each["ref"]: each["score"] for each in await passages(world, answer)}
    assert scores[f"message:{SESSION}/3"] > scores[f"message:{SESSION}/1"]


@pytest.mark.req("CE-F12")
async def test_every_pin_is_in_the_prompt_whatever_its_score(world: World) -> None:
    rules = [f"Hard constraint {number}: never call falcon{number}." for number in range(30)]
    await add_documents(world, *rules, pinned=True)
    await world.planner.say("Decision: we use the tower.", category="decision")
    await ingest(world.analysis, {"content": "Commitment: no weekends.", "pinned": True}, {"content": "Hello."})
    await world.index_sessions()
    answer = await assemble(world.analysis, "What is for lunch?")
    found = prompt(answer)
    for text in (*rules, "Decision: we use the tower.", "Commitment: no weekends."):
        assert text in found


@pytest.mark.req("CE-E", part="over the limit")
@pytest.mark.req("CE-F13")
async def test_beyond_the_limit_of_the_model_the_priority_decides_what_stays(world: World) -> None:
    await create(world.analysis, model_max_tokens=2_000, reserved_tokens=200)
    fact = {"role": "assistant", "content": "The barrier of the parking lot has the code 7319."}
    chatter = [{"role": "assistant", "content": f"Chatter number {number}. " * 40} for number in range(60)]
    await ingest(world.analysis, fact, *chatter, {"content": "The newest question."})
    await world.index_sessions()
    answer = await assemble(world.analysis, "What is the code of the parking barrier?")
    assert answer["tokens"] <= answer["limit"] == 1_800
    found = texts(answer)
    # Layers, task, relevant passages and the newest messages stay; the oldest go.
    assert "weftline:layer" in found[0]
    assert found[-1] == "What is the code of the parking barrier?"
    assert "code 7319" in prompt(answer)
    assert "The newest question." in found
    assert "Chatter number 59" in prompt(answer)
    assert "Chatter number 20." not in prompt(answer)
    assert answer["omitted"]["budget"] >= 40
    with refused("CONTEXT_OVER_BUDGET"):
        await assemble(world.analysis, token_budget=50)


@pytest.mark.req("CE-F13")
async def test_where_not_all_fit_the_most_relevant_passages_are_taken(world: World) -> None:
    near = [f"The barrier of the parking lot, report {number}. " + f"Paint {number}. " * 60 for number in range(8)]
    await add_documents(world, *near, "The code of the parking barrier is 7319. " + "It is kept in the office. " * 20)
    answer = await assemble(world.analysis, "What is the code of the parking barrier?", token_budget=700)
    assert "7319" in prompt(answer)
    assert answer["omitted"]["budget"] > 0


@pytest.mark.req("CE-E", part="a search without results")
async def test_without_evidence_the_newest_turns_have_the_room(world: World) -> None:
    await world.planner.say("A message of another agent.")
    await add_documents(world, *(f"The {topic} office is on floor {floor}." for floor, topic in enumerate(TOPICS)))
    turns = [
        {"event_id": f"e{number}", "content": f"Turn {number} of our talk about the harvest festival."}
        for number in range(20)
    ]
    await world.analysis.call("context.ingest", session_id=SESSION, events=turns)
    await world.index_sessions()
    answer = await assemble(world.analysis, "xylophone quartz", min_score=1.0, token_budget=800)
    assert answer["fallback"] == "recency"
    assert "retrieved" not in {each["kind"] for each in answer["blocks"]}
    assert "Turn 19" in prompt(answer)
    events = [each["type"] for each in (await world.admin.events())["events"]]
    assert events.count("search.low_relevance") == 1


async def with_four_layers(world: World) -> list[str]:
    await world.admin.call("layer.define", layer="tenant", text="Answer in English.")
    await create_team(world.admin, "research", "analysis")
    await world.admin.call("layer.define", layer="team:research", text="Cite sources.")
    await world.planner.call("agent.define", agent_id="analysis", role="Analyses")
    return ['level="1"', "Answer in English.", "Cite sources.", "Role: Analyses"]


@pytest.mark.req("CE-F28")
@pytest.mark.parametrize("form", PROMPT_FORMS)
async def test_the_four_layers_are_the_system_prefix_of_every_call(world: World, form: Any) -> None:
    layers = await with_four_layers(world)
    await ingest(world.analysis, {"content": "What happened?"})
    for task in ("First.", "Second."):
        body = (await assemble(world.analysis, task, form=form, model=MODELS.get(form)))["body"]
        first = wire_forms.parse_body(form, body).messages[0]
        assert first.role == "system"
        places = [first.content.index(text) for text in layers]
        assert places == sorted(places)


@pytest.mark.req("CE-F53")
async def test_what_is_stable_comes_first_and_ends_at_a_cache_point(world: World) -> None:
    await with_four_layers(world)
    await add_documents(world, "Pinned: never call before nine. " * 120, pinned=True)
    await add_documents(world, "The incident began at noon.", domain="news")
    await world.planner.write("status", "the database is down")
    await ingest(world.analysis, {"role": "assistant", "content": "I am looking."})
    answer = await assemble(world.analysis, "When did the incident begin?", form="anthropic", model="claude-sonnet-5")
    kinds = [block["kind"] for block in answer["blocks"]]
    assert kinds == ["layer", "pins", "conversation", "retrieved", "board", "task"]
    shown = await receipt(world.analysis, answer)
    points = [block["kind"] for block in shown["blocks"] if block.get("cache_point")]
    assert points == ["layer", "pins", "task"]
    assert str(answer["body"]).count("cache_control") <= 4
    assert "cache_control" in str(answer["body"])


@pytest.mark.req("CE-I")
async def test_a_prompt_whose_layers_were_altered_is_not_returned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_four_layers(world)
    await ingest(world.analysis, {"content": "What happened?"})
    planned = service.make_plan

    def without_layers(*given: Any) -> Any:
        plan = planned(*given)
        return type(plan)(
            **{**{name: getattr(plan, name) for name in plan.__struct_fields__}, "blocks": plan.blocks[1:]}
        )

    monkeypatch.setattr(service, "make_plan", without_layers)
    with refused("LAYER_VIOLATION"):
        await assemble(world.analysis)
    assert (await world.analysis.call("receipt.list"))["receipts"] == []


@pytest.mark.req("CE-F27")
@pytest.mark.parametrize("level", [1, 2, 3, 4])
async def test_a_prompt_without_one_of_its_four_layers_is_not_returned(
    world: World, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    await with_four_layers(world)
    planned = service.make_plan

    def without_layer(*given: Any) -> Any:
        plan = planned(*given)
        prefix, *rest = plan.blocks
        layers = [layer for layer in sections_of(prefix.messages[0].content) if layer.level != level]
        assert len(layers) == 3
        message = structs.replace(prefix.messages[0], content=render_layers(layers))
        return structs.replace(plan, blocks=(structs.replace(prefix, messages=(message,)), *rest))

    monkeypatch.setattr(service, "make_plan", without_layer)
    with refused("LAYER_VIOLATION") as error:
        await assemble(world.analysis)
    assert error.value.context["level"] == level


@pytest.mark.req("CE-P")
async def test_an_agent_is_told_of_a_critical_update_at_its_next_call(world: World) -> None:
    await with_four_layers(world)
    assert "critical_update" not in await assemble(world.analysis)
    await world.admin.call("layer.define", layer="tenant", text="Answer in French.", critical=True)
    answer = await assemble(world.analysis)
    assert [each["context_id"] for each in answer["critical_update"]["changes"]] == ["layer:tenant"]
    assert "Answer in English." in prompt(answer)
    await world.analysis.call("context.pull", session_id=SESSION)
    after = await assemble(world.analysis)
    assert "critical_update" not in after
    assert "Answer in French." in prompt(after)


@pytest.mark.req("CE-F54", "CE-M")
@pytest.mark.req("CE-A")
async def test_every_model_call_is_metered_with_its_savings(world: World) -> None:
    await add_documents(world, HANDBOOK)
    usage = {"input_tokens": 300, "cache_read_input_tokens": 120, "cache_creation_input_tokens": 0, "output_tokens": 40}
    saved = {}
    for caller, agent in ((world.analysis, "analysis"), (world.review, "review-2")):
        answer = await assemble(caller, "Which rule is there about passwords?", model="claude-sonnet-5")
        where = {"session_id": SESSION, "receipt_id": answer["receipt_id"], "usage": usage}
        metrics = await caller.call("context.emit_metrics", **where, latency_ms=850.5, quality_score=0.9)
        assert metrics["naive_baseline_tokens"] == answer["savings"]["naive_baseline_tokens"]
        assert metrics["engine_assembled_tokens"] == answer["tokens"]
        assert metrics["context_engine_savings"] == metrics["naive_baseline_tokens"] - answer["tokens"]
        assert (metrics["latency_ms"], metrics["quality_score"]) == (850.5, 0.9)
        (event,) = await published(caller, "model_call.metered")
        assert event == {"agent_id": agent, **{k: v for k, v in metrics.items() if k != "success"}}
        saved[agent] = metrics["context_engine_savings"]
    for by, groups in (("agent", {"analysis", "review-2"}), ("session", {SESSION}), ("tenant", {""})):
        rows = (await world.admin.call("receipt.savings", by=by))["rows"]
        assert {row["group"] for row in rows} == groups
        total = sum(row["naive_baseline_tokens"] - row["engine_assembled_tokens"] for row in rows)
        assert total == sum(saved.values())
        assert sum(row["input_tokens"] for row in rows) == 2 * 420
    assert await outcome(world.stranger.call("receipt.savings", session_id=SESSION)) == "SESSION_NOT_FOUND"


@pytest.mark.req("CE-M")
async def test_calls_of_the_engine_are_counted_for_their_tenant(world: World) -> None:
    await assemble(world.analysis)
    report = await world.admin.call("performance.read")
    assert "context.assemble" in str(report)
    assert "context.assemble" not in str(await world.stranger.call("performance.read"))


@pytest.mark.req("MW-07")
async def test_retrieval_for_another_agent_searches_the_window_of_that_agent(world: World) -> None:
    chatter = [{"role": "assistant", "content": f"Something else, part {number}. " * 60} for number in range(20)]
    for caller, secret in ((world.analysis, "of the analysis"), (world.planner, "of the planner")):
        await ingest(caller, {"role": "assistant", "content": f"The falcon code is {secret}."}, *chatter)
    await world.index_sessions()
    answer = await assemble(world.planner, "What is the falcon code?", agent_id="analysis", token_budget=1_500)
    assert "The falcon code is of the analysis." in prompt(answer)
    assert "of the planner" not in prompt(answer)
    assert TASK not in prompt(answer)
