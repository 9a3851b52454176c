"""The operation `search.get_context`: the best passages for a query as one text."""

from __future__ import annotations

import sys
import time
from collections import Counter
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, structs

from weftline.kernel.errors import InvalidInput, PermissionDenied, QuotaExceeded
from weftline.kernel.fields import new_id
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Response, operation
from weftline.kernel.ports import TokenCounters
from weftline.knowledge.model import DomainNotFound
from weftline.prompts.assembly.passages import (
    RenderedContext,
    Section,
    heading_of,
    numbered,
    passage_trust,
    render_context,
)
from weftline.prompts.assembly.plan import DoubtLimit
from weftline.prompts.assembly.prompt_trust import Screening
from weftline.prompts.assembly.receipts import ContextOverBudget, over_budget
from weftline.prompts.assembly.retrieval import SURROUNDING_PLACES, results_within, surrounded_passages
from weftline.records.model import Block, ContextAssembly, ContextSourceRef
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.safety.trust.model import Trust, lowest_trust
from weftline.search.model import DEFAULT_TOP_K
from weftline.search.neighbours import passage_ref, with_surroundings
from weftline.search.passages import ref_to
from weftline.search.persistent_memory import SearchStores
from weftline.search.results import (
    SCORE_DIGITS,
    ExplainOption,
    PassageHandle,
    QueryText,
    RankingOptions,
    ResolvedReference,
    SearchFacts,
    requested_scope,
    resolved_references,
    search_facts,
    search_request,
)
from weftline.search.retriever import ChunkNotFound, Retriever, SimilarSearch
from weftline.search.search_records import RecordOption, Searched, check_may_record, record_search, search_budget
from weftline.sessions.model import SessionArchived, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weftline.kernel.ports import TokenCounter
    from weftline.search.neighbours import PassageRef
    from weftline.search.retriever import RetrievalResult, SearchHit, SearchRequest, SearchScope


# Gathers the passages of a text for a prompt: the results of a query with their surroundings.

# Places around a single chunk.
_MAX_DISTANCE = 50


class GatheredPassages(NamedTuple):
    """Passages for a text, with the search they come from. ``scores`` are those of the results, by chunk_id.

    ``pins`` are the pinned ones, which must all be in the text; ``withheld`` were left out because of their trust.
    """

    refs: list[PassageRef]
    scores: dict[str, float]
    scope: SearchScope
    found: RetrievalResult | None
    pins: Sequence[SearchHit] = ()
    withheld: int = 0


async def gather_passages(
    retriever: Retriever, actor: Actor, request: SearchRequest, max_tokens: int, doubt_tokens: int
) -> GatheredPassages:
    """Return all pins, then the passages that are evidence with their surroundings, as a prompt has them.

    In doubt they are followed by the best doubtful ones, of ``doubt_tokens`` at the most.
    """
    query = structs.replace(request.query, top_k=results_within(max_tokens), purpose="prompt")
    found = await retriever.find(actor, request._replace(query=query))
    hits = [*found.pinned, *_within_doubt(found.hits, doubt_tokens)]
    refs: list[PassageRef] = []
    for rank, each in enumerate(await surrounded_passages(retriever, actor, hits, SURROUNDING_PLACES)):
        refs.append(passage_ref(each.passage, rank))
        refs += [ref._replace(rank=rank) for ref in each.surroundings]
    scores = {hit.passage.chunk_id: hit.ranked.score for hit in hits}
    return GatheredPassages(refs, scores, found.scope, found._replace(hits=hits[len(found.pinned) :]), found.pinned)


def _within_doubt(hits: Iterable[SearchHit], doubt_tokens: int) -> Iterator[SearchHit]:
    """Yield hits, of the doubtful ones the best that fit into their room."""
    for hit in hits:
        doubt_tokens -= hit.passage.chunk.tokens if hit.ranked.doubtful else 0
        if doubt_tokens >= 0 or not hit.ranked.doubtful:
            yield hit


async def gather_surroundings(search: SimilarSearch, chunk_id: str) -> GatheredPassages:
    """Return a chunk with its surroundings."""
    origin = await search.passage(chunk_id)
    scope, _ = await search.retriever.open_scope(search.actor, search.filters)
    refs = await search.retriever.stores.read(
        search.actor, partial(with_surroundings, [origin], _MAX_DISTANCE), heavy=True
    )
    return GatheredPassages(refs, {chunk_id: 1.0}, scope, None)


_DEFAULT_TOKENS = 2_000
# An answer without any passage has fewer tokens.
_MIN_TOKENS = 128
# Stands for the time while tokens are counted: it must not have fewer digits than the real one.
_LONGEST_MS = 99_999.999


