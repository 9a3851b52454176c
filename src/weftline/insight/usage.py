"""Reports and exports of usage: what model calls cost, by whom and when."""

from __future__ import annotations

import csv
import io
from datetime import datetime, time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from weftline.access.model import AgentId
from weftline.access.plan_warnings import Plans
from weftline.access.teams import TeamName
from weftline.kernel.clock import DAY_MICROS, Clock, TimestampText, from_micros, parse_timestamp, to_micros
from weftline.kernel.errors import PermissionDenied, QuotaExceeded
from weftline.kernel.fields import harmless_cell
from weftline.kernel.identity import HIGHEST_CLEARANCE, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.models.metering import (
    DELETED,
    OTHER,
    SUM_NAMES,
    CallKind,
    GroupBy,
    UsageDetail,
    UsageGroup,
    UsageQuery,
    dollars,
)
from weftline.models.sql import UsageStore
from weftline.prompts.tools.registry import visible_owners
from weftline.prompts.tools.sql import StepStore
from weftline.sessions.model import SessionId, SessionNotFound, admitted_sessions, find_session
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.access.model import Principal
    from weftline.models.metering import UsageKey, UsageSums


# Rows of usage reports, made from sums.

_MICROS_PER_MILLI = 1_000
_MILLIONTHS = 1_000_000
_DIGITS = 4
_MILLI_DIGITS = 3


class UsageFigures(Response, kw_only=True, omit_defaults=False):
    """What calls cost and how well their prompts were used. Money is in US dollars, null if no call has a price.

    ``total_tokens`` and ``cost`` are those that the provider reported, and the expected ones of the prompt for calls
    without a report; ``unpriced_calls`` are of models without a price. Durations are means in milliseconds.
    ``efficiency`` is useful over sent tokens, layers counted apart, of ``scored_calls``; ``estimated_calls`` had no
    answer to compare with. ``window_fill``: part of their windows that prompts took. ``naive_baseline_tokens``,
    ``naive_cost`` and ``savings_ratio`` compare with the conversations alone, negative if prompts were larger;
    ``document_tokens`` are those of the whole documents with evidence in a prompt. ``net_savings`` is ``naive_cost``
    less ``expected_cost``: negative where Weftline, with its own calls of models, made them dearer. For calls through
    the model proxy, the conversation alone is what their clients sent.
    """

    calls: int
    reported_calls: int
    failed_calls: int
    unpriced_calls: int
    total_tokens: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    naive_baseline_tokens: int
    document_tokens: int
    engine_assembled_tokens: int
    cached_tokens: int
    savings_ratio: float
    savings_ratio_with_documents: float
    cost: float | None
    expected_cost: float | None
    naive_cost: float | None
    reported_cost: float | None
    net_savings: float | None
    gather_ms: float
    retrieve_ms: float
    plan_ms: float
    render_ms: float
    provider_ms: float | None
    quality_score: float | None
    scored_calls: int
    estimated_calls: int
    sent_tokens: int
    useful_tokens: int
    overhead_tokens: int
    efficiency: float | None
    window_fill: float | None


# Figures that are sums as they are.
_SUMS = (
    "calls",
    "reported_calls",
    "failed_calls",
    "unpriced_calls",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "naive_baseline_tokens",
    "document_tokens",
    "engine_assembled_tokens",
    "cached_tokens",
    "savings_ratio",
    "savings_ratio_with_documents",
    "scored_calls",
    "estimated_calls",
    "sent_tokens",
    "useful_tokens",
    "overhead_tokens",
    "efficiency",
)


