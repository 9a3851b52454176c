"""Wiring: builds what each operation needs, by type.

The one untyped part of the wiring; a test resolves every need of every operation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

import weftline.app.line_kinds  # noqa: F401 - registers them
from weftline.access.agent_tree import AgentLimit
from weftline.access.audit import AuditFilter, AuditTrail
from weftline.access.model import AgentInstructions, LineKeys, TokenCodec
from weftline.access.operations import TokenLifetimes
from weftline.access.plans import DefaultPlan
from weftline.access.teams import TeamContents
from weftline.app.authentication import CallSessionAcl, SessionAclCache
from weftline.app.refusals import CallAuditTrail
from weftline.app.search.service import IndexLag
from weftline.exchange.lineage import StoredItemLabels
from weftline.exchange.missing_context import GapAnswers
from weftline.exchange.transfer.export import Exporter
from weftline.exchange.transfer.importer import Importer
from weftline.history.line_kinds import LineBackends, line_kinds
from weftline.history.line_signatures import LineSignatures
from weftline.history.lines import LineStore
from weftline.history.object_storage import Staging
from weftline.history.store import Pruner
from weftline.indexing.chunking.reader import DocumentReader
from weftline.indexing.embeddings import Embeddings
from weftline.indexing.pins import PinLimits
from weftline.insight.alerts.service import Alerts, AlertSettingsCache
from weftline.insight.guidance import AllowedOperations
from weftline.insight.metrics import MetricsSource
from weftline.kernel.clock import Clock
from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.events import AlertPort
from weftline.kernel.fair_queue import FairSlots
from weftline.kernel.identity import Actor, Approval
from weftline.kernel.outbox import Outbox
from weftline.kernel.ports import Cooperative, TokenCounters, Transactions
from weftline.kernel.transaction import SqlStore
from weftline.knowledge.domains import DomainAuditFilter
from weftline.knowledge.sources import SourceControl
from weftline.models.language_models.catalog import Catalog, Prices
from weftline.models.language_models.token_counts import CountCache
from weftline.prompts.assembly.conversation import PreparedEventCache
from weftline.prompts.assembly.gather import PromptCache
from weftline.prompts.assembly.plan import DoubtLimit
from weftline.prompts.assembly.records import ReceiptRecordReader
from weftline.prompts.gateway.model import GatewayAccess
from weftline.prompts.tools.catalogue import ToolCatalogue
from weftline.prompts.tools.registry import SelectionMetrics
from weftline.records.schemas import MarkupReader, ReceiptRecords
from weftline.safety.approvals.model import CallPerformer, HeldCallObserver
from weftline.safety.guardrails.guard import GuardrailGuard
from weftline.safety.guardrails.model import CallerGuardrails, KnownActions
from weftline.safety.guardrails.service import Guardrails
from weftline.safety.injection import InjectionDetector
from weftline.safety.trust.gate import CallVerdicts, ItemLabels
from weftline.safety.trust.model import TrustPolicies
from weftline.safety.trust.scanner import ContentScanner, Verdicts
from weftline.search.persistent_memory import KnownSessions, Lag
from weftline.search.retriever import Retriever
from weftline.sessions.events.model import Feed
from weftline.sessions.events.webhooks import WebhookSender
from weftline.sessions.messages.search import Searcher
from weftline.sessions.messages.store import MessagePages, ReplyObserver
from weftline.state.agent_context.definitions import InitialDefinition
from weftline.state.agent_context.model import ContextLimits
from weftline.state.board.model import EntryObserver, ReadTally
from weftline.state.layers.rules import LayersAndMemoryOfTeams, RuleLoader, TenantRules
from weftline.state.layers.service import LayerTexts
from weftline.state.layers.sql import LayerStore
from weftline.state.memory.model import MemoryLimits
from weftline.storage.sql.unit_of_work import CallerTransactions
from weftline.windows.agent_settings import SettingsCache
from weftline.windows.compaction.model import FactCache, ViewCache
from weftline.windows.compaction.service import HeldCompactions
from weftline.windows.compaction.trigger import CompactionJobs, ThresholdTrigger
from weftline.windows.sql import CompactionQueue, EventCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weftline.kernel.transaction import Transaction
    from weftline.safety.approvals.model import HeldCall
    from weftline.safety.trust.model import TrustLabel, TrustPolicy
    from weftline.storage.sql.database import Database

    Source = Callable[["CallScope"], Any]

N = TypeVar("N")


@dataclass(slots=True)
class CallScope:
    """The actor and the transaction of one call.

    An operation that opens its own transactions has none here and declares no store among its needs.
    """

    actor: Actor | None
    _transaction: Transaction | None
    # Of the texts that were scanned before the transaction.
    verdicts: Verdicts = field(default_factory=dict)

    @property
    def correlation(self) -> Correlation:
        return NO_CORRELATION if self.actor is None else self.actor.correlation

    @property
    def principal_id(self) -> str | None:
        return None if self.actor is None else self.actor.principal_id

    @property
    def approval(self) -> Approval | None:
        """Return the approval under which a held call is performed."""
        return None if self.actor is None else self.actor.approval

    @property
    def known_actor(self) -> Actor:
        if self.actor is None:
            raise LookupError("an operation without a caller asked for one")
        return self.actor

    @property
    def transaction(self) -> Transaction:
        if self._transaction is None:
            raise LookupError("an operation that opens its own transactions declares a store")
        return self._transaction


@dataclass(frozen=True, slots=True)
class Singletons:
    """Services that live as long as the application."""

    clock: Clock
    codec: TokenCodec
    lifetimes: TokenLifetimes
    counters: TokenCounters
    catalog: Catalog
    prices: Prices
    injection_detector: InjectionDetector
    token_counts: CountCache
    read_counts: ReadTally
    feed: Feed
    metrics_source: MetricsSource
    selection_metrics: SelectionMetrics
    agent_limit: AgentLimit
    memory_limits: MemoryLimits
    pin_limits: PinLimits
    default_plan: DefaultPlan
    context_limits: ContextLimits
    pages: MessagePages
    layer_texts: LayerTexts
    tenant_rules: TenantRules
    known_actions: KnownActions
    caller_guardrails: CallerGuardrails
    guardrails: Guardrails
    implied_calls: GuardrailGuard
    searcher: Searcher
    allowed_operations: AllowedOperations
    tool_catalogue: ToolCatalogue
    gateway: GatewayAccess
    markup: MarkupReader
    pruner: Pruner
    staging: Staging
    exporter: Exporter
    importer: Importer
    webhook_sender: WebhookSender
    source_control: SourceControl
    embeddings: Embeddings
    retriever: Retriever
    known_sessions: SessionAclCache
    window_events: EventCache
    compaction_settings: SettingsCache
    alert_settings: AlertSettingsCache
    compaction_jobs: CompactionJobs
    prepared_events: PreparedEventCache
    compacted_views: ViewCache
    key_facts: FactCache
    prompts: PromptCache
    assembly_slots: FairSlots
    doubt_limit: DoubtLimit
    content_scanner: ContentScanner
    document_reader: DocumentReader
    call_performer: CallPerformer


# Stores of ports, created for the transaction of each call; those of a class are built by their class.
_STORES: Mapping[type, Callable[[Transaction], Any]] = {
    Lag: IndexLag,
}

# Places of the call and its transaction among the values that something is built from.
_CALL, _TRANSACTION = 0, 1
# Ports that a service of a higher slice implements.
_IMPLEMENTATIONS: Mapping[type, type] = {
    AgentInstructions: InitialDefinition,
    AlertPort: Alerts,
    AuditFilter: DomainAuditFilter,
    CompactionQueue: ThresholdTrigger,
    EntryObserver: GapAnswers,
    ReceiptRecords: ReceiptRecordReader,
    ReplyObserver: GapAnswers,
    TeamContents: LayersAndMemoryOfTeams,
}


def _line_backends(container: Container) -> Source:
    backends: dict[str, Source] = {}

    def build(call: CallScope) -> LineBackends:
        if not backends:
            backends.update((kind.prefix, container.source(kind.backend)) for kind in line_kinds().values())
        return LineBackends({prefix: partial(source, call) for prefix, source in backends.items()})

    return build


class _CallItemLabels:
    """Builds the lookup of labels when a call names what its text was derived from: few do."""

    __slots__ = ("_call", "_container")

    def __init__(self, container: Container, call: CallScope) -> None:
        self._container = container
        self._call = call

    async def of(self, references: Sequence[str]) -> Mapping[str, TrustLabel]:
        labels: StoredItemLabels = self._container.source(StoredItemLabels)(self._call)
        return await labels.of(references)


class _CallPolicies:
    """Builds the loader of rules when a call stores content: reads have a gate too, and do not use it."""

    __slots__ = ("_call", "_container")

    def __init__(self, container: Container, call: CallScope) -> None:
        self._container = container
        self._call = call

    async def current(self) -> TrustPolicy:
        rules: TenantRules = self._container.source(TenantRules)(self._call)
        known = rules.cached(self._call.known_actor)
        if known is not None:
            return known.policy
        loader: RuleLoader = self._container.source(RuleLoader)(self._call)
        return await loader.current()


class _CallObserver:
    """Builds the observer of held calls when one is shown or ends: few calls have to do with one."""

    __slots__ = ("_call", "_container")

    def __init__(self, container: Container, call: CallScope) -> None:
        self._container = container
        self._call = call

    async def details(self, held: HeldCall) -> dict[str, Any]:
        return await self._observer.details(held)

    async def closed(self, held: HeldCall, decision: Literal["rejected", "expired"]) -> None:
        await self._observer.closed(held, decision)

    @property
    def _observer(self) -> HeldCompactions:
        observer: HeldCompactions = self._container.source(HeldCompactions)(self._call)
        return observer


class Container:
    """Builds what operations need, by type. What a need is built from is resolved on its first use."""

    def __init__(self, database: Database, clock: Clock, signing_secret: bytes = b"") -> None:
        self._database = database
        self._builders: dict[tuple[Any, ...], Callable[[CallScope], list[Any]]] = {}
        self._services: dict[Any, object] = {}
        self._sources: dict[Any, Source] = {
            Actor: lambda call: call.actor,
            AuditTrail: lambda call: CallAuditTrail(call.transaction, call.known_actor, clock),
            Cooperative: lambda call: call.transaction,
            Outbox: lambda call: Outbox(call.transaction, clock, call.correlation, call.principal_id),
            CallVerdicts: lambda call: call.verdicts,
            LineKeys: lambda call: LineSignatures(call.transaction, signing_secret),
            LayerStore: lambda call: LayerStore(call.transaction, signing_secret),
            LineStore: lambda call: LineStore(call.transaction, signing_secret),
            LineBackends: _line_backends(self),
            ItemLabels: lambda call: _CallItemLabels(self, call),
            TrustPolicies: lambda call: _CallPolicies(self, call),
            HeldCallObserver: lambda call: _CallObserver(self, call),
        }

    def provide(self, singletons: Singletons) -> None:
        """Register the application's singletons."""
        self._services |= {need: getattr(singletons, name) for name, need in _hints_of(Singletons).items()}
        known = singletons.known_sessions
        self._sources[KnownSessions] = lambda call: CallSessionAcl(known, call.transaction)

    def build(self, need: type[N], actor: Actor, transaction: Transaction) -> N:
        built: N = self.arguments((need,), CallScope(actor, transaction))[0]
        return built

    def source(self, need: Any) -> Source:  # noqa: ANN401 - a type, or a generic alias
        """Return the function that builds a need for a call."""
        return lambda call: self.arguments((need,), call)[0]

    def arguments(self, needs: tuple[type, ...], call: CallScope) -> list[Any]:
        """Return the arguments of an operation after its request."""
        build = self._builders.get(needs)
        if build is None:
            build = self._builders[needs] = _Parts(self._services, self._sources, self._new_transactions).builder(needs)
        return build(call)

    def _new_transactions(self, need: Any) -> object:  # noqa: ANN401 - a generic alias
        (inner,) = get_args(need)
        return CallerTransactions(self._database, self, inner)


