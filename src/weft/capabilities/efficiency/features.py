"""What the texts of an answer and of the items of a prompt have in common, by words.

Every text is read once, and only the terms of the answer and the task are kept, so that time and memory grow with the
length of the texts alone.
"""

from __future__ import annotations

from collections import Counter
from math import log
from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.indexing.text_analysis import terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

# Terms of a run that must be the same, in order, to begin a quotation.
_RUN = 3


class ItemFeatures(NamedTuple):
    """An item against the answer. Terms weigh more the fewer items have them.

    ``coverage``: share of the answer's terms that the item has, of those that any item has and the task does not.
    ``lead``: that share over the largest of all items. ``density``: share of the item's terms that the answer has.
    ``asked``: share of the task's terms that the item has. ``run``: terms in a row that both have. ``size``: logarithm
    of its number of terms.
    """

    coverage: float
    lead: float
    density: float
    asked: float
    run: int
    size: float


class _ItemTerms(NamedTuple):
    """The terms that an item shares with answer and task, how many it has in all, and its longest run."""

    shared: AbstractSet[str]
    distinct: int
    run: int


class _Share:
    """The share of some weighted terms that an item has."""

    def __init__(self, wanted: AbstractSet[str], weight: Mapping[str, float]) -> None:
        self._wanted = wanted
        self._weight = weight
        self._total = sum(weight[term] for term in wanted)

    def __call__(self, shared: AbstractSet[str]) -> float:
        found = sum(self._weight[term] for term in shared & self._wanted)
        return found / self._total if self._total else 0.0


def item_features(texts: Iterable[str], task: str, answer: str) -> list[ItemFeatures]:
    """Return the features of each text of a prompt."""
    said = terms(answer)
    asked, answered = set(terms(task)), set(said)
    wanted, runs = asked | answered, set(zip(said, said[1:], said[2:], strict=False))
    items = [_item_terms(terms(text), wanted, runs) for text in texts]
    counts = Counter(term for item in items for term in item.shared)
    weight = {term: log(1 + len(items) / count) for term, count in counts.items()}
    new = (answered - asked) & weight.keys() or answered & weight.keys()
    of_answer, of_task = _Share(new, weight), _Share(asked & weight.keys(), weight)
    covered = [of_answer(item.shared) for item in items]
    most = max(covered, default=0.0) or 1.0
    return [
        ItemFeatures(
            coverage=coverage,
            lead=coverage / most,
            density=len(item.shared & answered) / item.distinct if item.distinct else 0.0,
            asked=of_task(item.shared),
            run=item.run,
            size=log(1 + item.distinct),
        )
        for item, coverage in zip(items, covered, strict=True)
    ]


def _item_terms(found: Sequence[str], wanted: AbstractSet[str], runs: AbstractSet[tuple[str, str, str]]) -> _ItemTerms:
    distinct = set(found)
    return _ItemTerms(distinct & wanted, len(distinct), _longest_run(found, runs) if runs else 0)


def _longest_run(found: Sequence[str], runs: AbstractSet[tuple[str, str, str]]) -> int:
    longest = current = 0
    for three in zip(found, found[1:], found[2:], strict=False):
        current = current + 1 if three in runs else 0
        longest = max(longest, current)
    return longest + _RUN - 1 if longest else 0
