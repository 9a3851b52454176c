"""Looking at a whole session as an admin: everything on its board, whoever it is meant for. Always on record."""

from __future__ import annotations

from weft.capabilities.board.boards import Board, Boards, change_of
from weft.capabilities.board.operations import KeyInfo, SnapshotInfo, key_info, snapshot_info
from weft.capabilities.history.model import LATEST
from weft.capabilities.sessions.model import SessionId, SessionNotFound
from weft.capabilities.sessions.operations import SessionInfo, describe
from weft.kernel.identity import Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation


class InspectSession(Request):
    """Which session to look into."""

    session_id: SessionId


class InspectedEntry(Response, kw_only=True, omit_defaults=False):
    """One entry with everything known about it."""

    info: KeyInfo
    value: str
    reads: int


class Inspection(Response):
    """A whole session."""

    session: SessionInfo
    entries: list[InspectedEntry]
    snapshots: list[SnapshotInfo]
    history_intact: bool
    history_problem: str | None = None


async def _departure(board: Board) -> str | None:
    """Return what the board says that its history does not; None if they agree."""
    told = {key: (version.change, version.author) for key, version in (await board.state_at(LATEST)).items()}
    held = {e.key: (change_of(e), e.written_by) for e in await board.parts.entries.list(board.session.session_id)}
    departing = sorted(key for key in told.keys() | held.keys() if told.get(key) != held.get(key))
    return f"the board's '{departing[0]}' is not what its history says" if departing else None


@operation(
    "session.inspect",
    tool="inspect_session",
    http="POST /v1/sessions/{session_id}/inspect",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    heavy=True,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(SessionNotFound,),
)
async def inspect_session(request: InspectSession, boards: Boards) -> Inspection:
    """Look at everything a session holds, values included, and check that its history is intact.

    For admins only; every use is written to the audit log.
    """
    board = await boards.to_read(request.session_id)
    live = await boards.entries.read_all(request.session_id)
    problem = await boards.lines.verify(board.line_id) or await _departure(board)
    return Inspection(
        session=await describe(board.session, boards.sessions),
        entries=[
            InspectedEntry(info=key_info(found.entry), value=found.value, reads=found.entry.reads)
            for found in live
            if found.entry.lives_at(board.now)
        ],
        snapshots=[snapshot_info(tag) for tag in await boards.lines.tags(board.line_id)],
        history_intact=problem is None,
        history_problem=problem,
    )
