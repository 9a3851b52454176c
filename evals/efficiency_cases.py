"""Answers with known evidence: the reported answer, a prompt, and the items of it that the answer is based on.

The answers of the sets are taken as the model's: short ones to questions (LoCoMo, bfcl_memory) and the same with the
question restated, statements about conversations (observations of LoCoMo, single facts of AMI), summaries (AMI, QMSum),
claims about papers (SciFact) and quotations (chunkeval). A prompt has its evidence, the newest turns of a conversation,
and what shares most terms with the task, up to 4,000 tokens; that of a meeting is the whole meeting. Prompts are not
assembled by Weftline, so that the evaluation takes minutes.
"""

from __future__ import annotations

import re
from collections import Counter
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

from evals.assembly_sets import lines_of, meetings, sample, turns_retrieved
from weftline.indexing.text_analysis import terms
from weftline.kernel.ports import approximate_tokens
from weftline.prompts.efficiency import PromptItem, text_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from evals.assembly_sets import Turn

_SAMPLE = 80
_BUDGET, _NEWEST = 4_000, 1_000
_PAPERS, _CLAIMS = 300, 40
_DOCUMENTS = 9
# Of twelve meetings with 800 turns each.
_MEETINGS = slice(1, None, 2)
# What a question begins with that an answer does not repeat.
_ASKING = re.compile(
    r"^(when|what|where|who|which|why|how( (many|much|long|often))?) "
    r"((did|does|do|is|was|are|were|has|have|had|will|would|can|could) )?",
    re.IGNORECASE,
)
_MEETING = "Summarise the meeting: what was discussed and decided, who does what, and which problems are open."


class AnswerCase(NamedTuple):
    """An answer to a prompt, and the refs of the items that it is based on. ``group``: not divided between halves."""

    name: str
    group: str
    task: str
    answer: str
    items: tuple[PromptItem, ...]
    gold: frozenset[str]


class _Source:
    """A conversation, a document or a collection of papers as items, with the weights of their terms."""

    def __init__(self, items: Sequence[PromptItem], *, is_conversation: bool = False) -> None:
        self.items = tuple(items)
        self._terms = [set(terms(item.text)) for item in self.items]
        counts = Counter(term for found in self._terms for term in found)
        self._weight = {term: log(1 + len(self.items) / count) for term, count in counts.items()}
        self._newest = _NEWEST if is_conversation else 0

    def prompt(self, query: str, gold: frozenset[str]) -> tuple[PromptItem, ...]:
        """Return gold items, the newest, and those that share most with a query, in order and within the budget."""
        chosen = {place for place, item in enumerate(self.items) if item.ref in gold}
        tokens = sum(self.items[place].tokens for place in chosen)
        for limit, places in ((self._newest, reversed(range(len(self.items)))), (_BUDGET, self._ranked(query))):
            for place in places:
                size = 0 if place in chosen else self.items[place].tokens
                if tokens + size > limit:
                    break
                chosen.add(place)
                tokens += size
        return tuple(self.items[place] for place in sorted(chosen))

    def _ranked(self, query: str) -> list[int]:
        wanted = set(terms(query)) & self._weight.keys()
        scores = [sum(self._weight[term] for term in wanted & found) for found in self._terms]
        return sorted(range(len(scores)), key=lambda place: -scores[place])


def answer_cases(folder: Path) -> list[AnswerCase]:
    """Return the cases of all sets."""
    return [
        *_conversations(folder, "locomo"),
        *_conversations(folder, "bfcl_memory"),
        *_meetings(folder),
        *_documents(folder, "qmsum"),
        *_documents(folder, "chunkeval"),
        *_papers(folder),
    ]


def _conversations(folder: Path, name: str) -> Iterator[AnswerCase]:
    conversations = turns_retrieved(folder, name).conversations
    sources = {conv: _Source(_events(turns), is_conversation=True) for conv, turns in conversations.items()}
    questions = [
        line
        for line in lines_of(folder, f"conv_retrieval/{name}_queries")
        if line["category"] != "adversarial" and line["answer"]
    ]
    for line in sample(questions, _SAMPLE):
        source, gold, answer = sources[line["conv"]], frozenset(line["gold_ids"]), first_answer(line["answer"])
        items = source.prompt(line["query"], gold)
        case = AnswerCase(name, line["conv"], line["query"], answer, items, gold)
        yield case
        yield case._replace(name=f"{name}_restated", answer=restated(line["query"], answer))
    facts = [
        line
        for line in lines_of(folder, f"compaction/{name}_facts")
        if line["kind"] == "observation" and line["evidence_ids"]
    ]
    for line in sample(facts, _SAMPLE):
        source, gold = sources[line["conv"]], frozenset(line["evidence_ids"])
        items = source.prompt(line["fact"], gold)
        yield AnswerCase(f"{name}_facts", line["conv"], "", line["fact"], items, gold)


