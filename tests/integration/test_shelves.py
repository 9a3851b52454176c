"""Copies of shelves beside the rows they are made of, on both databases, through everything that happens to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest

from support.librarian import ANN, MODEL, OTHER_MODEL, SHELF, Librarian, changed, files_in, opened, settle
from support.shelves import Whoever, check_same
from weft.capabilities.retrieval.view import Wish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from support.world import World


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.app.indexing._ROWS_TO_BUILD", 30)
    monkeypatch.setattr("weft.app.indexing._READ_AT_ONCE", 16)


@pytest.fixture
async def librarian(world: World, tmp_path: Path) -> AsyncIterator[Librarian]:
    async with opened(world, tmp_path / "index") as indexes:
        yield Librarian(world, indexes)


@pytest.mark.req("CE-F38")
async def test_a_shelf_that_nothing_stands_on_is_empty(librarian: Librarian) -> None:
    view = await librarian.check()
    assert (view.size, view.newest(5).tolist(), view.postings("apple").rows.tolist()) == (0, [], [])


@pytest.mark.req("CE-F38")
async def test_what_is_committed_is_seen_at_once_and_what_is_gone_is_not(librarian: Librarian) -> None:
    for count in (1, 3, 40, 2, 100):
        numbers = await librarian.add(count)
        await librarian.check()
        await librarian.remove(numbers[::3])
        await librarian.check()
        await librarian.check(Wish(SHELF, places=frozenset({"place1"}), since=200), Whoever("b"))


async def test_a_view_stays_as_it_was(librarian: Librarian) -> None:
    numbers = await librarian.add(50)
    before, chunks = await librarian.check(), librarian.plain.visible(Wish(SHELF), ANN)
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
        assert view._moment.files, "read from rows instead"


async def test_files_are_few_however_much_comes(librarian: Librarian, tmp_path: Path) -> None:
    most = 0
    for _ in range(20):
        await librarian.add(33)
        await librarian.check()
        await settle(librarian.indexes)
        most = max(most, len(files_in(tmp_path / "index")))
    assert most <= 5
    await librarian.check()


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
    await asyncio.gather(librarian.check(), librarian.check(Wish(SHELF, items=frozenset({"1"}))), librarian.check())
    await librarian.remove(numbers)
    await asyncio.gather(*(librarian.check() for _ in range(4)))


async def test_a_shelf_that_is_put_up_again_has_nothing_of_the_old_one(librarian: Librarian, tmp_path: Path) -> None:
    await librarian.add(70)
    await librarian.check()
    await settle(librarian.indexes)
    await librarian.change(lambda store: store.remove_shelf(SHELF))
    librarian.plain.chunks.clear()
    await librarian.add(75)
    await librarian.check()
    await librarian.change(lambda store: store.remove_shelf(SHELF))
    librarian.plain.chunks.clear()
    await librarian.check()
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
        assert await librarian.change(lambda store, given=vectors: store.add_vectors(SHELF, OTHER_MODEL, given)) == len(
            part
        )
        for number, vector in vectors.items():
            librarian.plain.chunks[number] = changed(old[number], vector=vector)
        await librarian.check(model=OTHER_MODEL)
    librarian.plain.chunks = old
    await librarian.check()


async def test_files_of_shelves_that_are_gone_are_swept_away(world: World) -> None:
    folder = world.settings.index_folder
    async with opened(world, folder) as indexes:
        librarian = Librarian(world, indexes)
        await librarian.add(60)
        await librarian.check()
        await settle(indexes)
        assert files_in(folder)
        await world.app.shelves.sweep()
        assert files_in(folder)
        await librarian.change(lambda store: store.remove_shelf(SHELF))
        await world.app.shelves.sweep()
        assert not files_in(folder)


async def test_copies_that_take_much_memory_are_let_go(
    world: World, librarian: Librarian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.app.indexing._MOST_BYTES_IN_MEMORY", 1)
    await librarian.add(20)
    await librarian.check()
    await librarian.indexes.open(world.tenant, Wish("sessions"), ANN, MODEL)
    assert [name.shelf for name in librarian.indexes._copies] == ["sessions"]
    await librarian.check()


async def test_a_copy_that_is_far_behind_keeps_nobody_waiting(
    librarian: Librarian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.app.indexing._PATIENCE_SECONDS", -1.0)
    await librarian.add(200)
    view = await librarian.indexes.open(librarian._world.tenant, Wish(SHELF), ANN, MODEL)
    assert view.size < len(librarian.plain.visible(Wish(SHELF), ANN))
    assert view.behind > 0
    await settle(librarian.indexes)
    assert (await librarian.check()).behind == 0
