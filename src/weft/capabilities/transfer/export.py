"""Exporting: everything about a session, a turn, a task, a tool call, a review or a handoff, as one bundle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypedDict

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.events.model import EventQuery
from weft.capabilities.history.line_ids import ReviewNotFound
from weft.capabilities.history.model import trunk_of
from weft.capabilities.record_log.engine_items import digest_of
from weft.capabilities.records.model import Block, ContextAssembly, ContextEnvelope, ContextInjection, Producer
from weft.capabilities.records.recorder import Recorder
from weft.capabilities.records.refs import Id, Link
from weft.capabilities.records.vocabulary import SCHEMA_VERSION
from weft.capabilities.sessions.model import SessionId, SessionNotFound, find_session, lock_session, session_of
from weft.capabilities.sessions.store import SessionStore
from weft.capabilities.transfer.bundle_format import (
    FORMAT,
    MAX_PURPOSE,
    SESSION_SCOPES,
    BundleHeader,
    BundleSession,
    StoredInfo,
)
from weft.capabilities.transfer.envelope_ids import EnvelopeRefs
from weft.capabilities.transfer.export_collector import ExportCollector, ExportSources, add_event
from weft.capabilities.transfer.policies import TenantPolicies
from weft.kernel.clock import Clock, from_micros
from weft.kernel.correlation import NativeId
from weft.kernel.errors import ContentTooLarge, Forbidden, InvalidInput, NotFound
from weft.kernel.fields import Name
from weft.kernel.identity import ANYONE, PRINCIPAL, Actor, Permission
from weft.kernel.ids import new_id
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.capabilities.history.line_ids import Review
    from weft.capabilities.sessions.model import Session
    from weft.capabilities.transfer.bundle_format import BundleSnapshot
    from weft.capabilities.transfer.export_collector import ExportedItem, ExportSink
    from weft.capabilities.transfer.policy_filter import AppliedPolicy
    from weft.kernel.events import StoredEvent

ExportFormat = Literal["ndjson", "json", "prov"]
ExportScope = Literal["session", "turn", "task", "tool_invocation", "review", "handoff"]
# Larger ones are streamed.
MAX_TEXT_BYTES = 2**20
EXPORTED = "context.exported"
# Where a stream says what it is of, before it comes.
FACTS_HEADER = "weft-export"
_MOST_OPEN_GAPS = 1_000
# More than the events of an export take, and than the form of a bundle adds to an entry.
_MOST_TOLD_OF_ITSELF = 8_192
_MOST_FRAMING = 200
# What a scope must be told beside the session.
_NEEDS = {
    "turn": "turn_id",
    "task": "task_id",
    "tool_invocation": "tool_call_id",
    "review": "review_id",
    "handoff": "recipient",
}
_encode = msgspec.json.Encoder().encode


class ExportContext(Request):
    """What to export, for whom and in which form."""

    session_id: Annotated[SessionId | None, msgspec.Meta(description="The session; a review needs none.")] = None
    scope: Annotated[
        ExportScope,
        msgspec.Meta(description="How much: all of the session, or what one part of it is about."),
    ] = "session"
    turn_id: Annotated[NativeId | None, msgspec.Meta(description="With scope turn: which one.")] = None
    task_id: Annotated[
        NativeId | None, msgspec.Meta(description="With scope task: which one. With scope handoff: only this task.")
    ] = None
    tool_call_id: Annotated[NativeId | None, msgspec.Meta(description="With scope tool_invocation: which one.")] = None
    review_id: Annotated[Name | None, msgspec.Meta(description="With scope review: which one.")] = None
    recipient: Annotated[
        Id | None, msgspec.Meta(description="With scope handoff: the agent that takes over, as it is called there.")
    ] = None
    policy: Annotated[
        Name | None, msgspec.Meta(description="The export policy to apply; your tenant's default if left out.")
    ] = None
    format: Annotated[
        ExportFormat,
        msgspec.Meta(description="ndjson and json can be imported; prov is PROV-JSON, for tools that read it."),
    ] = "ndjson"
    history: Annotated[
        bool | None,
        msgspec.Meta(
            description="All versions, events and snapshots, or only what stands now; by default a session's "
            "history leaves with it and a handoff's does not."
        ),
    ] = None

    @property
    def with_history(self) -> bool:
        return self.scope != "handoff" if self.history is None else self.history

    def check(self) -> None:
        """Refuse a request that does not say of what."""
        needed = _NEEDS.get(self.scope)
        if needed is not None and getattr(self, needed) is None:
            raise InvalidInput(f"{needed}: needed for an export with the scope {self.scope}", field=needed)
        if self.session_id is None and self.scope != "review":
            raise InvalidInput(f"session_id: needed for an export with the scope {self.scope}", field="session_id")


class ExportOptions(TypedDict, total=False):
    """The same for those who stream an export, by keyword."""

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
    """What was exported. ``digest`` stands for all of it; ``masked`` and ``omitted`` tell what the policy kept back."""

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
    """Makes exports in transactions of their own."""

    async def export_text(self, actor: Actor, request: ExportContext) -> ContextExported:
        """Return an export with its text, or refuse one that is too large for that."""
        ...


@operation(
    "bundle.export",
    tool="export_context",
    http="POST /v1/export",
    permission=Permission.READ,
    rate=RateClass.SESSION,
    effect=Effect.OWN_TRANSACTIONS,
    audited=True,
    errors=(SessionNotFound, ReviewNotFound, ContentTooLarge),
)
async def export_context(request: ExportContext, actor: Actor, desk: Exporter) -> ContextExported:
    """Export a session, or what a turn, task, tool call, review or handoff is about, as one bundle of records.

    It holds what you may read, as far as the export policy lets it leave, and that it was made is on record. Another
    Weft imports it with ``import_context``, under the same ids. Up to 1 MiB; more is streamed: see ``weft export``.
    """
    return await desk.export_text(actor, request)


@dataclass(slots=True)
class PreparedExport:
    """An export under way: what it is of, and what decides what may leave.

    ``shown`` is put on record with it, for ``shown_to``; ``snapshots`` come behind the events that tell of that.
    """

    request: ExportContext
    header: BundleHeader
    envelope: ContextEnvelope
    session: Session | None
    review: Review | None
    applied: AppliedPolicy
    shown: tuple[ContextAssembly | ContextInjection, ...] = ()
    shown_to: tuple[str, ...] = ANYONE
    snapshots: Sequence[BundleSnapshot] = ()

    @property
    def bundle_id(self) -> str:
        return self.header.bundle_id

    @property
    def hands_over(self) -> bool:
        return self.header.scope == "handoff"

    @property
    def is_of_all(self) -> bool:
        """Tell whether it is of a whole session: then the surface stands for what is in it."""
        return self.header.scope == "session" or (self.hands_over and self.request.task_id is None)

    @property
    def tells_of_itself(self) -> bool:
        """Tell whether the events of the export are a part of it."""
        return self.hands_over or (self.header.scope == "session" and self.request.with_history)

    @property
    def still_to_come(self) -> int:
        """Return how many bytes may follow at most once the export is on record."""
        return _MOST_TOLD_OF_ITSELF + sum(len(_encode(snapshot)) + _MOST_FRAMING for snapshot in self.snapshots)

    def described(self, sink: ExportSink | None = None, digest: str = "") -> ContextExported:
        told = ContextExported(bundle_id=self.bundle_id, policy=str(self.applied.ref.id), digest=digest)
        if sink is None:
            return told
        counted = {"records": sink.records, "bytes": sink.bytes}
        return structs.replace(told, **counted, masked=self.applied.masked, omitted=self.applied.omitted)


def finish_export(export: PreparedExport, told: Sequence[StoredEvent], sink: ExportSink) -> ContextExported:
    """End an export that is on record, and return what became of it."""
    if export.tells_of_itself:
        for recorded in told:
            add_event(recorded, export.header.source, export.applied, sink)
    for snapshot in export.snapshots:
        sink.add(snapshot)
    return export.described(sink, sink.seal())


class ExportService(msgspec.Struct, frozen=True):
    """Everything an export needs, gathered for its caller."""

    sources: ExportSources
    sessions: SessionStore
    recorder: Recorder
    policies: TenantPolicies
    clock: Clock

    async def begin(self, request: ExportContext) -> PreparedExport:
        """Return what an export will be of. It is read first and put on record then, which keeps nobody waiting."""
        request.check()
        review = await self._review(request)
        session = await self._session(request, review)
        applied = await self.policies.prepare(request.policy, self.recorder.actor)
        envelope = await self._envelope(request, session, applied)
        header = _header(request, envelope, session, await self.sources.events.source(), applied)
        export = PreparedExport(request, header, envelope, session, review, applied)
        if not export.is_of_all:
            export.envelope = await self._naming_all(export)
        return export

    async def _naming_all(self, export: PreparedExport) -> ContextEnvelope:
        """Return an envelope that names what the export is of, having looked at all that."""
        mentions = EnvelopeRefs()
        applied = await self.policies.prepare(export.request.policy, self.recorder.actor)
        await self._gather(export, ExportCollector(self.sources, applied, mentions, export.session, remember=True))
        return mentions.in_envelope(export.envelope)

    async def write(self, export: PreparedExport, sink: ExportSink) -> None:
        """Write what an export is of, up to what is known only when it is on record."""
        gathering = ExportCollector(self.sources, export.applied, sink, export.session, remember=export.hands_over)
        sink.add(export.header)
        if export.session is not None and export.header.scope in SESSION_SCOPES:
            sink.add(_entry(export.session, export.applied))
        made = StoredInfo(self.recorder.actor.participant, export.envelope.created_at, export.envelope.created_at)
        sink.add_record(export.envelope, stored=made)
        await gathering.surface()
        await self._gather(export, gathering)

    async def put_on_record(self, export: PreparedExport) -> Sequence[StoredEvent]:
        """Put on record that something leaves, before anyone gets it, and return the events that tell of it."""
        session = await self._still_there(export)
        envelope = await self.recorder.add(export.envelope, session, event_type=EXPORTED)
        shown = [await self.recorder.add(record, session, readable_by=export.shown_to) for record in export.shown]
        return await self.sources.events.numbered([kept.seq for kept in (envelope, *shown)])

    async def _still_there(self, export: PreparedExport) -> Session | None:
        """Return the session, which nobody deletes now; refuse if that has happened since it was read."""
        if export.session is None:
            return None
        session_id = export.session.session_id
        session, _ = await lock_session(session_id, self.recorder.actor, self.sessions)
        if session.created_at != export.session.created_at:
            raise SessionNotFound(
                f"The session '{session_id}' was deleted.", resource_type="session", resource_id=session_id
            )
        return session

    async def _gather(self, export: PreparedExport, gathering: ExportCollector) -> None:
        request, session = export.request, export.session
        if export.review is not None:
            await gathering.review(export.review)
            await gathering.events(EventQuery(session_id=_id(session), subject=export.review.review_id))
        elif session is not None and request.scope == "handoff":
            await self._hand_off(export, gathering, session)
        elif session is not None and request.scope == "session":
            await self._whole(export, gathering, session)
        else:
            wanted = _wanted(request)
            await gathering.about(await gathering.named(wanted))
            await gathering.events(wanted)

    async def _whole(self, export: PreparedExport, gathering: ExportCollector, session: Session) -> None:
        with_history = export.request.with_history
        await (gathering.board(session.session_id) if with_history else gathering.standing(session.session_id))
        await gathering.messages(session.session_id)
        await gathering.records(session.session_id)
        if with_history:
            await gathering.events(EventQuery(session_id=session.session_id))
            export.snapshots = await gathering.snapshots(session.session_id)

    async def _hand_off(self, export: PreparedExport, gathering: ExportCollector, session: Session) -> None:
        """Write what a peer needs to go on, with what it is shown and by which way."""
        session_id, request = session.session_id, export.request
        if request.task_id is None:
            await (gathering.board(session_id) if request.with_history else gathering.standing(session_id))
            await gathering.messages(session_id)
            self._show(export, gathering)
            await gathering.records(session_id)
        else:
            await self._hand_off_task(export, gathering, session)
        if request.with_history:
            await gathering.events(_wanted(request))
            if request.task_id is None:
                export.snapshots = await gathering.snapshots(session_id)

    async def _hand_off_task(self, export: PreparedExport, gathering: ExportCollector, session: Session) -> None:
        names = await gathering.named(_wanted(export.request))
        await gathering.standing(session.session_id, names.keys)
        await gathering.named_messages(list(names.messages.values()))
        self._show(export, gathering)
        for gap in await self.sources.records.open_missing(session.session_id, _MOST_OPEN_GAPS):
            names.stored.setdefault((gap.type, gap.record_id))
        await gathering.stored(await gathering.kept(names))

    def _show(self, export: PreparedExport, gathering: ExportCollector) -> None:
        """Write what the recipient is shown, and that it is."""
        assembly_id, injection_id = _shown_as(export.bundle_id)
        target, now = export.request.recipient or "", self.clock.now()
        assembly = ContextAssembly(
            schema_version=SCHEMA_VERSION,
            assembly_id=assembly_id,
            target=target,
            ordered_blocks=tuple(_blocks(gathering.given)),
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
            hash=digest_of(_encode(assembly).decode()),
            created_at=now,
        )
        # It names keys and messages, of which not everyone may know.
        for_all = all(given.is_open for given in gathering.given)
        export.shown = (assembly, injection)
        export.shown_to = ANYONE if for_all else (f"{PRINCIPAL}{self.recorder.actor.principal_id}",)
        for record in export.shown:
            gathering.add_made(record, export.shown_to, now)

    async def _review(self, request: ExportContext) -> Review | None:
        if request.review_id is None or request.scope != "review":
            return None
        timelines = self.sources.timelines
        review = await timelines.reviews.find(request.review_id)
        missing = ReviewNotFound(f"There is no review '{request.review_id}'.", resource_id=request.review_id)
        if review is None or request.session_id not in {None, _session_of(review)}:
            raise missing
        try:
            await timelines.to_read(trunk_of(review.line_id))
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
        assembly, injection = _shown_as(bundle_id)
        shows = request.scope == "handoff"
        return ContextEnvelope(
            schema_version=SCHEMA_VERSION,
            context_id=bundle_id,
            scope=request.scope,
            lifecycle="injected" if shows else "available",
            created_at=self.clock.now(),
            producer=_producer(),
            actor_refs=(Link(kind=str(self.recorder.actor.kind), id=self.recorder.actor.participant),),
            runtime_refs=tuple(_runtime_refs(request, session)),
            surface_refs=() if session is None else (f"session:{session.session_id}",),
            assembly_refs=(assembly,) if shows else (),
            injection_refs=(injection,) if shows else (),
            missing_context_refs=await self._open_gaps(session),
            policy_refs=(applied.ref,),
        )

    async def _open_gaps(self, session: Session | None) -> tuple[str, ...]:
        """Return what is known to be missing, as far as everyone may know of it."""
        if session is None:
            return ()
        gaps = await self.sources.records.open_missing(session.session_id, _MOST_OPEN_GAPS)
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
        producer=_producer(),
        source=source,
        session_id=_id(session) or UNSET,
        turn_id=request.turn_id or UNSET,
        task_id=request.task_id or UNSET,
        tool_call_id=request.tool_call_id or UNSET,
        review_id=request.review_id or UNSET,
        recipient=request.recipient or UNSET,
        policy=applied.ref,
        history=request.with_history,
    )


def _entry(session: Session, applied: AppliedPolicy) -> BundleSession:
    return BundleSession(
        session_id=session.session_id,
        purpose=applied.words(session.purpose)[:MAX_PURPOSE],
        metadata=applied.words(session.metadata),
        config=session.config,
        created_by=session.created_by,
        created_at=from_micros(session.created_at),
        updated_at=from_micros(session.updated_at),
        archived_at=UNSET if session.archived_at is None else from_micros(session.archived_at),
    )


def _wanted(request: ExportContext) -> EventQuery:
    """Return which events an export is about."""
    by_scope = {"turn": "turn_id", "tool_invocation": "tool_call_id"}.get(request.scope, "task_id")
    return EventQuery(session_id=request.session_id, **{by_scope: getattr(request, by_scope)})


def _blocks(items: Sequence[ExportedItem]) -> Iterator[Block]:
    """Yield what a recipient is shown, in order: every key for itself, then what was said."""
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


def _shown_as(bundle_id: str) -> tuple[str, str]:
    return f"{bundle_id}/assembly", f"{bundle_id}/injection"


@cache
def _producer() -> Producer:
    return Producer(id="weft", version=version("weft"))


def _session_of(review: Review) -> str | None:
    """Return the session whose board a merge is into; other lines belong to none."""
    return session_of(review.line_id) if review.line_id.startswith("board:") else None


def _id(session: Session | None) -> str | None:
    return None if session is None else session.session_id
