"""Loads the last calls of an agent for a replay: receipts with their texts, and the windows they belong to."""

from __future__ import annotations

import contextlib
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.insight.recommendations.model import ProposedSettings
from weftline.insight.recommendations.recorded_candidates import (
    NO_PACKINGS,
    SCREENED,
    WITHOUT_TEXT,
    Packings,
    RecordedPassages,
    RecordedTexts,
    blocks_by_items,
    candidates_of,
    likelihoods,
    useful_items,
)
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import NotFound, PermissionDenied
from weftline.models.language_models.token_counts import PromptCounter
from weftline.prompts.assembly.conversation import EventPreparer, WindowConversation
from weftline.prompts.assembly.packers import READINGS, data_messages
from weftline.prompts.assembly.plan import (
    CONTENT_CHANGED,
    FRAMING_TOKENS,
    Materials,
    Previous,
    cache_costs,
    is_warm,
    make_plan,
    originals_room,
    passage_tokens,
)
from weftline.prompts.assembly.prompt import savings_of
from weftline.prompts.assembly.prompt_trust import Screening
from weftline.prompts.assembly.receipts import (
    ContextOverBudget,
    MadeBlocks,
    OmittedCandidate,
    ReceiptPruned,
    blocks_with_texts,
    digest_of,
)
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.prompts.assembly.stored_prompts import check_requester, redacted_since
from weftline.records.sql import RecordStore
from weftline.safety.trust.model import TrustPolicies
from weftline.state.agent_context.settings import ResolvedCompaction
from weftline.windows.compaction.compacted_events import compacted_parts
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.sql import CompactionStore
from weftline.windows.model import event_version
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.kernel.ports import TokenCounters
    from weftline.models.language_models.catalog import Catalog, ModelInfo, Prices, Rates
    from weftline.models.language_models.content import BlockKind, ToolDefinition
    from weftline.prompts.assembly.conversation import CompactedPart, Prepared
    from weftline.prompts.assembly.prompt_trust import DataMarking
    from weftline.prompts.assembly.receipts import (
        Candidate,
        CandidateKind,
        Plan,
        PlannedBlock,
        Receipt,
        ReportedUsage,
        StoredReceipt,
    )
    from weftline.windows.compaction.model import CompactedView
    from weftline.windows.model import Category, Window, WindowEvent

    PreparedEvents = dict[object, list[Prepared]]


# Plans earlier calls of a window again, with the planner of assembly, under the settings that they had or others.
#
# What goes into the plan is what the receipts have: layers, tools, task, and candidates with their tokens and scores.
# The conversation is made of the events of the window that the receipt lists, in the same versions, and of the
# summaries of the compaction that it names, or of one that a proposal would have made. Retrieval is not repeated.

UNCHANGED = ProposedSettings()
_PACKED_KINDS: dict[CandidateKind, BlockKind] = {"pin": "pins", "board": "board", "missing": "missing"}
_OF_COMPACTION = "compaction"
# From this likelihood on an item may have been used. On the evaluation sets a lower one puts every pin and key in doubt
# that is in many prompts: one in twenty items resembles an answer that did not need it.
_DOUBT = 0.15


class RecordedCall(NamedTuple):
    """An assembly that a receipt describes, with its texts. ``useful``: refs that the answer used; None if unknown."""

    receipt: Receipt
    usage: ReportedUsage | None
    blocks: tuple[PlannedBlock, ...]
    tools: tuple[ToolDefinition, ...]
    useful: frozenset[str] | None = None
    likelihoods: Mapping[str, float] = MappingProxyType({})

    def may_have_used(self, ref: str) -> bool:
        """Tell whether the answer may have used an item, although it does not count as used."""
        return self.useful is None or self.likelihoods.get(ref, 0.0) >= _DOUBT

    @property
    def found(self) -> frozenset[str]:
        """Return the refs of the passages that search found for the task."""
        return frozenset(each.ref for each in candidates_of(self.receipt, "passage"))

    @property
    def items(self) -> set[str]:
        """Return the refs of what the prompt had in full; layers and the task are no items."""
        return _items(self.blocks)


