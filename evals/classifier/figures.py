"""Figures of the injection detector from the scores of models that had not seen the texts.

    python -m evals.classifier.train --examples examples.jsonl.gz --model MODEL.onnx --out SCORES \
        --folds 0 1 2 3 4 --split group --no-final
    python -m evals.classifier.figures ../shared/eval-data examples.jsonl.gz SCORES

The same with ``--split source``. Writes figures.json: shares of texts above the shipped thresholds, by kind and by
source, with intervals over groups (a payload with its carriers, a conversation). ``group``: other payloads of the same
sources were trained on; ``source``: nothing of a development source was. Ordinary texts for calibration are in no
training; of the other ordinary texts, the model that scores them saw none of their source. A text that is an attack, or
harmless, wherever it stands is judged twice, as talk and as data.

The shipped weights were trained after these folds, on all texts but those for calibration, with one change that does
not touch injection: sentences of statement lists are mixed into new messages.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evals.classifier.examples import FOLDS, group_of
from evals.injection import corpora
from evals.rulers import share_by_groups
from weftline.providers.injection.local import DATA, TALK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FIGURES = Path(__file__).parent / "figures.json"
SPLITS = ("group", "source")
_NO_FOLD = -1
_SETS = {"dev": "development", "train": "training", "ordinary": "other_ordinary"}


class Judged(NamedTuple):
    """A text in one mode, talk or data, judged by a model that had not seen it."""

    set: str
    source: str
    kind: str
    group: str
    is_attack: bool
    is_flagged: bool


_PARTS: dict[str, Callable[[Judged], str]] = {
    "all": lambda _: "all",
    "kind": lambda each: each.kind,
    "source": lambda each: each.source,
}


class Figure(NamedTuple):
    """The share of attacks caught, or of harmless texts flagged, among the texts of a set, a kind or a source."""

    split: str
    set: str
    rate: str
    by: str
    name: str
    share: float
    low: float
    high: float
    texts: int


def figures(data: Path, examples: Path, scores: Path) -> Iterator[Figure]:
    known = _injection_examples(data, examples)
    for split in SPLITS:
        judged = list(_judged(known, scores, split))
        for part, name_of in _PARTS.items():
            for (set_, name, is_attack), own in _grouped(judged, name_of).items():
                share = share_by_groups([each.is_flagged for each in own], [each.group for each in own])
                value, low, high = (round(each, 4) for each in share)
                yield Figure(split, set_, "caught" if is_attack else "false", part, name, value, low, high, len(own))


def read_figures() -> list[Figure]:
    return [Figure(*row) for row in json.loads(FIGURES.read_text("utf-8"))]


def _grouped(judged: list[Judged], name_of: Callable[[Judged], str]) -> dict[tuple[str, str, bool], list[Judged]]:
    found: dict[tuple[str, str, bool], list[Judged]] = {}
    for each in sorted(judged, key=lambda one: (one.set, name_of(one), not one.is_attack)):
        found.setdefault((each.set, name_of(each), each.is_attack), []).append(each)
    return found


def _injection_examples(data: Path, path: Path) -> dict[int, dict[str, Any]]:
    """Return the examples by number, as training counts them, each with its group."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    # The sets of the evaluation data come first, in their order; an ordinary text is a group of its own.
    rows = [
        *corpora.lines_of(data / "injection/injection.jsonl"),
        *corpora.lines_of(data / "injection_training/train.jsonl"),
    ]
    for number, each in enumerate(found):
        each["group"] = str(group_of(rows[number])) if number < len(rows) else str(number)
        if number < len(rows) and not each["source"].endswith(f":{rows[number]['source']}"):
            raise SystemExit(f"Example {number} is not of the row with its number: make the examples again.")
    kept = [each for each in found if each["windows"] and each["windows"][0]]
    # A text may be in two sources: one that is trained on calibrates nothing.
    trained = {json.dumps(each["windows"]) for each in kept if each["folds"][0] != _NO_FOLD}
    return {
        number: each
        for number, each in enumerate(kept)
        if each["task"] == "injection" and (each["folds"][0] != _NO_FOLD or json.dumps(each["windows"]) not in trained)
    }


def _judged(known: dict[int, dict[str, Any]], scores: Path, split: str) -> Iterator[Judged]:
    for fold in range(FOLDS):
        for line in json.loads((scores / f"{split}1.fold{fold}.json").read_text("utf-8")):
            number = line.get("n", -1)
            each = known.get(number)
            # Texts that no model saw are scored by all of them: one counts, another for each text.
            if each is None or (each["folds"][0] == _NO_FOLD and number % FOLDS != fold):
                continue
            yield from _modes(each, line["scores"][0])


def _modes(each: dict[str, Any], scores: Sequence[float]) -> Iterator[Judged]:
    """Yield a text as talk, as data, or both, as far as its label is known."""
    for mode, bar in enumerate((TALK, DATA)):
        if each["labels"][mode] >= 0:
            early, last = scores[mode], scores[2 + mode]
            flagged = early >= bar.least and last > bar.flagged
            set_, _, source = each["source"].partition(":")
            name = "calibration" if each["folds"][0] == _NO_FOLD else _SETS[set_]
            # A payload and its carrier may have sources of their own: that of the payload counts.
            payload = source.partition("+")[0]
            yield Judged(name, payload, each["kind"], each["group"], bool(each["labels"][mode]), flagged)


def main() -> None:
    found = list(figures(*map(Path, sys.argv[1:])))
    FIGURES.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
