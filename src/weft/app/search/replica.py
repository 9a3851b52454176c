"""One collection's copy, brought up to date before it is looked at: what lies in files, and what came since."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from weft.jobs.runner import attempt
from weft.kernel.thread_pools import SEARCH_THREADS
from weft.search_index.segment_file import Damaged
from weft.search_index.snapshot import IndexSnapshot
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.app.background_tasks import BackgroundTasks
    from weft.capabilities.indexing.collections.model import CollectionState, IndexedChunk, Removal
    from weft.search_index.segment_store import Loaded, SegmentStore
    from weft.storage.sql.database import Database, Transaction

    # Told the tenant and the collection whose files were damaged.
    Alarm = Callable[[str, str], Awaitable[None]]

_log = logging.getLogger("weft.search_index")
_READ_AT_ONCE = 4_096
# So many are read, and so many removals are taken in, while others wait.
_FEW = 64
# So many rows in memory are put into a file; while very many are read, more of them at once.
_ROWS_TO_BUILD = 8_192
_ROWS_TO_BUILD_AT_ONCE = 65_536
# A search waits so long for a copy that has much to catch up with, and then sees what is there.
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
# What cannot be written is not tried again for so long.
_REST_SECONDS = 60.0
# How often a few blocks of the files that are in use are compared with their checksums again.
_COMPARED_EVERY_SECONDS = 1.0


class Name(NamedTuple):
    """Which collection a copy is of, with the vectors of which model; None where these stay in the database."""

    tenant: str
    collection: str
    model: str | None


class _Step(NamedTuple):
    """What happened to a collection up to a number. Up to the number ``forgotten``, not all of it is known any more."""

    number: int
    chunks: Sequence[IndexedChunk]
    removed: Sequence[int]
    forgotten: int


class _Built(NamedTuple):
    """What a copy that had this birth and beginning came to in files; None if it was not written."""

    birth: int
    began: int
    snapshot: IndexSnapshot | None


class CollectionReplica:
    """One collection's copy: a snapshot of it in files and memory, which goes on when the collection does."""

    def __init__(
        self, database: Database, name: Name, folder: SegmentStore | None, errands: BackgroundTasks, alarm: Alarm | None
    ) -> None:
        self._database = database
        self._scope = Scope(name.tenant)
        self._name = name
        self._folder = folder
        self._errands = errands
        self._alarm = alarm
        self._birth = 0
        self._snapshot = IndexSnapshot()
        # What happened up to this number, such as removals, was to be seen in the rows that were read.
        self._began = 0
        self._is_loaded = False
        self._is_behind = self._is_building = self._is_comparing = False
        self._rests_until = 0.0
        self._compares_at = time.monotonic() + _COMPARED_EVERY_SECONDS
        # The collection's number when it was last looked at.
        self.goal = 0
        self._turn = asyncio.Lock()

    @property
    def weight(self) -> int:
        return self._snapshot.bytes_in_memory + sum(part.masks.bytes for part in self._snapshot.parts)

    async def now(self) -> IndexSnapshot:
        """Return what is committed; of a copy that is far behind, what it has so far."""
        if not (self._is_behind and self._turn.locked()):
            async with self._turn:
                await self._check()
                self._is_behind = not await self._catch_up(time.monotonic() + _PATIENCE_SECONDS)
            if self._is_behind:
                self._errands.run("index", self._finish())
            elif self._snapshot.in_memory >= _ROWS_TO_BUILD:
                self._build_soon()
            self._compare_soon()
        return self._snapshot.intact()

    async def whole(self) -> IndexSnapshot:
        """Return what is committed, however long it takes to catch up with it."""
        snapshot = await self.now()
        while self._is_behind:
            await asyncio.sleep(_PAUSE_SECONDS)
            snapshot = await self.now()
        return snapshot

    async def forget(self) -> None:
        """Remove the files."""
        async with self._turn:
            if self._folder is not None:
                await SEARCH_THREADS.run(self._folder.clear)

    async def _check(self) -> None:
        """Load what lies in files, at first and whenever anyone touched them."""
        if self._folder is not None and not (self._is_loaded and self._folder.is_untouched(self._snapshot)):
            await self._load(self._folder)

    async def _load(self, folder: SegmentStore) -> None:
        known, self._is_loaded = self._snapshot, False
        self._birth, self._snapshot = 0, IndexSnapshot()
        try:
            loaded = await SEARCH_THREADS.run(folder.load, known)
        except Damaged as damage:
            await self._set_aside(folder, damage)
        else:
            if loaded is not None:
                await self._go_on_from(loaded, folder)
        self._is_loaded = True

    async def _go_on_from(self, loaded: Loaded, folder: SegmentStore) -> None:
        snapshot, state = await self._without_removed(loaded), await self._state()
        if loaded.is_of(state):
            self._birth, self._snapshot, self._began = state.birth, snapshot, snapshot.number
        else:
            await SEARCH_THREADS.run(folder.drop, loaded.birth, snapshot.number)

    async def _set_aside(self, folder: SegmentStore, damage: Damaged) -> None:
        """Do without files that are damaged: what they held is made anew."""
        self._birth, self._snapshot = 0, IndexSnapshot()
        await self._report(str(damage))
        await SEARCH_THREADS.run(folder.set_aside)

    async def _report(self, damage: str) -> None:
        _log.error(
            "index damaged",
            extra={"fields": {"tenant": self._name.tenant, "collection": self._name.collection, "file": damage}},
        )
        if self._alarm is not None:
            await attempt("index alarm", self._alarm(self._name.tenant, self._name.collection))

    async def _without_removed(self, loaded: Loaded) -> IndexSnapshot:
        """Take out what was removed between the writing of the oldest file and that of the newest."""
        snapshot, reached = loaded.snapshot, loaded.as_of
        while reached < snapshot.number:
            removals = await self._database.read(self._scope, partial(self._removals, reached), heavy=True)
            removed = [removal.removed for removal in removals]
            snapshot = await SEARCH_THREADS.run(snapshot.then, snapshot.number, [], removed)
            if len(removals) < _READ_AT_ONCE:
                break
            reached = removals[-1].number
        return snapshot

    async def _removals(self, after: int, transaction: Transaction) -> Sequence[Removal]:
        return await SqlCollectionStore(transaction).removals_after(self._name.collection, after, _READ_AT_ONCE)

    async def _catch_up(self, deadline: float) -> bool:
        """Go on until everything that is committed is there; False if that takes longer than the deadline."""
        while True:
            state = await self._state()
            if not self._is_part_of(state):
                state = await self._begin_anew()
            self.goal = state.number
            ahead = state.number - self._snapshot.number
            if ahead <= 0:
                return True
            step = await self._database.read(self._scope, self._read, heavy=ahead > _FEW)
            if step.forgotten <= self._seen:
                self._snapshot = await self._after(step)
            if time.monotonic() > deadline:
                return self._snapshot.number >= state.number

    @property
    def _seen(self) -> int:
        """Return the number up to which no removal was missed."""
        return max(self._snapshot.number, self._began)

    def _is_part_of(self, state: CollectionState) -> bool:
        """Tell whether a collection in that state can be reached from here."""
        return self._birth == state.birth and self._snapshot.number <= state.number and self._seen >= state.forgotten

    async def _begin_anew(self) -> CollectionState:
        if self._birth and self._folder is not None:
            # Another process may have begun anew already; otherwise the files are of no use to anyone.
            self._snapshot = IndexSnapshot()
            await self._load(self._folder)
        state = await self._state()
        if not self._is_part_of(state):
            self._birth, self._snapshot, self._began = state.birth, IndexSnapshot(), state.number
        return state

    async def _state(self) -> CollectionState:
        return await self._database.read(self._scope, lambda tx: SqlCollectionStore(tx).state(self._name.collection))

    async def _read(self, transaction: Transaction) -> _Step:
        store, (_, collection, model), reached = SqlCollectionStore(transaction), self._name, self._snapshot.number
        chunks = list(await store.standing_after(collection, reached, _READ_AT_ONCE, model))
        removals = await store.removals_after(collection, reached, _READ_AT_ONCE)
        returns = [] if model is None else await store.returns_after(collection, model, reached, _FEW)
        ends = [chunks[-1].number] if len(chunks) == _READ_AT_ONCE else []
        ends += [removals[-1].number] if len(removals) == _READ_AT_ONCE else []
        ends += [returns[-1].number] if len(returns) == _FEW else []
        state = await store.state(collection)
        number = min(ends, default=state.number)
        known = {chunk.number: chunk for chunk in chunks if chunk.number <= number}
        for each in returns:
            if model is not None and self._began < each.number <= number:
                again = await store.standing_between(collection, each.first, min(each.last, number), model)
                known |= {chunk.number: chunk for chunk in again}
        removed = [removal.removed for removal in removals if removal.number <= number]
        return _Step(number, [known[each] for each in sorted(known)], removed, state.forgotten)

    async def _after(self, step: _Step) -> IndexSnapshot:
        work = partial(self._snapshot.then, step.number, step.chunks, step.removed)
        # Taking in a single chunk may join it with thousands.
        return await SEARCH_THREADS.run(work) if step.chunks or len(step.removed) > _FEW else work()

    async def _finish(self) -> None:
        """Catch up with very much, putting it into files on the way, so that nothing of it is read twice."""
        async with self._turn:
            while self._errands.is_open and not await self._catch_up(time.monotonic()):
                if self._snapshot.in_memory >= _ROWS_TO_BUILD_AT_ONCE and time.monotonic() >= self._rests_until:
                    await self._build()
                await self._check()
            self._is_behind = False
        self._build_soon()

    def _compare_soon(self) -> None:
        if self._snapshot.files and not self._is_comparing and time.monotonic() >= self._compares_at:
            self._is_comparing = True
            self._errands.run("index", self._compare())

    async def _compare(self) -> None:
        """Look for damage that nothing else tells of, a few blocks of one file at a time."""
        file = min(self._snapshot.files, key=lambda file: file.rounds, default=None)
        try:
            if file is not None:
                await SEARCH_THREADS.run(file.compare_some)
        except Damaged as damage:
            async with self._turn:
                if self._folder is not None and file in self._snapshot.files:
                    await self._set_aside(self._folder, damage)
        finally:
            self._compares_at = time.monotonic() + _COMPARED_EVERY_SECONDS
            self._is_comparing = False

    def _build_soon(self) -> None:
        if self._folder is not None and not self._is_building and time.monotonic() >= self._rests_until:
            self._is_building = True
            self._errands.run("index", self._build_beside())

    async def _build_beside(self) -> None:
        try:
            built = await self._built()
            async with self._turn:
                await self._take_over(built)
        finally:
            self._is_building = False

    async def _build(self) -> None:
        await self._take_over(await self._built())

    async def _built(self) -> _Built:
        birth, began, snapshot = self._birth, self._began, self._snapshot
        built = None
        try:
            if self._folder is not None:
                built = await self._errands.write(partial(self._folder.build, birth, snapshot))
        except Damaged:
            # Loading tells what is damaged, and sets it aside.
            pass
        except OSError as error:
            # What is in memory stays there.
            self._rests_until = time.monotonic() + _REST_SECONDS
            _log.warning("index cannot be written", extra={"fields": {"error": type(error).__name__}})
        return _Built(birth, began, built)

    async def _take_over(self, built: _Built) -> None:
        """Go on from what is in files now, unless this copy began anew. What came meanwhile is read again."""
        folder, snapshot = self._folder, built.snapshot
        if folder is None:
            return
        if snapshot is None:
            if not await SEARCH_THREADS.run(folder.is_current, self._birth, self._snapshot):
                await self._load(folder)
        elif built.birth != self._birth:
            await SEARCH_THREADS.run(folder.drop, built.birth, snapshot.number)
        elif built.began == self._began:
            self._snapshot = snapshot
