"""The contract of SwitchStore."""
# ruff: noqa: S101 - tests that others run

from __future__ import annotations

from weft.capabilities.history.model import EMPTY, Point
from weft.capabilities.history.store import Checkout
from weft.testing.contracts.stores import ContractStores

LINE = "board:s1"


class SwitchStoreContract:
    """Who works on which branch is remembered for each line and principal."""

    async def test_whoever_never_switched_is_on_no_branch(self, stores: ContractStores) -> None:
        assert await stores.checkouts.of(LINE, "planner") is None

    async def test_a_switch_lasts_until_the_next_and_is_only_ones_own(self, stores: ContractStores) -> None:
        await stores.checkouts.switch(LINE, "planner", "left")
        await stores.checkouts.switch(LINE, "analysis", "right")
        await stores.checkouts.switch(LINE, "planner", "middle")
        assert await stores.checkouts.of(LINE, "planner") == Checkout("middle")
        assert await stores.checkouts.of(LINE, "analysis") == Checkout("right")
        assert await stores.checkouts.of("board:s2", "planner") is None

    async def test_one_can_switch_back_to_the_line_itself(self, stores: ContractStores) -> None:
        await stores.checkouts.switch(LINE, "planner", "left")
        await stores.checkouts.switch(LINE, "planner", None)
        assert await stores.checkouts.of(LINE, "planner") is None
        await stores.checkouts.switch(LINE, "planner", None)

    async def test_erasing_a_line_forgets_who_switched_on_it(self, stores: ContractStores) -> None:
        await stores.checkouts.switch(LINE, "planner", "left")
        await stores.lines.erase(LINE)
        assert await stores.checkouts.of(LINE, "planner") is None

    async def test_tenants_have_their_own_switches(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.checkouts.switch(LINE, "planner", "left")
        assert await elsewhere.checkouts.of(LINE, "planner") is None
        await elsewhere.checkouts.switch(LINE, "planner", None)
        assert await stores.checkouts.of(LINE, "planner") == Checkout("left")

    async def test_a_branch_that_was_deleted_is_gone_even_if_another_has_its_name(self, stores: ContractStores) -> None:
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