def figures(sums: UsageSums) -> dict[str, int | float | None]:
    """Return the fields of ``UsageFigures``."""
    calls, priced = sums.calls, sums.calls > sums.unpriced_calls
    return {
        **{name: getattr(sums, name) for name in _SUMS},
        "cost": dollars(sums.cost_nanos) if priced else None,
        "expected_cost": dollars(sums.expected_cost_nanos) if priced else None,
        "naive_cost": dollars(sums.naive_cost_nanos) if priced else None,
        "net_savings": dollars(sums.naive_cost_nanos - sums.expected_cost_nanos) if priced else None,
        "reported_cost": dollars(sums.reported_cost_nanos) if priced and sums.reported_calls else None,
        "gather_ms": _mean_ms(sums.gather_micros, calls) or 0.0,
        "retrieve_ms": _mean_ms(sums.retrieve_micros, calls) or 0.0,
        "plan_ms": _mean_ms(sums.plan_micros, calls) or 0.0,
        "render_ms": _mean_ms(sums.render_micros, calls) or 0.0,
        "provider_ms": _mean_ms(sums.provider_micros, sums.timed_calls),
        "quality_score": round(sums.quality / sums.graded_calls / _MILLIONTHS, _DIGITS) if sums.graded_calls else None,
        "window_fill": (
            round(sums.engine_assembled_tokens / sums.capacity_tokens, _DIGITS) if sums.capacity_tokens else None
        ),
    }


def _mean_ms(micros: int, times: int) -> float | None:
    return round(micros / times / _MICROS_PER_MILLI, _MILLI_DIGITS) if times else None


# Usage as CSV or as JSON lines.

ExportForm = Literal["csv", "json"]
_NANOS = "_nanos"
_NAMES = ("start", "kind", "agent", "session", "step", "model", "teams")
# Money in US dollars, everything else as it is summed up.
COLUMNS = (*_NAMES, *(name.removesuffix(_NANOS) for name in SUM_NAMES))
_encode = msgspec.json.Encoder().encode


def write_rows(details: Iterable[UsageDetail], form: ExportForm, *, header: bool) -> str:
    """Return details as text, one line each; CSV begins with its header on the first page."""
    if form == "json":
        return "".join(f"{_encode(dict(zip(COLUMNS, _cells(each), strict=True))).decode()}\n" for each in details)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    writer.writerows([harmless_cell(cell) for cell in _cells(each)] for each in details)
    return text.getvalue()


def _cells(detail: UsageDetail) -> list[Any]:
    key = detail.key
    names = [key.kind, key.agent_id, key.session_id, key.step, key.model, " ".join(key.teams)]
    sums = zip(SUM_NAMES, detail.sums.values, strict=True)
    figures = [dollars(value) if name.endswith(_NANOS) else value for name, value in sums]
    return [from_micros(detail.start).strftime("%Y-%m-%dT%H:%M:%SZ"), *names, *figures]


# Operations on usage: report and export.

_read = partial(
    operation, tool="usage", permission=Permission.READ, rate=RateClass.SEARCH, effect=Effect.READ, heavy=True
)
_PAGE_ROWS = 2_000
_MINUTE_MICROS = 60_000_000
# In place of names of sessions.
_NO_SESSION = frozenset({"", OTHER, DELETED})
_NO_STEP = frozenset({"", OTHER})
_ModelFilter = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[ -~]+\Z")]


class UsageFilter(Request):
    """Which usage: an interval, and optionally of an agent, team, session, model or kind of call."""

    since: Annotated[
        TimestampText | None, msgspec.Meta(description="Only calls from this time on: 2025-01-15 or with a time.")
    ] = None
    until: Annotated[TimestampText | None, msgspec.Meta(description="Only calls up to this time, inclusive.")] = None
    agent_id: Annotated[
        AgentId | None, msgspec.Meta(description="Only of this agent; by default you with the agents below you.")
    ] = None
    team: Annotated[TeamName | None, msgspec.Meta(description="Only of agents that were in this team.")] = None
    session_id: Annotated[SessionId | None, msgspec.Meta(description="Only of this session.")] = None
    model: Annotated[_ModelFilter | None, msgspec.Meta(description="Only of this model.")] = None
    kind: Annotated[
        CallKind | None,
        msgspec.Meta(
            description="assembly: calls with an assembled prompt; compaction: calls of Weftline's own model; "
            "proxy: calls through the model proxy."
        ),
    ] = None


class ReportUsage(UsageFilter):
    """What to add up."""

    by: Annotated[
        GroupBy, msgspec.Meta(description="One row for each; tenant: one row for all. Days and hours are in UTC.")
    ] = "agent"
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000, description="At most this many rows.")] = 100


