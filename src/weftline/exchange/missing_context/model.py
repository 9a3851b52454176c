"""Rules of missing context: equal questions, order of gaps, and texts of requests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, get_args

import msgspec

from weftline.exchange.missing_context.answers import GapNotes, GapRequest, answer_key, gap_notes
from weftline.kernel.errors import Conflict, NotFound
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, operation
from weftline.records.vocabulary import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weftline.records.model import MissingContext
    from weftline.records.refs import Refs
    from weftline.records.store import StoredRecord
    from weftline.sessions.model import Session

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
