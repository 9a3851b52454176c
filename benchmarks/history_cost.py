"""Cost of a write, a rollback, a branch and a diff on short and long histories and on narrow and wide boards.

Only the diff may depend on the size: the ratio compares the grown board with a fresh one.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.grown_board import (
    GROWN,
    KEYS,
    LONG,
    SPREAD,
    WIDE,
    backend_cost,
    compare_warm,
    fill_boards,
    grow_postgres,
    grow_sqlite,
    process_cost,
)
from benchmarks.harness import Row, limited
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import call, folder, open_app
from benchmarks.wire import run_async
from weftline.state.board.board_writer import MAX_BRANCHES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from benchmarks.grown_board import Calls
    from weftline.app.app import App

_MAX_WRITE_RATIO = 1.3
_MAX_RATIO = 1.5
_LINE = f"board:{GROWN}"
_SMALL_FRACTION = 100
_DIFF_BELOW_MILLIS = 50
_MILLIS = 1_000


class Sizes(NamedTuple):
    """Sizes of boards and numbers of calls."""

    rounds: int
    calls: int
    commits: int
    entries: int
    distance: int


_QUICK = Sizes(rounds=2, calls=10, commits=200, entries=200, distance=200)
_FULL = Sizes(rounds=5, calls=60, commits=100_000, entries=10_000, distance=10_000)


class Growth(NamedTuple):
    """One dimension in which a board grows."""

    name: str
    statements: Sequence[str]
    size: int


class Side(NamedTuple):
    """A measured board, and its PostgreSQL database if any."""

    app: App
    database: str | None

    def cost(self, operation: Calls, calls: int) -> Callable[[], Awaitable[float]]:
        if self.database is None:
            return process_cost(self.app, operation, calls)
        return backend_cost(self.app, operation, calls, self.database)


def run(*, quick: bool) -> list[Row]:
    sizes = _QUICK if quick else _FULL
    return [*run_async(_on_sqlite(sizes)), *run_async(_on_postgres(sizes))]


async def _on_sqlite(sizes: Sizes) -> list[Row]:
    with folder() as data:

        async def new_side(name: str, growth: Growth | None) -> Side:
            url = str(data / f"{name}.db")
            await fill_boards(url, ["s0", GROWN])
            if growth is not None:
                grow_sqlite(url, growth.statements, growth.size)
            return Side(await open_app(url), None)

        return await _measure("sqlite", sizes, new_side)


async def _on_postgres(sizes: Sizes) -> list[Row]:
    with postgres_server() as server:

        async def new_side(name: str, growth: Growth | None) -> Side:
            url = await postgres_database(server, name)
            await fill_boards(url, ["s0", GROWN])
            await grow_postgres(url, growth.statements if growth else (), growth.size if growth else 0)
            return Side(await open_app(url), name)

        return await _measure("postgres", sizes, new_side)


async def _measure(database: str, sizes: Sizes, new_side: Callable[[str, Growth | None], Awaitable[Side]]) -> list[Row]:
    rows = []
    for growth in (Growth("commits", LONG, sizes.commits), Growth("entries", WIDE, sizes.entries)):
        rows += await _growth_rows(database, sizes, growth, new_side)
    # With a different key in every commit the answer itself is long; the target is the same and may be missed.
    for growth in (Growth("100_keys", SPREAD, sizes.distance), Growth("as_many_keys", WIDE, sizes.distance)):
        side = await new_side(f"diff_{growth.name}", growth)
        await _diff(side.app, sizes.distance)
        millis = [await _diff(side.app, sizes.distance) for _ in range(sizes.rounds * 2)]
        row_name = f"history_cost.{database}.diff.{sizes.distance}_apart.{growth.name}"
        rows.append(limited(row_name, median(millis), "ms", below=_DIFF_BELOW_MILLIS))
        await side.app.close()
    return rows


async def _growth_rows(
    database: str, sizes: Sizes, growth: Growth, new_side: Callable[[str, Growth | None], Awaitable[Side]]
) -> list[Row]:
    # PostgreSQL plans longer once it has statistics, so the baseline is a board with statistics too.
    few = growth.size // _SMALL_FRACTION
    large = await new_side(f"large_{growth.name}", growth)
    fresh = await new_side(f"fresh_{growth.name}", None)
    small = await new_side(f"small_{growth.name}", growth._replace(size=few))
    rows = []
    # The maximum number of branches of a board, over all rounds and the warm-up.
    branches = min(sizes.calls, MAX_BRANCHES // (sizes.rounds + 1))
    for name, operation, calls, other, number, max_ratio in (
        ("write", _write, sizes.calls, fresh, KEYS, _MAX_WRITE_RATIO),
        ("rollback", _Rollbacks(), sizes.calls, small, few + KEYS, _MAX_RATIO),
        ("branch", _branch, branches, small, few + KEYS, _MAX_RATIO),
    ):
        result = await compare_warm(sizes.rounds, *(side.cost(operation, calls) for side in (large, other)))
        row_name = f"history_cost.{database}.{name}.{growth.size}_{growth.name}"
        rows.append(result.row(row_name, "us CPU/call", f"with {number} {growth.name}", at_most=max_ratio))
    for side in (large, fresh, small):
        await side.app.close()
    return rows


async def _write(app: App, turn: int) -> None:
    await call(app, "board.write", session_id=GROWN, key="key_0", value=_text(turn))


class _Rollbacks:
    """Rolls a board back by one commit, made by the previous write or rollback."""

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}

    async def __call__(self, app: App, turn: int) -> None:
        if id(app) not in self._versions:
            await _write(app, -1 - turn)
            (commit,) = (await call(app, "history.log", context_id=_LINE, limit=1))["commits"]
            self._versions[id(app)] = commit["version"]
        target = str(self._versions[id(app)] - 1)
        done = await call(app, "history.rollback", context_id=_LINE, target_version=target)
        self._versions[id(app)] = done["version"]


async def _branch(app: App, turn: int) -> None:
    await call(app, "history.branch", context_id=_LINE, branch=f"branch_{turn}", from_version=str(KEYS // 2))


async def _diff(app: App, distance: int) -> float:
    started = time.perf_counter()
    await call(
        app, "history.diff", context_id=_LINE, from_version=str(KEYS), to_version=str(KEYS + distance), text=True
    )
    return (time.perf_counter() - started) * _MILLIS


def _text(turn: int) -> str:
    return f"{turn} " + "what was found so far " * 8
