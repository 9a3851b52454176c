"""Records SQL statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database

_STATEMENTS = frozenset({"one", "all", "run", "changed", "many"})


class Executed(NamedTuple):
    """A statement that a transaction executed, with its values."""

    transaction: object
    sql: str
    values: tuple[Any, ...]


class _RecordingTransaction:
    """A transaction that records every statement."""

    def __init__(self, transaction: Any, statements: list[str]) -> None:
        object.__setattr__(self, "_parts", (transaction, statements))

    def __getattr__(self, name: str) -> Any:
        transaction, statements = object.__getattribute__(self, "_parts")
        found = getattr(transaction, name)
        if name not in _STATEMENTS:
            return found

        def statement(sql: str, *values: Any) -> Any:
            statements.append(" ".join(sql.split()))
            return found(sql, *values)

        return statement

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_parts")[0], name, value)


async def statements_of(act: Callable[[], Awaitable[Any]], database: Database, patch: pytest.MonkeyPatch) -> list[str]:
    """Run ``act`` and return the SQL statements of its write transactions."""
    statements: list[str] = []
    write = database.write
    with patch.context() as patched:
        patched.setattr(
            database, "write", lambda scope, work: write(scope, lambda tx: work(_RecordingTransaction(tx, statements)))
        )
        await act()
    return statements


async def executed_by(
    act: Callable[[], Awaitable[Any]], kind: type[Transaction], patch: pytest.MonkeyPatch
) -> list[Executed]:
    """Run ``act`` and return the statements that transactions of this kind sent to the database."""
    executed: list[Executed] = []

    def recording(execute: Callable[..., Any]) -> Callable[..., Any]:
        def record(transaction: object, sql: str, *values: Any) -> Any:
            executed.append(Executed(transaction, sql, values))
            return execute(transaction, sql, *values)

        return record

    with patch.context() as patched:
        for name in sorted(_STATEMENTS):
            patched.setattr(kind, name, recording(getattr(kind, name)))
        await act()
    return executed
