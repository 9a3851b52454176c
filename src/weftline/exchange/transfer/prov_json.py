"""Writes an export as PROV-JSON: entities, activities, agents and their relations.

A PROV document groups statements into sections, so each section is buffered in a temporary file until the end.
"""

from __future__ import annotations

import hashlib
from datetime import UTC
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from weftline.exchange.transfer import decode
from weftline.exchange.transfer.bundle_format import BundleHeader
from weftline.history.item_ids import VersionId
from weftline.kernel.identity import ANYONE
from weftline.records.engine_metadata import engine_metadata
from weftline.records.model import (
    ContextAssembly,
    ContextCompaction,
    ContextEvent,
    ContextInjection,
    ContextItem,
    ContextSelection,
    ContextSourceRef,
    ContextSummary,
)
from weftline.records.record_ids import COMPACTION, records_of_event
from weftline.records.refs import Link
from weftline.sessions.recorder import referenced_item_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from typing import BinaryIO

    from weftline.exchange.transfer.bundle_format import AnyBundleEntry, StoredInfo
    from weftline.records.model import Record
    from weftline.records.refs import Maybe, Ref

_SECTIONS = (
    "entity",
    "activity",
    "agent",
    "wasGeneratedBy",
    "used",
    "wasAttributedTo",
    "wasAssociatedWith",
    "wasDerivedFrom",
)
_PREFIXES = {"weftline": "urn:weftline:prov:"}
# Records of an activity, not only of an entity.
_ACTIVITIES = (ContextSelection, ContextAssembly, ContextCompaction, ContextInjection)
_CHUNK = 65_536
_encode = msgspec.json.Encoder().encode
_BEGIN = b'{"prefix":' + _encode(_PREFIXES)


def is_prov(prefix: bytes) -> bool:
    """Tell from the first bytes of a file whether it is a PROV-JSON export."""
    return prefix.startswith(_BEGIN)


class ProvWriter:
    """Writes an export as one PROV-JSON document. Only the names of agents and sources stay in memory."""

    def __init__(
        self, out: Callable[[bytes], object], new_file: Callable[[], BinaryIO], reserve: Callable[[int], object]
    ) -> None:
        """Start a document. ``reserve`` is called with the size of each statement when it is buffered."""
        self._out = out
        self._reserve = reserve
        self._files = {section: new_file() for section in _SECTIONS}
        self._counts = dict.fromkeys(_SECTIONS, 0)
        self._known: set[str] = set()
        # Versions of keys that were created again: the first of them is no revision of the number before.
        self._recreated: set[VersionId] = set()
        self._hash = hashlib.sha256()
        self.records = 0
        self.bytes = 0

    def add(self, entry: AnyBundleEntry) -> None:
        if isinstance(entry, BundleHeader):
            attributes = {"prov:type": _qualified("prov:Bundle"), "weftline:scope": entry.scope}
            self._add("entity", _name("bundle", entry.bundle_id), attributes)

    def add_record(
        self,
        record: Record,
        readable_by: tuple[str, ...] = ANYONE,
        stored: Maybe[StoredInfo] = UNSET,
        salt: Maybe[str] = UNSET,
    ) -> None:
        del readable_by, salt
        self.records += 1
        if isinstance(record, ContextEvent):
            self._event(record, None if stored is UNSET else stored.by)
            return
        self._add("entity", _entity(record.type, record.id), _attributes(record))
        if stored is not UNSET:
            self._relate("wasAttributedTo", entity=_entity(record.type, record.id), agent=self._agent(stored.by))
        if isinstance(record, ContextItem):
            self._item(record, is_derived=stored is UNSET)
        if isinstance(record, _ACTIVITIES):
            self._activity(record, None if stored is UNSET else stored.by)
        if isinstance(record, ContextSourceRef):
            self._known.add(_entity(record.type, record.id))
        if isinstance(record, ContextSummary):
            for item_id in sorted(referenced_item_ids(record)):
                self._derive(_entity(record.type, record.id), _entity("context_item", item_id))
            if record.compaction_ref is not UNSET:
                activity = _name("activity", ContextCompaction.type, _id_of(record.compaction_ref))
                self._relate("wasGeneratedBy", entity=_entity(record.type, record.id), activity=activity)

    def seal(self) -> str:
        """Write the document and return its digest."""
        self._put(_BEGIN)
        for section, file in self._files.items():
            if self._counts[section]:
                self._put(f',"{section}":{{'.encode())
                file.seek(0)
                while chunk := file.read(_CHUNK):
                    self._put(chunk)
                self._put(b"}")
            file.close()
        self._put(b"}\n")
        return f"sha256:{self._hash.hexdigest()}"

    def _item(self, item: ContextItem, *, is_derived: bool) -> None:
        """Write the relations of an item. Only one that Weftline derives from its own data says itself who made it."""
        name = _entity(item.type, item.item_id)
        native = engine_metadata(item.metadata)
        made_by = native.get("author") or native.get("sender")
        if is_derived and isinstance(made_by, str):
            self._relate("wasAttributedTo", entity=name, agent=self._agent(made_by))
        for ref in item.source_refs:
            source = ref.source_id if isinstance(ref, ContextSourceRef) else ref
            self._derive(name, self._source(source))
        version = VersionId.parse(item.item_id)
        if version is None:
            return
        before = version._replace(removed=False) if version.removed else version._replace(version=version.version - 1)
        if version.incarnation > 1:
            self._recreated.add(version)
        if before.version and (version.incarnation == 1 or version.removed or before in self._recreated):
            self._derive(name, _entity("context_item", str(before)), kind="prov:Revision")

    def _activity(
        self, record: ContextSelection | ContextAssembly | ContextCompaction | ContextInjection, stored_by: str | None
    ) -> None:
        activity, at = _name("activity", record.type, record.id), _time(record.created_at)
        self._add("activity", activity, {"prov:startTime": at, "prov:endTime": at, "prov:type": record.type})
        self._relate("wasGeneratedBy", entity=_entity(record.type, record.id), activity=activity)
        for item_id in sorted(referenced_item_ids(record)):
            self._relate("used", activity=activity, entity=_entity("context_item", item_id))
        if isinstance(record, ContextInjection):
            self._relate("used", activity=activity, entity=_entity("context_assembly", record.assembly_id))
        for agent in _agents_of(record, stored_by):
            self._relate("wasAssociatedWith", activity=activity, agent=self._agent(agent))

    def _event(self, record: ContextEvent, stored_by: str | None) -> None:
        """Write an event of the log, or one that a caller recorded: then it is the caller's, whatever it claims."""
        activity, at = _name("event", record.event_id), _time(record.time)
        self._add("activity", activity, {"prov:startTime": at, "prov:endTime": at, "prov:type": record.event_type})
        actor = stored_by or record.data.get("actor")
        if isinstance(actor, str):
            self._relate("wasAssociatedWith", activity=activity, agent=self._agent(actor))
        recorded = decode.decode_event(record, ANYONE) if stored_by is None else None
        for named in records_of_event(recorded) if recorded is not None else ():
            self._relate("wasGeneratedBy", entity=_entity(named.type, named.id), activity=activity, time=at)

    def _agent(self, participant: str) -> str:
        name = _name("agent", participant)
        if name not in self._known:
            self._known.add(name)
            kind = "prov:Person" if participant.startswith("human:") else "prov:SoftwareAgent"
            self._add("agent", name, {"prov:label": participant, "prov:type": _qualified(kind)})
        return name

    def _source(self, source_id: str) -> str:
        name = _entity("context_source_ref", source_id)
        if name not in self._known:
            self._known.add(name)
            self._add("entity", name, {"prov:type": "context_source_ref", "prov:label": source_id})
        return name

    def _derive(self, derived: str, source: str, kind: str | None = None) -> None:
        attributes: dict[str, Any] = {"prov:generatedEntity": derived, "prov:usedEntity": source}
        self._add("wasDerivedFrom", None, attributes | ({"prov:type": _qualified(kind)} if kind else {}))

    def _relate(self, section: str, **parts: str) -> None:
        self._add(section, None, {f"prov:{name}": value for name, value in parts.items()})

    def _add(self, section: str, name: str | None, attributes: dict[str, Any]) -> None:
        self._counts[section] += 1
        number = self._counts[section]
        comma = b"," if number > 1 else b""
        statement = comma + _encode(name or f"_:{section}{number}") + b":" + _encode(attributes)
        self._reserve(len(statement))
        self._files[section].write(statement)

    def _put(self, chunk: bytes) -> None:
        self._out(chunk)
        self._hash.update(chunk)
        self.bytes += len(chunk)


