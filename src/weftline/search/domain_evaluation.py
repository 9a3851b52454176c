"""Evaluation of a domain: which example questions of its template find their evidence, at which rank."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from weftline.kernel.clock import from_micros
from weftline.kernel.errors import Conflict
from weftline.kernel.events import NewEvent
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation, shared_fields
from weftline.knowledge.model import Domain, DomainName, DomainNotFound
from weftline.knowledge.templates.model import DomainEvaluation, QuestionResult
from weftline.search.model import Query
from weftline.search.results import SCORE_DIGITS
from weftline.search.retriever import RetrievalResult, Retriever
from weftline.search.scope import RequestedScope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.knowledge.templates.model import DomainTemplate, ExampleQuestion
    from weftline.search.retriever import SearchHit

TOP_K = 10


class DomainWithoutTemplate(Conflict):
    """The domain was created without a template, so it has no example questions."""

    code = "DOMAIN_WITHOUT_TEMPLATE"
    hint = "Create a domain with `knowledge.create_domain` and template, and add the documents to it."
    related = ("knowledge",)


class EvaluateDomain(Request):
    """A domain to evaluate."""

    domain: DomainName


class EvaluationInfo(Response, omit_defaults=False):
    """How many of the example questions found their evidence in the first ten results; ``score`` is that part of them.

    ``rank``: the result with which the evidence is complete; 0: pinned documents contain it. ``documents``: documents
    of the domain at that time.
    """

    domain: str
    template: str
    version: int
    evaluated_at: datetime
    documents: int
    found: int
    score: float | None
    questions: tuple[QuestionResult, ...]


class _NoReports:
    """Reports nothing: a question without evidence is a result, not a search that somebody needs."""

    async def report(self, actor: Actor, event: NewEvent) -> None:
        del actor, event


@operation(
    "knowledge.evaluate_domain",
    heavy=True,
    tool="knowledge",
    action="evaluate_domain",
    http="POST /v1/domains/{domain}/evaluation",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    session=SessionUse.NONE,
    errors=(DomainNotFound, DomainWithoutTemplate),
)
async def evaluate_domain(request: EvaluateDomain, actor: Actor, retriever: Retriever) -> EvaluationInfo:
    """Search a domain for the example questions of its template: which of them find their evidence, at which rank.

    Weftline does this by itself once documents are indexed; show_domain has the latest result.
    """
    domain = await retriever.stores.read(actor, lambda stores: stores.domains.find(request.domain))
    if domain.template is None:
        raise DomainWithoutTemplate(f"The domain '{domain.domain}' was created without a template.")
    evaluation = await evaluate(domain, domain.template, actor, retriever)
    return EvaluationInfo(domain=domain.domain, **shared_fields(evaluation, EvaluationInfo))


async def evaluate(domain: Domain, template: DomainTemplate, actor: Actor, retriever: Retriever) -> DomainEvaluation:
    """Search a domain for the example questions of a template."""
    silent, now = replace(retriever, reporter=_NoReports()), retriever.now()
    scope, results = RequestedScope(domains=(domain.domain,)), []
    # One after the other: nobody waits for this, and other searches should not.
    for example in template.questions:
        query = Query(text=example.question, asked_at=now, top_k=TOP_K, low_confidence=True)
        (found,) = await silent.find_each(actor, [query], scope)
        results.append(_result(example, found))
    return DomainEvaluation(
        template=template.name,
        version=template.version,
        evaluated_at=from_micros(now),
        documents=domain.documents,
        found=sum(result.found for result in results),
        questions=tuple(results),
    )


def _result(example: ExampleQuestion, found: RetrievalResult) -> QuestionResult:
    rank, hit = next(_completing(example, found), (None, None))
    return QuestionResult(
        question=example.question,
        found=rank is not None,
        rank=rank,
        document_id=None if hit is None else hit.passage.chunk.item,
        confidence=round(found.ranking.confidence, SCORE_DIGITS),
    )


def _completing(example: ExampleQuestion, found: RetrievalResult) -> Iterator[tuple[int, SearchHit]]:
    """Yield each result up to which the evidence of a question is complete, with its rank; pinned ones have 0."""
    seen = ""
    ranked = [*((0, hit) for hit in found.pinned), *enumerate(found.hits, 1)]
    for rank, hit in ranked:
        seen += "\n" + _folded(f"{hit.passage.title}\n{hit.passage.text}")
        if _has_evidence(example, seen):
            yield rank, hit


def _has_evidence(example: ExampleQuestion, text: str) -> bool:
    some = not example.contains_any or any(_folded(phrase) in text for phrase in example.contains_any)
    return some and all(_folded(phrase) in text for phrase in example.contains)


def _folded(text: str) -> str:
    """Return a text in lower case with single spaces."""
    return " ".join(text.casefold().split())
