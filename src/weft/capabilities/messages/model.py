"""Messages and their audiences.

A visibility maps to an audience, which is one participant pattern: everyone, one principal, one agent type, the
holders of a permission, or the members of a team. A message stores the pattern, so a caller sees exactly the messages
whose audience it belongs to, and every query filters on that one column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, get_args

import msgspec
from msgspec import structs

from weft.kernel.errors import NotFound
from weft.kernel.identity import AGENT_TYPE, EVERYONE, PERMISSION, PRINCIPAL, TEAM, Permission

if TYPE_CHECKING:
    from weft.kernel.identity import Actor

MAX_CHARACTERS = 10_000
Visibility = Literal["public", "private", "agent_only", "admin_only"]
# One of these, or team:NAME, as messages store and show it.
AnyVisibility = Annotated[
    str, msgspec.Meta(pattern=r"^(public|private|agent_only|admin_only|team:[A-Za-z0-9][A-Za-z0-9_-]{0,99})\Z")
]
VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)
# Greater than any message id.
LAST = 2**62
ADMINS = f"{PERMISSION}{Permission.ADMIN}"


class MessageNotFound(NotFound):
    """The message does not exist in this session, or is not visible to you."""

    code = "MESSAGE_NOT_FOUND"
    hint = "Use an id that `message.list` returns for this session."
    related = ("get_messages",)


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a transcript; ``metadata`` is JSON text.

    ``author`` is the sender's participant name, if known.
    """

    message_id: int
    audience: str
    visibility: str
    sender: str
    sender_type: str
    recipient_id: str | None
    message_type: str
    category: str
    parent_id: int | None
    sent_at: int
    content: str
    metadata: str
    author: str | None = None

    @property
    def size(self) -> int:
        """Return the message's size in characters."""
        return len(self.content) + len(self.metadata)

    def visible_to(self, actor: Actor) -> bool:
        return self.audience in audiences_of(actor)


class AudienceCount(msgspec.Struct, frozen=True):
    """The number of an audience's messages; equal counts with equal stamps mean identical messages."""

    audience: str
    messages: int
    stamp: int


class TranscriptRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range of a transcript by message id: after ``after``, up to and including ``until``."""

    limit: int
    sender: str | None = None
    after: int = 0
    until: int = LAST
    offset: int = 0
    newest_first: bool = False

    def rest_after(self, message_id: int) -> TranscriptRange:
        """Return the rest of this range after one of its messages."""
        if self.newest_first:
            return structs.replace(self, until=message_id - 1, offset=0)
        return structs.replace(self, after=message_id, offset=0)


class Excerpt(msgspec.Struct, frozen=True):
    """The messages of a range that have one of these audiences."""

    audiences: tuple[str, ...]
    part: TranscriptRange


def audience_for(visibility: str, sender: str, sender_type: str) -> str:
    """Return the audience of a visibility; that of team:NAME is the same pattern."""
    match visibility:
        case "public":
            return EVERYONE
        case "private":
            return f"{PRINCIPAL}{sender}"
        case "agent_only":
            return f"{AGENT_TYPE}{sender_type}"
        case "admin_only":
            return ADMINS
        case _:
            return visibility


def audiences_of(actor: Actor, *visibilities: Visibility) -> tuple[str, ...]:
    """Return the audiences that a caller belongs to, of these visibilities or of all."""
    own = actor.audiences
    wanted: tuple[str, ...] = visibilities or (*VISIBILITIES, *(f"{TEAM}{team}" for team in sorted(actor.teams)))
    named = (audience_for(visibility, actor.principal_id, actor.agent_type) for visibility in wanted)
    return tuple(audience for audience in named if audience in own)
