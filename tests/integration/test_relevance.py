"""A prompt holds what the task needs and nothing else: the reproductions of the audit, and properties."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.assemblies import add_documents, assemble, ingest, receipt, texts

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("CE-L6", part="chats and continuations get no passages, whatever the budget")
_SCENES = Path(__file__).parents[2] / "evals/data/relevance_scenes.jsonl"
POEM = (
    {"role": "user", "content": "My grandmother turns ninety on Sunday. Help me with a short birthday poem for her."},
    {"role": "assistant", "content": "Gladly! What does she love, and should it be funny or solemn?"},
    {"role": "user", "content": "Roses, her old piano, and teasing my uncle. Funny, please, with rhymes."},
)
# Written without a view of the product: what people type to go on.
GO_ON = ("Continue.", "Write the poem now.", "go on", "yes", "fix it", "mach weiter", "ok do it", "👍", "again pls")


def documents() -> list[str]:
    """Return the documents of five organisations, about 600 tokens each."""
    scenes = [json.loads(line) for line in _SCENES.read_text("utf-8").splitlines()[:5]]
    return [each["text"] for scene in scenes for each in scene["documents"]]


def prompt_text(answer: dict[str, Any]) -> str:
    return "\n".join(texts(answer))


def retrieved_tokens(answer: dict[str, Any]) -> int:
    return sum(each["tokens"] for each in answer["blocks"] if each["kind"] == "retrieved")


@pytest.mark.req("CE-F11", part="what adds nothing is out")
@pytest.mark.req("CE-U1", part="relevant sections only, with fewer tokens than the baseline")
@pytest.mark.req("CE-U8", part="memory, conversation and knowledge by relevance and recency, above a threshold")
@pytest.mark.parametrize("budget", [4_000, 32_000, None])
async def test_a_talk_about_a_poem_gets_no_product_documents_whatever_the_budget(
    world: World, budget: int | None
) -> None:
    await add_documents(world, *documents())
    await ingest(world.analysis, *POEM)
    await world.index_sessions()
    for task in GO_ON:
        answer = await assemble(world.analysis, task, token_budget=budget, fresh=True)
        assert retrieved_tokens(answer) == 0, task
        assert answer["savings"]["savings_ratio"] <= 0
        assert "birthday poem" in prompt_text(answer)


@pytest.mark.req("CE-F13", part="the conversation is not displaced")
async def test_continue_keeps_the_conversation_and_not_an_unrelated_document(world: World) -> None:
    await add_documents(world, documents()[0] * 4)
    talk = [
        {
            "role": ("user", "assistant")[number % 2],
            "content": f"Login bug, step {number}: the session cookie is dropped after the redirect of the sign-in "
            f"page, so the user named tester{number} sees the login form again; attempt {number} shows status 302, "
            "and the cookie header is missing in the second request although SameSite is Lax and the path is right.",
        }
        for number in range(30)
    ]
    await ingest(world.analysis, *talk)
    await world.index_sessions()
    answer = await assemble(world.analysis, "Continue.", token_budget=3_000, fresh=True)
    shown = prompt_text(answer)
    assert retrieved_tokens(answer) == 0
    assert sum(f"step {number}:" in shown for number in range(30)) >= 20
    assert "step 29:" in shown


@pytest.mark.req("CE-F11", part="evidence is found whatever the conversation is about")
async def test_a_question_about_the_documents_gets_the_passage_that_answers_it(world: World) -> None:
    scene = json.loads(_SCENES.read_text("utf-8").splitlines()[1])
    await add_documents(world, *(each["text"] for each in scene["documents"]))
    await ingest(world.analysis, *POEM)
    await world.index_sessions()
    found = 0
    for each in scene["evidence_tasks"]:
        answer = await assemble(world.analysis, each["task"], fresh=True)
        found += " ".join(each["quote"].split()) in " ".join(prompt_text(answer).split())
    assert found >= len(scene["evidence_tasks"]) - 1


async def test_a_higher_min_score_never_adds_a_passage(world: World) -> None:
    await add_documents(world, *documents())
    await ingest(world.analysis, *POEM)
    await world.index_sessions()
    tasks = ["Write the poem now.", "Whom do I call when a delivery is damaged?", "How long is the warranty?"]
    for task in tasks:
        before: set[str] | None = None
        for min_score in (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0):
            answer = await assemble(world.analysis, task, min_score=min_score, fresh=True)
            shown = await receipt(world.analysis, answer)
            refs = {ref for block in shown["blocks"] if block["kind"] == "retrieved" for ref in block["items"]}
            assert before is None or refs <= before, (task, min_score)
            before = refs


@pytest.mark.req("CE-F11", part="in doubt a prompt gets more, marked as doubtful")
async def test_doubtful_passages_are_marked_and_few_whatever_the_budget(world: World) -> None:
    await add_documents(world, *documents())
    answer = await assemble(world.analysis, "Who may look at these things late, and for how long?", fresh=True)
    shown = await receipt(world.analysis, answer)
    included = {ref for block in shown["blocks"] if block["kind"] == "retrieved" for ref in block["items"]}
    doubtful = [each for each in shown["candidates"] if each.get("doubtful") and each["ref"] in included]
    assert sum(each["tokens"] for each in doubtful) <= shown["confidence"]["doubt_tokens"] == 960
    assert answer["widened"] == bool(doubtful)


async def test_the_message_that_asks_is_not_its_own_answer(world: World) -> None:
    """A question that is recorded before it is asked must not outrank what answers it."""
    await add_documents(world, *documents())
    task = "Which code opens the parking barrier of the old depot?"
    filler = [{"content": f"Note {number} on the weather of the week: it was windy and dry."} for number in range(60)]
    fact = {"content": "The barrier at the old depot opens with 7319, the guard told me."}
    await ingest(world.analysis, fact, *filler)
    await world.index_sessions()
    alone = await assemble(world.analysis, task, token_budget=900, fresh=True)
    await ingest(world.analysis, {"event_id": "asked", "role": "user", "content": task})
    await world.index_sessions()
    asked = await assemble(world.analysis, task, token_budget=900, fresh=True)
    assert "opens with 7319" in prompt_text(alone)
    assert "opens with 7319" in prompt_text(asked)
