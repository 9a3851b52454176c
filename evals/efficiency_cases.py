"""Answers with known evidence: prompts that the product assembles, the reported answer, and the items it is based on.

Conversations are ingested as events, documents added to a domain, and the answers of the sets are taken as the model's:
short ones to questions (LoCoMo, bfcl_memory) and the same with the question restated, statements about conversations
(observations of LoCoMo, single facts of AMI), summaries (AMI, QMSum), claims about papers (SciFact) and quotations
(chunkeval). Questions also have the prompt that would be sent without Weft: the whole conversation or document.
"""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from evals.assembly_sets import lines_of, meetings, sample, sessions_of, turns_retrieved
from evals.product import CachedEmbedder, open_product
from weft.capabilities.assembly.prompt_items import prompt_items, task_text
from weft.capabilities.assembly.receipts import blocks_with_texts
from weft.capabilities.efficiency.model import PromptItem
from weft.kernel.tokens import approximate_tokens
from weft.storage.sql.database import Scope
from weft.storage.sql.receipts import SqlReceiptStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from evals.assembly_sets import Turn
    from evals.product import Product

_TENANT = "default"
_SAMPLE = 120
_BUDGET = 4_000
# A whole meeting.
_LONG_BUDGET = 40_000
_PAPERS = 250
_DOCUMENTS = 9
# What a question begins with that an answer does not repeat.
_ASKING = re.compile(
    r"^(when|what|where|who|which|why|how( (many|much|long|often))?) "
    r"((did|does|do|is|was|are|were|has|have|had|will|would|can|could) )?",
    re.IGNORECASE,
)
_MEETING = "Summarise the meeting: what was discussed and decided, who does what, and which problems are open."


class AnswerCase(NamedTuple):
    """An answer to a prompt, and the refs of the items that it is based on. ``group``: not divided between halves.

    ``naive`` are the items of the prompt without Weft, everything that the source has, where the answer needs little of
    it.
    """

    name: str
    group: str
    task: str
    answer: str
    items: tuple[PromptItem, ...]
    scores: dict[str, float]
    gold: frozenset[str]
    naive: tuple[PromptItem, ...] = ()


class _Asked(NamedTuple):
    """A question or task about a source, with the answer; ``gold`` are texts or event ids."""

    source: str
    task: str
    answer: str
    gold: frozenset[str]


async def answer_cases(folder: Path) -> list[AnswerCase]:
    """Return the cases of all sets."""
    embedder = CachedEmbedder()
    found: list[AnswerCase] = []
    for name in ("locomo", "bfcl_memory"):
        found += await _conversations(folder, name, embedder)
    found += await _meetings(folder, embedder)
    for name in ("qmsum", "chunkeval"):
        found += await _documents(folder, name, embedder)
    return found + await _papers(folder, embedder)


async def _conversations(folder: Path, name: str, embedder: CachedEmbedder) -> list[AnswerCase]:
    each = turns_retrieved(folder, name)
    questions = [
        _Asked(line["conv"], line["query"], _first(line["answer"]), frozenset(map(_event_id, line["gold_ids"])))
        for line in lines_of(folder, f"conv_retrieval/{name}_queries")
        if line["category"] != "adversarial" and line["answer"]
    ]
    observations = [
        _Asked(line["conv"], "", line["fact"], frozenset(map(_event_id, line["evidence_ids"])))
        for line in lines_of(folder, f"compaction/{name}_facts")
        if line["kind"] == "observation" and line["evidence_ids"]
    ]
    async with open_product(embedder) as product:
        await _ingest(product, each.conversations)
        found = [await _case(product, name, asked) for asked in sample(questions, _SAMPLE)]
        found += [await _case(product, f"{name}_facts", asked) for asked in sample(observations, _SAMPLE)]
    naive = {source: _events(turns) for source, turns in each.conversations.items()}
    found = [case._replace(naive=naive[case.group]) for case in found]
    return found + [
        case._replace(name=f"{name}_restated", answer=_restated(case.task, case.answer))
        for case in found
        if case.name == name
    ]


async def _meetings(folder: Path, embedder: CachedEmbedder) -> list[AnswerCase]:
    each = meetings(folder, "ami")
    # Each meeting has 800 turns to embed.
    for name in list(each.conversations)[::2]:
        del each.conversations[name]
    facts = [
        _Asked(line["conv"], _MEETING, line["fact"], frozenset(map(_event_id, line["evidence_ids"])))
        for line in lines_of(folder, "compaction/ami_facts")
        if line["conv"] in each.conversations and line["evidence_ids"]
    ]
    async with open_product(embedder) as product:
        await _ingest(product, each.conversations)
        prompts: dict[str, AnswerCase] = {}
        found = []
        for asked in facts:
            if asked.source not in prompts:
                prompts[asked.source] = await _case(product, "ami", asked, _LONG_BUDGET)
            case = prompts[asked.source]
            found.append(case._replace(name="ami_facts", answer=asked.answer, gold=_gold(case.items, asked.gold)))
    return found + [
        case._replace(
            name="ami_summaries",
            answer="\n".join(fact.answer for fact in facts if fact.source == source),
            gold=frozenset().union(*(fact.gold for fact in found if fact.group == source)),
        )
        for source, case in prompts.items()
    ]


