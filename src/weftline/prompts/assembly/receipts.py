"""Receipts: the full record of one assembly, from which its prompt can be shown again, byte for byte."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import structs

from weftline.history.item_ids import ItemRef
from weftline.kernel.errors import Conflict, NotFound, Rejected
from weftline.models.budgets import BudgetName, Charge
from weftline.models.language_models.content import BlockKind, ConversationMessage, Prompt, ToolDefinition
from weftline.prompts.efficiency import Efficiency
from weftline.records.item_refs import item_hash
from weftline.records.vocabulary import OmissionReason
from weftline.safety.trust.model import Source, Trust

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping


# Candidates of an assembly, what became of each, and the plan that orders the chosen ones into a prompt.

CandidateKind = Literal["layer", "tool", "pin", "summary", "event", "passage", "board", "missing", "task"]
# The kind of the candidates in a block.
_KINDS: dict[BlockKind, CandidateKind] = {
    "layer": "layer",
    "pins": "pin",
    "summary": "summary",
    "conversation": "event",
    "retrieved": "passage",
    "board": "board",
    "missing": "missing",
    "task": "task",
}
# Kinds of blocks whose text is always enclosed in data elements, trusted or not.
DATA_KINDS: frozenset[BlockKind] = frozenset({"pins", "summary", "retrieved", "board", "missing"})
# How a plan relates to the prompt of the previous call.
PlanMode = Literal["first", "extended", "rebuilt"]


class ContextOverBudget(Rejected):
    """What a prompt must contain exceeds the token limit."""

    code = "CONTEXT_OVER_BUDGET"
    hint = (
        "Raise token_budget, choose a model with a larger context window, or shorten the parts named in 'parts'; "
        "`pin.remove` unpins what is named in 'pins'."
    )
    related = ("assemble_context",)


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that may go into a prompt. ``ref`` is its item id, or the id of a passage; unique in a plan.

    ``version`` changes with the content: a candidate that was sent in another version is sent again. Of a passage,
    ``probability`` is that of being evidence for the task, ``doubtful`` if its collection probably holds none.
    """

    ref: str
    kind: CandidateKind
    tokens: int
    version: str = ""
    score: float | None = None
    probability: float | None = None
    doubtful: bool = False


class RepeatedCandidate(Candidate, frozen=True, kw_only=True, omit_defaults=True):
    """A candidate whose ref another one has: a passage of an event of the conversation, or a pinned board entry.

    ``place``: its place among all candidates of its own kind, in their order of priority.
    """

    place: int = 0


class BlockPacking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block that a plan considered: the kind of its candidates, its room, how many it was for, and its tokens.

    ``block_id`` is its id in the prompt; empty if it is not part of it.
    """

    kind: CandidateKind
    room: int
    wanted: int
    tokens: int = 0
    block_id: str = ""


class OmittedCandidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A candidate that is not in the prompt, with the reason."""

    ref: str
    reason: OmissionReason
    detail: str | None = None


class Shortening(msgspec.Struct, frozen=True, omit_defaults=True):
    """A candidate of which only a part is in the prompt: beginning and end, or what a compaction kept of it."""

    ref: str
    original_tokens: int
    kept_tokens: int
    compacted: bool = False


class PlannedBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """A block of a plan: messages, and the versions of the candidates they contain, by ref.

    ``covers`` are the versions of what it contains in a shorter form only: the events of a summary. Passages of these
    are no repetition. ``source`` and ``trust`` are those of its least trusted candidate. ``spans``: where the texts
    of several candidates begin and end in the content of its one message.
    """

    block_id: str
    kind: BlockKind
    messages: tuple[ConversationMessage, ...]
    tokens: int
    items: dict[str, str] = msgspec.field(default_factory=dict)
    covers: dict[str, str] = msgspec.field(default_factory=dict)
    source: Source = Source.DOCUMENT
    trust: Trust = Trust.UNTRUSTED
    spans: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)

    @property
    def is_data(self) -> bool:
        """Whether all of its texts are in data elements. The task is of the caller, whatever was found in it."""
        return self.kind in DATA_KINDS or (self.trust is not Trust.TRUSTED and self.kind != "task")

    @cached_property
    def digest(self) -> bytes:
        return digest_of(self.messages)


