"""History backend of boards and their branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from weftline.access.grants import check_clearance
from weftline.history.line_kinds import ROLLBACK_CLEARANCE, LineKind, check_may_forget, line_of, session_of
from weftline.history.model import MAIN, branch_of, line_name, no_line
from weftline.history.store import Rule
from weftline.indexing.pins import PinLimitExceeded
from weftline.kernel.fields import is_name
from weftline.kernel.guards import ImpliedCall
from weftline.sessions.model import SessionArchived, SessionNotFound
from weftline.state.board.model import StoreFull, ValueTooLarge
from weftline.state.board.service import Boards

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weftline.history.model import Head, Version
    from weftline.state.board.board_view import BoardView
    from weftline.state.board.board_writer import BoardWriter


@dataclass(frozen=True, slots=True)
class BoardLine:
    """The line of a board, opened for reading."""

    board: BoardView
    head: Head

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        return await self.board.visible(versions)


class BoardLines(msgspec.Struct, frozen=True):
    """Opens the lines of boards."""

    boards: Boards

    async def to_read(self, line_id: str) -> BoardLine:
        session_id, branch = _parse(line_id)
        try:
            board = await self.boards.to_read(session_id, branch)
        except SessionNotFound as error:
            raise no_line(line_id, denied=error.denial) from error
        line = await self.boards.lines.find(line_id)
        if line is None:
            raise no_line(line_id)
        return BoardLine(board, line.head)

    async def to_write(self, line_id: str) -> BoardWriter:
        session_id, branch = _parse(line_id)
        try:
            return await self.boards.to_write(session_id, branch)
        except SessionNotFound as error:
            raise no_line(line_id, denied=error.denial) from error

    async def to_forget(self, line_id: str) -> BoardWriter:
        check_may_forget(self.boards.actor)
        session_id, branch = _parse(line_id)
        try:
            return await self.boards.to_write(session_id, branch, archived=True)
        except SessionNotFound as error:
            raise no_line(line_id, denied=error.denial) from error

    async def check_rollback(self, line_id: str) -> None:
        del line_id
        check_clearance(self.boards.actor, ROLLBACK_CLEARANCE, "A rollback")

    async def expire(self, line_id: str, limit: int) -> bool:
        """Entries of a board expire by their time to live, not by retention."""
        del line_id, limit
        return False

    async def check_size(self, line_id: str, key: str, text: str) -> None:
        del key
        (await self.to_read(line_id)).board.checked_tokens(text)

    async def check_switch(self, before: str, after: str) -> None:
        """Let everybody who may read a branch switch to it."""
        del before, after

    async def pin_referenced(self, line_id: str) -> None:
        """No other line refers to versions of a board."""


def _parse(line_id: str) -> tuple[str, str]:
    """Return session and branch of a line id; the board itself is the branch main."""
    session_id, branch = session_of(line_id), branch_of(line_id)
    well_formed = is_name(session_id) and (branch is None or is_name(branch))
    if not well_formed or branch == MAIN or line_id != line_name(line_of(session_id), branch):
        raise no_line(line_id)
    return session_id, branch or MAIN


def _implied_calls(line_id: str, key: str, version: Version | None) -> Iterator[ImpliedCall]:
    """Yield the calls that would set a key to a version; one that expires is removed as well."""
    session_id, branch = _parse(line_id)
    arguments = {"session_id": session_id, "branch": branch, "key": key}
    if version is not None:
        value = version.value or ""
        is_json = version.change.meta.media_type is not None and version.value is not None
        yield ImpliedCall("board.write", {**arguments, "value": msgspec.json.decode(value) if is_json else value})
    if version is None or version.change.meta.expires_at is not None:
        yield ImpliedCall("board.delete", arguments)


BOARD = LineKind(
    prefix="board",
    names=("session",),
    backend=BoardLines,
    values="any",
    retention={"board": Rule(None, None)},
    ttl=True,
    write_errors=(SessionArchived,),
    size_errors=(StoreFull, ValueTooLarge, PinLimitExceeded),
    item_kind="board_entry",
    source_kind="weftline_board",
    edited_by=("board.write", "board.delete"),
    implied_calls=_implied_calls,
    private=False,
)
