"""Operations on merge reviews: list, read, resolve and close."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET

from weftline.history.composite_lines import entry_at
from weftline.history.line_kinds import (
    CommitMeta,
    EncodedValue,
    calls_implied_by,
    kind_of,
    operations_that_edit,
    size_errors,
    write_errors,
)
from weftline.history.merge_operations import (
    ConflictInfo,
    MergePlan,
    PlannedMerge,
    apply_merge,
    merge_planned_now,
    plan_for_caller,
    visible_conflicts,
)
from weftline.history.model import (
    Change,
    ChangeKind,
    ChangeMeta,
    LineNotFound,
    Version,
    VersionConflict,
    VersionPruned,
    blob_hash,
    metadata_key,
    trunk_of,
)
from weftline.history.reviews import (
    Review,
    ReviewClosed,
    ReviewNotFound,
    ReviewState,
    close_review,
    fingerprint_of,
    refresh_review,
)
from weftline.history.revisions import TOOL, ContextId, HistoryKey, PageCursor, audited_write, read_operation
from weftline.history.service import ExpiryDue, History, planned
from weftline.history.three_way import MergeConflict
from weftline.kernel.clock import from_micros, optional_datetime
from weftline.kernel.errors import Forbidden, InvalidInput, NotFound, PermissionDenied
from weftline.kernel.fields import Name, Reason, Step
from weftline.kernel.identity import Actor
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Audience, Request, Response, SubmittedText
from weftline.kernel.ports import Transactions
from weftline.safety.guardrails.guard import GuardrailGuard
from weftline.safety.trust.gate import GATE_ERRORS, IncomingContent, submitted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from weftline.history.line_kinds import LockedLine, OpenLine
    from weftline.history.model import Point

ReviewId = Annotated[Name, msgspec.Meta(description="Id of the review.")]


class ListReviews(Request):
    """Filters for reviews."""

    context_id: Annotated[ContextId | None, msgspec.Meta(description="Only merges into this context.")] = None
    state: Annotated[
        Literal["open", "resolved", "abandoned", "superseded"] | None, msgspec.Meta(description="Only in this state.")
    ] = None
    cursor: PageCursor = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum number of results.")] = 20


class ReviewInfo(Response, kw_only=True, omit_defaults=True):
    """A merge that waits for a human, or was decided; ``superseded`` if it was merged without a decision.

    ``fingerprint`` is another one after a value in conflict has changed.
    """

    review_id: str
    context_id: str
    from_context_id: str
    state: ReviewState
    opened_by: str
    opened_at: datetime
    reason: str = ""
    conflicts: tuple[ConflictInfo, ...] = ()
    hidden_conflicts: int = 0
    fingerprint: str = ""
    decided_by: str | None = None
    decided_at: datetime | None = None


class Reviews(Response):
    """Reviews, newest first; ``next_cursor`` is set while there are more."""

    reviews: list[ReviewInfo]
    next_cursor: str | None = None


class ReadReview(Request):
    """Review to read."""

    review_id: ReviewId


class ConflictResolution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Decision about one key: one of the three sides, or a new value."""

    take: Annotated[
        Literal["ours", "theirs", "base", "value"], msgspec.Meta(description="Side to take, or value for a new one.")
    ]
    value: Annotated[Any, msgspec.Meta(description="New value, with take = value.")] = UNSET


class ResolveReview(Request):
    """Decisions about the keys in conflict."""

    off_record = ("resolutions",)

    review_id: ReviewId
    resolutions: Annotated[
        dict[HistoryKey, ConflictResolution],
        msgspec.Meta(max_length=1_000, description="One decision for every key in conflict."),
    ]
    fingerprint: Annotated[
        Name | None, msgspec.Meta(description="Decide only if the review still has this fingerprint.")
    ] = None
    reason: Reason = None
    step: Step = None


class ReviewResolved(Response, kw_only=True, omit_defaults=False):
    """The contexts are merged as decided."""

    on_record = ("context_id", "version", "taken")

    review_id: str
    context_id: str
    version: int
    taken: list[str]


class CloseReview(Request):
    """Review to close without a merge."""

    review_id: ReviewId


class ReviewDropped(Response, kw_only=True, omit_defaults=False):
    """The review is closed; nothing was merged."""

    review_id: str
    state: ReviewState


