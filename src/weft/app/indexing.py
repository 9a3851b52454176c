"""Copies of shelves made for searching: each is brought up to date before it is looked at, and kept in files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from weft.app.dispatch import log_changes
from weft.app.errands import Errands
from weft.app.system import system_actor
from weft.app.upkeep import attempt
from weft.capabilities.knowledge.domains import cleared_for
from weft.capabilities.shelves.alarm import index_damaged
from weft.capabilities.shelves.model import domain_of_shelf
from weft.index.files import Damaged
from weft.index.folder import Loaded, ShelfFolder
from weft.index.places import folder_name
from weft.index.remote import RemoteShelfView
from weft.index.shelf import Moment
from weft.index.view import ShelfView
from weft.kernel.identity import ANYONE
from weft.kernel.threads import SEARCHING
from weft.storage.sql.database import Scope
from weft.storage.sql.events import SqlOutbox
from weft.storage.sql.knowledge import SqlDomainStore
from weft.storage.sql.shelves import SqlShelfStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from weft.app.metrics import Metrics
    from weft.capabilities.retrieval.view import Audiences, View, Wish
    from weft.capabilities.shelves.model import Removal, ShelfState, Standing
    from weft.capabilities.shelves.store import VectorSearch
    from weft.kernel.clock import Clock
    from weft.kernel.events import NewEvent
    from weft.storage.sql.database import Database, Transaction

    # Told the tenant and the shelf whose files were damaged.
    Alarm = Callable[[str, str], Awaitable[None]]

_log = logging.getLogger("weft.index")
_READ_AT_ONCE = 4_096
# So many are read and taken in while others wait.
_FEW = 64
# So many rows in memory are put into a file; while very many are read, more of them at once.
_ROWS_TO_BUILD = 8_192
_ROWS_TO_BUILD_AT_ONCE = 65_536
# A search waits so long for a copy that has much to catch up with, and then sees what is there.
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
_MOST_BYTES_IN_MEMORY = 512 * 2**20
# Who may see which of so many rows is told while others wait.
_SEEN_AT_ONCE = 20_000
_BYTES_A_ROW_IN_FILES = 24
_REST_SECONDS = 60.0
_INDEXED_BEYOND = 10_000


class Name(NamedTuple):
    """Which shelf a copy is of, with the vectors of which model; None where these stay in the database."""

    tenant: str
    shelf: str
    model: str | None


class _Step(NamedTuple):
    """What happened to a shelf up to a number."""

    number: int
    chunks: Sequence[Standing]
    removed: Sequence[int]


class Indexes:
    """The copies that this process has of shelves. Those not used for longest are let go when they take much memory."""

    def __init__(self, database: Database, folder: Path | None = None, alarm: Alarm | None = None) -> None:
        self._database = database
        self._folder = folder
        self._alarm = alarm
        self._copies: OrderedDict[Name, _Copy] = OrderedDict()
        self._prepared: set[Name] = set()
        self._errands = Errands()

    async def open(self, tenant: str, wish: Wish, audiences: Audiences, model: str) -> View:
        """Return a view of everything that was committed before this call."""
        search = self._database.vector_search(tenant, wish.shelf, model)
        copy = self._copy(Name(tenant, wish.shelf, model if search is None else None))
        moment = await copy.now()
        self._let_go()
        if search is None:
            make: Callable[[], ShelfView] = partial(ShelfView, wish.shelf, moment, wish, audiences)
        else:
            self._prepare(search, Name(tenant, wish.shelf, model), moment)
            make = partial(RemoteShelfView, wish.shelf, moment, wish, audiences, search)
        view = make() if moment.size <= _SEEN_AT_ONCE else await SEARCHING.run(make)
        view.behind = max(0, copy.goal - moment.number)
        return view

    async def prepare(self, tenant: str, shelf: str, model: str) -> None:
        """Get ready for searches with a model: everything that is committed is there, and found fast."""
        search = self._database.vector_search(tenant, shelf, model)
        moment = await self._copy(Name(tenant, shelf, model if search is None else None)).whole()
        if search is not None and moment.size > _INDEXED_BEYOND:
            await search.prepare()

    async def forget(self, tenant: str, shelf: str, model: str) -> None:
        """Let go of what was made for searches with a model."""
        search = self._database.vector_search(tenant, shelf, model)
        if search is not None:
            self._prepared.discard(Name(tenant, shelf, model))
            await search.discard()
            return
        copy = self._copies.pop(Name(tenant, shelf, model), None) or self._new_copy(Name(tenant, shelf, model))
        await copy.forget()

    async def close(self) -> None:
        """Finish what is being written."""
        await self._errands.close()

    def _prepare(self, search: VectorSearch, name: Name, moment: Moment) -> None:
        """Have a database that finds vectors itself get ready for many of them, once."""
        if moment.size > _INDEXED_BEYOND and name not in self._prepared:
            self._prepared.add(name)
            self._errands.run("vector index", search.prepare())

    def _copy(self, name: Name) -> _Copy:
        copy = self._copies.get(name)
        if copy is None:
            copy = self._copies[name] = self._new_copy(name)
        self._copies.move_to_end(name)
        return copy

    def _new_copy(self, name: Name) -> _Copy:
        return _Copy(self._database, name, self._folder_of(name), self._errands, self._alarm)

    def _folder_of(self, name: Name) -> ShelfFolder | None:
        if self._folder is None:
            return None
        return ShelfFolder(self._folder.joinpath(*(folder_name(part or "") for part in name)))

    def _let_go(self) -> None:
        while len(self._copies) > 1 and sum(copy.weight for copy in self._copies.values()) > _MOST_BYTES_IN_MEMORY:
            self._copies.popitem(last=False)


class DamageAlarm:
    """Tells whoever runs Weft, and the admins of the tenant, that files of an index were damaged."""

    def __init__(self, database: Database, clock: Clock, metrics: Metrics) -> None:
        self._database = database
        self._clock = clock
        self._metrics = metrics

    async def __call__(self, tenant: str, shelf: str) -> None:
        self._metrics.count_damaged_index()
        scope = Scope(tenant)

        async def publish(transaction: Transaction) -> NewEvent:
            domain = domain_of_shelf(shelf)
            readers = ANYONE if domain is None else await cleared_for(domain, SqlDomainStore(transaction))
            event = index_damaged(shelf, system_actor(tenant).participant, readers)
            await SqlOutbox(transaction, self._clock).publish(event)
            return event

        log_changes(scope, [await self._database.write(scope, publish)])


class _Copy:
    """One shelf's copy: a moment of it in files and memory, which goes on when the shelf does."""

    def __init__(
        self, database: Database, name: Name, folder: ShelfFolder | None, errands: Errands, alarm: Alarm | None
    ) -> None:
        self._database = database
        self._scope = Scope(name.tenant)
        self._name = name
        self._folder = folder
        self._errands = errands
        self._alarm = alarm
        self._birth = 0
        self._moment = Moment()
        # Vectors that came later than their chunks, up to this number, were there when the chunks were read.
        self._returned = 0
        self._is_loaded = False
        self._is_behind = self._is_building = False
        self._rests_until = 0.0
        # The shelf's number when it was last looked at.
        self.goal = 0
        self._turn = asyncio.Lock()

    @property
    def weight(self) -> int:
        return self._moment.bytes_in_memory + _BYTES_A_ROW_IN_FILES * self._moment.size

    async def now(self) -> Moment:
        """Return what is committed; of a copy that is far behind, what it has so far."""
        if self._is_behind and self._turn.locked():
            return self._moment
        async with self._turn:
            await self._check()
            self._is_behind = not await self._catch_up(time.monotonic() + _PATIENCE_SECONDS)
            if self._is_behind:
                self._errands.run("index", self._finish())
            elif self._moment.in_memory >= _ROWS_TO_BUILD:
                self._build_soon()
            return self._moment

    async def whole(self) -> Moment:
        """Return what is committed, however long it takes to catch up with it."""
        moment = await self.now()
        while self._is_behind:
            await asyncio.sleep(_PAUSE_SECONDS)
            moment = await self.now()
        return moment

    async def forget(self) -> None:
        """Remove the files."""
        async with self._turn:
            if self._folder is not None:
                await SEARCHING.run(self._folder.clear)

    async def _check(self) -> None:
        """Load what lies in files, at first and whenever anyone touched them."""
        if self._folder is None:
            self._is_loaded = True
        elif not self._is_loaded or not self._folder.is_sound(self._moment):
            await self._load(self._folder)
            self._is_loaded = True

    async def _load(self, folder: ShelfFolder) -> None:
        self._birth, self._moment = 0, Moment()
        try:
            loaded = await SEARCHING.run(folder.load)
        except Damaged as damage:
            await self._report(str(damage))
            await SEARCHING.run(folder.set_aside)
            return
        if loaded is not None and loaded.birth == (await self._state()).birth:
            self._birth, self._returned = loaded.birth, loaded.moment.number
            self._moment = await self._without_removed(loaded)

    async def _report(self, damage: str) -> None:
        _log.error(
            "index damaged",
            extra={"fields": {"tenant": self._name.tenant, "shelf": self._name.shelf, "file": damage}},
        )
        if self._alarm is not None:
            await attempt("index alarm", self._alarm(self._name.tenant, self._name.shelf))

    async def _without_removed(self, loaded: Loaded) -> Moment:
        """Take out what was removed between the writing of the oldest file and that of the newest."""
        moment, reached = loaded.moment, loaded.as_of
        while reached < moment.number:
            removals = await self._database.read(self._scope, partial(self._removals, reached), heavy=True)
            moment = moment.then(moment.number, [], [removal.removed for removal in removals])
            if len(removals) < _READ_AT_ONCE:
                break
            reached = removals[-1].number
        return moment

    async def _removals(self, after: int, transaction: Transaction) -> Sequence[Removal]:
        return await SqlShelfStore(transaction).removals_after(self._name.shelf, after, _READ_AT_ONCE)

    async def _catch_up(self, deadline: float) -> bool:
        """Go on until everything that is committed is there; False if that takes longer than the deadline."""
        while True:
            state = await self._state()
            if state.birth != self._birth or state.number < self._moment.number:
                await self._begin_anew(state)
            self.goal = state.number
            ahead = state.number - self._moment.number
            if ahead <= 0:
                return True
            step = await self._database.read(self._scope, self._read, heavy=ahead > _FEW)
            self._moment = await self._after(step)
            if time.monotonic() > deadline:
                return self._moment.number >= state.number

    async def _begin_anew(self, state: ShelfState) -> None:
        if self._folder is not None and self._birth:
            await SEARCHING.run(self._folder.clear)
        self._birth, self._moment, self._returned = state.birth, Moment(), state.number

    async def _state(self) -> ShelfState:
        return await self._database.read(self._scope, lambda tx: SqlShelfStore(tx).state(self._name.shelf))

    async def _read(self, transaction: Transaction) -> _Step:
        store, (_, shelf, model), reached = SqlShelfStore(transaction), self._name, self._moment.number
        chunks = list(await store.standing_after(shelf, reached, _READ_AT_ONCE, model))
        removals = await store.removals_after(shelf, reached, _READ_AT_ONCE)
        returns = [] if model is None else await store.returns_after(shelf, model, reached, _FEW)
        ends = [chunks[-1].number] if len(chunks) == _READ_AT_ONCE else []
        ends += [removals[-1].number] if len(removals) == _READ_AT_ONCE else []
        ends += [returns[-1].number] if len(returns) == _FEW else []
        number = min(ends, default=(await store.state(shelf)).number)
        known = {chunk.number: chunk for chunk in chunks if chunk.number <= number}
        for each in returns:
            if model is not None and self._returned < each.number <= number:
                again = await store.standing_between(shelf, each.first, min(each.last, number), model)
                known |= {chunk.number: chunk for chunk in again}
        removed = [removal.removed for removal in removals if removal.number <= number]
        return _Step(number, [known[each] for each in sorted(known)], removed)

    async def _after(self, step: _Step) -> Moment:
        if len(step.chunks) <= _FEW:
            return self._moment.then(*step)
        return await SEARCHING.run(self._moment.then, *step)

    async def _finish(self) -> None:
        """Catch up with very much, putting it into files on the way, so that nothing of it is read twice."""
        async with self._turn:
            while self._errands.is_open and not await self._catch_up(time.monotonic()):
                if self._moment.in_memory >= _ROWS_TO_BUILD_AT_ONCE and time.monotonic() >= self._rests_until:
                    await self._build()
            self._is_behind = False
        self._build_soon()

    def _build_soon(self) -> None:
        if self._folder is not None and not self._is_building and time.monotonic() >= self._rests_until:
            self._is_building = True
            self._errands.run("index", self._build_beside())

    async def _build_beside(self) -> None:
        try:
            built = await self._built(self._birth, self._moment)
            async with self._turn:
                await self._take_over(built)
        finally:
            self._is_building = False

    async def _build(self) -> None:
        await self._take_over(await self._built(self._birth, self._moment))

    async def _built(self, birth: int, moment: Moment) -> tuple[int, Moment | None]:
        if self._folder is None:
            return birth, None
        try:
            return birth, await self._errands.write(partial(self._folder.build, birth, moment))
        except OSError as error:
            # What is in memory stays there.
            self._rests_until = time.monotonic() + _REST_SECONDS
            _log.warning("index cannot be written", extra={"fields": {"error": type(error).__name__}})
            return birth, None

    async def _take_over(self, built: tuple[int, Moment | None]) -> None:
        """Go on from what is in files now. What came while they were written is read again."""
        birth, moment = built
        if birth != self._birth or self._folder is None:
            return
        if moment is not None:
            self._moment = moment
        elif not await SEARCHING.run(self._folder.is_current, birth, self._moment):
            await self._load(self._folder)
