"""Resolve the revision that a caller names: number, snapshot label, hash prefix or head."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.history.model import EMPTY, LATEST, Point, VersionNotFound
from weftline.kernel.fields import MAX_INT, is_name

if TYPE_CHECKING:
    from weftline.history.model import Tag
    from weftline.history.store import LineStore

HEAD = "head"
_HEAD_NAMES = frozenset({HEAD, "latest"})
_NUMBER = re.compile(r"[0-9]{1,16}\Z")
_V_NUMBER = re.compile(r"v([0-9]{1,16})\Z")
_HASH = re.compile(r"[0-9a-f]{6,64}\Z")

VersionName = Annotated[
    Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)],
    msgspec.Meta(
        description="Version number (12 or v12; 0 is the empty state), snapshot label, 6 or more digits of the "
        "hash, or head.",
    ),
]


async def resolve_revision(lines: LineStore, head: Point, name: str | int) -> Point:
    """Return the point of a revision: head, number, snapshot label, vNUMBER or hash prefix, tried in this order."""
    text = str(name)
    if text in _HEAD_NAMES:
        return head
    if _NUMBER.match(text) and int(text) <= head.seq:
        return await point_at(lines, head.line_id, int(text))
    snapshot = await find_snapshot(lines, head.line_id, head.seq, text) if is_name(text) else None
    if snapshot is not None:
        return await point_at(lines, head.line_id, snapshot.seq)
    # After labels: a snapshot may be called v2.
    numbered = _V_NUMBER.match(text)
    if numbered and int(numbered[1]) <= head.seq:
        return await point_at(lines, head.line_id, int(numbered[1]))
    return await _point_of_hash(lines, head, text)


async def point_at(lines: LineStore, line_id: str, seq: int) -> Point:
    found = await lines.commit_at(line_id, seq) if seq else None
    return Point(line_id, seq, found.hash if found else EMPTY)


def no_version(name: str | int) -> VersionNotFound:
    shown = str(name)[:100]
    return VersionNotFound(f"The context has no version '{shown}'.", resource_type="version", resource_id=shown)


async def find_snapshot(lines: LineStore, line_id: str, at: int, label: str) -> Tag | None:
    """Return the snapshot with a label. A branch also has the snapshots of the shared ancestry."""
    # The line itself first: before its first commit a branch has no commits in its own ancestry.
    ancestry = {line_id: at, **{commits.line_id: commits.upto for commits in await lines.past(line_id, at)}}
    for ancestor, upto in ancestry.items():
        tag = await lines.find_tag(ancestor, label)
        if tag is not None and tag.seq <= upto:
            return tag
    return None


async def snapshots_of(lines: LineStore, line_id: str) -> list[Tag]:
    """Return the snapshots of a line and of its shared ancestry, oldest first."""
    tags: dict[str, Tag] = {}
    for commits in await lines.past(line_id, LATEST):
        for tag in await lines.tags(commits.line_id):
            if tag.seq <= commits.upto:
                tags.setdefault(tag.label, tag)
    return sorted(tags.values(), key=lambda tag: (tag.created_at, tag.label))


async def _point_of_hash(lines: LineStore, head: Point, name: str) -> Point:
    prefix = name.lower()
    found = await lines.commits_by_hash(head.line_id, prefix) if _HASH.match(prefix) else ()
    if len(found) > 1:
        raise VersionNotFound(
            f"More than one version has a hash that starts with '{prefix}'.",
            hint="Give more digits of the hash, or the version's number.",
            resource_id=prefix,
        )
    if not found:
        raise no_version(name)
    return Point(head.line_id, found[0].commit.seq, found[0].hash)
