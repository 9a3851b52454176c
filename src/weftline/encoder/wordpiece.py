"""WordPiece tokenizer of BERT's uncased models, without a tokenizer library.

The reference implementation depends on a model hub client. This one gives the same tokens, except that the names of
special tokens have no meaning in a text, so that a text cannot end itself early.
"""

from __future__ import annotations

import lzma
import unicodedata
from functools import lru_cache
from importlib import resources

_UNKNOWN, _START, _END = 100, 101, 102
# Longer words are mapped to the unknown token.
_MAX_CHARACTERS = 100
_CACHED_WORDS = 50_000
_CONTINUATION = "##"
_SPACES = frozenset("\t\n\r")
_NO_CHARACTER = "\ufffd"
# Unicode categories that are removed: control, format, private use and surrogates.
_REMOVED_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs"})
# ASCII characters that count as punctuation although Unicode classifies them as symbols.
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


class WordPieceTokenizer:
    """Maps texts to the ids of WordPiece tokens."""

    def __init__(self) -> None:
        self._vocabulary = bert_vocabulary()
        self._characters = _Characters()
        # Few words make up most of any text.
        self._pieces = lru_cache(_CACHED_WORDS)(self._cut)

    def numbers(self, text: str, most: int) -> list[int]:
        """Return the token ids of a text with start and end token, truncated to ``most`` in all."""
        numbers = [_START]
        for word in text.translate(self._characters).split():
            numbers += self._pieces(word)
            if len(numbers) >= most:
                del numbers[most - 1 :]
                break
        numbers.append(_END)
        return numbers

    def _cut(self, word: str) -> tuple[int, ...]:
        """Split a word greedily into the longest known pieces; unknown if that fails."""
        if len(word) > _MAX_CHARACTERS:
            return (_UNKNOWN,)
        numbers: list[int] = []
        start = 0
        while start < len(word):
            prefix = _CONTINUATION if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._vocabulary), None)
            if end is None:
                return (_UNKNOWN,)
            numbers.append(self._vocabulary[prefix + word[start:end]])
            start = end
        return tuple(numbers)


class _Characters(dict[int, str]):
    """Normal form of each character: lower case without accents, separated by spaces if it is a word by itself."""

    def __missing__(self, code: int) -> str:
        self[code] = normal = _normal_form(chr(code))
        return normal


def _normal_form(character: str) -> str:
    if character in _SPACES:
        return " "
    if character == _NO_CHARACTER or unicodedata.category(character) in _REMOVED_CATEGORIES:
        return ""
    parts = [part for part in unicodedata.normalize("NFD", character) if unicodedata.category(part) != "Mn"]
    separate = _is_ideograph(ord(character))
    return "".join(f" {part} " if separate or _is_punctuation(part) else part for part in map(str.lower, parts))


def _is_punctuation(character: str) -> bool:
    return character in _ASCII_PUNCTUATION or unicodedata.category(character[:1] or " ").startswith("P")


def _is_ideograph(code: int) -> bool:
    return any(first <= code <= last for first, last in _IDEOGRAPHS)


def bert_vocabulary() -> dict[str, int]:
    """Return the pieces of BERT's uncased models with their ids."""
    packed = resources.files("weftline.encoder").joinpath("vocabulary.txt.xz").read_bytes()
    return {piece: number for number, piece in enumerate(lzma.decompress(packed).decode().splitlines())}
