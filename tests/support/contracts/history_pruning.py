"""Contract of LineStore: what pruning removes and what it keeps."""

from __future__ import annotations

from support.contracts.history import LINE, commit, deleted, state, write, written
from support.contracts.history_branches import DEEPER, DRAFT, branch
from support.contracts.stores import ContractStores
from weftline.history.model import Tag
from weftline.history.store import Limits, Pin, PruneCursor, Pruned

BEGIN = PruneCursor("", 0)


async def kept(stores: ContractStores, key: str = "a", line: str = LINE) -> list[str | None]:
    """Return the values of a key that are still stored, oldest first."""
    versions = await stores.lines.versions(line, key, 1, 10_000)
    return [version.value for version in reversed(versions)]


async def prune(
    stores: ContractStores, *, before: int | None = None, versions: int | None = None, line: str = LINE
) -> Pruned:
    return await stores.lines.prune_batch(line, BEGIN, Limits(before, versions))


async def five_versions(stores: ContractStores) -> None:
    """Write a key five times, at 1000, 1001 and so on."""
    for number in range(1, 6):
        await write(stores, "a", f"{number}", number)


class PruningContract:
    """Values are removed by age or number; referenced ones are kept, and so are all versions."""

    async def test_values_beyond_the_version_limit_are_removed(self, stores: ContractStores) -> None:
        await five_versions(stores)
        assert await prune(stores, versions=2) == Pruned(3, 3, 1, 3, None)
        assert await kept(stores) == [None, None, None, "4", "5"]
        assert await prune(stores, versions=2) == Pruned(0, 0, 0, 0, None)
        assert await stores.lines.verify(LINE) is None

    async def test_values_replaced_before_the_limit_are_removed(self, stores: ContractStores) -> None:
        await five_versions(stores)
        assert (await prune(stores, before=1003)).versions == 2
        assert await kept(stores) == [None, None, "3", "4", "5"]

    async def test_either_limit_is_enough_and_none_removes_nothing(self, stores: ContractStores) -> None:
        await five_versions(stores)
        assert (await prune(stores)).versions == 0
        assert (await prune(stores, before=1002, versions=2)).versions == 3
        assert await kept(stores) == [None, None, None, "4", "5"]

    async def test_current_values_are_never_removed(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await commit(stores, written("b", "1"), values=("1",))
        assert (await prune(stores, before=2**60, versions=1)).versions == 0
        assert await state(stores, 2) == {"a": "1", "b": "1"}

    async def test_the_last_value_of_a_deleted_key_ages_from_its_deletion(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await write(stores, "b", "1")
        await commit(stores, deleted("a", 1))
        assert (await prune(stores, before=1002)).versions == 0
        assert (await prune(stores, before=1003)).versions == 1
        assert await kept(stores) == [None, None]

    async def test_values_of_a_snapshot_are_kept_until_it_is_deleted(self, stores: ContractStores) -> None:
        await five_versions(stores)
        await stores.lines.tag(LINE, Tag("mark", 2, "orchestrator", 1))
        await prune(stores, versions=1)
        assert await kept(stores) == [None, "2", None, None, "5"]
        await stores.lines.untag(LINE, "mark")
        await prune(stores, versions=1)
        assert await kept(stores) == [None, None, None, None, "5"]

    async def test_pinned_values_are_kept_until_the_last_holder_unpins_them(self, stores: ContractStores) -> None:
        await five_versions(stores)
        for holder in ("session:s1:a", "review:r1", "review:r1"):
            await stores.lines.pin(LINE, 3, holder)
        assert list(await stores.lines.pinned(LINE)) == [Pin(3, "review:r1"), Pin(3, "session:s1:a")]
        await stores.lines.unpin("session:s1:a")
        await prune(stores, versions=1)
        assert await kept(stores) == [None, None, "3", None, "5"]
        await stores.lines.unpin("review:r1")
        await prune(stores, versions=1)
        assert await kept(stores) == [None, None, None, None, "5"]

    async def test_values_at_the_base_of_a_branch_are_kept_until_it_is_deleted(self, stores: ContractStores) -> None:
        await five_versions(stores)
        await branch(stores, DRAFT, 2)
        await write(stores, "b", "x", line=DRAFT)
        await prune(stores, before=2**60, versions=1)
        assert await kept(stores) == [None, "2", None, None, "5"]
        assert await state(stores, 3, DRAFT) == {"a": "2", "b": "x"}
        await stores.lines.erase(DRAFT)
        await prune(stores, versions=1)
        assert await kept(stores) == [None, None, None, None, "5"]

    async def test_values_shared_by_a_branch_of_a_branch_are_kept(self, stores: ContractStores) -> None:
        await five_versions(stores)
        await branch(stores, DRAFT, 4)
        await branch(stores, DEEPER, 2, of=DRAFT)
        await prune(stores, versions=1)
        assert await kept(stores) == [None, "2", None, "4", "5"]
        assert await state(stores, 2, DEEPER) == {"a": "2"}

    async def test_a_shared_version_pinned_from_a_branch_is_kept(self, stores: ContractStores) -> None:
        await five_versions(stores)
        await branch(stores, DRAFT, 4)
        await stores.lines.pin(DRAFT, 2, "session:s1:a")
        assert [list(await stores.lines.pinned(line)) for line in (LINE, DRAFT)] == [[Pin(2, "session:s1:a")], []]
        await prune(stores, versions=1)
        assert await kept(stores) == [None, "2", None, "4", "5"]

    async def test_a_branch_is_pruned_separately(self, stores: ContractStores) -> None:
        await write(stores, "a", "base")
        await branch(stores, DRAFT, 1)
        for number in (2, 3, 4):
            await write(stores, "a", f"{number}", number, line=DRAFT)
        assert (await prune(stores, versions=1, line=DRAFT)).versions == 2
        assert await kept(stores, line=DRAFT) == ["base", None, None, "4"]
        assert await stores.lines.verify(DRAFT) is None

    async def test_a_value_that_another_version_uses_is_kept_there(self, stores: ContractStores) -> None:
        await write(stores, "a", "same")
        await write(stores, "a", "new", 2)
        await write(stores, "b", "same")
        assert await prune(stores, versions=1) == Pruned(1, 0, 1, 1, None)
        assert await kept(stores) == [None, "new"]
        assert await kept(stores, "b") == ["same"]
        assert await stores.lines.verify(LINE) is None

    async def test_a_long_line_is_pruned_in_batches(self, stores: ContractStores) -> None:
        keys = [f"k{number:03}" for number in range(400)]
        for version in (1, 2, 3):
            values = tuple(f"{key} {version}" for key in keys)
            changes = (written(key, value, version) for key, value in zip(keys, values, strict=True))
            await commit(stores, *changes, values=values)
        steps, place = [], BEGIN
        while True:
            steps.append(await stores.lines.prune_batch(LINE, place, Limits(None, 1)))
            if steps[-1].reached is None:
                break
            place = steps[-1].reached
        assert len(steps) == 3
        assert sum(step.versions for step in steps) == 800
        assert sum(step.freed for step in steps) == 800 * len("k000 1")
        assert all(await state(stores, 3))
        assert await stores.lines.verify(LINE) is None

    async def test_a_pruned_value_can_be_written_again(self, stores: ContractStores) -> None:
        await write(stores, "a", "1")
        await write(stores, "a", "2", 2)
        await prune(stores, versions=1)
        await write(stores, "a", "1", 3)
        assert await kept(stores) == [None, "2", "1"]
        assert await stores.lines.verify(LINE) is None

    async def test_tenants_prune_and_pin_for_themselves(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        for each in (stores, elsewhere):
            await five_versions(each)
        await elsewhere.lines.pin(LINE, 2, "h")
        assert list(await stores.lines.pinned(LINE)) == []
        await stores.lines.unpin("h")
        await prune(stores, versions=1)
        assert await kept(elsewhere) == ["1", "2", "3", "4", "5"]
        await prune(elsewhere, versions=1)
        assert await kept(elsewhere) == [None, "2", None, None, "5"]
