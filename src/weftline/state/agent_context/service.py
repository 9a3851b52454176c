"""An agent's context for one call: one version to read, or the current one to change under the lock of its root.

Nothing is cached: pulls and changes read the primary under that lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.access.plan_warnings import QuotaWarnings
from weftline.access.plans import QuotaUse
from weftline.access.sql import AccessStore
from weftline.access.teams import TeamStore
from weftline.history.commits import record, tag_automatically
from weftline.history.composite_lines import PART_MARK, PartVersion
from weftline.history.line_kinds import CommitMeta, EditProof
from weftline.history.lines import LineStore
from weftline.history.model import (
    EMPTY,
    LATEST,
    MAIN,
    SYSTEM,
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    Head,
    Point,
    blob_hash,
    branch_of,
    is_metadata,
    no_branch,
    trunk_of,
)
from weftline.history.object_storage import ObjectIndex, keep_staged
from weftline.history.revisions import resolve_revision
from weftline.history.sql import CheckoutStore, RetentionStore
from weftline.history.store import Rule
from weftline.indexing.collections import MEMORY
from weftline.indexing.pins import BYTES_PER_TOKEN, ItemPlace, Pins
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import PRINCIPAL, TEAM, Actor
from weftline.kernel.outbox import Outbox
from weftline.safety.trust.gate import ContentGate
from weftline.sessions.sql import SessionStore
from weftline.state.agent_context.model import (
    CACHED_KEYS,
    DEFINITION,
    ContextLimitExceeded,
    ContextLimits,
    ContextLine,
    audience_of,
    check_may_use,
    is_overdue,
    memory_size,
    retention_cutoff,
    unknown_owner,
)
from weftline.state.agent_context.sql import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from weftline.history.model import Version
    from weftline.sessions.model import Session
    from weftline.state.agent_context.model import EntryText


class Contexts(msgspec.Struct, frozen=True):
    """The stores that contexts need, bound to the caller of one operation."""

    actor: Actor
    access: AccessStore
    teams: TeamStore
    sessions: SessionStore
    lines: LineStore
    snapshots: SnapshotStore
    retention: RetentionStore
    checkouts: CheckoutStore
    objects: ObjectIndex
    outbox: Outbox
    clock: Clock
    limits: ContextLimits
    pins: Pins
    gate: ContentGate
    quota_warnings: QuotaWarnings

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    @property
    def author(self) -> Author:
        return Author(self.actor.participant, self.actor.principal_id)

    async def open_named(self, owner: str | None, branch: str | None) -> OpenContext:
        """Open the caller's own context, or the memory of a team or user that it shares, on a branch.

        By default on the branch that the caller has checked out.
        """
        line = await self.named_line(owner, branch)
        return await self.open(line.owner, line.branch)

    async def named_line(self, owner: str | None, branch: str | None) -> ContextLine:
        """Return the root of the caller's own context, or of the memory of a team or user that it shares."""
        if owner is not None:
            await check_may_use(self.actor, owner, self.access, self.teams)
        named = owner or self.actor.principal_id
        return ContextLine(named, None, await self._branch(named, branch))

    async def _branch(self, owner: str, branch: str | None) -> str | None:
        """Return the branch that the caller uses of a context; None is the trunk."""
        if branch is None:
            switch = await self.checkouts.of(ContextLine(owner, None, None).line_id, self.actor.principal_id)
            if switch is not None and switch.gone:
                raise no_branch(switch.branch)
            return switch.branch if switch else None
        return None if branch == MAIN else branch

    async def open(self, owner: str, branch: str | None = None) -> OpenContext:
        """Open a context and lock its root until the transaction ends."""
        await self._check_exists(owner)
        line = ContextLine(owner, None, branch)
        root = await self.lines.lock(line.line_id)
        if root is None and branch is not None:
            raise no_branch(branch)
        if root is None:
            # A concurrent creator waits here, and then finds the line.
            await self.lines.create(line.line_id)
            root = await self.lines.lock(line.line_id) or Head.of_new_line(line.line_id)
        return OpenContext(self, line, self.now, await self.retention.rules(), root)

    async def open_unlocked(self, line: ContextLine) -> OpenContext:
        """Open a context without a lock, for a dry run."""
        return OpenContext(self, line, self.now, await self.retention.rules(), await self.head(line))

    async def erase(self, owner: str) -> None:
        """Delete the memory of an owner with its branches and history."""
        root = ContextLine(owner, None, None).line_id
        for line_id in (*[branch.head.line_id for branch in await self.lines.branches(root)], root):
            found = await self.lines.find(line_id)
            if found is not None:
                head = found.head
                parts = await ContextAt(self.lines, Point(head.line_id, head.seq, head.hash)).parts()
                for at in parts.values():
                    await self.lines.erase(at.line)
                await self.lines.erase(line_id)

    async def _check_exists(self, owner: str) -> None:
        """Lock the team that owns a context, so that it is not deleted meanwhile; raise if there is none."""
        if owner.startswith(TEAM) and await self.teams.lock(owner.removeprefix(TEAM)) is None:
            raise unknown_owner(owner, self.actor)

    async def head(self, line: ContextLine) -> Head:
        """Return the head of a line, which is empty if nothing was written; BranchNotFound if the branch is missing."""
        found = await self.lines.find(line.line_id)
        if found is None and line.branch is not None:
            raise no_branch(line.branch)
        return found.head if found else Head.of_new_line(line.line_id)

    async def resolve(self, line: ContextLine, version: str | int) -> Point:
        """Return the point of a line with this version name."""
        head = await self.head(line)
        return await resolve_revision(self.lines, Point(head.line_id, head.seq, head.hash), version)

    def event(
        self, event_type: EventType, owner: str, data: Mapping[str, object], session: Session | None = None
    ) -> NewEvent:
        """Return an event for those who share the owner's memory, and the caller."""
        readers = dict.fromkeys((audience_of(owner), f"{PRINCIPAL}{self.actor.principal_id}"))
        return NewEvent(
            type=event_type,
            session_id=session.session_id if session else None,
            subject=owner,
            actor=self.actor.participant,
            readable_by=tuple(readers),
            data=dict(data),
        )


