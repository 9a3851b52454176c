"""Which messages of one audience hold which words: kept in memory, only ever added to."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from sys import getsizeof
from typing import Any, NamedTuple

from rapidfuzz import fuzz, process

from weft.capabilities.indexing.text_analysis import stem, tokens, words

# Whole texts are compared in small sessions only; an index that has outgrown that keeps no texts.
MOST_WHOLE_TEXTS = 20_000
MOST_TEXT_BYTES = 32 * 1024 * 1024
# Metadata is searched up to this length.
METADATA_CHARACTERS = 4_096
# Tokens and stems that are learned of one field, about 100,000 words: later messages are found by those that are known.
MOST_LEARNED = 200_000
# Words of few letters begin alike or look alike by chance.
SHORTEST_FUZZY = 4
_SHORTEST_COMPARED = SHORTEST_FUZZY - 1
# How alike RapidFuzz must find two words, from 0 to 100, if nobody wrote one of them, and if both were written.
LEAST_ALIKE = 75.0
_MISSPELT = 85.0
# Who asks for auth may mean authentication, and the other way round: these count at least so much.
_GOES_ON = 80.0
_SHORTENED = 70.0
_MOST_OF_A_LENGTH = 8
# A few letters begin very many words; these are tried, the most alike.
MOST_MEANT = 40
# Hardly a session has more words of one beginning or length; further ones are found as they are written only.
MOST_COMPARED = 10_000
# Tokens are looked up again and again, except long ones and those of very many words, which hardly come twice.
_LONGEST_REMEMBERED = 24
_MOST_WORDS_REMEMBERED = 6
# What Python takes for each of these, as measured.
_BYTES_PER_MESSAGE = 100
_BYTES_PER_TOKEN = 180
_BYTES_PER_STEM = 160
_BYTES_PER_WORD = 90
_BYTES_PER_START = 130
_BYTES_PER_ARRAY = 100
_BYTES_PER_HOLDER = 5


def _start(root: str) -> str:
    return root[:3] if root.isalpha() else root[:6]


class Alike(NamedTuple):
    """How alike two words are, from 0 to 100, and whether by spelling or by going on."""

    ratio: float
    fuzzy: bool


class Compared(NamedTuple):
    """How many words were compared, and those of them that are alike, by their stems."""

    words: int
    alike: list[tuple[str, Alike]]


class Vocabulary(dict[str, tuple[int, ...]]):
    """The stems of every token in one field of the messages, by number, and the messages that hold each stem."""

    __slots__ = ("_adding", "_arrays", "_by_length", "_by_start", "_held", "_holders", "_places")

    def __init__(self) -> None:
        super().__init__()
        # Where the holders of each stem stand among the places.
        self._holders: dict[str, int] = {}
        # Most stems are held by one message only: this is its place, as it is.
        self._places: list[array[int] | int] = []
        self._adding = 0
        # Likewise most numbers and identifiers begin as no other does.
        self._by_start: dict[str, list[str] | str] = {}
        self._by_length: defaultdict[int, dict[str, None]] = defaultdict(dict)
        self._arrays = self._held = 0

    def __missing__(self, token: str) -> tuple[int, ...]:
        if len(self) + len(self._holders) >= MOST_LEARNED:
            known = map(self._holders.get, map(stem, words(token)))
            return tuple(number for number in known if number is not None)
        numbers = tuple(map(self._learn, words(token)))
        if len(token) <= _LONGEST_REMEMBERED and len(numbers) <= _MOST_WORDS_REMEMBERED:
            self[token] = numbers
        return numbers

    def _learn(self, word: str) -> int:
        root = stem(word)
        number = self._holders.get(root)
        if number is None:
            number = self._holders[root] = len(self._places)
            self._places.append(self._adding)
            # Shorter ones are like no word that is looked for by its spelling; pairs of unspaced characters are these.
            if len(root) >= _SHORTEST_COMPARED:
                self._file(root)
        # Numbers and identifiers are without number, and what looks like one of them is another.
        if len(word) >= _SHORTEST_COMPARED and word.isalpha():
            known = self._by_length[len(word)]
            if len(known) < MOST_COMPARED:
                known[word] = None
        return number

    def _file(self, root: str) -> None:
        start = _start(root)
        bucket = self._by_start.setdefault(start, root)
        if isinstance(bucket, list):
            if len(bucket) < MOST_COMPARED:
                bucket.append(root)
        elif bucket != root:
            self._by_start[start] = [bucket, root]

    def add(self, place: int, text: str) -> int:
        """Note the words of the message at this place; return how many they are."""
        self._adding = place
        places = self._places
        # Looked up without a Python loop: this is nearly all the time that building an index takes.
        numbers = set(chain.from_iterable(map(self.__getitem__, tokens(text))))
        for number in numbers:
            held = places[number]
            if isinstance(held, array):
                held.append(place)
            elif held != place:
                places[number] = array("I", (held, place))
                self._arrays += 1
        self._held += len(numbers)
        return len(numbers)

    @property
    def weight(self) -> int:
        """Return about how many bytes this holds."""
        return (
            len(self) * _BYTES_PER_TOKEN
            + len(self._holders) * _BYTES_PER_STEM
            + len(self._by_start) * _BYTES_PER_START
            + sum(map(len, self._by_length.values())) * _BYTES_PER_WORD
            + self._arrays * _BYTES_PER_ARRAY
            + self._held * _BYTES_PER_HOLDER
        )

    def holders(self, root: str) -> Sequence[int]:
        """Return the places of the messages that hold a word of this stem, in order."""
        number = self._holders.get(root)
        if number is None:
            return ()
        held = self._places[number]
        return held if isinstance(held, array) else (held,)

    def beginning_like(self, root: str) -> Iterator[Compared]:
        """Yield the stems that begin and are spelled like this one, or that go on from it."""
        begun = self._by_start.get(_start(root), ())
        bucket = (begun,) if isinstance(begun, str) else begun
        alike = _spelled(root, bucket, _MISSPELT, MOST_MEANT)
        if len(root) >= SHORTEST_FUZZY:
            going_on = [other for other in bucket if other.startswith(root)]
            ratios = process.extract(root, going_on, scorer=fuzz.ratio, limit=MOST_MEANT)
            alike += [(other, Alike(max(_GOES_ON, ratio), fuzzy=False)) for other, ratio, _ in ratios]
        yield Compared(len(bucket), alike)

    def spelled_like(self, word: str) -> Iterator[Compared]:
        """Yield the stems of words that RapidFuzz finds alike, that begin like this one, or that shorten it."""
        furthest = LEAST_ALIKE / (200 - LEAST_ALIKE)
        lengths = range(int(len(word) * furthest), int(len(word) / furthest) + 1) if word.isalpha() else ()
        for length in lengths:
            if known := self._by_length.get(length):
                found = _spelled(word, known.keys(), LEAST_ALIKE, _MOST_OF_A_LENGTH)
                yield Compared(len(known), [(stem(other), alike) for other, alike in found])
        root = stem(word)
        yield from self.beginning_like(root)
        yield Compared(len(root), list(self._shortening(root)))

    def _shortening(self, root: str) -> Iterator[tuple[str, Alike]]:
        for length in range(SHORTEST_FUZZY, len(root) if root.isalpha() else 0):
            if root[:length] in self._holders:
                yield root[:length], Alike(max(_SHORTENED, fuzz.ratio(root, root[:length])), fuzzy=True)


def _spelled(word: str, others: Collection[str], least: float, most: int) -> list[tuple[str, Alike]]:
    found = process.extract(word, others, scorer=fuzz.ratio, score_cutoff=least, limit=most)
    return [(other, Alike(ratio, fuzzy=True)) for other, ratio, _ in found]


class Index:
    """The messages of one audience of one session, added in the order of their ids."""

    __slots__ = (
        "__weakref__",
        "_text_bytes",
        "_words",
        "content",
        "ids",
        "keeps_texts",
        "lengths",
        "metadata",
        "texts",
    )

    def __init__(self) -> None:
        self.ids = array("Q")
        self.lengths = array("I")
        self.content = Vocabulary()
        self.metadata = Vocabulary()
        self.texts: list[tuple[str, str]] = []
        self.keeps_texts = True
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
        if not self.keeps_texts:
            return
        self.texts.append((text, metadata_text))
        self._text_bytes += getsizeof(text) + getsizeof(metadata_text)
        if len(self.texts) > MOST_WHOLE_TEXTS or self._text_bytes > MOST_TEXT_BYTES:
            self.texts, self._text_bytes, self.keeps_texts = [], 0, False

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


def metadata_text(metadata: dict[str, Any]) -> str:
    """Return keys and scalar values of nested metadata as one searchable text, truncated."""
    found: list[str] = []
    waiting: list[object] = [metadata]
    room = METADATA_CHARACTERS
    # Empty containers use up the limit too, since they take time.
    while waiting and room > 0:
        room -= 1
        match waiting.pop():
            case dict() as entries:
                waiting.extend(part for entry in reversed([*islice(entries.items(), room)]) for part in reversed(entry))
            case list() | tuple() as items:
                waiting.extend(reversed(items[:room]))
            case str() | int() | float() as plain:
                found.append(str(plain)[:room])
                room -= len(found[-1])
    return " ".join(found)