@read_operation("history.reviews", action="reviews", http="GET /v1/history-reviews", errors=(LineNotFound,), heavy=True)
async def list_reviews(request: ListReviews, history: History) -> Reviews:
    """List merges that wait for a human or were decided, with the value on each side.

    A sub-agent names the context of its session.
    """
    if request.context_id is not None:
        await history.to_read(trunk_of(request.context_id))
    state = None if request.state is None else ReviewState(request.state)
    page = await history.reviews.newest(request.cursor, request.limit + 1, request.context_id, state)
    listed = [
        each for each in page[: request.limit] if request.context_id is not None or history.may_list(each.line_id)
    ]
    shown = [info for review in listed if (info := await _review_info(history, review)) is not None]
    more = len(page) > request.limit
    return Reviews(reviews=shown, next_cursor=page[request.limit - 1].review_id if more else None)


@read_operation("history.review", action="review", http="GET /v1/history-reviews/{review_id}", errors=(ReviewNotFound,))
async def read_review(request: ReadReview, history: History) -> ReviewInfo:
    """Read one merge review, with the value on each side."""
    review = await history.reviews.find(request.review_id)
    info = None if review is None else await _review_info(history, review)
    if info is None:
        raise _no_review(request.review_id)
    return info


def _texts(request: ResolveReview) -> list[SubmittedText]:
    """Return the new values, as boards and as other lines would store them."""
    given = [each.value for each in request.resolutions.values() if each.take == "value" and each.value is not UNSET]
    encoded = [encode_json_field("resolutions", value).decode() for value in given]
    return [submitted(text) for text in (*encoded, *(value for value in given if isinstance(value, str)))]


async def prepare_resolution(
    request: ResolveReview, actor: Actor, transactions: Transactions[History], implied: GuardrailGuard
) -> PlannedMerge:
    """Plan the merge before the transaction, and check what it implies.

    An outdated review is refreshed in its own transaction, so that it is updated although the decision is refused.
    """

    async def plan(history: History) -> tuple[Review, PlannedMerge]:
        review = await _open_review(history, request.review_id)
        line, source = await history.to_read(review.line_id), await history.to_read(review.source_line)
        ExpiryDue.check(line.head, history.now)
        return review, await plan_for_caller(history, line, source)

    review, prepared = await planned(
        actor, transactions, plan, lambda history: _locked_review(history, request.review_id)
    )
    if prepared.plan.conflicts != review.conflicts:
        outdated = await transactions.write(actor, lambda history: _refresh(history, request.review_id, prepared))
        if outdated is not None:
            raise outdated
    taken = {**prepared.plan.outcome.taken, **_decided(review.line_id, prepared.plan, request.resolutions)}
    calls = calls_implied_by(review.line_id, taken)
    ruled = await implied.check(actor, calls, operations_that_edit(review.line_id))
    return prepared._replace(ruled=ruled)


def _decided(line_id: str, plan: MergePlan, resolutions: Mapping[str, ConflictResolution]) -> dict[str, Version | None]:
    """Return what keys in conflict become by decisions that change them."""
    decided: dict[str, Version | None] = {}
    for conflict in plan.outcome.conflicts:
        resolution = resolutions.get(conflict.key)
        if resolution is not None and resolution.take == "value":
            text, media_type = _encoded(line_id, resolution.value)
            decided[conflict.key] = _new_version(conflict.key, text, ChangeMeta(media_type=media_type))
        elif resolution is not None and resolution.take != "ours":
            decided[conflict.key] = getattr(conflict, resolution.take)
    return decided


async def check_sizes(request: ResolveReview, actor: Actor, transactions: Transactions[History]) -> None:
    """Refuse new values that are too large, or for keys that are not in conflict, before they are scanned."""

    async def check(history: History) -> None:
        review = await _open_review(history, request.review_id)
        _check_in_conflict(request.resolutions, {conflict.key for conflict in review.conflicts})
        backend = history.backends.of(review.line_id)
        for key, resolution in request.resolutions.items():
            if resolution.take == "value":
                await backend.check_size(review.line_id, key, _encoded(review.line_id, resolution.value).text)

    await transactions.read(actor, check, heavy=True)


