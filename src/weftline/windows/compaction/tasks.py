"""Tasks of a window, recognised in its events: by workflow events, references, ids of tasks and calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from weftline.windows.model import Category

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.windows.compaction.strategies import CallUnits
    from weftline.windows.model import WindowEvent


# Tasks of a window, recognised in its events: by workflow events, references, ids of tasks and message types.
#
# An event belongs to the task that it names; else to the task of the event that it refers to, or of the call that it
# answers; else to the newest task that is open. Workflow events, message types and statements finish a task or open it
# again. Without any such sign each request of the user is a task, finished when the next one has come and no tool call
# is open.

Sign = Literal["started", "finished"]

_MAX_TEXT = 4_000
_STARTED_TYPES = re.compile(
    r"(?i)(?:^|[._-])(?:task|assignment|start(?:ed)?|assign(?:ed)?|delegat(?:e|ed|ion)|handoff|reopen(?:ed)?|"
    r"resum(?:e|ed)|created?|accepted)$"
)
_FINISHED_TYPES = re.compile(
    r"(?i)(?:^|[._-])(?:complet(?:e|ed|ion)|finish(?:ed)?|done|closed?|result|cancel(?:l?ed)?|aborted|failed|resolved|"
    r"succeeded|delivered|merged)$"
)
_FINISHED_STATES = frozenset(
    {"complete", "completed", "finished", "done", "closed", "cancelled", "canceled", "aborted", "failed", "resolved"}
    | {"succeeded", "success", "delivered", "merged", "ok"}
)
_STARTED_STATES = frozenset(
    {"new", "open", "opened", "started", "running", "in_progress", "progress", "active", "pending", "assigned"}
    | {"accepted", "reopened", "resumed", "todo", "blocked"}
)
_ID_FIELDS = ("task_id", "taskId", "task", "ticket", "ticket_id", "issue", "job_id", "step_id", "workflow_id")
_STATE_FIELDS = ("status", "state", "event", "type", "outcome")
_REFERENCE = re.compile(r"(?i)^(?:task|ticket|issue|job|step|todo)[:/#](?P<id>[\w.-]{1,80})\Z")
_ID = r"(?P<id>[A-Z][A-Z0-9]{0,9}-\d{1,9}|#\d{1,9}|\d{1,9}|[A-Za-z]*\d[\w.-]{0,40}|[\"'`][^\"'`\n]{1,80}[\"'`])"
_NAMED = re.compile(rf"\b(?i:task|ticket|subtask|todo|issue)s?(?:[ _-]?(?i:id))?[ :#=-]{{1,3}}{_ID}(?![\w-])")
_FINISHED_TEXT = re.compile(
    r"(?i)\b(?:completed?|finished|done|closed|cancell?ed|resolved|shipped|merged|delivered|erledigt|abgeschlossen|"
    r"termin\xe9e?|terminad[oa])\b"
)
_NOT_FINISHED = re.compile(
    r"(?i)\b(?:not|never|isn't|isnt|until|when|once|if|before|after|almost|nearly|will|be|should|must|nicht|wenn)\b"
    r"[^.!?\n]{0,40}\Z"
)
_STARTED_TEXT = re.compile(
    r"(?i)\b(?:start(?:ed|ing)?|begin|began|reopen(?:ed)?|resum(?:e|ed|ing)|working on|assigned|new)\b"
)
# A statement that a task is finished is close to its name.
_NEAR = 60


class Task(NamedTuple):
    """A task. ``is_named``: it has an id of its own; the others are requests of the user."""

    task_id: str
    is_named: bool
    is_finished: bool


class Tasks(NamedTuple):
    """The task of each event by position, None if it has none, and all tasks by id."""

    of_event: Sequence[str | None]
    by_id: dict[str, Task]

    def is_finished(self, at: int) -> bool:
        """Tell whether an event belongs to a task that is finished."""
        task_id = self.of_event[at]
        return task_id is not None and self.by_id[task_id].is_finished


class _Mention(NamedTuple):
    task_id: str
    sign: Sign | None


def find_tasks(events: Sequence[WindowEvent], units: CallUnits) -> Tasks:
    """Recognise the tasks of a window: those with a name, or else the requests of the user."""
    named = _named_tasks(events, units)
    return named if named.by_id else _requests(events, units)


def _named_tasks(events: Sequence[WindowEvent], units: CallUnits) -> Tasks:
    of_event: list[str | None] = []
    position = {event.event_id: at for at, event in enumerate(events)}
    tasks: dict[str, Task] = {}
    open_tasks: dict[str, None] = {}
    for at, event in enumerate(events):
        mention = _mention(event)
        if mention is None:
            of_event.append(_task_of(at, event, of_event, position, units, open_tasks))
            continue
        task_id, sign = mention
        of_event.append(task_id)
        known = tasks.get(task_id)
        is_finished = sign == "finished" or (sign is None and known is not None and known.is_finished)
        tasks[task_id] = Task(task_id, is_named=True, is_finished=is_finished)
        open_tasks.pop(task_id, None)
        if not is_finished:
            # The newest is the last one.
            open_tasks[task_id] = None
    return Tasks(of_event, tasks)


def _task_of(
    at: int,
    event: WindowEvent,
    of_event: Sequence[str | None],
    position: dict[str, int],
    units: CallUnits,
    open_tasks: dict[str, None],
) -> str | None:
    """Return the task of an event that names none: that of its call, of an event it refers to, or the newest."""
    if units.first[at] < at:
        return of_event[units.first[at]]
    for reference in event.references:
        before = position.get(reference)
        if before is not None and before < at and of_event[before] is not None:
            return of_event[before]
    return next(reversed(open_tasks), None)


def _mention(event: WindowEvent) -> _Mention | None:
    """Return the task that an event names, and whether it starts or finishes it."""
    by_reference = next((match["id"] for each in event.references if (match := _REFERENCE.match(each))), None)
    sign = _sign_of_type(event.message_type)
    content = event.message.content[:_MAX_TEXT]
    if event.message.role == "tool":
        return None if by_reference is None else _Mention(by_reference, sign)
    fields = _fields(content)
    if fields is not None:
        found = _mention_in_fields(fields, by_reference, sign)
        if found is not None:
            return found
    if by_reference is not None:
        return _Mention(by_reference, sign or _sign_of_text(content))
    if event.kind != "workflow" and sign is None and "ask" not in content and "icket" not in content:
        return None
    return _mention_in_text(event, content, sign)


def _mention_in_text(event: WindowEvent, content: str, sign: Sign | None) -> _Mention | None:
    """Return the task that is named in a text. A dialogue names many; it finishes one only if it says so next to it."""
    mentions = list(_NAMED.finditer(content))
    if not mentions:
        return None
    finished = next((match for match in mentions if _says_finished(content, match.end(), match.end() + _NEAR)), None)
    match = finished or mentions[0]
    task_id = match["id"].strip("\"'`#")
    if finished is not None:
        return _Mention(task_id, "finished")
    if event.kind == "workflow" or sign is not None:
        return _Mention(task_id, sign or _sign_of_text(content))
    starts = _STARTED_TEXT.search(content[max(match.start() - _NEAR // 2, 0) : match.end() + _NEAR // 2])
    return _Mention(task_id, "started" if starts else None)


def _mention_in_fields(fields: dict[str, Any], by_reference: str | None, sign: Sign | None) -> _Mention | None:
    task_id = by_reference or next((_text(fields[name]) for name in _ID_FIELDS if _text(fields.get(name))), None)
    if not task_id:
        return None
    state = next((_text(fields[name]) for name in _STATE_FIELDS if _text(fields.get(name))), "") or ""
    return _Mention(task_id, _sign_of_state(state) or sign)


def _fields(content: str) -> dict[str, Any] | None:
    if not content.lstrip().startswith("{"):
        return None
    try:
        value = msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return None
    return value if isinstance(value, dict) else None


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and str(value) else None


def _sign_of_type(message_type: str) -> Sign | None:
    if _FINISHED_TYPES.search(message_type):
        return "finished"
    return "started" if _STARTED_TYPES.search(message_type) else None


def _sign_of_state(state: str) -> Sign | None:
    state = state.casefold().replace("-", "_").replace(" ", "_")
    last = state.rpartition(".")[2].rpartition("_")[2]
    if state in _FINISHED_STATES or last in _FINISHED_STATES:
        return "finished"
    return "started" if state in _STARTED_STATES or last in _STARTED_STATES else None


def _sign_of_text(content: str) -> Sign | None:
    if _says_finished(content):
        return "finished"
    return "started" if _STARTED_TEXT.search(content) else None


def _says_finished(text: str, start: int = 0, end: int | None = None) -> bool:
    """Tell whether a text says so between two positions, and not that it is to be so."""
    match = _FINISHED_TEXT.search(text, start, len(text) if end is None else end)
    return match is not None and not _NOT_FINISHED.search(text, max(start - _NEAR, 0), match.start())


def _requests(events: Sequence[WindowEvent], units: CallUnits) -> Tasks:
    """Return the requests of the user as tasks: each but the last is finished unless one of its calls is open."""
    of_event: list[str | None] = []
    current: str | None = None
    order: list[str] = []
    for event in events:
        if event.message.role == "user" and event.category is Category.DIALOG and not event.routed:
            current = event.event_id
            order.append(current)
        of_event.append(current)
    waiting = {of_event[at] for at in units.unfinished}
    tasks = {
        task_id: Task(task_id, is_named=False, is_finished=task_id != order[-1] and task_id not in waiting)
        for task_id in order
    }
    return Tasks(of_event, tasks)


def runs(of_event: Sequence[str | None], ends: Sequence[int]) -> Iterator[tuple[int, int, str | None]]:
    """Yield start, end and task of consecutive events of one task; calls and results are not parted."""
    start, last, current = 0, 0, None
    for end in ends:
        task_id = of_event[last]
        if last > start and task_id != current:
            yield start, last, current
            start = last
        if last == start:
            current = task_id
        last = end
    if last > start:
        yield start, last, current
