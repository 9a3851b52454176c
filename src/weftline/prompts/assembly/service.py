"""Assembles prompts: gather, retrieve, plan, render, check, and leave a receipt."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from functools import cached_property, partial
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec
from msgspec import structs

from weftline.indexing.collections import WindowPlace
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.fair_queue import FairSlots
from weftline.kernel.identity import PERMISSION, PRINCIPAL, Actor, Permission
from weftline.kernel.ports import TokenCounters, Transactions
from weftline.kernel.thread_pools import ASSEMBLY_THREADS, SEARCH_THREADS
from weftline.models.budget_limits import warn_of
from weftline.models.budgets import BudgetExceeded
from weftline.models.language_models.catalog import Catalog, ModelInfo, Prices
from weftline.models.language_models.content import PromptForm
from weftline.models.language_models.rendering import ParsedConversation, RenderOptions, check_ttl
from weftline.models.language_models.token_counts import CountCache, PromptCounter
from weftline.models.language_models.wire_forms import render
from weftline.prompts.assembly.conversation import (
    EventPreparer,
    PreparedEventCache,
    PreparedSummary,
    WindowConversation,
    without_summaries,
)
from weftline.prompts.assembly.gather import (
    AssemblyStores,
    Gathered,
    GatherRequest,
    NotPrepared,
    PreviousPrompt,
    PromptCache,
    ScreenedTexts,
    board_packer,
    board_texts,
    document_tokens,
    drafts_of,
    gather,
    layer_blocks,
    missing_packer,
    missing_texts,
    prepare,
    task_block,
)
from weftline.prompts.assembly.packers import READINGS
from weftline.prompts.assembly.passages import PassagePacker, candidate_of, pinned_texts, pins_packer
from weftline.prompts.assembly.plan import (
    FRAMING_TOKENS,
    DoubtLimit,
    Materials,
    cache_costs,
    is_warm,
    make_plan,
    originals_room,
    passage_tokens,
)
from weftline.prompts.assembly.prompt import cache_points_of, expected_use, prompt_of, savings_of
from weftline.prompts.assembly.prompt_trust import SUSPICIOUS, DataMarking, RequestTrust, Screening, request_trust
from weftline.prompts.assembly.receipts import (
    PLATFORM_ID,
    SWITCHED_OFF,
    Candidate,
    CompactionUse,
    Confidence,
    CountingMethod,
    OmittedCandidate,
    Receipt,
    ReceiptBlock,
    RepeatedCandidate,
    Savings,
    TokenLimits,
    ToolSavings,
    digest_of,
    prompt_hash,
    texts_of,
    with_included,
)
from weftline.prompts.assembly.records import turn_envelope
from weftline.prompts.assembly.retrieval import EVERY_SCORE, SURROUNDING_PLACES, RetrievalRequest, retrieve
from weftline.prompts.assembly.usage_report import call_entry
from weftline.prompts.assembly.validation import ValidityStores, invalid_items, to_check, validate_prompt
from weftline.prompts.tools.registry import SelectionRequest, ToolSelector
from weftline.records.model import ContextSummary
from weftline.safety.trust.model import INJECTION, Trust, TrustLabel
from weftline.safety.trust.scanner import ContentScanner, detection_event
from weftline.search.model import RankingWeights
from weftline.search.retriever import Retriever
from weftline.sessions.model import find_session
from weftline.sessions.recorder import Recorder
from weftline.state.layers.prefix import sanitise_tool
from weftline.windows.budget import budgets_for
from weftline.windows.compaction.compacted_events import compacted_parts
from weftline.windows.compaction.facts.extraction import extract_in_turns
from weftline.windows.model import WindowChanged
from weftline.windows.window_writer import submitted_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weftline.kernel.errors import Violation
    from weftline.models.budgets import BudgetUse
    from weftline.models.language_models.catalog import Rates
    from weftline.models.language_models.content import ConversationMessage, Prompt, ToolDefinition
    from weftline.models.language_models.token_counts import PromptCount
    from weftline.prompts.assembly.conversation import CompactedPart, Prepared
    from weftline.prompts.assembly.plan import Previous
    from weftline.prompts.assembly.receipts import (
        BlockPacking,
        CacheCosts,
        CandidateKind,
        Plan,
        PlannedBlock,
    )
    from weftline.prompts.assembly.retrieval import Retrieved
    from weftline.prompts.tools.registry import ToolSelection
    from weftline.search.passages import ChunkPassage
    from weftline.search.references import Reference
    from weftline.state.agent_context.permissions import CriticalUpdate
    from weftline.windows.model import EventDraft, Window

_ADMINS = f"{PERMISSION}{Permission.ADMIN}"
_RECEIPT_PREFIX = "receipt_"
_ID_BYTES = 12
# A rollback may remove what was just prepared.
_PREPARE_ATTEMPTS = 3
# Events given inline that one transaction stores.
_BATCH = 100
# Longer conversations are counted and planned in a thread, so that other calls go on meanwhile.
_MAX_CHARACTERS_IN_LOOP = 200_000
_CHARACTERS_PER_TOOL = 1_000
_CHARACTERS_PER_EVENT = 100
# Among the versions of a receipt: the rules by which text of others was screened.
_SCREENING = "screening"
# And the compaction of the window.
_COMPACTION = "compaction"
# Suspicious texts that an answer names.
_MAX_SUSPICIOUS = 50
P = ParamSpec("P")
T = TypeVar("T")
# Records that a receipt represents, in the order in which they were created.
_EVENTS: tuple[EventType, ...] = (
    "context.surface.created",
    "context.selection.started",
    "context.selection.completed",
    "context.budget.applied",
    "context.assembly.created",
    "context.injection.applied",
)


class AssemblyRequest(NamedTuple):
    """What to assemble. ``given`` is a conversation given inline; its messages are None if only tools were.

    ``choose_tools``: choose among the registered tools by the task.
    """

    session_id: str
    agent_id: str | None
    task: str
    token_budget: int | None
    model: str | None
    form: PromptForm
    given: ParsedConversation | None
    inline: bool
    domains: tuple[str, ...] | None
    min_score: float | None
    cache_ttl: str | None
    omit_secrets: bool
    fresh: bool
    data_marking: DataMarking
    choose_tools: bool = False


class SuspiciousText(NamedTuple):
    """A text of the call or its conversation that looks like an attack; ``withheld``: the prompt does not have it."""

    ref: str
    label: TrustLabel
    withheld: bool


class Assembled(NamedTuple):
    """A prompt with its receipt, and the body of the request in the chosen form.

    ``compaction_due``: the events of the window have reached its threshold. ``model_known``: the catalog has the model.
    ``references``: what phrases of the task stand for. ``suspicious``: what looks like an attack, the newest events
    first.
    """

    receipt: Receipt
    body: dict[str, Any]
    critical_update: CriticalUpdate | None
    compaction_due: bool
    model_known: bool
    references: tuple[Reference, ...]
    suspicious: Sequence[SuspiciousText]
    took_ms: float


class Timing:
    """Milliseconds by stage."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._started = self._last = perf_counter()

    def mark(self, stage: str) -> None:
        now = perf_counter()
        self.stages[stage] = round((now - self._last) * 1000, 3)
        self._last = now

    @property
    def total(self) -> float:
        return round((perf_counter() - self._started) * 1000, 3)


