"""Merge reviews and the snapshot index in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.history.model import BRANCH_MARK
from weftline.history.reviews import ConflictHashes, Review, ReviewState
from weftline.history.store import IndexedSnapshot
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.history.store import SnapshotPosition
    from weftline.kernel.transaction import Row, Transaction

_REVIEW = """
SELECT review_id, line_id, source_line, state, ours_seq, theirs_seq, base_line, base_seq, conflicts, reason,
       opened_by, opened_at, decided_by, decided_at
FROM reviews
"""
_CONFLICTS = 8
_STATE = 3
_SNAPSHOT = "SELECT line_id, label, seq, created_by, created_at, automatic FROM tags "
# Sort after every id in any collation, and after every timestamp.
_LAST_ID = "zzzz"
_MAX_TIMESTAMP = 2**62
_encode = msgspec.json.Encoder().encode
_conflicts = msgspec.json.Decoder(tuple[ConflictHashes, ...])
_ADD = """
INSERT INTO reviews (tenant, review_id, line_id, source_line, state, ours_seq, theirs_seq, base_line,
                     base_seq, conflicts, reason, opened_by, opened_at, decided_by, decided_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
"""
_OPEN_FOR = f"""
{_REVIEW}
WHERE tenant = $1 AND line_id = $2 AND source_line = $3 AND state = 'open'
ORDER BY opened_at DESC LIMIT 1
"""
_UPDATE = """
UPDATE reviews SET state = $1, ours_seq = $2, theirs_seq = $3, base_line = $4, base_seq = $5,
                   conflicts = $6, decided_by = $7, decided_at = $8
WHERE tenant = $9 AND review_id = $10
"""
_NEWEST = f"""
{_REVIEW}
WHERE tenant = $1 AND review_id < $2 AND line_id = COALESCE($3, line_id) AND state = COALESCE($4, state)
ORDER BY review_id DESC LIMIT $5
"""


class SqlReviewStore(SqlStore):
    """ReviewStore of one tenant."""

    async def add(self, review: Review) -> None:
        row = msgspec.structs.asdict(review) | {"conflicts": _encode(review.conflicts).decode()}
        await self._tx.run(_ADD, self._tenant, *row.values())

    async def find(self, review_id: str) -> Review | None:
        row = await self._tx.one(_REVIEW + "WHERE tenant = $1 AND review_id = $2", self._tenant, review_id)
        return None if row is None else _review(row)

    async def open_for(self, line_id: str, source_line: str) -> Review | None:
        row = await self._tx.one(_OPEN_FOR, self._tenant, line_id, source_line)
        return None if row is None else _review(row)

    async def update(self, review: Review) -> None:
        await self._tx.run(
            _UPDATE,
            review.state,
            review.ours_seq,
            review.theirs_seq,
            review.base_line,
            review.base_seq,
            _encode(review.conflicts).decode(),
            review.decided_by,
            review.decided_at,
            self._tenant,
            review.review_id,
        )

    async def newest(
        self, before: str | None, limit: int, line_id: str | None, state: ReviewState | None
    ) -> Sequence[Review]:
        rows = await self._tx.all(_NEWEST, self._tenant, before or _LAST_ID, line_id, state, limit)
        return [_review(row) for row in rows]


_NEWEST_SNAPSHOTS = f"""
{_SNAPSHOT}
WHERE tenant = $1 AND (created_at, line_id, label) < ($2, $3, $4)
ORDER BY created_at DESC, line_id DESC, label DESC LIMIT $5
"""
_NEWEST_OF_LINE = f"""
{_SNAPSHOT}
WHERE tenant = $1 AND line_id = $2 AND (created_at, line_id, label) < ($3, $4, $5)
ORDER BY created_at DESC, line_id DESC, label DESC LIMIT $6
"""


class SqlSnapshotIndex(SqlStore):
    """SnapshotIndex of one tenant."""

    async def newest(
        self, before: SnapshotPosition | None, limit: int, line_id: str | None
    ) -> Sequence[IndexedSnapshot]:
        position = before or (_MAX_TIMESTAMP, "", "")
        if line_id is None:
            rows = await self._tx.all(_NEWEST_SNAPSHOTS, self._tenant, *position, limit)
        else:
            rows = await self._tx.all(_NEWEST_OF_LINE, self._tenant, line_id, *position, limit)
        return [IndexedSnapshot(*row)._replace(automatic=bool(row[-1])) for row in rows]

    async def count(self, owner: str) -> int:
        row = await self._tx.one("SELECT COUNT(*) FROM tags WHERE tenant = $1 AND owner = $2", self._tenant, owner)
        return 0 if row is None else int(row[0])


_ERASE_REVIEWS = """
DELETE FROM reviews WHERE tenant = $1 AND review_id > '' AND (
    line_id = $2 OR substr(line_id, 1, length(CAST($3 AS TEXT))) = $3)
"""


async def erase_reviews(transaction: Transaction, trunk: str) -> None:
    """Delete all reviews of a line and its branches, including deleted branches."""
    await transaction.run(_ERASE_REVIEWS, transaction.tenant, trunk, f"{trunk}{BRANCH_MARK}")


def _review(row: Row) -> Review:
    fields = list(row)
    fields[_STATE] = ReviewState(fields[_STATE])
    fields[_CONFLICTS] = _conflicts.decode(fields[_CONFLICTS])
    return Review(*fields)
