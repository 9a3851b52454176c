"""Compaction of a window: what survives, what is said to be lost, and what happens when something fails."""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from support.full_run import examples
from support.window_events import assistant, called, from_user, numbered, result, windows
from weftline.kernel.ports import approximate_tokens
from weftline.safety.trust.model import Source, Trust, TrustLabel
from weftline.windows.compaction import compactor as compactor_module
from weftline.windows.compaction import summariser as summariser_module
from weftline.windows.compaction.compacted_events import SummaryOfEvents, compacted, compacted_tokens
from weftline.windows.compaction.compactor import Compactor
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import CompactionSource, binds
from weftline.windows.compaction.summariser import ExtractiveSummariser, SummariserFailed, SummaryText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.windows.compaction.model import CompactionDraft, StrategyName
    from weftline.windows.compaction.summariser import Summariser, SummaryRequest
    from weftline.windows.model import WindowEvent

_TALK = "I looked at it again over coffee and it seems that the two of them wait for each other, which is odd. "
DECISION = "We decided to use PostgreSQL 16.2 for the journal."
CONSTRAINT = "The import must never run between 02:00 and 04:00."


async def compact(
    events: Sequence[WindowEvent],
    strategy: StrategyName = "sliding_window",
    summariser: Summariser | None = None,
    keep_recent: int = 4,
    target: float = 0.4,
    **more: Any,
) -> CompactionDraft:
    source = CompactionSource(events, (), target, keep_recent, approximate_tokens, **more)
    return await Compactor().compact(source, strategy, summariser or ExtractiveSummariser())


def written(draft: CompactionDraft) -> str:
    carried = [fact.text for fact in draft.view.facts if fact.carried]
    return "\n".join([*(summary.text for summary in draft.view.summaries), *carried])


def session(turns: int = 30) -> list[WindowEvent]:
    drafts = [from_user(f"{DECISION} {CONSTRAINT} {_TALK * 3}")]
    for at in range(turns):
        rows = "\n".join(f"{row},c{row * at},{row * 31 % 97}" for row in range(80))
        drafts += [
            from_user(f"Please look at order A-{at:03}. {_TALK}"),
            called(f"c{at}"),
            result(f"c{at}", f"id,customer,amount\n{rows}"),
            assistant(f"Order A-{at:03} is open. {_TALK * 2}"),
        ]
    return numbered(drafts)


class Scripted:
    """Answers every request in the same way, or fails."""

    def __init__(self, answer: SummaryText | Exception) -> None:
        self.answer = answer
        self.requests: list[SummaryRequest] = []

    async def summarise(self, request: SummaryRequest) -> SummaryText:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.req("CE-F5", part="recent messages in full, older ones in verified summaries, without a model")
@pytest.mark.parametrize("strategy", ["sliding_window", "key_facts", "hierarchical", "task_scoped", "auto"])
async def test_decisions_and_constraints_survive_every_strategy(strategy: StrategyName) -> None:
    events = session()
    draft = await compact(events, strategy)
    assert "PostgreSQL 16.2" in written(draft)
    assert "02:00" in written(draft)
    assert "04:00" in written(draft)
    assert all(f"A-{at:03}" in written(draft) for at in range(28))
    assert draft.degraded == ()
    assert draft.tokens_before == sum(event.tokens for event in events)
    assert draft.tokens_after < draft.tokens_before * 0.5


async def test_figures_are_those_of_the_view_applied() -> None:
    events = session()
    draft = await compact(events)
    shown = compacted(events, draft.view)
    assert len(shown) == len(draft.view.summaries) + 4
    carried = [fact for fact in draft.view.facts if fact.carried]
    assert draft.tokens_after - compacted_tokens(events, draft.view) == pytest.approx(0, abs=60 * max(len(carried), 1))


async def test_each_summary_names_its_sources_its_times_and_what_it_lost() -> None:
    events = session()
    draft = await compact(events)
    first = draft.view.summaries[0]
    assert list(first.sources) == [event.event_id for event in events[: len(first.sources)]]
    assert set(first.sources.values()) == {"1.1"}
    assert (first.first_number, first.first_at) == (1, events[0].at)
    assert first.tokens == approximate_tokens(first.text)
    assert first.tokens <= first.tokens_before * 0.4 * 1.05
    assert first.method == "extractive_summary"
    assert any(note.startswith("Left out: ") and re.search(r"rows of result of \w", note) for note in first.loss_notes)
    assert first.trust == TrustLabel(Source.TOOL, Trust.UNTRUSTED)


