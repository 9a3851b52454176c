"""Selection of results from one ranking, by one of two policies: short answers, or evidence for prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weftline.indexing.collections import MEMORY, WINDOWS
from weftline.search.calibration import RELIABLE_SCORE, calibrate, evidence, ranking_features, strength_of
from weftline.search.model import CONFIDENT, DEFAULT_MIN_SCORE, RELEVANT, OmittedChunk, Ranked, Ranking
from weftline.search.scoring import MAX_PINS, near_duplicates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weftline.search.calibration import Calibration
    from weftline.search.model import Floats, Query, View
    from weftline.search.scoring import Scores

# An unsure answer has at most this many results that are not reliable.
UNSURE_RESULTS = 2
_PARTIAL_INDEX_FACTOR = 0.5
_DIGITS = 4
# A query that was written to search with is not judged by its length: it counts as one of this many terms.
_CHOSEN_TERMS = 100
# The conversation does not cover itself, and memory is what holds beyond it.
_UNCOVERED = frozenset({WINDOWS, MEMORY})


class ScoredCandidates(NamedTuple):
    """Scored candidates of each view. ``by_meaning``: False if only keywords matched; ``terms``: query length.

    ``conversation``: of a task, those of the reader's own conversation once more, weighed together with all others.
    """

    by_view: Sequence[Scores]
    conversation: Sequence[Scores]
    by_meaning: bool
    terms: int


class _Best(NamedTuple):
    """Candidates of all views, best first: scores, and positions as (view, index)."""

    totals: Floats
    positions: NDArray[np.int64]


class _Eligible(NamedTuple):
    """Candidates of a view that may be results; for a prompt, with the evidence that they are and whether in doubt.

    ``calibration`` is that of their scores. ``has_evidence``: some are not in doubt, whatever their scores are.
    """

    rows: NDArray[np.bool_]
    calibration: Calibration
    probabilities: Floats | None = None
    doubtful: NDArray[np.bool_] | None = None
    has_evidence: bool = False


def select_results(query: Query, views: Sequence[View], candidates: ScoredCandidates) -> Ranking:
    """Return the best candidates that the query's purpose admits, and all pins."""
    best = _best_first(candidates.by_view)
    calibration = calibrate(ranking_features(candidates.by_view, by_meaning=candidates.by_meaning))
    certainty = calibration.confidence * _indexed_share(views)
    unsure = certainty < CONFIDENT
    if query.purpose == "prompt":
        conversation = _strength_of_conversation(candidates) if query.is_task else 0.0
        eligible = [
            _eligible_for_prompt(
                query, scores, candidates, _calibration_of(query, scores, candidates, calibration), conversation
            )
            for scores in candidates.by_view
        ]
        results = _results(query, best, candidates.by_view, eligible)
        relevant = any(not each.doubtful for each in results)
        has_evidence = any(each.has_evidence for each in eligible)
    else:
        min_score = 0.0 if query.low_confidence else query.weights.min_score
        eligible = [
            _Eligible(_from_score(scores, min_score, calibration), calibration) for scores in candidates.by_view
        ]
        results = _results(query, best, candidates.by_view, eligible)
        results = _cautious(results) if unsure and not query.low_confidence else results
        relevant = len(best.totals) > 0 and _score(best.totals[0], calibration) >= query.weights.min_score
        has_evidence = relevant
    pins = _pins(candidates.by_view, calibration)
    pinned = pins[:MAX_PINS]
    return Ranking(
        ranked=results,
        pinned=pinned,
        confidence=round(certainty, _DIGITS),
        min_score=query.weights.min_score,
        unsure=unsure or not relevant,
        relevant=relevant,
        has_evidence=has_evidence,
        searched=sum(view.size for view in views),
        by_meaning=candidates.by_meaning,
        omitted=_omitted(best, candidates.by_view, eligible, [*results, *pinned]) if query.complete else [],
        pins_truncated=query.complete and len(pins) > len(pinned),
    )


