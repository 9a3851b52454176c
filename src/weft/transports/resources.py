"""What can be read and watched by URI: sessions, boards, and keys of a board by name or pattern.

board://{session_id}          the keys of a board
board://{session_id}/{key}    one entry; with * or ? the keys that match
session://{session_id}        a session
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.capabilities.board.operations import Keys
from weft.capabilities.events.model import Interest
from weft.kernel.errors import NotFound
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from weft.app.app import App
    from weft.app.dispatch import Arrival
    from weft.kernel.operation import Response

_URI = re.compile(r"(board|session)://([A-Za-z0-9][A-Za-z0-9_-]{0,99})(?:/([a-z0-9_:*?]{1,129}))?\Z")
_LONGEST_URI = 250


class Template(NamedTuple):
    """A family of resources, as clients are shown it."""

    uri: str
    name: str
    description: str


TEMPLATES = (
    Template("board://{session_id}", "board", "The keys on a session's board, with sizes and versions, no values."),
    Template("board://{session_id}/{key}", "entry", "One entry of a board; with * or ?, the keys that match."),
    Template("session://{session_id}", "session", "A session's purpose, state and settings."),
)


class ResourceNotFound(NotFound):
    """There is no such resource, or not for you."""

    code = "RESOURCE_NOT_FOUND"
    hint = "Use board://{session_id}, board://{session_id}/{key} or session://{session_id} with an id you work in."
    related = ("list_sessions", "shared_context")


@dataclass(frozen=True, slots=True)
class Resource:
    """A parsed URI."""

    uri: str
    kind: str
    session_id: str
    key: str | None

    @property
    def is_pattern(self) -> bool:
        return self.key is not None and ("*" in self.key or "?" in self.key)

    @property
    def interest(self) -> Interest:
        """Return the events after which reading this resource gives something else."""
        return Interest(self.session_id, ANYONE if self.key is None else (self.key,))


def parse_uri(uri: str) -> Resource:
    match = _URI.match(uri)
    if match is None or (match[1] == "session" and match[3] is not None):
        raise ResourceNotFound(f"'{uri[:_LONGEST_URI]}' is not a resource of Weft.", uri=uri[:_LONGEST_URI])
    return Resource(uri, match[1], match[2], match[3])


async def read_resource(app: App, resource: Resource, arrival: Arrival) -> bytes:
    """Return a resource's content as JSON, through the same operations as any other call."""
    operation, raw = "board.list_keys", {"session_id": resource.session_id}
    if resource.kind == "session":
        operation = "session.get"
    elif resource.key is not None and not resource.is_pattern:
        operation, raw = "board.read", {**raw, "key": resource.key}
    try:
        response = await app.call(app.registry[operation], raw, arrival)
    except NotFound as error:
        # The protocol asks that whoever reads in vain is told what was read.
        error.context["uri"] = resource.uri
        raise
    return msgspec.json.encode(_matching(response, resource))


async def check_may_watch(app: App, resource: Resource, arrival: Arrival) -> None:
    """Refuse a resource the caller could not read. A key need not exist yet: its creation is what some wait for."""
    operation = "session.get" if resource.kind == "session" else "board.list_keys"
    await app.call(app.registry[operation], {"session_id": resource.session_id}, arrival)


def _matching(response: Response, resource: Resource) -> Response:
    if not resource.is_pattern or not isinstance(response, Keys):
        return response
    interest = resource.interest
    return Keys(keys=[info for info in response.keys if interest.wants_key(info.key)], metadata=response.metadata)
