"""Telling those who watch that the time of a key, on a board or in a memory, has run out.

Nothing else depends on this: to every reader and writer an expired key is gone the moment it expires.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING

from weft.capabilities.board.service import Boards
from weft.capabilities.history.model import MAIN, branch_of
from weft.capabilities.memory.model import scope_of
from weft.capabilities.memory.service import Memories
from weft.capabilities.sessions.model import session_of
from weft.jobs.periodic import attempt
from weft.kernel.clock import to_micros
from weft.kernel.identity import system_actor
from weft.storage.sql.database import SYSTEM, Scope
from weft.storage.sql.history import SqlLineStore
from weft.storage.sql.tenants import lines_to_expire, tenants_to_sweep
from weft.storage.sql.unit_of_work import logged_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.app.event_feed import LiveFeed
    from weft.kernel.clock import Clock
    from weft.kernel.events import NewEvent
    from weft.storage.sql.database import Database, Transaction
    from weft.storage.sql.unit_of_work import Injector

_LOOK_EVERY_SECONDS = 0.5
# With nobody there to be told, only so that what has expired does not stay in the database for long.
CLEAN_EVERY_SECONDS = 30
_AT_ONCE = 200


class ExpiryWatch:
    """Turns expired keys into history, and so into events: at once if anybody waits for events, else now and then."""

    def __init__(self, database: Database, clock: Clock, feed: LiveFeed, injector: Injector) -> None:
        self._database = database
        self._clock = clock
        self._feed = feed
        self._injector = injector

    async def run(self) -> None:
        looks = CLEAN_EVERY_SECONDS / _LOOK_EVERY_SECONDS
        for look in itertools.count(1):
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            if self._feed.is_followed or look % looks == 0:
                await attempt("expiry", self.bury_due())
            if look % looks == 0:
                await attempt("sweep", self.sweep())

    async def sweep(self) -> None:
        """Drop forgotten values that two had in hand at once, so that neither could."""
        for tenant in await self._database.read(SYSTEM, tenants_to_sweep):
            await self._database.write(Scope(tenant), lambda tx: SqlLineStore(tx).sweep())

    async def bury_due(self) -> None:
        now = to_micros(self._clock.now())
        for tenant, line_id in await self._database.read(SYSTEM, lambda tx: lines_to_expire(tx, now, _AT_ONCE)):
            # It may have been closed or deleted meanwhile, and what one line hides must not keep the others waiting.
            await attempt("expiry", self._bury_of(tenant, line_id), tenant=tenant, line=line_id)

    async def _bury_of(self, tenant: str, line_id: str) -> None:
        await logged_write(self._database, Scope(tenant), partial(self._bury, line_id))

    async def _bury(self, line_id: str, transaction: Transaction) -> Sequence[NewEvent]:
        # Another process may have done it meanwhile, and that is fine.
        actor = system_actor(transaction.tenant)
        memory = scope_of(line_id)
        if memory is None:
            # Opening a board to write is what buries.
            await self._injector.build(Boards, actor, transaction).to_write(
                session_of(line_id), branch_of(line_id) or MAIN
            )
        else:
            await self._injector.build(Memories, actor, transaction).expire_entries(memory)
        return transaction.published
