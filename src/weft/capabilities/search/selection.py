"""Selection of results from one ranking, by one of two policies: short answers, or prompts that lack nothing."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.capabilities.search.calibration import RELIABLE_SCORE, calibrate, ranking_features
from weft.capabilities.search.model import CONFIDENT, WIDENING, OmittedChunk, Ranked, Ranking
from weft.capabilities.search.scoring import MAX_PINS, near_duplicates, recency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.capabilities.records.vocabulary import OmissionReason
    from weft.capabilities.search.calibration import Calibration
    from weft.capabilities.search.index_view import Floats, View
    from weft.capabilities.search.model import Query
    from weft.capabilities.search.scoring import Scores

# An unsure answer has at most this many results that are not reliable.
UNSURE_RESULTS = 2
_PARTIAL_INDEX_FACTOR = 0.5
_DIGITS = 4


class ScoredCandidates(NamedTuple):
    """Scored candidates of each view; ``by_meaning`` is False if only keywords were matched."""

    by_view: Sequence[Scores]
    by_meaning: bool


class _Best(NamedTuple):
    """Candidates of all views, best first: scores, and positions as (view, index)."""

    totals: Floats
    positions: NDArray[np.int64]


class _Bounds(NamedTuple):
    """Minimum score and maximum number of results. ``cautious``: few of them may be unreliable."""

    min_score: float
    limit: int
    cautious: bool = False


def select_results(query: Query, views: Sequence[View], candidates: ScoredCandidates) -> Ranking:
    """Return the best candidates within the bounds of the query's purpose, and all pins."""
    best = _best_first(candidates.by_view)
    calibration = calibrate(ranking_features(candidates.by_view, by_meaning=candidates.by_meaning))
    certainty = calibration.confidence * _indexed_share(views)
    for_prompt, unsure = query.purpose == "prompt", certainty < CONFIDENT
    bounds = (_prompt_bounds if for_prompt else _answer_bounds)(query, unsure=unsure)
    results = _results(best, candidates.by_view, bounds, query.max_results, calibration)
    relevant_from = query.weights.min_score if query.low_confidence else bounds.min_score
    relevant = len(best.totals) > 0 and _score(best.totals[0], calibration) >= relevant_from
    pins = _pins(candidates.by_view, calibration)
    pinned = pins[:MAX_PINS]
    ranked = _newest(query, views, pins) if for_prompt and not relevant else results
    return Ranking(
        ranked=ranked,
        pinned=pinned,
        confidence=round(certainty, _DIGITS),
        min_score=bounds.min_score,
        unsure=unsure or not relevant,
        relevant=relevant,
        widened=for_prompt and (len(results) > query.top_k or _is_below(query.weights.min_score, results)),
        fallback="recency" if for_prompt and not relevant else None,
        searched=sum(view.size for view in views),
        by_meaning=candidates.by_meaning,
        omitted=_omitted(best, candidates.by_view, [*ranked, *pinned], bounds.min_score, calibration)
        if query.complete
        else [],
        pins_truncated=query.complete and len(pins) > len(pinned),
    )


def _answer_bounds(query: Query, *, unsure: bool) -> _Bounds:
    """Return the bounds of an answer: it is short when it does not know, unless the caller asks for more."""
    if query.low_confidence:
        return _Bounds(0.0, query.top_k)
    return _Bounds(query.weights.min_score, query.top_k, cautious=unsure)


def _prompt_bounds(query: Query, *, unsure: bool) -> _Bounds:
    """Return the bounds of what a prompt gets: in doubt more, because what is missing costs more than its tokens."""
    factor = WIDENING if unsure and query.widen else 1
    return _Bounds(query.weights.min_score / factor, query.top_k * factor)


