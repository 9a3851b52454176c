"""Calibration: scores and confidence are between 0 and 1, monotonic, and follow their features."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.small_collections import document_collection, message_collection, ranked, scored
from weftline.search.calibration import (
    RELIABLE_SCORE,
    Calibration,
    RankingFeatures,
    calibrate,
    ranking_features,
)

pytestmark = [
    pytest.mark.req("CE-F11", part="ranking by meaning, words and recency; widening at low confidence"),
    pytest.mark.req("WX-06"),
]
TOTALS = st.floats(-1, 4, width=32)
PROBABILITIES = st.floats(0, 1)


@given(TOTALS, TOTALS, PROBABILITIES, PROBABILITIES)
def test_scores_grow_with_the_total(one: float, other: float, confidence: float, first: float) -> None:
    less, more = sorted([one, other])
    scores = Calibration(confidence, first, best=more).scores(np.array([less, more], np.float32))
    assert 0 <= scores[0] <= scores[1] <= 1


@given(TOTALS, PROBABILITIES, PROBABILITIES)
def test_scores_grow_with_the_confidence(total: float, one: float, other: float) -> None:
    less, more = (Calibration(each, 0.0, 5.0).scores(np.array([total], np.float32)) for each in sorted([one, other]))
    assert less[0] <= more[0]


def test_what_does_not_match_at_all_scores_zero() -> None:
    assert Calibration(1.0, 1.0, 2.0).scores(np.array([0.0, -3.0], np.float32)).tolist() == [0.0, 0.0]


def test_only_a_first_result_that_stands_out_is_reliable() -> None:
    totals = np.array([2.0, 1.9], np.float32)
    assert Calibration(0.99, 0.95, best=2.0).scores(totals).tolist() == [pytest.approx(0.95), pytest.approx(0.86)]
    assert (Calibration(0.99, 0.8, best=2.0).scores(totals) < RELIABLE_SCORE).all()


@given(st.floats(0, 2), st.floats(-0.75, 0.75), st.floats(-0.5, 0.5), st.floats(0.001, 1))
def test_confidence_grows_with_each_feature(evidence: float, words: float, meaning: float, more: float) -> None:
    features = RankingFeatures(1.0, evidence, words, meaning, speaker_gap=0.0)
    plain = calibrate(features)
    for name in ("non_lexical", "lexical_margin", "semantic_margin", "speaker_gap"):
        raised = calibrate(features._replace(**{name: getattr(features, name) + more}))
        assert 0 <= plain.confidence <= raised.confidence <= 1
        assert 0 <= plain.first <= raised.first <= 1


def test_an_empty_ranking_has_no_confidence() -> None:
    assert calibrate(ranking_features([], by_meaning=True)).confidence == 0.0


def test_margins_are_those_of_the_best_candidate_over_all_others() -> None:
    view = document_collection("the parser reads tokens", "the parser writes logs", "soup of the day")
    found = scored("parser reads tokens", view)
    scores, features = found.by_view[0], ranking_features(found.by_view, by_meaning=True)
    assert features is not None
    best = int(np.argmax(scores.total))
    for signal, margin in (("lexical", features.lexical_margin), ("semantic", features.semantic_margin)):
        values = scores.signals[signal]
        assert margin == pytest.approx(float(values[best] - np.delete(values, best).max(initial=0.0)))
        assert margin > 0
    assert features.speaker_gap is None


def test_the_same_text_twice_does_not_stand_out() -> None:
    once = ranked("parser reads tokens", document_collection("the parser reads tokens", "soup of the day", "rain"))
    twice = ranked(
        "parser reads tokens", document_collection("the parser reads tokens", "the parser reads tokens", "rain")
    )
    assert twice.ranked[0].score < RELIABLE_SCORE
    assert twice.confidence < once.confidence


CONVERSATION = (
    ("ada", "My grandmother gave me this silver necklace from Sweden"),
    ("bob", "What a lovely gift, tell me more"),
    ("ada", "The silver necklace stands for courage"),
    ("bob", "I painted a clay bowl on Saturday"),
    ("ada", "Nice colours"),
)


def test_a_topic_of_another_speaker_lowers_the_confidence() -> None:
    view = message_collection(*CONVERSATION)
    right, wrong = (ranked(f"What does the silver necklace of {name} stand for?", view) for name in ("ada", "bob"))
    assert wrong.confidence < right.confidence / 1.5
    assert wrong.ranked[0].score < right.ranked[0].score


def test_the_gap_compares_as_many_messages_of_others_as_of_the_speaker() -> None:
    view = message_collection(*CONVERSATION)
    found = scored("What does the silver necklace of bob stand for?", view)
    scores, features = found.by_view[0], ranking_features(found.by_view, by_meaning=True)
    assert features is not None
    assert features.speaker_gap is not None
    is_bob = scores.signals["speaker"] > 0
    matches = scores.total - scores.signals["speaker"]
    own, others = (sorted(matches[which].tolist(), reverse=True)[:2] for which in (is_bob, ~is_bob))
    assert features.speaker_gap == pytest.approx(fmean(own) - fmean(others), abs=1e-5)
    assert features.speaker_gap < 0