class RecordedWindow(NamedTuple):
    """Calls of a window, oldest first, and what of it receipts do not contain.

    ``earlier`` is the call before the first one, if there is one; ``views`` are the compacted views by compaction id.
    """

    line_id: str
    session_id: str
    calls: Sequence[RecordedCall]
    earlier: RecordedCall | None
    events: Sequence[WindowEvent]
    views: Mapping[str, CompactedView]
    screening: Screening
    shares: Mapping[Category, float] | None
    window_limit: int = 0
    compaction: ResolvedCompaction = ResolvedCompaction()


class ReplayedCall(NamedTuple):
    """A call as it was planned again. ``plan`` is None if what it must contain does not fit."""

    call: RecordedCall
    plan: Plan | None
    tokens: int
    cached_tokens: int
    cost: float | None
    error: str | None = None

    @property
    def items(self) -> set[str]:
        """Return the refs of what the planned prompt has in full; layers and the task are no items."""
        return set() if self.plan is None else _items(self.plan.blocks)

    @property
    def is_as_sent(self) -> bool:
        """Tell whether the prompt has the same items, in the same mode, and as many tokens as the one that was sent."""
        return self.plan is not None and _is_as_sent(self.call, self.plan)


def _items(blocks: Iterable[PlannedBlock]) -> set[str]:
    return {ref for block in blocks if block.kind not in {"layer", "task"} for ref in block.items}


def items_sent(blocks: Sequence[PlannedBlock]) -> set[tuple[str, str]]:
    """Return refs and versions of everything that blocks contain in full."""
    return {item for block in blocks for item in block.items.items()}


def _is_as_sent(call: RecordedCall, plan: Plan) -> bool:
    receipt = call.receipt
    if plan.mode != receipt.mode or plan.tokens + FRAMING_TOKENS != receipt.tokens:
        return False
    return items_sent(plan.blocks) == items_sent(call.blocks)


def _read(conversation: WindowConversation, left_out: AbstractSet[str], *, limited: bool = True) -> bool:
    """Read messages that a prompt leaves out; tell whether there were any that it had not read."""
    unread = conversation.unread(left_out, limited=limited)
    if unread is not None and unread.events:
        unread.note(extract_facts(unread.events, unread.earlier))
    return unread is not None


class ReplayServices(NamedTuple):
    """What counts and prices tokens."""

    catalog: Catalog
    counters: TokenCounters
    prices: Prices


