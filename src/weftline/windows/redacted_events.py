"""Events as a redaction leaves them, also those that a cache had before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from weftline.history.line_kinds import SESSION, name_in
from weftline.history.model import trunk_of
from weftline.models.language_models.model import ConversationMessage, ToolCall
from weftline.records.record_ids import VersionId
from weftline.safety.redaction.masker import Masker
from weftline.windows.model import ORIGIN_MARK, PREFIX, content_key, message_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from weftline.records.sql import RecordStore
    from weftline.records.store import Redaction
    from weftline.windows.model import WindowEvent

REMOVED = "[content removed]"
_NO_ARGUMENTS = "{}"
_WINDOW = f"{PREFIX}:"


def apply_redactions(events: Sequence[WindowEvent], redactions: Mapping[str, Redaction]) -> Sequence[WindowEvent]:
    """Return events redacted where they, or the events they were copied from, are."""
    if not redactions:
        return events
    known = {_event_name(item_id): redaction for item_id, redaction in redactions.items()}

    def redaction_of(event: WindowEvent) -> Redaction | None:
        return known.get(_event_name(event.item_id)) or known.get(_event_name(event.origin or ""))

    found = ((event, redaction_of(event)) for event in events)
    return [event if redaction is None else redact_event(event, redaction) for event, redaction in found]


async def redacted_keys(records: RecordStore, session_id: str, line_id: str) -> frozenset[str]:
    """Return the keys of a line whose events are redacted."""
    names = (VersionId.parse(item_id) for item_id in await records.redactions_in(session_id))
    keys = {name.key for name in names if name is not None and trunk_of(name.line_id) == trunk_of(line_id)}
    return frozenset(keys | {content_key(key) for key in keys})


async def redactions_of_items(item_ids: Collection[str], records: RecordStore) -> dict[str, Redaction]:
    """Return the redactions that hide one of these items: events of windows also in other versions and branches."""
    found = await records.redactions(sorted(item_ids)) if item_ids else {}
    sessions = {name_in(each.partition(ORIGIN_MARK)[0], SESSION) for each in item_ids if each.startswith(_WINDOW)}
    for session_id in sorted(session for session in sessions if session is not None):
        found |= await records.redactions_in(session_id)
    return found


def redacted_items(item_ids: Iterable[str], redactions: Mapping[str, Redaction]) -> list[str]:
    """Return the items that are redacted. An event counts in any version, and so does one copied from it."""
    if not redactions:
        return []
    events = {_event_name(item_id) for item_id in redactions if item_id.startswith(_WINDOW)}
    return [each for each in item_ids if each in redactions or not events.isdisjoint(_event_names(each))]


def _event_names(item_id: str) -> set[str]:
    """Return the name of an event and of the one it was copied from; none if the item is not an event."""
    if not item_id.startswith(_WINDOW):
        return set()
    line_id, _, key = _event_name(item_id).partition(ORIGIN_MARK)
    *_, agent_id, event_id = (*line_id.rsplit(":", 1), *key.split(ORIGIN_MARK))
    return {f"{line_id}{ORIGIN_MARK}{key}", f"{line_id.rpartition(':')[0]}:{agent_id}{ORIGIN_MARK}{event_id}"}


def _event_name(item_id: str) -> str:
    """Return the id of an item without branch and version: a rollback or a branch must not show an event again."""
    name = VersionId.parse(item_id)
    return item_id if name is None else f"{trunk_of(name.line_id)}{ORIGIN_MARK}{name.key}"


def redact_event(event: WindowEvent, redaction: Redaction) -> WindowEvent:
    """Return an event as its readers get it."""
    message = _masked(event.message) if redaction.state == "masked" else _replaced(event.message, redaction)
    return structs.replace(
        event,
        message=message,
        tokens=message_tokens(message),
        content_hash=None,
        references=(),
        reason=None,
        redacted=True,
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
    content = redaction.replacement or REMOVED
    calls = tuple(ToolCall(call.call_id, call.name, _NO_ARGUMENTS) for call in message.tool_calls)
    return ConversationMessage(
        role=message.role, content=content, name=message.name, tool_calls=calls, tool_call_id=message.tool_call_id
    )
