"""The words of a text: what a message is found by."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import islice
from typing import Any

# Marks that belong to a word although Unicode does not call them letters, and pictures that are said alone.
_MARKS = r"\u0300-\u036f\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3"
_PICTURES = r"\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
TOKEN = re.compile(rf"[\w{_MARKS}]+|[{_PICTURES}]")
# Splitting takes a third of the time of matching, and most text is plain.
_ASCII_GAPS = {code: " " for code in range(128) if not re.match(r"\w", chr(code))}

# Scripts written without spaces, or with endings joined on: any two neighbouring characters are a word.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_ACCENT = re.compile(r"[\u0300-\u036f]")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VOWEL = re.compile("[aeiouy]")
_SHORTEST_STEM = 3
# What is longer is no word but encoded data: it is known by its beginning.
LONGEST_WORD = 64
# Short plain words come again in every session; what is remembered of all others would only take up room.
_LONGEST_REMEMBERED = 16
_MOST_REMEMBERED = 16_384
# So much of a message's metadata is searched, from its beginning.
METADATA_CHARACTERS = 4_096
_PLURALS = (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"), ("zes", "z"))

_EVERYDAY = """
a about above after again against all also am an and any are aren as at be because been before being below
between both but by can cannot could couldn d did didn do does doesn doing don down during each else ever few for
from further get gets getting go goes going got had has hasn have haven having he her here hers herself him
himself his how i if in into is isn it its itself just let ll m may me might more most much must my myself no nor
not now of off on once only or other ought our ours ourselves out over own re s same shall she should shouldn so
some such t than that the their theirs them themselves then there these they this those through to too under
until up us ve very was wasn we were weren what when where which while who whom whose why will with won would
wouldn you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_EVERYDAY.split())


def tokens(text: str) -> list[str]:
    """Return the pieces of a text that hold words, as they were written."""
    return text.translate(_ASCII_GAPS).split() if text.isascii() else TOKEN.findall(text)


def telling_words(query: str) -> list[str]:
    """Return the words of a query in their order, without everyday words unless there are no others."""
    asked = tokens(query)
    telling = [token for token in asked if token.casefold() not in STOP_WORDS]
    return list(dict.fromkeys(word for token in telling or asked for word in words(token)))


def words(token: str) -> tuple[str, ...]:
    """Return the words in one token: itself, the parts of an identifier, pairs of unspaced characters."""
    is_plain = len(token) <= _LONGEST_REMEMBERED and token.isascii()
    return _remembered_words(token) if is_plain else _words(token)


def _words(token: str) -> tuple[str, ...]:
    if token.isascii():
        return _words_of_run(token)
    return tuple(dict.fromkeys(word for run in _RUN.findall(strip_accents(token)) for word in _words_of_run(run)))


_remembered_words = lru_cache(maxsize=_MOST_REMEMBERED)(_words)


def strip_accents(text: str) -> str:
    """Return the text without accents and width; its case stays."""
    if text.isascii():
        return text
    plain = _ACCENT.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", plain)


def _words_of_run(run: str) -> tuple[str, ...]:
    if _IS_UNSPACED.match(run):
        return tuple(run[at : at + 2] for at in range(max(1, len(run) - 1)))
    run = run[:LONGEST_WORD]
    whole = run.replace("_", "").casefold()
    if run.isalpha() and (run.islower() or run.istitle() or run.isupper()):
        return (whole,)
    parts = [part.casefold() for part in _PART.findall(run) if len(part) > 1]
    return tuple(dict.fromkeys([whole, *parts])) if whole else ()


def stem(word: str) -> str:
    """Return the word without common English endings, so that plans, planned and planning are one word."""
    if len(word) <= _SHORTEST_STEM or not word.isascii():
        return word
    return _remembered_stem(word) if len(word) <= _LONGEST_REMEMBERED else _stem(word)


def _stem(word: str) -> str:
    word = _without_tense(_singular(word))
    if len(word) > _SHORTEST_STEM and word[-1] in "ey":
        word = word[:-1] if word[-1] == "e" else f"{word[:-1]}i"
    return word


_remembered_stem = lru_cache(maxsize=_MOST_REMEMBERED)(_stem)


def _singular(word: str) -> str:
    for plural, singular in _PLURALS:
        if word.endswith(plural):
            return word.removesuffix(plural) + singular
    return word[:-1] if word[-1] == "s" and word[-2] not in "sui" else word


def _without_tense(word: str) -> str:
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and len(base) >= _SHORTEST_STEM and _VOWEL.search(base):
            return base[:-1] if base[-1] == base[-2] and base[-1] not in "ls" else base
    return word


def metadata_text(metadata: dict[str, Any]) -> str:
    """Return the keys and plain values of a message's metadata, however deep, as one text to search: its beginning."""
    found: list[str] = []
    waiting: list[object] = [metadata]
    room = METADATA_CHARACTERS
    # Whatever holds no text takes up room too, as it takes time.
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
