"""Replicas of collections equal the rows they are built from, after every change."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import pytest

from support.collection_model import DIMENSIONS, NamedCaller, check_view, random_vector
from support.collection_replicas import (
    ANN,
    COLLECTION,
    MODEL,
    OTHER_MODEL,
    CollectionWriter,
    files_in,
    open_indexes,
    wait_for_writes,
    with_fields,
)
from weftline.kernel.errors import SystemUnavailable
from weftline.search.model import CollectionQuery
from weftline.search_index.segment_file import open_segment
from weftline.search_index.segment_merge import merge_segments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from support.world import World
    from weftline.search_index.segment_file import OpenedSegment


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.app.search.replica._FLUSH_ROWS", 30)
    monkeypatch.setattr("weftline.app.search.replica._READ_BATCH_SIZE", 16)


@pytest.fixture
async def collection(world: World, tmp_path: Path) -> AsyncIterator[CollectionWriter]:
    async with open_indexes(world, tmp_path / "index") as indexes:
        yield CollectionWriter(world, indexes)


@pytest.mark.req("CE-F38")
async def test_a_collection_without_chunks_is_empty(collection: CollectionWriter) -> None:
    view = await collection.check()
    assert (view.size, view.newest(5).tolist(), view.postings("apple").all()[0].tolist()) == (0, [], [])


@pytest.mark.req("CE-F38")
async def test_committed_additions_and_removals_are_visible_at_once(collection: CollectionWriter) -> None:
    for count in (1, 3, 40, 2, 100):
        numbers = await collection.add(count)
        await collection.check()
        await collection.remove(numbers[::3])
        await collection.check()
        await collection.check(CollectionQuery(COLLECTION, places=frozenset({"place1"}), since=200), NamedCaller("b"))


async def test_an_open_view_is_immutable(collection: CollectionWriter) -> None:
    numbers = await collection.add(50)
    before, chunks = await collection.check(), collection.plain.visible(CollectionQuery(COLLECTION), ANN)
    await collection.remove(numbers[:25])
    await collection.add(40)
    await collection.check()
    await wait_for_writes(collection.indexes)
    await collection.check()
    check_view(before, chunks)


async def test_segments_are_reused_after_a_restart(world: World, collection: CollectionWriter, tmp_path: Path) -> None:
    first = await collection.add(60)
    await collection.check()
    await wait_for_writes(collection.indexes)
    assert files_in(tmp_path / "index")
    # The restarted replica applies removals and additions made after its files were written.
    await collection.remove(first[10:20])
    await collection.add(35)
    await collection.check()
    await wait_for_writes(collection.indexes)
    await collection.remove(first[20:25])
    async with open_indexes(world, tmp_path / "index") as collection.indexes:
        view = await collection.check()
        assert view._snapshot.files, "the files were not used"


async def test_segments_are_merged_to_a_few_files(collection: CollectionWriter, tmp_path: Path) -> None:
    max_files = 0
    for _ in range(20):
        await collection.add(33)
        await collection.check()
        await wait_for_writes(collection.indexes)
        max_files = max(max_files, len(files_in(tmp_path / "index")))
    assert max_files <= 5
    await collection.check()


async def test_segments_are_reused_after_a_database_outage(
    world: World, collection: CollectionWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await collection.add(60)
    await collection.check()
    await wait_for_writes(collection.indexes)
    async with open_indexes(world, tmp_path / "index") as collection.indexes:
        await collection.check()
        (file,) = files_in(tmp_path / "index")
        file.touch()
        with monkeypatch.context() as broken:
            broken.setattr(
                "weftline.app.search.replica.CollectionStore", Mock(side_effect=SystemUnavailable("unavailable"))
            )
            with pytest.raises(SystemUnavailable):
                await collection.check()
        view = await collection.check()
        assert [each.name for each in view._snapshot.files] == [file.name]
        assert view._snapshot.in_memory == 0


async def test_removed_chunks_leave_the_segments_when_they_are_rewritten(
    world: World, collection: CollectionWriter, tmp_path: Path
) -> None:
    numbers = await collection.add(90)
    await collection.check()
    await wait_for_writes(collection.indexes)
    await collection.remove(numbers[:60])
    await collection.add(40)
    await collection.check()
    await wait_for_writes(collection.indexes)
    view = await collection.check()
    assert view.total_rows == len(collection.plain.chunks)


async def test_processes_that_share_a_folder_agree(world: World, collection: CollectionWriter, tmp_path: Path) -> None:
    async with open_indexes(world, tmp_path / "index") as others:
        ours = collection.indexes
        for turn in range(8):
            numbers = await collection.add(25)
            collection.indexes = (ours, others)[turn % 2]
            await collection.check()
            await wait_for_writes(collection.indexes)
            await collection.remove(numbers[::4])
            for collection.indexes in (ours, others):
                await collection.check()
        collection.indexes = ours
        await wait_for_writes(others)


async def test_concurrent_callers_see_committed_chunks(collection: CollectionWriter) -> None:
    await collection.add(80)
    await asyncio.gather(*(collection.check() for _ in range(8)))
    numbers = await collection.add(20)
    await asyncio.gather(
        collection.check(), collection.check(CollectionQuery(COLLECTION, items=frozenset({"1"}))), collection.check()
    )
    await collection.remove(numbers)
    await asyncio.gather(*(collection.check() for _ in range(4)))


async def test_a_recreated_collection_has_nothing_of_the_old_one(collection: CollectionWriter, tmp_path: Path) -> None:
    await collection.add(70)
    await collection.check()
    await wait_for_writes(collection.indexes)
    await collection.change(lambda store: store.remove_collection(COLLECTION))
    collection.plain.chunks.clear()
    await collection.add(75)
    await collection.check()
    await collection.change(lambda store: store.remove_collection(COLLECTION))
    collection.plain.chunks.clear()
    await collection.check()
    await wait_for_writes(collection.indexes)
    assert not files_in(tmp_path / "index")


@pytest.mark.req("CE-F51")
async def test_vectors_of_another_model_are_found_once_added(collection: CollectionWriter) -> None:
    numbers = list(await collection.add(60))
    old = dict(collection.plain.chunks)
    collection.plain.chunks = {number: with_fields(chunk, vector=None) for number, chunk in old.items()}
    await collection.check(model=OTHER_MODEL)
    await wait_for_writes(collection.indexes)
    for partial in (numbers[:20], numbers[20:]):
        vectors = {number: np.frombuffer(old[number].vector, "<f2")[::-1].tobytes() for number in partial}
        assert await collection.change(
            lambda store, given=vectors: store.add_vectors(COLLECTION, OTHER_MODEL, given)
        ) == len(partial)
        for number, vector in vectors.items():
            collection.plain.chunks[number] = with_fields(old[number], vector=vector)
        await collection.check(model=OTHER_MODEL)
    collection.plain.chunks = old
    await collection.check()


async def test_vectors_of_other_dimensions_are_ignored(collection: CollectionWriter) -> None:
    numbers = await collection.add(30)
    await collection.check()
    changed_numbers = numbers[::3]
    longer = {number: random_vector(collection.random, DIMENSIONS + 4) for number in changed_numbers}
    await collection.change(lambda store: store.add_vectors(COLLECTION, MODEL, longer))
    for number in changed_numbers:
        collection.plain.chunks[number] = with_fields(collection.plain.chunks[number], vector=None)
    await collection.check()
    await collection.add(40)
    await collection.check()
    await wait_for_writes(collection.indexes)
    await collection.check()


async def test_files_of_deleted_collections_are_swept(world: World) -> None:
    folder = world.settings.index_folder
    async with open_indexes(world, folder) as indexes:
        collection = CollectionWriter(world, indexes)
        await collection.add(60)
        await collection.check()
        await wait_for_writes(indexes)
        assert files_in(folder)
        await world.app.collections.sweep()
        assert files_in(folder)
        await collection.change(lambda store: store.remove_collection(COLLECTION))
        await world.app.collections.sweep()
        assert not files_in(folder)


async def test_replicas_are_evicted_under_memory_pressure(
    world: World, collection: CollectionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.app.search.replica._MAX_BYTES_IN_MEMORY", 1)
    await collection.add(20)
    await collection.check()
    await collection.indexes.open(world.tenant, CollectionQuery("sessions"), ANN, MODEL)
    assert [name.collection for name in collection.indexes._replicas] == ["sessions"]
    await collection.check()


async def test_a_replica_with_much_lag_does_not_block_searches(
    collection: CollectionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.app.search.replica._MAX_WAIT_SECONDS", -1.0)
    await collection.add(200)
    view = await collection.indexes.open(collection._world.tenant, CollectionQuery(COLLECTION), ANN, MODEL)
    assert view.size < len(collection.plain.visible(CollectionQuery(COLLECTION), ANN))
    assert view.lag > 0
    await wait_for_writes(collection.indexes)
    assert (await collection.check()).lag == 0


async def test_unused_segments_are_deleted(collection: CollectionWriter) -> None:
    await collection.add(40)
    await collection.check()
    await wait_for_writes(collection.indexes)
    first = [weakref.ref(file) for file in (await collection.check())._snapshot.files]
    await collection.add(400)
    await collection.check()
    await wait_for_writes(collection.indexes)
    await collection.check()
    gc.collect()
    assert [file() for file in first] == [None]


async def test_a_process_opens_only_new_segments_of_another_process(
    world: World, collection: CollectionWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def record_call(path: Path) -> OpenedSegment:
        names.append(path.name)
        return open_segment(path)

    await collection.add(200)
    await collection.check()
    await wait_for_writes(collection.indexes)
    async with open_indexes(world, tmp_path / "index") as others:
        ours, collection.indexes = collection.indexes, others
        await collection.check()
        known = {file.name for file in files_in(tmp_path / "index")}
        collection.indexes = ours
        await collection.add(40)
        await collection.check()
        await wait_for_writes(ours)
        collection.indexes = others
        monkeypatch.setattr("weftline.search_index.segment_store.open_segment", record_call)
        await collection.check()
        assert {*names} == {file.name for file in files_in(tmp_path / "index")} - known
        assert len(names) == 1
        collection.indexes = ours


async def test_a_process_keeps_the_segments_another_wrote_for_a_recreated_collection(
    world: World, collection: CollectionWriter, tmp_path: Path
) -> None:
    damages: list[str] = []

    async def alarm(_: str, collection: str) -> None:
        damages.append(collection)

    async with open_indexes(world, tmp_path / "index", alarm) as others:
        ours = collection.indexes
        await collection.add(50)
        for collection.indexes in (ours, others):
            await collection.check()
            await wait_for_writes(collection.indexes)
        await collection.change(lambda store: store.remove_collection(COLLECTION))
        collection.plain.chunks.clear()
        await collection.add(60)
        collection.indexes = ours
        await collection.check()
        await wait_for_writes(ours)
        made = files_in(tmp_path / "index")
        collection.indexes = others
        view = await collection.check()
        assert files_in(tmp_path / "index") == made
        assert [file.name for file in view._snapshot.files] == [file.name for file in made]
        assert damages == []
        collection.indexes = ours


async def test_segments_are_merged_off_the_event_loop(
    collection: CollectionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def record_call(*args: Any, **how: Any) -> Any:
        threads.append(threading.current_thread())
        return merge_segments(*args, **how)

    monkeypatch.setattr("weftline.search_index.snapshot.merge_segments", record_call)
    for _ in range(12):
        await collection.add(2)
        await collection.check()
    assert threads
    assert threading.main_thread() not in threads


@pytest.fixture
def few_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.indexing.collections._MIN_RETAINED_CHANGES", 10)
    monkeypatch.setattr("weftline.app.search.service._MIN_PRUNED", 1)
    monkeypatch.setattr("weftline.indexing.sql.DELETE_BATCH_SIZE", 7)


async def change_many_times(collection: CollectionWriter) -> None:
    """Add and remove chunks many times."""
    for _ in range(6):
        await collection.remove(await collection.add(20))


async def removals(world: World) -> int:
    found = await world.rows("SELECT COUNT(*) FROM chunk_removals WHERE tenant = $1", world.tenant)
    return found[0][0]


@pytest.mark.usefixtures("few_tombstones")
async def test_old_tombstones_are_pruned(world: World, collection: CollectionWriter) -> None:
    await collection.add(5)
    await change_many_times(collection)
    await world.app.collections.sweep()
    state = await collection.change(lambda store: store.state(COLLECTION))
    assert 0 < await removals(world) <= 20
    assert state.pruned_up_to == state.number - 20
    await collection.check()
    await collection.remove((await collection.add(9))[:4])
    await collection.check()


@pytest.mark.usefixtures("few_tombstones")
async def test_a_replica_older_than_the_tombstones_is_rebuilt(world: World, collection: CollectionWriter) -> None:
    numbers = await collection.add(20)
    await collection.check()
    await collection.remove(numbers[:9])
    await change_many_times(collection)
    await world.app.collections.sweep()
    await collection.check()


@pytest.mark.usefixtures("few_tombstones")
async def test_segments_older_than_the_tombstones_are_rebuilt(
    world: World, collection: CollectionWriter, tmp_path: Path
) -> None:
    numbers = await collection.add(40)
    await collection.check()
    await wait_for_writes(collection.indexes)
    before = files_in(tmp_path / "index")
    await collection.remove(numbers[:15])
    for _ in range(2):
        await change_many_times(collection)
    await world.app.collections.sweep()
    async with open_indexes(world, tmp_path / "index") as collection.indexes:
        await collection.check()
        assert not {*before} & {*files_in(tmp_path / "index")}
        await collection.add(40)
        await collection.check()
        await wait_for_writes(collection.indexes)
        assert (await collection.check())._snapshot.files


@pytest.mark.usefixtures("few_tombstones")
async def test_a_segment_is_rewritten_before_its_tombstones_are_deleted(
    world: World, collection: CollectionWriter, tmp_path: Path
) -> None:
    await collection.add(400)
    await collection.check()
    await wait_for_writes(collection.indexes)
    for _ in range(8):
        await collection.remove((await collection.add(70))[:-10])
        await collection.check()
        await wait_for_writes(collection.indexes)
        await world.app.collections.sweep()
        async with open_indexes(world, tmp_path / "index") as restarted:
            view = await restarted.open(world.tenant, CollectionQuery(COLLECTION), ANN, MODEL)
            assert view._snapshot.files
    await collection.check()


async def test_a_partial_result_is_flagged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        await world.planner.write(f"key{number}", f"Tea is served at {number} o'clock.")
    await world.index_sessions()
    monkeypatch.setattr("weftline.app.search.replica._MAX_WAIT_SECONDS", -1.0)
    asked = {"query": "when is tea served", "explain": True}
    partial = await world.planner.call("search.query", **asked)
    indexes = world.app.collections._indexes
    assert indexes is not None
    await wait_for_writes(indexes)
    monkeypatch.setattr("weftline.app.search.replica._MAX_WAIT_SECONDS", 60.0)
    everything = await world.planner.call("search.query", **asked)
    assert [answer.get("pending", {}).get("partial", False) for answer in (partial, everything)] == [True, False]
    assert partial["searched"] < everything["searched"] == 40
    assert partial["confidence"] < everything["confidence"]
    assert partial["unsure"]


async def test_an_empty_partial_result_is_not_reported_as_no_results(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        await world.planner.write(f"key{number}", f"Tea is served at {number} o'clock.")
    await world.index_sessions()
    monkeypatch.setattr("weftline.app.search.replica._MAX_WAIT_SECONDS", -1.0)
    relevance_only = {"recency_weight": 0, "importance_weight": 0}
    found = await world.planner.call("search.query", query="zebra crossing", min_score=1.0, **relevance_only)
    assert (found["unsure"], found["pending"]) == (True, {"partial": True})
    events = (await world.admin.events())["events"]
    assert "search.low_relevance" not in [event["type"] for event in events]
    assert world.app.collections._indexes is not None
    await wait_for_writes(world.app.collections._indexes)
