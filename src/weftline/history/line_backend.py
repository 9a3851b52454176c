"""The port that each kind of line implements, so that log, diff, rollback, branch and merge are written once.

A backend knows who may read and change its lines, and what must happen with a commit: size limits, materialised
entries, events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from weftline.history.line_kinds import kind_of
from weftline.kernel.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from weftline.history.model import Head, Point, Version
    from weftline.kernel.events import EventType
    from weftline.kernel.identity import Actor


class RestorePoint(NamedTuple):
    """The revision that is restored: its name and its timestamp."""

    name: str
    at: int


class CommitMeta(NamedTuple):
    """Reason, workflow step and origin of a commit.

    ``merged`` is the point of the other line that the commit merges. With ``restored``, entries get the time to live
    they had left at that point; otherwise they keep their expiry. ``copied``: the values are of another line, and count
    as new ones.
    """

    reason: str
    step: str | None = None
    merged: Point | None = None
    restored: RestorePoint | None = None
    copied: bool = False


class VersionReader(Protocol):
    """Read access of one caller to the versions of a line."""

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        """Return the versions the caller may read, by the ACL of the version and every later ACL of its key."""
        ...


class OpenLine(VersionReader, Protocol):
    """A line opened for reading by one caller."""

    @property
    def head(self) -> Head: ...


class LockedLine(OpenLine, Protocol):
    """A line locked for one writer until the transaction ends."""

    async def apply(self, state: Mapping[str, Version | None], commit_meta: CommitMeta) -> Head:
        """Set keys to the content of these versions (None: delete the key) as one new commit, and publish events.

        Raises VersionPruned for a version whose value is gone. No change means no commit, except for a merge: the
        next merge has to find it.
        """
        ...

    async def announce(self, event_type: EventType, subject: str, data: Mapping[str, object]) -> None:
        """Publish an event about the line itself to those who may read it."""
        ...

    async def note_branches(self, change: int) -> None:
        """Account for new (positive) or deleted (negative) branches."""
        ...


# Clearance that forgetting content of others needs, besides the permission admin.
FORGET_CLEARANCE = 4


def check_may_forget(actor: Actor) -> None:
    """Refuse callers that may not delete or relabel the content of others."""
    if not (actor.is_admin and actor.clearance >= FORGET_CLEARANCE):
        raise PermissionDenied(
            "Forgetting content of others needs the permission 'admin' "
            f"and clearance {FORGET_CLEARANCE}; yours is {actor.clearance}.",
            hint=f"Ask an admin with clearance {FORGET_CLEARANCE} or more.",
            required_clearance=FORGET_CLEARANCE,
            your_clearance=actor.clearance,
        )


# Clearance that a rollback needs; that of some contexts needs more.
ROLLBACK_CLEARANCE = 3


class LineBackend(Protocol):
    """Opens the lines of one kind."""

    async def to_read(self, line_id: str) -> OpenLine:
        """Open a line; raises LineNotFound if it does not exist or the caller may not read it."""
        ...

    async def to_write(self, line_id: str) -> LockedLine:
        """Lock a line for a caller who may change it."""
        ...

    async def to_forget(self, line_id: str) -> LockedLine:
        """Lock a line of any owner, also of an archived session, to delete or relabel its content.

        Raises PermissionDenied unless the caller may forget; LineNotFound for lines that do not hold content of agents.
        """
        ...

    async def check_size(self, line_id: str, key: str, text: str) -> None:
        """Raise if a new value is larger than an entry of this line may be."""
        ...

    async def check_rollback(self, line_id: str) -> None:
        """Raise PermissionDenied, with those who can, unless the caller has the clearance that a rollback needs."""
        ...

    async def check_switch(self, before: str, after: str) -> None:
        """Raise SelfModification if the caller would leave rules behind by using another branch of a line."""
        ...

    async def expire(self, line_id: str, limit: int) -> bool:
        """Expire up to ``limit`` live entries that are past retention; True if more may remain."""
        ...

    async def pin_referenced(self, line_id: str) -> None:
        """Pin the versions that other lines refer to, before pruning removes values."""
        ...


class LineBackends:
    """The backends of one call, by prefix; each is built when it is first needed."""

    def __init__(self, build: Mapping[str, Callable[[], LineBackend]]) -> None:
        self._build = build
        self._built: dict[str, LineBackend] = {}

    def of(self, line_id: str) -> LineBackend:
        prefix = kind_of(line_id).prefix
        if prefix not in self._built:
            self._built[prefix] = self._build[prefix]()
        return self._built[prefix]
