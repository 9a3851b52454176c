"""Reports of model calls: usage and answer, compared with the prompt; the results are stored with its receipt."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import Conflict, PermissionDenied
from weftline.kernel.guards import warn_caller
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Success
from weftline.kernel.ports import Transactions
from weftline.kernel.thread_pools import ASSEMBLY_THREADS
from weftline.models.budget_limits import Budgets
from weftline.models.budgets import Charge
from weftline.models.language_models.answer_usage import Usage, normalise_usage
from weftline.models.language_models.catalog import Catalog, ModelInfo, Prices, cost_of
from weftline.models.metering import NewUsageEntry, UsageKey, UsageSums, nanos
from weftline.models.sql import ADDED_TOKENS, MAX_FACTOR, MIN_FACTOR, UsageFactor, UsageStore
from weftline.prompts.assembly.prompt import scored_prompt
from weftline.prompts.assembly.receipts import (
    Receipt,
    ReceiptNotFound,
    ReceiptPruned,
    ReportedUsage,
    StoredReceipt,
    no_receipt,
)
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.prompts.assembly.stored_prompts import StoredPrompt, StoredPrompts
from weftline.prompts.efficiency import AnswerScorer, Efficiency
from weftline.records.sql import RecordStore
from weftline.sessions.model import Session, find_session
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.models.language_models.answers import ModelAnswer


# Usage entries of a prompt: the call it was assembled for, what the provider reported, and its score.

_MICROS_PER_MILLI = 1_000
_MILLIONTHS = 1_000_000


def call_entry(receipt: Receipt) -> NewUsageEntry:
    """Return the entry of a new prompt, with its expected cost and efficiency."""
    return NewUsageEntry("call", receipt.receipt_id, receipt.created_at, key_of(receipt), _call_sums(receipt))


def report_entries(receipt: Receipt, reported: ReportedUsage) -> tuple[NewUsageEntry, ...]:
    """Return the entries of a report; its model counts from then on, so that the call moves there with its figures."""
    report = NewUsageEntry(
        "report",
        receipt.receipt_id,
        receipt.created_at,
        key_of(receipt, reported.model),
        _reported_sums(receipt, reported),
    )
    if report.key.model == key_of(receipt).model:
        return (report,)
    call = call_entry(receipt)
    away = call._replace(entry="move", sums=call.sums.negated())
    return away, call._replace(entry="move", key=report.key), report


def score_entry(receipt: Receipt, model: str | None, scored: Efficiency) -> NewUsageEntry:
    """Return the entry that replaces the expected efficiency of a call by the one that its answer shows."""
    sums = _score_sums(scored)
    if receipt.estimate is not None:
        sums = sums.plus(_score_sums(receipt.estimate).negated())
    return NewUsageEntry("score", receipt.receipt_id, receipt.created_at, key_of(receipt, model), sums)


def key_of(receipt: Receipt, model: str | None = None) -> UsageKey:
    """Return whose usage a prompt is; ``model`` is the one of the report, if there is one."""
    return UsageKey(
        "assembly", receipt.agent_id, receipt.session_id, receipt.step, model or receipt.model or "", receipt.teams
    )


def _call_sums(receipt: Receipt) -> UsageSums:
    saved, stages = receipt.savings, receipt.timing_ms
    sums = UsageSums(
        calls=1,
        unpriced_calls=int(saved.cost is None),
        total_tokens=receipt.tokens,
        naive_baseline_tokens=saved.naive_baseline_tokens,
        document_tokens=saved.document_tokens,
        engine_assembled_tokens=saved.engine_assembled_tokens,
        cached_tokens=saved.cached_tokens,
        capacity_tokens=receipt.limits.window_tokens,
        cost_nanos=nanos(saved.cost),
        expected_cost_nanos=nanos(saved.cost),
        naive_cost_nanos=nanos(saved.naive_cost),
        gather_micros=_micros(stages.get("gather")),
        retrieve_micros=_micros(stages.get("retrieve")),
        plan_micros=_micros(stages.get("plan")),
        render_micros=_micros(stages.get("render")),
    )
    return sums if receipt.estimate is None else sums.plus(_score_sums(receipt.estimate))


def _reported_sums(receipt: Receipt, reported: ReportedUsage) -> UsageSums:
    """Return the provider's figures, and what they change in those that were expected."""
    expected = receipt.savings.cost
    return UsageSums(
        reported_calls=1,
        unpriced_calls=int(reported.cost is None) - int(expected is None),
        total_tokens=reported.input_tokens + reported.output_tokens - receipt.tokens,
        input_tokens=reported.input_tokens,
        output_tokens=reported.output_tokens,
        cache_read_tokens=reported.cache_read_tokens,
        cache_write_tokens=reported.cache_write_tokens,
        cost_nanos=nanos(reported.cost) - nanos(expected),
        reported_cost_nanos=nanos(reported.cost),
        timed_calls=int(reported.latency_ms is not None),
        provider_micros=_micros(reported.latency_ms),
        graded_calls=int(reported.quality_score is not None),
        quality=round((reported.quality_score or 0) * _MILLIONTHS),
    )


