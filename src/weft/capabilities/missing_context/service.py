"""The gaps of a tenant, opened for one caller: to look at, to report, to change behind their session's lock."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.access.store import AccessStore
from weft.capabilities.board.board_writer import WriteOptions
from weft.capabilities.board.service import Boards
from weft.capabilities.history.model import MAIN
from weft.capabilities.messages.transcript import TranscriptWriter
from weft.capabilities.missing_context.answers import MOST_OPEN, answer_key, close_gap, gap_in
from weft.capabilities.missing_context.model import (
    AlreadyResolved,
    Gap,
    MissingContextLimit,
    MissingContextNotFound,
    normalise_question,
    position_of,
    same_refs,
)
from weft.capabilities.records.model import MissingContext
from weft.capabilities.records.record_ids import VersionId
from weft.capabilities.records.recorder import Recorder
from weft.capabilities.records.store import RecordStore
from weft.capabilities.sessions.model import Session, find_session, line_of, lock_active_session
from weft.capabilities.sessions.store import SessionStore
from weft.kernel.clock import Clock
from weft.kernel.errors import InvalidInput
from weft.kernel.identity import ANYONE, Actor

if TYPE_CHECKING:
    from weft.capabilities.board.model import Entry
    from weft.capabilities.missing_context.model import GapQuery
    from weft.capabilities.records.refs import Refs
    from weft.capabilities.records.store import StoredRecord

_AT_ONCE = 500


class Gaps(msgspec.Struct, frozen=True):
    """Everything that missing context needs, gathered for the caller of one operation."""

    actor: Actor
    sessions: SessionStore
    access: AccessStore
    records: RecordStore
    recorder: Recorder
    boards: Boards
    transcripts: TranscriptWriter
    clock: Clock

    async def report(self, gap: MissingContext, session: Session) -> tuple[Gap, bool]:
        """Keep a new gap, or return the one that asks the same and is open; tell whether that was there."""
        present = await self.records.open_missing(session.session_id, MOST_OPEN)
        for kept in present:
            record = gap_in(kept)
            if normalise_question(record.question) == normalise_question(gap.question) and self.actor.matches(
                kept.readable_by
            ):
                return Gap(kept, record, session), True
        if len(present) >= MOST_OPEN:
            raise MissingContextLimit(f"The session has {MOST_OPEN} open questions already.", limit=MOST_OPEN)
        return Gap(await self.recorder.add(gap, session), gap, session), False

    async def to_read(self, missing_id: str, session_id: str | None) -> Gap:
        if session_id is not None:
            await find_session(session_id, self.actor, self.sessions)
        kept = await self.records.find(MissingContext.type, missing_id)
        if kept is None or session_id not in (None, kept.session_id):
            raise unknown_gap(missing_id)
        gap = await self._known(kept, {None: None})
        if gap is None:
            raise unknown_gap(missing_id, denied=True)
        return gap

    async def to_change(self, missing_id: str, session_id: str | None) -> Gap:
        """Open a gap behind the lock of its session: nobody else changes it until the transaction ends."""
        gap = await self.to_read(missing_id, session_id)
        if gap.session is not None:
            await lock_active_session(gap.session.session_id, self.actor, self.sessions)
        kept = await self.records.find_locked(MissingContext.type, missing_id)
        if kept is None:
            raise unknown_gap(missing_id)
        return Gap(kept, gap_in(kept), gap.session)

    async def to_ask(self, missing_id: str, session_id: str | None) -> Gap:
        """Open a gap to ask about it, which makes sense only while it is open."""
        gap = await self.to_change(missing_id, session_id)
        if gap.record.status == "resolved":
            raise _resolved(gap.record)
        return gap

    async def resolve(self, gap: Gap, refs: Refs) -> tuple[Gap, bool]:
        """End a gap; tell whether it had ended by these very refs before."""
        if gap.record.status == "resolved":
            if not same_refs(gap.record.resolution_refs, refs):
                raise _resolved(gap.record)
            return gap, True
        kept = await close_gap(self.recorder, gap.kept, refs, gap.session)
        return Gap(kept, gap_in(kept), gap.session), False

    async def answer(self, gap: Gap, text: str) -> tuple[Gap, bool]:
        """End a gap by an answer in words, which is kept on the board of its session."""
        board = await self.boards.to_write(session_of(gap).session_id, MAIN)
        key = answer_key(gap.record.missing_id)
        if gap.record.status == "resolved":
            said = (await board.read([key])).get(key)
            if said is None or said.value != text:
                raise _resolved(gap.record)
            return await self.resolve(gap, (_item(gap, said.entry),))
        entry = await board.write(key, text, WriteOptions(readable_by=closed_to(gap), reason="answer"))
        again = await self._again(gap)
        if again.record.status == "resolved":
            # What was written is an answer like any other, and has ended the gap.
            return again, False
        return await self.resolve(again, (_item(gap, entry),))

    async def listed(self, wanted: GapQuery, limit: int) -> list[Gap]:
        """Return what the caller may know of and wants to see, the most severe and then the oldest first."""
        if wanted.session_id is not None:
            await find_session(wanted.session_id, self.actor, self.sessions)
        sessions: dict[str | None, Session | None] = {None: None}
        best: list[Gap] = []
        last: str | None = ""
        while last is not None:
            page = await self.records.missing_after(wanted.session_id, last, _AT_ONCE, only_open=wanted.only_open)
            gaps = [gap for kept in page if (gap := await self._known(kept, sessions)) and wanted.covers(gap)]
            best = heapq.nsmallest(limit, [*best, *gaps], key=position_of)
            last = page[-1].record_id if len(page) == _AT_ONCE else None
        return best

    async def _known(self, kept: StoredRecord, sessions: dict[str | None, Session | None]) -> Gap | None:
        """Return a gap if the caller may know of it; ``sessions`` keeps those that were looked up."""
        home = kept.session_id
        if home not in sessions:
            sessions[home] = await self.sessions.find(home or "")
        session = sessions[home]
        taken_part_in = home is None or (session is not None and session.admits(self.actor))
        if not taken_part_in or not self.actor.matches(kept.readable_by):
            return None
        return Gap(kept, gap_in(kept), session)

    async def _again(self, gap: Gap) -> Gap:
        kept = await self.records.find(MissingContext.type, gap.record.missing_id) or gap.kept
        return Gap(kept, gap_in(kept), gap.session)


def session_of(gap: Gap) -> Session:
    """Return the session of a gap, for what can be done nowhere else."""
    if gap.session is None:
        raise InvalidInput(
            "missing_id: this gap belongs to no session, so there is no board and nobody to ask there",
            field="missing_id",
            hint="Resolve it with resolution_refs, or request it as tool_invocation or policy_request.",
        )
    return gap.session


def closed_to(gap: Gap) -> tuple[str, ...] | None:
    """Return who alone may read what is said about a gap; None if everyone who takes part may."""
    return None if gap.kept.readable_by == ANYONE else gap.kept.readable_by


def unknown_gap(missing_id: str, *, denied: bool = False) -> MissingContextNotFound:
    shown = missing_id[:100]
    error = MissingContextNotFound(
        f"There is no missing context '{shown}'.", resource_type="missing_context", resource_id=shown
    )
    error.denial = denied
    return error


def _resolved(gap: MissingContext) -> AlreadyResolved:
    return AlreadyResolved(
        f"'{gap.missing_id[:100]}' has been resolved already.",
        resource_id=gap.missing_id[:100],
        resolution_refs=msgspec.to_builtins(list(gap.resolution_refs)),
    )


def _item(gap: Gap, entry: Entry) -> str:
    return str(VersionId(line_of(session_of(gap).session_id), entry.key, entry.life, entry.version))
