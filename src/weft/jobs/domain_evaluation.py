"""Evaluation of domains: runs the example questions of a template once the documents of a domain are indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from weft.capabilities.search.domain_evaluation import evaluate
from weft.jobs.scheduler import Work
from weft.kernel.identity import system_actor
from weft.storage.sql.access import SqlAccessStore
from weft.storage.sql.database import SYSTEM, AccessChanged
from weft.storage.sql.knowledge import SqlDomainStore, domains_to_evaluate

if TYPE_CHECKING:
    from weft.capabilities.knowledge.model import Domain
    from weft.capabilities.knowledge.templates.model import DomainEvaluation
    from weft.capabilities.search.retriever import Retriever
    from weft.jobs.runner import Lease, LeaseRunner
    from weft.jobs.scheduler import JobQueue
    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Transaction

EVALUATE = "knowledge.evaluate"
POLL_SECONDS = 30.0


class EvaluationJob:
    """Evaluates the domains whose documents have changed, and stores the results with them."""

    def __init__(self, runner: LeaseRunner, retriever: Retriever) -> None:
        self._runner = runner
        self._retriever = retriever

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the domains to evaluate; those with documents that wait for indexing are not among them."""
        found = await self._runner.database.read(SYSTEM, domains_to_evaluate)
        return [Work(tenant, (domain,)) for tenant, domain in found]

    async def run(self, work: Work) -> None:
        (domain,) = work.item

        async def evaluate_domain(lease: Lease) -> None:
            await self._evaluate(lease, domain)

        await self._runner.run(work.tenant, EVALUATE, evaluate_domain)

    async def _evaluate(self, lease: Lease, name: str) -> None:
        async def look(transaction: Transaction) -> tuple[Domain | None, int, Actor]:
            domains, epoch = SqlDomainStore(transaction), await SqlAccessStore(transaction).epoch()
            actor = structs.replace(system_actor(lease.tenant), epoch=epoch or 0)
            return await domains.find(name), await domains.content_changes(name), actor

        domain, changes, actor = await lease.read(look)
        if domain is None or domain.template is None:
            return
        try:
            async with lease.renewed():
                evaluation = await evaluate(domain, domain.template, actor, self._retriever)
        except AccessChanged:
            return  # due again at the next poll
        await lease.write(lambda transaction: _store(transaction, name, evaluation, changes))


async def _store(transaction: Transaction, name: str, evaluation: DomainEvaluation, changes: int) -> None:
    await SqlDomainStore(transaction).set_evaluation(name, evaluation, changes)
