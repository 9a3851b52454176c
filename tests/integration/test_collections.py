"""Replicas of collections agree with the rows they are built from, on both databases, through all changes."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import pytest

from support.librarian import ANN, COLLECTION, MODEL, OTHER_MODEL, Librarian, changed, files_in, opened, settle
from support.plain_collection import DIMENSIONS, Whoever, check_same, vector_of
from weft.capabilities.search.index_view import CollectionQuery
from weft.kernel.errors import SystemUnavailable
from weft.search_index.segment_file import open_segment
from weft.search_index.segment_merge import merged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from support.world import World
    from weft.search_index.segment_file import Opened


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.app.search.replica._ROWS_TO_BUILD", 30)
    monkeypatch.setattr("weft.app.search.replica._READ_AT_ONCE", 16)


@pytest.fixture
async def librarian(world: World, tmp_path: Path) -> AsyncIterator[Librarian]:
    async with opened(world, tmp_path / "index") as indexes:
        yield Librarian(world, indexes)


@pytest.mark.req("CE-F38")
async def test_a_collection_that_nothing_stands_on_is_empty(librarian: Librarian) -> None:
    view = await librarian.check()
    assert (view.size, view.newest(5).tolist(), view.postings("apple").all()[0].tolist()) == (0, [], [])


@pytest.mark.req("CE-F38")
async def test_what_is_committed_is_seen_at_once_and_what_is_gone_is_not(librarian: Librarian) -> None:
    for count in (1, 3, 40, 2, 100):
        numbers = await librarian.add(count)
        await librarian.check()
        await librarian.remove(numbers[::3])
        await librarian.check()
        await librarian.check(CollectionQuery(COLLECTION, places=frozenset({"place1"}), since=200), Whoever("b"))


async def test_a_view_stays_as_it_was(librarian: Librarian) -> None:
    numbers = await librarian.add(50)
    before, chunks = await librarian.check(), librarian.plain.visible(CollectionQuery(COLLECTION), ANN)
    await librarian.remove(numbers[:25])
    await librarian.add(40)
    await librarian.check()
    await settle(librarian.indexes)
    await librarian.check()
    check_same(before, chunks)


async def test_files_are_taken_up_again_after_a_restart(world: World, librarian: Librarian, tmp_path: Path) -> None:
    first = await librarian.add(60)
    await librarian.check()
    await settle(librarian.indexes)
    assert files_in(tmp_path / "index")
    # What happens behind the files is made up for: removals of what they hold, and what came later.
    await librarian.remove(first[10:20])
    await librarian.add(35)
    await librarian.check()
    await settle(librarian.indexes)
    await librarian.remove(first[20:25])
    async with opened(world, tmp_path / "index") as librarian.indexes:
        view = await librarian.check()
        assert view._snapshot.files, "read from rows instead"


async def test_files_are_few_however_much_comes(librarian: Librarian, tmp_path: Path) -> None:
    most = 0
    for _ in range(20):
        await librarian.add(33)
        await librarian.check()
        await settle(librarian.indexes)
        most = max(most, len(files_in(tmp_path / "index")))
    assert most <= 5
    await librarian.check()


async def test_files_are_taken_up_though_the_database_was_away_when_they_were_opened(
    world: World, librarian: Librarian, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await librarian.add(60)
    await librarian.check()
    await settle(librarian.indexes)
    async with opened(world, tmp_path / "index") as librarian.indexes:
        await librarian.check()
        (file,) = files_in(tmp_path / "index")
        file.touch()
        with monkeypatch.context() as broken:
            broken.setattr("weft.app.search.replica.SqlCollectionStore", Mock(side_effect=SystemUnavailable("away")))
            with pytest.raises(SystemUnavailable):
                await librarian.check()
        view = await librarian.check()
        assert [each.name for each in view._snapshot.files] == [file.name]
        assert view._snapshot.in_memory == 0


async def test_what_is_removed_leaves_the_files_when_they_are_written_anew(
    world: World, librarian: Librarian, tmp_path: Path
) -> None:
    numbers = await librarian.add(90)
    await librarian.check()
    await settle(librarian.indexes)
    await librarian.remove(numbers[:60])
    await librarian.add(40)
    await librarian.check()
    await settle(librarian.indexes)
    view = await librarian.check()
    assert view.everything == len(librarian.plain.chunks)


async def test_processes_that_share_a_folder_see_the_same(world: World, librarian: Librarian, tmp_path: Path) -> None:
    async with opened(world, tmp_path / "index") as others:
        ours = librarian.indexes
        for turn in range(8):
            numbers = await librarian.add(25)
            librarian.indexes = (ours, others)[turn % 2]
            await librarian.check()
            await settle(librarian.indexes)
            await librarian.remove(numbers[::4])
            for librarian.indexes in (ours, others):
                await librarian.check()
        librarian.indexes = ours
        await settle(others)


async def test_many_callers_at_once_see_what_is_committed(librarian: Librarian) -> None:
    await librarian.add(80)
    await asyncio.gather(*(librarian.check() for _ in range(8)))
    numbers = await librarian.add(20)
    await asyncio.gather(
        librarian.check(), librarian.check(CollectionQuery(COLLECTION, items=frozenset({"1"}))), librarian.check()
    )
    await librarian.remove(numbers)
    await asyncio.gather(*(librarian.check() for _ in range(4)))


async def test_a_collection_that_is_put_up_again_has_nothing_of_the_old_one(
    librarian: Librarian, tmp_path: Path
) -> None:
    await librarian.add(70)
    await librarian.check()
    await settle(librarian.indexes)
    await librarian.change(lambda store: store.remove_collection(COLLECTION))
    librarian.plain.chunks.clear()
    await librarian.add(75)
    await librarian.check()
    await librarian.change(lambda store: store.remove_collection(COLLECTION))
    librarian.plain.chunks.clear()
    await librarian.check()
    await settle(librarian.indexes)
    assert not files_in(tmp_path / "index")


@pytest.mark.req("CE-F51")
async def test_vectors_of_a_further_model_are_found_when_they_come(librarian: Librarian) -> None:
    numbers = list(await librarian.add(60))
    old = dict(librarian.plain.chunks)
    librarian.plain.chunks = {number: changed(chunk, vector=None) for number, chunk in old.items()}
    await librarian.check(model=OTHER_MODEL)
    await settle(librarian.indexes)
    for part in (numbers[:20], numbers[20:]):
        vectors = {number: np.frombuffer(old[number].vector, "<f2")[::-1].tobytes() for number in part}
        assert await librarian.change(
            lambda store, given=vectors: store.add_vectors(COLLECTION, OTHER_MODEL, given)
        ) == len(part)
        for number, vector in vectors.items():
            librarian.plain.chunks[number] = changed(old[number], vector=vector)
        await librarian.check(model=OTHER_MODEL)
    librarian.plain.chunks = old
    await librarian.check()


async def test_vectors_of_other_dimensions_count_as_none(librarian: Librarian) -> None:
    numbers = await librarian.add(30)
    await librarian.check()
    odd = numbers[::3]
    longer = {number: vector_of(librarian.random, DIMENSIONS + 4) for number in odd}
    await librarian.change(lambda store: store.add_vectors(COLLECTION, MODEL, longer))
    for number in odd:
        librarian.plain.chunks[number] = changed(librarian.plain.chunks[number], vector=None)
    await librarian.check()
    await librarian.add(40)
    await librarian.check()
    await settle(librarian.indexes)
    await librarian.check()


async def test_files_of_collections_that_are_gone_are_swept_away(world: World) -> None:
    folder = world.settings.index_folder
    async with opened(world, folder) as indexes:
        librarian = Librarian(world, indexes)
        await librarian.add(60)
        await librarian.check()
        await settle(indexes)
        assert files_in(folder)
        await world.app.collections.sweep()
        assert files_in(folder)
        await librarian.change(lambda store: store.remove_collection(COLLECTION))
        await world.app.collections.sweep()
        assert not files_in(folder)


async def test_copies_that_take_much_memory_are_let_go(
    world: World, librarian: Librarian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.app.search.replicas._MOST_BYTES_IN_MEMORY", 1)
    await librarian.add(20)
    await librarian.check()
    await librarian.indexes.open(world.tenant, CollectionQuery("sessions"), ANN, MODEL)
    assert [name.collection for name in librarian.indexes._copies] == ["sessions"]
    await librarian.check()


async def test_a_copy_that_is_far_behind_keeps_nobody_waiting(
    librarian: Librarian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.app.search.replica._PATIENCE_SECONDS", -1.0)
    await librarian.add(200)
    view = await librarian.indexes.open(librarian._world.tenant, CollectionQuery(COLLECTION), ANN, MODEL)
    assert view.size < len(librarian.plain.visible(CollectionQuery(COLLECTION), ANN))
    assert view.behind > 0
    await settle(librarian.indexes)
    assert (await librarian.check()).behind == 0


async def test_files_that_count_no_more_are_let_go(librarian: Librarian) -> None:
    await librarian.add(40)
    await librarian.check()
    await settle(librarian.indexes)
    first = [weakref.ref(file) for file in (await librarian.check())._snapshot.files]
    await librarian.add(400)
    await librarian.check()
    await settle(librarian.indexes)
    await librarian.check()
    gc.collect()
    assert [file() for file in first] == [None]


async def test_a_process_opens_only_those_files_of_another_that_it_does_not_know(
    world: World, librarian: Librarian, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def noted(path: Path) -> Opened:
        names.append(path.name)
        return open_segment(path)

    await librarian.add(200)
    await librarian.check()
    await settle(librarian.indexes)
    async with opened(world, tmp_path / "index") as others:
        ours, librarian.indexes = librarian.indexes, others
        await librarian.check()
        known = {file.name for file in files_in(tmp_path / "index")}
        librarian.indexes = ours
        await librarian.add(40)
        await librarian.check()
        await settle(ours)
        librarian.indexes = others
        monkeypatch.setattr("weft.search_index.segment_store.open_segment", noted)
        await librarian.check()
        assert {*names} == {file.name for file in files_in(tmp_path / "index")} - known
        assert len(names) == 1
        librarian.indexes = ours


async def test_a_process_leaves_what_another_has_made_of_a_collection_that_was_put_up_again(
    world: World, librarian: Librarian, tmp_path: Path
) -> None:
    damages: list[str] = []

    async def alarm(_: str, collection: str) -> None:
        damages.append(collection)

    async with opened(world, tmp_path / "index", alarm) as others:
        ours = librarian.indexes
        await librarian.add(50)
        for librarian.indexes in (ours, others):
            await librarian.check()
            await settle(librarian.indexes)
        await librarian.change(lambda store: store.remove_collection(COLLECTION))
        librarian.plain.chunks.clear()
        await librarian.add(60)
        librarian.indexes = ours
        await librarian.check()
        await settle(ours)
        made = files_in(tmp_path / "index")
        librarian.indexes = others
        view = await librarian.check()
        assert files_in(tmp_path / "index") == made
        assert [file.name for file in view._snapshot.files] == [file.name for file in made]
        assert damages == []
        librarian.indexes = ours


async def test_nothing_is_joined_while_others_wait(librarian: Librarian, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noted(*args: Any, **how: Any) -> Any:
        threads.append(threading.current_thread())
        return merged(*args, **how)

    monkeypatch.setattr("weft.search_index.snapshot.merged", noted)
    for _ in range(12):
        await librarian.add(2)
        await librarian.check()
    assert threads
    assert threading.main_thread() not in threads


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.capabilities.indexing.collections.model._MIN_RETAINED_CHANGES", 10)
    monkeypatch.setattr("weft.app.search.service._WORTH_FORGETTING", 1)
    monkeypatch.setattr("weft.storage.sql.collections.CLEARED_AT_ONCE", 7)


async def changed_much(librarian: Librarian) -> None:
    """Have the same few chunks come and go many times."""
    for _ in range(6):
        await librarian.remove(await librarian.add(20))


async def removals(world: World) -> int:
    found = await world.rows("SELECT COUNT(*) FROM chunk_removals WHERE tenant = $1", world.tenant)
    return found[0][0]


@pytest.mark.usefixtures("short_memory")
async def test_what_was_removed_long_ago_is_forgotten(world: World, librarian: Librarian) -> None:
    await librarian.add(5)
    await changed_much(librarian)
    await world.app.collections.sweep()
    state = await librarian.change(lambda store: store.state(COLLECTION))
    assert 0 < await removals(world) <= 20
    assert state.forgotten == state.number - 20
    await librarian.check()
    await librarian.remove((await librarian.add(9))[:4])
    await librarian.check()


@pytest.mark.usefixtures("short_memory")
async def test_a_copy_that_missed_what_is_forgotten_begins_anew(world: World, librarian: Librarian) -> None:
    numbers = await librarian.add(20)
    await librarian.check()
    await librarian.remove(numbers[:9])
    await changed_much(librarian)
    await world.app.collections.sweep()
    await librarian.check()


@pytest.mark.usefixtures("short_memory")
async def test_files_that_missed_what_is_forgotten_are_made_anew(
    world: World, librarian: Librarian, tmp_path: Path
) -> None:
    numbers = await librarian.add(40)
    await librarian.check()
    await settle(librarian.indexes)
    before = files_in(tmp_path / "index")
    await librarian.remove(numbers[:15])
    for _ in range(2):
        await changed_much(librarian)
    await world.app.collections.sweep()
    async with opened(world, tmp_path / "index") as librarian.indexes:
        await librarian.check()
        assert not {*before} & {*files_in(tmp_path / "index")}
        await librarian.add(40)
        await librarian.check()
        await settle(librarian.indexes)
        assert (await librarian.check())._snapshot.files


@pytest.mark.usefixtures("short_memory")
async def test_a_file_is_written_anew_before_what_it_missed_is_forgotten(
    world: World, librarian: Librarian, tmp_path: Path
) -> None:
    await librarian.add(400)
    await librarian.check()
    await settle(librarian.indexes)
    for _ in range(8):
        await librarian.remove((await librarian.add(70))[:-10])
        await librarian.check()
        await settle(librarian.indexes)
        await world.app.collections.sweep()
        async with opened(world, tmp_path / "index") as restarted:
            view = await restarted.open(world.tenant, CollectionQuery(COLLECTION), ANN, MODEL)
            assert view._snapshot.files
    await librarian.check()


async def test_an_answer_tells_that_it_is_of_a_part_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        await world.planner.write(f"key{number}", f"Tea is served at {number} o'clock.")
    await world.followed()
    monkeypatch.setattr("weft.app.search.replica._PATIENCE_SECONDS", -1.0)
    asked = {"query": "when is tea served", "min_score": 0.0}
    part = await world.planner.call("search.query", **asked)
    indexes = world.app.collections._indexes
    assert indexes is not None
    await settle(indexes)
    monkeypatch.setattr("weft.app.search.replica._PATIENCE_SECONDS", 60.0)
    everything = await world.planner.call("search.query", **asked)
    assert [answer["pending"].get("partial", False) for answer in (part, everything)] == [True, False]
    assert part["searched"] < everything["searched"] == 40
    assert part["confidence"] < everything["confidence"]
    assert part["widened"]


async def test_nobody_is_told_that_nothing_was_found_in_a_part(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        await world.planner.write(f"key{number}", f"Tea is served at {number} o'clock.")
    await world.followed()
    monkeypatch.setattr("weft.app.search.replica._PATIENCE_SECONDS", -1.0)
    bare = {"recency_weight": 0, "importance_weight": 0}
    found = await world.planner.call("search.query", query="zebra crossing", min_score=1.0, **bare)
    assert (found["fallback"], found["pending"]["partial"]) == ("recency", True)
    events = (await world.admin.events())["events"]
    assert "search.low_relevance" not in [event["type"] for event in events]
    assert world.app.collections._indexes is not None
    await settle(world.app.collections._indexes)
