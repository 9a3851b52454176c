"""Operation bundle.export: a session, turn, task, tool call, review or handoff as one bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol, TypedDict

import msgspec
from msgspec import UNSET, structs

from weftline.exchange.transfer.bundle_format import (
    FORMAT,
    MAX_PURPOSE,
    SESSION_SCOPES,
    BundleHeader,
    BundleSession,
    StoredInfo,
)
from weftline.exchange.transfer.envelope_ids import EnvelopeRefs
from weftline.exchange.transfer.export_collector import ExportCollector, ExportSources, add_event
from weftline.exchange.transfer.policies import TenantPolicies
from weftline.history.line_kinds import SESSION, name_in
from weftline.history.model import trunk_of
from weftline.history.reviews import ReviewNotFound
from weftline.kernel.clock import Clock, from_micros
from weftline.kernel.correlation import NativeId
from weftline.kernel.errors import ContentTooLarge, Forbidden, InvalidInput, NotFound
from weftline.kernel.fields import Name, new_id
from weftline.kernel.identity import ANYONE, PRINCIPAL, Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.records.model import (
    Block,
    ContextAssembly,
    ContextBudget,
    ContextEnvelope,
    ContextInjection,
    ContextSelection,
)
from weftline.records.record_ids import SurfaceId
from weftline.records.refs import Id, Link, content_digest
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.sessions.events.model import EventQuery
from weftline.sessions.model import SessionId, SessionNotFound, find_session, lock_session
from weftline.sessions.recorder import Recorder, weftline_producer
from weftline.sessions.sql import SessionStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.exchange.transfer.bundle_format import BundleSnapshot, BundleWindow
    from weftline.exchange.transfer.export_collector import ExportedItem, ExportSink
    from weftline.exchange.transfer.policy_filter import AppliedPolicy
    from weftline.history.reviews import Review
    from weftline.kernel.events import StoredEvent
    from weftline.sessions.model import Session

ExportFormat = Literal["ndjson", "json", "prov"]
ExportScope = Literal["session", "turn", "task", "tool_invocation", "review", "handoff"]
# Larger exports must be streamed.
MAX_TEXT_BYTES = 2**20
EXPORTED: Final = "context.exported"
# HTTP header of a streamed export that carries its description.
FACTS_HEADER = "weftline-export"
_MAX_OPEN_GAPS = 1_000
# Upper bounds: size of the export's own events, and overhead of a bundle line.
_MAX_OWN_EVENTS_BYTES = 8_192
_MAX_LINE_OVERHEAD = 200
# Pages of messages and of records that are read for the references of a whole session's envelope.
_FIRST_PAGES = 4
_RATIONALE = "All that the exporting agent may read and the policy allows, as far as every participant may read it."
# The field that a scope requires.
_REQUIRED_FIELD = {
    "turn": "turn_id",
    "task": "task_id",
    "tool_invocation": "tool_call_id",
    "review": "review_id",
    "handoff": "recipient",
}
_encode = msgspec.json.Encoder().encode


class ExportContext(Request):
    """What to export, and in which format."""

    session_id: Annotated[SessionId | None, msgspec.Meta(description="The session; not needed with scope review.")] = (
        None
    )
    scope: Annotated[
        ExportScope,
        msgspec.Meta(description="The whole session, or one part of it."),
    ] = "session"
    turn_id: Annotated[NativeId | None, msgspec.Meta(description="The turn; required with scope turn.")] = None
    task_id: Annotated[
        NativeId | None,
        msgspec.Meta(description="The task; required with scope task. With scope handoff: only this task."),
    ] = None
    tool_call_id: Annotated[
        NativeId | None, msgspec.Meta(description="The tool call; required with scope tool_invocation.")
    ] = None
    review_id: Annotated[Name | None, msgspec.Meta(description="The review; required with scope review.")] = None
    recipient: Annotated[
        Id | None, msgspec.Meta(description="The receiving agent, by its name there; required with scope handoff.")
    ] = None
    policy: Annotated[
        Name | None, msgspec.Meta(description="The export policy. Default: your tenant's default policy.")
    ] = None
    format: Annotated[
        ExportFormat,
        msgspec.Meta(description="ndjson and json can be imported; prov is PROV-JSON for provenance tools."),
    ] = "ndjson"
    history: Annotated[
        bool | None,
        msgspec.Meta(
            description="Include all versions, events and snapshots, not only the current state. Default: true, except "
            "for a handoff."
        ),
    ] = None

    @property
    def with_history(self) -> bool:
        return self.scope != "handoff" if self.history is None else self.history

    def check(self) -> None:
        """Raise InvalidInput if a field that the scope requires is missing."""
        needed = _REQUIRED_FIELD.get(self.scope)
        if needed is not None and getattr(self, needed) is None:
            raise InvalidInput(f"{needed}: required for an export with the scope {self.scope}", field=needed)
        if self.session_id is None and self.scope != "review":
            raise InvalidInput(f"session_id: required for an export with the scope {self.scope}", field="session_id")


class ExportOptions(TypedDict, total=False):
    """The same fields as keyword arguments of streamed exports."""

    session_id: str | None
    scope: ExportScope
    turn_id: str | None
    task_id: str | None
    tool_call_id: str | None
    review_id: str | None
    recipient: str | None
    policy: str | None
    format: ExportFormat
    history: bool | None


class ContextExported(Response, omit_defaults=False):
    """An export. ``digest`` covers all of it; ``masked`` and ``omitted`` count what the policy changed and left out."""

    on_record = ("bundle_id", "policy")

    bundle_id: str
    policy: str
    digest: str = ""
    records: int = 0
    bytes: int = 0
    masked: int = 0
    omitted: int = 0
    bundle: str | None = None


class Exporter(Protocol):
    """Runs exports in their own transactions."""

    async def export_text(self, actor: Actor, request: ExportContext) -> ContextExported:
        """Export into the answer; ContentTooLarge beyond MAX_TEXT_BYTES."""
        ...


@operation(
    "bundle.export",
    heavy=True,
    tool="export_context",
    http="POST /v1/export",
    permission=Permission.READ,
    rate=RateClass.SESSION,
    effect=Effect.OWN_TRANSACTIONS,
    audited=True,
    errors=(SessionNotFound, ReviewNotFound, ContentTooLarge),
)
async def export_context(request: ExportContext, actor: Actor, exporter: Exporter) -> ContextExported:
    """Export a session, turn, task, tool call, review or handoff as one bundle of records.

    It contains what you may read and the export policy allows. The export itself is recorded. Another Weftline imports
    the bundle with ``weftline import``, under the same ids. Up to 1 MiB; stream larger exports with ``weftline
    export``.
    """
    return await exporter.export_text(actor, request)


@dataclass(slots=True)
class PreparedExport:
    """An export in progress: its scope, its policy and its envelope.

    ``made`` records what it selected and its size; ``shown``, readable by ``shown_to``, what a recipient is shown. Both
    are recorded with it. ``last_entries`` are written after the export's own events. ``max_bytes`` limits it.
    """

    request: ExportContext
    header: BundleHeader
    envelope: ContextEnvelope
    session: Session | None
    review: Review | None
    applied: AppliedPolicy
    max_bytes: int | None = None
    made: tuple[ContextSelection, ContextBudget] | tuple[()] = ()
    shown: tuple[ContextAssembly | ContextInjection, ...] = ()
    shown_to: tuple[str, ...] = ANYONE
    last_entries: Sequence[BundleSnapshot | BundleWindow] = ()

    @property
    def bundle_id(self) -> str:
        return self.header.bundle_id

    @property
    def is_handoff(self) -> bool:
        return self.header.scope == "handoff"

    @property
    def is_whole_session(self) -> bool:
        """Tell whether it covers a whole session: then the envelope lists the first ids of each kind."""
        return self.header.scope == "session" or (self.is_handoff and self.request.task_id is None)

    @property
    def includes_own_events(self) -> bool:
        """Tell whether the events that record the export are part of it."""
        return self.is_handoff or (self.header.scope == "session" and self.request.with_history)

    @property
    def remaining_bytes(self) -> int:
        """Return an upper bound of the bytes to write after the export was recorded."""
        return _MAX_OWN_EVENTS_BYTES + sum(len(_encode(entry)) + _MAX_LINE_OVERHEAD for entry in self.last_entries)

    def described(self, sink: ExportSink | None = None, digest: str = "") -> ContextExported:
        described = ContextExported(bundle_id=self.bundle_id, policy=str(self.applied.ref.id), digest=digest)
        if sink is None:
            return described
        counts = {"records": sink.records, "bytes": sink.bytes}
        return structs.replace(described, **counts, masked=self.applied.masked, omitted=self.applied.omitted)


def finish_export(export: PreparedExport, own_events: Sequence[StoredEvent], sink: ExportSink) -> ContextExported:
    """Write the end of a recorded export and return its description."""
    if export.includes_own_events:
        for recorded in own_events:
            add_event(recorded, export.header.source, export.applied, sink)
    for entry in export.last_entries:
        sink.add(entry)
    return export.described(sink, sink.seal())


class ExportService(msgspec.Struct, frozen=True):
    """The stores and services an export needs, bound to its caller."""

    sources: ExportSources
    sessions: SessionStore
    recorder: Recorder
    policies: TenantPolicies
    clock: Clock

    async def begin(self, request: ExportContext, max_bytes: int | None = None) -> PreparedExport:
        """Prepare an export. It is read first and recorded later, so that the write transaction stays short."""
        request.check()
        review = await self._review(request)
        session = await self._session(request, review)
        applied = await self.policies.prepare(request.policy, self.recorder.actor)
        envelope = await self._envelope(request, session, applied)
        header = _header(request, envelope, session, await self.sources.events.source(), applied)
        export = PreparedExport(request, header, envelope, session, review, applied, max_bytes)
        export.envelope = await self._envelope_with_refs(export)
        return export

    async def _envelope_with_refs(self, export: PreparedExport) -> ContextEnvelope:
        """Return the envelope with references to what is in the export, collected in a dry pass."""
        refs = EnvelopeRefs()
        applied = await self.policies.prepare(export.request.policy, self.recorder.actor)
        whole = export.is_whole_session
        collector = ExportCollector(self.sources, applied, refs, export.session, remember=True, names_only=whole)
        if export.session is not None and whole:
            await self._collect_first(collector, refs, export.session.session_id)
        else:
            await self._collect(export, collector)
        return refs.add_to(export.envelope)

    async def _collect_first(self, collector: ExportCollector, refs: EnvelopeRefs, session_id: str) -> None:
        """Collect the first items and records of a session, as many as an envelope can list."""
        await collector.current_board(session_id)
        if not refs.is_full("item_refs"):
            await collector.messages(session_id, pages=_FIRST_PAGES)
        await collector.records(session_id, pages=_FIRST_PAGES)

    async def write(self, export: PreparedExport, sink: ExportSink) -> None:
        """Write the export, except the part that is known only after it was recorded."""
        collector = ExportCollector(self.sources, export.applied, sink, export.session, remember=export.is_handoff)
        sink.add(export.header)
        if export.session is not None and export.header.scope in SESSION_SCOPES:
            sink.add(_entry(export.session, export.applied))
        made = StoredInfo(self.recorder.actor.participant, export.envelope.created_at, export.envelope.created_at)
        sink.add_record(export.envelope, stored=made)
        await collector.surface()
        await self._collect(export, collector)

    async def record(self, export: PreparedExport) -> Sequence[StoredEvent]:
        """Record the export before it is delivered, and return the events of that."""
        session = await self._lock_session(export)
        made = await self.recorder.add_all(export.made, session)
        envelope = await self.recorder.add(export.envelope, session, event_type=EXPORTED)
        shown = await self.recorder.add_all(export.shown, session, readable_by=export.shown_to)
        return await self.sources.events.numbered([row.seq for row in (*made, envelope, *shown)])

    async def _lock_session(self, export: PreparedExport) -> Session | None:
        """Lock the session; SessionNotFound if it was deleted since it was read."""
        if export.session is None:
            return None
        session_id = export.session.session_id
        session, _ = await lock_session(session_id, self.recorder.actor, self.sessions)
        if session.created_at != export.session.created_at:
            raise SessionNotFound(
                f"The session '{session_id}' was deleted.", resource_type="session", resource_id=session_id
            )
        return session

    async def _collect(self, export: PreparedExport, collector: ExportCollector) -> None:
        request, session = export.request, export.session
        if export.review is not None:
            await collector.review(export.review)
            await collector.events(EventQuery(session_id=_id(session), subject=export.review.review_id))
        elif session is not None and request.scope == "handoff":
            await self._collect_handoff(export, collector, session)
        elif session is not None and request.scope == "session":
            await self._collect_session(export, collector, session)
        else:
            query = _event_query(request)
            await collector.about(await collector.subjects(query))
            await collector.events(query)

    async def _collect_session(self, export: PreparedExport, collector: ExportCollector, session: Session) -> None:
        with_history = export.request.with_history
        await (collector.board(session.session_id) if with_history else collector.current_board(session.session_id))
        await collector.messages(session.session_id)
        windows = await collector.windows(session.session_id, history=with_history)
        if not with_history:
            await collector.sources_of_compactions(session.session_id)
        await collector.records(session.session_id)
        self._record_selection(export, collector, session)
        if with_history:
            await collector.events(EventQuery(session_id=session.session_id))
            export.last_entries = (*await collector.snapshots(session.session_id), *windows)
        else:
            export.last_entries = windows

    async def _collect_handoff(self, export: PreparedExport, collector: ExportCollector, session: Session) -> None:
        """Write what the recipient needs to continue, and the assembly and injection that record it."""
        session_id, request = session.session_id, export.request
        if request.task_id is None:
            await (collector.board(session_id) if request.with_history else collector.current_board(session_id))
            await collector.messages(session_id)
            self._record_selection(export, collector, session)
            self._record_shown(export, collector)
            await collector.sources_of_compactions(session_id)
            await collector.records(session_id)
        else:
            await self._collect_task_handoff(export, collector, session)
        if request.with_history:
            await collector.events(_event_query(request))
            if request.task_id is None:
                export.last_entries = await collector.snapshots(session_id)

    async def _collect_task_handoff(self, export: PreparedExport, collector: ExportCollector, session: Session) -> None:
        subjects = await collector.subjects(_event_query(export.request))
        await collector.current_board(session.session_id, subjects.keys)
        await collector.named_messages(list(subjects.messages.values()))
        self._record_selection(export, collector, session)
        self._record_shown(export, collector)
        for gap in await self.sources.records.open_missing(session.session_id, _MAX_OPEN_GAPS):
            subjects.stored.setdefault((gap.type, gap.record_id))
        await collector.add_stored(await collector.stored_rows(subjects))

    def _record_selection(self, export: PreparedExport, collector: ExportCollector, session: Session) -> None:
        """Write what the export selected and how large it is, as far as every participant may read it."""
        selection_id, budget_id = _made_ids(export.bundle_id)
        tally, now, limit = collector.tally, self.clock.now(), export.max_bytes
        selection = ContextSelection(
            schema_version=SCHEMA_VERSION,
            selection_id=selection_id,
            surface_id=str(SurfaceId(session.session_id)),
            intent=export.request.scope,
            selected_item_refs=tuple(tally.first_ids),
            selection_policy=str(export.applied.ref.id),
            budget_ref=budget_id,
            rationale=_RATIONALE,
            actor_ref=export.envelope.actor_refs[0],
            created_at=now,
            policy_refs=(export.applied.ref,),
            metadata={"selected": tally.items, "omitted_by_policy": tally.omitted},
        )
        budget = ContextBudget(
            schema_version=SCHEMA_VERSION,
            budget_id=budget_id,
            target=export.request.recipient or export.bundle_id,
            max_bytes=UNSET if limit is None else limit,
            overflow_strategy=UNSET if limit is None else "reject",
            actual_items=tally.items,
            actual_tokens=tally.tokens,
            actual_bytes=tally.bytes,
            created_at=now,
        )
        export.made = (selection, budget)
        for record in export.made:
            collector.add_made(record, ANYONE, now)

    def _record_shown(self, export: PreparedExport, collector: ExportCollector) -> None:
        """Write the assembly and the injection that record what the recipient is shown."""
        assembly_id, injection_id = _shown_ids(export.bundle_id)
        target, now = export.request.recipient or "", self.clock.now()
        assembly = ContextAssembly(
            schema_version=SCHEMA_VERSION,
            assembly_id=assembly_id,
            target=target,
            ordered_blocks=tuple(_blocks(collector.exported)),
            created_at=now,
            policy_refs=(export.applied.ref,),
        )
        injection = ContextInjection(
            schema_version=SCHEMA_VERSION,
            injection_id=injection_id,
            assembly_id=assembly_id,
            target=target,
            injection_point="peer_agent_message",
            final_ref=Link(kind="bundle", id=export.bundle_id),
            hash=content_digest(_encode(assembly)),
            created_at=now,
        )
        # It contains ids of keys and messages, which may be restricted.
        for_all = all(item.is_public for item in collector.exported)
        export.shown = (assembly, injection)
        export.shown_to = ANYONE if for_all else (f"{PRINCIPAL}{self.recorder.actor.principal_id}",)
        for record in export.shown:
            collector.add_made(record, export.shown_to, now)

    async def _review(self, request: ExportContext) -> Review | None:
        if request.review_id is None or request.scope != "review":
            return None
        history = self.sources.history
        review = await history.reviews.find(request.review_id)
        missing = ReviewNotFound(f"There is no review '{request.review_id}'.", resource_id=request.review_id)
        if review is None or request.session_id not in {None, _session_of(review)}:
            raise missing
        try:
            await history.to_read(trunk_of(review.line_id))
        except (NotFound, Forbidden):
            raise missing from None
        return review

    async def _session(self, request: ExportContext, review: Review | None) -> Session | None:
        session_id = request.session_id if review is None else _session_of(review)
        return None if session_id is None else await find_session(session_id, self.recorder.actor, self.sessions)

    async def _envelope(
        self, request: ExportContext, session: Session | None, applied: AppliedPolicy
    ) -> ContextEnvelope:
        bundle_id = new_id("bundle")
        assembly, injection = _shown_ids(bundle_id)
        selection, budget = _made_ids(bundle_id)
        shows, selects = request.scope == "handoff", request.scope in SESSION_SCOPES
        trace_id = self.recorder.actor.correlation.trace_id
        return ContextEnvelope(
            schema_version=SCHEMA_VERSION,
            context_id=bundle_id,
            scope=request.scope,
            lifecycle="injected" if shows else "available",
            created_at=self.clock.now(),
            producer=weftline_producer(),
            actor_refs=(Link(kind=str(self.recorder.actor.kind), id=self.recorder.actor.participant),),
            runtime_refs=tuple(_runtime_refs(request, session)),
            surface_refs=() if session is None else (f"session:{session.session_id}",),
            selection_refs=(selection,) if selects else (),
            budget_ref=budget if selects else UNSET,
            assembly_refs=(assembly,) if shows else (),
            injection_refs=(injection,) if shows else (),
            missing_context_refs=await self._open_gaps(session),
            policy_refs=(applied.ref,),
            telemetry_refs=() if trace_id is None else (Link(kind="trace", id=trace_id),),
        )

    async def _open_gaps(self, session: Session | None) -> tuple[str, ...]:
        """Return the ids of open gaps that all participants may read."""
        if session is None:
            return ()
        gaps = await self.sources.records.open_missing(session.session_id, _MAX_OPEN_GAPS)
        return tuple(gap.record_id for gap in gaps if gap.readable_by == ANYONE)


def _header(
    request: ExportContext, envelope: ContextEnvelope, session: Session | None, source: str, applied: AppliedPolicy
) -> BundleHeader:
    return BundleHeader(
        format=FORMAT,
        version=1,
        bundle_id=envelope.context_id,
        scope=request.scope,
        schema_version=SCHEMA_VERSION,
        created_at=envelope.created_at,
        producer=weftline_producer(),
        source=source,
        session_id=_id(session) or UNSET,
        **{name: getattr(request, name) or UNSET for name in _REQUIRED_FIELD.values()},
        policy=applied.ref,
        history=request.with_history,
    )


def _entry(session: Session, applied: AppliedPolicy) -> BundleSession:
    return BundleSession(
        session_id=session.session_id,
        purpose=applied.mask_value(session.purpose)[:MAX_PURPOSE],
        metadata=applied.mask_value(session.metadata),
        config=session.config,
        created_by=session.created_by,
        created_at=from_micros(session.created_at),
        updated_at=from_micros(session.updated_at),
        archived_at=UNSET if session.archived_at is None else from_micros(session.archived_at),
        members=session.members,
    )


def _event_query(request: ExportContext) -> EventQuery:
    """Return the events that an export covers."""
    by_scope = {"turn": "turn_id", "tool_invocation": "tool_call_id"}.get(request.scope, "task_id")
    return EventQuery(session_id=request.session_id, **{by_scope: getattr(request, by_scope)})


def _blocks(items: Sequence[ExportedItem]) -> Iterator[Block]:
    """Yield the blocks that a recipient is shown: one for each key, then one for all messages."""
    for item in items:
        if item.kind != "message":
            yield Block(kind=item.kind, item_refs=(item.item_id,), token_estimate=item.tokens)
    messages = tuple(item.item_id for item in items if item.kind == "message")
    if messages:
        yield Block(kind="messages", item_refs=messages)


def _runtime_refs(request: ExportContext, session: Session | None) -> Iterator[Link]:
    named = {
        "session": _id(session),
        "turn": request.turn_id,
        "task": request.task_id,
        "tool_call": request.tool_call_id,
        "review": request.review_id,
    }
    return (Link(kind=kind, id=identity) for kind, identity in named.items() if identity is not None)


def _made_ids(bundle_id: str) -> tuple[str, str]:
    return f"{bundle_id}/selection", f"{bundle_id}/budget"


def _shown_ids(bundle_id: str) -> tuple[str, str]:
    return f"{bundle_id}/assembly", f"{bundle_id}/injection"


def _session_of(review: Review) -> str | None:
    return name_in(review.line_id, SESSION)


def _id(session: Session | None) -> str | None:
    return None if session is None else session.session_id
