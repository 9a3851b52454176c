"""Operations on the caller's own memory. The owner follows from the credential, never from the request."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from weftline.access.grants import check_clearance
from weftline.access.model import AgentId, AgentNotFound
from weftline.access.sql import AccessStore
from weftline.history.model import VersionConflict
from weftline.indexing.pins import PinLimitExceeded
from weftline.kernel.clock import from_micros, to_seconds
from weftline.kernel.errors import ContentTooLarge, PermissionDenied
from weftline.kernel.fields import Count, Name, Reason
from weftline.kernel.identity import Permission
from weftline.kernel.json_input import NO_METADATA, Metadata, encode_json_field, metadata_json, raw_json
from weftline.kernel.operation import (
    Audience,
    Effect,
    RateClass,
    Request,
    Response,
    SessionUse,
    SubmittedText,
    Success,
    operation,
)
from weftline.safety.trust.gate import GATE_ERRORS, submitted
from weftline.safety.trust.model import DerivedFrom, TrustInfo, trust_info
from weftline.sessions.model import ALL_SESSIONS, SessionArchived, SessionId, SessionNotFound
from weftline.state.memory.model import (
    START,
    KeyExists,
    KeyRange,
    MemoryCursor,
    MemoryEntry,
    MemoryLimitExceeded,
    MemoryNotFound,
    ScopeName,
    ScopeSize,
    check_value_size,
    scope_name,
)
from weftline.state.memory.service import AllMemoryReader, Memories, MemoryWriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


KEY_CHARACTER = r"[A-Za-z0-9_.:/-]"
# Each part between slashes begins with another character than a dot: a URL drops the parts "", "." and "..".
_KEY_PART = r"[A-Za-z0-9_:-][A-Za-z0-9_.:-]*"
_KEY = rf"{_KEY_PART}(/{_KEY_PART})*"
Limit = Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum entries.")]
Cursor = Annotated[
    Annotated[str, msgspec.Meta(max_length=400, pattern=rf"^[A-Za-z0-9_-]{{0,100}}\.(?=.{{1,255}}\Z){_KEY}\Z")] | None,
    msgspec.Meta(description="next_cursor of the previous page."),
]


YEAR_SECONDS = 31_536_000
MAX_ANSWER_BYTES = 4 * 1_048_576
_memory_operation = partial(operation, rate=RateClass.MEMORY, session=SessionUse.MAY_NAME)
_read_operation = partial(_memory_operation, permission=Permission.READ, effect=Effect.READ)
_write_operation = partial(_memory_operation, permission=Permission.WRITE, effect=Effect.WRITE)

MemoryKey = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=255,
        pattern=rf"^{_KEY}\Z",
        description="The entry's key: 1 to 255 letters, digits and any of _-.:/ , such as billing/limit.",
    ),
]
OfSession = Annotated[SessionId | None, msgspec.Meta(description="The session of the entry. Default: global memory.")]
IfVersion = Annotated[
    Count | None,
    msgspec.Meta(description="Expected version of the key (0: it does not exist); VERSION_CONFLICT if it differs."),
]
MemoryStep = Annotated[Name | None, msgspec.Meta(description="The workflow step it belongs to.")]


class EntryView(Response, kw_only=True, omit_defaults=False):
    """Fields of every entry. ``created_at`` and ``expires_at`` are seconds since 1970."""

    scope: ScopeName
    created_at: float
    updated_at: datetime
    expires_at: float | None
    trust: TrustInfo | UnsetType = UNSET


class ValueView(EntryView, kw_only=True):
    """An entry with its value."""

    value: Any
    metadata: dict[str, Any]


class SetMemory(Request):
    """An entry to write."""

    key: MemoryKey
    value: Annotated[Any, msgspec.Meta(description="Any JSON value, including null; returned unchanged.")]
    session_id: OfSession = None
    expires_in: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=YEAR_SECONDS)] | None,
        msgspec.Meta(description="Seconds until the entry expires. Default: never. Each write resets it."),
    ] = None
    metadata: Metadata = None
    overwrite: Annotated[bool, msgspec.Meta(description="False: KEY_EXISTS if the key exists already.")] = True
    if_version: IfVersion = None
    derived_from: DerivedFrom = ()
    reason: Reason = None
    step: MemoryStep = None

    @property
    def effects(self) -> tuple[str, ...]:
        """Return the names of a deletion for an expiry, which removes the entry as a deletion does."""
        return () if self.expires_in is None else ("memory.delete", "delete_memory")


class MemorySet(Success, kw_only=True):
    """The written entry."""

    key: str
    session_scoped: bool
    expires_at: float | None
    scope: ScopeName
    stored_at: datetime
    version: int
    trust: TrustInfo | UnsetType = UNSET


class GetMemory(Request):
    """The entry to read."""

    key: MemoryKey
    session_id: OfSession = None


class MemoryFound(ValueView, kw_only=True):
    """One entry. ``created_at`` and ``expires_at`` are seconds since 1970."""

    success: Literal[True] = True
    key: str
    version: int


class ListMemory(Request):
    """Filter and page of the list."""

    session_id: Annotated[
        str | None,
        msgspec.Meta(
            description='Entries of this session, or "all" for global entries and those of all your sessions. '
            "Default: global entries."
        ),
    ] = None
    prefix: Annotated[
        Annotated[str, msgspec.Meta(max_length=255, pattern=rf"^{KEY_CHARACTER}*\Z")] | None,
        msgspec.Meta(description="Only keys with this prefix."),
    ] = None
    values: Annotated[bool, msgspec.Meta(description="With values, up to 4 MiB per page.")] = False
    limit: Limit = 50
    cursor: Cursor = None


class MemoryInfo(EntryView, kw_only=True):
    """An entry; ``value`` and ``metadata`` only if the call asks for values."""

    key: str
    session_id: str | None
    value_size: int
    version: int
    value: Any = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET


class MemoryListed(Success, kw_only=True):
    """Entries, ordered by key: global ones first, then session by session."""

    entries: list[MemoryInfo]
    count: int
    scope_filter: Literal["global", "session", "all"]
    has_more: bool
    next_cursor: str | None


class DeleteMemory(Request):
    """The entry to delete."""

    key: MemoryKey
    session_id: OfSession = None
    if_version: IfVersion = None
    reason: Reason = None
    step: MemoryStep = None


class MemoryDeleted(Success, kw_only=True):
    """The deleted entry."""

    key: str
    scope: ScopeName
    previous_version: int


def _texts(request: SetMemory) -> list[SubmittedText]:
    encoded = encode_json_field("value", request.value)
    check_value_size(len(encoded))
    texts = [encoded.decode()]
    texts += [metadata_json(request.metadata)] if request.metadata else []
    texts += [request.reason] if request.reason else []
    return [submitted(text, derived_from=request.derived_from) for text in texts]


@_write_operation(
    "memory.set",
    tool="set_memory",
    http="PUT /v1/memory/{key:path}",
    errors=(
        SessionNotFound,
        SessionArchived,
        ContentTooLarge,
        KeyExists,
        VersionConflict,
        MemoryLimitExceeded,
        PinLimitExceeded,
        *GATE_ERRORS,
    ),
    content=_texts,
)
async def set_memory(request: SetMemory, memories: Memories) -> MemorySet:
    """Store a value in your private memory: globally, or for one session.

    Only you can read it. The last write wins, unless you pass ``if_version`` or ``overwrite``.
    """
    text = encode_json_field("value", request.value).decode()
    metadata = metadata_json(request.metadata)
    options = MemoryWriteOptions(
        overwrite=request.overwrite,
        if_version=request.if_version,
        expires_in=request.expires_in,
        metadata=None if metadata == NO_METADATA else metadata,
        derived_from=request.derived_from,
        reason=request.reason,
        step=request.step,
    )
    memory = await memories.to_write(request.session_id)
    entry = await memory.set(request.key, text, options)
    return MemorySet(
        key=entry.key,
        session_scoped=entry.session_id is not None,
        expires_at=None if entry.expires_at is None else to_seconds(entry.expires_at),
        scope=scope_name(entry.session_id),
        stored_at=from_micros(entry.updated_at),
        version=entry.version,
        trust=trust_info(entry.trust) or UNSET,
    )


@_read_operation(
    "memory.get", tool="get_memory", http="GET /v1/memory/{key:path}", errors=(SessionNotFound, MemoryNotFound)
)
async def get_memory(request: GetMemory, memories: Memories) -> MemoryFound:
    """Read an entry of your private memory."""
    memory = await memories.to_read(request.session_id)
    entry, text = await memory.read(request.key)
    return MemoryFound(key=entry.key, version=entry.version, **value_fields(entry, text))


@_read_operation(
    "memory.list",
    tool="list_memory",
    http="GET /v1/memory",
    heavy=lambda request: request.values,
    errors=(SessionNotFound,),
)
async def list_memory(request: ListMemory, memories: Memories) -> MemoryListed:
    """List your private memory with sizes, and with values if you ask for them."""
    after, prefix, limit = parse_cursor(request.cursor), request.prefix or "", request.limit + 1
    if request.session_id == ALL_SESSIONS:
        found = await memories.whole().page(after, prefix, limit)
    else:
        memory = await memories.to_read(request.session_id)
        found = await memory.page(KeyRange.of(prefix, after.key), limit)
    shown = found[: request.limit]
    texts: Mapping[bytes, str] = {}
    if request.values:
        shown = within_answer(shown)
        texts = await memories.entries.values(entry.blob_hash for entry in shown)
    return MemoryListed(
        entries=[_info(entry, texts) for entry in shown],
        count=len(shown),
        scope_filter=ALL_SESSIONS if request.session_id == ALL_SESSIONS else scope_name(request.session_id),
        has_more=len(found) > len(shown),
        next_cursor=next_cursor(found, shown),
    )


@_write_operation(
    "memory.delete",
    tool="delete_memory",
    http="DELETE /v1/memory/{key:path}",
    destructive=True,
    errors=(SessionNotFound, SessionArchived, MemoryNotFound, VersionConflict, *GATE_ERRORS),
)
async def delete_memory(request: DeleteMemory, memories: Memories) -> MemoryDeleted:
    """Delete an entry of your private memory."""
    memory = await memories.to_write(request.session_id)
    entry = await memory.delete(request.key, request.if_version, request.reason, request.step)
    return MemoryDeleted(key=entry.key, scope=scope_name(entry.session_id), previous_version=entry.version)


def entry_fields(entry: MemoryEntry) -> dict[str, Any]:
    """Return the fields of an EntryView."""
    return {
        "scope": scope_name(entry.session_id),
        "created_at": to_seconds(entry.created_at),
        "updated_at": from_micros(entry.updated_at),
        "expires_at": None if entry.expires_at is None else to_seconds(entry.expires_at),
        "trust": trust_info(entry.trust) or UNSET,
    }


def value_fields(entry: MemoryEntry, text: str) -> dict[str, Any]:
    """Return the fields of a ValueView."""
    return {
        **entry_fields(entry),
        "value": raw_json(text),
        "metadata": raw_json(entry.metadata or NO_METADATA),
    }


def within_answer(entries: Sequence[MemoryEntry], room: int = MAX_ANSWER_BYTES) -> list[MemoryEntry]:
    """Return the first entries whose values fit into one answer; a value alone always does."""
    fitting: list[MemoryEntry] = []
    for entry in entries:
        room -= entry.weight
        if room < 0:
            break
        fitting.append(entry)
    return fitting


def parse_cursor(cursor: str | None) -> MemoryCursor:
    if cursor is None:
        return START
    session_id, _, key = cursor.partition(".")
    return MemoryCursor(session_id or None, key)


def next_cursor(found: Sequence[MemoryEntry], shown: Sequence[MemoryEntry]) -> str | None:
    """Return the cursor of the next page, if there is one."""
    if len(found) <= len(shown):
        return None
    return f"{shown[-1].session_id or ''}.{shown[-1].key}"


def _info(entry: MemoryEntry, texts: Mapping[bytes, str]) -> MemoryInfo:
    text = texts.get(entry.blob_hash)
    return MemoryInfo(
        key=entry.key,
        session_id=entry.session_id,
        value_size=entry.size,
        version=entry.version,
        **(entry_fields(entry) if text is None else value_fields(entry, text)),
    )


# Operations on a whole memory: an overview for the agent itself, an audited inspection for admins.

_PAGE = 200


class GetMemoryOverview(Request):
    """Your own memory."""

    agent_id: Annotated[AgentId, msgspec.Meta(description="Your own agent_id.")]


class OverviewEntry(ValueView, kw_only=True):
    """One entry of a memory."""


class MemoryByScope(Response, omit_defaults=False):
    """Entries by key: the global ones, and those of each session."""

    everywhere: dict[str, OverviewEntry] = msgspec.field(name="global")
    sessions: dict[str, dict[str, OverviewEntry]]


class MemoryStatistics(Response, omit_defaults=False):
    """Totals of the memory, including entries left out of the answer."""

    global_keys: int
    session_scopes: int
    total_entries: int
    memory_usage_kb: float
    expired_entries_cleaned: int


class MemoryResourceInfo(Response, kw_only=True, omit_defaults=False):
    """Settings of the memory. ``cleanup_interval`` is in seconds; readers never see an expired entry."""

    last_updated: datetime
    supports_subscriptions: Literal[True] = True
    cleanup_interval: int
    max_memory_mb: int


class MemoryOverview(Response):
    """Your whole memory by scope; ``truncated`` if values beyond 4 MiB were left out."""

    agent_id: str
    memory: MemoryByScope
    statistics: MemoryStatistics
    resource_info: MemoryResourceInfo
    truncated: bool = False


class InspectMemory(Request):
    """The agent whose memory to inspect."""

    agent_id: AgentId
    limit: Limit = 50
    cursor: Cursor = None


class InspectedMemory(ValueView, kw_only=True):
    """One entry with its value and metadata."""

    key: str
    session_id: str | None
    value_size: int
    version: int


class MemoryInspected(Success, kw_only=True):
    """A page of an agent's memory."""

    agent_id: str
    entries: list[InspectedMemory]
    count: int
    has_more: bool
    next_cursor: str | None


