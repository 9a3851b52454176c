"""Fuzzy ranking of messages for a query, over an in-memory inverted index of what one audience may read."""

from __future__ import annotations

import heapq
import math
import threading
from array import array
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import chain, islice
from sys import getsizeof
from typing import Any, Literal, NamedTuple

from rapidfuzz import fuzz, process

from weftline.indexing.text_analysis import query_words, stem, strip_accents, tokens, words

# In-memory inverted index of the messages of one audience; append-only.

# Whole texts are only compared in small sessions; a larger index does not store them.
MAX_WHOLE_TEXTS = 20_000
MAX_TEXT_BYTES = 32 * 1024 * 1024
# Maximum searched length of metadata.
METADATA_CHARACTERS = 4_096
# Maximum tokens and stems of a field, about 100,000 words; later messages are found by known words only.
MAX_VOCABULARY = 200_000
# Shorter words match too many others by prefix or spelling.
MIN_FUZZY_LENGTH = 4
_MIN_COMPARED_LENGTH = MIN_FUZZY_LENGTH - 1
# Minimum RapidFuzz ratio of similar words, if the query word does not occur, and if it does.
MIN_RATIO = 75.0
_MIN_RATIO_OF_KNOWN = 85.0
# Minimum similarity of a word that continues the query word (auth, authentication), or that abbreviates it.
_CONTINUATION_RATIO = 80.0
_ABBREVIATION_RATIO = 70.0
_MAX_SIMILAR_PER_LENGTH = 8
# A short prefix has very many continuations: only the most similar are used.
MAX_EXPANSIONS = 40
# Maximum words of one prefix or length that are compared; further ones only match exactly.
MAX_COMPARED = 10_000
# Longer tokens, or of more words, rarely recur and are not cached.
_MAX_CACHED_TOKEN = 24
_MAX_CACHED_WORDS = 6
# Measured memory sizes, without the caches of text analysis.
_BYTES_PER_MESSAGE = 100
_BYTES_PER_TOKEN = 130
_BYTES_PER_STEM = 125
_BYTES_PER_WORD = 50
_BYTES_PER_PREFIX = 80
_BYTES_PER_ARRAY = 100
_BYTES_PER_POSTING = 5


def _prefix(root: str) -> str:
    return root[:3] if root.isalpha() else root[:6]


class Similarity(NamedTuple):
    """Similarity of two words, from 0 to 100; ``fuzzy`` if by spelling, not by prefix."""

    ratio: float
    fuzzy: bool


class SimilarStems(NamedTuple):
    """Similar stems, and how many words were compared to find them."""

    words: int
    similar: list[tuple[str, Similarity]]


