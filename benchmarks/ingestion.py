"""How fast documents become findable: chunks a second from put to indexed, against the embedder alone.

Documents are of two sorts: few long ones, and many that are a chunk each. Both are read, cut, embedded and written to
the database by the worker of a running App; beside it the same texts are embedded and thrown away. Every round has
other words, so that nothing comes from the cache.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness import Row, compared
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import ADMIN, call, folder, open_app, prepare
from benchmarks.wire import run_async
from weft.capabilities.indexing.collections.model import domain_collection, embedded_text
from weft.providers.embedders.factory import configured_embedders
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.app.app import App
    from weft.capabilities.indexing.embeddings.model import Embedder
    from weft.storage.sql.database import Transaction

_AT_LEAST = 0.8
_PUT_AT_ONCE = 100
_EMBEDDED_AT_ONCE = 256
_WORDS = [
    f"{begin}{end}" for begin in ("re", "in", "con", "pro", "dis") for end in ("port", "form", "tract", "ceed", "fer")
]


class Sizes(NamedTuple):
    """How much is put, and how often."""

    rounds: int
    long: int
    sections: int
    short: int


def run(*, quick: bool) -> list[Row]:
    sizes = Sizes(rounds=1, long=1, sections=4, short=8) if quick else Sizes(rounds=3, long=4, sections=80, short=300)
    return [*run_async(_on_sqlite(sizes)), *run_async(_on_postgres(sizes))]


async def _on_sqlite(sizes: Sizes) -> list[Row]:
    with folder() as path:
        return await _measure(str(path / "weft.db"), sizes, "sqlite")


async def _on_postgres(sizes: Sizes) -> list[Row]:
    with postgres_server() as server:
        return await _measure(await postgres_database(server, "ingestion"), sizes, "postgres")


async def _measure(url: str, sizes: Sizes, database: str) -> list[Row]:
    await prepare(url, [])
    # Nothing is indexed before the clock starts.
    app = await open_app(url)
    app.scheduler.paused |= {"knowledge.reindex", "knowledge.ingest"}
    embedder = configured_embedders(app.settings)[0]
    try:
        await embedder.embed(["warm"], "passage")
        return [await _compared(app, embedder, sort, sizes, database) for sort in _SORTS]
    finally:
        await embedder.close()
        await app.close()


async def _compared(app: App, embedder: Embedder, sort: str, sizes: Sizes, database: str) -> Row:
    await _round(app, embedder, f"{sort}-warm", iter(["One chunk."]))
    pairs = [await _round(app, embedder, f"{sort}-{each}", _SORTS[sort](sizes, each)) for each in range(sizes.rounds)]
    name = f"ingestion.{sort}_documents_{database}"
    return compared(pairs).rate_row(name, "chunks/s", "embedder alone", at_least=_AT_LEAST)


async def _round(app: App, embedder: Embedder, domain: str, documents: Iterator[str]) -> tuple[float, float]:
    """Return chunks a second of indexing documents, and of embedding their texts alone."""
    await call(app, "knowledge.create_domain", domain=domain)
    given = [{"document_id": f"{place}.md", "text": text} for place, text in enumerate(documents)]
    for start in range(0, len(given), _PUT_AT_ONCE):
        await call(app, "knowledge.add_documents", domain=domain, documents=given[start : start + _PUT_AT_ONCE])
    started = time.perf_counter()
    await app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    took = time.perf_counter() - started
    texts = await _texts(app, domain, len(given))
    started = time.perf_counter()
    for start in range(0, len(texts), _EMBEDDED_AT_ONCE):
        await embedder.embed(texts[start : start + _EMBEDDED_AT_ONCE], "passage")
    return len(texts) / took, len(texts) / (time.perf_counter() - started)


async def _texts(app: App, domain: str, documents: int) -> list[str]:
    actor = await app.identify(ADMIN)

    async def look(transaction: Transaction) -> list[str]:
        collections, found = SqlCollectionStore(transaction), []
        for place in range(documents):
            found += await collections.of_item(domain_collection(domain), domain, f"{place}.md")
        return [embedded_text(chunk.heading, chunk.text) for chunk in found]

    return await app.database.read(Scope(actor.tenant), look)


def _long(sizes: Sizes, each: int) -> Iterator[str]:
    chance = random.Random(f"long {each}")
    for _ in range(sizes.long):
        yield "\n\n".join(f"# {_some(chance, 3)}\n\n{_some(chance, 300)}" for _ in range(sizes.sections))


def _short(sizes: Sizes, each: int) -> Iterator[str]:
    chance = random.Random(f"short {each}")
    return (f"# {_some(chance, 3)}\n\n{_some(chance, 120)}" for _ in range(sizes.short))


def _some(chance: random.Random, words: int) -> str:
    return " ".join(f"{chance.choice(_WORDS)}{chance.randrange(50)}" for _ in range(words))


_SORTS: dict[str, Callable[[Sizes, int], Iterator[str]]] = {"long": _long, "short": _short}
