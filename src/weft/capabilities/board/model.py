"""Entries of the board and the rules they obey."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import reduce
from typing import TYPE_CHECKING

import msgspec

from weft.kernel.errors import Conflict, NotFound, Rejected
from weft.kernel.identity import AGENT_TYPE, ANYONE, EVERYONE, PERMISSION, PRINCIPAL

if TYPE_CHECKING:
    from weft.capabilities.sessions.model import SessionConfig
    from weft.kernel.identity import Actor

Patterns = tuple[str, ...]
# A name that no participant can have.
NOBODY = ("nobody",)
# Patterns that mean a caller by something else than the name, where a wildcard has no meaning.
_NOT_A_NAME = (PRINCIPAL, AGENT_TYPE, PERMISSION)
_FLAT_KEY = re.compile(r"[a-z0-9_]{1,64}\Z")
_NAMESPACED_KEY = re.compile(r"(?:[a-z0-9_]{1,64}:)?[a-z0-9_]{1,64}\Z")


class KeyNotFound(NotFound):
    """No entry has this key."""

    code = "KEY_NOT_FOUND"
    hint = "Call `board.list_keys` first; optional keys are often absent, and an expired key is gone."
    related = ("shared_context",)


class InvalidKey(Rejected):
    """The key is not of the accepted form."""

    code = "INVALID_KEY"
    hint = "Use 1 to 64 characters out of a-z, 0-9 and underscore, such as problem_summary."
    related = ("shared_context",)


class ValueTooLarge(Rejected):
    """The value is larger than one entry may be."""

    code = "VALUE_TOO_LARGE"
    hint = "Store the conclusion, not the raw data: distil the value, or keep a reference to where the data lives."
    related = ("shared_context",)
    http_status = 413


class StoreFull(Conflict):
    """The board cannot hold this much more."""

    code = "STORE_FULL"
    hint = "Call `board.list_keys`, then delete or shorten what is no longer needed, and write again."
    related = ("shared_context",)


class Entry(msgspec.Struct, frozen=True):
    """One key of the board, without its value. ``incarnation`` tells it apart from a namesake deleted before.

    ``closed_since`` is who may read it by the last word on it where a branch has it from: each of these must agree.
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
    closed_since: tuple[Patterns, ...] = ()

    @property
    def readers(self) -> Patterns:
        """Return who may know of this entry, and read what is written over it if the writer does not say."""
        return intersect_acls(self.readable_by, *self.closed_since)

    def lives_at(self, now: int) -> bool:
        return self.expires_at is None or now < self.expires_at

    def readable(self, actor: Actor) -> bool:
        return all(patterns == ANYONE or actor.matches(patterns) for patterns in (self.readable_by, *self.closed_since))

    def writable(self, actor: Actor) -> bool:
        # An admin can always repair a key whose patterns match nobody any more.
        return self.writable_by == ANYONE or actor.is_admin or actor.matches(self.writable_by)


class EntryWithValue(msgspec.Struct, frozen=True):
    """One key of the board with its value. ``lost``: a branch began where retention had removed it already."""

    entry: Entry
    value: str
    lost: bool = False


def intersect_acls(*closings: Patterns) -> Patterns:
    """Return patterns that mean only those whom each of these means; where none are sure to, nobody."""
    return reduce(_both, (patterns for patterns in closings if patterns != ANYONE), ANYONE)


def _both(one: Patterns, other: Patterns) -> Patterns:
    shared = (
        *(pattern for pattern in one if any(_covers(wider, pattern) for wider in other)),
        *(pattern for pattern in other if any(_covers(wider, pattern) for wider in one)),
    )
    return tuple(dict.fromkeys(shared)) or NOBODY


def _covers(wider: str, pattern: str) -> bool:
    """Tell whether whoever is meant by a pattern is certainly meant by another."""
    if wider in {EVERYONE, pattern}:
        return True
    # A question mark would take a star for one letter.
    return not pattern.startswith(_NOT_A_NAME) and "?" not in wider and fnmatchcase(pattern, wider)


def check_key(key: str, *, namespaces: bool) -> None:
    pattern = _NAMESPACED_KEY if namespaces else _FLAT_KEY
    if pattern.match(key) is None:
        detail = "This session allows namespaces: namespace:key." if namespaces else "Namespaces are off here."
        raise InvalidKey(f"The key {key[:80]!r} is not of the accepted form. {detail}", key=key[:80])


def check_value_size(tokens: int, config: SessionConfig) -> None:
    if tokens > config.max_value_tokens:
        raise ValueTooLarge(
            f"The value has {tokens} tokens; one entry may have {config.max_value_tokens}.",
            value_size_tokens=tokens,
            limit_tokens=config.max_value_tokens,
        )


def check_room(total: int, freed: int, added: int, config: SessionConfig) -> None:
    """Refuse what would make the board too large; shrinking it is always allowed."""
    after = total - freed + added
    if after > config.max_total_tokens and added > freed:
        raise StoreFull(
            f"The board holds {total} of {config.max_total_tokens} tokens; this write would make it {after}.",
            total_size_tokens=total,
            limit_tokens=config.max_total_tokens,
            value_size_tokens=added,
        )


def remark_on_size(tokens: int, config: SessionConfig) -> str | None:
    """Return what a writer should be told of a value that is large but accepted."""
    if tokens >= config.warns_from:
        return (
            f"{tokens} tokens is close to the limit of {config.max_value_tokens} for one entry. "
            "Distil it before it grows further."
        )
    if tokens >= config.advises_from:
        return f"{tokens} tokens is long for shared state. Is this a conclusion, or raw data that could be shorter?"
    return None
