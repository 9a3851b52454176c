"""An agent's own memory, opened for one call: to read, or to change behind its owner's lock.

Nothing here is cached. Finding an entry is one read by primary key, and an agent may write through another process, so
a cached copy could only be trusted after a query that costs as much as reading the entry itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weft.capabilities.history.model import (
    SYSTEM,
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    Head,
    blob_hash,
    check_version,
)
from weft.capabilities.history.store import LineStore
from weft.capabilities.memory.model import (
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
from weft.capabilities.memory.store import MemoryStore
from weft.capabilities.sessions.model import Session, find_session, lock_active_session
from weft.capabilities.sessions.store import SessionStore
from weft.kernel.clock import Clock, to_micros
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.hints import MAX_COMPARED, close_names
from weft.kernel.identity import ANYONE, PRINCIPAL, Actor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.memory.model import Remembered

_BURY_AT_ONCE = 200


class MemoryTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a write says beside the value; nothing of it is inherited from what it replaces."""

    overwrite: bool = True
    if_version: int | None = None
    expires_in: int | None = None
    metadata: str | None = None


class Memories(msgspec.Struct, frozen=True):
    """Everything a memory needs, gathered for the caller of one operation."""

    actor: Actor
    sessions: SessionStore
    entries: MemoryStore
    lines: LineStore
    outbox: Outbox
    clock: Clock
    limits: MemoryLimits

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def to_read(self, session_id: str | None) -> Memory:
        """Open the caller's global memory, or its memory of a session it takes part in."""
        if session_id is not None:
            await find_session(session_id, self.actor, self.sessions)
        return Memory(self, self._scope(session_id), self.now)

    async def to_write(self, session_id: str | None) -> OpenMemory:
        """Open it behind its owner's lock: what is read now cannot change until this transaction ends."""
        session = None
        if session_id is not None:
            session, _ = await lock_active_session(session_id, self.actor, self.sessions)
        memory = await self._opened(self._scope(session_id), session)
        await memory.expire_entries()
        return memory

    async def expire_entries(self, scope: MemoryScope) -> None:
        """Turn entries whose time has run out into history, whoever they belong to and even in an archived session."""
        session = None
        if scope.session_id is not None:
            locked = await self.sessions.find_locked(scope.session_id)
            if locked is None:
                return
            session, _ = locked
        memory = await self._opened(scope, session)
        await memory.expire_entries()
        await memory.announce()

    def whole(self) -> WholeMemory:
        """Open all of the caller's memory that it can reach, to read."""
        return WholeMemory(self, self.actor.principal_id, self.now)

    def _scope(self, session_id: str | None) -> MemoryScope:
        return MemoryScope(self.actor.principal_id, session_id)

    async def _opened(self, scope: MemoryScope, session: Session | None) -> OpenMemory:
        # Always in this order, which whoever deletes a session keeps to as well: session, owner, line.
        held = await self.entries.lock(scope.owner)
        head = await self.lines.lock(scope.line_id)
        if head is None:
            await self.lines.create(scope.line_id)
            await self.entries.add_scope(scope)
            head = Head.of_new_line(scope.line_id)
        return OpenMemory(self, scope, self.now, session, held, head)


@dataclass(slots=True)
class Memory:
    """One part of a memory, as its owner sees it."""

    parts: Memories
    scope: MemoryScope
    now: int

    async def read(self, key: str) -> Remembered:
        found = await self.parts.entries.read(self.scope, key)
        if found is None or not found.entry.lives_at(self.now):
            raise await self.missing(key)
        return found

    async def page(self, keys: KeyRange, limit: int) -> Sequence[MemoryEntry]:
        return await self.parts.entries.page(self.scope, keys, self.now, limit)

    async def missing(self, key: str) -> MemoryNotFound:
        """Return the error for an absent key, naming those of the owner's own that look like it."""
        known = [entry.key for entry in await self.page(KeyRange.of(""), MAX_COMPARED)]
        return MemoryNotFound(
            f"Your {self.scope.name} memory has no key '{key}'.",
            resource_type="memory",
            resource_id=key,
            available_alternatives=close_names(key, known),
        )


