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
_DATA = Path(__file__).parents[2] / "evals/data"
_SCENES = _DATA / "relevance_scenes.jsonl"
POEM = (
    {"role": "user", "content": "My grandmother turns ninety on Sunday. Help me with a short birthday poem for her."},
    {"role": "assistant", "content": "Gladly! What does she love, and should it be funny or solemn?"},
    {"role": "user", "content": "Roses, her old piano, and teasing my uncle. Funny, please, with rhymes."},
)
LOGIN = [
    {
        "role": ("user", "assistant")[number % 2],
        "content": f"Login bug, step {number}: the session cookie is dropped after the redirect of the sign-in "
        f"page, so the user named tester{number} sees the login form again; attempt {number} shows status 302, "
        "and the cookie header is missing in the second request although SameSite is Lax and the path is right.",
    }
    for number in range(30)
]
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
    await ingest(world.analysis, *LOGIN)
    await world.index_sessions()
    answer = await assemble(world.analysis, "Continue.", token_budget=3_000, fresh=True)
    shown = prompt_text(answer)
    assert retrieved_tokens(answer) == 0
    assert sum(f"step {number}:" in shown for number in range(30)) >= 20
    assert "step 29:" in shown


@pytest.mark.req("CE-F13", part="turns stay turns")
async def test_what_has_room_as_a_turn_is_not_quoted(world: World) -> None:
    await ingest(world.analysis, *LOGIN)
    task = "Write the fix for the login bug now."
    before = await assemble(world.analysis, task, token_budget=3_000, fresh=True)
    await world.index_sessions()
    indexed = await assemble(world.analysis, task, token_budget=3_000, fresh=True)
    await add_documents(world, *documents())
    beside_documents = await assemble(world.analysis, task, token_budget=3_000, fresh=True)
    turns = [_turns(each) for each in (before, indexed, beside_documents)]
    assert min(turns) >= 20, turns
    # The room is used in each case: which older turns are quoted besides may differ.
    assert min(each["tokens"] for each in (before, indexed, beside_documents)) > 2_850


def _turns(answer: dict[str, Any]) -> int:
    """Return the number of turns that are in the conversation of a prompt, not quoted."""
    return sum(text.startswith("Login bug, step") for text in texts(answer))


def scene_of(file: str, task: str) -> dict[str, Any]:
    """Return the scene with a task."""
    scenes = map(json.loads, (_DATA / file).read_text("utf-8").splitlines())
    return next(scene for scene in scenes if task in str(scene))


async def open_scene(world: World, scene: dict[str, Any]) -> None:
    await add_documents(world, *(each["text"] for each in scene["documents"]))
    await ingest(world.analysis, *scene["conversation"])
    await world.index_sessions()


@pytest.mark.req("CE-L6", part="documents about the subject of a conversation add nothing to what it says itself")
@pytest.mark.parametrize(
    "task",
    [
        "Now put the thanks and the opening together into one paragraph about the concert.",
        "And what does -X importtime print in its columns?",
        "Can you make the lettuce poem suitable for the children of the allotment?",
    ],
)
async def test_a_task_about_what_was_said_gets_nothing_of_a_document_on_its_subject(world: World, task: str) -> None:
    await open_scene(world, scene_of("relevance_subjects.jsonl", task))
    assert retrieved_tokens(await assemble(world.analysis, task, fresh=True)) == 0


@pytest.mark.req("CE-L6", part="documents about the subject of a conversation answer further questions")
@pytest.mark.parametrize(
    "first",
    ["By when must the fall be reported in Datix?", "Answer my question about the harpist from the season plan."],
)
async def test_a_further_question_on_a_subject_gets_the_passage_that_answers_it(world: World, first: str) -> None:
    scene = scene_of("relevance_subjects.jsonl", first)
    await open_scene(world, scene)
    for each in scene["evidence_tasks"]:
        answer = await assemble(world.analysis, each["task"], fresh=True)
        assert " ".join(each["quote"].split()) in " ".join(prompt_text(answer).split()), each["task"]


@pytest.mark.req("CE-L6", part="a task without content is read with the turns before it, and gets no doubtful passages")
async def test_a_task_that_goes_on_gets_evidence_and_nothing_in_doubt(world: World) -> None:
    await open_scene(world, scene_of("relevance_scenes.jsonl", "aye"))
    for task in ("aye", "Mm, I don't think so. Have another think?", "Once more, please."):
        assert retrieved_tokens(await assemble(world.analysis, task, fresh=True)) == 0, task
    asks = {
        "event_id": "asks",
        "role": "user",
        "content": scene_of("relevance_scenes.jsonl", "aye")["evidence_tasks"][0]["task"],
    }
    await ingest(world.analysis, asks)
    assert retrieved_tokens(await assemble(world.analysis, "go on", fresh=True)) > 0


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


@pytest.mark.req("CE-F11")
async def test_a_conclusion_on_the_board_outranks_a_document_that_matches_as_well(world: World) -> None:
    """Even one that its author calls important; a document that matches better stays first."""
    app = await world.another_app(session_indexing="on", search_wait_ms=60_000)
    admin, planner = world.admin.at(app), world.planner.at(app)
    await admin.call("knowledge.create_domain", domain="runbooks")
    gasket = "Deck ovens lose heat when the gasket of a door wears out."
    for document_id, text in (("copy", "The second oven heats up slowly on the old circuit."), ("gasket", gasket)):
        added = {"domain": "runbooks", "document_id": document_id, "text": text, "importance": 1.0}
        await admin.call("knowledge.add_document", **added)
    await app.scheduler.drain("knowledge.ingest")
    await planner.write("findings", "The second oven heats up slowly on the old circuit.")
    query = {"explain": True, "low_confidence": True}
    answer = await planner.call("search.query", query="why does the second oven heat up slowly?", **query)
    first, second, *_ = answer["results"]
    assert (first["source"], second["document_id"]) == ("board", "copy")
    assert first["signals"]["kind"] > 0
    assert "kind" not in second["signals"]
    answer = await planner.call("search.query", query="what happens when the gasket of a door wears out?", **query)
    assert answer["results"][0]["document_id"] == "gasket"
