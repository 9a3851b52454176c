"""The rules of missing context: what counts as the same question, which one comes first, what others are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, get_args

import msgspec

from weft.capabilities.missing_context.answers import GapRequest, Notes, answer_key, notes_of
from weft.capabilities.records.vocabulary import Severity
from weft.kernel.errors import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weft.capabilities.records.model import MissingContext
    from weft.capabilities.records.refs import Refs
    from weft.capabilities.records.store import StoredRecord
    from weft.capabilities.sessions.model import Session

TOOL = "missing_context"
MOST_REQUESTS = 100
# The worst first.
_RANKS = {severity: rank for rank, severity in enumerate(reversed(get_args(Severity)))}
# As much of each part as a question on a board or in a message is given room for.
_QUESTION_ROOM, _PART_ROOM = 2_000, 500
_encode = msgspec.json.Encoder(order="deterministic").encode


class MissingContextNotFound(NotFound):
    """There is no such missing context, or not for you."""

    code = "MISSING_CONTEXT_NOT_FOUND"
    hint = "See what is missing with the action list of missing_context."
    related = (TOOL,)


class AlreadyResolved(Conflict):
    """What was missing has been found already."""

    code = "ALREADY_RESOLVED"
    hint = "Look at what resolved it in 'resolution_refs'; if that does not answer it, report a new question."
    related = (TOOL,)


class MissingContextLimit(Conflict):
    """So much is missing, or was asked for so often, that more of it helps nobody."""

    code = "MISSING_CONTEXT_LIMIT"
    hint = "Resolve what has been answered before you ask for more."
    related = (TOOL,)


class Gap(NamedTuple):
    """Missing context as it is kept, what it says, and the session it belongs to, if any."""

    kept: StoredRecord
    record: MissingContext
    session: Session | None

    @property
    def notes(self) -> Notes:
        return notes_of(self.record)


class GapCursor(NamedTuple):
    """Where a gap stands in a list: the most severe first, the oldest of these before others."""

    rank: int
    recorded_at: int
    missing_id: str


class GapQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which gaps to list: of a session, in these states, at least so severe, of a task, behind a position."""

    session_id: str | None
    states: frozenset[str]
    severity: Severity
    task_id: str | None
    behind: GapCursor | None

    @property
    def only_open(self) -> bool:
        return "resolved" not in self.states

    def covers(self, gap: Gap) -> bool:
        return (
            gap.record.status in self.states
            and _RANKS[gap.record.severity] <= _RANKS[self.severity]
            and self.task_id in (None, gap.notes.task_id)
            and (self.behind is None or position_of(gap) > self.behind)
        )


def position_of(gap: Gap) -> GapCursor:
    return GapCursor(_RANKS[gap.record.severity], gap.kept.recorded_at, gap.kept.record_id)


def normalise_question(question: str) -> str:
    """Return what is the same for a question however it is spaced and capitalised."""
    return " ".join(question.split()).casefold()


def same_refs(some: Refs, others: Refs) -> bool:
    return _told_apart(some) == _told_apart(others)


def question_text(gap: MissingContext, asked: GapRequest) -> str:
    """Return a question as people and agents find it on the board."""
    return "\n".join([*_asking(gap, asked), f"Answer: write the key {answer_key(gap.missing_id)}"])


def task_text(gap: MissingContext, asked: GapRequest) -> str:
    """Return a question as a peer is sent it."""
    return "\n".join([*_asking(gap, asked), "Answer: send a message with this one as parent_message_id"])


def _asking(gap: MissingContext, asked: GapRequest) -> Iterator[str]:
    yield _clipped(gap.question, _QUESTION_ROOM)
    parts = {
        "Severity": gap.severity,
        "Needed for": gap.needed_for or "",
        "Blocks": ", ".join(gap.blocked_actions),
        "May be found in": ", ".join(_places(gap)),
        "In detail": asked.detail or "",
    }
    for name, text in parts.items():
        if text:
            yield f"{name}: {_clipped(text, _PART_ROOM)}"


def _places(gap: MissingContext) -> Iterator[str]:
    for source in gap.candidate_sources:
        where = source.hint or source.uri
        yield f"{source.kind} ({where})" if where else source.kind


def _clipped(text: str, room: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= room else f"{line[: room - 1]}…"


def _told_apart(refs: Iterable[object]) -> set[bytes]:
    return {_encode(ref) for ref in refs}
