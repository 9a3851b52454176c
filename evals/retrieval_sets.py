"""The evaluation sets for retrieval: corpora, questions and relevant items.

Content is chunked and indexed as in the product: turns are messages of sessions; documents and tools are documents of a
domain.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from weftline.indexing.chunking.chunker import split_into_chunks
from weftline.indexing.chunking.model import ChunkingOptions, ParsedDocument
from weftline.indexing.chunking.reader import detect_type
from weftline.indexing.collections import SESSIONS, IndexedChunk, NewChunk, domain_collection
from weftline.indexing.entities import extract_entities, pack_entities
from weftline.indexing.text_analysis import index_terms
from weftline.kernel.clock import DAY_MICROS, to_micros
from weftline.kernel.ports import approximate_tokens
from weftline.search.model import CollectionQuery
from weftline.search.session_cursor import IndexItem
from weftline.search.session_item_text import ItemText
from weftline.search.session_item_text import chunks_of as message_chunks
from weftline.search_index.snapshot import IndexSnapshot
from weftline.search_index.view import CollectionView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from evals.vector_cache import VectorCache

    Measure = Literal["recall", "characters"]
    Group = frozenset[str]

_DOMAIN = "eval"
_TIME_FORMAT = "%I:%M %p on %d %B, %Y"
# Timestamp of turns without a time, and of all documents.
_DEFAULT_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_SHORT_CHUNKS = ChunkingOptions(chunk_tokens=285, overlap_tokens=0)


class Span(NamedTuple):
    """Characters of a document."""

    item: str
    start: int
    end: int


class EvalQuestion(NamedTuple):
    """A question about a corpus, and what is relevant.

    ``relevant`` are groups of items; one of each is needed. If characters are measured, ``spans`` are relevant instead.
    """

    corpus: str
    text: str
    relevant: tuple[Group, ...] = ()
    spans: tuple[Span, ...] = ()


@dataclass
class Corpus:
    """Content that is searched together. ``names`` are the ids of the chunks' items in the evaluation set."""

    collection: str
    chunks: list[NewChunk] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add(self, name: str, chunks: Iterable[NewChunk]) -> None:
        for chunk in chunks:
            self.chunks.append(chunk)
            self.names.append(name)

    def open(self, vectors: VectorCache) -> CollectionView:
        """Return a view of the whole corpus."""
        embedded = vectors.of([chunk.embedded for chunk in self.chunks]).astype("<f2")
        indexed = [
            as_indexed(number, chunk, vector.tobytes() if chunk.semantic else None)
            for number, (chunk, vector) in enumerate(zip(self.chunks, embedded, strict=True), start=1)
        ]
        return CollectionView(
            self.collection,
            IndexSnapshot().advanced_to(len(indexed), indexed, []),
            CollectionQuery(self.collection),
            MatchesAll(),
        )

    def around(self, place: int, reach: int) -> Iterator[tuple[int, int]]:
        """Yield a message and its neighbours in the session, each with its distance."""
        chunk = self.chunks[place]
        for step in range(-reach, reach + 1):
            near = self._messages.get((chunk.place, int(chunk.item) + step))
            if near is not None:
                yield near, abs(step)

    def windows(self, size: int) -> list[tuple[str, int]]:
        """Return for each message the window of ``size`` messages of its session that contains it."""
        return [(chunk.place, (int(chunk.item) - 1) // size) for chunk in self.chunks]

    @cached_property
    def _messages(self) -> dict[tuple[str, int], int]:
        return {(chunk.place, int(chunk.item)): place for place, chunk in enumerate(self.chunks)}

    @cached_property
    def asked_at(self) -> int:
        """Return the timestamp one day after the last chunk."""
        return max(chunk.timestamp for chunk in self.chunks) + DAY_MICROS


@dataclass
class Dataset:
    """An evaluation set. ``unanswerable`` are questions that its own content does not answer, though it seems to."""

    name: str
    corpora: dict[str, Corpus]
    questions: list[EvalQuestion]
    measure: Measure = "recall"
    unanswerable: list[EvalQuestion] = field(default_factory=list)


def conversations(folder: Path, name: str) -> Dataset:
    """Return turns as messages of sessions; all sessions of a conversation are searched together."""
    corpora: dict[str, Corpus] = defaultdict(lambda: Corpus(SESSIONS))
    for turn in _lines(folder, f"conv_retrieval/{name}_docs"):
        corpora[turn["conv"]].add(turn["id"], _message(turn))
    questions, unanswerable = [], []
    for each in _lines(folder, f"conv_retrieval/{name}_queries"):
        if each["category"] == "adversarial":
            unanswerable.append(EvalQuestion(each["conv"], each["query"]))
        else:
            gold = tuple(frozenset({turn}) for turn in sorted(set(each["gold_ids"])))
            questions.append(EvalQuestion(each["conv"], each["query"], gold))
    return Dataset(name, dict(corpora), questions, unanswerable=unanswerable)


def documents(folder: Path, name: str) -> Dataset:
    """Return documents of one domain, with default chunking."""
    corpus = Corpus(domain_collection(_DOMAIN))
    for line in _lines(folder, f"doc_retrieval/{name}_docs"):
        corpus.add(line["id"], _document(line["id"], line["title"], line["text"], ChunkingOptions()))
    questions = [
        EvalQuestion("all", each["query"], tuple(frozenset({gold}) for gold in sorted(set(each["gold_ids"]))))
        for each in _lines(folder, f"doc_retrieval/{name}_queries")
    ]
    return Dataset(name, {"all": corpus}, questions)


def long_documents(folder: Path, name: str) -> Dataset:
    """Return documents that are each searched alone, in chunks of about 1,000 characters."""
    corpora = {}
    for line in _lines(folder, f"chunking/{name}_docs"):
        corpora[line["doc_id"]] = Corpus(domain_collection(_DOMAIN))
        corpora[line["doc_id"]].add(line["doc_id"], _document(line["doc_id"], "", line["text"], _SHORT_CHUNKS))
    questions = [
        EvalQuestion(
            each["doc_id"],
            each["query"],
            spans=tuple(Span(each["doc_id"], gold["start"], gold["end"]) for gold in each["gold_spans"]),
        )
        for each in _lines(folder, f"chunking/{name}_queries")
    ]
    return Dataset(name, corpora, questions, "characters")


def tools(folder: Path, name: str) -> Dataset:
    """Return tools as documents of one domain, titled with the tool's name."""
    corpus = Corpus(domain_collection(_DOMAIN))
    for line in _lines(folder, f"tools/{name}_tools"):
        corpus.add(line["id"], _document(line["id"], line["name"], _described(line), ChunkingOptions()))
    questions = [
        EvalQuestion(
            "all", each["query"], tuple(map(frozenset, each.get("gold_any") or [[g] for g in each["gold_tools"]]))
        )
        for each in _lines(folder, f"tools/{name}_queries")
    ]
    return Dataset(name, {"all": corpus}, questions)


SETS: dict[str, Callable[[Path], Dataset]] = {
    "locomo": lambda folder: conversations(folder, "locomo"),
    "bfcl_memory": lambda folder: conversations(folder, "bfcl_memory"),
    "metatool": lambda folder: tools(folder, "metatool"),
    "livemcp": lambda folder: tools(folder, "livemcp"),
    "bfcl_live": lambda folder: tools(folder, "bfcl_live"),
    "tau2_banking": lambda folder: documents(folder, "tau2_banking"),
    "qmsum": lambda folder: long_documents(folder, "qmsum"),
    "chunkeval": lambda folder: long_documents(folder, "chunkeval"),
    "scifact": lambda folder: documents(folder, "scifact"),
}


def recall_of(question: EvalQuestion, corpus: Corpus, places: Sequence[int]) -> float:
    """Return the recall of the given chunks."""
    if question.spans:
        return _characters(question.spans, [corpus.chunks[place] for place in places])
    items = {corpus.names[place] for place in places}
    return sum(bool(group & items) for group in question.relevant) / len(question.relevant)


def is_relevant(question: EvalQuestion, corpus: Corpus, place: int) -> bool:
    """Return whether a chunk is relevant or contains relevant characters."""
    if question.spans:
        chunk = corpus.chunks[place]
        return any(min(span.end, chunk.end) > max(span.start, chunk.start) for span in question.spans)
    return any(corpus.names[place] in group for group in question.relevant)


class MatchesAll:
    """Matches every pattern."""

    def matches(self, patterns: Sequence[str]) -> bool:
        del patterns
        return True


def _characters(spans: Sequence[Span], chunks: Sequence[NewChunk]) -> float:
    gold = {at for span in spans for at in range(span.start, span.end)}
    return len(gold & {at for chunk in chunks for at in range(chunk.start, chunk.end)}) / len(gold)


def _message(turn: dict[str, Any]) -> list[NewChunk]:
    session = f"{turn['conv']}-{turn['session']}"
    item_text = ItemText(text=_turn_text(turn), version=1, timestamp=_timestamp(turn), speaker=turn["speaker"])
    return message_chunks(IndexItem(source="message", place=session, item=str(turn["turn"])), item_text)


def _turn_text(turn: dict[str, Any]) -> str:
    caption = turn.get("image_caption")
    return f"{turn['text']} [image: {caption}]" if caption else str(turn["text"])


def _timestamp(turn: dict[str, Any]) -> int:
    spoken_at = turn.get("time")
    day = datetime.strptime(spoken_at.upper(), _TIME_FORMAT).replace(tzinfo=UTC) if spoken_at else _DEFAULT_TIME
    return to_micros(day)


def _document(name: str, title: str, text: str, options: ChunkingOptions) -> Iterator[NewChunk]:
    document = ParsedDocument(text=text, media_type=detect_type(text), title=title)
    for ordinal, chunk in enumerate(split_into_chunks(document, options, approximate_tokens)):
        heading = " > ".join(filter(None, (title, chunk.heading)))
        yield _document_chunk(name, heading, text[chunk.start : chunk.end], ordinal, chunk.start)


def _document_chunk(name: str, heading: str, text: str, ordinal: int = 0, start: int = 0) -> NewChunk:
    return NewChunk(
        source="document",
        place=_DOMAIN,
        item=name,
        ordinal=ordinal,
        start=start,
        end=start + len(text),
        terms=index_terms(text, heading),
        digest=b"",
        tokens=approximate_tokens(text),
        timestamp=to_micros(_DEFAULT_TIME),
        heading=heading,
        entities=pack_entities(extract_entities(text)),
        text=text,
    )


def _described(tool: dict[str, Any]) -> str:
    """Return name, parameters and server of a tool as text."""
    parameters = tool.get("parameters") or {
        name: schema.get("description") or "" if isinstance(schema, dict) else ""
        for name, schema in ((tool.get("input_schema") or {}).get("properties") or {}).items()
    }
    lines = [tool["description"] or ""]
    lines += [f"- {name}: {description}" for name, description in parameters.items()]
    if tool.get("server"):
        lines.append(f"Server: {tool['server']}. {tool.get('server_description') or ''}")
    return "\n".join(lines)


def as_indexed(number: int, chunk: NewChunk, vector: bytes | None) -> IndexedChunk:
    """Return the columns of a chunk that the index has."""
    return IndexedChunk(
        number=number,
        source=chunk.source,
        place=chunk.place,
        scope=chunk.scope,
        item=chunk.item,
        version=chunk.version,
        ordinal=chunk.ordinal,
        kind=chunk.kind,
        speaker=chunk.speaker,
        timestamp=chunk.timestamp,
        tokens=chunk.tokens,
        importance=chunk.importance,
        pinned=chunk.pinned,
        terms=chunk.terms,
        entities=chunk.entities,
        vector=vector,
    )


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    with (folder / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
