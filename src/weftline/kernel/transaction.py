"""The port to the database: one open transaction, the base of the stores that run plain SQL in it, leases of rows.

SQL is written once. Parameters are ``$1, $2, ...`` in the order of their first use, which both engines bind by
position. The few words that differ are placeholders in braces (``{for_update}``) that the dialect fills in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.kernel.events import NewEvent


Row = Any
Value = str | int | float | bytes | None
T = TypeVar("T")

# Values per statement with a list of parameters.
BATCH_SIZE = 50


def placeholders(first: int, count: int = BATCH_SIZE) -> str:
    """Return ``count`` parameters for a list in SQL, from ``$first`` on."""
    return ", ".join(f"${place}" for place in range(first, first + count))


def batches(values: Sequence[T], size: int = BATCH_SIZE) -> Iterator[list[T]]:
    """Split values into batches of one size, so that their statement is prepared once. The last value pads."""
    for start in range(0, len(values), size):
        batch = [*values[start : start + size]]
        yield batch + batch[-1:] * (size - len(batch))


def flat_batches(rows: Sequence[tuple[Value, ...]]) -> Iterator[list[Value]]:
    """Split rows of values in the same way, as the parameters of one statement each."""
    return ([value for row in batch for value in row] for batch in batches(rows))


class Transaction(Protocol):
    """One open transaction."""

    tenant: str
    published: list[NewEvent]
    # Agent types that ACLs of this transaction name; noted with its events.
    named_types: set[str]
    access_changed: bool

    async def one(self, sql: str, *values: Value) -> Row | None:
        """Run a statement and return its first row."""
        ...

    async def all(self, sql: str, *values: Value) -> Sequence[Row]:
        """Run a statement and return every row."""
        ...

    async def run(self, sql: str, *values: Value) -> None:
        """Run a statement for its effect."""
        ...

    async def changed(self, sql: str, *values: Value) -> int:
        """Run a statement and return the number of rows it changed: cheaper on SQLite than RETURNING."""
        ...

    async def many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values, in one round trip."""
        ...

    async def yield_to_loop(self) -> None:
        """Yield to the event loop between the statements of long work."""
        ...


class SqlStore:
    """Base of stores: the rows of one tenant, in one transaction."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant


class RowLease:
    """The lease of one row, in its columns ``holder`` and ``lease_until``: of a job, a document or a webhook.

    Keys and further values are passed as parameters; table, columns and SQL fragments are constants of the callers.
    """

    __slots__ = ("_keys", "_table", "_tx", "_values")

    def __init__(self, transaction: Transaction, table: str, **key: str | int) -> None:
        self._tx = transaction
        self._table = table
        self._keys = ["tenant", *key]
        self._values = (transaction.tenant, *key.values())

    async def take(self, holder: str, until: int, *, also: str = "") -> None:
        """Give the lease to a holder; the row is locked already. ``also`` sets further columns."""
        await self._update(f"holder = $1, lease_until = $2{also} WHERE {self._where(3)}", holder, until, *self._values)

    async def renew(self, holder: str, until: int, *, only_if: str = "") -> bool:
        """Extend the lease and lock the row until the transaction ends; False if the holder has lost it."""
        changes = f"lease_until = $1 WHERE {self._where(2)} AND holder = ${len(self._keys) + 2}{only_if}"
        return await self._update(changes, until, *self._values, holder) > 0

    async def release(self, holder: str, until: int, *, also: str = "") -> None:
        """End the lease if the holder has it; the row is not claimed before ``until``."""
        where = f"{self._where(2)} AND holder = ${len(self._keys) + 2}"
        await self._update(f"holder = NULL, lease_until = $1{also} WHERE {where}", until, *self._values, holder)

    def _where(self, first: int) -> str:
        # SQLite numbers parameters in the order they appear in.
        return " AND ".join(f"{column} = ${place}" for place, column in enumerate(self._keys, first))

    async def _update(self, changes: str, *values: str | int) -> int:
        return await self._tx.changed(f"UPDATE {self._table} SET {changes}", *values)  # noqa: S608 - constants only
