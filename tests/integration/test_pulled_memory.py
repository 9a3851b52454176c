"""The prompts and searches of a session have the memory that it pulled, whatever others push, until it pulls again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.assemblies import assemble, receipt, texts
from support.contexts import artifact, knowledge_entry, pull, push, read_context, version_of
from support.indexed_items import use_scripted_embeddings
from support.teams import add_member, create_team, remove_member
from support.world import outcome
from weftline.search import pulled_memory

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [
    pytest.mark.req("CE-F16"),
    pytest.mark.req("CE-F18"),
    pytest.mark.req("CE-U4"),
]

TASK = "On which weekday is the release?"
TEAM = "team:research"


def release(day: str, key: str = "release/day") -> dict[str, Any]:
    return knowledge_entry(key, f"The release is on {day}.")


async def learn(agent: Caller, *entries: dict[str, Any], **options: Any) -> Any:
    fields = {key: value for key, value in options.items() if key == "owner"}
    return await push(agent, *entries, if_version=await version_of(agent, **fields), **options)


async def prompt(agent: Caller, **options: Any) -> str:
    return "\n".join(texts(await assemble(agent, TASK, **options)))


async def found(agent: Caller, query: str = "release weekday", **options: Any) -> list[str]:
    """Return the texts of memory that a search in the session finds."""
    scope = {"session_id": agent.session, "sources": ["memory"], "low_confidence": True}
    answer = await agent.call("search.query", query=query, **{**scope, **options})
    return sorted(result["text"] for result in answer["results"])


@pytest.fixture
async def sessions(world: World) -> tuple[Caller, Caller]:
    """The planner in two sessions, of which the first pulled that the release is on Tuesday."""
    use_scripted_embeddings(world)
    first, second = world.planner, await world.planner.create_session("second")
    await learn(first, release("Tuesday"), knowledge_entry("release/who", "Ada signs the release off."))
    await pull(first)
    await world.index_sessions()
    return first, second


@pytest.mark.req("CE-E", part="a parent's edit during a session")
async def test_a_prompt_says_what_the_session_pulled_not_what_others_pushed(
    world: World, sessions: tuple[Caller, Caller]
) -> None:
    first, second = sessions
    assert "Tuesday" in await prompt(first)
    await learn(second, release("Friday"), release("Sunday", "release/new"))
    for _ in range(2):
        # The same before and after the new version is indexed.
        for text in (await prompt(first), await prompt(first, fresh=True)):
            assert "Tuesday" in text
            assert "Friday" not in text
            assert "Sunday" not in text
        assert await found(first) == ["Ada signs the release off.", "The release is on Tuesday."]
        answer = await first.call("search.get_context", query=TASK, session_id=first.session, max_tokens=4_000)
        assert "Tuesday" in answer["context"]
        assert "Friday" not in answer["context"]
        await world.index_sessions()
    assert (await read_context(first, key="release/day"))["entries"][0]["value"] == "The release is on Tuesday."
    # Another session, and a search without one, have the current version.
    assert "Friday" in await prompt(second)
    assert "The release is on Friday." in await found(second)
    pulled = await pull(first)
    assert pulled["message"] == "Context pulled: snapshot v1 -> v2"
    for text in (await prompt(first), await prompt(first, fresh=True)):
        assert "Friday" in text
        assert "Tuesday" not in text


@pytest.mark.req("CE-E", part="a parent's edit during a session")
async def test_the_first_prompt_gives_a_session_its_memory(world: World, sessions: tuple[Caller, Caller]) -> None:
    _, second = sessions
    assert await outcome(read_context(second)) == "CONTEXT_NOT_PULLED"
    # A search alone pins nothing.
    assert "The release is on Tuesday." in await found(second)
    await learn(second, release("Wednesday"))
    assert "Wednesday" in await prompt(second)
    await learn(sessions[0], release("Friday"))
    await world.index_sessions()
    assert "Wednesday" in await prompt(second)
    assert "The release is on Wednesday." in await found(second)
    assert (await read_context(second))["version"] == 2
    status = await second.call("context.status", session_id=second.session)
    assert (status["version"], status["pulled_version"], status["known_version"]) == (3, 2, None)
    # Nobody has pulled it, so a push still has to say which version it is based on, also after one with a new key.
    await push(second, knowledge_entry("note", 1), session_id=second.session)
    again = push(second, release("Monday"), session_id=second.session)
    assert await outcome(again) == "INVALID_INPUT_FORMAT"
    pulled = await pull(second)
    assert (pulled["from_version"], pulled["to_version"]) == (2, 4)
    assert "Friday" in await prompt(second)


async def test_receipts_name_the_versions_of_the_memory(world: World, sessions: tuple[Caller, Caller]) -> None:
    first, second = sessions
    await create_team(world.admin, "research", "planner")
    await learn(first, knowledge_entry("tone", "brief"), owner=TEAM)
    await pull(first)
    await learn(second, release("Friday"))
    await learn(second, knowledge_entry("tone", "long"), owner=TEAM)
    versions = (await receipt(first, await assemble(first, TASK)))["versions"]
    assert (versions["context:planner"], versions[TEAM]) == ("1", "1")
    await pull(first)
    versions = (await receipt(first, await assemble(first, TASK)))["versions"]
    assert (versions["context:planner"], versions[TEAM]) == ("2", "2")


async def test_keys_that_were_removed_since_stay_and_new_ones_wait(
    world: World, sessions: tuple[Caller, Caller]
) -> None:
    first, second = sessions
    await learn(second, release("Sunday", "release/new"), remove=[{"key": "release/day"}])
    for _ in range(2):
        assert await found(first) == ["Ada signs the release off.", "The release is on Tuesday."]
        assert "Tuesday" in await prompt(first)
        await world.index_sessions()
    await pull(first)
    assert await found(first) == ["Ada signs the release off.", "The release is on Sunday."]
    assert "Tuesday" not in await prompt(first)


async def test_a_rollback_by_others_changes_nothing_before_the_next_pull(
    world: World, sessions: tuple[Caller, Caller]
) -> None:
    first, second = sessions
    await learn(second, release("Friday"))
    await pull(first)
    await world.admin.call("history.rollback", context_id="context:planner", target_version="1")
    for _ in range(2):
        assert "Friday" in await prompt(first)
        assert await found(first) == ["Ada signs the release off.", "The release is on Friday."]
        await world.index_sessions()
    await pull(first)
    assert "Tuesday" in await prompt(first)
    assert await found(first) == ["Ada signs the release off.", "The release is on Tuesday."]


async def test_another_process_and_a_restart_keep_it(world: World, sessions: tuple[Caller, Caller]) -> None:
    first, second = sessions
    await learn(second, release("Friday"))
    await world.index_sessions()
    elsewhere = first.at(await world.another_app())
    assert "Tuesday" in await prompt(elsewhere)
    await pull(elsewhere)
    assert "Friday" in await prompt(first)
    assert "Tuesday" not in await prompt(first)


async def test_memory_that_is_written_again_unchanged_is_found(world: World, sessions: tuple[Caller, Caller]) -> None:
    first, second = sessions
    await learn(first, artifact("report", "The release report is ready."))
    await pull(first)
    await learn(second, artifact("report", "The release report is ready."))
    await learn(second, remove=[{"key": "release/day"}])
    await learn(second, release("Tuesday"))
    await world.index_sessions()
    assert await found(first) == [
        "Ada signs the release off.",
        "The release is on Tuesday.",
        "The release report is ready.",
    ]


@pytest.mark.req("CE-F14")
async def test_large_values_of_the_snapshot_are_found(world: World, sessions: tuple[Caller, Caller]) -> None:
    first, second = sessions
    long = "\n\n".join(f"Step {number} of the release is about topic{number}." for number in range(1_500))
    await learn(first, knowledge_entry("long", long))
    await pull(first)
    await learn(second, knowledge_entry("long", "Nothing left."))
    await world.index_sessions()
    best = await found(first, "topic1234", top_k=1)
    assert "topic1234" in best[0]
    assert "topic1234" not in "".join(await found(second, "topic1234"))


async def test_what_is_redacted_or_forgotten_leaves_every_snapshot(
    world: World, sessions: tuple[Caller, Caller]
) -> None:
    first, second = sessions
    await learn(first, release("Thursday", "release/late"))
    await pull(first)
    assert "Thursday" in await prompt(first)
    await learn(second, release("Friday"), release("Sunday", "release/late"))
    await world.index_sessions()
    await first.call(
        "records.redact",
        item_id="context:planner:learned_knowledge/release/day/1.1",
        state="removed",
        reason="not for agents",
    )
    assert await found(first) == ["Ada signs the release off.", "The release is on Thursday."]
    assert "Tuesday" not in await prompt(first)
    item = "context:planner:learned_knowledge/release/late"
    await world.admin.call("trust.forget", item=item, reason="poisoned", dry_run=False)
    assert await found(first) == ["Ada signs the release off."]
    for text in (await prompt(first), await prompt(first, fresh=True)):
        assert "Tuesday" not in text
        assert "Thursday" not in text


async def test_a_value_that_was_flagged_since_is_flagged_in_the_snapshot(
    world: World, sessions: tuple[Caller, Caller]
) -> None:
    first, second = sessions
    await world.admin.call("layer.define", layer="tenant", policy={"prompt_injection": "quarantine"})
    item = "context:planner:learned_knowledge/release/day"
    await world.admin.call("trust.forget", item=item, reason="poisoned", mode="flag", dry_run=False)
    assert "Tuesday" not in await prompt(first)
    # Also if another value has replaced the flagged one.
    await learn(second, release("Friday"))
    await world.index_sessions()
    assert "Tuesday" not in await prompt(first)
    (flagged,) = [
        result
        for result in (
            await first.call(
                "search.query", query="release weekday", sources=["memory"], session_id="s1", low_confidence=True
            )
        )["results"]
        if result["key"] == "release/day"
    ]
    assert flagged["trust"] == "suspicious"


@pytest.mark.req("WX-04")
async def test_memory_of_teams_is_kept_and_left_with_the_team(world: World, sessions: tuple[Caller, Caller]) -> None:
    first, second = sessions
    await create_team(world.admin, "research", "analysis")
    writer = world.analysis
    await learn(writer, release("Saturday", "team/day"), owner=TEAM)
    await world.index_sessions()
    # It joined after its pull.
    await add_member(world.admin, "planner")
    assert "Saturday" not in await prompt(first)
    assert await outcome(first.call("context.read", owner=TEAM, session_id=first.session)) == "CONTEXT_NOT_PULLED"
    await pull(first)
    assert "Saturday" in await prompt(first)
    await learn(writer, release("Sunday", "team/day"), release("Monday", "team/new"), owner=TEAM)
    for _ in range(2):
        text = await prompt(first)
        assert "Saturday" in text
        assert "Sunday" not in text
        assert "Monday" not in text
        assert "The release is on Saturday." in await found(first)
        await world.index_sessions()
    assert "Sunday" in await prompt(second)
    # Others' pushes are there right after a pull, before they are indexed.
    await learn(writer, release("Wednesday", "team/day"), owner=TEAM)
    await pull(second)
    text = await prompt(second)
    assert "Wednesday" in text
    assert "Sunday" not in text
    await remove_member(world.admin, "planner")
    for text in (await prompt(first), await prompt(second), *await found(first)):
        assert "Saturday" not in text
        assert "Wednesday" not in text


async def test_a_branch_that_was_pulled_is_in_prompts(world: World, sessions: tuple[Caller, Caller]) -> None:
    first, second = sessions
    await first.call("history.branch", context_id="context:planner", branch="try")
    await push(first, release("Thursday"), if_version=1, branch="try")
    await pull(first, branch="try")
    await learn(second, release("Friday"))
    await world.index_sessions()
    assert "Thursday" in await prompt(first)
    assert await found(first) == ["Ada signs the release off.", "The release is on Thursday."]
    await first.call("history.delete_branch", context_id="context:planner", branch="try", force=True)
    # As a read says: the snapshot is gone, and nothing else takes its place.
    assert await outcome(read_context(first)) == "BRANCH_NOT_FOUND"
    text = await prompt(first)
    assert "Thursday" not in text
    assert "Friday" not in text
    assert await found(first) == []


async def test_snapshots_of_others_cost_a_search_nothing(world: World, sessions: tuple[Caller, Caller]) -> None:
    first, second = sessions
    await world.analysis.call("context.push", knowledge=[release("Monday")])
    for day in range(20):
        await learn(second, release(f"day {day}"), release(f"day {day}", f"release/{day}"))
        await pull(await world.planner.create_session(f"held-{day}"))
    await world.index_sessions()
    rows = await world.rows("SELECT COUNT(*) FROM chunks WHERE tenant = $1 AND collection = 'memory'", world.tenant)
    # The current version of each entry, and no other.
    assert rows[0][0] == 2 + 20 + 1
    assert await found(world.analysis) == ["The release is on Monday."]
    assert await found(first) == ["Ada signs the release off.", "The release is on Tuesday."]


@pytest.mark.req("CE-E", part="two pushes at once")
async def test_prompts_during_pulls_and_pushes_have_one_version(world: World, sessions: tuple[Caller, Caller]) -> None:
    first, second = sessions
    await learn(second, release("day 0"), release("day 0", "release/again"))
    await pull(first)

    async def pushing() -> None:
        for day in range(1, 8):
            await learn(second, release(f"day {day}"), release(f"day {day}", "release/again"))

    async def pulling() -> None:
        for _ in range(6):
            await pull(first)

    async def prompting() -> list[str]:
        return [await prompt(first, fresh=True) for _ in range(6)]

    seen, *_ = await asyncio.gather(prompting(), pushing(), pulling())
    for text in seen:
        assert len({day for day in range(8) if f"day {day}." in text}) <= 1, text


@pytest.mark.req("CE-F55")
async def test_pruning_keeps_what_sessions_have(world: World, sessions: tuple[Caller, Caller]) -> None:
    first, second = sessions
    await create_team(world.admin, "research", "planner")
    await learn(first, release("Saturday", "team/day"), owner=TEAM)
    await world.index_sessions()
    # One session pulls, the other has its memory from its first prompt.
    await pull(first)
    assert "Saturday" in await prompt(second)
    third = await world.planner.create_session("third")
    for day in ("Friday", "Monday"):
        await learn(third, release(day))
        await learn(third, release(day, "team/day"), owner=TEAM)
    await world.admin.call("history.set_retention", subject="learned_knowledge", versions=1)
    assert (await world.admin.call("history.prune"))["finished"]
    await world.index_sessions()
    elsewhere = await world.another_app()
    for session in (first.at(elsewhere), second.at(elsewhere)):
        kept = ["Ada signs the release off.", "The release is on Saturday.", "The release is on Tuesday."]
        assert await found(session) == kept
        assert "Saturday" in await prompt(session, fresh=True)
    # Nothing keeps it when no session has it.
    await pull(first)
    await second.call("session.archive", session_id=second.session)
    await second.call("session.delete", session_id=second.session)
    assert (await world.admin.call("history.prune"))["finished"]
    old = await world.admin.call("history.state", context_id=TEAM, version="1")
    assert [entry.get("pruned", False) for entry in old["entries"]] == [True]


@pytest.mark.req("CE-F11")
async def test_old_entries_are_found_by_meaning_and_embedded_once(
    world: World, sessions: tuple[Caller, Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sessions
    embedded: list[str] = []
    embed = world.app.embeddings.of_unstored

    async def count(texts: list[str], model: str) -> Any:
        embedded.extend(texts)
        return await embed(texts, model)

    monkeypatch.setattr(world.app.embeddings, "of_unstored", count)
    # Loading the model may take longer than a search waits.
    monkeypatch.setattr(pulled_memory, "_MAX_EMBED_SECONDS", 60.0)
    await learn(second, release("Friday"), release("Sunday", "release/new"))
    await world.index_sessions()
    for _ in range(2):
        answer = await first.call(
            "search.query",
            query="When do we publish it?",
            session_id=first.session,
            sources=["memory"],
            low_confidence=True,
            explain=True,
        )
        (best,) = [result for result in answer["results"] if result["key"] == "release/day"]
        assert best["text"] == "The release is on Tuesday."
        assert best["signals"]["semantic"] > 0
    assert embedded == ["release/day\nThe release is on Tuesday."]
