"""The price table of the package genai-prices. It is imported on first use: reading it takes most of a second."""

from __future__ import annotations

from decimal import Decimal
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from weftline.kernel.thread_pools import DOCUMENT_THREADS
from weftline.models.language_models.catalog import Rates

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from weftline.models.language_models.catalog import CacheRules, ModelInfo

# Providers whose models have one price. Open models cost what their host asks: its name is part of theirs, groq/MODEL.
_PROVIDERS = {"anthropic", "deepseek", "google", "mistral", "openai", "x-ai"}


class PriceTable:
    """Prices of genai-prices; prices of a prompt cache that it lacks come from the multipliers of the catalog."""

    async def load(self) -> None:
        if not _hosts.cache_info().currsize:
            await DOCUMENT_THREADS.run(_hosts)

    def rates(self, info: ModelInfo, at: datetime, input_tokens: int = 0) -> Rates | None:
        priced = _priced_model(info.model, info.provider)
        if priced is None:
            return None
        table = priced.get_prices(at)
        at_size = {
            name: _at_size(getattr(table, f"{name}_mtok"), input_tokens)
            for name in ("input", "output", "cache_read", "cache_write", "cache_write_1h")
        }
        return _complete(at_size, info.cache)


def _complete(found: dict[str, Decimal | None], cache_rules: CacheRules) -> Rates | None:
    base, output = found["input"], found["output"]
    if base is None or output is None:
        return None
    short = _or(found["cache_write"], base * _multiplier(cache_rules, cache_rules.default_ttl))
    return Rates(
        input=base,
        output=output,
        cache_read=_or(found["cache_read"], base * Decimal(str(cache_rules.read_multiplier))),
        cache_write=short,
        cache_write_1h=_or(found["cache_write_1h"], max(short, base * _multiplier(cache_rules, "1h"))),
    )


def _multiplier(cache_rules: CacheRules, ttl: str | None) -> Decimal:
    return Decimal(str(cache_rules.write_multipliers.get(ttl or "", 1.0)))


def _or(price: Decimal | None, fallback: Decimal) -> Decimal:
    return fallback if price is None else price


def _at_size(price: Any, input_tokens: int) -> Decimal | None:  # noqa: ANN401 - a price or one with tiers
    """Return the price for a request of this size: beyond a tier's start it applies to all tokens."""
    if price is None or isinstance(price, Decimal):
        return price
    reached = [tier.price for tier in price.tiers if input_tokens > tier.start]
    found: Decimal = reached[-1] if reached else price.base
    return found


@cache
def _hosts() -> Mapping[str, Any]:
    snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
    return {provider.id: provider for provider in snapshot.providers}


@lru_cache(maxsize=1_000)
def _priced_model(model: str, provider: str) -> Any:  # noqa: ANN401 - a type of a library that is imported late
    """Return the model in the table: of the host that its name begins with, or of the provider in the catalog."""
    name = model.lower()
    host, _, rest = name.partition("/")
    found = _find(host, rest) if rest else None
    if found is None and provider in _PROVIDERS:
        found = _find(provider, name.rsplit("/", 1)[-1])
    return found


def _find(host: str, model: str) -> Any:  # noqa: ANN401 - likewise
    hosts = _hosts()
    return hosts[host].find_model(model, all_providers=list(hosts.values())) if host in hosts else None
