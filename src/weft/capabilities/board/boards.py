"""A session's board, opened for one caller: to read, or to change behind the line's lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weft.capabilities.board.model import (
    Entry,
    KeyNotFound,
    SnapshotExists,
    SnapshotNotFound,
    check_key,
    check_room,
    check_value_size,
)
from weft.capabilities.board.store import EntryStore, ReadTally, TokenCounters
from weft.capabilities.history.model import (
    SYSTEM,
    Act,
    Author,
    Change,
    ChangeMeta,
    Commit,
    Head,
    Tag,
    Version,
    blob_hash,
    check_version,
    prune_due,
)
from weft.capabilities.history.store import LineStore
from weft.capabilities.sessions.model import Session, find_session, line_of, lock_active_session
from weft.capabilities.sessions.store import SessionStore
from weft.kernel.clock import Clock, to_micros
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.identity import ANYONE, Actor
from weft.kernel.ids import is_name
from weft.kernel.likeness import COMPARE_WITH, names_like

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.board.model import EntryWithValue


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a write may say beside the value. Patterns left out stay as they were."""

    if_version: int | None = None
    ttl_seconds: int | None = None
    readable_by: tuple[str, ...] | None = None
    writable_by: tuple[str, ...] | None = None


class Boards(msgspec.Struct, frozen=True):
    """Everything a board needs, gathered for the caller of one operation."""

    actor: Actor
    sessions: SessionStore
    entries: EntryStore
    lines: LineStore
    outbox: Outbox
    clock: Clock
    counters: TokenCounters
    tally: ReadTally

    async def to_read(self, session_id: str) -> Board:
        session = await find_session(session_id, self.actor, self.sessions)
        return Board(self, session, to_micros(self.clock.now()))

    async def to_write(self, session_id: str) -> OpenBoard:
        """Open a board behind its line's lock: what is read now cannot change until this transaction ends."""
        session, head = await lock_active_session(session_id, self.actor, self.sessions)
        board = OpenBoard(self, session, to_micros(self.clock.now()), head)
        await board.bury_expired()
        return board


@dataclass(slots=True)
class Board:
    """A board as its caller may see it."""

    parts: Boards
    session: Session
    now: int

    @property
    def line_id(self) -> str:
        return line_of(self.session.session_id)

    async def list(self) -> Sequence[Entry]:
        """Return every live entry, readable or not; callers show only what is readable."""
        return [e for e in await self.parts.entries.list(self.session.session_id) if e.lives_at(self.now)]

    async def read(self, keys: Sequence[str]) -> dict[str, EntryWithValue]:
        """Return those of the keys that are there for this caller."""
        for key in keys:
            check_key(key, namespaces=self.session.config.namespaces)
        found = await self.parts.entries.read(self.session.session_id, keys)
        visible = {f.entry.key: f for f in found if f.entry.lives_at(self.now) and f.entry.readable(self.parts.actor)}
        for key in visible:
            self.parts.tally.note(self.parts.actor.tenant, self.session.session_id, key, self.now)
        return visible

    async def visible(self) -> Sequence[EntryWithValue]:
        """Return every live entry this caller may read, with its value."""
        entries = await self.parts.entries.read_all(self.session.session_id)
        return [f for f in entries if f.entry.lives_at(self.now) and f.entry.readable(self.parts.actor)]

    async def missing(self, key: str) -> KeyNotFound:
        """Return the error for an absent key, naming the ones that look like it."""
        readable = [entry.key for entry in (await self.list())[:COMPARE_WITH] if entry.readable(self.parts.actor)]
        return KeyNotFound(
            f"The board has no key '{key}'.",
            resource_type="key",
            resource_id=key,
            available_alternatives=names_like(key, readable),
        )

    async def find_snapshot(self, label: str) -> Tag:
        tag = await self.parts.lines.find_tag(self.line_id, label) if is_name(label) else None
        if tag is None:
            raise SnapshotNotFound(f"The board has no snapshot '{label[:100]}'.", resource_id=label[:100])
        return tag

    async def state_at(self, seq: int) -> dict[str, Version]:
        """Return what the board held right after a commit."""
        return {version.change.key: version for version in await self.parts.lines.state_at(self.line_id, seq)}

    async def visible_at(self, seq: int) -> dict[str, Version]:
        """Return that part of an earlier state which the caller may read: by the patterns of then and of now."""
        return {
            key: version
            for key, version in (await self.state_at(seq)).items()
            if self.parts.actor.matches(version.change.meta.readable_by or ANYONE)
            and not await self.hides(key, version.change.life)
        }

    async def hides(self, key: str, life: int) -> bool:
        """Tell whether the last word on a key, in that life or today, keeps this caller from reading it.

        Deleting a key does not open what was closed before.
        """
        today = await self.parts.entries.get(self.session.session_id, key)
        if today is not None and not today.readable(self.parts.actor):
            return True
        last = await self.parts.lines.versions(self.line_id, key, life, 1)
        return bool(last) and not self.parts.actor.matches(last[0].change.meta.readable_by or ANYONE)


