"""Durable board writes per second in one process, against a raw group-commit loop that writes the same rows.

Each round starts with two copies of one database. Weftline writes to the first with 64 callers; a loop over apsw, which
is given the resulting rows, then writes them to the second.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from itertools import islice
from typing import TYPE_CHECKING

from benchmarks.baselines.replay import last_event_in_sqlite, recorded_in_sqlite, replay_on_sqlite
from benchmarks.harness import Row, compared
from benchmarks.servers import call, folder, prepare
from benchmarks.wire import texts
from weftline.open import Weftline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CALLERS = 64
VALUE_CHARS = 200
_KEYS = 4
_RAW = "raw group commit on apsw"


def run(*, quick: bool) -> list[Row]:
    return asyncio.run(_run(rounds=1 if quick else 5, calls=2 if quick else 30))


async def _run(rounds: int, calls: int) -> list[Row]:
    sessions = [f"s{number}" for number in range(CALLERS)]
    rows = []
    with folder() as data:
        start = data / "start.db"
        await prepare(str(start), sessions)
        for name, used in (("64_sessions", sessions), ("one_session", sessions[:1] * CALLERS)):
            pairs = [await _round(data, start, used, calls) for _ in range(rounds)]
            result = compared(pairs)
            rows.append(result.rate_row(f"inprocess_write.{name}", "writes/s", _RAW, at_least=0.4))
    return rows


async def _round(data: Path, start: Path, sessions: Sequence[str], calls: int) -> tuple[float, float]:
    ours, theirs = data / "ours.db", data / "theirs.db"
    for path in (ours, theirs):
        shutil.copyfile(start, path)
    count = len(sessions) * calls
    our_seconds = await _write(ours, sessions, calls)
    writes = recorded_in_sqlite(ours, last_event_in_sqlite(start))
    if len(writes) != count:
        raise RuntimeError(f"{len(writes)} of {count} writes are on record")
    their_seconds = replay_on_sqlite(theirs, writes)
    return count / our_seconds, count / their_seconds


async def _write(path: Path, sessions: Sequence[str], calls: int) -> float:
    async with Weftline.open(path) as weftline:
        for session_id in set(sessions):
            await call(weftline.app, "board.list_keys", session_id=session_id)
        return await write_all(weftline, sessions, calls)


async def write_all(weftline: Weftline, sessions: Sequence[str], calls: int) -> float:
    """Write with one caller per session; return the seconds."""

    async def write(caller: int, session_id: str) -> None:
        values = islice(texts(VALUE_CHARS - 4), calls)
        for turn, value in enumerate(values):
            await weftline.board.write(session_id, f"key_{caller}_{turn % _KEYS}", f"{caller:03d} {value}")

    started = time.perf_counter()
    await asyncio.gather(*(write(caller, session_id) for caller, session_id in enumerate(sessions)))
    return time.perf_counter() - started
