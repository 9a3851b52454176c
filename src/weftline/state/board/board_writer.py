"""Write access to a board or a branch of it: write, delete, snapshot, apply a restore or merge, expire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import structs

from weftline.history.commits import add_snapshot, record
from weftline.history.line_kinds import CommitMeta
from weftline.history.model import (
    LATEST,
    SYSTEM,
    Author,
    BranchLimit,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    KeyNumber,
    VersionPruned,
    blob_hash,
    prune_due,
    trunk_of,
    version_conflict,
)
from weftline.history.revisions import last_change
from weftline.indexing.pins import ItemPlace
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import ANYONE
from weftline.kernel.ports import approximate_tokens
from weftline.safety.trust.gate import Admission, IncomingContent
from weftline.state.board.board_view import BoardView, restrict, unless_open
from weftline.state.board.model import (
    Entry,
    check_acl,
    check_key,
    check_key_count,
    check_room,
    check_value_size,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.history.model import Head, Tag, Version
    from weftline.kernel.identity import Actor
    from weftline.kernel.patterns import Patterns

# Above this many keys, one query for all entries is faster.
_MAX_SINGLE_LOOKUPS = 20
MAX_BRANCHES = 100
# Keys that are pruned with one merge or restore; others are with one of their next writes.
_MAX_PRUNED_KEYS = 50

_Done = Literal["written", "deleted", "expired", "snapshot", "restored"]
_BOARD_EVENTS: dict[_Done, EventType] = {
    "written": "board.written",
    "deleted": "board.deleted",
    "expired": "board.expired",
    "snapshot": "board.snapshot",
    "restored": "board.restored",
}
# A branch has event types of its own, so that subscribers of the board see only the board.
_BRANCH_EVENTS: dict[_Done, EventType] = {
    "written": "branch.written",
    "deleted": "branch.deleted",
    "expired": "branch.expired",
    "snapshot": "branch.snapshot",
    "restored": "branch.restored",
}


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Optional arguments of a write or delete. ACLs that are None stay unchanged."""

    if_version: int | None = None
    ttl_seconds: int | None = None
    readable_by: Patterns | None = None
    writable_by: Patterns | None = None
    reason: str | None = None
    step: str | None = None
    derived_from: tuple[str, ...] = ()
    # That of JSON; None for text.
    media_type: str | None = None
    # The value is a text of Weftline, made of texts that have passed the gate.
    is_admitted: bool = False


