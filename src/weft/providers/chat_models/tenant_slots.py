"""Slots for concurrent work, shared fairly by tenants."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class TenantSlots:
    """Bounds concurrent work. A free slot goes to the waiting tenant with the fewest; none may hold more than half."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._most = max(1, total // 2)
        self._held: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def hold(self, tenant: str) -> AsyncIterator[None]:
        """Hold a slot, after a wait if none is free."""
        granted = asyncio.get_running_loop().create_future()
        entry = (tenant, granted)
        self._waiting.append(entry)
        self._grant()
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self._free += 1
                self._held[tenant] -= 1
                if not self._held[tenant]:
                    del self._held[tenant]
            else:
                self._waiting.remove(entry)
            self._grant()

    def _grant(self) -> None:
        while self._free:
            allowed = [entry for entry in self._waiting if self._held[entry[0]] < self._most]
            if not allowed:
                return
            # The first of those with the fewest: in order of arrival within a tenant.
            tenant, granted = entry = min(allowed, key=lambda each: self._held[each[0]])
            self._waiting.remove(entry)
            self._free -= 1
            self._held[tenant] += 1
            granted.set_result(None)
