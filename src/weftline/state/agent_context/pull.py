"""Operations context.pull, context.read and context.status: pin a context version in a session, and read memory."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec

from weftline.history.model import MAIN, BranchNotFound, Point, VersionPruned, metadata_key, trunk_of
from weftline.history.object_storage import ObjectDamaged, ObjectMissing, ObjectStorageUnavailable, Pointer, Staging
from weftline.kernel.clock import from_micros, optional_datetime
from weftline.kernel.errors import MAX_COMPARED, PermissionDenied, close_names
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Effect, RateClass, Request, Response, Success, operation
from weftline.kernel.ports import Transactions
from weftline.sessions.model import (
    Session,
    SessionArchived,
    SessionId,
    SessionNotFound,
    find_session,
    lock_active_session,
)
from weftline.state.agent_context.memory_version import MemoryVersion, pin_memory
from weftline.state.agent_context.model import (
    DEFINITION,
    OWNER_ERRORS,
    ContextKeyNotFound,
    ContextLine,
    ContextNotPulled,
    EntryAddress,
    MemoryType,
    MemoryTypeName,
    Owner,
    is_well_formed,
    readable_memory_owners,
)
from weftline.state.agent_context.permissions import CriticalUpdate, check_own
from weftline.state.agent_context.push import Branch, EntryKey, OfWorkflow, OwnAgentId, is_known_context
from weftline.state.agent_context.service import ContextAt, Contexts, OpenContext
from weftline.state.agent_context.sql import PinnedContext
from weftline.state.agent_context.views import (
    AgentDefinition,
    ContextEntry,
    EntryDiff,
    PersistedEntry,
    changed_entries,
    definition_at,
    first_entries,
    render_entries,
    with_value,
)
from weftline.state.layers.service import Layers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.history.composite_lines import PartVersion

_own_context_operation = partial(operation, permission=None, rate=RateClass.MEMORY)
_MAX_ENTRIES = 1_000
_CURSOR = r"^[A-Za-z0-9_:-]{1,200}\|[A-Za-z0-9_.:/-]{1,200}\Z"


class PullContext(Request):
    """The session that gets your latest context."""

    session_id: SessionId
    agent_id: OwnAgentId = None
    branch: Branch = None


class EntryDifference(Response):
    """An entry in which two snapshots differ. ``memory_type`` is definition for the agent's definition."""

    memory_type: str
    key: str
    from_version: int | None = None
    to_version: int | None = None
    workflow_id: str | None = None


class ContextChanges(Response, omit_defaults=False):
    """What a pull changed. ``has_more`` if the list is truncated."""

    added: list[EntryDifference]
    removed: list[EntryDifference]
    modified: list[EntryDifference]
    has_more: bool


class PulledContext(AgentDefinition, kw_only=True):
    """The agent's definition, and its memory by type. ``has_more`` if the list is truncated."""

    memory: dict[MemoryTypeName, list[ContextEntry]]
    has_more: bool


class LayerVersion(Response):
    """A version of a layer or definition that the session's prompts have from now on; 0: it is not defined."""

    context_id: str
    version: int


class SharedMemoryVersion(Response):
    """A version of the memory of a team or user that the session has from now on, and the one that it had before."""

    context_id: str
    version: int
    from_version: int | None = None


class ContextPulled(Success, kw_only=True):
    """The session's new snapshot, which replaces the previous one. ``reason`` is critical after a critical update.

    ``from_version`` is the version that the session had before, from a pull or its first prompt. ``shared`` is the
    memory of your teams and users.
    """

    agent_id: str
    session_id: str
    context_id: str
    from_version: int | None
    to_version: int
    snapshot: str
    message: str
    reason: Literal["request", "critical"]
    changes: ContextChanges
    context: PulledContext
    layers: list[LayerVersion]
    shared: list[SharedMemoryVersion]


class ReadContext(Request):
    """Filter and page: one entry, one memory type, or all entries."""

    owner: Owner = None
    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Read your snapshot there. Default: the current version.")
    ] = None
    memory_type: Annotated[MemoryTypeName | None, msgspec.Meta(description="Only this memory type.")] = None
    key: Annotated[EntryKey | None, msgspec.Meta(description="One entry with its full value.")] = None
    workflow_id: OfWorkflow = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum entries.")] = 50
    cursor: Annotated[
        Annotated[str, msgspec.Meta(max_length=401, pattern=_CURSOR)] | None,
        msgspec.Meta(description="next_cursor of the previous page."),
    ] = None


class ContextRead(Success, kw_only=True):
    """The current context; with a session, your snapshot there, as its prompts have it."""

    agent_id: str
    session_id: str | None = None
    context_id: str
    version: int
    snapshot: str
    pulled_at: datetime | None = None
    definition: AgentDefinition
    entries: list[ContextEntry]
    count: int
    has_more: bool
    next_cursor: str | None


