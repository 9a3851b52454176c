"""Looking back at any line: what was done, by whom and why, and what stood at any moment."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from weft.capabilities.history.merging import state_by_key
from weft.capabilities.history.model import LineNotFound, Version, VersionNotFound
from weft.capabilities.objects.model import ObjectDamaged, ObjectMissing, ObjectStorageUnavailable, Pointer
from weft.capabilities.objects.staging import Staging
from weft.capabilities.timeline.model import HEAD, ContextId, HistoryKey, VersionName
from weft.capabilities.timeline.store import Errands
from weft.capabilities.timeline.timelines import Timelines, no_version, seen, seen_changes
from weft.kernel.clock import from_micros, optional_moment
from weft.kernel.fields import Ordinal
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.history.keeping import OpenLine
    from weft.capabilities.history.merging import State
    from weft.capabilities.history.model import Point, Recorded

TOOL = "context_history"
READ_ERRORS = (LineNotFound, VersionNotFound)
# Commits of one key are looked through at least so many at a time, as those that may not be shown are left out.
_LOOK_THROUGH = 200


class ReadLog(Request):
    """Which part of which line's log."""

    context_id: ContextId
    key: Annotated[HistoryKey | None, msgspec.Meta(description="Only commits that changed this key.")] = None
    before_version: Annotated[
        Ordinal | None, msgspec.Meta(description="Only older commits than this one; for paging.")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000, description="At most this many.")] = 50


class ChangeInfo(Response):
    """What a commit did to one key."""

    key: str
    act: str
    key_version: int
    size_tokens: int = 0
    size: int = 0


class MergedFrom(Response):
    """The other line's moment that a merge brought in."""

    context_id: str
    version: int
    hash: str


class CommitInfo(Response):
    """One step of a line. Changes you may not see are not among them."""

    version: int
    hash: str
    author: str
    at: datetime
    reason: str
    changes: list[ChangeInfo]
    step: str | None = None
    merged: MergedFrom | None = None


class Log(Response, kw_only=True, omit_defaults=False):
    """Commits, newest first."""

    context_id: str
    commits: list[CommitInfo]
    has_more: bool


class ShowCommit(Request):
    """Which commit."""

    context_id: ContextId
    version: VersionName = HEAD


class CommitShown(Response):
    """One commit, with the one it follows and the snapshots that name it."""

    context_id: str
    commit: CommitInfo
    parent: str | None = None
    snapshots: tuple[str, ...] = ()


class ReadState(Request):
    """Which moment of which line."""

    context_id: ContextId
    version: VersionName = HEAD
    key: HistoryKey | None = None


class StoredEntry(Response, kw_only=True, omit_defaults=True):
    """A key as it stood. ``value`` is null if it was pruned or is no text; ``outside`` the database, name its key."""

    key: str
    value: str | None
    key_version: int
    author: str
    at: datetime
    size: int = 0
    size_tokens: int = 0
    expires_at: datetime | None = None
    pruned: bool = False
    outside: bool = False
    media_type: str | None = None
    base64: str | None = None


class LineState(Response, kw_only=True, omit_defaults=False):
    """What stood at one moment, as far as you may see it."""

    context_id: str
    version: int
    hash: str
    entries: list[StoredEntry]


class ReadBlame(Request):
    """Whose entries, and when."""

    context_id: ContextId
    version: VersionName = HEAD
    key: HistoryKey | None = None


class Blame(Response):
    """Who made an entry what it was, when and why."""

    key: str
    author: str
    at: datetime
    version: int
    key_version: int
    reason: str
    step: str | None = None


class Blamed(Response, kw_only=True, omit_defaults=False):
    """Every entry that stood, with who made it so."""

    context_id: str
    version: int
    entries: list[Blame]


@operation(
    "history.log",
    tool=TOOL,
    action="log",
    http="GET /v1/history/{context_id}/log",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(LineNotFound,),
    heavy=lambda request: request.limit > _LOOK_THROUGH,
)
async def read_log(request: ReadLog, timelines: Timelines) -> Log:
    """See what was done to a line, newest first: who, when, why and to which keys."""
    line = await timelines.to_read(request.context_id)
    at = line.head.seq if request.before_version is None else min(request.before_version - 1, line.head.seq)
    commits = await _commits(timelines, line, at, request)
    return Log(context_id=request.context_id, commits=commits[: request.limit], has_more=len(commits) > request.limit)


async def _commits(timelines: Timelines, line: OpenLine, at: int, request: ReadLog) -> list[CommitInfo]:
    """Return one commit more than asked for, if there is one. Those of a key show something of that key."""
    found: list[CommitInfo] = []
    page = request.limit + 1 if request.key is None else max(request.limit + 1, _LOOK_THROUGH)
    while at > 0 and len(found) <= request.limit:
        commits = await timelines.lines.log(line.head.line_id, at, page, request.key)
        shown = zip(commits, await seen_changes(line, commits), strict=True)
        found += [commit_info(commit, changes) for commit, changes in shown if _concerns(changes, request.key)]
        if len(commits) < page:
            break
        at = commits[-1].commit.seq - 1
    return found


