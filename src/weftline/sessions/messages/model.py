"""Messages and their audiences.

A visibility maps to an audience, which is one participant pattern: everyone, one principal, one agent type, the
holders of a permission, the members of a team, or the two sides of a direct message. A message stores the pattern, so
a caller sees exactly the messages whose audience it belongs to, and every query filters on that one column.

Queries name the direct messages of a principal, sent and received, by one audience: ``direct:ID``; all of a session
are counted as ``direct:``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
from msgspec import structs

from weftline.indexing.collections import DECISION, FACT, PROSE
from weftline.indexing.pins import PINNING_CATEGORIES, WEIGHTY_CATEGORIES, may_pin_for_others
from weftline.kernel.errors import Forbidden, NotFound
from weftline.kernel.identity import AGENT_TYPE, EVERYONE, PERMISSION, PRINCIPAL, TEAM, Permission
from weftline.safety.trust.model import TrustLabel

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor


MAX_CHARACTERS = 10_000
Visibility = Literal["public", "private", "agent_only", "admin_only"]
# One of these, or team:NAME, as messages store and show it.
AnyVisibility = Annotated[
    str, msgspec.Meta(pattern=r"^(public|private|agent_only|admin_only|team:[A-Za-z0-9][A-Za-z0-9_-]{0,99})\Z")
]
VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)
# Type and category of messages without another.
MESSAGE, DIALOG = "message", "DIALOG"
# Greater than any message id.
LAST = 2**62
# Prefix of the audience of direct messages: direct:A:B with both sides in order.
DIRECT = "direct:"
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
    trust: TrustLabel | None = None

    @property
    def size(self) -> int:
        """Return the message's size in characters."""
        return len(self.content) + len(self.metadata)

    @property
    def readers(self) -> tuple[str, ...]:
        """Return the audience as ACL patterns."""
        return readers_of(self.audience)

    @property
    def is_direct(self) -> bool:
        return self.audience.startswith(DIRECT)

    def visible_to(self, actor: Actor) -> bool:
        return any(pattern in actor.audiences for pattern in self.readers)

    def is_among(self, audiences: tuple[str, ...]) -> bool:
        """Tell whether a query of these audiences covers the message."""
        return any(audience in audiences for audience in listed_audiences(self.audience))

    def other_side(self, principal_id: str) -> str | None:
        """Return the other side of a direct message; None if it is not one."""
        return next((each for each in _sides(self.audience) if each != principal_id), None)


# Session and number of a message.
MessageHandle = tuple[str, int]


class UnreadMessage(msgspec.Struct, frozen=True):
    """A message in an inbox, without its content.

    ``missed``: earlier messages of the sender that had to leave the full inbox.
    """

    session_id: str
    message_id: int
    sender: str
    sent_at: int
    missed: int
    audience: str

    @property
    def handle(self) -> MessageHandle:
        return self.session_id, self.message_id


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


def audience_for(visibility: str, sender: str, sender_type: str, recipient_id: str | None = None) -> str:
    """Return the audience of a visibility; that of team:NAME is the same pattern."""
    match visibility:
        case "public":
            return EVERYONE
        case "private" if recipient_id not in (None, sender):
            return f"{DIRECT}{':'.join(sorted((sender, str(recipient_id))))}"
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
    direct = (f"{DIRECT}{actor.principal_id}",) if "private" in wanted else ()
    return (*(audience for audience in named if audience in own), *direct)


def readers_of(audience: str) -> tuple[str, ...]:
    """Return an audience as ACL patterns: of a direct message, both sides."""
    return tuple(f"{PRINCIPAL}{side}" for side in _sides(audience)) or (audience,)


def listed_audiences(audience: str) -> tuple[str, ...]:
    """Return the audiences that queries find a message under: of a direct message, one for each side and for all."""
    return tuple(f"{DIRECT}{side}" for side in (*_sides(audience), "")) if audience.startswith(DIRECT) else (audience,)


def _sides(audience: str) -> list[str]:
    return audience.removeprefix(DIRECT).split(":") if audience.startswith(DIRECT) else []


# Message categories: which are protected, which pin a message when it is sent, and which make it more important.

_PINNED = "pinned"
_FACTS = frozenset({"fact", "immutable_fact"})
# Instructions to other agents. Providers call the role of such messages system or developer.
PROTECTED_CATEGORIES = frozenset({"system", "developer", "guardrail"})


class ProtectedCategory(Forbidden):
    """Messages of this category are instructions: orchestrators and humans send them, sub-agents do not."""

    code = "PROTECTED_CATEGORY"
    hint = "Send it as DIALOG or CONTEXT, or ask the orchestrator that started you, or a human, to send it."
    related = ("add_message", "ingest_event")


def check_not_protected(message: Message, actor: Actor) -> None:
    """Refuse a sub-agent's message whose category, type or metadata category is protected."""
    protected = sorted(_categories(message) & PROTECTED_CATEGORIES) if actor.is_subagent else []
    if protected:
        raise ProtectedCategory(
            f"Sub-agents cannot send messages of the category {protected[0].upper()}; orchestrators and humans can."
        )


def pins_itself(message: Message, sender: str) -> bool:
    """Tell whether a message is pinned when a participant sends it."""
    if not may_pin_for_others(sender):
        return False
    return bool(_categories(message) & PINNING_CATEGORIES) or _metadata(message).get(_PINNED) is True


def is_weighty(message: Message) -> bool:
    """Tell whether the category of a message makes it more important than others."""
    return bool(_categories(message) & WEIGHTY_CATEGORIES)


def kind_of_chunks(message: Message) -> str:
    """Return the kind of a message's chunks: whether its category says that it is a decision or a fact."""
    categories = _categories(message) & WEIGHTY_CATEGORIES
    if not categories:
        return PROSE
    return FACT if categories <= _FACTS else DECISION


def _categories(message: Message) -> set[str]:
    named = (message.category, message.message_type, str(_metadata(message).get("category", "")))
    return {name.casefold() for name in named}


def _metadata(message: Message) -> dict[str, Any]:
    if not message.metadata.startswith("{"):
        return {}
    metadata: dict[str, Any] = msgspec.json.decode(message.metadata)
    return metadata
