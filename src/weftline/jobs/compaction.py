"""Runs compactions: a frozen cut of the window is read, the view computed without a transaction, then applied.

The agent goes on meanwhile. A killed process leaves the view before; another one runs the compaction again when the
lease has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from weftline.access.authentication import identify_local
from weftline.access.sql import AccessStore
from weftline.jobs.runner import LeaseLost, attempt
from weftline.jobs.scheduler import Work
from weftline.kernel.errors import AuthenticationError
from weftline.kernel.identity import principal_of
from weftline.kernel.job_store import JobStore
from weftline.kernel.thread_pools import COMPACTION_THREADS, short_turns
from weftline.safety.approvals.model import TooManyApprovals
from weftline.safety.approvals.service import Approvals, CallToHold
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.unit_of_work import SystemTransactions
from weftline.windows.compaction.model import CompactionState
from weftline.windows.compaction.model_summariser import ModelSummariser
from weftline.windows.compaction.operations import ApplyCompaction, apply_compaction
from weftline.windows.compaction.runs import CompactionRuns, reason_to_skip
from weftline.windows.compaction.service import hold_reason, with_figures
from weftline.windows.compaction.sql import CompactionStore, due_compactions

if TYPE_CHECKING:
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue, Scheduler
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.unit_of_work import Injector
    from weftline.windows.compaction.compactor import Compactor
    from weftline.windows.compaction.model import Compaction, CompactionDraft
    from weftline.windows.compaction.runs import FrozenCut, Summarisers

COMPACT = "compaction.run"
# Few of them compute at a time; the others wait for a language model.
CONCURRENCY = 8
PER_TENANT = 1
# What is queued wakes the job; the poll finds what a killed process left.
POLL_SECONDS = 10.0
# The transaction that queues a compaction has ended by then.
_WAKE_SECONDS = 0.1
# How often a caller that waits looks for the result of another process.
_LOOK_SECONDS = 0.2
_LEASE = "compaction:"
_UNFINISHED = frozenset({CompactionState.QUEUED, CompactionState.RUNNING})


class CompactionJob:
    """Runs the compactions of all tenants; each is leased, so that one process at a time does it."""

    def __init__(
        self,
        runner: LeaseRunner,
        injector: Injector,
        compactor: Compactor,
        summarisers: Summarisers,
        scheduler: Scheduler,
    ) -> None:
        self._runner = runner
        self._injector = injector
        self._compactor = compactor
        self._summarisers = summarisers
        self._scheduler = scheduler
        self._runs = SystemTransactions(runner.database, injector, CompactionRuns)
        # Callers of this process that wait for a result.
        self._waiting: dict[tuple[str, str], asyncio.Event] = {}

    def wake(self) -> None:
        self._scheduler.wake(COMPACT, _WAKE_SECONDS)

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the oldest compaction of each tenant that nobody runs."""
        found = await self._runner.database.read(SYSTEM, lambda tx: due_compactions(tx, _LEASE, self._runner.now))
        return [Work(tenant, (compaction_id,)) for tenant, compaction_id in found]

    async def perform(self, work: Work) -> bool:
        """Run a compaction; return that there may be more of its tenant."""
        await self._perform(work.tenant, *work.item)
        return True

    async def run(self, actor: Actor, compaction_id: str, wait_seconds: float) -> None:
        """Return when the compaction is finished, or after this time: then it goes on.

        A one-shot command, which has no scheduler, runs it itself.
        """
        if wait_seconds <= 0:
            return
        if not self._scheduler.runs(COMPACT):
            await attempt(COMPACT, self._perform(actor.tenant, compaction_id), tenant=actor.tenant)
            return
        self._scheduler.wake(COMPACT, 0.0)
        key = (actor.tenant, compaction_id)
        finished = self._waiting.setdefault(key, asyncio.Event())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    while await self._is_unfinished(*key):
                        await _wait(finished, _LOOK_SECONDS)
                        # A run may end without a result, such as one that another process has taken over.
                        finished.clear()
        finally:
            self._waiting.pop(key, None)

    async def _is_unfinished(self, tenant: str, compaction_id: str) -> bool:
        found = await self._runner.database.read(Scope(tenant), lambda tx: CompactionStore(tx).find(compaction_id))
        return found is not None and found.state in _UNFINISHED

    async def _perform(self, tenant: str, compaction_id: str) -> None:
        try:
            await self._runner.run(tenant, f"{_LEASE}{compaction_id}", partial(self._run, compaction_id))
        finally:
            if (finished := self._waiting.get((tenant, compaction_id))) is not None:
                finished.set()

    async def _run(self, compaction_id: str, lease: Lease) -> None:
        started = await lease.write(partial(self._start, compaction_id, lease.name))
        if started is None:
            return
        try:
            await self._compact(started, lease)
        except LeaseLost:
            raise
        except Exception:
            await lease.write(partial(self._count_failure, started, lease.name))
            raise

    async def _compact(self, compaction: Compaction, lease: Lease) -> None:
        cut = await lease.read(self._runs.doing(lambda runs: runs.freeze(compaction)), heavy=True)
        if cut is None:
            await lease.write(partial(self._fail, compaction.compaction_id, lease.name))
            return
        async with lease.renewed():
            summariser = self._summarisers.of(lease.tenant, cut)
            with short_turns():
                draft = await self._compactor.compact(cut.source, compaction.strategy, summariser)
                if isinstance(summariser, ModelSummariser):
                    draft = draft._replace(model_usage=summariser.usage)
                skip = await COMPACTION_THREADS.run(reason_to_skip, cut, draft)
        await lease.write(partial(self._finish, cut, draft, skip, lease.name))

    async def _start(self, compaction_id: str, lease: str, transaction: Transaction) -> Compaction | None:
        runs = await self._for_requester(compaction_id, transaction)
        started = await runs.start(compaction_id)
        if started is None:
            await JobStore(transaction).drop(lease)
        return started

    async def _count_failure(self, compaction: Compaction, lease: str, transaction: Transaction) -> None:
        runs = await self._for_requester(compaction.compaction_id, transaction)
        if await runs.count_failure(compaction):
            await JobStore(transaction).drop(lease)

    async def _fail(self, compaction_id: str, lease: str, transaction: Transaction) -> None:
        await JobStore(transaction).drop(lease)
        await (await self._for_requester(compaction_id, transaction)).fail(compaction_id)

    async def _finish(
        self, cut: FrozenCut, draft: CompactionDraft, skip: str | None, lease: str, transaction: Transaction
    ) -> None:
        """Apply, hold or discard a result, and end the lease, in one transaction."""
        compaction_id = cut.compaction.compaction_id
        runs = await self._for_requester(compaction_id, transaction)
        await JobStore(transaction).drop(lease)
        session = await runs.to_finish(cut, draft)
        if session is None:
            return
        compactions = runs.compactions
        if skip is not None:
            await compactions.end(compaction_id, CompactionState.SKIPPED, skip, draft.degraded)
        elif await runs.needs_review(cut.compaction, session):
            await self._hold(cut, draft, runs, transaction)
        else:
            await compactions.finish(compaction_id, draft, cut=cut.number)

    async def _hold(
        self, cut: FrozenCut, draft: CompactionDraft, runs: CompactionRuns, transaction: Transaction
    ) -> None:
        """Request the approval of a human, on behalf of the window's agent; the view is kept until the decision."""
        compaction, compactions = cut.compaction, runs.compactions
        finished = with_figures(compaction, draft, self._runner.now)
        request = ApplyCompaction(compaction_id=compaction.compaction_id)
        call = CallToHold(apply_compaction, request, "approval", hold_reason(finished), compaction.session_id)
        try:
            agent = await identify_local(compaction.agent_id, AccessStore(transaction))
            held = await self._injector.build(Approvals, agent, transaction).hold(call)
        except (AuthenticationError, TooManyApprovals) as error:
            reason = f"It needs a review, which cannot be requested. {error.message}"
            await compactions.end(compaction.compaction_id, CompactionState.SKIPPED, reason, draft.degraded)
        else:
            await compactions.finish(compaction.compaction_id, draft, cut=cut.number, held_as=held.approval_id)

    async def _for_requester(self, compaction_id: str, transaction: Transaction) -> CompactionRuns:
        """Return the services of a run, whose records and events name the one who caused the compaction."""
        found = await CompactionStore(transaction).find(compaction_id)
        if found is None:
            return self._runs.within(transaction)
        try:
            actor = await identify_local(principal_of(found.requested_by), AccessStore(transaction))
        except AuthenticationError:
            return self._runs.within(transaction)
        return self._injector.build(CompactionRuns, actor, transaction)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