class _Parts:
    """What some needs are built from: a list of values, and the steps that fill it for each call.

    The list begins with the call and its transaction. Each type is in it once, so that what several needs have in
    common is built once for a call.
    """

    def __init__(
        self,
        services: Mapping[Any, object],
        sources: Mapping[Any, Source],
        new_transactions: Callable[[Any], object],
    ) -> None:
        self._services = services
        self._sources = sources
        self._new_transactions = new_transactions
        self._values: list[Any] = [None, None]
        self._places: dict[Any, int] = {}
        self._steps: list[tuple[int, Callable[..., Any], Sequence[int]]] = []

    def builder(self, needs: tuple[Any, ...]) -> Callable[[CallScope], list[Any]]:
        """Return the function that builds the needs for a call."""
        wanted = [self._place(need) for need in needs]
        template, steps = self._values, self._steps
        has_stores = any(_TRANSACTION in parts for _, _, parts in steps)

        def build(call: CallScope) -> list[Any]:
            values = template.copy()
            values[_CALL] = call
            if has_stores:
                values[_TRANSACTION] = call.transaction
            for place, make, parts in steps:
                values[place] = make(*map(values.__getitem__, parts))
            return list(map(values.__getitem__, wanted))

        return build

    def _place(self, need: Any) -> int:  # noqa: ANN401 - a type, or a generic alias
        place = self._places.get(need)
        if place is None:
            place = self._places[need] = self._add(need)
        return place

    def _add(self, need: Any) -> int:  # noqa: ANN401 - likewise
        if need in self._services:
            return self._append(self._services[need])
        if need in self._sources:
            return self._append_step(self._sources[need], [_CALL])
        if need in _STORES or _is_store(need):
            return self._append_step(_STORES.get(need, need), [_TRANSACTION])
        if need in _IMPLEMENTATIONS:
            return self._place(_IMPLEMENTATIONS[need])
        if get_origin(need) is Transactions:
            return self._append(self._new_transactions(need))
        if not (isinstance(need, type) and issubclass(need, msgspec.Struct)):
            raise TypeError(f"nothing provides {need!r}")
        # A struct is built from its fields.
        hints = _hints_of(need)
        return self._append_step(need, [self._place(hints[name]) for name in need.__struct_fields__])

    def _append_step(self, make: Callable[..., Any], parts: Sequence[int]) -> int:
        place = self._append(None)
        self._steps.append((place, make, parts))
        return place

    def _append(self, value: object) -> int:
        self._values.append(value)
        return len(self._values) - 1


@cache
def _hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_store(need: Any) -> bool:  # noqa: ANN401 - a type, or a generic alias
    return isinstance(need, type) and issubclass(need, SqlStore)