class Assembler(msgspec.Struct, frozen=True):
    """Assembles prompts for the agents of every tenant."""

    transactions: Transactions[AssemblyStores]
    validity: Transactions[ValidityStores]
    retriever: Retriever
    catalog: Catalog
    counters: TokenCounters
    counts: CountCache
    prepared_events: PreparedEventCache
    prompts: PromptCache
    prices: Prices
    clock: Clock
    slots: FairSlots
    scanner: ContentScanner
    tool_selector: ToolSelector
    doubt_limit: DoubtLimit

    async def assemble(self, actor: Actor, request: AssemblyRequest) -> Assembled:
        """Assemble a prompt, store its receipt, and return both."""
        async with self.slots.hold(actor.tenant, actor.path):
            try:
                return await self._assemble(actor, request)
            except BudgetExceeded as error:
                await self._tell_refused(actor, error)
                raise

    async def _tell_refused(self, actor: Actor, error: BudgetExceeded) -> None:
        if error.use is not None and error.use.spend.exceeded_at is None:
            await self.transactions.write(actor, lambda stores: stores.budgets.tell_refused(error))

    async def _assemble(self, actor: Actor, request: AssemblyRequest) -> Assembled:
        timing = Timing()
        if request.cache_ttl is not None:
            check_ttl(self.catalog.find(request.model).cache, request.cache_ttl)
        gathered = await self._gather(actor, request)
        timing.mark("gather")
        model = request.model or gathered.window.settings.model
        info = self.catalog.find(model)
        # The first use of a tokenizer loads its vocabulary, which takes seconds.
        reader = (actor.tenant, actor.principal_id)
        counter = await SEARCH_THREADS.run(
            PromptCounter, info, self.counters, gathered.token_factor, self.counts, reader
        )
        limits = _limits(request, gathered, info)
        screening = Screening(gathered.policy, request.data_marking, request.omit_secrets)
        retrieving = self._retrieve(actor, request, gathered, limits.limit)
        selecting = self._select_tools(actor, request, gathered)
        retrieved, chosen, _ = await asyncio.gather(retrieving, selecting, self.prices.load())
        timing.mark("retrieve")
        run = _runner(request, gathered)
        conversation = await self._conversation(actor, gathered, counter, limits.limit, screening, run)
        given = request.given.tools if request.given is not None else []
        found = await request_trust(self.scanner, actor, request.task, given, gathered.gaps)
        call = await run(
            _Call,
            request,
            gathered,
            info,
            counter,
            limits,
            retrieved,
            conversation,
            chosen,
            screening,
            found,
            self.doubt_limit.tokens(limits.limit),
        )
        previous = await self._previous(actor, call, run)
        plan = await self._plan(call, limits.limit, previous, run)
        call.check_included(plan)
        timing.mark("plan")
        prompt, points, body = await run(_rendered, call, plan, model)
        timing.mark("render")
        receipt = await self._receipt(actor, call, plan, prompt, points, timing)
        update, references = gathered.critical_update, retrieved.references
        return Assembled(
            receipt, body, update, call.compaction_due, info.known, references, call.suspicious, timing.total
        )

    async def _plan(self, call: _Call, limit: int, previous: Previous | None, run: Run) -> Plan:
        """Return the plan of a prompt. Messages that it has no room for are read once, and what they state has room."""
        costs = self._costs(call)
        plan = await run(make_plan, call.materials, limit, costs, previous)
        for _ in range(READINGS):
            unread = call.conversation.unread(plan.trimmed)
            if unread is None:
                break
            if unread.events:
                unread.note(await extract_in_turns(unread.events, unread.earlier))
            plan = await run(make_plan, call.materials, limit, costs, previous)
        return plan

    async def _select_tools(self, actor: Actor, request: AssemblyRequest, gathered: Gathered) -> ToolSelection | None:
        if not request.choose_tools:
            return None
        window = gathered.window
        return await self.tool_selector.select(
            actor, SelectionRequest(request.task, window.agent_id, window.session_id)
        )

    async def _conversation(
        self, actor: Actor, gathered: Gathered, counter: PromptCounter, limit: int, screening: Screening, run: Run
    ) -> WindowConversation:
        window, applied = gathered.window, gathered.compaction
        preparer = EventPreparer(
            window.line_id,
            window.session_id,
            limit,
            counter,
            screening,
            "" if applied is None else applied.compaction.compaction_id,
        )
        key = (actor.tenant, preparer.key)
        parts: Sequence[CompactedPart] = gathered.events
        if applied is not None:
            parts = await run(compacted_parts, gathered.events, applied.view)
        prepared = await run(preparer.prepare, parts, self.prepared_events.get(key) or ())
        redacted = await self._redacted_summaries(actor, prepared, gathered.previous)
        if applied is not None and redacted:
            view = without_summaries(applied.view, prepared, redacted)
            parts = await run(compacted_parts, gathered.events, view)
            prepared = await run(preparer.prepare, parts, prepared)
        self.prepared_events.put(key, prepared, sum(each.weight for each in prepared))
        modalities = frozenset(counter.info.input)
        return WindowConversation(prepared, preparer, window.settings.shares, modalities, redacted)

    async def _redacted_summaries(
        self, actor: Actor, prepared: Sequence[Prepared], sent: PreviousPrompt | None
    ) -> frozenset[str]:
        """Return the record ids of redacted summaries, in the view or in the previous prompt."""
        blocks = [each.block for each in prepared if isinstance(each, PreparedSummary)]
        blocks += [block for block in (() if sent is None else sent.blocks) if block.kind == "summary"]
        names = list({block.block_id for block in blocks})
        if not names:
            return frozenset()
        found = await self.transactions.read(
            actor, lambda stores: stores.records.redactions(names, ContextSummary.type)
        )
        return frozenset(found)

    async def _gather(self, actor: Actor, request: AssemblyRequest) -> Gathered:
        drafts = drafts_of(request.given.messages) if request.given is not None and request.inline else []
        inline = drafts if request.inline else None
        wanted = GatherRequest(request.session_id, request.agent_id, request.model, inline, request.fresh)
        try:
            return await self.transactions.read(actor, partial(gather, wanted), heavy=True)
        except NotPrepared as error:
            missing = [draft for draft in drafts if draft.event_id not in error.stored]
            return await self._prepare_and_gather(actor, wanted, missing)

    async def _prepare_and_gather(self, actor: Actor, wanted: GatherRequest, drafts: Sequence[EventDraft]) -> Gathered:
        for _ in range(_PREPARE_ATTEMPTS):
            # In batches, so that other writers do not wait for a long conversation.
            for start in range(0, len(drafts) or 1, _BATCH):
                batch = drafts[start : start + _BATCH]
                await self.scanner.prepare(actor, chain.from_iterable(map(submitted_texts, batch)))
                await self.transactions.write(actor, partial(prepare, wanted, batch))
            with contextlib.suppress(NotPrepared):
                return await self.transactions.read(actor, partial(gather, wanted), heavy=True)
        raise WindowChanged("The window is rolled back or deleted again and again while its prompt is assembled.")

    async def _retrieve(self, actor: Actor, request: AssemblyRequest, gathered: Gathered, room: int) -> Retrieved:
        window = gathered.window
        min_score = actor.min_score if request.min_score is None else request.min_score
        return await retrieve(
            self.retriever,
            actor,
            RetrievalRequest(
                task=request.task,
                asked_at=gathered.latest,
                max_tokens=room,
                turns=gathered.turns,
                session_id=window.session_id,
                window=str(WindowPlace(window.session_id, window.events_of)),
                domains=request.domains or (),
                sources=_sources(actor, request, gathered),
                weights=EVERY_SCORE if min_score is None else RankingWeights(min_score=min_score),
                tuned=request.min_score is not None,
                # Neighbours have no score of their own.
                surroundings=SURROUNDING_PLACES if min_score is None else 0,
                reduced=bool(gathered.downgraded_by),
                held=gathered.held,
                whole_conversation=sum(event.tokens for event in gathered.events) <= room,
            ),
        )

    async def _previous(self, actor: Actor, call: _Call, run: Run) -> Previous | None:
        """Return the previous prompt, with what of it may not be sent again."""
        sent = call.gathered.previous
        if sent is None:
            return None
        current = dict(candidate_of(each.passage) for each in call.retrieved.passages)
        items = to_check(sent.blocks, current)
        check = partial(invalid_items, items, call.gathered.held)
        invalid = await self.validity.read(actor, check) if items else frozenset[str]()
        previous = sent.as_previous(invalid | call.withdrawn(sent), call.request.task)
        return await run(call.counted_again, previous)

    def _rates(self, call: _Call) -> Rates | None:
        return self.prices.rates(call.info, self.clock.now(), call.limits.limit)

    def _costs(self, call: _Call) -> CacheCosts:
        """Return what tokens of this model cost relative to uncached input."""
        return cache_costs(call.info, self._rates(call), warm=call.warm(self.clock))

    async def _receipt(
        self, actor: Actor, call: _Call, plan: Plan, prompt: Prompt, points: frozenset[int], timing: Timing
    ) -> Receipt:
        """Store the receipt of a prompt, with the events of the records that are derived from it."""
        counted = call.counter.prompt(prompt)
        evidence = call.document_evidence(plan)
        documents = 0
        if evidence:
            documents = await self.transactions.read(actor, lambda stores: document_tokens(evidence, stores.documents))
        savings = self._savings(call, plan, counted, documents)
        blocks = _receipt_blocks(plan.blocks, points)
        receipt = _new_receipt(actor, call, plan, prompt, counted, blocks, savings, to_micros(self.clock.now()))
        estimate = expected_use(receipt, plan.blocks, call.tools)
        receipt = structs.replace(receipt, estimate=estimate, timing_ms=timing.stages)
        new = plan.blocks[plan.reused :] if call.gathered.previous is not None else plan.blocks
        budgets = await self.transactions.write(
            actor, partial(_store, call, receipt, texts_of(new, call.tools), call.detections(actor, receipt, plan))
        )
        warn_of(budgets)
        PreviousPrompt(receipt, plan.blocks).keep(actor.tenant, self.prompts)
        timing.mark("store")
        return receipt

    def _savings(self, call: _Call, plan: Plan, counted: PromptCount, of_documents: int) -> Savings:
        """Return the savings of a prompt; ``of_documents`` are the tokens of the documents with evidence in it."""
        previous = call.gathered.previous
        return savings_of(
            call.naive_tokens,
            call.counter.scaled(of_documents),
            counted.total,
            plan.reused_tokens + (counted.tools if plan.reused else 0),
            None if previous is None else previous.receipt,
            self._rates(call),
            warm=call.warm(self.clock),
        )


