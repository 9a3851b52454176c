"""Views of a collection's replica, compared with a reference model."""

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
from weftline.search.model import CollectionQuery, IncompleteItem
from weftline.search_index.segment_store import SegmentStore
from weftline.search_index.snapshot import IndexSnapshot, intact_view, merge_live_rows
from weftline.search_index.view import CollectionView

QUERIES = (
    CollectionQuery("s"),
    CollectionQuery("s", places=frozenset({"place0", "elsewhere"})),
    CollectionQuery("s", places=frozenset()),
    CollectionQuery("s", items=frozenset({"1", "2"}), sources=frozenset({"document", "memory"})),
    CollectionQuery("s", since=300, until=800),
    CollectionQuery("s", entities=frozenset({":ann"})),
    CollectionQuery("s", since=300, entities=frozenset({"person:ann", ":a.py"})),
    CollectionQuery("s", entities=frozenset({"person:nobody"})),
    CollectionQuery("s", unfinished=frozenset({IncompleteItem("place1", "3", 1), IncompleteItem("place0", "9", 1)})),
    CollectionQuery("s", since=100, without=frozenset({1, 2, 5, 9})),
)
GENERATION = 1
CALLERS = (NamedCaller(), NamedCaller("a"), NamedCaller("b", "x"))


class ReplicaMachine(stateful.RuleBasedStateMachine):
    """Random changes of a replica, compared with the model for every caller and query."""

    def __init__(self) -> None:
        super().__init__()
        self.model = CollectionModel()
        self.snapshot = IndexSnapshot()
        self.number = 0
        self.removals: list[tuple[int, int]] = []
        self.folder = SegmentStore(Path(tempfile.mkdtemp(prefix="weftline-index-")))
        self.earlier = [(self.snapshot, dict(self.model.chunks))]

    @stateful.rule(chance=st.integers(0, 2**32), count=st.integers(1, 12))
    def add(self, chance: int, count: int) -> None:
        random = np.random.default_rng(chance)
        new = [random_chunk(random, self.number + place + 1) for place in range(count)]
        self.number += count
        self.model.chunks |= {chunk.number: chunk for chunk in new}
        self.snapshot = self.snapshot.advanced_to(self.number, new, [])

    @stateful.rule(picked=st.lists(st.integers(1, 60), max_size=8))
    def remove(self, picked: list[int]) -> None:
        self.number += 1
        self.removals += [(self.number, number) for number in picked]
        for number in picked:
            self.model.chunks.pop(number, None)
        self.snapshot = self.snapshot.advanced_to(self.number, [], picked)

    @stateful.rule(chance=st.integers(0, 2**32))
    def reindex(self, chance: int) -> None:
        """Index known chunks again, as when they get vectors of another model."""
        random = np.random.default_rng(chance)
        again = [random_chunk(random, number) for number in sorted(self.model.chunks)[::5]]
        self.number += 1
        self.model.chunks |= {chunk.number: chunk for chunk in again}
        self.snapshot = self.snapshot.advanced_to(self.number, again, [])

    @stateful.rule()
    def merge_segments(self) -> None:
        if self.snapshot.parts and not self.snapshot.files:
            self.snapshot = IndexSnapshot(self.number, (intact_view(merge_live_rows(self.snapshot.parts)),))

    @stateful.rule()
    def write(self) -> None:
        built = self.folder.build(GENERATION, self.snapshot)
        assert built is not None
        assert built.in_memory == 0
        self.snapshot = built

    @stateful.rule()
    def write_and_restart(self) -> None:
        """Load the snapshot from files, and apply the removals since the oldest file."""
        self.write()
        loaded = self.folder.load(IndexSnapshot())
        assert loaded is not None
        removed_since = [removed for number, removed in self.removals if number > loaded.as_of]
        self.snapshot = loaded.snapshot.advanced_to(loaded.snapshot.number, [], removed_since)

    @stateful.rule()
    def keep_snapshot(self) -> None:
        self.earlier.append((self.snapshot, dict(self.model.chunks)))

    @stateful.invariant()
    def the_view_matches_the_model(self) -> None:
        for query in QUERIES:
            for caller in CALLERS:
                view = CollectionView("s", self.snapshot, query, caller)
                check_view(view, self.model.visible(query, caller))

    @stateful.invariant()
    def nearest_rows_match_exact_search(self) -> None:
        question = np.random.default_rng(self.number).standard_normal(DIMENSIONS).astype(np.float32)
        question /= np.linalg.norm(question)
        for query in QUERIES:
            view = CollectionView("s", self.snapshot, query, CALLERS[1])
            asyncio.run(check_nearest(view, self.model.visible(query, CALLERS[1]), question))

    def teardown(self) -> None:
        self.folder.clear()
        self.check_earlier_snapshots()

    def check_earlier_snapshots(self) -> None:
        """Readers of an earlier snapshot see that snapshot."""
        for snapshot, chunks in self.earlier:
            view = CollectionView("s", snapshot, QUERIES[0], CALLERS[1])
            check_view(view, CollectionModel(chunks).visible(QUERIES[0], CALLERS[1]))


