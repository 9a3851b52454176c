"""Guardrails at run time: rules by caller, rates by action, and hit counts that are written together."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from weftline.app.dispatch import check_access
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import WeftlineError
from weftline.kernel.events import NewEvent
from weftline.kernel.identity import CLEARANCE, PERMISSION, Permission
from weftline.kernel.outbox import Outbox
from weftline.safety.guardrails.model import TEAM as TEAM_LEVEL
from weftline.safety.guardrails.model import HitCount, HitStore, RuleKey
from weftline.safety.guardrails.rules import Counts
from weftline.state.layers.rules import RuleLoader
from weftline.storage.sql.database import Scope
from weftline.storage.sql.unit_of_work import CallerTransactions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.app.rate_limits import RateLimits
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.safety.guardrails.rules import CompiledRule, RuleSet
    from weftline.state.layers.rules import TenantRules
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector

_log = logging.getLogger("weftline.guardrails")
_READER_CLEARANCE = 3
# Rules of a tenant with hits, and kinds of its hits, that wait to be written; further ones are not counted.
_MAX_WAITING = 10_000
_MAX_EVENTS = 100
# Of one caller, which may name as many tools as it likes.
_MAX_EVENTS_OF_CALLER = 20


class CurrentGuardrails:
    """Implements CallerGuardrails: cached by access epoch, loaded in a transaction of the caller."""

    def __init__(self, cache: TenantRules, database: Database, injector: Injector) -> None:
        self._cache = cache
        self._database = database
        self._injector = injector
        self._loaders = CallerTransactions(database, injector, RuleLoader)

    def cached(self, actor: Actor) -> RuleSet | None:
        found = self._cache.cached(actor)
        return None if found is None else found.guardrails

    async def load(self, actor: Actor) -> RuleSet:
        return (await self._loaders.read(actor, lambda loader: loader.load())).guardrails

    async def confirm(self, actor: Actor) -> None:
        await check_access(self._database, actor)

    async def latest(self, actor: Actor) -> RuleSet:
        known = self.cached(actor)
        if known is not None:
            return known
        # Without the epoch: the call is done, and must not be repeated because access rules have changed since.
        rules = await self._database.read(
            Scope(actor.tenant, principal=actor.path),
            lambda tx: self._injector.build(RuleLoader, actor, tx).read(),
        )
        return rules.guardrails


class SharedCallRates:
    """Implements CallRates with the counters of rate limits."""

    def __init__(self, rates: RateLimits) -> None:
        self._rates = rates

    async def count(self, actor: Actor, actions: Sequence[str]) -> Mapping[str, Counts]:
        counted = await self._rates.count(_names(actor, actions))
        return {action: Counts(*calls) for action, calls in zip(actions, counted, strict=True)}

    async def uncount(self, actor: Actor, actions: Sequence[str]) -> None:
        await self._rates.count(_names(actor, actions), -1)


def _names(actor: Actor, actions: Sequence[str]) -> list[tuple[str, ...]]:
    return [("guardrail", actor.tenant, actor.principal_id, _short(action)) for action in actions]


@lru_cache(maxsize=10_000)
def _short(action: str) -> str:
    return hashlib.blake2b(action.encode(), digest_size=12).hexdigest()


class _HitKind(NamedTuple):
    """Hits that are one event: of a rule, by a caller, in a session."""

    rule: RuleKey
    response: str
    participant: str
    principal_id: str
    action: str
    session_id: str | None
    level: int


@dataclass(slots=True)
class _Waiting:
    """Hits of a rule since the last flush."""

    hits: int
    errors: int
    since: int
    last_at: int


class BufferedHits:
    """Implements HitLog: counts hits in memory, and writes the counts and their events every few seconds.

    A crash may lose those of the last seconds. A violation that is refused is audited at once, apart from this.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, dict[RuleKey, _Waiting]] = {}
        self._events: dict[str, Counter[_HitKind]] = {}

    def note(self, actor: Actor, rule: CompiledRule, action: str, session_id: str | None, *, is_error: bool) -> None:
        key = RuleKey(rule.layer, rule.guardrail.name, rule.digest)
        now = to_micros(self._clock.now())
        counts = self._counts.setdefault(actor.tenant, {})
        waiting = counts.get(key)
        if waiting is None:
            if len(counts) >= _MAX_WAITING:
                return
            waiting = counts[key] = _Waiting(0, 0, now, now)
        waiting.hits += 1
        waiting.errors += is_error
        waiting.last_at = now
        response = "dry_run" if rule.guardrail.dry_run else rule.guardrail.violation_response
        kind = _HitKind(key, response, actor.participant, actor.principal_id, action, session_id, rule.level)
        events = self._events.setdefault(actor.tenant, Counter())
        if kind in events or _has_room(events, actor.principal_id):
            events[kind] += 1

    async def flush(self, database: Database) -> None:
        """Write what was counted, one transaction for each tenant; one that fails does not cost others their counts."""
        counts, self._counts = self._counts, {}
        events, self._events = self._events, {}
        for tenant, of_tenant in sorted(counts.items()):
            try:
                await self._write(database, tenant, of_tenant, events.get(tenant, Counter()))
            except WeftlineError as error:
                _log.warning("hits not written", extra={"fields": {"tenant": tenant, "code": error.code}})

    async def _write(
        self, database: Database, tenant: str, counts: Mapping[RuleKey, _Waiting], events: Mapping[_HitKind, int]
    ) -> None:
        # Sorted, so that two processes lock rows in the same order.
        hits = sorted(HitCount(key, each.hits, each.errors, each.since, each.last_at) for key, each in counts.items())
        published = [_event(kind, times) for kind, times in events.items()]

        async def write(transaction: Transaction) -> None:
            await HitStore(transaction).add(hits)
            await Outbox(transaction, self._clock).publish(*published)

        await database.write(Scope(tenant), write)


def _has_room(events: Mapping[_HitKind, int], principal_id: str) -> bool:
    """Tell whether a further kind of hits of a caller is published."""
    of_caller = sum(kind.principal_id == principal_id for kind in events)
    return len(events) < _MAX_EVENTS and of_caller < _MAX_EVENTS_OF_CALLER


def _event(kind: _HitKind, times: int) -> NewEvent:
    """Return the event of hits: for admins and humans with clearance 3; of a team's rule, for admins."""
    readers: tuple[str, ...] = (f"{PERMISSION}{Permission.ADMIN}",)
    if kind.level != TEAM_LEVEL:
        readers += (f"{CLEARANCE}{_READER_CLEARANCE}",)
    return NewEvent(
        type="guardrail.hit",
        session_id=None,
        subject=kind.rule.name,
        actor=kind.participant,
        readable_by=readers,
        data={
            "layer": kind.rule.layer,
            "level": kind.level,
            "response": kind.response,
            "operation": kind.action,
            "agent_id": kind.principal_id,
            "session_id": kind.session_id,
            "count": times,
        },
    )