def _new_receipt(
    actor: Actor,
    call: _Call,
    plan: Plan,
    prompt: Prompt,
    counted: PromptCount,
    blocks: tuple[ReceiptBlock, ...],
    savings: Savings,
    created_at: int,
) -> Receipt:
    gathered = call.gathered
    return Receipt(
        receipt_id=f"{_RECEIPT_PREFIX}{secrets.token_hex(_ID_BYTES)}",
        session_id=gathered.window.session_id,
        agent_id=gathered.window.agent_id,
        requested_by=actor.principal_id,
        created_at=created_at,
        previous_id=None if gathered.previous is None else gathered.previous.receipt.receipt_id,
        model=prompt.model,
        task_digest=digest_of(call.request.task).hex(),
        mode=plan.mode,
        reason=plan.reason,
        modelled=plan.modelled,
        limits=call.limits,
        counting=call.counting(counted),
        tokens=counted.total,
        tools_tokens=counted.tools,
        tools_digest=call.tools_digest,
        blocks=blocks,
        candidates=with_included(call.candidates, plan.blocks),
        omitted=plan.omitted,
        shortened=plan.shortened,
        versions=call.versions,
        window_tokens=call.conversation.tokens_by_category,
        window_budgets=_window_budgets(gathered.window, call.limits.window_tokens),
        confidence=call.confidence(plan),
        savings=savings,
        prompt_hash=prompt_hash(prompt),
        max_output_tokens=prompt.max_output_tokens,
        timing_ms={},
        cache_ttl=call.request.cache_ttl,
        tool_savings=call.tool_savings,
        documents=call.documents_in(plan.blocks),
        compaction=call.compaction_use(plan),
        budgets=tuple(use.budget.name for use in gathered.budgets),
        downgraded_by=gathered.downgraded_by,
        step=actor.step or "",
        teams=tuple(sorted(gathered.teams)),
        repeated=call.repeated,
        packings=call.packings(plan),
        readings=tuple(tuple(sorted(refs)) for refs in call.conversation.readings),
    )


