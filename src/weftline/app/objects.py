"""Large values in object storage: stored before their transaction, fetched after it, swept when unreferenced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from weftline.history.object_storage import (
    GRACE_MICROS,
    ObjectBusy,
    ObjectDamaged,
    ObjectIndex,
    ObjectMissing,
    ObjectStorageUnavailable,
    Pointer,
    UploadDecision,
    removals_are_held,
)
from weftline.kernel.clock import to_micros
from weftline.kernel.thread_pools import SHORT_THREADS
from weftline.storage.sql.database import SYSTEM, Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from weftline.history.object_storage import ObjectStore, UploadStart
    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database

T = TypeVar("T")
R = TypeVar("R")

_MAX_TRANSFERS = 4
_SWEEP_BATCH = 200
# Retries while a value is being removed.
_RETRY_SECONDS = (0.0, 0.05, 0.1, 0.2, 0.4)


class _Upload(NamedTuple):
    """An uploaded object and the version the store gave it."""

    path: str
    version: str | None


class Objects:
    """Stages values: keeps the index in SQL and the bytes in an object store consistent."""

    def __init__(self, database: Database, store: ObjectStore, clock: Clock) -> None:
        self._database = database
        self._store = store
        self._clock = clock

    async def stage(self, tenant: str, owner: str, contents: Sequence[bytes], *, epoch: int | None = None) -> None:
        waiting = await SHORT_THREADS.run(_by_path, tenant, owner, contents)
        for pause in _RETRY_SECONDS:
            if not waiting:
                return
            await asyncio.sleep(pause)
            waiting = await self._store_all(Scope(tenant, epoch, owner), waiting)
        if waiting:
            raise ObjectBusy

    async def fetch(self, tenant: str, pointer: Pointer) -> bytes:
        if not pointer.is_of(tenant):
            raise ObjectMissing
        found = await self._database.read(Scope(tenant), lambda tx: ObjectIndex(tx).find(pointer.object))
        if found is None or not found.uploaded:
            raise ObjectMissing
        content = await self._store.get(pointer.object, found.version, pointer.size)
        await SHORT_THREADS.run(pointer.check, content)
        return content

    async def sweep(self, tenant: str) -> int:
        """Remove a batch of a tenant's abandoned and unreferenced objects; return how many."""
        scope, now = Scope(tenant), self._now()
        # Checked before each claim: an object that is doomed after a hold began is due for removal minutes later.
        if await self._database.read(SYSTEM, lambda tx: removals_are_held(tx, now)):
            return 0
        claimed = await self._database.write(scope, lambda tx: ObjectIndex(tx).claim(now, _SWEEP_BATCH))
        removed = await _gather_limited(lambda path: self._remove(path, now), claimed)
        gone = [path for path, is_gone in zip(claimed, removed, strict=True) if is_gone]
        if gone:
            await self._database.write(scope, lambda tx: _forget(tx, gone, now))
        return len(gone)

    async def _store_all(self, scope: Scope, waiting: Mapping[str, bytes]) -> dict[str, bytes]:
        """Store values; return those that are being removed, to be tried again."""
        now = self._now()
        begun = await self._database.write(scope, lambda tx: _begin(tx, waiting, now))
        left = {path for path, stage in begun.items() if stage.decision is UploadDecision.LEAVING}
        results = await _gather_limited(
            lambda path: self._store_one(path, waiting[path], begun[path]), begun.keys() - left
        )
        uploads = {upload.path: upload.version for upload in results if upload is not None}
        if uploads:
            left |= await self._database.write(scope, lambda tx: _note_uploads(tx, begun, uploads))
        return {path: waiting[path] for path in left}

    async def _store_one(self, path: str, content: bytes, begun: UploadStart) -> _Upload | None:
        """Upload a value, unless it is stored and intact."""
        if begun.decision is UploadDecision.THERE and await self._is_whole(path, content, begun.version):
            return None
        return _Upload(path, await self._store.put(path, content))

    async def _is_whole(self, path: str, content: bytes, version: str | None) -> bool:
        """Return whether a value is stored as the index has it. The check costs as much as an upload.

        A value reported as stored must be readable, and writing it again repairs it.
        """
        try:
            return await self._store.get(path, version, len(content)) == content
        except (ObjectMissing, ObjectDamaged):
            return False

    async def _remove(self, path: str, claimed_at: int) -> bool:
        """Delete an object; False leaves it claimed, to be claimed again later."""
        # If this process was suspended, the claim may have expired and the object may be referenced again.
        if self._now() - claimed_at > GRACE_MICROS // 2:
            return False
        try:
            await self._store.delete(path)
        except ObjectStorageUnavailable:
            return False
        return True

    def _now(self) -> int:
        return to_micros(self._clock.now())


def _by_path(tenant: str, owner: str, contents: Iterable[bytes]) -> dict[str, bytes]:
    return {Pointer.to(tenant, owner, content).object: content for content in contents}


async def _begin(transaction: Transaction, contents: Mapping[str, bytes], now: int) -> dict[str, UploadStart]:
    index = ObjectIndex(transaction)
    # A fixed lock order prevents deadlocks.
    return {path: await index.begin(path, len(contents[path]), now) for path in sorted(contents)}


async def _note_uploads(
    transaction: Transaction, begun: Mapping[str, UploadStart], uploads: Mapping[str, str | None]
) -> set[str]:
    """Record uploads and return those whose staging has expired."""
    index = ObjectIndex(transaction)
    return {path for path in sorted(uploads) if not await index.uploaded(path, begun[path].at, uploads[path])}


async def _forget(transaction: Transaction, paths: Iterable[str], claimed_at: int) -> None:
    index = ObjectIndex(transaction)
    for path in sorted(paths):
        await index.cleared(path, claimed_at)


async def _gather_limited(work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """Do the same for every item with limited concurrency; the first failure cancels the rest."""
    free = asyncio.Semaphore(_MAX_TRANSFERS)

    async def one(item: T) -> R:
        async with free:
            return await work(item)

    # Not a TaskGroup: after a failure in one, early Pythons 3.11 take the next timeout for a cancellation.
    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
