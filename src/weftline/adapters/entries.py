"""What adapters store: entries of an agent's private memory, in a session that is for nothing else."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from weftline.errors import MemoryNotFound, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Generator

    from weftline.adapters.bridge import Bridge

_PAGE = 200


class Entries:
    """Entries of the private memory of the agent that a client acts as: no other agent reads them.

    They have a session of their own, which is made with the first entry, so that searches for the prompts of a
    conversation do not find it a second time here; without ``session_id``, they belong to no session.
    """

    def __init__(self, bridge: Bridge, session_id: str | None, purpose: str) -> None:
        self.session_id = session_id
        self._weftline = bridge.weftline
        self._purpose = purpose
        self._numbers = count()

    def get(self, key: str) -> Generator[Any, Any, Any]:
        """Return an entry, or None."""
        try:
            return (yield self._weftline.memory.get(key, session_id=self.session_id))
        except (MemoryNotFound, SessionNotFound):
            return None

    def list(self, prefix: str, *, values: bool = True) -> Generator[Any, Any, list[Any]]:
        """Return all entries under a prefix, in the order of their keys."""
        entries: list[Any] = []
        cursor = None
        while True:
            try:
                page = yield self._weftline.memory.list(
                    session_id=self.session_id, prefix=prefix, values=values, limit=_PAGE, cursor=cursor
                )
            except SessionNotFound:
                return []
            entries += page.entries
            if not page.has_more:
                return entries
            cursor = page.next_cursor

    def set(self, key: str, value: object, **options: Any) -> Generator[Any, Any, None]:  # noqa: ANN401 - of memory.set
        try:
            yield self._weftline.memory.set(key, value, session_id=self.session_id, **options)
        except SessionNotFound:
            yield self._weftline.session.create(self._purpose, session_id=self.session_id, exist_ok=True)
            yield self._weftline.memory.set(key, value, session_id=self.session_id, **options)

    def append(self, prefix: str, value: object) -> Generator[Any, Any, None]:
        """Add an entry that is listed after all others, also those of other processes."""
        yield from self.set(f"{prefix}{time.time_ns():020}-{next(self._numbers):06}", value)

    def delete(self, key: str, **options: Any) -> Generator[Any, Any, bool]:  # noqa: ANN401 - of memory.delete
        """Delete an entry; False if there is none."""
        with suppress(MemoryNotFound, SessionNotFound):
            yield self._weftline.memory.delete(key, session_id=self.session_id, **options)
            return True
        return False
