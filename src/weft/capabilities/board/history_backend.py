"""Boards and their branches as lines: what the operations on history ask of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.board.board_writer import ROLLBACK_CLEARANCE
from weft.capabilities.board.service import Boards
from weft.capabilities.history.model import MAIN, branch_of, line_name, no_line
from weft.capabilities.sessions.model import SessionNotFound, line_of, session_of
from weft.kernel.ids import is_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.capabilities.board.board_view import BoardView
    from weft.capabilities.board.board_writer import BoardWriter
    from weft.capabilities.history.model import Head, Version


@dataclass(frozen=True, slots=True)
class BoardLine:
    """The line of a board, opened to read."""

    board: BoardView
    head: Head

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        return await self.board.visible(versions)


class BoardLines(msgspec.Struct, frozen=True):
    """The keeper of boards' lines."""

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

    def rollback_clearance(self, line_id: str) -> int:
        del line_id
        return ROLLBACK_CLEARANCE


def _parse(line_id: str) -> tuple[str, str]:
    """Return the session and the branch that a line's id names; the board itself goes by the name of main."""
    session_id, branch = session_of(line_id), branch_of(line_id)
    well_formed = is_name(session_id) and (branch is None or is_name(branch))
    if not well_formed or branch == MAIN or line_id != line_name(line_of(session_id), branch):
        raise no_line(line_id)
    return session_id, branch or MAIN
