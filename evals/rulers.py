"""One frame for what is learnt and for what is measured once: who wrote it, how sure the figure is, who has seen it.

Every text has a source, its author or data set, and a group, such as a conversation. A figure of a source comes from a
model or a threshold that saw nothing of it. Intervals are of groups, not of texts: texts of one author are alike. The
closed part is read by `closed`, which appends the figures to closed_runs.jsonl with date, commit and what was expected;
`python -m evals.rulers` prints that log as a table of expected against measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from evals.results import Row

_FOLDER = Path(__file__).parent
LOG, EXPECTED = _FOLDER / "closed_runs.jsonl", _FOLDER / "expected.toml"
_DRAWS = 2_000
_PERCENTILES = (2.5, 97.5)
_AGAIN = "CLOSED_AGAIN"


class AlreadyRead(Exception):
    """The closed part was read for this release."""


class Share(NamedTuple):
    """A share, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


class LeftOut(NamedTuple):
    """A source, the rows of all others, and its own."""

    source: str
    others: NDArray[np.bool_]
    own: NDArray[np.bool_]


def share_by_groups(values: ArrayLike, groups: Sequence[Hashable]) -> Share:
    """Return the mean of values, and its interval by drawing whole groups again and again."""
    known = np.asarray(values, np.float64)
    names = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    numbers = np.array([names[group] for group in groups])
    sums, sizes = np.bincount(numbers, known), np.bincount(numbers)
    drawn = np.random.default_rng(0).integers(len(names), size=(_DRAWS, len(names)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.percentile(means, _PERCENTILES)
    return Share(float(known.mean()), float(low), float(high))


def leave_one_source_out(sources: Sequence[str]) -> Iterator[LeftOut]:
    """Yield each source with the rows to learn from and the rows to judge."""
    known = np.array(sources)
    for source in dict.fromkeys(sources):
        yield LeftOut(source, known != source, known == source)


def threshold_at(negatives: ArrayLike, false_rate: float) -> float:
    """Return the lowest threshold that at most this share of negatives exceeds."""
    scores = np.sort(np.asarray(negatives, np.float64))
    return float(scores[len(scores) - 1 - int(false_rate * len(scores))])


def exceed_left_out(
    scores: ArrayLike, labels: ArrayLike, sources: Sequence[str], false_rate: float
) -> NDArray[np.bool_]:
    """Tell which scores exceed a threshold that was chosen on the negatives of all other sources."""
    known, truth = np.asarray(scores, np.float64), np.asarray(labels)
    exceeds = np.zeros(len(known), np.bool_)
    for _, others, own in leave_one_source_out(sources):
        exceeds[own] = known[own] > threshold_at(known[others & (truth == 0)], false_rate)
    return exceeds


def closed(name: str, measure: Callable[[], Iterable[Row]]) -> list[Row]:
    """Measure on closed data, once per release, and log the figures.

    A second reading needs a reason in the environment, CLOSED_AGAIN, which is logged as well.
    """
    release, reason = version("weftline"), os.environ.get(_AGAIN, "")
    if not reason and any((each["eval"], each["release"]) == (name, release) for each in closed_runs()):
        raise AlreadyRead(f"{name} was read for release {release}: see {LOG.name}. {_AGAIN}=reason reads it again.")
    rows = list(measure())
    run = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _commit(),
        "release": release,
        "eval": name,
        "reason": reason,
        "figures": list(_figures(rows)),
    }
    with LOG.open("a", encoding="utf-8") as log:
        log.write(json.dumps(run, ensure_ascii=False) + "\n")
    return rows


def closed_runs() -> list[dict[str, Any]]:
    """Return the readings of closed data, oldest first."""
    return [json.loads(line) for line in LOG.read_text("utf-8").splitlines()] if LOG.exists() else []


def _figures(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    expected = tomllib.loads(EXPECTED.read_text("utf-8"))
    for row in rows:
        measured = {"measured": round(row.value, 4), "interval": row.interval}
        yield {"name": row.name, "expected": expected.get(row.name), **measured}


def _commit() -> str:
    """Return the commit, with a plus if files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=_FOLDER, capture_output=True, text=True, check=True)  # noqa: S603, S607 - the developer's git
        return done.stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")


def expected_table(runs: Iterable[dict[str, Any]]) -> str:
    """Return the figures of closed data that were expected, against what was measured."""
    lines = ["| date | commit | figure | expected | measured | 95 % interval |", "|---|---|---|---|---|---|"]
    for run in runs:
        for each in run["figures"]:
            if each["expected"] is not None:
                interval = "{:.3f} to {:.3f}".format(*each["interval"]) if each["interval"] else ""
                cells = [run["date"], run["commit"], each["name"], each["expected"]]
                lines.append("| " + " | ".join(map(str, [*cells, each["measured"], interval])) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(expected_table(closed_runs()))