class UsageRow(UsageFigures, kw_only=True, omit_defaults=False):
    """The usage of one group: a name, or the start of an interval. Empty: calls without one.

    (other) are names beyond the number that is kept for an interval, and those of sessions and steps that are not for
    you; (deleted) those of deleted sessions.
    """

    group: str


class UsageReported(Response, kw_only=True, omit_defaults=False):
    """Usage by group, most tokens first, intervals oldest first; ``total`` is over all groups, also those left out.

    ``since`` and ``until`` are the interval that was added up: whole minutes, or hours and days where minutes are no
    longer kept. A call of an agent in several teams counts for each of them, but once in ``total``.
    """

    by: GroupBy
    since: datetime | None
    until: datetime
    rows: list[UsageRow]
    left_out: int
    total: UsageFigures


class ExportUsage(UsageFilter):
    """What to export."""

    unit: Annotated[Literal["hour", "day"], msgspec.Meta(description="Interval of the rows, in UTC.")] = "day"
    form: Annotated[ExportForm, msgspec.Meta(description="csv with a header, or json: one object a line.")] = "csv"
    cursor: Annotated[
        Annotated[str, msgspec.Meta(max_length=16, pattern=r"^[0-9]{1,16}\Z")] | None,
        msgspec.Meta(description="next_cursor of the previous page."),
    ] = None


class UsageExported(Response, kw_only=True, omit_defaults=False):
    """A page of rows as text: sums by interval, agent, session, step, model and kind of call.

    Pages put together are the whole export. Cells that a spreadsheet would take for a formula begin with an apostrophe.
    """

    form: ExportForm
    rows: int
    content: str
    next_cursor: str | None = None


class UsageReader(msgspec.Struct, frozen=True):
    """Reads the usage that a caller may see: its own and that of agents below it, and for admins all."""

    usage: UsageStore
    windows: Windows
    plans: Plans
    steps: StepStore
    clock: Clock

    async def query(self, request: UsageFilter, by: GroupBy) -> UsageQuery:
        """Return the query of a request, within the plan and the rights of the caller."""
        actor = self.windows.actor
        if request.session_id is not None:
            await find_session(request.session_id, actor, self.windows.sessions)
        since, until = await self._interval(request, by)
        return UsageQuery(
            by=by,
            since=since,
            until=until,
            agents=await self._agents(request.agent_id),
            team=request.team,
            session_id=request.session_id,
            model=request.model,
            kind=request.kind,
            max_clearance=None if actor.clearance >= HIGHEST_CLEARANCE else actor.clearance,
        )

    async def session_names(self, session_ids: Iterable[str]) -> dict[str, str]:
        """Return the name of each session in answers: (other) for those that the caller is no member of.

        An agent below the caller may work in sessions of others.
        """
        asked, actor = set(session_ids), self.windows.actor
        known = asked if actor.is_admin else await admitted_sessions(asked, actor, self.windows.sessions) | _NO_SESSION
        return {session_id: session_id if session_id in known else OTHER for session_id in asked}

    async def step_names(self, steps: Iterable[str]) -> dict[str, str]:
        """Return the name of each step in answers: (other) for those that neither the caller nor agents below it have.

        An admin may assemble a prompt for an agent in a step of its own.
        """
        asked, actor = set(steps), self.windows.actor
        if actor.is_admin or asked <= _NO_STEP:
            return {step: step for step in asked}
        owners = visible_owners(actor) | {each.principal_id for each in await self._below() if self._is_open(each)}
        known = {each.name for each in await self.steps.visible(owners)} | _NO_STEP
        return {step: step if step in known else OTHER for step in asked}

    @property
    def this_minute(self) -> int:
        """Return the end of the current minute."""
        now = to_micros(self.clock.now())
        return now - now % _MINUTE_MICROS + _MINUTE_MICROS

    async def _interval(self, request: UsageFilter, by: GroupBy) -> tuple[int, int]:
        now = to_micros(self.clock.now())
        # There are no calls after now, so that the sums of the whole day are those up to now, in fewer rows.
        until = now - now % DAY_MICROS + DAY_MICROS
        if request.until is not None:
            until = min(until, to_micros(parse_timestamp("until", request.until, of_day=time.max)) + 1)
        given = None if request.since is None else to_micros(parse_timestamp("since", request.since, of_day=time.min))
        return (await self.plans.allowance()).report_since(by, given, now), until

    async def _agents(self, agent_id: str | None) -> tuple[str, ...] | None:
        """Return the agents whose usage to read; None: those of the tenant."""
        actor, access = self.windows.actor, self.windows.access
        if agent_id is None:
            if actor.is_admin:
                return None
            return (actor.principal_id, *(each.principal_id for each in await self._below()))
        agent = await access.principal(agent_id)
        if agent_id != actor.principal_id and (agent is None or not await self.windows.may_open(agent)):
            raise PermissionDenied("Usage is open to its agent, the agent's ancestors and admins only.")
        return (agent_id,)

    async def _below(self) -> Sequence[Principal]:
        actor = self.windows.actor
        return await self.windows.access.below(actor.principal_id) if actor.has_agents_below else ()

    def _is_open(self, agent: Principal) -> bool:
        return agent.clearance <= self.windows.actor.clearance