@audited_write(
    "history.resolve",
    action="resolve",
    http="POST /v1/history-reviews/{review_id}/resolve",
    audience=Audience.HUMANS,
    off_record=("resolutions",),
    prepare=prepare_resolution,
    limits=check_sizes,
    errors=lambda: (
        ReviewNotFound,
        ReviewClosed,
        *write_errors(),
        VersionConflict,
        VersionPruned,
        PermissionDenied,
        *size_errors(),
        *GATE_ERRORS,
    ),
    content=_texts,
)
async def resolve_review(request: ResolveReview, history: History, *, prepared: PlannedMerge) -> ReviewResolved:
    """Resolve a merge key by key. Only humans may, and only for the current values of both sides."""
    review, line, source = await _locked_review(history, request.review_id)
    plan, visible, merged, _ = await merge_planned_now(prepared, history, line, source)
    if plan.conflicts != review.conflicts:
        raise _outdated(review, visible, len(plan.conflicts))
    if len(visible) < len(plan.conflicts):
        raise PermissionDenied(
            "The merge has conflicts in keys that you may not read.", hint="Ask someone who may read them."
        )
    if request.fingerprint not in {None, fingerprint_of(review.conflicts)}:
        # The sides were changed, and the review was refreshed, after the caller had read it.
        raise _outdated(review, visible, len(plan.conflicts))
    taken = {**plan.outcome.taken, **await _resolved_versions(history, plan, request.resolutions)}
    known = sorted({*merged, *request.resolutions})
    reason = await history.gate.admit_note("reason", request.reason)
    after = await apply_merge(history, line, plan, taken, CommitMeta(reason or review.reason, request.step))
    await close_review(history, line, review, ReviewState.RESOLVED)
    return ReviewResolved(review_id=review.review_id, context_id=review.line_id, version=after.seq, taken=known)


@audited_write(
    "history.close_review",
    action="close_review",
    http="POST /v1/history-reviews/{review_id}/close",
    errors=lambda: (ReviewNotFound, ReviewClosed, *write_errors()),
)
async def close_open_review(request: CloseReview, history: History) -> ReviewDropped:
    """Close a review without merging. Both contexts stay as they are."""
    review = await _open_review(history, request.review_id)
    line = await history.to_write(review.line_id)
    # Read again under the lock: someone else may have decided meanwhile.
    still_open = await _open_review(history, request.review_id)
    closed = await close_review(history, line, still_open, ReviewState.ABANDONED)
    return ReviewDropped(review_id=closed.review_id, state=closed.state)


async def _refresh(history: History, review_id: str, prepared: PlannedMerge) -> VersionConflict | None:
    """Refresh a review; return the error to raise if its conflicts have changed."""
    review, line, source = await _locked_review(history, review_id)
    plan, visible, _, _ = await merge_planned_now(prepared, history, line, source)
    if plan.conflicts == review.conflicts:
        return None
    await refresh_review(history, review, plan)
    return _outdated(review, visible, len(plan.conflicts))


async def _locked_review(history: History, review_id: str) -> tuple[Review, LockedLine, OpenLine]:
    """Return an open review with both lines, ours locked."""
    review = await _open_review(history, review_id)
    line = await history.to_write(review.line_id)
    # Read again under the lock: someone else may have decided meanwhile.
    return await _open_review(history, review_id), line, await history.to_read(review.source_line)


async def _open_review(history: History, review_id: str) -> Review:
    review = await history.reviews.find(review_id)
    if review is None or not await _may_read(history, review):
        raise _no_review(review_id)
    if review.state is not ReviewState.OPEN:
        raise ReviewClosed(f"The review '{review_id}' is {review.state}.", state=review.state)
    return review


def _no_review(review_id: str) -> ReviewNotFound:
    return ReviewNotFound(f"There is no review '{review_id}'.", resource_type="review", resource_id=review_id)


async def _may_read(history: History, review: Review) -> bool:
    # By the trunk, so that reviews of deleted branches stay readable.
    return await _readable(history, trunk_of(review.line_id)) is not None


async def _readable(history: History, line_id: str) -> OpenLine | None:
    try:
        return await history.to_read(line_id)
    except (NotFound, Forbidden):
        return None


def _outdated(review: Review, visible: Sequence[ConflictInfo], conflicts: int) -> VersionConflict:
    return VersionConflict(
        "The contexts changed after the review was opened, and their conflicts are different now.",
        hint="Read the review again with `history.review`, and decide about its current conflicts.",
        related=(TOOL,),
        review_id=review.review_id,
        conflicts=[conflict.key for conflict in visible],
        hidden_conflicts=conflicts - len(visible),
    )


