"""What agents can do on the board: the actions of the ``shared_context`` tool."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from weft.capabilities.board.board_writer import WriteOptions
from weft.capabilities.board.model import (
    Entry,
    EntryWithValue,
    InvalidKey,
    KeyNotFound,
    StoreFull,
    ValueTooLarge,
    check_key,
    remark_on_size,
)
from weft.capabilities.board.service import Boards
from weft.capabilities.history.model import (
    SYSTEM,
    BranchNotFound,
    ChangeKind,
    SnapshotExists,
    SnapshotNotFound,
    Tag,
    Version,
    VersionConflict,
    VersionPruned,
)
from weft.capabilities.sessions.model import Pattern, SessionArchived, SessionId, SessionNotFound
from weft.kernel.clock import from_micros, optional_datetime
from weft.kernel.errors import PermissionDenied
from weft.kernel.fields import Count, Name, Ordinal, Reason, Step
from weft.kernel.identity import ANYONE, Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.board.board_view import BoardView

TOOL = "shared_context"
TEN_YEARS_SECONDS = 315_360_000

Key = Annotated[str, msgspec.Meta(description="The entry's key: 1 to 64 of a-z, 0-9 and underscore.")]
Label = Annotated[str, msgspec.Meta(description="The snapshot's name, such as pre_approval.")]
IfVersion = Annotated[
    Count | None,
    msgspec.Meta(
        description="Only if the key is at this version (0: only if it does not exist); otherwise VERSION_CONFLICT."
    ),
]
Patterns = Annotated[tuple[Pattern, ...], msgspec.Meta(min_length=1, max_length=100)]
BranchChoice = Annotated[
    Name | None,
    msgspec.Meta(description="A branch of the board, or main; the one you switched to, or main, if left out."),
]


class ListKeys(Request):
    """Which board to look at."""

    session_id: SessionId
    branch: BranchChoice = None


class KeyInfo(Response):
    """What there is to know of an entry before reading it."""

    key: str
    written_by: str
    written_at: datetime
    version: int
    value_size_tokens: int
    expires_at: datetime | None = None
    readable_by: tuple[str, ...] = ANYONE
    writable_by: tuple[str, ...] = ANYONE


class BoardSize(Response, kw_only=True, omit_defaults=False):
    """How full the board is, keys you cannot read included."""

    total_size_tokens: int
    limit_tokens: int
    value_limit_tokens: int
    key_count: int


class Keys(Response):
    """Every key you may read, without values."""

    keys: list[KeyInfo]
    metadata: BoardSize


class ReadEntry(Request):
    """Which entry to read."""

    session_id: SessionId
    key: Key
    branch: BranchChoice = None


class EntryRead(Response):
    """One entry."""

    key: str
    value: str
    written_by: str
    written_at: datetime
    version: int
    expires_at: datetime | None = None


class ReadBatch(Request):
    """Which entries to read."""

    session_id: SessionId
    keys: Annotated[list[Key], msgspec.Meta(min_length=1, max_length=1_000, description="The keys to read.")]
    branch: BranchChoice = None


class EntriesRead(Response):
    """The entries that exist, in the order asked for, and the keys that do not."""

    entries: list[EntryRead]
    missing: list[str]


class WriteEntry(Request):
    """What to write under which key."""

    session_id: SessionId
    key: Key
    value: Annotated[str, msgspec.Meta(description="The text to store; structured data as JSON text.")]
    if_version: IfVersion = None
    ttl_seconds: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=TEN_YEARS_SECONDS)] | None,
        msgspec.Meta(description="The entry is gone after this long; each write sets it anew."),
    ] = None
    readable_by: Annotated[
        Patterns | None, msgspec.Meta(description="Who may read it; unchanged, or everyone, if left out.")
    ] = None
    writable_by: Annotated[
        Patterns | None, msgspec.Meta(description="Who may change it; unchanged, or everyone, if left out.")
    ] = None
    branch: BranchChoice = None
    reason: Reason = None
    step: Step = None


class EntryWritten(Response):
    """The entry as it is now."""

    key: str
    version: int
    written_by: str
    written_at: datetime
    expires_at: datetime | None = None
    warning: str | None = None


class DeleteEntry(Request):
    """Which entry to remove."""

    session_id: SessionId
    key: Key
    if_version: IfVersion = None
    branch: BranchChoice = None
    reason: Reason = None
    step: Step = None


class EntryDeleted(Response):
    """The entry is gone; its history stays."""

    deleted: str
    previous_version: int


class ReadHistory(Request):
    """Whose history, and which part of it."""

    session_id: SessionId
    key: Key
    versions: Annotated[
        Annotated[list[Ordinal], msgspec.Meta(max_length=1_000)] | None,
        msgspec.Meta(description="Only these versions; all that are kept if left out."),
    ] = None
    incarnation: Annotated[
        Ordinal | None,
        msgspec.Meta(description="A key deleted and created again has several; the latest otherwise."),
    ] = None
    branch: BranchChoice = None


class PastVersion(Response, kw_only=True, omit_defaults=False):
    """What a key said at one version; ``value`` is null once it is no longer kept."""

    version: int
    value: str | None
    written_by: str
    written_at: datetime
    value_size_tokens: int


class History(Response):
    """One life of a key, oldest version first; ``ended`` says how and when it was over."""

    key: str
    incarnation: int
    incarnations: int
    versions: list[PastVersion]
    ended: str | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None


class TakeSnapshot(Request):
    """What to call the present state."""

    session_id: SessionId
    label: Label
    branch: BranchChoice = None


class SnapshotInfo(Response):
    """A named state of the board; ``automatic`` if nobody asked for it."""

    label: str
    created_by: str
    created_at: datetime
    automatic: bool = False


class ListSnapshots(Request):
    """Which board's snapshots."""

    session_id: SessionId
    branch: BranchChoice = None


