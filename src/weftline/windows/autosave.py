"""Saves one window: an automatic checkpoint of its current state, if it changed since the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.history.commits import tag_automatically
from weftline.history.model import SYSTEM, line_name
from weftline.history.sql import CheckoutStore
from weftline.history.store import LineStore
from weftline.kernel.clock import Clock, to_micros
from weftline.sessions.store import SessionStore
from weftline.windows.store import WindowStore

if TYPE_CHECKING:
    from weftline.windows.model import WindowSettings

_OCCASION = "autosave"
# Older autosaves of a window are removed; their versions stay in its history.
KEPT_AUTOSAVES = 10


class Autosaves(msgspec.Struct, frozen=True):
    """What an autosave needs."""

    sessions: SessionStore
    store: WindowStore
    lines: LineStore
    checkouts: CheckoutStore
    clock: Clock

    async def save(self, window: WindowSettings) -> None:
        """Tag the line that the window's agent works on, and mark the window as saved."""
        # Lock order, the same as in session deletion: session, line, window.
        if await self.sessions.find_locked(window.session_id) is None:
            return
        checkout = await self.checkouts.of(window.line_id, window.agent_id)
        branch = None if checkout is None or checkout.gone else checkout.branch
        head = await self.lines.lock(line_name(window.line_id, branch))
        if head is not None:
            await tag_automatically(self.lines, head, _OCCASION, SYSTEM.participant, to_micros(self.clock.now()))
            await self._remove_old(head.line_id)
        await self.store.saved(window.session_id, window.agent_id)

    async def _remove_old(self, line_id: str) -> None:
        saved = [
            tag for tag in await self.lines.tags(line_id) if tag.automatic and tag.label.startswith(f"{_OCCASION}-")
        ]
        for tag in sorted(saved, key=lambda tag: tag.seq)[:-KEPT_AUTOSAVES]:
            await self.lines.untag(line_id, tag.label)
