"""Fresh searches: a search waits briefly until what its own caller has written is found, by meaning too.

Nobody waits for the writes of others. A caller that waited in vain does not wait again until the index has caught up,
so that neither a flood of writes nor a slow embedder delays search after search.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from weftline.jobs.session_indexing import INDEX
from weftline.jobs.session_vectors import EMBED
from weftline.search.session_indexing.cursor import EMBEDDING_JOB, VectorBacklog
from weftline.storage.sql.database import Scope
from weftline.storage.sql.events import SqlEventStore
from weftline.storage.sql.jobs import SqlJobStore
from weftline.storage.sql.session_index import indexed_up_to, is_indexed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.jobs.scheduler import Scheduler
    from weftline.jobs.session_indexing import SessionIndexing
    from weftline.jobs.session_vectors import SessionVectors
    from weftline.kernel.identity import Actor
    from weftline.storage.sql.database import Database

# Another process may hold the lease of the tenant's indexing; its progress is read from the database.
_POLL_SECONDS = 0.02
_MAX_LATE = 10_000


class BoundedIndexWait:
    """Waits for the caller's own writes, at most a setting's time; 0: not at all, as where nothing is indexed."""

    def __init__(
        self,
        database: Database,
        indexing: SessionIndexing,
        vectors: SessionVectors,
        scheduler: Scheduler,
        milliseconds: int,
    ) -> None:
        self._database = database
        self._indexing = indexing
        self._vectors = vectors
        self._scheduler = scheduler
        self._seconds = milliseconds / 1_000
        # The last event that a caller waited for in vain, oldest first.
        self._late: OrderedDict[tuple[str, str], int] = OrderedDict()
        # The chunks whose vectors a caller waited for in vain.
        self._late_vectors: OrderedDict[tuple[str, str], dict[str, int]] = OrderedDict()

    async def until_indexed(self, actor: Actor, own: Sequence[int]) -> bool:
        if not self._seconds or await self._is_late(actor):
            return False
        loop, tenant = asyncio.get_running_loop(), actor.tenant
        deadline = loop.time() + self._seconds
        indexed = self._indexing.index_next(tenant, own)
        self._scheduler.wake(INDEX, 0.0)
        try:
            while (left := deadline - loop.time()) > 0:
                await asyncio.wait([indexed], timeout=min(left, _POLL_SECONDS))
                if indexed.done() or await self._indexed_up_to(tenant) >= own[-1]:
                    return True
        finally:
            indexed.cancel()
        self._note_late(actor, own[-1])
        return False

    async def until_embedded(self, actor: Actor, chunks: Mapping[str, int], since: float) -> bool:
        loop, caller = asyncio.get_running_loop(), (actor.tenant, actor.principal_id)
        late = self._late_vectors.get(caller, {})
        backlog = await self._vector_backlog(actor.tenant)
        if not self._seconds or any(backlog.lacks(*each) for each in late.items()):
            return False
        self._late_vectors.pop(caller, None)
        while loop.time() < since + self._seconds:
            self._vectors.embed_next(actor.tenant, chunks)
            self._scheduler.wake(EMBED, 0.0)
            await asyncio.sleep(_POLL_SECONDS)
            own = (await self._vector_backlog(actor.tenant)).own.get(actor.principal_id, {})
            # It may have written more meanwhile.
            if all(own.get(collection, number + 1) > number for collection, number in chunks.items()):
                return True
        self._late_vectors[caller] = dict(chunks)
        if len(self._late_vectors) > _MAX_LATE:
            self._late_vectors.popitem(last=False)
        return False

    async def until_all_indexed(self, tenant: str) -> None:
        """Wait until everything that a tenant has written so far is indexed: for a process that serves one caller."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        last = await self._database.read(Scope(tenant), lambda tx: SqlEventStore(tx).last_seq())
        while loop.time() < deadline and not await self._database.read(Scope(tenant), partial(is_indexed, last=last)):
            self._scheduler.wake(INDEX, 0.0)
            await asyncio.sleep(_POLL_SECONDS)

    async def _is_late(self, actor: Actor) -> bool:
        """Tell whether the index has not yet reached what the caller last waited for."""
        caller = (actor.tenant, actor.principal_id)
        if caller not in self._late:
            return False
        if await self._indexed_up_to(actor.tenant) < self._late[caller]:
            return True
        self._late.pop(caller, None)
        return False

    def _note_late(self, actor: Actor, seq: int) -> None:
        self._late[actor.tenant, actor.principal_id] = seq
        if len(self._late) > _MAX_LATE:
            self._late.popitem(last=False)

    async def _vector_backlog(self, tenant: str) -> VectorBacklog:
        progress = await self._database.read(Scope(tenant), lambda tx: SqlJobStore(tx).progress(EMBEDDING_JOB))
        return VectorBacklog.of(progress)

    async def _indexed_up_to(self, tenant: str) -> int:
        return await self._database.read(Scope(tenant), indexed_up_to)
