"""Which messages answer a query, and how well, from 0 to 100.

The words of the query are looked up among the words of the messages. The same stem counts fully; a longer or a
shorter form, or a word spelled like it, as much as RapidFuzz finds the two alike. A word weighs more the fewer messages
hold it. What stands in the message before or after counts half, since an answer seldom repeats its question.

- share: how much of the query's weight was found. A message that holds every word of the query scores 100.
- evidence: the weight found, beside twice what it takes to tell one message from all the others. So two or three
  telling words are enough for a long question, and a few everyday words are not.
- score = 100 * (1 - (1 - share) * (1 - evidence)); what was found in part counts a little less in a long message.

Where words find nothing, RapidFuzz compares whole texts: that finds words wrongly joined or cut.
Everything is counted over the given indexes alone, so a score tells nothing about messages in any other.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import count
from typing import Literal, NamedTuple

from rapidfuzz import fuzz

from weft.capabilities.search.index import MOST_WHOLE_TEXTS, SHORTEST_FUZZY, Alike, Index, Vocabulary
from weft.capabilities.search.words import folded, stem, telling_words

MatchedBy = Literal["words", "fuzzy", "both"]

_BESIDE = 0.5
_TELLING = 2.0
_LENGTH_MATTERS = 0.1
# In a huge session, words that very many messages hold only refine what rarer words have found,
_MOST_PLACES = 100_000
# and only the most promising places are looked at closely.
_MOST_CLOSE_LOOKS = 2_000
# About half the letters of any two texts agree by chance.
_CHANCE = 50.0
# Looking for a longer text inside another costs RapidFuzz milliseconds a message, not microseconds.
_LONGEST_PART = 64
_CHARACTERS_PER_STEP = 100_000
# A few letters begin very many words; these are tried, the most alike.
_MOST_MEANT = 40
# Whatever threshold is asked for, what has nothing in common with the query is no result.
_LEAST_SCORE = 0.1

# Where in an index something was found, and which clues: one bit each.
_Places = dict[int, int]


class Hit(NamedTuple):
    """A message that was found: by the query's own words, by words or text spelled like them, or by both."""

    message_id: int
    score: float
    matched_by: MatchedBy


Steps = Generator[None, None, list[Hit]]


class _Clue(NamedTuple):
    """A stem that a word of the query may mean, what finding it is worth, and its bit."""

    root: str
    worth: float
    fuzzy: bool
    bit: int


class _Sought(NamedTuple):
    """A word of the query: what it weighs, and what points to it."""

    weight: float
    clues: list[_Clue]


def search(indexes: Sequence[Index], query: str, *, threshold: float, limit: int, with_metadata: bool) -> list[Hit]:
    """Return the best messages at or over the threshold; of equals the newer first."""
    steps = search_in_steps(indexes, query, threshold=threshold, limit=limit, with_metadata=with_metadata)
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            hits: list[Hit] = finished.value
            return hits


def search_in_steps(
    indexes: Sequence[Index], query: str, *, threshold: float, limit: int, with_metadata: bool
) -> Steps:
    """Search a few milliseconds at a time: yield for others to have their turn, and return the answer."""
    hits = yield from _by_words(indexes, query, threshold, limit, with_metadata=with_metadata)
    if not hits and sum(index.size for index in indexes) <= MOST_WHOLE_TEXTS:
        hits = yield from _by_whole_text(indexes, query, threshold, limit, with_metadata=with_metadata)
    return hits


def _by_words(indexes: Sequence[Index], query: str, threshold: float, limit: int, *, with_metadata: bool) -> Steps:
    searched = _Searched(indexes, with_metadata=with_metadata)
    sought: list[_Sought] = []
    for root, word in {stem(word): word for word in telling_words(query)}.items():
        sought.append(searched.seek(root, word))
        yield
    places: list[_Places] = [{} for _ in indexes]
    for found in sorted(sought, key=lambda word: word.weight, reverse=True):
        searched.mark(places, found.clues)
        yield
    scale = _Scale(sought, searched)
    enough = max(threshold, _LEAST_SCORE)
    pairs = zip(indexes, places, strict=True)
    return _best((hit for index, where in pairs for hit in scale.judge(index, where, enough)), limit)


def _best(hits: Iterable[Hit], limit: int) -> list[Hit]:
    return heapq.nlargest(limit, hits, key=lambda hit: (hit.score, hit.message_id))


