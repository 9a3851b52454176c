"""Gathers what a prompt may contain: layers, events, board, open questions and the previous prompt, in one snapshot."""

from __future__ import annotations

import hashlib
import heapq
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from weftline.exchange.missing_context import GapQuery, Gaps
from weftline.kernel.clock import Clock
from weftline.kernel.identity import Actor
from weftline.kernel.outbox import Outbox
from weftline.knowledge.sql import DocumentStore
from weftline.models.budget_limits import Budgets
from weftline.models.language_models.content import ConversationMessage
from weftline.models.sql import UsageFactor, UsageStore
from weftline.prompts.assembly.packers import PackedText, TextPacker
from weftline.prompts.assembly.plan import Previous
from weftline.prompts.assembly.prompt_trust import ItemTrust, item_trust
from weftline.prompts.assembly.receipts import (
    OmittedCandidate,
    PlannedBlock,
    Receipt,
    ReceiptPruned,
    blocks_with_texts,
    digest_of,
)
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.records.sql import RecordStore
from weftline.safety.trust.model import Source, Trust, TrustPolicies
from weftline.search.task_queries import Turn
from weftline.sessions.model import Session, SessionArchived, find_session
from weftline.sessions.sql import SessionStore
from weftline.state.agent_context.memory_version import pin_first_memory
from weftline.state.agent_context.service import Contexts
from weftline.state.board.service import Boards
from weftline.state.layers.prefix import render_layers, sanitise
from weftline.state.layers.service import Layers
from weftline.windows.compaction.service import Compactions
from weftline.windows.model import INLINE_ID, EventDraft, WindowNotFound, is_from_above
from weftline.windows.service import Windows
from weftline.windows.shared_windows import EventHolds
from weftline.windows.window_writer import is_recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.exchange.missing_context import Gap
    from weftline.kernel.ports import CacheKey
    from weftline.models.budgets import BudgetName, BudgetUse
    from weftline.prompts.assembly.packers import CountMessages
    from weftline.prompts.assembly.prompt_trust import Screening
    from weftline.prompts.assembly.receipts import ReceiptBlock
    from weftline.safety.trust.model import TrustPolicy
    from weftline.search.passages import ChunkPassage
    from weftline.state.agent_context.permissions import CriticalUpdate
    from weftline.state.agent_context.sql import PinnedContext
    from weftline.state.board.model import EntryWithValue
    from weftline.state.layers.model import Layer
    from weftline.windows.compaction.sql import AppliedCompaction
    from weftline.windows.model import Window, WindowEvent


_MAX_GAPS = 20
# Memory of a block, candidate or omission of a receipt, and of a token of its texts.
_PART_BYTES, _TOKEN_BYTES = 400, 4
_OPEN = frozenset({"detected", "requested"})
_SPEAKERS = frozenset({"user", "assistant"})
_MAX_TURNS = 8


class AssemblyStores(msgspec.Struct, frozen=True):
    """Stores that an assembly reads and writes, for one caller in one transaction."""

    actor: Actor
    clock: Clock
    sessions: SessionStore
    windows: Windows
    compactions: Compactions
    layers: Layers
    boards: Boards
    gaps: Gaps
    receipts: ReceiptStore
    records: RecordStore
    factors: UsageFactor
    documents: DocumentStore
    outbox: Outbox
    usage: UsageStore
    prompts: PromptCache
    policies: TrustPolicies
    budgets: Budgets
    contexts: Contexts
    holds: EventHolds


class PreviousPrompt(NamedTuple):
    """The last prompt of a window, as it was sent."""

    receipt: Receipt
    blocks: tuple[PlannedBlock, ...]

    def as_previous(self, invalid: frozenset[str], task: str) -> Previous:
        receipt = self.receipt
        omitted = frozenset(each.ref for each in receipt.omitted)
        same_task = receipt.task_digest == digest_of(task).hex()
        full = any(each.reason == "budget" for each in receipt.omitted)
        limit = receipt.limits.limit if full else None
        return Previous(self.blocks, receipt.tools_digest, omitted, invalid, same_task, limit)

    def keep(self, tenant: str, cache: PromptCache) -> None:
        """Keep a prompt that was sent for the next call of its window."""
        receipt = self.receipt
        parts = len(receipt.blocks) + len(receipt.candidates) + len(receipt.omitted)
        key = (tenant, receipt.session_id, receipt.agent_id)
        cache.put(key, self, _PART_BYTES * parts + _TOKEN_BYTES * receipt.tokens)


