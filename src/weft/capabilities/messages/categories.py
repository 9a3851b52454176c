"""Message categories: which messages are pinned when they are sent, and which get a higher importance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.capabilities.pins.model import PINNING_CATEGORIES, WEIGHTY_CATEGORIES

if TYPE_CHECKING:
    from weft.capabilities.messages.model import Message
    from weft.kernel.identity import Actor

_PINNED = "pinned"


def pins_itself(message: Message, actor: Actor) -> bool:
    """Tell whether a message is pinned when it is sent. Sub-agents cannot pin."""
    if actor.is_subagent:
        return False
    return bool(_categories(message) & PINNING_CATEGORIES) or _metadata(message).get(_PINNED) is True


def is_weighty(message: Message) -> bool:
    """Tell whether the category of a message makes it more important than others."""
    return bool(_categories(message) & WEIGHTY_CATEGORIES)


def _categories(message: Message) -> set[str]:
    named = (message.category, message.message_type, str(_metadata(message).get("category", "")))
    return {name.casefold() for name in named}


def _metadata(message: Message) -> dict[str, Any]:
    if not message.metadata.startswith("{"):
        return {}
    metadata: dict[str, Any] = msgspec.json.decode(message.metadata)
    return metadata
