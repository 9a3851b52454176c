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

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [
    pytest.mark.req("CE-F16"),
    pytest.mark.req("CE-F18"),
    pytest.mark.req("CE-U4"),
    pytest.mark.both_databases,
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
