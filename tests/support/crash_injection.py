"""Crash injection: fails at a chosen SQL statement of write transactions."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.kernel.errors import WeftError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    import pytest

    from support.world import World

# Longer than any lease, so that work of a dead process is taken over.
MORE_THAN_A_LEASE = 61


class Crash(Exception):
    """The process would have died here."""


@dataclass
class CrashPoint:
    """Crashes at one statement, right before or right after it."""

    at: int
    after: bool
    run: int = 0
    has_blown: bool = False

    def burn(self, *, done: bool) -> None:
        self.run += not done
        if self.run == self.at and self.after is done:
            self.blow()

    def blow(self) -> None:
        self.has_blown = True
        raise Crash


class ProcessDeath(CrashPoint):
    """Crashes at one statement and at every later one: a dead process does not retry."""

    def burn(self, *, done: bool) -> None:
        super().burn(done=done)
        if self.run > self.at:
            self.blow()


class CrashingTransaction:
    """A transaction that crashes at the given statement."""

    def __init__(self, transaction: Any, fuse: CrashPoint) -> None:
        object.__setattr__(self, "_parts", (transaction, fuse))

    def __getattr__(self, name: str) -> Any:
        transaction, fuse = object.__getattribute__(self, "_parts")
        found = getattr(transaction, name)
        if name not in {"one", "all", "run", "changed", "many"}:
            return found

        async def statement(*values: Any) -> Any:
            fuse.burn(done=False)
            answer = await found(*values)
            fuse.burn(done=True)
            return answer

        return statement

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_parts")[0], name, value)


@contextmanager
def crash_in_writes(world: World, patch: pytest.MonkeyPatch, fuse: Callable[[], CrashPoint]) -> Iterator[None]:
    """Apply a crash point to every write transaction."""
    database = world.app.database
    write = database.write
    with patch.context() as patched:
        patched.setattr(
            database, "write", lambda scope, work: write(scope, lambda tx: work(CrashingTransaction(tx, fuse())))
        )
        yield


async def crashes(world: World, patch: pytest.MonkeyPatch, fuse: CrashPoint, act: Callable[[], Awaitable[Any]]) -> bool:
    """Run ``act`` with a crash point; return whether it crashed."""
    with crash_in_writes(world, patch, lambda: fuse):
        try:
            await act()
        except (Crash, WeftError):
            assert fuse.run >= fuse.at, "it failed, but not because of the fuse"
            return True
    return False


async def dies(world: World, patch: pytest.MonkeyPatch, at: int, act: Callable[[], Awaitable[Any]]) -> bool:
    """Run ``act`` as a process that dies at one statement; return whether it was reached."""
    return await crashes(world, patch, ProcessDeath(at, after=at % 2 == 0), act)
