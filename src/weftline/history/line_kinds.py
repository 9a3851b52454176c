"""Registry of the kinds of lines. A line is the version history of one context, named by its ``context_id``.

To add a kind: write a backend (``line_backend.LineBackend``) in the slice that owns the data, declare one ``LineKind``
next to it, and list that in ``weftline.app.line_kinds``. Derived from the entry: which ids are valid, retention,
whether versions are record items and their sources, which session a connection must be bound to, deletion with the
session. Not derived: search (``SOURCES`` in ``indexing``) and events per entry (``item_of_event`` in ``records``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from weftline.history.model import BRANCH_MARK, BranchNotFound, LineNotFound, no_line, trunk_of
from weftline.kernel.errors import SelfModification
from weftline.kernel.guards import ImpliedCall
from weftline.kernel.identity import PrincipalKind
from weftline.kernel.json_input import JSON_MEDIA_TYPE, encode_json_field, raw_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from weftline.history.line_backend import LineBackend
    from weftline.history.model import Version
    from weftline.history.store import Rule
    from weftline.kernel.errors import WeftlineError
    from weftline.kernel.identity import Actor

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
