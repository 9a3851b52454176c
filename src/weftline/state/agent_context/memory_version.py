"""Versions of persistent memory to read: the current one, or one that a session has pulled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from weftline.history.composite_lines import PartVersion, part_states_apart
from weftline.history.model import EMPTY, Head, Point, branch_of, is_metadata
from weftline.sessions.model import lock_active_session
from weftline.state.agent_context.model import (
    DEFINITION,
    ContextLine,
    EntryAddress,
    is_overdue,
    is_shared,
    readable_memory_owners,
    retention_cutoff,
)
from weftline.state.agent_context.service import ContextAt, Contexts
from weftline.state.agent_context.sql import UNSEEN, PinnedContext
from weftline.state.agent_context.views import PersistedEntry, entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weftline.history.lines import LineStore
    from weftline.history.model import Version
    from weftline.history.store import Rule


@dataclass(frozen=True, slots=True)
class MemoryVersion:
    """One version of a persistent memory. ``rules``: hide entries beyond retention; a pinned snapshot keeps them."""

    contexts: Contexts
    line: ContextLine
    version: ContextAt
    rules: Mapping[str, Rule] | None = None

    @classmethod
    async def find(cls, contexts: Contexts, root_id: str, reader: str | None = None) -> MemoryVersion | None:
        """Open the latest version by its root, on the branch that a reader has checked out, by default the owner.

        None if nothing was written, or that branch was deleted.
        """
        root = ContextLine.parse(root_id)
        switch = await contexts.checkouts.of(root.line_id, reader or root.owner)
        line = root if switch is None else root._replace(branch=switch.branch)
        found = None if switch is not None and switch.gone else await contexts.lines.find(line.line_id)
        return None if found is None else await cls.current(contexts, line, found.head)

    @classmethod
    async def current(cls, contexts: Contexts, line: ContextLine, head: Head) -> MemoryVersion:
        at = ContextAt(contexts.lines, Point(head.line_id, head.seq, head.hash))
        return cls(contexts, line, at, await contexts.retention.rules())

    @classmethod
    async def pinned(cls, contexts: Contexts, held: PinnedContext, root_id: str) -> MemoryVersion | None:
        """Open the version that a session has pinned, by its root.

        None if it has pinned none of this memory, as of a team that the agent joined since, or if that was deleted.
        """
        shared = held.shared_version(root_id)
        if root_id == ContextLine(held.principal_id, None, None).line_id:
            line_id, point = held.line_id, held.held
        elif shared is not None:
            line_id, point = shared.line, shared.point
        else:
            return await cls.find(contexts, root_id, held.principal_id) if held.shared is None else None
        version = ContextAt(contexts.lines, point)
        return cls(contexts, ContextLine.parse(line_id), version) if await version.exists() else None

    async def entry(self, address: EntryAddress) -> PersistedEntry | None:
        """Return one entry with its value, without metadata; None if there is none."""
        at = None if address.part == DEFINITION else await self.version.part(address.part)
        if at is None:
            return None
        version = await self.contexts.lines.latest(at.line, address.key, at.seq)
        is_live = version is not None and not self.is_overdue(address.part, version)
        return PersistedEntry(address, version) if version is not None and is_live else None

    async def some_entries(self, addresses: Iterable[EntryAddress]) -> list[PersistedEntry]:
        """Return entries without values, in few statements; those that do not exist are left out."""
        keys: dict[str, list[str]] = {}
        for address in addresses:
            keys.setdefault(address.part, []).append(address.key)
        found: list[PersistedEntry] = []
        for part in sorted(keys.keys() - {DEFINITION}):
            at = await self.version.part(part)
            if at is not None:
                versions = await self.contexts.lines.latest_of_each(at.line, keys[part], at.seq)
                live = (version for version in versions if not self.is_overdue(part, version))
                found += [PersistedEntry(EntryAddress(part, version.change.key), version) for version in live]
        return found

    async def entries(self, part: str, at: PartVersion) -> list[PersistedEntry]:
        """Return the entries of a part, by key, without values."""
        found = await entries_of(self.contexts.lines, part, at)
        return [entry for entry in found if not self.is_overdue(part, entry.version)]

    async def all_entries(self) -> list[PersistedEntry]:
        """Return all entries, by part and key, without values."""
        parts = await self.version.parts()
        found = [await self.entries(part, at) for part, at in parts.items() if part != DEFINITION]
        return [entry for of_part in found for entry in of_part]

    def is_overdue(self, part: str, version: Version) -> bool:
        if self.rules is None:
            return False
        line = self.line._replace(part=part)
        return is_overdue(version, retention_cutoff(line, self.rules, self.contexts.now))

    async def line_of(self, entry: PersistedEntry) -> str:
        """Return the line that an entry was written on: a branch inherits entries."""
        at = None if self.line.branch is None else await self.version.part(entry.place.part)
        if at is None or branch_of(at.line) is None:
            return self.line._replace(part=entry.place.part, branch=None).line_id
        past = await self.contexts.lines.past(at.line, entry.version.seq)
        return past[0].line_id if past else at.line


async def changed_addresses(lines: LineStore, root: str, after: int, upto: int) -> list[EntryAddress] | None:
    """Return the entries that were written or removed between two versions of a root; None if they were pruned."""
    try:
        before, now = [await ContextAt(lines, Point(root, seq, b"")).parts() for seq in (after, upto)]
    except msgspec.MsgspecError:
        return None
    return await addresses_apart(lines, before, now)


async def addresses_apart(
    lines: LineStore, before: Mapping[str, PartVersion], now: Mapping[str, PartVersion]
) -> list[EntryAddress]:
    """Return the entries that two versions of a memory do not have in the same version; equal parts are not read."""
    found = []
    for part in sorted((before.keys() | now.keys()) - {DEFINITION}):
        if before.get(part) != now.get(part):
            old, new = await part_states_apart(lines, before.get(part), now.get(part), values=False)
            changed = (key for key in old.keys() | new.keys() if not is_metadata(key))
            found += [EntryAddress(part, key) for key in changed if _written(old.get(key)) != _written(new.get(key))]
    return found


def _written(version: Version | None) -> tuple[int, int, int, bytes | None] | None:
    if version is None:
        return None
    change = version.change
    # Two branches may both have version 2 of an entry.
    return change.incarnation, change.version, version.committed_at, change.blob_hash


# The memory that a session has: one version of the agent's own, and of that of its teams and users.
#
# A pull pins them, and so does the first prompt of a session that has not pulled. They move together.


async def pin_first_memory(contexts: Contexts, session_id: str) -> None:
    """Pin the current memory of the caller in a session, unless it has pinned one.

    The agent has not seen it, so a push still has to name the version that it is based on.
    """
    if await contexts.snapshots.find(session_id, contexts.actor.principal_id) is not None:
        return
    await lock_active_session(session_id, contexts.actor, contexts.sessions)
    # A concurrent first prompt may have pinned it before this one got the lock.
    if await contexts.snapshots.find(session_id, contexts.actor.principal_id) is None:
        root = await _head(contexts, contexts.actor.principal_id)
        # Pruning keeps the parts of a pinned root.
        await pin_memory(contexts, session_id, root, (), is_seen=False)


async def pin_memory(
    contexts: Contexts, session_id: str, root: Head, parts: Iterable[PartVersion], *, is_seen: bool
) -> PinnedContext:
    """Pin a version of the caller's context, with the current memory of its teams and users; the session is locked.

    History keeps every part of it.
    """
    held = PinnedContext(
        session_id=session_id,
        principal_id=contexts.actor.principal_id,
        line_id=root.line_id,
        held_line=await _line_of_commit(contexts, root),
        version=root.seq,
        hash=root.hash,
        known=root.seq if is_seen else UNSEEN,
        known_hash=root.hash if is_seen else EMPTY,
        pulled_at=contexts.now,
        shared=tuple([await _shared_version(contexts, owner) for owner in _shared_owners(contexts)]),
    )
    await contexts.snapshots.put(held, parts)
    return held


def _shared_owners(contexts: Contexts) -> list[str]:
    return sorted(filter(is_shared, readable_memory_owners(contexts.actor)))


async def _shared_version(contexts: Contexts, owner: str) -> PartVersion:
    root = await _head(contexts, owner)
    return PartVersion(await _line_of_commit(contexts, root), root.seq, root.hash.hex())


async def _head(contexts: Contexts, owner: str) -> Head:
    """Return the head of the branch that the caller uses; nothing of a branch that was deleted."""
    trunk = ContextLine(owner, None, None)
    switch = await contexts.checkouts.of(trunk.line_id, contexts.actor.principal_id)
    if switch is None:
        return await contexts.head(trunk)
    return Head.of_new_line(trunk.line_id) if switch.gone else await contexts.head(trunk._replace(branch=switch.branch))


async def _line_of_commit(contexts: Contexts, root: Head) -> str:
    """Return the line that a version was committed to: a branch inherits versions."""
    return (await contexts.lines.past(root.line_id, root.seq))[0].line_id