class ContextAt(NamedTuple):
    """One immutable version of an agent's context."""

    lines: LineStore
    point: Point

    async def parts(self) -> dict[str, PartVersion]:
        """Return the version of each part, by name."""
        named = await self.lines.state_at(self.point.line_id, self.point.seq)
        return {version.change.key: PartVersion.named_by(version) for version in sorted(named, key=_key)}

    async def part(self, name: str) -> PartVersion | None:
        version = await self.lines.latest(self.point.line_id, name, self.point.seq)
        return None if version is None else PartVersion.named_by(version)

    async def check_exists(self) -> None:
        if not await self.exists():
            raise no_branch(branch_of(self.point.line_id) or MAIN)

    async def exists(self) -> bool:
        """Tell whether this version still exists; its branch may have been deleted and created again."""
        if self.point.seq == 0:
            return True
        commit = await self.lines.commit_at(self.point.line_id, self.point.seq)
        return commit is not None and commit.hash == self.point.hash


@dataclass(slots=True)
class OpenContext:
    """An agent's context whose root is locked until the transaction ends."""

    service: Contexts
    line: ContextLine
    now: int
    rules: Mapping[str, Rule]
    root: Head

    @property
    def owner(self) -> str:
        return self.line.owner

    @property
    def current_version(self) -> ContextAt:
        return ContextAt(self.service.lines, Point(self.root.line_id, self.root.seq, self.root.hash))

    async def part(self, name: str) -> OpenPart:
        named = await self.service.lines.latest(self.root.line_id, name, self.root.seq)
        return self._opened(name, named)

    async def parts(self) -> list[OpenPart]:
        named = await self.service.lines.state_at(self.root.line_id, self.root.seq)
        return [self._opened(version.change.key, version) for version in sorted(named, key=_key)]

    async def commit(
        self,
        parts: Iterable[OpenPart],
        commit_meta: CommitMeta,
        author: Author | None = None,
        *,
        proof: EditProof | None = None,
    ) -> str | None:
        """Commit the changes of parts as one new version of the context, if there are any.

        A change of the definition needs the ``proof`` that the caller may make it.
        Return the label of the automatic snapshot of the previous version, if a part asked for one.
        """
        changed = [part for part in parts if part.changes or part.merged]
        if not changed and commit_meta.merged is None:
            return None
        growth = await self.check_limit(changed)
        await self._check_entries([part for part in changed if part.name != DEFINITION])
        await self._resize_pins(changed)
        author = author or self.service.author
        kept = await self._keep_values(changed)
        snapshot_prefix = next((part.snapshot_prefix for part in changed if part.snapshot_prefix), None)
        label = await self.snapshot_before_commit(self.root, snapshot_prefix, author)
        for part in changed:
            await part.commit(commit_meta, author, kept, proof if part.name == DEFINITION else None)
        if any(part.name == DEFINITION and CACHED_KEYS & part.changes.keys() for part in changed):
            # They hold from the next call in every process.
            await self.service.access.advance_epoch()
        await self._commit_root([await self._names(part) for part in changed], commit_meta, author, growth)
        return label

    async def _resize_pins(self, parts: Iterable[OpenPart]) -> None:
        """Count the new values of pinned entries; PinLimitExceeded if they grow too large for the prompts of others.

        Those of a branch count when it is merged.
        """
        if self.line.branch is None:
            changes = [(part.name, change) for part in parts for change in part.changes.values()]
            await self.service.pins.resize_all(
                {
                    ItemPlace(MEMORY, self.root.line_id, f"{name}{PART_MARK}{change.key}"): change.meta.size
                    // BYTES_PER_TOKEN
                    if change.act is ChangeKind.WRITE
                    else None
                    for name, change in changes
                }
            )

    async def snapshot_before_commit(self, head: Head, snapshot_prefix: str | None, author: Author) -> str | None:
        """Tag the head of a line if a label prefix is given, unless the line is empty."""
        if snapshot_prefix is None or head.seq == 0:
            return None
        return await tag_automatically(self.service.lines, head, snapshot_prefix, author.participant, self.now)

    async def follow_definition(self) -> None:
        """Update a branch to the current definition, which has no branches."""
        if self.line.branch is None:
            return
        trunk = await self.service.lines.find(trunk_of(self.root.line_id))
        today = trunk and await self.service.lines.latest(trunk.head.line_id, DEFINITION, trunk.head.seq)
        held = await self.part(DEFINITION)
        if today and held.at != PartVersion.named_by(today):
            held.at = PartVersion.named_by(today)
            await self._commit_root([await self._names(held)], CommitMeta("definition"), SYSTEM, 0)

    async def expire_overdue(self) -> None:
        """Remove entries beyond retention."""
        await self.expire(await self._overdue())

    async def expire(self, ended: Sequence[tuple[OpenPart, Version]]) -> None:
        """Remove entries of parts as one new version, and publish an event."""
        if not ended:
            return
        for part, version in ended:
            part.remove(version, ChangeKind.EXPIRE)
        previous = self.root.seq
        await self.commit({part.name: part for part, _ in ended}.values(), CommitMeta("expire"), SYSTEM)
        data = {
            "context_id": self.root.line_id,
            "previous_version": previous,
            "version": self.root.seq,
            "removed": sum(not is_metadata(version.change.key) for _, version in ended),
        }
        event = self.service.event("context.expired", self.owner, data)
        await self.service.outbox.publish(
            structs.replace(event, actor=SYSTEM.participant, readable_by=(audience_of(self.owner),))
        )

    async def _overdue(self) -> list[tuple[OpenPart, Version]]:
        """Return the entries beyond retention, with their parts."""
        ending = [
            (part, part.at) for part in await self.parts() if part.at is not None and part.expired_before is not None
        ]
        states = await self.service.snapshots.states([at for _, at in ending], self.service.lines)
        return [
            (part, version)
            for (part, _), state in zip(ending, states, strict=True)
            for version in state
            if is_overdue(version, part.expired_before)
        ]

    async def check_limit(self, parts: Iterable[OpenPart]) -> int:
        """Return the growth in bytes; ContextLimitExceeded if it exceeds the limit.

        The definition does not count, so that it can be changed however full the memory is.
        """
        of_memory = [part for part in parts if part.name != DEFINITION]
        growth = sum(part.growth for part in of_memory)
        limit = self.service.limits.total_bytes
        if growth > 0 and self.root.weight + growth > limit:
            await self._check_live(growth, limit, of_memory)
        return growth

    async def _check_entries(self, changed: Sequence[OpenPart]) -> None:
        """Raise QuotaExceeded if new entries would exceed the ceiling of the tenant's plan."""
        added = [part.added for part in changed]
        if not any(added):
            return
        others = [
            part for part in await self.parts() if part.name not in {DEFINITION, *(each.name for each in changed)}
        ]
        entries = sum([await part.entries() for part in (*changed, *others)])
        warnings = self.service.quota_warnings
        allowance = await warnings.plans.allowance()
        before = entries - sum(added)
        if entries > before:
            allowance.check_memory_entries(entries, before)
        use = QuotaUse("memory_entries", allowance.memory_entries, before, entries)
        await warnings.note(use, self.owner)

    async def _check_live(self, growth: int, limit: int, parts: Sequence[OpenPart]) -> None:
        # Entries beyond retention that are not removed yet do not count.
        changed = {(part.name, key) for part in parts for key in part.changes}
        ended = [
            version.change for part, version in await self._overdue() if (part.name, version.change.key) not in changed
        ]
        live = self.root.weight - sum(map(memory_size, ended))
        if live + growth > limit:
            raise ContextLimitExceeded(
                f"The context holds {live} of {limit} bytes; this would make it {live + growth}.",
                used_bytes=live,
                limit_bytes=limit,
            )

    async def _keep_values(self, parts: Sequence[OpenPart]) -> Collection[bytes]:
        """Store the new values of parts and return their hashes."""
        new = {each.hash: each for part in parts for each in part.new_values}
        await keep_staged([each.pointer for each in new.values() if each.pointer], self.service.objects)
        # Those of few statements first; a fixed lock order prevents deadlocks.
        plain = {value_hash: each.text for value_hash, each in new.items() if each.pointer is None}
        await self.service.lines.put_blobs(plain)
        for value_hash, each in sorted(new.items()):
            if each.pointer is not None:
                await self.service.lines.put_blob(value_hash, each.text, outside=each.pointer.object)
        return new.keys()

    async def _names(self, part: OpenPart) -> Change:
        """Return the change of the root that refers to the new version of a part."""
        assert part.at is not None  # noqa: S101 - it has just been committed to
        text = part.at.encode()
        await self.service.lines.put_blob(blob_hash(text), text)
        meta = ChangeMeta(entries=await part.entries())
        return Change(part.name, 1, part.ref_version + 1, ChangeKind.WRITE, blob_hash(text), meta)

    async def _commit_root(
        self, changes: Sequence[Change], commit_meta: CommitMeta, author: Author, growth: int
    ) -> None:
        commit = Commit(
            line_id=self.root.line_id,
            seq=self.root.seq + 1,
            author=author,
            committed_at=self.now,
            reason=commit_meta.reason,
            step=commit_meta.step,
            changes=tuple(changes),
            merged=commit_meta.merged,
        )
        self.root = await record(self.service.lines, self.root, commit, weight=self.root.weight + growth)

    def _opened(self, name: str, named: Version | None) -> OpenPart:
        # The definition has no branches: a change applies to all of them.
        line = ContextLine(self.owner, name, None if name == DEFINITION else self.line.branch)
        at = None if named is None else PartVersion.named_by(named)
        if named is None:
            return OpenPart(self, line, None, 0, 0)
        return OpenPart(self, line, at, named.change.version, named.change.meta.entries)


