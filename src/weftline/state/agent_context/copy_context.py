"""Operation context.copy: replaces an agent's persistent memory by a version of another agent's."""

from __future__ import annotations

from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from weftline.access.grants import check_may_edit
from weftline.access.model import AgentId, AgentNotFound
from weftline.history.commits import tag_automatically
from weftline.history.composite_lines import PartVersion, part_states_apart, seals_at
from weftline.history.line_kinds import CommitMeta
from weftline.history.model import VersionNotFound, VersionPruned, is_metadata
from weftline.history.object_storage import ObjectBusy, ObjectMissing
from weftline.history.revisions import VersionName
from weftline.history.service import SMALL_CHANGE
from weftline.history.three_way import State
from weftline.indexing.pins import PinLimitExceeded
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.fields import Reason, Step
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import (
    Effect,
    PreparationOutdated,
    RateClass,
    Request,
    SessionUse,
    Success,
    operation,
)
from weftline.kernel.ports import Transactions
from weftline.safety.trust.gate import GATE_ERRORS
from weftline.state.agent_context.history_backend import restore_entries
from weftline.state.agent_context.model import (
    DEFINITION,
    ContextLimitExceeded,
    ContextLine,
    EntryAddress,
    MemoryTypeName,
    is_overdue,
    retention_cutoff,
)
from weftline.state.agent_context.permissions import check_may_copy, find_agent
from weftline.state.agent_context.service import ContextAt, Contexts
from weftline.state.agent_context.views import count_changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.state.agent_context.service import OpenContext, OpenPart

_ALL_TYPES: tuple[MemoryTypeName, ...] = (
    "conversation_context",
    "learned_knowledge",
    "team_preferences",
    "work_artifacts",
)


class CopyContext(Request):
    """Source, target, version and memory types of a copy."""

    agent_id: AgentId
    from_agent_id: Annotated[AgentId, msgspec.Meta(description="The agent whose memory to copy.")]
    version: VersionName = "head"
    memory_types: Annotated[
        tuple[MemoryTypeName, ...], msgspec.Meta(min_length=1, description="Memory types to copy. Default: all.")
    ] = _ALL_TYPES
    reason: Reason = None
    step: Step = None

    @property
    def effects(self) -> tuple[str, ...]:
        """Return the names of a push: a copy writes and removes entries as one does."""
        return ("context.push", "push_context")


class ContextCopied(Success, kw_only=True):
    """The result of a copy. ``snapshot_before`` labels the version that was replaced."""

    on_record = ("from_version", "version", "snapshot_before")

    agent_id: str
    from_agent_id: str
    from_version: int
    previous_version: int
    version: int
    written: int
    removed: int
    snapshot_before: str | None
    copied_at: datetime


# Entries of a part that may differ, here and in the source, by the versions of both.
_PartStates = dict[tuple[PartVersion | None, PartVersion | None], tuple[State, State]]


class _Comparison(NamedTuple):
    """What differs between both contexts, read under these redactions."""

    seals: bytes = b""
    states: _PartStates = {}  # noqa: RUF012 - never changed


async def prepare_copy(request: CopyContext, actor: Actor, transactions: Transactions[Contexts]) -> _Comparison:
    """Compare both contexts before the transaction, which compares nothing."""

    async def compare(contexts: Contexts) -> _Comparison:
        await _check_may_edit_both(request, contexts)
        context = await contexts.open_unlocked(ContextLine(request.agent_id, None, None))
        source = await _source(request, contexts)
        seals = await seals_at(contexts.lines, source.point)
        states = {
            (part.at, theirs): await part_states_apart(contexts.lines, part.at, theirs, values=True)
            for part, theirs in await _pairs(request, context, source)
        }
        return _Comparison(seals, states)

    return await transactions.read(actor, compare, heavy=True)


