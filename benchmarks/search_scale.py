"""Search as a collection grows: latency end to end, recall of the vector index, and its cost.

Sizes are WEFTLINE_BENCH_CHUNKS, such as ``1000,1000000``; the largest is measured in one tenant and in ten.
Chunks are synthetic: word frequencies follow Zipf's law, and vectors form clusters of unequal width like embeddings.
They are inserted as rows, and the index is built from these as usual. Exact scans and usearch graphs answer the same
queries over the same vectors in the same run.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

# As on a server.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.harness import Baseline, Row, in_subprocess, limited, resident_bytes
from benchmarks.servers import folder
from benchmarks.wire import run_async
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.indexing.collections import NewChunk, domain_collection
from weftline.indexing.sql import CollectionStore
from weftline.indexing.text_analysis import index_terms
from weftline.kernel.identity import ANYONE
from weftline.knowledge.model import Domain
from weftline.knowledge.sql import DomainStore
from weftline.search.model import CollectionQuery
from weftline.settings import Settings
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from weftline.kernel.transaction import Transaction
    from weftline.search.model import View

    Floats = NDArray[np.float32]

_NAME = "search_scale"
_DIMENSIONS = 384
_DOMAIN = "growing"
_COLLECTION = domain_collection(_DOMAIN)
_VOCABULARY, _ZIPF, _WORDS = 50_000, 1.05, 80
_CHUNKS_PER_DOCUMENT = 100
_BATCH_SIZE = 2_000
_CALLERS = (1, 8)
_NEAREST = 10
_P95_MILLIS, _RECALL = 60.0, 0.98
TENANTS = 10
SEARCHES, FEW_SEARCHES = 200, 8
_INDEX_TASKS = {"weftline-index", "weftline-vector index"}
_EXTRAPOLATED = 10_000_000
_DOCUMENT = """
INSERT INTO documents (tenant, domain, document_id, version, content_version, state, digest, fingerprint, bytes,
    media_type, title, metadata, pinned, importance, timestamp, added_by, created_at, updated_at, indexed_version,
    indexed_content, indexed_at, chunks, chunks_done, chunks_total, error, layout_hash, queued_at, holder, lease_until)
VALUES ($1, $2, $3, 1, 1, 'indexed', '', '', 0, 'text/plain', '', '{{}}', 0, NULL, 0, 'human:admin', 0, 0, 1, 1, 0, 0,
    0, 0, NULL, '', 0, NULL, 0)
"""


def run(*, quick: bool) -> list[Row]:
    sizes = sizes_asked("WEFTLINE_BENCH_CHUNKS", "200,400" if quick else "1000,10000,100000,1000000")
    searches = FEW_SEARCHES if quick else SEARCHES
    rows = [row for size in sizes for row in in_subprocess(_in_files, size, 1, searches)]
    rows += _extrapolated(rows, sizes)
    return [*rows, *in_subprocess(_in_files, max(sizes), TENANTS, searches)]


def sizes_asked(variable: str, default: str) -> list[int]:
    return [int(size) for size in os.environ.get(variable, default).split(",")]


def _extrapolated(rows: Sequence[Row], sizes: Sequence[int]) -> list[Row]:
    """Extrapolate linearly from the two largest sizes: scanned and stored data grow with the chunks."""
    if len(sizes) < 2:
        return []
    values = {row.name: row.value for row in rows}
    (less, more), found = sorted(sizes)[-2:], []
    for figure, unit in (("cpu", "ms a search"), ("1_callers.p50", "ms"), ("files", "MB"), ("build", "s")):
        low, high = values[f"{_NAME}.{less}.{figure}"], values[f"{_NAME}.{more}.{figure}"]
        # Small sizes are noise: no figure is assumed to fall with more chunks.
        value = high + max(high - low, 0.0) / (more - less) * (_EXTRAPOLATED - more)
        found.append(Row(f"{_NAME}.{_EXTRAPOLATED}.by_a_line.{figure}", round(value, 1), unit))
    return found


class SyntheticData:
    """Synthetic texts and vectors, the same in every run."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(6)
        # Embeddings vary much in a few dimensions and little in most.
        self._width = ((np.arange(_DIMENSIONS) + 8.0) ** -0.6).astype(np.float32)
        # Two levels of clusters: subjects, and statements about them.
        self._centres = self._spread(400)[self._random.integers(400, size=12_000)] + 0.9 * self._spread(12_000)
        self._words = np.array([_word(number) for number in range(_VOCABULARY)])
        self._terms = np.array([index_terms(word) for word in self._words])
        frequencies = 1.0 / np.arange(1, _VOCABULARY + 1) ** _ZIPF
        self._cumulative = np.cumsum(frequencies) / frequencies.sum()

    def vectors(self, count: int) -> NDArray[np.float16]:
        """Return vectors between two cluster centres, closer to one of them."""
        one, other = self._random.integers(len(self._centres), size=(2, count))
        share = self._random.uniform(0.5, 1.0, (count, 1)).astype(np.float32)
        mixed = share * self._centres[one] + (1 - share) * self._centres[other] + 0.5 * self._spread(count)
        return (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float16)

    def chunks(self, first: int, count: int) -> list[NewChunk]:
        drawn = np.searchsorted(self._cumulative, self._random.random((count, _WORDS)))
        return [self._chunk(first + index, words) for index, words in enumerate(drawn)]

    def query(self) -> str:
        """Return a few words that occur, frequent and rare."""
        return " ".join(self._words[np.searchsorted(self._cumulative, self._random.random(8))])

    def _chunk(self, number: int, words: NDArray[np.intp]) -> NewChunk:
        document, ordinal = divmod(number, _CHUNKS_PER_DOCUMENT)
        return NewChunk(
            source="document",
            place=_DOMAIN,
            item=f"{document}",
            ordinal=ordinal,
            start=0,
            end=1,
            terms=" ".join(self._terms[words]),
            digest=b"",
            tokens=100,
            timestamp=number,
            text=" ".join(self._words[words[:12]]),
        )

    def _spread(self, count: int) -> Floats:
        return self._random.standard_normal((count, _DIMENSIONS), dtype=np.float32) * self._width


