"""Learned factors of token estimates: how the usage that providers report differs from what was estimated."""

from __future__ import annotations

from typing import Protocol

import msgspec

from weft.kernel.clock import Clock, to_micros

MIN_FACTOR = 0.5
MAX_FACTOR = 2.0
# Reports before a factor is used; until then the catalog's applies.
MIN_SAMPLES = 5
# Weight of the newest report. The last ten or so decide, so that a change of tokenizer is noticed.
_WEIGHT = 0.2
# In a smaller prompt, what the provider adds to it decides more than the tokenizer.
_MIN_TOKENS = 200
_MAX_MODELS = 1_000
_MAX_NAME = 200


class TokenFactor(msgspec.Struct, frozen=True):
    """Reported tokens divided by estimated ones, for one model; ``updated_at`` in microseconds."""

    model: str
    factor: float
    samples: int
    updated_at: int


class TokenFactorStore(Protocol):
    """The learned factors of a tenant."""

    async def find(self, model: str) -> TokenFactor | None: ...

    async def put(self, factor: TokenFactor) -> None:
        """Store a factor in place of the previous one of its model."""
        ...

    async def count(self) -> int:
        """Return the number of models with a factor."""
        ...


class UsageFactor(msgspec.Struct):
    """Learns factors from reported usage."""

    factors: TokenFactorStore
    clock: Clock

    async def factor(self, model: str | None) -> float | None:
        """Return the learned factor of a model; None until enough calls were reported."""
        found = None if model is None else await self.factors.find(_key(model))
        return None if found is None or found.samples < MIN_SAMPLES else found.factor

    async def learn(self, model: str, estimated: int, reported: int) -> TokenFactor | None:
        """Take a report into account: ``estimated`` is the raw count of the prompt, ``reported`` its input tokens.

        Returns None if nothing can be learned from it: it is too small, or too many models were reported.
        """
        if min(estimated, reported) < _MIN_TOKENS:
            return None
        key = _key(model)
        previous = await self.factors.find(key)
        if previous is None and await self.factors.count() >= _MAX_MODELS:
            return None
        learned = updated(previous, key, reported / estimated, to_micros(self.clock.now()))
        await self.factors.put(learned)
        return learned


def updated(previous: TokenFactor | None, model: str, ratio: float, now: int) -> TokenFactor:
    """Return the factor after one more report: the exponentially weighted mean of ratios within the bounds."""
    bounded = min(MAX_FACTOR, max(MIN_FACTOR, ratio))
    if previous is None:
        return TokenFactor(model, bounded, 1, now)
    # Early reports weigh the same, else the first one would decide for long.
    weight = max(_WEIGHT, 1 / (previous.samples + 1))
    return TokenFactor(model, previous.factor + weight * (bounded - previous.factor), previous.samples + 1, now)


def _key(model: str) -> str:
    return model.lower()[:_MAX_NAME]
