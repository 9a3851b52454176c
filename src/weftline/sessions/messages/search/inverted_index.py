"""In-memory inverted index of the messages of one audience; append-only."""

from __future__ import annotations

import threading
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from sys import getsizeof
from typing import Any, NamedTuple

from rapidfuzz import fuzz, process

from weftline.indexing.text_analysis import stem, tokens, words

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