class Snapshots(Response):
    """Snapshots, oldest first."""

    snapshots: list[SnapshotInfo]


class ReadSnapshot(Request):
    """Which snapshot to read."""

    session_id: SessionId
    label: Label
    branch: BranchChoice = None


class PastEntry(Response):
    """An entry as it stood; ``value`` is null, and ``pruned`` true, once what it said is no longer kept."""

    key: str
    value: str | None
    written_by: str
    written_at: datetime
    version: int
    expires_at: datetime | None = None
    pruned: bool = False


class SnapshotRead(Response):
    """What the board held then, as far as you may read it."""

    label: str
    created_by: str
    created_at: datetime
    entries: list[PastEntry]


class CompareSnapshots(Request):
    """Two states of the board."""

    session_id: SessionId
    from_label: Label
    to_label: Annotated[Label | None, msgspec.Meta(description="The present board if left out.")] = None
    branch: BranchChoice = None


class KeyDifference(Response):
    """A key that says something else in the two states; a value that is no longer kept is null."""

    key: str
    from_version: int
    to_version: int
    from_value: str | None
    to_value: str | None


class Comparison(Response):
    """What changed between two states."""

    added: list[PastEntry]
    removed: list[PastEntry]
    modified: list[KeyDifference]
    unchanged: list[str]


class RestoreSnapshot(Request):
    """Which state to return to."""

    session_id: SessionId
    label: Label
    branch: BranchChoice = None


class SnapshotRestored(Response):
    """The board holds what it held then; every change made is a new version."""

    restored: str
    written: list[str]
    deleted: list[str]


_READ_ERRORS = (SessionNotFound, BranchNotFound, InvalidKey)
_WRITE_ERRORS = (SessionNotFound, BranchNotFound, SessionArchived, InvalidKey, PermissionDenied, VersionConflict)


