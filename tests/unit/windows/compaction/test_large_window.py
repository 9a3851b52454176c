"""The windows that the benchmark of compaction measures: compacted whole, with their key facts."""

from __future__ import annotations

import pytest

from benchmarks import compaction as benchmark
from weftline.windows.compaction.compacted_events import SummaryOfEvents, compacted
from weftline.windows.compaction.compactor import Compactor
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.summariser import ExtractiveSummariser
from weftline.windows.compaction.verification import verify


@pytest.mark.req("CE-N", part="a session of 100,000 tokens is compacted with at least 99 % of its key facts")
async def test_a_window_of_100_000_tokens_is_compacted_whole() -> None:
    events = benchmark.agent_window(benchmark._SMALL)
    assert sum(event.tokens for event in events) >= 100_000
    draft = await Compactor().compact(benchmark._source(events), "sliding_window", ExtractiveSummariser())
    assert draft.degraded == ()
    assert draft.tokens_after < draft.tokens_before / 2
    parts = compacted(events, draft.view)
    text = "\n\n".join(part.text if isinstance(part, SummaryOfEvents) else part.message.content for part in parts)
    # What states something with less probability is talk.
    facts = [fact for fact in extract_facts(events) if fact.status == "current" and fact.probability >= 0.5]
    missing = verify(text, facts).missing
    assert len(facts) > 100
    assert len(missing) <= 0.01 * len(facts), missing[:3]
