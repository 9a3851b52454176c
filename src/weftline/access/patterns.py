"""Patterns of participants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.kernel.identity import EVERYONE

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor

Pattern = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9_:*?-]+\Z",
        description="A participant's name with wildcards, such as subagent:review:*, or tree:ID, team:NAME.",
    ),
]


def member_patterns(actor: Actor) -> frozenset[str]:
    """Return all the patterns of members that match a caller.

    There are few, because a wildcard stands for everything after a colon only: stores can look them up by index.
    """
    parts = actor.participant.split(":")
    groups = (":".join((*parts[:count], EVERYONE)) for count in range(1, len(parts)))
    return actor.audiences.union((actor.participant,), groups)
