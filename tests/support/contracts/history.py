"""Contract of LineStore: a single line."""

from __future__ import annotations

import random

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.history.model import (
    EMPTY,
    LATEST,
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    CommitRange,
    Head,
    Line,
    Point,
    Tag,
    Version,
    blob_hash,
)
from weftline.history.store import ChangeRef

LINE = "context:planner"
AUTHOR = Author("orchestrator", "planner")


def written(key: str, value: str, version: int = 1, incarnation: int = 1) -> Change:
    meta = ChangeMeta(tokens=len(value), readable_by=("subagent:*",))
    return Change(key, incarnation, version, ChangeKind.WRITE, blob_hash(value), meta)


def deleted(key: str, version: int, incarnation: int = 1) -> Change:
    return Change(key, incarnation, version, ChangeKind.DELETE, None, ChangeMeta())


async def commit(
    stores: ContractStores,
    *changes: Change,
    values: tuple[str, ...] = (),
    line: str = LINE,
    merged: Point | None = None,
    step: str | None = None,
) -> Head:
    """Append one commit with these changes, keeping the values they name."""
    for value in values:
        await stores.lines.put_blob(blob_hash(value), value)
    head = await stores.lines.lock(line)
    if head is None:
        await stores.lines.create(line)
        head = Head.of_new_line(line)
    made = Commit(line, head.seq + 1, AUTHOR, 1000 + head.seq, "write", step, changes, merged)
    return await stores.lines.append(head, made, weight=head.weight + 1, next_expiry_at=None)


async def write(stores: ContractStores, key: str, value: str, version: int = 1, *, line: str = LINE) -> Head:
    """Append a commit that writes one value."""
    return await commit(stores, written(key, value, version), values=(value,), line=line)


async def state(
    stores: ContractStores, seq: int, line: str = LINE, touched: list[CommitRange] | None = None
) -> dict[str, str]:
    return {found.change.key: value_of(found) for found in await stores.lines.state_at(line, seq, touched)}


def value_of(version: Version) -> str:
    assert version.value is not None
    return version.value