class Vocabulary(dict[str, tuple[int, ...]]):
    """Maps each token of a field to its stem numbers, and each stem to its posting list."""

    __slots__ = (
        "_arrays",
        "_by_length",
        "_by_prefix",
        "_position",
        "_posting_lists",
        "_postings",
        "_stem_numbers",
    )

    def __init__(self) -> None:
        super().__init__()
        # Number of each stem: its index in the posting lists.
        self._stem_numbers: dict[str, int] = {}
        # Most stems occur in one message only: then its position is stored without a list.
        self._posting_lists: list[array[int] | int] = []
        self._position = 0
        # Likewise most prefixes of numbers and identifiers occur once.
        self._by_prefix: dict[str, list[str] | str] = {}
        self._by_length: defaultdict[int, dict[str, None]] = defaultdict(dict)
        self._arrays = self._postings = 0

    def __missing__(self, token: str) -> tuple[int, ...]:
        if len(self) + len(self._stem_numbers) >= MAX_VOCABULARY:
            same_length = map(self._stem_numbers.get, map(stem, words(token)))
            return tuple(number for number in same_length if number is not None)
        numbers = tuple(map(self._add_word, words(token)))
        if len(token) <= _MAX_CACHED_TOKEN and len(numbers) <= _MAX_CACHED_WORDS:
            self[token] = numbers
        return numbers

    def _add_word(self, word: str) -> int:
        root = stem(word)
        number = self._stem_numbers.get(root)
        if number is None:
            number = self._stem_numbers[root] = len(self._posting_lists)
            self._posting_lists.append(self._position)
            # Shorter stems, such as bigrams of unspaced scripts, are not compared by spelling.
            if len(root) >= _MIN_COMPARED_LENGTH:
                self._add_to_prefix(root)
        # Numbers and identifiers are unlimited, and similar ones are different.
        if len(word) >= _MIN_COMPARED_LENGTH and word.isalpha():
            same_length = self._by_length[len(word)]
            if len(same_length) < MAX_COMPARED:
                same_length[word] = None
        return number

    def _add_to_prefix(self, root: str) -> None:
        prefix = _prefix(root)
        bucket = self._by_prefix.setdefault(prefix, root)
        if isinstance(bucket, list):
            if len(bucket) < MAX_COMPARED:
                bucket.append(root)
        elif bucket != root:
            self._by_prefix[prefix] = [bucket, root]

    def add(self, position: int, text: str) -> int:
        """Add the words of a message; return how many distinct ones it has."""
        self._position = position
        posting_lists = self._posting_lists
        # No Python loop: this lookup takes nearly all of the time of indexing.
        numbers = set(chain.from_iterable(map(self.__getitem__, tokens(text))))
        for number in numbers:
            postings = posting_lists[number]
            if isinstance(postings, array):
                postings.append(position)
            elif postings != position:
                posting_lists[number] = array("I", (postings, position))
                self._arrays += 1
        self._postings += len(numbers)
        return len(numbers)

    @property
    def weight(self) -> int:
        """Return the approximate size in bytes."""
        return (
            len(self) * _BYTES_PER_TOKEN
            + len(self._stem_numbers) * _BYTES_PER_STEM
            + len(self._by_prefix) * _BYTES_PER_PREFIX
            + sum(map(len, self._by_length.values())) * _BYTES_PER_WORD
            + self._arrays * _BYTES_PER_ARRAY
            + self._postings * _BYTES_PER_POSTING
        )

    def posting_list(self, root: str) -> Sequence[int]:
        """Return the positions of the messages that contain a stem, in order."""
        number = self._stem_numbers.get(root)
        if number is None:
            return ()
        postings = self._posting_lists[number]
        return postings if isinstance(postings, array) else (postings,)

    def with_same_start(self, root: str) -> Iterator[SimilarStems]:
        """Yield the stems with the same prefix that are spelled similarly, or that continue this one."""
        same_prefix = self._by_prefix.get(_prefix(root), ())
        bucket = (same_prefix,) if isinstance(same_prefix, str) else same_prefix
        similar = _similar_words(root, bucket, _MIN_RATIO_OF_KNOWN, MAX_EXPANSIONS)
        if len(root) >= MIN_FUZZY_LENGTH:
            continuations = [other for other in bucket if other.startswith(root)]
            ratios = process.extract(root, continuations, scorer=fuzz.ratio, limit=MAX_EXPANSIONS)
            similar += [(other, Similarity(max(_CONTINUATION_RATIO, ratio), fuzzy=False)) for other, ratio, _ in ratios]
        yield SimilarStems(len(bucket), similar)

    def spelled_similarly(self, word: str) -> Iterator[SimilarStems]:
        """Yield the stems of words spelled similarly, with the same prefix, or that abbreviate this one."""
        length_ratio = MIN_RATIO / (200 - MIN_RATIO)
        lengths = range(int(len(word) * length_ratio), int(len(word) / length_ratio) + 1) if word.isalpha() else ()
        for length in lengths:
            if same_length := self._by_length.get(length):
                found = _similar_words(word, same_length.keys(), MIN_RATIO, _MAX_SIMILAR_PER_LENGTH)
                yield SimilarStems(len(same_length), [(stem(other), similar) for other, similar in found])
        root = stem(word)
        yield from self.with_same_start(root)
        yield SimilarStems(len(root), list(self._abbreviations(root)))

    def _abbreviations(self, root: str) -> Iterator[tuple[str, Similarity]]:
        for length in range(MIN_FUZZY_LENGTH, len(root) if root.isalpha() else 0):
            if root[:length] in self._stem_numbers:
                yield root[:length], Similarity(max(_ABBREVIATION_RATIO, fuzz.ratio(root, root[:length])), fuzzy=True)


def _similar_words(word: str, others: Collection[str], min_ratio: float, limit: int) -> list[tuple[str, Similarity]]:
    found = process.extract(word, others, scorer=fuzz.ratio, score_cutoff=min_ratio, limit=limit)
    return [(other, Similarity(ratio, fuzzy=True)) for other, ratio, _ in found]


