"""The merge base of two lines, across any branches and merges."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.history.model import (
    EMPTY,
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    CommitRange,
    Point,
    StoredCommit,
    Version,
    blob_hash,
)
from weftline.history.three_way import common_ground, common_past, common_pasts, states_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

pytestmark = pytest.mark.req("CE-F25")

Place = tuple[str, int]


class Base(NamedTuple):
    """The commit from which a line was branched."""

    line_id: str
    seq: int


@dataclass
class Lines:
    """In-memory LineStore with the methods that merging uses."""

    bases: dict[str, Base | None] = field(default_factory=lambda: {"main": None, "alien": None})
    commits: dict[Place, StoredCommit] = field(default_factory=dict)
    clock: int = 0

    def head(self, line_id: str) -> Point:
        base = self.bases[line_id]
        seq = max([base.seq if base else 0, *(number for line, number in self.commits if line == line_id)])
        return self.point(line_id, seq)

    def point(self, line_id: str, seq: int) -> Point:
        found = asyncio.run(self.commit_at(line_id, seq))
        return Point(line_id, seq, found.hash if found else EMPTY)

    def write(self, line_id: str, value: str, merged: Point | None = None, *, takes: int = 0) -> None:
        head = self.head(line_id)
        self.clock += takes
        change = Change("k", 1, 1, ChangeKind.WRITE, blob_hash(value), ChangeMeta())
        commit = Commit(line_id, head.seq + 1, Author("a", "a"), self.clock, "write", None, (change,), merged)
        self.commits[line_id, head.seq + 1] = StoredCommit(commit, blob_hash(f"{line_id} {head.seq + 1}"))

    async def past(self, line_id: str, at: int) -> Sequence[CommitRange]:
        base = self.bases[line_id]
        if base is None:
            return [CommitRange(line_id, 0, at)]
        own = [CommitRange(line_id, base.seq, at)] if at > base.seq else []
        return [*own, *await self.past(base.line_id, min(at, base.seq))]

    async def commit_at(self, line_id: str, seq: int) -> StoredCommit | None:
        if line_id not in self.bases:
            return None
        return self.commits.get(((await self.past(line_id, seq))[0].line_id, seq))

    async def merged_points(self, line_id: str, after: int, upto: int) -> Sequence[Place]:
        furthest: dict[str, int] = {}
        for seq in range(after + 1, upto + 1):
            merged = self.commits[line_id, seq].commit.merged
            there = merged and await self.commit_at(merged.line_id, merged.seq)
            if merged is not None and there is not None and there.hash == merged.hash:
                # Merges are recorded with the line that holds the commit.
                line = (await self.past(merged.line_id, merged.seq))[0].line_id
                furthest[line] = max(furthest.get(line, 0), merged.seq)
        return [*furthest.items()]

    async def state_at(
        self,
        line_id: str,
        seq: int,
        touched: Iterable[CommitRange] | None = None,
        *,
        values: bool = True,  # noqa: ARG002
    ) -> Sequence[Version]:
        found = await self.commit_at(line_id, seq)
        known = touched is None or any(commits.upto > commits.after for commits in touched)
        if found is None or not known:
            return []
        return [Version(found.commit.changes[0], seq, "a", found.commit.committed_at, None)]

    def ancestors(self, point: Place) -> set[Place]:
        """Return a commit and all its ancestors, walking commit by commit."""
        found: set[Place] = set()
        pending = [point]
        while pending:
            line_id, seq = pending.pop()
            base = self.bases[line_id]
            if base is not None and seq <= base.seq:
                pending.append((base.line_id, seq))
            elif seq > 0 and (line_id, seq) not in found:
                found.add((line_id, seq))
                pending.append((line_id, seq - 1))
                merged = self.commits[line_id, seq].commit.merged
                if merged is not None:
                    pending.append((merged.line_id, merged.seq))
        return found

    def best_common(self, one: Point, other: Point) -> set[Place]:
        """Return the common ancestors that are no ancestor of another one."""
        both = self.ancestors((one.line_id, one.seq)) & self.ancestors((other.line_id, other.seq))
        return {point for point in both if not any(point in self.ancestors(m) for m in both - {point})}


def merge_base(lines: Lines, ours: Point, theirs: Point) -> Place | None:
    point = asyncio.run(common_past(lines, ours, theirs))  # type: ignore[arg-type]
    return None if point is None else (point.line_id, point.seq)


# Steps: a line is chosen by number, then written to, branched at some depth, or merged into.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "branch", "merge", "merge"]),
        st.integers(0, 5),
        st.integers(0, 5),
        st.integers(0, 1),
    ),
    max_size=20,
)


def lines_after(steps: list[tuple[str, int, int, int]]) -> Lines:
    lines = Lines()
    for number, (step, one, two, takes) in enumerate(steps):
        known = [line_id for line_id in lines.bases if line_id != "alien"]
        line_id, other = known[one % len(known)], known[two % len(known)]
        if step == "branch":
            seq = max(lines.head(line_id).seq - two, 0)
            origin = asyncio.run(lines.past(line_id, seq))[0].line_id
            lines.bases[f"b{number}"] = Base(origin, seq)
        elif step == "write" or line_id == other:
            lines.write(line_id, f"{number}", takes=takes)
        else:
            lines.write(line_id, f"{number}", lines.head(other), takes=takes)
    return lines


@given(STEPS, st.integers(0, 5), st.integers(0, 5))
def test_the_merge_base_is_a_best_common_ancestor(steps: list[tuple[str, int, int, int]], one: int, two: int) -> None:
    lines = lines_after(steps)
    known = [line_id for line_id in lines.bases if line_id != "alien"]
    ours, theirs = lines.head(known[one % len(known)]), lines.head(known[two % len(known)])
    best = lines.best_common(ours, theirs)
    if best:
        assert merge_base(lines, ours, theirs) in best
    else:
        assert (merge_base(lines, ours, theirs) or ("", 0))[1] == 0


def test_merges_in_both_directions_move_the_merge_base() -> None:
    lines = Lines()
    for number in range(10):
        lines.write("main", f"{number}")
    lines.bases["b"] = Base("main", 5)
    lines.write("b", "merge", lines.head("main"))
    lines.write("main", "merge", lines.head("b"))
    lines.write("b", "more")
    assert merge_base(lines, lines.head("main"), lines.head("b")) == ("b", 6)


def test_a_revert_after_criss_cross_merges_is_kept() -> None:
    lines = Lines()
    lines.write("main", "0")
    for line_id in ("x", "y", "c", "d"):
        lines.bases[line_id] = Base("main", 1)
    lines.write("x", "1")
    lines.write("y", "0", takes=1)
    for line_id in ("c", "d"):
        lines.write(line_id, "1", lines.head("x"))
        lines.write(line_id, "1", lines.head("y"))
    lines.write("d", "0")
    ours, theirs = lines.head("c"), lines.head("d")
    pasts = asyncio.run(common_pasts(lines, ours, theirs))  # type: ignore[arg-type]
    assert {(past.line_id, past.seq) for past in pasts} == {("x", 2), ("y", 2)}
    base = asyncio.run(common_ground(lines, pasts))  # type: ignore[arg-type]
    assert (base.state["k"].change.blob_hash, base.disputed) == (blob_hash("1"), frozenset())


def test_keys_that_differ_between_merge_bases_conflict() -> None:
    lines = Lines()
    lines.write("main", "0")
    for line_id in ("x", "y", "c", "d"):
        lines.bases[line_id] = Base("main", 1)
    lines.write("x", "1")
    lines.write("y", "2")
    for line_id in ("c", "d"):
        lines.write(line_id, "1", lines.head("x"))
        lines.write(line_id, "3", lines.head("y"))
    pasts = asyncio.run(common_pasts(lines, lines.head("c"), lines.head("d")))  # type: ignore[arg-type]
    assert asyncio.run(common_ground(lines, pasts)).disputed == {"k"}  # type: ignore[arg-type]


def test_unrelated_lines_have_no_merge_base() -> None:
    lines = Lines()
    lines.write("main", "1")
    lines.write("alien", "2")
    assert merge_base(lines, lines.head("main"), lines.head("alien")) is None


def test_a_recreated_branch_of_the_same_name_is_no_merge_base() -> None:
    lines = Lines()
    lines.write("main", "1")
    lines.bases["b"] = Base("main", 1)
    lines.write("b", "first")
    lines.write("main", "merge", Point("b", 2, blob_hash("of a branch that is gone")))
    assert merge_base(lines, lines.head("main"), lines.head("b")) == ("main", 1)
    del lines.bases["b"]
    lines.bases["c"] = Base("main", 1)
    assert merge_base(lines, lines.head("main"), lines.head("c")) == ("main", 1)


def test_only_commits_after_the_merge_base_are_loaded() -> None:
    lines = Lines()
    lines.write("main", "1")
    lines.bases["b"] = Base("main", 1)
    same = asyncio.run(states_apart(lines, lines.head("main"), lines.head("b"), values=False))  # type: ignore[arg-type]
    assert same == ({}, {})
    lines.write("b", "2")
    ours, theirs = asyncio.run(states_apart(lines, lines.head("main"), lines.head("b"), values=False))  # type: ignore[arg-type]
    assert (ours["k"].change.blob_hash, theirs["k"].change.blob_hash) == (blob_hash("1"), blob_hash("2"))
