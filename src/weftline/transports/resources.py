"""Resources that can be read and subscribed to by URI.

board://{session_id}          the keys of a board
board://{session_id}/{key}    one entry; with * or ? the keys that match
session://{session_id}        a session: its state, latest messages and counts
agent://{agent_id}/memory     an agent's own memory
inbox://me                    unread messages addressed to the caller
performance://metrics         metrics of the server
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.history.model import MAIN
from weftline.insight.metrics import COLLECTION_INTERVAL, RETENTION_HOURS
from weftline.kernel.errors import NotFound
from weftline.kernel.identity import ANYONE
from weftline.sessions.events.model import EventFilter
from weftline.state.board.operations import Keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from weftline.app.app import App
    from weftline.app.dispatch import CallContext
    from weftline.app.event_feed import Subscriber
    from weftline.kernel.operation import Response

_NAME = r"([A-Za-z0-9][A-Za-z0-9_-]{0,99})"
_LONGEST_URI = 250
_ABOUT_BOARDS = ("board.*", "session.*")
_ABOUT_SESSIONS = (*_ABOUT_BOARDS, "message.*")


class Template(NamedTuple):
    """URI template of a kind of resource."""

    uri: str
    name: str
    description: str


TEMPLATES = (
    Template("board://{session_id}", "board", "Keys of a session's board with sizes and versions, without values."),
    Template("board://{session_id}/{key}", "entry", "One entry of a board; with * or ?, the keys that match."),
    Template("session://{session_id}", "session", "State of a session with its latest messages and counts."),
    Template("agent://{agent_id}/memory", "memory", "Your own memory, global and by session."),
)
INBOX = Template("inbox://me", "your inbox", "Unread messages addressed to you.")
METRICS = Template("performance://metrics", "metrics", "Metrics of the server. For admins.")


class ResourceNotFound(NotFound):
    """The resource does not exist, or is not visible to you."""

    code = "RESOURCE_NOT_FOUND"
    hint = (
        "Use board://{session_id}, board://{session_id}/{key}, session://{session_id}, agent://{agent_id}/memory, "
        "inbox://me or performance://metrics, with the id of a session you work in or your own."
    )
    related = ("list_sessions", "shared_context")


@dataclass(frozen=True, slots=True)
class Resource:
    """Resource of a URI: the operation that reads it, and a filter of the events that change it.

    A resource without a filter changes with time. Subscribing to an entry needs access to its ``board`` instead: the
    key need not exist yet.
    """

    uri: str
    operation: str
    request: Mapping[str, Any]
    interest: EventFilter | None
    session_id: str | None = None
    board: Resource | None = None


def _board(uri: str, session_id: str) -> Resource:
    return Resource(
        uri,
        "board.list_keys",
        {"session_id": session_id, "branch": MAIN},
        EventFilter(session_id, types=_ABOUT_BOARDS),
        session_id,
    )


def _entry(uri: str, session_id: str, key: str) -> Resource:
    # Always the main branch, which events are about, whatever branch the caller has switched to.
    request = {"session_id": session_id, "branch": MAIN}
    interest = EventFilter(session_id, keys=(key,), types=_ABOUT_BOARDS)
    if "*" in key or "?" in key:
        return Resource(uri, "board.list_keys", request, interest, session_id)
    return Resource(uri, "board.read", {**request, "key": key}, interest, session_id, _board(uri, session_id))


def _session(uri: str, session_id: str) -> Resource:
    request = {"session_id": session_id}
    return Resource(uri, "session.overview", request, EventFilter(session_id, types=_ABOUT_SESSIONS), session_id)


def _memory(uri: str, agent_id: str) -> Resource:
    return Resource(uri, "memory.overview", {"agent_id": agent_id}, EventFilter(types=("memory.*",), personal=True))


def _inbox(uri: str) -> Resource:
    return Resource(uri, "message.inbox", {}, EventFilter(types=("message.added",), addressed=True))


def _metrics(uri: str) -> Resource:
    return Resource(uri, "performance.read", {"history_hours": RETENTION_HOURS}, None)


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., Resource]], ...] = (
    (re.compile(rf"board://{_NAME}\Z"), _board),
    (re.compile(rf"board://{_NAME}/([a-z0-9_:*?]{{1,129}})\Z"), _entry),
    (re.compile(rf"session://{_NAME}\Z"), _session),
    (re.compile(rf"agent://{_NAME}/memory\Z"), _memory),
    (re.compile(r"inbox://me\Z"), _inbox),
    (re.compile(r"performance://metrics\Z"), _metrics),
)


def parse_uri(uri: str) -> Resource:
    for form, make in _FORMS:
        match = form.match(uri)
        if match is not None:
            return make(uri, *match.groups())
    raise ResourceNotFound(f"'{uri[:_LONGEST_URI]}' is not a resource of Weftline.", uri=uri[:_LONGEST_URI])


async def read_resource(app: App, resource: Resource, context: CallContext) -> bytes:
    """Read a resource as JSON by calling its operation."""
    return msgspec.json.encode(_matching(await _read(app, resource, context), resource))


async def check_may_watch(app: App, resource: Resource, context: CallContext) -> None:
    """Refuse a resource that the caller may not read."""
    await _read(app, resource.board or resource, context)


async def _read(app: App, resource: Resource, context: CallContext) -> Response:
    try:
        response: Response = await app.call(app.registry[resource.operation], resource.request, context)
    except NotFound as error:
        # MCP requires the URI in the error.
        error.context["uri"] = resource.uri
        raise
    return response


async def follow_resource(
    app: App, resource: Resource, context: CallContext, after: int, subscriber: Subscriber | None = None
) -> AsyncIterator[ResourceChange]:
    """Yield whenever the resource may have changed, while the caller may read it; see ``App.follow``."""
    if resource.interest is None:
        while True:
            await asyncio.sleep(COLLECTION_INTERVAL)
            await check_may_watch(app, resource, context)
            yield ResourceChange(after, happened=True)
    async for page in app.follow(context, resource.interest, after, subscriber):
        yield ResourceChange(page.reached, happened=bool(page.recorded) or page.pruned_through is not None)


class ResourceChange(NamedTuple):
    """Position in the event log, and whether the resource may have changed since the last one."""

    reached: int
    happened: bool


def _matching(response: Response, resource: Resource) -> Response:
    interest = resource.interest
    if interest is None or interest.keys == ANYONE or not isinstance(response, Keys):
        return response
    return Keys(keys=[info for info in response.keys if interest.wants_key(info.key)], metadata=response.metadata)