def _results(
    best: _Best, by_view: Sequence[Scores], bounds: _Bounds, max_results: int | None, calibration: Calibration
) -> list[Ranked]:
    """Return the best candidates that are not pinned, within bounds and the plan's limit."""
    limit = bounds.limit if max_results is None else min(bounds.limit, max_results)
    unpinned = (
        (by_view[view], index) for view, index in best.positions.tolist() if not by_view[view].columns.pinned[index]
    )
    scored = (_ranked(scores, index, calibration) for scores, index in islice(unpinned, limit))
    results = [each for each in scored if each.score >= bounds.min_score]
    if not bounds.cautious:
        return results
    return [each for place, each in enumerate(results) if place < UNSURE_RESULTS or each.score >= RELIABLE_SCORE]


def _is_below(min_score: float, results: Sequence[Ranked]) -> bool:
    return any(each.score < min_score for each in results)


def _omitted(
    best: _Best, by_view: Sequence[Scores], ranked: Sequence[Ranked], min_score: float, calibration: Calibration
) -> list[OmittedChunk]:
    """Return every candidate that is not a result, best first, with the reason."""
    selected = {_chunk_key(each) for each in ranked}
    omissions = [_omissions(each, min_score, calibration) for each in by_view]
    ordered = (omissions[view][index] for view, index in best.positions.tolist())
    return [each for each in ordered if (each.collection, each.number) not in selected]


def _omissions(scores: Scores, min_score: float, calibration: Calibration) -> list[OmittedChunk]:
    """Return the omission of each candidate, were it no result."""
    without_penalty = calibration.scores(scores.total - scores.signals["repetition"])
    known = zip(
        scores.columns.number.tolist(),
        calibration.scores(scores.total).astype(np.float64).tolist(),
        # A duplicate that would be irrelevant in any case covers nothing.
        (near_duplicates(scores) & (without_penalty >= min_score)).tolist(),
        strict=True,
    )
    return [
        OmittedChunk(
            collection=scores.view.collection,
            number=number,
            score=(rounded := round(score, _DIGITS)),
            reason=_omission_reason(rounded, min_score, is_duplicate=is_duplicate),
        )
        for number, score, is_duplicate in known
    ]


def _omission_reason(score: float, min_score: float, *, is_duplicate: bool) -> OmissionReason:
    if is_duplicate:
        return "duplicate_coverage"
    return "low_relevance" if score < min_score else "budget"


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

    return [_ranked(*pin, calibration) for pin in sorted(pinned, key=key)]


def _chunk_key(ranked: Ranked) -> tuple[str, int]:
    return ranked.collection, ranked.number


def _ranked(scores: Scores, index: int, calibration: Calibration) -> Ranked:
    return Ranked(
        collection=scores.view.collection,
        number=int(scores.columns.number[index]),
        score=_score(scores.total[index], calibration),
        signals={name: round(float(values[index]), _DIGITS) for name, values in scores.signals.items()},
        evidence=float(scores.total[index]),
        pinned=bool(scores.columns.pinned[index]),
    )


def _score(total: Floats, calibration: Calibration) -> float:
    """Return the score of a candidate as it is compared and shown."""
    return round(float(calibration.scores(total)), _DIGITS)


def _newest(query: Query, views: Sequence[View], pins: Sequence[Ranked]) -> list[Ranked]:
    """Return the most recent rows of all views that are not pinned: the fallback."""
    by_view = []
    for view in views:
        columns = view.columns(view.newest(query.top_k + len(pins)))
        newness = recency(columns.timestamp, query.asked_at, query.weights).tolist()
        known = zip(columns.number.tolist(), columns.timestamp.tolist(), newness, columns.pinned.tolist(), strict=True)
        for number, timestamp, new, pinned in known:
            signals = {"recency": round(new, _DIGITS)}
            ranked = Ranked(collection=view.collection, number=number, score=0.0, signals=signals)
            if not pinned:
                by_view.append((-timestamp, view.collection, number, ranked))
    return [ranked for *_, ranked in sorted(by_view, key=lambda each: each[:3])[: query.top_k]]
