"""Reviews of merges: what two sides disagree about, put before a human who decides."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from weft.capabilities.agent_context.model import metadata_key
from weft.capabilities.board.model import ValueTooLarge
from weft.capabilities.history.composite_lines import entry_at
from weft.capabilities.history.line_backend import CommitMeta
from weft.capabilities.history.line_ids import (
    ROOM_ERRORS,
    TOOL,
    WRITE_ERRORS,
    ContextId,
    HistoryKey,
    Review,
    ReviewClosed,
    ReviewNotFound,
    ReviewState,
    sort_of,
)
from weft.capabilities.history.merge import MergePlan, apply_merge, close_review, plan_merge, refresh_review
from weft.capabilities.history.merge_operations import ConflictInfo, known_keys, visible_conflicts
from weft.capabilities.history.model import (
    Change,
    ChangeKind,
    ChangeMeta,
    LineNotFound,
    Version,
    VersionConflict,
    VersionPruned,
    blob_hash,
    trunk_of,
)
from weft.capabilities.history.service import History
from weft.capabilities.history.three_way import MergeConflict
from weft.capabilities.history.values import value_kept
from weft.kernel.clock import from_micros, optional_datetime
from weft.kernel.errors import Forbidden, InvalidInput, NotFound, PermissionDenied
from weft.kernel.fields import Name, Reason
from weft.kernel.identity import Actor, Kind, Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation
from weft.kernel.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.history.line_backend import LockedLine, OpenLine
    from weft.capabilities.history.model import Point

ReviewId = Annotated[Name, msgspec.Meta(description="The review's id.")]


class ListReviews(Request):
    """Which reviews."""

    context_id: Annotated[ContextId | None, msgspec.Meta(description="Of merges into this line only.")] = None
    state: Annotated[
        Literal["open", "resolved", "abandoned", "superseded"] | None, msgspec.Meta(description="Only these.")
    ] = None
    cursor: Annotated[Name | None, msgspec.Meta(description="next_cursor of the page before.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="At most this many.")] = 20


class ReviewInfo(Response, kw_only=True, omit_defaults=True):
    """A merge that a human must decide about, or has decided; superseded if the sides came together without that."""

    review_id: str
    context_id: str
    from_context_id: str
    state: ReviewState
    opened_by: str
    opened_at: datetime
    reason: str = ""
    conflicts: tuple[ConflictInfo, ...] = ()
    hidden_conflicts: int = 0
    decided_by: str | None = None
    decided_at: datetime | None = None


class Reviews(Response):
    """Reviews, newest first. There are more as long as there is a next_cursor."""

    reviews: list[ReviewInfo]
    next_cursor: str | None = None


class ReadReview(Request):
    """Which review."""

    review_id: ReviewId


class ConflictResolution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a key shall say: what it says here, there or before, or something else."""

    take: Annotated[
        Literal["ours", "theirs", "base", "value"], msgspec.Meta(description="Whose version, or a value of your own.")
    ]
    value: Annotated[Any, msgspec.Meta(description="What it shall say, with take = value.")] = None


class ResolveReview(Request):
    """What each key in conflict shall say."""

    off_record = ("resolutions",)

    review_id: ReviewId
    resolutions: Annotated[
        dict[HistoryKey, ConflictResolution],
        msgspec.Meta(max_length=1_000, description="A decision for every key in conflict."),
    ]
    reason: Reason = None


class ReviewResolved(Response, kw_only=True, omit_defaults=False):
    """The lines are merged as decided."""

    on_record = ("context_id", "version", "taken")

    review_id: str
    context_id: str
    version: int
    taken: list[str]


class AbandonReview(Request):
    """Which review to give up."""

    review_id: ReviewId


class ReviewAbandoned(Response, kw_only=True, omit_defaults=False):
    """The review is closed; nothing was merged."""

    review_id: str
    state: ReviewState


@operation(
    "history.reviews",
    tool=TOOL,
    action="reviews",
    http="GET /v1/history-reviews",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(LineNotFound,),
    heavy=True,
)
async def list_reviews(request: ListReviews, timelines: History) -> Reviews:
    """List merges that wait for a human, or were decided by one, with what each side says."""
    if request.context_id is not None:
        await timelines.to_read(trunk_of(request.context_id))
    state = None if request.state is None else ReviewState(request.state)
    page = await timelines.reviews.newest(request.cursor, request.limit + 1, request.context_id, state)
    shown = [info for review in page[: request.limit] if (info := await _review_info(timelines, review)) is not None]
    more = len(page) > request.limit
    return Reviews(reviews=shown, next_cursor=page[request.limit - 1].review_id if more else None)


