"""Log, single commits, state at a version, and blame."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import structs

from weftline.history.composite_lines import entries_at, entry_at
from weftline.history.line_kinds import has_acls, kind_of
from weftline.history.model import BranchNotFound, LineNotFound, Version, VersionNotFound
from weftline.history.object_storage import ObjectDamaged, ObjectMissing, ObjectStorageUnavailable, Pointer, Staging
from weftline.history.revisions import (
    HEAD,
    ContextId,
    HistoryKey,
    PageSize,
    VersionName,
    no_version,
    own_transactions_read,
    read_operation,
)
from weftline.history.service import History, visible_changes, visible_state
from weftline.kernel.clock import from_micros, optional_datetime
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Request, Response
from weftline.kernel.ports import Transactions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weftline.history.line_kinds import OpenLine, VersionReader
    from weftline.history.model import Point, StoredCommit

READ_ERRORS = (LineNotFound, BranchNotFound, VersionNotFound)
# Changes listed per commit in a log; history.show pages through all of them.
_MAX_CHANGES_IN_LOG = 100
# Commits scanned per page when a log is filtered by key, and the most pages per call: bounds its latency.
_SCAN_PAGE = 200
_MAX_SCAN_PAGES = 10
# Total size of the values in one response; larger ones are read key by key.
_MAX_VALUE_BYTES = 262_144


KeyCursor = Annotated[HistoryKey | None, msgspec.Meta(description="next_cursor of the previous page.")]


class ReadLog(Request):
    """Context, and filters for its log."""

    context_id: ContextId
    key: Annotated[HistoryKey | None, msgspec.Meta(description="Only commits that changed this key.")] = None
    before_version: Annotated[
        VersionName | None, msgspec.Meta(description="Only commits older than this one; for paging.")
    ] = None
    limit: PageSize = 50


class ChangeInfo(Response):
    """Change of one key by a commit."""

    key: str
    act: str
    key_version: int
    size_tokens: int = 0
    size: int = 0


class MergedFrom(Response):
    """The version that a merge commit merged."""

    context_id: str
    version: int
    hash: str


class CommitInfo(Response):
    """One commit. Changes you may not read are left out; if you may read none, so are reason and step.

    ``hash`` is empty for a commit without salt, of an earlier version of Weftline, in a context whose entries have
    ACLs.
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
    """Commit to show."""

    context_id: ContextId
    version: VersionName = HEAD
    cursor: KeyCursor = None
    limit: PageSize = 200


class CommitShown(Response):
    """One commit with its parent and its snapshots; ``next_cursor`` is set while there are more changes."""

    context_id: str
    commit: CommitInfo
    parent: str | None = None
    snapshots: tuple[str, ...] = ()
    next_cursor: str | None = None


class ReadState(Request):
    """Context and version to read."""

    context_id: ContextId
    version: VersionName = HEAD
    key: HistoryKey | None = None
    cursor: KeyCursor = None
    limit: PageSize = 200