@dataclass(slots=True)
class BoardWriter(BoardView):
    """A board locked for one writer until the transaction ends."""

    head: Head

    async def write(self, key: str, value: str, options: WriteOptions) -> Entry:
        """Create or overwrite one entry."""
        boards, config = self.boards, self.session.config
        check_key(key, namespaces=config.namespaces)
        check_acl("readable_by", options.readable_by)
        check_acl("writable_by", options.writable_by)
        tokens = self._count(value)
        check_value_size(tokens, config)
        current = await self.entries.get(self.session.session_id, key)
        await self._check_may_change(key, current, options.if_version)
        admitted, label = await self._admitted(key, value, options)
        if admitted is not value:
            value, tokens = admitted, self._count(admitted)
        freed = current.tokens if current else 0
        if current is None:
            await self._check_keys(1)
        check_room(self.head.weight, freed, tokens, config)
        number = await self._next_number(key, current)
        entry = Entry(
            key=key,
            incarnation=number.incarnation,
            version=number.version,
            blob_hash=blob_hash(value),
            tokens=tokens,
            written_by=boards.actor.participant,
            written_at=self.now,
            expires_at=self.now + options.ttl_seconds * 1_000_000 if options.ttl_seconds else None,
            readable_by=options.readable_by or (current.readers if current else ANYONE),
            writable_by=options.writable_by or (current.writable_by if current else ANYONE),
            trust=label,
            media_type=options.media_type,
        )
        if current is not None and self.branch is None:
            await boards.pins.resize(ItemPlace.of_board_key(self.session.session_id, key), approximate_tokens(value))
        await boards.lines.put_blob(entry.blob_hash, value)
        await self.entries.put(self.session.session_id, entry)
        reason = await boards.gate.admit_note("reason", options.reason)
        commit_meta = CommitMeta(reason or "write", options.step)
        await self._commit([change_of(entry)], commit_meta, weight_change=tokens - freed)
        await self._prune(entry)
        if entry.readable_by != ANYONE:
            await self._note_acls([entry])
        await boards.outbox.publish(self._key_event("written", entry))
        await self._notify([entry])
        return entry

    async def _admitted(self, key: str, value: str, options: WriteOptions) -> Admission:
        if options.is_admitted:
            return Admission(value, None)
        is_json = options.media_type is not None
        content = IncomingContent("board_entry", key, value, derived_from=options.derived_from, is_json=is_json)
        return await self.boards.gate.admit(content)

    async def delete(self, key: str, options: WriteOptions) -> Entry:
        """Remove one entry; its history stays."""
        check_key(key, namespaces=self.session.config.namespaces)
        entry = await self.entries.get(self.session.session_id, key)
        if entry is None or not (entry.readable(self.boards.actor) or self.boards.actor.is_admin):
            raise await self.missing(key)
        await self._check_may_change(key, entry, options.if_version)
        reason = await self.boards.gate.admit_note("reason", options.reason)
        await self._remove([entry], ChangeKind.DELETE, CommitMeta(reason or "delete", options.step))
        return entry

    async def snapshot(self, label: str) -> Tag:
        """Name the current version. Copies nothing."""
        tag = await add_snapshot(self.boards.lines, self.head, label, self.boards.actor, self.now)
        await self.announce(self._event_type("snapshot"), label, {"seq": tag.seq})
        return tag

    async def announce_restore(self, label: str) -> None:
        await self.announce(self._event_type("restored"), label, {"seq": self.head.seq})

    async def announce(self, event_type: EventType, subject: str, data: Mapping[str, object]) -> None:
        """Publish an event about the board itself to the participants of its session."""
        await self.boards.outbox.publish(self._event(event_type, subject, data))

    async def note_branches(self, change: int) -> None:
        # Never decremented: a checkout of a deleted branch must still be found and reported.
        if change <= 0:
            return
        if len(await self.boards.lines.branches(trunk_of(self.line_id))) > MAX_BRANCHES:
            raise BranchLimit(f"A board may have {MAX_BRANCHES} branches.", limit=MAX_BRANCHES)
        await self.boards.sessions.add_branches(self.session.session_id, change)

    async def expire_entries(self) -> None:
        """Commit the expiry of entries whose time to live has ended, before any other change."""
        if not self.head.has_expired(self.now):
            return
        expired = [e for e in await self.entries.list(self.session.session_id) if not e.lives_at(self.now)]
        if expired:
            await self._remove(expired, ChangeKind.EXPIRE, CommitMeta("expire"), author=SYSTEM)
        next_expiry_at = await self.entries.next_expiry(self.session.session_id)
        await self.boards.lines.set_next_expiry(self.line_id, next_expiry_at)
        self.head = structs.replace(self.head, next_expiry_at=next_expiry_at)

    async def apply(self, state: Mapping[str, Version | None], commit_meta: CommitMeta) -> Head:
        """Set keys to the content of these versions (None: delete them), as one new commit.

        Read ACLs set since these versions still apply: see ``read_acl.restrict``.
        """
        now = {entry.key: entry for entry in await self._current_entries(state)}
        brought = [
            version
            for version in await self._restricted(state, now, commit_meta)
            if self._survives(version, commit_meta)
            and not self._is_current(version, now.get(version.change.key), commit_meta)
        ]
        past = await self._last_numbers(brought, now)
        written = [self._new_entry(version, now.get(version.change.key), past, commit_meta) for version in brought]
        removed = [
            now[key] for key, version in state.items() if key in now and not self._survives(version, commit_meta)
        ]
        replaced = [now[entry.key] for entry in written if entry.key in now]
        self._check_may_replace((*removed, *replaced))
        await self._check_keys(len(written) - len(replaced) - len(removed))
        await self._keep_values(brought)
        await self._resize_pins(written, removed)
        await self._replace(
            written, removed, freed=sum(entry.tokens for entry in (*removed, *replaced)), commit_meta=commit_meta
        )
        for entry in [each for each in written if self._is_prune_due(each)][:_MAX_PRUNED_KEYS]:
            await self._prune(entry)
        await self._note_acls(written)
        origin = _origin(commit_meta)
        await self.boards.outbox.publish(
            *(self._key_event("written", entry, origin) for entry in written),
            *(self._key_event("deleted", entry, origin) for entry in removed),
        )
        await self._notify(written)
        return self.head

    async def _resize_pins(self, written: Sequence[Entry], removed: Sequence[Entry]) -> None:
        """Count the new sizes of pinned keys; those of a branch count when it is merged."""
        if self.branch is None:
            sizes = {entry.key: entry.tokens for entry in written} | dict.fromkeys(entry.key for entry in removed)
            session_id = self.session.session_id
            await self.boards.pins.resize_all(
                {ItemPlace.of_board_key(session_id, key): tokens for key, tokens in sizes.items()}
            )

    async def _restricted(
        self, state: Mapping[str, Version | None], now: Mapping[str, Entry], commit_meta: CommitMeta
    ) -> list[Version]:
        """Return the versions that change something, with narrowed ACLs: only a write of a key widens its ACL."""
        versions = [version for version in state.values() if version is not None]
        changed = [
            version for version in versions if not self._is_current(version, now.get(version.change.key), commit_meta)
        ]
        is_open = all(version.change.meta.readable_by is None for version in changed)
        if is_open and not await self.boards.sessions.has_key_acls(self.session.session_id):
            return changed
        source = commit_meta.merged.line_id if commit_meta.merged else self.line_id
        return await restrict(self.boards.lines, changed, source, self.line_id, now)

    async def _current_entries(self, keys: Mapping[str, object]) -> Sequence[Entry]:
        if len(keys) > _MAX_SINGLE_LOOKUPS:
            return [entry for entry in await self.entries.list(self.session.session_id) if entry.key in keys]
        found = [await self.entries.get(self.session.session_id, key) for key in keys]
        return [entry for entry in found if entry is not None]

    async def _replace(
        self, written: Sequence[Entry], removed: Sequence[Entry], *, freed: int, commit_meta: CommitMeta
    ) -> None:
        added = sum(entry.tokens for entry in written)
        check_room(self.head.weight, freed, added, self.session.config)
        await self.entries.put_all(self.session.session_id, written)
        await self.entries.remove_all(self.session.session_id, [entry.key for entry in removed])
        changes = [change_of(entry) for entry in written] + [_deletion(entry, ChangeKind.DELETE) for entry in removed]
        if changes or commit_meta.merged is not None:
            await self._commit(changes, commit_meta, weight_change=added - freed)

    def _survives(self, version: Version | None, commit_meta: CommitMeta) -> bool:
        """Tell whether a version exists after the change: not if it is a deletion or has expired."""
        if version is None:
            return False
        expires_at = self._expiry(version, commit_meta)
        return expires_at is None or expires_at > self.now

    def _expiry(self, version: Version, commit_meta: CommitMeta) -> int | None:
        """Return the expiry of a version; a restored one gets the time to live that was left at the restore point."""
        expires_at = version.change.meta.expires_at
        if expires_at is None or commit_meta.restored is None:
            return expires_at
        return self.now + expires_at - commit_meta.restored.at

    async def _next_number(self, key: str, current: Entry | None) -> KeyNumber:
        """Return the number of the next version of a key, never one of a deleted session or branch of this name."""
        lines = self.boards.lines
        if current is None:
            return (await lines.last_number(self.line_id, key)).created_again
        if self.branch is None:
            return current.number.next
        before = await lines.before_first(self.line_id)
        return current.number.not_below(before).next

    async def _last_numbers(self, versions: Sequence[Version], now: Mapping[str, Entry]) -> dict[str, KeyNumber]:
        """Return the last numbers of keys that do not exist now, as far as they existed before."""
        gone = [version.change.key for version in versions if version.change.key not in now]
        if not gone:
            return {}
        lines = self.boards.lines
        last = await lines.last_changes(self.line_id, gone, LATEST)
        before = await lines.before_first(self.line_id)
        known = {each.change.key: KeyNumber.of(each.change) for each in last}
        return dict.fromkeys(gone, before) | {key: number.not_below(before) for key, number in known.items()}

    def _new_entry(
        self, version: Version, present: Entry | None, past: Mapping[str, KeyNumber], commit_meta: CommitMeta
    ) -> Entry:
        change = version.change
        meta = structs.replace(change.meta, expires_at=self._expiry(version, commit_meta))
        number = present.number.next if present else past[change.key].created_again
        return Entry(
            key=change.key,
            incarnation=number.incarnation,
            version=number.version,
            blob_hash=self._hash_of(version),
            tokens=meta.tokens or self.checked_tokens(version.value or ""),
            written_by=self.boards.actor.participant,
            written_at=self.now,
            expires_at=meta.expires_at,
            readable_by=meta.readable_by or ANYONE,
            writable_by=meta.writable_by or ANYONE,
            trust=meta.trust,
            media_type=meta.media_type,
        )

    def _is_current(self, version: Version, present: Entry | None, commit_meta: CommitMeta) -> bool:
        if present is None or present.blob_hash != version.change.blob_hash:
            return False
        meta = structs.replace(version.change.meta, expires_at=self._expiry(version, commit_meta))
        # A restored time to live starts again, even if nothing else differs.
        lasts = commit_meta.restored is None or meta.expires_at is None
        return lasts and _meta(present) == meta

    def _hash_of(self, version: Version) -> bytes:
        """Return the hash of a version's value; raises VersionPruned if the value is gone."""
        change = version.change
        if version.value is None or change.blob_hash is None:
            known = self.boards.actor.matches(change.meta.readable_by or ANYONE)
            raise VersionPruned(f"The value of '{change.key}' was pruned." if known else None)
        return change.blob_hash

    async def _keep_values(self, versions: Sequence[Version]) -> None:
        """Store the values of versions again, so that pruning cannot remove them meanwhile."""
        await self.boards.lines.put_blobs({self._hash_of(version): version.value or "" for version in versions})

    async def _remove(
        self, entries: Sequence[Entry], act: ChangeKind, commit_meta: CommitMeta, *, author: Author | None = None
    ) -> None:
        await self.entries.remove_all(self.session.session_id, [entry.key for entry in entries])
        if self.branch is None:
            for entry in entries:
                await self.boards.pins.forget(ItemPlace.of_board_key(self.session.session_id, entry.key))
        weight_change = -sum(entry.tokens for entry in entries)
        await self._commit(
            [_deletion(entry, act) for entry in entries], commit_meta, weight_change=weight_change, author=author
        )
        done: _Done = "deleted" if act is ChangeKind.DELETE else "expired"
        await self.boards.outbox.publish(*(self._key_event(done, entry, author=author) for entry in entries))

    async def _commit(
        self, changes: Sequence[Change], commit_meta: CommitMeta, *, weight_change: int, author: Author | None = None
    ) -> None:
        commit = Commit(
            line_id=self.line_id,
            seq=self.head.seq + 1,
            author=author or Author(self.boards.actor.participant, self.boards.actor.principal_id),
            committed_at=self.now,
            reason=commit_meta.reason,
            step=commit_meta.step,
            changes=tuple(changes),
            merged=commit_meta.merged,
        )
        self.head = await record(
            self.boards.lines,
            self.head,
            commit,
            weight=self.head.weight + weight_change,
            next_expiry_at=_earliest([self.head.next_expiry_at, *(c.meta.expires_at for c in changes)]),
        )

    async def _note_acls(self, written: Iterable[Entry]) -> None:
        """Have the events of keys that are closed now hidden from those who could read them before."""
        if any(entry.readable_by != ANYONE for entry in written):
            await self.boards.sessions.note_key_acls(self.session.session_id)

    async def _notify(self, written: Iterable[Entry]) -> None:
        if self.branch is not None:
            return
        for entry in written:
            await self.boards.observer.entry_written(self.session, entry)

    async def _prune(self, entry: Entry) -> None:
        # Readers see exactly the last keep_versions; older values are removed in batches.
        if self._is_prune_due(entry):
            await self.boards.lines.prune(self.line_id, entry.key, self.session.config.keep_versions)

    def _is_prune_due(self, entry: Entry) -> bool:
        return prune_due(entry.version, self.session.config.keep_versions)

    async def _check_keys(self, added: int) -> None:
        """Raise StoreFull if new keys would exceed the limit. Each key has a token at least, so few tokens are few."""
        limit = self.session.config.max_keys
        if limit is None or added <= 0 or self.head.weight + added <= limit:
            return
        check_key_count(await self.entries.count(self.session.session_id), added, limit)

    async def _check_may_change(self, key: str, current: Entry | None, if_version: int | None) -> None:
        if current is not None and not current.writable(self.boards.actor):
            raise _not_writable(current, self.boards.actor)
        version = current.version if current else 0
        if if_version is not None and if_version != version:
            raise version_conflict(key, version, if_version, **await self._changes_since(key, current, if_version))

    async def _changes_since(self, key: str, current: Entry | None, version: int) -> dict[str, Any]:
        """Return who changed a key after a version, and how, as far as the caller may read it."""
        lines = self.boards.lines
        incarnation = current.incarnation if current else (await lines.last_number(self.line_id, key)).incarnation
        latest = await self.visible(await lines.versions(self.line_id, key, incarnation, 1)) if incarnation else []
        if not latest:
            return {}
        earlier: Sequence[Version] = ()
        if current is not None and 0 < version < current.version:
            earlier = await self.visible(await lines.changes_of_version(self.line_id, key, incarnation, version))
        return last_change(latest[0], earlier[0] if earlier else None)

    def _check_may_replace(self, entries: Iterable[Entry]) -> None:
        """Refuse to change keys that the caller may not write, without naming those it may not read."""
        actor = self.boards.actor
        barred = [entry for entry in entries if not entry.writable(actor)]
        known = [entry for entry in barred if entry.readable(actor)]
        if known:
            raise _not_writable(known[0], actor)
        if barred:
            raise PermissionDenied("This would change a key that you may not change.")

    def _event_type(self, done: _Done) -> EventType:
        return (_BOARD_EVENTS if self.branch is None else _BRANCH_EVENTS)[done]

    def _key_event(
        self, done: _Done, entry: Entry, origin: Mapping[str, object] | None = None, *, author: Author | None = None
    ) -> NewEvent:
        # The commit locates the version without a scan of the key's history.
        about = {"version": entry.version, "incarnation": entry.incarnation, "commit": self.head.seq}
        data = {**about, "value_size_tokens": entry.tokens, **(origin or {})}
        return self._event(self._event_type(done), entry.key, data, readable_by=entry.readers, author=author)

    def _event(
        self,
        event_type: EventType,
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
            actor=author.participant if author else self.boards.actor.participant,
            readable_by=readable_by,
            data={**data} if self.branch is None else {**data, "branch": self.branch},
        )


