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
from itertools import chain, islice
from typing import Literal, NamedTuple

from rapidfuzz import fuzz

from weft.capabilities.indexing.text_analysis import query_words, stem, strip_accents
from weft.capabilities.messages.search.inverted_index import (
    MOST_MEANT,
    MOST_WHOLE_TEXTS,
    SHORTEST_FUZZY,
    Alike,
    Index,
    Vocabulary,
)
from weft.capabilities.messages.search.time_slices import Pace

MatchedBy = Literal["words", "fuzzy", "both"]

_BESIDE = 0.5
_TELLING = 2.0
_LENGTH_MATTERS = 0.1
# Of a very long query, the words that tell the most are enough.
MOST_WORDS = 32
# In a huge session, words that very many messages hold only refine what rarer words have found,
_MOST_PLACES = 100_000
# and only the most promising places are looked at closely.
_MOST_CLOSE_LOOKS = 2_000
# About half the letters of any two texts agree by chance.
_CHANCE = 50.0
# Looking for a longer text inside another costs RapidFuzz milliseconds a message, not microseconds.
_LONGEST_PART = 64
# A single character can stand for eighteen; more than twice a message's length is not compared.
_MOST_CHARACTERS = 20_000
# The word itself, and what else it may mean.
_BITS = 1 + MOST_MEANT
_WORD = (1 << _BITS) - 1
# What it costs to look at a text, or among words, however few there are.
_CHARACTERS_PER_TEXT = 50
_WORDS_PER_COMPARISON = 50
# Whatever threshold is asked for, what has nothing in common with the query is no result.
_LEAST_SCORE = 0.1

# How much is done in one step, of each kind of work: a few milliseconds.
WORDS_PER_STEP = 10_000
PLACES_PER_STEP = 10_000
CLOSE_LOOKS_PER_STEP = 250
CHARACTERS_PER_STEP = 50_000


class MessageHit(NamedTuple):
    """A message that was found: by the query's own words, by words or text spelled like them, or by both."""

    message_id: int
    score: float
    matched_by: MatchedBy


Pauses = Generator[None, None, None]
Steps = Generator[None, None, list[MessageHit]]


class _Meaning(NamedTuple):
    """A stem that a word of the query may mean, what finding it is worth, and whether it is only spelled like it."""

    root: str
    worth: float
    fuzzy: bool


class _Sought(NamedTuple):
    """A word of the query: what it weighs, and what it may mean, the most worth first."""

    weight: float
    meanings: list[_Meaning]


class _Places:
    """Where in one index something was found: which meanings of which words, a bit each, and what these are worth."""

    __slots__ = ("bits", "worth")

    def __init__(self) -> None:
        self.bits: dict[int, int] = {}
        self.worth: dict[int, float] = {}


def search(
    indexes: Sequence[Index], query: str, *, threshold: float, limit: int, with_metadata: bool
) -> list[MessageHit]:
    """Return the best messages at or over the threshold; of equals the newer first."""
    steps = search_in_steps(indexes, query, threshold=threshold, limit=limit, with_metadata=with_metadata)
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            hits: list[MessageHit] = finished.value
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
    for root, word in searched.most_telling({stem(word): word for word in query_words(query)}):
        sought.append((yield from searched.seek(root, word)))
    # The rarest first: these are what the common ones refine.
    sought.sort(key=lambda word: word.weight, reverse=True)
    places = [_Places() for _ in indexes]
    yield from searched.mark(places, sought)
    scale = _Scale(sought, searched)
    hits: list[MessageHit] = []
    for index, found in zip(indexes, places, strict=True):
        hits += yield from scale.judge(index, found, max(threshold, _LEAST_SCORE))
    return _best(hits, limit)