class PackingLog:
    """The blocks that a packer made while a plan was made."""

    __slots__ = ("_kind", "_made")

    def __init__(self, kind: CandidateKind) -> None:
        self._kind = kind
        self._made: list[tuple[int, int, PlannedBlock | None]] = []

    def add(self, room: int, wanted: int, block: PlannedBlock | None) -> None:
        self._made.append((room, wanted, block))

    def packings(self, sent: Container[str]) -> Iterator[BlockPacking]:
        """Yield what was made, for the receipt of a prompt with the blocks of these ids."""
        for room, wanted, block in self._made:
            block_id = block.block_id if block is not None and block.block_id in sent else ""
            tokens = 0 if block is None else block.tokens
            yield BlockPacking(kind=self._kind, room=room, wanted=wanted, tokens=tokens, block_id=block_id)


class CacheCosts(NamedTuple):
    """Relative prices of an input token: not cached and written to the cache, and read from it.

    ``warm`` is false if the cache of the previous call has expired. ``expected_calls`` is how many calls are expected
    to follow with the same prefix.
    """

    write: float
    read: float
    warm: bool
    expected_calls: int


class Modelled(msgspec.Struct, frozen=True):
    """Modelled cost of sending this prompt now and again in the expected calls, in uncached input tokens."""

    extended: float
    rebuilt: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Ordered blocks within the limit, and what became of every candidate.

    ``reused`` is the number of leading blocks that are the same as in the previous call.
    """

    mode: PlanMode
    reason: str
    blocks: tuple[PlannedBlock, ...]
    reused: int
    tokens: int
    omitted: tuple[OmittedCandidate, ...]
    shortened: tuple[Shortening, ...] = ()
    modelled: Modelled | None = None

    @property
    def included(self) -> dict[str, str]:
        """Return the version of every candidate in the prompt, by ref."""
        return items_of(self.blocks)

    @property
    def covered(self) -> dict[str, str]:
        """Return the version of every candidate that the prompt has in a shorter form, by ref."""
        return covers_of(self.blocks)

    @property
    def trimmed(self) -> frozenset[str]:
        """Return the refs that it has no room for; none if it extends a prompt, which says what it left out."""
        return frozenset(each.ref for each in self.omitted if each.reason == "budget" and self.mode != "extended")

    @property
    def reused_tokens(self) -> int:
        return sum(block.tokens for block in self.blocks[: self.reused])


def items_of(blocks: Iterable[PlannedBlock]) -> dict[str, str]:
    """Return the versions of the candidates in blocks, by ref; the last block wins."""
    found: dict[str, str] = {}
    for block in blocks:
        found |= block.items
    return found


def covers_of(blocks: Iterable[PlannedBlock]) -> dict[str, str]:
    """Return the versions of the candidates that blocks have in a shorter form, by ref."""
    found: dict[str, str] = {}
    for block in blocks:
        found |= block.covers
    return found


def with_included(candidates: Iterable[Candidate], blocks: Iterable[PlannedBlock]) -> tuple[Candidate, ...]:
    """Return the candidates and what else is in a prompt: its task, surroundings, and what earlier calls chose."""
    found = {each.ref: each for each in candidates}
    for block in blocks:
        tokens = block.tokens if len(block.items) == 1 else 0
        for ref, version in block.items.items():
            known = found.get(ref) or Candidate(ref=ref, kind=_KINDS[block.kind], tokens=tokens)
            # What is no evidence for this task has no version, but an earlier call may have sent it.
            found[ref] = known if known.version else msgspec.structs.replace(known, version=version)
    return tuple(found.values())


def digest_of(value: object) -> bytes:
    """Return the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(_encode(value)).digest()


