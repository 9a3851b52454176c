"""Labels of the items that ``derived_from`` names; every item must exist and be readable for the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from weftline.exchange.lineage.model import no_item
from weftline.exchange.record_log.lookup import RecordFinder
from weftline.history.model import LATEST
from weftline.knowledge.domains import Domains
from weftline.knowledge.model import can_see
from weftline.knowledge.sql import DocumentStore
from weftline.records.item_refs import DocumentName, ItemRef, LineKey
from weftline.records.model import ContextItem, decode_item
from weftline.records.record_ids import MessageItemId, parse_item_id
from weftline.safety.trust.model import Source, Trust, TrustLabel, data_source, default_trust

_HUMAN = "human:"


class StoredItemLabels(msgspec.Struct, frozen=True):
    """Looks up labels for one caller."""

    finder: RecordFinder
    domains: Domains
    documents: DocumentStore

    async def of(self, references: Sequence[str]) -> Mapping[str, TrustLabel]:
        """Return the label of each reference, that of its author if it has none; raises ItemNotFound."""
        found: dict[str, TrustLabel] = {}
        items: dict[str, str] = {}
        for reference in dict.fromkeys(references):
            ref = ItemRef.parse(reference)
            if ref is None:
                raise no_item(reference)
            document, source = DocumentName.parse(ref.item), data_source([reference])
            if source is not None:
                found[reference] = TrustLabel(source, default_trust(source))
            elif document is not None:
                found[reference] = await self._of_document(document, reference)
            else:
                items[reference] = await self._item_id(ref)
        return found | await self._of_items(items)

    async def _of_document(self, name: DocumentName, reference: str) -> TrustLabel:
        domain = await self.domains.domains.find(name.domain)
        document = await self.documents.find(*name)
        if domain is None or document is None or not can_see(domain, self.domains.actor):
            raise no_item(reference)
        if document.state == "quarantined":
            return TrustLabel(Source.DOCUMENT, Trust.SUSPICIOUS)
        return document.trust or TrustLabel(Source.DOCUMENT, default_trust(Source.DOCUMENT))

    async def _item_id(self, ref: ItemRef) -> str:
        """Return the id of an item in the version that a reference names, by default the current one."""
        key = None if MessageItemId.parse(ref.item) is not None else LineKey.parse(ref.item)
        if key is None or ref.version:
            return f"{ref.item}/{ref.version}" if ref.version else ref.item
        current = await self.finder.lines.latest(key.line_id, key.key, LATEST)
        if current is None:
            raise no_item(ref.item)
        return f"{ref.item}/{current.change.incarnation}.{current.change.version}"

    async def _of_items(self, items: Mapping[str, str]) -> dict[str, TrustLabel]:
        if not items:
            return {}
        named = [parse_item_id(item_id) for item_id in items.values()]
        records = await (await self.finder.look(None)).records(named)
        found: dict[str, TrustLabel] = {}
        for reference, record in zip(items, records, strict=True):
            if record is None:
                raise no_item(reference)
            found[reference] = label_of_item(decode_item(record.body))
        return found


def label_of_item(item: ContextItem) -> TrustLabel:
    """Return the label of an item of the engine: its own, or that of its author."""
    native = item.metadata.get("weftline", {})
    if "trust" in native:
        return msgspec.convert(native["trust"], TrustLabel)
    source = Source.HUMAN if str(native.get("author", "")).startswith(_HUMAN) else Source.AGENT
    return TrustLabel(source, default_trust(source))
