"""What both databases offer: transactions inside one tenant, in which plain SQL runs.

SQL is written once. Parameters are ``$1, $2, ...`` in the order in which they first appear, which both engines
bind by position. The few words that differ stand in braces (``{for_update}``) and are filled in by the dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from weft.capabilities.indexing.collections.store import VectorSearch
    from weft.capabilities.metrics.model import DatabaseMetrics
    from weft.kernel.events import NewEvent

Row = Any
Value = str | int | float | bytes | None
T = TypeVar("T")


class AccessChanged(Exception):
    """Someone's access was changed since the caller was authenticated."""


class Scope(msgspec.Struct, frozen=True):
    """The wall a transaction runs inside: one tenant, or the whole installation for the system itself.

    ``epoch`` is the tenant's access epoch the caller was authenticated under. A transaction under another epoch
    raises AccessChanged before it does anything, so a revocation acts at once in every process.
    """

    tenant: str | None
    epoch: int | None = None


SYSTEM = Scope(tenant=None)


class Transaction(Protocol):
    """One open transaction."""

    tenant: str
    published: list[NewEvent]
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
        """Run a statement for its effect and return how many rows it changed: cheaper on SQLite than RETURNING."""
        ...

    async def many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement for its effect, once for each of these rows of values, and wait only once."""
        ...

    async def yield_to_loop(self) -> None:
        """Let whoever else waits for this thread have a turn: what long work does between statements."""
        ...


class Database(Protocol):
    """A database that keeps everything Weft knows."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]], *, heavy: bool = False) -> T:
        """Run ``work`` on one consistent view; ``heavy`` work where it keeps nobody waiting."""
        ...

    async def write(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run ``work`` and commit durably, or leave no trace. ``work`` may be run again after a lost race."""
        ...

    def wakes(self) -> AsyncIterator[set[str]]:
        """Yield the tenants that may have new events, from this process or any other."""
        ...

    async def exclusively(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run ``work`` as the owner of the schema while no other process does the same."""
        ...

    async def prepare_vectors(self, tenants: Iterable[str]) -> None:
        """Make room for the vectors of tenants: what write does by itself, for work that spans several of them."""
        ...

    def vector_search(self, tenant: str, collection: str, model: str) -> VectorSearch | None:
        """Return how the database itself finds the nearest vectors; None if it only keeps them."""
        ...

    async def tidy_vectors(self, tenant: str) -> None:
        """Remove what was made for finding vectors of a tenant that are there no more."""
        ...

    def figures(self) -> DatabaseMetrics:
        """Return what this process did in the database since it was opened, and with which connections."""
        ...