def _score_sums(efficiency: Efficiency) -> UsageSums:
    return UsageSums(
        scored_calls=1,
        estimated_calls=int(efficiency.is_estimate),
        sent_tokens=efficiency.sent_tokens,
        useful_tokens=efficiency.useful_tokens,
        overhead_tokens=efficiency.overhead_tokens,
    )


def _micros(milliseconds: float | None) -> int:
    return round((milliseconds or 0) * _MICROS_PER_MILLI)


_DIGITS = 4


class UsageConflict(Conflict):
    """Other usage was reported for this receipt before."""

    code = "USAGE_CONFLICT"
    hint = "Report each call once. To report a repeated call, assemble its prompt again."
    related = ("emit_metrics", "assemble_context")


class UsageReport(NamedTuple):
    """What a caller reports for a call; ``usage`` is the provider's object."""

    usage: dict[str, Any]
    model: str | None
    latency_ms: float | None
    quality_score: float | None
    response_id: str | None = None


class MetricsEmitted(Success, kw_only=True):
    """The reported usage and the estimate. Money is in US dollars, null where no price is known.

    ``naive_baseline_tokens``: the conversation alone; ``context_engine_savings``: those of it that were not sent,
    negative if the prompt has more. ``document_tokens``: whole documents with evidence in the prompt. ``token_factor``:
    the learned factor of this model's estimate; null if tokens are counted exactly, or until enough calls were
    reported. ``held``: what of the report does not fit the prompt of the receipt; budgets keep what was estimated for
    the call, and admins are told. ``efficiency``: how much of the prompt the answer used; an estimate if no answer was
    reported. `receipt.show` has it for each item.
    """

    receipt_id: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    estimated_tokens: int
    deviation: float
    cost: float | None
    naive_cost: float | None
    naive_baseline_tokens: int
    document_tokens: int
    engine_assembled_tokens: int
    context_engine_savings: int
    savings_ratio: float
    savings_ratio_with_documents: float
    token_factor: float | None
    latency_ms: float | None
    quality_score: float | None
    held: tuple[str, ...] = ()
    efficiency: Efficiency | None = None


class StoredReport(NamedTuple):
    """The answer to a report, and what its caller should be warned of."""

    metrics: MetricsEmitted
    warning: str | None


class CallReports(msgspec.Struct, frozen=True):
    """Takes reports of model calls. An answer is compared with its prompt before anything is written."""

    transactions: Transactions[UsageReports]
    scorer: AnswerScorer
    prices: Prices

    async def add(
        self, actor: Actor, session_id: str, receipt_id: str, report: UsageReport, answer: ModelAnswer | None
    ) -> MetricsEmitted:
        """Store a report; the same one again changes nothing, and the first answer counts."""
        await self.prices.load()
        scored = None
        if answer is not None:
            prompt = await self.transactions.read(
                actor, lambda reports: reports.prompt(session_id, receipt_id), heavy=True
            )
            if prompt is not None:
                items = await ASSEMBLY_THREADS.run(scored_prompt, prompt)
                scored = await self.scorer.score(items, answer)
        stored = await self.transactions.write(
            actor, lambda reports: reports.add(session_id, receipt_id, report, scored)
        )
        if stored.warning is not None:
            warn_caller(stored.warning)
        return stored.metrics


