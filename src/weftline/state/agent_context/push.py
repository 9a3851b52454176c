"""Operation context.push: writes entries to the caller's persistent memory atomically."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from weftline.access.model import AgentId
from weftline.history.line_kinds import CommitMeta
from weftline.history.model import BranchNotFound, ChangeMeta, Point, VersionConflict, metadata_key
from weftline.history.object_storage import ObjectBusy, ObjectMissing, ObjectStorageUnavailable, Staging, keep_staged
from weftline.indexing.pins import PinLimitExceeded
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied, QuotaExceeded
from weftline.kernel.fields import Count, Name, Reason, Step
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.json_input import Metadata, encode_json_field, metadata_json
from weftline.kernel.operation import Effect, RateClass, Request, Response, SubmittedText, Success, operation
from weftline.kernel.ports import Transactions
from weftline.kernel.thread_pools import SHORT_THREADS
from weftline.safety.trust.gate import GATE_ERRORS, ContentGate, IncomingContent, submitted
from weftline.safety.trust.model import DerivedFrom
from weftline.sessions.model import Session, SessionId, SessionNotFound, find_session
from weftline.state.agent_context.model import (
    OWNER_ERRORS,
    ContextLimitExceeded,
    EntryAddress,
    EntryText,
    MemoryTypeName,
    NewValue,
    Owner,
    as_object,
    belongs_in_object_storage,
    check_key,
    check_value_size,
    inline,
    is_learning_cycle,
    is_shared,
    part_of,
)
from weftline.state.agent_context.permissions import check_own
from weftline.state.agent_context.service import ContextAt, Contexts, OpenContext
from weftline.state.agent_context.sql import UNSEEN
from weftline.state.agent_context.views import changes_between, count_changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.history.lines import LineStore
    from weftline.history.model import Change
    from weftline.state.agent_context.service import OpenPart
    from weftline.state.agent_context.sql import PinnedContext

_MAX_LISTED_CHANGES = 100
# Larger values are hashed in a thread, to keep the event loop free.
_LARGE_BYTES = 262_144
_BINARY = "application/octet-stream"
_BEFORE_LEARNING = "before-learning"

OwnAgentId = Annotated[AgentId | None, msgspec.Meta(description="Your own agent_id. May be omitted.")]
Branch = Annotated[
    Name | None,
    msgspec.Meta(description="A branch of your context, or main. Default: the branch you checked out."),
]
# Longer than a valid key, so that an encoded forbidden key is still recognised as such.
EntryKey = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=1_000, description="1 to 200 letters, digits and any of _.:/- , such as billing/limit."
    ),
]
MemoryTypeField = Annotated[MemoryTypeName, msgspec.Meta(description="The memory type.")]
OfWorkflow = Annotated[
    Name | None, msgspec.Meta(description="The workflow; only with the memory type conversation_context.")
]


class Knowledge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry to write: any JSON value, or bytes as base64."""

    key: EntryKey
    value: Annotated[Any, msgspec.Meta(description="Any JSON value; or else base64.")] = msgspec.UNSET
    base64: Annotated[bytes | None, msgspec.Meta(description="Bytes instead of a value, as base64.")] = None
    memory_type: MemoryTypeField = "learned_knowledge"
    workflow_id: OfWorkflow = None
    media_type: Annotated[
        Annotated[str, msgspec.Meta(max_length=100, pattern=r"^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+\Z")] | None,
        msgspec.Meta(description=f"Media type of the bytes, such as image/png. Default: {_BINARY}."),
    ] = None
    metadata: Metadata = None
    derived_from: DerivedFrom = ()


class RemovedKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry to remove."""

    key: EntryKey
    memory_type: MemoryTypeField = "learned_knowledge"
    workflow_id: OfWorkflow = None


class PushContext(Request, dict=True):
    """Entries to write and remove, and the expected version of the context."""

    knowledge: Annotated[
        tuple[Knowledge, ...],
        msgspec.Meta(max_length=200, description="Entries to write; existing keys are replaced."),
    ]
    remove: Annotated[tuple[RemovedKey, ...], msgspec.Meta(max_length=200, description="Entries to remove.")] = ()
    owner: Owner = None
    agent_id: OwnAgentId = None
    if_version: Annotated[
        Count | None,
        msgspec.Meta(
            description="Expected version of the context (0: nothing pushed yet); VERSION_CONFLICT if it differs. "
            "Default: the version that session_id last pulled or pushed; without one, only new keys are written."
        ),
    ] = None
    session_id: Annotated[SessionId | None, msgspec.Meta(description="The session of the push.")] = None
    reason: Reason = None
    step: Step = None
    branch: Branch = None

    @cached_property
    def values(self) -> list[_GivenValue]:
        """Return the values, encoded once: the check, the upload and the transaction need them."""
        return _values(self)


class ChangedEntry(Response):
    """An entry that was changed, and how."""

    memory_type: str
    key: str
    act: str
    version: int
    workflow_id: str | None = None


class ContextPushed(Success, kw_only=True):
    """The new version of the context; the same version if nothing changed.

    ``snapshot_before`` is the label of an automatic snapshot, taken before a push with many changes.
    """

    on_record = ("version", "changed")

    agent_id: str
    context_id: str
    previous_version: int
    version: int
    snapshot: str
    changed: list[ChangedEntry]
    unchanged: int
    snapshot_before: str | None
    pushed_at: datetime


class _GivenValue(NamedTuple):
    """A validated item of a request: where to write which value, made of what; no value removes the entry."""

    place: EntryAddress
    value: NewValue | None = None
    derived_from: tuple[str, ...] = ()


class _Entry(NamedTuple):
    """A planned write, or a removal without ``value``. ``outside`` goes to object storage."""

    place: EntryAddress
    value: EntryText | None = None
    metadata: str | None = None
    outside: bytes | None = None


async def stage_push(
    request: PushContext, actor: Actor, staging: Staging, reads: Transactions[Contexts]
) -> list[_Entry] | None:
    """Upload large values to object storage before the transaction that refers to them.

    Return the entries if there are any: the transaction need not encode and hash again.
    """
    check_own(actor, request.agent_id)
    given = request.values
    if not any(each.value and belongs_in_object_storage(each.value, each.place.memory_type) for each in given):
        return None
    admitted = await reads.read(actor, lambda contexts: _admitted(given, contexts.gate), heavy=True)
    is_large = sum(len(each.value.content) for each in given if each.value) > _LARGE_BYTES
    entries = await SHORT_THREADS.run(_entries, admitted, actor) if is_large else _entries(admitted, actor)
    # Check first, so that nothing is uploaded for a push that will be rejected.
    await reads.read(actor, lambda contexts: _check_push(request, entries, contexts), heavy=True)
    contents = [entry.outside for entry in entries if entry.outside is not None]
    await staging.stage(actor.tenant, actor.principal_id, contents, epoch=actor.epoch)
    return entries


def _texts(request: PushContext) -> list[SubmittedText]:
    return [
        submitted(text, derived_from=each.derived_from)
        for each in request.values
        if each.value is not None
        for text in (each.value.text, each.value.metadata)
        if text is not None
    ]


async def _admitted(given: Sequence[_GivenValue], gate: ContentGate) -> list[_GivenValue]:
    """Pass values and their metadata through the gate. Bytes that are not text cannot instruct an agent."""
    return [each if each.value is None else await _admitted_value(each, each.value, gate) for each in given]


async def _admitted_value(given: _GivenValue, value: NewValue, gate: ContentGate) -> _GivenValue:
    texts = {"content": value.text, "metadata": value.metadata}
    contents = {
        name: IncomingContent(
            "persistent_memory",
            given.place.key,
            text,
            derived_from=given.derived_from,
            is_json=value.media_type is None or name == "metadata",
        )
        for name, text in texts.items()
        if text is not None
    }
    admitted, label = await gate.admit_together(contents.values())
    if label is None:
        return given
    stored = dict(zip(contents, admitted, strict=True))
    content = stored["content"].encode() if "content" in stored else value.content
    return given._replace(value=value._replace(content=content, metadata=stored.get("metadata"), trust=label))


@operation(
    "context.push",
    tool="push_context",
    http="POST /v1/context/push",
    permission=Permission.WRITE,
    rate=RateClass.MEMORY,
    effect=Effect.WRITE,
    audited=True,
    off_record=("knowledge", "remove"),
    prepare=stage_push,
    content=_texts,
    errors=(
        VersionConflict,
        PermissionDenied,
        *OWNER_ERRORS,
        ContentTooLarge,
        QuotaExceeded,
        ContextLimitExceeded,
        PinLimitExceeded,
        SessionNotFound,
        BranchNotFound,
        ObjectStorageUnavailable,
        ObjectBusy,
        ObjectMissing,
        *GATE_ERRORS,
    ),
)
async def push_context(request: PushContext, contexts: Contexts, *, staged: list[_Entry] | None) -> ContextPushed:
    """Write entries to your persistent memory, or to that of a team or user: all of them, or none.

    If the context has changed since the expected version, nothing is written and the error lists the changes: pull,
    merge, push again. A session has the new entries after its next pull. A push cannot change your definition (role,
    system prompt, guardrails, clearance).
    """
    entries = staged or _entries(await _admitted(request.values, contexts.gate), contexts.actor)
    session = await _session(request, contexts)
    context = await contexts.open_named(request.owner, request.branch)
    previous = context.root.seq
    parts, changed = await _planned(request, entries, context)
    # Unchanged entries too: their objects may have been lost, and were just uploaded again.
    await keep_staged(
        [entry.value.pointer for entry in entries if entry.value and entry.value.pointer], contexts.objects
    )
    _snapshot_learning_cycles(changed, parts, context)
    reason = await contexts.gate.admit_note("reason", request.reason)
    label = await context.commit(parts.values(), CommitMeta(reason or "push", request.step))
    if session is not None and context.root.seq > previous:
        await contexts.snapshots.learn(session.session_id, context.owner, context.current_version.point)
    changes = [(entry.place, parts[entry.place.part].changes[entry.place.key]) for entry in changed]
    if changes:
        await _publish(context, session, previous, changes)
    return ContextPushed(
        agent_id=contexts.actor.principal_id,
        context_id=context.root.line_id,
        previous_version=previous,
        version=context.root.seq,
        snapshot=context.root.hash.hex(),
        changed=[_changed_entry(place, change) for place, change in changes],
        unchanged=len(entries) - len(changed),
        snapshot_before=label,
        pushed_at=from_micros(context.now),
    )


def _values(request: PushContext) -> list[_GivenValue]:
    """Validate the request and return its values; each address may occur once."""
    given = [_known(item, f"knowledge[{place}]") for place, item in enumerate(request.knowledge)]
    given += [_GivenValue(_place(item, f"remove[{place}]")) for place, item in enumerate(request.remove)]
    twice = [place.key for place, times in Counter(each.place for each in given).items() if times > 1]
    if twice:
        raise InvalidInput(f"knowledge: the key '{twice[0]}' occurs twice", field="knowledge")
    return given


def _known(item: Knowledge, field: str) -> _GivenValue:
    place = _place(item, field)
    if (item.value is msgspec.UNSET) == (item.base64 is None):
        raise InvalidInput(f"{field}: give either a value or base64", field=field)
    if item.base64 is None and item.media_type is not None:
        raise InvalidInput(f"{field}: media_type is for base64; a value is JSON", field=f"{field}.media_type")
    metadata = None if not item.metadata else metadata_json(item.metadata)
    if item.base64 is None:
        given = NewValue(encode_json_field(f"{field}.value", item.value), None, metadata)
    else:
        given = NewValue(item.base64, item.media_type or _BINARY, metadata)
    check_value_size(len(given.content), field)
    return _GivenValue(place, given, item.derived_from)


def _entries(given: Sequence[_GivenValue], actor: Actor) -> list[_Entry]:
    return [_Entry(each.place) if each.value is None else _entry(each.place, each.value, actor) for each in given]


def _entry(place: EntryAddress, given: NewValue, actor: Actor) -> _Entry:
    if belongs_in_object_storage(given, place.memory_type):
        return _Entry(place, as_object(given, actor.tenant, actor.principal_id), given.metadata, given.content)
    return _Entry(place, inline(given), given.metadata)


def _place(item: Knowledge | RemovedKey, field: str) -> EntryAddress:
    check_key(item.key, f"{field}.key")
    return EntryAddress(part_of(item.memory_type, item.workflow_id, field), item.key)


async def _session(request: PushContext, contexts: Contexts) -> Session | None:
    if request.session_id is None:
        return None
    return await find_session(request.session_id, contexts.actor, contexts.sessions)


async def _check_push(request: PushContext, entries: Sequence[_Entry], contexts: Contexts) -> None:
    """Raise the errors that the transaction would raise in the current state."""
    await _session(request, contexts)
    context = await contexts.open_unlocked(await contexts.named_line(request.owner, request.branch))
    parts, _ = await _planned(request, entries, context)
    await context.check_limit(parts.values())


async def _planned(
    request: PushContext, entries: Sequence[_Entry], context: OpenContext
) -> tuple[Mapping[str, OpenPart], Sequence[_Entry]]:
    """Apply the entries; return their parts and the changed ones. VersionConflict if the expected version differs.

    A retried push has the previous version and changes nothing, so it is accepted.
    """
    expected = await _expected(request, context)
    is_current = context.root.seq == expected
    parts = {name: await context.part(name) for name in sorted({entry.place.part for entry in entries})}
    changed = [entry for entry in entries if await _apply(entry, parts[entry.place.part], may_renew=is_current)]
    if expected is None:
        _check_only_new(changed, parts)
    elif changed and not is_current:
        raise await _version_conflict(context, expected)
    return parts, changed


def _check_only_new(changed: Sequence[_Entry], parts: Mapping[str, OpenPart]) -> None:
    """Refuse to replace or remove entries of a version that the caller does not say it knows."""
    for entry in changed:
        change = parts[entry.place.part].changes[entry.place.key]
        if entry.value is None or change.version > 1:
            raise InvalidInput(
                f"if_version: required, because '{entry.place.key}' exists already",
                hint="Read the entry with `context.read`, and pass the version that `context.status` returns.",
                field="if_version",
                key=entry.place.key,
            )


async def _expected(request: PushContext, context: OpenContext) -> int | None:
    """Return the expected version: from the request, or the one the session knows; None if there is none."""
    if request.if_version is not None:
        return request.if_version
    held = None
    if request.session_id is not None:
        held = await context.service.snapshots.find(request.session_id, context.owner)
    if held is None or not await is_known_context(held, context.root.line_id, context.service.lines):
        return None
    return held.known


async def is_known_context(held: PinnedContext, line_id: str, lines: LineStore) -> bool:
    """Tell whether the session pulled this context, not a deleted branch of the same name."""
    return held.known != UNSEEN and held.line_id == line_id and await ContextAt(lines, held.known_point).exists()


async def _version_conflict(context: OpenContext, expected: int) -> VersionConflict:
    root = context.root
    or_read = ", or `context.read` with this owner and without a session" if is_shared(context.owner) else ""
    return VersionConflict(
        f"{root.line_id} is at version {root.seq}, not {expected}.",
        hint=f"Look at changed_since, `context.pull`{or_read}, merge your change, "
        "and push with if_version = current_version.",
        related=("read_context", "pull_context", "push_context"),
        current_version=root.seq,
        expected_version=expected,
        changed_since=await _changed_since(context, expected),
    )


async def _changed_since(context: OpenContext, version: int) -> list[dict[str, Any]]:
    lines, root = context.service.lines, context.root
    if version > root.seq:
        return []
    then = await ContextAt(lines, Point(root.line_id, version, b"")).parts()
    steps = await changes_between(lines, then, await context.current_version.parts(), _MAX_LISTED_CHANGES)
    return [
        {
            "memory_type": step.place.memory_type,
            **({"workflow_id": step.place.workflow_id} if step.place.workflow_id else {}),
            "key": step.place.key,
            "act": step.act,
            "version": step.version,
            "by": step.commit.commit.author.participant,
            "at": from_micros(step.commit.commit.committed_at),
        }
        for step in steps
    ]


async def _apply(entry: _Entry, part: OpenPart, *, may_renew: bool) -> bool:
    """Write or remove an entry; False if nothing changes."""
    key = entry.place.key
    if entry.value is None:
        await part.delete(metadata_key(key))
        return await part.delete(key)
    # Under retention by age, writing the same value again renews the entry.
    if not await part.write(key, entry.value, force=may_renew and part.expired_before is not None):
        return False
    if entry.metadata is None:
        await part.delete(metadata_key(key))
    else:
        # Written again, so that it expires with its value.
        about = EntryText(entry.metadata, ChangeMeta(size=len(entry.metadata.encode())))
        await part.write(metadata_key(key), about, force=True)
    return True


def _snapshot_learning_cycles(changed: Sequence[_Entry], parts: Mapping[str, OpenPart], context: OpenContext) -> None:
    """Request a snapshot of each part with enough changes, so that the push can be rolled back."""
    for name, entries in Counter(entry.place.part for entry in changed).items():
        if is_learning_cycle(entries, parts[name].line, context.rules):
            parts[name].snapshot_prefix = _BEFORE_LEARNING


def _changed_entry(place: EntryAddress, change: Change) -> ChangedEntry:
    return ChangedEntry(
        memory_type=place.memory_type,
        key=place.key,
        act=change.act,
        version=change.version,
        workflow_id=place.workflow_id,
    )


async def _publish(
    context: OpenContext, session: Session | None, previous: int, changes: Sequence[tuple[EntryAddress, Change]]
) -> None:
    data = {
        "context_id": context.root.line_id,
        "previous_version": previous,
        "version": context.root.seq,
        "memory_types": sorted({place.memory_type for place, _ in changes}),
        "entries": len(changes),
        **count_changes(change for _, change in changes),
    }
    await context.service.outbox.publish(context.service.event("context.pushed", context.owner, data, session))
