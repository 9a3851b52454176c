"""Autosave: automatic checkpoints of windows that changed. Windows at rest are not even looked at."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from weftline.jobs.runner import attempt
from weftline.kernel.clock import to_micros
from weftline.kernel.identity import system_actor
from weftline.storage.sql.database import Scope
from weftline.storage.sql.windows import SqlWindowStore
from weftline.windows.autosave import Autosaves

if TYPE_CHECKING:
    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector
    from weftline.windows.model import WindowSettings

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
        unsaved = await self._database.read(Scope(tenant), lambda tx: SqlWindowStore(tx).unsaved(before, _BATCH))
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