class Replay:
    """Plans the calls of one window under one proposal. CPU-bound, and pure: the same input gives the same plans.

    ``prepared`` are the events as other replays of the window have prepared them; those of this one are added.
    """

    def __init__(
        self,
        window: RecordedWindow,
        services: ReplayServices,
        proposal: ProposedSettings = UNCHANGED,
        views: Sequence[CompactedView | None] | None = None,
        *,
        counts_output: bool = False,
        prepared: PreparedEvents | None = None,
    ) -> None:
        self._window = window
        self._services = services
        self._proposal = proposal
        self._views = views
        self._counts_output = counts_output
        # Views of a proposal have no name that others know them by.
        self._prepared: PreparedEvents = {} if prepared is None or views is not None else prepared

    def in_sequence(self) -> Iterator[ReplayedCall]:
        """Yield every call planned after the replayed one before it, so that what changes carries over."""
        earlier = self._window.earlier
        before = None if earlier is None else _Sent(earlier.receipt, earlier.blocks, earlier.receipt.omitted)
        for place, call in enumerate(self._window.calls):
            replayed = self._replayed(place, call, before if call.receipt.previous_id is not None else None)
            yield replayed
            plan = replayed.plan
            if plan is None:
                before = _Sent(call.receipt, call.blocks, call.receipt.omitted)
            else:
                before = _Sent(call.receipt, plan.blocks, plan.omitted, self._tools_digest(call), self._limit(call))

    def _replayed(self, place: int, call: RecordedCall, before: _Sent | None) -> ReplayedCall:
        receipt = call.receipt
        info, counter = self._info(receipt), self._counter(receipt)
        limit = self._limit(call)
        warm = before is not None and is_warm(info, receipt.cache_ttl, self._sent_to(before), receipt.created_at)
        rates = self._services.prices.rates(info, from_micros(receipt.created_at), limit)
        conversation = self._conversation(place, receipt, counter, limit)
        materials = self._materials(call, counter, conversation)
        previous = None if before is None else self._previous(call, before, counter)
        try:
            costs = cache_costs(info, rates, warm=warm)
            # One after the other: what a message settles depends on those that were read before it.
            for refs in receipt.readings:
                _read(conversation, frozenset(refs), limited=False)
            plan = make_plan(materials, limit, costs, previous)
            for _ in range(0 if _is_as_sent(call, plan) else READINGS):
                if not _read(conversation, plan.trimmed):
                    break
                plan = make_plan(materials, limit, costs, previous)
        except ContextOverBudget as error:
            return ReplayedCall(call, None, receipt.tokens, 0, None, error.message)
        tokens = plan.tokens + FRAMING_TOKENS
        cached = plan.reused_tokens + (materials.tools_tokens if plan.reused else 0)
        savings = savings_of(0, 0, tokens, cached, None, rates, warm=warm)
        return ReplayedCall(
            call, plan, tokens, savings.cached_tokens, self._with_output(savings.cost, call.usage, rates)
        )

    def _sent_to(self, before: _Sent) -> Receipt:
        """Return the receipt of the previous call, with the model that a proposal names."""
        model = self._proposal.model
        return before.receipt if model is None else structs.replace(before.receipt, model=model)

    def _with_output(self, cost: float | None, usage: ReportedUsage | None, rates: Rates | None) -> float | None:
        """Return the cost with that of the answer, if it counts: as many tokens as were reported."""
        if cost is None or usage is None or rates is None or not self._counts_output:
            return cost
        return cost + float(rates.output * usage.output_tokens / 1_000_000)

    def _info(self, receipt: Receipt) -> ModelInfo:
        return self._services.catalog.find(self._proposal.model or receipt.model)

    def _counter(self, receipt: Receipt) -> PromptCounter:
        counting = receipt.counting
        learned = None if counting.exact or self._proposal.model is not None else counting.factor
        return PromptCounter(self._info(receipt), self._services.counters, learned)

    def _limit(self, call: RecordedCall) -> int:
        limits, proposal = call.receipt.limits, self._proposal
        if proposal.model is None and proposal.token_budget is None:
            return limits.limit
        of_window, of_model = limits.window_tokens, limits.model_tokens - limits.reserved_output_tokens
        if proposal.model is not None:
            info = self._info(call.receipt)
            of_window = of_model = info.context_window - min(limits.reserved_output_tokens, info.context_window // 2)
        return min(proposal.token_budget or limits.token_budget or of_window, of_window, of_model)

    def _tools(self, call: RecordedCall) -> tuple[ToolDefinition, ...]:
        without = self._proposal.without_tools
        return tuple(tool for tool in call.tools if tool.name not in without) if without else call.tools

    def _tools_digest(self, call: RecordedCall) -> str:
        return digest_of(self._tools(call)).hex() if self._proposal.without_tools else call.receipt.tools_digest

    def _previous(self, call: RecordedCall, before: _Sent, counter: PromptCounter) -> Previous:
        blocks = before.blocks
        if self._proposal.model is not None or _counts_differently(call.receipt, before.receipt):
            blocks = tuple(_counted(block, counter) for block in blocks)
        sent = {ref for block in blocks for ref in block.items}
        # What had changed or was removed before this call, the receipt says only by the reason of the rebuilding.
        invalid = sent if call.receipt.reason == CONTENT_CHANGED else set(filter(self._is_removed, sent))
        full = any(each.reason == "budget" for each in before.omitted)
        return Previous(
            blocks,
            before.tools_digest or before.receipt.tools_digest,
            frozenset(each.ref for each in before.omitted),
            frozenset(invalid),
            before.receipt.task_digest == call.receipt.task_digest,
            (before.limit or before.receipt.limits.limit) if full else None,
        )

    def _is_removed(self, ref: str) -> bool:
        """Tell whether the proposal removes an item, so that no prompt may have it any more."""
        without = self._proposal.without_items
        return bool(without) and (ref in without or document_of(ref, self._documents) in without)

    def _is_copy(self, ref: str, call: RecordedCall) -> bool:
        """Tell whether a passage is one of a copy, and the original was found as well.

        Without the copy, search would have found the original in its place.
        """
        original = self._proposal.copies.get(document_of(ref, self._documents))
        others = () if original is None else call.items | call.found
        return any(document_of(each, self._documents) == original for each in others)

    def _candidates(self, call: RecordedCall, kind: CandidateKind) -> list[Candidate]:
        return [
            each
            for each in candidates_of(call.receipt, kind)
            if not self._is_removed(each.ref) and not self._is_copy(each.ref, call)
        ]

    def _is_relevant(self, candidate: Candidate) -> bool:
        """Tell whether a passage has the minimum score. One that an earlier prompt has stays in it nevertheless."""
        min_score = self._proposal.min_score
        return min_score is None or candidate.score is None or candidate.score >= min_score

    def _materials(self, call: RecordedCall, counter: PromptCounter, conversation: WindowConversation) -> Materials:
        receipt = call.receipt
        changed = self._proposal.model is not None
        blocks = tuple(_counted(block, counter) for block in call.blocks) if changed else call.blocks
        ratio = _ratio(blocks, call.blocks) if changed else 1.0
        tools = self._tools(call)
        texts = {kind: self._texts(call, kind, blocks, ratio, counter) for kind in _PACKED_KINDS}
        return Materials(
            layers=[block for block in blocks if block.kind == "layer"],
            pins=texts["pin"],
            conversation=conversation,
            passages=self._passages(call, blocks, conversation, counter),
            board=texts["board"],
            missing=texts["missing"],
            task=_task(blocks, receipt.task_digest),
            screened=[each for each in receipt.omitted if each.reason in SCREENED],
            tools_tokens=counter.tools(tools) if changed or tools is not call.tools else receipt.tools_tokens,
            tools_digest=self._tools_digest(call),
            framing_tokens=FRAMING_TOKENS,
        )

    def _texts(
        self,
        call: RecordedCall,
        kind: CandidateKind,
        blocks: Sequence[PlannedBlock],
        ratio: float,
        counter: PromptCounter,
    ) -> RecordedTexts:
        candidates = self._candidates(call, kind)
        block_kind = _PACKED_KINDS[kind]
        return RecordedTexts(
            block_kind,
            [_scaled(each, ratio) for each in candidates],
            blocks_by_items(block for block in blocks if block.kind == block_kind),
            sum(map(counter.message, data_messages("", "", "x", mark_words=False))),
            self._packings(call, kind, candidates),
        )

    def _packings(self, call: RecordedCall, kind: CandidateKind, candidates: Sequence[Candidate]) -> Packings:
        """Return what the plan of the call packed, if it had the same candidates and counted them in the same way."""
        if self._proposal.model is not None or len(candidates) != len(candidates_of(call.receipt, kind)):
            return NO_PACKINGS
        return Packings.of(call.receipt, kind, call.blocks)

    def _passages(
        self,
        call: RecordedCall,
        blocks: Sequence[PlannedBlock],
        conversation: WindowConversation,
        counter: PromptCounter,
    ) -> RecordedPassages:
        receipt = call.receipt
        had = candidates_of(receipt, "passage")
        passages = list(filter(self._is_relevant, self._candidates(call, "passage")))
        returned = {each.ref for each in passages}
        retrieved = {each.ref for each in receipt.candidates if each.kind == "passage"}
        left_out = [
            each
            for each in receipt.omitted
            if each.ref in retrieved and each.ref not in returned and each.reason not in SCREENED
        ]
        return RecordedPassages(
            passages,
            left_out,
            self._retrieved_block(call, blocks),
            sum(map(counter.message, data_messages("found for the task", "", "", mark_words=False))),
            receipt.confidence.doubt_tokens,
            passage_tokens(receipt.limits),
            counter.scaled,
            conversation.covered,
            originals_room(conversation.saved_tokens),
            frozenset(each.ref for each in had) - returned,
            call.useful or frozenset(),
            self._packings(call, "passage", passages),
        )

    def _retrieved_block(self, call: RecordedCall, blocks: Sequence[PlannedBlock]) -> PlannedBlock | None:
        """Return the block of passages that this call added; those before it are of earlier calls."""
        found = [block for block in blocks if block.kind == "retrieved"]
        earlier = self._earlier_digests(call)
        return next((block for block in reversed(found) if block.digest not in earlier), None)

    def _earlier_digests(self, call: RecordedCall) -> set[bytes]:
        if call.receipt.mode != "extended":
            return set()
        by_id = {each.receipt.receipt_id: each for each in self._known}
        before = by_id.get(call.receipt.previous_id or "")
        return set() if before is None else {block.digest for block in before.blocks}

    @cached_property
    def _known(self) -> list[RecordedCall]:
        window = self._window
        return [*([] if window.earlier is None else [window.earlier]), *window.calls]

    @cached_property
    def _documents(self) -> dict[str, str]:
        """Return the documents of all chunks that some prompt had: a receipt names those of its own only."""
        return {ref: uri for call in self._known for ref, uri in call.receipt.documents.items()}

    def _conversation(self, place: int, receipt: Receipt, counter: PromptCounter, limit: int) -> WindowConversation:
        window = self._window
        compaction_id = receipt.versions.get(_OF_COMPACTION, "")
        view = window.views.get(compaction_id) if self._views is None else self._views[place]
        preparer = EventPreparer(
            window.line_id, window.session_id, limit, counter, window.screening, compaction_id or "replayed"
        )
        events = events_in(receipt, window.events, preparer)
        parts: Sequence[CompactedPart] = events if view is None else compacted_parts(events, view)
        key = (preparer.key, preparer.compaction_id, id(view))
        before = self._prepared.get(key, [])
        prepared = preparer.prepare(parts, before)
        # Windows grow: the longest list has what most calls need.
        self._prepared[key] = max(prepared, before, key=len)
        shares = self._proposal.shares or window.shares
        return WindowConversation(prepared, preparer, shares, frozenset(counter.info.input))


class _Sent(NamedTuple):
    """The prompt before a call: as it was sent, or as it was replayed with other tools or another limit."""

    receipt: Receipt
    blocks: tuple[PlannedBlock, ...]
    omitted: Sequence[OmittedCandidate]
    tools_digest: str = ""
    limit: int | None = None


def events_in(receipt: Receipt, events: Sequence[WindowEvent], preparer: EventPreparer) -> list[WindowEvent]:
    """Return the events that a receipt lists, in the versions that it had."""
    listed = {each.ref: each.version for each in receipt.candidates if each.kind == "event"}
    return [event for event in events if listed.get(preparer.ref_of(event)) == event_version(event)]


def document_of(ref: str, documents: Mapping[str, str]) -> str:
    """Return the URI of the document, without its version, that a chunk belongs to; empty for anything else."""
    return documents.get(ref, "").partition("?")[0]


def _task(blocks: Sequence[PlannedBlock], digest: str) -> PlannedBlock | None:
    """Return the block of the task of this call; None if the newest user message says the same."""
    tasks = [block for block in blocks if block.kind == "task"]
    named = [block for block in tasks if digest_of(block.messages[0].content).hex() == digest]
    if named:
        return named[-1]
    # The digest is that of the task as it was given: one with tags of Weftline is sent in another form.
    return tasks[-1] if tasks and blocks[-1] is tasks[-1] else None


def _counts_differently(receipt: Receipt, before: Receipt) -> bool:
    """Tell whether a text has other tokens than in the call before: by another model, or by a factor learned since."""
    one, other = receipt.counting, before.counting
    return receipt.model != before.model or (one.exact, one.factor) != (other.exact, other.factor)


def _counted(block: PlannedBlock, counter: PromptCounter) -> PlannedBlock:
    if block.block_id.startswith(WITHOUT_TEXT):
        return block
    return structs.replace(block, tokens=sum(map(counter.message, block.messages)))


def _ratio(new: Sequence[PlannedBlock], old: Sequence[PlannedBlock]) -> float:
    """Return how many tokens of another model a token of this one makes, by the texts that were sent."""
    before = sum(block.tokens for block in old)
    return sum(block.tokens for block in new) / before if before else 1.0


def _scaled(candidate: Candidate, ratio: float) -> Candidate:
    return candidate if ratio == 1.0 else structs.replace(candidate, tokens=round(candidate.tokens * ratio))


_SCREENING = "screening"
_COMPACTION = "compaction"
_MARKINGS: tuple[DataMarking, ...] = ("delimit", "words")
_PAGE = 50


class ReplayStores(msgspec.Struct, frozen=True):
    """Stores that hold what a replay needs, for one caller in one transaction."""

    receipts: ReceiptStore
    windows: Windows
    compactions: CompactionStore
    policies: TrustPolicies
    records: RecordStore

    async def newest(self, agent_id: str, limit: int, session_id: str | None = None) -> list[StoredReceipt]:
        """Return the newest receipts of an agent, newest first."""
        found: list[StoredReceipt] = []
        before: tuple[int, str] | None = None
        while len(found) < limit:
            wanted, clearance = min(_PAGE, limit - len(found)), self.windows.actor.clearance
            page = await self.receipts.page(session_id, agent_id, before, wanted, max_clearance=clearance)
            found += page
            if len(page) < _PAGE:
                break
            before = (page[-1].receipt.created_at, page[-1].receipt.receipt_id)
        return found

    async def recorded(self, agent_id: str, limit: int, session_id: str | None = None) -> list[RecordedWindow]:
        """Return the newest calls of an agent by window; those that the caller may not read are left out."""
        by_session: dict[str, list[StoredReceipt]] = {}
        for stored in reversed(await self.newest(agent_id, limit, session_id)):
            by_session.setdefault(stored.receipt.session_id, []).append(stored)
        found = [await self._window(agent_id, stored) for stored in by_session.values()]
        return [window for window in found if window is not None]

    async def _window(self, agent_id: str, stored: Sequence[StoredReceipt]) -> RecordedWindow | None:
        session_id = stored[0].receipt.session_id
        try:
            window = await self.windows.open(session_id, agent_id)
        except (NotFound, PermissionDenied):
            return None
        calls = await self._calls(stored)
        if not calls:
            return None
        names = {name for call in calls if (name := call.receipt.versions.get(_COMPACTION)) is not None}
        views = {name: view for name in sorted(names) if (view := await self.compactions.view(name)) is not None}
        return RecordedWindow(
            line_id=window.line_id,
            session_id=session_id,
            calls=calls,
            earlier=await self._earlier(calls[0].receipt),
            events=await self.windows.events(window),
            views=views,
            screening=await self._screening(calls[-1].receipt),
            shares=window.settings.shares,
            window_limit=window.limit,
            compaction=await self._compaction(window),
        )

    async def _compaction(self, window: Window) -> ResolvedCompaction:
        settings = await self.windows.compaction(window)
        return settings._replace(threshold=await self.windows.threshold(window))

    async def _earlier(self, receipt: Receipt) -> RecordedCall | None:
        found = None if receipt.previous_id is None else await self.receipts.find(receipt.previous_id)
        return next(iter(() if found is None else await self._calls([found])), None)

    async def _calls(self, stored: Sequence[StoredReceipt]) -> list[RecordedCall]:
        """Return calls of a session with their texts, which are read once: prompts have most of them in common.

        Calls of which content was removed, and those that are not the caller's to read, are left out.
        """
        readable = [each for each in stored if await self._may_read(each.receipt)]
        receipts = [each.receipt for each in readable]
        redacted = await redacted_since(receipts, self.records)
        digests = {digest for each in receipts for digest in (each.tools_digest, *(b.digest for b in each.blocks))}
        texts = await self.receipts.texts(stored[0].receipt.session_id, sorted(digests))
        calls: list[RecordedCall] = []
        made: MadeBlocks = {}
        for each in readable:
            if each.receipt.receipt_id in redacted:
                continue
            with contextlib.suppress(ReceiptPruned):
                blocks, tools = blocks_with_texts(each.receipt, texts, made)
                calls.append(
                    RecordedCall(each.receipt, each.usage, blocks, tools, useful_items(each), likelihoods(each))
                )
        return calls

    async def _may_read(self, receipt: Receipt) -> bool:
        try:
            await check_requester(receipt, self.windows)
        except PermissionDenied:
            return False
        return True

    async def _screening(self, receipt: Receipt) -> Screening:
        """Return the rules that the texts of a call were screened by, if these are still the tenant's."""
        policy = await self.policies.current()
        for marking in _MARKINGS:
            if digest_of((policy, marking)).hex()[:16] == receipt.versions.get(_SCREENING):
                return Screening(policy, marking)
        return Screening(policy)
