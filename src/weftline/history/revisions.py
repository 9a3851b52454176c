"""Resolve the revision that a caller names: number, snapshot label, hash prefix or head."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from weftline.history.model import EMPTY, LATEST, ChangeKind, Point, VersionNotFound
from weftline.history.text_diff import DiffBudget, text_diff
from weftline.kernel.clock import from_micros
from weftline.kernel.fields import MAX_INT, Name, is_name
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Audience, Effect, RateClass, SessionUse, operation

if TYPE_CHECKING:
    from weftline.history.lines import LineStore
    from weftline.history.model import Author, Tag, Version


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


# Request fields and kinds of operations that several files of history share.

TOOL = "context_history"

_operation = partial(operation, tool=TOOL, rate=RateClass.BOARD, session=SessionUse.FINDS)
read_operation = partial(_operation, permission=Permission.READ, effect=Effect.READ)
own_transactions_read = partial(_operation, permission=Permission.READ, effect=Effect.OWN_TRANSACTIONS)
write_operation = partial(_operation, permission=Permission.WRITE, effect=Effect.WRITE)
audited_write = partial(write_operation, audience=Audience.NOT_SUBAGENTS, audited=True)

ContextId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=400,
        description="The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or "
        "user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch.",
        extra_json_schema={"examples": ["board:session_a1b2c3d4e5f60718"]},
    ),
]
HistoryKey = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9_:/-][A-Za-z0-9_.:/#-]{0,399}\Z",
        description="Only this key.",
    ),
]
BranchName = Annotated[Name, msgspec.Meta(description="Name of the branch, such as try_postgres.")]
PageSize = Annotated[int, msgspec.Meta(ge=1, le=1_000, description="Maximum number of results.")]
PageCursor = Annotated[Name | None, msgspec.Meta(description="next_cursor of the previous page.")]


# What changed since the version that a caller expected, for VERSION_CONFLICT.

# An agent that meets a conflict has to read it: short, and cheap to compute.
_MAX_CHARACTERS = 600
_MAX_STEPS = 20_000
# Longer values are not compared: a conflict is answered on the event loop.
_MAX_COMPARED = 20_000


def changed_by(author: Author, at: int) -> dict[str, Any]:
    """Return who made a change, and when."""
    return {"changed_by": author.participant, "agent_id": author.principal_id, "changed_at": from_micros(at)}


def last_change(version: Version, before: Version | None = None) -> dict[str, Any]:
    """Return who made the current version and when, and how its value differs from an earlier one.

    Only of versions that the caller may read.
    """
    about: dict[str, Any] = {
        "changed_by": version.author,
        "agent_id": version.principal_id,
        "changed_at": from_micros(version.committed_at),
    }
    if version.change.act is not ChangeKind.WRITE:
        return about | {"change": version.change.act}
    if before is None or before.value is None or version.value is None:
        return about
    if max(len(before.value), len(version.value)) > _MAX_COMPARED:
        return about
    diff = text_diff(before.value, version.value, DiffBudget(_MAX_STEPS, _MAX_CHARACTERS))
    return about | {"diff": diff.text, **({"omitted_lines": diff.omitted_lines} if diff.omitted_lines else {})}
