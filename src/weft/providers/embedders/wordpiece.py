"""Texts as the word pieces that BERT's models were trained on (uncased), without a tokenizer library.

The reference implementation brings a model hub's client along. This one gives the same pieces; only that the names of
special pieces have no meaning inside a text, so nobody's text can end itself early.
"""

from __future__ import annotations

import lzma
import unicodedata
from functools import lru_cache
from importlib import resources

_UNKNOWN, _START, _END = 100, 101, 102
# A longer word is no word.
_MOST_CHARACTERS = 100
_WORDS_KEPT = 50_000
_INSIDE = "##"
_SPACES = frozenset("\t\n\r")
_NO_CHARACTER = "\ufffd"
# Categories of Unicode that say nothing: control, format, private use and surrogates.
_SILENT = frozenset({"Cc", "Cf", "Co", "Cs"})
# ASCII characters that count as punctuation although Unicode calls them symbols.
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPieces:
    """Cuts texts into pieces of a vocabulary, by number."""

    def __init__(self) -> None:
        self._vocabulary = _vocabulary()
        self._characters = _Characters()
        # A few words make up most of any text.
        self._pieces = lru_cache(_WORDS_KEPT)(self._cut)

    def numbers(self, text: str, most: int) -> list[int]:
        """Return the pieces of a text between the start and the end piece: ``most`` in all, what is beyond left out."""
        numbers = [_START]
        for word in text.translate(self._characters).split():
            numbers += self._pieces(word)
            if len(numbers) >= most:
                del numbers[most - 1 :]
                break
        numbers.append(_END)
        return numbers

    def _cut(self, word: str) -> tuple[int, ...]:
        """Take the longest piece that fits, again and again; a word that does not come out even is unknown."""
        if len(word) > _MOST_CHARACTERS:
            return (_UNKNOWN,)
        numbers: list[int] = []
        start = 0
        while start < len(word):
            prefix = _INSIDE if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._vocabulary), None)
            if end is None:
                return (_UNKNOWN,)
            numbers.append(self._vocabulary[prefix + word[start:end]])
            start = end
        return tuple(numbers)


class _Characters(dict[int, str]):
    """What each character becomes: lower case without accents, apart from its neighbours where it is a word itself."""

    def __missing__(self, code: int) -> str:
        self[code] = becomes = _plain(chr(code))
        return becomes


def _plain(character: str) -> str:
    if character in _SPACES:
        return " "
    if character == _NO_CHARACTER or unicodedata.category(character) in _SILENT:
        return ""
    parts = [part for part in unicodedata.normalize("NFD", character) if unicodedata.category(part) != "Mn"]
    apart = _is_ideograph(ord(character))
    return "".join(f" {part} " if apart or _is_punctuation(part) else part for part in map(str.lower, parts))


def _is_punctuation(character: str) -> bool:
    return character in _ASCII_PUNCTUATION or unicodedata.category(character[:1] or " ").startswith("P")


def _is_ideograph(code: int) -> bool:
    return any(first <= code <= last for first, last in _IDEOGRAPHS)


def _vocabulary() -> dict[str, int]:
    packed = resources.files("weft.providers.embedders").joinpath("vocabulary.txt.xz").read_bytes()
    return {piece: number for number, piece in enumerate(lzma.decompress(packed).decode().splitlines())}
