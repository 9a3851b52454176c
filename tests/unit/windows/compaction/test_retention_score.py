"""The score of compacted texts, and the baselines it is compared with."""

from __future__ import annotations

from itertools import pairwise

import pytest
from evals.compaction.baselines import every_nth, newest_part, text_rank
from evals.compaction.corpora import Conversation, Fact, Message, retained_facts
from evals.compaction.train import load_trained

from weftline.kernel.ports import approximate_tokens

_MESSAGES = [
    Message(f"m{n}", "Ann" if n % 2 else "Ben", f"The {n}th box holds apples number {n}.", n) for n in range(80)
]
_TALK = Conversation("talk", _MESSAGES, [])


def _fact(*tokens: str, answers: tuple[str, ...] = ()) -> Fact:
    return Fact("decision", [("m1", tokens)] if tokens else [], answers, is_strict=True)


def test_a_fact_is_retained_if_its_tokens_are_near_each_other() -> None:
    text = f"Rubber case. {'x ' * 400} Price 25 euros"
    facts = [_fact("rubber", "case"), _fact("rubber", "price"), _fact("twenty", "five", "euros"), _fact("rubb")]
    assert retained_facts(text, facts) == [True, False, True, False]


def test_any_answer_will_do() -> None:
    assert retained_facts("She has thirty five.", [_fact(answers=("35", "36")), _fact(answers=("37",)), _fact()]) == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("shorten", [newest_part, every_nth, text_rank])
def test_baselines_fill_their_target(shorten: object) -> None:
    assert callable(shorten)
    target = approximate_tokens(_TALK.text) * 2 // 5
    tokens = approximate_tokens(shorten(_TALK, target, approximate_tokens))
    assert 0.85 * target <= tokens <= target


def test_every_nth_message_is_evenly_spread() -> None:
    kept = [int(line.split()[-1].rstrip(".")) for line in every_nth(_TALK, 200, approximate_tokens).splitlines()]
    gaps = [after - before for before, after in pairwise(kept)]
    assert len(kept) > 8
    assert max(gaps) <= 2 * min(gaps) + 1


def test_models_of_the_folds_have_the_weights_of_the_packaged_one_by_name() -> None:
    trained = load_trained()
    assert len(trained.folds) == 3
    for model in trained.folds:
        assert model.weights.keys() == trained.model.weights.keys()
        assert model.words.keys() == trained.model.words.keys()
        assert model.weights != trained.model.weights
