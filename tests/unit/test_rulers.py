"""Rulers of evaluations: intervals over groups, figures of what was left out, and the log of closed data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from evals import rulers
from evals.results import Row, as_table
from evals.rulers import AlreadyRead, closed, exceed_left_out, leave_one_source_out, share_by_groups, threshold_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_an_interval_is_of_groups_not_of_texts() -> None:
    values = [True] * 50 + [False] * 50
    alike = share_by_groups(values, ["a"] * 50 + ["b"] * 50)
    apart = share_by_groups(values, list(range(100)))
    assert alike == (0.5, 0.0, 1.0)
    assert apart.value == 0.5
    assert 0.38 < apart.low < 0.45
    assert 0.55 < apart.high < 0.62


def test_a_source_is_judged_by_what_others_taught() -> None:
    parts = list(leave_one_source_out(["x", "y", "x"]))
    assert [part.source for part in parts] == ["x", "y"]
    assert parts[0].others.tolist() == [False, True, False]
    assert all((part.others ^ part.own).all() for part in parts)


def test_a_threshold_keeps_the_rate_and_comes_from_other_sources() -> None:
    negatives = np.arange(100)
    assert (negatives > threshold_at(negatives, 0.05)).sum() == 5
    assert (negatives > threshold_at(negatives, 0.0)).sum() == 0
    # The negatives of x are high: a threshold of its own would let none of them through.
    scores, labels = [9.0, 9.5, 9.9, 0.1, 0.2, 0.3], [0, 0, 1, 0, 0, 1]
    assert exceed_left_out(scores, labels, ["x"] * 3 + ["y"] * 3, 0.0).tolist() == [True, True, True, *[False] * 3]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rulers, "LOG", tmp_path / "closed_runs.jsonl")
    monkeypatch.setattr(rulers, "EXPECTED", tmp_path / "expected.toml")
    monkeypatch.delenv("CLOSED_AGAIN", raising=False)
    (tmp_path / "expected.toml").write_text('"rhymes.all" = 0.9\n')
    return tmp_path / "closed_runs.jsonl"


def measured() -> Iterator[Row]:
    yield Row("rhymes.all", 0.71, "share", None, None, None, (0.6, 0.8))
    yield Row("rhymes.tokens", 12, "tokens", None, None, None)


def test_a_reading_of_closed_data_is_logged_with_what_was_expected(log: Path) -> None:
    assert [row.value for row in closed("rhymes", measured)] == [0.71, 12]
    (run,) = map(json.loads, log.read_text().splitlines())
    assert {"date", "commit", "release"} <= run.keys()
    assert run["figures"][0] == {"name": "rhymes.all", "expected": 0.9, "measured": 0.71, "interval": [0.6, 0.8]}
    table = rulers.expected_table(rulers.closed_runs()).splitlines()
    assert len(table) == 3
    assert table[2].endswith("| rhymes.all | 0.9 | 0.71 | 0.600 to 0.800 |")


def test_closed_data_is_read_once_for_a_release(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed("rhymes", measured)
    with pytest.raises(AlreadyRead, match="rhymes was read"):
        closed("rhymes", measured)
    monkeypatch.setenv("CLOSED_AGAIN", "a mistake in the ruler")
    closed("rhymes", measured)
    assert [json.loads(line)["reason"] for line in log.read_text().splitlines()] == ["", "a mistake in the ruler"]


def test_what_cannot_be_measured_is_not_logged(log: Path) -> None:
    def fail() -> list[Row]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        closed("rhymes", fail)
    assert not log.exists()


def test_a_table_has_intervals() -> None:
    assert "0.600 to 0.800" in as_table(list(measured()))
