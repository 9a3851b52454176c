"""What the operations on history need of storage, beside the lines themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from weft.capabilities.history.store import RetentionStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.history.line_ids import NamedMoment, Pruning, Retained, Review, ReviewState
    from weft.kernel.identity import Actor

T = TypeVar("T")


class SnapshotPosition(NamedTuple):
    """Where a page of snapshots ended."""

    created_at: int
    line_id: str
    label: str


class SnapshotIndex(Protocol):
    """The snapshots of all lines of a tenant."""

    async def newest(self, before: SnapshotPosition | None, limit: int, line_id: str | None) -> Sequence[NamedMoment]:
        """Return snapshots newest first, older than a position; of one line if it is given."""
        ...


class ReviewStore(Protocol):
    """Merges that a human must decide about, or has decided."""

    async def add(self, review: Review) -> None: ...

    async def find(self, review_id: str) -> Review | None: ...

    async def open_for(self, line_id: str, source_line: str) -> Review | None:
        """Return the review of a merge that was not decided yet."""
        ...

    async def update(self, review: Review) -> None:
        """Change what is in conflict, or how it was decided."""
        ...

    async def newest(
        self, before: str | None, limit: int, line_id: str | None, state: ReviewState | None
    ) -> Sequence[Review]:
        """Return reviews newest first, older than the one named ``before``."""
        ...


class RetentionRules(RetentionStore, Protocol):
    """Rules for how long old values are kept, by what they are for."""

    async def listed(self) -> Sequence[Retained]:
        """Return every rule that was set."""
        ...

    async def set(self, retained: Retained) -> None: ...

    async def clear(self, subject: str) -> bool:
        """Take a rule back; False if there is none."""
        ...


class PruningLog(Protocol):
    """What retention removed."""

    async def note(self, pruning: Pruning) -> None:
        """Put a removal on record, adding to what the same pruning removed before."""
        ...

    async def find(self, pruning_id: str) -> Pruning | None: ...

    async def newest(self, before: str | None, limit: int, line_id: str | None) -> Sequence[Pruning]:
        """Return prunings newest first, older than the one named ``before``."""
        ...


class PruningRun(NamedTuple):
    """How far a run of the pruning job got. ``started`` is False while another process is at it."""

    started: bool
    finished: bool
    versions: int
    bytes: int


class Pruner(Protocol):
    """The pruning job, run on demand."""

    async def prune(self, actor: Actor, line_id: str | None) -> PruningRun:
        """Prune one line, or all lines of the caller's tenant, for as long as a caller should wait."""
        ...
