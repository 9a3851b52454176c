"""Ids of the lines of boards."""

from __future__ import annotations

from weftline.history.model import trunk_of


def line_of(session_id: str) -> str:
    """Return the line id of a session's board."""
    return f"board:{session_id}"


def is_main_board(line_id: str) -> bool:
    """Whether a line is the main branch of a board."""
    return line_id.startswith("board:") and trunk_of(line_id) == line_id


def session_of(line_id: str) -> str:
    """Return the session of a board's line, main or branch."""
    return trunk_of(line_id).removeprefix("board:")
