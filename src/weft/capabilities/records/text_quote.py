"""Finding a quote in a text: the right one among several that are alike, or what it has become."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from rapidfuzz import fuzz

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.capabilities.records.refs import TextQuote

# Places of a quote that are looked at on either side of where it is expected; one letter stands everywhere.
_MOST_PLACES = 5_000
# Characters of all the places together that are looked at: of a long quote fewer places than of a short one.
_FOUND_IN_ALL = 20_000_000
# How much of what stands around a quote tells places apart, once all of it fits nowhere.
_AROUND = 64
# What is alike at least so much counts as what a passage has become; of shorter ones too much would be.
NEAR = 0.8
_SHORTEST_NEAR = 12
# What is compared at a time, while others wait, and in all: characters of the quote times characters of the text.
_AT_A_TIME, _IN_ALL = 4_000_000, 100_000_000
# The ends of a longer quote are looked for one by one.
_LONG, _END = 1_000, 500


class QuoteMatch(NamedTuple):
    """Where a quote stands; ``surroundings`` is how much of them is as it was, ``ties`` how many places fit as well."""

    start: int
    end: int
    surroundings: float
    ties: int = 1


class NearQuote(NamedTuple):
    """What a quote may have become, and how much it is like that."""

    start: int
    end: int
    likeness: float


def find_quote(quote: TextQuote, text: str, near: int | None = None) -> QuoteMatch | None:
    """Return where the words of a quote stand: where the surroundings fit best and, of those, nearest to ``near``."""
    whole = quote.prefix + quote.exact + quote.suffix
    indent, size = len(quote.prefix), len(quote.exact)
    expected = near or 0
    fitting = [start + indent for start in _places(whole, text, max(0, expected - indent))]
    surroundings = 1.0
    if not fitting:
        scored = [(surroundings_at(quote, text, start), start) for start in _places(quote.exact, text, expected)]
        surroundings = max((score for score, _ in scored), default=0.0)
        fitting = [start for score, start in scored if score == surroundings]
    if not fitting:
        return None
    start = min(fitting, key=lambda place: (abs(place - expected), place))
    return QuoteMatch(start, start + size, surroundings, len(fitting))


def surroundings_at(quote: TextQuote, text: str, start: int) -> float:
    """Return how much of what stood around a quote stands around a place, from 0 to 1."""
    end = start + len(quote.exact)
    prefix, suffix = quote.prefix[-_AROUND:], quote.suffix[:_AROUND]
    if not prefix and not suffix:
        return 1.0
    before = _alike(prefix[::-1], text[max(0, start - len(prefix)) : start][::-1])
    after = _alike(suffix, text[end : end + len(suffix)])
    return (before + after) / (len(prefix) + len(suffix))


def find_near(exact: str, text: str, near: int | None = None) -> NearQuote | None:
    """Return what a quote has become: what is nearly like it close to where it was, or most like it anywhere else.

    Of a long text only so much is looked through as can be in a second or two.
    """
    if len(exact) < _SHORTEST_NEAR:
        return None
    find = _aligned if len(exact) <= _LONG else _between_ends
    at = min(near or 0, len(text))
    around = (max(0, at - len(exact)), at + 2 * len(exact))
    return (None if near is None else find(exact, text, *around)) or find(exact, text, *_reach(exact, text, at))


def likeness(one: str, other: str) -> float:
    """Return how much two texts are alike, from 0 to 1; 0 if that is not near."""
    return fuzz.ratio(one, other, score_cutoff=NEAR * 100) / 100


def _reach(exact: str, text: str, at: int) -> tuple[int, int]:
    """Return the part of a text around a place that there is time to look through."""
    width = _IN_ALL // min(len(exact), _LONG)
    start = max(0, min(at - width // 2, len(text) - width))
    return start, start + width


def _aligned(exact: str, text: str, start: int, end: int) -> NearQuote | None:
    """Return what is most like a quote in a part of a text, looked through piece by piece."""
    end, best = min(end, len(text)), None
    step = max(len(exact), _AT_A_TIME // len(exact))
    for begin in range(start, end, step):
        piece = text[begin : min(begin + step + len(exact), end)]
        found = _in_piece(exact, piece, begin)
        if found is not None and (best is None or found.likeness > best.likeness):
            best = found
    return best


def _in_piece(exact: str, piece: str, begin: int) -> NearQuote | None:
    if len(piece) < len(exact):
        alike = likeness(exact, piece)
        return NearQuote(begin, begin + len(piece), alike) if alike else None
    found = fuzz.partial_ratio_alignment(exact, piece, score_cutoff=NEAR * 100)
    return None if found is None else NearQuote(begin + found.dest_start, begin + found.dest_end, found.score / 100)


def _between_ends(exact: str, text: str, start: int, end: int) -> NearQuote | None:
    first = _aligned(exact[:_END], text, start, end)
    last = None if first is None else _aligned(exact[-_END:], text, first.end, first.start + 2 * len(exact))
    if first is None or last is None:
        return None
    alike = likeness(exact, text[first.start : last.end])
    return NearQuote(first.start, last.end, alike) if alike else None


def _places(words: str, text: str, near: int) -> list[int]:
    """Return where words stand: so many places before another one and so many from it on."""
    most = max(1, min(_MOST_PLACES, _FOUND_IN_ALL // len(words)))
    return [*_before(words, text, near, most), *islice(_each(words, text, near, len(text), 1), most)]


def _before(words: str, text: str, near: int, most: int) -> list[int]:
    """Return the last places before another one, looked for further and further away from it.

    Far away, what overlaps with a place is left out: it would take as long as all places are long together.
    """
    found: list[int] = []
    end, width, step = min(near, len(text)), most, 1
    while end > 0 and len(found) < most:
        start = max(0, end - width)
        found = [*_each(words, text, start, end + len(words) - 1, step), *found]
        end, width, step = start, 2 * width, len(words)
    return found[-most:]


def _each(words: str, text: str, start: int, end: int, step: int) -> Iterator[int]:
    # Not backwards: only looking forwards takes no longer than a text is long, whatever it is made of.
    place = text.find(words, start, end)
    while place >= 0:
        yield place
        place = text.find(words, place + step, end)


def _alike(one: str, other: str) -> int:
    """Return with how many characters both begin alike."""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return min(len(one), len(other))
