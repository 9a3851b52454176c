"""The contract of MemoryStore."""

from __future__ import annotations

from support.contracts.stores import ContractStores
from weftline.history.model import blob_hash
from weftline.state.memory.model import (
    START,
    KeyRange,
    MemoryCursor,
    MemoryEntry,
    MemoryEntryWithValue,
    MemoryScope,
    MemoryUsage,
    ScopeSize,
)

GLOBAL = MemoryScope("planner", None)
IN_SESSION = MemoryScope("planner", "s1")
EVERY_KEY = KeyRange.of("")


def entry(
    key: str,
    text: str = "1",
    *,
    session_id: str | None = None,
    version: int = 1,
    metadata: str | None = None,
    expires_at: int | None = None,
) -> MemoryEntry:
    return MemoryEntry(
        session_id=session_id,
        key=key,
        incarnation=1,
        version=version,
        blob_hash=blob_hash(text),
        size=len(text.encode()),
        metadata=metadata,
        created_at=1,
        updated_at=2,
        expires_at=expires_at,
    )


async def put(stores: ContractStores, scope: MemoryScope, *keys: str, expires_at: int | None = None) -> None:
    for key in keys:
        await stores.memory.put(scope, entry(key, session_id=scope.session_id, expires_at=expires_at))


async def listed(
    stores: ContractStores, after: MemoryCursor = START, *, now: int = 5, limit: int = 99
) -> list[MemoryCursor]:
    found = await stores.memory.page_of_all("planner", after, EVERY_KEY, now, limit)
    return [MemoryCursor.of(each) for each in found]


