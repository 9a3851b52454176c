"""Snapshots: named versions of a context, and the index of all of them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.access.grants import needs_clearance
from weftline.history.commits import add_snapshot, check_label
from weftline.history.line_kinds import AGENT, forbid_own_rules, kind_of, name_in, write_errors
from weftline.history.model import LineNotFound, SnapshotExists, SnapshotNotFound, no_snapshot
from weftline.history.revisions import ContextId, PageSize, audited_write, read_operation, write_operation
from weftline.history.service import History, head_point
from weftline.history.snapshot_quota import SnapshotQuota
from weftline.history.sql import SnapshotIndex
from weftline.history.store import IndexedSnapshot, SnapshotPosition
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import Forbidden, NotFound, PermissionDenied, QuotaExceeded
from weftline.kernel.fields import Name
from weftline.kernel.operation import Request, Response

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLEARANCE = 3
# Timestamp, label and line id of the last snapshot on the previous page.
_CURSOR = r"^[0-9]{1,16}\.[A-Za-z0-9][A-Za-z0-9_-]{0,99}\.[a-z]{1,10}:[A-Za-z0-9_:@-]{1,400}\Z"
_SCAN_PAGE = 200
# Bounds the latency of one call: a page may be short.
_MAX_SCANNED = 2_000


SnapshotCursor = Annotated[
    Annotated[str, msgspec.Meta(pattern=_CURSOR)] | None,
    msgspec.Meta(description="next_cursor of the previous page."),
]


class CreateSnapshot(Request):
    """Context, and the label for its current version."""

    context_id: ContextId
    label: Annotated[Name, msgspec.Meta(description="Label of the snapshot, such as before_migration.")]


class SnapshotTaken(Response, kw_only=True, omit_defaults=False):
    """The snapshot. Its version is kept until the snapshot is deleted."""

    context_id: str
    label: str
    version: int
    hash: str
    created_by: str
    created_at: datetime


class DeleteSnapshot(Request):
    """Snapshot to delete."""

    context_id: ContextId
    label: Annotated[Name, msgspec.Meta(description="Label of the snapshot.")]


class SnapshotDeleted(Response, kw_only=True, omit_defaults=False):
    """The label is deleted; the version stays as long as retention keeps it."""

    context_id: str
    deleted: str


class ListAllSnapshots(Request):
    """Filters for the snapshot index."""

    context_id: Annotated[ContextId | None, msgspec.Meta(description="Only of this context.")] = None
    agent_id: Annotated[
        Name | None, msgspec.Meta(description="Only of this agent's definition and persistent memory.")
    ] = None
    cursor: SnapshotCursor = None
    limit: PageSize = 50


class ListContextSnapshots(Request):
    """Context whose snapshots to list."""

    context_id: ContextId
    cursor: SnapshotCursor = None
    limit: PageSize = 50


class SnapshotListed(Response, kw_only=True, omit_defaults=False):
    """A snapshot; ``automatic`` if Weftline took it."""

    context_id: str
    label: str
    version: int
    created_by: str
    created_at: datetime
    automatic: bool


class SnapshotList(Response):
    """Snapshots, newest first. A page may be short; ``next_cursor`` is set while there are more."""

    snapshots: list[SnapshotListed]
    next_cursor: str | None = None


@write_operation(
    "history.snapshot",
    action="snapshot",
    http="POST /v1/history/{context_id}/snapshots",
    status=201,
    requires=needs_clearance(_CLEARANCE, "A snapshot"),
    forbids=forbid_own_rules,
    errors=lambda: (*write_errors(), SnapshotExists, PermissionDenied, QuotaExceeded),
)
async def create_snapshot(request: CreateSnapshot, history: History, quota: SnapshotQuota) -> SnapshotTaken:
    """Name the current version of a context, to compare with it or to roll back to it. Needs clearance 3."""
    kind_of(request.context_id)
    check_label(request.label)
    line = await history.to_write(request.context_id)
    head = line.head
    tag = await add_snapshot(history.lines, head, request.label, history.actor, history.now)
    await line.announce("history.snapshot", request.label, {"context_id": head.line_id, "version": head.seq})
    await quota.check(head.line_id)
    return SnapshotTaken(
        context_id=request.context_id,
        label=tag.label,
        version=tag.seq,
        hash=await history.shown_hash(head_point(head)),
        created_by=tag.created_by,
        created_at=from_micros(tag.created_at),
    )


@audited_write(
    "history.delete_snapshot",
    action="delete_snapshot",
    http="DELETE /v1/history/{context_id}/snapshots/{label}",
    destructive=True,
    requires=needs_clearance(_CLEARANCE, "Deleting a snapshot"),
    errors=lambda: (*write_errors(), SnapshotNotFound, PermissionDenied),
)
async def delete_snapshot(request: DeleteSnapshot, history: History, quota: SnapshotQuota) -> SnapshotDeleted:
    """Delete a snapshot, so that retention may remove values only it needs. Needs clearance 3."""
    kind_of(request.context_id)
    line = await history.to_write(request.context_id)
    if not await history.lines.untag(line.head.line_id, request.label):
        raise no_snapshot(request.label)
    await line.announce("history.snapshot_deleted", request.label, {"context_id": line.head.line_id})
    await quota.note_deleted(line.head.line_id)
    return SnapshotDeleted(context_id=request.context_id, deleted=request.label)


@read_operation(
    "history.snapshots", action="snapshots", http="GET /v1/history-snapshots", errors=(LineNotFound,), heavy=True
)
async def list_all_snapshots(request: ListAllSnapshots, history: History, index: SnapshotIndex) -> SnapshotList:
    """List the snapshots of every context you may read, newest first; a sub-agent names those of its session."""
    if request.context_id is not None:
        await history.to_read(request.context_id)
    readable = _ReadableLines(history, request)
    position = None if request.cursor is None else _decode_cursor(request.cursor)
    found: list[IndexedSnapshot] = []
    for _ in range(_MAX_SCANNED // _SCAN_PAGE):
        page = await index.newest(position, _SCAN_PAGE, request.context_id)
        for snapshot in page:
            if len(found) == request.limit:
                return _snapshot_list(found, position)
            position = _position_of(snapshot)
            if await readable.includes(snapshot.line_id):
                found.append(snapshot)
        if len(page) < _SCAN_PAGE:
            return _snapshot_list(found, None)
    return _snapshot_list(found, position)


@read_operation(
    "history.context_snapshots",
    action="context_snapshots",
    http="GET /v1/history/{context_id}/snapshots",
    errors=(LineNotFound,),
)
async def list_context_snapshots(request: ListContextSnapshots, history: History, index: SnapshotIndex) -> SnapshotList:
    """List the snapshots of one context, newest first."""
    await history.to_read(request.context_id)
    position = None if request.cursor is None else _decode_cursor(request.cursor)
    page = await index.newest(position, request.limit + 1, request.context_id)
    shown = page[: request.limit]
    return _snapshot_list(shown, _position_of(shown[-1]) if len(page) > request.limit else None)


class _ReadableLines:
    """Which lines the caller asked for and may read; each is checked once."""

    def __init__(self, history: History, request: ListAllSnapshots) -> None:
        self._history = history
        self._request = request
        self._known: dict[str, bool] = {}

    async def includes(self, line_id: str) -> bool:
        if line_id not in self._known:
            self._known[line_id] = self._matches(line_id) and await self._may_read(line_id)
        return self._known[line_id]

    def _matches(self, line_id: str) -> bool:
        if self._request.context_id is None and not self._history.may_list(line_id):
            return False
        return self._request.agent_id is None or name_in(line_id, AGENT) == self._request.agent_id

    async def _may_read(self, line_id: str) -> bool:
        try:
            await self._history.to_read(line_id)
        except (NotFound, Forbidden):
            return False
        return True


def _snapshot_list(found: Sequence[IndexedSnapshot], position: SnapshotPosition | None) -> SnapshotList:
    return SnapshotList(
        snapshots=[
            SnapshotListed(
                context_id=snapshot.line_id,
                label=snapshot.label,
                version=snapshot.seq,
                created_by=snapshot.created_by,
                created_at=from_micros(snapshot.created_at),
                automatic=snapshot.automatic,
            )
            for snapshot in found
        ],
        next_cursor=None if position is None else f"{position.created_at}.{position.label}.{position.line_id}",
    )


def _position_of(snapshot: IndexedSnapshot) -> SnapshotPosition:
    return SnapshotPosition(snapshot.created_at, snapshot.line_id, snapshot.label)


def _decode_cursor(cursor: str) -> SnapshotPosition:
    created_at, label, line_id = cursor.split(".")
    return SnapshotPosition(int(created_at), line_id, label)
