"""Adds events to a window whose session and line are locked until the transaction ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.access.plans import QuotaUse
from weftline.history.commits import record
from weftline.history.line_kinds import CommitMeta
from weftline.history.model import Author, Change, ChangeKind, ChangeMeta, Commit, VersionPruned, blob_hash
from weftline.kernel.errors import ContentTooLarge
from weftline.kernel.identity import principal_of
from weftline.kernel.json_input import encode_json_field
from weftline.safety.trust.gate import IncomingContent, submitted
from weftline.safety.trust.model import Source, joined_label
from weftline.safety.trust.scanner import masked
from weftline.sessions.recorder import Recorder, session_envelope
from weftline.windows.line_events import events_of_line
from weftline.windows.model import (
    MAX_CONTENT_BYTES,
    EventExists,
    EventNotFound,
    WindowEvent,
    category_of,
    check_may_instruct,
    content_hash,
    content_key,
    decode_event,
    encode_event,
    is_content,
    is_from_agent,
    is_instruction,
    is_own,
    kind_of_draft,
    left_behind,
    message_tokens,
    quoted_message,
    registered,
    self_written,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.history.model import Head, Version
    from weftline.kernel.events import EventType, NewEvent
    from weftline.kernel.operation import SubmittedText
    from weftline.models.language_models.content import ConversationMessage
    from weftline.records.vocabulary import Scope
    from weftline.safety.redaction import DetectorCategory
    from weftline.safety.trust.gate import ContentGate, HeldContent
    from weftline.safety.trust.model import TrustLabel
    from weftline.sessions.model import Session
    from weftline.windows.model import EventDraft, Window, WindowSettings
    from weftline.windows.service import Windows


# Passes the texts of window events through the content gate.

# Parts of native messages that hold the result of a tool, in all wire forms.
_RESULT_PARTS = ('"tool_result"', '"function_call_output"', '"functionResponse"', '"toolResult"')
# What policies let the gate mask in a text, together or one of them.
_MASKED: tuple[tuple[DetectorCategory, ...], ...] = (("secrets",), ("pii",), ("secrets", "pii"))
_encode = msgspec.json.Encoder().encode


class AdmittedDraft(NamedTuple):
    """A draft with the texts to store, and their label. ``held``: why prompts may not have it."""

    draft: EventDraft
    label: TrustLabel | None
    held: tuple[HeldContent, ...]


async def admit_draft(draft: EventDraft, gate: ContentGate) -> AdmittedDraft:
    """Pass every text of a message through the gate: what a tool returned has the source tool.

    What was said is recorded whatever it says: a text that looks like an attack is held by its label.
    """
    source = _source(draft.message)
    texts, names = _texts(draft.message), _names(draft)
    contents = [IncomingContent("window_event", draft.event_id, text, source, draft.derived_from) for text in texts]
    contents += [IncomingContent("window_event", draft.event_id, name, source) for name in names]
    contents += [] if draft.reason is None else [IncomingContent("reason", draft.event_id, draft.reason)]
    admitted = [await gate.record(content) for content in contents]
    label = joined_label([each.label for each in admitted])
    if label is not None:
        draft = _with_texts(draft, [each.text for each in admitted[: len(texts)]])
        if draft.reason is not None:
            draft = structs.replace(draft, reason=admitted[-1].text)
    return AdmittedDraft(draft, label, tuple(each.held for each in admitted if each.held is not None))


def is_recorded(event: WindowEvent, draft: EventDraft, *, quoted: bool) -> bool:
    """Tell whether an event as it is read is what a draft says: unchanged, with values masked, or redacted since.

    ``quoted``: an instruction may also be the data that it is for its reader.
    """
    if event.redacted:
        return True
    if event.message.role != draft.message.role:
        if not (quoted and draft.message.role == "system"):
            return False
        draft = structs.replace(draft, message=quoted_message(draft.message))
    elif event.category is not category_of(draft):
        return False
    if event.message == draft.message:
        return True
    texts = _texts(draft.message)
    return event.trust is not None and any(
        event.message == _with_texts(draft, [masked(text, values) for text in texts]).message for values in _MASKED
    )


def submitted_texts(draft: EventDraft) -> list[SubmittedText]:
    """Return the texts of a draft, for the scan before the transaction."""
    source = _source(draft.message)
    reason = [] if draft.reason is None else [submitted(draft.reason)]
    return reason + [
        submitted(text, source=source, derived_from=draft.derived_from)
        for text in (*_texts(draft.message), *_names(draft))
        if text
    ]


def _texts(message: ConversationMessage) -> list[str]:
    """Return content, arguments of calls and the native form, as JSON."""
    native = [] if message.native is None else [_encode(message.native).decode()]
    return [message.content, *(call.arguments for call in message.tool_calls), *native]


def _names(draft: EventDraft) -> list[str]:
    """Return names and references of an event, which prompts may show."""
    message = draft.message
    calls = [name for call in message.tool_calls for name in (call.name, call.call_id)]
    given = [message.name, message.tool_call_id, *calls, *draft.references, *draft.source_refs]
    return [name for name in given if name and " " in name]


def _with_texts(draft: EventDraft, texts: list[str]) -> EventDraft:
    message = draft.message
    content, *rest = texts
    native = None if message.native is None else msgspec.json.decode(rest.pop())
    calls = tuple(
        structs.replace(call, arguments=arguments) for call, arguments in zip(message.tool_calls, rest, strict=True)
    )
    message = structs.replace(message, content=content, tool_calls=calls, native=native)
    return structs.replace(draft, message=message)


def _source(message: ConversationMessage) -> Source | None:
    """Return tool for the results of tools; the caller itself for everything else, whatever role it claims."""
    if message.role == "tool":
        return Source.TOOL
    if message.native is not None:
        native = _encode(message.native).decode()
        if any(part in native for part in _RESULT_PARTS):
            return Source.TOOL
    return None


# A window that stays above its threshold is compacted again when it has grown by this part of its limit.
_RETRY_GROWTH = 0.05
# From this part of the threshold on, a compaction is foreseen.
_FORESEEN = 0.5
# Windows with more than about a million tokens of talk are not: they would stay in memory while they are read.
_MOST_FORESEEN_BYTES = 4 * 2**20


@dataclass(slots=True)
class WindowWriter:
    """Writes to one window. ``owner`` is the stored window whose events it shows.

    ``held``: events that were added and that prompts may not have, with what was found in them, by id.
    """

    service: Windows
    session: Session
    window: Window
    owner: WindowSettings
    head: Head
    now: int
    held: dict[str, tuple[WindowEvent, tuple[HeldContent, ...]]] = field(default_factory=dict)
    _events: list[NewEvent] = field(default_factory=list)
    # New events, for the envelopes that the session asks for.
    _ingested: list[WindowEvent] = field(default_factory=list)

    async def ingest(self, drafts: Sequence[EventDraft], *, quote: bool = False) -> list[WindowEvent]:
        """Add events in order; those that are there already are returned as they are.

        ``quote``: what an agent writes as its own system text among other events is data, instead of an error.
        """
        found: dict[str, WindowEvent] = {}
        drafts_to_add: list[EventDraft] = []
        for draft in drafts:
            check_size(draft)
        last = await self._last_changes(draft.event_id for draft in drafts)
        for draft in drafts:
            known = found.get(draft.event_id) or await self._existing(draft.event_id, last)
            if known is None:
                known = self._event(draft, self.owner.last_number + len(drafts_to_add) + 1)
                drafts_to_add.append(draft)
            elif not known.repeats(draft) and not known.repeats((await admit_draft(draft, self.service.gate)).draft):
                raise EventExists(
                    f"The window has an event '{draft.event_id}' with other content.", resource_id=draft.event_id
                )
            elif self._takes_over(known) and draft not in drafts_to_add:
                known = self._event(draft, known.number)
                drafts_to_add.append(draft)
            found[draft.event_id] = known
        await self.check_number(len(drafts_to_add))
        bytes_before = self.owner.stored_bytes
        texts = await self._registered([found[draft.event_id] for draft in drafts_to_add], len(drafts), quote=quote)
        new = [
            structs.replace(await self._admitted(draft, found[draft.event_id]), registered=draft.event_id in texts)
            for draft in drafts_to_add
        ]
        found |= {event.event_id: event for event in new}
        # A commit has one step and one reason.
        for (reason, step), group in groupby(new, key=lambda event: (event.reason, event.step)):
            added = [*group]
            await self.add(added, reason or "ingest", step=step, last=last)
            self._announce(added)
        self._ingested += new
        await self.check_bytes(bytes_before)
        return [found[draft.event_id] for draft in drafts]

    async def _admitted(self, draft: EventDraft, event: WindowEvent) -> WindowEvent:
        """Pass an event through the gate."""
        admitted = await admit_draft(draft, self.service.gate)
        added = structs.replace(self._event(admitted.draft, event.number), trust=admitted.label)
        if admitted.held:
            self.held[added.event_id] = added, admitted.held
        return added

    async def find(self, event_ids: Sequence[str]) -> list[WindowEvent]:
        """Return events of the window by their ids; raises EventNotFound."""
        last = await self._last_changes(event_ids)
        found = {event_id: await self._existing(event_id, last) for event_id in event_ids}
        for event_id, event in found.items():
            if event is None:
                raise EventNotFound(f"The window has no event '{event_id}'.", resource_id=event_id)
        return [event for event in found.values() if event is not None]

    async def release(self, events: Sequence[WindowEvent], approved_by: str) -> None:
        """Let prompts have events that are held, as new versions with the label of a released text."""
        released = [
            structs.replace(event, trust=event.trust.released(approved_by))
            for event in events
            if event.trust is not None
        ]
        if released:
            await self.add(released, "release")
            self.content_changed(updated=len(released))
            await self.publish()

    async def remove(self, event: WindowEvent) -> None:
        """Remove an event as a new version; an agent removes no instruction that those above it gave."""
        await self.apply(dict.fromkeys((event.event_id, content_key(event.event_id))), CommitMeta("pop"))

    async def check_number(self, added: int) -> None:
        """Raise QuotaExceeded if new events would exceed the ceiling of the tenant's plan."""
        if not added:
            return
        warnings, before = self.service.quota_warnings, self.owner.last_number
        allowance = await warnings.plans.allowance()
        allowance.check_window_events(before + added, before)
        use = QuotaUse("window_events", allowance.window_events, before, before + added)
        await warnings.note(use, self.window.events_of, lasts=False)

    async def check_bytes(self, before: int) -> None:
        """Raise QuotaExceeded if the events that were added exceed the bytes that the tenant's plan allows."""
        after = self.owner.stored_bytes
        if after == before:
            return
        warnings = self.service.quota_warnings
        allowance = await warnings.plans.allowance()
        allowance.check_window_bytes(after, before)
        use = QuotaUse("window_bytes", allowance.window_bytes, before, after)
        await warnings.note(use, self.window.events_of, lasts=False)

    def _takes_over(self, known: WindowEvent) -> bool:
        """Tell whether the caller gives as an instruction what an agent of the window wrote before, as data."""
        author = principal_of(known.author)
        is_own = author in {self.window.agent_id, self.window.events_of} and is_from_agent(known)
        return is_own and is_instruction(known) and not known.registered and author != self.service.actor.principal_id

    async def _registered(self, events: Sequence[WindowEvent], given_events: int, *, quote: bool) -> frozenset[str]:
        """Check who gives the instructions among new events; return the ids of those that a definition has."""
        given, service = [event for event in events if is_instruction(event)], self.service
        if not given:
            return frozenset()
        readers = await self._readers()
        if not is_own(service.actor, readers):
            await check_may_instruct(service.actor, readers, service.access)
            return frozenset()
        found = await registered(given, service.actor.principal_id, service.lines)
        if len(found) < len(given) and not (quote and len(given) < given_events):
            raise self_written()
        return found

    async def add(
        self,
        events: Sequence[WindowEvent],
        reason: str,
        removed: Sequence[Version] = (),
        *,
        step: str | None = None,
        last: Mapping[str, Version] | None = None,
    ) -> None:
        """Write events, and delete keys, as one commit. ``last``: the last changes of their keys, if known."""
        if last is None:
            last = await self._last_changes(event.event_id for event in events)
        replaced = [*removed]
        changes = [_removal(version) for version in removed]
        values: dict[bytes, str] = {}
        for event in events:
            written, before = self._writes(event, last, values)
            changes += written
            replaced += before
        await self.service.lines.put_blobs(values)
        growth = sum(event.tokens for event in events) - sum(version.change.meta.tokens for version in replaced)
        await self._commit(changes, CommitMeta(reason, step), growth)
        added = sum(change.meta.size for change in changes)
        await self._advance(max((event.number for event in events), default=0), added)

    async def apply(self, state: Mapping[str, Version | None], commit_meta: CommitMeta) -> Head:
        """Set keys to the content of versions, of this line or of another; None deletes a key.

        An agent that reads the window changes no instruction that those above it gave.
        """
        await self._check_keeps_instructions(state)
        changes: list[Change] = []
        counts: Counter[str] = Counter()
        growth = newest = 0
        values: dict[bytes, str] = {}
        lines = self.service.lines
        last = {each.change.key: each for each in await lines.last_changes(self.head.line_id, [*state], self.head.seq)}
        for key, version in state.items():
            current = _written(last.get(key))
            growth -= current.change.meta.tokens if current else 0
            if not is_content(key):
                counts["removed" if version is None else "updated" if current else "added"] += 1
            if version is None:
                changes += [_removal(current)] if current else []
                continue
            if version.value is None:
                raise VersionPruned(f"Retention has removed the value of '{key}'.", resource_id=key)
            values[blob_hash(version.value)] = version.value
            changes.append(_change(key, version.value, version.change.meta, last.get(key)))
            growth += version.change.meta.tokens
            newest = max(newest, 0 if is_content(key) else decode_event(self.head.line_id, version, None).number)
        await lines.put_blobs(values)
        if changes or commit_meta.merged is not None:
            await self.service.compactions.restored(self.head.line_id)
            await self._commit(changes, commit_meta, growth)
            if commit_meta.copied:
                await self._count_copies(changes, sum(key not in last and not is_content(key) for key in state))
            await self._advance(newest)
            self.content_changed(**counts)
        await self.publish()
        return self.head

    async def _count_copies(self, changes: Sequence[Change], added: int) -> None:
        """Count what was copied from another window like what is ingested; raises QuotaExceeded."""
        await self.check_number(added)
        before = self.owner.stored_bytes
        await self._advance(self.owner.last_number + added, sum(change.meta.size for change in changes))
        await self.check_bytes(before)

    async def _check_keeps_instructions(self, state: Mapping[str, Version | None]) -> None:
        if not is_own(self.service.actor, await self._readers()):
            return
        given = await self.service.instructions(self.head.line_id)
        if any(key in state or content_key(key) in state for key in given):
            raise left_behind()

    async def _readers(self) -> set[str]:
        """Return the agents whose window this is: they share it, or have it for themselves."""
        sharing = await self.service.store.sharing(self.window.session_id, self.window.events_of)
        return {self.window.agent_id, self.window.events_of, *(each.agent_id for each in sharing)}

    async def announce(self, event_type: EventType, subject: str, data: Mapping[str, object]) -> None:
        event = self._about(event_type, data)
        await self.service.outbox.publish(structs.replace(event, subject=subject))

    async def note_branches(self, change: int) -> None:
        """Do nothing: branches of windows are not counted."""

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        return visible_versions(versions)

    async def publish(self) -> None:
        """Publish the collected events. Last, because publishing blocks other publishers until the commit."""
        await self.service.outbox.publish(*self._events)
        self._events.clear()
        if self._ingested and self.session.config.envelopes:
            await self._record_envelopes()
        self._ingested.clear()

    async def _record_envelopes(self) -> None:
        """Record envelopes of the tool calls and tasks that new events end, as far as the session asks for them."""
        service, config = self.service, self.session.config
        wanted: list[tuple[Scope, WindowEvent]] = []
        for event in self._ingested:
            if "tool_invocation" in config.envelopes and event.message.tool_call_id:
                wanted.append(("tool_invocation", event))
            if "task" in config.envelopes and event.message_type in config.task_message_types:
                wanted.append(("task", event))
        if not wanted:
            return
        tenant = service.actor.tenant
        found = await events_of_line(service.lines, service.cache, tenant, self.head, committed=False)
        events = found.events
        names = {event.event_id: event.item_id for event in events}
        calls = {call.call_id: event.item_id for event in events for call in event.message.tool_calls}
        envelopes = []
        for scope, event in wanted:
            call_id = event.message.tool_call_id if scope == "tool_invocation" else None
            before = [calls.get(call_id, "")] if call_id else [names.get(each, "") for each in event.references]
            items = (each for each in (*before, names[event.event_id]) if each)
            at = service.clock.now()
            envelopes.append(session_envelope(scope, self.session, service.actor, at, items, tool_call_id=call_id))
        recorder = Recorder(service.actor, service.records, service.outbox, service.clock)
        await recorder.add_all(envelopes, self.session, readable_by=self._about("window.ingested", {}).readable_by)

    async def current(self, keys: Iterable[str]) -> list[Version]:
        """Return the current versions of these keys that exist."""
        found = [await self.service.lines.latest(self.head.line_id, key, self.head.seq) for key in keys]
        return [version for version in found if version is not None]

    async def _last_changes(self, event_ids: Iterable[str]) -> dict[str, Version]:
        """Return the last changes of the keys of events, deletions too, without values."""
        keys = [key for event_id in event_ids for key in (event_id, content_key(event_id))]
        found = await self.service.lines.last_changes(self.head.line_id, keys, self.head.seq)
        return {each.change.key: each for each in found}

    async def _existing(self, event_id: str, last: Mapping[str, Version]) -> WindowEvent | None:
        if _written(last.get(event_id)) is None:
            return None
        versions = {each.change.key: each for each in await self.current([event_id, content_key(event_id)])}
        content = versions.get(content_key(event_id))
        return decode_event(self.head.line_id, versions[event_id], content.value if content else None)

    def _event(self, draft: EventDraft, number: int) -> WindowEvent:
        return WindowEvent(
            event_id=draft.event_id,
            number=number,
            category=category_of(draft),
            message=draft.message,
            kind=kind_of_draft(draft),
            at=self.now,
            author=self.service.actor.participant,
            agent_id=self.window.agent_id,
            tokens=message_tokens(draft.message),
            importance=draft.importance,
            pinned=draft.pinned,
            recipient_id=draft.recipient_id,
            message_type=draft.message_type,
            references=draft.references,
            source_refs=draft.source_refs,
            content_hash=content_hash(draft.message),
            occurred_at=draft.occurred_at,
            step=draft.step,
            reason=draft.reason,
        )

    def _writes(
        self, event: WindowEvent, last: Mapping[str, Version], values: dict[bytes, str]
    ) -> tuple[list[Change], list[Version]]:
        """Return the changes of an event and the versions they replace; add its values to those to store."""
        envelope, content = encode_event(event)
        texts = {event.event_id: envelope} | ({} if content is None else {content_key(event.event_id): content})
        present = [
            version
            for key in (event.event_id, content_key(event.event_id))
            if (version := _written(last.get(key))) is not None
        ]
        changes = [_removal(version) for version in present if version.change.key not in texts]
        for key, text in texts.items():
            tokens = 0 if is_content(key) else event.tokens
            meta = ChangeMeta(tokens=tokens, size=len(text.encode()), trust=event.trust)
            change = _change(key, text, meta, last.get(key))
            changes.append(change)
            values[change.blob_hash or b""] = text
        return changes, present

    async def _commit(self, changes: Sequence[Change], meta: CommitMeta, growth: int) -> None:
        if not changes and meta.merged is None:
            return
        if self.head.seq == 0 and self.window.branch is None:
            await self.service.lines.create(self.head.line_id)
        actor = self.service.actor
        before = self.head.weight
        commit = Commit(
            line_id=self.head.line_id,
            seq=self.head.seq + 1,
            author=Author(actor.participant, actor.principal_id),
            committed_at=self.now,
            reason=meta.reason,
            step=meta.step,
            changes=tuple(changes),
            merged=meta.merged,
        )
        self.head = await record(self.service.lines, self.head, commit, weight=before + growth)
        await self._check_threshold(before, self.window.limit)

    async def limit_changed(self, before: int) -> None:
        """Tell all that share the window that its settings changed, and whether its threshold is reached now."""
        sharing = await self.service.store.sharing(self.window.session_id, self.window.events_of)
        readers = [each.agent_id for each in sharing]
        data = {"limit": self.window.limit, "previous_limit": before, "shared_by": len(readers)}
        self._events.append(self.service.event("window.changed", self.session, self.window.agent_id, readers, data))
        await self._check_threshold(self.head.weight, before)
        await self.publish()

    async def _check_threshold(self, tokens_before: int, limit_before: int) -> None:
        """Queue a compaction if the window has grown to its threshold, and announce that once per crossing.

        What its compacted view saves does not count. Below the threshold this reads nothing.
        """
        tokens, limit = self.head.weight, self.window.limit
        if tokens / limit <= tokens_before / limit_before:
            return
        settings = await self.service.compaction(self.window)
        if tokens / limit >= settings.threshold * _FORESEEN and self.owner.stored_bytes <= _MOST_FORESEEN_BYTES:
            self.service.compactions.foresee(self.window)
        if tokens / limit < settings.threshold:
            return
        known = await self.service.compactions.of_line(self.head.line_id)
        if (tokens - known.saved) / limit < settings.threshold:
            return
        if (tokens_before - known.saved) / limit_before < settings.threshold:
            data = {"tokens": tokens - known.saved, "limit": limit, "threshold": settings.threshold}
            self._events.append(self._about("window.threshold_reached", data))
        has_grown = not known.tokens <= tokens < known.tokens + limit * _RETRY_GROWTH
        if settings.auto and has_grown and not known.is_open:
            await self.service.compactions.add(self.window, settings, tokens)

    async def _advance(self, number: int, added_bytes: int = 0) -> None:
        last, size = max(self.owner.last_number, number), self.owner.stored_bytes + added_bytes
        self.owner = structs.replace(self.owner, last_number=last, stored_bytes=size)
        await self.service.store.advance(self.owner, self.now)

    def _announce(self, events: Sequence[WindowEvent]) -> None:
        categories = Counter(event.category.value for event in events)
        data = {
            "first": events[0].number,
            "last": events[-1].number,
            "categories": dict(categories),
            "tokens": sum(event.tokens for event in events),
            **self._version,
        }
        self._events.append(self._about("window.ingested", data))

    def content_changed(self, **counts: int) -> None:
        """Collect an event about events that were added, updated or removed otherwise than by ingestion."""
        self._events.append(self._about("window.changed", {**self._version, **counts}))

    @property
    def _version(self) -> dict[str, object]:
        return {"context_id": self.head.line_id, "version": self.head.seq}

    def _about(self, event_type: EventType, data: Mapping[str, object]) -> NewEvent:
        readers = [self.window.agent_id, self.window.events_of]
        return self.service.event(event_type, self.session, self.window.agent_id, readers, data)


