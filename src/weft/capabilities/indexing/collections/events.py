"""What admins are told when the copy of a collection that searching uses turns out to be damaged."""

from __future__ import annotations

from weft.kernel.events import NewEvent
from weft.kernel.identity import ANYONE, PERMISSION, Permission

_ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)


def index_damaged(collection: str, actor: str, readable_by: tuple[str, ...] = ANYONE) -> NewEvent:
    """Return the event that says so. Nothing is lost: the copy is made anew, and searches go on meanwhile.

    It is for admins, and of them only for those who may know of what stands in the collection.
    """
    return NewEvent(
        type="index.damaged",
        session_id=None,
        subject=collection,
        actor=actor,
        participants=_ADMINS,
        readable_by=readable_by,
    )
