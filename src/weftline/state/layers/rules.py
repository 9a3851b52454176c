"""The rules that hold for a caller: guardrails of its layers and the trust policy of its tenant, as of now.

A prohibition holds at once: rules are read from the current versions, not from those a session has pinned. They are
cached for each caller together with the access epoch, which every change of a rule advances.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from weftline.access.teams import TeamContent
from weftline.history.composite_lines import PartVersion
from weftline.history.lines import LineStore
from weftline.history.signed_lists import LayerViolation
from weftline.indexing.collections import MEMORY
from weftline.indexing.sql import CollectionStore
from weftline.kernel.identity import HIGHEST_CLEARANCE, TEAM, Actor, PrincipalKind
from weftline.models.budgets import PERIODS, BudgetName
from weftline.models.sql import BudgetStore
from weftline.safety.guardrails.rules import PLATFORM_RULES, CompiledRule, RuleSet, stored_guardrails
from weftline.safety.trust.model import DEFAULT_POLICY, TrustPolicy
from weftline.state.agent_context.model import DEFINITION, ContextLine
from weftline.state.agent_context.service import Contexts
from weftline.state.layers.model import GUARDRAILS, PERSONA, POLICY, level_of, line_of, name_of, team_layer
from weftline.state.layers.service import verified_state
from weftline.state.layers.sql import LayerStore

if TYPE_CHECKING:
    from collections.abc import Sequence


K = TypeVar("K")
V = TypeVar("V")

_MAX_CALLERS = 20_000
_MAX_LINES = 5_000
_TENANT_LINE = line_of("tenant")


class CallerRules(NamedTuple):
    """What holds for a caller at an epoch of its tenant's access rules."""

    epoch: int
    guardrails: RuleSet
    policy: TrustPolicy


class LineRules(NamedTuple):
    """The rules in one version of a layer or definition."""

    rules: Sequence[CompiledRule] = ()
    policy: TrustPolicy = DEFAULT_POLICY


_NO_RULES = LineRules()


class TenantRules:
    """Cache of the rules of all callers of this process; a caller's epoch decides whether they are current."""

    def __init__(self) -> None:
        self._callers: OrderedDict[tuple[object, ...], CallerRules] = OrderedDict()
        self._lines: OrderedDict[tuple[str, PartVersion], LineRules] = OrderedDict()

    def cached(self, actor: Actor) -> CallerRules | None:
        """Return the rules of a caller if they are current; no transaction is needed."""
        found = self._callers.get((actor.tenant, actor.principal_id, actor.permissions))
        return found if found is not None and found.epoch == actor.epoch else None

    def keep(self, actor: Actor, rules: CallerRules) -> None:
        _put(self._callers, (actor.tenant, actor.principal_id, actor.permissions), rules, _MAX_CALLERS)

    def line(self, tenant: str, at: PartVersion) -> LineRules | None:
        return self._lines.get((tenant, at))

    def keep_line(self, tenant: str, at: PartVersion, rules: LineRules) -> None:
        _put(self._lines, (tenant, at), rules, _MAX_LINES)


class RuleLoader(msgspec.Struct, frozen=True):
    """Reads the rules of the caller in its transaction. Also the TrustPolicies of the gate."""

    actor: Actor
    lines: LineStore
    cache: TenantRules

    async def current(self) -> TrustPolicy:
        """Return the trust policy of the caller's tenant."""
        known = self.cache.cached(self.actor)
        return known.policy if known is not None else (await self.line(_TENANT_LINE)).policy

    async def load(self) -> CallerRules:
        """Return the caller's rules, and cache them for its epoch. The transaction has checked that epoch."""
        known = self.cache.cached(self.actor)
        if known is None:
            known = await self.read()
            self.cache.keep(self.actor, known)
        return known

    async def read(self) -> CallerRules:
        """Return the caller's rules as of this transaction."""
        lines = [await self.line(line_id) for line_id in _lines_of(self.actor)]
        rules = [*PLATFORM_RULES, *(rule for line in lines for rule in line.rules)]
        return CallerRules(self.actor.epoch, RuleSet(self.actor, rules), lines[0].policy)

    async def line(self, line_id: str) -> LineRules:
        """Return the rules of a layer or definition as of this transaction."""
        try:
            return await self._stored(line_id)
        except LayerViolation:
            # Nobody works without altered rules, except those who repair them.
            if self.actor.kind is PrincipalKind.HUMAN and self.actor.clearance >= HIGHEST_CLEARANCE:
                return _NO_RULES
            raise

    async def _stored(self, line_id: str) -> LineRules:
        found = await self.lines.find(line_id)
        if found is None or found.head.seq == 0:
            return _NO_RULES
        at = PartVersion(line_id, found.head.seq, found.head.hash.hex())
        known = self.cache.line(self.actor.tenant, at)
        if known is None:
            known = await self._read(at)
            self.cache.keep_line(self.actor.tenant, at, known)
        return known

    async def _read(self, at: PartVersion) -> LineRules:
        """Read one version, checked against its hashes: altered rules do not hold, and nothing runs without them."""
        state = await verified_state(self.lines, at)
        guardrails = state[GUARDRAILS].value if GUARDRAILS in state else None
        policy = state[POLICY].value if POLICY in state else None
        level, layer = _place_of(at.line)
        return LineRules(
            tuple(
                CompiledRule(each, level, layer, self.actor.tenant) for each in stored_guardrails(guardrails or "[]")
            ),
            DEFAULT_POLICY if policy is None else msgspec.json.decode(policy, type=TrustPolicy),
        )


def _lines_of(actor: Actor) -> list[str]:
    """Return the lines whose rules hold for a caller, by level, the tenant's first."""
    lines = [_TENANT_LINE, *(line_of(team_layer(team)) for team in sorted(actor.teams))]
    if actor.kind is PrincipalKind.AGENT:
        owners = (*sorted(actor.ancestors), actor.principal_id)
        lines += [ContextLine(owner, DEFINITION, None).line_id for owner in owners]
    return lines


def _place_of(line_id: str) -> tuple[int, str]:
    if line_id.startswith("agent:"):
        return PERSONA, line_id
    name = name_of(line_id)
    return level_of(name), name


def _put(cache: OrderedDict[K, V], key: K, value: V, limit: int) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > limit:
        cache.popitem(last=False)


# What teams own: guidelines (layer:team:NAME), memory and budgets.


class LayersAndMemoryOfTeams(msgspec.Struct, frozen=True):
    """Implements TeamContents."""

    contexts: Contexts
    layers: LayerStore
    collections: CollectionStore
    budgets: BudgetStore

    async def of(self, team: str) -> TeamContent:
        memory = await self.contexts.lines.find(_memory_of(team).line_id)
        layer = await self.contexts.lines.find(line_of(team_layer(team)))
        return TeamContent(
            memory_version=memory.head.seq if memory else 0,
            memory_bytes=memory.head.weight if memory else 0,
            # The weight of a layer is the size of what it holds.
            layer_version=layer.head.seq if layer and layer.head.weight else 0,
        )

    async def erase(self, team: str) -> None:
        memory = _memory_of(team)
        await self.contexts.erase(memory.owner)
        await self.collections.lock(MEMORY)
        await self.collections.remove_place(MEMORY, memory.line_id)
        await self.contexts.lines.erase(line_of(team_layer(team)))
        await self.layers.remove(team_layer(team))
        for period in PERIODS:
            await self.budgets.delete(BudgetName(f"{TEAM}{team}", period))


def _memory_of(team: str) -> ContextLine:
    return ContextLine(f"{TEAM}{team}", None, None)
