"""Merge reviews: merges with conflicts that wait for the decision of a human."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.history.model import blob_hash
from weftline.kernel.errors import Conflict, NotFound
from weftline.kernel.fields import new_ordered_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.history.line_kinds import LockedLine
    from weftline.history.merge_operations import MergePlan
    from weftline.history.service import History

_FINGERPRINT = 32


class ReviewNotFound(NotFound):
    """There is no such review, or you cannot see it."""

    code = "REVIEW_NOT_FOUND"
    hint = "List the reviews with `history.reviews`."
    related = ("context_history",)


class ReviewClosed(Conflict):
    """The review was already resolved or closed."""

    code = "REVIEW_CLOSED"
    hint = "Run `history.merge` again to see whether conflicts remain."
    related = ("context_history",)


class ReviewState(StrEnum):
    """State of a review."""

    OPEN = "open"
    RESOLVED = "resolved"
    ABANDONED = "abandoned"
    # The contexts were merged without a decision.
    SUPERSEDED = "superseded"


class ConflictHashes(msgspec.Struct, frozen=True):
    """A key in conflict: the fingerprint of its content on each side, None where it does not exist."""

    key: str
    base: str | None
    ours: str | None
    theirs: str | None


class Review(msgspec.Struct, frozen=True):
    """A merge that waits for a decision, or was decided. Holds hashes only; the values are in the lines."""

    review_id: str
    line_id: str
    source_line: str
    state: ReviewState
    ours_seq: int
    theirs_seq: int
    base_line: str
    base_seq: int
    conflicts: tuple[ConflictHashes, ...]
    reason: str
    opened_by: str
    opened_at: int
    decided_by: str | None = None
    decided_at: int | None = None

    @property
    def holder(self) -> str:
        """The pin holder that protects the reviewed versions from pruning."""
        return f"review:{self.review_id}"


def fingerprint_of(conflicts: Sequence[ConflictHashes]) -> str:
    """Return a hash of conflicts: another one after either side has changed one of their keys."""
    return blob_hash(msgspec.json.encode(conflicts).decode()).hex()[:_FINGERPRINT]


async def open_review(history: History, line: LockedLine, plan: MergePlan, reason: str) -> Review:
    """Open a review of a merge, or update the open one of the same two lines."""
    existing = await history.reviews.open_for(plan.ours.line_id, plan.theirs.line_id)
    if existing is not None:
        return await refresh_review(history, existing, plan)
    review = Review(
        review_id=f"review_{new_ordered_id()}",
        line_id=plan.ours.line_id,
        source_line=plan.theirs.line_id,
        state=ReviewState.OPEN,
        ours_seq=plan.ours.seq,
        theirs_seq=plan.theirs.seq,
        base_line=plan.base.line_id,
        base_seq=plan.base.seq,
        conflicts=plan.conflicts,
        reason=reason,
        opened_by=history.actor.participant,
        opened_at=history.now,
    )
    await history.reviews.add(review)
    await _pin(history, review)
    data = {"context_id": review.line_id, "from": review.source_line, "conflicts": len(review.conflicts)}
    await line.announce("history.review_opened", review.review_id, data)
    return review


async def refresh_review(history: History, review: Review, plan: MergePlan) -> Review:
    """Update an open review after either line has changed."""
    refreshed = structs.replace(
        review,
        ours_seq=plan.ours.seq,
        theirs_seq=plan.theirs.seq,
        base_line=plan.base.line_id,
        base_seq=plan.base.seq,
        conflicts=plan.conflicts,
    )
    await history.reviews.update(refreshed)
    await history.lines.unpin(review.holder)
    await _pin(history, refreshed)
    return refreshed


async def close_review(history: History, line: LockedLine, review: Review, state: ReviewState) -> Review:
    """Store how a review ended, release its pins and publish the event."""
    closed = structs.replace(review, state=state, decided_by=history.actor.participant, decided_at=history.now)
    await history.reviews.update(closed)
    await history.lines.unpin(review.holder)
    data = {"context_id": review.line_id, "from": review.source_line, "state": state}
    await line.announce("history.review_closed", review.review_id, data)
    return closed


async def _pin(history: History, review: Review) -> None:
    """Protect the reviewed versions from pruning until the decision."""
    for line_id, seq in (
        (review.line_id, review.ours_seq),
        (review.source_line, review.theirs_seq),
        (review.base_line, review.base_seq),
    ):
        await history.lines.pin(line_id, seq, review.holder)
