"""Replica of one collection's index: segment files plus newer rows in memory, caught up before each search."""

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

    # Called with the tenant and the collection whose files were damaged.
    Alarm = Callable[[str, str], Awaitable[None]]

_log = logging.getLogger("weft.search_index")
_READ_AT_ONCE = 4_096
# Rows read, and removals applied, between two yields to the event loop.
_FEW = 64
# Rows in memory that are flushed to a segment file; more at once during a bulk load.
_ROWS_TO_BUILD = 8_192
_ROWS_TO_BUILD_AT_ONCE = 65_536
# How long a search waits for a replica to catch up before it uses what is there.
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
# Pause after a failed write.
_REST_SECONDS = 60.0
# Interval at which some blocks of the files in use are verified against their checksums.
_COMPARED_EVERY_SECONDS = 1.0


class Name(NamedTuple):
    """Collection and embedding model of a replica; no model if the vectors stay in the database."""

    tenant: str
    collection: str
    model: str | None


class _Step(NamedTuple):
    """Changes of a collection up to a number; those up to ``forgotten`` are no longer retained."""

    number: int
    chunks: Sequence[IndexedChunk]
    removed: Sequence[int]
    forgotten: int


class _Built(NamedTuple):
    """Segment files written for a replica with this birth and start; None if not written."""

    birth: int
    began: int
    snapshot: IndexSnapshot | None


class CollectionReplica:
    """Replica of one collection: a snapshot in files and memory that follows the collection."""

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
        # Changes up to this number are reflected in the rows that were read.
        self._began = 0
        self._is_loaded = False
        self._is_behind = self._is_building = self._is_comparing = False
        self._rests_until = 0.0
        self._compares_at = time.monotonic() + _COMPARED_EVERY_SECONDS
        # Number of the collection at the last check.
        self.goal = 0
        self._turn = asyncio.Lock()

    @property
    def weight(self) -> int:
        return self._snapshot.bytes_in_memory + sum(part.masks.bytes for part in self._snapshot.parts)

    async def now(self) -> IndexSnapshot:
        """Return the committed state, or what is there if the replica is far behind."""
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
        """Return the committed state, however long catching up takes."""
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
        """Load the segment files, at first and whenever they changed."""
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
        """Set damaged files aside; their content is rebuilt."""
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
        """Apply removals between the oldest and the newest file."""
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
        """Catch up with the committed state; False if the deadline passes first."""
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
        """Return the number up to which all removals are applied."""
        return max(self._snapshot.number, self._began)

    def _is_part_of(self, state: CollectionState) -> bool:
        """Tell whether the retained changes lead from here to that state."""
        return self._birth == state.birth and self._snapshot.number <= state.number and self._seen >= state.forgotten

    async def _begin_anew(self) -> CollectionState:
        if self._birth and self._folder is not None:
            # Another process may have rebuilt it already; otherwise the files are useless.
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
        # Adding one chunk may merge it with thousands.
        return await SEARCH_THREADS.run(work) if step.chunks or len(step.removed) > _FEW else work()

    async def _finish(self) -> None:
        """Bulk load, flushing to files on the way, so that nothing is read twice."""
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
        """Verify checksums of some blocks of one file, to find silent damage."""
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
            # Loading detects damaged files and sets them aside.
            pass
        except OSError as error:
            # The rows stay in memory.
            self._rests_until = time.monotonic() + _REST_SECONDS
            _log.warning("index cannot be written", extra={"fields": {"error": type(error).__name__}})
        return _Built(birth, began, built)

    async def _take_over(self, built: _Built) -> None:
        """Continue from the new files, unless the replica was rebuilt; later changes are read again."""
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
