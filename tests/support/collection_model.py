"""Reference model of a collection that replicas must agree with."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from weftline.indexing.collections import DECISION, PROSE, IndexedChunk
from weftline.indexing.entities import entity_index_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.search.model import CollectionQuery, IncompleteItem, View

DIMENSIONS = 8
WORDS = ("apple", "pear", "plum", "fig", "quince", "medlar", "sloe")


class NamedCaller:
    """A caller that matches patterns of these names."""

    def __init__(self, *names: str) -> None:
        self._names = {*names, "*"}

    def matches(self, patterns: Iterable[str]) -> bool:
        return not self._names.isdisjoint(patterns)


def random_vector(random: np.random.Generator, dimensions: int = DIMENSIONS) -> bytes:
    vector = random.standard_normal(dimensions)
    return (vector / np.linalg.norm(vector)).astype("<f2").tobytes()


def random_chunk(random: np.random.Generator, number: int, **given: Any) -> IndexedChunk:
    """Return a random indexed chunk."""
    source = str(random.choice(["document", "message", "board", "memory"]))
    known: dict[str, Any] = {
        "number": number,
        "source": source,
        "place": f"place{random.integers(3)}",
        "scope": str(random.choice(["", '["*"]', '["a"]', '["b", "c"]'])),
        "item": str(random.integers(6)),
        "version": int(random.integers(1, 3)),
        "ordinal": number,
        "kind": str(random.choice([PROSE, DECISION])),
        "speaker": str(random.choice(["", "ann", "bob"])),
        "timestamp": int(random.integers(1_000)),
        "tokens": int(random.integers(1, 500)),
        "importance": float(np.float32(random.random())),
        "pinned": bool(random.random() < 0.1),
        "terms": " ".join(random.choice(WORDS, int(random.integers(0, 9)))),
        "entities": str(random.choice(["", "person:Ann", "person:Ann\nfile:src/a.py", "file:b.py"])),
        "vector": random_vector(random) if random.random() < 0.9 else None,
    }
    return IndexedChunk(**(known | given))


@dataclass
class CollectionModel:
    """The chunks of a collection, filtered one by one."""

    chunks: dict[int, IndexedChunk] = field(default_factory=dict)

    def visible(self, query: CollectionQuery, caller: NamedCaller) -> list[IndexedChunk]:
        return [chunk for chunk in self.chunks.values() if _matches_query(chunk, query) and _may_see(caller, chunk)]


def _may_see(caller: NamedCaller, chunk: IndexedChunk) -> bool:
    return not chunk.scope or caller.matches(json.loads(chunk.scope))


def _matches_query(chunk: IndexedChunk, query: CollectionQuery) -> bool:
    return (
        (query.places is None or chunk.place in query.places)
        and (query.items is None or chunk.item in query.items)
        and (not query.sources or chunk.source in query.sources)
        and (query.since is None or chunk.timestamp >= query.since)
        and (query.until is None or chunk.timestamp < query.until)
        and query.entities <= set(entity_index_terms(chunk.entities))
        and not any(_is_outdated_version(chunk, document) for document in query.unfinished)
        and chunk.number not in query.without
    )


def _is_outdated_version(chunk: IndexedChunk, document: IncompleteItem) -> bool:
    found = ("document", document.domain, document.document_id, document.found_version)
    return chunk.item == document.document_id and (chunk.source, chunk.place, chunk.item, chunk.version) != found


def line_and_position(chunk: IndexedChunk) -> tuple[Any, Any]:
    if chunk.source == "board":
        return (chunk.source, chunk.place), (chunk.number,)
    if chunk.source == "message":
        return (chunk.source, chunk.place), (int(chunk.item), chunk.ordinal)
    return (chunk.source, chunk.place, chunk.item, chunk.version), (chunk.ordinal,)


def numbers_of(view: View, rows: Any) -> list[int]:
    rows = np.asarray(rows, np.int64)
    return np.where(rows < 0, -1, view.columns(rows.clip(min=0)).number).tolist() if len(rows) else []


def check_view(view: View, chunks: Sequence[IndexedChunk]) -> None:
    """Compare everything a view returns with the visible chunks."""
    by_number = {chunk.number: chunk for chunk in chunks}
    assert view.size == len(chunks)
    assert view.total_terms == sum(len(chunk.terms.split()) for chunk in chunks)
    messages = sum(chunk.source == "message" for chunk in chunks)
    assert view.is_conversation == (2 * messages > len(chunks))
    assert view.present_speakers() == {chunk.speaker for chunk in chunks}
    check_words(view, by_number)
    rows = view.newest(len(chunks))
    check_columns(view, rows, by_number)
    check_neighbours(view, rows, by_number)
    pinned = {chunk.number for chunk in chunks if chunk.pinned}
    assert set(numbers_of(view, view.pinned(len(chunks)))) == pinned


def check_words(view: View, by_number: dict[int, IndexedChunk]) -> None:
    for word in (*WORDS, "nowhere"):
        postings = view.postings(word)
        rows, counts = postings.all()
        found = dict(zip(numbers_of(view, rows), counts.tolist(), strict=True))
        counted = {number: Counter(chunk.terms.split())[word] for number, chunk in by_number.items()}
        assert found == {number: count for number, count in counted.items() if count}
        assert postings.size == len(rows)
        assert rows.tolist() == sorted(rows.tolist())
        all_rows = view.newest(len(by_number))
        assert postings.counts(all_rows).tolist() == [counted[number] for number in numbers_of(view, all_rows)]


def check_columns(view: View, rows: Any, by_number: dict[int, IndexedChunk]) -> None:
    columns = view.columns(rows)
    newest = sorted(by_number.values(), key=lambda chunk: (-chunk.timestamp, -chunk.number))
    assert columns.number.tolist() == [chunk.number for chunk in newest]
    lengths = view.lengths(rows)
    speakers = view.speakers()
    for place, chunk in enumerate(newest):
        assert columns.timestamp[place] == chunk.timestamp
        assert columns.tokens[place] == chunk.tokens
        assert columns.importance[place] == np.float32(chunk.importance)
        assert columns.pinned[place] == chunk.pinned
        assert speakers[columns.speaker[place]] == chunk.speaker
        assert lengths[place] == len(chunk.terms.split())
    lines = {line_and_position(chunk)[0]: int(line) for chunk, line in zip(newest, columns.line, strict=True)}
    assert [lines[line_and_position(chunk)[0]] for chunk in newest] == columns.line.tolist()
    assert len(set(lines.values())) == len(lines)


def check_neighbours(view: View, rows: Any, by_number: dict[int, IndexedChunk]) -> None:
    in_order: dict[Any, list[int]] = {}
    for number, chunk in sorted(by_number.items(), key=lambda entry: line_and_position(entry[1])[1]):
        in_order.setdefault(line_and_position(chunk)[0], []).append(number)
    numbers = view.columns(rows).number.tolist()
    offsets = (-2, -1, 0, 1, 3)
    found = view.neighbours(rows, offsets)
    for place, offset in enumerate(offsets):
        expected = []
        for number in numbers:
            line = in_order[line_and_position(by_number[number])[0]]
            there = line.index(number) + offset
            expected.append(line[there] if 0 <= there < len(line) else -1)
        assert numbers_of(view, found[:, place]) == expected


async def check_nearest(view: View, chunks: Sequence[IndexedChunk], question: Any) -> None:
    """Compare the nearest rows with an exact search, and their vectors with the stored ones."""
    known = {c.number: np.frombuffer(c.vector, "<f2").astype(np.float32) for c in chunks if c.vector}
    near = await view.nearest(question, 5)
    found = numbers_of(view, near.rows)
    exact = sorted(known, key=lambda number: -float(known[number] @ question))[:5]
    assert len(found) == len(exact)
    assert np.allclose(near.cosines, [known[number] @ question for number in exact], atol=2e-3)
    assert np.allclose(near.cosines, [known[number] @ question for number in found], atol=2e-3)
    rows = view.newest(len(chunks))
    expected = [known.get(number, np.zeros(len(question))) for number in numbers_of(view, rows)]
    found_vectors = await view.vectors(rows, len(question))
    assert np.array_equal(found_vectors, np.array(expected, np.float32).reshape(len(rows), len(question)))
    cosines = await view.cosines(rows, np.stack([question, -question]))
    assert np.allclose(cosines, np.stack([found_vectors @ question, found_vectors @ -question]), atol=2e-3)
