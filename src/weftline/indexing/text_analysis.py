"""Text analysis shared by message search and retrieval: tokenizer, normaliser, stop words and stemmer.

Text is split into tokens; each token yields its word (no accents, lower case), the parts of an identifier, or character
bigrams of scripts that are written without spaces. Index and query use the same functions.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from threading import Lock

import snowballstemmer

# Combining marks that belong to a word although \w does not match them, and pictographs, each a token by itself.
_MARKS = r"\u0300-\u036f\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3"
_PICTOGRAPHS = r"\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_APOSTROPHES = "'\u2019"
TOKEN = re.compile(rf"[\w{_MARKS}]+(?:[{_APOSTROPHES}][\w{_MARKS}]+)*|[{_PICTOGRAPHS}]")
_WITHOUT_APOSTROPHES = str.maketrans("", "", _APOSTROPHES)
# str.split takes a third of the time of a regular expression, and most text is ASCII.
_ASCII_SEPARATORS = {code: " " for code in range(128) if not re.match(r"\w", chr(code))} | {ord("'"): None}

# Scripts written without spaces, or with suffixes joined on: indexed by character bigrams.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_ACCENT = re.compile(r"[\u0300-\u036f]")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Parts of one character are indexed only for names of few parts, so that IL6 and IL-6 match; others are codes.
_MAX_SHORT_PARTS = 3
# Longer tokens are encoded data, not words: only their beginning is indexed.
MAX_WORD_LENGTH = 64
_MIN_STEMMED_LENGTH = 4
# Only short ASCII words recur across sessions; caching others would waste memory.
_MAX_CACHED_LENGTH = 16
_CACHE_SIZE = 65_536
# A heading describes its section better than a sentence of it does.
_HEADING_WEIGHT = 2

_STOP_WORDS = """
a an and are as at be been but by did do does for from had has have he her his how i in is it its me my of on or our she
so than that the their them they this to was we were what when where which who whom why will with would you your
"""
_FILLER_WORDS = """
about above after again against all also am any arent because before being below between both can cannot cant could
couldnt d didnt doesnt doing dont down during each else ever few further get gets getting go goes going got hadnt hasnt
havent having here hers herself hes him himself if im into isnt itself ive just let lets ll m may might more most much
must myself no nor not now off once only other ought ours ourselves out over own re s same shall should shouldnt some
such t thats theirs themselves then there theres these theyre those through too under until up us ve very wasnt werent
whats while whose wont wouldnt youre yours yourself yourselves youve
"""
# Not indexed by retrieval.
STOP_WORDS = frozenset(_STOP_WORDS.split())
# Ignored in queries of message search, which scores by the share of the query that matches. Retrieval indexes them:
# BM25 weighs them down by itself, and leaving them out cost 0.8 points of recall@10 on LoCoMo.
FILLER_WORDS = STOP_WORDS.union(_FILLER_WORDS.split())

_stemmer = snowballstemmer.stemmer("english")
_stemmer_lock = Lock()


def tokens(text: str) -> list[str]:
    """Split a text into tokens in their original spelling, without apostrophes."""
    if text.isascii():
        return text.translate(_ASCII_SEPARATORS).split()
    return TOKEN.findall(text.translate(_WITHOUT_APOSTROPHES))


def words(token: str) -> tuple[str, ...]:
    """Return the words of a token: its normal form, the parts of an identifier, or bigrams of an unspaced script."""
    is_cached = len(token) <= _MAX_CACHED_LENGTH and token.isascii()
    return _cached_words(token) if is_cached else _words(token)


def _words(token: str) -> tuple[str, ...]:
    token = token.translate(_WITHOUT_APOSTROPHES)
    if token.isascii():
        return _words_of_run(token)
    return tuple(dict.fromkeys(word for run in _RUN.findall(strip_accents(token)) for word in _words_of_run(run)))


_cached_words = lru_cache(maxsize=_CACHE_SIZE)(_words)


def strip_accents(text: str) -> str:
    """Remove accents and normalise character width; case is kept."""
    if text.isascii():
        return text
    plain = _ACCENT.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", plain)


def _words_of_run(run: str) -> tuple[str, ...]:
    if _IS_UNSPACED.match(run):
        return tuple(run[at : at + 2] for at in range(max(1, len(run) - 1)))
    run = run[:MAX_WORD_LENGTH]
    whole = run.replace("_", "").casefold()
    if run.isalpha() and (run.islower() or run.istitle() or run.isupper()):
        return (whole,)
    parts = _PART.findall(run)
    shortest = 1 if len(parts) <= _MAX_SHORT_PARTS else 2
    kept = (part.casefold() for part in parts if len(part) >= shortest)
    return tuple(dict.fromkeys([whole, *kept])) if whole else ()


def stem(word: str) -> str:
    """Remove English suffixes (Snowball), so that plans, planned and planning match."""
    # No English suffix ends with a digit: numbers, names and hashes are many and rarely repeated.
    if len(word) < _MIN_STEMMED_LENGTH or not word.isascii() or word[-1].isdigit():
        return word
    return _cached_stem(word) if len(word) <= _MAX_CACHED_LENGTH else _stem(word)


def _stem(word: str) -> str:
    # The stemmer keeps the word in its own state, so it is not thread-safe.
    with _stemmer_lock:
        stemmed: str = _stemmer.stemWord(word)
        return stemmed


_cached_stem = lru_cache(maxsize=_CACHE_SIZE)(_stem)


def terms(text: str) -> list[str]:
    """Return the stemmed words of a text without stop words, in order."""
    return [stem(word) for token in tokens(text) if token.casefold() not in STOP_WORDS for word in words(token)]


def index_terms(text: str, heading: str = "") -> str:
    """Return the terms that a text is indexed by, separated by spaces; those of its heading count twice."""
    return " ".join(terms(heading) * _HEADING_WEIGHT + terms(text))


def query_terms(query: str) -> list[str]:
    """Return the terms of a query; stop words only if there is nothing else."""
    return terms(query) or [stem(word) for token in tokens(query) for word in words(token)]


def query_words(query: str) -> list[str]:
    """Return the distinct words of a query, unstemmed, in order; filler words only if there is nothing else."""
    every = tokens(query)
    content = [token for token in every if token.casefold() not in FILLER_WORDS]
    return list(dict.fromkeys(word for token in content or every for word in words(token)))