async def test_the_label_of_a_summary_is_the_lowest_of_its_sources() -> None:
    imported = TrustLabel(Source.IMPORT, Trust.UNTRUSTED, reasons=("secret: password",))
    trusted = numbered([from_user(_TALK * 4) for _ in range(12)])
    draft = await compact(trusted)
    assert [summary.trust for summary in draft.view.summaries] == [None]
    draft = await compact([structs.replace(trusted[0], trust=imported), *trusted[1:]])
    assert [summary.trust for summary in draft.view.summaries] == [imported]


@given(turns=st.integers(8, 40), more=st.integers(1, 12), keep_recent=st.integers(8, 24))
@settings(max_examples=examples(24))
async def test_finished_summaries_are_the_same_byte_by_byte_when_events_are_appended(
    turns: int, more: int, keep_recent: int
) -> None:
    events = session(turns + more)
    before = await compact(events[: 1 + 4 * turns], keep_recent=keep_recent)
    after = await compact(events, keep_recent=keep_recent)
    finished = before.view.summaries[:-1]
    assert after.view.summaries[: len(finished)] == finished


@pytest.mark.parametrize("strategy", ["sliding_window", "key_facts", "hierarchical", "task_scoped"])
@given(events=windows(), keep_recent=st.integers(0, 20))
@settings(max_examples=examples(40))
async def test_every_event_is_shown_or_in_exactly_one_summary(
    strategy: StrategyName, events: list[WindowEvent], keep_recent: int
) -> None:
    view = (await compact(events, strategy, keep_recent=keep_recent)).view
    shown = compacted(events, view)
    # A summary that does not hold would be left out here.
    assert sum(isinstance(part, SummaryOfEvents) for part in shown) == len(view.summaries)
    ids = [
        event.event_id for part in shown for event in (part.events if isinstance(part, SummaryOfEvents) else (part,))
    ]
    assert ids == [event.event_id for event in events]


async def test_the_same_events_give_the_same_view() -> None:
    assert await compact(session()) == await compact(session())


async def test_a_decision_that_was_changed_later_is_carried_with_its_status() -> None:
    talk = [assistant(_TALK * 6) for _ in range(40)]
    events = numbered([assistant("We decided to use Redis 7 for the queue."), *talk])
    facts = extract_facts(events)
    replaced = [structs.replace(facts[0], status="superseded", superseded_by=f"{events[-1].event_id}#1"), *facts[1:]]
    summariser = ExtractiveSummariser()
    before, after = [
        await Compactor().compact(
            CompactionSource(events, each, 0.4, 4, approximate_tokens), "sliding_window", summariser
        )
        for each in (facts, replaced)
    ]
    assert after.view.summaries == before.view.summaries
    assert [(fact.status, fact.carried) for fact in before.view.facts][:1] == [("current", False)]
    assert [(fact.status, fact.carried) for fact in after.view.facts][:1] == [("superseded", True)]
    shown = compacted(events, after.view)[0]
    assert isinstance(shown, SummaryOfEvents)
    assert shown.text.endswith("We decided to use Redis 7 for the queue. (replaced later)")
    assert shown.statements == ()


async def test_a_target_is_exceeded_rather_than_a_fact_lost_and_the_summary_says_so() -> None:
    facts = [from_user(f"We decided to rename table T{at} to U{at} before May. {_TALK}") for at in range(60)]
    events = numbered([*facts, *(assistant("Fine.") for _ in range(4))])
    draft = await compact(events, target=0.2)
    binding = [fact.text for fact in extract_facts(events[:56]) if binds(fact.kind, fact.probability)]
    assert len(binding) > 40
    assert [text for text in binding if text.rstrip(".") not in written(draft)] == []
    assert draft.view.summaries[0].tokens > draft.view.summaries[0].tokens_before * 0.2
    assert draft.view.summaries[0].loss_notes[-1].endswith("over its target, so that no key fact is lost.")


async def test_facts_that_a_summariser_drops_are_carried() -> None:
    text = " ".join(f"Please look at order A-{at:03}. Order A-{at:03} is open." for at in range(30))
    draft = await compact(session(), summariser=Scripted(SummaryText(text, "abstractive_summary", 0.9)))
    assert "PostgreSQL 16.2" in written(draft)
    assert any(fact.carried and fact.text == DECISION for fact in draft.view.facts)
    assert any("listed separately" in note for summary in draft.view.summaries for note in summary.loss_notes)


