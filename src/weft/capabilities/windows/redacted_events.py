"""Events as a redaction leaves them: the stored content stays, readers do not get it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from weft.capabilities.history.model import blob_hash, trunk_of
from weft.capabilities.language_models.model import ConversationMessage, ToolCall
from weft.capabilities.records.record_ids import VersionId
from weft.capabilities.redaction.masker import Masker
from weft.capabilities.windows.model import message_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.records.store import Redaction
    from weft.capabilities.windows.model import WindowEvent

_REMOVED = "[content removed]"
_NO_ARGUMENTS = "{}"


def apply_redactions(events: Sequence[WindowEvent], redactions: Mapping[str, Redaction]) -> Sequence[WindowEvent]:
    """Return events redacted where they, or the events they were copied from, are."""
    if not redactions:
        return events
    known = {_any_branch(item_id): redaction for item_id, redaction in redactions.items()}

    def redaction_of(event: WindowEvent) -> Redaction | None:
        return known.get(_any_branch(event.item_id)) or known.get(event.origin or "")

    found = ((event, redaction_of(event)) for event in events)
    return [event if redaction is None else _redacted(event, redaction) for event, redaction in found]


def _any_branch(item_id: str) -> str:
    """Return the id of an item without its branch: a line and its branches share events."""
    name = VersionId.parse(item_id)
    return item_id if name is None else str(name._replace(line_id=trunk_of(name.line_id)))


def _redacted(event: WindowEvent, redaction: Redaction) -> WindowEvent:
    message = _masked(event.message) if redaction.state == "masked" else _replaced(event.message, redaction)
    return structs.replace(
        event, message=message, tokens=message_tokens(message), content_hash=None, references=(), redacted=True
    )


def _masked(message: ConversationMessage) -> ConversationMessage:
    mask = Masker()
    return structs.replace(
        message,
        content=mask.text(message.content),
        tool_calls=tuple(structs.replace(call, arguments=mask.text(call.arguments)) for call in message.tool_calls),
        native=None if message.native is None else mask.value(message.native),
    )


def _replaced(message: ConversationMessage, redaction: Redaction) -> ConversationMessage:
    """Return the message without its content; its calls stay, so that results still answer them."""
    if redaction.state == "summarized":
        content = redaction.replacement or _REMOVED
    elif redaction.state == "encrypted_ref":
        content = f"sha256:{blob_hash(message.content).hex()}"
    else:
        content = _REMOVED
    calls = tuple(ToolCall(call.call_id, call.name, _NO_ARGUMENTS) for call in message.tool_calls)
    return ConversationMessage(
        role=message.role, content=content, name=message.name, tool_calls=calls, tool_call_id=message.tool_call_id
    )
