"""The interface of both databases: transactions inside one tenant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from weftline.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from weftline.indexing.collections import VectorSearch
    from weftline.insight.metrics import DatabaseMetrics
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Row, Transaction, Value

T = TypeVar("T")


class AccessChanged(Exception):
    """The tenant's access epoch changed since the caller was authenticated."""


class Scope(msgspec.Struct, frozen=True):
    """The isolation scope of a transaction: one tenant, or the whole installation for the system itself.

    ``epoch`` is the tenant's access epoch at authentication. A transaction under another epoch raises AccessChanged
    before its first statement, so a revocation takes effect at once in every process. ``principal`` is the path
    of the caller that the transaction is for (``Actor.path``), by which databases share their time fairly; background
    work has none.
    """

    tenant: str | None
    epoch: int | None = None
    principal: str = ""


SYSTEM = Scope(tenant=None)


def caller_scope(actor: Actor) -> Scope:
    """Return the scope of a caller's transactions, which fail once its access rules have changed."""
    return Scope(actor.tenant, actor.epoch, actor.path)


# Lookups that a read transaction repeats are few; those of long reads of many rows are all different.
_MAX_SNAPSHOT_ROWS = 64


class SnapshotRows:
    """First rows of the statements of a read transaction: in its snapshot a statement always finds the same one.

    Services that are used together look up the same session or window each, so that most lookups repeat one.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[tuple[str, tuple[Value, ...]], Row | None] = {}

    async def one(self, find: Callable[..., Awaitable[Row | None]], sql: str, values: tuple[Value, ...]) -> Row | None:
        """Return the row of a statement; ``find`` executes it the first time."""
        key = sql, values
        if key in self._rows:
            return self._rows[key]
        row = await find(sql, *values)
        if len(self._rows) < _MAX_SNAPSHOT_ROWS:
            self._rows[key] = row
        return row


class Database(Protocol):
    """A database that stores all state of Weftline."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]], *, heavy: bool = False) -> T:
        """Run ``work`` on one consistent snapshot; ``heavy`` work runs where it blocks no one."""
        ...

    async def write(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run ``work`` and commit durably, or roll back. ``work`` may be retried after a serialization failure."""
        ...

    def wakes(self) -> AsyncIterator[set[str]]:
        """Yield the tenants that may have new events, from this process or any other."""
        ...

    async def exclusively(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run ``work`` as the schema owner under a global lock."""
        ...

    async def prepare_vectors(self, tenants: Iterable[str]) -> None:
        """Create the vector partitions of tenants; ``write`` does this itself for its own tenant."""
        ...

    def vector_search(self, tenant: str, collection: str, model: str) -> VectorSearch | None:
        """Return the database's own vector search; None if it has none."""
        ...

    async def tidy_vectors(self, tenant: str) -> None:
        """Drop vector indexes of a tenant that are no longer needed."""
        ...

    def query_totals(self) -> tuple[int, float]:
        """Return the number of transactions since the start, and their duration in seconds."""
        ...

    def figures(self) -> DatabaseMetrics:
        """Return counters of this process since the database was opened."""
        ...


def connect(url: str, direct_url: str = "") -> Database:
    """Return the database for an address without opening it; only its driver is imported.

    ``direct_url`` leads past a pooler in transaction mode.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "sqlite":
        from weftline.storage.sql.dialects.sqlite import SqliteDatabase  # noqa: PLC0415 - only if it is used

        return SqliteDatabase(Path(rest if separator else url).expanduser())
    if scheme in {"postgresql", "postgres"}:
        from weftline.storage.sql.dialects.postgres import PostgresDatabase  # noqa: PLC0415 - only if it is used

        return PostgresDatabase(url, direct_url)
    raise InvalidSetting(f"WEFTLINE_DATABASE_URL: '{scheme}://' is neither a SQLite file nor postgresql://.")