@pytest.mark.req("CE-F5")
async def test_a_text_of_low_confidence_is_replaced_by_the_extractive_one() -> None:
    draft = await compact(session(), summariser=Scripted(SummaryText("All fine.", "abstractive_summary", 0.3)))
    assert {summary.method for summary in draft.view.summaries} == {"extractive_summary"}
    assert draft.degraded == ("A summary lost key facts; the words of the original were used.",)


@pytest.mark.req("CE-F5")
async def test_originals_stay_where_no_text_is_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = SummaryText("All fine.", "extractive_summary", 0.3)
    monkeypatch.setattr(ExtractiveSummariser, "summarise", Scripted(poor).summarise)
    events = session()
    draft = await compact(events)
    assert draft.view.summaries == ()
    assert [
        part.message.content for part in compacted(events, draft.view) if not isinstance(part, SummaryOfEvents)
    ] == [event.message.content for event in events]


@pytest.mark.req("CE-F5")
async def test_a_text_that_lost_most_facts_is_replaced_by_the_extractive_one() -> None:
    draft = await compact(session(), summariser=Scripted(SummaryText("All fine.", "abstractive_summary", 1.0)))
    assert {summary.method for summary in draft.view.summaries} == {"extractive_summary"}
    assert draft.degraded == ("A summary lost key facts; the words of the original were used.",)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (SummariserFailed("The model did not answer in time."), "The model did not answer in time."),
        (ValueError("secret text"), "The summariser failed (ValueError)."),
    ],
)
async def test_a_summariser_that_fails_is_replaced_by_the_extractive_one(
    failure: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        draft = await compact(session(), summariser=Scripted(failure))
    assert draft.view == (await compact(session())).view
    assert draft.degraded == (reason,)
    assert "secret text" not in caplog.text


async def test_if_nothing_can_be_written_older_events_are_left_out_and_their_statements_carried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(summariser_module, "group_texts", fail)
    events = session()
    draft = await compact(events)
    assert draft.degraded == ("A part could not be summarised; it was left out.",)
    assert draft.view.summaries[0].text.endswith("tokens left out]")
    assert any(fact.carried and fact.text == DECISION for fact in draft.view.facts)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("extract_in_turns", "Key facts could not be extracted."),
        ("lay_out", "The strategy hierarchical failed; the older messages were left out."),
    ],
)
async def test_whatever_fails_a_view_comes_out(name: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(compactor_module, name, fail)
    draft = await compact(session(), "hierarchical")
    assert draft.degraded == (reason,)
    assert draft.view.summaries
    if name == "lay_out":
        assert draft.used == "truncation"
        assert draft.tokens_after < draft.tokens_before * 0.2
        assert any(fact.carried and fact.text == DECISION for fact in draft.view.facts)
        assert sum(summary.confidence for summary in draft.view.summaries) == 0


async def test_the_long_result_of_a_long_running_call_is_shortened_in_its_place() -> None:
    rows = json.dumps([{"id": f"u{at}", "score": at * 7 % 100} for at in range(400)])
    drafts = [called("slow"), *(assistant(_TALK) for _ in range(12)), result("slow", rows)]
    events = numbered([*drafts, *(assistant(_TALK) for _ in range(8))])
    draft = await compact(events)
    assert [each.event_id for each in draft.view.shortened] == ["e14"]
    assert "items like these left out]" in draft.view.shortened[0].content
    assert draft.view.shortened[0].tokens < draft.view.shortened[0].tokens_before // 3


async def test_a_recent_result_stays_in_full_however_long() -> None:
    events = numbered([*(assistant(_TALK * 4) for _ in range(12)), called("a"), result("a", "x,1\n" * 4_000)])
    draft = await compact(events)
    assert not draft.view.shortened
    assert compacted(events, draft.view)[-1] == events[-1]


async def test_a_window_without_older_events_has_an_empty_view() -> None:
    draft = await compact(numbered([from_user("Hello."), assistant("Hello.")]))
    assert not draft.view.summaries
    assert draft.tokens_before == draft.tokens_after
    draft = await compact([])
    assert not draft.view.summaries
