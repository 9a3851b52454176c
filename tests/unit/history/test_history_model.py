"""Commit hashes, tag seals, line ids, version conflicts and pruning intervals."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from msgspec import structs

from weftline.history.model import (
    EMPTY,
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    CommitRange,
    Point,
    Tag,
    blob_hash,
    branch_of,
    line_name,
    prune_due,
    shared_commits,
    trunk_of,
    version_conflict,
)

pytestmark = pytest.mark.req("SC-08")

META = ChangeMeta(tokens=3, expires_at=9, readable_by=("human:*",), size=4, metadata_hash="ab", media_type="text/plain")
WRITTEN = Change("a", 1, 2, ChangeKind.WRITE, blob_hash("one"), META)
MERGED = Point("board:s@b", 3, b"3" * 32)
COMMIT = Commit("board:s", 5, Author("orchestrator", "planner"), 77, "write", "draft", (WRITTEN,), MERGED, b"s" * 16)
PARENTS = (b"1" * 32, MERGED.hash)
IDENTITY = COMMIT.hash_after(*PARENTS, weight=10)
OLD_HASH = "33f396091135f19c5dbf7453983e9882f694ba8a1c2024846487c7d26630803e"
TAG = Tag("mark", 5, "orchestrator", 77)


def changed(**fields: Any) -> Commit:
    return structs.replace(COMMIT, changes=(structs.replace(WRITTEN, **fields),))


@pytest.mark.req("CE-F20")
@pytest.mark.parametrize(
    "other",
    [
        structs.replace(COMMIT, author=Author("human:ann", "planner")),
        structs.replace(COMMIT, author=Author("orchestrator", "ann")),
        structs.replace(COMMIT, committed_at=78),
        structs.replace(COMMIT, reason="writes"),
        structs.replace(COMMIT, step=None),
        structs.replace(COMMIT, changes=()),
        structs.replace(COMMIT, changes=(WRITTEN, structs.replace(WRITTEN, key="b"))),
        structs.replace(COMMIT, merged=None),
        structs.replace(COMMIT, merged=structs.replace(MERGED, line_id="board:s@c")),
        structs.replace(COMMIT, merged=structs.replace(MERGED, seq=4)),
        structs.replace(COMMIT, salt=b"t" * 16),
        structs.replace(COMMIT, salt=None),
        changed(key="b"),
        changed(incarnation=2),
        changed(version=3),
        changed(act=ChangeKind.EXPIRE),
        changed(blob_hash=blob_hash("two")),
        changed(blob_hash=None),
        *(
            changed(meta=structs.replace(META, **{field: value}))
            for field, value in {
                "tokens": 4,
                "expires_at": None,
                "readable_by": None,
                "writable_by": (),
                "size": 5,
                "metadata_hash": None,
                "outside": True,
                "media_type": None,
            }.items()
        ),
    ],
)
def test_a_hash_covers_every_field_of_a_commit(other: Commit) -> None:
    assert other.hash_after(*PARENTS, weight=10) != IDENTITY


@pytest.mark.req("CE-F20")
@pytest.mark.parametrize("parents", [(), (PARENTS[0],), (EMPTY, PARENTS[1]), (PARENTS[0], EMPTY), PARENTS[::-1]])
def test_a_hash_covers_the_parent(parents: tuple[bytes, ...]) -> None:
    assert COMMIT.hash_after(*parents, weight=10) != IDENTITY


@pytest.mark.req("CE-F20")
def test_values_are_hashed_with_sha_256() -> None:
    assert blob_hash("one") == hashlib.sha256(b"one").digest()
    assert len(IDENTITY) == hashlib.sha256().digest_size


def test_a_hash_covers_the_size_of_the_line() -> None:
    assert len({IDENTITY, COMMIT.hash_after(*PARENTS, weight=11), COMMIT.hash_after(*PARENTS)}) == 3


def test_every_new_commit_has_a_salt_of_its_own() -> None:
    fields = ("board:s", 5, Author("orchestrator", "planner"), 77, "write", None, (WRITTEN,))
    assert Commit(*fields).salt != Commit(*fields).salt


def test_commits_without_salt_have_the_hashes_that_earlier_versions_gave_them() -> None:
    old = structs.replace(COMMIT, salt=None)
    assert old.hash_after(*PARENTS, weight=10).hex() == OLD_HASH


def test_a_hash_does_not_depend_on_the_line_or_on_the_order_of_changes() -> None:
    other = structs.replace(WRITTEN, key="b")
    one = structs.replace(COMMIT, changes=(WRITTEN, other))
    two = structs.replace(COMMIT, changes=(other, WRITTEN), line_id="board:t", seq=6)
    assert one.hash_after(EMPTY) == two.hash_after(EMPTY)


@pytest.mark.parametrize(
    "other",
    [
        structs.replace(TAG, **{field: value})
        for field, value in {
            "label": "mark2",
            "seq": 6,
            "created_by": "human:ann",
            "created_at": 78,
            "automatic": True,
        }.items()
    ],
)
def test_a_seal_covers_every_field_of_a_tag(other: Tag) -> None:
    assert other.seal(IDENTITY) != TAG.seal(IDENTITY)
    assert TAG.seal(EMPTY) != TAG.seal(IDENTITY)


@pytest.mark.parametrize(
    ("line_id", "trunk", "branch"),
    [("board:s", "board:s", None), ("board:s@b", "board:s", "b"), ("context:a:t@x-1", "context:a:t", "x-1")],
)
def test_a_line_id_is_a_trunk_with_an_optional_branch(line_id: str, trunk: str, branch: str | None) -> None:
    assert (trunk_of(line_id), branch_of(line_id), line_name(trunk, branch)) == (trunk, branch, line_id)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected_range"),
    [
        (["main:0-9"], ["main:0-7"], "main:0-7"),
        (["b:5-8", "main:0-5"], ["main:0-9"], "main:0-5"),
        (["b:5-8", "main:0-5"], ["c:3-4", "main:0-3"], "main:0-3"),
        (["b:5-8", "main:0-5"], ["b:5-6", "main:0-5"], "b:5-6"),
        (["d:8-9", "b:5-8", "main:0-5"], ["e:6-7", "b:5-6", "main:0-5"], "b:5-6"),
        (["main:0-3"], ["other:0-3"], None),
    ],
)
def test_shared_commits_are_the_last_common_range_of_two_histories(
    ours: list[str], theirs: list[str], expected_range: str | None
) -> None:
    def commit_range(text: str) -> CommitRange:
        line_id, _, numbers = text.partition(":")
        after, upto = map(int, numbers.split("-"))
        return CommitRange(line_id, after, upto)

    one, other = [*map(commit_range, ours)], [*map(commit_range, theirs)]
    expected = None if expected_range is None else commit_range(expected_range)
    assert shared_commits(one, other) == expected
    assert shared_commits(other, one) == expected


@pytest.mark.parametrize("current", [0, 2])
def test_a_version_conflict_names_both_versions_and_who_changed_it(current: int) -> None:
    error = version_conflict("a", current, 3, changed_by="orchestrator:planner")
    assert error.context["current_version"] == current
    assert error.context["expected_version"] == 3
    assert error.context["changed_by"] == "orchestrator:planner"


@pytest.mark.req("SC-12")
def test_pruning_is_due_every_few_versions() -> None:
    assert [version for version in range(1, 40) if prune_due(version, 10)] == [16, 24, 32]
