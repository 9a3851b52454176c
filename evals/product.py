"""The product in this process, on a temporary SQLite database, with cached embeddings."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evals.vector_cache import VectorCache
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.jobs.ingestion import INGEST
from weftline.jobs.session_indexing import INDEX
from weftline.jobs.vectors import EMBED
from weftline.providers.embedders.local import MINILM
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from weftline.indexing.embeddings import Model, Purpose, Vectors

_TENANT = "default"
_ADMIN, AGENT = "admin", "agent"
_INGEST_BATCH = 200
_DOCUMENT_BATCH = 100
_START = datetime(2023, 1, 1, tzinfo=UTC)


class CachedEmbedder:
    """The default embedder, with its vectors cached on disk."""

    def __init__(self) -> None:
        self._vectors = VectorCache()
        self._lock = asyncio.Lock()

    @property
    def model(self) -> Model:
        return MINILM

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        del purpose
        async with self._lock:
            return await asyncio.to_thread(self._vectors.of, texts)

    async def close(self) -> None:
        pass


class SettableClock:
    """Clock that is set to the time of what is added."""

    def __init__(self) -> None:
        self.at = _START

    def now(self) -> datetime:
        return self.at


@dataclass(frozen=True, slots=True)
class Product:
    """An App with a tenant and one agent."""

    app: App
    clock: SettableClock

    async def call(self, operation: str, *, principal: str = AGENT, **fields: Any) -> Any:  # noqa: ANN401 - JSON
        context = CallContext(Local(_TENANT, principal))
        return msgspec.to_builtins(await self.app.call(self.app.registry[operation], fields, context))

    async def ingest(self, session_id: str, events: Sequence[dict[str, Any]]) -> None:
        """Add events to the agent's window, in order."""
        for start in range(0, len(events), _INGEST_BATCH):
            await self.call("context.ingest", session_id=session_id, events=events[start : start + _INGEST_BATCH])

    async def add_documents(
        self,
        domain: str,
        texts: Sequence[str] | Mapping[str, str],
        *,
        template: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Add documents, by id if they have one, to a new domain."""
        await self.call("knowledge.create_domain", principal=_ADMIN, domain=domain, template=template)
        more = {"metadata": dict(metadata)} if metadata else {}
        named = texts if isinstance(texts, Mapping) else {f"{n}.txt": text for n, text in enumerate(texts, start=1)}
        documents = [{"document_id": name, "text": text, **more} for name, text in named.items()]
        for start in range(0, len(documents), _DOCUMENT_BATCH):
            batch = documents[start : start + _DOCUMENT_BATCH]
            await self.call("knowledge.add_documents", principal=_ADMIN, domain=domain, documents=batch)

    async def index(self) -> None:
        """Index everything that was added."""
        await self.app.scheduler.drain(INDEX, EMBED, INGEST)


@contextlib.asynccontextmanager
async def open_product(embedder: CachedEmbedder) -> AsyncIterator[Product]:
    """Yield a running App on a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), SettableClock()
        settings = Settings(database_url=str(folder / "weftline.db"), data_dir=str(folder), rate_limits="off")
        app = App(settings, clock=clock, embedders=[embedder])
        await app.open(background=False)
        try:
            product = Product(app, clock)
            await app.tenants.create(_TENANT)
            await product.call("agent.create", principal=_ADMIN, agent_id=AGENT)
            # Nobody reviews what a detector holds by mistake.
            actions = dict.fromkeys(("human", "agent", "tool", "document", "import"), "annotate")
            policy = {"injection": actions, "prompt_injection": "annotate"}
            await product.call("layer.define", principal=_ADMIN, layer="tenant", policy=policy)
            yield product
        finally:
            await app.close()
