"""What was planted in long noisy sessions survives every strategy. The whole set is an evaluation."""

import pytest
from evals.compaction_adversarial import LEAST_RETENTION, STRATEGIES, TARGETS, compact_session
from evals.compaction_sessions import SESSIONS, planted_session, survives, text_of
from msgspec import structs

from weftline.kernel.ports import approximate_tokens
from weftline.windows.compaction.compactor import Compactor
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import CompactionSource, StrategyName
from weftline.windows.compaction.summariser import ExtractiveSummariser
from weftline.windows.compaction.verification import verify

_CASES = [(strategy, target) for strategy in STRATEGIES for target in TARGETS]


@pytest.mark.req("CE-E", part="a summary that loses a fact")
@pytest.mark.req("CE-F8")
@pytest.mark.parametrize(("number", "case"), list(enumerate(_CASES)))
async def test_planted_items_survive(number: int, case: tuple[StrategyName, float]) -> None:
    strategy, target = case
    session = planted_session(number)
    outcome = await compact_session(session, strategy, target)
    assert outcome.lost == []
    assert outcome.planted >= 24
    # Active tasks stay in full.
    assert outcome.tokens < outcome.tokens_before * (0.9 if strategy == "task_scoped" else 0.6)


@pytest.mark.req("CE-N", part="retention of at least 99 % of the key facts of planted sessions")
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_key_facts_are_retained(strategy: StrategyName) -> None:
    # Each session by one strategy; the evaluation has all of them at all targets.
    numbers = range(STRATEGIES.index(strategy), SESSIONS, len(STRATEGIES))
    outcomes = [await compact_session(planted_session(number), strategy, 0.25) for number in numbers]
    facts = sum(outcome.facts for outcome in outcomes)
    assert facts >= 200
    assert 1 - sum(len(outcome.lost_facts) for outcome in outcomes) / facts >= LEAST_RETENTION


def test_the_set_is_large_and_always_the_same() -> None:
    sessions = [planted_session(number) for number in range(SESSIONS)]
    assert sum(len(session.planted) for session in sessions) >= 300
    assert planted_session(3).events == sessions[3].events


def test_a_text_without_an_item_does_not_pass() -> None:
    session = planted_session(0)
    full = "\n".join(
        "\n".join([event.message.content, *(call.name + call.arguments for call in event.message.tool_calls)])
        for event in session.events
    )
    for planted in session.planted:
        assert survives(full, planted)
        assert not survives(full.replace(planted.probes[0], "x"), planted)


async def test_a_view_without_its_texts_loses_facts() -> None:
    session = planted_session(3)
    source = CompactionSource(session.events, (), 0.25, 20, approximate_tokens)
    view = (await Compactor().compact(source, "sliding_window", ExtractiveSummariser())).view
    summaries = tuple(structs.replace(summary, text="nothing") for summary in view.summaries)
    text = text_of(session, structs.replace(view, summaries=summaries, facts=()))
    facts = extract_facts(session.events)
    assert len(verify(text, facts).missing) > len(facts) / 2
