"""What happened in a session: each prompt with the events around it is a turn, other events are grouped by author."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.transports.console.item_links import item_link
from weftline.transports.console.paths import PATH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from weftline.prompts.assembly.receipt_operations import ReceiptSummary


_INGESTED = "window.ingested"
# What events are called; the others by their own names.
_NAMES = {
    "board.written": "wrote a key of the board",
    "board.deleted": "deleted a key of the board",
    "board.expired": "a key of the board expired",
    "board.snapshot": "kept a snapshot of the board",
    "board.restored": "restored a snapshot of the board",
    "message.added": "sent a message",
    "message.visibility_changed": "changed who sees a message",
    "session.created": "created the session",
    "session.archived": "archived the session",
    "session.members_changed": "changed the members",
    "window.created": "began a conversation",
    _INGESTED: "continued the conversation",
    "window.changed": "changed the window",
    "window.threshold_reached": "filled the window up to its threshold",
    "window.clamped": "has a smaller window than its parent",
    "model_call.metered": "reported the usage of a model call",
    "context.pushed": "pushed context",
    "context.pulled": "pulled context",
    "context.compaction.started": "began a compaction",
    "context.compaction.completed": "compacted the conversation",
    "context.summary.created": "wrote a summary",
    "context.missing.detected": "reported missing context",
    "context.missing.requested": "asked for missing context",
    "context.missing.resolved": "resolved missing context",
    "context.injection.applied": "handed over context",
    "context.selection.started": "began a search",
    "context.selection.completed": "finished a search",
    "approval.requested": "a call waits for approval",
    "approval.decided": "decided about a held call",
    "approval.performed": "a held call was performed",
    "guardrail.hit": "hit a guardrail",
    "history.rolled_back": "rolled back",
    "history.merged": "merged a branch",
    "history.branched": "began a branch",
    "history.review_opened": "opened a merge review",
    "history.review_closed": "closed a merge review",
    "memory.written": "remembered something",
    "pin.added": "pinned an item",
    "pin.removed": "unpinned an item",
}
# Whose items the subjects of events are.
_LINES = {
    "board.written": "board",
    "board.deleted": "board",
    "board.expired": "board",
    "message.added": "message",
    "message.visibility_changed": "message",
}
# Events of one author that follow each other within this time are one group.
_PAUSE = timedelta(minutes=1)
_WIDTH = 1_000.0


class TimelineStep(NamedTuple):
    """A row of a group: what was done, when and for how long, and where its bar is, in thousandths of the group."""

    name: str
    subject: str
    link: str | None
    at: datetime
    took_ms: float | None
    x: float
    width: float
    events: Sequence[Any]


class TimelineGroup(NamedTuple):
    """A turn of an agent, with its prompt, or events of one author that follow each other."""

    number: int
    actor: str
    agent_id: str
    prompt: ReceiptSummary | None
    start: datetime
    took_ms: float
    steps: list[TimelineStep]


class _Call(NamedTuple):
    """Events that are one step: those of a prompt, or a single one."""

    events: list[Any]
    prompt: ReceiptSummary | None
    agent_id: str

    @property
    def end(self) -> datetime:
        at: datetime = self.events[-1].at
        return at

    @property
    def took(self) -> timedelta:
        return timedelta(milliseconds=self.prompt.took_ms if self.prompt is not None else 0)


def groups_of(events: Iterable[Any], prompts: Iterable[ReceiptSummary]) -> list[TimelineGroup]:
    """Return events, oldest first, as groups."""
    groups: list[list[_Call]] = []
    latest: dict[str, list[_Call]] = {}
    for call in _calls(events, {each.receipt_id: each for each in prompts}):
        group = latest.get(call.agent_id)
        if group is None or _begins_anew(group, call):
            group = []
            groups.append(group)
            latest[call.agent_id] = group
        group.append(call)
    return [_drawn(number, group) for number, group in enumerate(groups, 1)]


def _calls(events: Iterable[Any], prompts: dict[str, ReceiptSummary]) -> list[_Call]:
    calls: list[_Call] = []
    of_prompt: dict[str, _Call] = {}
    for event in events:
        prompt = prompts.get(event.subject)
        agent_id = event.agent_id if isinstance(event.agent_id, str) else event.actor
        if prompt is None:
            calls.append(_Call([event], None, agent_id))
        elif prompt.receipt_id in of_prompt:
            of_prompt[prompt.receipt_id].events.append(event)
        else:
            of_prompt[prompt.receipt_id] = _Call([event], prompt, agent_id)
            calls.append(of_prompt[prompt.receipt_id])
    return calls


def _begins_anew(group: Sequence[_Call], call: _Call) -> bool:
    """Tell whether a call is no part of the group before it: a turn ends with the answer to its prompt."""
    if call.end - group[-1].end > _PAUSE:
        return True
    is_answered = any(each.prompt for each in group) and group[-1].prompt is None
    return is_answered and (call.prompt is not None or call.events[0].type == _INGESTED)


def _drawn(number: int, group: Sequence[_Call]) -> TimelineGroup:
    start = min(call.end - call.took for call in group)
    end = max(call.end + _reply(call) for call in group)
    whole = max((end - start).total_seconds(), 0.000_001)
    steps = []
    for call in group:
        begun = call.end - call.took
        steps.append(_step(call, begun, call.took, start, whole))
        if _reply(call):
            steps.append(_reply_step(call, start, whole))
    prompt = next((call.prompt for call in group if call.prompt is not None), None)
    first = group[0]
    return TimelineGroup(
        number, first.events[0].actor, first.agent_id, prompt, start, (end - start).total_seconds() * 1_000, steps
    )


def _reply(call: _Call) -> timedelta:
    return timedelta(milliseconds=(call.prompt.latency_ms or 0) if call.prompt is not None else 0)


def _step(call: _Call, begun: datetime, took: timedelta, start: datetime, whole: float) -> TimelineStep:
    event = call.events[0]
    x, width = _place(begun, took, start, whole)
    if call.prompt is not None:
        link = f"{PATH}/prompts/{call.prompt.receipt_id}"
        return TimelineStep("assembled the prompt", "", link, begun, call.prompt.took_ms, x, width, call.events)
    name = _ingested(event) or _NAMES.get(event.type) or event.type.replace(".", " ").replace("_", " ")
    subject = "" if event.subject in {event.session_id, call.agent_id} else str(event.subject)
    line = _LINES.get(event.type)
    place = item_link(f"{line}:{event.session_id}/{subject}") if line and subject else None
    return TimelineStep(name, subject, place, call.end, None, x, width, call.events)


def _ingested(event: Any) -> str | None:  # noqa: ANN401 - an event as its operation answers it
    data = event.data if event.type == _INGESTED and isinstance(event.data, dict) else {}
    if not {"first", "last", "tokens"} <= data.keys():
        return None
    number = data["last"] - data["first"] + 1
    return f"added {number:,} {'turn' if number == 1 else 'turns'} to the conversation, {data['tokens']:,} tokens"


def _reply_step(call: _Call, start: datetime, whole: float) -> TimelineStep:
    x, width = _place(call.end, _reply(call), start, whole)
    return TimelineStep(
        "the model answered", "", None, call.end, _reply(call) / timedelta(milliseconds=1), x, width, ()
    )


def _place(begun: datetime, took: timedelta, start: datetime, whole: float) -> tuple[float, float]:
    x = (begun - start).total_seconds() / whole * _WIDTH
    # What takes no measured time is a mark.
    width = max(took.total_seconds() / whole * _WIDTH, 8.0)
    return round(min(x, _WIDTH - 8.0), 1), round(min(width, _WIDTH), 1)


# Layout of the branch graph of a history: one lane for each branch, time from left to right.

# Distance of commits and of lanes, and the room around them, in units of the drawing.
STEP, LANE, MARGIN = 32, 40, 24


class Lane(NamedTuple):
    """A branch to draw, and where it began; the context itself began nowhere."""

    context_id: str
    branch: str
    from_context_id: str = ""
    from_version: int = 0


class DrawnCommit(NamedTuple):
    """A commit and where it is drawn."""

    context_id: str
    branch: str
    lane: int
    x: int
    y: int
    commit: Any


class DrawnEdge(NamedTuple):
    """A line to a commit: from the one before it, from where its branch began, or from what it merged."""

    kind: str
    lane: int
    path: str


class BranchGraph(NamedTuple):
    """A drawing of commits: newest last."""

    width: int
    height: int
    commits: list[DrawnCommit]
    edges: list[DrawnEdge]


def draw(branches: Sequence[Lane], logs: Mapping[str, Sequence[Any]], limit: int) -> BranchGraph:
    """Return the drawing of the newest commits of branches; ``logs`` are their commits by context, newest first."""
    lanes = {branch.context_id: place for place, branch in enumerate(branches)}
    own = [
        (context_id, commit)
        for context_id, commits in logs.items()
        for commit in commits
        if commit.version > branches[lanes[context_id]].from_version
    ]
    newest = sorted(own, key=lambda each: (each[1].at, each[1].version))[-limit:]
    drawn: dict[tuple[str, int], DrawnCommit] = {}
    for place, (context_id, commit) in enumerate(newest):
        lane = lanes[context_id]
        at = MARGIN + place * STEP, MARGIN + lane * LANE
        drawn[context_id, commit.version] = DrawnCommit(context_id, branches[lane].branch, lane, *at, commit)
    return BranchGraph(
        width=2 * MARGIN + max(0, len(drawn) - 1) * STEP,
        height=2 * MARGIN + max(0, len(branches) - 1) * LANE,
        commits=list(drawn.values()),
        edges=[edge for each in drawn.values() for edge in _edges(each, branches[each.lane], drawn)],
    )


def _edges(each: DrawnCommit, branch: Lane, drawn: Mapping[tuple[str, int], DrawnCommit]) -> list[DrawnEdge]:
    before = each.commit.version - 1
    parent = (branch.from_context_id or each.context_id if before == branch.from_version else each.context_id, before)
    found = [("parent", drawn.get(parent))]
    if each.commit.merged is not None:
        found.append(("merge", drawn.get((each.commit.merged.context_id, each.commit.merged.version))))
    return [DrawnEdge(kind, max(each.lane, source.lane), _path(source, each)) for kind, source in found if source]


def _path(source: DrawnCommit, target: DrawnCommit) -> str:
    if source.lane == target.lane:
        return f"M{source.x} {source.y}H{target.x}"
    bend = STEP // 2
    return f"M{source.x} {source.y}C{source.x + bend} {source.y} {target.x - bend} {target.y} {target.x} {target.y}"
