"""Operations on the board: the actions of the ``shared_context`` tool.

Snapshots and history of a board are those of its line (``weftline.history``), in the shapes that the
Shared Context Specification fixes.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType, structs

from weftline.access.grants import needs_clearance
from weftline.access.model import Pattern
from weftline.history.diff import differing, visible_states
from weftline.history.line_kinds import ROLLBACK_CLEARANCE, CommitMeta
from weftline.history.log import visible_at
from weftline.history.model import (
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
from weftline.history.rollback import RestorePlan, checked_plan, noted, plan_restore, planned_now, restore
from weftline.history.service import ExpiryDue, History, current_state, planned
from weftline.history.snapshot_quota import SnapshotQuota
from weftline.indexing.pins import PinLimitExceeded
from weftline.kernel.clock import from_micros, optional_datetime
from weftline.kernel.errors import PermissionDenied, QuotaExceeded
from weftline.kernel.fields import Count, Name, Ordinal, Reason, Step
from weftline.kernel.identity import ANYONE, Actor, Permission
from weftline.kernel.json_input import JSON_MEDIA_TYPE, StoredValue, TextOrJson, encode_json_field, stored_value
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, operation
from weftline.kernel.ports import Transactions
from weftline.safety.guardrails.guard import GuardrailGuard
from weftline.safety.trust.gate import GATE_ERRORS, submitted
from weftline.safety.trust.model import DerivedFrom, TrustInfo, trust_info
from weftline.sessions.model import SessionArchived, SessionId, SessionNotFound
from weftline.state.board.board_writer import WriteOptions
from weftline.state.board.model import (
    Entry,
    EntryWithValue,
    InvalidKey,
    KeyNotFound,
    StoreFull,
    ValueTooLarge,
    check_key,
    lockout_warning,
    size_warning,
)
from weftline.state.board.service import Boards

if TYPE_CHECKING:
    from collections.abc import Sequence

TOOL = "shared_context"
TEN_YEARS_SECONDS = 315_360_000
# Names by which rules know the operation that removes a key.
_DELETION = ("board.delete", f"{TOOL}.delete")

Key = Annotated[str, msgspec.Meta(description="Key of the entry: 1 to 64 of a-z, 0-9 and underscore.")]
Label = Annotated[str, msgspec.Meta(description="Label of the snapshot, such as pre_approval.")]
IfVersion = Annotated[
    Count | None,
    msgspec.Meta(
        description="Only if the key is at this version (0: only if it does not exist); otherwise VERSION_CONFLICT."
    ),
]
Patterns = Annotated[tuple[Pattern, ...], msgspec.Meta(min_length=1, max_length=100)]
BranchChoice = Annotated[
    Name | None,
    msgspec.Meta(description="A branch of the board, or main; default: the one you switched to, or main."),
]


class ListKeys(Request):
    """Board to list, and what of it."""

    session_id: SessionId
    prefix: Annotated[
        Annotated[str, msgspec.Meta(max_length=200)] | None, msgspec.Meta(description="Only keys with this prefix.")
    ] = None
    values: Annotated[bool, msgspec.Meta(description="List values, too.")] = False
    branch: BranchChoice = None


class KeyInfo(Response):
    """An entry; ``value`` only if the call asks for values."""

    key: str
    written_by: str
    written_at: datetime
    version: int
    value_size_tokens: int
    expires_at: datetime | None = None
    readable_by: tuple[str, ...] = ANYONE
    writable_by: tuple[str, ...] = ANYONE
    trust: TrustInfo | None = None
    value: StoredValue = UNSET


class BoardSize(Response, kw_only=True, omit_defaults=False):
    """Size of the board, including keys you cannot read."""

    total_size_tokens: int
    limit_tokens: int
    value_limit_tokens: int
    key_count: int


class Keys(Response):
    """Every key you may read; ``metadata`` is about the whole board, whatever the prefix."""

    keys: list[KeyInfo]
    metadata: BoardSize


class ReadEntry(Request):
    """Entry to read."""

    session_id: SessionId
    key: Key
    branch: BranchChoice = None


class EntryRead(Response):
    """One entry."""

    key: str
    value: StoredValue
    written_by: str
    written_at: datetime
    version: int
    expires_at: datetime | None = None
    trust: TrustInfo | None = None


class ReadBatch(Request):
    """Entries to read."""

    session_id: SessionId
    keys: Annotated[list[Key], msgspec.Meta(min_length=1, max_length=1_000, description="Keys to read.")]
    branch: BranchChoice = None


class EntriesRead(Response):
    """The entries that exist, in the requested order, and the missing keys."""

    entries: list[EntryRead]
    missing: list[str]


class WriteEntry(Request):
    """Key and value to write."""

    session_id: SessionId
    key: Key
    value: Annotated[TextOrJson, msgspec.Meta(description="Text, or any other JSON; returned as it was written.")]
    if_version: IfVersion = None
    ttl_seconds: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=TEN_YEARS_SECONDS)] | None,
        msgspec.Meta(description="Time to live; every write sets it again."),
    ] = None
    readable_by: Annotated[
        Patterns | None, msgspec.Meta(description="Who may read it; default: unchanged, or everyone for a new key.")
    ] = None
    writable_by: Annotated[
        Patterns | None,
        msgspec.Meta(description="Who of its readers may change it; default: unchanged, or all of them for a new key."),
    ] = None
    branch: BranchChoice = None
    reason: Reason = None
    step: Step = None
    derived_from: DerivedFrom = ()

    @property
    def text(self) -> str:
        """Return the value as it is stored."""
        value = self.value
        return value if isinstance(value, str) else encode_json_field("value", value).decode()

    @property
    def media_type(self) -> str | None:
        """Return the media type of a value that is not text."""
        return None if isinstance(self.value, str) else JSON_MEDIA_TYPE

    @property
    def effects(self) -> tuple[str, ...]:
        """Return the names of a deletion for a time to live, which removes the key as a deletion does."""
        return () if self.ttl_seconds is None else _DELETION


class EntryWritten(Response):
    """The entry as written."""

    key: str
    version: int
    written_by: str
    written_at: datetime
    expires_at: datetime | None = None
    warning: str | None = None
    trust: TrustInfo | None = None


class DeleteEntry(Request):
    """Entry to delete."""

    session_id: SessionId
    key: Key
    if_version: IfVersion = None
    branch: BranchChoice = None
    reason: Reason = None
    step: Step = None


class EntryDeleted(Response):
    """The entry is deleted; its history stays."""

    deleted: str
    previous_version: int


class ReadHistory(Request):
    """Key, and the versions to return."""

    session_id: SessionId
    key: Key
    versions: Annotated[
        Annotated[list[Ordinal], msgspec.Meta(max_length=1_000)] | None,
        msgspec.Meta(description="Only these versions; default: all that are kept."),
    ] = None
    incarnation: Annotated[
        Ordinal | None,
        msgspec.Meta(description="A key deleted and created again has several; default: the latest."),
    ] = None
    branch: BranchChoice = None


class PastVersion(Response, kw_only=True, omit_defaults=False):
    """One version of a key; ``value`` is null and ``pruned`` true once the value was pruned."""

    version: int
    value: StoredValue
    written_by: str
    written_at: datetime
    value_size_tokens: int
    pruned: bool | UnsetType = UNSET


class KeyHistory(Response):
    """One incarnation of a key, oldest version first; ``ended`` is deleted or expired if it is over."""

    key: str
    incarnation: int
    incarnations: int
    versions: list[PastVersion]
    ended: str | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None


class TakeSnapshot(Request):
    """Label for the current version."""

    session_id: SessionId
    label: Label
    branch: BranchChoice = None


class SnapshotInfo(Response):
    """A snapshot of the board; ``automatic`` if Weftline took it."""

    label: str
    created_by: str
    created_at: datetime
    automatic: bool = False


class ListSnapshots(Request):
    """Board whose snapshots to list."""

    session_id: SessionId
    branch: BranchChoice = None


class Snapshots(Response):
    """Snapshots, oldest first."""

    snapshots: list[SnapshotInfo]


class ReadSnapshot(Request):
    """Snapshot to read."""

    session_id: SessionId
    label: Label
    branch: BranchChoice = None


class PastEntry(Response):
    """An entry at a snapshot; ``value`` is null and ``pruned`` true once the value was pruned."""

    key: str
    value: StoredValue
    written_by: str
    written_at: datetime
    version: int
    expires_at: datetime | None = None
    pruned: bool = False
    trust: TrustInfo | None = None


class SnapshotRead(Response):
    """Entries of the board at a snapshot, as far as you may read them."""

    label: str
    created_by: str
    created_at: datetime
    entries: list[PastEntry]


class CompareSnapshots(Request):
    """Two snapshots to compare."""

    session_id: SessionId
    from_label: Label
    to_label: Annotated[Label | None, msgspec.Meta(description="Default: the current board.")] = None
    branch: BranchChoice = None


class KeyDifference(Response):
    """A key whose value differs; a pruned value is null."""

    key: str
    from_version: int
    to_version: int
    from_value: StoredValue
    to_value: StoredValue


class Comparison(Response):
    """Differences between two states of the board."""

    added: list[PastEntry]
    removed: list[PastEntry]
    modified: list[KeyDifference]
    unchanged: list[str]


class RestoreSnapshot(Request):
    """Snapshot to restore."""

    session_id: SessionId
    label: Label
    branch: BranchChoice = None
    reason: Reason = None
    step: Step = None


class SnapshotRestored(Response):
    """Keys changed by the restore; every change is a new version."""

    restored: str
    written: list[str]
    deleted: list[str]


# A batch of more is read off the event loop: each key is a statement.
_FEW_KEYS = 25
_read_operation = partial(operation, tool=TOOL, permission=Permission.READ, rate=RateClass.BOARD, effect=Effect.READ)
_write_operation = partial(operation, tool=TOOL, permission=Permission.WRITE, rate=RateClass.BOARD, effect=Effect.WRITE)
_READ_ERRORS = (SessionNotFound, BranchNotFound, InvalidKey)
_WRITE_ERRORS = (SessionNotFound, BranchNotFound, SessionArchived, InvalidKey, PermissionDenied, VersionConflict)


@_read_operation(
    "board.list_keys",
    action="list_keys",
    http="GET /v1/sessions/{session_id}/context",
    heavy=lambda request: request.values,
    errors=(SessionNotFound, BranchNotFound, VersionPruned),
)
async def list_keys(request: ListKeys, boards: Boards) -> Keys:
    """List the keys of the board with sizes, to choose what to read; with ``values``, read them at once."""
    board = await boards.to_read(request.session_id, request.branch)
    entries = await board.live()
    wanted = [e for e in entries if e.readable(boards.actor) and e.key.startswith(request.prefix or "")]
    found = await board.read([entry.key for entry in wanted]) if request.values and wanted else {}
    return Keys(
        keys=[
            structs.replace(key_info(each), value=found[each.key].shown if each.key in found else UNSET)
            for each in wanted
        ],
        metadata=BoardSize(
            total_size_tokens=sum(entry.tokens for entry in entries),
            limit_tokens=board.session.config.max_total_tokens,
            value_limit_tokens=board.session.config.max_value_tokens,
            key_count=len(entries),
        ),
    )


@_read_operation(
    "board.read",
    action="read",
    http="GET /v1/sessions/{session_id}/context/{key}",
    errors=(*_READ_ERRORS, KeyNotFound, VersionPruned),
)
async def read_entry(request: ReadEntry, boards: Boards) -> EntryRead:
    """Read one entry."""
    board = await boards.to_read(request.session_id, request.branch)
    found = (await board.read([request.key])).get(request.key)
    if found is None:
        raise await board.missing(request.key)
    return _entry_read(found)


@_read_operation(
    "board.read_batch",
    heavy=lambda request: len(request.keys) > _FEW_KEYS,
    action="read_batch",
    http="POST /v1/sessions/{session_id}/read-batch",
    errors=(*_READ_ERRORS, VersionPruned),
)
async def read_batch(request: ReadBatch, boards: Boards) -> EntriesRead:
    """Read several entries from one consistent state in one call."""
    board = await boards.to_read(request.session_id, request.branch)
    wanted = list(dict.fromkeys(request.keys))
    found = await board.read(wanted)
    return EntriesRead(
        entries=[_entry_read(found[key]) for key in wanted if key in found],
        missing=[key for key in wanted if key not in found],
    )


async def check_size(request: WriteEntry, actor: Actor, transactions: Transactions[Boards]) -> None:
    """Refuse a value that is too large before it is scanned."""

    async def check(boards: Boards) -> None:
        (await boards.to_read(request.session_id, request.branch)).checked_tokens(request.text)

    await transactions.read(actor, check)


@_write_operation(
    "board.write",
    limits=check_size,
    action="write",
    http="PUT /v1/sessions/{session_id}/context/{key}",
    errors=(*_WRITE_ERRORS, ValueTooLarge, StoreFull, PinLimitExceeded, *GATE_ERRORS),
    content=lambda request: (submitted(request.text, derived_from=request.derived_from),),
)
async def write_entry(request: WriteEntry, boards: Boards) -> EntryWritten:
    """Create or overwrite one entry: conclusions and state that others need, not raw data.

    The last write wins unless ``if_version`` names the version to replace.
    """
    board = await boards.to_write(request.session_id, request.branch)
    options = WriteOptions(
        if_version=request.if_version,
        ttl_seconds=request.ttl_seconds,
        readable_by=request.readable_by,
        writable_by=request.writable_by,
        reason=request.reason,
        step=request.step,
        derived_from=request.derived_from,
        media_type=request.media_type,
    )
    entry = await board.write(request.key, request.text, options)
    return EntryWritten(
        key=entry.key,
        version=entry.version,
        written_by=entry.written_by,
        written_at=from_micros(entry.written_at),
        expires_at=optional_datetime(entry.expires_at),
        warning=" ".join(
            filter(None, (lockout_warning(entry, boards.actor), size_warning(entry.tokens, board.session.config)))
        )
        or None,
        trust=trust_info(entry.trust),
    )


@_write_operation(
    "board.delete",
    action="delete",
    http="DELETE /v1/sessions/{session_id}/context/{key}",
    destructive=False,
    errors=(*_WRITE_ERRORS, KeyNotFound),
)
async def delete_entry(request: DeleteEntry, boards: Boards) -> EntryDeleted:
    """Delete an entry that is no longer relevant."""
    board = await boards.to_write(request.session_id, request.branch)
    options = WriteOptions(if_version=request.if_version, reason=request.reason, step=request.step)
    entry = await board.delete(request.key, options)
    return EntryDeleted(deleted=entry.key, previous_version=entry.version)


@_read_operation(
    "board.read_history",
    action="read_history",
    http="GET /v1/sessions/{session_id}/history/{key}",
    errors=(*_READ_ERRORS, KeyNotFound),
)
async def read_history(request: ReadHistory, boards: Boards) -> KeyHistory:
    """Read the earlier versions of a key: values, authors and times."""
    board = await boards.to_read(request.session_id, request.branch)
    check_key(request.key, namespaces=board.session.config.namespaces)
    latest = await boards.lines.last_number(board.line_id, request.key)
    incarnation = request.incarnation or latest.incarnation
    past = await boards.lines.versions(board.line_id, request.key, incarnation, board.session.config.keep_versions + 1)
    shown = await board.visible(past)
    if not shown:
        raise await board.missing(request.key)
    wanted = None if request.versions is None else set(request.versions)
    written = [v for v in reversed(shown) if v.change.act is ChangeKind.WRITE][-board.session.config.keep_versions :]
    end = _end_of(shown, board.now)
    return KeyHistory(
        key=request.key,
        incarnation=incarnation,
        incarnations=latest.incarnation,
        versions=[_past_version(v) for v in written if wanted is None or v.change.version in wanted],
        ended=end.how if end else None,
        ended_at=from_micros(end.at) if end else None,
        ended_by=end.by if end else None,
    )


@_write_operation(
    "board.snapshot",
    action="snapshot",
    http="POST /v1/sessions/{session_id}/snapshots",
    status=201,
    errors=(SessionNotFound, BranchNotFound, SessionArchived, SnapshotExists, QuotaExceeded),
)
async def take_snapshot(request: TakeSnapshot, boards: Boards, quota: SnapshotQuota) -> SnapshotInfo:
    """Name the current state of the whole board, to read, compare or restore it later."""
    board = await boards.to_write(request.session_id, request.branch)
    taken = await board.snapshot(request.label)
    await quota.check(board.line_id)
    return snapshot_info(taken)


@_read_operation(
    "board.list_snapshots",
    action="list_snapshots",
    http="GET /v1/sessions/{session_id}/snapshots",
    errors=(SessionNotFound, BranchNotFound),
)
async def list_snapshots(request: ListSnapshots, boards: Boards) -> Snapshots:
    """List the board's snapshots."""
    board = await boards.to_read(request.session_id, request.branch)
    return Snapshots(snapshots=[snapshot_info(tag) for tag in await board.snapshots()])


