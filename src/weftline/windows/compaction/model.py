"""Compactions of windows: key facts, summaries, the compacted view, and the state of a run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from weftline.kernel.errors import Conflict, NotFound
from weftline.safety.trust.model import TrustLabel
from weftline.state.agent_context import settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.ports import CacheKey, TokenCounter
    from weftline.windows.model import WindowEvent


StrategyName = settings.StrategyName
UsedStrategy = Literal["sliding_window", "key_facts", "hierarchical", "task_scoped", "truncation"]
CompactionTrigger = Literal["threshold", "request"]
# The methods of Agent Context that Weftline uses.
SummaryMethod = Literal["extractive_summary", "abstractive_summary", "structured_digest", "rolling_summary"]
FactStatus = Literal["current", "superseded", "resolved"]

DEFAULT_STRATEGY = settings.DEFAULT_STRATEGY
DEFAULT_KEEP_RECENT = settings.DEFAULT_KEEP_RECENT
DEFAULT_TARGET = settings.DEFAULT_TARGET


# How the speaker of what a tool returned begins, so that it is never taken for somebody's word.
RESULT_OF = "result of "


class FactKind(StrEnum):
    """What a key fact is: statements first, then literals, which must survive character by character."""

    DECISION = "decision"
    COMMITMENT = "commitment"
    CONSTRAINT = "constraint"
    REQUIREMENT = "requirement"
    PREFERENCE = "preference"
    OPEN_QUESTION = "open_question"
    BLOCKER = "blocker"
    OWNER = "owner"
    DEADLINE = "deadline"
    FACT = "fact"
    ERROR = "error"
    PENDING_CALL = "pending_call"

    IDENTIFIER = "identifier"
    QUANTITY = "quantity"
    DATE = "date"
    PATH = "path"
    URL = "url"
    SYMBOL = "symbol"
    QUOTE = "quote"


# What somebody states; a result of a tool that claims it is quoted.
STATED_KINDS = frozenset(
    {
        FactKind.DECISION,
        FactKind.COMMITMENT,
        FactKind.CONSTRAINT,
        FactKind.REQUIREMENT,
        FactKind.PREFERENCE,
        FactKind.OWNER,
    }
)


class KeyFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that must survive a compaction, with its source.

    ``text`` is the statement as it was written, or the literal. ``literals`` are the strings in a statement that must
    be found unchanged. A later decision supersedes an earlier one: that one has ``superseded_by``, the id of the later
    fact. ``carried``: the summary did not contain it, so it is listed beside the summary. ``probability``: that its
    sentence states anything; 1 where a label or a form says so.
    """

    fact_id: str
    kind: FactKind
    text: str
    who: str
    at: int
    event_ids: tuple[str, ...]
    literals: tuple[str, ...] = ()
    status: FactStatus = "current"
    superseded_by: str | None = None
    carried: bool = False
    probability: float = 1.0

    @property
    def is_of_tool(self) -> bool:
        """Whether a tool returned it, so that nobody said it."""
        return self.who.startswith(RESULT_OF)

    @property
    def sources(self) -> tuple[str, ...]:
        """The events that say it and what became of it."""
        if self.superseded_by is None:
            return self.event_ids
        return (*self.event_ids, self.superseded_by.rpartition("#")[0])


# From this probability on a sentence is shown as a statement, and from the other one it must be kept if its kind binds:
# whole sentences that perhaps state nothing would take the room of the words of all others.
_STATED, _BINDING = 0.2, 0.4


def is_stated(fact: KeyFact) -> bool:
    """Tell whether a fact is probable enough to be shown as one."""
    return fact.probability >= _STATED


def binds(kind: FactKind, probability: float) -> bool:
    """Tell whether a statement is kept in any case; one that only tells something is kept while there is room."""
    return probability >= (1.0 if kind is FactKind.FACT else _BINDING)


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A text that stands for consecutive events, which remain as they are.

    ``sources``: the version of each covered event by its id, in order; the summary holds only as long as they are the
    current ones. ``trust`` is the lowest trust of its sources. ``confidence`` is from 0 to 1.
    """

    summary_id: str
    title: str
    text: str
    method: SummaryMethod
    sources: dict[str, str]
    first_number: int
    last_number: int
    first_at: int
    last_at: int
    tokens_before: int
    tokens: int
    confidence: float = 1.0
    loss_notes: tuple[str, ...] = ()
    trust: TrustLabel | None = None


class ShortenedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that stays in its place with a shorter content, such as a long result of a tool."""

    event_id: str
    version: str
    content: str
    tokens_before: int
    tokens: int


