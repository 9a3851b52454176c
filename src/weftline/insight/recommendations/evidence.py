"""Which items of a prompt its answer used, by the evidence that is stored with the receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.prompts.efficiency.model import USED

if TYPE_CHECKING:
    from weftline.prompts.assembly.receipts import StoredReceipt

TOOL = "tool:"


def useful_items(stored: StoredReceipt) -> frozenset[str] | None:
    """Return the refs of what the answer used and of what every prompt needs; None without a reported answer."""
    if stored.scored is None:
        return None
    return frozenset(item.ref for item in stored.scored.items if item.use in USED or item.use == "required")


def likelihoods(stored: StoredReceipt) -> dict[str, float]:
    """Return how likely it is that the answer used each item, where texts were compared."""
    items = () if stored.scored is None else stored.scored.items
    return {item.ref: item.likelihood for item in items if item.likelihood is not None}