def _calibration_of(query: Query, scores: Scores, candidates: ScoredCandidates, joint: Calibration) -> Calibration:
    """Return the calibration of a view's scores: nothing else changes those of the reader's own conversation."""
    if not query.is_task or scores.view.collection != WINDOWS:
        return joint
    return calibrate(ranking_features([scores], by_meaning=candidates.by_meaning))


def _strength_of_conversation(candidates: ScoredCandidates) -> float:
    """Return the strength of the best turn of the reader's own conversation, zero if none was searched."""
    features = ranking_features(candidates.conversation, by_meaning=candidates.by_meaning)
    return 0.0 if features is None else strength_of(features, candidates.terms)


def _eligible_for_prompt(
    query: Query, scores: Scores, candidates: ScoredCandidates, calibration: Calibration, of_conversation: float
) -> _Eligible:
    """Return the candidates of a collection that a prompt may get, none of a collection without evidence."""
    features = ranking_features([scores], by_meaning=candidates.by_meaning)
    terms = candidates.terms if query.is_task else _CHOSEN_TERMS
    covered = 0.0 if scores.view.collection in _UNCOVERED else of_conversation
    found = evidence(features, scores.total, scores.view.size, terms, conversation=covered)
    # Words alone tell less: then what is doubtful counts.
    conversation = scores.view.collection == WINDOWS or not candidates.by_meaning
    admitted = found.admitted(scores.columns.tokens, conversation=conversation)
    doubtful = found.doubtful(conversation=conversation)
    if scores.view.collection == MEMORY and found.relevance < RELEVANT:
        # What an agent was told to keep is short, and seldom in the words of a task: in doubt it is worth its tokens.
        admitted |= scores.total > 0
    if not query.in_doubt:
        admitted &= ~doubtful
    rows = admitted & _from_score(scores, query.weights.min_score, calibration)
    has_evidence = bool((admitted & ~doubtful & ~scores.columns.pinned).any())
    return _Eligible(rows, calibration, found.probabilities, doubtful, has_evidence)


def _from_score(scores: Scores, min_score: float, calibration: Calibration) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = calibration.scores(scores.total).round(_DIGITS) >= np.float32(min_score)
    return found


def _results(query: Query, best: _Best, by_view: Sequence[Scores], eligible: Sequence[_Eligible]) -> list[Ranked]:
    """Return the best eligible candidates that are not pinned, within the plan's limit; doubtful ones last."""
    chosen, doubtful = (np.zeros(len(best.positions), np.bool_) for _ in range(2))
    for view, (scores, known) in enumerate(zip(by_view, eligible, strict=True)):
        here = best.positions[:, 0] == view
        rows = best.positions[here, 1]
        chosen[here] = (known.rows & ~scores.columns.pinned)[rows]
        if known.doubtful is not None:
            doubtful[here] = known.doubtful[rows]
    limit = query.top_k if query.max_results is None else min(query.top_k, query.max_results)
    order = np.concatenate([np.flatnonzero(chosen & ~doubtful), np.flatnonzero(chosen & doubtful)])
    positions = best.positions[order[:limit]]
    ranked: dict[int, Ranked] = {}
    for view, (scores, known) in enumerate(zip(by_view, eligible, strict=True)):
        places = np.flatnonzero(positions[:, 0] == view)
        ranked.update(zip(places.tolist(), _ranked(scores, positions[places, 1], known), strict=True))
    return [ranked[place] for place in range(len(positions))]


def _cautious(results: Sequence[Ranked]) -> list[Ranked]:
    """Return the results of an unsure answer: few of them may be unreliable."""
    return [each for place, each in enumerate(results) if place < UNSURE_RESULTS or each.score >= RELIABLE_SCORE]


def _omitted(
    best: _Best, by_view: Sequence[Scores], eligible: Sequence[_Eligible], ranked: Sequence[Ranked]
) -> list[OmittedChunk]:
    """Return every candidate that is not a result, best first, with the reason."""
    selected = {(each.collection, each.number) for each in ranked}
    omissions = [_omissions(each, rows.rows, rows.calibration) for each, rows in zip(by_view, eligible, strict=True)]
    ordered = (omissions[view][index] for view, index in best.positions.tolist())
    return [each for each in ordered if (each.collection, each.number) not in selected]