def _attributes(record: Record) -> dict[str, Any]:
    attributes: dict[str, Any] = {"prov:type": record.type, "prov:label": record.id}
    if isinstance(record, ContextItem):
        attributes |= {"weftline:context_kind": record.context_kind, "weftline:content_mode": record.content_mode}
        if isinstance(record.content, str):
            attributes["prov:value"] = record.content
        if isinstance(record.content_ref, Link) and record.content_ref.digest is not UNSET:
            attributes["weftline:digest"] = record.content_ref.digest
    return attributes


def _agents_of(record: Record, stored_by: str | None) -> Iterator[str]:
    """Yield who took part in an activity: who recorded it, not who the record claims did."""
    if isinstance(record, ContextSelection) and stored_by is None and record.actor_ref is not UNSET:
        yield _id_of(record.actor_ref)
    if isinstance(record, ContextAssembly | ContextInjection):
        yield record.target
    if isinstance(record, ContextCompaction):
        requested_by = engine_metadata(record.metadata).get("requested_by")
        # Others than Weftline write no records with such ids.
        is_by_weftline = record.compaction_id.startswith(COMPACTION)
        if isinstance(requested_by, str) and is_by_weftline:
            yield requested_by
            return
    if stored_by is not None and isinstance(record, ContextSelection | ContextCompaction):
        yield stored_by


def _id_of(ref: Ref) -> str:
    return ref if isinstance(ref, str) else str(ref.id or ref.uri)


def _entity(record_type: str, record_id: str) -> str:
    return _name(record_type.removeprefix("context_"), record_id)


def _name(*parts: str) -> str:
    """Return a qualified name; characters with a meaning in PROV are escaped."""
    return "weftline:" + "/".join(quote(part, safe="/._-") for part in parts)


def _qualified(name: str) -> dict[str, str]:
    return {"$": name, "type": "prov:QUALIFIED_NAME"}


def _time(at: datetime) -> str:
    """Return a time as PROV has it: in UTC, since it knows no offsets beyond 14 hours."""
    try:
        return at.astimezone(UTC).isoformat()
    except OverflowError:
        return at.replace(tzinfo=UTC).isoformat()
