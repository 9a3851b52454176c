"""Snippets: the part of a text that matches a query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rapidfuzz import fuzz, process

from weftline.indexing.chunking.sentences import sentence_ends
from weftline.indexing.text_analysis import TOKEN, query_words, stem, words
from weftline.sessions.messages.search.inverted_index import MIN_FUZZY_LENGTH, MIN_RATIO

_MAX_LENGTH = 200
_ELLIPSIS = "…"
# Maximum distance by which a cut moves to a word boundary.
_MAX_CUT_SHIFT = 30
_MAX_PARTIAL_RATIO_LENGTH = 64
# Fuzzy comparison costs time proportional to the text for each word: only the first words of the query are compared.
_MAX_FUZZY_WORDS = 32
_GAP = re.compile(r"\s+")
# Smaller differences of sums come from rounding.
_EPSILON = 1e-9


class _TermMatch(NamedTuple):
    """A match in the text, with its query stem."""

    start: int
    end: int
    root: str


def snippet(content: str, query: str) -> str:
    """Return the part of the content that matches most of the query; short content is returned whole."""
    return Snippets(query).of(content)


class Snippets:
    """Snippets of texts for one query, of at most ``max_length`` characters each."""

    def __init__(self, query: str, max_length: int = _MAX_LENGTH) -> None:
        self._query = query
        self._max_length = max_length
        self._window = max_length - 2 * len(_ELLIPSIS)
        self._query_stems = {stem(word): word for word in query_words(query)}
        self._prefixes = {root for root in self._query_stems if len(root) >= MIN_FUZZY_LENGTH}
        self._prefix_lengths = sorted(set(map(len, self._prefixes)))

    def of(self, content: str) -> str:
        """Return the part of the content that matches most of the query; short content is returned whole."""
        if len(content) <= self._max_length:
            return content
        matches_found = self._matches(content)
        first, last = _densest(matches_found, self._window) if matches_found else _nearest(content, self._query)
        return _cut(content, first, last, self._window)

    def _matches(self, content: str) -> list[_TermMatch]:
        matches = list(TOKEN.finditer(content))
        stems = self._matching_tokens({match.group() for match in matches})
        return [
            _TermMatch(match.start(), match.end(), root)
            for match in matches
            if (root := stems.get(match.group())) is not None
        ]

    def _matching_tokens(self, tokens: set[str]) -> dict[str, str]:
        """Return the tokens that match the query, exactly, by prefix or by similar spelling, with their query stems."""
        stems: dict[str, str] = {}
        unmatched: dict[str, str] = {}
        for token in tokens:
            for word in words(token):
                if root := self._query_stem(stem(word)):
                    stems[token] = root
                    break
                if len(word) >= MIN_FUZZY_LENGTH:
                    unmatched[word] = token
        for word, root in self._similar_words(unmatched, set(stems.values())):
            stems.setdefault(unmatched[word], root)
        return stems

    def _query_stem(self, root: str) -> str | None:
        if root in self._query_stems:
            return root
        return next((root[:length] for length in self._prefix_lengths if root[:length] in self._prefixes), None)

    def _similar_words(self, unmatched: dict[str, str], found: set[str]) -> Iterator[tuple[str, str]]:
        """Yield words spelled similarly to a query word that does not occur."""
        missing = [root for root in self._query_stems if root not in found]
        for root in missing[:_MAX_FUZZY_WORDS]:
            query_word = self._query_stems[root]
            for word, _, _ in process.extract(
                query_word, unmatched.keys(), scorer=fuzz.ratio, score_cutoff=MIN_RATIO, limit=None
            ):
                yield word, root


def _densest(matches_found: Sequence[_TermMatch], window: int) -> tuple[int, int]:
    """Return the range with the most distinct query words; of equal ones, with those that are rare in the text."""
    # Rarity only decides between equal numbers of words: all that a text has add up to less than one.
    occurrences = Counter(match_found.root for match_found in matches_found)
    worth = {root: 1 + 1 / (count * (len(occurrences) + 1)) for root, count in occurrences.items()}
    best, best_found, left, found = (0, 0), 0.0, 0, 0.0
    counts: Counter[str] = Counter()
    for match_found in matches_found:
        found += 0 if counts[match_found.root] else worth[match_found.root]
        counts[match_found.root] += 1
        # No wider than needed, so that the words that count are in the middle.
        while (first := matches_found[left]) is not match_found and (
            counts[first.root] > 1 or match_found.end - first.start > window
        ):
            counts[first.root] -= 1
            found -= 0 if counts[first.root] else worth[first.root]
            left += 1
        if found > best_found + _EPSILON:
            best, best_found = (matches_found[left].start, match_found.end), found
    return best


def _nearest(content: str, query: str) -> tuple[int, int]:
    """Return the range most similar to the query by RapidFuzz; the beginning if there is none."""
    if len(query) > _MAX_PARTIAL_RATIO_LENGTH:
        return 0, 0
    found = fuzz.partial_ratio_alignment(query.lower(), content.lower(), score_cutoff=MIN_RATIO)
    return (found.dest_start, min(found.dest_end, len(content))) if found else (0, 0)


def _cut(content: str, first: int, last: int, window: int) -> str:
    """Return the text around a match: whole sentences where they fit, else cut at word boundaries if one is near."""
    # The match is centred: its context before is as useful as that after it.
    start = max(0, min((first + last - window) // 2, len(content) - window))
    if start:
        start = next((at for at, _ in sentence_ends(content, start, first + 1)), 0) or _word_start(
            content, start, first
        )
    end = min(start + window, len(content))
    if end < len(content):
        end = max((at for at, _ in sentence_ends(content, last, end + 1)), default=0) or _word_end(content, last, end)
    return f"{_ELLIPSIS if start else ''}{content[start:end].rstrip()}{_ELLIPSIS if end < len(content) else ''}"


def _word_start(content: str, start: int, first: int) -> int:
    gap = _GAP.search(content, start, max(start, min(first, start + _MAX_CUT_SHIFT)))
    return gap.end() if gap else start


def _word_end(content: str, last: int, end: int) -> int:
    return max((gap.start() for gap in _GAP.finditer(content, max(last, end - _MAX_CUT_SHIFT), end)), default=end)
