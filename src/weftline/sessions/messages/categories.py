"""Message categories: which are protected, which pin a message when it is sent, and which make it more important."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.indexing.collections.model import DECISION, FACT, PROSE
from weftline.indexing.pins.model import PINNING_CATEGORIES, WEIGHTY_CATEGORIES
from weftline.kernel.errors import Forbidden

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.sessions.messages.model import Message

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


def pins_itself(message: Message, actor: Actor) -> bool:
    """Tell whether a message is pinned when it is sent. Sub-agents cannot pin."""
    if actor.is_subagent:
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
