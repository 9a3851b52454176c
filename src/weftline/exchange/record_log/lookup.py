"""Record lookup for one caller: stored records, and records derived from other tables.

Lookups are batched: a few statements for each line or session, whatever the number of records. Visibility follows the
current ACLs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import UNSET

from weftline.exchange.record_log.engine_items import (
    EngineItem,
    message_item,
    session_surface,
    source_record,
    version_item,
)
from weftline.exchange.record_log.redacted_records import redact_quotes, redacted_item, redactions_of
from weftline.history.composite_lines import PartVersion
from weftline.history.item_ids import MessageItemId, VersionId
from weftline.history.line_kinds import SESSION, line_kinds, name_in
from weftline.history.lines import LineStore
from weftline.history.model import LATEST, ChangeKind, Point, is_metadata
from weftline.history.service import History
from weftline.history.store import ChangeRef
from weftline.kernel.clock import from_micros, to_micros
from weftline.kernel.errors import NotFound
from weftline.kernel.fields import is_name
from weftline.kernel.identity import PRINCIPAL, Actor
from weftline.records.event_classes import to_context_event
from weftline.records.model import (
    Block,
    ContextAssembly,
    ContextInjection,
    ContextItem,
    Record,
    decode_item,
)
from weftline.records.record_ids import (
    BulkCommit,
    EngineSourceId,
    EventOrigin,
    PullOrigin,
    ReceiptOrigin,
    RecordRef,
    StoredRecordId,
    SurfaceId,
    VersionOrigin,
    bulk_commit_of,
    records_of_event,
)
from weftline.records.refs import Link, content_digest
from weftline.records.schemas import ReceiptRecords
from weftline.records.sql import RecordStore
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.safety.redaction import Masker
from weftline.sessions.events.model import EventFilter
from weftline.sessions.events.sql import EventStore
from weftline.sessions.messages.store import MessageStore
from weftline.sessions.model import find_session
from weftline.sessions.sql import SessionStore
from weftline.state.agent_context.model import DEFINITION
from weftline.state.agent_context.service import ContextAt
from weftline.state.agent_context.sql import SnapshotStore
from weftline.windows.model import is_content

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from weftline.history.line_kinds import OpenLine
    from weftline.history.model import Version
    from weftline.kernel.events import StoredEvent
    from weftline.records.schemas import Redaction, StoredRecord
    from weftline.sessions.model import Session

_encode = msgspec.json.Encoder().encode


class FoundRecord(NamedTuple):
    """A record as the caller may see it: its JSON, an item's content if available, and the row of a stored record."""

    ref: RecordRef
    body: bytes
    digest: str | None = None
    text: str | None = None
    stored: StoredRecord | None = None
    redaction: Redaction | None = None


class _Forbidden:
    """Marks an item that exists, but that the caller may not read."""


_FORBIDDEN: Final = _Forbidden()


class RecordFinder(msgspec.Struct, frozen=True):
    """The stores that record lookup needs, bound to the caller of one operation."""

    actor: Actor
    sessions: SessionStore
    lines: LineStore
    messages: MessageStore
    snapshots: SnapshotStore
    records: RecordStore
    events: EventStore
    history: History
    receipts: ReceiptRecords

    async def look(self, session_id: str | None) -> RecordLookup:
        """Start a lookup, which caches lines and sessions. With a session id it sees no other session."""
        if session_id is not None:
            await find_session(session_id, self.actor, self.sessions)
        return RecordLookup(self, session_id)


