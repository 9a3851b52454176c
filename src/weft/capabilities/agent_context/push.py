"""Saving what a session learned to the agent's own persistent memory: all of it, or nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from weft.capabilities.access.model import AgentId
from weft.capabilities.agent_context.diff import counted, steps_between
from weft.capabilities.agent_context.model import (
    ContextLimitExceeded,
    EntryPlace,
    MemoryTypeName,
    SelfModification,
    check_key,
    check_value_size,
    is_learning_cycle,
    part_of,
)
from weft.capabilities.agent_context.permissions import check_own
from weft.capabilities.agent_context.service import ContextAt, Contexts, OpenContext
from weft.capabilities.agent_context.values import EntryText, GivenValue, inline, lies_outside, outside
from weft.capabilities.history.line_backend import CommitMeta
from weft.capabilities.history.model import BranchNotFound, ChangeMeta, Point, VersionConflict, metadata_key
from weft.capabilities.object_storage.model import ObjectBusy, ObjectMissing, ObjectStorageUnavailable
from weft.capabilities.object_storage.staging import Staging, keep_staged
from weft.capabilities.sessions.model import Session, SessionId, SessionNotFound, find_session
from weft.kernel.clock import from_micros
from weft.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied
from weft.kernel.fields import Count, Name, Reason, Step
from weft.kernel.identity import Actor, Permission
from weft.kernel.json_input import Metadata, encode_json_field, metadata_json
from weft.kernel.operation import Effect, RateClass, Request, Response, operation
from weft.kernel.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.agent_context.service import OpenPart
    from weft.capabilities.agent_context.store import PinnedContext
    from weft.capabilities.history.model import Change
    from weft.capabilities.history.store import LineStore

_TOLD_AT_MOST = 100
# Hashing more than this would keep everybody else waiting.
_LARGE_BYTES = 262_144
_BINARY = "application/octet-stream"
_BEFORE_LEARNING = "before-learning"

Own = Annotated[AgentId | None, msgspec.Meta(description="Your own agent_id, or left out.")]
Branch = Annotated[
    Name | None,
    msgspec.Meta(description="A branch of your context, or main; the one you switched to if left out."),
]
# Longer than a key may be, so that one written in a roundabout way is understood before it is refused.
EntryKey = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=1_000, description="1 to 200 letters, digits and any of _.:/- , such as billing/limit."
    ),
]
MemoryTypeField = Annotated[MemoryTypeName, msgspec.Meta(description="Which sort of memory.")]
OfWorkflow = Annotated[
    Name | None, msgspec.Meta(description="The workflow, for the memory type conversation_context and no other.")
]


class Knowledge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing to remember: any JSON, or bytes as base64."""

    key: EntryKey
    value: Annotated[Any, msgspec.Meta(description="Any JSON value; or else base64.")] = msgspec.UNSET
    base64: Annotated[bytes | None, msgspec.Meta(description="Bytes instead of a value, as base64.")] = None
    memory_type: MemoryTypeField = "learned_knowledge"
    workflow_id: OfWorkflow = None
    media_type: Annotated[
        Annotated[str, msgspec.Meta(max_length=100, pattern=r"^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+\Z")] | None,
        msgspec.Meta(description=f"What the bytes are, such as image/png; {_BINARY} if left out."),
    ] = None
    metadata: Metadata = None


