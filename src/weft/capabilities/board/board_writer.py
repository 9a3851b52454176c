"""A board, or a branch of it, whose line is locked: everything that changes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weft.capabilities.access.grants import check_clearance
from weft.capabilities.board.board_view import BoardView
from weft.capabilities.board.model import Entry, check_key, check_room, check_value_size, intersect_acls
from weft.capabilities.board.read_acl import last_words
from weft.capabilities.history.commits import check_label, record, tag_automatically
from weft.capabilities.history.line_backend import CommitMeta, RestorePoint
from weft.capabilities.history.model import (
    SYSTEM,
    Author,
    BranchLimit,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    SnapshotExists,
    Tag,
    VersionPruned,
    blob_hash,
    check_version,
    prune_due,
    trunk_of,
)
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.events import NewEvent
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.capabilities.board.model import Patterns
    from weft.capabilities.history.model import Head, Version
    from weft.kernel.identity import Actor

# Behind so many keys it is quicker to look at all there are.
_LOOK_UP_AT_MOST = 20
# What taking a board back to an earlier state needs.
ROLLBACK_CLEARANCE = 3
MAX_BRANCHES = 100


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a change may say beside key and value. Patterns left out stay as they were."""

    if_version: int | None = None
    ttl_seconds: int | None = None
    readable_by: Patterns | None = None
    writable_by: Patterns | None = None
    reason: str | None = None
    step: str | None = None


class ApplyResult(NamedTuple):
    """The keys that a board was made to say something else in, or nothing, as far as the caller may know of them."""

    written: list[str]
    removed: list[str]


