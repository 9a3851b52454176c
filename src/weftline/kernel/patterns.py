"""ACLs: patterns of participants, as they are stored, and their intersection."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache, reduce

import msgspec

from weftline.kernel.identity import (
    AGENT_TYPE,
    ANYONE,
    CLEARANCE,
    EVERYONE,
    PERMISSION,
    PRINCIPAL,
    TEAM,
    TREE,
    USER,
    is_group_of_agents,
)

Patterns = tuple[str, ...]
# Pattern that matches no participant.
NOBODY = ("nobody",)
# Prefixes of patterns that are not participant names and take no wildcards.
_NOT_A_NAME = (PRINCIPAL, AGENT_TYPE, PERMISSION, CLEARANCE, TEAM, USER, TREE)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[str, ...])


def encode_patterns(patterns: tuple[str, ...]) -> str | None:
    """Encode an ACL; NULL means everyone, the most common case."""
    return None if patterns == ANYONE else _encoder.encode(patterns).decode()


def decode_patterns(text: str | None) -> tuple[str, ...]:
    return ANYONE if text is None else _decoder.decode(text)


def encode_audience(patterns: tuple[str, ...]) -> str:
    """Encode the audience of a session: its creator and its members."""
    return _encoder.encode(patterns).decode()


# Cached: every call on a board and every event of a session decodes one, and there are few different ones.
@lru_cache(maxsize=10_000)
def decode_audience(text: str) -> tuple[str, ...]:
    return _decoder.decode(text)


def intersect_acls(*closings: Patterns) -> Patterns:
    """Return an ACL that admits only callers admitted by all of these; NOBODY if that cannot be expressed."""
    return reduce(_both, (patterns for patterns in closings if patterns != ANYONE), ANYONE)


def _both(one: Patterns, other: Patterns) -> Patterns:
    shared = (
        *(pattern for pattern in one if any(_covers(wider, pattern) for wider in other)),
        *(pattern for pattern in other if any(_covers(wider, pattern) for wider in one)),
    )
    return tuple(dict.fromkeys(shared)) or NOBODY


def _covers(wider: str, pattern: str) -> bool:
    """Tell whether every caller that matches ``pattern`` certainly matches ``wider``."""
    if wider in {EVERYONE, pattern}:
        return True
    if pattern.startswith(_NOT_A_NAME):
        return False
    if is_group_of_agents(wider):
        return pattern.startswith(f"{wider}:")
    # fnmatch would let a question mark or a set of characters match the star of the pattern.
    if "?" in wider or "[" in wider:
        return False
    names = (pattern, f"{pattern}:*") if is_group_of_agents(pattern) else (pattern,)
    return all(fnmatchcase(name, wider) for name in names)
