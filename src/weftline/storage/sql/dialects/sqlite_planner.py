"""Fixed statistics for SQLite's query planner: the tenant column is not selective, every further column is.

Without statistics SQLite assumes that the first column of an index is selective. All of our indexes begin with the
tenant, so it would scan a whole tenant where another index finds the row directly. Statistics from ANALYZE would make
plans depend on the data; these are the same everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction

_ROWS = 1_000_000
# The primary key of a table without rowids is listed under the table's name.
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
    """Store the statistics; False if they are already stored."""
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
        # The last column of a unique index selects one row.
        sharing[-1] = 1
    return Statistic(table, index, " ".join(map(str, [_ROWS, *sharing])))
