"""Branches of any line: another way on from any moment, at no cost, until it is merged or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from weft.capabilities.agent_context.model import HELD_IN_SESSION
from weft.capabilities.history.line_ids import (
    TOOL,
    WRITE_ERRORS,
    BranchExists,
    BranchInUse,
    BranchName,
    BranchNotMerged,
    ContextId,
    ReviewState,
    sort_of,
)
from weft.capabilities.history.merge import close_review
from weft.capabilities.history.model import (
    MAIN,
    BranchLimit,
    BranchNotFound,
    Line,
    LineNotFound,
    Point,
    VersionNotFound,
    branch_of,
    line_name,
    no_branch,
    trunk_of,
)
from weft.capabilities.history.revisions import HEAD, VersionName
from weft.capabilities.history.service import History
from weft.capabilities.history.three_way import common_past
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.fields import Name
from weft.kernel.identity import Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from weft.capabilities.history.line_backend import LockedLine
    from weft.capabilities.history.model import Head

_REVIEWS_AT_ONCE = 200
# Between a whole context and the name of a part, in the name of the part's line.
_PART_OF = ":"


class MakeBranch(Request):
    """From which moment, and what to call it."""

    context_id: ContextId
    branch: BranchName
    from_version: VersionName = HEAD


class BranchInfo(Response, kw_only=True, omit_defaults=True):
    """A branch, where it stands and where it came from."""

    branch: str
    context_id: str
    version: int
    hash: str
    from_context_id: str
    from_version: int


class ListBranches(Request):
    """Whose branches."""

    context_id: ContextId


class Branches(Response, kw_only=True, omit_defaults=False):
    """Every branch of a line, and the one that your calls mean unless they say otherwise."""

    context_id: str
    current: str
    branches: list[BranchInfo]


class SwitchBranch(Request):
    """Which branch your calls should mean."""

    context_id: ContextId
    branch: Annotated[Name | None, msgspec.Meta(description="The branch; main or nothing for the line itself.")] = None


class Switched(Response, kw_only=True, omit_defaults=False):
    """From now on your calls mean this branch, unless they name another."""

    context_id: str
    branch: str


class DeleteBranch(Request):
    """Which branch to remove for good."""

    context_id: ContextId
    branch: BranchName
    force: Annotated[bool, msgspec.Meta(description="Even if what it says was not merged.")] = False


class BranchDeleted(Response, kw_only=True, omit_defaults=False):
    """The branch is gone. ``version`` and ``hash`` are where it stood."""

    deleted: str
    version: int
    hash: str


@operation(
    "history.branch",
    tool=TOOL,
    action="branch",
    http="POST /v1/history/{context_id}/branches",
    status=201,
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    errors=(*WRITE_ERRORS, VersionNotFound, BranchExists, BranchLimit, PermissionDenied),
)
async def make_branch(request: MakeBranch, timelines: History) -> BranchInfo:
    """Start a branch from any version of a line, to try something without touching the line itself."""
    if request.branch in {MAIN, HEAD}:
        raise InvalidInput(f"branch: '{request.branch}' has a meaning already; choose another name", field="branch")
    line = await timelines.to_write(request.context_id)
    base = await timelines.moment(line, request.from_version)
    name = line_name(trunk_of(request.context_id), request.branch)
    # Only a board has keys that expire, and which of them lie before this moment is known when it is looked.
    next_expiry_at = timelines.now if sort_of(name) == "board" else None
    weight = await _weight(timelines, line.head, base)
    if not await timelines.lines.branch(name, base, weight=weight, next_expiry_at=next_expiry_at):
        raise BranchExists(f"There is a branch '{request.branch}' already.", resource_id=request.branch)
    await line.note_branches(1)
    await line.announce("history.branched", request.branch, {"context_id": name, "version": base.seq})
    return _branch_info(await _found(timelines, name, request.branch))


@operation(
    "history.branches",
    tool=TOOL,
    action="branches",
    http="GET /v1/history/{context_id}/branches",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(LineNotFound,),
)
async def list_branches(request: ListBranches, timelines: History) -> Branches:
    """List the branches of a line, and the branches of those."""
    trunk = trunk_of(request.context_id)
    await timelines.to_read(request.context_id)
    current = await timelines.switches.of(trunk, timelines.actor.principal_id)
    return Branches(
        context_id=trunk,
        current=current.branch if current else MAIN,
        branches=[_branch_info(line) for line in await timelines.lines.branches(trunk)],
    )


@operation(
    "history.switch",
    tool=TOOL,
    action="switch",
    http="POST /v1/history/{context_id}/switch",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    errors=(LineNotFound, BranchNotFound),
)
async def switch_branch(request: SwitchBranch, timelines: History) -> Switched:
    """Work on another branch from now on. Only your own calls are meant, and those that name a branch are not."""
    sort_of(request.context_id)
    trunk = trunk_of(request.context_id)
    await timelines.to_read(trunk)
    branch = None if request.branch == MAIN else request.branch
    if branch is not None:
        await _found(timelines, line_name(trunk, branch), branch)
    await timelines.switches.switch(trunk, timelines.actor.principal_id, branch)
    return Switched(context_id=line_name(trunk, branch), branch=branch or MAIN)


@operation(
    "history.delete_branch",
    tool=TOOL,
    action="delete_branch",
    http="DELETE /v1/history/{context_id}/branches/{branch}",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(*WRITE_ERRORS, BranchInUse, BranchNotMerged, PermissionDenied),
)
async def delete_branch(request: DeleteBranch, timelines: History) -> BranchDeleted:
    """Remove a branch for good. What was merged stays where it was merged to."""
    sort_of(request.context_id)
    trunk = trunk_of(request.context_id)
    line = await timelines.to_write(trunk)
    name = line_name(trunk, request.branch)
    if await timelines.lines.lock(name) is None:
        raise no_branch(request.branch)
    found = await _found(timelines, name, request.branch)
    children = await timelines.lines.children(name)
    if children:
        raise BranchInUse(f"Branches go on from '{request.branch}'.", branches=[*children])
    if not request.force:
        await _check_unneeded(timelines, found, request.branch)
    await _abandon_reviews(timelines, line, name)
    await timelines.lines.erase(name)
    # Whoever had switched to it is told so by their next call: to go on with the line itself is theirs to decide.
    await line.note_branches(-1)
    head = found.head
    await line.announce("history.branch_deleted", request.branch, {"context_id": name, "version": head.seq})
    return BranchDeleted(deleted=request.branch, version=head.seq, hash=head.hash.hex())


async def _check_unneeded(timelines: History, branch: Line, name: str) -> None:
    """Refuse to remove what only the branch says, and what others could no longer be told without it."""
    if not await _is_merged(timelines, branch):
        raise BranchNotMerged(f"The branch '{name}' says something that was not merged.")
    holders = {pin.holder for pin in await timelines.lines.pinned(branch.head.line_id)}
    sessions = [holder for holder in holders if holder.startswith(HELD_IN_SESSION)]
    if sessions:
        raise BranchInUse(f"Sessions hold a version of '{name}'.", sessions=len(sessions))
    merged_by = await _merged_by(timelines, branch)
    if len(merged_by) > 1:
        raise BranchInUse(f"What lines that merged '{name}' have in common is told by it.", merged_by=merged_by)


async def _merged_by(timelines: History, branch: Line) -> list[str]:
    """Return the lines that have merged a branch themselves."""
    trunk, name = branch.trunk or "", branch.head.line_id
    lines = [*filter(None, [await timelines.lines.find(trunk)]), *await timelines.lines.branches(trunk)]
    found = []
    for line in lines:
        moments = await timelines.lines.merged_moments(line.head.line_id, line.base_seq, line.head.seq)
        found += [line.head.line_id for merged, _ in moments if merged == name]
    return found


async def _abandon_reviews(timelines: History, line: LockedLine, name: str) -> None:
    """Close what was to be decided about a branch that will be gone, and let go of what was kept for it."""
    before = None
    while page := await timelines.reviews.newest(before, _REVIEWS_AT_ONCE, None, ReviewState.OPEN):
        for review in page:
            if _is_of_branch(review.line_id, name) or _is_of_branch(review.source_line, name):
                await close_review(timelines, line, review, ReviewState.ABANDONED)
        before = page[-1].review_id


def _is_of_branch(line_id: str, branch: str) -> bool:
    """Tell whether a line is a branch, or a part of a context that goes with it."""
    if branch_of(line_id) != branch_of(branch):
        return False
    whole = trunk_of(branch)
    return trunk_of(line_id) == whole or (
        sort_of(branch) == "context" and trunk_of(line_id).startswith(f"{whole}{_PART_OF}")
    )


async def _found(timelines: History, name: str, branch: str) -> Line:
    found = await timelines.lines.find(name)
    if found is None:
        raise no_branch(branch)
    return found


async def _weight(timelines: History, head: Head, base: Point) -> int:
    """Return what the line weighed at a moment; commits of long ago did not note it."""
    if base.seq == head.seq:
        return head.weight
    noted = await timelines.lines.weight_at(base.line_id, base.seq)
    if noted is not None:
        return noted
    state = await timelines.lines.state_at(base.line_id, base.seq, values=False)
    return sum(version.change.meta.tokens for version in state)


async def _is_merged(timelines: History, branch: Line) -> bool:
    """Tell whether the line a branch came from, or the trunk, knows all that the branch says."""
    ours = branch.head
    if ours.seq == branch.base_seq:
        return True
    for line_id in dict.fromkeys([branch.base_line, branch.trunk]):
        other = await timelines.lines.find(line_id) if line_id else None
        if other is None:
            continue
        shared = await common_past(timelines.lines, _point(other.head), _point(ours))
        if shared is not None and (shared.seq, shared.hash) == (ours.seq, ours.hash):
            return True
    return False


def _point(head: Head) -> Point:
    return Point(head.line_id, head.seq, head.hash)


def _branch_info(line: Line) -> BranchInfo:
    return BranchInfo(
        branch=line.branch or MAIN,
        context_id=line.head.line_id,
        version=line.head.seq,
        hash=line.head.hash.hex(),
        from_context_id=line.base_line or "",
        from_version=line.base_seq,
    )