@operation(
    "history.review",
    tool=TOOL,
    action="review",
    http="GET /v1/history-reviews/{review_id}",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(ReviewNotFound,),
)
async def read_review(request: ReadReview, timelines: History) -> ReviewInfo:
    """Look at one merge that waits for a human, or was decided by one, with what each side says."""
    review = await timelines.reviews.find(request.review_id)
    info = None if review is None else await _review_info(timelines, review)
    if info is None:
        raise _no_review(request.review_id)
    return info


async def bring_up_to_date(request: ResolveReview, actor: Actor, errands: Transactions[History]) -> None:
    """Look at both lines again before a decision is acted on: what a human decided about may have changed."""
    refused = await errands.write(actor, lambda timelines: _refreshed(timelines, request.review_id))
    if refused is not None:
        raise refused


@operation(
    "history.resolve",
    tool=TOOL,
    action="resolve",
    http="POST /v1/history-reviews/{review_id}/resolve",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    off_record=("resolutions",),
    prepare=bring_up_to_date,
    errors=(
        ReviewNotFound,
        ReviewClosed,
        *WRITE_ERRORS,
        VersionConflict,
        VersionPruned,
        PermissionDenied,
        ValueTooLarge,
        *ROOM_ERRORS,
    ),
)
async def resolve_review(request: ResolveReview, timelines: History) -> ReviewResolved:
    """Decide a merge, key by key. Only a human can, and only about what both sides say now."""
    _check_human(timelines.actor)
    review, line, source = await _opened(timelines, request.review_id)
    meeting = await plan_merge(timelines, line, source)
    visible = await visible_conflicts(meeting.outcome.conflicts, line, source)
    if meeting.conflicts != review.conflicts:
        raise _went_on(review, visible, len(meeting.conflicts))
    if len(visible) < len(meeting.conflicts):
        raise PermissionDenied(
            "The merge is also about keys that you may not read.", hint="Leave it to someone who may."
        )
    taken = {**meeting.outcome.taken, **await _decided(timelines, meeting, request.resolutions)}
    known = sorted({*await known_keys(meeting, line, source), *request.resolutions})
    after = await apply_merge(timelines, line, meeting, taken, CommitMeta(request.reason or review.reason))
    await close_review(timelines, line, review, ReviewState.RESOLVED)
    return ReviewResolved(review_id=review.review_id, context_id=review.line_id, version=after.seq, taken=known)


@operation(
    "history.abandon",
    tool=TOOL,
    action="abandon",
    http="POST /v1/history-reviews/{review_id}/abandon",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(ReviewNotFound, ReviewClosed, *WRITE_ERRORS),
)
async def abandon_review(request: AbandonReview, timelines: History) -> ReviewAbandoned:
    """Give up a merge that waits for a decision. Both lines stay as they are."""
    review = await _open_review(timelines, request.review_id)
    line = await timelines.to_write(review.line_id)
    # Someone else may have decided while we waited for the lock.
    still_open = await _open_review(timelines, request.review_id)
    closed = await close_review(timelines, line, still_open, ReviewState.ABANDONED)
    return ReviewAbandoned(review_id=closed.review_id, state=closed.state)


async def _refreshed(timelines: History, review_id: str) -> VersionConflict | None:
    """Bring a review up to date; return what to refuse a decision with if the conflicts are no longer the same."""
    _check_human(timelines.actor)
    review, line, source = await _opened(timelines, review_id)
    meeting = await plan_merge(timelines, line, source)
    if meeting.conflicts == review.conflicts:
        return None
    await refresh_review(timelines, review, meeting)
    visible = await visible_conflicts(meeting.outcome.conflicts, line, source)
    return _went_on(review, visible, len(meeting.conflicts))


async def _opened(timelines: History, review_id: str) -> tuple[Review, LockedLine, OpenLine]:
    """Return an open review with both of its lines, ours behind its lock."""
    review = await _open_review(timelines, review_id)
    line = await timelines.to_write(review.line_id)
    # Someone else may have decided while we waited for the lock.
    return await _open_review(timelines, review_id), line, await timelines.to_read(review.source_line)


async def _open_review(timelines: History, review_id: str) -> Review:
    review = await timelines.reviews.find(review_id)
    if review is None or not await _may_read(timelines, review):
        raise _no_review(review_id)
    if review.state is not ReviewState.OPEN:
        raise ReviewClosed(f"The review '{review_id}' is {review.state}.", state=review.state)
    return review


def _no_review(review_id: str) -> ReviewNotFound:
    return ReviewNotFound(f"There is no review '{review_id}'.", resource_type="review", resource_id=review_id)


async def _may_read(timelines: History, review: Review) -> bool:
    # A branch is for those who may see its line, and what was decided about it is known when it is gone.
    return await _readable(timelines, trunk_of(review.line_id)) is not None


async def _readable(timelines: History, line_id: str) -> OpenLine | None:
    try:
        return await timelines.to_read(line_id)
    except (NotFound, Forbidden):
        return None


