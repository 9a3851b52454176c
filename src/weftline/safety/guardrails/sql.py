"""Hit counts of guardrails in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Sequence


_ADD = """
INSERT INTO guardrail_hits (tenant, layer, name, digest, hits, errors, since, last_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant, layer, name, digest) DO UPDATE SET hits = guardrail_hits.hits + excluded.hits,
    errors = guardrail_hits.errors + excluded.errors, last_at = excluded.last_at
"""
_OF_LAYER = """
SELECT layer, name, digest, hits, errors, since, last_at FROM guardrail_hits
WHERE tenant = $1 AND layer = $2 ORDER BY name, digest
"""
_REMOVE = "DELETE FROM guardrail_hits WHERE tenant = $1 AND layer = $2 AND name = $3 AND digest = $4"


class RuleKey(NamedTuple):
    """A rule as it is written now: a changed rule is counted from zero."""

    layer: str
    name: str
    digest: str


class HitCount(NamedTuple):
    """How often a rule was violated since its first hit, and how often because its condition failed."""

    key: RuleKey
    hits: int
    errors: int
    since: int
    last_at: int


class HitStore(SqlStore):
    """Hit counts of a tenant."""

    async def add(self, counts: Sequence[HitCount]) -> None:
        """Add to the counts of rules."""
        for each in counts:
            await self._tx.run(_ADD, self._tenant, *each.key, each.hits, each.errors, each.since, each.last_at)

    async def counts(self, layers: Sequence[str]) -> Sequence[HitCount]:
        rows = [row for layer in layers for row in await self._tx.all(_OF_LAYER, self._tenant, layer)]
        return [HitCount(RuleKey(*row[:3]), *row[3:]) for row in rows]

    async def remove_others(self, layer: str, digests: Sequence[str]) -> None:
        """Remove the counts of rules that a layer no longer has."""
        kept = set(digests)
        for each in await self.counts([layer]):
            if each.key.digest not in kept:
                await self._tx.run(_REMOVE, self._tenant, *each.key)
