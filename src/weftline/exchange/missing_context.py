"""Missing context: report known gaps, request answers, and resolve them."""

from __future__ import annotations

import hashlib
import heapq
import re
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import UNSET, UnsetType, structs

from weftline.history.item_ids import MessageItemId, VersionId
from weftline.history.line_kinds import line_of
from weftline.history.model import MAIN
from weftline.kernel.clock import Clock
from weftline.kernel.errors import Conflict, InvalidInput, NotFound
from weftline.kernel.identity import ANYONE, Actor, Permission
from weftline.kernel.operation import Effect, RateClass, operation
from weftline.records.model import MissingContext
from weftline.records.sql import RecordStore
from weftline.records.vocabulary import Severity
from weftline.safety.trust.gate import ContentGate
from weftline.sessions.messages.transcript import TranscriptWriter
from weftline.sessions.model import Session, find_session, lock_active_session
from weftline.sessions.recorder import Recorder
from weftline.sessions.sql import SessionStore
from weftline.state.board.board_writer import WriteOptions
from weftline.state.board.service import Boards

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weftline.records.model import CandidateSource
    from weftline.records.refs import Refs
    from weftline.records.schemas import StoredRecord
    from weftline.sessions.messages.model import Message
    from weftline.state.board.model import Entry


# Service for missing context: find, report, resolve and list gaps on behalf of one caller.

# Questions and answers about missing context: their board keys, their messages, and resolving a gap by an answer.

RequestForm = Literal["user_question", "retrieval", "tool_invocation", "policy_request", "peer_task"]
# Prefixes of board keys, and the type of the message that asks a peer.
QUESTION_PREFIX, ANSWER_PREFIX, TASK_MESSAGE_TYPE = "question_", "answer_", "task"
# Maximum open gaps of a session, so that all of them can be scanned.
MAX_OPEN_GAPS = 1_000
_ID_PREFIX = "missing_"
_KEY_SUFFIX = re.compile(r"[a-z0-9_]{1,48}\Z")
_decode = msgspec.json.Decoder(MissingContext).decode


class GapRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to resolve a gap: its form, who was asked, and where the question is."""

    form: RequestForm
    requested_from: str
    requested_by: str
    requested_at: datetime
    key: str | None = None
    message_id: int | None = None
    selection_id: str | None = None
    tool: str | None = None
    detail: str | None = None


class GapNotes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Weftline's own data about a gap, stored in ``metadata.weftline``."""

    task_id: str | None = None
    requests: tuple[GapRequest, ...] = ()
    resolved_by: str | None = None
    resolved_at: datetime | None = None


class _Task(msgspec.Struct, frozen=True):
    """Metadata of a task message."""

    missing_id: str = ""


def decode_gap(stored: StoredRecord) -> MissingContext:
    return _decode(stored.body)


def gap_notes(gap: MissingContext) -> GapNotes:
    """Return Weftline's notes about a gap; empty if ``metadata.weftline`` has another form."""
    try:
        return msgspec.convert(gap.metadata.get("weftline", {}), GapNotes)
    except msgspec.ValidationError:
        return GapNotes()


def with_notes(gap: MissingContext, notes: GapNotes, **changes: Any) -> MissingContext:  # noqa: ANN401 - fields of many types
    metadata = {**gap.metadata, "weftline": msgspec.to_builtins(notes)}
    return structs.replace(gap, metadata=metadata, **changes)


def key_suffix(missing_id: str) -> str:
    """Return the suffix of the question and answer keys of a gap."""
    suffix = missing_id.removeprefix(_ID_PREFIX)
    if missing_id.startswith(_ID_PREFIX) and _KEY_SUFFIX.match(suffix):
        return suffix
    return hashlib.sha256(missing_id.encode()).hexdigest()[:16]


def question_key(missing_id: str) -> str:
    return f"{QUESTION_PREFIX}{key_suffix(missing_id)}"


def answer_key(missing_id: str) -> str:
    return f"{ANSWER_PREFIX}{key_suffix(missing_id)}"


async def resolve_gap(recorder: Recorder, stored: StoredRecord, refs: Refs, session: Session | None) -> StoredRecord:
    """Set a gap to resolved. The caller must hold the lock of its session."""
    gap = decode_gap(stored)
    notes = structs.replace(gap_notes(gap), resolved_by=recorder.actor.participant, resolved_at=recorder.clock.now())
    return await recorder.change(stored, with_notes(gap, notes, status="resolved", resolution_refs=refs), session)