@dataclass(slots=True)
class OpenBoard(Board):
    """A board whose line is locked: nobody else changes it until the transaction ends."""

    head: Head

    async def write(self, key: str, value: str, terms: Terms) -> Entry:
        """Create or overwrite one entry."""
        parts, config = self.parts, self.session.config
        check_key(key, namespaces=config.namespaces)
        tokens = self._count(value)
        check_value_size(tokens, config)
        current = await parts.entries.get(self.session.session_id, key)
        self._check_may_change(key, current, terms.if_version)
        check_room(self.head.weight, current.tokens if current else 0, tokens, config)
        entry = Entry(
            key=key,
            life=current.life if current else await parts.lines.last_life(self.line_id, key) + 1,
            version=current.version + 1 if current else 1,
            blob_hash=blob_hash(value),
            tokens=tokens,
            written_by=parts.actor.participant,
            written_at=self.now,
            expires_at=self.now + terms.ttl_seconds * 1_000_000 if terms.ttl_seconds else None,
            readable_by=terms.readable_by or (current.readable_by if current else ANYONE),
            writable_by=terms.writable_by or (current.writable_by if current else ANYONE),
        )
        await parts.lines.put_blob(entry.blob_hash, value)
        await parts.entries.put(self.session.session_id, entry)
        await self._commit([change_of(entry)], "write", weight_change=tokens - (current.tokens if current else 0))
        await self._prune(entry)
        await parts.outbox.publish(self._event("board.written", entry))
        return entry

    async def delete(self, key: str, if_version: int | None) -> Entry:
        """Remove one entry; its history stays."""
        check_key(key, namespaces=self.session.config.namespaces)
        entry = await self.parts.entries.get(self.session.session_id, key)
        if entry is None or not (entry.readable(self.parts.actor) or entry.writable(self.parts.actor)):
            raise await self.missing(key)
        self._check_may_change(key, entry, if_version)
        await self._remove([entry], Act.DELETE, "delete")
        return entry

    async def snapshot(self, label: str) -> Tag:
        """Name the present state. Costs the same whatever the board holds."""
        if not is_name(label):
            raise InvalidInput("label: use letters, digits, underscores and dashes, at most 100", field="label")
        tag = Tag(label, self.head.seq, self.parts.actor.participant, self.now)
        if not await self.parts.lines.tag(self.line_id, tag):
            raise SnapshotExists(f"The board has a snapshot '{label}' already.", resource_id=label)
        await self.parts.outbox.publish(self._session_event("board.snapshot", label, {"seq": tag.seq}))
        return tag

    async def restore(self, tag: Tag) -> tuple[list[str], list[str]]:
        """Make the board hold what it held at a snapshot, as one new commit; name what was written and removed."""
        then = await self.state_at(tag.seq)
        now = {entry.key: entry for entry in await self.list()}
        removed = [entry for key, entry in now.items() if key not in then]
        changed = [version for key, version in then.items() if not _same(now.get(key), version)]
        for entry in (*removed, *(now[v.change.key] for v in changed if v.change.key in now)):
            self._check_may_change(entry.key, entry, None)
        written = [await self._revived(version, now.get(version.change.key), tag) for version in changed]
        freed = sum(e.tokens for e in removed) + sum(now[e.key].tokens for e in written if e.key in now)
        added = sum(entry.tokens for entry in written)
        check_room(self.head.weight, freed, added, self.session.config)
        for entry in written:
            await self.parts.entries.put(self.session.session_id, entry)
        for entry in removed:
            await self.parts.entries.remove(self.session.session_id, entry.key)
        changes = [change_of(entry) for entry in written] + [_removed(entry, Act.DELETE) for entry in removed]
        if changes:
            await self._commit(changes, f"restore {tag.label}", weight_change=added - freed)
        await self.parts.outbox.publish(
            *(self._event("board.written", entry, restored_from=tag.label) for entry in written),
            *(self._event("board.deleted", entry, restored_from=tag.label) for entry in removed),
            self._session_event("board.restored", tag.label, {"seq": self.head.seq}),
        )
        return self._names(written), self._names(removed)

    async def bury_expired(self) -> None:
        """Turn keys whose time has run out into history, before anything else is decided."""
        if self.head.next_expiry_at is None or self.head.next_expiry_at > self.now:
            return
        expired = [e for e in await self.parts.entries.list(self.session.session_id) if not e.lives_at(self.now)]
        if expired:
            await self._remove(expired, Act.EXPIRE, "expire", author=SYSTEM)
        next_expiry_at = await self.parts.entries.next_expiry(self.session.session_id)
        await self.parts.lines.set_next_expiry(self.line_id, next_expiry_at)
        self.head = structs.replace(self.head, next_expiry_at=next_expiry_at)

    async def _remove(self, entries: Sequence[Entry], act: Act, reason: str, *, author: Author | None = None) -> None:
        for entry in entries:
            await self.parts.entries.remove(self.session.session_id, entry.key)
        await self._commit(
            [_removed(entry, act) for entry in entries],
            reason,
            weight_change=-sum(entry.tokens for entry in entries),
            author=author,
        )
        name = "board.deleted" if act is Act.DELETE else "board.expired"
        await self.parts.outbox.publish(*(self._event(name, entry, author=author) for entry in entries))

    async def _commit(
        self, changes: Sequence[Change], reason: str, *, weight_change: int, author: Author | None = None
    ) -> None:
        commit = Commit(
            line_id=self.line_id,
            seq=self.head.seq + 1,
            author=author or Author(self.parts.actor.participant, self.parts.actor.principal_id),
            committed_at=self.now,
            reason=reason,
            step=None,
            changes=tuple(changes),
        )
        self.head = await self.parts.lines.append(
            self.head,
            commit,
            weight=self.head.weight + weight_change,
            next_expiry_at=_earliest([self.head.next_expiry_at, *(c.meta.expires_at for c in changes)]),
        )

    async def _revived(self, version: Version, present: Entry | None, tag: Tag) -> Entry:
        """Return an entry that says what an old version said, with the lifetime it had left when the tag was set."""
        change = version.change
        if version.value is None or change.blob_hash is None:
            raise SnapshotNotFound(f"The value of '{change.key}' in this snapshot is no longer kept.")
        expires_at = change.meta.expires_at
        return Entry(
            key=change.key,
            life=present.life if present else await self.parts.lines.last_life(self.line_id, change.key) + 1,
            version=present.version + 1 if present else 1,
            blob_hash=change.blob_hash,
            tokens=change.meta.tokens,
            written_by=self.parts.actor.participant,
            written_at=self.now,
            expires_at=None if expires_at is None else self.now + (expires_at - tag.created_at),
            readable_by=change.meta.readable_by or ANYONE,
            writable_by=change.meta.writable_by or ANYONE,
        )

    def _names(self, entries: Iterable[Entry]) -> list[str]:
        """Return the keys among these that the caller may know of."""
        return [entry.key for entry in entries if entry.readable(self.parts.actor)]

    async def _prune(self, entry: Entry) -> None:
        # Readers are shown the last keep_versions exactly; the values behind them are dropped a few at a time.
        keep = self.session.config.keep_versions
        if prune_due(entry.life, entry.version, keep):
            await self.parts.lines.prune(self.line_id, entry.key, keep)

    def _count(self, value: str) -> int:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput("value: not valid text (it holds half of a surrogate pair)", field="value") from error
        # Even an empty value takes up a key, and a board of nothing but keys must fill up too.
        return max(1, self.parts.counters.named(self.session.config.tokenizer)(value))

    def _check_may_change(self, key: str, current: Entry | None, if_version: int | None) -> None:
        if current is not None and not current.writable(self.parts.actor):
            raise _not_writable(current, self.parts.actor)
        check_version(key, current.version if current else 0, if_version)

    def _event(
        self, event_type: str, entry: Entry, *, restored_from: str | None = None, author: Author | None = None
    ) -> NewEvent:
        data = {"version": entry.version, "life": entry.life, "value_size_tokens": entry.tokens}
        return NewEvent(
            type=event_type,
            session_id=self.session.session_id,
            subject=entry.key,
            actor=author.participant if author else self.parts.actor.participant,
            participants=self.session.audience,
            readable_by=entry.readable_by,
            data=data if restored_from is None else {**data, "restored_from": restored_from},
        )

    def _session_event(self, event_type: str, subject: str, data: dict[str, int]) -> NewEvent:
        return NewEvent(
            type=event_type,
            session_id=self.session.session_id,
            subject=subject,
            actor=self.parts.actor.participant,
            participants=self.session.audience,
            data=data,
        )


