"""Modelled costs of an automatic compaction: shorter prompts against the provider's cache that is lost."""

from __future__ import annotations

import pytest

from weftline.models.language_models.catalog import CacheRules
from weftline.models.language_models.content import ConversationMessage
from weftline.windows.compaction.model import CompactedView, Summary
from weftline.windows.compaction.trigger import EXPECTED_CALLS, modelled_costs
from weftline.windows.model import Category, WindowEvent, event_version

pytestmark = pytest.mark.req("CE-F6")
CHEAP_READS = CacheRules(mode="automatic", write_multipliers={"5m": 1.25}, read_multiplier=0.1)
NO_CACHE = CacheRules()


def events(count: int) -> list[WindowEvent]:
    return [
        WindowEvent(
            event_id=f"e{number}",
            number=number,
            category=Category.DIALOG,
            message=ConversationMessage(role="assistant", content=f"text {number}"),
            kind="message",
            at=number,
            author="subagent:a",
            agent_id="a",
            tokens=100,
            item_id=f"window:s:a/e{number}/1.1",
        )
        for number in range(count)
    ]


def view(*covered: list[WindowEvent], tokens: int = 40) -> CompactedView:
    return CompactedView(
        summaries=tuple(
            Summary(
                summary_id=f"s{part[0].number}",
                title="",
                text=f"summary from {part[0].number}",
                method="extractive_summary",
                sources={each.event_id: event_version(each) for each in part},
                first_number=part[0].number,
                last_number=part[-1].number,
                first_at=0,
                last_at=0,
                tokens_before=100 * len(part),
                tokens=tokens,
            )
            for part in covered
        )
    )


def test_without_a_cache_every_saved_token_counts() -> None:
    costs = modelled_costs(events(10), None, view(events(10)[:1], tokens=90), NO_CACHE)
    assert costs.unchanged == EXPECTED_CALLS * 1_000
    assert costs.compacted == EXPECTED_CALLS * 990
    assert costs.is_worth_it


def test_a_small_saving_is_not_worth_the_cache() -> None:
    assert not modelled_costs(events(10), None, view(events(10)[:1], tokens=90), CHEAP_READS).is_worth_it
    assert modelled_costs(events(10), None, view(events(10)[:9], tokens=100), CHEAP_READS).is_worth_it


def test_what_stays_the_same_before_the_first_change_is_read_from_the_cache() -> None:
    old = view(events(20)[:5])
    new = view(events(20)[:5], events(20)[5:10])
    costs = modelled_costs(events(20), old, new, CHEAP_READS)
    written = 40 + 10 * 100
    assert costs.compacted == pytest.approx(40 * 0.1 + written * 1.25 + (EXPECTED_CALLS - 1) * (40 + written) * 0.1)
    assert costs.unchanged == pytest.approx(EXPECTED_CALLS * (40 + 15 * 100) * 0.1)
