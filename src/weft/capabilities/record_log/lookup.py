"""Looking records up for one caller: those that are kept, and those that other tables are the source of.

Many are looked up together, a few statements for each line or session they are of, whatever their number. Who may see
them is decided by the rules of now.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import UNSET

from weft.capabilities.agent_context.model import DEFINITION, PartAt, is_metadata
from weft.capabilities.agent_context.service import ContextAt
from weft.capabilities.agent_context.store import SnapshotStore
from weft.capabilities.events.model import EventFilter, EventStore
from weft.capabilities.history.model import LATEST, ChangeKind, Point
from weft.capabilities.history.service import History
from weft.capabilities.history.store import ChangeRef, LineStore
from weft.capabilities.memory.model import scope_of
from weft.capabilities.messages.model import audiences_of
from weft.capabilities.messages.store import MessageStore
from weft.capabilities.record_log.engine_items import (
    EngineItem,
    digest_of,
    message_item,
    session_surface,
    source_record,
    version_item,
)
from weft.capabilities.record_log.redacted_items import redacted_item
from weft.capabilities.record_log.redacted_records import redact_quotes, redactions_of
from weft.capabilities.records.event_classes import context_event
from weft.capabilities.records.model import Block, ContextAssembly, ContextInjection, ContextItem, Record
from weft.capabilities.records.record_ids import (
    BulkCommit,
    EngineSourceId,
    EventOrigin,
    MessageItemId,
    PullOrigin,
    RecordRef,
    StoredRecordId,
    SurfaceId,
    VersionId,
    VersionOrigin,
    bulk_commit_of,
    records_of_event,
)
from weft.capabilities.records.refs import Link
from weft.capabilities.records.store import RecordStore
from weft.capabilities.records.vocabulary import SCHEMA_VERSION
from weft.capabilities.redaction.masker import Masker
from weft.capabilities.sessions.model import find_session, session_of
from weft.capabilities.sessions.store import SessionStore
from weft.kernel.clock import from_micros, to_micros
from weft.kernel.errors import NotFound
from weft.kernel.identity import PRINCIPAL, Actor
from weft.kernel.ids import is_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from weft.capabilities.history.line_backend import OpenLine
    from weft.capabilities.history.model import Version
    from weft.capabilities.records.store import Redaction, StoredRecord
    from weft.capabilities.sessions.model import Session
    from weft.kernel.events import StoredEvent

_encode = msgspec.json.Encoder().encode
_item = msgspec.json.Decoder(ContextItem).decode


class FoundRecord(NamedTuple):
    """A record as the caller may see it: its JSON, and what an item says if that is at hand.

    ``kept`` if the record is kept as such.
    """

    named: RecordRef
    body: bytes
    digest: str | None = None
    text: str | None = None
    kept: StoredRecord | None = None
    redaction: Redaction | None = None


class _Hidden:
    """Stands for what is there, but not for the caller."""


_HIDDEN: Final = _Hidden()


class RecordFinder(msgspec.Struct, frozen=True):
    """Everything that looking records up needs, gathered for the caller of one operation."""

    actor: Actor
    sessions: SessionStore
    lines: LineStore
    messages: MessageStore
    snapshots: SnapshotStore
    records: RecordStore
    events: EventStore
    timelines: History

    async def look(self, session_id: str | None) -> RecordLookup:
        """Begin to look: what is found out of lines and sessions on the way is known for as long as this lasts.

        If a session is named there is no other one.
        """
        if session_id is not None:
            await find_session(session_id, self.actor, self.sessions)
        return RecordLookup(self, session_id)


@dataclass(slots=True)
class RecordLookup:
    """One look at many records: at those of one session and of none, if ``only`` names one."""

    finder: RecordFinder
    only: str | None = None
    _sessions: dict[str, Session | None] = field(default_factory=dict)
    _lines: dict[str, OpenLine | None] = field(default_factory=dict)
    _source: str | None = None

    async def named_in(self, told: Sequence[StoredEvent], *, events: bool) -> list[list[RecordRef]]:
        """Return, for each event, the records it stands for: in an order that stays, and itself last if wanted."""
        pushes = {recorded.event.seq: push for recorded in told if (push := bulk_commit_of(recorded.event)) is not None}
        pushed = await self._pushed(pushes.values())
        named = []
        for recorded in told:
            direct = records_of_event(recorded)
            itself = [await self._itself(recorded, direct)] if events else []
            push = pushes.get(recorded.event.seq)
            until = to_micros(recorded.event.at)
            entries = [] if push is None else [_entry(name, seq, until) for name, seq in pushed.get(push, ())]
            named.append([*direct, *entries, *(each for each in itself if each is not None)])
        return named

    async def records(self, named: Sequence[RecordRef]) -> list[FoundRecord | None]:
        """Return these records, in the same order; None where there is none for the caller."""
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
        """Return a session if the caller takes part in it."""
        if self.only not in (None, session_id):
            return None
        if session_id not in self._sessions:
            found = await self.finder.sessions.find(session_id) if is_name(session_id) else None
            self._sessions[session_id] = found if found is not None and found.admits(self.finder.actor) else None
        return self._sessions[session_id]

    async def may_read(self, kept: StoredRecord) -> bool:
        """Tell whether a record that is kept is there for the caller."""
        if not self.finder.actor.matches(kept.readable_by):
            return False
        return kept.session_id is None or await self.session(kept.session_id) is not None

    def may_be_told(self, recorded: StoredEvent) -> bool:
        is_here = self.only is None or recorded.event.session_id in (None, self.only)
        return is_here and EventFilter().covers(recorded, self.finder.actor)

    async def _may_know(self, source: EngineSourceId) -> bool:
        """Tell whether a source is there for the caller: a session's for who takes part, an agent's for itself."""
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
        record = context_event(recorded, await self.source())
        about = next((each.origin for each in direct if isinstance(each.origin, VersionOrigin | MessageItemId)), None)
        return None if record is None else RecordRef("context_event", record.event_id, EventOrigin(recorded, about))

    async def _found(
        self,
        named: RecordRef,
        items: Mapping[object, EngineItem | _Hidden],
        stored: Mapping[StoredRecordId, StoredRecord],
        redaction: Redaction | None,
        parts: Mapping[PullOrigin, Mapping[str, PartAt]],
    ) -> FoundRecord | None:
        match named.origin:
            case VersionOrigin() | MessageItemId():
                item = items.get(named.origin)
                return _shown(named, item, redaction) if isinstance(item, EngineItem) else None
            case StoredRecordId():
                kept = stored.get(named.origin)
                return None if kept is None else _as_kept(named, kept, redaction)
            case SurfaceId(session_id):
                session = await self.session(session_id)
                return None if session is None else _made(named, session_surface(session))
            case EngineSourceId():
                return _made(named, source_record(named.origin)) if await self._may_know(named.origin) else None
            case PullOrigin():
                taken = parts.get(named.origin)
                return None if taken is None else _made(named, _pulled(named, named.origin, taken))
            case EventOrigin(recorded, about):
                record = context_event(recorded, await self.source())
                is_hidden = items.get(about) is _HIDDEN
                return None if record is None or is_hidden else _made(named, record)

    async def _versions(self, wanted: set[VersionOrigin]) -> dict[object, EngineItem | _Hidden]:
        by_line: dict[str, dict[VersionOrigin, Version]] = defaultdict(dict)
        for version_at, version in (await self._changes(wanted)).items():
            by_line[version_at.name.line_id][version_at] = version
        seen: dict[object, EngineItem | _Hidden] = {}
        for line_id, versions in by_line.items():
            line = await self._line(line_id)
            shown = [] if line is None else await line.visible(versions.values())
            visible = {(version.seq, version.change.key): version for version in shown}
            for version_at, version in versions.items():
                known = visible.get((version.seq, version.change.key))
                seen[version_at] = _HIDDEN if known is None else version_item(line_id, known)
        return seen

    async def _changes(self, wanted: set[VersionOrigin]) -> dict[VersionOrigin, Version]:
        """Return what history has of these versions: by their commits, or by their numbers where that is not enough."""
        spots = {
            each: ChangeRef(each.name.line_id, each.name.key, each.commit) for each in wanted if each.commit is not None
        }
        at = await self.finder.lines.versions_at(list(spots.values())) if spots else {}
        found: dict[VersionOrigin, Version] = {}
        for each in wanted:
            version = at.get(spots[each]) if each in spots else None
            if version is None or not _is_meant(version, each):
                version = await self._numbered(each) if each.commit is None or each.moved else None
            if version is not None:
                found[each] = version
        return found

    async def _numbered(self, wanted: VersionOrigin) -> Version | None:
        changes = await numbered_here(wanted.name, self.finder.lines)
        return next((change for change in changes if _is_meant(change, wanted)), None)

    async def _line(self, line_id: str) -> OpenLine | None:
        if line_id not in self._lines:
            self._lines[line_id] = await self._opened(line_id)
        return self._lines[line_id]

    async def _opened(self, line_id: str) -> OpenLine | None:
        session_id = session_of_line(line_id)
        if session_id is not None and await self.session(session_id) is None:
            return None
        try:
            return await self.finder.timelines.to_read(line_id)
        except NotFound:
            return None

    async def _messages(self, wanted: set[MessageItemId]) -> dict[object, EngineItem | _Hidden]:
        by_session: dict[str, list[int]] = defaultdict(list)
        for name in sorted(wanted):
            by_session[name.session_id].append(name.message_id)
        audiences = audiences_of(self.finder.actor)
        seen: dict[object, EngineItem | _Hidden] = {}
        for session_id, numbers in by_session.items():
            session = await self.session(session_id)
            for message in [] if session is None else await self.finder.messages.find_several(session_id, numbers):
                name = MessageItemId(session_id, message.message_id)
                seen[name] = message_item(session_id, message) if message.audience in audiences else _HIDDEN
        return seen

    async def _stored(self, wanted: set[StoredRecordId]) -> dict[StoredRecordId, StoredRecord]:
        found = await self.finder.records.find_several(sorted(wanted)) if wanted else ()
        shown = await redact_quotes([kept for kept in found if await self.may_read(kept)], self.finder.records)
        return {StoredRecordId(kept.type, kept.record_id): kept for kept in shown}

    async def _parts(self, pulls: set[PullOrigin]) -> dict[PullOrigin, Mapping[str, PartAt]]:
        """Return what each pull took, by part; what is left of a branch that was deleted since is nothing."""
        moments = {(pull.context_id, pull.name.version) for pull in pulls}
        at = {
            (line_id, seq): await ContextAt(self.finder.lines, Point(line_id, seq, b"")).parts()
            for line_id, seq in moments
        }
        found = {pull: at[pull.context_id, pull.name.version] for pull in pulls}
        return {pull: parts for pull, parts in found.items() if parts or pull.name.version == 0}

    async def _pushed(self, pushes: Collection[BulkCommit]) -> dict[BulkCommit, list[tuple[VersionId, int]]]:
        """Return the entries that each push changed, with the commits of the parts they are in."""
        lines = self.finder.lines
        wholes = {push for push in pushes if push.is_of_whole}
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
                if not is_metadata(version.change.key)
            ]
            for push, commits in parts.items()
        }


async def numbered_here(name: VersionId, lines: LineStore) -> list[Version]:
    """Return the changes that a name means: those of its own line, not of what that line goes on from.

    There they have other names, and what is redacted or closed is so under those.
    """
    base = (await lines.past(name.line_id, LATEST))[0].after
    changes = await lines.numbered(name.line_id, name.key, name.life, name.version)
    return [change for change in changes if change.seq > base]


def session_of_line(line_id: str) -> str | None:
    """Return the session that a line belongs to, if it is of one."""
    if line_id.startswith("board:"):
        return session_of(line_id)
    memory = scope_of(line_id)
    return None if memory is None else memory.session_id


def _shown(
    named: RecordRef, item: EngineItem, redaction: Redaction | None, kept: StoredRecord | None = None
) -> FoundRecord:
    """Return an item as it may be shown: with nothing of what was redacted."""
    record, text = item if redaction is None else redacted_item(item, redaction, Masker())
    return FoundRecord(named, _encode(record), _digest(record), text, kept, redaction)


def _as_kept(named: RecordRef, kept: StoredRecord, redaction: Redaction | None) -> FoundRecord:
    if kept.type != ContextItem.type:
        return FoundRecord(named, kept.body, kept=kept, redaction=redaction)
    item = _item(kept.body)
    if redaction is not None:
        return _shown(named, EngineItem(item, None), redaction, kept)
    return FoundRecord(named, kept.body, _digest(item), kept=kept)


def _made(named: RecordRef, record: Record) -> FoundRecord:
    return FoundRecord(named, _encode(record))


def _digest(record: ContextItem) -> str | None:
    """Return the digest of what an item says, where it says anything."""
    if isinstance(record.content_ref, Link):
        return record.content_ref.digest or None
    return digest_of(record.content) if isinstance(record.content, str) else None


def _is_meant(version: Version, wanted: VersionOrigin) -> bool:
    change, name = version.change, wanted.name
    is_same = (change.life, change.version, change.act is not ChangeKind.WRITE) == (
        name.life,
        name.version,
        name.removed,
    )
    return is_same and version.committed_at <= wanted.until


def _parts_in(named: Sequence[Version], texts: Mapping[bytes, str]) -> list[BulkCommit]:
    """Return the commits of the parts that a commit of the whole context names."""
    said = [texts.get(version.change.blob_hash or b"") for version in named]
    at = [msgspec.json.decode(text, type=PartAt) for text in said if text is not None]
    return [BulkCommit(part.line, part.seq) for part in at]


def _version_name(line_id: str, version: Version) -> VersionId:
    change = version.change
    return VersionId(line_id, change.key, change.life, change.version, change.act is not ChangeKind.WRITE)


def _entry(name: VersionId, seq: int, until: int) -> RecordRef:
    return RecordRef("context_item", str(name), VersionOrigin(name, seq, until))


def _pulled(named: RecordRef, pull: PullOrigin, parts: Mapping[str, PartAt]) -> ContextAssembly | ContextInjection:
    name = pull.name
    at, owner = from_micros(name.at), f"{PRINCIPAL}{name.owner}"
    native = {"weft": {"context_id": pull.context_id, "version": name.version, "session_id": name.session_id}}
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
        hash=UNSET if pull.taken is None else f"sha256:{pull.taken}",
        created_at=at,
        metadata=native,
    )


def _block(part: str, at: PartAt) -> Block:
    """Return a part of a context by the version it stood at; the hash of a commit stands for all before it."""
    kind = "agent_definition" if part == DEFINITION else "persistent_memory"
    return Block(
        block_id=part,
        kind=kind,
        content_ref=Link(kind="version", id=f"{at.line}/{at.seq}", digest=f"sha256:{at.hash}"),
    )