@dataclass(slots=True)
class WholeMemory:
    """Global memory and that of every session which still admits its owner."""

    parts: Memories
    owner: str
    now: int
    _admitted: dict[str | None, bool] = field(default_factory=lambda: {None: True})

    async def page(self, after: MemoryCursor, prefix: str, limit: int) -> Sequence[MemoryEntry]:
        """Return the next entries that the owner can reach."""
        found: list[MemoryEntry] = []
        while len(found) < limit:
            batch = await self.parts.entries.page_of_all(self.owner, after, KeyRange.of(prefix), self.now, limit)
            found += [entry for entry in batch if await self.admits(entry.session_id)]
            if len(batch) < limit:
                break
            last = batch[-1]
            # What a closed session holds, however much it is, need not be read through.
            after = (
                MemoryCursor.of(last) if await self.admits(last.session_id) else MemoryCursor.behind(last.session_id)
            )
        return found[:limit]

    async def admits(self, session_id: str | None) -> bool:
        known = self._admitted.get(session_id)
        if known is None and session_id is not None:
            session = await self.parts.sessions.find(session_id)
            known = self._admitted[session_id] = session is not None and session.admits(self.parts.actor)
        return bool(known)


@dataclass(slots=True)
class OpenMemory(Memory):
    """One part of a memory whose owner is locked: nobody else changes it until the transaction ends."""

    session: Session | None
    held: MemoryUsage
    head: Head
    _news: list[NewEvent] = field(default_factory=list)

    async def set(self, key: str, text: str, terms: MemoryTerms) -> MemoryEntry:
        """Create or replace one entry."""
        check_value_size(len(text.encode()))
        current = await self._living(key)
        if current is not None and not terms.overwrite:
            raise KeyExists(f"Your memory has a key '{key}' already.", key=key, current_version=current.version)
        check_version(key, current.version if current else 0, terms.if_version)
        entry = await self._following(current, key, text, terms)
        growth = entry.weight - (current.weight if current else 0)
        await self._check_room(growth, entry)
        await self.parts.lines.put_blob(entry.blob_hash, text)
        await self.parts.entries.put(self.scope, entry)
        await self._commit([_written(entry)], "set", growth=growth)
        if current is not None:
            await self.parts.lines.prune(self.scope.line_id, key, keep=1)
        self._news.append(self._event("memory.written", entry))
        await self.announce()
        return entry

    async def delete(self, key: str, if_version: int | None) -> MemoryEntry:
        """Forget one entry; that it was there stays on record."""
        entry = await self._living(key)
        if entry is None:
            raise await self.missing(key)
        check_version(key, entry.version, if_version)
        await self._remove([entry], ChangeKind.DELETE)
        await self.announce()
        return entry

    async def expire_entries(self) -> None:
        """Turn entries whose time has run out into history, as many as one transaction should."""
        if self.head.next_expiry_at is None or self.head.next_expiry_at > self.now:
            return
        expired = await self.parts.entries.expired(self.scope, self.now, _BURY_AT_ONCE)
        if expired:
            await self._remove(expired, ChangeKind.EXPIRE)
        next_expiry_at = await self.parts.entries.next_expiry(self.scope)
        await self.parts.lines.set_next_expiry(self.scope.line_id, next_expiry_at)
        self.head = structs.replace(self.head, next_expiry_at=next_expiry_at)

    async def announce(self) -> None:
        """Publish what was done: last of all, because that makes everyone else who publishes wait."""
        await self.parts.outbox.publish(*self._news)
        self._news.clear()

    async def _living(self, key: str) -> MemoryEntry | None:
        """Return the live entry of a key; one that has expired is buried, so that its namesake begins anew."""
        entry = await self.parts.entries.get(self.scope, key)
        if entry is None or entry.lives_at(self.now):
            return entry
        await self._remove([entry], ChangeKind.EXPIRE)
        return None

    async def _following(self, current: MemoryEntry | None, key: str, text: str, terms: MemoryTerms) -> MemoryEntry:
        """Return the entry that a write makes of the present one, or the first of a new life."""
        return MemoryEntry(
            session_id=self.scope.session_id,
            key=key,
            incarnation=current.incarnation
            if current
            else await self.parts.lines.last_incarnation(self.scope.line_id, key) + 1,
            version=current.version + 1 if current else 1,
            blob_hash=blob_hash(text),
            size=len(text.encode()),
            metadata=terms.metadata,
            created_at=current.created_at if current else self.now,
            updated_at=self.now,
            expires_at=self.now + terms.expires_in * 1_000_000 if terms.expires_in else None,
        )

    async def _check_room(self, growth: int, entry: MemoryEntry) -> None:
        """Refuse what would make the memory too large; shrinking it is always allowed."""
        limit = self.parts.limits.total_bytes
        if growth <= 0 or self.held.weight + growth <= limit:
            return
        # What has expired elsewhere and was not removed yet counts no more.
        live = self.held.weight - (await self.parts.entries.overdue(self.scope.owner, self.now)).weight
        if live + growth > limit:
            raise MemoryLimitExceeded(
                f"Your memory holds {live} of {limit} bytes; this write would make it {live + growth}.",
                used_bytes=live,
                limit_bytes=limit,
                value_size=entry.size,
            )

    async def _remove(self, entries: Sequence[MemoryEntry], act: ChangeKind) -> None:
        expired = act is ChangeKind.EXPIRE
        for entry in entries:
            await self.parts.entries.remove(self.scope, entry.key)
        await self._commit(
            [Change(entry.key, entry.incarnation, entry.version, act, None, ChangeMeta()) for entry in entries],
            act,
            growth=-sum(entry.weight for entry in entries),
            expired=len(entries) if expired else 0,
        )
        for entry in entries:
            await self.parts.lines.prune(self.scope.line_id, entry.key, keep=0)
        name = "memory.expired" if expired else "memory.deleted"
        self._news += [self._event(name, entry, by_itself=expired) for entry in entries]

    async def _commit(self, changes: Sequence[Change], reason: str, *, growth: int, expired: int = 0) -> None:
        actor = self.parts.actor
        commit = Commit(
            line_id=self.scope.line_id,
            seq=self.head.seq + 1,
            author=SYSTEM if expired else Author(actor.participant, actor.principal_id),
            committed_at=self.now,
            reason=reason,
            step=None,
            changes=tuple(changes),
        )
        self.head = await self.parts.lines.append(
            self.head,
            commit,
            weight=self.head.weight + growth,
            next_expiry_at=_earliest([self.head.next_expiry_at, *(change.meta.expires_at for change in changes)]),
        )
        await self.parts.entries.adjust(self.scope.owner, growth, expired)
        self.held = MemoryUsage(self.held.weight + growth, self.held.expired + expired)

    def _event(self, event_type: str, entry: MemoryEntry, *, by_itself: bool = False) -> NewEvent:
        return NewEvent(
            type=event_type,
            session_id=self.scope.session_id,
            subject=entry.key,
            actor=SYSTEM.participant if by_itself else self.parts.actor.participant,
            participants=self.session.audience if self.session else ANYONE,
            readable_by=(f"{PRINCIPAL}{self.scope.owner}",),
            data={
                "version": entry.version,
                "incarnation": entry.incarnation,
                "commit": self.head.seq,
                "scope": self.scope.name,
                "value_size": entry.size,
            },
        )


def _written(entry: MemoryEntry) -> Change:
    # What is forgotten must be gone, so history names what was said and does not repeat it.
    said = None if entry.metadata is None else blob_hash(entry.metadata).hex()
    meta = ChangeMeta(expires_at=entry.expires_at, size=entry.size, metadata_hash=said)
    return Change(entry.key, entry.incarnation, entry.version, ChangeKind.WRITE, entry.blob_hash, meta)


def _earliest(moments: Iterable[int | None]) -> int | None:
    return min((moment for moment in moments if moment is not None), default=None)
