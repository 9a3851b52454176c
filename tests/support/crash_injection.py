"""Crash injection: fails at a chosen SQL statement of write transactions."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weftline.kernel.errors import WeftlineError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    import pytest

    from support.world import World

# Longer than any lease, so that work of a dead process is taken over.
MORE_THAN_A_LEASE = 61


class Crash(Exception):
    """The process dies here."""


@dataclass
class CrashPoint:
    """Crashes at one statement, right before or right after it."""

    at: int
    after: bool
    run: int = 0
    has_crashed: bool = False

    def reach(self, *, done: bool) -> None:
        self.run += not done
        if self.run == self.at and self.after is done:
            self.crash()

    def crash(self) -> None:
        self.has_crashed = True
        raise Crash


class ProcessDeath(CrashPoint):
    """Crashes at one statement and at every later one: a dead process does not retry."""

    def reach(self, *, done: bool) -> None:
        super().reach(done=done)
        if self.run > self.at:
            self.crash()


class CrashingTransaction:
    """A transaction that crashes at the given statement."""

    def __init__(self, transaction: Any, crash_point: CrashPoint) -> None:
        object.__setattr__(self, "_parts", (transaction, crash_point))

    def __getattr__(self, name: str) -> Any:
        transaction, crash_point = object.__getattribute__(self, "_parts")
        found = getattr(transaction, name)
        if name not in {"one", "all", "run", "changed", "many"}:
            return found

        async def statement(*values: Any) -> Any:
            crash_point.reach(done=False)
            answer = await found(*values)
            crash_point.reach(done=True)
            return answer

        return statement

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_parts")[0], name, value)


@contextmanager
def crash_in_writes(world: World, patch: pytest.MonkeyPatch, crash_point: Callable[[], CrashPoint]) -> Iterator[None]:
    """Apply a crash point to every write transaction."""
    database = world.app.database
    write = database.write
    with patch.context() as patched:
        patched.setattr(
            database, "write", lambda scope, work: write(scope, lambda tx: work(CrashingTransaction(tx, crash_point())))
        )
        yield


async def crashes(
    world: World, patch: pytest.MonkeyPatch, crash_point: CrashPoint, act: Callable[[], Awaitable[Any]]
) -> bool:
    """Run ``act`` with a crash point; return whether it crashed."""
    with crash_in_writes(world, patch, lambda: crash_point):
        try:
            await act()
        except (Crash, WeftlineError):
            assert crash_point.run >= crash_point.at, "it failed before its crash point"
            return True
    return False


async def dies(world: World, patch: pytest.MonkeyPatch, at: int, act: Callable[[], Awaitable[Any]]) -> bool:
    """Run ``act`` as a process that dies at one statement; return whether it was reached."""
    return await crashes(world, patch, ProcessDeath(at, after=at % 2 == 0), act)