def _best(hits: Iterable[MessageHit], limit: int) -> list[MessageHit]:
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
        self._comparing = Pace(WORDS_PER_STEP)

    def most_telling(self, asked: dict[str, str]) -> Iterable[tuple[str, str]]:
        """Return the words to look for, by their stems: where there are too many, the rarest that were written."""
        if len(asked) <= MOST_WORDS:
            return asked.items()
        return heapq.nsmallest(MOST_WORDS, asked.items(), key=lambda word: self._holders(word[0]) or self.size + 1)

    def seek(self, root: str, word: str) -> Generator[None, None, _Sought]:
        """Find what a word of the query, and its stem, may mean here."""
        holders = self._holders(root)
        alike = yield from self._alike(root, word, known=holders > 0)
        if holders == 0 and alike:
            holders = self._holders(max(alike, key=lambda other: alike[other].ratio))
        weight = self._weight(holders)
        meanings = [
            _Meaning(other, min(weight, self._weight(self._holders(other))) * found.ratio / 100, found.fuzzy)
            for other, found in alike.items()
        ]
        meanings.sort(key=lambda meaning: meaning.worth, reverse=True)
        return _Sought(weight, [_Meaning(root, weight, fuzzy=False), *meanings])

    def _alike(self, root: str, word: str, *, known: bool) -> Generator[None, None, dict[str, Alike]]:
        if len(word) < SHORTEST_FUZZY:
            return {}
        # A word that nobody wrote may be misspelt anywhere; one that was written was at most misspelt by others.
        look = Vocabulary.beginning_like if known else Vocabulary.spelled_like
        found: list[tuple[str, Alike]] = []
        for _, field in self._fields:
            for compared in look(field, root if known else word):
                found += compared.alike
                if self._comparing.is_over(compared.words + _WORDS_PER_COMPARISON):
                    yield
        found.sort(key=lambda pair: (pair[1].ratio, not pair[1].fuzzy))
        return dict(pair for pair in found[-MOST_MEANT:] if pair[0] != root)

    def _holders(self, root: str) -> int:
        return sum(len(field.holders(root)) for _, field in self._fields)

    def _weight(self, holders: int) -> float:
        held = min(max(holders, 1), self.size)
        return math.log(1 + (self.size - held + 0.5) / (held + 0.5))

    def mark(self, places: Sequence[_Places], sought: Sequence[_Sought]) -> Pauses:
        """Note each meaning at every place that holds it, and what each place is worth by all of them."""
        pace = Pace(PLACES_PER_STEP)
        for word, (_, meanings) in enumerate(sought):
            for bit, meaning in enumerate(meanings, word * _BITS):
                for number, field in self._fields:
                    for some in _in_pieces(field.holders(meaning.root)):
                        _note(places[number], some, 1 << bit, meaning.worth, _WORD << word * _BITS)
                        if pace.is_over(len(some)):
                            yield


def _in_pieces(holders: Sequence[int]) -> Iterator[Sequence[int]]:
    # The newest first, as these are kept where there are too many.
    for end in range(len(holders), 0, -PLACES_PER_STEP):
        yield holders[max(0, end - PLACES_PER_STEP) : end]


def _note(places: _Places, holders: Iterable[int], bit: int, worth: float, word: int) -> None:
    bits, worths = places.bits, places.worth
    if len(bits) >= _MOST_PLACES:
        holders = [place for place in holders if place in bits]
    for place in holders:
        known = bits.get(place, 0)
        bits[place] = known | bit
        # What a word means is noted in the order of its worth, so the first is what counts.
        if not known & word:
            worths[place] = worths.get(place, 0.0) + worth


