"""The contract of ReceiptStore."""

from __future__ import annotations

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.prompts.assembly.receipts import (
    ReportedUsage,
    StoredReceipt,
)
from weftline.prompts.efficiency import ItemUse, efficiency_of
from weftline.testing.receipts import OWN, SHARED, TOOLS, receipt

USAGE = ReportedUsage(
    model="m", input_tokens=90, output_tokens=7, cache_read_tokens=40, cache_write_tokens=50, cost=0.5, reported_at=9
)


def texts(own: str = OWN) -> dict[str, bytes]:
    return {SHARED: b'["shared"]', own: f'["{own}"]'.encode() * 500, TOOLS: b"[]"}


class ReceiptStoreContract:
    """Receipts are stored unchanged; texts that several have are stored once and kept as long as one needs them."""

    async def test_a_receipt_and_its_texts_are_returned_unchanged(self, stores: ContractStores) -> None:
        made = receipt("r1", 10)
        await stores.receipts.add(made, texts())
        assert await stores.receipts.find("r1") == StoredReceipt(made, None)
        assert await stores.receipts.find("r2") is None
        assert await stores.receipts.texts("s", [SHARED, OWN, TOOLS, "dd" * 32]) == texts()
        assert await stores.receipts.texts("other", [SHARED]) == {}

    async def test_the_last_receipt_of_a_window_is_the_newest(self, stores: ContractStores) -> None:
        for made in (receipt("r2", 20), receipt("r1", 10), receipt("r3", 30, agent_id="b")):
            await stores.receipts.add(made, texts())
        assert await stores.receipts.last_id("s", "a") == "r2"
        assert await stores.receipts.last_id("s", "c") is None

    async def test_receipts_are_listed_newest_first_in_pages(self, stores: ContractStores) -> None:
        for number in range(5):
            await stores.receipts.add(receipt(f"r{number}", 10, session_id=f"s{number % 2}"), texts())
        page = await stores.receipts.page(None, "a", None, 3, max_clearance=4)
        assert [each.receipt.receipt_id for each in page] == ["r4", "r3", "r2"]
        rest = await stores.receipts.page(None, "a", (10, "r2"), 3, max_clearance=4)
        assert [each.receipt.receipt_id for each in rest] == ["r1", "r0"]
        of_session = await stores.receipts.page("s1", None, None, 9, max_clearance=4)
        assert [each.receipt.receipt_id for each in of_session] == ["r3", "r1"]

    async def test_usage_is_reported_once(self, stores: ContractStores) -> None:
        await stores.receipts.add(receipt("r1", 10), texts())
        assert await stores.receipts.report("r1", USAGE)
        assert not await stores.receipts.report("r1", USAGE)
        assert not await stores.receipts.report("r1", structs.replace(USAGE, input_tokens=91))
        found = await stores.receipts.find("r1")
        assert found is not None
        assert found.usage == USAGE

    async def test_the_use_of_a_prompt_is_scored_once(self, stores: ContractStores) -> None:
        await stores.receipts.add(receipt("r1", 10), texts())
        used = ItemUse(ref="task:1", kind="task", tokens=50, use="required")
        scored = efficiency_of("answer", sent=80, useful=0, overhead=50, capacity=100, items=[used])
        assert await stores.receipts.score("r1", scored)
        assert not await stores.receipts.score("r1", structs.replace(scored, useful_tokens=30))
        assert not await stores.receipts.score("r2", scored)
        found = await stores.receipts.find("r1")
        assert found is not None
        assert found.scored == found.efficiency == scored

    async def test_totals_are_sums_by_group(self, stores: ContractStores) -> None:
        for made in (receipt("r1", 10), receipt("r2", 20), receipt("r3", 30, agent_id="b")):
            await stores.receipts.add(made, texts())
        await stores.receipts.report("r1", USAGE)
        by_agent = await stores.receipts.totals("agent", None, None, 0, 100, max_clearance=4)
        assert [(row.group, row.calls, row.engine_assembled_tokens) for row in by_agent] == [
            ("a", 2, 160),
            ("b", 1, 80),
        ]
        assert (by_agent[0].reported, by_agent[0].input_tokens, by_agent[0].reported_cost) == (1, 90, 0.5)
        assert (by_agent[1].reported, by_agent[1].input_tokens, by_agent[1].reported_cost) == (0, 0, None)
        (whole,) = await stores.receipts.totals("tenant", None, None, 15, 31, max_clearance=4)
        assert (whole.calls, whole.naive_cost) == (2, 2.0)
        assert (whole.naive_baseline_tokens, whole.document_tokens) == (400, 600)

    async def test_pruning_keeps_the_texts_that_other_receipts_have(self, stores: ContractStores) -> None:
        await stores.receipts.add(receipt("old", 10), texts())
        await stores.receipts.add(receipt("new", 30, own="ee" * 32), texts("ee" * 32))
        assert await stores.receipts.prune(20, 10) == 1
        assert await stores.receipts.find("old") is None
        left = await stores.receipts.texts("s", [SHARED, OWN, TOOLS, "ee" * 32])
        assert left.keys() == {SHARED, TOOLS, "ee" * 32}
        assert await stores.receipts.prune(20, 10) == 0

    async def test_receipts_belong_to_one_tenant(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.receipts.add(receipt("r1", 10), texts())
        assert await elsewhere.receipts.find("r1") is None
        assert await elsewhere.receipts.texts("s", [SHARED]) == {}
        assert not await elsewhere.receipts.report("r1", USAGE)
        assert await elsewhere.receipts.prune(100, 10) == 0
