"""Benchmarks and evaluations run, and their results are well formed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.__main__ import NAMES
from benchmarks.harness import Baseline, Compared, Row, save

from support.full_run import FULL

_ROOT = Path(__file__).parents[2]
_FIELDS = {"name", "value", "unit", "baseline", "ratio", "target", "met"}


def test_each_benchmark_can_be_imported() -> None:
    for name in NAMES:
        assert callable(import_module(f"benchmarks.{name}").run), name


@pytest.mark.parametrize("name", NAMES if FULL else ["inprocess_write"])
def test_a_small_run_of_each_benchmark_writes_well_formed_results(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--results", str(tmp_path)]
    process = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr
    rows = json.loads((tmp_path / "bench.json").read_text())
    assert rows
    for row in rows:
        assert set(row) == _FIELDS
        assert row["name"].startswith(("rest_", name))
        assert row["value"] >= 0
        assert row["met"] in {True, False, None}
        assert (row["target"] is None) == (row["met"] is None)
        assert (row["baseline"] is None) == (row["ratio"] is None)
        assert row["name"] in process.stdout
    assert {"cores", "cpu", "python", "sqlite"} <= set(json.loads((tmp_path / "bench-machine.json").read_text()))


def test_results_of_benchmarks_that_were_not_run_are_kept(tmp_path: Path) -> None:
    save(tmp_path, [Row("startup.ready", 1.0, "s"), Row("startup.help_cpu", 1.0, "s"), Row("idle_memory", 80.0, "MB")])
    save(tmp_path, [Row("startup.ready", 2.0, "s")])
    rows = {row["name"]: row["value"] for row in json.loads((tmp_path / "bench.json").read_text())}
    assert rows == {"startup.ready": 2.0, "idle_memory": 80.0}


def test_a_target_is_met_at_its_exact_value() -> None:
    result = Compared(ours=10.0, theirs=4.0, ratio=2.5)
    assert result.row("a", "us", "b", at_most=2.5).met is True
    assert result.row("a", "us", "b", at_most=2.4).met is False
    assert result.rate_row("a", "us", "b", at_least=2.6).met is False
    without_target = result.row("a", "us", "b")
    assert (without_target.met, without_target.target, without_target.baseline) == (None, None, Baseline("b", 4.0))


def test_an_unknown_benchmark_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks", "nothing"]
    process = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert process.returncode == 2
    assert "unknown: nothing" in process.stderr


def test_evaluations_can_be_imported() -> None:
    """Their data is not in the repository; the modules must at least import."""
    command = [sys.executable, "-m", "evals", "no such evaluation"]
    process = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert (process.returncode, process.stderr) == (2, "")
    assert "Unknown evaluation" in process.stdout
