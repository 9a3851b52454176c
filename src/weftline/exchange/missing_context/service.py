"""Service for missing context: find, report, resolve and list gaps on behalf of one caller."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from weftline.exchange.missing_context.answers import MAX_OPEN_GAPS, answer_key, decode_gap, resolve_gap
from weftline.exchange.missing_context.model import (
    AlreadyResolved,
    Gap,
    MissingContextLimit,
    MissingContextNotFound,
    cursor_of,
    normalise_question,
    same_refs,
)
from weftline.history.board_lines import line_of
from weftline.history.model import MAIN
from weftline.kernel.clock import Clock
from weftline.kernel.errors import InvalidInput
from weftline.kernel.identity import ANYONE, Actor
from weftline.records.model import MissingContext
from weftline.records.record_ids import VersionId
from weftline.records.sql import RecordStore
from weftline.safety.trust.gate import ContentGate
from weftline.sessions.messages.transcript import TranscriptWriter
from weftline.sessions.model import Session, find_session, lock_active_session
from weftline.sessions.recorder import Recorder
from weftline.sessions.store import SessionStore
from weftline.state.board.board_writer import WriteOptions
from weftline.state.board.service import Boards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.exchange.missing_context.model import GapQuery
    from weftline.records.model import CandidateSource
    from weftline.records.refs import Refs
    from weftline.records.store import StoredRecord
    from weftline.state.board.model import Entry

_BATCH = 500


class Gaps(msgspec.Struct, frozen=True):
    """Missing context of the caller's tenant, in one transaction."""

    actor: Actor
    sessions: SessionStore
    records: RecordStore
    recorder: Recorder
    boards: Boards
    transcripts: TranscriptWriter
    clock: Clock
    gate: ContentGate

    async def report(self, gap: MissingContext, session: Session) -> tuple[Gap, bool]:
        """Store a new gap, or return the open one with the same question; the flag says which."""
        open_gaps = await self.records.open_missing(session.session_id, MAX_OPEN_GAPS)
        question = normalise_question(gap.question)
        for stored in open_gaps:
            record = decode_gap(stored)
            if normalise_question(record.question) == question and self.actor.matches(stored.readable_by):
                return Gap(stored, record, session), True
        if len(open_gaps) >= MAX_OPEN_GAPS:
            raise MissingContextLimit(f"The session already has {MAX_OPEN_GAPS} open questions.", limit=MAX_OPEN_GAPS)
        given = texts_of(gap.question, gap.needed_for, gap.candidate_sources, gap.blocked_actions)
        admitted = await self.gate.admit_value("missing_context", gap.missing_id, given)
        if admitted is not given:
            gap = msgspec.convert({**msgspec.to_builtins(gap), **admitted}, MissingContext)
        return Gap(await self.recorder.add(gap, session), gap, session), False

    async def find(self, missing_id: str, session_id: str | None) -> Gap:
        if session_id is not None:
            await find_session(session_id, self.actor, self.sessions)
        stored = await self.records.find(MissingContext.type, missing_id)
        if stored is None or session_id not in (None, stored.session_id):
            raise gap_not_found(missing_id)
        gap = await self._visible(stored, {None: None})
        if gap is None:
            raise gap_not_found(missing_id, denied=True)
        return gap

    async def lock(self, missing_id: str, session_id: str | None) -> Gap:
        """Find a gap and lock it and its session until the transaction ends."""
        gap = await self.find(missing_id, session_id)
        if gap.session is not None:
            await lock_active_session(gap.session.session_id, self.actor, self.sessions)
        stored = await self.records.find_locked(MissingContext.type, missing_id)
        if stored is None:
            raise gap_not_found(missing_id)
        return Gap(stored, decode_gap(stored), gap.session)

    async def lock_open(self, missing_id: str, session_id: str | None) -> Gap:
        """Lock a gap that is not resolved."""
        gap = await self.lock(missing_id, session_id)
        if gap.record.status == "resolved":
            raise _resolved(gap.record)
        return gap

    async def resolve(self, gap: Gap, refs: Refs) -> tuple[Gap, bool]:
        """Resolve a gap; the flag is true if it was already resolved with the same refs."""
        if gap.record.status == "resolved":
            if not same_refs(gap.record.resolution_refs, refs):
                raise _resolved(gap.record)
            return gap, True
        await self.gate.admit_value("missing_context", gap.record.missing_id, msgspec.to_builtins(refs))
        stored = await resolve_gap(self.recorder, gap.stored, refs, gap.session)
        return Gap(stored, decode_gap(stored), gap.session), False

    async def answer(self, gap: Gap, text: str) -> tuple[Gap, bool]:
        """Resolve a gap with a text, written to the board of its session."""
        board = await self.boards.to_write(session_of(gap).session_id, MAIN)
        key = answer_key(gap.record.missing_id)
        if gap.record.status == "resolved":
            current = (await board.read([key])).get(key)
            if current is None or current.value != text:
                raise _resolved(gap.record)
            return await self.resolve(gap, (_item(gap, current.entry),))
        entry = await board.write(key, text, WriteOptions(readable_by=restricted_readers(gap), reason="answer"))
        updated = await self._reload(gap)
        if updated.record.status == "resolved":
            # GapAnswers has resolved it when the key was written.
            return updated, False
        return await self.resolve(updated, (_item(gap, entry),))

    async def query(self, query: GapQuery, limit: int) -> list[Gap]:
        """Return the matching gaps that the caller may see, most severe and oldest first."""
        if query.session_id is not None:
            await find_session(query.session_id, self.actor, self.sessions)
        sessions: dict[str | None, Session | None] = {None: None}
        best: list[Gap] = []
        last: str | None = ""
        while last is not None:
            page = await self.records.missing_after(query.session_id, last, _BATCH, only_open=query.only_open)
            gaps = [gap for stored in page if (gap := await self._visible(stored, sessions)) and query.matches(gap)]
            best = heapq.nsmallest(limit, [*best, *gaps], key=cursor_of)
            last = page[-1].record_id if len(page) == _BATCH else None
        return best

    async def _visible(self, stored: StoredRecord, sessions: dict[str | None, Session | None]) -> Gap | None:
        """Return a gap if the caller may see it; ``sessions`` caches the sessions."""
        session_id = stored.session_id
        if session_id not in sessions:
            sessions[session_id] = await self.sessions.find(session_id or "")
        session = sessions[session_id]
        participates = session_id is None or (session is not None and session.admits(self.actor))
        if not participates or not self.actor.matches(stored.readable_by):
            return None
        return Gap(stored, decode_gap(stored), session)

    async def _reload(self, gap: Gap) -> Gap:
        stored = await self.records.find(MissingContext.type, gap.record.missing_id) or gap.stored
        return Gap(stored, decode_gap(stored), gap.session)


