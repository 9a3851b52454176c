"""Retrieval relevance: questions against known passages, and how many are found among the first ten results."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.validation.model import Figure, share_at_least
from weft.validation.temporary_weft import temporary_weft

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.capabilities.search.domain_evaluation import EvaluationInfo
    from weft.settings import Settings
    from weft.validation.temporary_weft import TenantCaller

_DOMAIN = "handbook"
# Each section of the documents is a passage of its own.
_CHUNKING = {"chunk_tokens": 64, "overlap_tokens": 0}
_TOP_K = 10
_LEAST_RECALL = 92.0


class KnownQuestion(NamedTuple):
    """A question, and the first sentence of the section that answers it."""

    question: str
    evidence: str


def known_documents() -> dict[str, str]:
    """Return the texts of the documents by name."""
    return {
        document["name"]: "\n\n".join(f"## {each['title']}\n\n{each['text']}" for each in document["section"])
        for document in _load()
    }


def known_questions() -> Iterator[KnownQuestion]:
    for document in _load():
        for section in document["section"]:
            evidence = section["text"].partition(". ")[0]
            yield from (KnownQuestion(question, evidence) for question in section["questions"])


async def measure(settings: Settings) -> Sequence[Figure]:
    questions = list(known_questions())
    async with temporary_weft(settings) as admin:
        await admin.call("knowledge.create_domain", domain=_DOMAIN, chunking=_CHUNKING)
        for name, text in known_documents().items():
            await admin.call("knowledge.add_document", domain=_DOMAIN, document_id=name, text=text)
        await admin.index()
        ranks = {known.question: await _rank(admin, known) for known in questions}
    missing = [question for question, rank in ranks.items() if rank is None]
    found = len(questions) - len(missing)
    return [
        share_at_least(f"recall@{_TOP_K} of {len(questions)} questions", found, len(questions), _LEAST_RECALL, missing),
        Figure(measured="questions whose first result answers them", value=list(ranks.values()).count(1)),
    ]


async def _rank(admin: TenantCaller, known: KnownQuestion) -> int | None:
    """Return the rank of the first result with the evidence, if it is among the first ten."""
    found = await admin.call("search.query", query=known.question, domains=[_DOMAIN], top_k=_TOP_K, low_confidence=True)
    ranks = (rank for rank, result in enumerate(found["results"], 1) if known.evidence in _one_line(result["text"]))
    return next(ranks, None)


def recall_of_domain(evaluation: EvaluationInfo) -> Sequence[Figure]:
    """Return the recall of the example questions of a domain of this installation."""
    total = len(evaluation.questions)
    missing = [result.question for result in evaluation.questions if not result.found]
    measured = f"recall@{_TOP_K} of {total} example questions"
    return [share_at_least(measured, evaluation.found, total, _LEAST_RECALL, missing)] if total else []


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _load() -> list[dict[str, Any]]:
    return list(tomllib.loads((files("weft.validation") / "questions.toml").read_text("utf-8"))["document"])
