"""Jobs on windows: compactions, automatic checkpoints, and messages that are read ahead."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from weftline.jobs.runner import attempt
from weftline.jobs.scheduler import Work
from weftline.kernel.clock import to_micros
from weftline.kernel.identity import system_actor
from weftline.kernel.thread_pools import CALLER, short_turns
from weftline.storage.sql.database import Scope
from weftline.storage.sql.unit_of_work import SystemTransactions
from weftline.windows.checkpoints import Autosaves
from weftline.windows.compaction.facts.extraction import WindowReader
from weftline.windows.service import Windows
from weftline.windows.sql import WindowStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.jobs.scheduler import JobQueue, Scheduler
    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector
    from weftline.windows.model import WindowEvent, WindowSettings


# Reading of messages ahead: what windows state is read as they grow, so that compactions and prompts find it read.
#
# Reading is the dearest part of a first compaction. It is done once for each message, in short turns with longer
# pauses, so that other work hardly notices. What was read is remembered by this process only: so there is no lease,
# and a process that starts anew reads a window again when it grows.

READ = "compaction.read"
# A process that was noted something wakes the job; nothing is found by polling.
POLL_SECONDS = 3_600.0
# The transaction that adds messages has ended by then, and more of them are read together.
_WAKE_SECONDS = 1.0
# Then it is the next window's turn.
_TURN_SECONDS = 5.0
# Pause after a step, as a multiple of its time: a quarter of a core at most.
_REST = 3.0
# Windows whose progress is kept. One that was dropped is read from its start, mostly from the cache of sentences.
_MAX_WINDOWS = 16


class MessageReading:
    """Reads what new messages of the windows written by this process state."""

    def __init__(self, database: Database, injector: Injector, scheduler: Scheduler) -> None:
        self._database = database
        self._scheduler = scheduler
        self._windows = SystemTransactions(database, injector, Windows)
        # Lines with messages to read.
        self._grown: dict[Work, None] = {}
        self._known: OrderedDict[Work, WindowReader] = OrderedDict()

    def note(self, tenant: str, session_id: str, line_id: str) -> None:
        """Read what is new in a line soon."""
        self._grown[Work(tenant, (session_id, line_id))] = None
        self._scheduler.wake(READ, _WAKE_SECONDS)

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the lines with messages to read."""
        return [*self._grown]

    async def run(self, work: Work) -> bool:
        """Read a line for a while; return whether there may be more to do."""
        CALLER.set((work.tenant, ""))
        # What comes meanwhile is noted again.
        self._grown.pop(work, None)
        session_id, line_id = work.item
        look = self._windows.doing(partial(_events, session_id, line_id))
        events = await self._database.read(Scope(work.tenant), look, heavy=True)
        reading = self._known.setdefault(work, WindowReader())
        self._known.move_to_end(work)
        if len(self._known) > _MAX_WINDOWS:
            self._known.popitem(last=False)
        loop = asyncio.get_running_loop()
        deadline, more = loop.time() + _TURN_SECONDS, True
        while more and loop.time() < deadline and not self._scheduler.stopping.is_set():
            started = loop.time()
            with short_turns():
                more = await reading.read(events)
            await asyncio.sleep(_REST * (loop.time() - started))
        if more:
            self._grown[work] = None
        return bool(self._grown)


async def _events(session_id: str, line_id: str, windows: Windows) -> Sequence[WindowEvent]:
    """Return the events of a line; none if it is gone."""
    if await windows.lines.find(line_id) is None:
        return []
    return await windows.line_events(session_id, line_id)


# Autosave: automatic checkpoints of windows that changed. Windows at rest are not even looked at.

AUTOSAVE = "windows.autosave"
# A window is saved this long after its first change since the last autosave.
AUTOSAVE_SECONDS = 300
_BATCH = 200


class WindowAutosave:
    """Saves the changed windows of a tenant, each in a transaction."""

    def __init__(self, database: Database, clock: Clock, injector: Injector) -> None:
        self._database = database
        self._clock = clock
        self._injector = injector

    @property
    def due_before(self) -> int:
        """Return the time before which a change must be for its window to be saved now."""
        return to_micros(self._clock.now()) - AUTOSAVE_SECONDS * 1_000_000

    async def run(self, tenant: str) -> bool:
        """Save the windows that have waited longest; return whether there may be more."""
        before = self.due_before
        unsaved = await self._database.read(Scope(tenant), lambda tx: WindowStore(tx).unsaved(before, _BATCH))
        done = [
            await attempt(AUTOSAVE, self._save(tenant, window), tenant=tenant, line=window.line_id)
            for window in unsaved
        ]
        return len(done) == _BATCH and any(done)

    async def _save(self, tenant: str, window: WindowSettings) -> None:
        await self._database.write(Scope(tenant), partial(self._save_in, window))

    async def _save_in(self, window: WindowSettings, transaction: Transaction) -> None:
        autosaves = self._injector.build(Autosaves, system_actor(transaction.tenant), transaction)
        await autosaves.save(window)