def texts_of(
    question: str, needed_for: str | UnsetType, sources: Sequence[CandidateSource], blocked_actions: Sequence[str]
) -> dict[str, Any]:
    """Return the texts of a gap that others will read."""
    given = {
        "question": question,
        "candidate_sources": msgspec.to_builtins(sources),
        "blocked_actions": blocked_actions,
    }
    return given if needed_for is UNSET else {**given, "needed_for": needed_for}


def session_of(gap: Gap) -> Session:
    """Return the session of a gap; an error if it has none."""
    if gap.session is None:
        raise InvalidInput(
            "missing_id: this gap belongs to no session, so it has no board and no participants",
            field="missing_id",
            hint="Resolve it with resolution_refs, or request it as tool_invocation or policy_request.",
        )
    return gap.session


def restricted_readers(gap: Gap) -> tuple[str, ...] | None:
    """Return the read ACL of a restricted gap; None if every participant may see it."""
    return None if gap.stored.readable_by == ANYONE else gap.stored.readable_by


def gap_not_found(missing_id: str, *, denied: bool = False) -> MissingContextNotFound:
    shown = missing_id[:100]
    error = MissingContextNotFound(
        f"There is no missing context '{shown}'.", resource_type="missing_context", resource_id=shown
    )
    error.denial = denied
    return error


def _resolved(gap: MissingContext) -> AlreadyResolved:
    return AlreadyResolved(
        f"'{gap.missing_id[:100]}' is already resolved.",
        resource_id=gap.missing_id[:100],
        resolution_refs=msgspec.to_builtins(list(gap.resolution_refs)),
    )


def _item(gap: Gap, entry: Entry) -> str:
    return str(VersionId(line_of(session_of(gap).session_id), entry.key, entry.incarnation, entry.version))