@dataclass(slots=True)
class RecordLookup:
    """One batch lookup; ``only_session`` restricts it to the records of one session and of none."""

    finder: RecordFinder
    only_session: str | None = None
    _sessions: dict[str, Session | None] = field(default_factory=dict)
    _lines: dict[str, OpenLine | None] = field(default_factory=dict)
    _receipts: dict[str, Mapping[str, Record]] = field(default_factory=dict)
    _source: str | None = None

    async def records_of(self, published: Sequence[StoredEvent], *, events: bool) -> list[list[RecordRef]]:
        """Return the records of each event in a stable order, with the event's own record last if ``events``."""
        pushes = {
            recorded.event.seq: push for recorded in published if (push := bulk_commit_of(recorded.event)) is not None
        }
        pushed = await self._pushed(pushes.values())
        named = []
        for recorded in published:
            direct = records_of_event(recorded)
            itself = [await self._itself(recorded, direct)] if events else []
            push = pushes.get(recorded.event.seq)
            until = to_micros(recorded.event.at)
            entries = [] if push is None else [_entry(name, seq, until) for name, seq in pushed.get(push, ())]
            named.append([*direct, *entries, *(each for each in itself if each is not None)])
        return named

    async def records(self, named: Sequence[RecordRef]) -> list[FoundRecord | None]:
        """Return these records in the same order; None where there is none, or the caller may not read it."""
        origins = [each.origin for each in named]
        origins += [origin.about for origin in origins if isinstance(origin, EventOrigin) and origin.about is not None]
        items = {
            **await self._versions({origin for origin in origins if isinstance(origin, VersionOrigin)}),
            **await self._messages({origin for origin in origins if isinstance(origin, MessageItemId)}),
        }
        stored = await self._stored({origin for origin in origins if isinstance(origin, StoredRecordId)})
        redactions = await redactions_of({(each.type, each.id) for each in named}, self.finder.records)
        parts = await self._parts({origin for origin in origins if isinstance(origin, PullOrigin)})
        return [await self._found(each, items, stored, redactions.get((each.type, each.id)), parts) for each in named]

    async def record(self, named: RecordRef) -> FoundRecord | None:
        (found,) = await self.records([named])
        return found

    async def session(self, session_id: str) -> Session | None:
        """Return a session if the caller is a participant."""
        if self.only_session not in (None, session_id):
            return None
        if session_id not in self._sessions:
            found = await self.finder.sessions.find(session_id) if is_name(session_id) else None
            self._sessions[session_id] = found if found is not None and found.admits(self.finder.actor) else None
        return self._sessions[session_id]

    async def may_read(self, row: StoredRecord) -> bool:
        if not self.finder.actor.matches(row.readable_by):
            return False
        return row.session_id is None or await self.session(row.session_id) is not None

    def may_see_event(self, recorded: StoredEvent) -> bool:
        is_here = self.only_session is None or recorded.event.session_id in (None, self.only_session)
        return is_here and EventFilter().covers(recorded, self.finder.actor)

    async def _may_see_source(self, source: EngineSourceId) -> bool:
        """Tell whether the caller may see a source: participants a session's, members a team's, an agent its own."""
        kind = line_kinds().get(source.place)
        if kind is not None and kind.composite:
            return await self._line(f"{source.place}:{source.owner}") is not None
        if source.place != "agent":
            return await self.session(source.owner) is not None
        if source.part == "agent":
            return await self._line(f"agent:{source.owner}") is not None
        return source.owner == self.finder.actor.principal_id

    async def source(self) -> str:
        if self._source is None:
            self._source = await self.finder.events.source()
        return self._source

    async def _itself(self, recorded: StoredEvent, direct: Sequence[RecordRef]) -> RecordRef | None:
        if any(each.type == "context_event" for each in direct):
            return None
        record = to_context_event(recorded, await self.source())
        about = next((each.origin for each in direct if isinstance(each.origin, VersionOrigin | MessageItemId)), None)
        return None if record is None else RecordRef("context_event", record.event_id, EventOrigin(recorded, about))

    async def _found(
        self,
        named: RecordRef,
        items: Mapping[object, EngineItem | _Forbidden],
        stored: Mapping[StoredRecordId, StoredRecord],
        redaction: Redaction | None,
        parts: Mapping[PullOrigin, Mapping[str, PartVersion]],
    ) -> FoundRecord | None:
        match named.origin:
            case VersionOrigin() | MessageItemId():
                item = items.get(named.origin)
                return _shown(named, item, redaction) if isinstance(item, EngineItem) else None
            case StoredRecordId():
                row = stored.get(named.origin)
                return None if row is None else _stored_record(named, row, redaction)
            case PullOrigin():
                taken = parts.get(named.origin)
                record: Record | None = None if taken is None else _pulled(named, named.origin, taken)
            case SurfaceId(session_id):
                session = await self.session(session_id)
                record = None if session is None else session_surface(session)
            case EngineSourceId():
                record = source_record(named.origin) if await self._may_see_source(named.origin) else None
            case ReceiptOrigin():
                record = (await self._receipt_records(named.origin.receipt_id)).get(named.type)
            case EventOrigin(recorded, about):
                is_forbidden = items.get(about) is _FORBIDDEN
                record = None if is_forbidden else to_context_event(recorded, await self.source())
        return None if record is None else _derived(named, record)

    async def _versions(self, wanted: set[VersionOrigin]) -> dict[object, EngineItem | _Forbidden]:
        by_line: dict[str, dict[VersionOrigin, Version]] = defaultdict(dict)
        for version_at, version in (await self._changes(wanted)).items():
            by_line[version_at.name.line_id][version_at] = version
        seen: dict[object, EngineItem | _Forbidden] = {}
        for line_id, versions in by_line.items():
            line = await self._line(line_id)
            shown = [] if line is None else await line.visible(versions.values())
            visible = {(version.seq, version.change.key): version for version in shown}
            for version_at, version in versions.items():
                known = visible.get((version.seq, version.change.key))
                seen[version_at] = _FORBIDDEN if known is None else version_item(line_id, known)
        return seen

    async def _changes(self, wanted: set[VersionOrigin]) -> dict[VersionOrigin, Version]:
        """Find versions in history by their commits, or by their numbers where the commit is unknown or has moved."""
        spots = {
            each: ChangeRef(each.name.line_id, each.name.key, each.commit) for each in wanted if each.commit is not None
        }
        spots |= await self._current([each for each in wanted if each.commit is None])
        at = await self.finder.lines.versions_at(list(spots.values())) if spots else {}
        found: dict[VersionOrigin, Version] = {}
        for each in wanted:
            version = at.get(spots[each]) if each in spots else None
            if version is None or not _is_version(version, each):
                version = await self._numbered(each) if each.commit is None or each.moved else None
            if version is not None:
                found[each] = version
        return found

    async def _current(self, wanted: Sequence[VersionOrigin]) -> dict[VersionOrigin, ChangeRef]:
        """Return the commits of those versions that are the current ones of their keys, in one statement per line."""
        by_line: dict[str, list[VersionOrigin]] = defaultdict(list)
        for each in wanted:
            by_line[each.name.line_id].append(each)
        found: dict[VersionOrigin, ChangeRef] = {}
        for line_id, of_line in by_line.items():
            keys = sorted({each.name.key for each in of_line})
            current = {
                version.change.key: version for version in await self.finder.lines.latest_of_each(line_id, keys, LATEST)
            }
            for each in of_line:
                version = current.get(each.name.key)
                if version is not None and _is_version(version, each):
                    found[each] = ChangeRef(line_id, each.name.key, version.seq)
        return found

    async def _numbered(self, wanted: VersionOrigin) -> Version | None:
        changes = await numbered_here(wanted.name, self.finder.lines)
        return next((change for change in changes if _is_version(change, wanted)), None)

    async def _line(self, line_id: str) -> OpenLine | None:
        if line_id not in self._lines:
            self._lines[line_id] = await self._opened(line_id)
        return self._lines[line_id]

    async def _opened(self, line_id: str) -> OpenLine | None:
        session_id = name_in(line_id, SESSION)
        if session_id is not None and await self.session(session_id) is None:
            return None
        try:
            return await self.finder.history.to_read(line_id)
        except NotFound:
            return None

    async def _messages(self, wanted: set[MessageItemId]) -> dict[object, EngineItem | _Forbidden]:
        by_session: dict[str, list[int]] = defaultdict(list)
        for name in sorted(wanted):
            by_session[name.session_id].append(name.message_id)
        seen: dict[object, EngineItem | _Forbidden] = {}
        for session_id, numbers in by_session.items():
            session = await self.session(session_id)
            for message in [] if session is None else await self.finder.messages.find_several(session_id, numbers):
                name = MessageItemId(session_id, message.message_id)
                seen[name] = message_item(session_id, message) if message.visible_to(self.finder.actor) else _FORBIDDEN
        return seen

    async def _stored(self, wanted: set[StoredRecordId]) -> dict[StoredRecordId, StoredRecord]:
        found = await self.finder.records.find_several(sorted(wanted)) if wanted else ()
        shown = await redact_quotes([row for row in found if await self.may_read(row)], self.finder.records)
        return {StoredRecordId(row.type, row.record_id): row for row in shown}

    async def _parts(self, pulls: set[PullOrigin]) -> dict[PullOrigin, Mapping[str, PartVersion]]:
        """Return the parts that each pull read; none if its branch was deleted since."""
        points = {(pull.context_id, pull.name.version) for pull in pulls}
        at = {
            (line_id, seq): await ContextAt(self.finder.lines, Point(line_id, seq, b"")).parts()
            for line_id, seq in points
        }
        found = {pull: at[pull.context_id, pull.name.version] for pull in pulls}
        return {pull: parts for pull, parts in found.items() if parts or pull.name.version == 0}

    async def _receipt_records(self, receipt_id: str) -> Mapping[str, Record]:
        """Return the records of a receipt, if the caller may read it."""
        if receipt_id not in self._receipts:
            self._receipts[receipt_id] = await self.finder.receipts.of_receipt(receipt_id, self.only_session)
        return self._receipts[receipt_id]

    async def _pushed(self, pushes: Collection[BulkCommit]) -> dict[BulkCommit, list[tuple[VersionId, int]]]:
        """Return the entries that each push changed, with the commits of their parts."""
        lines = self.finder.lines
        wholes = {push for push in pushes if push.is_composite}
        roots = await lines.versions_of([*wholes]) if wholes else {}
        texts = await self.finder.snapshots.values(
            version.change.blob_hash for named in roots.values() for version in named if version.change.blob_hash
        )
        parts = {push: [push] if push not in wholes else _parts_in(roots.get(push, ()), texts) for push in pushes}
        commits = [commit for of_push in parts.values() for commit in of_push]
        changed = await lines.versions_of(commits) if commits else {}
        return {
            push: [
                (_version_name(commit.line_id, version), commit.seq)
                for commit in commits
                for version in changed.get(commit, ())
                if not is_metadata(version.change.key) and not is_content(version.change.key)
            ]
            for push, commits in parts.items()
        }


