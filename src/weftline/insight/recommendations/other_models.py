"""Other models of the same provider: a cheaper one that prompts fit into, or a larger one where they did not fit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from weftline.insight.recommendations import commands
from weftline.insight.recommendations.findings import RecommendationDraft
from weftline.insight.recommendations.model import MIN_CALLS, Evidence, ProposedSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from decimal import Decimal

    from weftline.insight.recommendations.findings import ObservedCalls
    from weftline.insight.recommendations.replay import ReplayServices
    from weftline.models.language_models.catalog import ModelInfo

# A model that costs more than this part of the present one is not worth a test.
_CHEAPER = 2
# The largest prompt may fill this part of the other model's window.
_FILL = 0.5


def model_findings(observed: ObservedCalls, services: ReplayServices, at: datetime) -> Iterator[RecommendationDraft]:
    """Return the next cheaper model, and the next larger one if prompts had no room for something."""
    used = Counter(call.receipt.model for call in observed.calls if call.receipt.model)
    if not used or len(observed.calls) < MIN_CALLS:
        return
    model, calls = used.most_common(1)[0]
    info = services.catalog.find(model)
    priced = _priced(info, services, at)
    own = services.prices.rates(info, at)
    if own is None:
        return
    largest = max(call.receipt.tokens for call in observed.calls)
    cheaper = [
        (price, name)
        for name, (price, other) in priced.items()
        if price * _CHEAPER <= own.input and largest <= other.context_window * _FILL
    ]
    if cheaper:
        price, name = max(cheaper)
        reason = f"Its input costs ${price:.2f} for a million tokens instead of ${own.input:.2f}. Compare the answers."
        yield _finding(observed, f"Try {name}, a smaller model", reason, name, "calls with this model", calls)
    full = sum(any(each.reason == "budget" for each in call.receipt.omitted) for call in observed.calls)
    larger = [(price, name) for name, (price, other) in priced.items() if other.context_window > info.context_window]
    bound = sum(call.receipt.limits.limit >= call.receipt.limits.model_tokens // 2 for call in observed.calls)
    if larger and full >= MIN_CALLS and bound >= MIN_CALLS:
        _, name = min(larger)
        reason = f"Prompts had no room for something; its window is larger than that of {model}."
        yield _finding(observed, f"Try {name}, with a larger window", reason, name, "calls without room", full)


def _finding(observed: ObservedCalls, title: str, reason: str, name: str, what: str, count: int) -> RecommendationDraft:
    evidence = (Evidence(what, count, len(observed.calls)),)
    command = commands.define(observed.agent_id, observed.config, model=name)
    return RecommendationDraft("model", title, reason, evidence, (name,), (ProposedSettings(model=name),), command)


def _priced(info: ModelInfo, services: ReplayServices, at: datetime) -> dict[str, tuple[Decimal, ModelInfo]]:
    """Return the other models of a provider that have a price and read the same media."""
    found: dict[str, tuple[Decimal, ModelInfo]] = {}
    for name in services.catalog.families:
        other = services.catalog.find(name)
        if name.endswith("-") or not other.known or other.provider != info.provider or other.model == info.model:
            continue
        rates = services.prices.rates(other, at)
        if rates is not None and set(info.input) <= set(other.input):
            found[name] = rates.input, other
    return found
