"""The port to lines, the types of the stores of history, and the port to the pruning job."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from weftline.history.model import (
        ChangeMeta,
    )
    from weftline.kernel.identity import Actor

# Prefix of the pin holders of sessions.
SESSION_HOLDER = "session:"


class Limits(NamedTuple):
    """Which values pruning may remove: replaced before a time, older than N versions, written before a time."""

    replaced_before: int | None
    versions: int | None
    written_before: int | None = None


class Rule(NamedTuple):
    """Retention rule: keep old values for ``days``, or ``versions`` of each key. None sets no limit.

    A push that changes ``snapshot_from`` entries or more is preceded by an automatic snapshot; 0: never; None: as the
    rule of the subject.
    """

    days: int | None
    versions: int | None
    snapshot_from: int | None = None


class PruneCursor(NamedTuple):
    """Position of pruning within a line."""

    key: str
    seq: int


class Pruned(NamedTuple):
    """What one pruning batch removed, and the position to continue at; None at the end of the line."""

    versions: int
    freed: int
    first_seq: int
    last_seq: int
    reached: PruneCursor | None


class Pin(NamedTuple):
    """A version protected from pruning, and its holder."""

    seq: int
    holder: str


class ChangeRef(NamedTuple):
    """The change of one key by one commit."""

    line_id: str
    key: str
    seq: int


class OriginalVersion(NamedTuple):
    """A version of a key as it was written, whatever its readers are shown since a redaction."""

    line_id: str
    key: str
    seq: int
    incarnation: int
    version: int
    shown_hash: bytes
    hash: bytes
    value: str
    meta: ChangeMeta


class Checkout(NamedTuple):
    """The branch that a principal works on. ``gone``: it was deleted, even if a new one has its name."""

    branch: str
    gone: bool = False


class IndexedSnapshot(NamedTuple):
    """A snapshot in the index of all lines."""

    line_id: str
    label: str
    seq: int
    created_by: str
    created_at: int
    automatic: bool


class SnapshotPosition(NamedTuple):
    """Cursor of the snapshot index."""

    created_at: int
    line_id: str
    label: str


class PruningRun(NamedTuple):
    """Result of a pruning run. ``started`` is False while another process runs it."""

    started: bool
    finished: bool
    versions: int
    bytes: int


class Pruner(Protocol):
    """The pruning job, run on demand."""

    async def prune(self, actor: Actor, line_id: str | None) -> PruningRun:
        """Prune one line, or all lines of the tenant, within the time a caller should wait."""
        ...
