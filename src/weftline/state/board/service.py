"""Opens a board, or a branch of it, for one caller: to read, or locked to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.history.line_kinds import line_of
from weftline.history.lines import LineStore
from weftline.history.model import MAIN, BranchNotFound, line_name
from weftline.history.sql import CheckoutStore
from weftline.indexing.pins import Pins
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import close_names
from weftline.kernel.identity import Actor
from weftline.kernel.outbox import Outbox
from weftline.kernel.ports import TokenCounters
from weftline.safety.trust.gate import ContentGate
from weftline.sessions.model import Session, find_session, lock_active_session, lock_session
from weftline.sessions.sql import SessionStore
from weftline.state.board.board_view import BoardView
from weftline.state.board.board_writer import BoardWriter
from weftline.state.board.model import EntryObserver, ReadTally
from weftline.state.board.sql import EntryStore

if TYPE_CHECKING:
    from weftline.history.model import Head

_SWITCH = f"You had switched to it. Switch to {MAIN} or another branch with `history.switch`."


class Boards(msgspec.Struct, frozen=True):
    """What a board needs, built for the caller of one operation."""

    actor: Actor
    sessions: SessionStore
    entries: EntryStore
    lines: LineStore
    checkouts: CheckoutStore
    outbox: Outbox
    clock: Clock
    counters: TokenCounters
    tally: ReadTally
    observer: EntryObserver
    pins: Pins
    gate: ContentGate

    async def to_read(self, session_id: str, branch: str | None = None) -> BoardView:
        session = await find_session(session_id, self.actor, self.sessions)
        chosen = await self._branch_of_call(session, branch)
        if chosen is not None and await self.lines.find(line_name(line_of(session_id), chosen)) is None:
            raise await self._branch_missing(session, chosen, switched=branch is None)
        return BoardView(self, session, chosen, to_micros(self.clock.now()))

    async def to_write(self, session_id: str, branch: str | None = None, *, archived: bool = False) -> BoardWriter:
        """Lock a board: what is read from it cannot change until the transaction ends.

        ``archived``: also that of an archived session.
        """
        lock = lock_session if archived else lock_active_session
        session, head = await lock(session_id, self.actor, self.sessions)
        chosen = await self._branch_of_call(session, branch)
        if chosen is not None:
            head = await self._lock(session, chosen, switched=branch is None)
        board = BoardWriter(self, session, chosen, to_micros(self.clock.now()), head)
        await board.expire_entries()
        return board

    async def _branch_of_call(self, session: Session, asked: str | None) -> str | None:
        """Return the branch that a call names or its caller switched to; None for the board itself."""
        if asked == MAIN or (asked is None and session.branches == 0):
            return None
        if asked is not None:
            return asked
        checkout = await self.checkouts.of(line_of(session.session_id), self.actor.principal_id)
        if checkout is not None and checkout.gone:
            raise await self._branch_missing(session, checkout.branch, switched=True)
        return checkout.branch if checkout else None

    async def _lock(self, session: Session, branch: str, *, switched: bool) -> Head:
        # Lock order: session, main line, branch. A fixed order prevents deadlocks.
        head = await self.lines.lock(line_name(line_of(session.session_id), branch))
        if head is None:
            raise await self._branch_missing(session, branch, switched=switched)
        return head

    async def _branch_missing(self, session: Session, branch: str, *, switched: bool) -> BranchNotFound:
        branches = await self.lines.branches(line_of(session.session_id)) if session.branches else ()
        return BranchNotFound(
            f"The branch '{branch}' that you switched to was deleted."
            if switched
            else f"The board has no branch '{branch}'.",
            resource_type="branch",
            resource_id=branch,
            hint=_SWITCH if switched else None,
            available_alternatives=close_names(branch, [line.branch for line in branches if line.branch is not None]),
        )
