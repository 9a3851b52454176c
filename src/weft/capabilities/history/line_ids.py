"""Names of lines and versions, merges under review, and how long old values stay."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from weft.capabilities.agent_context.model import MEMORY_RULES, ContextLimitExceeded
from weft.capabilities.board.model import StoreFull
from weft.capabilities.history.model import BRANCH_MARK, BranchNotFound, LineNotFound, no_line, trunk_of
from weft.capabilities.history.store import Rule
from weft.capabilities.sessions.model import SessionArchived
from weft.kernel.clock import DAY_MICROS
from weft.kernel.errors import Conflict, NotFound
from weft.kernel.fields import Name

if TYPE_CHECKING:
    from collections.abc import Mapping

# How many names each sort of line has behind its own, at least and at most.
_NAMES = {"board": (1, 1), "agent": (1, 1), "context": (1, 3), "memory": (1, 2)}
_LONGEST_LINE = 400
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")
TOOL = "context_history"
# What any line, or the branch of one, may answer to whoever would change it.
WRITE_ERRORS = (LineNotFound, BranchNotFound, SessionArchived)
# And what it may answer if it is to hold more.
ROOM_ERRORS = (StoreFull, ContextLimitExceeded)
SNAPSHOT_CLEARANCE = 3

ContextId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=_LONGEST_LINE,
        description="The line: board:SESSION, agent:AGENT, context:AGENT or context:AGENT:MEMORY_TYPE; "
        "@BRANCH behind it for a branch.",
        extra_json_schema={"examples": ["board:session_a1b2c3d4e5f60718"]},
    ),
]
HistoryKey = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9_:/-][A-Za-z0-9_.:/#-]{0,399}\Z",
        description="Only this key.",
    ),
]
BranchName = Annotated[Name, msgspec.Meta(description="The branch's name, such as try_postgres.")]


class BranchExists(Conflict):
    """The line has a branch of this name already."""

    code = "BRANCH_EXISTS"
    hint = "Choose another name, or work on that branch; see all there are with the action branches."
    related = ("context_history",)


class BranchInUse(Conflict):
    """Something else needs this branch: branches that go on from it, lines that merged it, or sessions."""

    code = "BRANCH_IN_USE"
    hint = (
        "Delete the branches in context.branches first; they share this one's past. With force it goes even if "
        "sessions hold a version of it, or if lines in context.merged_by could no longer tell what they have in common."
    )
    related = ("context_history",)


class BranchNotMerged(Conflict):
    """The branch says something that was not merged."""

    code = "BRANCH_NOT_MERGED"
    hint = "Merge it first with the action merge, or pass force to lose what only it says."
    related = ("context_history",)


class UnrelatedLines(Conflict):
    """The two lines have no common past, so nothing tells what each side changed."""

    code = "UNRELATED_LINES"
    hint = "Merge a branch with the line it came from, or with another branch of that line."
    related = ("context_history",)


class ReviewNotFound(NotFound):
    """There is no such review for you."""

    code = "REVIEW_NOT_FOUND"
    hint = "See the reviews there are with the action reviews."
    related = ("context_history",)


class ReviewClosed(Conflict):
    """The review was decided or abandoned already."""

    code = "REVIEW_CLOSED"
    hint = "Merge again with the action merge: that tells whether anything is left to decide."
    related = ("context_history",)


class ReviewState(StrEnum):
    """Where a review stands."""

    OPEN = "open"
    RESOLVED = "resolved"
    ABANDONED = "abandoned"
    # The sides came together without a decision.
    SUPERSEDED = "superseded"


class Sides(msgspec.Struct, frozen=True):
    """What a key in conflict said on each side, to whom and until when, by hash; None where it is not there.

    Values stay in history.
    """

    key: str
    base: str | None
    ours: str | None
    theirs: str | None


class Review(msgspec.Struct, frozen=True):
    """A merge that a human must decide about."""

    review_id: str
    line_id: str
    source_line: str
    state: ReviewState
    ours_seq: int
    theirs_seq: int
    base_line: str
    base_seq: int
    conflicts: tuple[Sides, ...]
    reason: str
    opened_by: str
    opened_at: int
    decided_by: str | None = None
    decided_at: int | None = None

    @property
    def holder(self) -> str:
        """Return the name under which history keeps what the review is about."""
        return f"review:{self.review_id}"


class NamedMoment(NamedTuple):
    """A snapshot in the index of all of them."""

    line_id: str
    label: str
    seq: int
    created_by: str
    created_at: int
    automatic: bool


class Retained(NamedTuple):
    """A rule as it was set: for what, by whom and when."""

    subject: str
    rule: Rule
    updated_by: str
    updated_at: int


class Pruning(NamedTuple):
    """What retention removed from one line in one go."""

    pruning_id: str
    line_id: str
    pruned_at: int
    pruned_by: str
    rule: str
    versions: int
    bytes: int
    first_seq: int
    last_seq: int


# Sorts of lines that a rule can be set for; private memory keeps no old values that one could keep longer.
DEFAULT_RULES: Mapping[str, Rule] = {
    "board": Rule(None, None),
    "agent": Rule(None, None),
    **MEMORY_RULES,
}


def sort_of(line_id: str) -> str:
    """Return what a line is the history of: board, agent, context or memory. A malformed name is no line's."""
    sort, _, rest = trunk_of(line_id).partition(":")
    names = rest.split(":")
    fewest, most = _NAMES.get(sort, (1, 0))
    branch = line_id.partition(BRANCH_MARK)[2:] if BRANCH_MARK in line_id else ()
    if not (fewest <= len(names) <= most and all(map(_NAME.match, (*names, *branch)))):
        raise no_line(line_id)
    return sort


def kept_as(line_id: str) -> str | None:
    """Return the sort of line whose rule a line without one of its own follows; None if it is never pruned."""
    sort, *names = trunk_of(line_id).split(":")
    if sort == "context":
        return names[1] if len(names) > 1 and names[1] in DEFAULT_RULES else None
    return sort if sort in DEFAULT_RULES else None


def rule_for(subject: str, rules: Mapping[str, Rule]) -> tuple[str, Rule]:
    """Return what a line, or a sort of lines, follows and what that was set for: itself, its trunk or its sort."""
    known = {**DEFAULT_RULES, **rules}
    names = (subject, trunk_of(subject), kept_as(subject))
    found = next((name for name in names if name in known), subject)
    return found, known.get(found, Rule(None, None))


def rule_of(line_id: str, rules: Mapping[str, Rule]) -> tuple[str, Rule] | None:
    """Return the rule by which a line is pruned and what it was set for. None keeps everything."""
    if kept_as(line_id) is None:
        return None
    subject, rule = rule_for(line_id, rules)
    return None if rule.days is None and rule.versions is None else (subject, rule)


def told(subject: str, rule: Rule) -> str:
    """Put a rule in words, for the record."""
    limits = [f"{rule.days} days" if rule.days else "", f"{rule.versions} versions" if rule.versions else ""]
    return f"{subject}: {', '.join(filter(None, limits))}"


def moment_before(now: int, days: int) -> int:
    return now - days * DAY_MICROS
