"""Learned factors of token estimates: how the usage that agents report differs from what was estimated."""

from __future__ import annotations

import msgspec
from msgspec import structs

from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.transaction import SqlStore

MIN_FACTOR = 0.5
MAX_FACTOR = 2.0
# A prompt of few tokens may be reported with this many more: providers add some to each request.
ADDED_TOKENS = 1_000
# Reports before a factor is used; until then the catalog's applies.
MIN_SAMPLES = 5
# Weight of the newest report. The last ten or so decide, so that a change of tokenizer is noticed.
_WEIGHT = 0.2
# In a smaller prompt, what the provider adds to it decides more than the tokenizer.
_MIN_TOKENS = 200
_MAX_MODELS = 100
_MAX_NAME = 200


class TokenFactor(msgspec.Struct, frozen=True):
    """Reported tokens divided by estimated ones, for one agent and model; ``updated_at`` in microseconds."""

    agent_id: str
    model: str
    factor: float
    samples: int
    updated_at: int


class TokenFactorStore(SqlStore):
    """The learned factors of a tenant."""

    async def find(self, agent_id: str, model: str) -> TokenFactor | None:
        row = await self._tx.one(
            "SELECT agent_id, model, factor, samples, updated_at FROM token_factors "
            "WHERE tenant = $1 AND agent_id = $2 AND model = $3",
            self._tenant,
            agent_id,
            model,
        )
        return None if row is None else TokenFactor(*row)

    async def put(self, factor: TokenFactor) -> None:
        """Store a factor in place of the previous one of its agent and model."""
        await self._tx.run(
            """
            INSERT INTO token_factors (tenant, agent_id, model, factor, samples, updated_at)
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, agent_id, model) DO UPDATE SET
                factor = excluded.factor, samples = excluded.samples, updated_at = excluded.updated_at
            """,
            self._tenant,
            factor.agent_id,
            factor.model,
            factor.factor,
            factor.samples,
            factor.updated_at,
        )

    async def count(self, agent_id: str) -> int:
        """Return the number of models for which an agent has a factor."""
        row = await self._tx.one(
            "SELECT COUNT(*) FROM token_factors WHERE tenant = $1 AND agent_id = $2", self._tenant, agent_id
        )
        return 0 if row is None else int(row[0])


class UsageFactor(msgspec.Struct):
    """Learns factors from reported usage.

    Each agent has its own: what one reports must not make the prompts of others too long for their models.
    """

    factors: TokenFactorStore
    clock: Clock

    async def factor(self, agent_id: str, model: str | None) -> float | None:
        """Return the learned factor of a model; None until enough calls were reported."""
        found = None if model is None else await self.factors.find(agent_id, _key(model))
        return None if found is None or found.samples < MIN_SAMPLES else found.factor

    async def learn(self, agent_id: str, model: str, estimated: int, reported: int) -> TokenFactor | None:
        """Take a report into account: ``estimated`` is the raw count of the prompt, ``reported`` its input tokens.

        Returns None if nothing can be learned from it: it is too small, or too many models were reported.
        """
        if min(estimated, reported) < _MIN_TOKENS:
            return None
        key = _key(model)
        previous = await self.factors.find(agent_id, key)
        if previous is None and await self.factors.count(agent_id) >= _MAX_MODELS:
            return None
        start = previous or TokenFactor(agent_id, key, 1.0, 0, 0)
        learned = updated(start, reported / estimated, to_micros(self.clock.now()))
        await self.factors.put(learned)
        return learned


def updated(previous: TokenFactor, ratio: float, now: int) -> TokenFactor:
    """Return the factor after one more report: the exponentially weighted mean of ratios within the bounds."""
    bounded = min(MAX_FACTOR, max(MIN_FACTOR, ratio))
    # Early reports weigh the same, else the first one would decide for long.
    weight = max(_WEIGHT, 1 / (previous.samples + 1))
    factor = previous.factor + weight * (bounded - previous.factor)
    return structs.replace(previous, factor=factor, samples=previous.samples + 1, updated_at=now)


def _key(model: str) -> str:
    return model.lower()[:_MAX_NAME]