def _not_writable(entry: Entry, actor: Actor) -> PermissionDenied:
    """Return the error; the write ACL is named only to callers who may read the key."""
    if not entry.readable(actor):
        return PermissionDenied(
            f"You may not change the key '{entry.key}'.", hint="Write another key, or ask an admin.", key=entry.key
        )
    return PermissionDenied(
        f"The key '{entry.key}' may only be changed by {', '.join(entry.writable_by)}.",
        hint="Write another key, or ask one of them or an admin to change it.",
        key=entry.key,
    )


def change_of(entry: Entry) -> Change:
    return Change(entry.key, entry.incarnation, entry.version, ChangeKind.WRITE, entry.blob_hash, _meta(entry))


def _deletion(entry: Entry, act: ChangeKind) -> Change:
    return Change(
        entry.key, entry.incarnation, entry.version, act, None, ChangeMeta(readable_by=unless_open(entry.readers))
    )


def _meta(entry: Entry) -> ChangeMeta:
    return ChangeMeta(
        tokens=entry.tokens,
        expires_at=entry.expires_at,
        readable_by=unless_open(entry.readable_by),
        writable_by=unless_open(entry.writable_by),
        media_type=entry.media_type,
        trust=entry.trust,
    )


def _origin(commit_meta: CommitMeta) -> dict[str, object]:
    """Return the event fields that name the snapshot or branch a change comes from."""
    if commit_meta.restored is not None:
        return {"restored_from": commit_meta.restored.name}
    return {} if commit_meta.merged is None else {"merged_from": commit_meta.merged.line_id}


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)
