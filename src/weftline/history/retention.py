"""Retention: rules for how long old versions are kept, pruning on demand, and the prune log."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import structs

from weftline.history.line_kinds import kind_of
from weftline.history.model import LineNotFound, no_line
from weftline.history.retention_rules import (
    StoredRule,
    default_rules,
    kind_of_subject,
    rule_for,
    subject_of,
)
from weftline.history.revisions import TOOL, ContextId, PageCursor, PageSize, read_operation
from weftline.history.service import History
from weftline.history.sql import PruningLog, RetentionStore
from weftline.history.store import Pruner, Rule
from weftline.kernel.clock import from_micros, optional_datetime
from weftline.kernel.errors import InvalidInput, QuotaExceeded
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import (
    Effect,
    RateClass,
    Request,
    Response,
    SessionUse,
    admin_operation,
    admin_write,
    operation,
)
from weftline.kernel.ports import Transactions

if TYPE_CHECKING:
    from collections.abc import Mapping

SnapshotFrom = Annotated[
    Annotated[int, msgspec.Meta(ge=0, le=1_000)] | None,
    msgspec.Meta(
        description="For persistent memory: a push that changes at least this many entries is preceded by an automatic "
        "snapshot; 0: never; default: unchanged."
    ),
]


Subject = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=400,
        description="A kind of context, such as board, agent or work_artifacts (the action retention lists them), or a "
        "context_id.",
    ),
]


class SetRetention(Request):
    """Subject and limits of a retention rule."""

    subject: Subject
    days: Annotated[
        Literal[30, 90, 365, "indefinite"] | None,
        msgspec.Meta(description="Keep every state of this many days; default: unchanged."),
    ] = None
    versions: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None,
        msgspec.Meta(description="Keep this many versions of each key; 0: all; default: unchanged."),
    ] = None
    snapshot_from: SnapshotFrom = None


class RetentionRule(Response, kw_only=True, omit_defaults=False):
    """A retention rule. Versions that a snapshot, a branch or a session needs are always kept."""

    subject: str
    days: int | Literal["indefinite"]
    versions: int | Literal["all"]
    snapshot_from: int | None
    updated_by: str | None = None
    updated_at: datetime | None = None


class ClearRetention(Request):
    """Subject whose rule to delete."""

    subject: Subject


class RetentionCleared(Response, kw_only=True, omit_defaults=False):
    """Whether there was a rule; the limits that apply now, and the subject they come from (``follows``)."""

    subject: str
    cleared: bool
    follows: str
    days: int | Literal["indefinite"]
    versions: int | Literal["all"]


class ReadRetention(Request):
    """No parameters."""


class RetentionRuleList(Response):
    """The rule of each kind of context, and those of single contexts, which take precedence.

    ``plan_versions``: the plan keeps at most this many versions of each key, whatever a rule says.
    """

    rules: list[RetentionRule]
    plan: str
    plan_versions: int | Literal["all"]


class PruneHistory(Request):
    """Context to prune."""

    context_id: Annotated[ContextId | None, msgspec.Meta(description="Only this context; default: all.")] = None


class HistoryPruned(Response, kw_only=True, omit_defaults=False):
    """What was removed. Unfinished runs continue in the background; ``started`` is false if one is already running."""

    started: bool
    finished: bool
    versions: int
    bytes: int


class ReadPruneLog(Request):
    """Filters for the prune log."""

    context_id: Annotated[ContextId | None, msgspec.Meta(description="Only of this context.")] = None
    cursor: PageCursor = None
    limit: PageSize = 50


class PruningInfo(Response, kw_only=True, omit_defaults=False):
    """What retention removed from a context: number of values, range of versions, and the rule."""

    pruning_id: str
    context_id: str
    pruned_at: datetime
    pruned_by: str
    rule: str
    versions: int
    bytes: int
    first_version: int
    last_version: int


class PruneLog(Response):
    """Prunings, newest first; ``next_cursor`` is set while there are more."""

    prunings: list[PruningInfo]
    next_cursor: str | None = None


@admin_write(
    "history.set_retention",
    tool=TOOL,
    action="set_retention",
    http="PUT /v1/retention/{subject}",
    errors=(LineNotFound, QuotaExceeded),
    session=SessionUse.OUTSIDE,
)
async def set_retention(request: SetRetention, history: History, rules: RetentionStore) -> RetentionRule:
    """Set how long old versions of a context, or of a kind of context, are kept. Omitted limits stay unchanged."""
    if request.days is None and request.versions is None and request.snapshot_from is None:
        raise InvalidInput("days: give days, versions or snapshot_from; indefinite sets no limit", field="days")
    if request.subject not in default_rules():
        await _check_line(request.subject, history)
    kind = kind_of_subject(request.subject)
    if request.snapshot_from is not None and not (kind and kind.snapshot_on_push):
        raise InvalidInput("snapshot_from: only for persistent memory", field="snapshot_from")
    if request.versions is not None:
        (await history.plans.allowance()).check_versions(request.versions or None)
    rule = _updated(request, await rules.rules())
    stored = StoredRule(request.subject, rule, history.actor.participant, history.now)
    await rules.set(stored)
    return _stored_rule(stored)


@admin_write(
    "history.clear_retention",
    tool=TOOL,
    action="clear_retention",
    http="DELETE /v1/retention/{subject}",
    destructive=False,
    errors=(LineNotFound,),
    session=SessionUse.OUTSIDE,
)
async def clear_retention(request: ClearRetention, rules: RetentionStore) -> RetentionCleared:
    """Delete a rule, so that a context follows its kind again, and a kind the default."""
    cleared = await rules.clear(request.subject)
    # A rule may outlive its context; with neither, the subject is probably misspelt.
    if not cleared and request.subject not in default_rules():
        raise no_line(request.subject)
    follows, rule = rule_for(request.subject, await rules.rules())
    return RetentionCleared(
        subject=request.subject,
        cleared=cleared,
        follows=follows,
        days=rule.days or "indefinite",
        versions=rule.versions or "all",
    )


@read_operation("history.retention", action="retention", http="GET /v1/retention", session=SessionUse.OUTSIDE)
async def read_retention(request: ReadRetention, history: History, rules: RetentionStore) -> RetentionRuleList:
    """List the retention rules."""
    del request
    defaults = {subject: _retention_rule(subject, rule) for subject, rule in default_rules().items()}
    known = {stored.subject: _stored_rule(stored) for stored in await rules.listed()}
    # Ids of single contexts are for admins only.
    shown = {subject: rule for subject, rule in known.items() if subject in defaults or history.actor.is_admin}
    allowance = await history.plans.allowance()
    return RetentionRuleList(
        rules=[*{**defaults, **shown}.values()], plan=allowance.plan, plan_versions=allowance.versions or "all"
    )


@admin_operation(
    "history.prune",
    tool=TOOL,
    action="prune",
    http="POST /v1/history-prune",
    destructive=True,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(LineNotFound,),
    session=SessionUse.OUTSIDE,
)
async def prune_history(
    request: PruneHistory, actor: Actor, transactions: Transactions[History], pruner: Pruner
) -> HistoryPruned:
    """Apply retention now instead of waiting for the daily run.

    Values that a snapshot, a branch or a session needs are never removed, and the log keeps every version.
    """
    # The job runs as the system, so the caller's access is checked first.
    await transactions.read(actor, lambda history: _check_line(request.context_id, history))
    return HistoryPruned(**(await pruner.prune(actor, request.context_id))._asdict())


@operation(
    "history.prune_log",
    tool=TOOL,
    action="prune_log",
    http="GET /v1/history-prune-log",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    errors=(LineNotFound,),
    session=SessionUse.OUTSIDE,
)
async def read_prune_log(request: ReadPruneLog, log: PruningLog) -> PruneLog:
    """Read what retention removed, newest first."""
    if request.context_id is not None:
        kind_of(request.context_id)
    page = await log.newest(request.cursor, request.limit + 1, request.context_id)
    more = len(page) > request.limit
    return PruneLog(
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


async def _check_line(line_id: str | None, history: History) -> None:
    """Refuse a line that does not exist or is never pruned; None: all lines."""
    if line_id is None:
        return
    kind_of(line_id)
    if await history.lines.find(line_id) is None:
        raise no_line(line_id)
    if subject_of(line_id) is None:
        raise InvalidInput(
            "This context has no retention: it keeps no old values, or only refers to its parts, which have rules.",
            field="subject",
        )


def _updated(request: SetRetention, rules: Mapping[str, Rule]) -> Rule:
    """Return the current rule with the requested changes."""
    own = {**default_rules(), **rules}.get(request.subject)
    _, current = rule_for(request.subject, rules)
    days = None if request.days == "indefinite" else request.days
    return Rule(
        days=current.days if request.days is None else days,
        versions=current.versions if request.versions is None else request.versions or None,
        # None for a single context: it follows its kind, also when that changes later.
        snapshot_from=own.snapshot_from if own and request.snapshot_from is None else request.snapshot_from,
    )


def _stored_rule(stored: StoredRule) -> RetentionRule:
    shown = _retention_rule(stored.subject, stored.rule)
    return structs.replace(shown, updated_by=stored.updated_by, updated_at=optional_datetime(stored.updated_at))


def _retention_rule(subject: str, rule: Rule) -> RetentionRule:
    return RetentionRule(
        subject=subject,
        days=rule.days or "indefinite",
        versions=rule.versions or "all",
        snapshot_from=rule.snapshot_from,
    )