class GetContextStatus(Request):
    """The branch and the session to report on."""

    owner: Owner = None
    session_id: Annotated[SessionId | None, msgspec.Meta(description="Include the versions of this session.")] = None
    agent_id: OwnAgentId = None
    branch: Branch = None


class ContextStatus(Response, omit_defaults=False):
    """The current version of the context, the one a session pulled, and the latest it has seen (pulled or pushed).

    ``critical_update``: edits of your definition or layers that you should get with `context.pull` at once.
    """

    agent_id: str
    context_id: str
    branch: str
    version: int
    snapshot: str
    used_bytes: int
    limit_bytes: int
    pulled_version: int | None
    known_version: int | None
    pulled_at: datetime | None
    critical_update: CriticalUpdate | None


class _RenderedPull(NamedTuple):
    """The answer to a pull of a version, compared with the snapshot that the session had before."""

    version: Point
    before: PinnedContext | None
    changes: ContextChanges
    context: PulledContext


async def render_pull(request: PullContext, actor: Actor, reads: Transactions[Contexts]) -> _RenderedPull:
    """Read the context before the transaction, which only pins the version: a large one would hold up every writer."""

    async def render(contexts: Contexts) -> _RenderedPull:
        check_own(contexts.actor, request.agent_id)
        session = await find_session(request.session_id, contexts.actor, contexts.sessions)
        before = await contexts.snapshots.find(session.session_id, contexts.actor.principal_id)
        root = await contexts.head(await contexts.named_line(None, request.branch))
        version = Point(root.line_id, root.seq, root.hash)
        parts = await ContextAt(contexts.lines, version).parts()
        changes = await _changes(contexts, before, parts)
        return _RenderedPull(version, before, changes, await _pulled(contexts, parts))

    return await reads.read(actor, render, heavy=True)


@_own_context_operation(
    "context.pull",
    prepare=render_pull,
    tool="pull_context",
    http="POST /v1/context/pull",
    effect=Effect.WRITE,
    errors=(SessionNotFound, SessionArchived, PermissionDenied, BranchNotFound, VersionPruned),
)
async def pull_context(
    request: PullContext, contexts: Contexts, layers: Layers, *, prepared: _RenderedPull
) -> ContextPulled:
    """Pin your latest context, your teams' memory and the layers in a session as an immutable snapshot.

    The answer lists what changed since the previous snapshot. Prompts and searches of the session use this one,
    whatever is pushed or edited, until you pull again.
    """
    check_own(contexts.actor, request.agent_id)
    session, _ = await lock_active_session(request.session_id, contexts.actor, contexts.sessions)
    before = await contexts.snapshots.find(session.session_id, contexts.actor.principal_id)
    context = await contexts.open_named(None, request.branch)
    await context.follow_definition()
    await context.expire_overdue()
    parts = await context.current_version.parts()
    update = await layers.critical_update(session.session_id, context.owner)
    reason: Literal["request", "critical"] = "critical" if update else "request"
    held = await pin_memory(contexts, session.session_id, context.root, parts.values(), is_seen=True)
    pinned = await layers.pin(session.session_id, context.owner, parts.get(DEFINITION))
    await _publish(context, session, before, reason)
    root = context.root
    if (prepared.version, prepared.before) != (context.current_version.point, before):
        changes, pulled = await _changes(contexts, before, parts), await _pulled(contexts, parts)
    else:
        changes, pulled = prepared.changes, prepared.context
    return ContextPulled(
        agent_id=context.owner,
        session_id=session.session_id,
        context_id=root.line_id,
        from_version=before.version if before else None,
        to_version=root.seq,
        snapshot=root.hash.hex(),
        message=f"Context pulled: snapshot v{before.version if before else 0} -> v{root.seq}",
        reason=reason,
        changes=changes,
        context=pulled,
        layers=[LayerVersion(context_id=at.line, version=at.seq) for at in pinned],
        shared=_shared_versions(before, held),
    )


@_own_context_operation(
    "context.read",
    heavy=True,
    tool="read_context",
    http="GET /v1/context",
    effect=Effect.OWN_TRANSACTIONS,
    errors=(
        *OWNER_ERRORS,
        PermissionDenied,
        SessionNotFound,
        ContextNotPulled,
        ContextKeyNotFound,
        BranchNotFound,
        VersionPruned,
        ObjectStorageUnavailable,
        ObjectMissing,
        ObjectDamaged,
    ),
)
async def read_context(
    request: ReadContext, actor: Actor, reads: Transactions[Contexts], staging: Staging
) -> ContextRead:
    """Read your persistent memory: its current version or, with a session, your snapshot there.

    With owner, the memory of a team or user instead. With a key, the answer has that entry with its full value, even
    if it is in object storage.
    """
    answer, pointer = await reads.read(actor, lambda contexts: _read(request, contexts), heavy=True)
    if pointer is None:
        return answer
    content = await staging.fetch(actor.tenant, pointer)
    return msgspec.structs.replace(answer, entries=[with_value(entry, content) for entry in answer.entries])


