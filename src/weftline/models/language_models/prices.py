"""Prices of model calls."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Protocol

import msgspec

from weftline.models.language_models.catalog import ModelInfo
from weftline.models.language_models.usage import Usage

_PER = Decimal(1_000_000)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens of a model, at one time and size of request."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal

    def cost(self, usage: Usage) -> Decimal:
        """Return the price of a call in US dollars."""
        short_lived = usage.cache_write_tokens - usage.cache_write_1h_tokens
        total = (
            self.input * usage.uncached_tokens
            + self.cache_read * usage.cache_read_tokens
            + self.cache_write * short_lived
            + self.cache_write_1h * usage.cache_write_1h_tokens
            + self.output * usage.output_tokens
        )
        return total / _PER


class Prices(Protocol):
    """The price table."""

    async def load(self) -> None:
        """Read the table if that was not done yet, without blocking other calls."""
        ...

    def rates(self, info: ModelInfo, at: datetime, input_tokens: int = 0) -> Rates | None:
        """Return the rates of a model for a request of this size; None if the table has no price for it."""
        ...


def cost_of(prices: Prices, info: ModelInfo, usage: Usage, at: datetime) -> Decimal | None:
    """Return the price of a call in US dollars, None (never zero) if the model has no price."""
    rates = prices.rates(info, at, usage.input_tokens)
    return None if rates is None else rates.cost(usage)