class PromptCache(Protocol):
    """The last prompts of windows, by tenant, session and agent."""

    def get(self, key: CacheKey) -> PreviousPrompt | None: ...

    def put(self, key: CacheKey, value: PreviousPrompt, weight: int = 1) -> None: ...


class Gathered(NamedTuple):
    """What one snapshot of the database contributes to a prompt."""

    session: Session
    window: Window
    events: Sequence[WindowEvent]
    compaction: AppliedCompaction | None
    layers: Sequence[Layer]
    critical_update: CriticalUpdate | None
    board: Sequence[EntryWithValue]
    gaps: Sequence[Gap]
    previous: PreviousPrompt | None
    token_factor: float | None
    compaction_threshold: float
    policy: TrustPolicy
    budgets: Sequence[BudgetUse]
    teams: AbstractSet[str]
    # The snapshot of the session; None if the prompt is for another agent, whose memory is not read.
    held: PinnedContext | None

    @property
    def latest(self) -> int:
        """Return the time of the newest content, which recency is measured against: the clock plays no part."""
        session = self.session
        written = [event.time for event in self.events] + [found.entry.written_at for found in self.board]
        return max([session.created_at, session.last_message_at or 0, *written])

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the newest turns of user and model, newest first: what a task of few words continues."""
        own = (event for event in reversed(self.events) if not event.routed and not event.redacted)
        spoken = (event for event in own if event.message.role in _SPEAKERS and event.message.content)
        return tuple(Turn(event.number, event.message.content) for event in islice(spoken, _MAX_TURNS))

    @property
    def downgraded_by(self) -> tuple[BudgetName, ...]:
        """Return the spent budgets because of which the prompt gets fewer passages."""
        spent = (use.budget for use in self.budgets if use.is_reached)
        return tuple(budget.name for budget in spent if budget.at_limit == "downgrade")

    @property
    def sent_blocks(self) -> tuple[ReceiptBlock, ...]:
        """Return the blocks of the previous prompt."""
        return () if self.previous is None else self.previous.receipt.blocks


class GatherRequest(NamedTuple):
    """Whose prompt to gather for. ``inline``: the events that make the conversation, instead of all.

    ``fresh``: without the previous prompt.
    """

    session_id: str
    agent_id: str | None
    model: str | None
    inline: Sequence[EventDraft] | None
    fresh: bool


class NotPrepared(Exception):
    """The window, its pinned layers and memory or events given inline are not stored yet.

    ``stored`` are ids of the events that are.
    """

    def __init__(self, stored: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.stored = stored


async def prepare(request: GatherRequest, drafts: Sequence[EventDraft], stores: AssemblyStores) -> None:
    """Create the window, pin its layers and the agent's memory, and add the events that are new."""
    window = await stores.windows.open(request.session_id, request.agent_id, create=True)
    await stores.layers.for_agent(request.session_id, window.agent_id)
    if window.agent_id == stores.actor.principal_id:
        await pin_first_memory(stores.contexts, request.session_id)
    if drafts:
        writer = await stores.windows.to_write(window)
        await writer.ingest(drafts)
        await stores.holds.open(writer, "context.assemble")
        await writer.publish()


async def gather(request: GatherRequest, stores: AssemblyStores) -> Gathered:
    """Read everything but passages; raises NotPrepared before the first call of a window."""
    session_id = request.session_id
    session = await find_session(session_id, stores.actor, stores.sessions)
    if session.archived_at is not None:
        raise SessionArchived(
            f"The session '{session_id}' has been archived.", resource_type="session", resource_id=session_id
        )
    try:
        window = await stores.windows.open(session_id, request.agent_id)
    except WindowNotFound:
        raise NotPrepared from None
    budgets = await stores.budgets.binding(window.agent_id)
    layers = await stores.layers.pinned(session_id, window.agent_id)
    is_own = window.agent_id == stores.actor.principal_id
    events = _conversation(await stores.windows.events(window), request.inline, window.agent_id, is_own=is_own)
    held = await stores.contexts.snapshots.find(session_id, window.agent_id) if is_own else None
    if layers is None or (is_own and held is None):
        raise NotPrepared(frozenset(event.event_id for event in events))
    board = await stores.boards.to_read(session_id)
    return Gathered(
        session=session,
        window=window,
        events=events,
        compaction=await stores.compactions.current(window.line_id),
        layers=layers,
        critical_update=await stores.layers.critical_update(session_id, window.agent_id),
        board=await board.readable(),
        gaps=await stores.gaps.query(_open_gaps(session_id), _MAX_GAPS),
        previous=None if request.fresh else await _previous(stores, session_id, window.agent_id),
        token_factor=await stores.factors.factor(window.agent_id, request.model or window.settings.model),
        compaction_threshold=await stores.windows.threshold(window),
        policy=await stores.policies.current(),
        budgets=budgets,
        teams=await stores.layers.teams_of(window.agent_id),
        held=held,
    )


