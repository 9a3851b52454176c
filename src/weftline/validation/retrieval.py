"""Retrieval relevance: known passages, and how many are found among the first ten results.

Two rulers. Messages of others are searched by two of their content words, drawn at random; own messages can be
searched in their place. The questions about a handbook share few words with it, but both have the same authors as
Weftline.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.validation.compaction import Material, Passages, as_events, content_words, packaged
from weftline.validation.model import Figure, share_at_least
from weftline.validation.temporary_weftline import temporary_weftline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from weftline.search.domain_evaluation import EvaluationInfo
    from weftline.settings import Settings
    from weftline.validation.compaction import Said
    from weftline.validation.temporary_weftline import TenantCaller

_DOMAIN = "handbook"
# Each section of the documents is a passage of its own.
_CHUNKING = {"chunk_tokens": 64, "overlap_tokens": 0}
_TOP_K = 10
_LEAST_RECALL = 92.0
_SESSION = "conversation"
_MESSAGES, _KNOWN_MESSAGES = 200, 100
# As people search. Both words of a shorter message may be common.
_WORDS, _MIN_WORDS = 2, 8
_BATCH = 200
_SHOWN = 60


class KnownQuestion(NamedTuple):
    """A question, and what answers it: the first sentence of a section, or a message."""

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


async def measure(settings: Settings, material: Material | None = None) -> Sequence[Figure]:
    material = material or Material()
    return [*await _found_messages(settings, material), *([] if material.own else await _found_sections(settings))]


async def _found_messages(settings: Settings, material: Material) -> list[Figure]:
    """Search messages by two of their words; nothing if all of them are short."""
    draw = material.draw("retrieval")
    said = list(material.own) or draw.sample(packaged(), _MESSAGES)
    known = list(known_messages(said, draw))[:_KNOWN_MESSAGES]
    missing, first = [], 0
    async with temporary_weftline(settings) as admin:
        await admin.call("session.create", session_id=_SESSION, purpose="A validation.")
        events = list(as_events(said))
        for start in range(0, len(events), _BATCH):
            await admin.call("context.ingest", session_id=_SESSION, events=events[start : start + _BATCH])
        await admin.index()
        for query, message in known:
            found = await admin.call(
                "search.query", query=query, session_id=_SESSION, top_k=_TOP_K, low_confidence=True
            )
            ranks = [rank for rank, result in enumerate(found["results"], 1) if _is_of(result["text"], message)]
            first += ranks[:1] == [1]
            if not ranks:
                missing.append(f"{message[:_SHOWN]}...")
    measured = f"recall@{_TOP_K} of {len(known)} messages by two of their words"
    recall = share_at_least(measured, len(known) - len(missing), len(known), _LEAST_RECALL, missing)
    return [recall, Figure(measured="messages that are the first result", value=first)] if known else []


def known_messages(said: Sequence[Said], draw: Random) -> Iterator[KnownQuestion]:
    """Yield messages in random order with two of their words, which at most ten messages have together."""
    words = {each.message: set(content_words(each.message)) for each in said}
    for message in draw.sample(list(words), len(words)):
        if len(words[message]) >= _MIN_WORDS:
            query = draw.sample(sorted(words[message]), _WORDS)
            if sum(each.issuperset(query) for each in words.values()) <= _TOP_K:
                yield KnownQuestion(" ".join(query), message)


def _is_of(passage: str, message: str) -> bool:
    """Tell whether a passage is a message or a part of it."""
    return Passages([message]).have(passage) if passage else False


async def _found_sections(settings: Settings) -> list[Figure]:
    questions = list(known_questions())
    async with temporary_weftline(settings) as admin:
        await admin.call("knowledge.create_domain", domain=_DOMAIN, chunking=_CHUNKING)
        for name, text in known_documents().items():
            await admin.call("knowledge.add_document", domain=_DOMAIN, document_id=name, text=text)
        await admin.index()
        ranks = {known.question: await _rank(admin, known) for known in questions}
    missing = [question for question, rank in ranks.items() if rank is None]
    found = len(questions) - len(missing)
    return [
        share_at_least(
            f"recall@{_TOP_K} of {len(questions)} questions about a handbook",
            found,
            len(questions),
            _LEAST_RECALL,
            missing,
        ),
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
    return list(tomllib.loads((files("weftline.validation") / "questions.toml").read_text("utf-8"))["document"])