class MessageIndex:
    """Inverted index of one audience of a session; messages are added in order of their ids."""

    __slots__ = (
        "__weakref__",
        "_text_bytes",
        "_words",
        "content",
        "ids",
        "keeps_texts",
        "lengths",
        "lock",
        "metadata",
        "texts",
    )

    def __init__(self) -> None:
        # Held to add a message, and for each step of a search.
        self.lock = threading.Lock()
        self.ids = array("Q")
        self.lengths = array("I")
        self.content = Vocabulary()
        self.metadata = Vocabulary()
        self.texts: list[tuple[str, str]] = []
        self.keeps_texts = True
        self._text_bytes = 0
        self._words = 0

    def add(self, message_id: int, text: str, metadata_text: str) -> None:
        position = len(self.ids)
        length = self.content.add(position, text)
        if metadata_text:
            self.metadata.add(position, metadata_text)
        self.ids.append(message_id)
        self.lengths.append(length)
        self._words += length
        self._store_text(text, metadata_text)

    def _store_text(self, text: str, metadata_text: str) -> None:
        if not self.keeps_texts:
            return
        self.texts.append((text, metadata_text))
        self._text_bytes += getsizeof(text) + getsizeof(metadata_text)
        if len(self.texts) > MAX_WHOLE_TEXTS or self._text_bytes > MAX_TEXT_BYTES:
            self.texts, self._text_bytes, self.keeps_texts = [], 0, False

    @property
    def size(self) -> int:
        """Return the number of messages."""
        return len(self.ids)

    @property
    def last_id(self) -> int:
        """Return the id of the newest message; 0 if there is none."""
        return self.ids[-1] if self.ids else 0

    @property
    def words(self) -> int:
        """Return the sum of distinct words per message."""
        return self._words

    @property
    def weight(self) -> int:
        """Return the approximate size in bytes."""
        fields = self.content.weight + self.metadata.weight
        return fields + self._text_bytes + len(self.ids) * _BYTES_PER_MESSAGE


def metadata_text(metadata: dict[str, Any]) -> str:
    """Return keys and scalar values of nested metadata as one searchable text, truncated."""
    found: list[str] = []
    pending: list[object] = [metadata]
    remaining = METADATA_CHARACTERS
    # Empty containers count towards the limit too, because they take time.
    while pending and remaining > 0:
        remaining -= 1
        match pending.pop():
            case dict() as entries:
                pending.extend(
                    part for entry in reversed([*islice(entries.items(), remaining)]) for part in reversed(entry)
                )
            case list() | tuple() as items:
                pending.extend(reversed(items[:remaining]))
            case str() | int() | float() as plain:
                found.append(str(plain)[:remaining])
                remaining -= len(found[-1])
    return " ".join(found)


# Ranking of messages for a query, from 0 to 100.
#
# Query words are looked up in the inverted index. The same stem counts fully; a continuation, an abbreviation or a
# similarly spelled word counts by its RapidFuzz ratio. Words are weighted by inverse document frequency. Matches in
# the previous or next message count half, because an answer seldom repeats its question.
#
# - share: the matched share of the query's weight. A message with every word of the query scores 100. - evidence: the
# matched weight relative to twice the weight that identifies one message among all. So two or three rare words are
# enough for a long question, and a few common words are not. - score = 100 * (1 - (1 - share) * (1 - evidence));
# partial matches count a little less in a long message.
#
# If no word matches, RapidFuzz compares whole texts, which finds words that are joined or split. All statistics cover
# the given indexes only, so a score reveals nothing about other messages.

MatchedBy = Literal["words", "fuzzy", "both"]

_NEIGHBOUR_WEIGHT = 0.5
_EVIDENCE_FACTOR = 2.0
_LENGTH_PENALTY = 0.1
# Of a very long query, the rarest words are enough.
MAX_WORDS = 32
# In a very large session, common words only refine the matches of rarer ones,
_MAX_POSITIONS = 100_000
# and only the most promising messages are scored.
_MAX_SCORED = 2_000
# About half the letters of any two texts match by chance.
_CHANCE_RATIO = 50.0
# RapidFuzz needs milliseconds per message, not microseconds, to find a longer text within another.
_MAX_PARTIAL_RATIO_LENGTH = 64
# Normalisation can expand a character to eighteen; more than twice a message's length is not compared.
_MAX_CHARACTERS = 20_000
# Bits per query word: one for the word itself and one for each expansion.
_BITS_PER_WORD = 1 + MAX_EXPANSIONS
_WORD_MASK = (1 << _BITS_PER_WORD) - 1
# Fixed cost of comparing a text or a word list.
_TEXT_COST = 50
_COMPARISON_COST = 50
# Minimum score of any result, whatever the threshold.
_MIN_SCORE = 0.1