@operation(
    "history.show",
    tool=TOOL,
    action="show",
    http="GET /v1/history/{context_id}/versions/{version}",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=READ_ERRORS,
)
async def show_commit(request: ShowCommit, timelines: Timelines) -> CommitShown:
    """Look at one commit: what it changed, and what it followed."""
    line = await timelines.to_read(request.context_id)
    point = await timelines.moment(line, request.version)
    commit = await timelines.lines.commit_at(line.head.line_id, point.seq)
    if commit is None:
        raise no_version(request.version)
    (changes,) = await seen_changes(line, [commit])
    parent = await timelines.at(line, point.seq - 1)
    tags = await timelines.lines.tags(commit.commit.line_id)
    return CommitShown(
        context_id=request.context_id,
        commit=commit_info(commit, changes),
        parent=parent.hash.hex() if parent.seq else None,
        snapshots=tuple(tag.label for tag in tags if tag.seq == point.seq),
    )


@operation(
    "history.read",
    tool=TOOL,
    action="read",
    http="GET /v1/history/{context_id}/state",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(*READ_ERRORS, ObjectStorageUnavailable, ObjectMissing, ObjectDamaged),
)
async def read_state(request: ReadState, actor: Actor, errands: Errands, staging: Staging) -> LineState:
    """Read a line as it stood at any version.

    A value that is kept outside the database comes only if its key is named.
    """
    heavy = request.key is None
    point, versions = await errands.read(actor, lambda timelines: _read(request, timelines), heavy=heavy)
    entries = [_stored_entry(version) for version in versions]
    if request.key is not None:
        entries = [await _fetched(entry, versions[0], actor, staging) for entry in entries]
    return LineState(context_id=request.context_id, version=point.seq, hash=point.hash.hex(), entries=entries)


@operation(
    "history.blame",
    tool=TOOL,
    action="blame",
    http="GET /v1/history/{context_id}/blame",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=READ_ERRORS,
    heavy=lambda request: request.key is None,
)
async def read_blame(request: ReadBlame, timelines: Timelines) -> Blamed:
    """See who made each entry what it was at a version, when, why and in which workflow step."""
    line = await timelines.to_read(request.context_id)
    point = await timelines.moment(line, request.version)
    state = await _standing(timelines, line, point, request.key, values=False)
    return Blamed(
        context_id=request.context_id,
        version=point.seq,
        entries=[blame_of(version) for _, version in sorted(state.items())],
    )


async def _read(request: ReadState, timelines: Timelines) -> tuple[Point, list[Version]]:
    line = await timelines.to_read(request.context_id)
    point = await timelines.moment(line, request.version)
    state = await _standing(timelines, line, point, request.key, values=True)
    return point, [version for _, version in sorted(state.items())]


async def _fetched(entry: StoredEntry, version: Version, actor: Actor, staging: Staging) -> StoredEntry:
    """Return an entry with the value that is kept outside, if it is: JSON as text, everything else as base64."""
    if not entry.outside or version.value is None:
        return entry
    content = await staging.fetch(actor.tenant, Pointer.decode(version.value))
    if entry.media_type is not None:
        return structs.replace(entry, base64=base64.b64encode(content).decode())
    return structs.replace(entry, value=content.decode())


async def _standing(timelines: Timelines, line: OpenLine, point: Point, key: str | None, *, values: bool) -> State:
    """Return what stood at a moment, or one key of it, as far as the caller may see it."""
    if key is None:
        state = state_by_key(await timelines.lines.state_at(point.line_id, point.seq, values=values))
    else:
        found = await timelines.lines.latest(point.line_id, key, point.seq)
        state = {} if found is None else {key: found}
    return await seen(line, await timelines.living(state, point))


def commit_info(recorded: Recorded, changes: Sequence[Version]) -> CommitInfo:
    commit = recorded.commit
    merged = commit.merged
    return CommitInfo(
        version=commit.seq,
        hash=recorded.hash.hex(),
        author=commit.author.participant,
        at=from_micros(commit.committed_at),
        reason=commit.reason,
        step=commit.step,
        changes=[_change_info(version) for version in changes],
        merged=None
        if merged is None
        else MergedFrom(context_id=merged.line_id, version=merged.seq, hash=merged.hash.hex()),
    )


def _change_info(version: Version) -> ChangeInfo:
    change = version.change
    return ChangeInfo(
        key=change.key,
        act=change.act,
        key_version=change.version,
        size_tokens=change.meta.tokens,
        size=change.meta.size,
    )


def _concerns(changes: Sequence[Version], key: str | None) -> bool:
    return key is None or any(version.change.key == key for version in changes)


def _stored_entry(version: Version) -> StoredEntry:
    change, meta = version.change, version.change.meta
    return StoredEntry(
        key=change.key,
        value=None if meta.outside else version.value,
        key_version=change.version,
        author=version.author,
        at=from_micros(version.committed_at),
        size=meta.size or len((version.value or "").encode()),
        size_tokens=meta.tokens,
        expires_at=optional_moment(meta.expires_at),
        pruned=version.value is None,
        outside=meta.outside,
        media_type=meta.media_type,
    )


def blame_of(version: Version) -> Blame:
    return Blame(
        key=version.change.key,
        author=version.author,
        at=from_micros(version.committed_at),
        version=version.seq,
        key_version=version.change.version,
        reason=version.reason,
        step=version.step,
    )