class GetContext(RankingOptions, kw_only=True):
    """A query or a search result to gather context for."""

    query: QueryText | None = None
    ref: Annotated[
        PassageHandle | None,
        msgspec.Meta(description="Alternatively, the ref of a search result: returns its surroundings."),
    ] = None
    max_tokens: Annotated[
        int,
        msgspec.Meta(ge=_MIN_TOKENS, le=200_000, description="Token budget of the whole answer with its citations."),
    ] = _DEFAULT_TOKENS
    tokenizer: Annotated[
        Literal["approximate", "o200k_base", "cl100k_base"],
        msgspec.Meta(description="How tokens are counted; exact tokenizers need the weftline[tokenizers] extra."),
    ] = "approximate"
    explain: ExplainOption = False
    record: RecordOption = False


class Citation(Response, kw_only=True):
    """Source of a numbered passage. ``ref`` is a handle that context_records, show or resolve, opens.

    ``trust`` is shown where it is not the usual one of the source: a suspicious passage may contain an attack.
    With ``explain``: the label and score of the passage, and ``source_refs`` to each of its parts.
    """

    number: int
    ref: str
    trust: Trust | msgspec.UnsetType = UNSET
    label: str | msgspec.UnsetType = UNSET
    score: float | msgspec.UnsetType = UNSET
    source_refs: list[ContextSourceRef] | msgspec.UnsetType = UNSET


class ContextResponse(SearchFacts, kw_only=True):
    """Passages numbered [1], [2] and so on, most relevant first, each with its surroundings.

    ``tokens`` are those of the whole answer as JSON. ``complete``: every result fitted into the budget. ``withheld``:
    passages that the tenant's policy keeps out of prompts because they look like an attack. ``confidence``:
    likelihood that the passages contain the answer, from 0 to 1; ``unsure`` if it is low. ``widened``: the last
    passages are doubtful. Nothing is returned if nothing is evidence. ``lexical_only``: why only words were
    matched, not meaning. ``resolved``: what phrases such as "that file" were taken to mean. ``assembly_id``: the
    record of the text, if recorded.
    """

    context: str
    tokens: int
    citations: list[Citation]
    complete: bool = True
    withheld: int = 0
    confidence: float | None = None
    unsure: bool = False
    widened: bool = False
    lexical_only: str = ""
    resolved: tuple[ResolvedReference, ...] = ()
    selection_id: str | msgspec.UnsetType = UNSET
    assembly_id: str | msgspec.UnsetType = UNSET


@operation(
    "search.get_context",
    heavy=True,
    tool="get_context",
    http="POST /v1/search/get-context",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(
        DomainNotFound,
        SessionNotFound,
        SessionArchived,
        ChunkNotFound,
        ContextOverBudget,
        PermissionDenied,
        QuotaExceeded,
    ),
)
async def get_context(
    request: GetContext, actor: Actor, retriever: Retriever, counters: TokenCounters, doubt_limit: DoubtLimit
) -> ContextResponse:
    """Gather one text for a prompt: the passages that answer a question, with surroundings, within a token budget.

    They are the ones that a prompt gets. Passages are numbered and have citations. With a ref instead
    of a query: the surroundings of that search result.
    """
    started = time.perf_counter()
    if request.record:
        check_may_record(actor)
    count = counters.named(request.tokenizer)
    if (request.query is None) == (request.ref is None):
        raise InvalidInput("query: give either query or ref", field="query")
    if request.query is not None:
        search = search_request(request, actor, request.query, DEFAULT_TOP_K, retriever, default_min_score=0.0)
        doubt_tokens = doubt_limit.tokens(request.max_tokens)
        gathered = await gather_passages(retriever, actor, search, request.max_tokens, doubt_tokens)
    else:
        similar_search = SimilarSearch(retriever, actor, requested_scope(request))
        gathered = await gather_surroundings(similar_search, request.ref or "")
    gathered = await _screened(gathered, actor, retriever)
    answer = _Answer(request, gathered, started)
    render = partial(render_context, count=count, measure=lambda sections: answer.tokens(sections, count))
    rendered = render(gathered.refs, request.max_tokens)
    if not _has_pins(rendered, gathered):
        pins_only = [ref for ref in gathered.refs if ref.rank < len(gathered.pins)]
        raise _pins_over_budget(gathered.pins, render(pins_only, sys.maxsize).tokens, request.max_tokens, count)
    built = BuiltContext(rendered, gathered)
    records = await retriever.stores.write(actor, partial(_record, request, built)) if request.record else None
    return answer.response(built.rendered, records)


async def _screened(gathered: GatheredPassages, actor: Actor, retriever: Retriever) -> GatheredPassages:
    """Return the passages without those that the tenant's policy leaves out of prompts."""
    suspicious = [ref for ref in gathered.refs if passage_trust(ref.passage, actor.principal_id).is_suspicious]
    if not suspicious:
        return gathered
    screening = Screening(await retriever.stores.read(actor, lambda stores: stores.policies.current()))
    dropped = {
        ref.passage.chunk_id for ref in suspicious if screening.drops(passage_trust(ref.passage, actor.principal_id))
    }
    return gathered._replace(
        refs=[ref for ref in gathered.refs if ref.passage.chunk_id not in dropped],
        pins=[pin for pin in gathered.pins if pin.passage.chunk_id not in dropped],
        withheld=len(dropped),
    )


