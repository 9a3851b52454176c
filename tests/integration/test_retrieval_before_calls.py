"""The user story of retrieval: memory, conversation and knowledge are assembled before each model call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.assemblies import add_documents, assemble, ingest, receipt, texts
from support.contexts import knowledge_entry, push
from support.processor_time import at_most
from support.teams import create_team

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("CE-U8")
TASK = "How do we get paid back for a train ride?"
FACT = "Employees claim reimbursement of rail tickets within thirty days."


def prompt(answer: Any) -> str:
    return "\n".join(texts(answer))


async def passages(caller: Caller, answer: Any) -> list[Any]:
    """Return the candidate passages of a prompt that are in it, in their order."""
    shown = await receipt(caller, answer)
    included = {ref for block in shown["blocks"] if block["kind"] == "retrieved" for ref in block["items"]}
    return [each for each in shown["candidates"] if each["ref"] in included and "score" in each]


async def test_a_pushed_fact_is_found_by_meaning_in_searches_and_prompts(world: World) -> None:
    await push(world.analysis, knowledge_entry("travel", FACT), knowledge_entry("food", "Soup at noon."), if_version=0)
    await world.index_sessions()
    found = await world.analysis.call("search.query", query=TASK)
    assert (found["results"][0]["text"], found["results"][0]["source"]) == (FACT, "memory")
    gathered = await world.analysis.call("search.get_context", query=TASK)
    assert FACT in gathered["context"]
    similar = await world.analysis.call("search.find_similar", text="Claiming train fares")
    assert similar["results"][0]["text"] == FACT
    assert FACT in prompt(await assemble(world.analysis, TASK))
    # Another agent's prompt has none of it.
    assert FACT not in prompt(await assemble(world.review, TASK))


async def test_memory_conversation_and_the_teams_knowledge_come_together(world: World) -> None:
    await create_team(world.admin, "travel", "analysis")
    await push(world.review, knowledge_entry("own", "Rail tickets of review."), if_version=0)
    await push(world.analysis, knowledge_entry("own", FACT), if_version=0)
    shared = knowledge_entry("habit", "The team books rail tickets on Mondays.", memory_type="team_preferences")
    await push(world.analysis, shared, owner="team:travel", if_version=0)
    await add_documents(world, "Rail tickets in first class need an approval.", "Soup is served on Mondays.")
    said = {"role": "assistant", "content": "The rail ticket to Bern was refunded in May."}
    await ingest(world.analysis, said, *({"content": f"Something else, {n}. " * 60} for n in range(20)))
    await world.index_sessions()
    found = prompt(await assemble(world.analysis, "What do we know about rail tickets?", token_budget=1_600))
    for text in (FACT, "on Mondays.", "first class", "refunded in May"):
        assert text in found
    assert "tickets of review" not in found


async def test_results_are_ranked_by_relevance_then_recency_and_bounded_by_a_threshold(world: World) -> None:
    await push(world.analysis, knowledge_entry("food", "Soup is served at noon."), if_version=0)
    for version, memory_type in enumerate(("learned_knowledge", "team_preferences"), 1):
        entry = knowledge_entry("launch", "The launch is on Monday.", memory_type=memory_type)
        await push(world.analysis, entry, if_version=version)
        world.clock.advance(days=20)
    await world.index_sessions()
    found = await world.analysis.call("search.query", query="When is the launch?", explain=True)
    results = found["results"]
    assert [result["memory_type"] for result in results] == ["team_preferences", "learned_knowledge"]
    assert results[0]["signals"]["recency"] > results[1]["signals"]["recency"]
    assert all(result["score"] >= found["min_score"] == 0.7 for result in results)
    answer = await assemble(world.analysis, "When is the launch?")
    scores = [each["score"] for each in await passages(world.analysis, answer)]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) >= 0.7
    assert "Soup" not in prompt(answer)
    assert answer["omitted"]["low_relevance"]


@pytest.mark.req("CE-F13")
async def test_the_prompt_stays_within_its_budget_however_much_memory_fits_the_task(world: World) -> None:
    entries = [knowledge_entry(f"k{number}", f"Rail ticket {number}: {FACT} " * 12) for number in range(60)]
    await push(world.analysis, *entries, if_version=0)
    await world.index_sessions()
    for budget in (300, 1_000, 3_000):
        answer = await assemble(world.analysis, TASK, token_budget=budget)
        assert answer["tokens"] <= budget
    assert sum(answer["omitted"].values()) >= 30
    shown = await receipt(world.analysis, answer)
    kept = min(each["score"] for each in await passages(world.analysis, answer))
    left_out = {each["ref"] for each in shown["omitted"] if each["reason"] in {"budget", "low_relevance"}}
    scores = [each["score"] for each in shown["candidates"] if each["ref"] in left_out and "score" in each]
    assert kept >= max(scores, default=0)


async def test_retrieval_and_assembly_take_less_than_half_a_second_on_average(world: World) -> None:
    entries = [knowledge_entry(f"k{number}", f"Fact {number} about service {number % 7}.") for number in range(100)]
    await push(world.analysis, *entries, if_version=0)
    await add_documents(world, *(f"Document {number} about service {number % 7}." for number in range(50)))
    for number in range(50):
        await world.analysis.say(f"Message {number} about service {number % 7}.")
    await world.index_sessions()
    await assemble(world.analysis, TASK)
    with at_most(20 * 0.5):
        for number in range(20):
            task = f"What is known about service {number % 7}, part {number}?"
            await assemble(world.analysis, task, token_budget=4_000)
