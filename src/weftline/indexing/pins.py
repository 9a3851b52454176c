"""Pins: items that belong to every search answer and every prompt, whatever their score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.indexing.collections import MEMORY, SESSIONS, MemoryKey, item_of_key
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import Conflict, NotFound
from weftline.kernel.identity import SUBAGENT, Actor
from weftline.kernel.ports import approximate_tokens
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.transaction import Row


# Pinned items, the limit of their size, and the message categories that pin.

# Messages of these categories are pinned when they are sent, by those who may pin for others.
PINNING_CATEGORIES = frozenset(
    {"decision", "commitment", "constraint", "requirement", "immutable_fact", "guardrail", "pinned"}
)
# Messages of these categories get a higher importance; this also applies to messages of sub-agents.
WEIGHTY_CATEGORIES = PINNING_CATEGORIES | {"fact"}
# Of one place; each author may use half of them.
MAX_PINS = 50
# Of English text; roughly right for prompts.
BYTES_PER_TOKEN = 4


def may_pin_for_others(participant: str) -> bool:
    """Tell whether a participant may pin what others have in their prompts too: everyone but sub-agents.

    The rule for `pin.add`, for messages that pin themselves and for those of restored sessions.
    """
    return not participant.startswith(SUBAGENT)


class PinLimitExceeded(Conflict):
    """The pins of this session or memory would become too large: every prompt contains all of them."""

    code = "PIN_LIMIT"
    hint = (
        "List the pins with `pin.list`, remove what is settled with `pin.remove`, or shorten the text. A message of "
        "another category, such as DIALOG, is not pinned."
    )
    related = ("pins",)


class PinNotFound(NotFound):
    """This item is not pinned, or not visible to you."""

    code = "PIN_NOT_FOUND"
    hint = "List the pins with `pin.list`."
    related = ("pins",)


@dataclass(frozen=True, slots=True)
class PinLimits:
    """Maximum tokens of the pins of one place; each author may use half of them."""

    tokens: int

    @property
    def tokens_of_author(self) -> int:
        return self.tokens // 2


class ItemPlace(msgspec.Struct, frozen=True):
    """An item in the search index: its collection, its place (a session or the owner of a memory) and its id.

    ``session_id`` is the session that the item is deleted with, if any.
    """

    collection: str
    place: str
    item: str
    session_id: str | None = None

    @classmethod
    def of_message(cls, session_id: str, message_id: int) -> ItemPlace:
        return cls(SESSIONS, session_id, str(message_id), session_id)

    @classmethod
    def of_board_key(cls, session_id: str, key: str) -> ItemPlace:
        return cls(SESSIONS, session_id, item_of_key(key), session_id)

    @classmethod
    def of_memory_key(cls, owner: str, session_id: str | None, key: str) -> ItemPlace:
        return cls(MEMORY, owner, str(MemoryKey(session_id, key)), session_id)


class PinnedItem(msgspec.Struct, frozen=True):
    """A pinned item, its tokens, and the principal who pinned it."""

    at: ItemPlace
    tokens: int
    pinned_by: str
    pinned_at: int


def check_limits(pin: PinnedItem, others: Sequence[PinnedItem], limits: PinLimits) -> None:
    """Raise PinLimitExceeded if a pin does not fit in beside the other ones of its place."""
    by_author = [other for other in others if other.pinned_by == pin.pinned_by]
    total = pin.tokens + sum(other.tokens for other in others)
    of_author = pin.tokens + sum(other.tokens for other in by_author)
    if len(others) >= MAX_PINS:
        raise PinLimitExceeded(f"There are {len(others)} pins already; {MAX_PINS} is the maximum.", pins=len(others))
    if len(by_author) >= MAX_PINS // 2:
        raise PinLimitExceeded(
            f"You have {len(by_author)} pins here already; {MAX_PINS // 2} is the maximum of one author.",
            pins=len(by_author),
        )
    if total > limits.tokens:
        raise PinLimitExceeded(
            f"The pins would have {total} tokens; {limits.tokens} is the maximum.",
            tokens=total,
            limit_tokens=limits.tokens,
        )
    if of_author > limits.tokens_of_author:
        raise PinLimitExceeded(
            f"Your pins would have {of_author} tokens; {limits.tokens_of_author} is the maximum of one author.",
            tokens=of_author,
            limit_tokens=limits.tokens_of_author,
        )


# SQL store of pinned items.

_PIN = "SELECT collection, place, item, session_id, tokens, pinned_by, pinned_at FROM pinned_items "


class PinStore(SqlStore):
    """The pinned items of the transaction's tenant."""

    async def find(self, at: ItemPlace) -> PinnedItem | None:
        row = await self._tx.one(
            _PIN + "WHERE tenant = $1 AND collection = $2 AND place = $3 AND item = $4",
            self._tenant,
            at.collection,
            at.place,
            at.item,
        )
        return None if row is None else _pin(row)

    async def of_place(self, collection: str, place: str) -> Sequence[PinnedItem]:
        """Return the pins of a session, or of the memory of an owner, oldest first."""
        rows = await self._tx.all(
            _PIN + "WHERE tenant = $1 AND collection = $2 AND place = $3 ORDER BY pinned_at, item",
            self._tenant,
            collection,
            place,
        )
        return [_pin(row) for row in rows]

    async def put(self, pin: PinnedItem) -> None:
        await self._tx.run(
            """
            INSERT INTO pinned_items (tenant, collection, place, item, session_id, tokens, pinned_by, pinned_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, collection, place, item) DO UPDATE SET
                tokens = excluded.tokens
            """,
            self._tenant,
            pin.at.collection,
            pin.at.place,
            pin.at.item,
            pin.at.session_id or "",
            pin.tokens,
            pin.pinned_by,
            pin.pinned_at,
        )

    async def remove(self, at: ItemPlace) -> None:
        await self._tx.run(
            "DELETE FROM pinned_items WHERE tenant = $1 AND collection = $2 AND place = $3 AND item = $4",
            self._tenant,
            at.collection,
            at.place,
            at.item,
        )


def _pin(row: Row) -> PinnedItem:
    collection, place, item, session_id, *rest = row
    return PinnedItem(ItemPlace(collection, place, item, session_id or None), *rest)


# Pinning within the limits, for the caller of one operation. Callers hold the lock of the place.


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
