"""How long old values stay, and removing those whose time is over."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import structs

from weft.capabilities.agent_context.model import MEMORY_RULES
from weft.capabilities.history.line_ids import DEFAULT_RULES, TOOL, ContextId, Retained, kept_as, rule_for, sort_of
from weft.capabilities.history.model import LineNotFound, no_line
from weft.capabilities.history.operation_ports import Pruner, PruningLog, RetentionRules
from weft.capabilities.history.service import History
from weft.capabilities.history.store import Rule
from weft.kernel.clock import from_micros, optional_datetime
from weft.kernel.errors import InvalidInput
from weft.kernel.fields import Name
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation
from weft.kernel.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Mapping

SnapshotFrom = Annotated[
    Annotated[int, msgspec.Meta(ge=0, le=1_000)] | None,
    msgspec.Meta(
        description="For memory: a push that changes so many entries or more first names the state before it; "
        "0: none does; as it is if left out."
    ),
]


Subject = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=400,
        description=f"A sort of line ({', '.join(DEFAULT_RULES)}) or one line's id.",
    ),
]


class SetRetention(Request):
    """How long old values stay, and of what."""

    subject: Subject
    days: Annotated[
        Literal[30, 90, 365, "indefinite"] | None,
        msgspec.Meta(description="Every state of so many days can be read; as it is if left out."),
    ] = None
    versions: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None,
        msgspec.Meta(description="Only so many versions of each key are kept; 0: all; as it is if left out."),
    ] = None
    snapshot_from: SnapshotFrom = None


class RetentionRule(Response, kw_only=True, omit_defaults=False):
    """How long old values stay. What a snapshot, a branch or a session needs stays in any case."""

    subject: str
    days: int | Literal["indefinite"]
    versions: int | Literal["all"]
    snapshot_from: int | None
    updated_by: str | None = None
    updated_at: datetime | None = None


class ClearRetention(Request):
    """Which rule to take back."""

    subject: Subject


class RetentionCleared(Response, kw_only=True, omit_defaults=False):
    """The rule is gone, if there was one. What holds now was set for ``follows``, or is how Weft begins."""

    subject: str
    cleared: bool
    follows: str
    days: int | Literal["indefinite"]
    versions: int | Literal["all"]


class ReadRetention(Request):
    """Everything that was set."""


class RetentionRuleList(Response):
    """The rule for each sort of line, and those for single lines, which go first."""

    rules: list[RetentionRule]


class PruneHistory(Request):
    """What to prune."""

    context_id: Annotated[ContextId | None, msgspec.Meta(description="This line only; all lines if left out.")] = None


class HistoryPruned(Response, kw_only=True, omit_defaults=False):
    """What was removed. If it is not finished it goes on by itself; if it was not started, it is under way already."""

    started: bool
    finished: bool
    versions: int
    bytes: int


class ListPrunings(Request):
    """Which prunings."""

    context_id: Annotated[ContextId | None, msgspec.Meta(description="Of this line only.")] = None
    cursor: Annotated[Name | None, msgspec.Meta(description="next_cursor of the page before.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000, description="At most this many.")] = 50


class PruningInfo(Response, kw_only=True, omit_defaults=False):
    """What retention removed from a line: how many old values, of which versions, and by which rule."""

    pruning_id: str
    context_id: str
    pruned_at: datetime
    pruned_by: str
    rule: str
    versions: int
    bytes: int
    first_version: int
    last_version: int


class Prunings(Response):
    """Prunings, newest first. There are more as long as there is a next_cursor."""

    prunings: list[PruningInfo]
    next_cursor: str | None = None


@operation(
    "history.set_retention",
    tool=TOOL,
    action="set_retention",
    http="PUT /v1/retention/{subject}",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(LineNotFound,),
)
async def set_retention(request: SetRetention, timelines: History, rules: RetentionRules) -> RetentionRule:
    """Say how long old values of a line, or of a sort of lines, are kept. What is left out stays as it is."""
    if request.days is None and request.versions is None and request.snapshot_from is None:
        raise InvalidInput("days: say days, versions or snapshot_from; indefinite days have no end", field="days")
    if request.subject not in DEFAULT_RULES:
        await _check_line(request.subject, timelines)
    if request.snapshot_from is not None and kept_as(request.subject) not in MEMORY_RULES:
        raise InvalidInput("snapshot_from: is for what agents remember", field="snapshot_from")
    rule = _changed(request, await rules.rules())
    retained = Retained(request.subject, rule, timelines.actor.participant, timelines.now)
    await rules.set(retained)
    return _rule(retained)


@operation(
    "history.clear_retention",
    tool=TOOL,
    action="clear_retention",
    http="DELETE /v1/retention/{subject}",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(LineNotFound,),
)
async def clear_retention(request: ClearRetention, rules: RetentionRules) -> RetentionCleared:
    """Take back a rule, so that a line follows its sort again, and a sort of lines what holds without a rule."""
    cleared = await rules.clear(request.subject)
    # A rule may outlive its line; where there is neither, the name may be a mistake.
    if not cleared and request.subject not in DEFAULT_RULES:
        raise no_line(request.subject)
    follows, rule = rule_for(request.subject, await rules.rules())
    return RetentionCleared(
        subject=request.subject,
        cleared=cleared,
        follows=follows,
        days=rule.days or "indefinite",
        versions=rule.versions or "all",
    )


@operation(
    "history.retention",
    tool=TOOL,
    action="retention",
    http="GET /v1/retention",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
)
async def read_retention(request: ReadRetention, timelines: History, rules: RetentionRules) -> RetentionRuleList:
    """See how long old values are kept."""
    del request
    defaults = {subject: _shown(subject, rule) for subject, rule in DEFAULT_RULES.items()}
    known = {retained.subject: _rule(retained) for retained in await rules.listed()}
    # Whose lines there are is not for everyone to know.
    shown = {subject: rule for subject, rule in known.items() if subject in defaults or timelines.actor.is_admin}
    return RetentionRuleList(rules=[*{**defaults, **shown}.values()])


@operation(
    "history.prune",
    tool=TOOL,
    action="prune",
    http="POST /v1/history-prune",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.OWN_TRANSACTIONS,
    audience=Audience.NOT_SUBAGENTS,
    errors=(LineNotFound,),
)
async def prune_history(
    request: PruneHistory, actor: Actor, errands: Transactions[History], pruner: Pruner
) -> HistoryPruned:
    """Remove old values whose time is over now, instead of waiting for the daily run.

    What a snapshot, a branch or a session needs is never removed, and that a value existed stays on record.
    """
    # The job runs for the system; whoever asks for it must still have access when it begins.
    await errands.read(actor, lambda timelines: _check_line(request.context_id, timelines))
    return HistoryPruned(**(await pruner.prune(actor, request.context_id))._asdict())


@operation(
    "history.prunings",
    tool=TOOL,
    action="prunings",
    http="GET /v1/history-prunings",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    errors=(LineNotFound,),
)
async def list_prunings(request: ListPrunings, log: PruningLog) -> Prunings:
    """See what retention has removed, newest first."""
    if request.context_id is not None:
        sort_of(request.context_id)
    page = await log.newest(request.cursor, request.limit + 1, request.context_id)
    more = len(page) > request.limit
    return Prunings(
        prunings=[
            PruningInfo(
                pruning_id=pruning.pruning_id,
                context_id=pruning.line_id,
                pruned_at=from_micros(pruning.pruned_at),
                pruned_by=pruning.pruned_by,
                rule=pruning.rule,
                versions=pruning.versions,
                bytes=pruning.bytes,
                first_version=pruning.first_seq,
                last_version=pruning.last_seq,
            )
            for pruning in page[: request.limit]
        ],
        next_cursor=page[request.limit - 1].pruning_id if more else None,
    )


async def _check_line(line_id: str | None, timelines: History) -> None:
    """Refuse a line that is not there, or that keeps no old values anyway; None stands for all there are."""
    if line_id is None:
        return
    sort_of(line_id)
    if await timelines.lines.find(line_id) is None:
        raise no_line(line_id)
    if kept_as(line_id) is None:
        raise InvalidInput(
            "This line names what others hold, or keeps no values; set a rule for those it is made of.", field="subject"
        )


def _changed(request: SetRetention, rules: Mapping[str, Rule]) -> Rule:
    """Return the rule that holds now, with what is to be changed about it."""
    own = {**DEFAULT_RULES, **rules}.get(request.subject)
    _, now = rule_for(request.subject, rules)
    days = None if request.days == "indefinite" else request.days
    return Rule(
        days=now.days if request.days is None else days,
        versions=now.versions if request.versions is None else request.versions or None,
        # Left unsaid for one line, it is what is said for all lines of the sort, also when that changes.
        snapshot_from=own.snapshot_from if own and request.snapshot_from is None else request.snapshot_from,
    )


def _rule(retained: Retained) -> RetentionRule:
    shown = _shown(retained.subject, retained.rule)
    return structs.replace(shown, updated_by=retained.updated_by, updated_at=optional_datetime(retained.updated_at))


def _shown(subject: str, rule: Rule) -> RetentionRule:
    return RetentionRule(
        subject=subject,
        days=rule.days or "indefinite",
        versions=rule.versions or "all",
        snapshot_from=rule.snapshot_from,
    )
