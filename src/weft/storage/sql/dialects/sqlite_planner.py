"""What SQLite's planner must know of our tables: a tenant is not selective, every further column is.

Without statistics SQLite takes an index's first column for as good a filter as any. All of ours begin with the tenant,
so it would read a whole tenant where another index leads straight to the row. Statistics gathered from real data
would make plans depend on it; these are the same everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weft.storage.sql.database import Transaction

_ROWS = 1_000_000
# The key of a table without rowids goes by the table's own name.
_INDEXES = """
SELECT t.name, CASE WHEN i.origin = 'pk' AND l.wr THEN t.name ELSE i.name END AS known_as, i.origin, COUNT(*)
FROM sqlite_schema t, pragma_table_list(t.name) l, pragma_index_list(t.name) i, pragma_index_info(i.name) c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND l.schema = 'main'
GROUP BY t.name, i.name ORDER BY t.name, known_as
"""


class Statistic(NamedTuple):
    """A row of sqlite_stat1: how many rows there are, and how many share each longer prefix of an index."""

    table: str
    name: str
    numbers: str


async def teach_planner(transaction: Transaction) -> bool:
    """Write the statistics down; False if they are there already."""
    wanted = [_statistic(*row) for row in await transaction.all(_INDEXES)]
    if await _known(transaction) == wanted:
        return False
    await transaction.run("ANALYZE")
    await transaction.run("DELETE FROM sqlite_stat1")
    for statistic in wanted:
        await transaction.run("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES ($1, $2, $3)", *statistic)
    await transaction.run("ANALYZE sqlite_schema")
    return True


async def _known(transaction: Transaction) -> list[Statistic]:
    if await transaction.one("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1'") is None:
        return []
    rows = await transaction.all("SELECT tbl, idx, stat FROM sqlite_stat1 ORDER BY tbl, idx")
    return [Statistic(*row) for row in rows]


def _statistic(table: str, index: str, origin: str, columns: int) -> Statistic:
    sharing = [round(_ROWS ** (1 - place / columns)) for place in range(columns)]
    if origin == "pk":
        # Its last column makes it unique.
        sharing[-1] = 1
    return Statistic(table, index, " ".join(map(str, [_ROWS, *sharing])))
