"""What the texts of an answer and of the items of a prompt have in common, by words.

Every text is read once, and only the terms of the answer and the task are kept, so that time and memory grow with the
length of the texts alone.
"""

from __future__ import annotations

import re
from collections import Counter
from math import log
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.text_analysis import terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    _Three = tuple[str, str, str]

# Terms of a run that must be the same, in order, to begin a quotation.
_RUN = 3
# Terms of an answer beyond which its length says nothing more, and of one that is short.
_MAX_SAID, _SHORT_ANSWER = 30, 4
# Characters of a long text that are read at once.
_PIECE = 20_000
# Separators of thousands: 1,250 and 1250 are the same number.
_THOUSANDS = re.compile("(?<=[0-9])[,'\u00a0\u2019\u202f](?=[0-9]{3}(?![0-9]))")
# By their stems.
_NUMBERS = {
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
    "eleven": "11",
    "twelv": "12",
}


class ItemFeatures(NamedTuple):
    """A text of the prompt against the answer. Terms weigh more the fewer texts have them.

    ``said``: tens of terms that the answer has and the task does not, at most three; the more, the more texts are used.
    ``coverage``: share of these that the text has, of those that any text has. ``lead``: that share over the largest of
    all texts. ``density``: share of the text's terms that the answer has. ``asked``: share of the task's terms that the
    text has, less the longer the answer is: a short one says little without its question. ``run``: terms in a row that
    the answer has too and the task does not. ``length``: its number of terms; ``size``: logarithm of the distinct ones.
    ``content``: the same for texts with the same terms in the same order.
    """

    said: float
    coverage: float
    lead: float
    density: float
    asked: float
    run: int
    size: float
    length: int = 0
    content: int = 0


class _TextTerms(NamedTuple):
    """The terms that a text shares with answer and task, and how many it has in all."""

    shared: AbstractSet[str]
    distinct: int
    length: int
    run: int
    content: int


class _Share:
    """The share of some weighted terms that a text has."""

    def __init__(self, wanted: AbstractSet[str], weight: Mapping[str, float]) -> None:
        self._wanted = wanted
        self._weight = weight
        self._total = sum(weight[term] for term in wanted)

    def __call__(self, shared: AbstractSet[str]) -> float:
        found = sum(self._weight[term] for term in shared & self._wanted)
        return found / self._total if self._total else 0.0


def item_features(texts: Sequence[str], task: str, answer: str) -> list[ItemFeatures]:
    """Return the features of each text of a prompt. A text that occurs several times counts once against the others."""
    said, question = _terms(answer), _terms(task)
    asked, answered = set(question), set(said)
    wanted, runs = asked | answered, _threes(said) - _threes(question)
    found = {text: _text_terms(_terms(text), wanted, runs) for text in dict.fromkeys(texts)}
    distinct = {each.content: each for each in found.values()}.values()
    counts = Counter(term for each in distinct for term in each.shared)
    weight = {term: log(1 + len(distinct) / count) for term, count in counts.items()}
    new = (answered - asked) & weight.keys() or answered & weight.keys()
    of_answer, of_task = _Share(new, weight), _Share(asked & weight.keys(), weight)
    covered = {text: of_answer(each.shared) for text, each in found.items()}
    most = max(covered.values(), default=0.0) or 1.0
    added = len(answered - asked)
    features = {
        text: ItemFeatures(
            said=min(added, _MAX_SAID) / 10,
            coverage=covered[text],
            lead=covered[text] / most,
            density=len(each.shared & answered) / each.distinct if each.distinct else 0.0,
            asked=of_task(each.shared) / (1 + added / _SHORT_ANSWER),
            run=each.run,
            size=log(1 + each.distinct),
            length=each.length,
            content=each.content,
        )
        for text, each in found.items()
    }
    return [features[text] for text in texts]


def _terms(text: str) -> list[str]:
    """Return the terms of a text, numbers in one form, without underscores: marks of Markdown, and of identifiers."""
    found: list[str] = []
    for piece in _pieces(text):
        plain = _THOUSANDS.sub("", piece).replace("_", " ")
        found += [_NUMBERS.get(term, term) for term in terms(plain)]
    return found


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that end with a word: other threads wait while a regular expression reads one."""
    start = 0
    while len(text) - start > _PIECE:
        end = text.find(" ", start + _PIECE) + 1 or len(text)
        yield text[start:end]
        start = end
    yield text[start:]


def _text_terms(found: Sequence[str], wanted: AbstractSet[str], runs: AbstractSet[_Three]) -> _TextTerms:
    distinct = set(found)
    run = _longest_run(found, runs) if runs else 0
    return _TextTerms(distinct & wanted, len(distinct), len(found), run, hash(tuple(found)))


def _threes(found: Sequence[str]) -> set[_Three]:
    """Return all runs of three terms. A loop, because other threads wait while a set is made of an iterator."""
    threes: set[_Three] = set()
    for three in zip(found, found[1:], found[2:], strict=False):
        threes.add(three)
    return threes


def _longest_run(found: Sequence[str], runs: AbstractSet[_Three]) -> int:
    longest = current = 0
    for three in zip(found, found[1:], found[2:], strict=False):
        current = current + 1 if three in runs else 0
        longest = max(longest, current)
    return longest + _RUN - 1 if longest else 0
