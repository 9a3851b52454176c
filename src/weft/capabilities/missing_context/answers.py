"""Known gaps: what they are asked and answered by, and what ends them.

An answer may be given on a board or in a message. Both lie below the operations on missing context, so what they have
to know of a gap stands here, where they can reach it.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import structs

from weft.capabilities.records.item_ids import MessageName
from weft.capabilities.records.model import MissingContext
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from weft.capabilities.records.recorder import Recorder
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
    """What is said in a session that may end one of its gaps.

    It does where whoever may know of the gap may read the answer; any other answer is for people to judge.
    """

    recorder: Recorder
    session: Session

    async def on_board(self, key: str, item_id: str, readers: tuple[str, ...]) -> None:
        """End the gap whose answer a key is, if there is one."""
        for kept in await self.recorder.records.open_missing(self.session.session_id, MOST_OPEN):
            if answer_key(kept.record_id) == key:
                await self._end(kept, item_id, readers)

    async def by_message(self, task_id: int, task: str, message_id: int, audience: str) -> None:
        """End the gap that a task was sent for, if it was. ``task`` is the metadata of that message, as JSON."""
        kept = await self.recorder.records.find(MissingContext.type, _missing_id_in(task))
        if kept is None or kept.session_id != self.session.session_id:
            return
        if any(asked.message_id == task_id for asked in notes_of(gap_in(kept)).requests):
            await self._end(kept, str(MessageName(self.session.session_id, message_id)), (audience,))

    async def _end(self, kept: StoredRecord, item_id: str, readers: tuple[str, ...]) -> None:
        known = self.recorder.actor.matches(kept.readable_by)
        if kept.status != "resolved" and known and readers in (ANYONE, kept.readable_by):
            await close_gap(self.recorder, kept, (item_id,), self.session)


def _missing_id_in(metadata: str) -> str:
    try:
        return msgspec.json.decode(metadata, type=_Task).missing_id
    except msgspec.ValidationError:
        return ""