def _conversation(
    events: Sequence[WindowEvent], inline: Sequence[EventDraft] | None, agent_id: str, *, is_own: bool
) -> Sequence[WindowEvent]:
    """Return the events of the conversation; NotPrepared if some of those given inline are not stored.

    An event with the id of a message and other content is not that message: storing it again is refused. System text
    that the agent wrote itself is data: the caller, who is above it, has to store it as an instruction. An agent that
    gives its own conversation cannot leave out what those above it told it: their instructions keep their places.
    """
    if inline is None:
        return events
    sent = {draft.event_id: draft for draft in inline}
    by_id = {
        event.event_id: event
        for event in events
        if event.event_id in sent and not event.routed and is_recorded(event, sent[event.event_id], quoted=is_own)
    }
    if by_id.keys() != sent.keys():
        raise NotPrepared(frozenset(by_id))
    given = [by_id[draft.event_id] for draft in inline]
    if not is_own:
        return given
    others = (event for event in events if not event.routed and event.event_id not in by_id)
    kept = [event for event in others if is_from_above(event, agent_id)]
    return list(heapq.merge(given, kept, key=lambda event: event.number)) if kept else given


async def _previous(stores: AssemblyStores, session_id: str, agent_id: str) -> PreviousPrompt | None:
    """Return the previous prompt of a window; None if there is none, or content of it was removed."""
    receipt_id = await stores.receipts.last_id(session_id, agent_id)
    if receipt_id is None:
        return None
    cached = stores.prompts.get((stores.actor.tenant, session_id, agent_id))
    if cached is not None and cached.receipt.receipt_id == receipt_id:
        return cached
    stored = await stores.receipts.find(receipt_id)
    return None if stored is None else await _stored_prompt(stores, stored.receipt)


async def _stored_prompt(stores: AssemblyStores, receipt: Receipt) -> PreviousPrompt | None:
    digests = [receipt.tools_digest, *(block.digest for block in receipt.blocks)]
    try:
        blocks, _ = blocks_with_texts(receipt, await stores.receipts.texts(receipt.session_id, digests))
    except ReceiptPruned:
        return None
    return PreviousPrompt(receipt, blocks)


def _open_gaps(session_id: str) -> GapQuery:
    return GapQuery(session_id=session_id, states=_OPEN, severity="info", task_id=None, after=None)


# Conversations given inline with a call: each message is an event with an id that follows from its content.
#
# The id covers the message and all before it. A conversation that is sent again with each turn is therefore
# recognised, and only its new messages are added to the window.

_ID_DIGITS = 32
_encode = msgspec.json.Encoder(order="sorted").encode


def drafts_of(messages: Sequence[ConversationMessage]) -> list[EventDraft]:
    """Return the events of a conversation."""
    chain = hashlib.sha256()
    drafts = []
    for message in messages:
        chain.update(_encode(message))
        drafts.append(EventDraft(event_id=f"{INLINE_ID}{chain.hexdigest()[:_ID_DIGITS]}", message=message))
    return drafts


# Turns what was gathered into the materials of a plan. Texts that others wrote are screened on the way.

_BOARD = "board of the session"
_MISSING = "open questions"
_LINE = "\n  "


class ScreenedTexts(NamedTuple):
    """Texts that may go into a prompt, and those that the policy leaves out."""

    kept: list[PackedText]
    omitted: list[OmittedCandidate]

    @classmethod
    def of(cls, texts: Iterable[PackedText], screening: Screening) -> ScreenedTexts:
        found = cls([], [])
        for each in texts:
            reason = screening.omission(each.ref, each.text, each.trust)
            if reason is None:
                found.kept.append(each._replace(text=screening.shown(each.text)))
            else:
                found.omitted.append(reason)
        return found


