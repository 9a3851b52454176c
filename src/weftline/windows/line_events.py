"""The events of a line at its head: read once, then only the commits after the cached one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.history.item_ids import VersionId
from weftline.history.line_kinds import SESSION, name_in
from weftline.history.model import ChangeKind, trunk_of
from weftline.models.language_models.content import ConversationMessage, ToolCall
from weftline.safety.redaction import Masker
from weftline.windows.model import (
    ORIGIN_MARK,
    PREFIX,
    agent_of,
    as_read_by,
    content_key,
    decode_event,
    event_weight,
    is_content,
    message_tokens,
)
from weftline.windows.sql import LineEvents

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from weftline.history.lines import LineStore
    from weftline.history.model import Head, Version
    from weftline.records.schemas import Redaction
    from weftline.records.sql import RecordStore
    from weftline.windows.model import WindowEvent
    from weftline.windows.sql import EventCache


_PAGE = 1_000


class _Reader(NamedTuple):
    lines: LineStore
    head: Head

    async def after(self, cached: LineEvents) -> LineEvents | None:
        """Return the cached events with the changes since; None if the cache is not of this history."""
        if not 0 < cached.seq <= self.head.seq:
            return None
        if cached.seq == self.head.seq:
            return cached if cached.hash == self.head.hash else None
        commit = await self.lines.commit_at(self.head.line_id, cached.seq)
        if commit is None or commit.hash != cached.hash:
            return None
        changed = await self._changes(cached.seq)
        return None if changed is None else self._with(cached, changed)

    async def all(self) -> LineEvents:
        state = {version.change.key: version for version in await self.lines.state_at(self.head.line_id, self.head.seq)}
        return self._ordered(self._decoded(version, state) for key, version in state.items() if not is_content(key))

    async def _changes(self, after: int) -> dict[str, Version] | None:
        """Return the last change of each key after a commit; None if they are on another line."""
        changed: dict[str, Version] = {}
        while after < self.head.seq:
            page = await self.lines.changes_after(self.head.line_id, after, _PAGE)
            if not page:
                return None
            changed |= {version.change.key: version for version in page if version.seq <= self.head.seq}
            after = page[-1].seq
        return changed

    def _with(self, cached: LineEvents, changed: Mapping[str, Version]) -> LineEvents | None:
        events = {event.event_id: event for event in cached.events}
        for key, version in changed.items():
            if is_content(key):
                continue
            if version.change.act is not ChangeKind.WRITE:
                events.pop(key, None)
                continue
            events[key] = self._decoded(version, changed)
            if events[key].content_hash and not events[key].message.content:
                # The content was written by an earlier commit.
                return None
        return self._ordered(events.values())

    def _ordered(self, events: Iterable[WindowEvent]) -> LineEvents:
        ordered = sorted(events, key=lambda event: (event.number, event.at, event.event_id))
        return LineEvents(self.head.seq, self.head.hash, tuple(ordered))

    def _decoded(self, version: Version, values: Mapping[str, Version]) -> WindowEvent:
        content = values.get(content_key(version.change.key))
        event = decode_event(self.head.line_id, version, None if content is None else content.value)
        return as_read_by(event, agent_of(self.head.line_id))


async def events_of_line(
    lines: LineStore, cache: EventCache, tenant: str, head: Head, *, committed: bool = True
) -> LineEvents:
    """Return the events of a line at its head; what is not ``committed`` is not cached."""
    reader, name = _Reader(lines, head), (tenant, head.line_id)
    cached = cache.get(name)
    found = None if cached is None else await reader.after(cached)
    if found is None:
        found = await reader.all()
    if committed and found is not cached:
        cache.put(name, found, sum(map(event_weight, found.events)))
    return found


# Events as a redaction leaves them, also those that a cache had before.

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
