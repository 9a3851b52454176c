"""Operations on receipts: show, list, replay, and the savings they add up to."""

from __future__ import annotations

from datetime import datetime, time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from weftline.access.plan_warnings import Plans
from weftline.history.signed_lists import LayerViolation
from weftline.kernel.clock import TimestampText, from_micros, parse_timestamp, to_micros
from weftline.kernel.errors import PermissionDenied, QuotaExceeded
from weftline.kernel.fields import Name
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation
from weftline.models.budgets import BudgetName
from weftline.models.language_models.catalog import Catalog
from weftline.models.language_models.content import PromptForm
from weftline.models.metering import OTHER
from weftline.prompts.assembly.receipts import (
    Candidate,
    CompactionUse,
    Confidence,
    CountingMethod,
    Modelled,
    OmittedCandidate,
    PlanMode,
    ReceiptBlock,
    ReceiptNotFound,
    ReceiptPruned,
    ReportedUsage,
    Savings,
    SavingsTotal,
    Shortening,
    TokenLimits,
    ToolSavings,
)
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.prompts.assembly.stored_prompts import StoredPrompts, find_receipt, tasks_of
from weftline.prompts.assembly.validation import validate_earlier
from weftline.prompts.efficiency import Efficiency, EfficiencyBasis
from weftline.records.sql import RecordStore
from weftline.sessions.model import SessionId, SessionNotFound, admitted_sessions, find_session
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.prompts.assembly.receipts import StoredReceipt

_read = partial(operation, tool="receipts", permission=Permission.READ, rate=RateClass.SEARCH, effect=Effect.READ)
_CURSOR = r"^[0-9]{1,16}\.[A-Za-z0-9_-]{1,64}\Z"
_LATEST = 2**62
ReceiptId = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+\Z", description="Id of a receipt."),
]
AgentFilter = Annotated[Name | None, msgspec.Meta(description="Only of this agent; by default you.")]


class ShowReceipt(Request):
    """The receipt to show."""

    receipt_id: ReceiptId
    candidates: Annotated[
        bool, msgspec.Meta(description="Also every candidate with its tokens and score, and what was omitted.")
    ] = True


class ReceiptShown(Response, kw_only=True, omit_defaults=False):
    """What was assembled, from what and why.

    ``mode`` extended: appended to the prompt of the previous call; rebuilt: chosen again, for the ``reason`` given.
    ``modelled`` compares both in tokens at the price of uncached input. ``versions`` are those of the sources read.
    ``efficiency``: how much of the prompt the answer used, with the use of each item; without a reported answer an
    estimate without items. ``task``: the beginning of the message that ends the prompt, null once it is no longer kept.
    ``documents``: the documents of the passages in the prompt, by ref.
    """

    receipt_id: str
    session_id: str
    agent_id: str
    requested_by: str
    created_at: datetime
    task: str | None
    previous_id: str | None
    model: str | None
    mode: PlanMode
    reason: str
    modelled: Modelled | None
    tokens: int
    tools_tokens: int
    limits: TokenLimits
    counting: CountingMethod
    blocks: tuple[ReceiptBlock, ...]
    candidates: tuple[Candidate, ...]
    omitted: tuple[OmittedCandidate, ...]
    shortened: tuple[Shortening, ...]
    documents: dict[str, str]
    versions: dict[str, str]
    window_tokens: dict[str, int]
    window_budgets: dict[str, int]
    confidence: Confidence
    savings: Savings
    prompt_hash: str
    timing_ms: dict[str, float]
    tool_savings: ToolSavings | None = None
    compaction: CompactionUse | None = None
    budgets: tuple[BudgetName, ...] = ()
    downgraded_by: tuple[BudgetName, ...] = ()
    usage: ReportedUsage | None
    efficiency: Efficiency | None


class ListReceipts(Request):
    """Filters of receipts."""

    session_id: Annotated[SessionId | None, msgspec.Meta(description="Only of this session.")] = None
    agent_id: AgentFilter = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum receipts.")] = 20
    cursor: Annotated[
        Annotated[str, msgspec.Meta(max_length=90, pattern=_CURSOR)] | None,
        msgspec.Meta(description="next_cursor of the previous page."),
    ] = None


class ReceiptSummary(Response, kw_only=True, omit_defaults=False):
    """A receipt in a list. ``efficiency``: useful over sent tokens, by the answer or estimated.

    ``task``: the beginning of the message that ends the prompt, null once it is no longer kept. ``took_ms``: assembling
    it; ``latency_ms``: the model call, where it was reported.
    ``naive_baseline_tokens``: the conversation alone. ``document_tokens``: whole documents with evidence in the prompt.
    """

    receipt_id: str
    session_id: str
    agent_id: str
    created_at: datetime
    task: str | None
    model: str | None
    mode: PlanMode
    tokens: int
    naive_baseline_tokens: int
    document_tokens: int
    savings_ratio: float
    savings_ratio_with_documents: float
    cached_tokens: int
    took_ms: float
    latency_ms: float | None
    efficiency: float | None
    efficiency_basis: EfficiencyBasis | None