ReplicaMachine.TestCase.settings = settings(max_examples=examples(20), stateful_step_count=12, deadline=None)


@pytest.mark.req("CE-F42")
class TestReplica(ReplicaMachine.TestCase):
    pass


def test_a_rewritten_chunk_is_indexed_once_after_a_restart(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    folder, model = SegmentStore(tmp_path), CollectionModel()
    first = [random_chunk(random, number) for number in range(1, 41)]
    again = [random_chunk(random, number) for number in (3, 17, 40)]
    model.chunks = {chunk.number: chunk for chunk in [*first, *again]}
    built = folder.build(GENERATION, IndexSnapshot().advanced_to(40, first, []))
    assert built is not None
    built = folder.build(GENERATION, built.advanced_to(41, again, []))
    assert built is not None
    assert len(built.files) == 2
    loaded = SegmentStore(tmp_path).load(IndexSnapshot())
    assert loaded is not None
    for snapshot in (built, loaded.snapshot):
        check_view(CollectionView("s", snapshot, QUERIES[0], CALLERS[1]), model.visible(QUERIES[0], CALLERS[1]))


def test_one_process_writes_segments_at_a_time(tmp_path: Path) -> None:
    random = np.random.default_rng(12)
    ours, theirs = SegmentStore(tmp_path), SegmentStore(tmp_path)
    snapshot = IndexSnapshot().advanced_to(3, [random_chunk(random, number) for number in (1, 2, 3)], [])
    with theirs._locked() as is_theirs:
        assert is_theirs
        assert ours.build(GENERATION, snapshot) is None
    assert theirs.build(GENERATION, snapshot) is not None
    # The segments on disk are not the ones that `ours` has loaded.
    assert ours.build(GENERATION, snapshot) is None
    assert not ours.is_current(GENERATION, snapshot)
    loaded = ours.load(IndexSnapshot())
    assert loaded is not None
    assert (loaded.generation, loaded.snapshot.number, loaded.snapshot.size) == (GENERATION, 3, 3)


def test_unusable_files_are_deleted_but_not_their_replacements(tmp_path: Path) -> None:
    random = np.random.default_rng(13)
    folder = SegmentStore(tmp_path)
    snapshot = IndexSnapshot().advanced_to(3, [random_chunk(random, number) for number in (1, 2, 3)], [])
    assert folder.build(GENERATION, snapshot) is not None
    folder.drop(GENERATION + 1, 3)
    folder.drop(GENERATION, 2)
    assert folder.load(IndexSnapshot()) is not None
    folder.drop(GENERATION, 3)
    assert folder.load(IndexSnapshot()) is None
    assert not [*tmp_path.glob("*.seg")]
