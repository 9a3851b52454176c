"""Inspection of a session by an admin: all entries of its board regardless of ACLs. Always audited."""

from __future__ import annotations

from weftline.history.line_kinds import line_of
from weftline.history.model import LATEST, BranchNotFound
from weftline.kernel.json_input import StoredValue
from weftline.kernel.operation import Effect, Request, Response, admin_operation
from weftline.sessions.model import SessionId, SessionNotFound
from weftline.sessions.operations import SessionInfo, session_info
from weftline.state.board.board_view import BoardView
from weftline.state.board.board_writer import change_of
from weftline.state.board.operations import BranchChoice, KeyInfo, SnapshotInfo, key_info, snapshot_info
from weftline.state.board.service import Boards


class InspectSession(Request):
    """Session to inspect."""

    session_id: SessionId
    branch: BranchChoice = None


class InspectedEntry(Response, kw_only=True, omit_defaults=False):
    """One entry with its value and read count."""

    info: KeyInfo
    value: StoredValue
    reads: int


class Inspection(Response):
    """A session with its board, snapshots and integrity check."""

    session: SessionInfo
    entries: list[InspectedEntry]
    snapshots: list[SnapshotInfo]
    history_intact: bool
    history_problem: str | None = None


async def _damage(board: BoardView) -> str | None:
    """Return the integrity error of a board's history or its branches; None if it is intact."""
    trunk, lines = line_of(board.session.session_id), board.boards.lines
    branches = await lines.branches(trunk) if board.session.branches else ()
    for line_id in (trunk, *(branch.head.line_id for branch in branches)):
        damage = await lines.verify(line_id)
        if damage is not None:
            return damage.detail
    return None


async def _divergence(board: BoardView) -> str | None:
    """Return the first key whose materialised entry differs from its history; None if they agree."""
    if board.branch is not None:
        return None  # a branch has no materialised entries
    versions = await board.boards.lines.state_at(board.line_id, LATEST)
    recorded = {version.change.key: (version.change, version.author) for version in versions}
    entries = {e.key: (change_of(e), e.written_by) for e in await board.entries.list(board.session.session_id)}
    diverging = sorted(key for key in recorded.keys() | entries.keys() if recorded.get(key) != entries.get(key))
    return f"the board's '{diverging[0]}' differs from its history" if diverging else None


@admin_operation(
    "session.inspect",
    tool="inspect_session",
    http="POST /v1/sessions/{session_id}/inspect",
    effect=Effect.READ,
    heavy=True,
    audited=True,
    errors=(SessionNotFound, BranchNotFound),
)
async def inspect_session(request: InspectSession, boards: Boards) -> Inspection:
    """Read everything on a session's board, values included, and verify its history.

    For admins only; every call is audited.
    """
    board = await boards.to_read(request.session_id, request.branch)
    live = await board.entries.read_all(request.session_id)
    problem = await _damage(board) or await _divergence(board)
    return Inspection(
        session=await session_info(board.session, boards.sessions),
        entries=[
            InspectedEntry(info=key_info(found.entry), value=found.shown, reads=found.entry.reads)
            for found in live
            if found.entry.lives_at(board.now)
        ],
        snapshots=[snapshot_info(tag) for tag in await board.snapshots()],
        history_intact=problem is None,
        history_problem=problem,
    )