class UsageReports(msgspec.Struct, frozen=True):
    """Takes reports for the caller's own receipts, and those of agents below it."""

    receipts: ReceiptStore
    windows: Windows
    factors: UsageFactor
    catalog: Catalog
    prices: Prices
    clock: Clock
    budgets: Budgets
    usage: UsageStore
    records: RecordStore

    async def prompt(self, session_id: str, receipt_id: str) -> StoredPrompt | None:
        """Return the prompt to compare an answer with; None if that was done, or the caller may not read its texts."""
        _, found = await self._find(session_id, receipt_id)
        if found.scored is not None:
            return None
        with contextlib.suppress(ReceiptPruned, ReceiptNotFound, PermissionDenied):
            return await StoredPrompts(self.receipts, self.windows, self.records, self.catalog).of(found)
        return None

    async def add(
        self, session_id: str, receipt_id: str, report: UsageReport, scored: Efficiency | None = None
    ) -> StoredReport:
        """Store a report; the same one again changes nothing."""
        session, found = await self._find(session_id, receipt_id)
        receipt = found.receipt
        usage = normalise_usage(report.usage)
        model = report.model or receipt.model or ""
        reported = self._reported(report, usage, model, self._implausible(receipt, usage, model))
        counts = not reported.is_inflated(receipt.counting.raw_tokens)
        is_new = found.usage is None and await self.receipts.report(receipt_id, reported, counts=counts)
        if not is_new:
            reported = await self._known(found, session_id, reported)
        elif not reported.held:
            await self._settle(receipt, usage, model)
        efficiency = found.efficiency
        if scored is not None and await self.receipts.score(receipt_id, scored):
            is_moved = not reported.is_inflated(receipt.counting.raw_tokens)
            await self.usage.add(score_entry(receipt, model if is_moved else None, scored))
            efficiency = scored
        factor = None if receipt.counting.exact else await self.factors.factor(receipt.agent_id, model)
        metrics = _metrics(receipt, reported, factor, efficiency)
        if is_new:
            await self._publish(session, receipt, reported, metrics)
            if counts:
                await self.usage.add(*report_entries(receipt, reported))
        return StoredReport(metrics, _held_text(reported.held) if is_new and reported.held else None)

    def _reported(self, report: UsageReport, usage: Usage, model: str, held: tuple[str, ...]) -> ReportedUsage:
        """Return a report as it is stored, with its price."""
        cost = cost_of(self.prices, self.catalog.find(model), usage, self.clock.now())
        return ReportedUsage(
            model=model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost=None if cost is None else float(cost),
            latency_ms=report.latency_ms,
            quality_score=report.quality_score,
            reported_at=to_micros(self.clock.now()),
            response_id=report.response_id,
            held=held,
        )

    async def _known(self, found: StoredReceipt, session_id: str, again: ReportedUsage) -> ReportedUsage:
        """Return the usage that was reported before; raises UsageConflict if it is another one."""
        receipt_id = found.receipt.receipt_id
        if found.usage is None:
            # Reported by another call since it was read.
            _, found = await self._find(session_id, receipt_id)
        if found.usage is None or not _same(found.usage, again):
            raise UsageConflict(f"Other usage was reported for '{receipt_id}'.", resource_id=receipt_id)
        return found.usage

    async def _settle(self, receipt: Receipt, usage: Usage, model: str) -> None:
        """Correct the budgets of a call and learn from its tokens."""
        correction = self._charge(receipt, usage, model).less(receipt.charge)
        await self.budgets.correct(receipt.budgets, correction, receipt.created_at)
        if model and not receipt.counting.exact:
            await self.factors.learn(receipt.agent_id, model, receipt.counting.raw_tokens, usage.input_tokens)

    def _implausible(self, receipt: Receipt, usage: Usage, model: str) -> tuple[str, ...]:
        """Return what of a report does not fit its receipt: agents report it, and share budgets with others."""
        info = self.catalog.find(receipt.model or model)
        held = implausible_tokens(usage, receipt, info)
        if model != receipt.model and receipt.model is not None:
            prices = [
                cost_of(self.prices, self.catalog.find(name), usage, self.clock.now())
                for name in (model, receipt.model)
            ]
            # A cheaper one would give others' budgets back what was spent, a dearer one spend them.
            if None not in prices and prices[0] != prices[1]:
                held = (*held, "model")
        return held

    async def _publish(
        self, session: Session, receipt: Receipt, reported: ReportedUsage, metrics: MetricsEmitted
    ) -> None:
        """Publish the events of a report."""
        data = {name: value for name, value in msgspec.to_builtins(metrics).items() if name != "success"}
        event = self.windows.event("model_call.metered", session, receipt.agent_id, [receipt.agent_id], data)
        await self.windows.outbox.publish(structs.replace(event, native_id=reported.response_id))
        if metrics.held:
            # For admins only: who reports what cannot be learns nothing of what is checked but its own answer.
            fields = ("receipt_id", "model", "input_tokens", "output_tokens", "estimated_tokens", "held")
            told = self.windows.event(
                "model_call.held", session, receipt.agent_id, [], {name: data[name] for name in fields}
            )
            await self.windows.outbox.publish(told)

    def _charge(self, receipt: Receipt, usage: Usage, model: str) -> Charge:
        """Return what a reported call adds to its budgets."""
        cost = cost_of(self.prices, self.catalog.find(model), usage, self.clock.now())
        # A model without a known price, named only in the report, does not make the call free.
        charged = receipt.savings.cost if cost is None else float(cost)
        return Charge.of_call(usage.input_tokens + usage.output_tokens, charged)

    async def _find(self, session_id: str, receipt_id: str) -> tuple[Session, StoredReceipt]:
        session = await find_session(session_id, self.windows.actor, self.windows.sessions)
        found = await self.receipts.find(receipt_id)
        if found is None or found.receipt.session_id != session_id or not await self._may_open(found.receipt.agent_id):
            raise no_receipt(receipt_id)
        return session, found

    async def _may_open(self, agent_id: str) -> bool:
        agent = await self.windows.access.principal(agent_id)
        return agent is not None and await self.windows.may_open(agent)


