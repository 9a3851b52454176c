"""Evaluation of domains: runs the example questions of a template once the documents of a domain are indexed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from msgspec import structs

from weftline.access.sql import AccessStore
from weftline.insight.alerts.service import Alerts
from weftline.jobs.scheduler import Work
from weftline.kernel.alerts import TENANT_SUBJECT
from weftline.kernel.identity import system_actor
from weftline.knowledge.sql import DomainStore, domains_to_evaluate
from weftline.search.domain_evaluation import evaluate
from weftline.storage.sql.database import SYSTEM, AccessChanged
from weftline.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.knowledge.model import Domain
    from weftline.search.retriever import Retriever
    from weftline.storage.sql.unit_of_work import Injector

EVALUATE = "knowledge.evaluate"
POLL_SECONDS = 30.0
# Of domains that every member of a tenant may see.
_LOWEST_CLEARANCE = 1


class EvaluationJob:
    """Evaluates the domains whose documents have changed, and stores the results with them."""

    def __init__(self, runner: LeaseRunner, retriever: Retriever, injector: Injector) -> None:
        self._runner = runner
        self._alerts = SystemTransactions(runner.database, injector, Alerts)
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
            domains, epoch = DomainStore(transaction), await AccessStore(transaction).epoch()
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
        before = None if domain.evaluation is None else domain.evaluation.score

        async def store(transaction: Transaction) -> None:
            await DomainStore(transaction).set_evaluation(name, evaluation, changes)
            await _compare(self._alerts.within(transaction), domain, before, evaluation.score)

        await lease.write(store)


async def _compare(alerts: Alerts, domain: Domain, before: float | None, score: float | None) -> None:
    """Open an alert if fewer questions find their evidence than before, until as many do again."""
    about = _alert_name(domain)
    active = await alerts.store.active("quality.dropped", TENANT_SUBJECT, about)
    bar = before if active is None else active.data["before"]
    if score is None or bar is None or score >= bar:
        await alerts.clear("quality.dropped", TENANT_SUBJECT, about=about)
    else:
        await alerts.raise_("quality.dropped", TENANT_SUBJECT, {"score": score, "before": bar}, about=about)


def _alert_name(domain: Domain) -> str:
    """Return the name of a domain in alerts, which every admin reads: of a closed one, a digest."""
    if domain.clearance <= _LOWEST_CLEARANCE:
        return f"the domain {domain.domain}"
    return f"a domain ({hashlib.sha256(domain.domain.encode()).hexdigest()[:8]})"
