"""Questions and answers about missing context: their board keys, their messages, and resolving a gap by an answer."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import structs

from weft.capabilities.records.model import MissingContext
from weft.capabilities.records.record_ids import MessageItemId, VersionId
from weft.capabilities.records.recorder import Recorder
from weft.capabilities.sessions.model import line_of
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from weft.capabilities.board.model import Entry
    from weft.capabilities.messages.model import Message
    from weft.capabilities.records.refs import Refs
    from weft.capabilities.records.store import StoredRecord
    from weft.capabilities.sessions.model import Session

RequestForm = Literal["user_question", "retrieval", "tool_invocation", "policy_request", "peer_task"]
# What begins the key of a question and of its answer, and what sort of message a peer is asked by.
QUESTION, ANSWER, TASK = "question_", "answer_", "task"
# As many as a session may have open at once, so that all of them can be looked at.
MOST_OPEN = 1_000
_PREFIX = "missing_"
_FIT_FOR_A_KEY = re.compile(r"[a-z0-9_]{1,48}\Z")
_decode = msgspec.json.Decoder(MissingContext).decode


class GapRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One time that a gap was asked about: in which form, whom, and where the question is found."""

    form: RequestForm
    requested_from: str
    requested_by: str
    requested_at: datetime
    key: str | None = None
    message_id: int | None = None
    selection_id: str | None = None
    tool: str | None = None
    detail: str | None = None


class Notes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What Weft keeps of a gap beside what the record type names; it stands in ``metadata.weft``."""

    task_id: str | None = None
    requests: tuple[GapRequest, ...] = ()
    resolved_by: str | None = None
    resolved_at: datetime | None = None


class _Task(msgspec.Struct, frozen=True):
    """What a task message says in its metadata of what it is about."""

    missing_id: str = ""


def gap_in(kept: StoredRecord) -> MissingContext:
    return _decode(kept.body)


def notes_of(gap: MissingContext) -> Notes:
    """Return what Weft noted of a gap; nothing where somebody else has put something there."""
    try:
        return msgspec.convert(gap.metadata.get("weft", {}), Notes)
    except msgspec.ValidationError:
        return Notes()


def noted(gap: MissingContext, notes: Notes, **changes: Any) -> MissingContext:  # noqa: ANN401 - fields of many types
    metadata = {**gap.metadata, "weft": msgspec.to_builtins(notes)}
    return structs.replace(gap, metadata=metadata, **changes)


def suffix_of(missing_id: str) -> str:
    """Return what the keys of a gap's question and answer end with."""
    suffix = missing_id.removeprefix(_PREFIX)
    if missing_id.startswith(_PREFIX) and _FIT_FOR_A_KEY.match(suffix):
        return suffix
    return hashlib.sha256(missing_id.encode()).hexdigest()[:16]


def question_key(missing_id: str) -> str:
    return f"{QUESTION}{suffix_of(missing_id)}"


def answer_key(missing_id: str) -> str:
    return f"{ANSWER}{suffix_of(missing_id)}"


async def close_gap(recorder: Recorder, kept: StoredRecord, refs: Refs, session: Session | None) -> StoredRecord:
    """End a gap, saying by what. Who changes a gap of a session holds the session's lock."""
    gap = gap_in(kept)
    notes = structs.replace(notes_of(gap), resolved_by=recorder.actor.participant, resolved_at=recorder.clock.now())
    return await recorder.change(kept, noted(gap, notes, status="resolved", resolution_refs=refs), session)


class GapAnswers(msgspec.Struct, frozen=True):
    """Resolves a gap when its answer is written to the board or sent as a reply to its task message.

    Only if the answer has the same readers as the gap, or everyone as reader; otherwise a person has to decide.
    """

    recorder: Recorder

    async def entry_written(self, session: Session, entry: Entry) -> None:
        """Resolve the gap whose answer key was written, if there is one."""
        if not entry.key.startswith(ANSWER):
            return
        for gap in await self.recorder.records.open_missing(session.session_id, MOST_OPEN):
            if answer_key(gap.record_id) == entry.key:
                version = VersionId(line_of(session.session_id), entry.key, entry.life, entry.version)
                await self._resolve(gap, str(version), entry.readers, session)

    async def replied(self, session: Session, parent: Message, reply: Message) -> None:
        """Resolve the gap that the parent message asked about, if the agent that was asked sent the reply."""
        if parent.message_type != TASK or parent.recipient_id != reply.sender:
            return
        gap = await self.recorder.records.find(MissingContext.type, _missing_id_in(parent.metadata))
        if gap is None or gap.session_id != session.session_id:
            return
        if any(request.message_id == parent.message_id for request in notes_of(gap_in(gap)).requests):
            item_id = str(MessageItemId(session.session_id, reply.message_id))
            await self._resolve(gap, item_id, (reply.audience,), session)

    async def _resolve(self, gap: StoredRecord, item_id: str, readers: tuple[str, ...], session: Session) -> None:
        may_know = self.recorder.actor.matches(gap.readable_by)
        if gap.status != "resolved" and may_know and readers in (ANYONE, gap.readable_by):
            await close_gap(self.recorder, gap, (item_id,), session)


def _missing_id_in(metadata: str) -> str:
    try:
        return msgspec.json.decode(metadata, type=_Task).missing_id
    except msgspec.ValidationError:
        return ""