def _meetings(folder: Path) -> Iterator[AnswerCase]:
    conversations = meetings(folder, "ami").conversations
    facts = [line for line in lines_of(folder, "compaction/ami_facts") if line["evidence_ids"]]
    for name in list(conversations)[_MEETINGS]:
        items = _events(conversations[name])
        own = [line for line in facts if line["conv"] == name]
        for line in own:
            gold = frozenset(line["evidence_ids"])
            yield AnswerCase("ami_facts", name, _MEETING, line["fact"], items, gold)
        evidence = frozenset(each for line in own for each in line["evidence_ids"])
        summary = "\n".join(line["fact"] for line in own)
        yield AnswerCase("ami_summaries", name, _MEETING, summary, items, evidence)


def _documents(folder: Path, name: str) -> Iterator[AnswerCase]:
    lines = lines_of(folder, f"chunking/{name}_docs")
    texts = {line["doc_id"]: line["text"] for line in lines[:: max(1, len(lines) // _DOCUMENTS)]}
    sources = {source: _Source(_parts(source, text)) for source, text in texts.items()}
    questions = [line for line in lines_of(folder, f"chunking/{name}_queries") if line["doc_id"] in texts]
    for line in sample(questions, _SAMPLE):
        text, source = texts[line["doc_id"]], sources[line["doc_id"]]
        spans = [(span["start"], span["end"]) for span in line["gold_spans"]]
        answer = line.get("answer") or "\n".join(text[start:end] for start, end in spans)
        gold = frozenset(_overlapping(source.items, spans))
        items = source.prompt(line["query"], gold)
        yield AnswerCase(name, line["doc_id"], line["query"], answer, items, gold)


def _papers(folder: Path) -> Iterator[AnswerCase]:
    """Yield claims about papers, among the papers that are most like them. A claim is an answer without a task."""
    papers = {line["id"]: line["text"] for line in lines_of(folder, "doc_retrieval/scifact_docs")}
    claims = [line for line in lines_of(folder, "doc_retrieval/scifact_queries") if line["evidence_ids"]]
    chosen = sample(claims, _CLAIMS)
    wanted = {paper for line in chosen for paper in line["evidence_ids"]}
    others = [paper for paper in papers if paper not in wanted][:_PAPERS]
    source = _Source([_item(paper, "retrieved", papers[paper]) for paper in (*sorted(wanted), *others)])
    for line in chosen:
        gold = frozenset(line["evidence_ids"])
        yield AnswerCase("scifact", line["qid"], "", line["query"], source.prompt(line["query"], gold), gold)


def _events(turns: Iterable[Turn]) -> tuple[PromptItem, ...]:
    return tuple(_item(turn.turn_id, "conversation", f"{turn.speaker}: {turn.text}") for turn in turns)


def _parts(name: str, text: str) -> Iterator[PromptItem]:
    """Yield the parts of a document, with where they begin as the end of the ref."""
    start = 0
    for part in text_parts(text):
        yield _item(f"{name}/{start}", "retrieved", part)
        start += len(part)


def _overlapping(parts: Iterable[PromptItem], spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield the refs of parts that are mostly in a gold span, or have most of a short one."""
    for part in parts:
        first = int(part.ref.rpartition("/")[2])
        last = first + len(part.text)
        if any(2 * (min(end, last) - max(start, first)) > min(end - start, last - first) for start, end in spans):
            yield part.ref


def _item(ref: str, kind: Any, text: str) -> PromptItem:  # noqa: ANN401 - a literal
    return PromptItem(ref, kind, approximate_tokens(text), text)


def restated(question: str, answer: str) -> str:
    """Return a short answer as a sentence that repeats what was asked."""
    return f"{_ASKING.sub('', question).rstrip('? ')}: {answer}."


def first_answer(answer: Any) -> str:  # noqa: ANN401 - a text, or a list of texts that are all right
    return str(answer[0] if isinstance(answer, list) else answer)
