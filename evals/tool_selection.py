"""Tool selection: are the tools that a task needs among those loaded for it, and how many tokens does that save?

Each set of tools is registered as the product does it, and ranked by the product's own ranking. ``loaded`` is the
recall of the needed tools among the ten whose definitions a model gets; ``found`` also counts those that it gets by
name, and can load. Loading everything finds all of them, by definition. The baseline is BM25 over the same texts.
Tokens are those of the definitions and names that are sent, against all definitions.

MetaTool is also evaluated with examples of tasks, as runtimes may register them: the examples of a tool are queries of
the other four of five folds, never the one that is scored.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from evals.results import Row
from evals.retrieval_sets import MatchesAll, as_indexed
from evals.vector_cache import VectorCache
from weftline.app.tools.catalogue import ranking_query
from weftline.kernel.ports import approximate_tokens
from weftline.prompts.tools.model import LOADED, NAMED, TOOLS, cleaned, definition_tokens, registered, searched_chunks
from weftline.search.model import CollectionQuery
from weftline.search.ranking import rank
from weftline.search_index.snapshot import IndexSnapshot
from weftline.search_index.view import CollectionView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from weftline.indexing.collections import NewChunk
    from weftline.search.model import Floats

_SETS = ("bfcl_live", "metatool", "livemcp")
# Of what loading everything finds, and of its tokens.
_RECALL, _SAVED = 0.95, 0.9
_WITH_TARGETS = ("bfcl_live", "metatool")
_FOLDS, _EXAMPLES = 5, 8
_DIGITS = 4


class ToolSet(NamedTuple):
    """Tools by id, and tasks with groups of interchangeable tools that they need."""

    tools: dict[str, dict[str, Any]]
    tasks: list[tuple[str, list[frozenset[str]]]]


class Chosen(NamedTuple):
    """The tools for one task, best first, and the groups that it needs."""

    ids: list[str]
    needed: list[frozenset[str]]

    def recall(self, limit: int) -> float:
        found = set(self.ids[:limit])
        return sum(bool(group & found) for group in self.needed) / len(self.needed)


def tool_selection(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    vectors = VectorCache()
    for name in _SETS:
        tool_set = _load(folder, name)
        index = _Index(tool_set.tools, vectors)
        by_words = index.choose(tool_set.tasks, meaning=False)
        yield from _rows(name, index, index.choose(tool_set.tasks), by_words, targets=name in _WITH_TARGETS)
        if name == "metatool":
            yield from _rows(f"{name}.examples", index, list(_with_examples(tool_set, vectors)), None, targets=True)


def _rows(
    name: str, index: _Index, chosen: Sequence[Chosen], by_words: Sequence[Chosen] | None, *, targets: bool
) -> Iterator[Row]:
    for what, limit in (("loaded", LOADED), ("found", LOADED + NAMED)):
        baseline = None if by_words is None else round(fmean(each.recall(limit) for each in by_words), _DIGITS)
        unit = "recall among the ten loaded" if what == "loaded" else "recall among those loaded or named"
        yield _row(f"{name}.{what}", fmean(each.recall(limit) for each in chosen), unit, baseline, _RECALL, targets)
    saved = fmean(index.saved(each.ids) for each in chosen)
    yield _row(f"{name}.saved", saved, "of the tokens of all definitions", None, _SAVED, targets)


def _row(name: str, value: float, unit: str, baseline: float | None, at_least: float, targets: bool) -> Row:  # noqa: FBT001
    value = round(value, _DIGITS)
    target = f">= {at_least}" if targets else None
    return Row(f"tool_selection.{name}", value, unit, baseline, target, value >= at_least if targets else None)


class _Index:
    """Registered tools in a search index."""

    def __init__(
        self,
        tools: Mapping[str, dict[str, Any]],
        vectors: VectorCache,
        examples: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._vectors = vectors
        self._tokens = {tool_id: _definition_tokens(tool) for tool_id, tool in tools.items()}
        self._names = {tool_id: approximate_tokens(tool["name"]) + 1 for tool_id, tool in tools.items()}
        self._chunks = [
            chunk
            for tool_id, tool in tools.items()
            for chunk in _chunks(tool_id, tool, (examples or {}).get(tool_id, ()))
        ]
        embedded = vectors.of([chunk.embedded for chunk in self._chunks]).astype("<f2")
        indexed = [
            as_indexed(number, chunk, vector.tobytes())
            for number, (chunk, vector) in enumerate(zip(self._chunks, embedded, strict=True), start=1)
        ]
        snapshot = IndexSnapshot().advanced_to(len(indexed), indexed, [])
        self._view = CollectionView(TOOLS, snapshot, CollectionQuery(TOOLS), MatchesAll())

    def choose(self, tasks: Sequence[tuple[str, list[frozenset[str]]]], *, meaning: bool = True) -> list[Chosen]:
        async def run() -> list[Chosen]:
            return [Chosen(await self._best(task, meaning=meaning), needed) for task, needed in tasks]

        return asyncio.run(run())

    def saved(self, ids: Sequence[str]) -> float:
        """Return the share of tokens that is not sent."""
        sent = sum(self._tokens[each] for each in ids[:LOADED]) + sum(self._names[each] for each in ids[LOADED:])
        return 1 - sent / sum(self._tokens.values())

    async def _best(self, task: str, *, meaning: bool) -> list[str]:
        async def embed(texts: Sequence[str]) -> Floats | None:
            return self._vectors.of(texts) if meaning else None

        ranking = await rank(ranking_query(task, 0, LOADED + NAMED), [self._view], embed)
        ids = (self._chunks[each.number - 1].item for each in ranking.ranked)
        return list(dict.fromkeys(ids))[: LOADED + NAMED]


def _with_examples(tool_set: ToolSet, vectors: VectorCache) -> Iterator[Chosen]:
    for fold in range(_FOLDS):
        examples: defaultdict[str, list[str]] = defaultdict(list)
        for place, (task, needed) in enumerate(tool_set.tasks):
            for tool_id in sorted(frozenset().union(*needed)):
                if place % _FOLDS != fold and len(examples[tool_id]) < _EXAMPLES:
                    examples[tool_id].append(task)
        yield from _Index(tool_set.tools, vectors, examples).choose(tool_set.tasks[fold::_FOLDS])


def _chunks(tool_id: str, tool: dict[str, Any], examples: Sequence[str]) -> list[NewChunk]:
    definition = cleaned(tool["name"], tool["description"] or "", _schema(tool), examples)
    made = registered(definition, owner="", name=tool["name"], server=tool.get("server") or "", registered_by="", now=0)
    # Several tools of a set have the same name.
    return [structs.replace(chunk, item=tool_id) for chunk in searched_chunks(made)]


def _definition_tokens(tool: dict[str, Any]) -> int:
    return definition_tokens(tool["name"], tool["description"] or "", _schema(tool))


def _schema(tool: dict[str, Any]) -> dict[str, Any]:
    described = {name: {"type": "string", "description": text} for name, text in (tool.get("parameters") or {}).items()}
    return tool.get("input_schema") or {"type": "object", "properties": described}


def _load(folder: Path, name: str) -> ToolSet:
    read: Callable[[str], list[dict[str, Any]]] = lambda part: [  # noqa: E731 - two files
        json.loads(line) for line in (folder / "tools" / f"{name}_{part}.jsonl").read_text("utf-8").splitlines()
    ]
    tasks = [
        (each["query"], [frozenset(group) for group in each.get("gold_any") or [[gold] for gold in each["gold_tools"]]])
        for each in read("queries")
    ]
    return ToolSet({tool["id"]: tool for tool in read("tools")}, tasks)