@operation(
    "memory.overview",
    tool="get_memory_overview",
    http="GET /v1/agents/{agent_id}/memory",
    permission=Permission.READ,
    rate=RateClass.MEMORY,
    effect=Effect.READ,
    heavy=True,
    errors=(PermissionDenied,),
    session=SessionUse.FINDS,
)
async def get_memory_overview(request: GetMemoryOverview, memories: Memories) -> MemoryOverview:
    """Return your whole memory with values and totals."""
    if request.agent_id != memories.actor.principal_id:
        raise PermissionDenied(
            "Only the agent itself may read its memory.",
            hint="Pass your own agent_id; an admin can use `memory.inspect`, which is audited.",
            related=("get_memory_overview",),
        )
    whole = memories.whole()
    sizes = [
        size for size in await memories.entries.sizes(whole.owner, whole.now) if await whole.admits(size.session_id)
    ]
    shown = await _first_entries(whole)
    return MemoryOverview(
        agent_id=whole.owner,
        memory=await _by_scope(shown, memories),
        statistics=await _statistics(sizes, whole),
        resource_info=MemoryResourceInfo(
            last_updated=from_micros(whole.now),
            cleanup_interval=memories.limits.cleanup_interval_seconds,
            max_memory_mb=memories.limits.limit_mb,
        ),
        truncated=len(shown) < sum(size.entries for size in sizes),
    )


