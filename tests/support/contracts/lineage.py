"""The contract of LineageStore."""

from __future__ import annotations

from msgspec import structs

from support.contracts.history import commit, write, written
from support.contracts.records import stored_record
from support.contracts.stores import ContractStores
from weftline.exchange.lineage_sql import Derivation, DerivedSummary, SentPrompt
from weftline.history.model import ChangeMeta, blob_hash
from weftline.prompts.assembly.receipts import ReceiptBlock
from weftline.records.item_refs import item_hash
from weftline.safety.trust.model import Source, Trust, TrustLabel
from weftline.testing.receipts import receipt

LINE, OTHER = "board:s1", "board:s2"
GUIDE = "knowledge://handbook/guide.md"


async def derive(stores: ContractStores, key: str, *sources: str, version: int = 1) -> None:
    """Write a key that names its sources."""
    label = TrustLabel(Source.AGENT, Trust.UNTRUSTED, derived_from=sources)
    change = structs.replace(written(key, key, version), meta=ChangeMeta(trust=label))
    await commit(stores, change, values=(key,), line=LINE)


class LineageStoreContract:
    """Derivations are found by their source, copies by their value, prompts by the items in them."""

    async def test_what_declares_a_source_is_found_without_versions(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        await derive(stores, "a", f"{GUIDE}?version=3", "tool:browser", "no reference")
        await derive(stores, "b", f"{LINE}/a/1.1", f"{LINE}/b")
        found = await stores.lineage.derived_from([GUIDE, f"{LINE}/a", f"{LINE}/b"])
        assert {(each.source, each.item) for each in found} == {(GUIDE, f"{LINE}/a"), (f"{LINE}/a", f"{LINE}/b")}
        assert all(isinstance(each, Derivation) for each in found)
        assert await elsewhere.lineage.derived_from([GUIDE]) == []
        await stores.lines.erase(LINE)
        assert await stores.lineage.derived_from([GUIDE, f"{LINE}/a"]) == []

    async def test_recorded_summaries_are_found_by_the_items_they_name(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        late = stored_record("late", type="context_summary", recorded_at=30)
        await stores.records.add(late, [f"{LINE}/a/1.1", f"{LINE}/b/1.1"])
        await stores.records.add(stored_record("early", type="context_summary", recorded_at=20), [f"{LINE}/a/1.1"])
        await stores.records.add(stored_record("other"), [f"{LINE}/a/1.1"])
        found = await stores.lineage.summaries_of([f"{LINE}/a/1.1", f"{LINE}/c/1.1"])
        assert found == [DerivedSummary(f"{LINE}/a/1.1", name, at) for name, at in (("early", 20), ("late", 30))]
        assert await elsewhere.lineage.summaries_of([f"{LINE}/a/1.1"]) == []

    async def test_copies_are_found_by_their_value(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        same = "the same long sentence"
        await write(stores, "a", same, line=LINE)
        await write(stores, "b", same, line=OTHER)
        await write(stores, "c", "another long sentence", line=OTHER)
        await write(stores, "d", "short", line=OTHER)
        await write(elsewhere, "a", same, line=LINE)
        found = await stores.lineage.copies([blob_hash(same), blob_hash("short")], 0, 10)
        assert sorted(each.item for each in found) == [f"{LINE}/a", f"{OTHER}/b"]
        assert len(await stores.lineage.copies([blob_hash(same)], 0, 1)) == 1
        assert await stores.lineage.copies([blob_hash(same)], found[-1].at + 1, 10) == []

    async def test_erased_values_are_gone_unless_another_version_has_them(self, stores: ContractStores) -> None:
        pasted = "a sentence that was pasted"
        await write(stores, "a", pasted, line=LINE)
        await write(stores, "a", "later", 2, line=LINE)
        await write(stores, "b", pasted, line=OTHER)
        first = await stores.lineage.versions(LINE, "a")
        assert [(each.incarnation, each.version) for each in first] == [(1, 1), (1, 2)]
        assert await stores.lineage.erase_values(first[:1]) == 0
        assert [each.version for each in await stores.lineage.versions(LINE, "a")] == [2]
        assert await stores.lineage.erase_values(await stores.lineage.versions(OTHER, "b")) > 0
        assert await stores.lineage.copies([blob_hash(pasted)], 0, 10) == []
        assert await stores.lines.find(LINE) is not None

    async def test_prompts_are_read_in_order_with_the_hashes_of_their_items(self, stores: ContractStores) -> None:
        block = ReceiptBlock(
            block_id="b", kind="retrieved", digest="dd" * 32, tokens=1, items={"domain:handbook/4": "1"}
        )
        sent = structs.replace(receipt("r1", 5), blocks=(block,), documents={"domain:handbook/4": f"{GUIDE}?version=1"})
        await stores.receipts.add(sent, {"dd" * 32: b"[]"})
        await stores.receipts.add(receipt("r2", 7), {})
        first, second = await stores.lineage.prompts(None, (0, ""), 10)
        assert first == SentPrompt("r1", "s", "a", 5, item_hash(GUIDE))
        assert [each.receipt_id for each in await stores.lineage.prompts("a", (5, "r1"), 10)] == ["r2"]
        assert await stores.lineage.prompts("b", (0, ""), 10) == []
        assert second.at == await stores.lineage.next_prompt_at("s", "a", 5)
        assert await stores.lineage.next_prompt_at("s", "a", 7) is None
        assert await stores.lineage.next_prompt_at("s", "b", 5) is None
        assert await stores.lineage.erase_prompt_texts(GUIDE, ["r1", "r2", "r3"]) == 1
        assert await stores.receipts.texts("s", ["dd" * 32]) == {}
