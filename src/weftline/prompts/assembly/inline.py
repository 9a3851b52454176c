"""Conversations given inline with a call: each message is an event with an id that follows from its content.

The id covers the message and all before it. A conversation that is sent again with each turn is therefore recognised,
and only its new messages are added to the window.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from weftline.windows.model import INLINE_ID, EventDraft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.models.language_models.model import ConversationMessage

_ID_DIGITS = 32
_encode = msgspec.json.Encoder(order="sorted").encode


def drafts_of(messages: Sequence[ConversationMessage]) -> list[EventDraft]:
    """Return the events of a conversation."""
    chain = hashlib.sha256()
    drafts = []
    for message in messages:
        chain.update(_encode(message))
        drafts.append(EventDraft(event_id=f"{INLINE_ID}{chain.hexdigest()[:_ID_DIGITS]}", message=message))
    return drafts
