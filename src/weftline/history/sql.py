"""Reviews of merges, the index of snapshots, checkouts, retention rules, prunings and derivations in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.history.item_ids import ItemRef
from weftline.history.model import BRANCH_MARK
from weftline.history.retention_rules import Pruning, StoredRule
from weftline.history.reviews import ConflictHashes, Review, ReviewState
from weftline.history.store import Checkout, IndexedSnapshot, Rule
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


class ReviewStore(SqlStore):
    """Merge reviews."""

    async def add(self, review: Review) -> None:
        row = msgspec.structs.asdict(review) | {"conflicts": _encode(review.conflicts).decode()}
        await self._tx.run(_ADD, self._tenant, *row.values())

    async def find(self, review_id: str) -> Review | None:
        row = await self._tx.one(_REVIEW + "WHERE tenant = $1 AND review_id = $2", self._tenant, review_id)
        return None if row is None else _review(row)

    async def open_for(self, line_id: str, source_line: str) -> Review | None:
        """Return the open review of a merge of these lines."""
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
        """Return reviews older than ``before``, newest first."""
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


class SnapshotIndex(SqlStore):
    """The snapshots of all lines of a tenant."""

    async def newest(
        self, before: SnapshotPosition | None, limit: int, line_id: str | None
    ) -> Sequence[IndexedSnapshot]:
        """Return snapshots before a position, newest first; of one line if given."""
        position = before or (_MAX_TIMESTAMP, "", "")
        if line_id is None:
            rows = await self._tx.all(_NEWEST_SNAPSHOTS, self._tenant, *position, limit)
        else:
            rows = await self._tx.all(_NEWEST_OF_LINE, self._tenant, line_id, *position, limit)
        return [IndexedSnapshot(*row)._replace(automatic=bool(row[-1])) for row in rows]

    async def count(self, owner: str) -> int:
        """Return the number of named snapshots that count for an agent."""
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


_SWITCH = """
INSERT INTO switches (tenant, line_id, principal_id, branch, gone) VALUES ($1, $2, $3, $4, 0)
ON CONFLICT (tenant, line_id, principal_id) DO UPDATE SET branch = excluded.branch, gone = 0
"""


class CheckoutStore(SqlStore):
    """Which branch each principal has switched to; without an entry, the line itself.

    A checkout outlives its branch, so that its owner gets an error instead of working on the main line unnoticed.
    """

    async def of(self, trunk: str, principal_id: str) -> Checkout | None:
        row = await self._tx.one(
            "SELECT branch, gone FROM switches WHERE tenant = $1 AND line_id = $2 AND principal_id = $3",
            self._tx.tenant,
            trunk,
            principal_id,
        )
        return None if row is None else Checkout(row[0], bool(row[1]))

    async def switch(self, trunk: str, principal_id: str, branch: str | None) -> None:
        """Set the branch of a principal; None: the line itself."""
        if branch is None:
            await self._tx.run(
                "DELETE FROM switches WHERE tenant = $1 AND line_id = $2 AND principal_id = $3",
                self._tx.tenant,
                trunk,
                principal_id,
            )
            return
        await self._tx.run(_SWITCH, self._tx.tenant, trunk, principal_id, branch)


async def note_branch_gone(transaction: Transaction, trunk: str, branch: str) -> None:
    """Mark the checkouts of a deleted branch as gone, also if a new branch gets its name."""
    await transaction.run(
        "UPDATE switches SET gone = 1 WHERE tenant = $1 AND line_id = $2 AND branch = $3",
        transaction.tenant,
        trunk,
        branch,
    )


_PRUNING = """
SELECT pruning_id, line_id, pruned_at, pruned_by, rule, versions, bytes, first_seq, last_seq FROM prunings
"""


_RULES = """
SELECT subject, days, versions, snapshot_from, updated_by, updated_at FROM retention
WHERE tenant = $1 AND subject >= '' ORDER BY subject
"""

_SET_RULE = """
INSERT INTO retention (tenant, subject, days, versions, snapshot_from, updated_by, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, subject) DO UPDATE SET days = excluded.days, versions = excluded.versions,
    snapshot_from = excluded.snapshot_from, updated_by = excluded.updated_by,
    updated_at = excluded.updated_at
"""


class RetentionStore(SqlStore):
    """The retention rules of a tenant."""

    async def rules(self) -> Mapping[str, Rule]:
        """Return the rules by subject: a kind of line, or one line, whose rule takes precedence."""
        return {retained.subject: retained.rule for retained in await self.listed()}

    async def listed(self) -> Sequence[StoredRule]:
        rows = await self._tx.all(_RULES, self._tenant)
        return [StoredRule(subject, Rule(*limits), by, at) for subject, *limits, by, at in rows]

    async def set(self, retained: StoredRule) -> None:
        await self._tx.run(
            _SET_RULE, self._tenant, retained.subject, *retained.rule, retained.updated_by, retained.updated_at
        )

    async def clear(self, subject: str) -> bool:
        """Delete a rule; False if there is none."""
        gone = await self._tx.changed("DELETE FROM retention WHERE tenant = $1 AND subject = $2", self._tenant, subject)
        return gone > 0


_NOTE_PRUNING = """
INSERT INTO prunings (tenant, pruning_id, line_id, pruned_at, pruned_by, rule, versions, bytes,
                      first_seq, last_seq)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant, pruning_id) DO UPDATE SET
    versions = prunings.versions + excluded.versions, bytes = prunings.bytes + excluded.bytes,
    first_seq = CASE WHEN excluded.first_seq < prunings.first_seq
                     THEN excluded.first_seq ELSE prunings.first_seq END,
    last_seq = CASE WHEN excluded.last_seq > prunings.last_seq
                    THEN excluded.last_seq ELSE prunings.last_seq END
"""

_NEWEST_PRUNINGS = f"""
{_PRUNING}
WHERE tenant = $1 AND pruning_id < $2 AND line_id = COALESCE($3, line_id)
ORDER BY pruning_id DESC LIMIT $4
"""


class PruningLog(SqlStore):
    """What retention removed."""

    async def note(self, pruning: Pruning) -> None:
        """Add a removal, summed up with earlier ones of the same pruning."""
        await self._tx.run(_NOTE_PRUNING, self._tenant, *pruning)

    async def find(self, pruning_id: str) -> Pruning | None:
        row = await self._tx.one(_PRUNING + "WHERE tenant = $1 AND pruning_id = $2", self._tenant, pruning_id)
        return None if row is None else Pruning(*row)

    async def newest(self, before: str | None, limit: int, line_id: str | None) -> Sequence[Pruning]:
        """Return prunings older than ``before``, newest first."""
        rows = await self._tx.all(_NEWEST_PRUNINGS, self._tenant, before or _LAST_ID, line_id, limit)
        return [Pruning(*row) for row in rows]


_ADD_DERIVATION = """
INSERT INTO derivations (tenant, source, item, line_id, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
"""


async def add_derivations(transaction: Transaction, item: str, sources: Iterable[str], at: int) -> None:
    """Store that an item declares to be derived from sources."""
    named = {ref.item for source in sources if (ref := ItemRef.parse(source)) is not None}
    line_id = item.partition("/")[0]
    await transaction.many(
        _ADD_DERIVATION, [(transaction.tenant, source, item, line_id, at) for source in sorted(named - {item})]
    )


async def erase_derivations(transaction: Transaction, line_id: str) -> None:
    """Delete what the items of a line, or of a transcript (message:SESSION), declare."""
    await transaction.run("DELETE FROM derivations WHERE tenant = $1 AND line_id = $2", transaction.tenant, line_id)
