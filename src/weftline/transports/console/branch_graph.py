"""Layout of the branch graph of a history: one lane for each branch, time from left to right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