@dataclass(slots=True)
class BoardWriter(BoardView):
    """A board whose line is locked: nobody else changes it until the transaction ends."""

    head: Head

    async def write(self, key: str, value: str, terms: WriteOptions) -> Entry:
        """Create or overwrite one entry."""
        parts, config = self.parts, self.session.config
        check_key(key, namespaces=config.namespaces)
        tokens = self._count(value)
        check_value_size(tokens, config)
        current = await self.entries.get(self.session.session_id, key)
        self._check_may_change(key, current, terms.if_version)
        self._check_may_open(current, terms.readable_by)
        freed = current.tokens if current else 0
        check_room(self.head.weight, freed, tokens, config)
        entry = Entry(
            key=key,
            incarnation=current.incarnation if current else await parts.lines.last_incarnation(self.line_id, key) + 1,
            version=current.version + 1 if current else 1,
            blob_hash=blob_hash(value),
            tokens=tokens,
            written_by=parts.actor.participant,
            written_at=self.now,
            expires_at=self.now + terms.ttl_seconds * 1_000_000 if terms.ttl_seconds else None,
            readable_by=terms.readable_by or (current.readers if current else ANYONE),
            writable_by=terms.writable_by or (current.writable_by if current else ANYONE),
        )
        await parts.lines.put_blob(entry.blob_hash, value)
        await self.entries.put(self.session.session_id, entry)
        why = CommitMeta(terms.reason or "write", terms.step)
        await self._commit([change_of(entry)], why, weight_change=tokens - freed)
        await self._prune(entry)
        await parts.outbox.publish(self._key_event("written", entry))
        await self._notify([entry])
        return entry

    async def delete(self, key: str, terms: WriteOptions) -> Entry:
        """Remove one entry; its history stays."""
        check_key(key, namespaces=self.session.config.namespaces)
        entry = await self.entries.get(self.session.session_id, key)
        if entry is None or not (entry.readable(self.parts.actor) or entry.writable(self.parts.actor)):
            raise await self.missing(key)
        self._check_may_change(key, entry, terms.if_version)
        await self._remove([entry], ChangeKind.DELETE, CommitMeta(terms.reason or "delete", terms.step))
        return entry

    async def snapshot(self, label: str) -> Tag:
        """Name the present state. Costs the same whatever the board holds."""
        check_label(label)
        tag = Tag(label, self.head.seq, self.parts.actor.participant, self.now)
        if not await self.parts.lines.tag(self.line_id, tag):
            raise SnapshotExists(f"The board has a snapshot '{label}' already.", resource_id=label)
        await self.announce(self._named("snapshot"), label, {"seq": tag.seq})
        return tag

    async def restore(self, label: str) -> ApplyResult:
        """Make the board hold what it held at a snapshot, as one new commit; the state before it gets a name."""
        check_clearance(self.parts.actor, ROLLBACK_CLEARANCE, "Taking a board back")
        tag = await self.find_snapshot(label)
        await tag_automatically(self.parts.lines, self.head, "before-restore", self.parts.actor.participant, self.now)
        then = await self.state_at(tag.seq)
        gone = {entry.key: None for entry in await self.live() if entry.key not in then}
        why = CommitMeta(f"restore {label}", restored=RestorePoint(label, tag.created_at))
        outcome = await self._make({**then, **gone}, why)
        await self.announce(self._named("restored"), label, {"seq": self.head.seq})
        return outcome

    async def apply(self, state: Mapping[str, Version | None], why: CommitMeta) -> Head:
        """Make keys say what these versions said (None: make them go), as one new commit."""
        await self._make(state, why)
        return self.head

    async def announce(self, event_type: str, subject: str, data: Mapping[str, object]) -> None:
        """Publish what was done to the board itself, to those who take part in its session."""
        await self.parts.outbox.publish(self._event(event_type, subject, data))

    async def note_branches(self, change: int) -> None:
        # Only upwards: whoever was switched to a branch that is gone must be told, so the board goes on looking.
        if change <= 0:
            return
        if len(await self.parts.lines.branches(trunk_of(self.line_id))) > MAX_BRANCHES:
            raise BranchLimit(f"A board may have {MAX_BRANCHES} branches.", limit=MAX_BRANCHES)
        await self.parts.sessions.add_branches(self.session.session_id, change)

    async def expire_entries(self) -> None:
        """Turn keys whose time has run out into history, before anything else is decided."""
        if self.head.next_expiry_at is None or self.head.next_expiry_at > self.now:
            return
        expired = [e for e in await self.entries.list(self.session.session_id) if not e.lives_at(self.now)]
        if expired:
            await self._remove(expired, ChangeKind.EXPIRE, CommitMeta("expire"), author=SYSTEM)
        next_expiry_at = await self.entries.next_expiry(self.session.session_id)
        await self.parts.lines.set_next_expiry(self.line_id, next_expiry_at)
        self.head = structs.replace(self.head, next_expiry_at=next_expiry_at)

    async def _make(self, state: Mapping[str, Version | None], why: CommitMeta) -> ApplyResult:
        now = {entry.key: entry for entry in await self._present(state)}
        written = [
            entry
            for version in await self._brought_in(state, now, why)
            if (entry := await self._revived(version, now.get(version.change.key), why)) is not None
        ]
        removed = [now[key] for key, version in state.items() if key in now and not self._stands(version, why)]
        replaced = [now[entry.key] for entry in written if entry.key in now]
        self._check_may_replace((*removed, *replaced))
        await self._replace(written, removed, freed=sum(entry.tokens for entry in (*removed, *replaced)), why=why)
        for entry in written:
            await self._prune(entry)
        said = _origin(why)
        await self.parts.outbox.publish(
            *(self._key_event("written", entry, said) for entry in written),
            *(self._key_event("deleted", entry, said) for entry in removed),
        )
        await self._notify(written)
        return ApplyResult(self._names(written), self._names(removed))

    async def _brought_in(
        self, state: Mapping[str, Version | None], now: Mapping[str, Entry], why: CommitMeta
    ) -> list[Version]:
        """Return the versions that say something new, each readable only by those who might read it where it is from.

        Neither going back nor merging opens what was closed since; only whoever writes the key can say so.
        """
        coming = [version for version in state.values() if version is not None]
        news = [version for version in coming if not self._is_said(version, now.get(version.change.key), why)]
        source = why.merged.line_id if why.merged else self.line_id
        words = await last_words(self.parts.lines, source, news)
        return [_closed(version, said, now.get(version.change.key)) for version, said in zip(news, words, strict=True)]

    async def _present(self, keys: Mapping[str, object]) -> Sequence[Entry]:
        if len(keys) > _LOOK_UP_AT_MOST:
            return [entry for entry in await self.entries.list(self.session.session_id) if entry.key in keys]
        found = [await self.entries.get(self.session.session_id, key) for key in keys]
        return [entry for entry in found if entry is not None]

    async def _replace(
        self, written: Sequence[Entry], removed: Sequence[Entry], *, freed: int, why: CommitMeta
    ) -> None:
        added = sum(entry.tokens for entry in written)
        check_room(self.head.weight, freed, added, self.session.config)
        for entry in written:
            await self.entries.put(self.session.session_id, entry)
        for entry in removed:
            await self.entries.remove(self.session.session_id, entry.key)
        changes = [change_of(entry) for entry in written] + [_removed(entry, ChangeKind.DELETE) for entry in removed]
        if changes or why.merged is not None:
            await self._commit(changes, why, weight_change=added - freed)

    def _stands(self, version: Version | None, why: CommitMeta) -> bool:
        """Tell whether a key is to be there afterwards: what has expired on the other side is not brought in."""
        if version is None:
            return False
        expires_at = self._expiry(version, why)
        return expires_at is None or expires_at > self.now

    def _expiry(self, version: Version, why: CommitMeta) -> int | None:
        """Return when a version brought in ends; one brought back has the lifetime left that it had at that moment."""
        expires_at = version.change.meta.expires_at
        if expires_at is None or why.restored is None:
            return expires_at
        return self.now + expires_at - why.restored.at

    async def _revived(self, version: Version, present: Entry | None, why: CommitMeta) -> Entry | None:
        """Return the entry that says what a version said; None if the present one does, or its time has run out."""
        change = version.change
        meta = structs.replace(change.meta, expires_at=self._expiry(version, why))
        if not self._stands(version, why) or self._is_said(version, present, why):
            return None
        return Entry(
            key=change.key,
            incarnation=present.incarnation
            if present
            else await self.parts.lines.last_incarnation(self.line_id, change.key) + 1,
            version=present.version + 1 if present else 1,
            blob_hash=await self._kept(version),
            tokens=meta.tokens or self._counted(version.value or ""),
            written_by=self.parts.actor.participant,
            written_at=self.now,
            expires_at=meta.expires_at,
            readable_by=meta.readable_by or ANYONE,
            writable_by=meta.writable_by or ANYONE,
        )

    def _is_said(self, version: Version, present: Entry | None, why: CommitMeta) -> bool:
        meta = structs.replace(version.change.meta, expires_at=self._expiry(version, why))
        # What is brought back has its lifetime counted anew, even if nothing else is different.
        lasts = why.restored is None or meta.expires_at is None
        return lasts and _says(present, version.change.blob_hash, meta)

    async def _kept(self, version: Version) -> bytes:
        """Return the hash of a version's value, which nobody forgets before this transaction ends."""
        change = version.change
        if version.value is None or change.blob_hash is None:
            known = self.parts.actor.matches(change.meta.readable_by or ANYONE)
            raise VersionPruned(f"The value of '{change.key}' is no longer kept." if known else None)
        await self.parts.lines.put_blob(change.blob_hash, version.value)
        return change.blob_hash

    async def _remove(
        self, entries: Sequence[Entry], act: ChangeKind, why: CommitMeta, *, author: Author | None = None
    ) -> None:
        for entry in entries:
            await self.entries.remove(self.session.session_id, entry.key)
        weight_change = -sum(entry.tokens for entry in entries)
        await self._commit([_removed(entry, act) for entry in entries], why, weight_change=weight_change, author=author)
        done = "deleted" if act is ChangeKind.DELETE else "expired"
        await self.parts.outbox.publish(*(self._key_event(done, entry, author=author) for entry in entries))

    async def _commit(
        self, changes: Sequence[Change], why: CommitMeta, *, weight_change: int, author: Author | None = None
    ) -> None:
        commit = Commit(
            line_id=self.line_id,
            seq=self.head.seq + 1,
            author=author or Author(self.parts.actor.participant, self.parts.actor.principal_id),
            committed_at=self.now,
            reason=why.reason,
            step=why.step,
            changes=tuple(changes),
            merged=why.merged,
        )
        self.head = await record(
            self.parts.lines,
            self.head,
            commit,
            weight=self.head.weight + weight_change,
            next_expiry_at=_earliest([self.head.next_expiry_at, *(c.meta.expires_at for c in changes)]),
        )

    async def _notify(self, written: Iterable[Entry]) -> None:
        if self.branch is not None:
            return
        for entry in written:
            await self.parts.observer.entry_written(self.session, entry)

    def _names(self, entries: Iterable[Entry]) -> list[str]:
        """Return the keys among these that the caller may know of."""
        return [entry.key for entry in entries if entry.readable(self.parts.actor)]

    async def _prune(self, entry: Entry) -> None:
        # Readers are shown the last keep_versions exactly; the values behind them are dropped a few at a time.
        keep = self.session.config.keep_versions
        if prune_due(entry.incarnation, entry.version, keep):
            await self.parts.lines.prune(self.line_id, entry.key, keep)

    def _count(self, value: str) -> int:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput("value: not valid text (it holds half of a surrogate pair)", field="value") from error
        # Even an empty value takes up a key, and a board of nothing but keys must fill up too.
        return max(1, self.parts.counters.named(self.session.config.tokenizer)(value))

    def _counted(self, value: str) -> int:
        """Return the size of a value that was never on a board, such as one that settles a merge."""
        tokens = self._count(value)
        check_value_size(tokens, self.session.config)
        return tokens

    def _check_may_change(self, key: str, current: Entry | None, if_version: int | None) -> None:
        if current is not None and not current.writable(self.parts.actor):
            raise _not_writable(current, self.parts.actor)
        check_version(key, current.version if current else 0, if_version)

    def _check_may_open(self, current: Entry | None, readable_by: tuple[str, ...] | None) -> None:
        """Refuse to let anyone decide who reads a key which they may not read, and so its past, themselves."""
        actor = self.parts.actor
        if current is None or readable_by is None or actor.is_admin or current.readable(actor):
            return
        raise PermissionDenied(f"You may not change who reads the key '{current.key}'.", key=current.key)

    def _check_may_replace(self, entries: Iterable[Entry]) -> None:
        """Refuse what would change keys that the caller may not change, without naming any that it may not read."""
        actor = self.parts.actor
        barred = [entry for entry in entries if not entry.writable(actor)]
        known = [entry for entry in barred if entry.readable(actor)]
        if known:
            raise _not_writable(known[0], actor)
        if barred:
            raise PermissionDenied("This would change a key that you may not change.")

    def _named(self, done: str) -> str:
        """Return the type of an event: what is done on a branch is never taken for what is done on the board."""
        return f"board.{done}" if self.branch is None else f"branch.{done}"

    def _key_event(
        self, done: str, entry: Entry, said: Mapping[str, object] | None = None, *, author: Author | None = None
    ) -> NewEvent:
        # With its commit, the version that the event tells of is found without looking through the key's history.
        about = {"version": entry.version, "incarnation": entry.incarnation, "commit": self.head.seq}
        data = {**about, "value_size_tokens": entry.tokens, **(said or {})}
        return self._event(self._named(done), entry.key, data, readable_by=entry.readers, author=author)

    def _event(
        self,
        event_type: str,
        subject: str,
        data: Mapping[str, object],
        *,
        readable_by: Patterns = ANYONE,
        author: Author | None = None,
    ) -> NewEvent:
        return NewEvent(
            type=event_type,
            session_id=self.session.session_id,
            subject=subject,
            actor=author.participant if author else self.parts.actor.participant,
            participants=self.session.audience,
            readable_by=readable_by,
            data={**data} if self.branch is None else {**data, "branch": self.branch},
        )