@operation(
    "board.list_keys",
    tool=TOOL,
    action="list_keys",
    http="GET /v1/sessions/{session_id}/context",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(SessionNotFound, BranchNotFound),
)
async def list_keys(request: ListKeys, boards: Boards) -> Keys:
    """See what the board holds, with sizes but without values, so you can choose what is worth reading."""
    board = await boards.to_read(request.session_id, request.branch)
    entries = await board.live()
    return Keys(
        keys=[key_info(entry) for entry in entries if entry.readable(boards.actor)],
        metadata=BoardSize(
            total_size_tokens=sum(entry.tokens for entry in entries),
            limit_tokens=board.session.config.max_total_tokens,
            value_limit_tokens=board.session.config.max_value_tokens,
            key_count=len(entries),
        ),
    )


@operation(
    "board.read",
    tool=TOOL,
    action="read",
    http="GET /v1/sessions/{session_id}/context/{key}",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(*_READ_ERRORS, KeyNotFound, VersionPruned),
)
async def read_entry(request: ReadEntry, boards: Boards) -> EntryRead:
    """Read one entry."""
    board = await boards.to_read(request.session_id, request.branch)
    found = (await board.read([request.key])).get(request.key)
    if found is None:
        raise await board.missing(request.key)
    return _entry_read(found)


@operation(
    "board.read_batch",
    tool=TOOL,
    action="read_batch",
    http="POST /v1/sessions/{session_id}/read-batch",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(*_READ_ERRORS, VersionPruned),
)
async def read_batch(request: ReadBatch, boards: Boards) -> EntriesRead:
    """Read several entries in one call, all as they stood at one moment."""
    board = await boards.to_read(request.session_id, request.branch)
    wanted = list(dict.fromkeys(request.keys))
    found = await board.read(wanted)
    return EntriesRead(
        entries=[_entry_read(found[key]) for key in wanted if key in found],
        missing=[key for key in wanted if key not in found],
    )


@operation(
    "board.write",
    tool=TOOL,
    action="write",
    http="PUT /v1/sessions/{session_id}/context/{key}",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    errors=(*_WRITE_ERRORS, ValueTooLarge, StoreFull),
)
async def write_entry(request: WriteEntry, boards: Boards) -> EntryWritten:
    """Create or overwrite one entry: conclusions and state that others need, not raw data.

    The last write wins unless ``if_version`` says which version it must replace.
    """
    board = await boards.to_write(request.session_id, request.branch)
    terms = WriteOptions(
        if_version=request.if_version,
        ttl_seconds=request.ttl_seconds,
        readable_by=request.readable_by,
        writable_by=request.writable_by,
        reason=request.reason,
        step=request.step,
    )
    entry = await board.write(request.key, request.value, terms)
    return EntryWritten(
        key=entry.key,
        version=entry.version,
        written_by=entry.written_by,
        written_at=from_micros(entry.written_at),
        expires_at=optional_datetime(entry.expires_at),
        warning=remark_on_size(entry.tokens, board.session.config),
    )


@operation(
    "board.delete",
    tool=TOOL,
    action="delete",
    http="DELETE /v1/sessions/{session_id}/context/{key}",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    errors=(*_WRITE_ERRORS, KeyNotFound),
)
async def delete_entry(request: DeleteEntry, boards: Boards) -> EntryDeleted:
    """Remove an entry that is no longer relevant."""
    board = await boards.to_write(request.session_id, request.branch)
    terms = WriteOptions(if_version=request.if_version, reason=request.reason, step=request.step)
    entry = await board.delete(request.key, terms)
    return EntryDeleted(deleted=entry.key, previous_version=entry.version)