@_read_operation(
    "board.read_snapshot",
    heavy=True,
    action="read_snapshot",
    http="GET /v1/sessions/{session_id}/snapshots/{label}",
    errors=(SessionNotFound, BranchNotFound, SnapshotNotFound),
)
async def read_snapshot(request: ReadSnapshot, boards: Boards, history: History) -> SnapshotRead:
    """Read the board as of a snapshot."""
    board = await boards.to_read(request.session_id, request.branch)
    snapshot = await history.snapshot(board.line_id, request.label)
    return SnapshotRead(
        label=snapshot.tag.label,
        created_by=snapshot.tag.created_by,
        created_at=from_micros(snapshot.tag.created_at),
        entries=[_past_entry(version) for version in await visible_at(history, board, snapshot)],
    )


@_read_operation(
    "board.compare_snapshots",
    heavy=True,
    action="compare_snapshots",
    http="GET /v1/sessions/{session_id}/snapshots/{from_label}/comparison",
    errors=(SessionNotFound, BranchNotFound, SnapshotNotFound),
)
async def compare_snapshots(request: CompareSnapshots, boards: Boards, history: History) -> Comparison:
    """Compare two snapshots, or a snapshot with the current board."""
    board = await boards.to_read(request.session_id, request.branch)
    one = await history.snapshot(board.line_id, request.from_label)
    to_label = request.to_label
    two = current_state(board.line_id) if to_label is None else await history.snapshot(board.line_id, to_label)
    before, after = await history.states(one, two, values=True, whole=True)
    before, after = await visible_states(board, before, board, after)
    pairs = differing(before, after, _same_value)
    modified = [_key_difference(old, new) for old, new in pairs if old and new]
    return Comparison(
        added=[_past_entry(new) for old, new in pairs if new and not old],
        removed=[_past_entry(old) for old, new in pairs if old and not new],
        modified=modified,
        unchanged=sorted((before.keys() & after.keys()) - {difference.key for difference in modified}),
    )


