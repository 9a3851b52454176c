"""The pruning job: applies retention to all lines, in steps of one transaction each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.access.plan_warnings import Plans
from weftline.history.line_kinds import LineBackends, kind_of
from weftline.history.lines import LineStore
from weftline.history.model import branch_of
from weftline.history.retention_rules import Pruning, describe_rule, pruning_rule
from weftline.history.sql import PruningLog, RetentionStore
from weftline.history.store import Limits, PruneCursor
from weftline.kernel.clock import DAY_MICROS, Clock, to_micros
from weftline.kernel.events import NewEvent
from weftline.kernel.fields import new_ordered_id
from weftline.kernel.identity import PERMISSION, Permission
from weftline.kernel.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.access.plans import Allowance
    from weftline.history.store import Pruned, Rule

_LINE_PAGE = 200
_EXPIRY_BATCH = 200
_ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)


class PruneJobCursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Position of the job: after a line, or within one if ``pruning_id`` is set."""

    line_id: str = ""
    pruning_id: str | None = None
    key: str = ""
    seq: int = 0


class PruneRequest(NamedTuple):
    """Scope of the job: all lines or one, and who requested it."""

    only: str | None
    by: str


class PruneTotals(msgspec.Struct, frozen=True):
    """What the job removed so far."""

    versions: int = 0
    bytes: int = 0

    def plus(self, pruned: Pruned) -> PruneTotals:
        return PruneTotals(self.versions + pruned.versions, self.bytes + pruned.freed)


class _Rules(NamedTuple):
    """The tenant's rules, and what its plan allows."""

    rules: Mapping[str, Rule]
    allowance: Allowance


class HistoryPruning(msgspec.Struct, frozen=True):
    """Dependencies of a step, built for the system actor in one tenant."""

    lines: LineStore
    rules: RetentionStore
    log: PruningLog
    backends: LineBackends
    outbox: Outbox
    clock: Clock
    plans: Plans

    async def step(
        self, cursor: PruneJobCursor, totals: PruneTotals, request: PruneRequest
    ) -> tuple[PruneJobCursor | None, PruneTotals]:
        """Prune the next few hundred values; returns the next cursor, None when done."""
        rules = _Rules(await self.rules.rules(), await self.plans.allowance())
        if cursor.pruning_id is None:
            # A separate step, so that the stored cursor names the line if pruning it fails.
            return await self._next_line(cursor, rules, request.only), totals
        return await self._prune(cursor, totals, rules, request)

    async def _next_line(self, cursor: PruneJobCursor, rules: _Rules, only: str | None) -> PruneJobCursor | None:
        """Return the cursor of the next line to prune."""
        if only is not None:
            return PruneJobCursor(only, new_ordered_id())
        page = await self.lines.page(cursor.line_id, _LINE_PAGE)
        for line_id in page:
            if pruning_rule(line_id, *rules) is not None or _may_be_orphan(line_id):
                return PruneJobCursor(line_id, new_ordered_id())
        return PruneJobCursor(page[-1]) if len(page) == _LINE_PAGE else None

    async def _prune(
        self, cursor: PruneJobCursor, totals: PruneTotals, rules: _Rules, request: PruneRequest
    ) -> tuple[PruneJobCursor | None, PruneTotals]:
        """Prune the next values of one line by its current rule."""
        done = None if request.only is not None else PruneJobCursor(cursor.line_id)
        backend = self.backends.of(cursor.line_id)
        # Locks the root of a composite line, so that no snapshot appears between pinning and pruning.
        if await backend.expire(cursor.line_id, _EXPIRY_BATCH):
            return cursor, totals
        found = pruning_rule(cursor.line_id, *rules)
        if found is None or await self.lines.lock(cursor.line_id) is None:
            return done, totals
        await backend.pin_referenced(cursor.line_id)
        subject, rule = found
        now = to_micros(self.clock.now())
        limits = _limits(cursor.line_id, rule, now)
        await self.lines.delete_automatic_tags(cursor.line_id, limits)
        pruned = await self.lines.prune_batch(cursor.line_id, PruneCursor(cursor.key, cursor.seq), limits)
        if pruned.versions:
            of_line = (cursor.pruning_id or "", cursor.line_id, now, request.by, describe_rule(subject, rule))
            removed = (pruned.versions, pruned.freed, pruned.first_seq, pruned.last_seq)
            await self.log.note(Pruning(*of_line, *removed))
        if pruned.reached is not None:
            return structs.replace(cursor, key=pruned.reached.key, seq=pruned.reached.seq), totals.plus(pruned)
        await self._announce(cursor)
        return done, totals.plus(pruned)

    async def _announce(self, cursor: PruneJobCursor) -> None:
        pruning = await self.log.find(cursor.pruning_id or "")
        if pruning is None:
            return
        await self.outbox.publish(
            NewEvent(
                type="history.pruned",
                session_id=None,
                subject=cursor.line_id,
                actor=pruning.pruned_by,
                readable_by=_ADMINS,
                data={"versions": pruning.versions, "bytes": pruning.bytes, "rule": pruning.rule},
            )
        )


def _limits(line_id: str, rule: Rule, now: int) -> Limits:
    before = None if rule.days is None else now - rule.days * DAY_MICROS
    return Limits(before, rule.versions, before if kind_of(line_id).max_age else None)


def _may_be_orphan(line_id: str) -> bool:
    """Tell whether a line may be a part of a deleted branch of a composite line."""
    return kind_of(line_id).composite and branch_of(line_id) is not None