@_read("usage.report", action="report", http="GET /v1/usage", errors=(SessionNotFound, PermissionDenied, QuotaExceeded))
async def report_usage(request: ReportUsage, reader: UsageReader) -> UsageReported:
    """Add up tokens, money, savings, latency and efficiency of model calls, by agent, team, model or time.

    Sums are exact at any time. You see your own usage and that of agents below you; admins see all.
    """
    query = await reader.query(request, request.by)
    found = await reader.usage.totals(query._replace(limit=request.limit))
    if request.by in {"session", "step"}:
        names_of = reader.session_names if request.by == "session" else reader.step_names
        names = await names_of(each.group for each in found.groups)
        found = found._replace(groups=_renamed_groups(found.groups, names))
    return UsageReported(
        by=request.by,
        since=None if query.since == 0 and found.since <= 0 else from_micros(found.since),
        until=from_micros(min(found.until, reader.this_minute)),
        rows=[UsageRow(group=each.group, **figures(each.sums)) for each in found.groups],  # type: ignore[arg-type]
        left_out=found.left_out,
        total=UsageFigures(**figures(found.total)),  # type: ignore[arg-type]
    )


@_read(
    "usage.export",
    action="export",
    http="GET /v1/usage/export",
    errors=(SessionNotFound, PermissionDenied, QuotaExceeded),
)
async def export_usage(request: ExportUsage, reader: UsageReader) -> UsageExported:
    """Export usage as CSV or JSON lines, page by page: a row for each interval, agent, session, step and model."""
    query = await reader.query(request, request.unit)
    if request.cursor is not None:
        query = query._replace(since=max(query.since, int(request.cursor)))
    page = await reader.usage.details(query, request.unit, _PAGE_ROWS)
    sessions = await reader.session_names(each.key.session_id for each in page.details)
    details = _renamed_details(page.details, sessions, await reader.step_names(each.key.step for each in page.details))
    return UsageExported(
        form=request.form,
        rows=len(details),
        content=write_rows(details, request.form, header=request.cursor is None),
        next_cursor=None if page.next_since is None else str(page.next_since),
    )


def _renamed_groups(groups: Iterable[UsageGroup], names: Mapping[str, str]) -> list[UsageGroup]:
    """Return groups under other names, most tokens first; those with the same name are added up."""
    found: dict[str, UsageSums] = {}
    for each in groups:
        name = names[each.group]
        found[name] = each.sums.plus(found[name]) if name in found else each.sums
    renamed = [UsageGroup(name, sums) for name, sums in found.items()]
    return sorted(renamed, key=lambda each: (-each.sums.total_tokens, each.group))


def _renamed_details(
    details: Iterable[UsageDetail], sessions: Mapping[str, str], steps: Mapping[str, str]
) -> list[UsageDetail]:
    """Return details with other names of sessions and steps; those that are then of the same key are added up."""
    found: dict[tuple[int, UsageKey], UsageSums] = {}
    for each in details:
        key = each.key._replace(session_id=sessions[each.key.session_id], step=steps[each.key.step])
        place = each.start, key
        found[place] = each.sums.plus(found[place]) if place in found else each.sums
    return [UsageDetail(start, key, sums) for (start, key), sums in found.items()]
