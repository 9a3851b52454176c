"""Savings of a prompt against the naive baseline, in tokens and money, with prompt caches taken into account.

The naive baseline is the prompt that an agent without Weftline would send: its layers, every tool definition, the task
and every event of its window in full. It is appended to from call to call, so its cache works as well as ours: what the
previous one had is cached as long as the cache lives. Documents count apart, whole, and only those of which evidence is
in the prompt: what retrieval finds without need must not look like savings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.models.language_models.usage import Usage
from weftline.models.metering.model import savings_ratio
from weftline.prompts.assembly.receipts import Savings

if TYPE_CHECKING:
    from weftline.models.language_models.prices import Rates
    from weftline.prompts.assembly.receipts import Receipt


def savings_of(
    naive: int, documents: int, tokens: int, cached: int, previous: Receipt | None, rates: Rates | None, *, warm: bool
) -> Savings:
    """Return the savings of a prompt; ``previous`` is the receipt of the call before, ``warm`` if its cache lives.

    ``naive`` are the tokens of the conversation alone, ``documents`` those of whole documents with evidence.
    """
    reusable = previous.savings.naive_baseline_tokens if previous is not None and warm else 0
    naive_cached = min(naive, reusable)
    cached = cached if warm else 0
    return Savings(
        naive_baseline_tokens=naive,
        document_tokens=documents,
        engine_assembled_tokens=tokens,
        savings_ratio=savings_ratio(naive, tokens),
        savings_ratio_with_documents=savings_ratio(naive + documents, tokens),
        cached_tokens=cached,
        naive_cached_tokens=naive_cached,
        cost=None if rates is None else _cost(rates, tokens, cached),
        naive_cost=None if rates is None else _cost(rates, naive, naive_cached),
    )


def _cost(rates: Rates, tokens: int, cached: int) -> float:
    """Return the price of a prompt: cached tokens are read from the cache, all others written to it."""
    usage = Usage(input_tokens=tokens, output_tokens=0, cache_read_tokens=cached, cache_write_tokens=tokens - cached)
    return float(rates.cost(usage))
