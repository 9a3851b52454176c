"""Shared by all benchmarks: result rows, paired rounds, CPU time of processes."""

from __future__ import annotations

import json
import os
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ParamSpec

import apsw

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

P = ParamSpec("P")
SECOND_IN_MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class Baseline:
    """The baseline of a value."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Row:
    """One result. ``met`` is None where there is no target."""

    name: str
    value: float
    unit: str
    baseline: Baseline | None = None
    ratio: float | None = None
    target: str | None = None
    met: bool | None = None

    @property
    def benchmark(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Compared:
    """Medians over rounds: our cost, the baseline's, and the ratio."""

    ours: float
    theirs: float
    ratio: float

    def row(self, name: str, unit: str, against: str, *, at_most: float | None = None) -> Row:
        """Return a row whose ratio should be small."""
        return self._row(
            name, unit, against, f"at most {at_most or 0:g} x", None if at_most is None else at_most - self.ratio
        )

    def rate_row(self, name: str, unit: str, against: str, *, at_least: float | None = None) -> Row:
        """Return a row whose ratio should be large."""
        missing = None if at_least is None else self.ratio - at_least
        return self._row(name, unit, against, f"at least {at_least or 0:g} x", missing)

    def _row(self, name: str, unit: str, against: str, target: str, spare: float | None) -> Row:
        return Row(
            name=name,
            value=_rounded(self.ours),
            unit=unit,
            baseline=Baseline(against, _rounded(self.theirs)),
            ratio=round(self.ratio, 3),
            target=None if spare is None else target,
            met=None if spare is None else spare >= 0,
        )


async def compare(
    rounds: int, ours: Callable[[], Awaitable[float]], theirs: Callable[[], Awaitable[float]]
) -> Compared:
    """Measure both in turn, so that other load on the machine affects both equally."""
    pairs = [(await ours(), await theirs()) for _ in range(rounds)]
    return compared(pairs)


def compared(pairs: Sequence[tuple[float, float]]) -> Compared:
    return Compared(
        ours=median(ours for ours, _ in pairs),
        theirs=median(theirs for _, theirs in pairs),
        ratio=median(ours / theirs for ours, theirs in pairs),
    )


def run_in_subprocess(name: str, *, quick: bool) -> list[Row]:
    """Run one benchmark in a subprocess."""
    return in_subprocess(_run_here, name, quick)


def in_subprocess(measure: Callable[P, list[Row]], *args: P.args, **kwargs: P.kwargs) -> list[Row]:
    """Measure in a subprocess, so that heap and caches do not carry over."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, *args, **kwargs).result()


def _run_here(name: str, quick: bool) -> list[Row]:  # noqa: FBT001 - called by position in another process
    rows: list[Row] = import_module(f"benchmarks.{name}").run(quick=quick)
    return rows


def limited(name: str, value: float, unit: str, *, below: float) -> Row:
    """Return a row with an absolute target."""
    return Row(name, _rounded(value), unit, target=f"below {below:g} {unit}", met=value < below)


def cpu_seconds(*pids: int) -> float:
    """Return the user and system time of processes with all their threads."""
    # The clock id of another process, as clock_getcpuclockid(3) computes it: finer than the ticks in /proc.
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def machine() -> dict[str, Any]:
    models = [line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line]
    return {
        "cores": os.cpu_count(),
        "cpu": models[0].partition(":")[2].strip() if models else platform.processor(),
        "memory_mb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20,
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "load_average": os.getloadavg()[0],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def save(folder: Path, rows: Sequence[Row]) -> None:
    """Store results, keeping those of benchmarks that did not run this time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "bench.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    ran = {row.benchmark for row in rows}
    unchanged = [old for old in before if old["name"].partition(".")[0] not in ran]
    all_rows = sorted([*unchanged, *map(asdict, rows)], key=lambda row: row["name"])
    path.write_text(json.dumps(all_rows, indent=1) + "\n", encoding="utf-8")
    (folder / "bench-machine.json").write_text(json.dumps(machine(), indent=1) + "\n", encoding="utf-8")


def show(rows: Sequence[Row]) -> None:
    for row in rows:
        baseline = f"{row.baseline.name} {row.baseline.value:,g}" if row.baseline else ""
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} x"
        verdict = {None: "", True: "met", False: "MISSED"}[row.met]
        measured = f"{row.name:<36} {row.value:>10,g} {row.unit:<12} {ratio:>8}"
        print(f"{measured}  {row.target or '':<16} {verdict:<7} {baseline}".rstrip(), flush=True)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
