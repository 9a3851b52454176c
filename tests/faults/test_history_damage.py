"""Verification finds any changed byte in stored history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from weftline.history.lines import LineStore
from weftline.history.model import (
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    Head,
    Point,
    Tag,
    blob_hash,
)
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.world import World
    from weftline.history.model import Damage
    from weftline.kernel.transaction import Transaction

pytestmark = [pytest.mark.both_databases, pytest.mark.req("SC-08")]

TRUNK, LINE, OTHER = "board:t", "board:t@draft", "board:t@other"
META = ChangeMeta(tokens=3, readable_by=("human:*",), metadata_hash="ab")
VALUES = ["a short one", "ünïcödé", "a long one that is worth compressing " * 40]
KEYS = {
    "commits": ("line_id", "seq"),
    "changes": ("line_id", "key", "seq"),
    "blobs": ("hash",),
    "tags": ("line_id", "label"),
    "lines": ("line_id",),
}
# Not covered: the time of the next expiry, and the location of a value in object storage (its own hash covers it).
COLUMNS = {
    "commits": "line_id seq hash author principal_id committed_at reason step weight merged_line merged_seq"
    " merged_hash salt",
    "changes": "line_id key seq incarnation version act blob_hash meta",
    "blobs": "hash content",
    "tags": "label seq created_by created_at automatic hash",
    "lines": "seq head weight step trunk base_line base_seq",
}


class RolledBack(Exception):
    """Rolls a transaction back and carries the damage found in it."""

    def __init__(self, damage: Damage | None) -> None:
        self.found = None if damage is None else damage.detail
        super().__init__(self.found)


class Cell(NamedTuple):
    """One value of one row."""

    table: str
    column: str
    where: dict[str, Any]
    value: Any


async def make_history(lines: LineStore) -> None:
    """Make a branch with shared commits, a merge, steps, tags, and short and long values."""
    for value in VALUES:
        await lines.put_blob(blob_hash(value), value)
    await lines.create(TRUNK)
    base = await add(lines, Head.of_new_line(TRUNK), VALUES[0], 1)
    for name in (LINE, OTHER):
        point = Point(TRUNK, base.seq, base.hash)
        assert await lines.branch(name, point, weight=base.weight, next_expiry_at=None)
    heads = [await lines.lock(name) for name in (LINE, OTHER)]
    assert heads[0] is not None
    assert heads[1] is not None
    other = await add(lines, heads[1], VALUES[1], 2)
    second = await add(lines, heads[0], VALUES[2], 2)
    merged = await add(lines, second, VALUES[1], 3, merged=Point(OTHER, other.seq, other.hash))
    await add(lines, merged, None, 3)
    await lines.tag(LINE, Tag("mark", 2, "orchestrator", 7))
    await lines.tag(LINE, Tag("before-merge-v2", 2, "orchestrator", 8, automatic=True))
    await lines.tag(LINE, Tag("shared", 1, "orchestrator", 9))


async def add(lines: LineStore, head: Head, value: str | None, version: int, merged: Point | None = None) -> Head:
    act = ChangeKind.DELETE if value is None else ChangeKind.WRITE
    changes = (
        Change("goal", 1, version, act, None if value is None else blob_hash(value), META),
        Change("plan", 1, version, ChangeKind.WRITE, blob_hash(VALUES[0]), META),
    )
    author = Author("orchestrator", "planner")
    commit = Commit(head.line_id, head.seq + 1, author, 50 + version, "write", f"step{version}", changes, merged)
    return await lines.append(head, commit, weight=head.weight + 4, next_expiry_at=None)


async def in_transaction(world: World, work: Callable[[LineStore], Awaitable[None]]) -> None:
    await world.app.database.write(Scope(world.tenant), lambda transaction: work(LineStore(transaction)))


async def damage_after(world: World, statement: str, *values: Any) -> str | None:
    """Run a statement, return what verification finds, and roll back."""

    async def tamper(transaction: Transaction) -> None:
        await transaction.run(statement, *values)
        raise RolledBack(await LineStore(transaction).verify(LINE))

    with pytest.raises(RolledBack) as caught:
        await world.app.database.write(Scope(world.tenant), tamper)
    return caught.value.found


async def cells(world: World, table: str) -> list[Cell]:
    """Return every value of the line in a table."""
    columns, keys = COLUMNS[table].split(), KEYS[table]
    of_line = "" if table == "blobs" else " AND line_id = $2"
    rows = await world.rows(
        f"SELECT {', '.join([*keys, *columns])} FROM {table} WHERE tenant = $1{of_line}",
        world.tenant,
        *([LINE] if of_line else []),
    )
    return [
        Cell(table, column, dict(zip(keys, row, strict=False)), value)
        for row in rows
        for column, value in zip(columns, row[len(keys) :], strict=True)
        if value is not None
    ]


def flipped(cell: Cell) -> list[Any]:
    """Return copies of a value with one bit flipped: in the first, middle or last byte."""
    value = cell.value
    if isinstance(value, int):
        # A higher bit in a key, so that the row does not collide with its neighbour.
        return [value ^ (64 if cell.column in cell.where else 1)]
    raw = value.encode() if isinstance(value, str) else bytes(value)
    changed = [raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :] for place in {0, len(raw) // 2, len(raw) - 1}]
    return [new.decode() for new in changed] if isinstance(value, str) else changed


@pytest.mark.parametrize("table", COLUMNS)
async def test_verification_finds_a_flipped_bit_in_any_column(world: World, table: str) -> None:
    await in_transaction(world, make_history)
    assert await damage_after(world, "UPDATE lines SET next_expiry_at = 1 WHERE tenant = $1", world.tenant) is None
    undetected, tried = [], set()
    for cell in await cells(world, table):
        where = " AND ".join(f"{key} = ${place}" for place, key in enumerate(cell.where, 3))
        statement = f"UPDATE {table} SET {cell.column} = $1 WHERE tenant = $2 AND {where}"
        for new in flipped(cell):
            tried.add(cell.column)
            if await damage_after(world, statement, new, world.tenant, *cell.where.values()) is None:
                undetected.append((cell.column, cell.value, new))
    assert undetected == []
    assert tried == set(COLUMNS[table].split())


@pytest.mark.parametrize("table", ["commits", "changes", "blobs"])
async def test_verification_finds_a_missing_row(world: World, table: str) -> None:
    await in_transaction(world, make_history)
    for cell in await cells(world, table):
        where = " AND ".join(f"{key} = ${place}" for place, key in enumerate(cell.where, 2))
        statement = f"DELETE FROM {table} WHERE tenant = $1 AND {where}"
        assert await damage_after(world, statement, world.tenant, *cell.where.values()) is not None


async def test_verification_finds_an_inserted_row(world: World) -> None:
    await in_transaction(world, make_history)
    change = """
    INSERT INTO changes (tenant, line_id, key, seq, incarnation, version, act, meta)
    VALUES ($1, $2, 'planted', 2, 1, 1, 'delete', $3)
    """
    assert await damage_after(world, change, world.tenant, LINE, "{}") == "commit 2 is not what was written"
    commit = """
    INSERT INTO commits (tenant, line_id, seq, hash, author, principal_id, committed_at, reason)
    SELECT tenant, line_id, seq + 1, hash, author, principal_id, committed_at, reason FROM commits
    WHERE tenant = $1 AND line_id = $2 AND seq = 4
    """
    longer = "UPDATE lines SET seq = seq + 1 WHERE tenant = $1 AND line_id = $2"

    async def tamper(transaction: Transaction) -> None:
        for statement in (commit, longer):
            await transaction.run(statement, world.tenant, LINE)
        raise RolledBack(await LineStore(transaction).verify(LINE))

    with pytest.raises(RolledBack, match="commit 5 is not what was written"):
        await world.app.database.write(Scope(world.tenant), tamper)


async def test_verification_finds_current_values_that_were_pruned(world: World) -> None:
    await in_transaction(world, make_history)
    prune = "UPDATE changes SET pruned = 1 WHERE tenant = $1 AND line_id = $2 AND key = 'plan' AND seq = $3"
    assert await damage_after(world, prune, world.tenant, LINE, 4) is not None
    assert await damage_after(world, prune, world.tenant, LINE, 3) is None


# PostgreSQL rejects invalid UTF-8.
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_verification_survives_invalid_utf_8(world: World) -> None:
    await in_transaction(world, make_history)
    for column in ("author", "reason"):
        broken = f"UPDATE commits SET {column} = CAST($1 AS TEXT) WHERE tenant = $2 AND line_id = $3"
        assert await damage_after(world, broken, b"\xff\xfe", world.tenant, LINE) is not None