@operation(
    "context.copy",
    prepare=prepare_copy,
    tool="copy_context",
    http="POST /v1/agents/{agent_id}/context/copy",
    permission=Permission.WRITE,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audited=True,
    requires=check_may_copy,
    errors=(
        AgentNotFound,
        PermissionDenied,
        VersionNotFound,
        VersionPruned,
        ContextLimitExceeded,
        PinLimitExceeded,
        ObjectBusy,
        ObjectMissing,
        *GATE_ERRORS,
    ),
    session=SessionUse.NONE,
)
async def copy_context(request: CopyContext, contexts: Contexts, *, comparison: _Comparison) -> ContextCopied:
    """Replace an agent's persistent memory by a version of another agent's. Definitions are not copied.

    Needs clearance 4 and the right to edit both agents. The replaced version is tagged, so that it can be restored.
    """
    await _check_may_edit_both(request, contexts)
    source = await _source(request, contexts)
    context = await contexts.open(request.agent_id)
    previous = context.root
    parts = await _copied_parts(request, context, source, comparison)
    changes = [change for part in parts for key, change in part.changes.items() if not is_metadata(key)]
    counts = count_changes(changes)
    label = None
    if changes:
        label = await tag_automatically(
            contexts.lines, previous, "before-copy", contexts.actor.participant, context.now
        )
        given = await contexts.gate.admit_note("reason", request.reason)
        reason = given or f"copy {request.from_agent_id} v{source.point.seq}"
        await context.commit(parts, CommitMeta(reason, request.step))
        await _publish(context, previous.seq, request, counts)
    return ContextCopied(
        agent_id=context.owner,
        from_agent_id=request.from_agent_id,
        from_version=source.point.seq,
        previous_version=previous.seq,
        version=context.root.seq,
        written=counts["added"] + counts["updated"],
        removed=counts["removed"],
        snapshot_before=label,
        copied_at=from_micros(context.now),
    )


async def _publish(context: OpenContext, previous: int, request: CopyContext, counts: Mapping[str, int]) -> None:
    data = {
        "context_id": context.root.line_id,
        "previous_version": previous,
        "version": context.root.seq,
        "copied_from": request.from_agent_id,
        **counts,
    }
    await context.service.outbox.publish(context.service.event("context.pushed", context.owner, data))


async def _source(request: CopyContext, contexts: Contexts) -> ContextAt:
    line = ContextLine(request.from_agent_id, None, None)
    return ContextAt(contexts.lines, await contexts.resolve(line, request.version))


async def _check_may_edit_both(request: CopyContext, contexts: Contexts) -> None:
    for agent_id in (request.agent_id, request.from_agent_id):
        await check_may_edit(contexts.actor, await find_agent(agent_id, contexts.access), contexts.access)


async def _copied_parts(
    request: CopyContext, context: OpenContext, source: ContextAt, prepared: _Comparison
) -> list[OpenPart]:
    """Copy every selected part and return the target parts."""
    pairs = await _pairs(request, context, source)
    is_redacted = prepared.seals != await seals_at(context.service.lines, source.point)
    is_outdated = is_redacted or any((part.at, theirs) not in prepared.states for part, theirs in pairs)
    if is_outdated and sum(map(len, chain.from_iterable(prepared.states.values()))) > SMALL_CHANGE:
        raise PreparationOutdated
    for part, theirs in pairs:
        states = None if is_redacted else prepared.states.get((part.at, theirs))
        if states is None:
            states = await part_states_apart(context.service.lines, part.at, theirs, values=True)
        await _copy_part(part, theirs, *states)
    return [part for part, _ in pairs]


async def _pairs(
    request: CopyContext, context: OpenContext, source: ContextAt
) -> list[tuple[OpenPart, PartVersion | None]]:
    """Return every selected part of the target, with its version in the source."""
    theirs = await source.parts()
    ours = {part.name: part for part in await context.parts()}
    names = sorted(name for name in ours.keys() | theirs.keys() if _is_selected(name, request))
    return [(ours.get(name) or await context.part(name), theirs.get(name)) for name in names]


async def _copy_part(part: OpenPart, source: PartVersion | None, ours: State, theirs: State) -> None:
    context = part.context
    if source is not None:
        # Entries beyond retention are not copied, even if an old version still has them.
        since = retention_cutoff(ContextLine.parse(source.line), context.rules, context.now)
        theirs = {key: version for key, version in theirs.items() if not is_overdue(version, since)}
    keys = ours.keys() | theirs.keys()
    await restore_entries(part, {key: theirs.get(key) for key in keys}, {key: ours.get(key) for key in keys})


def _is_selected(part: str, request: CopyContext) -> bool:
    return part != DEFINITION and EntryAddress(part, "").memory_type in request.memory_types