class Forgotten(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing to remember no longer."""

    key: EntryKey
    memory_type: MemoryTypeField = "learned_knowledge"
    workflow_id: OfWorkflow = None


class PushContext(Request, weakref=True, eq=False):
    """What was learned, what can go, and for which version of your context this was decided."""

    knowledge: Annotated[
        tuple[Knowledge, ...],
        msgspec.Meta(max_length=200, description="What to save; an entry of the same key is replaced."),
    ]
    remove: Annotated[tuple[Forgotten, ...], msgspec.Meta(max_length=200, description="Entries to remove.")] = ()
    agent_id: Own = None
    if_version: Annotated[
        Count | None,
        msgspec.Meta(
            description="The version of your context this is made for, 0 if nothing was pushed yet; otherwise "
            "VERSION_CONFLICT. May be left out in a session where you pulled: then what that session knows counts."
        ),
    ] = None
    session_id: Annotated[SessionId | None, msgspec.Meta(description="The session in which this was learned.")] = None
    reason: Reason = None
    step: Step = None
    branch: Branch = None


class ChangedEntry(Response):
    """An entry that was changed, and how."""

    memory_type: str
    key: str
    act: str
    version: int
    workflow_id: str | None = None


class ContextPushed(Response, kw_only=True, omit_defaults=False):
    """Your context as it is now. Nothing changed is no new version.

    ``snapshot_before`` names the version before if so much was learned at once that one may want to return to it.
    """

    on_record = ("version", "changed")

    success: Literal[True] = True
    agent_id: str
    context_id: str
    previous_version: int
    version: int
    snapshot: str
    changed: list[ChangedEntry]
    unchanged: int
    snapshot_before: str | None
    pushed_at: datetime


class _Entry(NamedTuple):
    """What is to become of one entry; nothing said: it is to go. ``outside`` is what object storage is to keep."""

    place: EntryPlace
    said: EntryText | None = None
    metadata: str | None = None
    outside: bytes | None = None


class _Plan(NamedTuple):
    """What a push makes of a context, if it is let: its parts, and the entries that it changes in them."""

    parts: Mapping[str, OpenPart]
    changed: Sequence[_Entry]


# What was understood of a request before its transaction, which would else be encoded and hashed a second time.
_understood: WeakKeyDictionary[PushContext, list[_Entry]] = WeakKeyDictionary()


async def stage_push(request: PushContext, actor: Actor, staging: Staging, reads: Transactions[Contexts]) -> None:
    """Store what belongs outside the database, before the transaction that refers to it."""
    check_own(actor, request.agent_id)
    given = _given(request)
    is_large = sum(len(content.content) for _, content in given if content) > _LARGE_BYTES
    entries = await asyncio.to_thread(_entries, given, actor) if is_large else _entries(given, actor)
    _understood[request] = entries
    contents = [entry.outside for entry in entries if entry.outside is not None]
    if contents:
        # What will be refused is refused now: nothing is uploaded that nobody would ever refer to.
        await reads.read(actor, lambda contexts: _rehearse(request, entries, contexts), heavy=True)
        await staging.stage(actor.tenant, actor.principal_id, contents, epoch=actor.epoch)


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
    errors=(
        VersionConflict,
        SelfModification,
        PermissionDenied,
        ContentTooLarge,
        ContextLimitExceeded,
        SessionNotFound,
        BranchNotFound,
        ObjectStorageUnavailable,
        ObjectBusy,
        ObjectMissing,
    ),
)
async def push_context(request: PushContext, contexts: Contexts) -> ContextPushed:
    """Save what you learned to your own persistent memory, all of it or nothing.

    If your context has changed since the version you name, nothing is saved and you are told what changed: pull it,
    merge, push again. What an agent is (role, system prompt, guardrails, clearance) cannot be reached by any push.
    """
    entries = _understood.get(request) or _entries(_given(request), contexts.actor)
    session = await _session(request, contexts)
    context = await contexts.open_own(request.branch)
    previous = context.root.seq
    parts, changed = await _planned(request, entries, context)
    # Also what is said already: its value may have been lost outside, and has just been stored anew.
    await keep_staged([entry.said.pointer for entry in entries if entry.said and entry.said.pointer], contexts.objects)
    _name_learning_cycles(changed, parts, context)
    label = await context.commit(parts.values(), CommitMeta(request.reason or "push", request.step))
    if session is not None and context.root.seq > previous:
        await contexts.snapshots.learn(session.session_id, context.owner, context.present.point)
    changes = [(entry.place, parts[entry.place.part].changes[entry.place.key]) for entry in changed]
    if changes:
        await _announce(context, session, previous, changes)
    return ContextPushed(
        agent_id=context.owner,
        context_id=context.root.line_id,
        previous_version=previous,
        version=context.root.seq,
        snapshot=context.root.hash.hex(),
        changed=[_changed_entry(place, change) for place, change in changes],
        unchanged=len(entries) - len(changed),
        snapshot_before=label,
        pushed_at=from_micros(context.now),
    )


def _given(request: PushContext) -> list[tuple[EntryPlace, GivenValue | None]]:
    """Check what was sent and return it by its places; each may be named once."""
    given = [_known(item, f"knowledge[{place}]") for place, item in enumerate(request.knowledge)]
    given += [(_place(item, f"remove[{place}]"), None) for place, item in enumerate(request.remove)]
    twice = [place.key for place, times in Counter(place for place, _ in given).items() if times > 1]
    if twice:
        raise InvalidInput(f"knowledge: the key '{twice[0]}' is named twice", field="knowledge")
    return given


def _known(item: Knowledge, field: str) -> tuple[EntryPlace, GivenValue | None]:
    place = _place(item, field)
    if (item.value is msgspec.UNSET) == (item.base64 is None):
        raise InvalidInput(f"{field}: give either a value or base64", field=field)
    if item.base64 is None and item.media_type is not None:
        raise InvalidInput(f"{field}: media_type is for base64; a value is JSON", field=f"{field}.media_type")
    metadata = None if not item.metadata else metadata_json(item.metadata)
    if item.base64 is None:
        given = GivenValue(encode_json_field(f"{field}.value", item.value), None, metadata)
    else:
        given = GivenValue(item.base64, item.media_type or _BINARY, metadata)
    check_value_size(len(given.content), field)
    return place, given


def _entries(given: Sequence[tuple[EntryPlace, GivenValue | None]], actor: Actor) -> list[_Entry]:
    return [_Entry(place) if content is None else _entry(place, content, actor) for place, content in given]


def _entry(place: EntryPlace, given: GivenValue, actor: Actor) -> _Entry:
    if lies_outside(given, place.memory_type):
        return _Entry(place, outside(given, actor.tenant, actor.principal_id), given.metadata, given.content)
    return _Entry(place, inline(given), given.metadata)


def _place(item: Knowledge | Forgotten, field: str) -> EntryPlace:
    check_key(item.key, f"{field}.key")
    return EntryPlace(part_of(item.memory_type, item.workflow_id, field), item.key)


async def _session(request: PushContext, contexts: Contexts) -> Session | None:
    if request.session_id is None:
        return None
    return await find_session(request.session_id, contexts.actor, contexts.sessions)


async def _rehearse(request: PushContext, entries: Sequence[_Entry], contexts: Contexts) -> None:
    """Refuse what the transaction would refuse, as things stand."""
    await _session(request, contexts)
    context = await contexts.look_at_own(request.branch)
    plan = await _planned(request, entries, context)
    await context.check_room(plan.parts.values())


async def _planned(request: PushContext, entries: Sequence[_Entry], context: OpenContext) -> _Plan:
    """Have parts say what was pushed, unless it was made for another version.

    Who repeats a push because its answer was lost names the version before it; nothing is left to do then.
    """
    expected = await _expected(request, context)
    is_current = context.root.seq == expected
    parts = {name: await context.part(name) for name in sorted({entry.place.part for entry in entries})}
    changed = [entry for entry in entries if await _apply(entry, parts[entry.place.part], may_renew=is_current)]
    if changed and not is_current:
        raise await _version_conflict(context, expected)
    return _Plan(parts, changed)


async def _expected(request: PushContext, context: OpenContext) -> int:
    """Return the version this push is made for: as named, or as the session knows it."""
    if request.if_version is not None:
        return request.if_version
    held = None
    if request.session_id is not None:
        held = await context.needs.snapshots.find(request.session_id, context.owner)
    if held is None or not await knows(held, context.root.line_id, context.needs.lines):
        raise InvalidInput(
            "if_version: say which version this is made for, or push in a session where you pulled this context",
            hint="Call `context.pull` and pass its to_version as if_version; 0 if nothing was pushed yet.",
            field="if_version",
        )
    return held.known


async def knows(held: PinnedContext, line_id: str, lines: LineStore) -> bool:
    """Tell whether a session knows this very context: another branch may have the name of one that was deleted."""
    return held.line_id == line_id and await ContextAt(lines, held.known_point).is_there()


async def _version_conflict(context: OpenContext, expected: int) -> VersionConflict:
    root = context.root
    return VersionConflict(
        f"Your context is at version {root.seq}, not {expected}.",
        hint="Look at changed_since, `context.pull`, merge your change, and push with if_version = current_version.",
        related=("pull_context", "push_context"),
        current_version=root.seq,
        expected_version=expected,
        changed_since=await _changed_since(context, expected),
    )


async def _changed_since(context: OpenContext, version: int) -> list[dict[str, Any]]:
    lines, root = context.needs.lines, context.root
    if version > root.seq:
        return []
    then = await ContextAt(lines, Point(root.line_id, version, b"")).parts()
    steps = await steps_between(lines, then, await context.present.parts(), _TOLD_AT_MOST)
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
    """Have an entry say what was pushed, or go; False if nothing changes."""
    key = entry.place.key
    if entry.said is None:
        await part.delete(metadata_key(key))
        return await part.delete(key)
    # Where entries end by their age, saying one again is how it is given more time.
    if not await part.write(key, entry.said, anew=may_renew and part.ended_before is not None):
        return False
    if entry.metadata is None:
        await part.delete(metadata_key(key))
    else:
        # Anew, so that it lasts as long as the value it belongs to.
        about = EntryText(entry.metadata, ChangeMeta(size=len(entry.metadata.encode())))
        await part.write(metadata_key(key), about, anew=True)
    return True


def _name_learning_cycles(changed: Sequence[_Entry], parts: Mapping[str, OpenPart], context: OpenContext) -> None:
    """Have the state before this push keep a name, wherever so much is learned at once that one may want it back."""
    for name, entries in Counter(entry.place.part for entry in changed).items():
        if is_learning_cycle(entries, parts[name].line, context.rules):
            parts[name].occasion = _BEFORE_LEARNING


def _changed_entry(place: EntryPlace, change: Change) -> ChangedEntry:
    return ChangedEntry(
        memory_type=place.memory_type,
        key=place.key,
        act=change.act,
        version=change.version,
        workflow_id=place.workflow_id,
    )


async def _announce(
    context: OpenContext, session: Session | None, previous: int, changes: Sequence[tuple[EntryPlace, Change]]
) -> None:
    data = {
        "context_id": context.root.line_id,
        "previous_version": previous,
        "version": context.root.seq,
        "memory_types": sorted({place.memory_type for place, _ in changes}),
        "entries": len(changes),
        **counted(change for _, change in changes),
    }
    await context.needs.outbox.publish(context.needs.event("context.pushed", context.owner, data, session))
