"""Which messages of one audience hold which words: kept in memory, only ever added to."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from sys import getsizeof
from typing import NamedTuple

from rapidfuzz import fuzz, process

from weft.capabilities.search.words import LONGEST_WORD, stem, tokens, words

# Whole texts are compared in small sessions only; an index that has outgrown that keeps no texts.
MOST_WHOLE_TEXTS = 20_000
# Words of few letters begin alike or look alike by chance.
SHORTEST_FUZZY = 4
# How alike RapidFuzz must find two words, from 0 to 100, if nobody wrote one of them, and if both were written.
LEAST_ALIKE = 75.0
_MISSPELT = 85.0
# Who asks for auth may mean authentication, and the other way round: these count at least so much.
_GOES_ON = 80.0
_SHORTENED = 70.0
_MOST_OF_A_LENGTH = 8
_BYTES_PER_MESSAGE = 100
_BYTES_PER_TOKEN = 420
_BYTES_PER_HOLDER = 5


def _start(root: str) -> str:
    return root[:3] if root.isalpha() else root[:6]


class Alike(NamedTuple):
    """How alike two words are, from 0 to 100, and whether by spelling or by going on."""

    ratio: float
    fuzzy: bool


class Vocabulary(dict[str, tuple[str, ...]]):
    """The stems of every token in one field of the messages, and the messages that hold each stem."""

    __slots__ = ("_by_length", "_by_start", "_held", "_holders")

    def __init__(self) -> None:
        super().__init__()
        self._holders: dict[str, array[int]] = {}
        self._by_start: dict[str, list[str]] = {}
        self._by_length: dict[int, dict[str, None]] = {}
        self._held = 0

    def __missing__(self, token: str) -> tuple[str, ...]:
        roots = tuple(map(self._learn, words(token)))
        if len(token) <= LONGEST_WORD:
            self[token] = roots
        return roots

    def _learn(self, word: str) -> str:
        root = stem(word)
        if root not in self._holders:
            self._holders[root] = array("I")
            self._by_start.setdefault(_start(root), []).append(root)
        # Numbers and identifiers are without number, and what looks like one of them is another.
        if word.isalpha():
            self._by_length.setdefault(len(word), {})[word] = None
        return root

    def add(self, place: int, text: str) -> int:
        """Note the words of the message at this place; return how many they are."""
        holders = self._holders
        # Looked up without a Python loop: this is nearly all the time that building an index takes.
        roots = set(chain.from_iterable(map(self.__getitem__, tokens(text))))
        for root in roots:
            holders[root].append(place)
        self._held += len(roots)
        return len(roots)

    @property
    def weight(self) -> int:
        return len(self) * _BYTES_PER_TOKEN + self._held * _BYTES_PER_HOLDER

    def holders(self, root: str) -> Sequence[int]:
        """Return the places of the messages that hold a word of this stem, in order."""
        return self._holders.get(root, ())

    def beginning_like(self, root: str) -> Iterator[tuple[str, Alike]]:
        """Yield the stems that begin and are spelled like this one, or that go on from it."""
        bucket = self._by_start.get(_start(root), ())
        for other, ratio, _ in process.extract(root, bucket, scorer=fuzz.ratio, score_cutoff=_MISSPELT, limit=None):
            yield other, Alike(ratio, fuzzy=True)
        if len(root) >= SHORTEST_FUZZY:
            for other in bucket:
                if other.startswith(root):
                    yield other, Alike(max(_GOES_ON, fuzz.ratio(root, other)), fuzzy=False)

    def spelled_like(self, word: str) -> Iterator[tuple[str, Alike]]:
        """Yield the stems of words that RapidFuzz finds alike, that begin like this one, or that shorten it."""
        furthest = LEAST_ALIKE / (200 - LEAST_ALIKE)
        lengths = range(int(len(word) * furthest), int(len(word) / furthest) + 1) if word.isalpha() else ()
        for length in lengths:
            alike = self._by_length.get(length, {}).keys()
            for known, ratio, _ in process.extract(
                word, alike, scorer=fuzz.ratio, score_cutoff=LEAST_ALIKE, limit=_MOST_OF_A_LENGTH
            ):
                yield stem(known), Alike(ratio, fuzzy=True)
        root = stem(word)
        yield from self.beginning_like(root)
        for length in range(SHORTEST_FUZZY, len(root) if root.isalpha() else 0):
            if root[:length] in self._holders:
                yield root[:length], Alike(max(_SHORTENED, fuzz.ratio(root, root[:length])), fuzzy=True)


class Index:
    """The messages of one audience of one session, added in the order of their ids."""

    __slots__ = ("__weakref__", "_text_bytes", "_words", "content", "ids", "lengths", "metadata", "texts")

    def __init__(self) -> None:
        self.ids = array("Q")
        self.lengths = array("I")
        self.content = Vocabulary()
        self.metadata = Vocabulary()
        self.texts: list[tuple[str, str]] = []
        self._text_bytes = 0
        self._words = 0

    def add(self, message_id: int, text: str, metadata_text: str) -> None:
        place = len(self.ids)
        length = self.content.add(place, text)
        if metadata_text:
            self.metadata.add(place, metadata_text)
        self.ids.append(message_id)
        self.lengths.append(length)
        self._words += length
        self._keep(text, metadata_text)

    def _keep(self, text: str, metadata_text: str) -> None:
        if len(self.ids) <= MOST_WHOLE_TEXTS:
            self.texts.append((text, metadata_text))
            self._text_bytes += getsizeof(text) + getsizeof(metadata_text)
        elif self.texts:
            self.texts, self._text_bytes = [], 0

    @property
    def size(self) -> int:
        """Return how many messages this holds."""
        return len(self.ids)

    @property
    def last_id(self) -> int:
        """Return the id of the newest message; 0 when there is none."""
        return self.ids[-1] if self.ids else 0

    @property
    def words(self) -> int:
        """Return how many words the messages have, each counted once a message."""
        return self._words

    @property
    def weight(self) -> int:
        """Return about how many bytes this holds."""
        fields = self.content.weight + self.metadata.weight
        return fields + self._text_bytes + len(self.ids) * _BYTES_PER_MESSAGE
