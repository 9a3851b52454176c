"""Security events about what was found in texts: who, where and how many, never the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.kernel.events import NewEvent
from weftline.kernel.identity import CLEARANCE, HUMAN, PERMISSION, Permission

if TYPE_CHECKING:
    from weftline.kernel.errors import Violation
    from weftline.kernel.identity import Actor

# Humans with this clearance read security events; so do admins.
READER_CLEARANCE = 3


def detection_event(actor: Actor, violation: Violation, action: str, agent_id: str, **data: object) -> NewEvent:
    """Return the event that tells reviewers of texts that look like an attack."""
    return NewEvent(
        type="security.violation",
        session_id=None,
        subject=agent_id,
        actor=actor.participant,
        # Both must match: admins match the first always.
        participants=(f"{HUMAN}*",),
        readable_by=(f"{CLEARANCE}{READER_CLEARANCE}", f"{PERMISSION}{Permission.ADMIN}"),
        data={"violation": violation, "action": action, **data},
    )
