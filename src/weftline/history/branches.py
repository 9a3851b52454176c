"""Branches: create, list, switch and delete. A branch shares its ancestry, so creating one copies nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.history.line_kinds import forbid_own_rules, kind_of, write_errors
from weftline.history.model import (
    MAIN,
    BranchLimit,
    BranchNotFound,
    Line,
    LineNotFound,
    VersionNotFound,
    branch_of,
    line_name,
    no_branch,
    trunk_of,
)
from weftline.history.reviews import ReviewState, close_review
from weftline.history.revisions import (
    HEAD,
    BranchName,
    ContextId,
    VersionName,
    audited_write,
    read_operation,
    write_operation,
)
from weftline.history.service import History, head_point
from weftline.history.store import SESSION_HOLDER
from weftline.history.three_way import common_past
from weftline.kernel.errors import Conflict, InvalidInput, PermissionDenied, SelfModification
from weftline.kernel.events import NewEvent
from weftline.kernel.fields import Name
from weftline.kernel.identity import PRINCIPAL
from weftline.kernel.operation import Request, Response

if TYPE_CHECKING:
    from weftline.history.line_kinds import LockedLine
    from weftline.history.model import Head, Point
    from weftline.kernel.identity import Actor

_REVIEW_PAGE = 200


class BranchExists(Conflict):
    """The context already has a branch of this name."""

    code = "BRANCH_EXISTS"
    hint = "Choose another name, or work on that branch; list all with `history.branches`."
    related = ("context_history",)


class BranchInUse(Conflict):
    """The branch is still needed: by branches that start from it, contexts that merged it, or sessions."""

    code = "BRANCH_IN_USE"
    hint = (
        "Delete the branches in context.branches first; they share its ancestry. force deletes it although sessions "
        "hold a version of it, or contexts in context.merged_by need it as a merge base."
    )
    related = ("context_history",)


class BranchNotMerged(Conflict):
    """The branch has changes that were not merged."""

    code = "BRANCH_NOT_MERGED"
    hint = "Merge it first with `history.merge`, or pass force to discard its changes."
    related = ("context_history",)


class MakeBranch(Request):
    """Context, name of the branch and version to start from."""

    context_id: ContextId
    branch: BranchName
    from_version: VersionName = HEAD


class BranchInfo(Response, kw_only=True, omit_defaults=True):
    """A branch: its current version, and the context and version it started from."""

    branch: str
    context_id: str
    version: int
    hash: str
    from_context_id: str
    from_version: int


class ListBranches(Request):
    """Context whose branches to list."""

    context_id: ContextId


class Branches(Response, kw_only=True, omit_defaults=False):
    """Every branch of a context, and the ``current`` one that your calls use by default."""

    context_id: str
    current: str
    branches: list[BranchInfo]


class SwitchBranch(Request):
    """Branch that your calls should use by default."""

    context_id: ContextId
    branch: Annotated[Name | None, msgspec.Meta(description="The branch; main or omitted: the context itself.")] = None


class Switched(Response, kw_only=True, omit_defaults=False):
    """Branch that your calls use from now on, unless they name another."""

    context_id: str
    branch: str


class DeleteBranch(Request):
    """Branch to delete."""

    context_id: ContextId
    branch: BranchName
    force: Annotated[bool, msgspec.Meta(description="Delete it even with unmerged changes.")] = False


class BranchDeleted(Response, kw_only=True, omit_defaults=False):
    """The branch is deleted. ``version`` and ``hash`` are those of its last commit."""

    deleted: str
    version: int
    hash: str


@write_operation(
    "history.branch",
    forbids=forbid_own_rules,
    action="branch",
    http="POST /v1/history/{context_id}/branches",
    status=201,
    errors=lambda: (
        *write_errors(),
        VersionNotFound,
        BranchExists,
        BranchLimit,
        PermissionDenied,
    ),
)
async def make_branch(request: MakeBranch, history: History) -> BranchInfo:
    """Start a branch from any version of a context, to try something without changing the context itself."""
    return await start_branch(history, request.context_id, request.branch, request.from_version)


async def start_branch(history: History, context_id: str, branch: str, from_version: str | int) -> BranchInfo:
    """Start a branch of a line from one of its versions."""
    if branch in {MAIN, HEAD}:
        raise InvalidInput(f"branch: '{branch}' is reserved; choose another name", field="branch")
    line = await history.to_write(context_id)
    base = await history.resolve(line, from_version)
    name = line_name(trunk_of(context_id), branch)
    # Which entries have a time to live at an older version is found out by the first expiry check.
    is_head = base.seq == line.head.seq
    next_expiry_at = line.head.next_expiry_at if is_head else history.now if kind_of(name).ttl else None
    weight = await _weight(history, line.head, base)
    if not await history.lines.branch(name, base, weight=weight, next_expiry_at=next_expiry_at):
        raise BranchExists(f"The context already has a branch '{branch}'.", resource_id=branch)
    await line.note_branches(1)
    await line.announce("history.branched", branch, {"context_id": name, "version": base.seq})
    return await _branch_info(history, await _found(history, name, branch))


@read_operation(
    "history.branches", action="branches", http="GET /v1/history/{context_id}/branches", errors=(LineNotFound,)
)
async def list_branches(request: ListBranches, history: History) -> Branches:
    """List the branches of a context, including branches of branches."""
    trunk = trunk_of(request.context_id)
    await history.to_read(request.context_id)
    current = await history.checkouts.of(trunk, history.actor.principal_id)
    return Branches(
        context_id=trunk,
        current=current.branch if current else MAIN,
        branches=[await _branch_info(history, line) for line in await history.lines.branches(trunk)],
    )


@write_operation(
    "history.switch",
    action="switch",
    http="POST /v1/history/{context_id}/switch",
    errors=(LineNotFound, BranchNotFound, SelfModification),
)
async def switch_branch(request: SwitchBranch, history: History) -> Switched:
    """Switch to a branch. Affects only your own calls that do not name a branch."""
    kind_of(request.context_id)
    trunk = trunk_of(request.context_id)
    await history.to_read(trunk)
    branch = None if request.branch == MAIN else request.branch
    if branch is not None:
        await _found(history, line_name(trunk, branch), branch)
    name, principal_id = line_name(trunk, branch), history.actor.principal_id
    before = await history.checkouts.of(trunk, principal_id)
    if before is None or not before.gone:
        used = line_name(trunk, before.branch if before else None)
        await history.backends.of(trunk).check_switch(used, name)
    await history.checkouts.switch(trunk, principal_id, branch)
    if branch != (before.branch if before else None):
        await history.outbox.publish(_switched(history.actor, name, branch or MAIN))
    return Switched(context_id=name, branch=branch or MAIN)


def _switched(actor: Actor, context_id: str, branch: str) -> NewEvent:
    """Return the event for the principal that switched: others keep their branches."""
    return NewEvent(
        type="history.switched",
        session_id=None,
        subject=branch,
        actor=actor.participant,
        readable_by=(f"{PRINCIPAL}{actor.principal_id}",),
        data={"context_id": context_id},
    )


@audited_write(
    "history.delete_branch",
    action="delete_branch",
    http="DELETE /v1/history/{context_id}/branches/{branch}",
    destructive=True,
    errors=lambda: (*write_errors(), BranchInUse, BranchNotMerged, PermissionDenied),
)
async def delete_branch(request: DeleteBranch, history: History) -> BranchDeleted:
    """Delete a branch. Merged changes stay where they were merged."""
    kind_of(request.context_id)
    trunk = trunk_of(request.context_id)
    line = await history.to_write(trunk)
    name = line_name(trunk, request.branch)
    if await history.lines.lock(name) is None:
        raise no_branch(request.branch)
    found = await _found(history, name, request.branch)
    children = await history.lines.children(name)
    if children:
        raise BranchInUse(f"Other branches start from '{request.branch}'.", branches=[*children])
    await history.backends.of(trunk).check_switch(name, trunk)
    if not request.force:
        await _check_unused(history, found, request.branch)
    await _abandon_reviews(history, line, name)
    last = head_point(found.head)
    shown_hash = await history.shown_hash(last)
    await history.lines.erase(name)
    # Checkouts stay: the next call of a principal on this branch fails instead of writing to the main line.
    await line.note_branches(-1)
    await line.announce("history.branch_deleted", request.branch, {"context_id": name, "version": last.seq})
    return BranchDeleted(deleted=request.branch, version=last.seq, hash=shown_hash)


async def _check_unused(history: History, branch: Line, name: str) -> None:
    """Refuse to delete a branch with unmerged changes, pins of sessions, or that serves as a merge base."""
    if not await _is_merged(history, branch):
        raise BranchNotMerged(f"The branch '{name}' has unmerged changes.")
    holders = {pin.holder for pin in await history.lines.pinned(branch.head.line_id)}
    sessions = [holder for holder in holders if holder.startswith(SESSION_HOLDER)]
    if sessions:
        raise BranchInUse(f"Sessions hold a version of '{name}'.", sessions=len(sessions))
    merged_by = await _merged_by(history, branch)
    if len(merged_by) > 1:
        raise BranchInUse(f"Several contexts merged '{name}', which is their merge base.", merged_by=merged_by)


async def _merged_by(history: History, branch: Line) -> list[str]:
    """Return the lines that merged a branch themselves."""
    trunk, name = branch.trunk or "", branch.head.line_id
    lines = [*filter(None, [await history.lines.find(trunk)]), *await history.lines.branches(trunk)]
    found = []
    for line in lines:
        points = await history.lines.merged_points(line.head.line_id, line.base_seq, line.head.seq)
        found += [line.head.line_id for merged, _ in points if merged == name]
    return found


async def _abandon_reviews(history: History, line: LockedLine, name: str) -> None:
    """Close the open reviews of a branch that is being deleted."""
    before = None
    while page := await history.reviews.newest(before, _REVIEW_PAGE, None, ReviewState.OPEN):
        for review in page:
            if _is_of_branch(review.line_id, name) or _is_of_branch(review.source_line, name):
                await close_review(history, line, review, ReviewState.ABANDONED)
        before = page[-1].review_id


def _is_of_branch(line_id: str, branch: str) -> bool:
    """Tell whether a line is this branch, or a part of it if it is composite."""
    if branch_of(line_id) != branch_of(branch):
        return False
    whole = trunk_of(branch)
    return trunk_of(line_id) == whole or (kind_of(branch).composite and trunk_of(line_id).startswith(f"{whole}:"))


async def _found(history: History, name: str, branch: str) -> Line:
    found = await history.lines.find(name)
    if found is None:
        raise no_branch(branch)
    return found


async def _weight(history: History, head: Head, base: Point) -> int:
    """Return the weight of a line at a version; computed if the commit did not store it."""
    if base.seq == head.seq:
        return head.weight
    noted = await history.lines.weight_at(base.line_id, base.seq)
    if noted is not None:
        return noted
    state = await history.lines.state_at(base.line_id, base.seq, values=False)
    return sum(version.change.meta.tokens for version in state)


async def _is_merged(history: History, branch: Line) -> bool:
    """Tell whether the line that a branch started from, or the trunk, contains all of it."""
    ours = branch.head
    if ours.seq == branch.base_seq:
        return True
    for line_id in dict.fromkeys([branch.base_line, branch.trunk]):
        other = await history.lines.find(line_id) if line_id else None
        if other is None:
            continue
        shared = await common_past(history.lines, head_point(other.head), head_point(ours))
        if shared is not None and (shared.seq, shared.hash) == (ours.seq, ours.hash):
            return True
    return False


async def _branch_info(history: History, line: Line) -> BranchInfo:
    return BranchInfo(
        branch=line.branch or MAIN,
        context_id=line.head.line_id,
        version=line.head.seq,
        hash=await history.shown_hash(head_point(line.head)),
        from_context_id=line.base_line or "",
        from_version=line.base_seq,
    )
