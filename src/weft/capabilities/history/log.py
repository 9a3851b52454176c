"""Looking back at any line: what was done, by whom and why, and what stood at any moment."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import structs

from weft.capabilities.history.composite_lines import entries_at, entry_at
from weft.capabilities.history.line_ids import TOOL, ContextId, HistoryKey
from weft.capabilities.history.model import BranchNotFound, LineNotFound, Version, VersionNotFound
from weft.capabilities.history.revisions import HEAD, VersionName, no_version
from weft.capabilities.history.service import History, seen, seen_changes
from weft.capabilities.history.values import PageSize, value_shown, with_room
from weft.capabilities.object_storage.model import ObjectDamaged, ObjectMissing, ObjectStorageUnavailable, Pointer
from weft.capabilities.object_storage.staging import Staging
from weft.kernel.clock import from_micros, optional_datetime
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation
from weft.kernel.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.history.line_backend import OpenLine
    from weft.capabilities.history.model import Point, StoredCommit

READ_ERRORS = (LineNotFound, BranchNotFound, VersionNotFound)
# How many changes of each commit a log tells; the rest is told where the commit is shown.
_CHANGES_IN_LOG = 100
# Commits of one key are looked through at least so many at a time, as those that may not be shown are left out.
_LOOK_THROUGH = 200
# And no more than so many times: a page may be short, but is never long in coming.
_PAGES_OF_KEY = 10


KeyCursor = Annotated[HistoryKey | None, msgspec.Meta(description="next_cursor of the page before.")]


class ReadLog(Request):
    """Which part of which line's log."""

    context_id: ContextId
    key: Annotated[HistoryKey | None, msgspec.Meta(description="Only commits that changed this key.")] = None
    before_version: Annotated[
        VersionName | None, msgspec.Meta(description="Only older commits than this one; for paging.")
    ] = None
    limit: PageSize = 50


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
    """One step of a line, and the agent behind it.

    Changes you may not see are not among them; if you may see none, it does not say why it was made either.
    """

    version: int
    hash: str
    author: str
    agent_id: str
    at: datetime
    reason: str
    changes: list[ChangeInfo]
    more_changes: int = 0
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
    cursor: KeyCursor = None
    limit: PageSize = 200


class CommitShown(Response):
    """One commit, with the one it follows and the snapshots that name it. More changes are behind a next_cursor."""

    context_id: str
    commit: CommitInfo
    parent: str | None = None
    snapshots: tuple[str, ...] = ()
    next_cursor: str | None = None


class ReadState(Request):
    """Which moment of which line."""

    context_id: ContextId
    version: VersionName = HEAD
    key: HistoryKey | None = None
    cursor: KeyCursor = None
    limit: PageSize = 200


class StoredEntry(Response, kw_only=True, omit_defaults=True):
    """A key as it stood: a board's value is text, all others are JSON.

    ``value`` is null if it was ``pruned``, is kept ``outside`` the database or is ``truncated``, because the answer
    was full. What is outside or truncated comes if its key is named.
    """

    key: str
    value: Any
    key_version: int
    author: str
    agent_id: str
    at: datetime
    size: int = 0
    size_tokens: int = 0
    expires_at: datetime | None = None
    pruned: bool = False
    outside: bool = False
    truncated: bool = False
    media_type: str | None = None
    base64: str | None = None


class LineState(Response, kw_only=True, omit_defaults=False):
    """What stood at one moment, as far as you may see it, by key. There is more as long as there is a next_cursor.

    Of a whole context these are the entries of its parts, as PART/KEY.
    """

    context_id: str
    version: int
    hash: str
    entries: list[StoredEntry]
    next_cursor: str | None = None


class ReadBlame(Request):
    """Whose entries, and when."""

    context_id: ContextId
    version: VersionName = HEAD
    key: HistoryKey | None = None
    cursor: KeyCursor = None
    limit: PageSize = 200


class Blame(Response):
    """Who made an entry what it was, when and why. An entry PART/KEY counts versions as its part does."""

    key: str
    author: str
    agent_id: str
    at: datetime
    version: int
    key_version: int
    reason: str
    step: str | None = None


