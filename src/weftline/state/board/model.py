"""Board entries, their keys and size limits, and the intersection of ACLs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from weftline.history.model import KeyNumber
from weftline.kernel.errors import Conflict, InvalidInput, NotFound, Rejected
from weftline.kernel.identity import (
    ANYONE,
    may_match_callers,
)
from weftline.kernel.json_input import stored_value
from weftline.kernel.patterns import Patterns, intersect_acls
from weftline.safety.trust.model import TrustLabel

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.sessions.model import Session, SessionConfig


_FLAT_KEY = re.compile(r"[a-z0-9_]{1,64}\Z")
_NAMESPACED_KEY = re.compile(r"(?:[a-z0-9_]{1,64}:)?[a-z0-9_]{1,64}\Z")


class KeyNotFound(NotFound):
    """No entry has this key."""

    code = "KEY_NOT_FOUND"
    hint = "Call `board.list_keys` first; the key may be optional, deleted or expired."
    related = ("shared_context",)


class InvalidKey(Rejected):
    """The key has an invalid form."""

    code = "INVALID_KEY"
    hint = "Use 1 to 64 characters out of a-z, 0-9 and underscore, such as problem_summary."
    related = ("shared_context",)


class ValueTooLarge(Rejected):
    """The value is larger than one entry may be."""

    code = "VALUE_TOO_LARGE"
    hint = "Store the conclusion, not the raw data: shorten the value, or store a reference to the data."
    related = ("shared_context",)
    http_status = 413


class StoreFull(Conflict):
    """The board has no room for this much more."""

    code = "STORE_FULL"
    hint = "Call `board.list_keys`, then delete or shorten what is no longer needed, and write again."
    related = ("shared_context",)


class Entry(msgspec.Struct, frozen=True):
    """One key of the board, without its value. ``incarnation`` counts how often the key was created.

    ``later_acls``: on a branch, ACLs set on the base line after the branch started; readers must match all of them.
    ``media_type``: that of JSON; None for text.
    """

    key: str
    incarnation: int
    version: int
    blob_hash: bytes
    tokens: int
    written_by: str
    written_at: int
    expires_at: int | None
    readable_by: Patterns
    writable_by: Patterns
    reads: int = 0
    last_read_at: int | None = None
    later_acls: tuple[Patterns, ...] = ()
    trust: TrustLabel | None = None
    media_type: str | None = None

    @property
    def number(self) -> KeyNumber:
        return KeyNumber(self.incarnation, self.version)

    @property
    def readers(self) -> Patterns:
        """The effective read ACL, which a new version inherits unless its writer sets one."""
        return intersect_acls(self.readable_by, *self.later_acls)

    def lives_at(self, now: int) -> bool:
        return self.expires_at is None or now < self.expires_at

    def readable(self, actor: Actor) -> bool:
        return all(patterns == ANYONE or actor.matches(patterns) for patterns in (self.readable_by, *self.later_acls))

    def writable(self, actor: Actor) -> bool:
        """Tell whether a caller may change or delete the key: only who may read it, however open its write ACL is."""
        # An admin can repair a key whose ACL matches nobody.
        if actor.is_admin:
            return True
        return self.readable(actor) and (self.writable_by == ANYONE or actor.matches(self.writable_by))


class EntryWithValue(msgspec.Struct, frozen=True):
    """A board entry with its value. ``lost``: the value was pruned before the branch started."""

    entry: Entry
    value: str
    lost: bool = False

    @property
    def shown(self) -> Any:  # noqa: ANN401 - text, or the JSON it is
        """The value as answers have it."""
        return stored_value(self.value, self.entry.media_type)


def check_acl(field: str, patterns: Patterns | None) -> None:
    """Refuse patterns that no caller can ever match, such as an id without a prefix."""
    for pattern in patterns or ():
        if not may_match_callers(pattern):
            named = f"principal:{pattern.rpartition(':')[2]}"
            raise InvalidInput(
                f"{field}: no caller can match '{pattern}'",
                hint=f"Use {named} for one agent or human, a participant's name such as orchestrator:planner, "
                "subagent:review or human:*, or team:NAME, tree:ID, type:NAME.",
                field=field,
            )


def lockout_warning(entry: Entry, actor: Actor) -> str | None:
    """Return a warning for a writer that its own ACL keeps out; None if it may go on."""
    if not entry.readable(actor):
        lost, field, acl = "read or change", "readable_by", entry.readers
    elif not entry.writable(actor):
        lost, field, acl = "change", "writable_by", entry.writable_by
    else:
        return None
    return f"You can no longer {lost} this key: {field} is {', '.join(acl)}, and you are {actor.participant}."


def check_key(key: str, *, namespaces: bool) -> None:
    pattern = _NAMESPACED_KEY if namespaces else _FLAT_KEY
    if pattern.match(key) is None:
        detail = "This session allows namespace:key." if namespaces else "This session allows no namespaces."
        raise InvalidKey(f"The key {key[:80]!r} has an invalid form. {detail}", key=key[:80])


def check_value_size(tokens: int, config: SessionConfig) -> None:
    if tokens > config.max_value_tokens:
        raise ValueTooLarge(
            f"The value has {tokens} tokens; one entry may have {config.max_value_tokens}.",
            value_size_tokens=tokens,
            limit_tokens=config.max_value_tokens,
        )


def check_room(total: int, freed: int, added: int, config: SessionConfig) -> None:
    """Raise StoreFull if a write would exceed the token limit; shrinking is always allowed."""
    after = total - freed + added
    if after > config.max_total_tokens and added > freed:
        raise StoreFull(
            f"The board holds {total} of {config.max_total_tokens} tokens; this write would make it {after}.",
            total_size_tokens=total,
            limit_tokens=config.max_total_tokens,
            value_size_tokens=added,
        )


def check_key_count(keys: int, added: int, limit: int) -> None:
    """Raise StoreFull if new keys would exceed the limit of keys."""
    if keys + added > limit:
        raise StoreFull(
            f"The board has {keys} of {limit} keys; this write would make it {keys + added}.",
            key_count=keys,
            limit_keys=limit,
        )


def size_warning(tokens: int, config: SessionConfig) -> str | None:
    """Return a warning about a large value; None if it is small."""
    if tokens >= config.warns_from:
        return (
            f"{tokens} tokens is close to the limit of {config.max_value_tokens} for one entry. "
            "Distil it before it grows further."
        )
    if tokens >= config.advises_from:
        return f"{tokens} tokens is long for shared state. Is this a conclusion, or raw data that could be shorter?"
    return None


# Ports of the board: entries, observers and read counts.


class EntryObserver(Protocol):
    """Notified of every entry written to a board, in the same transaction. Branches are not observed."""

    async def entry_written(self, session: Session, entry: Entry) -> None: ...


class ReadTally(Protocol):
    """Counts reads of keys, to find unread ones. Must not slow down a read."""

    def note(self, tenant: str, session_id: str, key: str, at: int) -> None: ...