@operation(
    "board.read_history",
    tool=TOOL,
    action="read_history",
    http="GET /v1/sessions/{session_id}/history/{key}",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(*_READ_ERRORS, KeyNotFound),
)
async def read_history(request: ReadHistory, boards: Boards) -> History:
    """See how a key came to say what it says: its earlier versions, who wrote them and when."""
    board = await boards.to_read(request.session_id, request.branch)
    check_key(request.key, namespaces=board.session.config.namespaces)
    latest = await boards.lines.last_incarnation(board.line_id, request.key)
    incarnation = request.incarnation or latest
    past = await boards.lines.versions(board.line_id, request.key, incarnation, board.session.config.keep_versions + 1)
    shown = await board.visible(past)
    if not shown:
        raise await board.missing(request.key)
    wanted = None if request.versions is None else set(request.versions)
    written = [v for v in reversed(shown) if v.change.act is ChangeKind.WRITE][-board.session.config.keep_versions :]
    end = _end_of(shown, board.now)
    return History(
        key=request.key,
        incarnation=incarnation,
        incarnations=latest,
        versions=[_past_version(v) for v in written if wanted is None or v.change.version in wanted],
        ended=end.how if end else None,
        ended_at=from_micros(end.at) if end else None,
        ended_by=end.by if end else None,
    )


@operation(
    "board.snapshot",
    tool=TOOL,
    action="snapshot",
    http="POST /v1/sessions/{session_id}/snapshots",
    status=201,
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    errors=(SessionNotFound, BranchNotFound, SessionArchived, SnapshotExists),
)
async def take_snapshot(request: TakeSnapshot, boards: Boards) -> SnapshotInfo:
    """Freeze the whole board under a name, to look back at or return to."""
    board = await boards.to_write(request.session_id, request.branch)
    return snapshot_info(await board.snapshot(request.label))


@operation(
    "board.list_snapshots",
    tool=TOOL,
    action="list_snapshots",
    http="GET /v1/sessions/{session_id}/snapshots",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(SessionNotFound, BranchNotFound),
)
async def list_snapshots(request: ListSnapshots, boards: Boards) -> Snapshots:
    """List the board's snapshots."""
    board = await boards.to_read(request.session_id, request.branch)
    return Snapshots(snapshots=[snapshot_info(tag) for tag in await board.snapshots()])


@operation(
    "board.read_snapshot",
    tool=TOOL,
    action="read_snapshot",
    http="GET /v1/sessions/{session_id}/snapshots/{label}",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(SessionNotFound, BranchNotFound, SnapshotNotFound),
)
async def read_snapshot(request: ReadSnapshot, boards: Boards) -> SnapshotRead:
    """Read the board as it was when a snapshot was taken."""
    board = await boards.to_read(request.session_id, request.branch)
    tag = await board.find_snapshot(request.label)
    past = await board.visible_at(tag.seq)
    return SnapshotRead(
        label=tag.label,
        created_by=tag.created_by,
        created_at=from_micros(tag.created_at),
        entries=[_standing(version).entry for _, version in sorted(past.items())],
    )


@operation(
    "board.compare_snapshots",
    tool=TOOL,
    action="compare_snapshots",
    http="GET /v1/sessions/{session_id}/snapshots/{from_label}/comparison",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(SessionNotFound, BranchNotFound, SnapshotNotFound),
)
async def compare_snapshots(request: CompareSnapshots, boards: Boards) -> Comparison:
    """Compare two snapshots, or a snapshot with the present board."""
    board = await boards.to_read(request.session_id, request.branch)
    before = await _state_at(board, request.from_label)
    if request.to_label is None:
        return _compare(before, {found.entry.key: _standing_now(found) for found in await board.readable()})
    return _compare(before, await _state_at(board, request.to_label))


@operation(
    "board.restore_snapshot",
    tool=TOOL,
    action="restore_snapshot",
    http="POST /v1/sessions/{session_id}/snapshots/{label}/restore",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(
        SessionNotFound,
        BranchNotFound,
        SessionArchived,
        SnapshotNotFound,
        VersionPruned,
        PermissionDenied,
        StoreFull,
    ),
)
async def restore_snapshot(request: RestoreSnapshot, boards: Boards) -> SnapshotRestored:
    """Return the whole board to a snapshot; takes a clearance of 3.

    Nothing is rewritten: the way back is recorded as new versions, and what the board held before gets a snapshot.
    """
    board = await boards.to_write(request.session_id, request.branch)
    written, deleted = await board.restore(request.label)
    return SnapshotRestored(restored=request.label, written=sorted(written), deleted=sorted(deleted))


