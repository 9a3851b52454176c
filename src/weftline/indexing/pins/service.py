"""Pinning within the limits, for the caller of one operation. Callers hold the lock of the place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.indexing.pins.model import ItemPlace, PinLimits, PinnedItem, check_limits
from weftline.indexing.pins.sql import PinStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.identity import Actor
from weftline.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping


class Pins(msgspec.Struct, frozen=True):
    """Pins and unpins items, and keeps pinned ones within the limits when they grow."""

    actor: Actor
    store: PinStore
    clock: Clock
    limits: PinLimits

    async def add(self, at: ItemPlace, text: str) -> PinnedItem:
        """Pin an item with this text; an item that is pinned already keeps its author."""
        found = await self.store.find(at)
        pin = found or PinnedItem(at, 0, self.actor.principal_id, to_micros(self.clock.now()))
        return await self._put(structs.replace(pin, tokens=approximate_tokens(text)))

    async def resize(self, at: ItemPlace, tokens: int) -> None:
        """Count the new size of an item if it is pinned; raises PinLimitExceeded if it grows too large."""
        pin = await self.store.find(at)
        if pin is None:
            return
        if tokens > pin.tokens:
            await self._put(structs.replace(pin, tokens=tokens))
        elif tokens < pin.tokens:
            await self.store.put(structs.replace(pin, tokens=tokens))

    async def resize_all(self, sizes: Mapping[ItemPlace, int | None]) -> None:
        """Count the new sizes of changed items of one place, as far as they are pinned; None if one was deleted."""
        place = next(iter(sizes), None)
        if place is None:
            return
        pinned = await self.store.of_place(place.collection, place.place)
        growth = {pin.at: (sizes[pin.at] or 0) - pin.tokens for pin in pinned if pin.at in sizes}
        # Those that shrink first, because they make room for others.
        for at in sorted(growth, key=growth.__getitem__):
            tokens = sizes[at]
            if tokens is None:
                await self.forget(at)
            else:
                await self.resize(at, tokens)

    async def forget(self, at: ItemPlace) -> None:
        """Unpin an item that was deleted."""
        await self.store.remove(at)

    async def _put(self, pin: PinnedItem) -> PinnedItem:
        others = [each for each in await self.store.of_place(pin.at.collection, pin.at.place) if each.at != pin.at]
        check_limits(pin, others, self.limits)
        await self.store.put(pin)
        return pin