class ReceiptList(Response, kw_only=True):
    """Receipts, newest first; ``next_cursor`` while there are more."""

    receipts: list[ReceiptSummary]
    next_cursor: str | None = None


class ReplayReceipt(Request):
    """The receipt whose prompt to show again, and the form to show it in."""

    receipt_id: ReceiptId
    form: Annotated[PromptForm, msgspec.Meta(description="The wire form of the body.")] = "neutral"


class PromptReplayed(Response, kw_only=True, omit_defaults=False):
    """The prompt of a receipt, the same bytes as then. ``prompt_hash`` was computed again and compared."""

    receipt_id: str
    form: PromptForm
    tokens: int
    prompt_hash: str
    body: dict[str, Any]


class ReportSavings(Request):
    """What to add up."""

    by: Annotated[
        Literal["tenant", "session", "agent", "model"],
        msgspec.Meta(description="One row for each; tenant: one row for all."),
    ] = "agent"
    session_id: Annotated[SessionId | None, msgspec.Meta(description="Only of this session.")] = None
    agent_id: AgentFilter = None
    since: Annotated[
        TimestampText | None, msgspec.Meta(description="Only calls from this time on: 2025-01-15 or with a time.")
    ] = None
    until: Annotated[TimestampText | None, msgspec.Meta(description="Only calls up to this time, inclusive.")] = None


class SavingsReport(Response, kw_only=True, omit_defaults=False):
    """Sums by group, most tokens first. Money is in US dollars, and null where no price is known.

    ``cost`` and ``naive_cost`` are modelled with prompt caches. Figures below ``reported`` are the provider's.
    """

    by: str
    rows: list[SavingsTotal]


@_read(
    "receipt.show",
    heavy=True,
    action="show",
    http="GET /v1/receipts/{receipt_id}",
    errors=(ReceiptNotFound,),
    session=SessionUse.FINDS,
)
async def show_receipt(
    request: ShowReceipt, receipts: ReceiptStore, windows: Windows, records: RecordStore
) -> ReceiptShown:
    """Show the receipt of a prompt: blocks, candidates, omissions with reasons, budget, savings and timing."""
    found = await find_receipt(request.receipt_id, receipts, windows)
    receipt = found.receipt
    fields = {name: getattr(receipt, name) for name in ReceiptShown.__struct_fields__ if hasattr(receipt, name)}
    if not request.candidates:
        fields |= {"candidates": (), "omitted": ()}
    task = (await tasks_of([receipt], receipts, windows, records)).get(receipt.receipt_id)
    reported = {"usage": found.usage, "efficiency": found.efficiency, "task": task}
    return ReceiptShown(**(fields | {"created_at": from_micros(receipt.created_at)} | reported))


@_read(
    "receipt.list",
    heavy=True,
    action="list",
    http="GET /v1/receipts",
    errors=(SessionNotFound, PermissionDenied),
)
async def list_receipts(
    request: ListReceipts, receipts: ReceiptStore, windows: Windows, records: RecordStore
) -> ReceiptList:
    """List receipts of your prompts, newest first; those of agents below you with agent_id."""
    agent_id = await agent_to_read(request.agent_id, windows)
    await _check_session(request.session_id, windows)
    before = None
    if request.cursor is not None:
        at, _, receipt_id = request.cursor.partition(".")
        before = (int(at), receipt_id)
    page = await receipts.page(
        request.session_id, agent_id, before, request.limit + 1, max_clearance=windows.actor.clearance
    )
    shown = page[: request.limit]
    more, last = len(page) > request.limit, shown[-1].receipt if shown else None
    entered = await _entered({each.receipt.session_id for each in shown}, windows)
    listed = [each for each in shown if each.receipt.session_id in entered]
    tasks = await tasks_of([each.receipt for each in listed], receipts, windows, records)
    return ReceiptList(
        receipts=[_summary(each, tasks.get(each.receipt.receipt_id)) for each in listed],
        next_cursor=f"{last.created_at}.{last.receipt_id}" if more and last is not None else None,
    )