def layer_blocks(layers: Sequence[Layer], count: CountMessages) -> list[PlannedBlock]:
    """Return the block of the layers, the beginning of every prompt."""
    messages = (ConversationMessage(role="system", content=render_layers(layers)),)
    block = PlannedBlock(
        block_id="layers",
        kind="layer",
        messages=messages,
        tokens=count(messages),
        items=layer_versions(layers),
        source=Source.SYSTEM,
        trust=Trust.TRUSTED,
    )
    return [block] if layers else []


def layer_versions(layers: Iterable[Layer]) -> dict[str, str]:
    """Return the versions of layers by the ids of their lines."""
    return {layer.line_id or f"layer:{layer.name}": f"{layer.version}" for layer in layers}


def task_block(task: str, count: CountMessages, found: ItemTrust | None = None) -> PlannedBlock:
    """Return the block of the task, which the caller itself gave; ``found``: it looks like an attack."""
    messages = (ConversationMessage(role="user", content=sanitise(task)),)
    digest = digest_of(messages).hex()[:16]
    return PlannedBlock(
        block_id=f"task:{digest}",
        kind="task",
        messages=messages,
        tokens=count(messages),
        items={f"task:{digest}": ""},
        source=Source.SYSTEM if found is None else found.source,
        trust=Trust.TRUSTED if found is None else found.trust,
    )


def board_texts(
    session_id: str, entries: Sequence[EntryWithValue], scores: Mapping[str, float], reader: str
) -> list[PackedText]:
    """Return the entries of a board, those relevant for the task first, then the newest."""

    def rank(found: EntryWithValue) -> tuple[float, int, str]:
        return (-scores.get(found.entry.key, 0.0), -found.entry.written_at, found.entry.key)

    return [
        PackedText(
            ref=f"board:{session_id}/{found.entry.key}",
            version=f"{found.entry.incarnation}.{found.entry.version}",
            text=_listed(f"{found.entry.key} (by {found.entry.written_by})", found.value),
            trust=item_trust(found.entry.trust, found.entry.written_by, reader),
            score=scores.get(found.entry.key),
        )
        for found in sorted(entries, key=rank)
    ]


def board_packer(texts: Sequence[PackedText], count: CountMessages, *, mark_words: bool = False) -> TextPacker:
    return TextPacker("board", "board", _BOARD, texts, count, mark_words)


def missing_texts(gaps: Sequence[Gap], suspicious: Mapping[str, ItemTrust]) -> list[PackedText]:
    """Return the open questions, most severe first."""
    return [
        PackedText(
            ref=gap.record.missing_id,
            version=gap.record.status,
            text=_listed(gap.record.severity, gap.record.question),
            trust=suspicious.get(gap.record.missing_id) or ItemTrust(Source.AGENT, Trust.UNTRUSTED),
        )
        for gap in gaps
    ]


def missing_packer(texts: Sequence[PackedText], count: CountMessages, *, mark_words: bool = False) -> TextPacker:
    return TextPacker("missing", "missing", _MISSING, texts, count, mark_words)


def _listed(name: str, text: str) -> str:
    """Return an item of a list; its further lines are indented, so that none passes for another item."""
    return f"- {name}: {_LINE.join(text.splitlines())}"


# Tokens of the whole documents that passages come from, to compare prompts with.


async def document_tokens(passages: Iterable[ChunkPassage], documents: DocumentStore) -> int:
    """Return the tokens of the documents that these passages come from, each once.

    A document has as many tokens per byte as its passages. The tokens are estimates, before any factor of a model.
    """
    by_document: dict[tuple[str, str], list[ChunkPassage]] = {}
    for passage in passages:
        by_document.setdefault((passage.chunk.place, passage.chunk.item), []).append(passage)
    total = 0
    for domain in sorted({place for place, _ in by_document}):
        found = await documents.find_all(domain, [item for place, item in by_document if place == domain])
        for item, document in found.items():
            chunks = by_document[domain, item]
            tokens, size = sum(c.chunk.tokens for c in chunks), sum(len(c.text.encode()) for c in chunks)
            total += max(tokens, round(document.text_bytes * tokens / size)) if size else tokens
    return total
