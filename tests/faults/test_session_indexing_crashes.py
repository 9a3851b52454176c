"""A crash during session indexing leaves no item missing or duplicated in the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.crash_injection import MORE_THAN_A_LEASE, dies
from support.indexed_items import (
    check_index_complete,
    check_index_consistent,
    indexed_texts,
    unembedded,
    use_scripted_embeddings,
)
from support.processes import kill_when, process
from support.session_indexing_process import session_indexing_process
from support.webhooks import wait_until
from support.world import SESSION

if TYPE_CHECKING:
    from support.world import World

pytestmark = [pytest.mark.req("CE-F52")]


async def fill_session(world: World) -> None:
    for number in range(3):
        await world.planner.say(f"message {number}")
        await world.planner.write("goal", f"goal {number}")
        await world.planner.remember("tea", f"tea {number}")
    await world.planner.remember("cups", "two", session_id=SESSION)


EXPECTED = {
    "sessions": {"s1:1": ["message 0"], "s1:2": ["message 1"], "s1:3": ["message 2"], "s1:key/goal": ["goal 2"]},
    "memory": {"planner:/tea": ["tea 2"], "planner:s1/cups": ["two"]},
}


async def texts_by_collection(world: World) -> dict[str, dict[str, list[str]]]:
    return {collection: await indexed_texts(world, collection) for collection in EXPECTED}


async def test_a_crash_at_any_statement_duplicates_and_loses_no_item(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_scripted_embeddings(world)
    await world.planner.write("goal", "the previous goal")
    await world.index_sessions()
    await fill_session(world)
    before, crashed_statements = await texts_by_collection(world), 0
    while await dies(world, monkeypatch, crashed_statements + 1, lambda: world.app.session_indexing.run(world.tenant)):
        crashed_statements += 1
        # A batch is applied completely or not at all; another process takes over when the lease expires.
        assert await texts_by_collection(world) in (before, EXPECTED), (
            f"statement {crashed_statements} left a partial batch"
        )
        await check_index_consistent(world)
        world.clock.advance(seconds=MORE_THAN_A_LEASE)
    assert crashed_statements > 15
    await world.index_sessions()
    assert await texts_by_collection(world) == EXPECTED
    await check_index_complete(world)


async def test_a_crash_at_any_statement_of_embedding_loses_no_vector(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.jobs.vectors._BATCH_SIZE", 3)
    embeddings = use_scripted_embeddings(world)
    await fill_session(world)
    await world.app.scheduler.drain("search.index_sessions")
    assert not embeddings.texts
    assert len(await unembedded(world)) == 6
    crashed_statements = 0
    while await dies(world, monkeypatch, crashed_statements + 1, lambda: world.app.session_vectors.run(world.tenant)):
        crashed_statements += 1
        await check_index_consistent(world)
        world.clock.advance(seconds=MORE_THAN_A_LEASE)
    assert crashed_statements > 15
    await world.index_sessions()
    await check_index_complete(world)


@pytest.mark.parametrize("chunks", [1, 40, 150])
async def test_a_killed_process_duplicates_and_loses_no_item(world: World, chunks: int) -> None:
    for number in range(250):
        await world.planner.say(f"message {number}")

    async def reached() -> bool:
        return len(await indexed_texts(world)) >= chunks

    async def all_indexed() -> bool:
        return len(await indexed_texts(world)) == 250 and not await unembedded(world)

    await kill_when(process(session_indexing_process, world), reached)
    await check_index_consistent(world)
    async with (
        process(session_indexing_process, world, MORE_THAN_A_LEASE),
        process(session_indexing_process, world, MORE_THAN_A_LEASE),
    ):
        await wait_until(all_indexed)
    assert await indexed_texts(world) == {f"s1:{number + 1}": [f"message {number}"] for number in range(250)}
    await check_index_complete(world)
