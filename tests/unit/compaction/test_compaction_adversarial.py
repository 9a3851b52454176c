"""What was planted in long noisy sessions survives every strategy. The whole set is an evaluation."""

import pytest
from evals.compaction_adversarial import STRATEGIES, TARGETS, compact_session
from evals.compaction_sessions import SESSIONS, planted_session, survives

from weft.capabilities.compaction.model import StrategyName

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