async def numbered_here(name: VersionId, lines: LineStore) -> list[Version]:
    """Return the versions with this id that were made on its own line.

    Versions inherited from a parent line have other ids, under which redactions and ACLs apply.
    """
    base = (await lines.past(name.line_id, LATEST))[0].after
    changes = await lines.changes_of_version(name.line_id, name.key, name.incarnation, name.version)
    return [change for change in changes if change.seq > base]


def _shown(
    named: RecordRef, item: EngineItem, redaction: Redaction | None, row: StoredRecord | None = None
) -> FoundRecord:
    record, text = item if redaction is None else redacted_item(item, redaction, Masker())
    return FoundRecord(named, _encode(record), _digest(record), text, row, redaction)


def _stored_record(named: RecordRef, row: StoredRecord, redaction: Redaction | None) -> FoundRecord:
    if row.type != ContextItem.type:
        return FoundRecord(named, row.body, stored=row, redaction=redaction)
    item = decode_item(row.body)
    if redaction is not None:
        return _shown(named, EngineItem(item, None), redaction, row)
    return FoundRecord(named, row.body, _digest(item), stored=row)


def _derived(named: RecordRef, record: Record) -> FoundRecord:
    return FoundRecord(named, _encode(record))


def _digest(record: ContextItem) -> str | None:
    """Return the digest of an item's content, if it has any."""
    if isinstance(record.content_ref, Link):
        return record.content_ref.digest or None
    return content_digest(record.content) if isinstance(record.content, str) else None


