"""The pruning job, step by step: each step is one transaction, and says where the next one begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weft.capabilities.agent_context.history_backend import ContextLines
from weft.capabilities.history.line_ids import Pruning, moment_before, rule_of, told
from weft.capabilities.history.model import branch_of
from weft.capabilities.history.operation_ports import PruningLog, RetentionRules
from weft.capabilities.history.store import Limits, LineStore, PruneCursor
from weft.kernel.clock import Clock, to_micros
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.identity import PERMISSION, Permission
from weft.kernel.ids import new_ordered_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.capabilities.history.store import Pruned, Rule

_LINES_AT_ONCE = 200
_EXPIRE_AT_ONCE = 200
_ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)


class PruneJobCursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the job is: behind a line, or inside one, which then has a pruning under way."""

    line_id: str = ""
    pruning_id: str | None = None
    key: str = ""
    seq: int = 0


class PruneRequest(NamedTuple):
    """What is asked for: all lines or only one, and by whom."""

    only: str | None
    by: str


class PruneTotals(msgspec.Struct, frozen=True):
    """What the job has removed so far."""

    versions: int = 0
    bytes: int = 0

    def plus(self, pruned: Pruned) -> PruneTotals:
        return PruneTotals(self.versions + pruned.versions, self.bytes + pruned.freed)


class HistoryPruning(msgspec.Struct, frozen=True):
    """What a step needs: gathered for the system, inside one tenant."""

    lines: LineStore
    rules: RetentionRules
    log: PruningLog
    contexts: ContextLines
    outbox: Outbox
    clock: Clock

    async def step(
        self, spot: PruneJobCursor, tally: PruneTotals, errand: PruneRequest
    ) -> tuple[PruneJobCursor | None, PruneTotals]:
        """Prune the next few hundred values; without a spot to go on from, all is done."""
        rules = await self.rules.rules()
        if spot.pruning_id is None:
            # A step of its own, so that it is on record which line fails, if one does.
            return await self._begin(spot, rules, errand.only), tally
        return await self._prune(spot, tally, rules, errand)

    async def _begin(self, spot: PruneJobCursor, rules: Mapping[str, Rule], only: str | None) -> PruneJobCursor | None:
        """Return the beginning of the next line that something is to be done about."""
        if only is not None:
            return PruneJobCursor(only, new_ordered_id())
        page = await self.lines.page(spot.line_id, _LINES_AT_ONCE)
        for line_id in page:
            if rule_of(line_id, rules) is not None or _may_be_left_over(line_id):
                return PruneJobCursor(line_id, new_ordered_id())
        return PruneJobCursor(page[-1]) if len(page) == _LINES_AT_ONCE else None

    async def _prune(
        self, spot: PruneJobCursor, tally: PruneTotals, rules: Mapping[str, Rule], errand: PruneRequest
    ) -> tuple[PruneJobCursor | None, PruneTotals]:
        """Prune the next values of one line, by the rule it follows at this moment."""
        behind = None if errand.only is not None else PruneJobCursor(spot.line_id)
        # Behind the lock of the whole context, so that nothing gets a name between being looked for and being removed.
        if _is_of_context(spot.line_id) and await self.contexts.expire(spot.line_id, _EXPIRE_AT_ONCE):
            return spot, tally
        found = rule_of(spot.line_id, rules)
        if found is None or await self.lines.lock(spot.line_id) is None:
            return behind, tally
        if _is_of_context(spot.line_id):
            await self.contexts.hold(spot.line_id)
        subject, rule = found
        now = to_micros(self.clock.now())
        limits = _limits(spot.line_id, rule, now)
        await self.lines.forget_moments(spot.line_id, limits)
        pruned = await self.lines.prune_some(spot.line_id, PruneCursor(spot.key, spot.seq), limits)
        if pruned.versions:
            of_line = (spot.pruning_id or "", spot.line_id, now, errand.by, told(subject, rule))
            removed = (pruned.versions, pruned.freed, pruned.first_seq, pruned.last_seq)
            await self.log.note(Pruning(*of_line, *removed))
        if pruned.reached is not None:
            return structs.replace(spot, key=pruned.reached.key, seq=pruned.reached.seq), tally.plus(pruned)
        await self._announce(spot)
        return behind, tally.plus(pruned)

    async def _announce(self, spot: PruneJobCursor) -> None:
        pruning = await self.log.find(spot.pruning_id or "")
        if pruning is None:
            return
        await self.outbox.publish(
            NewEvent(
                type="history.pruned",
                session_id=None,
                subject=spot.line_id,
                actor=pruning.pruned_by,
                readable_by=_ADMINS,
                data={"versions": pruning.versions, "bytes": pruning.bytes, "rule": pruning.rule},
            )
        )


def _limits(line_id: str, rule: Rule, now: int) -> Limits:
    before = None if rule.days is None else moment_before(now, rule.days)
    # Memory has an age: what was written too long ago is gone, whether or not it was ever replaced.
    is_memory = line_id.startswith("context:")
    return Limits(before, rule.versions, before if is_memory else None)


def _is_of_context(line_id: str) -> bool:
    return line_id.startswith(("context:", "agent:"))


def _may_be_left_over(line_id: str) -> bool:
    """Tell whether a line may be part of a context's branch that is gone."""
    return _is_of_context(line_id) and branch_of(line_id) is not None
