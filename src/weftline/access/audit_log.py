"""Rows of the audit log, and their store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.kernel.fields import MAX_INT
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One action that was performed or denied."""

    audit_id: str
    at: int
    actor: str
    principal_id: str | None
    action: str
    outcome: str
    target: str
    detail: dict[str, Any]


class AuditQuery(msgspec.Struct, frozen=True):
    """Which audit rows to read; an empty text, and a time of None, exclude none.

    ``action``: an operation, or a group of them. ``target``: one of the ids in the target. Times are in microseconds;
    ``until`` is exclusive.
    """

    before: str = ""
    outcome: str = ""
    action: str = ""
    agent: str = ""
    target: str = ""
    since: int | None = None
    until: int | None = None


_ADD = """
INSERT INTO audit_log (tenant, audit_id, at, actor, principal_id, action, outcome, target, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_READ = """
SELECT audit_id, at, actor, principal_id, action, outcome, target, detail FROM audit_log
WHERE tenant = $1 AND ($2 = '' OR audit_id < $2) AND outcome LIKE $3
    AND ($4 = '' OR action = $4 OR substr(action, 1, length($4) + 1) = $5)
    AND ($6 = '' OR principal_id = $6)
    AND ($7 = '' OR replace('/' || target || '/', $7, '') <> '/' || target || '/')
    AND at >= $8 AND at < $9
ORDER BY audit_id DESC LIMIT $10
"""


class AuditStore(SqlStore):
    """Audit rows of one tenant: they are added, and those of repeated refusals are counted."""

    async def add(self, row: AuditRow) -> None:
        await self._tx.run(
            _ADD,
            self._tenant,
            row.audit_id,
            row.at,
            row.actor,
            row.principal_id,
            row.action,
            row.outcome,
            row.target,
            msgspec.json.encode(row.detail).decode(),
        )

    async def replace_detail(self, audit_id: str, detail: dict[str, Any]) -> None:
        """Replace the detail of a row that counts repeated refusals."""
        text = msgspec.json.encode(detail).decode()
        await self._tx.run(
            "UPDATE audit_log SET detail = $1 WHERE tenant = $2 AND audit_id = $3", text, self._tenant, audit_id
        )

    async def read(self, wanted: AuditQuery, limit: int) -> Sequence[AuditRow]:
        """Return rows newest first."""
        rows = await self._tx.all(
            _READ,
            self._tenant,
            wanted.before,
            wanted.outcome or "%",
            wanted.action,
            f"{wanted.action}.",
            wanted.agent,
            f"/{wanted.target}/" if wanted.target else "",
            0 if wanted.since is None else wanted.since,
            MAX_INT if wanted.until is None else wanted.until,
            limit,
        )
        return [_audit_row(*row) for row in rows]


def _audit_row(*columns: Any) -> AuditRow:  # noqa: ANN401 - a row
    *plain, detail = columns
    return AuditRow(*plain, msgspec.json.decode(detail))  # type: ignore[call-arg]
