"""Registry of the kinds of lines. A line is the version history of one context, named by its ``context_id``.

To add a kind: write a backend (``line_backend.LineBackend``) in the slice that owns the data, declare one ``LineKind``
next to it, and list that in ``weftline.app.line_kinds``. Derived from the entry: which ids are valid, retention,
whether versions are record items and their sources, which session a connection must be bound to, deletion with the
session. Not derived: search (``SOURCES`` in ``indexing``) and events per entry (``item_of_event`` in ``records``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from weftline.history.model import BRANCH_MARK, BranchNotFound, LineNotFound, no_line, trunk_of
from weftline.kernel.errors import PermissionDenied, SelfModification
from weftline.kernel.guards import ImpliedCall
from weftline.kernel.identity import PrincipalKind
from weftline.kernel.json_input import JSON_MEDIA_TYPE, encode_json_field, raw_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from weftline.access.sql import AccessStore
    from weftline.history.model import Head, Point, Version
    from weftline.history.store import Rule
    from weftline.kernel.errors import WeftlineError
    from weftline.kernel.events import EventType
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction


AGENT, SESSION = "agent", "session"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")
_OPTIONAL = "?"


class EncodedValue(NamedTuple):
    """A value as it is stored, and its media type if that is not the one of its kind of line."""

    text: str
    media_type: str | None


class LineKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of line: how its ids look, who serves it and what the rest of Weftline derives from it."""

    # Ids are PREFIX:NAME[:NAME...]. Each name is "session", "agent" or any other word; "?" marks it as optional.
    prefix: str
    names: tuple[str, ...]
    # Dependency that opens lines of this kind for a caller.
    backend: type[LineBackend]
    # Of kinds of any values, those of versions with a media type are JSON, the others text.
    values: Literal["text", "json", "any"] = "json"
    # Default retention by subject: the prefix, or the second name of a line. Lines without a subject are never pruned.
    retention: Mapping[str, Rule] = msgspec.field(default_factory=dict)
    # Binds agents: its versions are signed, and stores demand the proof of every edit.
    signed: bool = False
    # Of signed kinds: raises unless an actor may edit a line by what is stored now.
    check_edit: Callable[[Actor, str, AccessStore], Awaitable[object]] | None = None
    # Retention also ends live entries by age, not only old versions.
    max_age: bool = False
    # Retention rules may ask for a snapshot before a large push.
    snapshot_on_push: bool = False
    # Entries can have a time to live.
    ttl: bool = False
    # The line with the first name only is a root: its entries point at versions of the lines below it.
    composite: bool = False
    # One label names lines of several agents, so those that Weftline gives carry the agent.
    shared_labels: bool = False
    # Entries of a root that are left out of merges.
    unmerged_parts: frozenset[str] = frozenset()
    # Errors of the backend, besides those of history itself: on any change, and on one that adds content.
    write_errors: tuple[type[WeftlineError], ...] = ()
    size_errors: tuple[type[WeftlineError], ...] = ()
    # ``context_kind`` of its versions as record items, None: they are not items; ``source_kind`` of their source.
    item_kind: str | None = None
    source_kind: str | None = None
    # Operations that edit it: a rule against one holds for rollbacks and merges too. ``implied_calls`` are those that
    # would set a key of a line to a version (None: remove it), for kinds whose rules are checked key by key.
    edited_by: tuple[str, ...] = ()
    implied_calls: Callable[[str, str, Version | None], Iterable[ImpliedCall]] | None = None
    # Its lines of a session, where its own table finds them without a scan; and the deletion of what it stores of a
    # session besides lines.
    session_lines: Callable[[Transaction, str], Awaitable[Iterable[str]]] | None = None
    erase_session: Callable[[Transaction, str], Awaitable[None]] | None = None
    # Versions have no ACL: who may open the line may read all of them. Otherwise each has its ACL.
    private: bool = True

    @property
    def of_session(self) -> bool:
        """Whether each session has one such line."""
        return self.names == (SESSION,)

    def has_name(self, name: str) -> bool:
        """Tell whether ids of this kind can contain a name, such as a session."""
        return any(each.removesuffix(_OPTIONAL) == name for each in self.names)

    def accepts(self, names: list[str]) -> bool:
        required = sum(not name.endswith(_OPTIONAL) for name in self.names)
        return required <= len(names) <= len(self.names) and all(map(_NAME.match, names))

    def named(self, name: str, line_id: str) -> str | None:
        """Return one name in a line's id, such as its session; None if it has none."""
        given = names_in(line_id)
        place = next((at for at, each in enumerate(self.names) if each.removesuffix(_OPTIONAL) == name), len(given))
        return given[place] if place < len(given) else None

    def retention_subject(self, line_id: str) -> str | None:
        """Return the subject whose retention rule a line follows unless it has its own; None: never pruned."""
        subjects = (self.prefix, *names_in(line_id)[1:2])
        return next((subject for subject in subjects if subject in self.retention), None)

    def is_text(self, media_type: str | None) -> bool:
        """Tell whether values of a version with this media type are text rather than JSON."""
        return self.values != "json" and media_type is None

    def decode(self, text: str | None, media_type: str | None) -> Any:  # noqa: ANN401 - text, or the JSON it is
        """Return a stored value as responses show it."""
        return text if text is None or self.is_text(media_type) else raw_json(text)

    def encode(self, value: Any, field: str) -> EncodedValue | None:  # noqa: ANN401 - any JSON
        """Return a value from a request as it is stored; None if this kind cannot store it."""
        if isinstance(value, str) and self.values != "json":
            return EncodedValue(value, None)
        if self.values == "text":
            return None
        text = encode_json_field(field, value).decode()
        return EncodedValue(text, JSON_MEDIA_TYPE if self.values == "any" else None)


