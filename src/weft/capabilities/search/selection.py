"""Selection of results: the best, more at low confidence, the newest if nothing is relevant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.capabilities.search.calibration import SURE, confidence, relevance
from weft.capabilities.search.model import Ranked, Ranking
from weft.capabilities.search.scoring import recency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.capabilities.search.index_view import Floats, View
    from weft.capabilities.search.model import Query
    from weft.capabilities.search.scoring import Scores

_MOST_PINNED = 20
_WIDER = 2
_IN_PART = 0.5
_DIGITS = 4


class ScoredCandidates(NamedTuple):
    """Scored candidates of each view; ``by_meaning`` is False if only keywords were matched."""

    found: Sequence[Scores]
    by_meaning: bool


class _Best(NamedTuple):
    """Candidates of all views, best first: scores, and positions as (view, index)."""

    totals: Floats
    places: NDArray[np.int64]


def choose(question: Query, views: Sequence[View], weighed: ScoredCandidates) -> Ranking:
    """Return the best candidates; more of them, with a lower minimum score, at low confidence."""
    best = _best_first(weighed.found)
    likely = confidence(best.totals, _beside_words(best, weighed)) * _share_there(views)
    min_score, limit = question.weighing.min_score, question.top_k
    if likely < SURE:
        min_score, limit = min_score / _WIDER, limit * _WIDER
    scored = [_ranked(weighed.found[view], place) for view, place in best.places[:limit].tolist()]
    taken = [each for each in scored if each.score >= min_score][: question.most]
    return Ranking(
        ranked=_with_pins(taken or _newest(question, views), _pins(weighed.found), question.most),
        confidence=round(likely, _DIGITS),
        min_score=min_score,
        widened=len(taken) > question.top_k or any(each.score < question.weighing.min_score for each in taken),
        fallback=None if taken else "recency",
        searched=sum(view.size for view in views),
        by_meaning=weighed.by_meaning,
    )


def _share_there(views: Sequence[View]) -> float:
    """Return the indexed share, roughly: the exact figure would reveal hidden items."""
    return _IN_PART if any(view.behind for view in views) else 1.0


def _best_first(found: Sequence[Scores]) -> _Best:
    """Return all candidates sorted by score; ties by collection name, then by number."""
    if not found:
        return _Best(np.empty(0, np.float32), np.empty((0, 2), np.int64))
    collections = sorted(range(len(found)), key=lambda view: found[view].view.collection)
    totals = np.concatenate([found[view].total for view in collections])
    numbers = np.concatenate([found[view].columns.number for view in collections])
    places = np.concatenate([_places(view, len(found[view].total)) for view in collections])
    collection = np.repeat(np.arange(len(collections)), [len(found[view].total) for view in collections])
    order = np.lexsort((numbers, collection, -totals))
    return _Best(totals[order], places[order])


def _places(view: int, count: int) -> NDArray[np.int64]:
    return np.stack([np.full(count, view), np.arange(count)], axis=1)


def _beside_words(best: _Best, weighed: ScoredCandidates) -> float:
    """Return the best candidate's non-lexical score; half of the total if only keywords were matched."""
    if not len(best.totals):
        return 0.0
    if not weighed.by_meaning:
        return float(best.totals[0]) / 2
    view, place = best.places[0].tolist()
    signals = weighed.found[view].signals
    return float(best.totals[0] - signals["lexical"][place] - signals["lexical_around"][place])


def _pins(found: Sequence[Scores]) -> list[Ranked]:
    """Return pinned candidates, best first; ties: newest first."""
    pinned = [
        (-evidence.total[place], -evidence.columns.timestamp[place], view, place)
        for view, evidence in enumerate(found)
        for place in np.flatnonzero(evidence.columns.pinned).tolist()
    ]
    return [_ranked(found[view], place) for *_, view, place in sorted(pinned)[:_MOST_PINNED]]


def _with_pins(shown: list[Ranked], pins: list[Ranked], most: int | None) -> list[Ranked]:
    """Add pinned results; the last unpinned ones are dropped to keep the maximum."""
    pinned = {_name(pin): pin for pin in pins[:most]}
    others = [each for each in shown if _name(each) not in pinned]
    left_out = {_name(each) for each in others[max(0, most - len(pinned)) :]} if most is not None else set()
    kept = [each for each in shown if _name(each) not in left_out]
    known = {_name(each) for each in kept}
    return kept + [pin for name, pin in pinned.items() if name not in known]


def _name(ranked: Ranked) -> tuple[str, int]:
    return ranked.collection, ranked.number


def _ranked(evidence: Scores, place: int) -> Ranked:
    signals: dict[str, Any] = {name: round(float(values[place]), _DIGITS) for name, values in evidence.signals.items()}
    signals["pinned"] = bool(evidence.columns.pinned[place])
    return Ranked(
        collection=evidence.view.collection,
        number=int(evidence.columns.number[place]),
        score=round(float(relevance(evidence.total[place])), _DIGITS),
        signals=signals,
        evidence=float(evidence.total[place]),
    )


def _newest(question: Query, views: Sequence[View]) -> list[Ranked]:
    """Return the most recent rows of all views: the fallback."""
    found = []
    for view in views:
        columns = view.columns(view.newest(question.top_k))
        newness = recency(columns.timestamp, question.asked_at, question.weighing).tolist()
        known = zip(columns.number.tolist(), columns.timestamp.tolist(), newness, columns.pinned.tolist(), strict=True)
        for number, timestamp, new, pinned in known:
            signals = {"recency": round(new, _DIGITS), "pinned": pinned}
            found.append(
                (
                    -timestamp,
                    view.collection,
                    number,
                    Ranked(collection=view.collection, number=number, score=0.0, signals=signals),
                )
            )
    return [told for *_, told in sorted(found, key=lambda each: each[:3])[: question.top_k]]