def _not_writable(entry: Entry, actor: Actor) -> PermissionDenied:
    """Return the refusal; to whoever may not even read the key it says nothing about those who may."""
    if not entry.readable(actor):
        return PermissionDenied(f"You may not change the key '{entry.key}'.", key=entry.key)
    return PermissionDenied(
        f"The key '{entry.key}' may only be changed by {', '.join(entry.writable_by)}.", key=entry.key
    )


def change_of(entry: Entry) -> Change:
    return Change(entry.key, entry.incarnation, entry.version, ChangeKind.WRITE, entry.blob_hash, _meta(entry))


def _removed(entry: Entry, act: ChangeKind) -> Change:
    return Change(
        entry.key, entry.incarnation, entry.version, act, None, ChangeMeta(readable_by=_unless_open(entry.readers))
    )


def _meta(entry: Entry) -> ChangeMeta:
    return ChangeMeta(
        tokens=entry.tokens,
        expires_at=entry.expires_at,
        readable_by=_unless_open(entry.readable_by),
        writable_by=_unless_open(entry.writable_by),
    )


def _unless_open(patterns: Patterns) -> Patterns | None:
    return None if patterns == ANYONE else patterns


def _says(entry: Entry | None, value: bytes | None, meta: ChangeMeta) -> bool:
    """Tell whether an entry says this, to the same readers and writers and for the same time."""
    return entry is not None and entry.blob_hash == value and _meta(entry) == meta


def _closed(version: Version, said_since: Iterable[Patterns], present: Entry | None) -> Version:
    """Return a version as it may be brought in: closed to all to whom its key was closed since, there or here."""
    own = version.change.meta.readable_by
    # A value that settles a merge is as new as a write, whatever was said of others before.
    since = said_since if version.seq else ()
    here = present.readers if present is not None and own is None else ANYONE
    meta = structs.replace(version.change.meta, readable_by=_unless_open(intersect_acls(own or ANYONE, *since, here)))
    return structs.replace(version, change=structs.replace(version.change, meta=meta))


def _origin(why: CommitMeta) -> dict[str, object]:
    """Return what those who are told of a change should know of where it comes from."""
    if why.restored is not None:
        return {"restored_from": why.restored.name}
    return {} if why.merged is None else {"merged_from": why.merged.line_id}


def _earliest(moments: Iterable[int | None]) -> int | None:
    return min((moment for moment in moments if moment is not None), default=None)
