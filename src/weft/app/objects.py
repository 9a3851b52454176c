"""Values outside the database: stored before their transaction, fetched after it, swept when nobody wants them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from weft.capabilities.object_storage.model import (
    GRACE_MICROS,
    ObjectBusy,
    ObjectDamaged,
    ObjectMissing,
    ObjectStorageUnavailable,
    Pointer,
)
from weft.capabilities.object_storage.store import UploadDecision
from weft.kernel.clock import to_micros
from weft.storage.sql.database import SYSTEM, Scope
from weft.storage.sql.object_storage import SqlObjectIndex, removals_are_held, tenants_to_clear

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from weft.capabilities.object_storage.store import ObjectStore, UploadStart
    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database, Transaction

T = TypeVar("T")
R = TypeVar("R")

_TRANSFERS_AT_ONCE = 4
_CLEARED_AT_ONCE = 200
# How long to wait, time after time, for a value that is just being removed.
_PAUSES_SECONDS = (0.0, 0.05, 0.1, 0.2, 0.4)


class _Upload(NamedTuple):
    """What was uploaded, and the version the store gave it."""

    path: str
    version: str | None


class Objects:
    """Staging in SQL and a store: the one place where the index and the bytes outside are brought together."""

    def __init__(self, database: Database, store: ObjectStore, clock: Clock) -> None:
        self._database = database
        self._store = store
        self._clock = clock

    async def stage(self, tenant: str, owner: str, contents: Sequence[bytes], *, epoch: int | None = None) -> None:
        waiting = await asyncio.to_thread(_by_path, tenant, owner, contents)
        for pause in _PAUSES_SECONDS:
            if not waiting:
                return
            await asyncio.sleep(pause)
            waiting = await self._store_what_can_be(Scope(tenant, epoch), waiting)
        if waiting:
            raise ObjectBusy

    async def fetch(self, tenant: str, pointer: Pointer) -> bytes:
        if not pointer.is_of(tenant):
            raise ObjectMissing
        found = await self._database.read(Scope(tenant), lambda tx: SqlObjectIndex(tx).find(pointer.object))
        if found is None or not found.uploaded:
            raise ObjectMissing
        content = await self._store.get(pointer.object, found.version, pointer.size)
        await asyncio.to_thread(pointer.check, content)
        return content

    async def sweep(self) -> int:
        """Remove what was given up or doomed, as far as it can be reached now; return how many objects went."""
        now = self._now()
        tenants = await self._database.read(SYSTEM, lambda tx: tenants_to_clear(tx, now, _CLEARED_AT_ONCE))
        return sum([await self._clear(Scope(tenant)) for tenant in tenants])

    async def _store_what_can_be(self, scope: Scope, waiting: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return what could not be stored because it is on its way out, or was meanwhile."""
        now = self._now()
        begun = await self._database.write(scope, lambda tx: _begin(tx, waiting, now))
        left = {path for path, stage in begun.items() if stage.decision is UploadDecision.LEAVING}
        results = await _few_at_once(
            lambda path: self._store_one(path, waiting[path], begun[path]), begun.keys() - left
        )
        uploads = {upload.path: upload.version for upload in results if upload is not None}
        if uploads:
            left |= await self._database.write(scope, lambda tx: _note_uploads(tx, begun, uploads))
        return {path: waiting[path] for path in left}

    async def _store_one(self, path: str, content: bytes, begun: UploadStart) -> _Upload | None:
        """Upload a value, unless it is there and as good as new."""
        if begun.decision is UploadDecision.THERE and await self._is_whole(path, content, begun.version):
            return None
        return _Upload(path, await self._store.put(path, content))

    async def _is_whole(self, path: str, content: bytes, version: str | None) -> bool:
        """Tell whether a value is where the index says. Looking costs what an upload would have cost.

        Whoever is told that a value is stored must be able to rely on it, and to write one anew is how it is repaired.
        """
        try:
            return await self._store.get(path, version, len(content)) == content
        except (ObjectMissing, ObjectDamaged):
            return False

    async def _clear(self, scope: Scope) -> int:
        now = self._now()
        # Asked right before each claim: what is doomed after a hold began comes up for removal only minutes later.
        if await self._database.read(SYSTEM, lambda tx: removals_are_held(tx, now)):
            return 0
        claimed = await self._database.write(scope, lambda tx: SqlObjectIndex(tx).claim(now, _CLEARED_AT_ONCE))
        removed = await _few_at_once(lambda path: self._remove(path, now), claimed)
        gone = [path for path, is_gone in zip(claimed, removed, strict=True) if is_gone]
        if gone:
            await self._database.write(scope, lambda tx: _forget(tx, gone, now))
        return len(gone)

    async def _remove(self, path: str, claimed_at: int) -> bool:
        """Delete an object; False leaves it claimed, to be claimed again later."""
        # After a long sleep of this process the claim may be another's, and the object wanted again.
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
    index = SqlObjectIndex(transaction)
    # Everyone locks in this order, so nobody waits in a circle.
    return {path: await index.begin(path, len(contents[path]), now) for path in sorted(contents)}


async def _note_uploads(
    transaction: Transaction, begun: Mapping[str, UploadStart], uploads: Mapping[str, str | None]
) -> set[str]:
    """Note what was uploaded and return what no longer counts."""
    index = SqlObjectIndex(transaction)
    return {path for path in sorted(uploads) if not await index.uploaded(path, begun[path].at, uploads[path])}


async def _forget(transaction: Transaction, paths: Iterable[str], claimed_at: int) -> None:
    index = SqlObjectIndex(transaction)
    for path in sorted(paths):
        await index.cleared(path, claimed_at)


async def _few_at_once(work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """Do the same for every item, a few at a time; the first failure ends them all."""
    free = asyncio.Semaphore(_TRANSFERS_AT_ONCE)

    async def one(item: T) -> R:
        async with free:
            return await work(item)

    # Not a TaskGroup: where one failed, early Pythons 3.11 take the next timeout for a cancellation.
    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