class CompactedView(msgspec.Struct, frozen=True, kw_only=True):
    """What replaces the older events of a window in prompts. Events that it does not mention stay in full."""

    summaries: tuple[Summary, ...] = ()
    shortened: tuple[ShortenedEvent, ...] = ()
    facts: tuple[KeyFact, ...] = ()


class EventGroup(NamedTuple):
    """Consecutive events that one summary stands for, with the tokens that it may take.

    ``following`` are the next few events: what they refer to is kept.
    """

    title: str
    events: Sequence[WindowEvent]
    target_tokens: int
    following: Sequence[WindowEvent] = ()


class Layout(NamedTuple):
    """How a strategy divides a window: groups to summarise; everything else stays. ``facts_only``: without prose."""

    strategy: UsedStrategy
    reason: str
    groups: Sequence[EventGroup]
    facts_only: bool = False


class CompactionSource(NamedTuple):
    """A frozen cut of a window: its own events in order, and what the result should be.

    ``target`` is the part of the covered tokens that their replacement may take. The newest ``keep_recent`` messages
    stay in full, as many of them as fit into ``recent_tokens``.
    """

    events: Sequence[WindowEvent]
    facts: Sequence[KeyFact]
    target: float
    keep_recent: int
    count: TokenCounter
    recent_tokens: int | None = None


class CompactionState(StrEnum):
    """``held`` waits for a human; ``superseded`` was applied, and a later one is in its place.

    ``dropped``: somebody returned to the original events.
    """

    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"
    APPLIED = "applied"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    FAILED = "failed"
    DROPPED = "dropped"


# A line has at most one compaction in one of these states.
OPEN_STATES = frozenset({CompactionState.QUEUED, CompactionState.RUNNING, CompactionState.HELD})


class CompactionNotFound(NotFound):
    """There is no such compaction, or its window is not yours to read."""

    code = "COMPACTION_NOT_FOUND"
    hint = "List the compactions of a window with `compaction.list`; make one with `context.compact`."
    related = ("compactions", "compact_context")


class CompactionNotHeld(Conflict):
    """The compaction does not wait for a review."""

    code = "COMPACTION_NOT_HELD"
    hint = "Only a held compaction can be applied; `compaction.list` shows states. Compact the window again if needed."
    related = ("compactions", "compact_context")


class CompactionOptions(NamedTuple):
    """How to compact. ``target`` is the part of the covered tokens that their replacement may take."""

    strategy: StrategyName = DEFAULT_STRATEGY
    target: float = DEFAULT_TARGET
    keep_recent: int = DEFAULT_KEEP_RECENT
    model: str | None = None


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a language model for a compaction, with their tokens."""

    model: str
    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class CompactionDraft(NamedTuple):
    """The result of a run before it is stored. ``degraded`` as in Compaction."""

    view: CompactedView
    used: UsedStrategy
    reason: str
    degraded: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    model_usage: ModelUsage | None = None


class Compaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run over one window. ``cut`` is the number of the newest event that it saw.

    ``version`` is the hash of its view. ``degraded`` names what could not be done as configured, such as a model that
    did not answer. ``reason`` says why the strategy was chosen, or why nothing was compacted. ``window_tokens`` is the
    size of the window when it was queued or begun; ``saved_tokens`` are those that prompts save while it is applied.
    """

    compaction_id: str
    session_id: str
    agent_id: str
    line_id: str
    requested_by: str
    trigger: CompactionTrigger
    state: CompactionState
    strategy: StrategyName
    target: float
    keep_recent: int
    created_at: int
    cut: int = 0
    used: UsedStrategy | None = None
    reason: str = ""
    version: str | None = None
    events_covered: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    facts: int = 0
    carried_facts: int = 0
    summaries: int = 0
    loss_notes: int = 0
    degraded: tuple[str, ...] = ()
    model: str | None = None
    model_usage: ModelUsage | None = None
    approval_id: str | None = None
    window_tokens: int = 0
    saved_tokens: int = 0
    # Runs that were begun, and those that ended with an error.
    attempts: int = 0
    failures: int = 0
    started_at: int | None = None
    finished_at: int | None = None


# Caches of compacted views and of key facts.


class ViewCache(Protocol):
    """Views by tenant and compaction; a stored view never changes."""

    def get(self, key: CacheKey) -> CompactedView | None: ...

    def put(self, key: CacheKey, value: CompactedView, weight: int = 1) -> None: ...


class FactCache(Protocol):
    """Key facts by tenant and the versions of the events that they are from."""

    def get(self, key: CacheKey) -> Sequence[KeyFact] | None: ...

    def put(self, key: CacheKey, value: Sequence[KeyFact], weight: int = 1) -> None: ...