class _Searched:
    """All that one search may look at."""

    def __init__(self, indexes: Sequence[Index], *, with_metadata: bool) -> None:
        self.size = sum(index.size for index in indexes)
        self.mean_length = sum(index.words for index in indexes) / max(1, self.size)
        self._fields = [
            (number, field)
            for number, index in enumerate(indexes)
            for field in ((index.content, index.metadata) if with_metadata else (index.content,))
        ]
        self._bits = (1 << place for place in count())

    def seek(self, root: str, word: str) -> _Sought:
        """Find what a word of the query, and its stem, may mean here."""
        holders = self._holders(root)
        alike = self._alike(root, word, known=holders > 0)
        if holders == 0 and alike:
            holders = self._holders(max(alike, key=lambda other: alike[other].ratio))
        weight = self._weight(holders)
        clues = [
            _Clue(
                other,
                min(weight, self._weight(self._holders(other))) * found.ratio / 100,
                found.fuzzy,
                next(self._bits),
            )
            for other, found in alike.items()
        ]
        return _Sought(weight, [_Clue(root, weight, fuzzy=False, bit=next(self._bits)), *clues])

    def _alike(self, root: str, word: str, *, known: bool) -> dict[str, Alike]:
        if len(word) < SHORTEST_FUZZY:
            return {}
        # A word that nobody wrote may be misspelt anywhere; one that was written was at most misspelt by others.
        look = Vocabulary.beginning_like if known else Vocabulary.spelled_like
        found = [pair for _, field in self._fields for pair in look(field, root if known else word)]
        found.sort(key=lambda pair: (pair[1].ratio, not pair[1].fuzzy))
        return dict(pair for pair in found[-_MOST_MEANT:] if pair[0] != root)

    def _holders(self, root: str) -> int:
        return sum(len(field.holders(root)) for _, field in self._fields)

    def _weight(self, holders: int) -> float:
        held = min(max(holders, 1), self.size)
        return math.log(1 + (self.size - held + 0.5) / (held + 0.5))

    def mark(self, places: Sequence[_Places], clues: Iterable[_Clue]) -> None:
        """Note each clue at every place that holds it."""
        for root, _, _, bit in clues:
            for number, field in self._fields:
                found = places[number]
                holders = field.holders(root)
                if len(found) + len(holders) > _MOST_PLACES:
                    holders = [place for place in holders if place in found] if found else holders[-_MOST_PLACES:]
                for place in holders:
                    found[place] = found.get(place, 0) | bit


class _Scale:
    """What the clues at a place amount to."""

    def __init__(self, sought: Sequence[_Sought], searched: _Searched) -> None:
        self._sought = sought
        self._whole = sum(word.weight for word in sought)
        self._telling = _TELLING * math.log(searched.size + 1)
        self._mean_length = searched.mean_length
        self._worths_of: dict[int, tuple[float, ...]] = {}
        self._found_of: dict[tuple[int, int], float] = {}

    def judge(self, index: Index, places: _Places, threshold: float) -> Iterator[Hit]:
        """Yield the messages that come to the threshold."""
        beside = places.get
        for place, own in self._promising(places):
            found = self._found(own, beside(place - 1, 0) | beside(place + 1, 0))
            score = self._score(found, index.lengths[place])
            if score >= threshold:
                yield Hit(index.ids[place], score, self._matched_by(own))

    def _promising(self, places: _Places) -> Iterable[tuple[int, int]]:
        if len(places) <= _MOST_CLOSE_LOOKS:
            return places.items()
        worth = {own: self._found(own, 0) for own in set(places.values())}
        # Backwards, as the newest are the best of equals.
        ranked = ((worth[own], place, own) for place, own in reversed(places.items()))
        return [(place, own) for _, place, own in heapq.nlargest(_MOST_CLOSE_LOOKS, ranked)]

    def _found(self, own: int, beside: int) -> float:
        """Return the weight of the query's words at a place with these clues, and such clues beside it."""
        found = self._found_of.get((own, beside))
        if found is None:
            half = [worth * _BESIDE for worth in self._worths(beside)]
            found = self._found_of[own, beside] = sum(map(max, self._worths(own), half))
        return found

    def _worths(self, bits: int) -> tuple[float, ...]:
        """Return what these clues are worth, word by word."""
        worths = self._worths_of.get(bits)
        if worths is None:
            worths = self._worths_of[bits] = tuple(
                max((clue.worth for clue in word.clues if clue.bit & bits), default=0.0) for word in self._sought
            )
        return worths

    def _score(self, found: float, length: int) -> float:
        share = found / self._whole
        found *= 1 - _LENGTH_MATTERS * (1 - share) * length / (length + self._mean_length)
        missing = (1 - found / self._whole) * (1 - min(1.0, found / self._telling))
        return round(100 * (1 - missing), 1)

    def _matched_by(self, own: int) -> MatchedBy:
        kinds = {clue.fuzzy for word in self._sought for clue in word.clues if clue.bit & own}
        return "both" if len(kinds) > 1 else "fuzzy" if True in kinds else "words"


def _by_whole_text(indexes: Sequence[Index], query: str, threshold: float, limit: int, *, with_metadata: bool) -> Steps:
    wanted = folded(query.strip()).casefold()
    hits: list[Hit] = []
    unspoken = 0
    for message_id, texts in _texts(indexes) if wanted else ():
        score = max(_likeness(wanted, text) for text in (texts if with_metadata else texts[:1]))
        if score >= max(threshold, _LEAST_SCORE):
            hits.append(Hit(message_id, score, "fuzzy"))
        unspoken += len(texts[0])
        if unspoken > _CHARACTERS_PER_STEP:
            unspoken = 0
            yield
    return _best(hits, limit)


def _texts(indexes: Sequence[Index]) -> list[tuple[int, tuple[str, str]]]:
    # Copied, as messages may be added between two steps.
    return [pair for index in indexes for pair in zip(index.ids, index.texts, strict=False)]


def _likeness(wanted: str, text: str) -> float:
    compare = fuzz.partial_ratio if len(wanted) <= min(len(text), _LONGEST_PART) else fuzz.ratio
    ratio = compare(wanted, folded(text).casefold())
    return round(max(0.0, ratio - _CHANCE) * 100 / (100 - _CHANCE), 1)
