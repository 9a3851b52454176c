"""Contracts of EntryStore and ConventionStore."""

from __future__ import annotations

from support.contracts.stores import ContractStores
from weftline.history.model import blob_hash
from weftline.kernel.identity import ANYONE
from weftline.state.board.model import Entry, EntryWithValue


def entry(
    key: str,
    value: str = "text",
    *,
    version: int = 1,
    expires_at: int | None = None,
    reads: int = 0,
    last_read_at: int | None = None,
) -> Entry:
    return Entry(
        key=key,
        incarnation=1,
        version=version,
        blob_hash=blob_hash(value),
        tokens=3,
        written_by="orchestrator",
        written_at=1,
        expires_at=expires_at,
        readable_by=ANYONE,
        writable_by=("subagent:*", "human:é"),
        reads=reads,
        last_read_at=last_read_at,
    )


class EntryStoreContract:
    """Current entries of a board with their values."""

    async def test_an_entry_is_read_as_it_was_put(self, stores: ContractStores) -> None:
        await stores.entries.put("s1", entry("goal", expires_at=9))
        assert await stores.entries.get("s1", "goal") == entry("goal", expires_at=9)
        assert await stores.entries.get("s1", "none") is None
        assert await stores.entries.get("s2", "goal") is None

    async def test_putting_again_replaces_the_entry_and_keeps_its_read_count(self, stores: ContractStores) -> None:
        await stores.entries.put("s1", entry("goal"))
        await stores.entries.add_reads("s1", "goal", 2, 5)
        await stores.entries.add_reads("s1", "goal", 1, 6)
        await stores.entries.put("s1", entry("goal", "other", version=2))
        expected = entry("goal", "other", version=2, reads=3, last_read_at=6)
        assert await stores.entries.get("s1", "goal") == expected

    async def test_entries_are_put_in_bulk(self, stores: ContractStores) -> None:
        await stores.entries.put("s1", entry("b", "old"))
        await stores.entries.put_all("s1", [entry("a"), entry("b", "new", version=2)])
        await stores.entries.put_all("s1", [])
        assert await stores.entries.list("s1") == [entry("a"), entry("b", "new", version=2)]

    async def test_entries_are_listed_by_key_in_the_order_of_their_characters(self, stores: ContractStores) -> None:
        for key in ("b", "a_b", "ab", "a1", "_", "a:b"):
            await stores.entries.put("s1", entry(key))
        assert [found.key for found in await stores.entries.list("s1")] == ["_", "a1", "a:b", "a_b", "ab", "b"]
        assert await stores.entries.keys_after("s1", "", 2) == ["_", "a1"]
        assert await stores.entries.keys_after("s1", "a1", 9) == ["a:b", "a_b", "ab", "b"]
        assert await stores.entries.keys_after("s2", "", 9) == []

    async def test_values_come_with_the_entries_that_name_them(self, stores: ContractStores) -> None:
        for key, value in (("a", "naïve\x00 漢"), ("b", "")):
            await stores.lines.put_blob(blob_hash(value), value)
            await stores.entries.put("s1", entry(key, value))
        assert list(await stores.entries.read("s1", ["b", "none"])) == [EntryWithValue(entry("b", ""), "")]
        found = await stores.entries.read_all("s1")
        assert [(each.entry.key, each.value) for each in found] == [("a", "naïve\x00 漢"), ("b", "")]

    async def test_a_removed_entry_is_gone(self, stores: ContractStores) -> None:
        await stores.entries.put("s1", entry("goal"))
        await stores.entries.remove("s1", "goal")
        await stores.entries.remove("s1", "goal")
        assert await stores.entries.list("s1") == []

    async def test_the_next_expiry_is_the_earliest(self, stores: ContractStores) -> None:
        assert await stores.entries.next_expiry("s1") is None
        for key, expires_at in (("a", 7), ("b", 5), ("c", None)):
            await stores.entries.put("s1", entry(key, expires_at=expires_at))
        assert await stores.entries.next_expiry("s1") == 5

    async def test_tenants_have_their_own_entries(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.entries.put("s1", entry("goal"))
        assert await elsewhere.entries.list("s1") == []
        await elsewhere.entries.remove("s1", "goal")
        assert len(await stores.entries.list("s1")) == 1


class ConventionStoreContract:
    """Key conventions by name."""

    async def test_conventions_are_replaced_and_listed_by_name(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        await stores.conventions.put("b", {"groups": [1]}, "admin", 1)
        await stores.conventions.put("a", {"groups": []}, "admin", 1)
        await stores.conventions.put("b", {"groups": ["é"]}, "admin", 2)
        assert await stores.conventions.get("b") == {"groups": ["é"]}
        assert await stores.conventions.get("none") is None
        assert await stores.conventions.names() == ["a", "b"]
        assert await elsewhere.conventions.names() == []
