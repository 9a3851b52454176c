"""Disk space of a board write, against the minimum: its value, and the bytes that its commit's hash covers.

Growth is counted in pages of the SQLite file. ``history`` is blobs, commits and changes with their indexes; ``all`` is
the whole file, including the current entry, the event and their indexes.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import apsw
import msgspec

from benchmarks.harness import Compared, Row
from benchmarks.servers import TENANT, call, folder, open_app, prepare
from benchmarks.wire import run_async
from weftline.history.lines import LineStore
from weftline.history.model import LATEST
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from weftline.app.app import App
    from weftline.history.model import StoredCommit

_SESSION = "s0"
_KEYS = 20
_HISTORY = ("blobs", "commits", "changes", "doubtful_blobs")
_MAX_RATIO = 1.5
_NEEDED = "its value and its commit, as they are"
_COPIES = "a copy of the whole board each time"
_encode = msgspec.json.Encoder().encode


class Disk(NamedTuple):
    """Bytes of a database's pages."""

    history: int
    all: int


def run(*, quick: bool) -> list[Row]:
    writes = 200 if quick else 5_000
    return [row for size in (200, 2_000) for row in run_async(_measure(writes, size))]


async def _measure(writes: int, size: int) -> list[Row]:
    with folder() as data:
        path = data / "weftline.db"
        await prepare(str(path), [_SESSION], keep_versions=10_000)
        values = _texts(size)
        await _write(path, values, writes // 4)
        before = _disk(path)
        await _write(path, values, writes)
        after = _disk(path)
        needed = size + await _commit_bytes(path, writes)
        copies = _copied(data / "copies.db", values, writes)
    per_write = Disk(*((late - early) / writes for late, early in zip(after, before, strict=True)))
    prefix = f"history_storage.{size}_bytes"
    return [
        Compared(per_write.history, needed, per_write.history / needed).row(
            f"{prefix}.history", "bytes/write", _NEEDED, at_most=_MAX_RATIO
        ),
        Compared(per_write.all, needed, per_write.all / needed).row(f"{prefix}.all", "bytes/write", _NEEDED),
        Compared(per_write.all, copies, per_write.all / copies).row(f"{prefix}.{_KEYS}_keys", "bytes/write", _COPIES),
    ]


async def _write(path: Path, values: Iterator[str], writes: int) -> None:
    app = await open_app(str(path))
    for turn in range(writes):
        await call(app, "board.write", session_id=_SESSION, key=f"key_{turn % _KEYS}", value=next(values))
    await app.close()


async def _commit_bytes(path: Path, writes: int) -> float:
    """Return the number of bytes that the hash of each of the last commits covers."""
    app = await open_app(str(path))
    commits = await _last_commits(app, writes + 1)
    await app.close()
    covered = [commit.commit.content_after(before.hash, weight=0) for commit, before in pairwise(commits)]
    return sum(map(len, covered)) / writes


async def _last_commits(app: App, number: int) -> list[StoredCommit]:
    return await app.database.read(Scope(TENANT), lambda transaction: _log(LineStore(transaction), number), heavy=True)


async def _log(lines: LineStore, number: int) -> list[StoredCommit]:
    return list(await lines.log(f"board:{_SESSION}", LATEST, number))


def _disk(path: Path) -> Disk:
    connection = apsw.Connection(str(path))
    connection.pragma("wal_checkpoint", "TRUNCATE")
    tables = ", ".join(f"'{name}'" for name in _HISTORY)
    ((history,),) = connection.execute(
        f"SELECT SUM(d.pgsize) FROM dbstat d JOIN sqlite_schema s ON s.name = d.name WHERE s.tbl_name IN ({tables})"
    )
    file_size = connection.pragma("page_count") * connection.pragma("page_size")
    connection.close()
    return Disk(history, file_size)


def _copied(path: Path, values: Iterator[str], writes: int) -> float:
    """Return the bytes of a write if every version copied the whole board."""
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE versions (seq INTEGER PRIMARY KEY, board BLOB NOT NULL)")
    board = {f"key_{number}": next(values) for number in range(_KEYS)}
    with connection:
        for turn in range(writes):
            board[f"key_{turn % _KEYS}"] = next(values)
            connection.execute("INSERT INTO versions (board) VALUES (?)", (_encode(board),))
    size: int = connection.pragma("page_count") * connection.pragma("page_size")
    connection.close()
    return size / writes


def _texts(size: int) -> Iterator[str]:
    """Yield texts of one length that compress like prose."""
    random = Random(4)
    letters = "etaoinshrdlucmfwygpbvk"
    words = ["".join(random.choices(letters, k=random.randint(2, 9))) for _ in range(3_000)]
    while True:
        yield " ".join(random.choices(words, k=size // 3))[:size]