@_read(
    "receipt.replay",
    heavy=True,
    action="replay",
    http="GET /v1/receipts/{receipt_id}/prompt",
    errors=(ReceiptNotFound, ReceiptPruned, PermissionDenied, LayerViolation),
    session=SessionUse.FINDS,
)
async def replay_receipt(
    request: ReplayReceipt, receipts: ReceiptStore, windows: Windows, records: RecordStore, catalog: Catalog
) -> PromptReplayed:
    """Show the prompt of a receipt again, byte for byte, in any wire form.

    Not possible once retention or a redaction has removed content of it.
    """
    found = await StoredPrompts(receipts, windows, records, catalog).find(request.receipt_id)
    validate_earlier(found.blocks, found.tools, has_platform=found.receipt.has_platform)
    return PromptReplayed(
        receipt_id=found.receipt.receipt_id,
        form=request.form,
        tokens=found.receipt.tokens,
        prompt_hash=found.receipt.prompt_hash,
        body=found.body(request.form, catalog),
    )


@_read(
    "receipt.savings",
    action="savings",
    http="GET /v1/savings",
    errors=(SessionNotFound, PermissionDenied, QuotaExceeded),
    heavy=True,
)
async def report_savings(
    request: ReportSavings, receipts: ReceiptStore, windows: Windows, plans: Plans
) -> SavingsReport:
    """Add up tokens and money of prompts against the conversation alone, by agent, session, model or tenant."""
    agent_id = request.agent_id
    if agent_id is not None or not windows.actor.is_admin:
        agent_id = await agent_to_read(agent_id, windows)
    await _check_session(request.session_id, windows)
    given = None if request.since is None else to_micros(parse_timestamp("since", request.since, of_day=time.min))
    since = (await plans.allowance()).report_since(request.by, given, to_micros(windows.clock.now()))
    until = (
        _LATEST if request.until is None else to_micros(parse_timestamp("until", request.until, of_day=time.max)) + 1
    )
    rows = await receipts.totals(
        request.by, request.session_id, agent_id, since, until, max_clearance=windows.actor.clearance
    )
    if request.by == "session":
        rows = _renamed(rows, await _entered({row.group for row in rows}, windows))
    return SavingsReport(by=request.by, rows=list(rows))


async def _entered(session_ids: AbstractSet[str], windows: Windows) -> AbstractSet[str]:
    """Return the sessions that the caller is a member of: an agent below it may work in sessions of others."""
    actor = windows.actor
    return session_ids if actor.is_admin else await admitted_sessions(session_ids, actor, windows.sessions)


def _renamed(rows: Sequence[SavingsTotal], entered: AbstractSet[str]) -> Sequence[SavingsTotal]:
    """Return rows by session, with those that the caller may not know added up as (other), most tokens first."""
    others = [row for row in rows if row.group not in entered]
    if not others:
        return rows
    names = [name for name in SavingsTotal.__struct_fields__ if name != "group"]
    sums = {name: _sum_known(getattr(row, name) for row in others) for name in names}
    shown = [*(row for row in rows if row.group in entered), SavingsTotal(group=OTHER, **sums)]
    return sorted(shown, key=lambda row: -row.engine_assembled_tokens)


def _sum_known(values: Iterable[float | None]) -> Any:  # noqa: ANN401 - whole numbers, or money that may be unknown
    known = [value for value in values if value is not None]
    return sum(known) if known else None


async def _check_session(session_id: str | None, windows: Windows) -> None:
    if session_id is not None:
        await find_session(session_id, windows.actor, windows.sessions)


async def agent_to_read(agent_id: str | None, windows: Windows) -> str | None:
    """Return the agent whose receipts to list: the caller, or one whose window the caller may open."""
    actor = windows.actor
    if agent_id is None or agent_id == actor.principal_id:
        return None if agent_id is None and actor.is_admin else actor.principal_id
    agent = await windows.access.principal(agent_id)
    if agent is None or not await windows.may_open(agent):
        raise PermissionDenied("Receipts are open to their agent, the agent's ancestors and admins only.")
    return agent_id


def _summary(stored: StoredReceipt, task: str | None) -> ReceiptSummary:
    receipt, efficiency = stored.receipt, stored.efficiency
    return ReceiptSummary(
        receipt_id=receipt.receipt_id,
        session_id=receipt.session_id,
        agent_id=receipt.agent_id,
        created_at=from_micros(receipt.created_at),
        task=task,
        model=receipt.model,
        mode=receipt.mode,
        tokens=receipt.tokens,
        naive_baseline_tokens=receipt.savings.naive_baseline_tokens,
        document_tokens=receipt.savings.document_tokens,
        savings_ratio=receipt.savings.savings_ratio,
        savings_ratio_with_documents=receipt.savings.savings_ratio_with_documents,
        cached_tokens=receipt.savings.cached_tokens,
        took_ms=round(sum(receipt.timing_ms.values()), 1),
        latency_ms=None if stored.usage is None else stored.usage.latency_ms,
        efficiency=None if efficiency is None else efficiency.score,
        efficiency_basis=None if efficiency is None else efficiency.basis,
    )
