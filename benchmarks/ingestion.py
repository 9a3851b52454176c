"""Ingestion of documents: chunks per second from adding to indexed, against the embedder alone.

Two kinds of documents: a few long ones, and many of one chunk each. The ingestion job of an App parses, chunks, embeds
and stores them; the baseline only embeds the same texts. Every round has different words, so that no vector is cached.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness import Row, compared
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import ADMIN, call, folder, open_app, prepare
from benchmarks.wire import run_async
from weftline.indexing.collections import domain_collection, embedded_text
from weftline.indexing.sql import CollectionStore
from weftline.providers.embedders.factory import configured_embedders
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.app.app import App
    from weftline.indexing.embeddings import Embedder
    from weftline.kernel.transaction import Transaction

_MIN_RATIO = 0.8
_ADD_BATCH = 100
_EMBED_BATCH = 256
_WORDS = [
    f"{begin}{end}" for begin in ("re", "in", "con", "pro", "dis") for end in ("port", "form", "tract", "ceed", "fer")
]


class Sizes(NamedTuple):
    """Numbers of documents and rounds."""

    rounds: int
    long: int
    sections: int
    short: int


def run(*, quick: bool) -> list[Row]:
    sizes = Sizes(rounds=1, long=1, sections=4, short=8) if quick else Sizes(rounds=3, long=4, sections=80, short=300)
    return [*run_async(_on_sqlite(sizes)), *run_async(_on_postgres(sizes))]


async def _on_sqlite(sizes: Sizes) -> list[Row]:
    with folder() as path:
        return await _measure(str(path / "weftline.db"), sizes, "sqlite")


async def _on_postgres(sizes: Sizes) -> list[Row]:
    with postgres_server() as server:
        return await _measure(await postgres_database(server, "ingestion"), sizes, "postgres")


async def _measure(url: str, sizes: Sizes, database: str) -> list[Row]:
    await prepare(url, [])
    # Indexing starts when it is measured.
    app = await open_app(url)
    app.scheduler.paused |= {"knowledge.reindex", "knowledge.ingest"}
    embedder = configured_embedders(app.settings)[0]
    try:
        await embedder.embed(["warm"], "passage")
        return [await _compared(app, embedder, kind, sizes, database) for kind in _KINDS]
    finally:
        await embedder.close()
        await app.close()


async def _compared(app: App, embedder: Embedder, kind: str, sizes: Sizes, database: str) -> Row:
    await _round(app, embedder, f"{kind}-warm", iter(["One chunk."]))
    pairs = [
        await _round(app, embedder, f"{kind}-{round_number}", _KINDS[kind](sizes, round_number))
        for round_number in range(sizes.rounds)
    ]
    name = f"ingestion.{kind}_documents_{database}"
    return compared(pairs).rate_row(name, "chunks/s", "embedder alone", at_least=_MIN_RATIO)


async def _round(app: App, embedder: Embedder, domain: str, documents: Iterator[str]) -> tuple[float, float]:
    """Return the chunks per second of indexing documents, and of embedding their texts alone."""
    await call(app, "knowledge.create_domain", domain=domain)
    documents_to_add = [{"document_id": f"{number}.md", "text": text} for number, text in enumerate(documents)]
    for start in range(0, len(documents_to_add), _ADD_BATCH):
        await call(
            app, "knowledge.add_documents", domain=domain, documents=documents_to_add[start : start + _ADD_BATCH]
        )
    started = time.perf_counter()
    await app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    seconds = time.perf_counter() - started
    texts = await _texts(app, domain, len(documents_to_add))
    started = time.perf_counter()
    for start in range(0, len(texts), _EMBED_BATCH):
        await embedder.embed(texts[start : start + _EMBED_BATCH], "passage")
    return len(texts) / seconds, len(texts) / (time.perf_counter() - started)


async def _texts(app: App, domain: str, documents: int) -> list[str]:
    actor = await app.identify(ADMIN)

    async def read(transaction: Transaction) -> list[str]:
        collections, found = CollectionStore(transaction), []
        for number in range(documents):
            found += await collections.of_item(domain_collection(domain), domain, f"{number}.md")
        return [embedded_text(chunk.heading, chunk.text) for chunk in found]

    return await app.database.read(Scope(actor.tenant), read)


def _long(sizes: Sizes, round_number: int) -> Iterator[str]:
    generator = random.Random(f"long {round_number}")
    for _ in range(sizes.long):
        yield "\n\n".join(
            f"# {_random_words(generator, 3)}\n\n{_random_words(generator, 300)}" for _ in range(sizes.sections)
        )


def _short(sizes: Sizes, round_number: int) -> Iterator[str]:
    generator = random.Random(f"short {round_number}")
    return (f"# {_random_words(generator, 3)}\n\n{_random_words(generator, 120)}" for _ in range(sizes.short))


def _random_words(generator: random.Random, words: int) -> str:
    return " ".join(f"{generator.choice(_WORDS)}{generator.randrange(50)}" for _ in range(words))


_KINDS: dict[str, Callable[[Sizes, int], Iterator[str]]] = {"long": _long, "short": _short}
