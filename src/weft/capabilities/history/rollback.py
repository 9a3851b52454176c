"""Naming moments of any line, finding them again, and going back to one."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec

from weft.capabilities.access.grants import check_clearance
from weft.capabilities.history.commits import check_label, tag_automatically
from weft.capabilities.history.composite_lines import is_whole_context
from weft.capabilities.history.line_backend import CommitMeta, RestorePoint
from weft.capabilities.history.line_ids import (
    ROOM_ERRORS,
    SNAPSHOT_CLEARANCE,
    TOOL,
    WRITE_ERRORS,
    ContextId,
    NamedMoment,
    sort_of,
)
from weft.capabilities.history.model import (
    LineNotFound,
    SnapshotExists,
    SnapshotNotFound,
    Tag,
    VersionNotFound,
    VersionPruned,
)
from weft.capabilities.history.operation_ports import SnapshotIndex, SnapshotPosition
from weft.capabilities.history.revisions import VersionName
from weft.capabilities.history.service import History, names, seen
from weft.capabilities.history.three_way import same_content
from weft.capabilities.history.values import PageSize
from weft.kernel.clock import from_micros
from weft.kernel.errors import Forbidden, NotFound, PermissionDenied
from weft.kernel.fields import Name, Reason, Step
from weft.kernel.identity import Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.history.line_backend import OpenLine
    from weft.capabilities.history.model import Point
    from weft.capabilities.history.three_way import State

# Where a page of snapshots ended: when, which label, of which line.
_CURSOR = r"^[0-9]{1,16}\.[A-Za-z0-9][A-Za-z0-9_-]{0,99}\.[a-z]{1,10}:[A-Za-z0-9_:@-]{1,400}\Z"
_LOOK_THROUGH = 200
# A page may be short, but is never long in coming.
_LOOK_THROUGH_AT_MOST = 2_000


SnapshotCursor = Annotated[
    Annotated[str, msgspec.Meta(pattern=_CURSOR)] | None,
    msgspec.Meta(description="next_cursor of the page before."),
]


class CreateSnapshot(Request):
    """What to call the present state."""

    context_id: ContextId
    label: Annotated[Name, msgspec.Meta(description="The snapshot's name, such as before_migration.")]


class SnapshotTaken(Response, kw_only=True, omit_defaults=False):
    """The present state has a name, and is kept for as long as it has."""

    context_id: str
    label: str
    version: int
    hash: str
    created_by: str
    created_at: datetime


class DeleteSnapshot(Request):
    """Which name to forget."""

    context_id: ContextId
    label: Annotated[Name, msgspec.Meta(description="The snapshot's name.")]


class SnapshotDeleted(Response, kw_only=True, omit_defaults=False):
    """The name is gone; the version stays for as long as retention keeps it."""

    context_id: str
    deleted: str


class ListNamedMoments(Request):
    """Whose snapshots."""

    context_id: Annotated[ContextId | None, msgspec.Meta(description="Of this line only.")] = None
    agent_id: Annotated[Name | None, msgspec.Meta(description="Of what this agent is and knows only.")] = None
    cursor: SnapshotCursor = None
    limit: PageSize = 50


class ListLineSnapshots(Request):
    """Of which line."""

    context_id: ContextId
    cursor: SnapshotCursor = None
    limit: PageSize = 50


class SnapshotListed(Response, kw_only=True, omit_defaults=False):
    """A named moment of a line; ``automatic`` if nobody asked for it."""

    context_id: str
    label: str
    version: int
    created_by: str
    created_at: datetime
    automatic: bool


class SnapshotList(Response):
    """Snapshots, newest first. There are more as long as there is a next_cursor, even if a page is short."""

    snapshots: list[SnapshotListed]
    next_cursor: str | None = None


class RollBack(Request):
    """Which line to take back, and how far."""

    context_id: ContextId
    target_version: VersionName
    reason: Reason = None
    step: Step = None


class RolledBack(Response, kw_only=True, omit_defaults=False):
    """The line says what it said then. What it said before that is named by ``snapshot_before``."""

    on_record = ("from_version", "version", "snapshot_before")

    context_id: str
    rolled_back_to: int
    from_version: int
    version: int
    written: list[str]
    removed: list[str]
    snapshot_before: str | None


@operation(
    "history.snapshot",
    tool=TOOL,
    action="snapshot",
    http="POST /v1/history/{context_id}/snapshots",
    status=201,
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    errors=(*WRITE_ERRORS, SnapshotExists, PermissionDenied),
)
async def name_moment(request: CreateSnapshot, timelines: History) -> SnapshotTaken:
    """Give the present state of a line a name, to compare with or to return to. Needs clearance 3."""
    sort_of(request.context_id)
    check_label(request.label)
    check_clearance(timelines.actor, SNAPSHOT_CLEARANCE, "A snapshot")
    line = await timelines.to_write(request.context_id)
    head = line.head
    tag = Tag(request.label, head.seq, timelines.actor.participant, timelines.now)
    if not await timelines.lines.tag(head.line_id, tag):
        raise SnapshotExists(f"The line has a snapshot '{request.label}' already.", resource_id=request.label)
    await line.announce("history.snapshot", request.label, {"context_id": head.line_id, "version": head.seq})
    return SnapshotTaken(
        context_id=request.context_id,
        label=tag.label,
        version=tag.seq,
        hash=head.hash.hex(),
        created_by=tag.created_by,
        created_at=from_micros(tag.created_at),
    )


@operation(
    "history.delete_snapshot",
    tool=TOOL,
    action="delete_snapshot",
    http="DELETE /v1/history/{context_id}/snapshots/{label}",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(*WRITE_ERRORS, SnapshotNotFound, PermissionDenied),
)
async def delete_snapshot(request: DeleteSnapshot, timelines: History) -> SnapshotDeleted:
    """Forget the name of a state, so that retention may remove what nothing else needs. Needs clearance 3."""
    sort_of(request.context_id)
    check_clearance(timelines.actor, SNAPSHOT_CLEARANCE, "Deleting a snapshot")
    line = await timelines.to_write(request.context_id)
    if not await timelines.lines.untag(line.head.line_id, request.label):
        raise SnapshotNotFound(f"The line has no snapshot '{request.label}'.", resource_id=request.label)
    await line.announce("history.snapshot_deleted", request.label, {"context_id": line.head.line_id})
    return SnapshotDeleted(context_id=request.context_id, deleted=request.label)


@operation(
    "history.snapshots",
    tool=TOOL,
    action="snapshots",
    http="GET /v1/history-snapshots",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(LineNotFound,),
    heavy=True,
)
async def list_snapshots(request: ListNamedMoments, timelines: History, index: SnapshotIndex) -> SnapshotList:
    """List the snapshots of every line you may see, newest first: one index of all checkpoints."""
    if request.context_id is not None:
        await timelines.to_read(request.context_id)
    readable = _Readable(timelines, request)
    position = None if request.cursor is None else _position(request.cursor)
    found: list[NamedMoment] = []
    for _ in range(_LOOK_THROUGH_AT_MOST // _LOOK_THROUGH):
        page = await index.newest(position, _LOOK_THROUGH, request.context_id)
        for moment in page:
            if len(found) == request.limit:
                return _snapshot_list(found, position)
            position = _position_of(moment)
            if await readable.has(moment.line_id):
                found.append(moment)
        if len(page) < _LOOK_THROUGH:
            return _snapshot_list(found, None)
    return _snapshot_list(found, position)


@operation(
    "history.line_snapshots",
    tool=TOOL,
    action="line_snapshots",
    http="GET /v1/history/{context_id}/snapshots",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(LineNotFound,),
)
async def list_line_snapshots(request: ListLineSnapshots, timelines: History, index: SnapshotIndex) -> SnapshotList:
    """List the snapshots of one line, newest first."""
    await timelines.to_read(request.context_id)
    position = None if request.cursor is None else _position(request.cursor)
    page = await index.newest(position, request.limit + 1, request.context_id)
    shown = page[: request.limit]
    return _snapshot_list(shown, _position_of(shown[-1]) if len(page) > request.limit else None)


@operation(
    "history.rollback",
    tool="rollback_context",
    http="POST /v1/history/{context_id}/rollback",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(*WRITE_ERRORS, VersionNotFound, VersionPruned, PermissionDenied, *ROOM_ERRORS),
)
async def roll_back(request: RollBack, timelines: History) -> RolledBack:
    """Make a line say what it said at an earlier version. Nothing is rewritten: the way back is a new version.

    A board or an agent's definition needs clearance 3, persistent memory clearance 4.
    """
    needed = timelines.keeper(request.context_id).rollback_clearance(request.context_id)
    check_clearance(timelines.actor, needed, "Going back")
    line = await timelines.to_write(request.context_id)
    before = line.head
    target = await timelines.moment(line, request.target_version)
    now, then = await _apart(timelines, line, target)
    changed = {
        key: then.get(key) for key in sorted(now.keys() | then.keys()) if not same_content(now.get(key), then.get(key))
    }
    known = await seen(line, {**now, **then})
    label, after = None, before
    if changed:
        label = await tag_automatically(
            timelines.lines, before, "before-rollback", timelines.actor.participant, timelines.now
        )
        reason = request.reason or _told(target)
        after = await line.apply(changed, CommitMeta(reason, request.step, restored=await _earlier(timelines, target)))
        moved = {"context_id": before.line_id, "to": target.seq, "from": before.seq, "version": after.seq}
        await line.announce("history.rolled_back", before.line_id, moved)
    return RolledBack(
        context_id=request.context_id,
        rolled_back_to=target.seq,
        from_version=before.seq,
        version=after.seq,
        written=names(version for key, version in known.items() if changed.get(key) is not None),
        removed=names(version for key, version in known.items() if key in changed and changed[key] is None),
        snapshot_before=label,
    )


async def _apart(timelines: History, line: OpenLine, target: Point) -> tuple[State, State]:
    """Return what stands and what stood, as far as it may differ."""
    return await timelines.states(await timelines.moment(line, "head"), target, values=True)


async def _earlier(timelines: History, target: Point) -> RestorePoint:
    """Return the moment that is brought back: a key has as much time left as it had then."""
    commit = await timelines.lines.commit_at(target.line_id, target.seq)
    return RestorePoint(f"version {target.seq}", commit.commit.committed_at if commit else timelines.now)


def _told(target: Point) -> str:
    # The parts of a whole context are taken back with it, to versions of their own: theirs is not the number meant.
    of_whole = f" {target.line_id}" if is_whole_context(target.line_id) else ""
    return f"roll back{of_whole} to version {target.seq}"


class _Readable:
    """Which lines a list may speak of, found out once each."""

    def __init__(self, timelines: History, request: ListNamedMoments) -> None:
        self._timelines = timelines
        self._agent_id = request.agent_id
        self._known: dict[str, bool] = {}

    async def has(self, line_id: str) -> bool:
        if line_id not in self._known:
            self._known[line_id] = self._is_meant(line_id) and await self._may_read(line_id)
        return self._known[line_id]

    def _is_meant(self, line_id: str) -> bool:
        if self._agent_id is None:
            return True
        sort, *owner = line_id.partition("@")[0].split(":")
        return sort != "board" and owner[:1] == [self._agent_id]

    async def _may_read(self, line_id: str) -> bool:
        try:
            await self._timelines.to_read(line_id)
        except (NotFound, Forbidden):
            return False
        return True


def _snapshot_list(found: Sequence[NamedMoment], position: SnapshotPosition | None) -> SnapshotList:
    return SnapshotList(
        snapshots=[
            SnapshotListed(
                context_id=moment.line_id,
                label=moment.label,
                version=moment.seq,
                created_by=moment.created_by,
                created_at=from_micros(moment.created_at),
                automatic=moment.automatic,
            )
            for moment in found
        ],
        next_cursor=None if position is None else _cursor(position),
    )


def _position_of(moment: NamedMoment) -> SnapshotPosition:
    return SnapshotPosition(moment.created_at, moment.line_id, moment.label)


def _cursor(position: SnapshotPosition) -> str:
    return f"{position.created_at}.{position.label}.{position.line_id}"


def _position(cursor: str) -> SnapshotPosition:
    created_at, label, line_id = cursor.split(".")
    return SnapshotPosition(int(created_at), line_id, label)
