"""Review of recorded events that look like an attack: prompts do not contain them until a human releases them.

What was said is recorded, whatever it says; an event that the tenant's policy would refuse elsewhere is held by its
label. Weftline asks a human by holding the call ``window.release`` on behalf of who recorded the events.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from weftline.access.model import AgentNotFound
from weftline.history.model import BranchNotFound
from weftline.kernel.approval import HoldReason
from weftline.kernel.errors import Forbidden, PermissionDenied
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.safety.approvals.model import TooManyApprovals, is_approver
from weftline.safety.approvals.service import Approvals, CallToHold
from weftline.safety.trust.policy import TrustPolicies
from weftline.safety.trust.security_events import detection_event
from weftline.sessions.model import NotMember, SessionArchived, SessionId, SessionNotFound
from weftline.windows.model import (
    MAX_EVENTS,
    EventId,
    EventNotFound,
    WindowAgent,
    WindowNotFound,
    is_instruction,
)
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.windows.model import Window, WindowEvent
    from weftline.windows.window_writer import WindowWriter

# Texts that an approval quotes, and events that reviewers are told the ids of.
_QUOTED = 20
_encode = msgspec.json.Encoder(order="deterministic").encode


class EventsHeld(Forbidden):
    """The events look like an attempt to give agents instructions; a human must release them."""

    code = "EVENTS_HELD"
    hint = "A human with the clearance for approvals releases them. Go on with other work; the events are recorded."
    related = ("approvals",)
    hold = "quarantine"


class ReleaseEvents(Request):
    """Events of a window that are held."""

    session_id: SessionId
    event_ids: Annotated[
        list[EventId], msgspec.Meta(min_length=1, max_length=MAX_EVENTS, description="The held events.")
    ]
    agent_id: WindowAgent = None


class EventsReleased(Response, kw_only=True, omit_defaults=False):
    """The events that are released now; those that were not held are not among them."""

    session_id: str
    agent_id: str
    released: list[str]


class EventHolds(msgspec.Struct, frozen=True):
    """Asks humans to release events that are held, on behalf of who recorded them."""

    approvals: Approvals

    async def open(self, writer: WindowWriter, action: str) -> str | None:
        """Hold the call that releases what was just recorded; return the id of the approval.

        None if nothing is held, or too many calls of the caller are: reviewers are told all the same, with the first
        ids, and a human releases the events directly.
        Instructions are not asked about: who may give them is checked, and others read them as content.
        """
        window = writer.window
        held = {name: found for name, found in writer.held.items() if not is_instruction(found[0])}
        if not held:
            return None
        names, events = [*held], [event for event, _ in held.values()]
        request = ReleaseEvents(session_id=window.session_id, event_ids=names, agent_id=window.agent_id)
        found = [each for _, contents in held.values() for each in contents]
        details = {"texts": msgspec.to_builtins(found[:_QUOTED]), "more_texts": max(0, len(found) - _QUOTED)}
        reason = structs.replace(_hold_reason(window, events), details=details)
        # The release is of the caller, not of the credential that recorded: that may be bound to a step, or end.
        caller = structs.replace(self.approvals.actor, step=None, token_id=None, key_id=None)
        approvals = structs.replace(self.approvals, actor=caller)
        call = CallToHold(release_events, request, "quarantine", reason)
        about: dict[str, object] = {"session_id": window.session_id, "items": len(events)}
        approval_id: str | None = None
        try:
            approval_id = about["approval_id"] = (await approvals.hold(call)).approval_id
        except TooManyApprovals:
            about["event_ids"] = names[:_QUOTED]
            await approvals.note_unasked(call, f"{window.session_id}/{window.agent_id}")
        event = detection_event(self.approvals.actor, "quarantine", action, window.agent_id, **about)
        await self.approvals.outbox.publish(event)
        return approval_id


def _hold_reason(window: Window, events: Iterable[WindowEvent]) -> HoldReason:
    """Return why events are held. An approval covers exactly these contents."""
    contents = sorted((event.event_id, hashlib.sha256(_encode(event.message)).hexdigest()) for event in events)
    return HoldReason(
        check=f"window_events:{hashlib.sha256(_encode((window.line_id, contents))).hexdigest()}",
        text=f"{len(contents)} events in the window of '{window.agent_id}' look like an attempt to give agents "
        "instructions.",
    )


@operation(
    "window.release",
    tool="context_window",
    action="release",
    http="POST /v1/sessions/{session_id}/window/release",
    permission=Permission.WRITE,
    rate=RateClass.SESSION,
    effect=Effect.WRITE,
    audited=True,
    errors=(
        SessionNotFound,
        SessionArchived,
        AgentNotFound,
        PermissionDenied,
        NotMember,
        WindowNotFound,
        BranchNotFound,
        EventNotFound,
        EventsHeld,
    ),
)
async def release_events(request: ReleaseEvents, windows: Windows, policies: TrustPolicies) -> EventsReleased:
    """Release events that are held because they look like an attack. Called by an agent, it asks a human."""
    window = await windows.open(request.session_id, request.agent_id)
    writer = await windows.to_write(window)
    held = [event for event in await writer.find(request.event_ids) if event.trust is not None and event.trust.held]
    actor, reason = windows.actor, _hold_reason(window, held)
    is_approved = actor.approval is not None and actor.approval.covers(reason.check)
    if held and not is_approved and not is_approver(actor, await policies.current()):
        error = EventsHeld(reason.text, events=[event.event_id for event in held])
        error.hold_reason = reason
        raise error
    by = actor.participant if actor.approval is None else actor.approval.approved_by
    await writer.release(held, by)
    return EventsReleased(
        session_id=window.session_id, agent_id=window.agent_id, released=[event.event_id for event in held]
    )
