"""Questions for the calibration of score and confidence, with an answer and without one.

Questions without an answer are LoCoMo's adversarial ones, which ask about the wrong person, and the questions of each
set asked of content that cannot answer them: of other sets, and of other conversations, documents and meetings of the
same set. Questions asked of similar content, such as another tool catalogue, are kept apart, because it answers some.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np

from evals.retrieval_sets import is_relevant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from evals.retrieval_runs import Answer, Runs
    from evals.retrieval_sets import EvalQuestion

    Figures = NDArray[np.float64]
    Kind = Literal["answerable", "elsewhere", "adversarial", "similar"]

_T = TypeVar("_T")
# Approximate number of questions per set, and of those that are asked of each other content.
_SAMPLE_SIZE, _SAMPLE_SIZE_ELSEWHERE = 250, 125
# Meetings of the same group answer many of each other's questions; another group's name begins otherwise.
_GROUP_LENGTH = 2


class _Elsewhere(NamedTuple):
    """Sets that a set's questions are asked of; the set itself for its other conversations, documents or meetings.

    ``similar`` is a set that may answer some of them, or the set itself for its next meeting.
    """

    others: tuple[str, ...]
    similar: str | None = None


_ELSEWHERE: dict[str, _Elsewhere] = {
    "locomo": _Elsewhere(("locomo", "livemcp", "tau2_banking")),
    "bfcl_memory": _Elsewhere(("bfcl_memory", "metatool", "scifact")),
    "metatool": _Elsewhere(("tau2_banking", "locomo"), "livemcp"),
    "livemcp": _Elsewhere(("scifact", "bfcl_memory"), "bfcl_live"),
    "bfcl_live": _Elsewhere(("tau2_banking", "qmsum")),
    "tau2_banking": _Elsewhere(("scifact", "livemcp")),
    "scifact": _Elsewhere(("tau2_banking", "chunkeval")),
    "qmsum": _Elsewhere(("qmsum", "metatool"), "qmsum"),
    "chunkeval": _Elsewhere(("chunkeval", "bfcl_live")),
}


@dataclass(frozen=True)
class Case:
    """An answer to a question of a set, and of which kind the question is."""

    name: str
    kind: Kind
    answer: Answer

    @property
    def is_answerable(self) -> bool:
        return self.kind == "answerable"

    @cached_property
    def relevant(self) -> list[bool]:
        """Return which of the ten best results are relevant."""
        answer = self.answer
        best = answer.best(answer.total)
        return [self.is_answerable and is_relevant(answer.question, answer.corpus, place) for place in best]


def calibration_cases(runs: Runs) -> list[Case]:
    return [case for name in _ELSEWHERE for case in _cases(runs, name)]


def weights(cases: Sequence[Case], unanswerable: float) -> Figures:
    """Return weights by which every set counts 1, and ``unanswerable`` for its questions without an answer.

    Adversarial questions count like a set; similar content does not count.
    """
    keys = [(case.name, case.kind) for case in cases]
    share: dict[Kind, float] = {"answerable": 1.0, "elsewhere": unanswerable, "adversarial": unanswerable, "similar": 0}
    sizes = Counter(keys)
    return np.array([share[key[1]] / sizes[key] for key in keys])


def _cases(runs: Runs, name: str) -> Iterator[Case]:
    elsewhere, sampled = _ELSEWHERE[name], _sampled(runs.dataset(name).questions, _SAMPLE_SIZE)
    yield from _asked(runs, name, "answerable", name, [(each, each.corpus) for each in sampled])
    questions = _sampled(sampled, _SAMPLE_SIZE_ELSEWHERE)
    for other in elsewhere.others:
        keys = [_unrelated(runs, name, each) if other == name else _first(runs, other) for each in questions]
        yield from _asked(runs, name, "elsewhere", other, list(zip(questions, keys, strict=True)))
    if elsewhere.similar is not None:
        keys = [_similar(runs, name, each) for each in questions]
        yield from _asked(runs, name, "similar", elsewhere.similar, list(zip(questions, keys, strict=True)))
    adversarial = [(each, each.corpus) for each in runs.dataset(name).unanswerable]
    yield from _asked(runs, name, "adversarial", name, adversarial)


def _asked(runs: Runs, name: str, kind: Kind, of: str, questions: Sequence[tuple[EvalQuestion, str]]) -> Iterator[Case]:
    """Ask questions of corpora of a set, given by their keys."""
    views = [(question, key, runs.view(of, key)) for question, key in questions]
    yield from (Case(name, kind, answer) for answer in runs.ask(runs.dataset(of), views))


def _unrelated(runs: Runs, name: str, question: EvalQuestion) -> str:
    """Return the next corpus of the set, of meetings the next of another group."""
    following = _following(runs, name, question)
    if _ELSEWHERE[name].similar != name:
        return following[0]
    return next(key for key in following if key[:_GROUP_LENGTH] != question.corpus[:_GROUP_LENGTH])


def _similar(runs: Runs, name: str, question: EvalQuestion) -> str:
    similar = _ELSEWHERE[name].similar or name
    return _following(runs, name, question)[0] if similar == name else _first(runs, similar)


def _following(runs: Runs, name: str, question: EvalQuestion) -> list[str]:
    keys = list(runs.dataset(name).corpora)
    at = keys.index(question.corpus)
    return [*keys[at + 1 :], *keys[:at]]


def _first(runs: Runs, name: str) -> str:
    return next(iter(runs.dataset(name).corpora))


def _sampled(values: Sequence[_T], size: int) -> Sequence[_T]:
    return values[:: max(1, len(values) // size)]
