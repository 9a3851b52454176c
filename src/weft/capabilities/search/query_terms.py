"""The terms of a text: its words as they are compared when something is looked for."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from threading import Lock
from typing import Any

# Words that stand in any text: they say nothing of what it is about.
_EVERYDAY = """
a an and are as at be been but by did do does for from had has have he her his how i in is it its me my of on or our she
so than that the their them they this to was we were what when where which who whom why will with would you your
"""
STOP_WORDS = frozenset(_EVERYDAY.split())
# What is longer is data, not language: a hash, an address, an encoded picture.
LONGEST_WORD = 40
# What something stands under tells more of it than a sentence in it.
_HEADING_COUNTS = 2
# A name of letters and digits is found by its pieces too; what has more of them is a code that nobody writes apart.
_MOST_PIECES = 3
_MOST_REMEMBERED = 65_536

_stemming = Lock()
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LETTERS_OR_DIGITS = re.compile(r"[a-z]+|[0-9]+")
_APOSTROPHE = str.maketrans("", "", "'\u2019")
# Scripts written without spaces: any two neighbouring characters are a word.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def terms_of(text: str, heading: str = "") -> str:
    """Return what a text is found by, in the order in which it is said, separated by spaces."""
    return " ".join(terms(heading) * _HEADING_COUNTS + terms(text))


def asked_terms(query: str) -> list[str]:
    """Return the terms of a question; those of everyday words only if there are no others."""
    return terms(query) or [stem(word) for word in _words(query)]


def terms(text: str) -> list[str]:
    """Return the words of a text, the everyday ones left out, each without its endings."""
    return [stem(word) for word in _words(text) if word not in STOP_WORDS]


@cache
def _stemmer() -> Any:  # noqa: ANN401 - snowballstemmer has no types
    import snowballstemmer  # noqa: PLC0415 - it imports the stemmers of all languages, which takes 0.06 s

    return snowballstemmer.stemmer("english")


@lru_cache(maxsize=_MOST_REMEMBERED)
def stem(word: str) -> str:
    """Return a word without its English endings, so that plan, plans and planning are one."""
    # The stemmer works on what it keeps of the word: no two threads may have it at once.
    with _stemming:
        stemmed: str = _stemmer().stemWord(word)
        return stemmed


def plain_words(name: str) -> str:
    """Return a name as words: getCurrentWeather and get_current_weather are both get current weather."""
    return " ".join(_WORD.findall(_HUMP.sub(" ", name)))


def _words(text: str) -> list[str]:
    found = []
    for word in _WORD.findall(_HUMP.sub(" ", strip_marks(text)).lower().translate(_APOSTROPHE)):
        if word.isascii() or not _UNSPACED.search(word):
            if len(word) <= LONGEST_WORD:
                found += [word, *_pieces(word)]
        else:
            found += _pairs(word)
    return found


def _pieces(word: str) -> list[str]:
    """Return the letters and the digits of a name that has both, so that IL6 and IL-6 find each other."""
    if word.isalpha() or word.isdigit() or not word.isascii():
        return []
    pieces = _LETTERS_OR_DIGITS.findall(word)
    return pieces if 1 < len(pieces) <= _MOST_PIECES else []


def _pairs(word: str) -> list[str]:
    return [run[at : at + 2] for run in _UNSPACED.findall(word) for at in range(max(1, len(run) - 1))]


def strip_marks(text: str) -> str:
    """Return a text without accents and other marks on letters."""
    if text.isascii():
        return text
    return "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))
