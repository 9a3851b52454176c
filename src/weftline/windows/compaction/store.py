"""Storage port of compactions, and the cache of their views."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.ports import CacheKey
    from weftline.windows.compaction.model import CompactedView, Compaction, KeyFact

# Views that are stored for one line; of older compactions only the figures remain.
KEPT_VIEWS = 10
# Compactions of one line whose figures are kept.
KEPT_COMPACTIONS = 100


class AppliedCompaction(NamedTuple):
    """The compaction that is in effect on a line, with its view."""

    compaction: Compaction
    view: CompactedView


class ViewCache(Protocol):
    """Views by tenant and compaction; a stored view never changes."""

    def get(self, key: CacheKey) -> CompactedView | None: ...

    def put(self, key: CacheKey, value: CompactedView, weight: int = 1) -> None: ...


class FactCache(Protocol):
    """Key facts by tenant and the versions of the events that they are from."""

    def get(self, key: CacheKey) -> Sequence[KeyFact] | None: ...

    def put(self, key: CacheKey, value: Sequence[KeyFact], weight: int = 1) -> None: ...


class CompactionStore(Protocol):
    """The compactions of the transaction's tenant. A line has at most one that is open, and one that is applied."""

    async def add(self, compaction: Compaction) -> bool:
        """Add a compaction; False if its line has an open one (queued, running or held).

        Only the newest of a line are kept, and those that are open, applied or have a view.
        """
        ...

    async def find(self, compaction_id: str) -> Compaction | None: ...

    async def lock(self, compaction_id: str) -> Compaction | None:
        """Return a compaction, and block other writers of it until the transaction ends."""
        ...

    async def open_for(self, line_id: str) -> Compaction | None:
        """Return the compaction of a line that is queued, running or held."""
        ...

    async def applied(self, line_id: str) -> Compaction | None:
        """Return the compaction that is in effect on a line, without its view."""
        ...

    async def newest(self, line_id: str) -> tuple[Compaction | None, Compaction | None]:
        """Return the newest compaction of a line and the one that is in effect, without their views."""
        ...

    async def current(self, line_id: str) -> AppliedCompaction | None:
        """Return the compaction that is in effect on a line, with its view."""
        ...

    async def view(self, compaction_id: str) -> CompactedView | None:
        """Return the view of a compaction; None if it has none, or if it is too old."""
        ...

    async def page(self, line_id: str, before: str | None, limit: int) -> Sequence[Compaction]:
        """Return the compactions of a line, newest first, before an id."""
        ...

    async def save(self, compaction: Compaction, view: CompactedView | None = None) -> None:
        """Store a compaction, and its view if given. One that is applied supersedes the one before it.

        Only the newest views of a line are kept, and that of the applied compaction.
        """
        ...

    async def erase_views(self, line_id: str) -> int:
        """Delete all views of a line and return how many; the applied compaction is superseded."""
        ...