class _Call:
    """One assembly: what was asked, gathered and retrieved, and what follows from it."""

    def __init__(
        self,
        request: AssemblyRequest,
        gathered: Gathered,
        info: ModelInfo,
        counter: PromptCounter,
        limits: TokenLimits,
        retrieved: Retrieved,
        conversation: WindowConversation,
        chosen: ToolSelection | None,
        screening: Screening,
        found: RequestTrust,
        doubt_tokens: int,
    ) -> None:
        self.request = request
        self.gathered = gathered
        self.info = info
        self.counter = counter
        self.limits = limits
        self.retrieved = retrieved
        self.found = found
        self.chosen = chosen
        self.withheld_tools = [f"tool:{name}" for name, trust in found.tools.items() if screening.drops(trust)]
        given = [tool for tool in self.given_tools if f"tool:{tool.name}" not in self.withheld_tools]
        given += chosen.tools if chosen is not None else ()
        self.tools = tuple(sorted(map(sanitise_tool, given), key=lambda tool: tool.name))
        self.tools_digest = digest_of(self.tools).hex()
        self.conversation = conversation
        self.screening = screening
        self._doubt_tokens = doubt_tokens
        # No method of this call: what it has read would stay in memory until the garbage collector finds the cycle.
        self._count = partial(_count, counter)
        self.materials = self._materials()

    @property
    def given_tools(self) -> Sequence[ToolDefinition]:
        return self.request.given.tools if self.request.given is not None else ()

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return every candidate once; of those with the same ref the first."""
        found: dict[str, Candidate] = {}
        layers = [
            Candidate(ref=ref, kind="layer", tokens=block.tokens, version=version)
            for block in self.materials.layers
            for ref, version in block.items.items()
        ]
        tools = [Candidate(ref=f"tool:{tool.name}", kind="tool", tokens=self.counter.tool(tool)) for tool in self.tools]
        packed = chain.from_iterable(self._packed)
        screened = [
            Candidate(ref=each.ref, kind=kind, tokens=0) for kind, omitted in self._screened.items() for each in omitted
        ]
        for each in [*layers, *tools, *self.conversation.candidates, *packed, *screened]:
            found.setdefault(each.ref, each)
        return tuple(found.values())

    @property
    def repeated(self) -> tuple[RepeatedCandidate, ...]:
        """Return the candidates to pack that ``candidates`` leaves out, because another one has their ref."""
        taken = {each.ref for each in self.conversation.candidates}
        found: list[RepeatedCandidate] = []
        for candidates in self._packed:
            for place, each in enumerate(candidates):
                if each.ref in taken:
                    found.append(RepeatedCandidate(**structs.asdict(each), place=place))
                taken.add(each.ref)
        return tuple(found)

    def packings(self, plan: Plan) -> tuple[BlockPacking, ...]:
        """Return the blocks that the plan considered."""
        sent = {block.block_id for block in plan.blocks}
        return tuple(each for log in self._logs for each in log.packings(sent))

    @cached_property
    def _packed(self) -> list[Sequence[Candidate]]:
        """Return the candidates of each packer, counted once."""
        return [packer.candidates for packer in self.materials.packers]

    @property
    def naive_tokens(self) -> int:
        """Return the tokens of the naive baseline: the agent's own conversation, whole, as a prompt."""
        layers = sum(block.tokens for block in self.materials.layers)
        # A task that the conversation ends with is there already.
        task = 0 if self.materials.task is None else self.materials.task.tokens
        # Without a choice, every registered tool would be in the prompt.
        spared = 0 if self.chosen is None else self.counter.scaled(self.chosen.saved_tokens)
        tools = self.counter.tools(self.tools) + spared
        return layers + self.conversation.original_tokens + task + tools + self.materials.framing_tokens

    def document_evidence(self, plan: Plan) -> list[ChunkPassage]:
        """Return the passages of documents in a plan that are evidence for the task."""
        sent = plan.included
        found = (each for each in self.retrieved.passages if each.is_evidence and each.source == "document")
        return [each.passage for each in found if each.chunk_id in sent]

    @property
    def tool_savings(self) -> ToolSavings | None:
        chosen = self.chosen
        if chosen is None:
            return None
        return ToolSavings(
            available=chosen.available,
            available_tokens=chosen.available_tokens,
            loaded=len(chosen.tools),
            loaded_tokens=chosen.loaded_tokens,
            saved_tokens=chosen.saved_tokens,
            kept=chosen.kept,
            named=chosen.named,
            registered=chosen.registered,
        )

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions of the sources that were read."""
        versions = {layer.line_id or PLATFORM_ID: str(layer.version) for layer in self.gathered.layers}
        layers = {PLATFORM_ID: SWITCHED_OFF, **versions}
        screening = digest_of((self.screening.policy, self.screening.marking)).hex()[:16]
        applied = self.gathered.compaction
        compaction = {} if applied is None else {_COMPACTION: applied.compaction.compaction_id}
        searched = {"search_model": self.retrieved.model or "keywords only"}
        return {**layers, **self._memory_versions, **searched, _SCREENING: screening, **compaction}

    @property
    def _memory_versions(self) -> dict[str, str]:
        """Return the versions of the memory that the session has."""
        held = self.gathered.held
        if held is None:
            return {}
        return {held.line_id: str(held.version), **{at.line: str(at.seq) for at in held.shared or () if at.seq}}

    def confidence(self, plan: Plan) -> Confidence:
        found, passages = self.retrieved, self.materials.passages.candidates
        return Confidence(
            confidence=found.confidence,
            widened=any(each.doubtful and each.ref in plan.included for each in passages),
            fallback=found.fallback,
            pending_documents=found.pending.documents,
            pending_events=found.pending.events,
            pending_by_words=found.pending.by_words,
            doubt_tokens=self._doubt_tokens,
        )

    @property
    def compaction_due(self) -> bool:
        """Tell whether the window has reached its threshold, counted as for the trigger and ``window.show``."""
        applied = self.gathered.compaction
        saved = 0 if applied is None else applied.compaction.saved_tokens
        used = sum(event.tokens for event in self.gathered.events if not event.routed) - saved
        return used >= self.gathered.compaction_threshold * self.gathered.window.limit

    def compaction_use(self, plan: Plan) -> CompactionUse | None:
        """Return what the compaction of the window saved in a prompt; None if it has none, or none of it is used."""
        applied, covered = self.gathered.compaction, plan.covered
        if applied is None or not covered:
            return None
        sizes = {each.ref: each.tokens for each in self.conversation.candidates}
        cut = {each.ref: each.original_tokens for each in plan.shortened}
        blocks = [block for block in plan.blocks if block.covers]
        return CompactionUse(
            compaction_id=applied.compaction.compaction_id,
            version=applied.compaction.version or "",
            summaries=sum(block.kind == "summary" and bool(block.items) for block in blocks),
            events=len(covered),
            quoted=len(covered.keys() & plan.included.keys()),
            original_tokens=sum(cut.get(ref) or sizes.get(ref, 0) for ref in covered),
            tokens=sum(block.tokens for block in blocks),
        )

    def counting(self, counted: PromptCount) -> CountingMethod:
        return CountingMethod(
            exact=counted.exact,
            factor=counted.factor,
            margin=counted.margin,
            learned=self.gathered.token_factor is not None and not counted.exact,
            raw_tokens=counted.raw,
        )

    def warm(self, clock: Clock) -> bool:
        """Tell whether the provider's cache of the previous call should still live."""
        sent = self.gathered.previous
        return sent is not None and is_warm(self.info, self.request.cache_ttl, sent.receipt, to_micros(clock.now()))

    def counted_again(self, previous: Previous) -> Previous:
        """Return the previous prompt with its tokens for this model: its counts may be those of another one."""
        blocks = [structs.replace(block, tokens=self._count(block.messages)) for block in previous.blocks]
        return previous._replace(blocks=tuple(blocks))

    def documents_in(self, blocks: Sequence[PlannedBlock]) -> dict[str, str]:
        """Return the URIs of the documents that chunks in these blocks belong to, by the ref of the chunk."""
        sent = self.gathered.previous
        known = {} if sent is None else dict(sent.receipt.documents)
        for found in self.retrieved.passages:
            around = (each.passage for each in found.surroundings)
            chunks = (each for each in (found.passage, *around) if each.chunk.source == "document")
            known.update((each.chunk_id, each.uri) for each in chunks)
        return {ref: known[ref] for block in blocks for ref in block.items if ref in known}

    def withdrawn(self, sent: PreviousPrompt) -> frozenset[str]:
        """Return what of an earlier prompt is no longer there, or must not be sent any more.

        That are board keys, questions, what is screened now, and everything if the rules of screening changed.
        """
        items = {ref for block in sent.blocks for ref in block.items}
        if sent.receipt.versions.get(_SCREENING) != self.versions[_SCREENING]:
            return frozenset(items)
        packers = {"board": self.materials.board, "missing": self.materials.missing}
        current = {each.ref for packer in packers.values() for each in packer.candidates}
        listed = {ref for block in sent.blocks if block.kind in packers for ref in block.items}
        screened = {each.ref for omitted in self._screened.values() for each in omitted}
        return frozenset((listed - current) | (items & screened))

    @property
    def suspicious(self) -> list[SuspiciousText]:
        """Return the task, tools and own events that look like an attack."""
        task = {} if self.found.task is None else {"task": self.found.task}
        tools = {f"tool:{name}": trust for name, trust in self.found.tools.items()}
        found = [
            SuspiciousText(ref, TrustLabel(trust.source, trust.trust, reasons=(INJECTION,)), ref in self.withheld_tools)
            for ref, trust in {**task, **tools}.items()
        ]
        events = [each for each in reversed(self.conversation.events) if not each.event.routed]
        labelled = ((each, each.event.trust) for each in events)
        found += [
            SuspiciousText(each.event.event_id, label, each.withheld is not None)
            for each, label in labelled
            if label is not None and label.trust is Trust.SUSPICIOUS
        ]
        return found[:_MAX_SUSPICIOUS]

    def detections(self, actor: Actor, receipt: Receipt, plan: Plan) -> list[NewEvent]:
        """Return the events that tell reviewers of what looks like an attack, unless they have been told of it.

        Of a task and of tools always, of items that are left out if the policy is to quarantine them.
        """
        sent = self.gathered.previous
        known = set() if sent is None else {each.ref for each in sent.receipt.omitted}
        new = [each.ref for each in plan.omitted if each.detail == SUSPICIOUS and each.ref not in known]
        if self.screening.policy.prompt_injection != "quarantine":
            new = [ref for ref in new if ref.startswith("tool:")]
        is_new_task = sent is None or sent.receipt.task_digest != receipt.task_digest
        found: list[tuple[Violation, int]] = [("quarantine", len(new))] if new else []
        found += [("injection", 1)] if self.found.task is not None and is_new_task else []
        about = {"session_id": receipt.session_id, "receipt_id": receipt.receipt_id}
        return [
            detection_event(actor, violation, "context.assemble", receipt.agent_id, **about, items=number)
            for violation, number in found
        ]

    def check_included(self, plan: Plan) -> None:
        """Raise PromptBlocked if the policy is to block suspicious content, and it is in the plan."""
        suspicious = (block for block in plan.blocks if block.trust is Trust.SUSPICIOUS)
        tools = (f"tool:{tool.name}" for tool in self.tools if tool.name in self.found.tools)
        self.screening.check([*(ref for block in suspicious for ref in block.items), *tools])
        self.screening.check_task(self.found.task)

    def _materials(self) -> Materials:
        gathered, count = self.gathered, self._count
        window = gathered.window
        screening, reader = self.screening, window.agent_id
        words = screening.mark_words
        entries = board_texts(window.session_id, gathered.board, _board_scores(self.retrieved), reader)
        board = ScreenedTexts.of(entries, screening)
        missing = ScreenedTexts.of(missing_texts(gathered.gaps, self.found.gaps), screening)
        tools = [OmittedCandidate(ref, "policy_block", SUSPICIOUS) for ref in self.withheld_tools]
        pins = ScreenedTexts.of(pinned_texts(self.retrieved, reader), screening)
        self._screened: dict[CandidateKind, list[OmittedCandidate]] = {
            "pin": pins.omitted,
            "board": board.omitted,
            "missing": missing.omitted,
            "tool": tools,
        }
        on_board = frozenset(each.ref for each in entries)
        question = self.conversation.newest_question
        same = question is not None and question.strip() == self.request.task.strip()
        passages = PassagePacker(
            self.retrieved,
            on_board,
            screening,
            reader,
            count,
            self._doubt_tokens,
            passage_tokens(self.limits),
            self.conversation.covered,
            originals_room(self.conversation.saved_tokens),
        )
        packers = [
            pins_packer(pins.kept, count, mark_words=words),
            board_packer(board.kept, count, mark_words=words),
            missing_packer(missing.kept, count, mark_words=words),
        ]
        self._logs = [passages.log, *(packer.log for packer in packers)]
        return Materials(
            layers=layer_blocks(gathered.layers, count),
            pins=packers[0],
            conversation=self.conversation,
            passages=passages,
            board=packers[1],
            missing=packers[2],
            screened=[*pins.omitted, *board.omitted, *missing.omitted, *tools],
            task=None if same else task_block(self.request.task, count, self.found.task),
            tools_tokens=self.counter.tools(self.tools),
            tools_digest=self.tools_digest,
            framing_tokens=FRAMING_TOKENS,
        )


