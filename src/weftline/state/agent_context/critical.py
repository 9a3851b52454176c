"""Critical updates: edits of an agent's definition or layers that it must pull. Content is never part of them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from weftline.kernel.clock import from_micros
from weftline.kernel.operation import Response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.history.composite_lines import PartVersion


class CriticalEdit(msgspec.Struct, frozen=True):
    """A version of a line that its author marked as critical."""

    line_id: str
    version: int
    author: str
    marked_at: int


class CriticalChange(Response):
    """A critical version that is newer than the pinned one: of which line, by whom and when."""

    context_id: str
    pinned_version: int
    version: int
    author: str
    marked_at: datetime

    @classmethod
    def since(cls, pinned: PartVersion, edit: CriticalEdit) -> CriticalChange:
        return cls(
            context_id=edit.line_id,
            pinned_version=pinned.seq,
            version=edit.version,
            author=edit.author,
            marked_at=from_micros(edit.marked_at),
        )


class CriticalUpdate(Response):
    """Critical changes that the session does not have yet: pull them with `context.pull`."""

    changes: list[CriticalChange]

    @property
    def note(self) -> str:
        """Return the notice that an agent receives."""
        edits = "; ".join(
            f"{each.context_id} version {each.version} by {each.author} (yours: version {each.pinned_version})"
            for each in self.changes
        )
        return f"Critical update: {edits}. Call pull_context to get it before you continue."


class CriticalEditStore(Protocol):
    """Critical edits of a tenant's lines."""

    async def mark(self, edit: CriticalEdit) -> None:
        """Mark a version; marking it again changes nothing."""
        ...

    async def newer_than(self, versions: Sequence[PartVersion]) -> Sequence[CriticalEdit]:
        """Return the newest critical edit of each line after these versions."""
        ...