async def _documents(folder: Path, name: str, embedder: CachedEmbedder) -> list[AnswerCase]:
    texts = {line["doc_id"]: line["text"] for line in lines_of(folder, f"chunking/{name}_docs")}
    asked = []
    for line in lines_of(folder, f"chunking/{name}_queries"):
        gold = [texts[line["doc_id"]][span["start"] : span["end"]] for span in line["gold_spans"]]
        asked.append(_Asked(line["doc_id"], line["query"], line.get("answer") or "\n".join(gold), frozenset(gold)))
    asked = [each for each in asked if each.source in set(list(texts)[:: max(1, len(texts) // _DOCUMENTS)])]
    async with open_product(embedder) as product:
        for source in dict.fromkeys(each.source for each in asked):
            await product.call("session.create", session_id=source, purpose="An evaluation.")
            await product.add_documents(source.lower(), [texts[source]])
        await product.index()
        cases = [await _case(product, name, each, domain=each.source.lower()) for each in sample(asked, _SAMPLE)]
    return [case._replace(naive=(_pasted(case.group, texts[case.group]),)) for case in cases]


async def _papers(folder: Path, embedder: CachedEmbedder) -> list[AnswerCase]:
    """Return claims about papers, among the papers that are most like them."""
    papers = {line["id"]: line["text"] for line in lines_of(folder, "doc_retrieval/scifact_docs")}
    claims = [line for line in lines_of(folder, "doc_retrieval/scifact_queries") if line["evidence_ids"]]
    chosen = sample(claims, _SAMPLE)
    gold = {paper for line in chosen for paper in line["evidence_ids"]}
    others = [paper for paper in papers if paper not in gold][:_PAPERS]
    async with open_product(embedder) as product:
        await product.call("session.create", session_id="papers", purpose="An evaluation.")
        await product.add_documents("papers", [papers[paper] for paper in (*gold, *others)])
        await product.index()
        found = []
        for line in chosen:
            texts = frozenset(papers[paper] for paper in line["evidence_ids"])
            asked = _Asked("papers", line["query"], line["query"], texts)
            case = await _case(product, "scifact", asked, domain="papers")
            # The claim is what a model would answer, not what it was asked.
            found.append(case._replace(task="", group=line["qid"]))
        return found


async def _ingest(product: Product, conversations: dict[str, list[Turn]]) -> None:
    for name, turns in conversations.items():
        await product.call("session.create", session_id=name, purpose="An evaluation.")
        for session in sessions_of(turns):
            product.clock.at = session[0].at
            events = [{"event_id": _event_id(t.turn_id), "content": t.text, "name": t.speaker} for t in session]
            await product.ingest(name, events)
    await product.index()
    product.clock.at += timedelta(days=1)


async def _case(
    product: Product, name: str, asked: _Asked, budget: int = _BUDGET, domain: str | None = None
) -> AnswerCase:
    """Assemble the prompt of a question and return its items."""
    task = asked.task or asked.answer
    answer = await product.call(
        "context.assemble",
        session_id=asked.source,
        task_description=task,
        token_budget=budget,
        model="gpt-5.6",
        domains=[domain] if domain else [],
        fresh=True,
    )

    async def read(store: SqlReceiptStore) -> tuple[Sequence[PromptItem], str, dict[str, float]]:
        stored = await store.find(answer["receipt_id"])
        assert stored is not None  # noqa: S101 - just stored
        receipt = stored.receipt
        digests = [receipt.tools_digest, *(block.digest for block in receipt.blocks)]
        blocks, tools = blocks_with_texts(receipt, await store.texts(receipt.session_id, digests))
        scores = {each.ref: each.score for each in receipt.candidates if each.score is not None}
        return prompt_items(receipt, blocks, tools), task_text(blocks), scores

    items, shown, scores = await product.app.database.read(Scope(_TENANT), lambda tx: read(SqlReceiptStore(tx)))
    scored = tuple(item for item in items if not item.is_required)
    return AnswerCase(
        name, asked.source, shown if asked.task else "", asked.answer, scored, scores, _gold(scored, asked.gold)
    )


def _gold(items: Iterable[PromptItem], gold: frozenset[str]) -> frozenset[str]:
    """Return the refs of the items that are gold events, or mostly in gold texts."""
    texts = [_words(text) for text in gold if " " in text]
    found = set()
    for item in items:
        key = item.ref.rpartition("/")[2]
        if key in gold or (item.kind == "retrieved" and any(_is_in(item.text, text) for text in texts)):
            found.add(item.ref)
    return frozenset(found)


def _is_in(text: str, gold: set[tuple[str, str]]) -> bool:
    """Return whether most of a text is in a gold text, or most of a short gold text is in it."""
    shared = len(pairs := _words(text)) and len(pairs & gold)
    return shared * 2 > min(len(pairs), len(gold))


def _words(text: str) -> set[tuple[str, str]]:
    return set(pairwise(text.lower().split()))


def _events(turns: Sequence[Turn]) -> tuple[PromptItem, ...]:
    return tuple(
        PromptItem(_event_id(turn.turn_id), "conversation", approximate_tokens(turn.text), turn.text) for turn in turns
    )


def _pasted(name: str, text: str) -> PromptItem:
    return PromptItem(name, "conversation", approximate_tokens(text), text)


def _restated(question: str, answer: str) -> str:
    """Return a short answer as a sentence that repeats what was asked."""
    return f"{_ASKING.sub('', question).rstrip('? ')}: {answer}."


def _event_id(turn_id: str) -> str:
    return turn_id.replace("/", ".")


def _first(answer: Any) -> str:  # noqa: ANN401 - a text, or a list of texts that are all right
    return str(answer[0] if isinstance(answer, list) else answer)
