"""Embedding cache: each text is embedded once per model in a place whose readers may read all its items.

Entries are not shared between places, nor between callers: a hit would tell that somebody else has the same text.

Does not import numpy: arrays are used through their own methods, so that processes that never embed do not load it.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.embeddings import (
    Embedded,
    EmbeddingModelUnknown,
    SemanticSearchOff,
    TenantModelStore,
    VectorStore,
    usable_model,
)
from weftline.kernel.clock import DAY_MICROS, to_micros
from weftline.storage.sql.database import SYSTEM, Scope, caller_scope
from weftline.storage.sql.tenants import tenant_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.app.caches import Cache
    from weftline.app.metrics import Metrics
    from weftline.indexing.embeddings import CachedKind, CachedVector, Embedder, Model, Purpose, Vectors
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database

# Texts embedded before their vectors are stored; a process that stops loses at most these.
_BATCH_SIZE = 256
_DELETE_BATCH = 1_000
_UNUSED_DAYS = 30
# A twentieth of a full cache is evicted at a time, and added before it is counted again.
_EVICTION_STEPS = 20
# Overhead of a cached vector in bytes.
_OVERHEAD_BYTES = 500
# More than the precision of 16-bit floats.
_DECIMALS = 6


class _LookedUp(NamedTuple):
    vectors: dict[bytes, bytes]
    hits: int


class CachedEmbeddings:
    """Caches vectors by model and digest: of passages in the database, of queries in memory."""

    def __init__(
        self,
        database: Database,
        embedders: Sequence[Embedder],
        clock: Clock,
        metrics: Metrics,
        queries: Cache[Vectors],
        max_entries: int,
        *,
        off_reason: str = "",
    ) -> None:
        self._database = database
        self._embedders = {embedder.model.name: embedder for embedder in embedders}
        self._clock = clock
        self._metrics = metrics
        self._queries = queries
        self._max_entries = max_entries
        self._off_reason = off_reason
        # Vectors added since the last count, by scope; a scope that is missing was never counted.
        self._uncounted: Counter[Scope] = Counter()

    def off_reason(self) -> str:
        return self._off_reason

    def models(self) -> Sequence[Model]:
        return [embedder.model for embedder in self._embedders.values()]

    async def release_idle(self, seconds: float) -> None:
        """Free the memory of models that were not used for this long; the next text loads them again."""
        for embedder in self._embedders.values():
            await embedder.release_idle(seconds)

    async def close(self) -> None:
        for embedder in self._embedders.values():
            await embedder.close()

    async def of_query(self, actor: Actor, text: str, model: str) -> Vectors:
        # Half of a surrogate pair, which only callers in this process can pass, has no encoding.
        text = text.encode(errors="replace").decode()
        # The caller is part of the key, see below.
        key = (actor.tenant, actor.principal_id, model, _digest(text))
        cached = self._queries.get(key)
        if cached is None:
            cached = (await self._embedder(model).embed([text], "query"))[0]
            # Shared with later queries.
            cached.flags.writeable = False
            self._queries.put(key, cached, cached.nbytes + _OVERHEAD_BYTES)
        return cached

    async def of_unstored(self, texts: Sequence[str], model: str) -> Vectors:
        return await self._embedder(model).embed(texts, "passage")

    async def of_passages(
        self,
        tenant: str,
        texts: Sequence[str],
        model: str,
        *,
        digests: Sequence[bytes] | None = None,
        reembed: bool = False,
    ) -> list[bytes]:
        scope = SYSTEM if digests is None else Scope(tenant)
        digests = [_digest(text) for text in texts] if digests is None else digests
        if reembed:
            await self._database.write(scope, lambda tx: VectorStore(tx).forget(model, digests))
        looked = await self._look_up(scope, self._embedder(model), dict(zip(digests, texts, strict=True)), "passage")
        return [looked.vectors[digest] for digest in digests]

    async def of_texts(self, actor: Actor, texts: Sequence[str], purpose: Purpose, model: str | None) -> Embedded:
        scope = caller_scope(actor)
        listed = await self._database.read(scope, lambda tx: TenantModelStore(tx).listed())
        chosen = usable_model(listed, self.models(), model)
        # The caller is part of the key: otherwise timing would reveal which texts other agents embedded.
        digests = [_digest(f"{actor.principal_id}\0{purpose}\0{text}") for text in texts]
        looked = await self._look_up(
            scope, self._embedder(chosen.name), dict(zip(digests, texts, strict=True)), purpose, "asked"
        )
        return Embedded(chosen, [_numbers(looked.vectors[digest]) for digest in digests], looked.hits)

    def _embedder(self, model: str) -> Embedder:
        if self._off_reason:
            raise SemanticSearchOff(f"Semantic search is off: {self._off_reason}.")
        try:
            return self._embedders[model]
        except KeyError:
            raise EmbeddingModelUnknown(f"Model '{model[:100]}' is not configured in this installation.") from None

    async def sweep(self) -> None:
        """Delete vectors that were not used for long."""
        for tenant in await self._database.read(SYSTEM, tenant_names):
            await self._review(Scope(tenant))
        await self._review(SYSTEM)

    async def _review(self, scope: Scope) -> None:
        now = to_micros(self._clock.now())
        review = partial(_review, before=now - _UNUSED_DAYS * DAY_MICROS, now=now)
        # In batches, so that other writers get their turn.
        while await self._database.write(scope, review):
            pass

    async def _look_up(
        self,
        scope: Scope,
        embedder: Embedder,
        texts: Mapping[bytes, str],
        purpose: Purpose,
        kind: CachedKind = "passage",
    ) -> _LookedUp:
        """Return the vectors by digest, and the number of cache hits."""
        model, digests = embedder.model.name, list(texts)
        vectors: dict[bytes, bytes] = {}
        hits = 0
        for start in range(0, len(digests), _BATCH_SIZE):
            batch = digests[start : start + _BATCH_SIZE]
            cached = await self._find(scope, model, batch)
            missing = [digest for digest in batch if digest not in cached]
            embedded = await _in_halves(embedder, [texts[digest] for digest in missing], purpose)
            fresh = dict(zip(missing, embedded, strict=True))
            await self._store(scope, model, fresh, cached, kind)
            vectors |= fresh | {digest: found.vector for digest, found in cached.items()}
            hits += len(cached)
        self._metrics.count_embeddings(hits, len(digests) - hits)
        return _LookedUp(vectors, hits)

    async def _find(self, scope: Scope, model: str, digests: Sequence[bytes]) -> Mapping[bytes, CachedVector]:
        return await self._database.read(scope, lambda tx: VectorStore(tx).find(model, digests))

    async def _store(
        self,
        scope: Scope,
        model: str,
        fresh: Mapping[bytes, bytes],
        cached: Mapping[bytes, CachedVector],
        kind: CachedKind,
    ) -> None:
        """Store new vectors, and update last use once a day: a write for every hit would cost more."""
        now = to_micros(self._clock.now())
        stale = [digest for digest, found in cached.items() if found.used_at < now - DAY_MICROS]

        async def work(transaction: Transaction) -> None:
            store = VectorStore(transaction)
            await store.keep(model, fresh, now, kind)
            await store.touch(model, stale, now)

        if fresh or stale:
            await self._database.write(scope, work)
        if fresh:
            await self._make_room(Scope(scope.tenant), len(fresh))

    async def _make_room(self, scope: Scope, added: int) -> None:
        """Evict the least recently used vectors above the limit, in large steps, so that counting is rare."""
        step = max(1, self._max_entries // _EVICTION_STEPS)
        known = scope in self._uncounted
        self._uncounted[scope] += added
        if known and self._uncounted[scope] < step:
            return
        self._uncounted[scope] = 0
        count = await self._database.read(scope, lambda tx: VectorStore(tx).count(), heavy=True)
        if count > self._max_entries:
            await self._drop(scope, count - self._max_entries + step)

    async def _drop(self, scope: Scope, entries: int) -> None:
        for start in range(0, entries, _DELETE_BATCH):
            batch = min(entries - start, _DELETE_BATCH)
            await self._database.write(scope, partial(_drop_unused, batch=batch))


async def _drop_unused(transaction: Transaction, *, batch: int) -> int:
    return await VectorStore(transaction).evict(batch)


async def _review(transaction: Transaction, *, before: int, now: int) -> int:
    return await VectorStore(transaction).review(before, now, _DELETE_BATCH)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


async def _in_halves(embedder: Embedder, texts: Sequence[str], purpose: Purpose) -> list[bytes]:
    if not texts:
        return []
    vectors = await embedder.embed(texts, purpose)
    return [row.tobytes() for row in vectors.astype("<f2")]


def _numbers(halves: bytes) -> list[float]:
    return [round(number, _DECIMALS) for number in struct.unpack(f"<{len(halves) // 2}e", halves)]
