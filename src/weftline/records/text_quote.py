"""Finds a quote in a text: the best of several occurrences, or the most similar passage."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from rapidfuzz import fuzz

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.records.refs import TextQuote

# Maximum occurrences examined on each side of the expected position; a single letter occurs everywhere.
_MAX_OCCURRENCES = 5_000
# Maximum characters of all examined occurrences together: fewer occurrences of a long quote.
_MAX_OCCURRENCE_CHARS = 20_000_000
# Length of prefix and suffix used for scoring, if they do not match completely anywhere.
_CONTEXT_LENGTH = 64
# Minimum similarity of a changed passage, and the minimum length of a quote: too much is similar to a short one.
MIN_SIMILARITY = 0.8
_MIN_FUZZY_LENGTH = 12
# Effort of one comparison, which blocks other threads, and of all: quote length times text length.
_STEP_EFFORT, _MAX_EFFORT = 4_000_000, 100_000_000
# Of a longer quote, both ends are searched separately.
_LONG_QUOTE, _END_LENGTH = 1_000, 500


class QuoteMatch(NamedTuple):
    """An occurrence of a quote, with the share of its context that matches; ``ties`` is the number of equal matches."""

    start: int
    end: int
    context_score: float
    ties: int = 1


class SimilarQuote(NamedTuple):
    """A passage similar to a quote."""

    start: int
    end: int
    similarity: float


def find_quote(quote: TextQuote, text: str, near: int | None = None) -> QuoteMatch | None:
    """Return the occurrence of a quote whose context matches best; of several, the one nearest to ``near``."""
    whole = quote.prefix + quote.exact + quote.suffix
    indent, size = len(quote.prefix), len(quote.exact)
    expected = near or 0
    fitting = [start + indent for start in _occurrences(whole, text, max(0, expected - indent))]
    surroundings = 1.0
    if not fitting:
        scored = [(context_score(quote, text, start), start) for start in _occurrences(quote.exact, text, expected)]
        surroundings = max((score for score, _ in scored), default=0.0)
        fitting = [start for score, start in scored if score == surroundings]
    if not fitting:
        return None
    start = min(fitting, key=lambda place: (abs(place - expected), place))
    return QuoteMatch(start, start + size, surroundings, len(fitting))


def context_score(quote: TextQuote, text: str, start: int) -> float:
    """Return the share of prefix and suffix that matches at a position, from 0 to 1."""
    end = start + len(quote.exact)
    prefix, suffix = quote.prefix[-_CONTEXT_LENGTH:], quote.suffix[:_CONTEXT_LENGTH]
    if not prefix and not suffix:
        return 1.0
    before = _common_prefix(prefix[::-1], text[max(0, start - len(prefix)) : start][::-1])
    after = _common_prefix(suffix, text[end : end + len(suffix)])
    return (before + after) / (len(prefix) + len(suffix))


def find_similar(exact: str, text: str, near: int | None = None) -> SimilarQuote | None:
    """Return the passage most similar to a quote: near its old position, otherwise anywhere.

    Of a long text only a part is searched, so that it takes at most one or two seconds.
    """
    if len(exact) < _MIN_FUZZY_LENGTH:
        return None
    find = _best_alignment if len(exact) <= _LONG_QUOTE else _between_ends
    at = min(near or 0, len(text))
    around = (max(0, at - len(exact)), at + 2 * len(exact))
    return (None if near is None else find(exact, text, *around)) or find(exact, text, *_search_range(exact, text, at))


def similarity(one: str, other: str) -> float:
    """Return the similarity of two texts, from 0 to 1; 0 if below MIN_SIMILARITY."""
    return fuzz.ratio(one, other, score_cutoff=MIN_SIMILARITY * 100) / 100


def _search_range(exact: str, text: str, at: int) -> tuple[int, int]:
    """Return the part of a text around a position that can be searched in time."""
    width = _MAX_EFFORT // min(len(exact), _LONG_QUOTE)
    start = max(0, min(at - width // 2, len(text) - width))
    return start, start + width


def _best_alignment(exact: str, text: str, start: int, end: int) -> SimilarQuote | None:
    """Return the most similar passage in a range, searched in steps."""
    end, best = min(end, len(text)), None
    step = max(len(exact), _STEP_EFFORT // len(exact))
    for begin in range(start, end, step):
        piece = text[begin : min(begin + step + len(exact), end)]
        found = _in_piece(exact, piece, begin)
        if found is not None and (best is None or found.similarity > best.similarity):
            best = found
    return best


def _in_piece(exact: str, piece: str, begin: int) -> SimilarQuote | None:
    if len(piece) < len(exact):
        alike = similarity(exact, piece)
        return SimilarQuote(begin, begin + len(piece), alike) if alike else None
    found = fuzz.partial_ratio_alignment(exact, piece, score_cutoff=MIN_SIMILARITY * 100)
    return None if found is None else SimilarQuote(begin + found.dest_start, begin + found.dest_end, found.score / 100)


def _between_ends(exact: str, text: str, start: int, end: int) -> SimilarQuote | None:
    first = _best_alignment(exact[:_END_LENGTH], text, start, end)
    limit = 0 if first is None else first.start + 2 * len(exact)
    last = None if first is None else _best_alignment(exact[-_END_LENGTH:], text, first.end, limit)
    if first is None or last is None:
        return None
    alike = similarity(exact, text[first.start : last.end])
    return SimilarQuote(first.start, last.end, alike) if alike else None


def _occurrences(words: str, text: str, near: int) -> list[int]:
    """Return the nearest occurrences on both sides of a position."""
    limit = max(1, min(_MAX_OCCURRENCES, _MAX_OCCURRENCE_CHARS // len(words)))
    return [*_before(words, text, near, limit), *islice(_each(words, text, near, len(text), 1), limit)]


def _before(words: str, text: str, near: int, limit: int) -> list[int]:
    """Return the last occurrences before a position, searched in windows of doubling size.

    Beyond the first window overlapping occurrences are skipped: finding them takes quadratic time.
    """
    found: list[int] = []
    end, width, step = min(near, len(text)), limit, 1
    while end > 0 and len(found) < limit:
        start = max(0, end - width)
        found = [*_each(words, text, start, end + len(words) - 1, step), *found]
        end, width, step = start, 2 * width, len(words)
    return found[-limit:]


def _each(words: str, text: str, start: int, end: int, step: int) -> Iterator[int]:
    # str.find takes linear time for every text; str.rfind does not.
    place = text.find(words, start, end)
    while place >= 0:
        yield place
        place = text.find(words, place + step, end)


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return min(len(one), len(other))