def _word(number: int) -> str:
    """Return a unique word."""
    syllables = []
    for _ in range(3):
        number, index = divmod(number, 80)
        syllables.append("bdfgklmnprstvzhj"[index % 16] + "aeiou"[index // 16])
    return "".join(syllables)


@dataclass(frozen=True)
class Installation:
    """An installation with this many chunks in all tenants together."""

    app: App
    data_source: SyntheticData
    tenants: list[str]
    vectors: NDArray[np.float16]
    model: str

    async def search(self, number: int) -> float:
        """Search as a caller; return the milliseconds."""
        context = CallContext(Local(self.tenants[number % len(self.tenants)], "admin"))
        raw = {"query": self.data_source.query(), "top_k": _NEAREST}
        started = time.perf_counter()
        await self.app.call(self.app.registry["search.query"], raw, context)
        return (time.perf_counter() - started) * 1_000

    async def view(self, tenant: str) -> View:
        return await self.app.collections.open(tenant, CollectionQuery(_COLLECTION), _Anyone(), self.model)

    async def build(self) -> float:
        """Wait until the index is built; return the seconds."""
        started = time.perf_counter()
        share = len(self.vectors) // len(self.tenants)
        for tenant in self.tenants:
            while (await self.view(tenant)).size < share:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.05)
        await self._settled()
        return time.perf_counter() - started

    async def _settled(self) -> None:
        while any(task.get_name() in _INDEX_TASKS for task in asyncio.all_tasks()):  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.05)


class _Anyone:
    def matches(self, patterns: Sequence[str]) -> bool:
        return ANYONE[0] in patterns


def _in_files(size: int, tenants: int, searches: int) -> list[Row]:
    with folder() as data:
        return run_async(measured(_NAME, str(data / "weftline.db"), data, size, tenants, searches))


async def measured(benchmark: str, url: str, data: Path, size: int, tenants: int, searches: int) -> list[Row]:
    """Fill an installation and measure searches in it."""
    name = f"{benchmark}.{size}" if tenants == 1 else f"{benchmark}.{size}_in_{tenants}_tenants"
    app = App(Settings(database_url=url, data_dir=str(data), rate_limits="off", session_indexing="off"))
    await app.open()
    try:
        before = resident_bytes(os.getpid())
        installation = await grow(app, size, tenants)
        seconds = await installation.build()
        rows = [Row(f"{name}.build", round(seconds, 2), "s")]
        rows += await _times(name, installation, searches)
        # Measured before the compared methods allocate memory.
        memory = resident_bytes(os.getpid()) - before - installation.vectors.nbytes
        files = sum(file.stat().st_size for file in (data / "index").rglob("*.seg"))
        rows.append(Row(f"{name}.memory", round(max(memory, 0) / 2**20, 1), "MB"))
        rows.append(Row(f"{name}.files", round(files / 2**20, 1), "MB"))
        return [*rows, *await _recall(name, installation, min(searches, 100))]
    finally:
        await app.close()


async def grow(app: App, size: int, tenants: int) -> Installation:
    """Fill an installation with this many chunks in all tenants together."""
    data_source = SyntheticData()
    model = app.embeddings.models()[0].name
    names = [f"tenant{number}" for number in range(tenants)]
    vectors = data_source.vectors(size - size % tenants)
    share = len(vectors) // tenants
    for index, tenant in enumerate(names):
        await app.tenants.create(tenant)
        await _fill(app, tenant, data_source, model, vectors[index * share : (index + 1) * share])
    return Installation(app, data_source, names, vectors, model)