@operation(
    "memory.inspect",
    tool="inspect_memory",
    http="POST /v1/agents/{agent_id}/memory/inspect",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    heavy=True,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(AgentNotFound, PermissionDenied),
    session=SessionUse.OUTSIDE,
)
async def inspect_memory(request: InspectMemory, memories: Memories, access: AccessStore) -> MemoryInspected:
    """Read an agent's private memory with values, page by page.

    For admins only, up to their own clearance; every use is written to the audit log.
    """
    agent = await access.principal(request.agent_id)
    if agent is None:
        raise AgentNotFound(f"There is no agent '{request.agent_id}'.", resource_id=request.agent_id)
    check_clearance(memories.actor, agent.clearance, "The private memory of this agent", who="an admin")
    found = await memories.entries.page_of_all(
        request.agent_id, parse_cursor(request.cursor), KeyRange.of(""), memories.now, request.limit + 1
    )
    shown = within_answer(found[: request.limit])
    texts = await memories.entries.values(entry.blob_hash for entry in shown)
    return MemoryInspected(
        agent_id=request.agent_id,
        entries=[_inspected(entry, texts[entry.blob_hash]) for entry in shown],
        count=len(shown),
        has_more=len(found) > len(shown),
        next_cursor=next_cursor(found, shown),
    )


