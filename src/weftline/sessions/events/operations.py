"""Reading the event log from an offset, with long poll."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from weftline.kernel.events import Event
from weftline.kernel.fields import Count
from weftline.kernel.identity import ANYONE, Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.records.event_classes import CloudEvent, to_cloud_event
from weftline.sessions.events.model import EventFilter, Feed
from weftline.sessions.model import SessionId, SessionNotFound

KeyPattern = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=129,
        pattern=r"^[a-z0-9_:*?]+\Z",
        description="A key, with * and ? as wildcards.",
    ),
]

TypePattern = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=100,
        pattern=r"^[a-z_.*?]+\Z",
        description="An event type or class, with * and ? as wildcards: message.* or context.item.*.",
    ),
]


class ReadEvents(Request):
    """A filter, an offset, and how long to wait."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Events of this session; by default of all sessions you may see.")
    ] = None
    keys: Annotated[
        tuple[KeyPattern, ...], msgspec.Meta(max_length=100, description="Only events of these board keys.")
    ] = ANYONE
    types: Annotated[
        tuple[TypePattern, ...], msgspec.Meta(max_length=20, description="Only events of these types.")
    ] = ANYONE
    personal: Annotated[
        bool, msgspec.Meta(description="Only events that nobody else may see, such as those of your memory.")
    ] = False
    addressed: Annotated[bool, msgspec.Meta(description="Only new messages that are addressed to you.")] = False
    after: Annotated[Count | None, msgspec.Meta(description="Events after this seq; by default only new ones.")] = None
    wait_seconds: Annotated[
        float, msgspec.Meta(ge=0, le=60, description="How long to wait if there is no event yet.")
    ] = 0.0

    format: Annotated[
        Literal["native", "cloudevents"], msgspec.Meta(description="Weftline's own format, or CloudEvents 1.0.")
    ] = "native"

    @property
    def interest(self) -> EventFilter:
        return EventFilter(self.session_id, self.keys, self.types, self.personal, self.addressed)


class Events(Response):
    """Events in order. Pass ``next_after`` as ``after`` to read on without a gap.

    With the format cloudevents, they are in ``cloudevents`` and ``events`` is empty.
    """

    events: list[Event]
    next_after: int
    cloudevents: tuple[CloudEvent, ...] = ()
    pruned_through: Annotated[
        int | None,
        msgspec.Meta(description="Events up to this seq are past retention and missing from the answer."),
    ] = None


@operation(
    "events.read",
    tool="read_events",
    http="GET /v1/events",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.WAIT,
    errors=(SessionNotFound,),
)
async def read_events(request: ReadEvents, actor: Actor, feed: Feed) -> Events:
    """Read events from an offset, waiting for the next one if there is none yet.

    Events are ordered and none is lost: repeat the call with ``after`` set to the ``next_after`` of the last answer.
    If ``after`` is older than the log's retention, ``pruned_through`` says which events are missing.
    """
    page = await feed.next(actor, request.interest, request.after, request.wait_seconds)
    if request.format == "native":
        return Events(events=page.events, next_after=page.reached, pruned_through=page.pruned_through)
    source = await feed.source(actor.tenant)
    converted = tuple(to_cloud_event(recorded, source) for recorded in page.recorded)
    return Events(events=[], next_after=page.reached, cloudevents=converted, pruned_through=page.pruned_through)