class _End(NamedTuple):
    """How one life of a key was over."""

    how: str
    at: int
    by: str


def _end_of(incarnation: Sequence[Version], now: int) -> _End | None:
    """Tell how a life ended, newest change first. An expiry counts from its moment, not from when it was noticed."""
    last = incarnation[0]
    if last.change.act is ChangeKind.DELETE:
        return _End("deleted", last.committed_at, last.author)
    expires_at = next((v.change.meta.expires_at for v in incarnation if v.change.act is ChangeKind.WRITE), None)
    if expires_at is not None and expires_at <= now:
        return _End("expired", expires_at, SYSTEM.participant)
    return None


class _Standing(NamedTuple):
    """An entry of one state, and the hash of what it said, which is known even if that is no longer kept."""

    entry: PastEntry
    said: bytes | None


async def _state_at(board: BoardView, label: str) -> dict[str, _Standing]:
    tag = await board.find_snapshot(label)
    return {key: _standing(version) for key, version in (await board.visible_at(tag.seq)).items()}


def _compare(before: dict[str, _Standing], after: dict[str, _Standing]) -> Comparison:
    both = sorted(before.keys() & after.keys())
    return Comparison(
        added=[after[key].entry for key in sorted(after.keys() - before.keys())],
        removed=[before[key].entry for key in sorted(before.keys() - after.keys())],
        modified=[
            _difference(before[key].entry, after[key].entry) for key in both if before[key].said != after[key].said
        ],
        unchanged=[key for key in both if before[key].said == after[key].said],
    )


def _difference(before: PastEntry, after: PastEntry) -> KeyDifference:
    return KeyDifference(
        key=before.key,
        from_version=before.version,
        to_version=after.version,
        from_value=before.value,
        to_value=after.value,
    )


def key_info(entry: Entry) -> KeyInfo:
    return KeyInfo(
        key=entry.key,
        written_by=entry.written_by,
        written_at=from_micros(entry.written_at),
        version=entry.version,
        value_size_tokens=entry.tokens,
        expires_at=optional_datetime(entry.expires_at),
        readable_by=entry.readers,
        writable_by=entry.writable_by,
    )


def _entry_read(found: EntryWithValue) -> EntryRead:
    return EntryRead(
        key=found.entry.key,
        value=found.value,
        written_by=found.entry.written_by,
        written_at=from_micros(found.entry.written_at),
        version=found.entry.version,
        expires_at=optional_datetime(found.entry.expires_at),
    )


def _standing(version: Version) -> _Standing:
    entry = PastEntry(
        key=version.change.key,
        value=version.value,
        written_by=version.author,
        written_at=from_micros(version.committed_at),
        version=version.change.version,
        expires_at=optional_datetime(version.change.meta.expires_at),
        pruned=version.value is None,
    )
    return _Standing(entry, version.change.blob_hash)


def _standing_now(found: EntryWithValue) -> _Standing:
    entry = PastEntry(
        key=found.entry.key,
        value=None if found.lost else found.value,
        written_by=found.entry.written_by,
        written_at=from_micros(found.entry.written_at),
        version=found.entry.version,
        expires_at=optional_datetime(found.entry.expires_at),
        pruned=found.lost,
    )
    return _Standing(entry, found.entry.blob_hash)


def _past_version(version: Version) -> PastVersion:
    return PastVersion(
        version=version.change.version,
        value=version.value,
        written_by=version.author,
        written_at=from_micros(version.committed_at),
        value_size_tokens=version.change.meta.tokens,
    )


def snapshot_info(tag: Tag) -> SnapshotInfo:
    return SnapshotInfo(
        label=tag.label,
        created_by=tag.created_by,
        created_at=from_micros(tag.created_at),
        automatic=tag.automatic,
    )