def _has_pins(rendered: RenderedContext, gathered: GatheredPassages) -> bool:
    """Tell whether no pin had to be left out."""
    included = {passage.chunk_id for section in rendered.sections for passage in section.passages}
    return all(pin.passage.chunk_id in included for pin in gathered.pins)


def _pins_over_budget(
    pins: Sequence[SearchHit], needed: int, max_tokens: int, count: TokenCounter
) -> ContextOverBudget:
    """Return the error for pins that need more tokens than there are, with their headings and citations."""
    tokens: Counter[str] = Counter()
    for pin in pins:
        tokens[pin.passage.uri] += count(pin.passage.text)
    return over_budget({"pins": tokens.total(), "citations": max(0, needed - tokens.total())}, max_tokens, tokens)


class BuiltContext(NamedTuple):
    """A rendered text and the passages that were gathered for it."""

    rendered: RenderedContext
    gathered: GatheredPassages


class _Records(NamedTuple):
    """Ids of the records of a text."""

    selection_id: str
    assembly_id: str


async def _record(request: GetContext, built: BuiltContext, stores: SearchStores) -> _Records:
    """Record the search, its token budget and the text that was built."""
    rendered, found = built.rendered, built.gathered.found
    hits = [] if found is None else [*found.hits, *found.pinned]
    sections = [tuple(dict.fromkeys(passage.uri for passage in each.passages)) for each in rendered.sections]
    selected = tuple(dict.fromkeys(uri for uris in sections for uri in uris))
    candidates = tuple(dict.fromkeys([*(hit.passage.uri for hit in hits), *selected]))
    budget = search_budget(
        stores, max_tokens=request.max_tokens, actual_tokens=rendered.tokens, actual_items=len(selected)
    )
    assembly = ContextAssembly(
        schema_version=SCHEMA_VERSION,
        assembly_id=new_id("assembly"),
        target=stores.actor.participant,
        ordered_blocks=tuple(
            Block(block_id=str(number), kind="retrieved", item_refs=uris) for number, uris in enumerate(sections, 1)
        ),
        created_at=stores.clock.now(),
        budget_ref=budget.budget_id,
        source_item_refs=selected,
        metadata={"weftline": {"text_hash": f"sha256:{sha256(rendered.text.encode()).hexdigest()}"}},
    )
    searched = Searched(request.query, found, candidates, selected)
    selection = await record_search(stores, request.session_id, searched, budget, assembly)
    return _Records(selection.selection_id, assembly.assembly_id)


class _Answer(NamedTuple):
    """Writes the answer to a request from the passages that fit."""

    request: GetContext
    gathered: GatheredPassages
    started: float

    def tokens(self, sections: Sequence[Section], count: TokenCounter) -> int:
        """Return the tokens of the whole answer with these sections, as JSON."""
        records = _Records(new_id("selection"), new_id("assembly")) if self.request.record else None
        rendered = RenderedContext(numbered(sections), self.request.max_tokens, list(sections), complete=False)
        response = self.response(rendered, records)
        if response.took_ms is not UNSET:
            response = structs.replace(response, took_ms=_LONGEST_MS)
        return count(msgspec.json.encode(response).decode())

    def response(self, rendered: RenderedContext, records: _Records | None) -> ContextResponse:
        found, explain = self.gathered.found, self.request.explain
        response = ContextResponse(
            context=rendered.text,
            tokens=rendered.tokens,
            citations=[self._citation(number, each) for number, each in enumerate(rendered.sections, start=1)],
            complete=rendered.complete,
            withheld=self.gathered.withheld,
            selection_id=UNSET if records is None else records.selection_id,
            assembly_id=UNSET if records is None else records.assembly_id,
            **search_facts(
                self.gathered.scope,
                0 if found is None else found.ranking.searched,
                None if found is None else found.model,
                self.started,
                explain=explain,
            ),
        )
        return response if found is None else structs.replace(response, **_doubts(found))

    def _citation(self, number: int, section: Section) -> Citation:
        scores = self.gathered.scores
        best = max(section.passages, key=lambda each: scores.get(each.chunk_id, -1.0))
        trust = lowest_trust((each.trust for each in section.passages if each.trust), Trust.TRUSTED)
        shown = UNSET if trust is Trust.TRUSTED else trust
        if not self.request.explain:
            return Citation(number=number, ref=best.handle, trust=shown)
        return Citation(
            number=number,
            ref=best.handle,
            trust=shown,
            label=heading_of(section),
            score=scores.get(best.chunk_id, UNSET),
            source_refs=[ref_to(each) for each in section.passages],
        )


def _doubts(found: RetrievalResult) -> dict[str, Any]:
    """Return the fields that say how far to trust the passages."""
    ranking = found.ranking
    return {
        "confidence": round(ranking.confidence, SCORE_DIGITS),
        "unsure": ranking.unsure,
        "widened": any(hit.ranked.doubtful for hit in found.hits),
        "lexical_only": found.lexical_only,
        "resolved": resolved_references(found.references),
    }