# Work per step of each kind: a few milliseconds.
WORDS_PER_STEP = 10_000
POSITIONS_PER_STEP = 10_000
SCORED_PER_STEP = 250
CHARACTERS_PER_STEP = 50_000


class StepBudget:
    """Counts units of work; tells when a step is used up."""

    __slots__ = ("_limit", "_spent")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._spent = 0

    def spend(self, units: int) -> bool:
        """Count work; return whether the step is used up, and start the next."""
        self._spent += units
        if self._spent < self._limit:
            return False
        self._spent = 0
        return True


class MessageHit(NamedTuple):
    """A matching message; matched by the query's words, by similar words or text, or by both."""

    message_id: int
    score: float
    matched_by: MatchedBy


Pauses = Generator[None, None, None]
Steps = Generator[None, None, list[MessageHit]]


class _Expansion(NamedTuple):
    """A stem that matches a query word, its weight, and whether it matches by spelling only."""

    root: str
    weight: float
    fuzzy: bool


class _QueryWord(NamedTuple):
    """A query word: its weight and its expansions, highest weight first."""

    weight: float
    expansions: list[_Expansion]


class _Matches:
    """Matches in one index by position: a bit for each expansion, and the total weight."""

    __slots__ = ("bits", "weight")

    def __init__(self) -> None:
        self.bits: dict[int, int] = {}
        self.weight: dict[int, float] = {}


def search(
    indexes: Sequence[MessageIndex], query: str, *, threshold: float, limit: int, with_metadata: bool
) -> list[MessageHit]:
    """Return the best messages with at least the threshold; newer ones first among equals."""
    steps = search_in_steps(indexes, query, threshold=threshold, limit=limit, with_metadata=with_metadata)
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            hits: list[MessageHit] = finished.value
            return hits


def search_in_steps(
    indexes: Sequence[MessageIndex], query: str, *, threshold: float, limit: int, with_metadata: bool
) -> Steps:
    """Search in steps of a few milliseconds: yields between steps, and returns the hits."""
    hits = yield from _by_words(indexes, query, threshold, limit, with_metadata=with_metadata)
    if not hits and sum(index.size for index in indexes) <= MAX_WHOLE_TEXTS:
        hits = yield from _by_whole_text(indexes, query, threshold, limit, with_metadata=with_metadata)
    return hits


def _by_words(
    indexes: Sequence[MessageIndex], query: str, threshold: float, limit: int, *, with_metadata: bool
) -> Steps:
    fields = _SearchedFields(indexes, with_metadata=with_metadata)
    expanded: list[_QueryWord] = []
    for root, word in fields.rarest_words({stem(word): word for word in query_words(query)}):
        expanded.append((yield from fields.expand(root, word)))
    # Rarest first: the common words only refine them.
    expanded.sort(key=lambda word: word.weight, reverse=True)
    matches = [_Matches() for _ in indexes]
    yield from fields.record(matches, expanded)
    scorer = _Scorer(expanded, fields)
    hits: list[MessageHit] = []
    for index, found in zip(indexes, matches, strict=True):
        hits += yield from scorer.score_matches(index, found, max(threshold, _MIN_SCORE))
    return _best(hits, limit)


def _best(hits: Iterable[MessageHit], limit: int) -> list[MessageHit]:
    return heapq.nlargest(limit, hits, key=lambda hit: (hit.score, hit.message_id))