def _check_human(actor: Actor) -> None:
    if actor.kind is not Kind.HUMAN:
        raise PermissionDenied(
            "Only a human can decide what two agents disagree about.",
            hint="Leave the review to a human; see it with the action reviews, and go on with something else.",
            related=(TOOL,),
        )


def _went_on(review: Review, visible: Sequence[ConflictInfo], conflicts: int) -> VersionConflict:
    return VersionConflict(
        "The sides went on since this was put up for review, and are in conflict about something else now.",
        hint="Look at the review again with the action reviews, and decide about what it says now.",
        related=(TOOL,),
        review_id=review.review_id,
        conflicts=[conflict.key for conflict in visible],
        hidden_conflicts=conflicts - len(visible),
    )


async def _decided(
    timelines: History, meeting: MergePlan, resolutions: Mapping[str, ConflictResolution]
) -> dict[str, Version | None]:
    """Return what each key in conflict shall say; every one must be decided, and nothing else."""
    conflicts = {conflict.key: conflict for conflict in meeting.outcome.conflicts}
    stray, undecided = resolutions.keys() - conflicts.keys(), conflicts.keys() - resolutions.keys()
    for problem, keys in (("not in conflict", stray), ("undecided", undecided)):
        if keys:
            raise InvalidInput(f"resolutions: {problem}: {', '.join(sorted(keys)[:20])}", field="resolutions")
    line_id = meeting.ours.line_id
    decided = {key: _chosen(line_id, conflicts[key], resolution) for key, resolution in resolutions.items()}
    if sort_of(line_id) != "board":
        for key, resolution in resolutions.items():
            decided[metadata_key(key)] = await _said_about(timelines, meeting, conflicts[key], resolution)
    return decided


async def _said_about(
    timelines: History, meeting: MergePlan, conflict: MergeConflict, resolution: ConflictResolution
) -> Version | None:
    """Return what the chosen side said about the value; a value of one's own is spoken of as what it is put for."""
    standing = next((side for side in ("ours", "theirs", "base") if getattr(conflict, side) is not None), "ours")
    at: Point = getattr(meeting, standing if resolution.take == "value" else resolution.take)
    return await entry_at(timelines.lines, at.line_id, metadata_key(conflict.key), at.seq)


def _chosen(line_id: str, conflict: MergeConflict, resolution: ConflictResolution) -> Version | None:
    if resolution.take != "value":
        side: Version | None = getattr(conflict, resolution.take)
        return side
    text = _text(line_id, resolution.value)
    like = conflict.ours or conflict.theirs or conflict.base
    # As new to the line as a write: how large it is, and whether it may be there, is for the line's keeper to judge.
    old = like.change.meta if like else ChangeMeta()
    meta = ChangeMeta(readable_by=old.readable_by, writable_by=old.writable_by, metadata_hash=old.metadata_hash)
    return Version(Change(conflict.key, 1, 1, ChangeKind.WRITE, blob_hash(text), meta), 0, "", 0, text)


def _text(line_id: str, value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return a value as its line keeps it: a board as it is, all others as JSON."""
    text = value_kept(line_id, value, "resolutions")
    if text is None:
        raise InvalidInput("resolutions: a board holds text; give structured data as JSON text", field="resolutions")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("resolutions: a value is not valid text", field="resolutions") from error
    return text


async def _review_info(timelines: History, review: Review) -> ReviewInfo | None:
    """Return a review as the caller may see it; None if it is about a line the caller may not see."""
    if not await _may_read(timelines, review):
        return None
    conflicts = await _conflicts_of(timelines, review)
    return ReviewInfo(
        review_id=review.review_id,
        context_id=review.line_id,
        from_context_id=review.source_line,
        state=review.state,
        opened_by=review.opened_by,
        opened_at=from_micros(review.opened_at),
        reason=review.reason,
        conflicts=conflicts,
        hidden_conflicts=len(review.conflicts) - len(conflicts) if review.state is ReviewState.OPEN else 0,
        decided_by=review.decided_by,
        decided_at=optional_datetime(review.decided_at),
    )


async def _conflicts_of(timelines: History, review: Review) -> tuple[ConflictInfo, ...]:
    """Read what each side said when the review was last looked at; what was decided is in the log."""
    if review.state is not ReviewState.OPEN:
        return ()
    line, source = [await _readable(timelines, line_id) for line_id in (review.line_id, review.source_line)]
    if line is None or source is None:
        return ()
    moments = (
        (review.base_line, review.base_seq),
        (review.line_id, review.ours_seq),
        (review.source_line, review.theirs_seq),
    )
    conflicts = [
        MergeConflict(
            sides.key, *[await entry_at(timelines.lines, line_id, sides.key, seq) for line_id, seq in moments]
        )
        for sides in review.conflicts
    ]
    return await visible_conflicts(conflicts, line, source)
