"""An agent's private memory for one call: read, or write under the owner's lock.

Nothing is cached: reading an entry is one lookup by primary key, and another process may write at any time, so checking
a cached copy would cost as much as reading the entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.history.lines import LineStore
from weftline.history.model import (
    SYSTEM,
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    Head,
    KeyNumber,
    blob_hash,
    version_conflict,
)
from weftline.indexing.pins import ItemPlace, Pins
from weftline.kernel.clock import Clock, from_micros, to_micros
from weftline.kernel.errors import MAX_COMPARED, close_names
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import PRINCIPAL, Actor
from weftline.kernel.outbox import Outbox
from weftline.kernel.ports import approximate_tokens
from weftline.safety.trust.gate import ContentGate, IncomingContent
from weftline.sessions.model import Session, find_session, lock_active_session
from weftline.sessions.sql import SessionStore
from weftline.state.memory.model import (
    KeyExists,
    KeyRange,
    MemoryCursor,
    MemoryEntry,
    MemoryLimitExceeded,
    MemoryLimits,
    MemoryNotFound,
    MemoryScope,
    MemoryUsage,
    check_value_size,
)
from weftline.state.memory.sql import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.safety.trust.model import TrustLabel
    from weftline.state.memory.model import MemoryEntryWithValue

_EXPIRE_BATCH = 200


class MemoryWriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a write; none is inherited from the entry it replaces."""

    overwrite: bool = True
    if_version: int | None = None
    expires_in: int | None = None
    metadata: str | None = None
    derived_from: tuple[str, ...] = ()
    reason: str | None = None
    step: str | None = None


class Memories(msgspec.Struct, frozen=True):
    """The stores that memory needs, bound to the caller of one operation."""

    actor: Actor
    sessions: SessionStore
    entries: MemoryStore
    lines: LineStore
    outbox: Outbox
    clock: Clock
    limits: MemoryLimits
    pins: Pins
    gate: ContentGate

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def to_read(self, session_id: str | None) -> MemoryReader:
        """Open the caller's global memory, or its memory of a session it participates in."""
        if session_id is not None:
            await find_session(session_id, self.actor, self.sessions)
        return MemoryReader(self, self._scope(session_id), self.now)

    async def to_write(self, session_id: str | None) -> MemoryWriter:
        """Open it under the owner's lock, which lasts until the transaction ends."""
        session = None
        if session_id is not None:
            session, _ = await lock_active_session(session_id, self.actor, self.sessions)
        memory = await self._opened(self._scope(session_id), session)
        await memory.expire_entries()
        return memory

    async def to_forget(self, scope: MemoryScope) -> MemoryWriter:
        """Open the memory of any owner, even in an archived session; the caller checks that its caller may forget."""
        session = None
        if scope.session_id is not None:
            locked = await self.sessions.find_locked(scope.session_id)
            session = None if locked is None else locked[0]
        return await self._opened(scope, session)

    async def expire_entries(self, scope: MemoryScope) -> None:
        """Remove expired entries of any owner, even in an archived session."""
        session = None
        if scope.session_id is not None:
            locked = await self.sessions.find_locked(scope.session_id)
            if locked is None:
                return
            session, _ = locked
        memory = await self._opened(scope, session)
        await memory.expire_entries()
        await memory.publish()

    def whole(self) -> AllMemoryReader:
        """Open all scopes of the caller's memory that it may read."""
        return AllMemoryReader(self, self.actor.principal_id, self.now)

    def _scope(self, session_id: str | None) -> MemoryScope:
        return MemoryScope(self.actor.principal_id, session_id)

    async def _opened(self, scope: MemoryScope, session: Session | None) -> MemoryWriter:
        # Lock order, the same as in session deletion: session, owner, line.
        usage = await self.entries.lock(scope.owner)
        head = await self.lines.lock(scope.line_id)
        if head is None:
            await self.lines.create(scope.line_id)
            await self.entries.add_scope(scope)
            head = Head.of_new_line(scope.line_id)
        return MemoryWriter(self, scope, self.now, session, usage, head)


@dataclass(slots=True)
class MemoryReader:
    """Reads one scope of a memory for its owner."""

    service: Memories
    scope: MemoryScope
    now: int

    async def read(self, key: str) -> MemoryEntryWithValue:
        found = await self.service.entries.read(self.scope, key)
        if found is None or not found.entry.is_live(self.now):
            raise await self.missing(key)
        return found

    async def page(self, keys: KeyRange, limit: int) -> Sequence[MemoryEntry]:
        return await self.service.entries.page(self.scope, keys, self.now, limit)

    async def missing(self, key: str) -> MemoryNotFound:
        """Return the error for a missing key, with similar keys as suggestions."""
        known = [entry.key for entry in await self.page(KeyRange.of(""), MAX_COMPARED)]
        return MemoryNotFound(
            f"Your {self.scope.name} memory has no key '{key}'.",
            resource_type="memory",
            resource_id=key,
            available_alternatives=close_names(key, known),
        )