class MemoryStoreContract:
    """Entries of agents' memories, and their total size."""

    async def test_an_entry_is_returned_unchanged(self, stores: ContractStores) -> None:
        expected = entry("Goal-1", metadata='{"a":"\\u0000é"}', expires_at=9)
        await stores.memory.put(GLOBAL, expected)
        assert await stores.memory.get(GLOBAL, "Goal-1") == expected
        assert await stores.memory.get(GLOBAL, "goal-1") is None
        assert await stores.memory.get(IN_SESSION, "Goal-1") is None
        assert await stores.memory.get(MemoryScope("other", None), "Goal-1") is None

    async def test_putting_again_replaces_everything(self, stores: ContractStores) -> None:
        await stores.memory.put(GLOBAL, entry("goal", metadata="{}", expires_at=9))
        await stores.memory.put(GLOBAL, entry("goal", "22", version=2))
        assert await stores.memory.get(GLOBAL, "goal") == entry("goal", "22", version=2)

    async def test_a_removed_entry_is_gone(self, stores: ContractStores) -> None:
        await put(stores, GLOBAL, "goal")
        await put(stores, IN_SESSION, "goal")
        await stores.memory.remove(GLOBAL, "goal")
        await stores.memory.remove(GLOBAL, "goal")
        assert await listed(stores) == [MemoryCursor("s1", "goal")]

    async def test_values_come_with_the_entries_that_name_them(self, stores: ContractStores) -> None:
        text = '"naïve\\u0000 漢"'
        await stores.lines.put_blob(blob_hash(text), text)
        await stores.memory.put(GLOBAL, entry("a", text))
        assert await stores.memory.read(GLOBAL, "a") == MemoryEntryWithValue(entry("a", text), text)
        assert await stores.memory.read(GLOBAL, "b") is None

    async def test_any_number_of_values_is_read_by_their_hashes(self, stores: ContractStores) -> None:
        texts = [str(number) for number in range(120)]
        for text in texts:
            await stores.lines.put_blob(blob_hash(text), text)
        hashes = [blob_hash(text) for text in texts]
        assert await stores.memory.values([]) == {}
        assert await stores.memory.values(hashes[:1] * 3) == {hashes[0]: "0"}
        assert await stores.memory.values(hashes) == dict(zip(hashes, texts, strict=True))

    async def test_a_page_has_the_live_keys_of_a_range_in_the_order_of_their_characters(
        self, stores: ContractStores
    ) -> None:
        await put(stores, GLOBAL, "b", "a_b", "ab", "a-1", "A", "Z", "_", "a")
        await put(stores, GLOBAL, "a_gone", expires_at=5)
        await put(stores, GLOBAL, "a_soon", expires_at=6)

        async def keys(among: KeyRange, limit: int = 99) -> list[str]:
            return [found.key for found in await stores.memory.page(GLOBAL, among, 5, limit)]

        assert await keys(EVERY_KEY) == ["A", "Z", "_", "a", "a-1", "a_b", "a_soon", "ab", "b"]
        assert await keys(KeyRange.of("a")) == ["a", "a-1", "a_b", "a_soon", "ab"]
        assert await keys(KeyRange.of("a_")) == ["a_b", "a_soon"]
        assert await keys(KeyRange.of("a", "a")) == ["a-1", "a_b", "a_soon", "ab"]
        assert await keys(KeyRange.of("a", "a-1"), 2) == ["a_b", "a_soon"]
        assert await keys(KeyRange.of("b", "a")) == ["b"]

    async def test_a_whole_memory_is_paged_global_first_and_then_by_session(self, stores: ContractStores) -> None:
        await put(stores, MemoryScope("planner", "s2"), "a")
        await put(stores, IN_SESSION, "b", "a")
        await put(stores, GLOBAL, "c")
        await put(stores, MemoryScope("other", None), "a")
        every = [MemoryCursor(None, "c"), MemoryCursor("s1", "a"), MemoryCursor("s1", "b"), MemoryCursor("s2", "a")]
        assert await listed(stores) == every
        assert await listed(stores, limit=2) == every[:2]
        assert await listed(stores, every[1]) == every[2:]
        assert await listed(stores, MemoryCursor.after_scope("s1")) == every[3:]
        assert await listed(stores, MemoryCursor.after_scope(None)) == every[1:]

    async def test_sizes_count_live_entries(self, stores: ContractStores) -> None:
        await put(stores, GLOBAL, "a", "b")
        await put(stores, IN_SESSION, "a")
        await put(stores, IN_SESSION, "c", expires_at=5)
        await put(stores, MemoryScope("planner", "s2"), "c", expires_at=4)
        assert list(await stores.memory.sizes("planner", 5)) == [ScopeSize(None, 2), ScopeSize("s1", 1)]
        assert list(await stores.memory.sizes("nobody", 5)) == []

    async def test_expired_entries_are_found_longest_overdue_first(self, stores: ContractStores) -> None:
        for key, expires_at in (("a", 7), ("b", 3), ("c", None), ("d", 5), ("e", 6)):
            await put(stores, GLOBAL, key, expires_at=expires_at)
        await put(stores, IN_SESSION, "f", expires_at=1)
        assert [found.key for found in await stores.memory.expired(GLOBAL, 6, 9)] == ["b", "d", "e"]
        assert [found.key for found in await stores.memory.expired(GLOBAL, 6, 1)] == ["b"]
        assert await stores.memory.next_expiry(GLOBAL) == 3
        assert await stores.memory.next_expiry(MemoryScope("planner", "s2")) is None
        assert await stores.memory.expired_usage("planner", 6) == MemoryUsage(weight=8, expired=4)
        assert await stores.memory.expired_usage("nobody", 6) == MemoryUsage(0, 0)

    async def test_usage_is_stored_by_owner(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        assert await stores.memory.usage("planner") == MemoryUsage(0, 0)
        assert await stores.memory.lock("planner") == MemoryUsage(0, 0)
        await stores.memory.adjust("planner", 10, 0)
        await stores.memory.adjust("planner", -3, 2)
        assert await stores.memory.lock("planner") == await stores.memory.usage("planner") == MemoryUsage(7, 2)
        assert await stores.memory.usage("other") == await elsewhere.memory.usage("planner") == MemoryUsage(0, 0)

    async def test_memories_are_deleted_with_their_session(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        other = MemoryScope("other", "s1")
        for scope in (GLOBAL, IN_SESSION, other):
            await stores.memory.lock(scope.owner)
            await stores.memory.add_scope(scope)
            await put(stores, scope, "a", "b")
            await stores.memory.adjust(scope.owner, 4, 0)
        assert list(await stores.sessions.lines("s1")) == ["board:s1", other.line_id, IN_SESSION.line_id]
        await elsewhere.sessions.erase("s1")
        await stores.sessions.erase("s1")
        assert await listed(stores) == [MemoryCursor(None, "a"), MemoryCursor(None, "b")]
        assert (await stores.memory.usage("planner"), await stores.memory.usage("other")) == (
            MemoryUsage(4, 0),
            MemoryUsage(0, 0),
        )
        assert list(await stores.sessions.lines("s1")) == ["board:s1"]

    async def test_tenants_have_their_own_memories(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await put(stores, GLOBAL, "a")
        assert await elsewhere.memory.get(GLOBAL, "a") is None
        await elsewhere.memory.remove(GLOBAL, "a")
        assert await stores.memory.get(GLOBAL, "a") is not None
