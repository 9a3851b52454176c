"""Costs that a plan weighs: prices of cached tokens, the life of the cache, and the room for passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.prompts.assembly.model import CacheCosts
from weftline.search.model import DEFAULT_PASSAGE_TOKENS, MAX_PASSAGE_TOKENS
from weftline.windows.compaction.economics import EXPECTED_CALLS

if TYPE_CHECKING:
    from weftline.models.language_models.catalog import ModelInfo
    from weftline.models.language_models.prices import Rates
    from weftline.prompts.assembly.receipts import Receipt, TokenLimits

# What the provider adds to every prompt.
FRAMING_TOKENS = 3
# Part of the tokens that a compaction saves which may go back into originals of what it covers, for the task.
_ORIGINALS_SHARE = 0.25
_MICROS = 1_000_000


def cache_costs(info: ModelInfo, rates: Rates | None, *, warm: bool) -> CacheCosts:
    """Return what tokens of a model cost relative to uncached input."""
    rules = info.cache
    write, read = max(rules.write_multipliers.values(), default=1.0), rules.read_multiplier
    if rates is not None and rates.input:
        write, read = float(rates.cache_write / rates.input), float(rates.cache_read / rates.input)
    return CacheCosts(write, read, warm, EXPECTED_CALLS)


def is_warm(info: ModelInfo, cache_ttl: str | None, previous: Receipt, at: int) -> bool:
    """Tell whether the provider's cache of the previous call should still live at a time, in microseconds."""
    rules = info.cache
    lifetime = rules.ttl_seconds.get(cache_ttl or rules.default_ttl or "", 0)
    return previous.model == info.model and at - previous.created_at < lifetime * _MICROS


def originals_room(saved_tokens: int) -> int:
    """Return the room for passages of events that a compaction covers."""
    return int(saved_tokens * _ORIGINALS_SHARE)


def passage_tokens(limits: TokenLimits) -> int:
    """Return the most tokens of passages in a prompt: less if the caller named no budget."""
    return DEFAULT_PASSAGE_TOKENS if limits.token_budget is None else MAX_PASSAGE_TOKENS


class DoubtLimit(msgspec.Struct, frozen=True):
    """How much an assembly in doubt may add: percent of the tokens that passages may have in a prompt."""

    percent: int

    def tokens(self, limit: int) -> int:
        """Return the most tokens of doubtful passages in a prompt of a limit."""
        return min(limit, MAX_PASSAGE_TOKENS) * self.percent // 100