async def _resolved_versions(
    history: History, plan: MergePlan, resolutions: Mapping[str, ConflictResolution]
) -> dict[str, Version | None]:
    """Return the version to apply to each key in conflict; every key needs exactly one decision."""
    conflicts = {conflict.key: conflict for conflict in plan.outcome.conflicts}
    _check_in_conflict(resolutions, conflicts.keys())
    line_id = plan.ours.line_id
    decided = {
        key: await _chosen(history, line_id, conflicts[key], resolution) for key, resolution in resolutions.items()
    }
    if kind_of(line_id).values == "json":
        for key, resolution in resolutions.items():
            decided[metadata_key(key)] = await _metadata(history, plan, conflicts[key], resolution)
    return decided


def _check_in_conflict(resolutions: Mapping[str, ConflictResolution], keys: Collection[str]) -> None:
    """Raise InvalidInput unless exactly the keys in conflict are decided."""
    stray, undecided = resolutions.keys() - set(keys), set(keys) - resolutions.keys()
    for problem, wrong in (("not in conflict", stray), ("undecided", undecided)):
        if wrong:
            raise InvalidInput(f"resolutions: {problem}: {', '.join(sorted(wrong)[:20])}", field="resolutions")


async def _metadata(
    history: History, plan: MergePlan, conflict: MergeConflict, resolution: ConflictResolution
) -> Version | None:
    """Return the metadata of the chosen side; a new value gets that of the side it replaces."""
    existing = next((side for side in ("ours", "theirs", "base") if getattr(conflict, side) is not None), "ours")
    at: Point = getattr(plan, existing if resolution.take == "value" else resolution.take)
    return await entry_at(history.lines, at.line_id, metadata_key(conflict.key), at.seq)


async def _chosen(
    history: History, line_id: str, conflict: MergeConflict, resolution: ConflictResolution
) -> Version | None:
    if resolution.take != "value":
        side: Version | None = getattr(conflict, resolution.take)
        return side
    kind = kind_of(line_id)
    given, media_type = _encoded(line_id, resolution.value)
    content = IncomingContent(kind.item_kind or "", conflict.key, given, is_json=not kind.is_text(media_type))
    text, label = await history.gate.admit(content)
    like = conflict.ours or conflict.theirs or conflict.base
    # Like a new write: the backend checks its size and key.
    old = like.change.meta if like else ChangeMeta()
    meta = ChangeMeta(
        readable_by=old.readable_by,
        writable_by=old.writable_by,
        metadata_hash=old.metadata_hash,
        media_type=media_type,
        trust=label,
    )
    return _new_version(conflict.key, text, meta)


def _new_version(key: str, text: str, meta: ChangeMeta) -> Version:
    return Version(Change(key, 1, 1, ChangeKind.WRITE, blob_hash(text), meta), 0, "", 0, text)


def _encoded(line_id: str, value: Any) -> EncodedValue:  # noqa: ANN401 - any JSON
    """Return a new value as the line stores it."""
    if value is UNSET:
        raise InvalidInput("resolutions: take = value needs a value", field="resolutions")
    encoded = kind_of(line_id).encode(value, "resolutions")
    if encoded is None:
        raise InvalidInput("resolutions: a layer stores text", field="resolutions")
    try:
        encoded.text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("resolutions: a value is not valid text", field="resolutions") from error
    return encoded


async def _review_info(history: History, review: Review) -> ReviewInfo | None:
    """Return a review as the caller may see it; None if the caller may not read its line."""
    if not await _may_read(history, review):
        return None
    conflicts = await _conflicts_of(history, review)
    shown = {each.key for each in conflicts}
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
        # Of what the caller may see: the hash of a value tells who can guess it.
        fingerprint=fingerprint_of([each for each in review.conflicts if each.key in shown]) if shown else "",
        decided_by=review.decided_by,
        decided_at=optional_datetime(review.decided_at),
    )


async def _conflicts_of(history: History, review: Review) -> tuple[ConflictInfo, ...]:
    """Return both sides as of the last refresh, for open reviews; decisions are in the log."""
    if review.state is not ReviewState.OPEN:
        return ()
    line, source = [await _readable(history, line_id) for line_id in (review.line_id, review.source_line)]
    if line is None or source is None:
        return ()
    points = (
        (review.base_line, review.base_seq),
        (review.line_id, review.ours_seq),
        (review.source_line, review.theirs_seq),
    )
    conflicts = [
        MergeConflict(sides.key, *[await entry_at(history.lines, line_id, sides.key, seq) for line_id, seq in points])
        for sides in review.conflicts
    ]
    return await visible_conflicts(conflicts, line, source)
