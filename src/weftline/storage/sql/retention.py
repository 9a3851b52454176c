"""Retention rules and prune log in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.history.retention_rules import Pruning, StoredRule
from weftline.history.store import Rule
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_PRUNING = """
SELECT pruning_id, line_id, pruned_at, pruned_by, rule, versions, bytes, first_seq, last_seq FROM prunings
"""
# Sorts after every id in any collation.
_LAST_ID = "zzzz"
_LISTED = """
SELECT subject, days, versions, snapshot_from, updated_by, updated_at FROM retention
WHERE tenant = $1 AND subject >= '' ORDER BY subject
"""
_SET = """
INSERT INTO retention (tenant, subject, days, versions, snapshot_from, updated_by, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, subject) DO UPDATE SET days = excluded.days, versions = excluded.versions,
    snapshot_from = excluded.snapshot_from, updated_by = excluded.updated_by,
    updated_at = excluded.updated_at
"""


class SqlRetentionRules(SqlStore):
    """RetentionRules of one tenant."""

    async def rules(self) -> Mapping[str, Rule]:
        return {retained.subject: retained.rule for retained in await self.listed()}

    async def listed(self) -> Sequence[StoredRule]:
        rows = await self._tx.all(_LISTED, self._tenant)
        return [StoredRule(subject, Rule(*limits), by, at) for subject, *limits, by, at in rows]

    async def set(self, retained: StoredRule) -> None:
        await self._tx.run(
            _SET, self._tenant, retained.subject, *retained.rule, retained.updated_by, retained.updated_at
        )

    async def clear(self, subject: str) -> bool:
        gone = await self._tx.changed("DELETE FROM retention WHERE tenant = $1 AND subject = $2", self._tenant, subject)
        return gone > 0


_NOTE = """
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
_NEWEST = f"""
{_PRUNING}
WHERE tenant = $1 AND pruning_id < $2 AND line_id = COALESCE($3, line_id)
ORDER BY pruning_id DESC LIMIT $4
"""


class SqlPruningLog(SqlStore):
    """PruningLog of one tenant."""

    async def note(self, pruning: Pruning) -> None:
        await self._tx.run(_NOTE, self._tenant, *pruning)

    async def find(self, pruning_id: str) -> Pruning | None:
        row = await self._tx.one(_PRUNING + "WHERE tenant = $1 AND pruning_id = $2", self._tenant, pruning_id)
        return None if row is None else Pruning(*row)

    async def newest(self, before: str | None, limit: int, line_id: str | None) -> Sequence[Pruning]:
        rows = await self._tx.all(_NEWEST, self._tenant, before or _LAST_ID, line_id, limit)
        return [Pruning(*row) for row in rows]
