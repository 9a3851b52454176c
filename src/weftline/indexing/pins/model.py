"""Pinned items, the limit of their size, and the message categories that pin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from weftline.indexing.collections.item_ids import MemoryKey, item_of_key
from weftline.indexing.collections.model import MEMORY, SESSIONS
from weftline.kernel.errors import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

# Messages of these categories are pinned when they are sent, except those of sub-agents.
PINNING_CATEGORIES = frozenset(
    {"decision", "commitment", "constraint", "requirement", "immutable_fact", "guardrail", "pinned"}
)
# Messages of these categories get a higher importance; this also applies to messages of sub-agents.
WEIGHTY_CATEGORIES = PINNING_CATEGORIES | {"fact"}
# Of one place; each author may use half of them.
MAX_PINS = 50
# Of English text; roughly right for prompts.
BYTES_PER_TOKEN = 4


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
