"""Lineage: what was derived from what, and forgetting a source with everything that was derived from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import structs

from weftline.access.sql import AccessStore
from weftline.exchange.lineage_sql import LineageStore, SentPrompt, StoredVersion
from weftline.exchange.record_log.lookup import RecordFinder
from weftline.exchange.record_log.redacted_records import without_text
from weftline.history.item_ids import DocumentName, ItemRef, LineKey, MessageItemId, document_uri
from weftline.history.line_kinds import SESSION, CommitMeta, LineBackends, calls_implied_by, check_may_forget, name_in
from weftline.history.lines import LineStore
from weftline.history.model import LATEST, Version, trunk_of
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import NotFound, WeftlineError
from weftline.kernel.events import NewEvent
from weftline.kernel.guards import ImpliedCall
from weftline.kernel.identity import HUMAN, PERMISSION, Actor, Permission
from weftline.kernel.outbox import Outbox
from weftline.kernel.ports import Cooperative
from weftline.knowledge.documents import Documents
from weftline.knowledge.domains import Domains
from weftline.knowledge.model import can_see
from weftline.knowledge.sql import DocumentStore
from weftline.records.engine_metadata import engine_metadata
from weftline.records.item_refs import HASH_BYTES, item_hash
from weftline.records.model import ContextItem, ContextSummary, decode_item
from weftline.records.record_ids import RecordRef, SummaryId, VersionOrigin, parse_item_id
from weftline.records.schemas import ITEM_TYPE, Redaction
from weftline.records.sql import RecordStore
from weftline.safety.trust.gate import ContentGate
from weftline.safety.trust.model import DERIVED, Source, Trust, TrustLabel, data_source, default_trust
from weftline.sessions.events.model import EventQuery
from weftline.sessions.events.sql import EventStore
from weftline.sessions.messages.store import MessageStore
from weftline.sessions.messages.transcript import TranscriptWriter
from weftline.sessions.recorder import index_keys
from weftline.windows.compaction.sql import CompactionStore
from weftline.windows.model import content_key

# What a trace finds, and the errors of references.

# declared: it names its source; copy: it has the same content; possible: its author wrote it after a prompt with the
# source in it, before the next prompt.
Derived = Literal["source", "declared", "copy", "possible"]
Reference = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=1_000,
        description="An item id with or without version, such as board:SESSION/KEY, message:SESSION/NUMBER, "
        "knowledge://DOMAIN/DOCUMENT; or tool:NAME, url:ADDRESS.",
        extra_json_schema={"examples": ["knowledge://handbook/guide.md"]},
    ),
]


class ItemNotFound(NotFound):
    """There is no such item, or you may not read it."""

    code = "ITEM_NOT_FOUND"
    hint = (
        "A reference is board:SESSION/KEY, memory:AGENT/KEY, context:AGENT:TYPE/KEY, window:SESSION:AGENT/EVENT, "
        "message:SESSION/NUMBER or knowledge://DOMAIN/DOCUMENT; `records.list` lists item ids."
    )
    related = ("context_records",)


def no_item(reference: str) -> ItemNotFound:
    shown = reference[:100]
    return ItemNotFound(f"There is no item '{shown}'.", resource_type="item", resource_id=shown)


class TracedItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item of a trace: how it derives from ``via`` (an item or receipt), in how many steps, since when.

    ``is_summary``: it is a recorded summary, and ``item`` its id.
    """

    item: str
    how: Derived
    via: str
    steps: int
    at: int
    version: str = ""
    is_summary: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether it is the source itself, declares it, or has its content."""
        return self.how != "possible"


# Labels of the items that ``derived_from`` names; every item must exist and be readable for the caller.

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


# Finds what was derived from an item: what declares it, what has the same content, and what may have used it.
#
# Derivation follows time, so one pass over the prompts from the item's creation on is enough: a prompt that contains a
# traced item taints what its agent wrote until its next prompt, and that taints later prompts.

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


# Removal of a source: deletes or flags it with what was declared as derived, and flags what may have been.

Done = Literal["deleted", "flagged", "kept", "skipped"]
_METHOD = "forgotten with its source"
_encode = msgspec.json.Encoder().encode
_summary_record = msgspec.json.Decoder(ContextSummary).decode


# What removals of items do; a rule against one of these holds for them.
REMOVALS = ("board.delete", "memory.delete", "context.push", "context.ingest", "knowledge.delete_document")


def removal_calls(item: str) -> Iterable[ImpliedCall]:
    """Return the calls that would remove the current content of an item."""
    document, key = DocumentName.parse(item), LineKey.parse(item)
    if document is not None:
        return (ImpliedCall("knowledge.delete_document", document._asdict()),)
    if key is None or MessageItemId.parse(item) is not None:
        return ()
    return calls_implied_by(key.line_id, {key.key: None})


class ForgottenItem(msgspec.Struct, frozen=True):
    """What became of an item; ``problem``: why it was skipped."""

    item: TracedItem
    done: Done
    problem: str | None = None


class Erased(msgspec.Struct, frozen=True):
    """How much text was removed besides current content: old versions, and blocks of stored prompts."""

    versions: int = 0
    prompts: int = 0


class SourceRemoval(msgspec.Struct, frozen=True):
    """Forgets for one caller, in one transaction."""

    actor: Actor
    backends: LineBackends
    lines: LineStore
    lineage: LineageStore
    documents: Documents
    messages: MessageStore
    transcript: TranscriptWriter
    records: RecordStore
    compactions: CompactionStore
    gate: ContentGate
    outbox: Outbox
    clock: Clock

    async def delete(self, items: Iterable[TracedItem], reason: str) -> list[ForgottenItem]:
        """Delete items: the current content of keys, messages and documents."""
        return await self._each(items, "deleted", reason, None)

    async def flag(self, items: Iterable[TracedItem], source: str, reason: str) -> list[ForgottenItem]:
        """Label items as suspicious."""
        return await self._each(items, "flagged", reason, source)

    async def erase(self, items: Iterable[TracedItem], trace: Trace, reason: str) -> Erased:
        """Remove the text of items from old versions, from stored prompts, and from records that quote them."""
        versions = prompts = 0
        items = list(items)
        await self._erase_views(items)
        for item in items:
            old = await self._versions(item)
            names = [f"{each.item}/{each.incarnation}.{each.version}" for each in old]
            if MessageItemId.parse(item.item) is not None:
                names = [item.item]
            await self._redact(item, names, reason)
            await self.lineage.erase_values([*old, *await self._contents_of(old)])
            versions += len(old)
            prompts += await self.lineage.erase_prompt_texts(item.item, trace.receipts)
        return Erased(versions, prompts)

    async def _each(
        self, items: Iterable[TracedItem], done: Done, reason: str, source: str | None
    ) -> list[ForgottenItem]:
        check_may_forget(self.actor)
        by_line: defaultdict[str, list[TracedItem]] = defaultdict(list)
        results: list[ForgottenItem] = []
        for item in items:
            key = None if item.is_summary else LineKey.parse(item.item)
            if MessageItemId.parse(item.item) is None and key is not None:
                by_line[key.line_id].append(item)
            else:
                results.append(await self._other(item, done, reason, source))
        # In one order, so that two calls do not wait for each other.
        for line_id, of_line in sorted(by_line.items()):
            results += await self._line(line_id, of_line, done, reason, source)
        return results

    async def _line(
        self, line_id: str, items: Sequence[TracedItem], done: Done, reason: str, source: str | None
    ) -> list[ForgottenItem]:
        """Delete or flag keys of one line as one commit."""
        try:
            line = await self.backends.of(line_id).to_forget(line_id)
            state: dict[str, Version | None] = {}
            for item in items:
                key = item.item.partition("/")[2]
                current = await self.lines.latest(line_id, key, LATEST)
                if (
                    current is None
                    or current.change.blob_hash is None
                    or not self._is_traced(item, current.committed_at)
                ):
                    continue
                if source is None:
                    state[key] = None
                    if line_id.startswith("window:"):
                        state[content_key(key)] = None
                else:
                    author = Source.HUMAN if current.author.startswith(HUMAN) else Source.AGENT
                    label = flagged_label(current.change.meta.trust, source, author)
                    meta = structs.replace(current.change.meta, trust=label)
                    state[key] = structs.replace(current, change=structs.replace(current.change, meta=meta))
            if state:
                await line.apply(state, CommitMeta(reason))
        except WeftlineError as error:
            return [ForgottenItem(item, "skipped", error.message) for item in items]
        return [ForgottenItem(item, done) for item in items]

    def _is_traced(self, item: TracedItem, written_at: int) -> bool:
        """Tell whether the current version of a key is the traced one, or one written since."""
        return written_at >= item.at

    async def _other(self, item: TracedItem, done: Done, reason: str, source: str | None) -> ForgottenItem:
        document, message = DocumentName.parse(item.item), MessageItemId.parse(item.item)
        try:
            if item.is_summary:
                await self._summary(item.item, source, reason)
            elif document is not None:
                await self._document(document, source)
            elif message is not None:
                await self._message(message, source)
            else:
                return ForgottenItem(item, "kept", "it is not stored in Weftline")
        except WeftlineError as error:
            return ForgottenItem(item, "skipped", error.message)
        return ForgottenItem(item, done)

    async def _message(self, name: MessageItemId, source: str | None) -> None:
        if source is None:
            await self.transcript.erase(*name)
            return
        found = await self.messages.find(*name)
        if found is None:
            raise no_item(str(name))
        author = Source.HUMAN if (found.author or "").startswith(HUMAN) else Source.AGENT
        await self.transcript.relabel(*name, flagged_label(found.trust, source, author))

    async def _summary(self, summary_id: str, source: str | None, reason: str) -> None:
        """Remove the text of a recorded summary, or label it as suspicious."""
        row = await self.records.find_locked(ContextSummary.type, summary_id)
        if row is None:
            raise no_item(summary_id)
        summary = _summary_record(row.body)
        if source is None:
            changed = without_text(summary)
            await self._publish_redaction(summary_id, row.session_id, reason, ContextSummary.type)
        else:
            changed = structs.replace(summary, metadata=_flagged_metadata(summary.metadata, source))
        await self.records.replace(structs.replace(row, body=_encode(changed)), index_keys(changed))

    async def _document(self, name: DocumentName, source: str | None) -> None:
        if source is None:
            await self.documents.remove(name.domain, name.document_id)
            return
        domain = await self.documents.domains.lock(name.domain)
        document = await self.documents.find(domain, name.document_id)
        await self.documents.documents.set_trust(*name, flagged_label(document.trust, source, Source.DOCUMENT))

    async def _versions(self, item: TracedItem) -> list[StoredVersion]:
        """Return the traced versions of a key: the one that was traced, or all since then."""
        key = LineKey.parse(item.item)
        if key is None or MessageItemId.parse(item.item) is not None:
            return []
        versions = await self.lineage.versions(*key)
        return [
            each
            for each in versions
            if (f"{each.incarnation}.{each.version}" == item.version if item.version else each.at >= item.at)
        ]

    async def _contents_of(self, versions: Sequence[StoredVersion]) -> list[StoredVersion]:
        """Return the separate contents of window events."""
        found: list[StoredVersion] = []
        for each in versions:
            if each.line_id.startswith("window:"):
                found += await self.lineage.versions(each.line_id, content_key(each.key))
        return found

    async def _erase_views(self, items: Iterable[TracedItem]) -> None:
        """Delete the compacted views of windows that may contain the text of an item: prompts have the originals."""
        keys = (SummaryId.parse(item.item) if item.is_summary else LineKey.parse(item.item) for item in items)
        trunks = {trunk_of(key.line_id) for key in keys if key is not None and key.line_id.startswith("window:")}
        for trunk in sorted(trunks):
            branches = await self.lines.branches(trunk)
            for line_id in (trunk, *(branch.head.line_id for branch in branches)):
                await self.compactions.erase_views(line_id)

    async def _redact(self, item: TracedItem, names: Sequence[str], reason: str) -> None:
        """Redact the items in records and exports, which may quote them."""
        key, message = LineKey.parse(item.item), MessageItemId.parse(item.item)
        session_id = message.session_id if message is not None else None
        if key is not None and message is None:
            session_id = name_in(key.line_id, SESSION)
        for name in names:
            await self._publish_redaction(name, session_id, reason, ITEM_TYPE)

    async def _publish_redaction(self, record_id: str, session_id: str | None, reason: str, record_type: str) -> None:
        redaction = Redaction(
            record_id=record_id,
            session_id=session_id,
            state="removed",
            method=_METHOD,
            reason=reason,
            redacted_by=self.actor.participant,
            redacted_at=to_micros(self.clock.now()),
            type=record_type,
        )
        await self.records.redact(redaction)
        await self.outbox.publish(self._redacted(redaction))

    def _redacted(self, redaction: Redaction) -> NewEvent:
        return NewEvent(
            type="context.redaction.applied",
            session_id=redaction.session_id,
            subject=redaction.record_id,
            actor=self.actor.participant,
            readable_by=(f"{PERMISSION}{Permission.ADMIN}",),
            data={
                "redaction_state": redaction.state,
                "redaction_method": redaction.method,
                "redacted_type": redaction.type,
            },
        )


def _flagged_metadata(metadata: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the metadata of a summary with a label that says that it is suspicious."""
    native = engine_metadata(metadata)
    try:
        label = msgspec.convert(native.get("trust"), TrustLabel | None)
    except msgspec.ValidationError:
        # A framework may have written anything there.
        label = None
    return {**metadata, "weftline": {**native, "trust": msgspec.to_builtins(flagged_label(label, source))}}


def flagged_label(label: TrustLabel | None, source: str, author: Source = Source.AGENT) -> TrustLabel:
    """Return the label of an item that is suspicious because of what it was derived from."""
    known = label or TrustLabel(author, Trust.UNTRUSTED)
    reasons = tuple(dict.fromkeys((*known.reasons, f"{DERIVED}: {source}")))
    # Without a score: its own wording is not the reason, so it is not in doubt.
    return structs.replace(known, trust=Trust.SUSPICIOUS, score=None, reasons=reasons, approved_by=None)
