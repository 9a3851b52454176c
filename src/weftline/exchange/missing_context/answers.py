"""Questions and answers about missing context: their board keys, their messages, and resolving a gap by an answer."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import structs

from weftline.history.board_lines import line_of
from weftline.kernel.identity import ANYONE
from weftline.records.model import MissingContext
from weftline.records.record_ids import MessageItemId, VersionId
from weftline.sessions.recorder import Recorder

if TYPE_CHECKING:
    from weftline.records.refs import Refs
    from weftline.records.store import StoredRecord
    from weftline.sessions.messages.model import Message
    from weftline.sessions.model import Session
    from weftline.state.board.model import Entry

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