@dataclass(slots=True)
class OpenPart:
    """One part of an open context, with the changes of its next commit."""

    context: OpenContext
    line: ContextLine
    at: PartVersion | None
    ref_version: int
    # Entries of the version; None of one that was written before they were counted.
    counted: int | None
    changes: dict[str, Change] = field(default_factory=dict)
    new_values: list[EntryText] = field(default_factory=list)
    growth: int = 0
    added: int = 0
    merged: Point | None = None
    # Label prefix of an automatic snapshot before the next commit, if there is to be one.
    snapshot_prefix: str | None = None
    # Current entries and last incarnations of keys, as far as they were loaded together.
    _current: dict[str, Version | None] = field(default_factory=dict)
    _incarnations: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.line.part or ""

    @property
    def expired_before(self) -> int | None:
        return retention_cutoff(self.line, self.context.rules, self.context.now)

    async def load(self, keys: Sequence[str], known: Mapping[str, Version | None]) -> None:
        """Look up the current entries of keys, so that changing many of them takes few statements.

        ``known`` are those that the caller has looked up.
        """
        if self.at is None:
            return
        unknown = [key for key in keys if key not in known]
        found = await self._lines.latest_of_each(self.at.line, unknown, self.at.seq)
        self._current |= dict.fromkeys(unknown) | dict(known) | {each.change.key: each for each in found}
        gone = [key for key in keys if self._current[key] is None]
        last = await self._lines.last_changes(self.at.line, gone, LATEST)
        self._incarnations |= dict.fromkeys(gone, 0) | {each.change.key: each.change.incarnation for each in last}

    async def current(self, key: str) -> Version | None:
        """Return the current entry of a key, even if it is beyond retention; without a value if it was loaded."""
        if key in self._current:
            return self._current[key]
        return None if self.at is None else await self._lines.latest(self.at.line, key, self.at.seq)

    async def state(self) -> Sequence[Version]:
        """Return every entry without its value, including those beyond retention."""
        return [] if self.at is None else await self._lines.state_at(self.at.line, self.at.seq, values=False)

    async def entries(self) -> int:
        """Return how many entries it has after its changes, including those beyond retention."""
        if self.counted is None:
            changed = [each for each in await self.state() if not is_metadata(each.change.key)]
            self.counted = len(changed)
        return self.counted + self.added

    async def overdue(self) -> list[Version]:
        since = self.expired_before
        return [] if since is None else [version for version in await self.state() if is_overdue(version, since)]

    async def write(self, key: str, value: EntryText, *, force: bool = False) -> bool:
        """Write an entry; False if it has this value already, unless ``force`` asks for a new version anyway."""
        current = await self.current(key)
        is_live = current is not None and not is_overdue(current, self.expired_before)
        if current is not None and is_live:
            if (current.change.blob_hash, current.change.meta) == (value.hash, value.meta) and not force:
                return False
            incarnation, number = current.change.incarnation, current.change.version + 1
        else:
            incarnation, number = await self._last_incarnation(key, current) + 1, 1
        self._change(Change(key, incarnation, number, ChangeKind.WRITE, value.hash, value.meta), current)
        self.new_values.append(value)
        return True

    async def delete(self, key: str) -> bool:
        """Delete an entry; False if there is none."""
        current = await self.current(key)
        if current is None:
            return False
        self.remove(current, ChangeKind.DELETE)
        return True

    def remove(self, version: Version, act: ChangeKind) -> None:
        change = version.change
        self._change(Change(change.key, change.incarnation, change.version, act, None, ChangeMeta()), version)

    async def commit(
        self, commit_meta: CommitMeta, author: Author, kept: Collection[bytes], proof: EditProof | None
    ) -> None:
        """Commit the changes to the line of the part; ``kept`` are the hashes of its new values."""
        # Counted before ``at`` is the new version.
        await self.entries()
        head = await self._locked(kept)
        await self.context.snapshot_before_commit(head, self.snapshot_prefix, author)
        commit = Commit(
            line_id=head.line_id,
            seq=head.seq + 1,
            author=author,
            committed_at=self.context.now,
            reason=commit_meta.reason,
            step=commit_meta.step,
            changes=tuple(self.changes[key] for key in sorted(self.changes)),
            merged=self.merged,
        )
        head = await record(self._lines, head, commit, weight=head.weight + self.growth, proof=proof)
        self.at = PartVersion.of(Point(head.line_id, head.seq, head.hash))
        self._current.clear()
        self._incarnations.clear()

    @property
    def _lines(self) -> LineStore:
        return self.context.service.lines

    def _change(self, change: Change, replaced: Version | None) -> None:
        self.changes[change.key] = change
        if not is_metadata(change.key):
            self.added += (change.act is ChangeKind.WRITE) - (replaced is not None)
        self.growth -= 0 if replaced is None else memory_size(replaced.change)
        self.growth += memory_size(change) if change.act is ChangeKind.WRITE else 0

    async def _last_incarnation(self, key: str, current: Version | None) -> int:
        if current is not None:
            return current.change.incarnation
        if key in self._incarnations:
            return self._incarnations[key]
        return 0 if self.at is None else (await self._lines.last_number(self.at.line, key)).incarnation

    async def _locked(self, kept: Collection[bytes]) -> Head:
        line_id = self.line.line_id
        if self.at is None or self.at.line != line_id:
            await self._begin(line_id, kept)
        return await self._lines.lock(line_id) or Head.of_new_line(line_id)

    async def _begin(self, line_id: str, kept: Collection[bytes]) -> None:
        """Create the line of this part; on a branch, it starts at the version of the trunk."""
        if await self._lines.lock(line_id) is not None:
            # Left over from a deleted branch of the same name.
            await self._lines.erase(line_id, sparing=kept)
        if self.line.branch is None:
            await self._lines.create(line_id)
            return
        base = Point(trunk_of(line_id), 0, EMPTY) if self.at is None else self.at.point
        weight = await self._lines.weight_at(base.line_id, base.seq)
        await self._lines.branch(line_id, base, weight=weight or 0, next_expiry_at=None)


def _key(version: Version) -> str:
    return version.change.key