def over_budget(parts: Mapping[str, int], limit: int, pins: Mapping[str, int]) -> ContextOverBudget:
    """Return the error that names the parts that do not fit and each pin, with their tokens, largest first."""
    largest = _largest_first(parts)
    named = ", ".join(f"{name} {tokens}" for name, tokens in largest.items())
    return ContextOverBudget(
        f"The prompt must contain {sum(parts.values())} tokens ({named}), but the limit is {limit}.",
        limit_tokens=limit,
        needed_tokens=sum(parts.values()),
        parts=largest,
        pins=_largest_first(pins),
    )


def _largest_first(tokens: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(tokens.items(), key=lambda part: -part[1]))


# Layers and the task are not items.
# Among the versions of a receipt: that of the layer of the platform, or that the tenant's policy has switched it off.
PLATFORM_ID, SWITCHED_OFF = "layer:platform", "off"
_WITHOUT_ITEMS = frozenset({"layer", "task"})
_encode = msgspec.json.Encoder(order="sorted").encode
decode_messages = msgspec.json.Decoder(tuple[ConversationMessage, ...]).decode
_tools = msgspec.json.Decoder(tuple[ToolDefinition, ...]).decode


class ReceiptNotFound(NotFound):
    """The receipt does not exist, or you may not read it."""

    code = "RECEIPT_NOT_FOUND"
    hint = "List your receipts with `receipt.list`."
    related = ("receipts",)


def no_receipt(receipt_id: str) -> ReceiptNotFound:
    return ReceiptNotFound(f"There is no receipt '{receipt_id}'.", resource_type="receipt", resource_id=receipt_id)


class ReceiptPruned(Conflict):
    """Retention or a redaction removed content of this prompt, so it cannot be shown again."""

    code = "RECEIPT_PRUNED"
    hint = "The receipt itself still shows which items the prompt had; `receipt.show` lists them."
    related = ("receipts",)


class ReceiptBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block of the prompt. ``digest`` names its messages in the text store; ``items`` are versions by ref.

    ``covers`` are the versions of what it contains in a shorter form: the events of a summary. ``source`` and ``trust``
    are those of its least trusted item. ``spans`` are where the texts of several items begin and end in its message.
    """

    block_id: str
    kind: BlockKind
    digest: str
    tokens: int
    cache_point: bool = False
    items: dict[str, str] = msgspec.field(default_factory=dict)
    covers: dict[str, str] = msgspec.field(default_factory=dict)
    source: Source = Source.DOCUMENT
    trust: Trust = Trust.UNTRUSTED
    spans: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)

    @property
    def sources(self) -> dict[str, str]:
        """Return the versions of everything that its text was made of, by ref."""
        return {**self.covers, **self.items}


class TokenLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of the prompt: the smallest of the budget, the window's limit, and the model's less its output."""

    limit: int
    token_budget: int | None
    window_tokens: int
    model_tokens: int
    reserved_output_tokens: int