class _BoardHistory(msgspec.Struct, frozen=True):
    """What planning a restore needs."""

    boards: Boards
    history: History


async def prepare_restore(
    request: RestoreSnapshot, actor: Actor, transactions: Transactions[_BoardHistory], implied: GuardrailGuard
) -> RestorePlan:
    """Plan the restore before the transaction, and check what it implies."""

    async def plan(services: _BoardHistory) -> RestorePlan:
        history = services.history
        board = await services.boards.to_read(request.session_id, request.branch)
        line = await history.to_read(board.line_id)
        ExpiryDue.check(line.head, history.now)
        return await plan_restore(history, line, await history.snapshot(board.line_id, request.label), renew_ttl=True)

    async def lock(services: _BoardHistory) -> object:
        return await services.boards.to_write(request.session_id, request.branch)

    return await checked_plan(actor, await planned(actor, transactions, plan, lock), implied)


@_write_operation(
    "board.restore_snapshot",
    prepare=prepare_restore,
    action="restore_snapshot",
    http="POST /v1/sessions/{session_id}/snapshots/{label}/restore",
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    requires=needs_clearance(ROLLBACK_CLEARANCE, "Restoring a snapshot"),
    errors=(
        SessionNotFound,
        BranchNotFound,
        SessionArchived,
        SnapshotNotFound,
        VersionPruned,
        PermissionDenied,
        QuotaExceeded,
        StoreFull,
        PinLimitExceeded,
        *GATE_ERRORS,
    ),
)
async def restore_snapshot(
    request: RestoreSnapshot, boards: Boards, history: History, *, prepared: RestorePlan
) -> SnapshotRestored:
    """Return the whole board to a snapshot. Needs clearance 3.

    History is not rewritten: the restore adds new versions, and the state before it gets an automatic snapshot.
    """
    board = await boards.to_write(request.session_id, request.branch)
    snapshot = await history.snapshot(board.line_id, request.label)
    reason = await boards.gate.admit_note("reason", request.reason)
    plan = await planned_now(history, board, snapshot, prepared, renew_ttl=True)
    meta = CommitMeta(noted(f"restore {request.label}", reason), request.step)
    done = await restore(history, board, plan, meta, occasion="before-restore")
    await board.announce_restore(request.label)
    return SnapshotRestored(restored=request.label, written=done.written, deleted=done.removed)