def _omissions(scores: Scores, eligible: NDArray[np.bool_], calibration: Calibration) -> list[OmittedChunk]:
    """Return the omission of each candidate, were it no result."""
    without_penalty = calibration.scores(scores.total - scores.signals["repetition"])
    known = zip(
        scores.columns.number.tolist(),
        calibration.scores(scores.total).astype(np.float64).tolist(),
        eligible.tolist(),
        # A duplicate that would be irrelevant in any case covers nothing.
        (near_duplicates(scores) & (without_penalty >= DEFAULT_MIN_SCORE)).tolist(),
        strict=True,
    )
    return [
        OmittedChunk(
            collection=scores.view.collection,
            number=number,
            score=round(score, _DIGITS),
            reason="duplicate_coverage" if is_duplicate else "budget" if is_eligible else "low_relevance",
        )
        for number, score, is_eligible, is_duplicate in known
    ]


def _indexed_share(views: Sequence[View]) -> float:
    """Return the indexed share, roughly: the exact figure would reveal hidden items."""
    return _PARTIAL_INDEX_FACTOR if any(view.lag for view in views) else 1.0


def _best_first(by_view: Sequence[Scores]) -> _Best:
    """Return all candidates sorted by score; ties by collection name, then by number."""
    if not by_view:
        return _Best(np.empty(0, np.float32), np.empty((0, 2), np.int64))
    collections = sorted(range(len(by_view)), key=lambda view: by_view[view].view.collection)
    totals = np.concatenate([by_view[view].total for view in collections])
    numbers = np.concatenate([by_view[view].columns.number for view in collections])
    positions = np.concatenate([_places(view, len(by_view[view].total)) for view in collections])
    collection = np.repeat(np.arange(len(collections)), [len(by_view[view].total) for view in collections])
    order = np.lexsort((numbers, collection, -totals))
    return _Best(totals[order], positions[order])


def _places(view: int, count: int) -> NDArray[np.int64]:
    return np.stack([np.full(count, view), np.arange(count)], axis=1)


def _pins(by_view: Sequence[Scores], calibration: Calibration) -> list[Ranked]:
    """Return pinned candidates, best first; ties: newest first, then by collection and number."""
    pinned = [(scores, index) for scores in by_view for index in np.flatnonzero(scores.columns.pinned).tolist()]

    def key(pin: tuple[Scores, int]) -> tuple[float, int, str, int]:
        scores, index = pin
        columns = scores.columns
        return -scores.total[index], -columns.timestamp[index], scores.view.collection, columns.number[index]

    return [
        each
        for scores, index in sorted(pinned, key=key)
        for each in _ranked(scores, np.array([index]), _Eligible(scores.columns.pinned, calibration))
    ]


def _ranked(scores: Scores, rows: NDArray[np.int64], known: _Eligible) -> list[Ranked]:
    """Return some candidates of a view as results, in the order of ``rows``."""
    names = list(scores.signals)
    nothing = np.zeros(len(rows))
    columns = zip(
        scores.columns.number[rows].tolist(),
        known.calibration.scores(scores.total[rows]).astype(np.float64).tolist(),
        zip(*(values[rows].tolist() for values in scores.signals.values()), strict=True),
        scores.total[rows].astype(np.float64).tolist(),
        scores.columns.pinned[rows].tolist(),
        (nothing if known.probabilities is None else known.probabilities[rows]).tolist(),
        (nothing if known.doubtful is None else known.doubtful[rows]).astype(np.bool_).tolist(),
        strict=True,
    )
    return [
        Ranked(
            collection=scores.view.collection,
            number=number,
            score=round(score, _DIGITS),
            signals=dict(zip(names, [round(value, _DIGITS) for value in values], strict=True)),
            evidence=total,
            pinned=is_pinned,
            probability=round(probability, _DIGITS),
            doubtful=is_doubtful,
        )
        for number, score, values, total, is_pinned, probability, is_doubtful in columns
    ]


def _score(total: Floats, calibration: Calibration) -> float:
    """Return the score of a candidate as it is compared and shown."""
    return round(float(calibration.scores(total)), _DIGITS)