class Blamed(Response, kw_only=True, omit_defaults=False):
    """Every entry that stood, by key, with who made it so. There is more as long as there is a next_cursor."""

    context_id: str
    version: int
    entries: list[Blame]
    next_cursor: str | None = None


@operation(
    "history.log",
    tool=TOOL,
    action="log",
    http="GET /v1/history/{context_id}/log",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=READ_ERRORS,
    heavy=lambda request: request.key is not None or request.limit > _LOOK_THROUGH,
)
async def read_log(request: ReadLog, timelines: History) -> Log:
    """See what was done to a line, newest first: who, when, why and to which keys."""
    line = await timelines.to_read(request.context_id)
    before = None if request.before_version is None else await timelines.moment(line, request.before_version)
    at = line.head.seq if before is None else before.seq - 1
    commits, has_more = await _commits(timelines, line, at, request)
    return Log(context_id=request.context_id, commits=commits[: request.limit], has_more=has_more)


async def _commits(timelines: History, line: OpenLine, at: int, request: ReadLog) -> tuple[list[CommitInfo], bool]:
    """Return at least the commits asked for, if there are as many, and whether there are more.

    Those of a key show something of that key. Of a key that is hidden nothing is told, not even that there is more.
    """
    found: list[CommitInfo] = []
    page = request.limit + 1 if request.key is None else max(request.limit + 1, _LOOK_THROUGH)
    for _ in range(1 if request.key is None else _PAGES_OF_KEY):
        commits = await timelines.lines.log(line.head.line_id, at, page, request.key)
        shown = zip(commits, await seen_changes(line, commits), strict=True)
        found += [_logged(commit, changes) for commit, changes in shown if _concerns(changes, request.key)]
        if len(found) > request.limit or len(commits) < page:
            return found, len(found) > request.limit
        at = commits[-1].commit.seq - 1
    return found, bool(found)


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
async def show_commit(request: ShowCommit, timelines: History) -> CommitShown:
    """Look at one commit: what it changed, and what it followed."""
    line = await timelines.to_read(request.context_id)
    point = await timelines.moment(line, request.version)
    commit = await timelines.lines.commit_at(line.head.line_id, point.seq)
    if commit is None:
        raise no_version(request.version)
    (changes,) = await seen_changes(line, [commit])
    page, next_cursor = _page(changes, request.cursor, request.limit)
    parent = await timelines.at(line, point.seq - 1)
    tags = await timelines.lines.tags(commit.commit.line_id)
    hidden = _is_hidden(commit, changes)
    return CommitShown(
        context_id=request.context_id,
        commit=_commit_info(commit, page, hidden=hidden),
        parent=parent.hash.hex() if parent.seq else None,
        # A name that came by itself tells the step.
        snapshots=tuple(tag.label for tag in tags if tag.seq == point.seq and not (hidden and tag.automatic)),
        next_cursor=next_cursor,
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
async def read_state(request: ReadState, actor: Actor, errands: Transactions[History], staging: Staging) -> LineState:
    """Read a line as it stood at any version. Of a whole context these are its entries, as PART/KEY.

    A value that is kept outside the database, or for which the answer has no room, comes only if its key is named.
    """
    heavy = request.key is None
    point, versions = await errands.read(actor, lambda timelines: _read(request, timelines), heavy=heavy)
    page, next_cursor = _page(versions, request.cursor, request.limit)
    if request.key is None:
        entries = [_stored_entry(request.context_id, version, fits=fits) for version, fits in with_room(page)]
    else:
        entries = [await _fetched(request.context_id, version, actor, staging) for version in page]
    return LineState(
        context_id=request.context_id,
        version=point.seq,
        hash=point.hash.hex(),
        entries=entries,
        next_cursor=next_cursor,
    )


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
async def read_blame(request: ReadBlame, timelines: History) -> Blamed:
    """See who made each entry what it was at a version, when, why and in which workflow step."""
    line = await timelines.to_read(request.context_id)
    point = await timelines.moment(line, request.version)
    standing = await _standing(timelines, line, point, request.key, values=False)
    page, next_cursor = _page(standing, request.cursor, request.limit)
    return Blamed(
        context_id=request.context_id,
        version=point.seq,
        entries=[blame_of(version) for version in page],
        next_cursor=next_cursor,
    )


async def _read(request: ReadState, timelines: History) -> tuple[Point, list[Version]]:
    line = await timelines.to_read(request.context_id)
    point = await timelines.moment(line, request.version)
    return point, await _standing(timelines, line, point, request.key, values=True)


async def _fetched(line_id: str, version: Version, actor: Actor, staging: Staging) -> StoredEntry:
    """Return an entry with its value, wherever that is kept: JSON, or base64 if it is anything else."""
    entry = _stored_entry(line_id, version, fits=True)
    if not entry.outside or version.value is None:
        return entry
    content = await staging.fetch(actor.tenant, Pointer.decode(version.value))
    if entry.media_type is not None:
        return structs.replace(entry, base64=base64.b64encode(content).decode())
    return structs.replace(entry, value=value_shown(line_id, content.decode()))


async def _standing(
    timelines: History, line: OpenLine, point: Point, key: str | None, *, values: bool
) -> list[Version]:
    """Return what stood at a moment, by key, or one key of it, as far as the caller may see it."""
    if key is not None:
        found = await entry_at(timelines.lines, point.line_id, key, point.seq)
        state = {} if found is None else {key: found}
    else:
        state = await entries_at(timelines.lines, point, values=values)
    shown = await seen(line, await timelines.living(state, point))
    return [version for _, version in sorted(shown.items())]


def _page(versions: Sequence[Version], after: str | None, limit: int) -> tuple[Sequence[Version], str | None]:
    """Return the next versions by key, and where the page behind them begins."""
    left = [version for version in versions if after is None or version.change.key > after]
    page = left[:limit]
    return page, page[-1].change.key if len(left) > limit else None


def _logged(recorded: StoredCommit, changes: Sequence[Version]) -> CommitInfo:
    told = _commit_info(recorded, changes[:_CHANGES_IN_LOG], hidden=_is_hidden(recorded, changes))
    return structs.replace(told, more_changes=max(0, len(changes) - _CHANGES_IN_LOG))


def _is_hidden(recorded: StoredCommit, visible: Sequence[Version]) -> bool:
    """Tell whether the caller may know of nothing that a commit changed."""
    return bool(recorded.commit.changes) and not visible


def _commit_info(recorded: StoredCommit, changes: Sequence[Version], *, hidden: bool) -> CommitInfo:
    """Return a commit as it is shown; why it was made is for those who may know of something that it changed."""
    commit = recorded.commit
    merged = None if hidden else commit.merged
    return CommitInfo(
        version=commit.seq,
        hash=recorded.hash.hex(),
        author=commit.author.participant,
        agent_id=commit.author.principal_id,
        at=from_micros(commit.committed_at),
        reason="" if hidden else commit.reason,
        step=None if hidden else commit.step,
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


def _stored_entry(line_id: str, version: Version, *, fits: bool) -> StoredEntry:
    change, meta = version.change, version.change.meta
    return StoredEntry(
        key=change.key,
        value=None if meta.outside or not fits else value_shown(line_id, version.value),
        key_version=change.version,
        author=version.author,
        agent_id=version.principal_id,
        at=from_micros(version.committed_at),
        size=meta.size or len((version.value or "").encode()),
        size_tokens=meta.tokens,
        expires_at=optional_datetime(meta.expires_at),
        pruned=version.value is None,
        outside=meta.outside,
        truncated=not (fits or meta.outside),
        media_type=meta.media_type,
    )


def blame_of(version: Version) -> Blame:
    return Blame(
        key=version.change.key,
        author=version.author,
        agent_id=version.principal_id,
        at=from_micros(version.committed_at),
        version=version.seq,
        key_version=version.change.version,
        reason=version.reason,
        step=version.step,
    )
