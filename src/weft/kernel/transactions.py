"""Ports for transactions: for operations that open their own, and for long work inside one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.kernel.identity import Actor

T = TypeVar("T")
N_co = TypeVar("N_co", covariant=True)


class Transactions(Protocol[N_co]):
    """Opens transactions on behalf of a caller and hands ``N``, built for each of them, to the work.

    Declare ``Transactions[N]`` as a parameter of an operation whose effect is ``OWN_TRANSACTIONS``.
    """

    async def read(self, actor: Actor, work: Callable[[N_co], Awaitable[T]], *, heavy: bool = False) -> T:
        """Run ``work`` on one snapshot; ``heavy`` work on a connection that short reads do not wait for."""
        ...

    async def write(self, actor: Actor, work: Callable[[N_co], Awaitable[T]]) -> T:
        """Run ``work`` and commit. It may run again after a serialization failure."""
        ...


class Cooperative(Protocol):
    """Lets long work inside a transaction yield to other work of the same thread."""

    async def yield_to_loop(self) -> None: ...
