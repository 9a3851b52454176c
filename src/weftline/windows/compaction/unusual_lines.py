"""Lines that are unlike the others of a text: by which words stand near each other in them, whatever they mean.

A service's log in any language, a table and a build repeat themselves; what stands there once is worth reading.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_TOKEN = re.compile(r"\w+|[^\w\s]|\n")
# A word that is in this part of the lines stands for itself. Others, such as names and numbers, are alike, but for the
# number of digits.
_FREQUENT = 0.05
_MIN_FREQUENT = 3
_MAX_DIGITS = 6
_MAX_WORDS = 240
# Words that are at most so far apart are near each other.
_NEAR = 3
# Of a line, this much is compared.
_COMPARED = 300


def unlikeness(lines: Sequence[str]) -> list[float]:
    """Return how unlike the others each line, or item of a list, is.

    That is about the number of pairs of near words that no other line has. A pair that n lines have counts 1/n; so does
    the number of words of a line.
    """
    import numpy as np  # noqa: PLC0415 - slow to import

    tokens = _TOKEN.findall("\n" + "\n".join(line[:_COMPARED].replace("\n", " ") for line in lines) + "\n")
    counts = Counter(tokens)
    least = max(_MIN_FREQUENT, len(lines) * _FREQUENT)
    frequent = [word for word, times in counts.most_common(_MAX_WORDS) if times >= least or word == "\n"]
    first = _MAX_DIGITS + 1
    numbers = {word: len(word) if len(word) <= _MAX_DIGITS and word.isdecimal() else 0 for word in counts}
    numbers |= {word: first + at for at, word in enumerate(frequent)}
    words = np.fromiter(map(numbers.__getitem__, tokens), np.int64, len(tokens))
    breaks = words == numbers["\n"]
    # A line begins with the break before it.
    place = np.cumsum(breaks) - 1
    size = first + len(frequent)
    found = np.zeros(len(lines) + 1)
    for apart in range(1, _NEAR + 1):
        pairs = words[:-apart] * size + words[apart:]
        crossing = place[apart:] - place[:-apart]
        within = (crossing == 0) | ((crossing == 1) & breaks[apart:])
        pairs, owners = pairs[within], place[:-apart][within]
        times = np.bincount(pairs)
        found += np.bincount(owners, 1 / times[pairs], len(found))
    lengths = np.bincount(place, minlength=len(found))
    found += 1 / np.bincount(lengths)[lengths]
    return [round(each, 3) for each in found[: len(lines)].tolist()]


# Lines that are the same but for their digits are in a sample up to so many times as rare ones.
_RARE = 3
# Parts of a sample that the beginning and the end have.
_EDGE = 0.15
_DIGITS = b"0123456789"
_FAILURES = ("error", "fail", "exception", "traceback", "fatal", "panic", "critical")
# Of more lines, an even part is looked through.
_MAX_LINES = 20_000


def unusual_sample(lines: Sequence[str], most: int, wanted: Iterable[str] = ()) -> list[int]:
    """Return the positions of lines to read where all are too many: with at most so many characters, in order.

    These are the first and the last lines, those with words of a failure or that are ``wanted``, those that come at
    most three times but for their digits, as evenly as they have room, and others evenly.
    """
    sizes = [min(len(line), _COMPARED) + 1 for line in lines]
    if sum(sizes) <= most:
        return list(range(len(lines)))
    found: set[int] = set()
    edge = most * _EDGE
    _take(range(len(lines)), sizes, edge, found)
    _take(range(len(lines) - 1, -1, -1), sizes, edge, found)
    _take(_lines_with((*_FAILURES, *wanted), lines), sizes, edge, found)
    places = range(0, len(lines), -(-len(lines) // _MAX_LINES))
    forms = [lines[at][:_COMPARED].encode(errors="replace").translate(None, _DIGITS) for at in places]
    times = Counter(forms)
    rare = [at for at, form in zip(places, forms, strict=True) if times[form] <= _RARE]
    # Some of the others show what is usual.
    _take(_spread(rare), sizes, (most - 3 * edge) * 0.75, found)
    _take(_spread(range(len(lines))), sizes, most - sum(sizes[at] for at in found), found)
    return sorted(found)


def _lines_with(words: Iterable[str], lines: Sequence[str]) -> Iterator[int]:
    """Yield the positions of lines with one of these words."""
    text = "\n".join(lines).lower()
    ends = list(accumulate(len(line.lower()) + 1 for line in lines))
    for word in words:
        at = text.find(word.lower())
        while at >= 0:
            line = bisect_right(ends, at)
            yield line
            at = text.find(word.lower(), ends[line] if line < len(ends) else len(text))


def _take(places: Iterable[int], sizes: Sequence[int], room: float, found: set[int]) -> None:
    """Add places to a sample while they have room."""
    for at in places:
        if at in found:
            continue
        room -= sizes[at]
        if room < 0:
            break
        found.add(at)


def _spread(places: Sequence[int]) -> Iterator[int]:
    """Yield places so that the first ones, however many, are spread evenly."""
    size = len(places)
    step = max(round(size * 0.618), 1)
    while math.gcd(step, max(size, 1)) != 1:
        step += 1
    return (places[at * step % size] for at in range(size))
