"""Compactions of windows in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.kernel.packed_text import pack, text_of
from weftline.kernel.transaction import SqlStore
from weftline.windows.compaction.model import CompactedView, Compaction, CompactionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Row, Transaction


# Views that are stored for one line; of older compactions only the figures remain.
KEPT_VIEWS = 10

# Compactions of one line whose figures are kept.
KEPT_COMPACTIONS = 100


class AppliedCompaction(NamedTuple):
    """The compaction that is in effect on a line, with its view."""

    compaction: Compaction
    view: CompactedView


_COMPACTION = "SELECT state, figures FROM compactions WHERE tenant = $1 "
_BY_ID = _COMPACTION + "AND compaction_id = $2 "
_ADD = """
INSERT INTO compactions (tenant, compaction_id, session_id, line_id, state, figures) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING
"""
_OPEN = _COMPACTION + "AND line_id = $2 AND state IN ('queued', 'running', 'held')"
_APPLIED = _COMPACTION + "AND line_id = $2 AND state = 'applied'"
_NEWEST = """
SELECT state, figures FROM compactions WHERE tenant = $1 AND line_id = $2 AND (state = 'applied' OR compaction_id = (
    SELECT MAX(compaction_id) FROM compactions WHERE tenant = $1 AND line_id = $2))
ORDER BY compaction_id DESC
"""
_PAGE = _COMPACTION + "AND line_id = $2 AND compaction_id < $3 ORDER BY compaction_id DESC LIMIT $4"
_SUPERSEDE = """
UPDATE compactions SET state = 'superseded'
WHERE tenant = $1 AND line_id = $2 AND state = 'applied' AND compaction_id <> $3
"""
_SAVE = "UPDATE compactions SET state = $1, figures = $2 WHERE tenant = $3 AND compaction_id = $4"
_PUT_VIEW = """
INSERT INTO compaction_views (tenant, compaction_id, session_id, line_id, content) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, compaction_id) DO UPDATE SET content = excluded.content
"""
_VIEW = "SELECT content FROM compaction_views WHERE tenant = $1 AND compaction_id = $2"
# The view of the applied compaction stays, whatever its age.
_PRUNE_VIEWS = """
DELETE FROM compaction_views WHERE tenant = $1 AND line_id = $2 AND compaction_id < (
    SELECT MIN(newest.compaction_id) FROM (
        SELECT compaction_id FROM compaction_views WHERE tenant = $1 AND line_id = $2
        ORDER BY compaction_id DESC LIMIT $3) AS newest)
AND compaction_id NOT IN (
    SELECT compaction_id FROM compactions WHERE tenant = $1 AND line_id = $2 AND state = 'applied')
"""
_PRUNE = """
DELETE FROM compactions WHERE tenant = $1 AND line_id = $2 AND compaction_id <= (
    SELECT compaction_id FROM compactions WHERE tenant = $1 AND line_id = $2
    ORDER BY compaction_id DESC LIMIT 1 OFFSET $3)