class _End(NamedTuple):
    """End of one incarnation of a key."""

    how: str
    at: int
    by: str


def _end_of(versions: Sequence[Version], now: int) -> _End | None:
    """Return the end of an incarnation, given newest first. An expiry counts from its time, not from its commit."""
    last = versions[0]
    if last.change.act is ChangeKind.DELETE:
        return _End("deleted", last.committed_at, last.author)
    expires_at = next((v.change.meta.expires_at for v in versions if v.change.act is ChangeKind.WRITE), None)
    if expires_at is not None and expires_at <= now:
        return _End("expired", expires_at, SYSTEM.participant)
    return None


def _same_value(one: Version | None, other: Version | None) -> bool:
    """Compare by type and hash, which are known even if a value was pruned. ACLs and expiry do not count."""
    if one is None or other is None:
        return False
    before, after = one.change, other.change
    return before.blob_hash == after.blob_hash and before.meta.media_type == after.meta.media_type


def _value(version: Version) -> Any:  # noqa: ANN401 - text, or the JSON it is
    return stored_value(version.value, version.change.meta.media_type)


def _key_difference(before: Version, after: Version) -> KeyDifference:
    return KeyDifference(
        key=before.change.key,
        from_version=before.change.version,
        to_version=after.change.version,
        from_value=_value(before),
        to_value=_value(after),
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
        trust=trust_info(entry.trust),
    )


def _entry_read(found: EntryWithValue) -> EntryRead:
    return EntryRead(
        key=found.entry.key,
        value=found.shown,
        written_by=found.entry.written_by,
        written_at=from_micros(found.entry.written_at),
        version=found.entry.version,
        expires_at=optional_datetime(found.entry.expires_at),
        trust=trust_info(found.entry.trust),
    )


def _past_entry(version: Version) -> PastEntry:
    return PastEntry(
        key=version.change.key,
        value=_value(version),
        written_by=version.author,
        written_at=from_micros(version.committed_at),
        version=version.change.version,
        expires_at=optional_datetime(version.change.meta.expires_at),
        pruned=version.value is None,
        trust=trust_info(version.change.meta.trust),
    )


def _past_version(version: Version) -> PastVersion:
    return PastVersion(
        version=version.change.version,
        value=_value(version),
        written_by=version.author,
        written_at=from_micros(version.committed_at),
        value_size_tokens=version.change.meta.tokens,
        pruned=version.value is None or UNSET,
    )


def snapshot_info(tag: Tag) -> SnapshotInfo:
    return SnapshotInfo(
        label=tag.label,
        created_by=tag.created_by,
        created_at=from_micros(tag.created_at),
        automatic=tag.automatic,
    )
