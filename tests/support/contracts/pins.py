"""The contract of PinStore."""

from __future__ import annotations

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.indexing.pins import ItemPlace, PinnedItem

MESSAGE = PinnedItem(ItemPlace.of_message("s1", 3), 12, "planner", 20)
KEY = PinnedItem(ItemPlace.of_board_key("s1", "goal"), 5, "planner", 10)
MEMORY = PinnedItem(ItemPlace.of_memory_key("s1", None, "goal"), 7, "s1", 30)


class PinStoreContract:
    """Pins belong to a place of a collection."""

    async def test_pins_of_a_place_are_listed_oldest_first(self, stores: ContractStores) -> None:
        for pin in (MESSAGE, KEY, MEMORY):
            await stores.pins.put(pin)
        assert await stores.pins.of_place("sessions", "s1") == [KEY, MESSAGE]
        assert await stores.pins.of_place("memory", "s1") == [MEMORY]
        assert await stores.pins.find(MESSAGE.at) == MESSAGE
        assert await stores.pins.find(ItemPlace.of_message("s1", 4)) is None

    async def test_pinning_again_keeps_the_author_and_changes_the_size(self, stores: ContractStores) -> None:
        await stores.pins.put(KEY)
        await stores.pins.put(structs.replace(KEY, tokens=9, pinned_by="other", pinned_at=99))
        assert await stores.pins.find(KEY.at) == structs.replace(KEY, tokens=9)

    async def test_a_removed_pin_is_gone(self, stores: ContractStores) -> None:
        await stores.pins.put(KEY)
        await stores.pins.remove(KEY.at)
        assert await stores.pins.find(KEY.at) is None

    async def test_tenants_have_their_own_pins(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.pins.put(KEY)
        assert await elsewhere.pins.of_place("sessions", "s1") == []