async def _fill(app: App, tenant: str, data_source: SyntheticData, model: str, vectors: NDArray[np.float16]) -> None:
    documents = range(-(-len(vectors) // _CHUNKS_PER_DOCUMENT))
    rows = [(tenant, _DOMAIN, str(document)) for document in documents]
    domain = Domain(domain=_DOMAIN, description="", clearance=1, created_by="human:admin", created_at=0, updated_at=0)
    await app.database.write(Scope(tenant), lambda tx: DomainStore(tx).add(domain))
    await app.database.write(Scope(tenant), lambda tx: tx.many(_DOCUMENT, rows))
    for start in range(0, len(vectors), _BATCH_SIZE):
        batch = [vector.tobytes() for vector in vectors[start : start + _BATCH_SIZE]]
        chunks = data_source.chunks(start, len(batch))
        await app.database.write(Scope(tenant), partial(_put, chunks, {model: batch}))


async def _put(chunks: list[NewChunk], vectors: dict[str, list[bytes]], transaction: Transaction) -> None:
    await CollectionStore(transaction).add(_COLLECTION, chunks, vectors)


async def _times(name: str, installation: Installation, searches: int) -> list[Row]:
    rows = []
    await load(installation.search, len(installation.tenants) * 2, 1)
    for callers in _CALLERS:
        began = time.process_time()
        milliseconds = await load(installation.search, searches, callers)
        cpu = (time.process_time() - began) * 1_000 / searches
        p50, p95 = map(float, np.percentile(milliseconds, [50, 95]))
        rows.append(Row(f"{name}.{callers}_callers.p50", round(p50, 2), "ms"))
        # The target applies to vectors in files and one caller: several share the cores.
        if callers == 1 and name.startswith(_NAME):
            rows.append(limited(f"{name}.{callers}_callers.p95", p95, "ms", below=_P95_MILLIS))
        else:
            rows.append(Row(f"{name}.{callers}_callers.p95", round(p95, 2), "ms"))
        if callers == 1:
            rows.append(Row(f"{name}.cpu", round(cpu, 2), "ms a search"))
    return rows


async def load(search: Callable[[int], Awaitable[float]], searches: int, callers: int) -> list[float]:
    """Return the milliseconds of searches that several callers make, each one after the other."""
    numbers = iter(range(searches))

    async def caller() -> list[float]:
        return [await search(number) for number in numbers]

    return [
        milliseconds
        for of_caller in await asyncio.gather(*(caller() for _ in range(callers)))
        for milliseconds in of_caller
    ]


async def _recall(name: str, installation: Installation, questions: int) -> list[Row]:
    """Compare the index with exact results, and its latency with other methods."""
    queries = installation.data_source.vectors(questions).astype(np.float32)
    share = len(installation.vectors) // len(installation.tenants)
    own_vectors = installation.vectors[:share]
    exact, scan = _exact_scan(own_vectors, queries)
    view = await installation.view(installation.tenants[0])
    found, milliseconds = [], []
    for query in queries:
        started = time.perf_counter()
        near = await view.nearest(query, _NEAREST)
        milliseconds.append((time.perf_counter() - started) * 1_000)
        found.append(set((view.columns(near.rows).number - 1).tolist()))
    recall = float(np.mean([len(one & all_) / len(all_) for one, all_ in zip(found, exact, strict=True)]))
    return [
        Row(f"{name}.recall", round(recall, 4), "of 1", target=f"at least {_RECALL}", met=recall >= _RECALL),
        _compared(f"{name}.nearest", milliseconds, "numpy scan", scan),
        _compared(f"{name}.nearest_to_graph", milliseconds, "usearch", _graph(own_vectors, queries)),
    ]


def _compared(name: str, milliseconds: Sequence[float], other: str, others: Sequence[float]) -> Row:
    ours, theirs = float(np.median(milliseconds)), float(np.median(others))
    return Row(name, round(ours, 3), "ms", Baseline(other, round(theirs, 3)), round(ours / theirs, 3))


def _exact_scan(vectors: NDArray[np.float16], queries: Floats) -> tuple[list[set[int]], list[float]]:
    floats = vectors.astype(np.float32)
    found, milliseconds = [], []
    for query in queries:
        started = time.perf_counter()
        cosines = floats @ query
        nearest = np.argpartition(-cosines, min(_NEAREST, len(cosines) - 1))[:_NEAREST]
        milliseconds.append((time.perf_counter() - started) * 1_000)
        found.append(set(nearest.tolist()))
    return found, milliseconds


def _graph(vectors: NDArray[np.float16], queries: Floats) -> list[float]:
    from usearch.index import Index  # noqa: PLC0415 - only for the comparison

    graph: Any = Index(ndim=_DIMENSIONS, metric="ip", dtype="f16", connectivity=16, expansion_add=128)
    graph.add(np.arange(len(vectors)), vectors)
    graph.expansion_search = 256
    milliseconds = []
    for query in queries:
        started = time.perf_counter()
        graph.search(query, _NEAREST)
        milliseconds.append((time.perf_counter() - started) * 1_000)
    return milliseconds
