"""What a view of a collection's copy tells, beside what looking through all chunks tells."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st

from support.collection_model import DIMENSIONS, CollectionModel, NamedCaller, check_nearest, check_view, random_chunk
from support.full_run import examples
from weft.capabilities.search.index_view import CollectionQuery, IncompleteItem
from weft.search_index.segment_store import SegmentStore
from weft.search_index.snapshot import IndexSnapshot, intact_view, merge_live_rows
from weft.search_index.view import CollectionView

WISHES = (
    CollectionQuery("s"),
    CollectionQuery("s", places=frozenset({"place0", "elsewhere"})),
    CollectionQuery("s", places=frozenset()),
    CollectionQuery("s", items=frozenset({"1", "2"}), sources=frozenset({"document", "memory"})),
    CollectionQuery("s", since=300, until=800),
    CollectionQuery("s", unfinished=frozenset({IncompleteItem("place1", "3", 1), IncompleteItem("place0", "9", 1)})),
    CollectionQuery("s", since=100, without=frozenset({1, 2, 5, 9})),
)
BIRTH = 1
CALLERS = (NamedCaller(), NamedCaller("a"), NamedCaller("b", "x"))


class ReplicaOfACollection(stateful.RuleBasedStateMachine):
    """A copy goes through what a collection goes through, and is looked at by everyone in every way."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = CollectionModel()
        self.snapshot = IndexSnapshot()
        self.number = 0
        self.removals: list[tuple[int, int]] = []
        self.folder = SegmentStore(Path(tempfile.mkdtemp(prefix="weft-index-")))
        self.earlier = [(self.snapshot, dict(self.plain.chunks))]

    @stateful.rule(chance=st.integers(0, 2**32), count=st.integers(1, 12))
    def add(self, chance: int, count: int) -> None:
        random = np.random.default_rng(chance)
        new = [random_chunk(random, self.number + place + 1) for place in range(count)]
        self.number += count
        self.plain.chunks |= {chunk.number: chunk for chunk in new}
        self.snapshot = self.snapshot.advanced_to(self.number, new, [])

    @stateful.rule(picked=st.lists(st.integers(1, 60), max_size=8))
    def remove(self, picked: list[int]) -> None:
        self.number += 1
        self.removals += [(self.number, number) for number in picked]
        for number in picked:
            self.plain.chunks.pop(number, None)
        self.snapshot = self.snapshot.advanced_to(self.number, [], picked)

    @stateful.rule(chance=st.integers(0, 2**32))
    def come_again(self, chance: int) -> None:
        """Let chunks that are known come again, as they do when they get vectors of a further model."""
        random = np.random.default_rng(chance)
        again = [random_chunk(random, number) for number in sorted(self.plain.chunks)[::5]]
        self.number += 1
        self.plain.chunks |= {chunk.number: chunk for chunk in again}
        self.snapshot = self.snapshot.advanced_to(self.number, again, [])

    @stateful.rule()
    def join(self) -> None:
        if self.snapshot.parts and not self.snapshot.files:
            self.snapshot = IndexSnapshot(self.number, (intact_view(merge_live_rows(self.snapshot.parts)),))

    @stateful.rule()
    def write(self) -> None:
        built = self.folder.build(BIRTH, self.snapshot)
        assert built is not None
        assert built.in_memory == 0
        self.snapshot = built

    @stateful.rule()
    def write_and_restart(self) -> None:
        """Go on from files alone, making up for what was removed after the oldest of them was written."""
        self.write()
        loaded = self.folder.load(IndexSnapshot())
        assert loaded is not None
        behind = [removed for number, removed in self.removals if number > loaded.as_of]
        self.snapshot = loaded.snapshot.advanced_to(loaded.snapshot.number, [], behind)

    @stateful.rule()
    def keep(self) -> None:
        self.earlier.append((self.snapshot, dict(self.plain.chunks)))

    @stateful.invariant()
    def the_view_tells_what_is_there(self) -> None:
        for wish in WISHES:
            for caller in CALLERS:
                view = CollectionView("s", self.snapshot, wish, caller)
                check_view(view, self.plain.visible(wish, caller))

    @stateful.invariant()
    def the_nearest_are_the_nearest(self) -> None:
        question = np.random.default_rng(self.number).standard_normal(DIMENSIONS).astype(np.float32)
        question /= np.linalg.norm(question)
        for wish in WISHES:
            view = CollectionView("s", self.snapshot, wish, CALLERS[1])
            asyncio.run(check_nearest(view, self.plain.visible(wish, CALLERS[1]), question))

    def teardown(self) -> None:
        self.folder.clear()
        self.see_earlier_moments()

    def see_earlier_moments(self) -> None:
        """Whoever still looks at an earlier snapshot sees that snapshot."""
        for snapshot, chunks in self.earlier:
            view = CollectionView("s", snapshot, WISHES[0], CALLERS[1])
            check_view(view, CollectionModel(chunks).visible(WISHES[0], CALLERS[1]))


ReplicaOfACollection.TestCase.settings = settings(max_examples=examples(20), stateful_step_count=12, deadline=None)


@pytest.mark.req("CE-F42")
class TestReplicaOfACollection(ReplicaOfACollection.TestCase):
    pass


def test_a_rewritten_chunk_is_indexed_once_after_a_restart(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    folder, plain = SegmentStore(tmp_path), CollectionModel()
    first = [random_chunk(random, number) for number in range(1, 41)]
    again = [random_chunk(random, number) for number in (3, 17, 40)]
    plain.chunks = {chunk.number: chunk for chunk in [*first, *again]}
    built = folder.build(BIRTH, IndexSnapshot().advanced_to(40, first, []))
    assert built is not None
    built = folder.build(BIRTH, built.advanced_to(41, again, []))
    assert built is not None
    assert len(built.files) == 2
    loaded = SegmentStore(tmp_path).load(IndexSnapshot())
    assert loaded is not None
    for snapshot in (built, loaded.snapshot):
        check_view(CollectionView("s", snapshot, WISHES[0], CALLERS[1]), plain.visible(WISHES[0], CALLERS[1]))


def test_one_process_writes_segments_at_a_time(tmp_path: Path) -> None:
    random = np.random.default_rng(12)
    ours, theirs = SegmentStore(tmp_path), SegmentStore(tmp_path)
    snapshot = IndexSnapshot().advanced_to(3, [random_chunk(random, number) for number in (1, 2, 3)], [])
    with theirs._locked() as is_theirs:
        assert is_theirs
        assert ours.build(BIRTH, snapshot) is None
    assert theirs.build(BIRTH, snapshot) is not None
    # What is there now is not what ours goes on from.
    assert ours.build(BIRTH, snapshot) is None
    assert not ours.is_current(BIRTH, snapshot)
    loaded = ours.load(IndexSnapshot())
    assert loaded is not None
    assert (loaded.generation, loaded.snapshot.number, loaded.snapshot.size) == (BIRTH, 3, 3)


def test_unusable_files_are_deleted_but_not_their_replacements(tmp_path: Path) -> None:
    random = np.random.default_rng(13)
    folder = SegmentStore(tmp_path)
    snapshot = IndexSnapshot().advanced_to(3, [random_chunk(random, number) for number in (1, 2, 3)], [])
    assert folder.build(BIRTH, snapshot) is not None
    folder.drop(BIRTH + 1, 3)
    folder.drop(BIRTH, 2)
    assert folder.load(IndexSnapshot()) is not None
    folder.drop(BIRTH, 3)
    assert folder.load(IndexSnapshot()) is None
    assert not [*tmp_path.glob("*.seg")]