@_own_context_operation(
    "context.status",
    tool="get_context_status",
    http="GET /v1/context/status",
    effect=Effect.READ,
    errors=(*OWNER_ERRORS, SessionNotFound, BranchNotFound, PermissionDenied),
)
async def get_context_status(request: GetContextStatus, contexts: Contexts, layers: Layers) -> ContextStatus:
    """Return the current version of your context, or of a team or user, and the one that your session has."""
    check_own(contexts.actor, request.agent_id)
    owner = contexts.actor.principal_id
    line = await contexts.named_line(request.owner, request.branch)
    held, update = None, None
    if request.session_id is not None:
        session = await find_session(request.session_id, contexts.actor, contexts.sessions)
        held = await contexts.snapshots.find(session.session_id, owner)
        update = await layers.critical_update(session.session_id, owner) if request.owner is None else None
    root = await contexts.head(line)
    is_known = held is not None and await is_known_context(held, line.line_id, contexts.lines)
    shared = held and request.owner and held.shared_version(request.owner)
    pulled = shared.seq if shared else held.version if held and request.owner is None else None
    return ContextStatus(
        agent_id=owner,
        context_id=line.line_id,
        branch=line.branch or MAIN,
        version=root.seq,
        snapshot=root.hash.hex(),
        used_bytes=root.weight,
        limit_bytes=contexts.limits.total_bytes,
        pulled_version=pulled,
        known_version=held.known if held and is_known else None,
        pulled_at=optional_datetime(held.pulled_at if held and pulled is not None else None),
        critical_update=update,
    )


def _shared_versions(before: PinnedContext | None, held: PinnedContext) -> list[SharedMemoryVersion]:
    versions = []
    for at in held.shared or ():
        previous = None if before is None else before.shared_version(trunk_of(at.line))
        versions.append(
            SharedMemoryVersion(
                context_id=at.line, version=at.seq, from_version=None if previous is None else previous.seq
            )
        )
    return versions


async def _changes(
    contexts: Contexts, before: PinnedContext | None, parts: Mapping[str, PartVersion]
) -> ContextChanges:
    then = None if before is None else ContextAt(contexts.lines, before.held)
    # A snapshot of a deleted branch cannot be compared with a new branch of the same name.
    if then is not None and await then.exists():
        found = await changed_entries(contexts.lines, await then.parts(), parts)
    else:
        entries = await first_entries(contexts.snapshots, contexts.lines, parts, _MAX_ENTRIES)
        found = [EntryDiff(entry.place, None, entry.version) for entry in entries]
    listed = found[:_MAX_ENTRIES]
    return ContextChanges(
        added=_differences(each for each in listed if each.before is None),
        removed=_differences(each for each in listed if each.after is None),
        modified=_differences(each for each in listed if each.before and each.after),
        has_more=len(found) > len(listed),
    )


async def _pulled(contexts: Contexts, parts: Mapping[str, PartVersion]) -> PulledContext:
    definition = await definition_at(contexts.lines, parts.get(DEFINITION))
    of_memory = {name: at for name, at in parts.items() if name != DEFINITION}
    held = await first_entries(contexts.snapshots, contexts.lines, of_memory, _MAX_ENTRIES)
    memory: dict[MemoryTypeName, list[ContextEntry]] = {}
    for entry in await render_entries(held[:_MAX_ENTRIES], contexts.snapshots):
        memory.setdefault(entry.memory_type, []).append(entry)  # type: ignore[arg-type]  # parts have no other names
    return PulledContext(**msgspec.structs.asdict(definition), memory=memory, has_more=len(held) > _MAX_ENTRIES)


async def _publish(context: OpenContext, session: Session, before: PinnedContext | None, reason: str) -> None:
    data = {
        "context_id": context.root.line_id,
        "from_version": before.version if before else None,
        "version": context.root.seq,
        "hash": context.root.hash.hex(),
        "reason": reason,
    }
    await context.service.outbox.publish(context.service.event("context.pulled", context.owner, data, session))


async def _read(request: ReadContext, contexts: Contexts) -> tuple[ContextRead, Pointer | None]:
    """Return the answer, and the pointer to the value it still lacks, if that is in object storage."""
    memory, held = await _opened(request, contexts)
    if request.key is not None:
        entry = await _entry(request, request.key, memory)
        return await _answer(held, memory, [entry], None), _pointer(entry)
    entries = await _listed(request, memory)
    page = entries[: request.limit]
    more = f"{page[-1].place.part}|{page[-1].place.key}" if len(entries) > len(page) else None
    return await _answer(held, memory, page, more), None


