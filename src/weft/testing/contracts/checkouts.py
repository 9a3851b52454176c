"""Contract of CheckoutStore."""
# ruff: noqa: S101 - tests that others run

from __future__ import annotations

from weft.capabilities.history.model import EMPTY, Point
from weft.capabilities.history.store import Checkout
from weft.testing.contracts.stores import ContractStores

LINE = "board:s1"


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
