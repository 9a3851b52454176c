"""The tools of a caller: found by the product's own ranking, described in full."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import msgspec

from weftline.access.steps import check_in_step
from weftline.app.dispatch import check_access
from weftline.app.search.service import rank
from weftline.app.tools.toolbox import WEFTLINE_TOOLS
from weftline.indexing.collections import embedded_text
from weftline.indexing.embeddings import EmbedderUnavailable, TenantModelStore, TextRefused, serving_model
from weftline.indexing.sql import CollectionStore
from weftline.kernel.clock import to_micros
from weftline.kernel.data_files import JsonFile
from weftline.kernel.errors import UnknownOperation
from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.models.language_models.content import ToolDefinition
from weftline.prompts.tools.catalogue import DescribeTool, FoundTool, RankedTool, ToolDescription
from weftline.prompts.tools.model import TOOLS, RuntimeTool, summary
from weftline.prompts.tools.registry import visible_owners
from weftline.prompts.tools.sql import ToolStore
from weftline.search.model import CollectionQuery, Query, RankingWeights
from weftline.storage.sql.database import Scope, caller_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from weftline.app.gateway import McpGateway
    from weftline.app.search.embedding_cache import CachedEmbeddings
    from weftline.app.search.service import SearchIndexes
    from weftline.app.tools.tool_index import ToolIndex
    from weftline.app.tools.toolbox import Toolbox, ToolEntry, ToolView
    from weftline.indexing.embeddings import Vectors
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.prompts.tools.model import RegisteredTool
    from weftline.search.model import Ranked, View
    from weftline.storage.sql.database import Database


# What agents want when they need a tool, in everyday words: the tool search ranks these beside the descriptions.
#
# Descriptions use the product's nouns (board, window, domain); those who ask do not know them yet. Each tool, or
# action of a grouped tool, has a few short phrases that name the need with other words than its description does.
# Synonyms are everyday words for the nouns; a text that uses the noun is found by them too.


class EverydayWords(TypedDict):
    """Words for each noun of the product, and phrases for each tool."""

    synonyms: dict[str, str]
    needs: dict[str, list[str]]


everyday_words = JsonFile("app/tools/needs.json", EverydayWords)


def synonyms_of(text: str) -> str:
    """Return the synonyms of the nouns in a text."""
    words = text.lower()
    return " ".join(synonyms for noun, synonyms in everyday_words()["synonyms"].items() if noun in words)


# Tools have no importance and no age: the best few are returned, however well they fit.
_WEIGHTS = RankingWeights(min_score=0.0, recency_weight=0.0, importance_weight=0.0)


_WAIT_SECONDS = 0.5
_EMBED_DELAY_SECONDS = 1.0
_RUNTIME = "your runtime"
# Several passages may be of the same tool.
# A tool fits a task if its relevance is this part of the best one's, and by meaning at least this: texts that have
# nothing to do with each other reach 0.47, such as a greeting and a database.
_FITS, _FITS_BY_MEANING = 0.8, 0.5
_PASSAGES_PER_TOOL = 3
# Enough for the first few tools.
_PASSAGES = 50


class ToolDocument(NamedTuple):
    """A tool as a searchable document."""

    name: str
    heading: str
    text: str
    synonyms: str = ""


class IndexedTools:
    """Searches, ranks and describes tools: those of Weftline, and those that runtimes registered.

    The first search starts embedding the tools of Weftline, once per model; until that is done they are searched by
    words only. Registered tools are a collection of their tenant.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        gateway: McpGateway,
        database: Database,
        embeddings: CachedEmbeddings,
        collections: SearchIndexes,
        clock: Clock,
        on_registered: Callable[[], None],
    ) -> None:
        self._toolbox = toolbox
        self._gateway = gateway
        self._database = database
        self._embeddings = embeddings
        self._collections = collections
        self._clock = clock
        self._on_registered = on_registered
        self._building: dict[str, asyncio.Task[ToolIndex | None]] = {}
        self._words_only: ToolIndex | None = None

    def own_names(self) -> frozenset[str]:
        return self._toolbox.own_names()

    def own_tools(self, actor: Actor) -> list[ToolDefinition]:
        return [_definition(self._toolbox.describe(actor, entry.name)[0]) for entry in self._toolbox.entries(actor)]

    def registering(self) -> None:
        # The job sees what is committed by then; it looks again later in any case.
        asyncio.get_running_loop().call_later(_EMBED_DELAY_SECONDS, self._on_registered)

    async def search(self, actor: Actor, query: str, limit: int) -> list[FoundTool]:
        usable = {entry.name: entry for entry in self._toolbox.entries(actor)}
        names = [each.name for each in await self.rank(actor, query, _PASSAGES, own=usable)][:limit]
        found = {tool.name: tool for tool in await self._registered(actor, set(names) - usable.keys())}
        forwarded = await self._gateway.usable(actor)
        return [
            FoundTool(name=name, summary=usable[name].summary)
            if name in usable
            else FoundTool(
                name=name, summary=summary(found[name]), runtime=msgspec.UNSET if name in forwarded else True
            )
            for name in names
            if name in usable or name in found
        ]

    async def rank(self, actor: Actor, query: str, limit: int, *, own: Collection[str] = ()) -> list[RankedTool]:
        model = await self._database.read(caller_scope(actor), self._model)
        index = await self._index(model, _WAIT_SECONDS) if own else None
        views: list[View] = [await self._view_of_registered(actor, model)]
        if index is not None:
            views.append(await SEARCH_THREADS.run(index.view, frozenset(own)))

        async def embed(texts: Sequence[str]) -> Vectors | None:
            return await self._embed(actor, texts, model) if index is None or index.has_vectors else None

        ranking = await rank(ranking_query(query, to_micros(self._clock.now()), limit), views, embed)
        numbers = [each.number for each in ranking.ranked if each.collection == TOOLS]
        items = await self._database.read(
            Scope(actor.tenant, principal=actor.path),
            lambda tx: CollectionStore(tx).versions_of(TOOLS, numbers),
        )
        scores: dict[str, float] = {}
        for each in ranking.ranked:
            name = _name_of(each, items, index)
            if name is not None:
                # The best passage of a tool counts.
                scores.setdefault(name, each.score)
        least = max(scores.values(), default=0) * _FITS
        if any(each.signals.get("semantic", 0) > 0 for each in ranking.ranked):
            least = max(least, _FITS_BY_MEANING)
        hidden = await self.hidden(actor)
        return [RankedTool(name, score >= least) for name, score in scores.items() if name not in hidden][:limit]

    async def hidden(self, actor: Actor) -> Collection[str]:
        return await self._gateway.hidden(actor)

    async def describe(self, actor: Actor, request: DescribeTool) -> ToolDescription:
        # No transaction follows that would check it.
        await check_access(self._database, actor)
        try:
            view, output = self._toolbox.describe(actor, request.name, in_session=request.session_id is not None)
        except UnknownOperation:
            forwarded = (await self._gateway.usable(actor)).get(request.name)
            if forwarded is not None:
                return ToolDescription(
                    name=forwarded.name,
                    description=forwarded.description,
                    read_only=forwarded.read_only,
                    input_schema=forwarded.input_schema,
                )
            tool = next(iter(await self._registered(actor, [request.name])), None)
            if tool is None:
                raise
            return ToolDescription(
                name=tool.name,
                description=tool.description,
                read_only=False,
                input_schema=tool.input_schema,
                runtime=tool.server or _RUNTIME,
            )
        return ToolDescription(
            name=view.name,
            description=view.description,
            read_only=view.read_only,
            input_schema=view.input_schema,
            output_schema=output if request.output_schema else None,
        )

    async def check_not_registered(self, actor: Actor, name: str, arguments: Mapping[str, Any]) -> None:
        """Raise RuntimeTool if a call, direct or through weftline_tools, names a tool of the caller's runtime."""
        named = arguments.get("name") if name == WEFTLINE_TOOLS else name
        tool = next(iter(await self._find(actor, [named])), None) if isinstance(named, str) else None
        if tool is not None:
            check_in_step(actor, tool.name)
            raise RuntimeTool(
                f"'{tool.name}' is a tool of your runtime; Weftline does not forward calls.",
                name=tool.name,
                server=tool.server,
                input_schema=tool.input_schema,
            )

    async def _registered(self, actor: Actor, names: Collection[str]) -> Sequence[RegisteredTool]:
        """Return the registered tools of these names that a caller has in its step, and that are for it."""
        hidden = await self.hidden(actor)
        wanted = [name for name in names if actor.may_call(name) and name not in hidden]
        return await self._find(actor, wanted) if wanted else []

    async def _find(self, actor: Actor, names: Collection[str]) -> Sequence[RegisteredTool]:
        scope = caller_scope(actor)
        return await self._database.read(scope, lambda tx: ToolStore(tx).find(visible_owners(actor), names))

    async def _model(self, transaction: Transaction) -> str:
        return serving_model(await TenantModelStore(transaction).listed(), self._embeddings.models()).name

    async def _view_of_registered(self, actor: Actor, model: str) -> View:
        items = None if actor.step is None else actor.step_tools
        query = CollectionQuery(TOOLS, places=visible_owners(actor), items=items)
        return await self._collections.open(actor.tenant, query, actor, model)

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
            return await self._embeddings.of_passages("", texts, model)
        except (EmbedderUnavailable, TextRefused):
            return None

    async def _embed(self, actor: Actor, texts: Sequence[str], model: str) -> Vectors | None:
        try:
            found = await asyncio.gather(*(self._embeddings.of_query(actor, text, model) for text in texts))
        except (EmbedderUnavailable, TextRefused):
            return None
        from numpy import stack  # noqa: PLC0415 - an embedder has loaded it already

        return stack(found)


