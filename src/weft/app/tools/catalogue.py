"""The tools of a caller: found by the product's own ranking, described in full."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from weft.app.dispatch import check_access
from weft.app.search.service import rank
from weft.app.tools.needs import NEEDS, synonyms_of
from weft.capabilities.guidance.tools import DescribeTool, FoundTool, ToolDescription
from weft.capabilities.indexing.collections.model import embedded_text
from weft.capabilities.indexing.embeddings.model import EmbedderUnavailable, TextRefused
from weft.capabilities.indexing.embeddings.model_selection import serving_model
from weft.capabilities.search.model import Query, RankingWeights
from weft.kernel.clock import to_micros
from weft.kernel.thread_pools import SEARCH_THREADS
from weft.storage.sql.database import Scope
from weft.storage.sql.embeddings import SqlTenantModelStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.app.search.embedding_cache import CachedEmbeddings
    from weft.app.tools.tool_index import ToolIndex
    from weft.app.tools.toolbox import Toolbox, ToolEntry
    from weft.capabilities.indexing.embeddings.model import Vectors
    from weft.kernel.clock import Clock
    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Database

# Tools have no importance and no age: the best few are returned, however well they fit.
_WEIGHTS = RankingWeights(min_score=0.0, recency_weight=0.0, importance_weight=0.0)


_WAIT_SECONDS = 0.5
# More than are returned: several may be of the same tool.
_PASSAGES = 50


class ToolDocument(NamedTuple):
    """A tool as a searchable document."""

    name: str
    heading: str
    text: str
    synonyms: str = ""


class IndexedTools:
    """Searches and describes tools.

    The first search starts embedding them, once per model; until that is done they are searched by words only.
    """

    def __init__(self, toolbox: Toolbox, database: Database, embeddings: CachedEmbeddings, clock: Clock) -> None:
        self._toolbox = toolbox
        self._database = database
        self._embeddings = embeddings
        self._clock = clock
        self._building: dict[str, asyncio.Task[ToolIndex | None]] = {}
        self._words_only: ToolIndex | None = None

    async def search(self, actor: Actor, query: str, limit: int) -> list[FoundTool]:
        scope = Scope(actor.tenant, actor.epoch)
        listed = await self._database.read(scope, lambda tx: SqlTenantModelStore(tx).listed())
        model = serving_model(listed, self._embeddings.models()).name
        usable = {entry.name: entry for entry in self._toolbox.entries(actor)}
        index = await self._index(model, _WAIT_SECONDS)
        view = await SEARCH_THREADS.run(index.view, frozenset(usable))

        async def embed(texts: Sequence[str]) -> Vectors | None:
            return await self._embed(actor, texts, model) if index.has_vectors else None

        asked_at = to_micros(self._clock.now())
        ranking = await rank(
            Query(
                text=query,
                asked_at=asked_at,
                top_k=_PASSAGES,
                max_results=_PASSAGES,
                weights=_WEIGHTS,
                low_confidence=True,
            ),
            [view],
            embed,
        )
        # The best passage of a tool counts.
        names = list(dict.fromkeys(index.name_of(each.number) for each in ranking.ranked))
        return [FoundTool(name=name, summary=usable[name].summary) for name in names[:limit]]

    async def describe(self, actor: Actor, request: DescribeTool) -> ToolDescription:
        # No transaction follows that would check it.
        await check_access(self._database, actor)
        view, output = self._toolbox.describe(actor, request.name, in_session=request.session_id is not None)
        return ToolDescription(
            name=view.name,
            description=view.description,
            read_only=view.read_only,
            input_schema=view.input_schema,
            output_schema=output if request.output_schema else None,
        )

    async def prepare(self) -> None:
        """Wait until tools can be searched by meaning with the default model."""
        await self._index(self._embeddings.models()[0].name, None)

    async def close(self) -> None:
        for building in self._building.values():
            building.cancel()
        await asyncio.gather(*self._building.values(), return_exceptions=True)

    async def _index(self, model: str, wait_seconds: float | None) -> ToolIndex:
        """Return the index, by words only if embedding the tools takes longer than the wait."""
        building = self._building.get(model)
        if building is None:
            building = self._building[model] = asyncio.create_task(self._embedded(model))
        await asyncio.wait([building], timeout=wait_seconds)
        index = building.result() if building.done() else None
        if index is not None:
            return index
        if building.done():
            # The model may be available again later.
            del self._building[model]
        if self._words_only is None:
            self._words_only = await SEARCH_THREADS.run(_new_index, self._documents(), None)
        return self._words_only

    async def _embedded(self, model: str) -> ToolIndex | None:
        documents = self._documents()
        texts = [embedded_text(document.heading, document.text, "") for document in documents]
        vectors = await self._vectors(texts, model)
        return None if vectors is None else await SEARCH_THREADS.run(_new_index, documents, vectors)

    def _documents(self) -> list[ToolDocument]:
        return [document for entry in self._toolbox.all_entries() for document in _documents(entry)]

    async def _vectors(self, texts: Sequence[str], model: str) -> Sequence[bytes] | None:
        """Return the vectors of public texts, which all tenants share; None if the model is unavailable."""
        try:
            return await self._embeddings.of_passages("", texts, model, platform=True)
        except (EmbedderUnavailable, TextRefused):
            return None

    async def _embed(self, actor: Actor, texts: Sequence[str], model: str) -> Vectors | None:
        try:
            found = await asyncio.gather(*(self._embeddings.of_query(actor, text, model) for text in texts))
        except (EmbedderUnavailable, TextRefused):
            return None
        from numpy import stack  # noqa: PLC0415 - an embedder has loaded it already

        return stack(found)


def _new_index(documents: Sequence[ToolDocument], vectors: Sequence[bytes] | None) -> ToolIndex:
    from weft.app.tools.tool_index import ToolIndex  # noqa: PLC0415 - slow to import

    return ToolIndex(documents, vectors)


def _documents(entry: ToolEntry) -> list[ToolDocument]:
    """Return a tool as documents: its description, and each need that it serves, in everyday words."""
    heading = entry.name.replace("_", " ").replace(".", " ")
    texts = [entry.summary, *NEEDS.get(entry.name, ())]
    return [ToolDocument(entry.name, heading, text, synonyms_of(f"{heading} {text}")) for text in texts]