class LineStoreContract:
    """A line grows by commits, and its state at any version can be read."""

    async def test_a_line_begins_empty_and_its_head_moves_with_each_commit(self, stores: ContractStores) -> None:
        assert await stores.lines.lock(LINE) is None
        await stores.lines.create(LINE)
        assert await stores.lines.lock(LINE) == Head(LINE, 0, EMPTY, 0, None)
        head = await commit(stores, written("a", "1"), values=("1",))
        assert (head.seq, head.weight) == (1, 1)
        assert await stores.lines.lock(LINE) == head

    async def test_appending_in_bulk_equals_appending_one_by_one(self, stores: ContractStores) -> None:
        values = ("a", "b", "a")
        changes = [(written("k", "a"), written("l", "a")), (written("k", "b", 2),), (), (deleted("k", 2),)]
        commits = [
            Commit(LINE, seq, AUTHOR, seq, "write", "plan" if seq == 2 else None, tuple(made))
            for seq, made in enumerate(changes, 1)
        ]
        await stores.lines.create(LINE)
        await stores.lines.put_blobs({blob_hash(value): value for value in values})
        head = Head.of_new_line(LINE)
        for _ in range(2):
            head = await stores.lines.append_all(head, [(made, made.seq) for made in commits[head.seq : head.seq + 2]])
        one_by_one = Head.of_new_line("context:other")
        await stores.lines.create("context:other")
        for made in commits:
            other = structs.replace(made, line_id="context:other")
            one_by_one = await stores.lines.append(one_by_one, other, weight=made.seq, next_expiry_at=None)
        assert head == structs.replace(one_by_one, line_id=LINE) == await stores.lines.lock(LINE)
        assert (head.step, head.weight) == ("plan", 4)
        assert await state(stores, LATEST) == {"l": "a"}
        assert await stores.lines.verify(LINE) is None

    async def test_the_next_expiry_can_be_set_without_a_commit(self, stores: ContractStores) -> None:
        head = await commit(stores, written("a", "1"), values=("1",))
        await stores.lines.set_next_expiry(LINE, 77)
        assert await stores.lines.lock(LINE) == Head(LINE, head.seq, head.hash, head.weight, 77)
        await stores.lines.set_next_expiry(LINE, None)
        assert await stores.lines.lock(LINE) == head

    async def test_versions_of_one_incarnation_come_newest_first_with_values(self, stores: ContractStores) -> None:
        await commit(stores, written("a", "1"), values=("1",))
        await commit(stores, written("a", "2", 2), values=("2",))
        await commit(stores, deleted("a", 2))
        await commit(stores, written("a", "3", 1, 2), values=("3",))
        first = await stores.lines.versions(LINE, "a", 1, 10)
        assert [(v.change.act, v.change.version, v.value, v.seq) for v in first] == [
            (ChangeKind.DELETE, 2, None, 3),
            (ChangeKind.WRITE, 2, "2", 2),
            (ChangeKind.WRITE, 1, "1", 1),
        ]
        assert (first[0].author, first[0].committed_at) == ("orchestrator", 1002)
        assert first[1].change.meta == ChangeMeta(tokens=1, readable_by=("subagent:*",))
        assert [v.value for v in await stores.lines.versions(LINE, "a", 2, 10)] == ["3"]
        assert len(await stores.lines.versions(LINE, "a", 1, 2)) == 2

    async def test_changes_are_read_in_order_a_few_whole_commits_at_a_time(self, stores: ContractStores) -> None:
        await commit(stores, written("a", "1"), values=("1",))
        await commit(stores, written("a", "2", 2), written("b", "1"), written("c", "1"), values=("2",))
        await commit(stores)
        await commit(stores, deleted("a", 2))
        await commit(stores, written("other", "1"), line="context:other")
        pages = [await stores.lines.changes_after(LINE, after, 2) for after in (0, 2, 4)]
        changes = [[(v.seq, v.change.key, v.value) for v in sorted(page, key=lambda v: v.change.key)] for page in pages]
        assert sorted(changes[0]) == [(1, "a", "1"), (2, "a", "2"), (2, "b", "1"), (2, "c", "1")]
        assert changes[1:] == [[(4, "a", None)], []]
        assert [v.seq for v in pages[0]] == [1, 2, 2, 2]

    async def test_the_latest_incarnation_of_a_key_is_found(self, stores: ContractStores) -> None:
        assert await stores.lines.last_number(LINE, "a") == (0, 0)
        await commit(stores, written("a", "1"), values=("1",))
        await commit(stores, deleted("a", 1))
        assert await stores.lines.last_number(LINE, "a") == (1, 1)

    async def test_the_state_at_any_commit_can_be_read(self, stores: ContractStores) -> None:
        await commit(stores, written("a", "1"), values=("1",))
        await commit(stores, written("a", "2", 2), written("b", "1"), values=("2",))
        await commit(stores, deleted("a", 2))
        states = [
            {version.change.key: version.value for version in await stores.lines.state_at(LINE, seq)}
            for seq in range(4)
        ]
        assert states == [{}, {"a": "1"}, {"a": "2", "b": "1"}, {"b": "1"}]

    async def test_pruning_removes_values_but_not_versions(self, stores: ContractStores) -> None:
        for number in range(1, 5):
            await commit(stores, written("a", f"{number}", number), values=(f"{number}",))
        await stores.lines.tag(LINE, Tag("mark", 2, "orchestrator", 1))
        await stores.lines.prune(LINE, "a", keep=1)
        assert [v.value for v in await stores.lines.versions(LINE, "a", 1, 10)] == ["4", None, "2", None]
        assert await stores.lines.verify(LINE) is None

    async def test_a_label_is_taken_once(self, stores: ContractStores) -> None:
        await commit(stores, written("a", "1"), values=("1",))
        first, second = Tag("z", 1, "orchestrator", 1), Tag("a", 1, "orchestrator", 2)
        assert await stores.lines.tag(LINE, first)
        assert await stores.lines.tag(LINE, second)
        assert not await stores.lines.tag(LINE, Tag("z", 1, "someone", 3))
        assert list(await stores.lines.tags(LINE)) == [first, second]
        assert await stores.lines.find_tag(LINE, "z") == first
        assert await stores.lines.find_tag(LINE, "none") is None

    async def test_a_sound_line_verifies_whatever_the_order_of_its_changes(self, stores: ContractStores) -> None:
        await commit(stores, written("z", "1"), written("a", "2"), written("m", "3"), values=("1", "2", "3"))
        await commit(stores, deleted("z", 1), written("a", "3", 2))
        assert await stores.lines.verify(LINE) is None

    async def test_erasing_a_line_deletes_only_values_that_nothing_else_uses(self, stores: ContractStores) -> None:
        await commit(stores, written("a", "mine"), written("b", "shared"), values=("mine", "shared"))
        await stores.lines.create("other")
        other = Commit("other", 1, AUTHOR, 1, "write", None, (written("x", "shared"),))
        await stores.lines.append(Head("other", 0, EMPTY, 0, None), other, weight=0, next_expiry_at=None)
        await stores.lines.erase(LINE)
        assert await stores.lines.lock(LINE) is None
        assert [v.value for v in await stores.lines.versions("other", "x", 1, 10)] == ["shared"]
        assert await stores.lines.verify("other") is None

    async def test_tenants_have_their_own_lines(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await commit(stores, written("a", "1"), values=("1",))
        assert await elsewhere.lines.lock(LINE) is None
        assert await elsewhere.lines.state_at(LINE, 1) == []

    async def test_a_line_and_its_tags_can_be_looked_up(self, stores: ContractStores) -> None:
        assert await stores.lines.find(LINE) is None
        head = await write(stores, "a", "1")
        assert await stores.lines.find(LINE) == Line(head)
        await write(stores, "a", "1", line="context:a")
        both = await stores.lines.page("", 10)
        assert sorted(both) == ["context:a", LINE]
        assert [*await stores.lines.page("", 1), *await stores.lines.page(both[0], 10)] == list(both)
        assert list(await stores.lines.page(both[1], 10)) == []

    async def test_the_latest_version_of_a_key_at_any_commit_is_found(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await write(stores, "a", "2", 2)
        await commit(stores, deleted("a", 2))
        found = [await stores.lines.latest(LINE, "a", at) for at in (0, 1, 2, 3, LATEST)]
        assert [version and version.value for version in found] == [None, "1", "2", None, None]
        assert await stores.lines.latest(LINE, "b", 3) is None

    async def test_the_current_version_of_a_key_is_found_in_many_lines(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        others = [f"{LINE}-{number}" for number in range(60)]
        for number, line_id in enumerate(others):
            await write(stores, "a", f"first {number}", line=line_id)
            await write(stores, "a", str(number), 2, line=line_id)
            await write(stores, "b", "other", line=line_id)
        await commit(stores, deleted("a", 2), line=others[0])
        found = await stores.lines.latest_in_lines([*others, others[5], "none"], "a")
        assert {line: version.value for line, version in found.items()} == {
            line: str(number) for number, line in enumerate(others) if number
        }
        assert await stores.lines.latest_in_lines([], "a") == {}
        assert await elsewhere.lines.latest_in_lines(others, "a") == {}

    async def test_a_state_can_be_asked_for_without_values_and_for_what_was_touched(
        self, stores: ContractStores
    ) -> None:
        await write(stores, "a", "1")
        await write(stores, "b", "1")
        await write(stores, "a", "2", 2)
        bare = await stores.lines.state_at(LINE, 3, values=False)
        assert {v.change.key: v.value for v in bare} == {"a": None, "b": None}
        full = await stores.lines.state_at(LINE, 3)
        assert {v.change.key: v.change for v in bare} == {v.change.key: v.change for v in full}
        assert await state(stores, 3, touched=[CommitRange(LINE, 2, 3)]) == {"a": "2"}
        assert await state(stores, 1, touched=[CommitRange(LINE, 2, 3)]) == {"a": "1"}
        assert await state(stores, 3, touched=[CommitRange(LINE, 0, 1), CommitRange(LINE, 1, 2)]) == {
            "a": "2",
            "b": "1",
        }
        assert await state(stores, 3, touched=[]) == {}

    async def test_the_log_lists_commits_newest_first_with_all_changes(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await commit(stores, written("b", "2"), written("a", "2", 2), values=("2",), step="draft")
        last = await write(stores, "b", "3", 2)
        logged = await stores.lines.log(LINE, LATEST, 10)
        assert [(found.commit.seq, [c.key for c in found.commit.changes]) for found in logged] == [
            (3, ["b"]),
            (2, ["a", "b"]),
            (1, ["a"]),
        ]
        assert (logged[0].hash, logged[1].commit.step, logged[1].commit.author) == (last.hash, "draft", AUTHOR)
        assert [found.commit.seq for found in await stores.lines.log(LINE, 2, 1)] == [2]
        assert [found.commit.seq for found in await stores.lines.log(LINE, LATEST, 10, "a")] == [2, 1]
        assert [found.commit.seq for found in await stores.lines.log(LINE, 1, 10, "b")] == []

    async def test_a_commit_is_found_by_its_number_and_by_a_hash_prefix(self, stores: ContractStores) -> None:
        heads = [await write(stores, "a", f"{number}", number) for number in (1, 2, 3)]
        found = await stores.lines.commit_at(LINE, 2)
        assert found is not None
        assert (found.hash, found.commit.changes[0].version) == (heads[1].hash, 2)
        assert [await stores.lines.commit_at(LINE, seq) for seq in (0, 4)] == [None, None]
        for head in heads:
            for digits in (6, 7, 64):
                (named,) = await stores.lines.commits_by_hash(LINE, head.hash.hex()[:digits])
                assert named.commit.seq == head.seq
        assert len(await stores.lines.commits_by_hash(LINE, "")) == 2
        assert list(await stores.lines.commits_by_hash("other", heads[0].hash.hex())) == []

    async def test_commits_keep_their_salts_and_are_hidden_by_acls_without_one(self, stores: ContractStores) -> None:
        for line in ("board:old", "context:old"):
            await stores.lines.create(line)
            head = Head.of_new_line(line)
            for salt in (None, b"s" * 16):
                made = Commit(line, head.seq + 1, AUTHOR, 1, "write", None, (), salt=salt)
                head = await stores.lines.append(head, made, weight=0, next_expiry_at=None)
            new, old = await stores.lines.log(line, LATEST, 2)
            assert (old.commit.salt, new.commit.salt) == (None, b"s" * 16)
            assert [await stores.lines.is_salted(line, seq) for seq in (0, 1, 2)] == [True, False, True]
            assert await stores.lines.verify(line) is None
            found = [len(await stores.lines.commits_by_hash(line, each.hash.hex())) for each in (old, new)]
            assert found == [int(line.startswith("context")), 1]

    async def test_the_weight_after_each_commit_is_stored(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await write(stores, "a", "2", 2)
        assert [await stores.lines.weight_at(LINE, seq) for seq in (0, 1, 2, 3)] == [0, 1, 2, None]

    async def test_the_step_of_a_line_is_the_last_one_committed(self, stores: ContractStores) -> None:
        for step, expected in ((None, None), ("plan", "plan"), (None, "plan"), ("draft", "draft")):
            await commit(stores, step=step)
            head = await stores.lines.lock(LINE)
            assert head is not None
            assert head.step == expected
        assert await stores.lines.verify(LINE) is None

    async def test_a_tag_can_be_deleted_and_knows_whether_it_is_automatic(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        by_itself = Tag("before-merge-v1", 1, "orchestrator", 1, automatic=True)
        assert await stores.lines.tag(LINE, by_itself)
        assert await stores.lines.tag(LINE, Tag("empty", 0, "orchestrator", 2))
        assert await stores.lines.find_tag(LINE, by_itself.label) == by_itself
        assert await stores.lines.verify(LINE) is None
        assert await stores.lines.untag(LINE, by_itself.label)
        assert not await stores.lines.untag(LINE, by_itself.label)
        assert [tag.label for tag in await stores.lines.tags(LINE)] == ["empty"]

    async def test_values_of_every_length_and_script_come_back_as_they_were_written(
        self, stores: ContractStores
    ) -> None:
        noise = random.Random(4)
        values = [
            *("x" * length for length in (0, 1, 1_023, 1_024, 1_025, 100_000)),
            *("\N{HIRAGANA LETTER A}" * length for length in (341, 342, 5_000)),
            "".join(map(chr, noise.choices(range(0x20, 0xD7FF), k=2_000))),
            "line\r\nline\ttab \U0010ffff \x7f" * 100,
        ]
        for number, value in enumerate(values):
            await write(stores, f"k{number:02}", value)
        found = await state(stores, len(values))
        assert [found[f"k{number:02}"] for number in range(len(values))] == values
        assert await stores.lines.verify(LINE) is None

    async def test_pointers_to_object_storage_come_in_pages_and_once_each(self, stores: ContractStores) -> None:
        pointers = [f"pointer {number}" for number in range(3)]
        for pointer in pointers:
            await stores.lines.put_blob(blob_hash(pointer), pointer, outside=f"t/{pointer}")
        for number, value in enumerate([*pointers, pointers[0], "inside"], 1):
            await commit(stores, written(f"k{number}", value), values=("inside",))
        every = sorted((blob_hash(pointer), pointer) for pointer in pointers)
        assert list(await stores.lines.pointers(LINE, b"", 10)) == every
        assert list(await stores.lines.pointers(LINE, every[0][0], 1)) == every[1:2]
        assert list(await stores.lines.pointers("context:other", b"", 10)) == []

    async def test_the_latest_versions_of_many_keys(self, stores: ContractStores) -> None:
        keys = [f"k{number}" for number in range(120)]
        await commit(stores, *(written(key, "x") for key in keys), values=("x",))
        await write(stores, "k0", "y", 2)
        await commit(stores, deleted("k1", 1))
        for at in (1, 2, 3):
            found = await stores.lines.latest_of_each(LINE, [*keys, "none"], at)
            expected = [version for key in keys if (version := await stores.lines.latest(LINE, key, at)) is not None]
            assert sorted(version.change.key for version in found) == sorted(each.change.key for each in expected)
            assert {(each.change, each.seq) for each in found} == {(each.change, each.seq) for each in expected}
            assert all(each.value is None for each in found)
        assert list(await stores.lines.latest_of_each("context:none", ["k0"], 1)) == []

    async def test_roots_come_in_pages_without_parts_and_branches(self, stores: ContractStores) -> None:
        for line in ("context:b", "context:b:notes", "context:a", "window:a", "contexts:c", "team:d"):
            await write(stores, "k", "x", line=line)
        await stores.lines.branch("context:a@try", Point("context:a", 1, EMPTY), weight=0, next_expiry_at=None)
        assert list(await stores.lines.roots(["context"], "", 10)) == ["context:a", "context:b"]
        assert list(await stores.lines.roots(["context", "team"], "context:a", 1)) == ["context:b"]
        assert list(await stores.lines.roots(["context", "team"], "context:b", 10)) == ["team:d"]
        assert list(await stores.lines.roots(["none"], "", 10)) == []
        whole = await stores.lines.roots(["context"], "", 10)
        everything = await stores.lines.roots(["context"], "", 10, nested=["context"])
        assert set(whole) < set(everything)
        assert not any("@" in line_id for line_id in everything)

    async def test_versions_are_found_in_bulk_by_line_key_and_commit(self, stores: ContractStores) -> None:
        for number in range(1, 121):
            await commit(
                stores, written("a", f"{number}", number), written(f"k{number}", "x"), values=(f"{number}", "x")
            )
        await write(stores, "a", "there", line="context:other")
        spots = [ChangeRef(LINE, "a", seq) for seq in range(120, 0, -1)]
        missing = [ChangeRef(LINE, "a", 121), ChangeRef(LINE, "k1", 2), ChangeRef("context:none", "a", 1)]
        found = await stores.lines.versions_at([*spots, *missing, ChangeRef("context:other", "a", 1), spots[0]])
        assert {ref: value_of(version) for ref, version in found.items()} == {
            **{ref: f"{ref.seq}" for ref in spots},
            ChangeRef("context:other", "a", 1): "there",
        }
        assert await stores.lines.versions_at([]) == {}

    async def test_all_changes_of_commits_are_found_in_bulk(self, stores: ContractStores) -> None:
        for number in range(1, 61):
            await commit(stores, written(f"b{number}", "x"), written("a", "x", number), values=("x",))
        await commit(stores, deleted("a", 60), line="context:other")
        commits = [(LINE, 60), ("context:other", 1), *((LINE, seq) for seq in range(1, 55))]
        found = await stores.lines.versions_of([*commits, (LINE, 61), ("context:none", 1)])
        assert {commit: [v.change.key for v in versions] for commit, versions in found.items()} == {
            (line, seq): ["a", f"b{seq}"] if line == LINE else ["a"] for line, seq in commits
        }
        assert {version.value for versions in found.values() for version in versions} == {None}
        assert await stores.lines.versions_of([]) == {}

    async def test_a_version_is_found_by_its_number_with_its_deletion(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await write(stores, "a", "2", 2)
        await commit(stores, deleted("a", 2))
        await commit(stores, written("a", "again", 1, incarnation=2), values=("again",))
        assert [value_of(found) for found in await stores.lines.changes_of_version(LINE, "a", 1, 1)] == ["1"]
        assert [found.change.act for found in await stores.lines.changes_of_version(LINE, "a", 1, 2)] == [
            ChangeKind.WRITE,
            ChangeKind.DELETE,
        ]
        assert [value_of(found) for found in await stores.lines.changes_of_version(LINE, "a", 2, 1)] == ["again"]
        assert await stores.lines.changes_of_version(LINE, "a", 3, 1) == []