def ranking_query(text: str, asked_at: int, limit: int) -> Query:
    """Return the query that ranks tools for a task."""
    passages = max(_PASSAGES, limit * _PASSAGES_PER_TOOL)
    return Query(
        text=text, asked_at=asked_at, top_k=passages, max_results=passages, weights=_WEIGHTS, low_confidence=True
    )


def _definition(view: ToolView) -> ToolDefinition:
    return ToolDefinition(name=view.name, description=view.description, input_schema=view.input_schema)


def _name_of(ranked: Ranked, items: Mapping[int, tuple[str, str, int]], index: ToolIndex | None) -> str | None:
    """Return the name of a ranked tool; None if it was removed meanwhile."""
    if ranked.collection == TOOLS:
        return items[ranked.number][1] if ranked.number in items else None
    return None if index is None else index.name_of(ranked.number)


def _new_index(documents: Sequence[ToolDocument], vectors: Sequence[bytes] | None) -> ToolIndex:
    from weftline.app.tools.tool_index import ToolIndex  # noqa: PLC0415 - slow to import

    return ToolIndex(documents, vectors)


def _documents(entry: ToolEntry) -> list[ToolDocument]:
    """Return a tool as documents: its description, and each need that it serves, in everyday words."""
    heading = entry.name.replace("_", " ").replace(".", " ")
    texts = [entry.summary, *everyday_words()["needs"].get(entry.name, ())]
    return [ToolDocument(entry.name, heading, text, synonyms_of(f"{heading} {text}")) for text in texts]
