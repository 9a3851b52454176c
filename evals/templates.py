"""Templates of knowledge bases against domains without one: is more or less of the gold evidence found?

The same documents are added to two domains, one created from the template of their kind and one with defaults, and the
same questions are asked in both, as an agent asks them. ``passages``: the share of the gold documents among those of
the ten best results. ``context``: the share of the gold evidence (documents, or lines of the gold passages) in a
context of 2,000 tokens, so that a template gains nothing by larger chunks. ``example_questions``: how many questions of
the template found their evidence in the evaluation that follows ingestion; they were written before these documents
were looked at, and not all documents of a kind answer them.

The data has no contracts, notes, code or runbooks. Reports of companies stand for contracts: long texts of numbered
clauses, without headings. Abstracts stand for papers: they fit into one chunk, so that only what else a template brings
could change the result.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from evals.assembly_sets import lines_of, long_documents
from evals.product import CachedEmbedder, open_product
from evals.results import Row
from weftline.jobs.ingestion import EVALUATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from evals.product import Product

_CONTEXT_TOKENS, _RESULTS = 2_000, 10
_PLAIN, _TEMPLATE = "plain", "from-template"
# A part of the data, since all of it has to be embedded twice: one in so many questions and other documents, and the
# beginning of a long text.
_TASK_STEP, _ARTICLE_STEP = 2, 6
_CLAIM_STEP, _ABSTRACT_STEP = 16, 50
_MAX_CHARACTERS = 150_000
# As long as the query of a search may be; some scripts of customers are longer.
_MAX_QUERY = 2_000
_DIGITS = 3


class AskedQuestion(NamedTuple):
    """A question; the evidence is in gold documents, or is lines that a context has to contain."""

    text: str
    documents: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class TemplateCase:
    """Documents of the kind that a template is for, by id, and questions about them."""

    name: str
    template: str
    documents: Mapping[str, str]
    questions: Sequence[AskedQuestion]
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Found(NamedTuple):
    """Mean shares of the evidence that a domain returns; ``passages`` is None where the evidence is lines."""

    passages: float | None
    context: float


def templates(folder: Path | None) -> Iterator[Row]:
    if folder is not None:
        yield from asyncio.run(_measured([case(folder) for case in _CASES]))


async def _measured(cases: Sequence[TemplateCase]) -> list[Row]:
    embedder, rows = CachedEmbedder(), list[Row]()
    for case in cases:
        async with open_product(embedder) as product:
            rows += await _compared(product, case)
    return rows


async def _compared(product: Product, case: TemplateCase) -> list[Row]:
    """Return the figures of a template, with those of a domain without one as their baseline."""
    await product.add_documents(_PLAIN, case.documents)
    await product.add_documents(_TEMPLATE, case.documents, template=case.template, metadata=case.metadata)
    await product.index()
    plain, from_template = [await _ask(product, domain, case.questions) for domain in (_PLAIN, _TEMPLATE)]
    await product.app.scheduler.drain(EVALUATE)
    evaluation = (await product.call("knowledge.show_domain", domain=_TEMPLATE))["evaluation"]
    name, asked = f"templates.{case.template}.{case.name}", len(evaluation["questions"])
    rows = [_row(f"{name}.context", from_template.context, plain.context, f"gold in {_CONTEXT_TOKENS:,} tokens")]
    if from_template.passages is not None and plain.passages is not None:
        rows.append(_row(f"{name}.passages", from_template.passages, plain.passages, f"recall@{_RESULTS}"))
    rows.append(Row(f"{name}.example_questions", evaluation["found"], f"of {asked} found", None, None, None))
    return rows


def _row(name: str, value: float, baseline: float, unit: str) -> Row:
    value, baseline = round(value, _DIGITS), round(baseline, _DIGITS)
    return Row(name, value, unit, baseline, "not below a plain domain", value >= baseline)


async def _ask(product: Product, domain: str, questions: Sequence[AskedQuestion]) -> Found:
    found = [await _found(product, domain, question) for question in questions]
    passages = [each.passages for each in found if each.passages is not None]
    return Found(fmean(passages) if passages else None, fmean(each.context for each in found))


async def _found(product: Product, domain: str, question: AskedQuestion) -> Found:
    asked = {"query": question.text, "domains": [domain], "sources": ["document"]}
    context = await product.call("search.get_context", **asked, max_tokens=_CONTEXT_TOKENS, explain=True)
    if question.lines:
        text = _spaced(context["context"])
        return Found(None, sum(_spaced(line) in text for line in question.lines) / len(question.lines))
    results = await product.call("search.query", **asked, top_k=_RESULTS, low_confidence=True)
    shown = {each["document_id"] for each in results["results"]}
    cited = {_document_of(each) for each in context["citations"]}
    gold = question.documents
    return Found(*(len(known.intersection(gold)) / len(gold) for known in (shown, cited)))


def _document_of(citation: Mapping[str, Any]) -> str:
    """Return the id of the document that a citation is from."""
    uri = str(citation["source_refs"][0]["uri"])
    return uri.partition("?")[0].rpartition("/")[2]


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _retrieved(folder: Path, name: str, template: str, step: int, other_step: int) -> TemplateCase:
    """Return documents with questions whose gold are documents: of the questions one in ``step``.

    Of the documents that are no gold, one in ``other_step`` is added.
    """
    chosen = lines_of(folder, f"doc_retrieval/{name}_queries")[::step]
    gold = {each for line in chosen for each in line["gold_ids"]}
    lines = lines_of(folder, f"doc_retrieval/{name}_docs")
    kept = [line for place, line in enumerate(lines) if line["id"] in gold or place % other_step == 0]
    # Ids of the data are not ids of documents: they have parentheses.
    ids = {line["id"]: f"d{place}.md" for place, line in enumerate(kept)}
    documents = {ids[line["id"]]: f"# {line['title']}\n\n{line['text']}" for line in kept}
    questions = [
        AskedQuestion(line["query"][:_MAX_QUERY], documents=tuple(ids[each] for each in sorted({*line["gold_ids"]})))
        for line in chosen
    ]
    return TemplateCase(name, template, documents, questions)


def _long(folder: Path, name: str, template: str, **metadata: str) -> TemplateCase:
    """Return a long text with the questions whose evidence is in its beginning."""
    known = long_documents(folder, "chunkeval")
    text = known.documents[name][:_MAX_CHARACTERS]
    questions = [
        AskedQuestion(each.task, lines=each.evidence)
        for each in known.questions
        if each.source == name and all(line in text for line in each.evidence)
    ]
    return TemplateCase(name, template, {f"{name}.md": text}, questions, metadata)


_CASES: tuple[Callable[[Path], TemplateCase], ...] = (
    lambda folder: _retrieved(folder, "tau2_banking", "support_handbook", _TASK_STEP, _ARTICLE_STEP),
    lambda folder: _long(folder, "chatlogs", "support_handbook"),
    lambda folder: _retrieved(folder, "scifact", "research_papers", _CLAIM_STEP, _ABSTRACT_STEP),
    lambda folder: _long(folder, "state_of_the_union", "research_papers"),
    lambda folder: _long(folder, "finance", "legal_contracts", contract_type="other"),
)
