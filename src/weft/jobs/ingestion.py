"""Indexing documents: read, cut and embedded outside of transactions, several at a time, each in one hand."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from weft.capabilities.knowledge.document_chunks import chunks_of, lay_out
from weft.capabilities.knowledge.document_content import unpack
from weft.capabilities.knowledge.ingestion import EmbeddedBatch, Ingest
from weft.capabilities.knowledge.store import QueuedDocument
from weft.capabilities.search.query_terms import terms_of
from weft.jobs.backfill_vectors import ModelVectors
from weft.jobs.lease import renewing
from weft.jobs.periodic import attempt
from weft.kernel.errors import Unavailable, WeftError
from weft.kernel.ids import new_id
from weft.kernel.thread_pools import DOCUMENTS
from weft.storage.sql.database import SYSTEM
from weft.storage.sql.knowledge import documents_pending, release_all, tenants_with_pending
from weft.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from weft.capabilities.indexing.chunking.reader import DocumentReader
    from weft.capabilities.indexing.embeddings.model import Embeddings
    from weft.capabilities.knowledge.document_chunks import Layout
    from weft.capabilities.knowledge.ingestion import Taken
    from weft.capabilities.knowledge.model import Document
    from weft.jobs.reindex import Reindexing
    from weft.kernel.metrics import JobMetrics
    from weft.storage.sql.database import Database
    from weft.storage.sql.unit_of_work import Injector

_log = logging.getLogger("weft.upkeep")
# A process that does one thing and ends leaves this work to those that stay.
_FIRST_LOOK_SECONDS = 1.0
# What a missed wake would have told of, and what another process left behind.
_LOOK_EVERY_SECONDS = 30.0
# While documents are indexed anew, which goes on when time has passed.
_LOOK_SOON_SECONDS = 0.5
# What is put together is looked at together; and most of what happens is not about documents.
_GATHER_SECONDS = 0.25
_COUNT_EVERY_SECONDS = 5.0
_SETTLE_SECONDS = 5.0
# What a document waits for after something was away that it needs.
_REST_MICROS = 15_000_000
# Enough that the embedder always has work; few enough that the texts in memory are few.
_AT_ONCE = 6
# There is always room for another tenant.
_OF_ONE_TENANT = 4
_CHUNKS_AT_ONCE = 64


class _Key(NamedTuple):
    """A document of a tenant."""

    tenant: str
    domain: str
    document_id: str


class Ingestion:
    """Indexes the documents of every tenant, in this process, while no other indexes the same."""

    def __init__(
        self,
        database: Database,
        injector: Injector,
        embeddings: Embeddings,
        reader: DocumentReader,
        metrics: JobMetrics,
        reindexing: Reindexing,
    ) -> None:
        self._database = database
        self._embeddings = embeddings
        self._reader = reader
        self._metrics = metrics
        self._reindexing = reindexing
        self._is_reindexing = False
        self._holder = new_id("worker")
        self._ingests = SystemTransactions(database, injector, Ingest)
        self._vectors = ModelVectors()
        self._served: dict[_Key, asyncio.Task[None]] = {}
        # Tenants by when one of their documents was last taken up.
        self._turns: dict[str, float] = {}
        # Until when to leave alone those that something is wrong with.
        self._shunned: dict[_Key, float] = {}
        # The last that was taken up, if it is to have the process for itself.
        self._alone: _Key | None = None
        # Of each tenant one document is read at a time, so that those of others are never all behind it.
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._wake = asyncio.Event()
        self._rumour: asyncio.TimerHandle | None = None
        self._count_at = 0.0
        self._has_held = False

    def note(self, tenants: set[str]) -> None:
        """Hear that there may be news of these tenants."""
        del tenants
        if self._rumour is None:
            self._rumour = asyncio.get_running_loop().call_later(_GATHER_SECONDS, self._believe)

    async def run(self) -> None:
        """Index what is put, for as long as the process lives."""
        await asyncio.sleep(_FIRST_LOOK_SECONDS)
        try:
            while True:
                self._wake.clear()
                await attempt("ingestion", self._look())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SOON_SECONDS if self._is_reindexing else _LOOK_EVERY_SECONDS):
                        await self._wake.wait()
        finally:
            await self._let_go_of_all()

    async def catch_up(self) -> None:
        """Index until nothing is left that can be indexed now, for whoever cannot wait for it."""
        was_busy = True
        # What was under way during a look may have made room for more.
        while await self._look() or was_busy:
            was_busy = bool(self._served)
            if was_busy:
                await asyncio.wait(self._served.values(), return_when=asyncio.FIRST_COMPLETED)

    def _believe(self) -> None:
        self._rumour = None
        self._wake.set()

    async def _look(self) -> int:
        """Begin with as many documents as there is room for; return how many."""
        self._is_reindexing = await self._reindexing.look()
        await self._count()
        now = asyncio.get_running_loop().time()
        self._shunned = {key: until for key, until in self._shunned.items() if until > now}
        queues, begun = await self._queues(self._room()), 0
        while queues and self._room():
            tenant, queue = queues.popleft()
            domain, document_id, starts = queue.popleft()
            if starts and self._served:
                # Whoever was at work with it when a process ended may end the next: it is tried with nobody beside it.
                break
            begun += self._begin(_Key(tenant, domain, document_id), alone=starts > 0)
            if queue and self._in_hand(tenant) < _OF_ONE_TENANT:
                queues.append((tenant, queue))
        return begun

    def _room(self) -> int:
        return 0 if self._alone in self._served else _AT_ONCE - len(self._served)

    def _in_hand(self, tenant: str) -> int:
        return sum(key.tenant == tenant for key in self._served)

    async def _queues(self, room: int) -> deque[tuple[str, deque[QueuedDocument]]]:
        """Return what waits, of as many tenants as there is room for: whose turn was longest ago comes first."""
        tenants = await self._database.read(SYSTEM, tenants_with_pending) if room > 0 else []
        self._turns = {tenant: self._turns.get(tenant, 0.0) for tenant in tenants} or self._turns
        queues: deque[tuple[str, deque[QueuedDocument]]] = deque()
        for tenant in sorted(tenants, key=self._turns.__getitem__):
            is_due = len(queues) < room and self._in_hand(tenant) < _OF_ONE_TENANT
            if is_due and (waiting := await self._waiting(tenant)):
                queues.append((tenant, waiting))
        return queues

    async def _waiting(self, tenant: str) -> deque[QueuedDocument]:
        found: deque[QueuedDocument] = deque()

        async def look() -> None:
            found.extend(await self._ingests.read(tenant, lambda ingest: ingest.waiting(2 * _AT_ONCE)))

        # What must be left to other processes keeps no other tenant waiting.
        await attempt("documents waiting", look(), tenant=tenant)
        return deque(each for each in found if _Key(tenant, each.domain, each.document_id) not in self._shunned)

    async def _count(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._count_at:
            self._count_at = now + _COUNT_EVERY_SECONDS
            self._metrics.note_pending_documents(await self._database.read(SYSTEM, documents_pending, heavy=True))

    def _begin(self, key: _Key, *, alone: bool) -> bool:
        if key in self._served:
            return False
        self._has_held = True
        self._alone = key if alone else None
        self._turns[key.tenant] = asyncio.get_running_loop().time()
        self._served[key] = asyncio.create_task(self._serve(key), name="weft-ingestion")
        return True

    async def _serve(self, key: _Key) -> None:
        try:
            if not await attempt("ingestion", self._index(key), tenant=key.tenant):
                self._shunned[key] = asyncio.get_running_loop().time() + _LOOK_EVERY_SECONDS
        finally:
            del self._served[key]
            self._wake.set()

    async def _index(self, key: _Key) -> None:
        """Index one document, unless it is in other hands."""
        tenant, waiting = key.tenant, QueuedDocument(key.domain, key.document_id)
        taken = await self._ingests.write(tenant, lambda ingest: ingest.take(waiting, self._holder))
        if taken is None:
            return
        renew = partial(Ingest.renew, document=taken.document, holder=self._holder)
        async with renewing("documents in hand", tenant, lambda: self._ingests.write(tenant, renew)):
            try:
                await self._add_all(tenant, taken)
            except Unavailable:
                # Something is away that will be back.
                await self._let_go(tenant, taken.document, _REST_MICROS)
            except WeftError as error:
                await self._fail(tenant, taken.document, f"{error.message} {error.hint}")
            except Exception:  # noqa: BLE001 - logged; whatever it is, trying again would not help
                fields = {"tenant": tenant, "domain": taken.document.domain}
                _log.exception("a document could not be indexed", extra={"fields": fields})
                await self._fail(tenant, taken.document, "Something went wrong inside Weft; its log says more.")

    async def _add_all(self, tenant: str, taken: Taken) -> None:
        layout = await self._laid_out(tenant, taken)
        start = taken.document.chunks_done if taken.cut == layout.cut else 0
        total = len(layout.pieces)
        while True:
            span = range(start, min(start + _CHUNKS_AT_ONCE, total))
            batch = await self._embedded(tenant, taken, layout, span)
            write = partial(Ingest.write, taken=taken, holder=self._holder, layout=layout, batch=batch)
            outcome = await self._ingests.write(tenant, write)
            if outcome != "written":
                # If the tenant needs vectors of other models now, it is taken up with these.
                await self._let_go(tenant, taken.document)
                return
            self._metrics.count_chunks(len(batch.chunks))
            start = span.stop
            if start >= total:
                self._metrics.count_document("indexed")
                return

    async def _laid_out(self, tenant: str, taken: Taken) -> Layout:
        def work() -> Layout:
            document, content = taken.document, unpack(taken.content)
            reading = self._reader.read(content, document.media_type or None, document.document_id)
            return lay_out(document, taken.domain, reading, content)

        async with self._reading.setdefault(tenant, asyncio.Lock()):
            return await DOCUMENTS.run(work)

    async def _embedded(self, tenant: str, taken: Taken, layout: Layout, span: range) -> EmbeddedBatch:
        chunks = await DOCUMENTS.run(chunks_of, taken.document, taken.domain, layout, span, terms_of)
        texts = [chunk.embedded for chunk in chunks]
        embed = partial(self._embeddings.of_passages, tenant, texts, afresh=taken.afresh)
        return EmbeddedBatch(span, chunks, await self._vectors.of(taken.models, embed))

    async def _fail(self, tenant: str, document: Document, reason: str) -> None:
        await self._ingests.write(tenant, lambda ingest: ingest.fail(document, self._holder, reason))
        self._metrics.count_document("failed")

    async def _let_go(self, tenant: str, document: Document, rest_micros: int = 0) -> None:
        await self._ingests.write(tenant, lambda ingest: ingest.release(document, self._holder, rest_micros))

    async def _let_go_of_all(self) -> None:
        """End everything that is under way, so that whoever is left, or comes next, can go on at once."""
        tasks = list(self._served.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._has_held:
            with contextlib.suppress(WeftError, TimeoutError):
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await self._database.write(SYSTEM, partial(release_all, holder=self._holder))
