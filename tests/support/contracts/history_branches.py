"""Contract of LineStore: branches; and of CheckoutStore."""

from __future__ import annotations

from support.contracts.history import LINE, commit, deleted, state, write, written
from support.contracts.stores import ContractStores
from weftline.history.model import EMPTY, LATEST, ChangeKind, CommitRange, Head, Point, Tag
from weftline.history.store import Checkout

DRAFT, DEEPER = f"{LINE}@draft", f"{LINE}@deeper"


async def branch(stores: ContractStores, line: str, seq: int, *, of: str = LINE) -> Head:
    """Branch from a version of a line."""
    weight = await stores.lines.weight_at(of, seq) or 0
    base = await stores.lines.commit_at(of, seq)
    point = Point(of, seq, base.hash if base else EMPTY)
    assert await stores.lines.branch(line, point, weight=weight, next_expiry_at=None)
    head = await stores.lines.lock(line)
    assert head is not None
    return head


class BranchContract:
    """A branch shares everything before its base, and nothing after."""

    async def test_a_branch_starts_with_the_state_of_its_base(self, stores: ContractStores) -> None:
        first = await write(stores, "a", "1")
        await write(stores, "a", "2", 2)
        assert await branch(stores, DRAFT, 1) == Head(DRAFT, 1, first.hash, 1, None)
        assert await state(stores, 1, DRAFT) == {"a": "1"}
        assert not await stores.lines.branch(DRAFT, Point(LINE, 2, EMPTY), weight=0, next_expiry_at=None)
        assert (await stores.lines.lock(DRAFT)) == Head(DRAFT, 1, first.hash, 1, None)

    async def test_what_is_written_on_either_side_stays_there(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await branch(stores, DRAFT, 1)
        await write(stores, "b", "theirs", line=DRAFT)
        await write(stores, "b", "ours")
        await commit(stores, deleted("a", 1), line=DRAFT)
        assert await state(stores, 2) == {"a": "1", "b": "ours"}
        assert await state(stores, 3, DRAFT) == {"b": "theirs"}
        assert await stores.lines.latest(DRAFT, "a", 3) is None
        shared = await stores.lines.latest(DRAFT, "a", 2)
        assert shared is not None
        assert shared.value == "1"
        assert [await stores.lines.verify(line) for line in (LINE, DRAFT)] == [None, None]

    async def test_every_shared_version_is_readable_from_the_branch(self, stores: ContractStores) -> None:
        for number in (1, 2, 3):
            await write(stores, "a", f"{number}", number)
        await branch(stores, DRAFT, 2)
        await write(stores, "a", "other", 3, line=DRAFT)
        states = [await state(stores, seq, DRAFT) for seq in range(4)]
        assert states == [{}, {"a": "1"}, {"a": "2"}, {"a": "other"}]
        logged = await stores.lines.log(DRAFT, LATEST, 10)
        assert [(found.commit.line_id, found.commit.seq) for found in logged] == [(DRAFT, 3), (LINE, 2), (LINE, 1)]
        assert [found.commit.seq for found in await stores.lines.log(DRAFT, LATEST, 2, "a")] == [3, 2]
        assert [v.value for v in await stores.lines.versions(DRAFT, "a", 1, 10)] == ["other", "2", "1"]
        assert [v.value for v in await stores.lines.versions(DRAFT, "a", 1, 2)] == ["other", "2"]
        (second,) = await stores.lines.commits_by_hash(DRAFT, logged[1].hash.hex())
        assert second == logged[1]
        assert await stores.lines.commits_by_hash(DRAFT, (await stores.lines.log(LINE, 3, 1))[0].hash.hex()) == []

    async def test_incarnations_of_a_key_are_counted_along_the_branch(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await branch(stores, DRAFT, 1)
        await commit(stores, deleted("a", 1))
        await commit(stores, written("a", "again", 1, 2), values=("again",))
        assert [await stores.lines.last_number(line, "a") for line in (LINE, DRAFT)] == [(2, 1), (1, 1)]

    async def test_a_version_is_found_by_its_number_along_the_branch(self, stores: ContractStores) -> None:
        await write(stores, "a", "shared")
        await branch(stores, DRAFT, 1)
        await write(stores, "a", "trunk", 2)
        await write(stores, "a", "draft", 2, line=DRAFT)
        numbered = {
            (line, number): await stores.lines.changes_of_version(line, "a", 1, number)
            for line in (LINE, DRAFT)
            for number in (1, 2)
        }
        assert {name: [found.value for found in versions] for name, versions in numbered.items()} == {
            (LINE, 1): ["shared"],
            (LINE, 2): ["trunk"],
            (DRAFT, 1): ["shared"],
            (DRAFT, 2): ["draft"],
        }

    async def test_the_ancestry_is_a_list_of_commit_ranges_newest_first(self, stores: ContractStores) -> None:
        for number in range(1, 6):
            await write(stores, "a", f"{number}", number)
        await branch(stores, DRAFT, 4)
        await write(stores, "a", "x", 5, line=DRAFT)
        await branch(stores, DEEPER, 5, of=DRAFT)
        await write(stores, "a", "y", 6, line=DEEPER)
        assert list(await stores.lines.past(LINE, 5)) == [CommitRange(LINE, 0, 5)]
        assert list(await stores.lines.past(DEEPER, 6)) == [
            CommitRange(DEEPER, 5, 6),
            CommitRange(DRAFT, 4, 5),
            CommitRange(LINE, 0, 4),
        ]
        assert list(await stores.lines.past(DEEPER, 5)) == [CommitRange(DRAFT, 4, 5), CommitRange(LINE, 0, 4)]
        assert list(await stores.lines.past(DEEPER, 2)) == [CommitRange(LINE, 0, 2)]
        assert list(await stores.lines.past(DEEPER, 0)) == [CommitRange(LINE, 0, 0)]

    async def test_a_branch_of_a_branch_shares_the_ancestry_of_both(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await branch(stores, DRAFT, 1)
        await write(stores, "b", "2", line=DRAFT)
        await branch(stores, DEEPER, 2, of=DRAFT)
        await commit(stores, deleted("b", 1), line=DEEPER)
        await write(stores, "c", "3", line=DEEPER)
        assert await state(stores, 4, DEEPER) == {"a": "1", "c": "3"}
        assert await state(stores, 4, DEEPER, [CommitRange(DRAFT, 1, 2), CommitRange(DEEPER, 3, 4)]) == {"c": "3"}
        assert [await stores.lines.weight_at(DEEPER, seq) for seq in (0, 1, 2, 3, 4)] == [0, 1, 2, 3, 4]
        assert await stores.lines.verify(DEEPER) is None

    async def test_branches_are_listed_by_trunk_and_by_base(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await branch(stores, DRAFT, 1)
        await write(stores, "a", "2", 2, line=DRAFT)
        await branch(stores, DEEPER, 2, of=DRAFT)
        listed = await stores.lines.branches(LINE)
        assert [(line.branch, line.trunk, line.base_line, line.base_seq) for line in listed] == [
            ("deeper", LINE, DRAFT, 2),
            ("draft", LINE, LINE, 1),
        ]
        assert list(await stores.lines.children(LINE)) == [DRAFT]
        assert list(await stores.lines.children(DRAFT)) == [DEEPER]
        assert list(await stores.lines.branches(DRAFT)) == []

    async def test_the_base_of_a_branch_is_the_line_that_holds_the_commit(self, stores: ContractStores) -> None:
        for number in (1, 2):
            await write(stores, "a", f"{number}", number)
        await branch(stores, DRAFT, 2)
        await write(stores, "a", "3", 3, line=DRAFT)
        await branch(stores, DEEPER, 1, of=DRAFT)
        found = await stores.lines.find(DEEPER)
        assert found is not None
        assert (found.trunk, found.base_line, found.base_seq) == (LINE, LINE, 1)
        assert await state(stores, 1, DEEPER) == {"a": "1"}
        assert await stores.lines.verify(DEEPER) is None

    async def test_a_branch_can_start_from_the_empty_state(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await branch(stores, DRAFT, 0)
        await write(stores, "b", "2", line=DRAFT)
        assert await state(stores, 1, DRAFT) == {"b": "2"}
        assert await stores.lines.verify(DRAFT) is None

    async def test_a_tag_of_a_branch_may_name_a_shared_version(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await write(stores, "a", "2", 2)
        await branch(stores, DRAFT, 2)
        for label, seq in (("now", 2), ("then", 1)):
            assert await stores.lines.tag(DRAFT, Tag(label, seq, "orchestrator", 5))
        assert await stores.lines.verify(DRAFT) is None

    async def test_a_merge_commit_names_the_merged_point(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await branch(stores, DRAFT, 1)
        theirs = await write(stores, "b", "2", line=DRAFT)
        merged = Point(DRAFT, theirs.seq, theirs.hash)
        await commit(stores, written("b", "2"), merged=merged)
        await write(stores, "c", "3")
        assert list(await stores.lines.merged_points(LINE, 0, LATEST)) == [(DRAFT, theirs.seq)]
        assert list(await stores.lines.merged_points(LINE, 0, 1)) == []
        assert list(await stores.lines.merged_points(LINE, 2, LATEST)) == []
        logged = await stores.lines.commit_at(LINE, 2)
        assert logged is not None
        assert (logged.commit.merged, logged.commit.changes[0].act) == (merged, ChangeKind.WRITE)
        await branch(stores, DEEPER, 3)
        assert list(await stores.lines.merged_points(DEEPER, 3, LATEST)) == []
        assert await stores.lines.verify(LINE) is None

    async def test_a_merged_line_that_was_deleted_or_replaced_is_left_out(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await branch(stores, DRAFT, 1)
        theirs = await write(stores, "b", "2", line=DRAFT)
        await commit(stores, written("b", "2"), merged=Point(DRAFT, theirs.seq, theirs.hash))
        await stores.lines.erase(DRAFT)
        assert list(await stores.lines.merged_points(LINE, 0, LATEST)) == []
        await branch(stores, DRAFT, 1)
        await write(stores, "b", "another", line=DRAFT)
        assert list(await stores.lines.merged_points(LINE, 0, LATEST)) == []

    async def test_erasing_a_branch_leaves_its_base_intact(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await branch(stores, DRAFT, 1)
        await write(stores, "a", "1", 2, line=DRAFT)
        await stores.lines.erase(DRAFT)
        assert await stores.lines.find(DRAFT) is None
        assert await state(stores, 1) == {"a": "1"}
        assert list(await stores.lines.branches(LINE)) == []
        assert await stores.lines.verify(LINE) is None
        await branch(stores, DRAFT, 1)
        assert await state(stores, 1, DRAFT) == {"a": "1"}

    async def test_tenants_have_their_own_branches(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await write(stores, "a", "1")
        await branch(stores, DRAFT, 1)
        assert await elsewhere.lines.find(DRAFT) is None
        assert list(await elsewhere.lines.branches(LINE)) == []
        assert list(await elsewhere.lines.children(LINE)) == []


class CheckoutStoreContract:
    """A checkout is stored for each line and principal."""

    async def test_without_a_switch_there_is_no_checkout(self, stores: ContractStores) -> None:
        assert await stores.checkouts.of(LINE, "planner") is None

    async def test_a_switch_replaces_the_principals_own_checkout_only(self, stores: ContractStores) -> None:
        await stores.checkouts.switch(LINE, "planner", "left")
        await stores.checkouts.switch(LINE, "analysis", "right")
        await stores.checkouts.switch(LINE, "planner", "middle")
        assert await stores.checkouts.of(LINE, "planner") == Checkout("middle")
        assert await stores.checkouts.of(LINE, "analysis") == Checkout("right")
        assert await stores.checkouts.of("board:s2", "planner") is None

    async def test_switching_to_no_branch_deletes_the_checkout(self, stores: ContractStores) -> None:
        await stores.checkouts.switch(LINE, "planner", "left")
        await stores.checkouts.switch(LINE, "planner", None)
        assert await stores.checkouts.of(LINE, "planner") is None
        await stores.checkouts.switch(LINE, "planner", None)

    async def test_erasing_a_line_deletes_its_checkouts(self, stores: ContractStores) -> None:
        await stores.checkouts.switch(LINE, "planner", "left")
        await stores.lines.erase(LINE)
        assert await stores.checkouts.of(LINE, "planner") is None

    async def test_tenants_have_their_own_checkouts(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.checkouts.switch(LINE, "planner", "left")
        assert await elsewhere.checkouts.of(LINE, "planner") is None
        await elsewhere.checkouts.switch(LINE, "planner", None)
        assert await stores.checkouts.of(LINE, "planner") == Checkout("left")

    async def test_a_checkout_of_a_deleted_branch_is_gone_even_if_it_is_recreated(self, stores: ContractStores) -> None:
        await stores.lines.create(LINE)
        for _ in range(2):
            await stores.lines.branch(f"{LINE}@left", Point(LINE, 0, EMPTY), weight=0, next_expiry_at=None)
            await stores.checkouts.switch(LINE, "planner", "left")
            await stores.checkouts.switch(LINE, "analysis", "right")
            assert await stores.checkouts.of(LINE, "planner") == Checkout("left")
            await stores.lines.erase(f"{LINE}@left")
        await stores.lines.branch(f"{LINE}@left", Point(LINE, 0, EMPTY), weight=0, next_expiry_at=None)
        assert await stores.checkouts.of(LINE, "planner") == Checkout("left", gone=True)
        assert await stores.checkouts.of(LINE, "analysis") == Checkout("right")