@dataclass(slots=True)
class AllMemoryReader:
    """Reads global memory and that of every session that still admits the owner."""

    service: Memories
    owner: str
    now: int
    _admitted: dict[str | None, bool] = field(default_factory=lambda: {None: True})

    async def page(self, after: MemoryCursor, prefix: str, limit: int) -> Sequence[MemoryEntry]:
        found: list[MemoryEntry] = []
        while len(found) < limit:
            batch = await self.service.entries.page_of_all(self.owner, after, KeyRange.of(prefix), self.now, limit)
            found += [entry for entry in batch if await self.admits(entry.session_id)]
            if len(batch) < limit:
                break
            last = batch[-1]
            # Skip a session that does not admit the owner.
            after = (
                MemoryCursor.of(last)
                if await self.admits(last.session_id)
                else MemoryCursor.after_scope(last.session_id)
            )
        return found[:limit]

    async def admits(self, session_id: str | None) -> bool:
        known = self._admitted.get(session_id)
        if known is None and session_id is not None:
            session = await self.service.sessions.find(session_id)
            known = self._admitted[session_id] = session is not None and session.admits(self.service.actor)
        return bool(known)


@dataclass(slots=True)
class MemoryWriter(MemoryReader):
    """Writes one scope of a memory whose owner is locked until the transaction ends."""

    session: Session | None
    usage: MemoryUsage
    head: Head
    _events: list[NewEvent] = field(default_factory=list)

    async def set(self, key: str, text: str, options: MemoryWriteOptions) -> MemoryEntry:
        """Create or replace one entry."""
        check_value_size(len(text.encode()))
        text, options, label = await self._admit(key, text, options)
        current = await self._live_entry(key)
        if current is not None and not options.overwrite:
            raise KeyExists(f"The key '{key}' exists already in your memory.", key=key, current_version=current.version)
        _check_version(key, current, options.if_version)
        entry = structs.replace(await self._next_version(current, key, text, options), trust=label)
        growth = entry.weight - (current.weight if current else 0)
        await self._check_limit(growth, entry)
        if current is not None:
            at = ItemPlace.of_memory_key(self.scope.owner, self.scope.session_id, key)
            await self.service.pins.resize(at, approximate_tokens(text))
        await self.service.lines.put_blob(entry.blob_hash, text)
        await self.service.entries.put(self.scope, entry)
        reason = await self.service.gate.admit_note("reason", options.reason)
        await self._commit([_write_change(entry)], reason or "set", growth=growth, step=options.step)
        if current is not None:
            await self.service.lines.prune(self.scope.line_id, key, keep=1)
        self._events.append(self._event("memory.written", entry))
        await self.publish()
        return entry

    async def delete(
        self, key: str, if_version: int | None, reason: str | None = None, step: str | None = None
    ) -> MemoryEntry:
        """Delete an entry; history keeps a tombstone."""
        entry = await self._live_entry(key)
        if entry is None:
            raise await self.missing(key)
        _check_version(key, entry, if_version)
        reason = await self.service.gate.admit_note("reason", reason)
        await self._remove([entry], ChangeKind.DELETE, reason, step)
        await self.publish()
        return entry

    async def forget(self, key: str) -> None:
        """Delete an entry if there is one; events are published by the caller."""
        entry = await self._live_entry(key)
        if entry is not None:
            await self._remove([entry], ChangeKind.DELETE)

    async def relabel(self, key: str, label: TrustLabel | None) -> None:
        """Give an entry another label, as a new version; events are published by the caller."""
        current = await self._live_entry(key)
        if current is None:
            return
        entry = structs.replace(current, version=current.version + 1, updated_at=self.now, trust=label)
        await self.service.entries.put(self.scope, entry)
        await self._commit([_write_change(entry)], "relabel", growth=0)
        await self.service.lines.prune(self.scope.line_id, key, keep=1)
        self._events.append(self._event("memory.written", entry))

    async def expire_entries(self) -> None:
        """Remove expired entries, at most one batch."""
        if self.head.next_expiry_at is None or self.head.next_expiry_at > self.now:
            return
        expired = await self.service.entries.expired(self.scope, self.now, _EXPIRE_BATCH)
        if expired:
            await self._remove(expired, ChangeKind.EXPIRE)
        next_expiry_at = await self.service.entries.next_expiry(self.scope)
        await self.service.lines.set_next_expiry(self.scope.line_id, next_expiry_at)
        self.head = structs.replace(self.head, next_expiry_at=next_expiry_at)

    async def publish(self) -> None:
        """Publish the collected events. Last, because publishing blocks other publishers until the commit."""
        await self.service.outbox.publish(*self._events)
        self._events.clear()

    async def _admit(
        self, key: str, text: str, options: MemoryWriteOptions
    ) -> tuple[str, MemoryWriteOptions, TrustLabel | None]:
        """Pass value and metadata through the gate; both have one label."""
        contents = [
            IncomingContent("memory_entry", key, each, derived_from=options.derived_from, is_json=True)
            for each in (text, options.metadata)
            if each is not None
        ]
        (value, *metadata), label = await self.service.gate.admit_together(contents)
        return value, structs.replace(options, metadata=metadata[0]) if metadata else options, label

    async def _live_entry(self, key: str) -> MemoryEntry | None:
        """Return the live entry of a key; an expired one is removed, so that a new incarnation starts."""
        entry = await self.service.entries.get(self.scope, key)
        if entry is None or entry.is_live(self.now):
            return entry
        await self._remove([entry], ChangeKind.EXPIRE)
        return None

    async def _next_version(
        self, current: MemoryEntry | None, key: str, text: str, options: MemoryWriteOptions
    ) -> MemoryEntry:
        """Return the next version of an entry, or the first of a new incarnation."""
        if current is not None:
            number = KeyNumber(current.incarnation, current.version).next
        else:
            number = (await self.service.lines.last_number(self.scope.line_id, key)).created_again
        return MemoryEntry(
            session_id=self.scope.session_id,
            key=key,
            incarnation=number.incarnation,
            version=number.version,
            blob_hash=blob_hash(text),
            size=len(text.encode()),
            metadata=options.metadata,
            created_at=current.created_at if current else self.now,
            updated_at=self.now,
            expires_at=self.now + options.expires_in * 1_000_000 if options.expires_in else None,
        )

    async def _check_limit(self, growth: int, entry: MemoryEntry) -> None:
        """Raise MemoryLimitExceeded if the write grows the memory beyond its limit."""
        limit = self.service.limits.total_bytes
        if growth <= 0 or self.usage.weight + growth <= limit:
            return
        # Expired entries of other scopes that are not removed yet do not count.
        live = self.usage.weight - (await self.service.entries.expired_usage(self.scope.owner, self.now)).weight
        if live + growth > limit:
            raise MemoryLimitExceeded(
                f"Your memory holds {live} of {limit} bytes; this write would make it {live + growth}.",
                used_bytes=live,
                limit_bytes=limit,
                value_size=entry.size,
            )

    async def _remove(
        self, entries: Sequence[MemoryEntry], act: ChangeKind, reason: str | None = None, step: str | None = None
    ) -> None:
        expired = act is ChangeKind.EXPIRE
        for entry in entries:
            await self.service.entries.remove(self.scope, entry.key)
            await self.service.pins.forget(ItemPlace.of_memory_key(self.scope.owner, self.scope.session_id, entry.key))
        await self._commit(
            [Change(entry.key, entry.incarnation, entry.version, act, None, ChangeMeta()) for entry in entries],
            reason or act,
            growth=-sum(entry.weight for entry in entries),
            expired=len(entries) if expired else 0,
            step=step,
        )
        for entry in entries:
            await self.service.lines.prune(self.scope.line_id, entry.key, keep=0)
        name: EventType = "memory.expired" if expired else "memory.deleted"
        self._events += [self._event(name, entry, by_itself=expired) for entry in entries]

    async def _commit(
        self, changes: Sequence[Change], reason: str, *, growth: int, expired: int = 0, step: str | None = None
    ) -> None:
        actor = self.service.actor
        commit = Commit(
            line_id=self.scope.line_id,
            seq=self.head.seq + 1,
            author=SYSTEM if expired else Author(actor.participant, actor.principal_id),
            committed_at=self.now,
            reason=reason,
            step=step,
            changes=tuple(changes),
        )
        self.head = await self.service.lines.append(
            self.head,
            commit,
            weight=self.head.weight + growth,
            next_expiry_at=_earliest([self.head.next_expiry_at, *(change.meta.expires_at for change in changes)]),
        )
        await self.service.entries.adjust(self.scope.owner, growth, expired)
        self.usage = MemoryUsage(self.usage.weight + growth, self.usage.expired + expired)

    def _event(self, event_type: EventType, entry: MemoryEntry, *, by_itself: bool = False) -> NewEvent:
        return NewEvent(
            type=event_type,
            session_id=self.scope.session_id,
            subject=entry.key,
            actor=SYSTEM.participant if by_itself else self.service.actor.participant,
            readable_by=(f"{PRINCIPAL}{self.scope.owner}",),
            data={
                "version": entry.version,
                "incarnation": entry.incarnation,
                "commit": self.head.seq,
                "scope": self.scope.name,
                "value_size": entry.size,
            },
        )


def _check_version(key: str, current: MemoryEntry | None, expected: int | None) -> None:
    """Raise VersionConflict unless the key is at the expected version; 0: the key does not exist."""
    version = current.version if current else 0
    if expected is not None and expected != version:
        changes = {"changed_at": from_micros(current.updated_at)} if current else {}
        raise version_conflict(key, version, expected, **changes)


def _write_change(entry: MemoryEntry) -> Change:
    # Deleted values must be gone, so history keeps only hashes.
    metadata_hash = None if entry.metadata is None else blob_hash(entry.metadata).hex()
    meta = ChangeMeta(expires_at=entry.expires_at, size=entry.size, metadata_hash=metadata_hash, trust=entry.trust)
    return Change(entry.key, entry.incarnation, entry.version, ChangeKind.WRITE, entry.blob_hash, meta)


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)
