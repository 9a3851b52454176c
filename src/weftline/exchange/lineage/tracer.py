"""Finds what was derived from an item: what declares it, what has the same content, and what may have used it.

Derivation follows time, so one pass over the prompts from the item's creation on is enough: a prompt that contains a
traced item taints what its agent wrote until its next prompt, and that taints later prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from weftline.access.sql import AccessStore
from weftline.exchange.lineage.model import Derived, TracedItem, no_item
from weftline.exchange.lineage.store import LineageStore, SentPrompt
from weftline.exchange.record_log.lookup import RecordFinder
from weftline.kernel.clock import to_micros
from weftline.kernel.identity import Actor
from weftline.kernel.ports import Cooperative
from weftline.knowledge.domains import Domains
from weftline.knowledge.sql import DocumentStore
from weftline.records.item_refs import HASH_BYTES, DocumentName, ItemRef, LineKey, document_uri, item_hash
from weftline.records.model import ContextSummary
from weftline.records.record_ids import MessageItemId, RecordRef, VersionOrigin, parse_item_id
from weftline.sessions.events.model import EventQuery, EventStore
from weftline.sessions.messages.store import MessageStore

# Prompts that one trace reads and follows, and events of each that it reads.
_MAX_PROMPTS = 200_000
_MAX_FOLLOWED = 500
_MAX_EVENTS = 500
_PAGE = 2_000
# Versions of a document whose summaries are looked for.
_MAX_VERSIONS = 1_000


class Trace(NamedTuple):
    """What was found; ``complete`` is false if a limit ended the search. ``receipts``: prompts with a traced item."""

    items: dict[str, TracedItem]
    receipts: list[str]
    complete: bool


class Tracer(msgspec.Struct, frozen=True):
    """Traces items for one caller.

    Admins trace through every prompt of the tenant, others through their own prompts.
    """

    actor: Actor
    lineage: LineageStore
    events: EventStore
    access: AccessStore
    messages: MessageStore
    domains: Domains
    documents: DocumentStore
    finder: RecordFinder
    cooperative: Cooperative

    async def trace(self, reference: str, max_steps: int, max_items: int) -> Trace:
        """Return the source and what was derived from it, without regard to what the caller may read of it."""
        ref = ItemRef.parse(reference)
        if ref is None:
            raise no_item(reference)
        source = TracedItem(ref.item, "source", "", 0, await self.created_at(ref), ref.version)
        return await _Pass(self, max_steps, max_items).run(source)

    async def created_at(self, ref: ItemRef) -> int:
        """Return when an item was first stored; ItemNotFound if there is none."""
        message, document, key = MessageItemId.parse(ref.item), DocumentName.parse(ref.item), LineKey.parse(ref.item)
        if ref.is_external:
            return 0
        if document is not None:
            found = await self.documents.find(*document)
            at = None if found is None else found.created_at
        elif message is not None:
            sent = await self.messages.find(message.session_id, message.message_id)
            at = None if sent is None else sent.sent_at
        else:
            at = None if key is None else await self._first_written_at(key)
        if at is None:
            raise no_item(ref.item)
        return at

    async def _first_written_at(self, key: LineKey) -> int | None:
        versions = await self.lineage.versions(*key)
        return versions[0].at if versions else None

    async def readable(self, items: Sequence[TracedItem]) -> list[TracedItem]:
        """Return the items that the caller may read, in their order."""
        named = {item.item: await self._record_of(item) for item in items}
        wanted = [ref for ref in named.values() if ref is not None]
        found = await (await self.finder.look(None)).records(wanted) if wanted else []
        shown = {ref.id for ref, record in zip(wanted, found, strict=True) if record is not None}
        readable: list[TracedItem] = []
        for item in items:
            ref, document = named[item.item], DocumentName.parse(item.item)
            is_shown = ref is not None and ref.id in shown
            if is_shown or (not item.is_summary and await self._is_open(item, document)):
                readable.append(item)
        return readable

    async def _record_of(self, item: TracedItem) -> RecordRef | None:
        """Return the record of an item in the traced version, or else in its newest one."""
        if item.is_summary:
            return RecordRef.stored(ContextSummary.type, item.item)
        key = LineKey.parse(item.item)
        if MessageItemId.parse(item.item) is not None:
            return parse_item_id(item.item)
        if key is None:
            return None
        if item.version:
            return parse_item_id(f"{item.item}/{item.version}")
        versions = await self.lineage.versions(*key)
        newest = versions[-1] if versions else None
        return None if newest is None else parse_item_id(f"{item.item}/{newest.incarnation}.{newest.version}")

    async def _is_open(self, item: TracedItem, document: DocumentName | None) -> bool:
        return ItemRef(item.item).is_external or (document is not None and await self._sees(document))

    async def _sees(self, document: DocumentName) -> bool:
        visible = {domain.domain for domain in await self.domains.visible()}
        return document.domain in visible and await self.documents.find(*document) is not None

    @property
    def prompts_of(self) -> str | None:
        """Return the agent whose prompts the caller may know; None for all."""
        return None if self.actor.is_admin else self.actor.principal_id

    async def recorded_ids(self, item: TracedItem) -> list[str]:
        """Return the ids under which records name an item: one for each version that may be traced."""
        key, document = LineKey.parse(item.item), DocumentName.parse(item.item)
        if item.is_summary or MessageItemId.parse(item.item) is not None:
            return [item.item]
        if document is not None:
            found = await self.documents.find(*document)
            newest = 0 if found is None else min(found.version, _MAX_VERSIONS)
            return [item.item, *(document_uri(*document, version) for version in range(1, newest + 1))]
        if key is None:
            return [item.item]
        versions = await self.lineage.versions(*key)
        numbers = (f"{each.incarnation}.{each.version}" for each in versions if item.version or each.at >= item.at)
        return [f"{item.item}/{number}" for number in numbers if item.version in {"", number}]

    async def written_after(self, prompt: SentPrompt) -> list[tuple[str, str, int]]:
        """Return item, version and time of what the agent of a prompt wrote until its next prompt."""
        agent = await self.access.principal(prompt.agent_id)
        if agent is None:
            return []
        until = await self.lineage.next_prompt_at(prompt.session_id, prompt.agent_id, prompt.at)
        query = EventQuery(actor=agent.participant, since=prompt.at, until=until)
        events = await self.events.find(query, 0, _MAX_EVENTS)
        in_session = [each for each in events if each.event.session_id in (None, prompt.session_id)]
        named = await (await self.finder.look(None)).records_of(in_session, events=False)
        found: list[tuple[str, str, int]] = []
        for recorded, refs in zip(in_session, named, strict=True):
            at = to_micros(recorded.event.at)
            found += [(*written, at) for ref in refs if (written := _written(ref)) is not None]
        return found


class _Pass:
    """One trace in progress."""

    def __init__(self, tracer: Tracer, max_steps: int, max_items: int) -> None:
        self._tracer = tracer
        self._max_steps = max_steps
        self._max_items = max_items
        self._found: dict[str, TracedItem] = {}
        self._by_hash: dict[bytes, TracedItem] = {}
        self._receipts: list[str] = []
        self._complete = True

    async def run(self, source: TracedItem) -> Trace:
        await self._add([source])
        await self._follow_prompts((source.at, ""))
        return Trace(self._found, self._receipts, self._complete)

    async def _add(self, items: Sequence[TracedItem]) -> None:
        """Add items, and what declares them or has their content."""
        waiting = list(items)
        while waiting:
            item = waiting.pop(0)
            known = self._found.get(item.item)
            if known is not None and (known.is_certain or not item.is_certain):
                continue
            if len(self._found) >= self._max_items and known is None:
                self._complete = False
                return
            self._found[item.item] = self._by_hash[item_hash(item.item)] = item
            if item.steps < self._max_steps:
                waiting += await self._declared(item)
                waiting += await self._copies(item)
                waiting += await self._summaries(item)
            else:
                self._complete = False

    async def _declared(self, item: TracedItem) -> list[TracedItem]:
        found = await self._tracer.lineage.derived_from([item.item])
        how: Derived = "declared" if item.is_certain else "possible"
        return [TracedItem(each.item, how, item.item, item.steps + 1, each.at) for each in found]

    async def _summaries(self, item: TracedItem) -> list[TracedItem]:
        """Return the recorded summaries of an item: compactions of windows, and what frameworks recorded."""
        names = await self._tracer.recorded_ids(item)
        found = await self._tracer.lineage.summaries_of(names)
        how: Derived = "declared" if item.is_certain else "possible"
        return [
            TracedItem(each.summary_id, how, item.item, item.steps + 1, each.at, is_summary=True)
            for each in found
            if each.summary_id != item.item
        ]

    async def _copies(self, item: TracedItem) -> list[TracedItem]:
        """Return other keys that have the content of an item: copies, merges, branches, memory of teams."""
        key = LineKey.parse(item.item)
        if key is None:
            return []
        versions = await self._tracer.lineage.versions(*key)
        if item.version:
            versions = [each for each in versions if f"{each.incarnation}.{each.version}" == item.version]
        hashes = {each.blob_hash for each in versions}
        copies = await self._tracer.lineage.copies(hashes, item.at, self._max_items)
        if len(copies) == self._max_items:
            self._complete = False
        how: Derived = "copy" if item.is_certain else "possible"
        return [
            TracedItem(each.item, how, item.item, item.steps + 1, each.at, f"{each.incarnation}.{each.version}")
            for each in copies
            if each.item != item.item
        ]

    async def _follow_prompts(self, since: tuple[int, str]) -> None:
        read = 0
        while read < _MAX_PROMPTS:
            page = await self._tracer.lineage.prompts(self._tracer.prompts_of, since, _PAGE)
            read += len(page)
            for prompt in page:
                await self._follow(prompt)
            if len(page) < _PAGE:
                return
            since = (page[-1].at, page[-1].receipt_id)
            await self._tracer.cooperative.yield_to_loop()
        self._complete = False

    async def _follow(self, prompt: SentPrompt) -> None:
        """Add what may derive from a prompt, if a traced item is in it."""
        inside = [item for item in self._in(prompt) if item.at <= prompt.at and item.steps < self._max_steps]
        if not inside:
            return
        if len(self._receipts) >= _MAX_FOLLOWED:
            self._complete = False
            return
        self._receipts.append(prompt.receipt_id)
        steps = min(item.steps for item in inside) + 1
        written = await self._tracer.written_after(prompt)
        await self._add(
            [TracedItem(item, "possible", prompt.receipt_id, steps, at, version) for item, version, at in written]
        )

    def _in(self, prompt: SentPrompt) -> list[TracedItem]:
        hashes = (prompt.items[place : place + HASH_BYTES] for place in range(0, len(prompt.items), HASH_BYTES))
        return [item for each in hashes if (item := self._by_hash.get(each)) is not None]


def _written(ref: RecordRef) -> tuple[str, str] | None:
    """Return item and version of what an event wrote; None for anything else, such as a deletion."""
    origin = ref.origin
    if isinstance(origin, MessageItemId):
        return str(origin), ""
    if not isinstance(origin, VersionOrigin) or origin.name.removed:
        return None
    name = origin.name
    return f"{name.line_id}/{name.key}", f"{name.incarnation}.{name.version}"
