"""The contract of LineStore."""
# ruff: noqa: S101, PLR2004 - tests that others run

from __future__ import annotations

from weft.capabilities.history.model import EMPTY, Act, Author, Change, ChangeMeta, Commit, Head, Tag, blob_hash
from weft.testing.contracts.stores import Stores

LINE = "board:s1"
AUTHOR = Author("orchestrator", "planner")


def written(key: str, value: str, version: int = 1, life: int = 1) -> Change:
    meta = ChangeMeta(tokens=len(value), readable_by=("subagent:*",))
    return Change(key, life, version, Act.WRITE, blob_hash(value), meta)


def deleted(key: str, version: int, life: int = 1) -> Change:
    return Change(key, life, version, Act.DELETE, None, ChangeMeta())


async def commit(stores: Stores, *changes: Change, values: tuple[str, ...] = ()) -> Head:
    """Append one commit with these changes, keeping the values they name."""
    for value in values:
        await stores.lines.put_blob(blob_hash(value), value)
    head = await stores.lines.lock(LINE)
    if head is None:
        await stores.lines.create(LINE)
        head = Head(LINE, 0, EMPTY, 0, None)
    step = Commit(LINE, head.seq + 1, AUTHOR, 1000 + head.seq, "write", None, changes)
    return await stores.lines.append(head, step, weight=head.weight + 1, next_expiry_at=None)


class LineStoreContract:
    """A line grows by commits, each pinned by the next, and any moment of it can be seen again."""

    async def test_a_line_begins_empty_and_its_head_moves_with_each_commit(self, stores: Stores) -> None:
        assert await stores.lines.lock(LINE) is None
        await stores.lines.create(LINE)
        assert await stores.lines.lock(LINE) == Head(LINE, 0, EMPTY, 0, None)
        head = await commit(stores, written("a", "1"), values=("1",))
        assert (head.seq, head.weight) == (1, 1)
        assert await stores.lines.lock(LINE) == head

    async def test_the_next_expiry_can_be_noted_without_a_commit(self, stores: Stores) -> None:
        head = await commit(stores, written("a", "1"), values=("1",))
        await stores.lines.set_next_expiry(LINE, 77)
        assert await stores.lines.lock(LINE) == Head(LINE, head.seq, head.hash, head.weight, 77)
        await stores.lines.set_next_expiry(LINE, None)
        assert await stores.lines.lock(LINE) == head

    async def test_versions_of_one_life_come_newest_first_with_values(self, stores: Stores) -> None:
        await commit(stores, written("a", "1"), values=("1",))
        await commit(stores, written("a", "2", 2), values=("2",))
        await commit(stores, deleted("a", 2))
        await commit(stores, written("a", "3", 1, 2), values=("3",))
        first = await stores.lines.versions(LINE, "a", 1, 10)
        assert [(v.change.act, v.change.version, v.value, v.seq) for v in first] == [
            (Act.DELETE, 2, None, 3),
            (Act.WRITE, 2, "2", 2),
            (Act.WRITE, 1, "1", 1),
        ]
        assert (first[0].author, first[0].committed_at) == ("orchestrator", 1002)
        assert first[1].change.meta == ChangeMeta(tokens=1, readable_by=("subagent:*",))
        assert [v.value for v in await stores.lines.versions(LINE, "a", 2, 10)] == ["3"]
        assert len(await stores.lines.versions(LINE, "a", 1, 2)) == 2

    async def test_the_latest_life_of_a_key_is_known(self, stores: Stores) -> None:
        assert await stores.lines.last_life(LINE, "a") == 0
        await commit(stores, written("a", "1"), values=("1",))
        await commit(stores, deleted("a", 1))
        assert await stores.lines.last_life(LINE, "a") == 1

    async def test_the_state_at_any_commit_can_be_seen(self, stores: Stores) -> None:
        await commit(stores, written("a", "1"), values=("1",))
        await commit(stores, written("a", "2", 2), written("b", "1"), values=("2",))
        await commit(stores, deleted("a", 2))
        states = [
            {version.change.key: version.value for version in await stores.lines.state_at(LINE, seq)}
            for seq in range(4)
        ]
        assert states == [{}, {"a": "1"}, {"a": "2", "b": "1"}, {"b": "1"}]

    async def test_pruning_drops_values_but_not_the_record_of_them(self, stores: Stores) -> None:
        for number in range(1, 5):
            await commit(stores, written("a", f"{number}", number), values=(f"{number}",))
        await stores.lines.tag(LINE, Tag("mark", 2, "orchestrator", 1))
        await stores.lines.prune(LINE, "a", keep=1)
        assert [v.value for v in await stores.lines.versions(LINE, "a", 1, 10)] == ["4", None, "2", None]
        assert await stores.lines.verify(LINE) is None

    async def test_a_label_is_taken_once(self, stores: Stores) -> None:
        await commit(stores, written("a", "1"), values=("1",))
        first, second = Tag("z", 1, "orchestrator", 1), Tag("a", 1, "orchestrator", 2)
        assert await stores.lines.tag(LINE, first)
        assert await stores.lines.tag(LINE, second)
        assert not await stores.lines.tag(LINE, Tag("z", 1, "someone", 3))
        assert list(await stores.lines.tags(LINE)) == [first, second]
        assert await stores.lines.find_tag(LINE, "z") == first
        assert await stores.lines.find_tag(LINE, "none") is None

    async def test_a_sound_line_verifies_whatever_the_order_of_its_changes(self, stores: Stores) -> None:
        await commit(stores, written("z", "1"), written("a", "2"), written("m", "3"), values=("1", "2", "3"))
        await commit(stores, deleted("z", 1), written("a", "3", 2))
        assert await stores.lines.verify(LINE) is None

    async def test_an_erased_line_takes_only_its_own_values_with_it(self, stores: Stores) -> None:
        await commit(stores, written("a", "mine"), written("b", "shared"), values=("mine", "shared"))
        await stores.lines.create("other")
        other = Commit("other", 1, AUTHOR, 1, "write", None, (written("x", "shared"),))
        await stores.lines.append(Head("other", 0, EMPTY, 0, None), other, weight=0, next_expiry_at=None)
        await stores.lines.erase(LINE)
        assert await stores.lines.lock(LINE) is None
        assert [v.value for v in await stores.lines.versions("other", "x", 1, 10)] == ["shared"]
        assert await stores.lines.verify("other") is None

    async def test_tenants_have_their_own_lines(self, stores: Stores, elsewhere: Stores) -> None:
        await commit(stores, written("a", "1"), values=("1",))
        assert await elsewhere.lines.lock(LINE) is None
        assert await elsewhere.lines.state_at(LINE, 1) == []
