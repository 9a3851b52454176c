"""History backend of persistent memory (context:AGENT, team:NAME, user:ID) and of definitions (agent:AGENT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.access.grants import check_clearance, check_may_edit
from weftline.history.composite_lines import PART_MARK, PartVersion, part_states_apart
from weftline.history.line_kinds import CommitMeta, LineKind, check_may_forget
from weftline.history.model import ChangeMeta, Head, LineNotFound, VersionPruned, is_metadata, metadata_key, no_line
from weftline.history.store import Rule
from weftline.history.three_way import same_content
from weftline.indexing.pins import PinLimitExceeded
from weftline.kernel.errors import InvalidInput
from weftline.kernel.identity import PrincipalKind
from weftline.state.agent_context.model import (
    DEFINITION,
    MEMORY_RULES,
    ContextLimitExceeded,
    ContextLine,
    EntryText,
    check_value_size,
    exists,
    is_overdue,
    is_shared,
    may_use_shared,
    retained_tags,
    retention_cutoff,
    text_of_version,
)
from weftline.state.agent_context.permissions import (
    EDITOR_CLEARANCE,
    check_may_define,
    check_may_roll_back,
    find_agent,
    forbid_self_definition,
    may_read_context,
)
from weftline.state.agent_context.service import Contexts, OpenContext
from weftline.state.agent_context.sql import erase_snapshots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weftline.access.sql import AccessStore
    from weftline.history.model import Point, Version
    from weftline.kernel.events import EventType
    from weftline.kernel.identity import Actor
    from weftline.state.agent_context.service import OpenPart


# Restores entries and parts of a context from earlier versions.


async def restore_entries(
    part: OpenPart, state: Mapping[str, Version | None], known: Mapping[str, Version | None] | None = None
) -> None:
    """Restore entries of a part from these versions (None: delete the entry) with the next commit.

    Metadata is restored together with its value. Entries beyond retention are not restored. ``known`` are current
    entries, as far as the caller has looked them up.
    """
    state = {key: version for key, version in sorted(state.items()) if not is_metadata(key)}
    await part.load([name for key in state for name in (key, metadata_key(key))], known or {})
    metadata = await _metadata(part, state.values())
    for key, version in state.items():
        if version is None or is_overdue(version, part.expired_before):
            await part.delete(metadata_key(key))
            await part.delete(key)
            continue
        value = text_of_version(version)
        if value is None:
            raise _pruned(key)
        check_value_size(value.meta.size, key)
        if await part.write(key, value):
            await _restore_metadata(part, key, value.meta.metadata_hash, metadata)


async def _metadata(part: OpenPart, versions: Iterable[Version | None]) -> Mapping[bytes, str]:
    """Return the texts of the metadata that versions have, by hash."""
    hashes = [version.change.meta.metadata_hash for version in versions if version is not None]
    return await part.context.service.snapshots.values([bytes.fromhex(each) for each in hashes if each is not None])


async def _restore_metadata(part: OpenPart, key: str, metadata_hash: str | None, metadata: Mapping[bytes, str]) -> None:
    if metadata_hash is None:
        await part.delete(metadata_key(key))
        return
    text = metadata.get(bytes.fromhex(metadata_hash))
    if text is None:
        raise _pruned(key)
    # Written again, so that it expires with its value.
    await part.write(metadata_key(key), EntryText(text, ChangeMeta(size=len(text.encode()))), force=True)


def _pruned(key: str) -> VersionPruned:
    return VersionPruned(f"The value of '{key}' in that version was pruned.", key=key)


async def restore_parts(
    context: OpenContext, state: Mapping[str, Version | None], merged: Point | None
) -> list[OpenPart]:
    """Restore parts to the versions in these root entries, and return them.

    A merge may also restore single entries, by PART/KEY; no part name contains a slash.
    """
    # The definition has no branches: neither a merge nor a branch changes it.
    with_definition = merged is None and context.line.branch is None
    names = {name.partition(PART_MARK)[0] for name in state}
    parts = [await context.part(name) for name in sorted(names) if name != DEFINITION or with_definition]
    for part in parts:
        if part.name in state:
            await _restore_part(part, state[part.name])
        await restore_entries(part, _entries_of(part.name, state))
        part.merged = None if merged is None else await _named_at(part, merged)
    return parts


async def _restore_part(part: OpenPart, named: Version | None) -> None:
    target = None if named is None else await _checked(part, named)
    ours, theirs = await part_states_apart(part.context.service.lines, part.at, target, values=True)
    keys = ours.keys() | theirs.keys()
    changed = {key: theirs.get(key) for key in keys if not same_content(ours.get(key), theirs.get(key))}
    await restore_entries(part, changed, {key: ours.get(key) for key in keys})


def _entries_of(part: str, state: Mapping[str, Version | None]) -> dict[str, Version | None]:
    prefix = part + PART_MARK
    return {name.removeprefix(prefix): version for name, version in state.items() if name.startswith(prefix)}


async def _named_at(part: OpenPart, root: Point) -> Point | None:
    """Return the version of a part in a version of the whole context, if it has the part."""
    named = await part.context.service.lines.latest(root.line_id, part.name, root.seq)
    return None if named is None else PartVersion.named_by(named).point


async def _checked(part: OpenPart, named: Version) -> PartVersion:
    """Parse and check the part version in a root entry; a manual merge decision may contain anything."""
    try:
        target = PartVersion.named_by(named)
        line, point = ContextLine.parse(target.line), target.point
    except (msgspec.MsgspecError, ValueError, LineNotFound) as error:
        raise _not_of(part) from error
    commit = await part.context.service.lines.commit_at(point.line_id, point.seq)
    if (line.owner, line.part) != (part.line.owner, part.name) or commit is None or commit.hash != point.hash:
        raise _not_of(part)
    return target


def _not_of(part: OpenPart) -> InvalidInput:
    return InvalidInput(f"{part.name}: must be a version of a part of the same context")


_ROLLBACK_CLEARANCE = 4
_DEFINITION_CLEARANCE = 3
# Holder of the pins for versions that snapshots and branches of the root refer to.
_PINNED_BY_ROOT = "root:"


class ContextLines(msgspec.Struct, frozen=True):
    """Opens the lines of agents."""

    contexts: Contexts

    async def to_read(self, line_id: str) -> OpenContextLine:
        line = await self._parse_visible(line_id)
        found = await self.contexts.lines.find(line_id)
        if (found is None and line.branch is not None) or not await self._branch_exists(line):
            raise no_line(line_id)
        # A line without commits reads as empty.
        return OpenContextLine(self.contexts, line, found.head if found else Head.of_new_line(line_id))

    async def to_write(self, line_id: str) -> LockedContextLine:
        """Open a line for its owner or for those who may edit the owner; a definition only for the latter."""
        line = await self._parse_visible(line_id)
        await self._check_may_change(line)
        if not await self._branch_exists(line):
            raise no_line(line_id)
        context = await self.contexts.open(line.owner, line.branch)
        head = context.root if line.part is None else await self.contexts.lines.lock(line_id)
        if head is None:
            raise no_line(line_id)
        return LockedContextLine(self.contexts, line, head, context)

    async def to_forget(self, line_id: str) -> LockedContextLine:
        """Open memory, but no definition: agents above define an agent."""
        check_may_forget(self.contexts.actor)
        line = ContextLine.parse(line_id)
        if line.part is None or line.part == DEFINITION:
            raise no_line(line_id)
        context = await self.contexts.open(line.owner, line.branch)
        head = await self.contexts.lines.lock(line_id)
        if head is None:
            raise no_line(line_id)
        return LockedContextLine(self.contexts, line, head, context)

    async def check_rollback(self, line_id: str) -> None:
        line, actor = ContextLine.parse(line_id), self.contexts.actor
        needed = _DEFINITION_CLEARANCE if line.part == DEFINITION else _ROLLBACK_CLEARANCE
        try:
            await self._parse_visible(line_id)
        except LineNotFound:
            # Whether or not it exists.
            check_clearance(actor, needed, "A rollback")
            raise
        if is_shared(line.owner):
            check_clearance(actor, needed, "A rollback")
            return
        if line.part == DEFINITION:
            forbid_self_definition({"agent_id": line.owner}, actor)
        owner = await find_agent(line.owner, self.contexts.access)
        by_tree = (await self.contexts.gate.policies.current()).rollback_by_tree
        await check_may_roll_back(actor, owner, needed, self.contexts.access, by_tree=by_tree)

    async def expire(self, line_id: str, limit: int) -> bool:
        """Expire entries past retention; deletes a part whose branch or team was deleted."""
        line = ContextLine.parse(line_id)
        if line.part is None:
            return False
        if is_shared(line.owner) and not await exists(line.owner, self.contexts.access, self.contexts.teams):
            await self.contexts.lines.erase(line_id)
            return False
        if not await self._branch_exists(line):
            await self._erase_orphan(line)
            return False
        context = await self.contexts.open(line.owner, line.branch)
        part = await context.part(line.part)
        ended = sorted(await part.overdue(), key=lambda version: version.change.key)[:limit]
        await context.expire([(part, version) for version in ended])
        return len(ended) == limit

    async def check_size(self, line_id: str, key: str, text: str) -> None:
        del line_id
        check_value_size(len(text.encode()), key)

    async def check_switch(self, before: str, after: str) -> None:
        """Let everybody who may read a branch switch to it."""
        del before, after

    async def pin_referenced(self, line_id: str) -> None:
        """Pin the versions of a part that snapshots and branches of the whole context refer to."""
        lines, line = self.contexts.lines, ContextLine.parse(line_id)
        holder = f"{_PINNED_BY_ROOT}{line_id}"
        await lines.unpin(holder)
        if line.part is None:
            return
        for root, seq in sorted(await self._referenced_points(line)):
            named = await lines.latest(root, line.part, seq)
            if named is not None and PartVersion.named_by(named).line == line_id:
                await lines.pin(line_id, PartVersion.named_by(named).seq, holder)

    async def _erase_orphan(self, line: ContextLine) -> None:
        # Creating a branch needs the root lock too, so a branch that is missing now stays missing.
        await self.contexts.open(line.owner)
        if not await self._branch_exists(line):
            await self.contexts.lines.erase(line.line_id)

    async def _referenced_points(self, line: ContextLine) -> set[tuple[str, int]]:
        """Return the versions of the whole context that are tagged, pinned, or the base or head of a branch."""
        lines, trunk = self.contexts.lines, ContextLine(line.owner, None, None).line_id
        branches = await lines.branches(trunk)
        points = {(branch.head.line_id, branch.head.seq) for branch in branches}
        points |= {(branch.base_line or trunk, branch.base_seq) for branch in branches}
        rules = await self.contexts.retention.rules()
        for root in (trunk, *(branch.head.line_id for branch in branches)):
            tags = retained_tags(await lines.tags(root), line, rules, self.contexts.now)
            points |= {(root, tag.seq) for tag in tags}
            # Open reviews and sessions pin the root; they need its parts too.
            points |= {(root, pin.seq) for pin in await lines.pinned(root)}
        return points

    async def _parse_visible(self, line_id: str) -> ContextLine:
        """Parse a line id; LineNotFound if the caller may not see its owner."""
        line, access, teams = ContextLine.parse(line_id), self.contexts.access, self.contexts.teams
        if is_shared(line.owner):
            if not await may_use_shared(self.contexts.actor, line.owner, access, teams):
                raise no_line(line_id, denied=await exists(line.owner, access, teams))
            return line
        owner = await access.principal(line.owner)
        if owner is None or not await may_read_context(self.contexts.actor, owner, access):
            raise no_line(line_id, denied=owner is not None)
        return line

    async def _check_may_change(self, line: ContextLine) -> None:
        actor, access = self.contexts.actor, self.contexts.access
        if is_shared(line.owner):
            # Who sees shared memory may change it, with the permission that every operation checks.
            return
        owner = await find_agent(line.owner, access)
        if line.part == DEFINITION:
            await check_may_define(actor, owner, access)
        elif actor.principal_id != owner.principal_id:
            await check_may_edit(actor, owner, access)
            if actor.kind is PrincipalKind.HUMAN:
                check_clearance(actor, EDITOR_CLEARANCE)

    async def _branch_exists(self, line: ContextLine) -> bool:
        """Tell whether the branch of a part still exists."""
        if line.branch is None or line.part is None:
            return True
        root = await self.contexts.lines.find(line.root.line_id)
        if root is None:
            return False
        named = await self.contexts.lines.latest(root.head.line_id, line.part, root.head.seq)
        return named is not None and PartVersion.named_by(named).line == line.line_id


@dataclass(frozen=True, slots=True)
class OpenContextLine:
    """A line of a context, opened to read."""

    contexts: Contexts
    line: ContextLine
    head: Head

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        """Return the entries; those beyond retention without values, unless a snapshot still refers to them."""
        rules = await self.contexts.retention.rules()
        tagged: dict[ContextLine, list[PartVersion]] = {}
        found: list[Version] = []
        for version in versions:
            if is_metadata(version.change.key):
                continue
            line = self._line_of(version)
            is_ended = version.value is not None and is_overdue(
                version, retention_cutoff(line, rules, self.contexts.now)
            )
            if is_ended and line not in tagged:
                tagged[line] = await self._tagged(line, rules)
            is_gone = is_ended and not await self._was_current_at_any(version, tagged[line])
            found.append(structs.replace(version, value=None) if is_gone else version)
        return found

    def _line_of(self, version: Version) -> ContextLine:
        """Return the line of a version: in a listing of the whole context, that of its part."""
        part, mark, _ = version.change.key.partition(PART_MARK)
        return self.line._replace(part=part) if mark and self.line.part is None else self.line

    async def _tagged(self, line: ContextLine, rules: Mapping[str, Rule]) -> list[PartVersion]:
        """Return the versions of a part that tags of it, or of the whole context, refer to; oldest first."""
        lines, now = self.contexts.lines, self.contexts.now
        of_part = retained_tags(await lines.tags(line.line_id), line, rules, now)
        versions = [PartVersion(line.line_id, tag.seq, "") for tag in of_part]
        for tag in retained_tags(await lines.tags(line.root.line_id), line, rules, now):
            named = await lines.latest(line.root.line_id, line.part or "", tag.seq)
            versions += [PartVersion.named_by(named)] if named else []
        return sorted(versions, key=lambda at: at.seq)

    async def _was_current_at_any(self, version: Version, parts: Iterable[PartVersion]) -> bool:
        """Tell whether an entry version was the current one in any of these part versions, which are in order."""
        # The first one after the entry version is enough for each line: later ones cannot have it if that has not.
        first = {at.line: at for at in reversed([*parts]) if at.seq >= version.seq}
        key = version.change.key.partition(PART_MARK)[2] if self.line.part is None else version.change.key
        for at in first.values():
            current = await self.contexts.lines.latest(at.line, key, at.seq)
            if current is not None and current.seq == version.seq:
                return True
        return False


@dataclass(slots=True)
class LockedContextLine:
    """A line of a context whose root is locked: no other transaction changes any part until this one ends."""

    contexts: Contexts
    line: ContextLine
    head: Head
    context: OpenContext

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        return await OpenContextLine(self.contexts, self.line, self.head).visible(versions)

    async def apply(self, state: Mapping[str, Version | None], commit_meta: CommitMeta) -> Head:
        parts = await self._parts(state, commit_meta)
        proof = None
        if any(part.line.part == DEFINITION and (part.changes or part.merged) for part in parts):
            owner = await find_agent(self.line.owner, self.contexts.access)
            proof = await check_may_define(self.contexts.actor, owner, self.contexts.access)
        # The root commit records the merge only if the root itself was merged.
        of_root = commit_meta if self.line.part is None else commit_meta._replace(merged=None)
        await self.context.commit(parts, of_root, proof=proof)
        await self._announce_definition(parts)
        self.head = self.context.root if self.line.part is None else await self._part_head()
        return self.head

    async def announce(self, event_type: EventType, subject: str, data: Mapping[str, object]) -> None:
        event = self.contexts.event(event_type, self.line.owner, data)
        await self.contexts.outbox.publish(structs.replace(event, subject=subject))

    async def note_branches(self, change: int) -> None:
        """Reject a branch of a single part: a context branches as a whole, and its parts when they are changed."""
        del change
        if self.line.part is not None:
            root = self.line.root.line_id
            raise InvalidInput(
                f"context_id: a part cannot be branched; use the whole context, {root}", field="context_id"
            )

    async def _parts(self, state: Mapping[str, Version | None], commit_meta: CommitMeta) -> list[OpenPart]:
        if self.line.part is None:
            return await restore_parts(self.context, state, commit_meta.merged)
        part = await self.context.part(self.line.part)
        await restore_entries(part, state)
        part.merged = commit_meta.merged
        return [part]

    async def _announce_definition(self, parts: Iterable[OpenPart]) -> None:
        for part in parts:
            if part.line.part == DEFINITION and part.changes and part.at:
                data = {"version": part.at.seq, "context_version": self.context.root.seq, "changed": [*part.changes]}
                await self.contexts.outbox.publish(self.contexts.event("agent.defined", self.line.owner, data))

    async def _part_head(self) -> Head:
        return await self.contexts.lines.lock(self.line.line_id) or self.head


async def _check_edit(actor: Actor, line_id: str, access: AccessStore) -> None:
    await check_may_define(actor, await find_agent(ContextLine.parse(line_id).owner, access), access)


AGENT_DEFINITION = LineKind(
    prefix="agent",
    names=("agent",),
    backend=ContextLines,
    signed=True,
    check_edit=_check_edit,
    retention={"agent": Rule(None, None)},
    size_errors=(ContextLimitExceeded,),
    item_kind="agent_definition",
    source_kind="weftline_agent_definition",
    edited_by=("agent.define",),
)
PERSISTENT_MEMORY = LineKind(
    prefix="context",
    names=("agent", "memory_type?", "workflow?"),
    backend=ContextLines,
    retention=MEMORY_RULES,
    max_age=True,
    snapshot_on_push=True,
    composite=True,
    unmerged_parts=frozenset({DEFINITION}),
    size_errors=(ContextLimitExceeded, PinLimitExceeded),
    item_kind="persistent_memory",
    source_kind="weftline_persistent_memory",
    edited_by=("context.push", "agent.define"),
    erase_session=erase_snapshots,
)
# Without definitions.
_SHARED_MEMORY = structs.replace(PERSISTENT_MEMORY, edited_by=("context.push",))
TEAM_MEMORY = structs.replace(_SHARED_MEMORY, prefix="team", names=("team", "memory_type?", "workflow?"))
USER_MEMORY = structs.replace(_SHARED_MEMORY, prefix="user", names=("user", "memory_type?", "workflow?"))
