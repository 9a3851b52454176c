"""What a message is, and who it is for.

A visibility names an audience, which is one participant pattern: everyone, one principal, one type of agent, or whoever
holds a permission. A message carries the pattern itself, so a caller sees exactly the messages whose audience is among
its own, and every way of reading asks that one question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import msgspec
from msgspec import structs

from weft.kernel.errors import NotFound
from weft.kernel.identity import AGENT_TYPE, EVERYONE, PERMISSION, PRINCIPAL, Permission

if TYPE_CHECKING:
    from weft.kernel.identity import Actor

MOST_CHARACTERS = 10_000
Visibility = Literal["public", "private", "agent_only", "admin_only"]
VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)
# Behind every message there can be.
LAST = 2**62
ADMINS = f"{PERMISSION}{Permission.ADMIN}"


class MessageNotFound(NotFound):
    """There is no such message in the session, or not for you."""

    code = "MESSAGE_NOT_FOUND"
    hint = "Use the id of a message that get_messages shows you in this session."
    related = ("get_messages",)


class Message(msgspec.Struct, frozen=True, gc=False):
    """One envelope of a session's transcript; ``metadata`` is JSON text.

    ``author`` is the name that others see on the sender's work, if it is known.
    """

    message_id: int
    audience: str
    visibility: Visibility
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
        """Return how many characters the message has."""
        return len(self.content) + len(self.metadata)

    def visible_to(self, actor: Actor) -> bool:
        return self.audience in audiences_of(actor)


class AudienceCount(msgspec.Struct, frozen=True):
    """How many messages an audience has; the same count under the same stamp stands for the same messages."""

    audience: str
    messages: int
    stamp: int


class TranscriptRange(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a transcript: behind ``after`` and up to ``until``, in order of the messages' numbers."""

    limit: int
    sender: str | None = None
    after: int = 0
    until: int = LAST
    offset: int = 0
    newest_first: bool = False

    def behind(self, message_id: int) -> TranscriptRange:
        """Return what is left of this part behind a message of it."""
        if self.newest_first:
            return structs.replace(self, until=message_id - 1, offset=0)
        return structs.replace(self, after=message_id, offset=0)


class Excerpt(msgspec.Struct, frozen=True):
    """The messages of a part that have one of these audiences."""

    audiences: tuple[str, ...]
    part: TranscriptRange


def audience_for(visibility: Visibility, sender: str, sender_type: str) -> str:
    match visibility:
        case "public":
            return EVERYONE
        case "private":
            return f"{PRINCIPAL}{sender}"
        case "agent_only":
            return f"{AGENT_TYPE}{sender_type}"
        case "admin_only":
            return ADMINS


def audiences_of(actor: Actor, *visibilities: Visibility) -> tuple[str, ...]:
    """Return the audiences a caller belongs to: of these visibilities, or of all."""
    own = actor.audiences
    named = (audience_for(v, actor.principal_id, actor.agent_type) for v in visibilities or VISIBILITIES)
    return tuple(audience for audience in named if audience in own)
