"""Records the SQL statements of write transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from weft.storage.sql.database import Database

_STATEMENTS = frozenset({"one", "all", "run", "changed", "many"})


class _Watched:
    """A transaction that notes every statement."""

    def __init__(self, transaction: Any, noted: list[str]) -> None:
        object.__setattr__(self, "_parts", (transaction, noted))

    def __getattr__(self, name: str) -> Any:
        transaction, noted = object.__getattribute__(self, "_parts")
        found = getattr(transaction, name)
        if name not in _STATEMENTS:
            return found

        def statement(sql: str, *values: Any) -> Any:
            noted.append(" ".join(sql.split()))
            return found(sql, *values)

        return statement

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_parts")[0], name, value)


async def written_by(act: Callable[[], Awaitable[Any]], database: Database, patch: pytest.MonkeyPatch) -> list[str]:
    """Do something and return the statements that it ran in transactions that write."""
    noted: list[str] = []
    write = database.write
    with patch.context() as patched:
        patched.setattr(database, "write", lambda scope, work: write(scope, lambda tx: work(_Watched(tx, noted))))
        await act()
    return noted