def _not_writable(entry: Entry, actor: Actor) -> PermissionDenied:
    """Return the refusal; to whoever may not even read the key it says nothing about those who may."""
    if not entry.readable(actor):
        return PermissionDenied(f"You may not change the key '{entry.key}'.", key=entry.key)
    return PermissionDenied(
        f"The key '{entry.key}' may only be changed by {', '.join(entry.writable_by)}.", key=entry.key
    )


def change_of(entry: Entry) -> Change:
    return Change(entry.key, entry.life, entry.version, Act.WRITE, entry.blob_hash, _meta(entry))


def _removed(entry: Entry, act: Act) -> Change:
    return Change(entry.key, entry.life, entry.version, act, None, ChangeMeta(readable_by=_meta(entry).readable_by))


def _meta(entry: Entry) -> ChangeMeta:
    return ChangeMeta(
        tokens=entry.tokens,
        expires_at=entry.expires_at,
        readable_by=None if entry.readable_by == ANYONE else entry.readable_by,
        writable_by=None if entry.writable_by == ANYONE else entry.writable_by,
    )


def _same(entry: Entry | None, version: Version) -> bool:
    """Tell whether an entry already says, to the same readers and writers, what an old version said."""
    return (
        entry is not None
        and entry.blob_hash == version.change.blob_hash
        and entry.expires_at is None
        and _meta(entry) == version.change.meta
    )


def _earliest(moments: Iterable[int | None]) -> int | None:
    return min((moment for moment in moments if moment is not None), default=None)
