"""Storage ports of layers: their names, and the versions pinned in sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from weftline.history.composite_lines import PartVersion
from weftline.kernel.ports import ValueCache

if TYPE_CHECKING:
    from collections.abc import Sequence


class LayerPin(msgspec.Struct, frozen=True):
    """The layer versions that an agent's prompts have in a session, lowest level first; they move together."""

    session_id: str
    principal_id: str
    versions: tuple[PartVersion, ...]
    pinned_at: int


class ListedLayer(NamedTuple):
    """A layer that has been defined: its version, size, and the last commit."""

    name: str
    version: int
    hash: bytes
    size: int
    author: str
    committed_at: int


class LayerStore(Protocol):
    """Layers of a tenant."""

    async def add(self, name: str) -> None:
        """Add the name of a layer, if it is new."""
        ...

    async def remove(self, name: str) -> None: ...

    async def page(self, after: str, limit: int) -> Sequence[ListedLayer]:
        """Return the next layers, by name."""
        ...

    async def find_pin(self, session_id: str, principal_id: str) -> LayerPin | None: ...

    async def put_pin(self, pin: LayerPin) -> None:
        """Pin versions in place of the previous ones, and keep them from being pruned."""
        ...


class LayerTexts(ValueCache, Protocol):
    """Cache of layers by line and version."""