class CountingMethod(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens were counted: exactly, or by an estimate times a factor times a safety margin.

    ``learned``: the factor comes from the usage that providers reported. ``raw_tokens``: the estimate without both.
    """

    exact: bool
    factor: float
    margin: float
    learned: bool
    raw_tokens: int


class Savings(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and money of a prompt against the conversation alone: what the agent would send without Weftline.

    That is ``naive_baseline_tokens`` and ``naive_cost``; ``savings_ratio`` is negative if the prompt has more tokens.
    ``document_tokens`` are those of the whole documents of which evidence is in the prompt; with them, the prompt saves
    ``savings_ratio_with_documents``. ``cached_tokens`` are expected to be read from the provider's cache. Money is in
    US dollars, None without a known price.
    """

    naive_baseline_tokens: int
    document_tokens: int = 0
    engine_assembled_tokens: int
    savings_ratio: float
    savings_ratio_with_documents: float = 0.0
    cached_tokens: int
    naive_cached_tokens: int
    cost: float | None = None
    naive_cost: float | None = None


class ToolSavings(msgspec.Struct, frozen=True, kw_only=True):
    """Tools that were chosen for the task: their number and tokens, against all that could have been loaded.

    Tokens are estimated alike for both. ``kept``: the list of the previous prompt. ``named``: further ones, by name.
    ``registered``: names as registered, by those in the prompt, where providers do not take them.
    """

    available: int
    available_tokens: int
    loaded: int
    loaded_tokens: int
    saved_tokens: int
    kept: bool
    named: tuple[str, ...] = ()
    registered: dict[str, str] = {}


class CompactionUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the compaction of the window saved in a prompt.

    ``events`` are the events that ``summaries`` and shorter contents stand for, ``quoted`` those of them of which
    passages are in the prompt as well, because the task asks for them.
    """

    compaction_id: str
    version: str
    summaries: int
    events: int
    quoted: int
    original_tokens: int
    tokens: int


class Confidence(msgspec.Struct, frozen=True, kw_only=True):
    """How sure retrieval was. See the fields of the same names in the answer of a search.

    ``widened``: the prompt has doubtful passages, which may have ``doubt_tokens``. ``fallback``: nothing was evidence,
    so the newest turns of the conversation have the room. ``pending_by_words``: something of the agent was found by its
    words only, not yet by its meaning.
    """

    confidence: float | None
    widened: bool
    fallback: str | None
    pending_documents: int
    pending_events: int
    doubt_tokens: int = 0
    pending_by_words: bool = False


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What was assembled, from what, and why. Texts are not in it but in the text store, by digest.

    ``documents`` are the URIs of the documents that chunks in the prompt belong to, by ref. ``estimate``: its expected
    efficiency; receipts from before have none. ``budgets`` are those that it counted for, ``downgraded_by`` the spent
    ones because of which it has fewer passages. ``step`` is the step of a task that the caller was in, ``teams`` are
    those of the agent. ``repeated``, ``packings`` and ``readings`` are for replays: candidates with the ref of another
    one, the blocks that the plan considered, and the messages without room that were read for what they state.
    """

    receipt_id: str
    session_id: str
    agent_id: str
    requested_by: str
    created_at: int
    previous_id: str | None
    model: str | None
    task_digest: str
    mode: PlanMode
    reason: str
    modelled: Modelled | None
    limits: TokenLimits
    counting: CountingMethod
    tokens: int
    tools_tokens: int
    tools_digest: str
    blocks: tuple[ReceiptBlock, ...]
    candidates: tuple[Candidate, ...]
    omitted: tuple[OmittedCandidate, ...]
    shortened: tuple[Shortening, ...]
    versions: dict[str, str]
    window_tokens: dict[str, int]
    window_budgets: dict[str, int]
    confidence: Confidence
    savings: Savings
    prompt_hash: str
    max_output_tokens: int
    timing_ms: dict[str, float]
    cache_ttl: str | None = None
    tool_savings: ToolSavings | None = None
    documents: dict[str, str] = msgspec.field(default_factory=dict)
    compaction: CompactionUse | None = None
    estimate: Efficiency | None = None
    budgets: tuple[BudgetName, ...] = ()
    downgraded_by: tuple[BudgetName, ...] = ()
    step: str = ""
    teams: tuple[str, ...] = ()
    repeated: tuple[RepeatedCandidate, ...] = ()
    packings: tuple[BlockPacking, ...] = ()
    readings: tuple[tuple[str, ...], ...] = ()

    @property
    def has_platform(self) -> bool:
        """Tell whether the prompt began with the layer of the platform."""
        return self.versions.get(PLATFORM_ID) != SWITCHED_OFF

    @property
    def charge(self) -> Charge:
        """Return what the call adds to its budgets until its usage is reported."""
        return Charge.of_call(self.tokens, self.savings.cost)

    @property
    def item_hashes(self) -> bytes:
        """Return the hashes of the items in the prompt, to find the prompts that an item was in."""
        refs = {ref for block in self.blocks if block.kind not in _WITHOUT_ITEMS for ref in block.sources}
        uris = (ItemRef.parse(self.documents.get(ref, ref)) for ref in refs)
        return b"".join(sorted({item_hash(ref.item) for ref in uris if ref is not None}))


class ReportedUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the provider reported for the call of a receipt.

    ``held``: what of it does not fit the prompt of the receipt.
    """

    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost: float | None = None
    latency_ms: float | None = None
    quality_score: float | None = None
    reported_at: int = 0
    response_id: str | None = None
    held: tuple[str, ...] = ()

    def is_inflated(self, estimated_tokens: int) -> bool:
        """Tell whether it claims more tokens than the call can have used: then sums count what was estimated."""
        too_many = "input_tokens" in self.held and self.input_tokens > estimated_tokens
        return too_many or not {"output_tokens", "cache_tokens"}.isdisjoint(self.held)


class StoredReceipt(msgspec.Struct, frozen=True):
    """A receipt, the reported usage of its call, and how its answer used the prompt (``scored``), where reported."""

    receipt: Receipt
    usage: ReportedUsage | None
    scored: Efficiency | None = None

    @property
    def efficiency(self) -> Efficiency | None:
        """Return the efficiency by the answer, else the estimate."""
        return self.scored or self.receipt.estimate


class SavingsTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over receipts. Reported figures cover the calls with reported usage, ``reported`` of them.

    ``naive_baseline_tokens`` and ``naive_cost`` are those of the conversations alone, ``document_tokens`` those of the
    whole documents with evidence in a prompt.
    """

    group: str
    calls: int
    naive_baseline_tokens: int
    document_tokens: int
    engine_assembled_tokens: int
    cached_tokens: int
    cost: float | None
    naive_cost: float | None
    reported: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reported_cost: float | None


# Blocks of receipts, and what was made of them, by digest.
MadeBlocks = dict[str, tuple[ReceiptBlock, PlannedBlock]]


def blocks_with_texts(
    receipt: Receipt, texts: Mapping[str, bytes], made: MadeBlocks | None = None
) -> tuple[tuple[PlannedBlock, ...], tuple[ToolDefinition, ...]]:
    """Return the blocks and tools of a receipt's prompt; raises ReceiptPruned if a text is missing or differs.

    ``made`` are blocks of other receipts of the session: a prompt mostly has those of the one before it.
    """
    digests = {block.digest for block in receipt.blocks} | {receipt.tools_digest}
    lost = sorted(digest for digest in digests if digest not in texts)
    if lost:
        raise ReceiptPruned(f"{len(lost)} of {len(digests)} texts of this prompt were removed.", lost=len(lost))
    made = {} if made is None else made
    blocks = tuple(_planned(block, texts[block.digest], made) for block in receipt.blocks)
    return blocks, _tools(texts[receipt.tools_digest])


def _planned(block: ReceiptBlock, text: bytes, made: MadeBlocks) -> PlannedBlock:
    stored = structs.replace(block, cache_point=False)
    known = made.get(block.digest)
    if known is not None and known[0] == stored:
        return known[1]
    planned = PlannedBlock(
        block_id=block.block_id,
        kind=block.kind,
        messages=decode_messages(text),
        tokens=block.tokens,
        items=block.items,
        covers=block.covers,
        source=block.source,
        trust=block.trust,
        spans=block.spans,
    )
    made[block.digest] = (stored, planned)
    return planned


def texts_of(blocks: Iterable[PlannedBlock], tools: tuple[ToolDefinition, ...]) -> dict[str, bytes]:
    """Return the texts of a prompt by digest."""
    values: list[Any] = [block.messages for block in blocks]
    return {digest_of(value).hex(): _encode(value) for value in [*values, tools]}


def prompt_hash(prompt: Prompt) -> str:
    """Return the hash of a prompt in neutral form."""
    return f"sha256:{digest_of(prompt).hex()}"