async def _opened(request: ReadContext, contexts: Contexts) -> tuple[MemoryVersion, PinnedContext | None]:
    """Open the version to read: the current one, or the one that a session has."""
    session, held = None, None
    if request.session_id is not None:
        session = await find_session(request.session_id, contexts.actor, contexts.sessions)
        held = await contexts.snapshots.find(session.session_id, contexts.actor.principal_id)
    if request.owner is not None:
        memory = await _shared_memory(request.owner, held, contexts)
        return memory, held if memory.rules is None else None
    if session is None:
        line = await contexts.named_line(None, None)
        return await MemoryVersion.current(contexts, line, await contexts.head(line)), None
    if held is None:
        raise ContextNotPulled(resource_id=session.session_id)
    own = MemoryVersion(contexts, ContextLine.parse(held.line_id), ContextAt(contexts.lines, held.held))
    await own.version.check_exists()
    return own, held


async def _shared_memory(owner: str, held: PinnedContext | None, contexts: Contexts) -> MemoryVersion:
    """Open the memory of a team or user: the version that a session has, or the current one if it has no snapshot."""
    line = await contexts.named_line(owner, None)
    # Admins also read the memory of teams that they are not in, which no session pins.
    if held is None or held.shared is None or owner not in readable_memory_owners(contexts.actor):
        return await MemoryVersion.current(contexts, line, await contexts.head(line))
    memory = await MemoryVersion.pinned(contexts, held, line.root._replace(branch=None).line_id)
    if memory is None:
        raise ContextNotPulled(f"This session has no version of the memory of {owner}.", resource_id=held.session_id)
    return memory


async def _entry(request: ReadContext, key: str, memory: MemoryVersion) -> PersistedEntry:
    place = EntryAddress(_part(request), key)
    at = await memory.version.part(place.part) if is_well_formed(key) else None
    entry = None if at is None else await memory.entry(place)
    if at is None or entry is None:
        known = [] if at is None else [entry.place.key for entry in await memory.entries(place.part, at)]
        what = request.owner or ("Your snapshot" if request.session_id else "Your memory")
        raise ContextKeyNotFound(
            f"{what} has no entry '{key[:200]}' in {place.part}.",
            resource_id=key[:200],
            available_alternatives=close_names(key, known[:MAX_COMPARED]),
        )
    metadata = await memory.contexts.lines.latest(at.line, metadata_key(key), at.seq)
    return entry._replace(metadata=metadata)


def _part(request: ReadContext) -> str:
    memory_type = request.memory_type or MemoryType.LEARNED_KNOWLEDGE
    return memory_type if request.workflow_id is None else f"{memory_type}:{request.workflow_id}"


def _pointer(entry: PersistedEntry) -> Pointer | None:
    value = entry.version.value
    return Pointer.decode(value) if entry.version.change.meta.outside and value is not None else None


async def _listed(request: ReadContext, memory: MemoryVersion) -> list[PersistedEntry]:
    """Return the selected entries after the cursor, ordered by part and key."""
    part, _, key = (request.cursor or "").partition("|")
    found: list[PersistedEntry] = []
    for name, at in (await memory.version.parts()).items():
        if name < part or not _is_selected(name, request):
            continue
        entries = await memory.entries(name, at)
        found += [entry for entry in entries if name > part or entry.place.key > key]
        if len(found) > request.limit:
            break
    return found


def _is_selected(part: str, request: ReadContext) -> bool:
    if part == DEFINITION:
        return False
    place = EntryAddress(part, "")
    return request.memory_type in {None, place.memory_type} and request.workflow_id in {None, place.workflow_id}


async def _answer(
    held: PinnedContext | None, memory: MemoryVersion, entries: Sequence[PersistedEntry], more: str | None
) -> ContextRead:
    contexts, point = memory.contexts, memory.version.point
    return ContextRead(
        agent_id=contexts.actor.principal_id,
        session_id=None if held is None else held.session_id,
        context_id=memory.line.line_id,
        version=point.seq,
        snapshot=point.hash.hex(),
        pulled_at=None if held is None else from_micros(held.pulled_at),
        definition=await definition_at(contexts.lines, await memory.version.part(DEFINITION)),
        entries=await render_entries(entries, contexts.snapshots),
        count=len(entries),
        has_more=more is not None,
        next_cursor=more,
    )


def _differences(changes: Iterable[EntryDiff]) -> list[EntryDifference]:
    return [
        EntryDifference(
            memory_type=change.place.memory_type,
            key=change.place.key,
            workflow_id=change.place.workflow_id,
            from_version=change.before.change.version if change.before else None,
            to_version=change.after.change.version if change.after else None,
        )
        for change in changes
    ]
