"""Three-way merge of states, with the rules of git for files."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from weftline.history.model import Change, ChangeKind, ChangeMeta, Version, blob_hash
from weftline.history.three_way import same_content, three_way

if TYPE_CHECKING:
    from pathlib import Path

    from weftline.history.three_way import State

pytestmark = pytest.mark.req("CE-F25")

KEYS = ["a", "b", "c", "d"]
STATES = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["one", "two", "three"]))
TRIPLES = st.lists(st.tuples(STATES, STATES, STATES), min_size=12, max_size=12)


def version(key: str, value: str) -> Version:
    return Version(Change(key, 1, 1, ChangeKind.WRITE, blob_hash(value), ChangeMeta()), 1, "planner", 1, value)


def state(values: dict[str, str]) -> State:
    return {key: version(key, value) for key, value in values.items()}


def merged(base: dict[str, str], ours: dict[str, str], theirs: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return our state after the merge, and the keys in conflict."""
    result = three_way(state(base), state(ours), state(theirs))
    values: dict[str, str | None] = {**ours, **{key: taken and taken.value for key, taken in result.taken.items()}}
    return {key: value for key, value in values.items() if value is not None}, [c.key for c in result.conflicts]


@given(STATES, STATES, STATES)
def test_merging_is_symmetric(base: dict[str, str], ours: dict[str, str], theirs: dict[str, str]) -> None:
    forth, conflicts = merged(base, ours, theirs)
    back, same_conflicts = merged(base, theirs, ours)
    assert conflicts == same_conflicts
    resolved = set(KEYS) - set(conflicts)
    assert {k: forth.get(k) for k in resolved} == {k: back.get(k) for k in resolved}
    assert {k: forth.get(k) for k in conflicts} == {k: ours.get(k) for k in conflicts}


@given(STATES, STATES)
def test_a_change_of_one_side_never_conflicts(base: dict[str, str], changed: dict[str, str]) -> None:
    assert merged(base, base, changed) == (changed, [])
    assert merged(base, changed, base) == (changed, [])
    assert merged(base, changed, changed) == (changed, [])


@given(STATES, STATES, STATES)
def test_merging_again_changes_nothing(base: dict[str, str], ours: dict[str, str], theirs: dict[str, str]) -> None:
    after, conflicts = merged(base, ours, theirs)
    again = three_way(state(theirs), state(after), state(theirs))
    assert (again.taken, again.conflicts) == ({}, [])
    if not conflicts:
        assert merged(theirs, theirs, after) == (after, [])


@given(STATES, STATES, STATES)
def test_a_conflict_shows_all_three_sides(base: dict[str, str], ours: dict[str, str], theirs: dict[str, str]) -> None:
    for conflict in three_way(state(base), state(ours), state(theirs)).conflicts:
        sides = [side and side.value for side in (conflict.base, conflict.ours, conflict.theirs)]
        assert sides == [values.get(conflict.key) for values in (base, ours, theirs)]
        assert len(set(sides)) == 3


@pytest.mark.parametrize(
    ("meta", "same"),
    [
        (ChangeMeta(readable_by=("human:*",)), False),
        (ChangeMeta(writable_by=("human:*",)), False),
        (ChangeMeta(expires_at=5), False),
        (ChangeMeta(metadata_hash="ab"), False),
        (ChangeMeta(tokens=7), True),
    ],
)
def test_versions_are_equal_with_equal_values_and_acls(
    meta: ChangeMeta,
    same: bool,  # noqa: FBT001 - a column of the table
) -> None:
    one = version("a", "one")
    other = structs.replace(
        one, change=structs.replace(one.change, meta=meta, version=9, incarnation=2), seq=9, author="x"
    )
    assert same_content(one, other) is same
    assert not same_content(one, None)
    assert same_content(None, None)


class Git:
    """Merges states as git trees, with git."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self("init", "--quiet")
        names = {"one": "1", "two": "2", "three": "3"}
        self._blobs = {v: self("hash-object", "-w", "--stdin", stdin=v) for v in names}

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self._folder, input=stdin, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def tree(self, values: dict[str, str]) -> str:
        lines = [f"100644 blob {self._blobs[value]}\t{key}\n" for key, value in sorted(values.items())]
        return self("mktree", stdin="".join(lines))

    def merged(self, *states: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        """Return the merged values and the keys in conflict."""
        self("read-tree", "--empty")
        self("read-tree", "-i", "-m", "--aggressive", *map(self.tree, states))
        values_by_blob = {blob: value for value, blob in self._blobs.items()}
        resolved, conflicts = {}, set()
        for line in self("ls-files", "--stage").splitlines():
            fields, _, key = line.partition("\t")
            _, blob, stage = fields.split()
            if stage == "0":
                resolved[key] = values_by_blob[blob]
            else:
                conflicts.add(key)
        return resolved, sorted(conflicts)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_merging_matches_git(tmp_path: Path) -> None:
    git = Git(tmp_path)

    @settings(max_examples=12, deadline=None, database=None)
    @given(STATES, STATES, STATES)
    def check(base: dict[str, str], ours: dict[str, str], theirs: dict[str, str]) -> None:
        values, conflicts = merged(base, ours, theirs)
        resolved = {key: value for key, value in values.items() if key not in conflicts}
        assert (resolved, conflicts) == git.merged(base, ours, theirs)

    check()