def _is_version(version: Version, wanted: VersionOrigin) -> bool:
    change, name = version.change, wanted.name
    is_same = (change.incarnation, change.version, change.act is not ChangeKind.WRITE) == (
        name.incarnation,
        name.version,
        name.removed,
    )
    return is_same and version.committed_at <= wanted.until


def _parts_in(named: Sequence[Version], texts: Mapping[bytes, str]) -> list[BulkCommit]:
    """Return the commits of the parts that a commit of the whole context refers to."""
    encoded = [texts.get(version.change.blob_hash or b"") for version in named]
    at = [msgspec.json.decode(text, type=PartVersion) for text in encoded if text is not None]
    return [BulkCommit(part.line, part.seq) for part in at]


def _version_name(line_id: str, version: Version) -> VersionId:
    change = version.change
    return VersionId(line_id, change.key, change.incarnation, change.version, change.act is not ChangeKind.WRITE)


def _entry(name: VersionId, seq: int, until: int) -> RecordRef:
    return RecordRef("context_item", str(name), VersionOrigin(name, seq, until))


def _pulled(named: RecordRef, pull: PullOrigin, parts: Mapping[str, PartVersion]) -> ContextAssembly | ContextInjection:
    name = pull.name
    at, owner = from_micros(name.at), f"{PRINCIPAL}{name.owner}"
    native = {"weftline": {"context_id": pull.context_id, "version": name.version, "session_id": name.session_id}}
    if named.type == ContextAssembly.type:
        return ContextAssembly(
            schema_version=SCHEMA_VERSION,
            assembly_id=str(name),
            target=name.owner,
            ordered_blocks=tuple(_block(part, at) for part, at in sorted(parts.items())),
            visibility=(owner,),
            redaction_state="none",
            created_at=at,
            metadata=native,
        )
    return ContextInjection(
        schema_version=SCHEMA_VERSION,
        injection_id=named.id,
        assembly_id=str(name),
        target=name.owner,
        injection_point="runtime_metadata",
        visibility=(owner,),
        final_ref=Link(kind="context_version", id=f"{pull.context_id}/{name.version}"),
        hash=UNSET if pull.content_hash is None else f"sha256:{pull.content_hash}",
        created_at=at,
        metadata=native,
    )


def _block(part: str, at: PartVersion) -> Block:
    """Return a context part as a block that refers to its version; the commit hash covers all commits before it."""
    kind = "agent_definition" if part == DEFINITION else "persistent_memory"
    return Block(
        block_id=part,
        kind=kind,
        content_ref=Link(kind="version", id=f"{at.line}/{at.seq}", digest=f"sha256:{at.hash}"),
    )
