"""What admins are told when the copy of a shelf that searching uses turns out to be damaged."""

from __future__ import annotations

from weft.kernel.events import NewEvent
from weft.kernel.identity import PERMISSION, Permission

_ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)


def index_damaged(shelf: str, actor: str) -> NewEvent:
    """Return the event that says so. Nothing is lost: the copy is made anew, and searches go on meanwhile."""
    return NewEvent(type="index.damaged", session_id=None, subject=shelf, actor=actor, readable_by=_ADMINS)