def _count(counter: PromptCounter, messages: tuple[ConversationMessage, ...]) -> int:
    return sum(map(counter.message, messages))


class Run(Protocol):
    """Runs CPU-bound work, in a thread if there is much of it."""

    async def __call__(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...


async def _run_here(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return work(*args, **kwargs)


def _runner(request: AssemblyRequest, gathered: Gathered) -> Run:
    """Return where to count and plan a prompt of these materials."""
    tools = len(request.given.tools) if request.given is not None else 0
    size = len(request.task) + tools * _CHARACTERS_PER_TOOL + sum(len(entry.value) for entry in gathered.board)
    size += sum(_CHARACTERS_PER_EVENT + len(event.message.content) for event in gathered.events)
    return _run_here if size <= _MAX_CHARACTERS_IN_LOOP else ASSEMBLY_THREADS.run


def _rendered(call: _Call, plan: Plan, model: str | None) -> tuple[Prompt, frozenset[int], dict[str, Any]]:
    """Return the prompt of a plan, its cache points, and the body of the request."""
    sent = cache_points_of(call.gathered.sent_blocks)
    prompt, points = prompt_of(plan, sent, call.tools, model, call.limits.reserved_output_tokens)
    validate_prompt(plan.blocks, prompt.tools, call.gathered.layers, call.conversation.instructions)
    return prompt, points, render(call.request.form, prompt, call.info, RenderOptions(ttl=call.request.cache_ttl))


async def _store(
    call: _Call, receipt: Receipt, texts: dict[str, bytes], detections: Sequence[NewEvent], stores: AssemblyStores
) -> Sequence[BudgetUse]:
    """Store a receipt with its events and return the budgets that it counted for."""
    # The session may have been deleted since: nothing of it may be stored again.
    session = await find_session(receipt.session_id, stores.actor, stores.sessions)
    await stores.receipts.add(receipt, texts)
    budgets = [use.budget for use in call.gathered.budgets]
    uses = await stores.budgets.charge(budgets, receipt.charge, receipt.created_at) if budgets else []
    events = [
        NewEvent(
            type=event_type,
            session_id=receipt.session_id,
            subject=receipt.receipt_id,
            actor=stores.actor.participant,
            readable_by=(f"{PRINCIPAL}{receipt.agent_id}", _ADMINS),
            data={"receipt_id": receipt.receipt_id, "agent_id": receipt.agent_id},
        )
        for event_type in _EVENTS
    ]
    await stores.outbox.publish(*events, *detections)
    if "turn" in session.config.envelopes:
        recorder = Recorder(stores.actor, stores.records, stores.outbox, stores.clock)
        await recorder.add(turn_envelope(receipt, session, stores.actor), session, readable_by=events[0].readable_by)
    await stores.usage.add(call_entry(receipt))
    return uses


def _receipt_blocks(blocks: Sequence[PlannedBlock], points: frozenset[int]) -> tuple[ReceiptBlock, ...]:
    return tuple(
        ReceiptBlock(
            block_id=block.block_id,
            kind=block.kind,
            digest=block.digest.hex(),
            tokens=block.tokens,
            cache_point=place in points,
            items=block.items,
            covers=block.covers,
            source=block.source,
            trust=block.trust,
            spans=block.spans,
        )
        for place, block in enumerate(blocks)
    )


def _window_budgets(window: Window, limit: int) -> dict[str, int]:
    """Return the budgets by category for the limit that applied."""
    return {category.value: budget for category, budget in budgets_for(limit, window.settings.shares).items()}


def _limits(request: AssemblyRequest, gathered: Gathered, info: ModelInfo) -> TokenLimits:
    """Return the limit of a prompt. A window that was given neither model nor limit follows the model of the call."""
    window, settings = gathered.window, gathered.window.settings
    reserved = min(window.reserved, info.context_window // 2)
    of_model = info.context_window - reserved if request.model else window.limit
    given = (settings.model, settings.model_max_tokens, settings.shared_cw_max_tokens)
    alone = window.events_of == window.agent_id and window.limit == window.model_tokens - window.reserved
    of_window = of_model if request.model and alone and not any(given) else window.limit
    return TokenLimits(
        limit=min(request.token_budget or of_window, of_window, of_model),
        token_budget=request.token_budget,
        window_tokens=of_window,
        model_tokens=info.context_window if request.model else window.model_tokens,
        reserved_output_tokens=reserved,
    )


def _sources(actor: Actor, request: AssemblyRequest, gathered: Gathered) -> frozenset[str]:
    """Return what to search. Private memory is left out when a prompt is assembled for another agent."""
    sources = {"message", "board", "event"}
    if request.domains is None or request.domains:
        sources.add("document")
    if gathered.window.agent_id == actor.principal_id:
        sources.add("memory")
    return frozenset(sources)


def _board_scores(retrieved: Retrieved) -> dict[str, float]:
    """Return the scores of the board's keys."""
    found = (each for each in retrieved.passages if each.source == "board")
    return {str(each.passage.key): each.score for each in reversed(list(found))}