class StoredEntry(Response, kw_only=True, omit_defaults=True):
    """An entry at a version: text on a board, JSON elsewhere.

    ``value`` is null if it was ``pruned``, is in object storage (``outside``) or was ``truncated`` because the response
    is full. Name the key to get a value that is outside or truncated.
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


class ContextState(Response, kw_only=True, omit_defaults=False):
    """State at one version, as far as you may read it, by key; ``next_cursor`` is set while there is more.

    For context:AGENT, these are the entries of its parts, as PART/KEY.
    """

    context_id: str
    version: int
    hash: str
    entries: list[StoredEntry]
    next_cursor: str | None = None


class ReadBlame(ReadState):
    """Context, version and key to blame."""


class Blame(Response):
    """Last change of an entry: author, time and reason. ``version`` of PART/KEY counts in the part."""

    key: str
    author: str
    agent_id: str
    at: datetime
    version: int
    key_version: int
    reason: str
    step: str | None = None


class Blamed(Response, kw_only=True, omit_defaults=False):
    """Entries by key with their last change; ``next_cursor`` is set while there are more."""

    context_id: str
    version: int
    entries: list[Blame]
    next_cursor: str | None = None


@read_operation(
    "history.log",
    action="log",
    http="GET /v1/history/{context_id}/log",
    errors=READ_ERRORS,
    heavy=lambda request: request.key is not None or request.limit > _SCAN_PAGE,
)
async def read_log(request: ReadLog, history: History) -> Log:
    """Read the commits of a context, newest first: author, time, reason and changed keys."""
    line = await history.to_read(request.context_id)
    before = None if request.before_version is None else await history.resolve(line, request.before_version)
    at = line.head.seq if before is None else before.seq - 1
    commits, has_more = await _commits(history, line, at, request)
    return Log(context_id=request.context_id, commits=commits[: request.limit], has_more=has_more)


async def _commits(history: History, line: OpenLine, at: int, request: ReadLog) -> tuple[list[CommitInfo], bool]:
    """Return the commits of the page, and whether there are more.

    With a key, only commits that show the caller that key count, so that a hidden key looks like a missing one.
    """
    found: list[CommitInfo] = []
    page = request.limit + 1 if request.key is None else max(request.limit + 1, _SCAN_PAGE)
    for _ in range(1 if request.key is None else _MAX_SCAN_PAGES):
        commits = await history.lines.log(line.head.line_id, at, page, request.key)
        shown = zip(commits, await visible_changes(line, commits), strict=True)
        found += [
            await _log_entry(history, commit, changes) for commit, changes in shown if _concerns(changes, request.key)
        ]
        if len(found) > request.limit or len(commits) < page:
            return found, len(found) > request.limit
        at = commits[-1].commit.seq - 1
    return found, bool(found)


@read_operation(
    "history.show", action="show", http="GET /v1/history/{context_id}/versions/{version}", errors=READ_ERRORS
)
async def show_commit(request: ShowCommit, history: History) -> CommitShown:
    """Show one commit: its changes and its parent."""
    line = await history.to_read(request.context_id)
    point = await history.resolve(line, request.version)
    commit = await history.lines.commit_at(line.head.line_id, point.seq)
    if commit is None:
        raise no_version(request.version)
    (changes,) = await visible_changes(line, [commit])
    page, next_cursor = _page(changes, request.cursor, request.limit)
    parent = await history.at(line, point.seq - 1)
    tags = await history.lines.tags(commit.commit.line_id)
    hidden = _is_hidden(commit, changes)
    return CommitShown(
        context_id=request.context_id,
        commit=await _commit_info(history, commit, page, hidden=hidden),
        parent=await history.shown_hash(parent) if parent.seq else None,
        # An automatic label contains the workflow step.
        snapshots=tuple(tag.label for tag in tags if tag.seq == point.seq and not (hidden and tag.automatic)),
        next_cursor=next_cursor,
    )


@own_transactions_read(
    "history.state",
    heavy=True,
    action="state",
    http="GET /v1/history/{context_id}/state",
    errors=(*READ_ERRORS, ObjectStorageUnavailable, ObjectMissing, ObjectDamaged),
)
async def read_state(
    request: ReadState, actor: Actor, transactions: Transactions[History], staging: Staging
) -> ContextState:
    """Read the state of a context at any version. For context:AGENT, these are its entries as PART/KEY.

    Values in object storage, and those that do not fit in the response, are returned only if you name the key.
    """
    heavy = request.key is None
    point, shown_hash, versions = await transactions.read(actor, lambda history: _read(request, history), heavy=heavy)
    page, next_cursor = _page(versions, request.cursor, request.limit)
    if request.key is None:
        entries = [_stored_entry(request.context_id, version, fits=fits) for version, fits in _fitting(page)]
    else:
        entries = [await _fetched(request.context_id, version, actor, staging) for version in page]
    return ContextState(
        context_id=request.context_id,
        version=point.seq,
        hash=shown_hash,
        entries=entries,
        next_cursor=next_cursor,
    )


@read_operation(
    "history.blame",
    action="blame",
    http="GET /v1/history/{context_id}/blame",
    errors=READ_ERRORS,
    heavy=lambda request: request.key is None,
)
async def read_blame(request: ReadBlame, history: History) -> Blamed:
    """Show who last changed each entry as of a version, when, why and in which workflow step."""
    line = await history.to_read(request.context_id)
    point = await history.resolve(line, request.version)
    versions = await visible_at(history, line, point, request.key, values=False)
    page, next_cursor = _page(versions, request.cursor, request.limit)
    return Blamed(
        context_id=request.context_id,
        version=point.seq,
        entries=[blame_of(version) for version in page],
        next_cursor=next_cursor,
    )


async def _read(request: ReadState, history: History) -> tuple[Point, str, list[Version]]:
    line = await history.to_read(request.context_id)
    point = await history.resolve(line, request.version)
    return point, await history.shown_hash(point), await visible_at(history, line, point, request.key)


async def _fetched(line_id: str, version: Version, actor: Actor, staging: Staging) -> StoredEntry:
    """Return an entry with its value, fetched from object storage if it is there: as JSON, or as base64."""
    entry = _stored_entry(line_id, version, fits=True)
    if not entry.outside or version.value is None:
        return entry
    content = await staging.fetch(actor.tenant, Pointer.decode(version.value))
    if entry.media_type is not None:
        return structs.replace(entry, base64=base64.b64encode(content).decode())
    return structs.replace(entry, value=kind_of(line_id).decode(content.decode(), None))


async def visible_at(
    history: History, line: VersionReader, point: Point, key: str | None = None, *, values: bool = True
) -> list[Version]:
    """Return the state at a point, or one key of it, as far as the caller may read it, by key."""
    if key is not None:
        found = await entry_at(history.lines, point.line_id, key, point.seq)
        state = {} if found is None else {key: found}
    else:
        state = await entries_at(history.lines, point, values=values)
    shown = await visible_state(line, await history.unexpired(state, point))
    return [version for _, version in sorted(shown.items())]


def _page(versions: Sequence[Version], after: str | None, limit: int) -> tuple[Sequence[Version], str | None]:
    """Return the next versions by key, and the cursor of the following page."""
    left = [version for version in versions if after is None or version.change.key > after]
    page = left[:limit]
    return page, page[-1].change.key if len(left) > limit else None


def _fitting(versions: Iterable[Version]) -> Iterator[tuple[Version, bool]]:
    """Yield versions, each with whether its value still fits in the response."""
    room = _MAX_VALUE_BYTES
    for version in versions:
        size = 0 if version.value is None else len(version.value.encode())
        fits = size <= room
        room -= size if fits else 0
        yield version, fits


async def _log_entry(history: History, stored: StoredCommit, changes: Sequence[Version]) -> CommitInfo:
    info = await _commit_info(history, stored, changes[:_MAX_CHANGES_IN_LOG], hidden=_is_hidden(stored, changes))
    return structs.replace(info, more_changes=max(0, len(changes) - _MAX_CHANGES_IN_LOG))


def _is_hidden(stored: StoredCommit, visible: Sequence[Version]) -> bool:
    """Tell whether the caller may read none of a commit's changes."""
    return bool(stored.commit.changes) and not visible


async def _commit_info(
    history: History, stored: StoredCommit, changes: Sequence[Version], *, hidden: bool
) -> CommitInfo:
    """Return a commit for the response; ``hidden`` leaves out reason, step and merge."""
    commit = stored.commit
    merged = None if hidden else commit.merged
    return CommitInfo(
        version=commit.seq,
        hash="" if commit.salt is None and has_acls(commit.line_id) else stored.hash.hex(),
        author=commit.author.participant,
        agent_id=commit.author.principal_id,
        at=from_micros(commit.committed_at),
        reason="" if hidden else commit.reason,
        step=None if hidden else commit.step,
        changes=[_change_info(version) for version in changes],
        merged=None
        if merged is None
        else MergedFrom(context_id=merged.line_id, version=merged.seq, hash=await history.shown_hash(merged)),
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
        value=None if meta.outside or not fits else kind_of(line_id).decode(version.value, meta.media_type),
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
