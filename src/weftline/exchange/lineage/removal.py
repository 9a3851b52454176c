"""Removal of a source: deletes or flags it with what was declared as derived, and flags what may have been."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import structs

from weftline.exchange.lineage.model import TracedItem, no_item
from weftline.exchange.lineage.store import LineageStore, StoredVersion
from weftline.exchange.lineage.tracer import Trace
from weftline.exchange.record_log.redacted_records import without_text
from weftline.history.line_backend import CommitMeta, LineBackends, check_may_forget
from weftline.history.line_kinds import SESSION, calls_implied_by, name_in
from weftline.history.model import LATEST, Version, trunk_of
from weftline.history.store import LineStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import WeftlineError
from weftline.kernel.events import NewEvent, Outbox
from weftline.kernel.guards import ImpliedCall
from weftline.kernel.identity import HUMAN, PERMISSION, Actor, Permission
from weftline.knowledge.documents import Documents
from weftline.records.engine_metadata import engine_metadata
from weftline.records.item_refs import DocumentName, LineKey
from weftline.records.model import ContextSummary
from weftline.records.record_ids import MessageItemId, SummaryId
from weftline.records.sql import RecordStore
from weftline.records.store import ITEM_TYPE, Redaction
from weftline.safety.trust.gate import ContentGate
from weftline.safety.trust.model import DERIVED, Source, Trust, TrustLabel
from weftline.sessions.messages.store import MessageStore
from weftline.sessions.messages.transcript import TranscriptWriter
from weftline.sessions.recorder import index_keys
from weftline.windows.compaction.sql import CompactionStore
from weftline.windows.model import content_key

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