class _SearchedFields:
    """The searched fields with their statistics."""

    def __init__(self, indexes: Sequence[MessageIndex], *, with_metadata: bool) -> None:
        self.size = sum(index.size for index in indexes)
        self.mean_length = sum(index.words for index in indexes) / max(1, self.size)
        self._fields = [
            (number, field)
            for number, index in enumerate(indexes)
            for field in ((index.content, index.metadata) if with_metadata else (index.content,))
        ]
        self._budget = StepBudget(WORDS_PER_STEP)

    def rarest_words(self, stems: dict[str, str]) -> Iterable[tuple[str, str]]:
        """Return the query words by stem; if there are too many, the rarest that occur."""
        if len(stems) <= MAX_WORDS:
            return stems.items()
        return heapq.nsmallest(MAX_WORDS, stems.items(), key=lambda word: self._frequency(word[0]) or self.size + 1)

    def expand(self, root: str, word: str) -> Generator[None, None, _QueryWord]:
        """Return a query word with its expansions."""
        frequency = self._frequency(root)
        similar = yield from self._similar(root, word, known=frequency > 0)
        if frequency == 0 and similar:
            frequency = self._frequency(max(similar, key=lambda other: similar[other].ratio))
        weight = self._weight(frequency)
        expansions = [
            _Expansion(other, min(weight, self._weight(self._frequency(other))) * found.ratio / 100, found.fuzzy)
            for other, found in similar.items()
        ]
        expansions.sort(key=lambda expansion: expansion.weight, reverse=True)
        return _QueryWord(weight, [_Expansion(root, weight, fuzzy=False), *expansions])

    def _similar(self, root: str, word: str, *, known: bool) -> Generator[None, None, dict[str, Similarity]]:
        if len(word) < MIN_FUZZY_LENGTH:
            return {}
        # A word that does not occur may be misspelt in any way; a known one may be misspelt by others.
        look = Vocabulary.with_same_start if known else Vocabulary.spelled_similarly
        found: list[tuple[str, Similarity]] = []
        for _, field in self._fields:
            for compared in look(field, root if known else word):
                found += compared.similar
                if self._budget.spend(compared.words + _COMPARISON_COST):
                    yield
        found.sort(key=lambda pair: (pair[1].ratio, not pair[1].fuzzy))
        return dict(pair for pair in found[-MAX_EXPANSIONS:] if pair[0] != root)

    def _frequency(self, root: str) -> int:
        return sum(len(field.posting_list(root)) for _, field in self._fields)

    def _weight(self, frequency: int) -> float:
        frequency = min(max(frequency, 1), self.size)
        return math.log(1 + (self.size - frequency + 0.5) / (frequency + 0.5))

    def record(self, matches: Sequence[_Matches], expanded: Sequence[_QueryWord]) -> Pauses:
        """Record each expansion at every message that contains it, and the total weight of each message."""
        budget = StepBudget(POSITIONS_PER_STEP)
        for word, (_, expansions) in enumerate(expanded):
            for bit, expansion in enumerate(expansions, word * _BITS_PER_WORD):
                for number, field in self._fields:
                    for batch in _newest_first(field.posting_list(expansion.root)):
                        _record(matches[number], batch, 1 << bit, expansion.weight, _WORD_MASK << word * _BITS_PER_WORD)
                        if budget.spend(len(batch)):
                            yield


def _newest_first(positions: Sequence[int]) -> Iterator[Sequence[int]]:
    # Newest first: these are kept if there are too many.
    for end in range(len(positions), 0, -POSITIONS_PER_STEP):
        yield positions[max(0, end - POSITIONS_PER_STEP) : end]


def _record(matches: _Matches, positions: Iterable[int], bit: int, weight: float, word: int) -> None:
    bits, weights = matches.bits, matches.weight
    if len(bits) >= _MAX_POSITIONS:
        positions = [position for position in positions if position in bits]
    for position in positions:
        known = bits.get(position, 0)
        bits[position] = known | bit
        # Expansions are recorded in order of weight, so only the first of a word counts.
        if not known & word:
            weights[position] = weights.get(position, 0.0) + weight


