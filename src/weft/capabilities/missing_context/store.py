"""What missing context needs of the app: transactions of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.capabilities.missing_context.service import Gaps
    from weft.kernel.identity import Actor

T = TypeVar("T")


class GapErrands(Protocol):
    """Transactions of their own, for what has to search before it can write."""

    async def read(self, actor: Actor, work: Callable[[Gaps], Awaitable[T]]) -> T:
        """Do the work on one consistent view."""
        ...

    async def write(self, actor: Actor, work: Callable[[Gaps], Awaitable[T]]) -> T:
        """Do the work and keep what it changed."""
        ...
