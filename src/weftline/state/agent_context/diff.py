"""Differences between two versions of an agent's context."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.history.composite_lines import PartVersion, part_states_apart
from weftline.history.model import ChangeKind, is_metadata
from weftline.history.three_way import same_content
from weftline.state.agent_context.model import EntryAddress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from weftline.history.model import Change, StoredCommit, Version
    from weftline.history.store import LineStore


class EntryDiff(NamedTuple):
    """An entry that differs; None where it does not exist."""

    place: EntryAddress
    before: Version | None
    after: Version | None


class EntryChange(NamedTuple):
    """One change of one entry, and the commit that made it."""

    place: EntryAddress
    act: str
    version: int
    commit: StoredCommit


def count_changes(changes: Iterable[Change]) -> dict[str, int]:
    """Return the numbers of added, updated and removed entries."""
    counts = {"added": 0, "updated": 0, "removed": 0}
    for change in changes:
        written = "added" if change.version == 1 else "updated"
        counts[written if change.act is ChangeKind.WRITE else "removed"] += 1
    return counts


async def changed_entries(
    lines: LineStore, before: Mapping[str, PartVersion], after: Mapping[str, PartVersion]
) -> list[EntryDiff]:
    """Return the entries in which two versions differ, part by part. Unchanged parts are not read."""
    found: list[EntryDiff] = []
    for part in sorted(before.keys() | after.keys()):
        then, now = before.get(part), after.get(part)
        if then == now:
            continue
        was, is_ = await part_states_apart(lines, then, now, values=False)
        keys = [key for key in sorted(was.keys() | is_.keys()) if not is_metadata(key)]
        found += [
            EntryDiff(EntryAddress(part, key), was.get(key), is_.get(key))
            for key in keys
            if not same_content(was.get(key), is_.get(key))
        ]
    return found


async def changes_between(
    lines: LineStore, before: Mapping[str, PartVersion], after: Mapping[str, PartVersion], limit: int
) -> list[EntryChange]:
    """Return the changes between two versions, newest first in each part, up to a limit."""
    found: list[EntryChange] = []
    for part, now in sorted(after.items()):
        begin = before[part].seq if part in before else 0
        if now.seq > begin and len(found) < limit:
            commits = await lines.log(now.line, now.seq, min(limit, now.seq - begin))
            found += [step for commit in commits if commit.commit.seq > begin for step in _steps(part, commit)]
    return found[:limit]


def _steps(part: str, recorded: StoredCommit) -> Iterator[EntryChange]:
    for change in recorded.commit.changes:
        if not is_metadata(change.key):
            yield EntryChange(EntryAddress(part, change.key), change.act, change.version, recorded)