class _Scorer:
    """Computes scores from recorded expansions."""

    def __init__(self, expanded: Sequence[_QueryWord], fields: _SearchedFields) -> None:
        self._weights = [[expansion.weight for expansion in word.expansions] for word in expanded]
        self._fuzzy, self._exact = _bits_of(expanded, fuzzy=True), _bits_of(expanded, fuzzy=False)
        self._total_weight = sum(word.weight for word in expanded)
        self._identifying_weight = _EVIDENCE_FACTOR * math.log(fields.size + 1)
        self._mean_length = fields.mean_length
        self._cache: dict[tuple[int, int], float] = {}

    def score_matches(self, index: MessageIndex, matches: _Matches, threshold: float) -> Steps:
        """Return the messages that reach the threshold."""
        budget = StepBudget(SCORED_PER_STEP)
        bits_at = matches.bits.get
        hits: list[MessageHit] = []
        for position in (yield from _candidates(matches)):
            bits_here = matches.bits[position]
            found = self._cached_weight(bits_here, bits_at(position - 1, 0) | bits_at(position + 1, 0))
            score = self._score(found, index.lengths[position])
            if score >= threshold:
                hits.append(MessageHit(index.ids[position], score, self._matched_by(bits_here)))
            if budget.spend(1):
                yield
        return hits

    def _cached_weight(self, bits_here: int, bits_around: int) -> float:
        """Return the weight of the expansions of a message and of its neighbours."""
        found = self._cache.get((bits_here, bits_around))
        if found is None:
            found = self._cache[bits_here, bits_around] = self._matched_weight(bits_here, bits_around)
        return found

    def _matched_weight(self, bits_here: int, bits_around: int) -> float:
        found = 0.0
        for weights in self._weights:
            here, near = bits_here & _WORD_MASK, bits_around & _WORD_MASK
            # The lowest bit is the expansion with the highest weight.
            weight = weights[(here & -here).bit_length() - 1] if here else 0.0
            neighbour_weight = weights[(near & -near).bit_length() - 1] * _NEIGHBOUR_WEIGHT if near else 0.0
            found += max(weight, neighbour_weight)
            bits_here >>= _BITS_PER_WORD
            bits_around >>= _BITS_PER_WORD
        return found

    def _score(self, found: float, length: int) -> float:
        share = found / self._total_weight
        found *= 1 - _LENGTH_PENALTY * (1 - share) * length / (length + self._mean_length)
        missing = (1 - found / self._total_weight) * (1 - min(1.0, found / self._identifying_weight))
        return round(100 * (1 - missing), 1)

    def _matched_by(self, bits_here: int) -> MatchedBy:
        if bits_here & self._fuzzy:
            return "both" if bits_here & self._exact else "fuzzy"
        return "words"


def _bits_of(expanded: Sequence[_QueryWord], *, fuzzy: bool) -> int:
    return sum(
        1 << bit
        for word, (_, expansions) in enumerate(expanded)
        for bit, expansion in enumerate(expansions, word * _BITS_PER_WORD)
        if expansion.fuzzy is fuzzy
    )


def _candidates(matches: _Matches) -> Generator[None, None, list[int]]:
    """Return the messages with the highest weights, newest first among equals."""
    if len(matches.weight) <= _MAX_SCORED:
        return list(matches.weight)
    best: list[tuple[float, int]] = []
    # In reverse order: newest first.
    pending = ((weight, position) for position, weight in reversed(matches.weight.items()))
    while batch := list(islice(pending, POSITIONS_PER_STEP)):
        best = heapq.nlargest(_MAX_SCORED, chain(best, batch))
        yield
    return [position for _, position in best]


def _by_whole_text(
    indexes: Sequence[MessageIndex], query: str, threshold: float, limit: int, *, with_metadata: bool
) -> Steps:
    query_text = strip_accents(query.strip()).casefold()
    budget = StepBudget(CHARACTERS_PER_STEP)
    hits: list[MessageHit] = []
    for message_id, texts in _texts(indexes) if query_text else ():
        compared = [_normalised(text) for text in (texts if with_metadata else texts[:1]) if text]
        score = max([_text_similarity(query_text, text) for text in compared], default=0.0)
        if score >= max(threshold, _MIN_SCORE):
            hits.append(MessageHit(message_id, score, "fuzzy"))
        if budget.spend(sum(map(len, compared)) + _TEXT_COST):
            yield
    return _best(hits, limit)


def _texts(indexes: Sequence[MessageIndex]) -> list[tuple[int, tuple[str, str]]]:
    # Copied: messages may be added between two steps.
    return [pair for index in indexes for pair in zip(index.ids, index.texts, strict=False)]


def _normalised(text: str) -> str:
    return strip_accents(text)[:_MAX_CHARACTERS].casefold()


def _text_similarity(query_text: str, text: str) -> float:
    compare = fuzz.partial_ratio if len(query_text) <= min(len(text), _MAX_PARTIAL_RATIO_LENGTH) else fuzz.ratio
    ratio = compare(query_text, text)
    return round(max(0.0, ratio - _CHANCE_RATIO) * 100 / (100 - _CHANCE_RATIO), 1)