class GapAnswers(msgspec.Struct, frozen=True):
    """Resolves a gap when its answer is written to the board or sent as a reply to its task message.

    Only if the answer has the same readers as the gap, or everyone as reader; otherwise a person has to decide.
    """

    recorder: Recorder

    async def entry_written(self, session: Session, entry: Entry) -> None:
        """Resolve the gap whose answer key was written, if there is one."""
        if not entry.key.startswith(ANSWER_PREFIX):
            return
        for gap in await self.recorder.records.open_missing(session.session_id, MAX_OPEN_GAPS):
            if answer_key(gap.record_id) == entry.key:
                version = VersionId(line_of(session.session_id), entry.key, entry.incarnation, entry.version)
                await self._resolve(gap, str(version), entry.readers, session)

    async def replied(self, session: Session, parent: Message, reply: Message) -> None:
        """Resolve the gap that the parent message asked about, if the agent that was asked sent the reply."""
        if parent.message_type != TASK_MESSAGE_TYPE or parent.recipient_id != reply.sender:
            return
        gap = await self.recorder.records.find(MissingContext.type, _missing_id_in(parent.metadata))
        if gap is None or gap.session_id != session.session_id:
            return
        if any(request.message_id == parent.message_id for request in gap_notes(decode_gap(gap)).requests):
            item_id = str(MessageItemId(session.session_id, reply.message_id))
            await self._resolve(gap, item_id, reply.readers, session)

    async def _resolve(self, gap: StoredRecord, item_id: str, readers: tuple[str, ...], session: Session) -> None:
        may_know = self.recorder.actor.matches(gap.readable_by)
        if gap.status != "resolved" and may_know and readers in (ANYONE, gap.readable_by):
            await resolve_gap(self.recorder, gap, (item_id,), session)


def _missing_id_in(metadata: str) -> str:
    try:
        return msgspec.json.decode(metadata, type=_Task).missing_id
    except msgspec.ValidationError:
        return ""


# Rules of missing context: equal questions, order of gaps, and texts of requests.

TOOL = "missing_context"
read_operation = partial(operation, tool=TOOL, permission=Permission.READ, rate=RateClass.BOARD, effect=Effect.READ)
write_operation = partial(operation, tool=TOOL, permission=Permission.WRITE, rate=RateClass.BOARD, effect=Effect.WRITE)
MAX_REQUESTS = 100
# Most severe first.
_RANKS = {severity: rank for rank, severity in enumerate(reversed(get_args(Severity)))}
# Maximum characters of the question and of each other part of a request.
_MAX_QUESTION, _MAX_PART = 2_000, 500
_encode = msgspec.json.Encoder(order="deterministic").encode


class MissingContextNotFound(NotFound):
    """The missing context does not exist, or you may not see it."""

    code = "MISSING_CONTEXT_NOT_FOUND"
    hint = "See what is missing with `missing.list`."
    related = (TOOL,)


class AlreadyResolved(Conflict):
    """The missing context is already resolved."""

    code = "ALREADY_RESOLVED"
    hint = "See 'resolution_refs' for the answer. If it is not sufficient, report a new question."
    related = (TOOL,)


class MissingContextLimit(Conflict):
    """Too many open gaps in a session, or too many requests for one gap."""

    code = "MISSING_CONTEXT_LIMIT"
    hint = "Resolve answered gaps first."
    related = (TOOL,)


class Gap(NamedTuple):
    """Missing context: the stored row, the decoded record, and its session, if any."""

    stored: StoredRecord
    record: MissingContext
    session: Session | None

    @property
    def notes(self) -> GapNotes:
        return gap_notes(self.record)


class GapCursor(NamedTuple):
    """Sort key of a gap: severity, then age."""

    rank: int
    recorded_at: int
    missing_id: str


class GapQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filter and cursor of a list of gaps."""

    session_id: str | None
    states: frozenset[str]
    severity: Severity
    task_id: str | None
    after: GapCursor | None

    @property
    def only_open(self) -> bool:
        return "resolved" not in self.states

    def matches(self, gap: Gap) -> bool:
        return (
            gap.record.status in self.states
            and _RANKS[gap.record.severity] <= _RANKS[self.severity]
            and self.task_id in (None, gap.notes.task_id)
            and (self.after is None or cursor_of(gap) > self.after)
        )


def cursor_of(gap: Gap) -> GapCursor:
    return GapCursor(_RANKS[gap.record.severity], gap.stored.recorded_at, gap.stored.record_id)


def normalise_question(question: str) -> str:
    """Normalise whitespace and case, to compare questions."""
    return " ".join(question.split()).casefold()


def same_refs(some: Refs, others: Refs) -> bool:
    return _encoded(some) == _encoded(others)


def question_text(gap: MissingContext, request: GapRequest) -> str:
    """Return the text of a question on the board."""
    return "\n".join([*_question_lines(gap, request), f"Answer: write the key {answer_key(gap.missing_id)}"])


def task_text(gap: MissingContext, request: GapRequest) -> str:
    """Return the text of a task message to a peer."""
    return "\n".join([*_question_lines(gap, request), "Answer: send a message with this one as parent_message_id"])


def _question_lines(gap: MissingContext, request: GapRequest) -> Iterator[str]:
    yield _clipped(gap.question, _MAX_QUESTION)
    parts = {
        "Severity": gap.severity,
        "Needed for": gap.needed_for or "",
        "Blocks": ", ".join(gap.blocked_actions),
        "Candidate sources": ", ".join(_sources(gap)),
        "Details": request.detail or "",
    }
    for name, text in parts.items():
        if text:
            yield f"{name}: {_clipped(text, _MAX_PART)}"


def _sources(gap: MissingContext) -> Iterator[str]:
    for source in gap.candidate_sources:
        where = source.hint or source.uri
        yield f"{source.kind} ({where})" if where else source.kind


def _clipped(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _encoded(refs: Iterable[object]) -> set[bytes]:
    return {_encode(ref) for ref in refs}


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