_registered: dict[str, LineKind] = {}


def register(kinds: Iterable[LineKind]) -> None:
    """Make kinds known; called once, where the application is wired."""
    _registered.update({kind.prefix: kind for kind in kinds})


def line_kinds() -> Mapping[str, LineKind]:
    """Return all kinds by prefix."""
    if not _registered:
        raise LookupError("no kinds of lines are registered: import weftline.app.line_kinds")
    return _registered


def find_kind(line_id: str) -> LineKind | None:
    """Return the kind that the prefix of a line's id names; None if it names none."""
    return (_registered or line_kinds()).get(line_id.partition(":")[0])


def kind_of(line_id: str) -> LineKind:
    """Return the kind of a line; raises LineNotFound for an id that no line can have."""
    kind = find_kind(line_id)
    branch = line_id.partition(BRANCH_MARK)[2:] if BRANCH_MARK in line_id else ()
    if kind is None or not (kind.accepts(names_in(line_id)) and all(map(_NAME.match, branch))):
        raise no_line(line_id)
    return kind


def prefix_of(line_id: str) -> str:
    return line_id.partition(":")[0]


def names_in(line_id: str) -> list[str]:
    return trunk_of(line_id).split(":")[1:]


def name_in(line_id: str, name: str) -> str | None:
    """Return one name in a line's id, such as its session; None if it has none, or is not a line's id."""
    kind = find_kind(line_id)
    return None if kind is None or not kind.accepts(names_in(line_id)) else kind.named(name, line_id)


def label_agent(line_id: str) -> str | None:
    """Return the agent that automatic labels of a line carry, if they do."""
    kind = find_kind(line_id)
    return kind.named(AGENT, line_id) if kind is not None and kind.shared_labels else None


def is_signed(line_id: str) -> bool:
    """Tell whether a line binds agents, so that its edits are proven and its versions signed."""
    kind = find_kind(line_id)
    return kind is not None and kind.signed


def forbid_own_rules(raw: Mapping[str, Any], actor: Actor) -> None:
    """Raise SelfModification for an agent that names its own definition, or a layer, whatever its permissions."""
    line_id = raw.get("context_id")
    if actor.kind is not PrincipalKind.AGENT or not isinstance(line_id, str) or not is_signed(line_id):
        return
    try:
        owner = kind_of(line_id).named(AGENT, line_id)
    except LineNotFound:
        return
    if owner in {None, actor.principal_id}:
        raise SelfModification("You cannot change your own definition, or the layers that bind you.")


def has_acls(line_id: str) -> bool:
    """Tell whether the versions of a line have ACLs."""
    kind = find_kind(line_id)
    return kind is not None and not kind.private


def is_composite(line_id: str) -> bool:
    """Tell whether the entries of a line point at versions of other lines."""
    kind = find_kind(line_id)
    return kind is not None and kind.composite and len(names_in(line_id)) == 1


def write_errors() -> tuple[type[WeftlineError], ...]:
    """Return what opening a line of any kind for a change may raise."""
    return (LineNotFound, BranchNotFound, *_errors(lambda kind: kind.write_errors))


def size_errors() -> tuple[type[WeftlineError], ...]:
    """Return what adding content to a line of any kind may raise besides."""
    return _errors(lambda kind: kind.size_errors)


def _errors(of_kind: Callable[[LineKind], tuple[type[WeftlineError], ...]]) -> tuple[type[WeftlineError], ...]:
    return tuple(dict.fromkeys(error for kind in line_kinds().values() for error in of_kind(kind)))


def operations_that_edit(line_id: str) -> tuple[str, ...]:
    return kind_of(line_id).edited_by


def calls_implied_by(line_id: str, changed: Mapping[str, Version | None]) -> Iterator[ImpliedCall]:
    """Yield the calls that would change these keys of a line one by one."""
    kind = kind_of(line_id)
    if kind.implied_calls is not None:
        for key, version in changed.items():
            yield from kind.implied_calls(line_id, key, version)
    elif changed:
        yield from (ImpliedCall(name, {"context_id": line_id}) for name in kind.edited_by)


# Ids of the lines of boards.


def line_of(session_id: str) -> str:
    """Return the line id of a session's board."""
    return f"board:{session_id}"


def is_main_board(line_id: str) -> bool:
    """Whether a line is the main branch of a board."""
    return line_id.startswith("board:") and trunk_of(line_id) == line_id


def session_of(line_id: str) -> str:
    """Return the session of a board's line, main or branch."""
    return trunk_of(line_id).removeprefix("board:")


# The port that each kind of line implements, so that log, diff, rollback, branch and merge are written once.
#
# A backend knows who may read and change its lines, and what must happen with a commit: size limits, materialised
# entries, events.


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


# Proof that a caller may change a line that binds agents: a layer, or the definition of an agent.


class EditProof(msgspec.Struct, frozen=True):
    """Made where an edit is checked against the tree and the clearance; stores demand it and check the edit again."""

    line_id: str
    editor_id: str