async def _first_entries(whole: AllMemoryReader) -> list[MemoryEntry]:
    """Return the entries in order, up to the size limit of an answer."""
    shown: list[MemoryEntry] = []
    after, room = START, MAX_ANSWER_BYTES
    while True:
        page = await whole.page(after, "", _PAGE)
        fitting = within_answer(page, room)
        shown += fitting
        room -= sum(entry.weight for entry in fitting)
        if len(fitting) < _PAGE:
            return shown
        after = MemoryCursor.of(page[-1])


async def _by_scope(entries: Sequence[MemoryEntry], memories: Memories) -> MemoryByScope:
    texts = await memories.entries.values(entry.blob_hash for entry in entries)
    scopes: dict[str | None, dict[str, OverviewEntry]] = {None: {}}
    for entry in entries:
        scopes.setdefault(entry.session_id, {})[entry.key] = OverviewEntry(
            **value_fields(entry, texts[entry.blob_hash])
        )
    return MemoryByScope(everywhere=scopes.pop(None), sessions={str(name): keys for name, keys in scopes.items()})


async def _statistics(sizes: Sequence[ScopeSize], whole: AllMemoryReader) -> MemoryStatistics:
    entries = {size.session_id: size.entries for size in sizes}
    usage = await whole.service.entries.usage(whole.owner)
    overdue = await whole.service.entries.expired_usage(whole.owner, whole.now)
    return MemoryStatistics(
        global_keys=entries.get(None, 0),
        session_scopes=len(entries.keys() - {None}),
        total_entries=sum(entries.values()),
        memory_usage_kb=round((usage.weight - overdue.weight) / 1024, 3),
        expired_entries_cleaned=usage.expired + overdue.expired,
    )


def _inspected(entry: MemoryEntry, text: str) -> InspectedMemory:
    return InspectedMemory(
        key=entry.key,
        session_id=entry.session_id,
        value_size=entry.size,
        version=entry.version,
        **value_fields(entry, text),
    )