def implausible_tokens(usage: Usage, receipt: Receipt, info: ModelInfo) -> tuple[str, ...]:
    """Return which reported tokens a call cannot have used.

    The input lies within the bounds of the learned factor of estimates; a small prompt may have more, since providers
    add some tokens to each request. The output has the limit that the prompt was sent with.
    """
    estimated = receipt.counting.raw_tokens
    least, most = round(estimated * MIN_FACTOR), max(round(estimated * MAX_FACTOR), estimated + ADDED_TOKENS)
    held = [] if least <= usage.input_tokens <= most else ["input_tokens"]
    if usage.cache_read_tokens + usage.cache_write_tokens > usage.input_tokens:
        held.append("cache_tokens")
    if usage.output_tokens > (receipt.max_output_tokens or info.max_output_tokens):
        held.append("output_tokens")
    return tuple(held)


def _held_text(held: Sequence[str]) -> str:
    return (
        f"The report does not fit the assembled prompt ({', '.join(held)}), so it is held: budgets keep what was "
        "estimated for this call, and admins are told."
    )


def _metrics(
    receipt: Receipt,
    reported: ReportedUsage,
    factor: float | None,
    efficiency: Efficiency | None,
) -> MetricsEmitted:
    """Return the answer to a report."""
    savings = receipt.savings
    return MetricsEmitted(
        receipt_id=receipt.receipt_id,
        model=reported.model,
        input_tokens=reported.input_tokens,
        output_tokens=reported.output_tokens,
        cache_read_tokens=reported.cache_read_tokens,
        cache_write_tokens=reported.cache_write_tokens,
        estimated_tokens=receipt.tokens,
        deviation=round(reported.input_tokens / receipt.tokens - 1, _DIGITS) if receipt.tokens else 0.0,
        cost=reported.cost,
        naive_cost=savings.naive_cost,
        naive_baseline_tokens=savings.naive_baseline_tokens,
        document_tokens=savings.document_tokens,
        engine_assembled_tokens=savings.engine_assembled_tokens,
        context_engine_savings=savings.naive_baseline_tokens - savings.engine_assembled_tokens,
        savings_ratio=savings.savings_ratio,
        savings_ratio_with_documents=savings.savings_ratio_with_documents,
        token_factor=factor,
        latency_ms=reported.latency_ms,
        quality_score=reported.quality_score,
        held=reported.held,
        efficiency=None if efficiency is None else structs.replace(efficiency, items=()),
    )


def _same(one: ReportedUsage, other: ReportedUsage) -> bool:
    """Tell whether two reports say the same; prices change with time."""
    again, before = (structs.replace(each, reported_at=0, cost=None, held=()) for each in (one, other))
    return again == before