def _written(last: Version | None) -> Version | None:
    """Return the last change of a key; None if it deleted the key."""
    return last if last is not None and last.change.act is ChangeKind.WRITE else None


def _change(key: str, value: str, meta: ChangeMeta, last: Version | None) -> Change:
    """Return the change that follows the last one of a key."""
    current = _written(last)
    incarnation = current.change.incarnation if current else (last.change.incarnation + 1 if last else 1)
    version = current.change.version + 1 if current else 1
    return Change(key, incarnation, version, ChangeKind.WRITE, blob_hash(value), meta)


def check_size(draft: EventDraft) -> None:
    """Refuse a message that is not valid JSON or too large."""
    rest = structs.replace(draft.message, content="")
    encode_json_field("message.content", draft.message.content)
    check_content_size(
        max(len(draft.message.content.encode()), len(encode_json_field("message", msgspec.to_builtins(rest))))
    )


def check_content_size(size: int) -> None:
    if size > MAX_CONTENT_BYTES:
        raise ContentTooLarge(
            f"message: {size} bytes; at most {MAX_CONTENT_BYTES}.",
            hint="Store the content elsewhere, such as in a document, and refer to it in source_refs.",
            field="message",
        )


def visible_versions(versions: Iterable[Version]) -> list[Version]:
    """Return versions without the separate contents: the event names its content by its hash."""
    return [version for version in versions if not is_content(version.change.key)]


def _removal(version: Version) -> Change:
    change = version.change
    return Change(change.key, change.incarnation, change.version, ChangeKind.DELETE, None, ChangeMeta())
