"""What a trace finds, and the errors of references."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from weftline.kernel.errors import NotFound

# declared: it names its source; copy: it has the same content; possible: its author wrote it after a prompt with the
# source in it, before the next prompt.
Derived = Literal["source", "declared", "copy", "possible"]
Reference = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=1_000,
        description="An item id with or without version, such as board:SESSION/KEY, message:SESSION/NUMBER, "
        "knowledge://DOMAIN/DOCUMENT; or tool:NAME, url:ADDRESS.",
        extra_json_schema={"examples": ["knowledge://handbook/guide.md"]},
    ),
]


class ItemNotFound(NotFound):
    """There is no such item, or you may not read it."""

    code = "ITEM_NOT_FOUND"
    hint = (
        "A reference is board:SESSION/KEY, memory:AGENT/KEY, context:AGENT:TYPE/KEY, window:SESSION:AGENT/EVENT, "
        "message:SESSION/NUMBER or knowledge://DOMAIN/DOCUMENT; `records.list` lists item ids."
    )
    related = ("context_records",)


def no_item(reference: str) -> ItemNotFound:
    shown = reference[:100]
    return ItemNotFound(f"There is no item '{shown}'.", resource_type="item", resource_id=shown)


class TracedItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item of a trace: how it derives from ``via`` (an item or receipt), in how many steps, since when.

    ``is_summary``: it is a recorded summary, and ``item`` its id.
    """

    item: str
    how: Derived
    via: str
    steps: int
    at: int
    version: str = ""
    is_summary: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether it is the source itself, declares it, or has its content."""
        return self.how != "possible"
