"""Source items of added compactions and summaries: each must exist and be readable for the caller.

A source is named as the item that it is, in one version: a redaction finds the summaries of an item by its id. Items of
other systems are named by a URI, or as ``tool:NAME`` or ``url:ADDRESS``; Weftline cannot check them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from weftline.exchange.record_log.lookup import RecordFinder, RecordLookup
from weftline.history.line_kinds import line_kinds
from weftline.history.model import LATEST
from weftline.kernel.errors import InvalidInput, NotFound, close_names
from weftline.knowledge.domains import Domains
from weftline.knowledge.model import can_see
from weftline.knowledge.sql import DocumentStore
from weftline.records.item_refs import DocumentName, ItemRef, LineKey
from weftline.records.model import ContextCompaction, ContextSummary, Record
from weftline.records.record_ids import MessageItemId, RecordRef, is_reserved, parse_item_id
from weftline.records.refs import Link, Ref
from weftline.sessions.recorder import id_of_ref

# Source items that one call may name.
MAX_SOURCES = 10_000
_MAX_NAMED = 20
_SCHEME = "://"
# Schemes of Weftline besides the kinds of lines, which have one each.
_OWN_SCHEMES = frozenset({"knowledge", "session", "agent"})
_URN, _OWN_URN = "urn:", "urn:weftline:"


class SourceItemNotFound(NotFound):
    """A compaction or summary names a source item that does not exist, or that you may not read."""

    code = "SOURCE_ITEM_NOT_FOUND"
    hint = (
        "Name each source by its item id with version, such as board:SESSION/KEY/1.3, window:SESSION:AGENT/EVENT/1.1 "
        "or message:SESSION/NUMBER; `records.list` lists them. Add your own items in the same call. Name an item of "
        "another system by its URI."
    )
    related = ("context_records",)


class _Source(NamedTuple):
    """A source item, by the field that names it."""

    field: str
    name: str


class SourceItems(msgspec.Struct, frozen=True):
    """Checks the source items of records for one caller."""

    finder: RecordFinder
    domains: Domains
    documents: DocumentStore

    async def check(self, records: Mapping[str, Record]) -> None:
        """Raise SourceItemNotFound unless all sources of these records exist; the keys are their fields."""
        sources = [source for field, record in records.items() for source in _sources_in(field, record)]
        names = list(dict.fromkeys(source.name for source in sources))
        if not names:
            return
        if len(names) > MAX_SOURCES:
            raise InvalidInput(
                f"{sources[0].field}: {len(names)} source items in one call; the maximum is {MAX_SOURCES}.",
                field=sources[0].field,
            )
        look = await self.finder.look(None)
        missing = set(names) - await self._existing(names, look)
        if missing:
            raise await self._error([source for source in sources if source.name in missing], look, records)

    async def _existing(self, names: Sequence[str], look: RecordLookup) -> set[str]:
        documents = {name for name in names if DocumentName.parse(_without_version(name)) is not None}
        found = {name for name in documents if await self._sees(name)}
        refs = [ref for name in names if name not in documents for ref in _records_named(name)]
        return found | {each.ref.id for each in await look.records(refs) if each is not None}

    async def _sees(self, reference: str) -> bool:
        """Tell whether a document exists in a domain that the caller may see."""
        name = DocumentName.parse(_without_version(reference))
        domain = None if name is None else await self.domains.domains.find(name.domain)
        if name is None or domain is None or not can_see(domain, self.domains.actor):
            return False
        return await self.documents.find(*name) is not None

    async def _error(
        self, missing: Sequence[_Source], look: RecordLookup, records: Mapping[str, Record]
    ) -> SourceItemNotFound:
        first, *others = missing
        known = await self._suggestions(first.name, look, [record.id for record in records.values()])
        more = f" There are {len(others)} more." if others else ""
        meant = f" Did you mean {known[0]}?" if known else ""
        return SourceItemNotFound(
            f"{first.field}: there is no item '{first.name[:100]}' that you may read.{meant}{more}",
            resource_type="item",
            resource_id=first.name[:100],
            field=first.field,
            items=[source.name[:100] for source in missing[:_MAX_NAMED]],
            missing=len(missing),
            suggestions=known,
        )

    async def _suggestions(self, name: str, look: RecordLookup, added: Sequence[str]) -> list[str]:
        """Return the current version of the key that a name means, or similar ids of the same call."""
        ref = ItemRef.parse(name)
        key = None if ref is None or MessageItemId.parse(ref.item) is not None else LineKey.parse(ref.item)
        if key is None:
            return close_names(name, added)
        current = await self.finder.lines.latest(key.line_id, key.key, LATEST)
        if current is None:
            return []
        item_id = f"{key}/{current.change.incarnation}.{current.change.version}"
        return [] if await look.record(parse_item_id(item_id)) is None else [item_id]


def _sources_in(field: str, record: Record) -> Iterable[_Source]:
    if not isinstance(record, ContextCompaction | ContextSummary):
        return
    for place, ref in enumerate(record.source_item_refs):
        if not _is_foreign(ref):
            yield _Source(f"{field}.source_item_refs[{place}]", id_of_ref(ref))


def _is_foreign(ref: Ref) -> bool:
    """Tell whether a reference names an item of another system."""
    name = id_of_ref(ref)
    if _has_foreign_form(name):
        return True
    # An id of Weftline stays one, whatever URI is given with it.
    return isinstance(ref, Link) and isinstance(ref.uri, str) and _has_foreign_form(ref.uri) and not is_reserved(name)


def _has_foreign_form(name: str) -> bool:
    item = ItemRef.parse(name)
    if item is not None:
        return item.is_external
    scheme, separator, _ = name.partition(_SCHEME)
    if separator:
        return scheme not in _OWN_SCHEMES and scheme not in line_kinds()
    return name.startswith(_URN) and not name.startswith(_OWN_URN)


def _records_named(name: str) -> tuple[RecordRef, ...]:
    """Return what a source may be: an item, or the summary of an earlier compaction."""
    return parse_item_id(name), RecordRef.stored(ContextSummary.type, name)


def _without_version(reference: str) -> str:
    return reference.partition("?")[0]