class _Scale:
    """What the meanings at a place amount to."""

    def __init__(self, sought: Sequence[_Sought], searched: _Searched) -> None:
        self._worths = [[meaning.worth for meaning in word.meanings] for word in sought]
        self._fuzzy, self._plain = _bits_of(sought, fuzzy=True), _bits_of(sought, fuzzy=False)
        self._whole = sum(word.weight for word in sought)
        self._telling = _TELLING * math.log(searched.size + 1)
        self._mean_length = searched.mean_length
        self._found_before: dict[tuple[int, int], float] = {}

    def judge(self, index: Index, places: _Places, threshold: float) -> Steps:
        """Return the messages that come to the threshold."""
        pace = Pace(CLOSE_LOOKS_PER_STEP)
        bits_at = places.bits.get
        hits: list[MessageHit] = []
        for place in (yield from _promising(places)):
            own = places.bits[place]
            found = self._found(own, bits_at(place - 1, 0) | bits_at(place + 1, 0))
            score = self._score(found, index.lengths[place])
            if score >= threshold:
                hits.append(MessageHit(index.ids[place], score, self._matched_by(own)))
            if pace.is_over(1):
                yield
        return hits

    def _found(self, own: int, beside: int) -> float:
        """Return the weight of the query's words at a place with these meanings, and such meanings beside it."""
        found = self._found_before.get((own, beside))
        if found is None:
            found = self._found_before[own, beside] = self._sum(own, beside)
        return found

    def _sum(self, own: int, beside: int) -> float:
        found = 0.0
        for worths in self._worths:
            here, near = own & _WORD, beside & _WORD
            # The lowest bit is the meaning that is worth the most.
            worth = worths[(here & -here).bit_length() - 1] if here else 0.0
            half = worths[(near & -near).bit_length() - 1] * _BESIDE if near else 0.0
            found += max(worth, half)
            own >>= _BITS
            beside >>= _BITS
        return found

    def _score(self, found: float, length: int) -> float:
        share = found / self._whole
        found *= 1 - _LENGTH_MATTERS * (1 - share) * length / (length + self._mean_length)
        missing = (1 - found / self._whole) * (1 - min(1.0, found / self._telling))
        return round(100 * (1 - missing), 1)

    def _matched_by(self, own: int) -> MatchedBy:
        if own & self._fuzzy:
            return "both" if own & self._plain else "fuzzy"
        return "words"


def _bits_of(sought: Sequence[_Sought], *, fuzzy: bool) -> int:
    return sum(
        1 << bit
        for word, (_, meanings) in enumerate(sought)
        for bit, meaning in enumerate(meanings, word * _BITS)
        if meaning.fuzzy is fuzzy
    )


def _promising(places: _Places) -> Generator[None, None, list[int]]:
    """Return the places that are worth the most by themselves, the newest of equals."""
    if len(places.worth) <= _MOST_CLOSE_LOOKS:
        return list(places.worth)
    best: list[tuple[float, int]] = []
    # Backwards, as the newest are the best of equals.
    waiting = ((worth, place) for place, worth in reversed(places.worth.items()))
    while some := list(islice(waiting, PLACES_PER_STEP)):
        best = heapq.nlargest(_MOST_CLOSE_LOOKS, chain(best, some))
        yield
    return [place for _, place in best]


def _by_whole_text(indexes: Sequence[Index], query: str, threshold: float, limit: int, *, with_metadata: bool) -> Steps:
    wanted = strip_accents(query.strip()).casefold()
    pace = Pace(CHARACTERS_PER_STEP)
    hits: list[MessageHit] = []
    for message_id, texts in _texts(indexes) if wanted else ():
        compared = [_folded(text) for text in (texts if with_metadata else texts[:1]) if text]
        score = max([_likeness(wanted, text) for text in compared], default=0.0)
        if score >= max(threshold, _LEAST_SCORE):
            hits.append(MessageHit(message_id, score, "fuzzy"))
        if pace.is_over(sum(map(len, compared)) + _CHARACTERS_PER_TEXT):
            yield
    return _best(hits, limit)


def _texts(indexes: Sequence[Index]) -> list[tuple[int, tuple[str, str]]]:
    # Copied, as messages may be added between two steps.
    return [pair for index in indexes for pair in zip(index.ids, index.texts, strict=False)]


def _folded(text: str) -> str:
    return strip_accents(text)[:_MOST_CHARACTERS].casefold()


def _likeness(wanted: str, text: str) -> float:
    compare = fuzz.partial_ratio if len(wanted) <= min(len(text), _LONGEST_PART) else fuzz.ratio
    ratio = compare(wanted, text)
    return round(max(0.0, ratio - _CHANCE) * 100 / (100 - _CHANCE), 1)
