"""Reading events by asking: from an offset, waiting for the next one if there is none yet."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from weft.capabilities.events.model import Feed, Interest
from weft.capabilities.records.event_classes import CloudEvent, cloud_event
from weft.capabilities.sessions.model import SessionId, SessionNotFound
from weft.kernel.events import Event
from weft.kernel.fields import Count
from weft.kernel.identity import ANYONE, Actor, Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

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
        description="A type or class of events, with * and ? as wildcards: message.* or context.item.*.",
    ),
]


class ReadEvents(Request):
    """Which events, from where, and how long to wait for them."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Events of this session; of all you may see if left out.")
    ] = None
    keys: Annotated[tuple[KeyPattern, ...], msgspec.Meta(max_length=100, description="Board keys of interest.")] = (
        ANYONE
    )
    types: Annotated[
        tuple[TypePattern, ...], msgspec.Meta(max_length=20, description="Types of events of interest.")
    ] = ANYONE
    personal: Annotated[bool, msgspec.Meta(description="Only what nobody but you is told, such as your memory.")] = (
        False
    )
    after: Annotated[Count | None, msgspec.Meta(description="Events behind this seq; only new ones if left out.")] = (
        None
    )
    wait_seconds: Annotated[
        float, msgspec.Meta(ge=0, le=60, description="How long to wait when there is nothing yet.")
    ] = 0.0

    format: Annotated[
        Literal["native", "cloudevents"], msgspec.Meta(description="As the log has them, or as CloudEvents 1.0.")
    ] = "native"

    @property
    def interest(self) -> Interest:
        return Interest(self.session_id, self.keys, self.types, self.personal)


class Events(Response):
    """Events in order. Pass ``next_after`` as ``after`` to go on without missing one.

    Asked for as CloudEvents, they are in ``cloudevents`` and ``events`` is empty.
    """

    events: list[Event]
    next_after: int
    cloudevents: tuple[CloudEvent, ...] = ()


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
    """Read what happened since an offset, waiting for the next event if there is none yet.

    Events come in order and are never lost: repeat the call with ``after`` set to the ``next_after`` you were given.
    """
    page = await feed.next(actor, request.interest, request.after, request.wait_seconds)
    if request.format == "native":
        return Events(events=page.events, next_after=page.reached)
    source = await feed.source(actor.tenant)
    told = tuple(cloud_event(recorded, source) for recorded in page.recorded)
    return Events(events=[], next_after=page.reached, cloudevents=told)