AND state NOT IN ('queued', 'running', 'held', 'applied')
AND compaction_id NOT IN (SELECT compaction_id FROM compaction_views WHERE tenant = $1 AND line_id = $2)
"""
# Greater than every id.
_LAST = "~"
_encode = msgspec.json.Encoder().encode
_figures = msgspec.json.Decoder(Compaction).decode
_view = msgspec.json.Decoder(CompactedView).decode


class CompactionStore(SqlStore):
    """The compactions of the transaction's tenant. A line has at most one that is open, and one that is applied."""

    async def add(self, compaction: Compaction) -> bool:
        """Add a compaction; False if its line has an open one (queued, running or held).

        Only the newest of a line are kept, and those that are open, applied or have a view.
        """
        added = await self._tx.changed(
            _ADD,
            self._tenant,
            compaction.compaction_id,
            compaction.session_id,
            compaction.line_id,
            compaction.state.value,
            _encode(compaction).decode(),
        )
        if added:
            await self._tx.run(_PRUNE, self._tenant, compaction.line_id, KEPT_COMPACTIONS)
        return added > 0

    async def find(self, compaction_id: str) -> Compaction | None:
        return _compaction(await self._tx.one(_BY_ID, self._tenant, compaction_id))

    async def lock(self, compaction_id: str) -> Compaction | None:
        """Return a compaction, and block other writers of it until the transaction ends."""
        return _compaction(await self._tx.one(_BY_ID + "{for_update}", self._tenant, compaction_id))

    async def open_for(self, line_id: str) -> Compaction | None:
        """Return the compaction of a line that is queued, running or held."""
        return _compaction(await self._tx.one(_OPEN, self._tenant, line_id))

    async def applied(self, line_id: str) -> Compaction | None:
        """Return the compaction that is in effect on a line, without its view."""
        return _compaction(await self._tx.one(_APPLIED, self._tenant, line_id))

    async def newest(self, line_id: str) -> tuple[Compaction | None, Compaction | None]:
        """Return the newest compaction of a line and the one that is in effect, without their views."""
        found = [_decoded(row) for row in await self._tx.all(_NEWEST, self._tenant, line_id)]
        applied = [each for each in found if each.state is CompactionState.APPLIED]
        return (found[0] if found else None), (applied[0] if applied else None)

    async def current(self, line_id: str) -> AppliedCompaction | None:
        """Return the compaction that is in effect on a line, with its view."""
        applied = await self.applied(line_id)
        view = None if applied is None else await self.view(applied.compaction_id)
        return None if applied is None or view is None else AppliedCompaction(applied, view)

    async def view(self, compaction_id: str) -> CompactedView | None:
        """Return the view of a compaction; None if it has none, or if it is too old."""
        row = await self._tx.one(_VIEW, self._tenant, compaction_id)
        return None if row is None else _view(text_of(row[0]))

    async def page(self, line_id: str, before: str | None, limit: int) -> Sequence[Compaction]:
        """Return the compactions of a line, newest first, before an id."""
        rows = await self._tx.all(_PAGE, self._tenant, line_id, before or _LAST, limit)
        return [_decoded(row) for row in rows]

    async def save(self, compaction: Compaction, view: CompactedView | None = None) -> None:
        """Store a compaction, and its view if given. One that is applied supersedes the one before it.

        Only the newest views of a line are kept, and that of the applied compaction.
        """
        compaction_id, line_id = compaction.compaction_id, compaction.line_id
        if compaction.state is CompactionState.APPLIED:
            await self._tx.run(_SUPERSEDE, self._tenant, line_id, compaction_id)
        saved = await self._tx.changed(
            _SAVE, compaction.state.value, _encode(compaction).decode(), self._tenant, compaction_id
        )
        if view is None or not saved:
            return
        content = pack(_encode(view).decode())
        await self._tx.run(_PUT_VIEW, self._tenant, compaction_id, compaction.session_id, line_id, content)
        await self._tx.run(_PRUNE_VIEWS, self._tenant, line_id, KEPT_VIEWS)

    async def erase_views(self, line_id: str) -> int:
        """Delete all views of a line and return how many; the applied compaction is superseded."""
        await self._tx.run(_SUPERSEDE, self._tenant, line_id, "")
        return await self._tx.changed(
            "DELETE FROM compaction_views WHERE tenant = $1 AND line_id = $2", self._tenant, line_id
        )


_DUE = """
SELECT c.tenant, MIN(c.compaction_id) FROM compactions c LEFT JOIN jobs j
    ON j.tenant = c.tenant AND j.job = $1 || c.compaction_id
WHERE c.state IN ('queued', 'running') AND (j.job IS NULL OR j.lease_until <= $2)
GROUP BY c.tenant
"""


async def due_compactions(transaction: Transaction, lease: str, now: int) -> list[tuple[str, str]]:
    """Return the oldest compaction of each tenant that nobody runs. ``lease``: what the names of leases begin with."""
    return [(tenant, compaction_id) for tenant, compaction_id in await transaction.all(_DUE, lease, now)]


def _compaction(row: Row | None) -> Compaction | None:
    return None if row is None else _decoded(row)


def _decoded(row: Row) -> Compaction:
    state, figures = row
    return structs.replace(_figures(figures), state=CompactionState(state))
