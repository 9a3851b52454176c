"""Ends a wait whose client has disconnected, where the call has changed nothing yet."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class ClientGone(Exception):
    """The client closed the connection before its request was answered."""

    code = "CLIENT_GONE"


class WaitingClient:
    """Who waits for the answer of one task; a connection has one for all its requests."""

    __slots__ = ("_is_gone", "_may_stop", "_task", "_waits")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._is_gone = self._may_stop = self._waits = False

    def asks(self) -> None:
        """Note that the current task answers its next request."""
        self._task = asyncio.current_task()
        self._may_stop = False
        _CLIENT.set(self)

    def leave(self) -> None:
        """Note that the connection is closed; ends what waits for its turn."""
        self._is_gone = True
        if self._waits and self._task is not None:
            self._task.cancel()

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        before, self._may_stop = self._may_stop, True
        try:
            yield
        finally:
            self._may_stop = before

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        if self._is_gone:
            raise ClientGone
        self._waits = True
        try:
            yield
        except asyncio.CancelledError:
            self._check_still_there()
            raise
        finally:
            self._waits = False

    def _check_still_there(self) -> None:
        """Raise ClientGone in place of the cancellation by which its leaving ended the wait."""
        if self._is_gone and self._task is not None:
            self._task.uncancel()
            raise ClientGone from None

    @classmethod
    def of_task(cls) -> WaitingClient | None:
        """Return the client of the current task. Tasks that it starts inherit it, and are none of its requests."""
        client = _CLIENT.get()
        return client if client is not None and client._task is asyncio.current_task() else None  # noqa: SLF001


_CLIENT: ContextVar[WaitingClient | None] = ContextVar("weftline_client", default=None)


@contextmanager
def stoppable() -> Iterator[None]:
    """Let waits inside end with ClientGone: nothing has been changed, and nobody else needs the result."""
    client = WaitingClient.of_task()
    if client is None:
        yield
    else:
        with client._stoppable():  # noqa: SLF001
            yield


@contextmanager
def until_client_leaves() -> Iterator[None]:
    """End the wait inside with ClientGone once the client has disconnected, if its call is stoppable."""
    client = WaitingClient.of_task()
    if client is None or not client._may_stop:  # noqa: SLF001
        yield
    else:
        with client._waiting():  # noqa: SLF001
            yield
