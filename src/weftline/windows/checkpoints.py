"""Checkpoints: one label on the windows of several agents; to list, restore and branch them together.

A checkpoint is a snapshot of history under the same label on each window. Restoring one is a rollback: a new version.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from weftline.access.model import AgentId, AgentNotFound
from weftline.history.branches import BranchExists, start_branch
from weftline.history.commits import add_snapshot, check_label, tag_automatically
from weftline.history.line_kinds import CommitMeta
from weftline.history.lines import LineStore
from weftline.history.model import (
    SYSTEM,
    SnapshotExists,
    SnapshotNotFound,
    VersionPruned,
    line_name,
    no_snapshot,
    trunk_of,
)
from weftline.history.revisions import BranchName
from weftline.history.rollback import RestorePlan, noted, plan_restore, planned_now, restore
from weftline.history.service import History
from weftline.history.snapshot_quota import SnapshotQuota
from weftline.history.sql import CheckoutStore
from weftline.kernel.clock import Clock, from_micros, to_micros
from weftline.kernel.errors import (
    InvalidInput,
    PermissionDenied,
    QuotaExceeded,
    SelfModification,
    Unavailable,
    WeftlineError,
)
from weftline.kernel.fields import Name, Reason, Step
from weftline.kernel.identity import Actor, PrincipalKind
from weftline.kernel.operation import Request, Response
from weftline.kernel.ports import Transactions
from weftline.safety.trust.gate import GATE_ERRORS
from weftline.sessions.model import NotMember, SessionId, SessionNotFound, find_session, lock_active_session
from weftline.sessions.sql import SessionStore
from weftline.windows.line_events import redacted_keys
from weftline.windows.model import copy_of, is_content
from weftline.windows.operations import WRITE_ERRORS, read_operation, write_operation
from weftline.windows.service import Windows, no_window
from weftline.windows.sql import WindowStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weftline.history.three_way import State
    from weftline.kernel.events import NewEvent
    from weftline.sessions.model import Session
    from weftline.windows.model import Window, WindowSettings
    from weftline.windows.sql import IndexedCheckpoint


_PAGE = 200

Label = Annotated[Name, msgspec.Meta(description="Label of the checkpoint, such as before_migration.")]
OneAgent = Annotated[AgentId | None, msgspec.Meta(description="Only this agent's window; all you may open by default.")]


class MakeCheckpoint(Request):
    """The label, and the windows to name."""

    session_id: SessionId
    label: Label
    agent_id: OneAgent = None


class ListCheckpoints(Request):
    """The session whose checkpoints to list."""

    session_id: SessionId
    agent_id: OneAgent = None
    include_automatic: Annotated[bool, msgspec.Meta(description="Include those that Weftline made.")] = True


class RestoreCheckpoint(Request):
    """The checkpoint, and the windows to return to it."""

    session_id: SessionId
    label: Label
    agent_id: Annotated[
        AgentId | None, msgspec.Meta(description="The agent whose window to restore; default: yours.")
    ] = None
    from_agent_id: Annotated[
        AgentId | None,
        msgspec.Meta(description="Restore this agent's checkpoint into the window of agent_id, or into yours."),
    ] = None
    all_agents: Annotated[
        bool, msgspec.Meta(description="Restore all windows that have the checkpoint and that you may open.")
    ] = False
    reason: Reason = None
    step: Step = None

    @property
    def effects(self) -> tuple[str, ...]:
        """Return the names of what adds events: a restore brings some back."""
        return ("context.ingest", "ingest_event")


class BranchCheckpoint(Request):
    """The checkpoint to continue from, and the name of the branch."""

    session_id: SessionId
    label: Label
    branch: BranchName
    agent_id: OneAgent = None
    switch: Annotated[bool, msgspec.Meta(description="Let the agents work on the branch from now on.")] = False


class WindowVersion(Response, omit_defaults=False):
    """A version of a window."""

    agent_id: str
    context_id: str
    version: int


class Checkpoint(Response, omit_defaults=False):
    """A label and the windows that have it."""

    label: str
    created_by: str
    created_at: datetime
    automatic: bool
    windows: list[WindowVersion]


class Checkpoints(Response, omit_defaults=False):
    """Checkpoints, newest first."""

    session_id: str
    checkpoints: list[Checkpoint]


class RestoredWindow(Response, omit_defaults=False):
    """A window that was restored; ``snapshot_before`` names its state before, null if nothing changed."""

    agent_id: str
    version: int
    restored: int
    removed: int
    snapshot_before: str | None


class CheckpointRestored(Response, omit_defaults=False):
    """The windows that have the content of the checkpoint again."""

    session_id: str
    label: str
    windows: list[RestoredWindow]


class CheckpointBranched(Response, omit_defaults=False):
    """The branches that start from the checkpoint."""

    session_id: str
    label: str
    branch: str
    windows: list[WindowVersion]


@write_operation(
    "window.checkpoint",
    action="checkpoint",
    http="POST /v1/sessions/{session_id}/checkpoints",
    status=201,
    errors=(*WRITE_ERRORS, SnapshotExists, QuotaExceeded),
)
async def make_checkpoint(request: MakeCheckpoint, windows: Windows, quota: SnapshotQuota) -> Checkpoint:
    """Name the current state of all windows that you may open, or of one, to return to it later."""
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    check_label(request.label)
    tagged: list[WindowVersion] = []
    for window in await _windows(windows, request.session_id, request.agent_id):
        head = await windows.lines.lock(window.line_id)
        if head is not None:
            await add_snapshot(windows.lines, head, request.label, windows.actor, windows.now)
            tagged.append(WindowVersion(agent_id=window.agent_id, context_id=window.line_id, version=head.seq))
    await windows.outbox.publish(*(_snapshot_event(windows, session, each, request.label) for each in tagged))
    await quota.check(*(each.context_id for each in tagged))
    return Checkpoint(
        label=request.label,
        created_by=windows.actor.participant,
        created_at=from_micros(windows.now),
        automatic=False,
        windows=tagged,
    )


@read_operation(
    "window.checkpoints",
    action="checkpoints",
    http="GET /v1/sessions/{session_id}/checkpoints",
    errors=(SessionNotFound, AgentNotFound, PermissionDenied, NotMember),
)
async def list_checkpoints(request: ListCheckpoints, windows: Windows) -> Checkpoints:
    """List the checkpoints of all windows that you may open, by label."""
    session = await find_session(request.session_id, windows.actor, windows.sessions)
    if request.agent_id is not None:
        await windows.agent(session, request.agent_id)
    found: dict[str, list[IndexedCheckpoint]] = {}
    known: dict[str, bool] = {}
    for each in await windows.store.checkpoints(request.session_id):
        if each.agent_id not in known:
            agent = await windows.access.principal(each.agent_id)
            known[each.agent_id] = agent is not None and await windows.may_open(agent)
        wanted = request.agent_id in {None, each.agent_id} and (request.include_automatic or not each.automatic)
        if wanted and known[each.agent_id]:
            found.setdefault(each.label, []).append(each)
    return Checkpoints(
        session_id=request.session_id, checkpoints=[_checkpoint(label, each) for label, each in found.items()]
    )


class _WindowHistory(msgspec.Struct, frozen=True):
    """What planning a restore needs."""

    windows: Windows
    history: History


async def prepare_restore(
    request: RestoreCheckpoint, actor: Actor, transactions: Transactions[_WindowHistory]
) -> dict[str, RestorePlan]:
    """Plan the restore before the transaction, by line; the transaction also refuses what cannot be planned."""

    async def plan(services: _WindowHistory) -> dict[str, RestorePlan]:
        windows, history = services.windows, services.history
        plans: dict[str, RestorePlan] = {}
        for window, source in await _to_restore(windows, request, create=False):
            copied = await _copied(windows, window, source)
            line, target = await history.to_read(window.line_id), await history.snapshot(source, request.label)
            plans[window.line_id] = await plan_restore(history, line, target, copied=copied)
        return plans

    try:
        return await transactions.read(actor, plan, heavy=True)
    except Unavailable:
        raise
    except WeftlineError:
        return {}


@write_operation(
    "window.restore",
    prepare=prepare_restore,
    action="restore",
    http="POST /v1/sessions/{session_id}/checkpoints/{label}/restore",
    errors=(*WRITE_ERRORS, SnapshotNotFound, VersionPruned, QuotaExceeded, SelfModification, *GATE_ERRORS),
)
async def restore_checkpoint(
    request: RestoreCheckpoint, windows: Windows, history: History, *, plans: dict[str, RestorePlan]
) -> CheckpointRestored:
    """Return a window to a checkpoint: yours, or another agent's, or all that have it and that you may open.

    History is not rewritten: the restored state is a new version. With from_agent_id, another agent's checkpoint is
    restored into a window; its redacted events are left out.
    """
    done = [
        await _restore(windows, history, window, source, request, plans.get(window.line_id))
        for window, source in await _to_restore(windows, request, create=True)
    ]
    return CheckpointRestored(session_id=request.session_id, label=request.label, windows=done)


@write_operation(
    "window.branch",
    action="branch",
    http="POST /v1/sessions/{session_id}/checkpoints/{label}/branch",
    status=201,
    errors=(*WRITE_ERRORS, SnapshotNotFound, BranchExists, SelfModification),
)
async def branch_checkpoint(request: BranchCheckpoint, windows: Windows, history: History) -> CheckpointBranched:
    """Start a branch from a checkpoint in all windows that have it and that you may open, or in one."""
    made: list[WindowVersion] = []
    for window in await _labelled(windows, request.session_id, request.label, request.agent_id):
        branch = await start_branch(history, window.line_id, request.branch, request.label)
        if request.switch:
            if window.agent_id == windows.actor.principal_id:
                await windows.check_keeps_instructions(window.line_id, branch.context_id)
            await windows.checkouts.switch(trunk_of(window.line_id), window.agent_id, request.branch)
        made.append(WindowVersion(agent_id=window.agent_id, context_id=branch.context_id, version=branch.version))
    return CheckpointBranched(session_id=request.session_id, label=request.label, branch=request.branch, windows=made)


async def _windows(windows: Windows, session_id: str, agent_id: str | None) -> list[Window]:
    """Return one window, or all that the caller may open."""
    if agent_id is not None:
        return [await windows.open(session_id, agent_id)]
    session = await find_session(session_id, windows.actor, windows.sessions)
    found: list[Window] = []
    after = ""
    while page := await windows.store.of_session(session.session_id, after, _PAGE):
        for settings in page:
            agent = await windows.access.principal(settings.agent_id)
            # A window that is shared is that of its owner.
            if agent is not None and settings.shares_with is None and await windows.may_open(agent):
                found.append(await windows.view(settings, agent))
        after = page[-1].agent_id
    if not found:
        raise no_window(windows.actor.principal_id)
    return found


async def _labelled(windows: Windows, session_id: str, label: str, agent_id: str | None) -> list[Window]:
    """Return the windows that have a checkpoint; SnapshotNotFound if none has."""
    found = await _windows(windows, session_id, agent_id)
    labelled = {each.agent_id for each in await windows.store.checkpoints(session_id) if each.label == label}
    chosen = [window for window in found if window.events_of in labelled]
    if not chosen:
        raise no_snapshot(label)
    return chosen


async def _known(windows: Windows, session_id: str, agent_id: str) -> str:
    """Return the agent whose events a window shows."""
    return (await windows.open(session_id, agent_id)).events_of


async def _to_restore(windows: Windows, request: RestoreCheckpoint, *, create: bool) -> list[tuple[Window, str]]:
    """Return the windows to restore, each with the line that has its checkpoint."""
    session_id, source = request.session_id, request.from_agent_id
    if request.all_agents and (source or request.agent_id) is not None:
        raise InvalidInput("all_agents: leave out agent_id and from_agent_id with it", field="all_agents")
    if source is None:
        agent_id = None if request.all_agents else request.agent_id or _own_agent(windows.actor)
        labelled = await _labelled(windows, session_id, request.label, agent_id)
        return [(window, window.line_id) for window in labelled]
    into = await windows.open(session_id, request.agent_id, create=create)
    origin = await windows.open_own(session_id, await _known(windows, session_id, source))
    return [(into, origin.line_id)]


def _own_agent(actor: Actor) -> str:
    if actor.kind is not PrincipalKind.AGENT:
        raise no_window(actor.principal_id, "Name an agent with agent_id, or pass all_agents.")
    return actor.principal_id


async def _copied(windows: Windows, window: Window, source: str) -> Callable[[State], State] | None:
    """Return what makes the state of another window one of this: without redacted events, the others with origins."""
    if source == window.line_id:
        return None
    hidden = await redacted_keys(windows.records, window.session_id, source)

    def copied(state: State) -> State:
        kept = {key: version for key, version in state.items() if key not in hidden}
        return {
            key: version if is_content(key) else copy_of(version, source, into=window.line_id)
            for key, version in kept.items()
        }

    return copied


async def _restore(
    windows: Windows,
    history: History,
    window: Window,
    source: str,
    request: RestoreCheckpoint,
    prepared: RestorePlan | None,
) -> RestoredWindow:
    line = await history.to_write(window.line_id)
    target = await history.snapshot(source, request.label)
    what = f"restore {request.label}" if source == window.line_id else f"restore {request.label} of {source}"
    reason = await history.gate.admit_note("reason", request.reason)
    copied = await _copied(windows, window, source)
    meta = CommitMeta(noted(what, reason), request.step, copied=copied is not None)
    plan = await planned_now(history, line, target, prepared, copied=copied)
    done = await restore(history, line, plan, meta, occasion="before-restore")
    return RestoredWindow(
        agent_id=window.agent_id,
        version=done.head.seq,
        restored=len(done.written),
        removed=len(done.removed),
        snapshot_before=done.snapshot_before,
    )


def _snapshot_event(windows: Windows, session: Session, window: WindowVersion, label: str) -> NewEvent:
    data = {"context_id": window.context_id, "version": window.version}
    event = windows.event("history.snapshot", session, window.agent_id, [window.agent_id], data)
    return structs.replace(event, subject=label)


def _checkpoint(label: str, found: Sequence[IndexedCheckpoint]) -> Checkpoint:
    return Checkpoint(
        label=label,
        created_by=found[0].created_by,
        created_at=from_micros(found[0].created_at),
        automatic=found[0].automatic,
        windows=[
            WindowVersion(agent_id=each.agent_id, context_id=each.line_id, version=each.seq)
            for each in sorted(found, key=lambda each: each.line_id)
        ],
    )


# Saves one window: an automatic checkpoint of its current state, if it changed since the last one.

_OCCASION = "autosave"
# Older autosaves of a window are removed; their versions stay in its history.
KEPT_AUTOSAVES = 10


class Autosaves(msgspec.Struct, frozen=True):
    """What an autosave needs."""

    sessions: SessionStore
    store: WindowStore
    lines: LineStore
    checkouts: CheckoutStore
    clock: Clock

    async def save(self, window: WindowSettings) -> None:
        """Tag the line that the window's agent works on, and mark the window as saved."""
        # Lock order, the same as in session deletion: session, line, window.
        if await self.sessions.find_locked(window.session_id) is None:
            return
        checkout = await self.checkouts.of(window.line_id, window.agent_id)
        branch = None if checkout is None or checkout.gone else checkout.branch
        head = await self.lines.lock(line_name(window.line_id, branch))
        if head is not None:
            await tag_automatically(self.lines, head, _OCCASION, SYSTEM.participant, to_micros(self.clock.now()))
            await self._remove_old(head.line_id)
        await self.store.saved(window.session_id, window.agent_id)

    async def _remove_old(self, line_id: str) -> None:
        saved = [
            tag for tag in await self.lines.tags(line_id) if tag.automatic and tag.label.startswith(f"{_OCCASION}-")
        ]
        for tag in sorted(saved, key=lambda tag: tag.seq)[:-KEPT_AUTOSAVES]:
            await self.lines.untag(line_id, tag.label)
