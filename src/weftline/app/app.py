"""Composition root: wires storage, providers, jobs and rooms into one application."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from weftline.access.agent_tree import AgentLimit
from weftline.access.operations import TokenLifetimes
from weftline.access.plans import DefaultPlan
from weftline.access.steps import UnknownToolProfile, check_in_step
from weftline.app.approved_calls import ApprovedCalls
from weftline.app.authentication import Authenticator, SessionAclCache
from weftline.app.background_jobs import background_jobs
from weftline.app.caches import BackgroundTasks, BufferedReadCounts, Cache, CacheRegistry
from weftline.app.call_meter import CallMeter, CallPrices, MeteredChatModel
from weftline.app.dispatch import CallContext, Dispatcher, Incoming, RegisteredOperations, authorise
from weftline.app.event_feed import LiveFeed
from weftline.app.gateway import McpGateway
from weftline.app.guardrails import BufferedHits, CurrentGuardrails, SharedCallRates
from weftline.app.held_calls import HeldCalls
from weftline.app.json_bodies import JsonBodies
from weftline.app.metrics import Metrics
from weftline.app.metrics_snapshot import MetricsSnapshot, ProcessFigures
from weftline.app.objects import Objects
from weftline.app.proxied_calls import ProxiedCalls
from weftline.app.proxied_conversations import ProxiedConversations
from weftline.app.proxied_edits import ProxiedEdits
from weftline.app.proxied_results import ProxiedResults
from weftline.app.proxied_usage import ProxiedUsage
from weftline.app.rate_limits import RateLimits
from weftline.app.refusals import Auditor, Refusals
from weftline.app.registry import all_operations
from weftline.app.search.embedding_cache import CachedEmbeddings
from weftline.app.search.service import BoundedIndexWait, LowRelevanceReporter, SearchIndexes, rank
from weftline.app.security_events import AgentTermination, ViolationHandler
from weftline.app.tenants import Tenants, default_plan
from weftline.app.tools.catalogue import IndexedTools
from weftline.app.tools.toolbox import WEFTLINE_TOOLS, WEFTLINE_TOOLS_CALL, Toolbox
from weftline.app.transfer import Transfers, Uploads
from weftline.app.wiring import Container, Singletons
from weftline.indexing.pins import PinLimits
from weftline.jobs.compaction import CompactionJob
from weftline.jobs.figures import AlertJob, UsageRollup
from weftline.jobs.history_pruning import HistoryPruner
from weftline.jobs.ingestion import INGEST, DomainReindexing, EvaluationJob, Ingestion
from weftline.jobs.model_migration import ModelMigrations
from weftline.jobs.retention import (
    EXPIRE,
    EXPIRE_EVERY_SECONDS,
    DeferredDeletion,
    DocumentRetention,
    Expiry,
    LogDays,
    LogRetention,
    ReceiptPruning,
)
from weftline.jobs.runner import LeaseRunner
from weftline.jobs.scheduler import Scheduler
from weftline.jobs.session_indexing import INDEX, SessionIndexing
from weftline.jobs.source_sync import SYNC, SourceSyncJob
from weftline.jobs.vectors import EMBED, SessionVectors, VectorBackfill
from weftline.jobs.webhook_delivery import WebhookDelivery
from weftline.jobs.windows import MessageReading, WindowAutosave
from weftline.kernel.clock import SystemClock
from weftline.kernel.errors import RateLimited, UnknownOperation, WeftlineError
from weftline.kernel.fair_queue import FairSlots
from weftline.kernel.guards import GuardedCall, Guards
from weftline.kernel.operation import RateClass
from weftline.kernel.packed_text import LoopTurns
from weftline.knowledge.document_operations import DocumentWrites
from weftline.knowledge.sources import HookRefused
from weftline.models.language_models.catalog import load_catalog
from weftline.models.language_models.token_counts import CountCache
from weftline.prompts.assembly.plan import DoubtLimit
from weftline.prompts.gateway.model import MAX_CACHE_SECONDS
from weftline.providers.chat_models.factory import configured_chat_model
from weftline.providers.document_reader import IsolatedDocumentReader
from weftline.providers.embedders.factory import configured_embedders, semantic_search_off
from weftline.providers.html_xml import IsolatedMarkupReader
from weftline.providers.injection.factory import configured_detector
from weftline.providers.jwt import JwtCodec
from weftline.providers.local_folders import AllowedFolders
from weftline.providers.object_storage import connect_objects
from weftline.providers.prices import PriceTable
from weftline.providers.tokenizers import TokenizerRegistry
from weftline.safety.guardrails.guard import GuardrailGuard
from weftline.safety.guardrails.model import KnownActions
from weftline.safety.guardrails.service import Guardrails
from weftline.safety.trust.scanner import ContentScanner
from weftline.search.persistent_memory import SearchStores
from weftline.search.pulled_memory import PulledTexts
from weftline.search.retriever import Retriever
from weftline.sessions.events.model import SESSION_END_EVENTS, EventPage
from weftline.sessions.events.operations import Events, ReadEvents
from weftline.sessions.events.sql import EventStore
from weftline.sessions.messages.search import Searcher
from weftline.sessions.messages.transcript import Transcripts
from weftline.settings import InvalidSetting, Settings
from weftline.state.agent_context.model import ContextLimits
from weftline.state.layers.rules import RuleLoader, TenantRules
from weftline.state.memory.model import MemoryLimits
from weftline.storage.migrations.runner import migrate
from weftline.storage.sql.database import AccessChanged, Scope, connect
from weftline.storage.sql.signature_check import removed_lines
from weftline.storage.sql.unit_of_work import CallerTransactions
from weftline.windows.compaction.compactor import Compactor
from weftline.windows.compaction.runs import Summarisers
from weftline.windows.compaction.trigger import CompactionJobs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from weftline.app.event_feed import Subscriber
    from weftline.app.tools.toolbox import ToolView
    from weftline.indexing.embeddings import Embedder
    from weftline.insight.metrics import JobFigures
    from weftline.kernel.clock import Clock
    from weftline.kernel.events import Event, StoredEvent
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation, Registry, Response
    from weftline.knowledge.source_sync import HookResponse
    from weftline.models.language_models.chat_model import ChatModel
    from weftline.safety.trust.model import TrustPolicy
    from weftline.sessions.events.model import EventFilter

# For jobs to reach their next step; all of them resume after a crash.
_STOP_SECONDS = 1.0
_HEARTBEAT_SECONDS = 15.0
_MEBIBYTE = 2**20
# Assemblies in progress, each of which reads much and holds hundreds of passages; further ones wait.
_MAX_ASSEMBLIES = 8
_MAX_ASSEMBLY_WAIT_SECONDS = 60.0

# As a library, Weftline logs nowhere unless the application configures logging.
_log = logging.getLogger("weftline.layers")
logging.getLogger("weftline").addHandler(logging.NullHandler())


class App:
    """A running Weftline. Interfaces use ``call``, ``follow``, ``transfers``, ``uploads`` and ``receive_hook``."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        embedders: Sequence[Embedder] | None = None,
        chat_model: ChatModel | None = None,
    ) -> None:
        self.settings = settings
        self._embedders = configured_embedders(settings) if embedders is None else embedders
        self.clock = clock or SystemClock()
        self.registry = all_operations()
        self.toolbox = _toolbox(self.registry, settings)
        self._catalog = load_catalog(settings.models_file)
        self.metrics = Metrics(self.clock, self._catalog.label)
        self._prices = PriceTable()
        self.call_prices = CallPrices(self._catalog, self._prices)
        self.chat_model = configured_chat_model(settings, self.metrics) if chat_model is None else chat_model
        self.caches = CacheRegistry()
        self.database = connect(settings.storage_url, settings.database_direct_url)
        self.call_meter = CallMeter(self.database, self.clock)
        self.metrics_snapshot = MetricsSnapshot(self.database, self.metrics, self.caches, self.clock, self._job_figures)
        self.tenants = Tenants(self.database, self.clock, settings.signing_secret.encode())
        self.ready = self._writes_history = False
        self.json_bodies = JsonBodies()
        self._read_counts = BufferedReadCounts()
        self._comparisons = BackgroundTasks()
        self.turns = LoopTurns()
        self.feed = LiveFeed(self.database, turns=self.turns)
        self.metrics.add_source(ProcessFigures(self.database, self.caches, self.feed.subscribers))
        self.objects = Objects(self.database, connect_objects(settings), self.clock)
        self._container = Container(self.database, self.clock, settings.signing_secret.encode())
        self.proxied_usage = ProxiedUsage(self.call_meter, self.database, self._container)
        self.proxied_conversations = ProxiedConversations(self, self._container)
        self.proxied_edits = ProxiedEdits(
            self,
            self._container,
            self._cache("proxied_edits", 1, megabytes=32, seconds=3600),
            self._cache("proxy_settings", 1, megabytes=1, seconds=3600),
        )
        self._search_stores = CallerTransactions(self.database, self._container, SearchStores)
        self._know_callers(settings)
        self._scan_content(settings)
        results = ProxiedResults(self.database, self._container, self._scanner)
        self.proxied_calls = ProxiedCalls(self, self._container, results)
        self._guard_calls()
        self._dispatch_calls(settings)
        self._create_jobs(settings)
        self._create_indexing(settings)
        self._create_search(settings)
        self._add_jobs()
        self._container.provide(self._singletons())

    def _know_callers(self, settings: Settings) -> None:
        """Create what identifies, limits and audits callers."""
        self._rates = RateLimits(settings.rates(), settings.valkey_url, file=settings.counter_file)
        self._refusals = Refusals(self.database, self.clock)
        self._codec = JwtCodec()
        self._callers = Authenticator(self.database, self._codec, self.clock)
        self.termination = AgentTermination(self.database, self.clock, self._callers.forget_tenant)
        response = ViolationHandler(self.termination, self._trust_policy)
        self._auditor = Auditor(self.database, self.clock, self._refusals, response)

    def _scan_content(self, settings: Settings) -> None:
        """Create the scanner of everything that callers store."""
        verdicts = self._cache("content_verdicts", 1, megabytes=16, seconds=3600)
        self._detector = configured_detector(settings)
        self._scanner = ContentScanner(self._detector, verdicts)

    def _dispatch_calls(self, settings: Settings) -> None:
        """Create the path of every call, of held calls, and of content that streams."""
        self.held_calls = HeldCalls(
            self.database, self._container, self.clock, self.feed, settings.approval_wait_seconds
        )
        self._dispatcher = Dispatcher(
            database=self.database,
            callers=self._callers,
            rates=self._rates,
            auditor=self._auditor,
            refusals=self._refusals,
            metrics=self.metrics,
            container=self._container,
            guards=self.guards,
            scanner=self._scanner,
            held_calls=self.held_calls,
        )
        self.approved_calls = self.held_calls.performer = ApprovedCalls(
            self.database, self._container, self.clock, self.registry, self._dispatcher, self._callers
        )
        self.transfers = Transfers(
            self.database,
            self._container,
            self._dispatcher,
            self.guards,
            self._scanner,
            self.clock,
            settings.import_limit_mb,
        )
        self.uploads = Uploads(
            self._dispatcher, self.guards, CallerTransactions(self.database, self._container, DocumentWrites)
        )

    def _job_figures(self, tenant: str | None) -> list[JobFigures]:
        """Return the background jobs with work for a tenant, or for any; the scheduler is created later."""
        return self.scheduler.figures(tenant)

    def _create_jobs(self, settings: Settings) -> None:
        """Create the scheduler and the jobs that need no search index."""
        self.scheduler = Scheduler()
        self.lease_runner = LeaseRunner(self.database, self.clock, self.scheduler.stopping)
        self.pruner = HistoryPruner(self.lease_runner, self._container)
        self.expiry = Expiry(self.database, self.clock, self._container)
        self.usage_rollup = UsageRollup(self.database, self.clock, self._container, self.metrics.count_usage)
        self.receipt_pruning = ReceiptPruning(self.database, self.clock, settings.receipt_days)
        self.log_retention = LogRetention(
            self.lease_runner,
            LogDays(settings.event_days, settings.audit_days),
            indexing=settings.indexes_sessions,
        )
        self.alerts = AlertJob(self.lease_runner, self._container)
        self.autosave = WindowAutosave(self.database, self.clock, self._container)
        self.compaction = CompactionJob(
            self.lease_runner,
            self._container,
            Compactor(),
            Summarisers(self._metered_chat_model(), self._catalog, self._detector),
            self.scheduler,
        )
        self.message_reading = MessageReading(self.database, self._container, self.scheduler)
        self.webhooks = WebhookDelivery(
            self.database, self.clock, self._container, settings.webhook_private_hosts.split(), self.metrics
        )

    def _metered_chat_model(self) -> ChatModel | None:
        if self.chat_model is None:
            return None
        return MeteredChatModel(self.chat_model, self.call_meter, self.call_prices, self._catalog, self.clock)

    def _guard_calls(self) -> None:
        """Enforce the guardrails of every caller's layers."""
        self.guards = Guards(self._auditor.denied)
        self.tenant_rules = TenantRules()
        self._guardrail_hits = BufferedHits(self.clock)
        self.caller_guardrails = CurrentGuardrails(self.tenant_rules, self.database, self._container)
        self.guardrails = Guardrails(
            rules=self.caller_guardrails,
            rates=SharedCallRates(self._rates),
            hits=self._guardrail_hits,
            scanner=self._scanner,
            end_session=self.termination.end_session,
            clock=self.clock,
        )
        self.known_actions = KnownActions(self.registry)
        self.guardrail_guard = GuardrailGuard(self.caller_guardrails, self.guardrails, self.known_actions)
        self.guards.install(self.guardrail_guard)

    def _create_indexing(self, settings: Settings) -> None:
        """Create embeddings, and the jobs that read documents and keep indexes up to date."""
        self.embeddings = CachedEmbeddings(
            self.database,
            self._embedders,
            self.clock,
            self.metrics,
            self._cache("query_vectors", 1, megabytes=8, seconds=3600),
            settings.embedding_cache_entries,
            off_reason=semantic_search_off(settings),
        )
        runner, container = self.lease_runner, self._container
        self.deferred_deletion = DeferredDeletion(runner)
        self.session_indexing = SessionIndexing(
            runner,
            container,
            self.embeddings,
            self.metrics,
            self.objects,
            settings.reindex_rate,
            on_unembedded=lambda: self.scheduler.wake(EMBED),
        )
        self.session_vectors = SessionVectors(runner, self.embeddings, self.metrics)
        self._documents = IsolatedDocumentReader()
        self._markup = IsolatedMarkupReader()
        self.ingestion = Ingestion(
            self.database, container, self.embeddings, self._documents, self._scanner, self.metrics
        )
        self.reindexing = DomainReindexing(
            runner, container, settings.reindex_rate, on_queued=lambda: self.scheduler.wake(INGEST)
        )
        self.document_retention = DocumentRetention(runner, container)
        self.source_sync = SourceSyncJob(
            runner,
            container,
            self.guards,
            AllowedFolders(settings.readable_folders),
            settings.fetch_private_hosts.split(),
        )
        self.vector_backfill = VectorBackfill(runner, self.embeddings)

    def _create_search(self, settings: Settings) -> None:
        """Create the indexes, and what searches them."""
        self.collections = SearchIndexes(self.database, settings.index_folder, self.clock, self.metrics)
        self.model_migrations = ModelMigrations(
            self.lease_runner, self._container, self.embeddings, self.collections, self._comparisons.run
        )
        self.gateway = McpGateway(
            self.database,
            self._container,
            self.registry,
            self.toolbox,
            self._scanner,
            settings,
            self.clock,
            self._cache("gateway_answers", 1, megabytes=16, seconds=MAX_CACHE_SECONDS),
        )
        self.tool_catalogue = IndexedTools(
            self.toolbox,
            self.gateway,
            self.database,
            self.embeddings,
            self.collections,
            self.clock,
            on_registered=lambda: self.scheduler.wake(EMBED),
        )
        index_wait_ms = settings.search_wait_ms if settings.indexes_sessions else 0
        self.index_wait = BoundedIndexWait(
            self.database, self.session_indexing, self.session_vectors, self.scheduler, index_wait_ms
        )
        self.retriever = Retriever(
            self._search_stores,
            self.collections,
            self.embeddings,
            rank,
            self.clock,
            self.model_migrations,
            LowRelevanceReporter(self._search_stores, self.clock, self.metrics),
            self.index_wait,
            PulledTexts(self._cache("pulled_memory", 1, megabytes=32, seconds=3600), self.objects, self.embeddings),
        )
        self.domain_evaluation = EvaluationJob(self.lease_runner, self.retriever, self._container)

    def _add_jobs(self) -> None:
        """Register the jobs and what wakes them before their interval has passed."""
        self.scheduler.add(*background_jobs(self))
        if not self.settings.indexes_sessions:
            self.scheduler.paused |= {INDEX, EMBED}
        self.feed.listeners.append(self.scheduler.notify)
        self.feed.on_first_subscriber = lambda: self.scheduler.wake(EXPIRE)
        self.source_sync.wake = lambda: self.scheduler.wake(SYNC)

    async def open(self, *, background: bool = True) -> None:
        """Open the database, bring its schema up to date and start the background jobs.

        A one-shot command passes ``background=False``: jobs are left to the processes that stay.
        """
        await self.database.open()
        await migrate(self.database, self.clock)
        if background:
            self.feed.start()
            self.scheduler.start()
            self._writes_history = True
            self._comparisons.run("check of what is signed", self._report_removed_lines())
        self.ready = True

    async def _report_removed_lines(self) -> None:
        """Log the layers and definitions that somebody removed from the database while no server ran."""
        removed = await removed_lines(self.database, self.settings.signing_secret.encode())
        if removed:
            _log.error(
                "%d layers or definitions were removed from the database; prompts with them are refused. "
                "Run weftline doctor. The first: %s of tenant %s",
                len(removed),
                removed[0].line_id,
                removed[0].tenant,
            )

    async def close(self) -> None:
        """Stop the jobs, write buffered counts and close the database."""
        self.ready = False
        await self._comparisons.close()
        await self.held_calls.decisions.close()
        await self.feed.close()
        await self.scheduler.stop(_STOP_SECONDS)
        await self.ingestion.close()
        await self.webhooks.close()
        await self.collections.close()
        await self.tool_catalogue.close()
        await self.gateway.close()
        await self.embeddings.close()
        if self.chat_model is not None:
            await self.chat_model.close()
        self._documents.close()
        self._markup.close()
        with contextlib.suppress(WeftlineError):
            await self.flush_read_counts()
            await self.flush_refusals()
            await self.flush_guardrail_hits()
            if self._writes_history:
                await self.metrics_snapshot.write_history()
        await self._rates.close()
        await self.database.close()

    async def call(
        self, operation: Operation, raw: Mapping[str, Any] | Incoming, context: CallContext, *, strict: bool = True
    ) -> Response:
        """Perform an operation for the caller that the credential proves."""
        response: Response = await self._dispatcher.call(operation, raw, context, strict=strict)
        return response

    async def resolve_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> tuple[Operation, Mapping[str, Any]]:
        """Return the operation of a tool call and its request.

        That of a tool of a server behind the gateway is `gateway.call`. Raises RuntimeTool for a tool that the caller's
        runtime registered. Who may not use weftline_tools cannot call
        others through it either.
        """
        try:
            operation, raw = self.toolbox.resolve(name, arguments)
        except UnknownOperation:
            actor = await self.identify(context)
            forwarded = await self.gateway.forwarded(actor, name, arguments)
            if forwarded is None:
                await self.tool_catalogue.check_not_registered(actor, name, arguments)
                raise
            if name == WEFTLINE_TOOLS:
                check_in_step(actor, WEFTLINE_TOOLS, WEFTLINE_TOOLS_CALL)
            called, given = forwarded
            return self.registry["gateway.call"], {"name": called, "arguments": given}
        if name == WEFTLINE_TOOLS and operation.tool != WEFTLINE_TOOLS:
            check_in_step(await self.identify(context), WEFTLINE_TOOLS, WEFTLINE_TOOLS_CALL)
        return operation, raw

    async def listed_tools(self, actor: Actor, profile: str | None, *, in_session: bool) -> list[ToolView]:
        """Return the tools to list for a caller: Weftline's own, then those of servers behind the gateway."""
        own = self.toolbox.listed(actor, profile, in_session=in_session)
        return [*own, *await self.gateway.listed(actor, profile)]

    async def identify(self, context: CallContext) -> Actor:
        """Return the caller, for interfaces that need it before there is an operation."""
        return await self._dispatcher.identify(context, fresh=True)

    async def admit(self, context: CallContext) -> Actor:
        """Return the caller of a message that says in its body what it asks for; raises RateLimited."""
        return await self._dispatcher.admit(context)

    async def admit_wrong_host(self, context: CallContext) -> None:
        """Limit requests for other hosts by address; raises RateLimited."""
        await self._dispatcher.admit_wrong_host(context)

    async def admit_without_credential(self, context: CallContext) -> None:
        """Limit messages without a credential by address; raises RateLimited."""
        await self._dispatcher.admit_without_credential(context)

    async def subscription(self, context: CallContext) -> AbstractContextManager[Subscriber]:
        """Return a subscription of the caller, to be counted while it is open; opening raises TooManySubscriptions."""
        return self.feed.subscribers.subscribed(await self.identify(context))

    async def note_refused_metrics(self, context: CallContext, error: WeftlineError) -> None:
        """Audit a refused token for metrics; raises RateLimited after too many from one address."""
        await self._dispatcher.note_refusal(None, context, "metrics.read", error)

    async def follow(
        self, context: CallContext, interest: EventFilter, after: int | None, subscriber: Subscriber | None = None
    ) -> AsyncGenerator[EventPage, None]:
        """Yield pages of events; an empty one as a heartbeat. Without a ``subscriber`` it is a subscription itself.

        The caller is identified and authorised before each page, so a revoked credential ends the stream.
        """
        with contextlib.ExitStack() as stack:
            if subscriber is None:
                subscriber = stack.enter_context(await self.subscription(context))
            resuming = False
            while True:
                actor = await self.identify(context)
                try:
                    page = await self._next_page(actor, interest, after, subscriber, resuming=resuming)
                except AccessChanged:
                    self._dispatcher.forget(context)
                    resuming = False
                    continue
                after = page.reached
                # Access to the session is checked again after a pause, and after an event that may have ended it.
                resuming = bool(page.recorded) and not any(event.type in SESSION_END_EVENTS for event in page.events)
                yield page

    async def position(self, context: CallContext) -> int:
        """Return the seq of the tenant's latest event."""
        actor = await self.identify(context)
        scope = Scope(actor.tenant, principal=actor.path)
        return await self.database.read(scope, lambda transaction: EventStore(transaction).last_seq())

    async def event_source(self, context: CallContext) -> str:
        """Return the CloudEvents source of the caller's tenant."""
        return await self.feed.source((await self.identify(context)).tenant)

    async def receive_hook(
        self,
        hook: tuple[str, str, str],
        headers: Mapping[str, str],
        read: Callable[[], Awaitable[bytes]],
        context: CallContext,
    ) -> HookResponse:
        """Handle a call to the hook of a knowledge source; guesses are limited by address.

        Its body is read once its URL has proved to be that of a source.
        """
        try:
            source = await self.source_sync.hook(*hook)
            await self._rates.check(RateClass.KNOWLEDGE, hook[0], source.source_id)
            body = await read()
            await self.json_bodies.pace(body, (hook[0], source.source_id))
            return await self.source_sync.call(hook[0], source, headers, body)
        except RateLimited as error:
            await self._dispatcher.note_rate_limit(hook[0], context, error)
            raise
        except HookRefused as error:
            await self._dispatcher.note_refusal(hook[0], context, "knowledge.hook", error)
            raise

    async def flush_read_counts(self) -> None:
        await self._read_counts.flush(self.database)

    async def flush_guardrail_hits(self) -> None:
        await self._guardrail_hits.flush(self.database)

    async def flush_refusals(self) -> None:
        await self._refusals.flush()

    def _singletons(self) -> Singletons:
        settings = self.settings
        return Singletons(
            clock=self.clock,
            codec=self._codec,
            lifetimes=TokenLifetimes(
                token=timedelta(minutes=settings.token_minutes), proof=timedelta(hours=settings.token_max_age_hours)
            ),
            counters=TokenizerRegistry(),
            catalog=self._catalog,
            prices=self._prices,
            injection_detector=self._detector,
            token_counts=CountCache(),
            read_counts=self._read_counts,
            feed=self.feed,
            metrics_source=self.metrics_snapshot,
            selection_metrics=self.metrics,
            agent_limit=AgentLimit(settings.agent_limit),
            pin_limits=PinLimits(settings.pinned_tokens),
            memory_limits=MemoryLimits(settings.memory_limit_mb, cleanup_interval_seconds=EXPIRE_EVERY_SECONDS),
            default_plan=DefaultPlan(default_plan(settings)),
            context_limits=ContextLimits(settings.context_limit_mb),
            staging=self.objects,
            exporter=self.transfers,
            importer=self.transfers,
            webhook_sender=self.webhooks,
            source_control=self.source_sync,
            embeddings=self.embeddings,
            retriever=self.retriever,
            known_sessions=SessionAclCache(),
            window_events=self._cache("window_events", 1, megabytes=64, seconds=3600),
            compaction_settings=self._cache("compaction_settings", 1, megabytes=1, seconds=3600),
            alert_settings=self._cache("alert_settings", 1, megabytes=1, seconds=3600),
            compaction_jobs=CompactionJobs(self.compaction.wake, self.message_reading.note, self.compaction.run),
            prepared_events=self._cache("prepared_events", 1, megabytes=64, seconds=3600),
            compacted_views=self._cache("compacted_views", 1, megabytes=64, seconds=3600),
            key_facts=self._cache("key_facts", 1, megabytes=16, seconds=3600),
            assembly_slots=FairSlots(_MAX_ASSEMBLIES, max_wait_seconds=_MAX_ASSEMBLY_WAIT_SECONDS),
            doubt_limit=DoubtLimit(settings.doubt_percent),
            content_scanner=self._scanner,
            document_reader=self._documents,
            call_performer=self.approved_calls,
            prompts=self._cache("prompts", 1, megabytes=64, seconds=3600),
            markup=self._markup,
            pruner=self.pruner,
            tool_catalogue=self.tool_catalogue,
            gateway=self.gateway.access,
            allowed_operations=RegisteredOperations(self.registry, settings.rates(), self.database),
            pages=self._cache("message_pages", 1, megabytes=16, seconds=300),
            tenant_rules=self.tenant_rules,
            known_actions=self.known_actions,
            caller_guardrails=self.caller_guardrails,
            guardrails=self.guardrails,
            implied_calls=self.guardrail_guard,
            layer_texts=self._cache("layer_texts", 1, megabytes=16, seconds=3600),
            searcher=Searcher(
                reads=CallerTransactions(self.database, self._container, Transcripts),
                indexes=self._cache("search_indexes", 2, megabytes=128, seconds=3600),
                answers=self._cache("search_answers", 1, megabytes=16, seconds=600),
            ),
        )

    def _cache(self, name: str, level: Literal[1, 2], *, megabytes: int, seconds: int) -> Cache[Any]:
        return self.caches.register(Cache(name, level, megabytes * _MEBIBYTE, seconds, self.clock))

    async def _trust_policy(self, actor: Actor) -> TrustPolicy:
        """Return the trust policy of a caller's tenant, whatever changed since the caller was identified."""
        return await self.database.read(
            Scope(actor.tenant, principal=actor.path),
            lambda tx: self._container.build(RuleLoader, actor, tx).current(),
        )

    async def _next_page(
        self, actor: Actor, interest: EventFilter, after: int | None, subscriber: Subscriber, *, resuming: bool
    ) -> EventPage:
        request = ReadEvents(
            session_id=interest.session_id,
            keys=interest.keys,
            types=interest.types,
            personal=interest.personal,
            addressed=interest.addressed,
            after=after,
        )
        operation = self.registry["events.read"]
        try:
            authorise(operation, actor)
            call = await self.guards.before(GuardedCall(operation, request, actor, "follow"))
            page = await self.feed.next(
                actor, interest, after, _HEARTBEAT_SECONDS, resuming=resuming, subscriber=subscriber
            )
            return await self._guarded_page(call, page) if self.guards else page
        except WeftlineError as error:
            await self._dispatcher.audit_denial(operation, actor, error, {"session_id": interest.session_id})
            raise

    async def _guarded_page(self, call: GuardedCall, page: EventPage) -> EventPage:
        """Let guards see a page as the answer of events.read; they may drop or change events."""
        answer = await self.guards.after(call, Events(events=page.events, next_after=page.reached))
        shown = {event.seq: event for event in answer.events}
        kept = [recorded for recorded in page.recorded if recorded.event.seq in shown]
        changed = [_with_event(recorded, shown[recorded.event.seq]) for recorded in kept]
        return page._replace(recorded=changed)


def _with_event(recorded: StoredEvent, event: Event) -> StoredEvent:
    return recorded if event is recorded.event else replace(recorded, event=event)


def _toolbox(registry: Registry, settings: Settings) -> Toolbox:
    try:
        return Toolbox(registry, settings.tools)
    except UnknownToolProfile as error:
        raise InvalidSetting(f"WEFTLINE_TOOLS: {error.message}", hint=error.hint) from error
