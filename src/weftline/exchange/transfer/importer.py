"""Operation bundle.import: validates and plans a whole bundle, then imports it in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
from msgspec import UNSET, structs

from weftline.access.plan_warnings import Plans
from weftline.access.plans import Allowance
from weftline.exchange.transfer.bundle_format import BundleDamaged, BundleRecord, BundleSession
from weftline.exchange.transfer.restore_plan import SessionPlanner, record_key, record_of
from weftline.exchange.transfer.restore_session import (
    IMPORTED,
    RestoreStores,
    SessionRestore,
    cooperatively,
    count_new_records,
    in_batches,
    new_records,
    store_content,
)
from weftline.exchange.transfer.validate_bundle import entries_with_content, open_bundle
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput, QuotaExceeded
from weftline.kernel.fields import Name
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, operation
from weftline.records.model import ContextItem
from weftline.records.refs import Digest
from weftline.safety.trust.gate import ContentBlocked, IncomingContent
from weftline.safety.trust.model import INJECTION, SECRET, Source, Trust, TrustLabel, TrustPolicies
from weftline.sessions.events.model import EventQuery
from weftline.sessions.messages.model import ADMINS
from weftline.sessions.model import ALL_SESSIONS, Session, SessionConfig, SessionExists
from weftline.sessions.recorder import Recorder, RecordExists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from typing import BinaryIO

    from weftline.exchange.transfer.restore_plan import ImportPlan
    from weftline.exchange.transfer.validate_bundle import BundleReport, EntryWithContent
    from weftline.safety.injection import Detection
    from weftline.safety.trust.scanner import ContentScanner, Verdict


_PAGE = 500
# Instead of a purpose that looks like an instruction: agents read it, and it has no label.
_HELD_PURPOSE = "Imported. The purpose in the bundle looks like an instruction to agents."


class ImportContext(Request):
    """A bundle to import."""

    bundle: Annotated[str, msgspec.Meta(description="The bundle that export_context returned: ndjson or json.")]
    expected_digest: Annotated[
        Digest | None,
        msgspec.Meta(description="The digest from the exporter; a bundle with another digest is rejected."),
    ] = None
    session_id: Annotated[
        Name | None,
        msgspec.Meta(description="Import the session under this id; ids that contain the old one are rewritten."),
    ] = None
    dry_run: Annotated[
        bool, msgspec.Meta(description="Validate the bundle and return what would be imported, without changes.")
    ] = False


class ContextImported(Response, omit_defaults=False):
    """The number of imported versions of keys and window events, messages, events, snapshots, windows and records.

    ``skipped`` records existed already, identical; ``unchanged``: the same bundle was imported before. ``suspicious``
    entries look like instructions to agents: they are labelled so, events and records among them only admins can read.
    """

    on_record = ("bundle_id", "session_id", "digest", "records", "suspicious", "unchanged")

    bundle_id: str
    scope: str
    digest: str
    session_id: str | None = None
    versions: int = 0
    messages: int = 0
    events: int = 0
    snapshots: int = 0
    windows: int = 0
    records: int = 0
    skipped: int = 0
    suspicious: int = 0
    unchanged: bool = False
    dry_run: bool = False


class Importer(Protocol):
    """Runs imports in their own transactions."""

    async def import_text(self, actor: Actor, request: ImportContext) -> ContextImported: ...


@operation(
    "bundle.import",
    tool="import_context",
    http="POST /v1/import",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.OWN_TRANSACTIONS,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    off_record=("bundle",),
    session=SessionUse.OUTSIDE,
    errors=(BundleDamaged, SessionExists, RecordExists, ContentTooLarge, QuotaExceeded, ContentBlocked),
)
async def import_context(request: ImportContext, actor: Actor, importer: Importer) -> ContextImported:
    """Import a bundle that this or another Weftline exported: all of it, or nothing.

    A session is restored with its id, all board versions, messages and events, under the names of their authors; this
    is why only admins may import. An altered bundle is rejected with the line of the first change. If the session id
    is taken, such as by an earlier handoff, pass another ``session_id``.
    """
    return await importer.import_text(actor, request)


class ImportService(msgspec.Struct, frozen=True):
    """The stores and services an import needs, bound to its caller."""

    stores: RestoreStores
    recorder: Recorder
    policies: TrustPolicies
    plans: Plans

    @property
    def now(self) -> int:
        return to_micros(self.stores.clock.now())

    async def taken(self, names: Sequence[tuple[str, str]]) -> set[str]:
        """Return the ids among these records, given by type and id, that exist."""
        return {each.record_id for each in await self.stores.records.find_several(names)}

    async def run(self, bundle: BundleReport, file: BinaryIO, session_id: str | None) -> ContextImported:
        """Import a validated bundle without a session."""
        await self._check_policy(bundle)
        _check_no_session_id(session_id, bundle.header.scope)
        return structs.replace(_described(bundle), **await self._store(file))

    async def restore(self, bundle: BundleReport, plan: ImportPlan) -> ContextImported:
        """Import a validated bundle with a session, as planned."""
        await self._check_policy(bundle)
        session = plan.session
        session = structs.replace(session, config=_limited(session.config, await self.plans.allowance()))
        imported = structs.replace(_described(bundle), session_id=session.session_id)
        if not await self._is_free(session):
            await self._check_already_imported(bundle, session.session_id)
            return structs.replace(imported, unchanged=True)
        await self._check_windows(bundle)
        return structs.replace(imported, **await SessionRestore(self.stores, bundle, session).run(plan))

    async def dry_run(self, bundle: BundleReport, file: BinaryIO, session_id: str | None) -> ContextImported:
        """Return what an import would do."""
        await self._check_policy(bundle)
        imported = structs.replace(_described(bundle), dry_run=True)
        if bundle.session is None:
            _check_no_session_id(session_id, bundle.header.scope)
            return structs.replace(imported, **await self._count(file))
        session = planned_session(bundle, bundle.session, session_id)
        imported = structs.replace(imported, session_id=session.session_id)
        if await self.stores.sessions.find(session.session_id) is not None:
            await self._check_already_imported(bundle, session.session_id)
            return structs.replace(imported, unchanged=True)
        await self._check_windows(bundle)
        return structs.replace(imported, **bundle.counts, **await self._count_renamed(bundle, session, file))

    async def _count_renamed(self, bundle: BundleReport, session: Session, file: BinaryIO) -> dict[str, int]:
        """Return how many records of a session are new, as they would be named."""
        taken: set[str] = set()
        first = SessionPlanner.of(bundle, session, self.stores.actor, self.now, ())
        if first.rename is not None:
            async for some in in_batches(self._cooperatively(first.record_entries(file))):
                taken |= await self.taken([record_key(piece) for piece in some])
        named = SessionPlanner.of(bundle, session, self.stores.actor, self.now, taken)
        return await count_new_records(self._cooperatively(named.record_entries(file)), self.stores.records)

    async def _cooperatively(self, entries: Iterator[EntryWithContent]) -> AsyncIterator[EntryWithContent]:
        async for piece in cooperatively(entries, self.stores.cooperative):
            yield piece

    async def _check_policy(self, bundle: BundleReport) -> None:
        policy = await self.policies.current()
        if bundle.is_attack and policy.injection.of(Source.IMPORT) == "block":
            raise ContentBlocked.of(
                IncomingContent("bundle", bundle.header.bundle_id, ""),
                "an instruction to agents",
                violation="injection",
            )

    async def _check_windows(self, bundle: BundleReport) -> None:
        """Raise QuotaExceeded if a window would have more events, or larger ones, than the plan allows."""
        allowance = await self.plans.allowance()
        for use in bundle.windows.values():
            allowance.check_window_events(use.events, 0)
            allowance.check_window_bytes(use.bytes, 0)

    async def _is_free(self, session: Session) -> bool:
        """Create the session; False if its id is taken."""
        sessions = self.stores.sessions
        is_free = await sessions.add(session)
        if is_free:
            await sessions.note_key_acls(session.session_id)
        return is_free

    async def _store(self, file: BinaryIO) -> dict[str, int]:
        """Store the records of a bundle without a session as they are, readable by admins."""
        counts = {"records": 0, "skipped": 0}
        async for some in in_batches(self._records_in(file)):
            new = await new_records(some, self.stores.records)
            for piece in new:
                await self.recorder.add(record_of(piece), None, readable_by=(ADMINS,))
                await store_content(self.stores.records, None, piece)
            counts["records"] += len(new)
            counts["skipped"] += len(some) - len(new)
        return counts

    async def _count(self, file: BinaryIO) -> dict[str, int]:
        return await count_new_records(self._records_in(file), self.stores.records)

    async def _records_in(self, file: BinaryIO) -> AsyncIterator[EntryWithContent]:
        async for piece in self._cooperatively(entries_with_content(open_bundle(file))):
            if piece.line.record is not None:
                yield piece

    async def _check_already_imported(self, bundle: BundleReport, session_id: str) -> None:
        """Raise SessionExists unless the session was imported from the same bundle."""
        query, after = EventQuery(session_id=session_id, subject=session_id), 0
        while page := await self.stores.events.find(query, after, _PAGE):
            after = page[-1].event.seq
            if any(each.event.type == IMPORTED and each.event.data.get("digest") == bundle.digest for each in page):
                return
        raise SessionExists(
            f"The session '{session_id}' exists already, or is still being deleted.",
            hint="Import it under another id: pass session_id (weftline import --as-session NAME). Importing the same "
            "bundle again changes nothing.",
            resource_id=session_id,
        )


def _limited(config: SessionConfig, allowance: Allowance) -> SessionConfig:
    """Return the configuration of an imported session within the plan. Content of its board above it stays."""
    return structs.replace(
        config,
        max_keys=min(config.max_keys or allowance.session_keys, allowance.session_keys),
        max_total_tokens=min(config.max_total_tokens, allowance.session_tokens),
        max_value_tokens=min(config.max_value_tokens, allowance.value_tokens),
        keep_versions=min(config.keep_versions, allowance.session_versions),
    )


def _check_no_session_id(session_id: str | None, scope: str) -> None:
    if session_id is not None:
        raise InvalidInput(f"session_id: a bundle with the scope {scope} has no session", field="session_id")


def _described(bundle: BundleReport) -> ContextImported:
    return ContextImported(
        bundle_id=bundle.header.bundle_id,
        scope=bundle.header.scope,
        digest=bundle.digest,
        suspicious=bundle.suspicious,
    )


def planned_session(bundle: BundleReport, entry: BundleSession, session_id: str | None) -> Session:
    """Return the session of a bundle, under another id if one is given."""
    session_id = session_id or entry.session_id
    if session_id == ALL_SESSIONS:
        raise InvalidInput(f"session_id: '{ALL_SESSIONS}' is reserved for all sessions", field="session_id")
    is_held = bundle.is_suspicious(bundle.session_line)
    return Session(
        session_id=session_id,
        purpose=_HELD_PURPOSE if is_held else entry.purpose,
        metadata={} if is_held else entry.metadata,
        config=entry.config,
        created_by=entry.created_by,
        created_at=to_micros(entry.created_at),
        updated_at=to_micros(entry.updated_at),
        archived_at=None if entry.archived_at is UNSET else to_micros(entry.archived_at),
        members=entry.members,
    )


# Scans a bundle before its import: what looks like an instruction to agents is imported with a label.

# Longer strings are texts, even without a space.
_MAX_NAME = 100
# Fields of records that hold ids, times and digests rather than text.
_WITHOUT_TEXT = ("_id", "_ref", "_refs", "_at", "digest", "hash", "uri", "type", "schema_version")


def scan_bundle(file: BinaryIO, report: BundleReport, scanner: ContentScanner) -> None:
    """Scan every entry of a bundle, and note in its report what was found.

    Run it in a thread, before the transaction of the import.
    """
    labels: dict[int, TrustLabel] = {}
    detections: list[Detection] = []
    for piece in entries_with_content(open_bundle(file)):
        for text in _texts(piece):
            verdict = scanner.verdict(text, data=True)
            detections.append(verdict.detection)
            if verdict.detection.flagged or verdict.secrets:
                labels[piece.line.number] = _label(labels.get(piece.line.number), verdict)
    report.labels = labels
    report.is_attack = any(detection.is_rare_among(len(detections)) for detection in detections)


def _label(known: TrustLabel | None, verdict: Verdict) -> TrustLabel:
    found = verdict.detection.flagged
    reasons = (
        *(() if known is None else known.reasons),
        *((INJECTION,) if found else ()),
        *(f"{SECRET}: {kind}" for kind in verdict.secrets),
    )
    was_suspicious = known is not None and known.trust is Trust.SUSPICIOUS
    return TrustLabel(
        source=Source.IMPORT,
        trust=Trust.SUSPICIOUS if found or was_suspicious else Trust.UNTRUSTED,
        score=round(verdict.detection.score, 2) if found else None,
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _texts(piece: EntryWithContent) -> Iterator[str]:
    """Yield the texts of an entry that somebody may read: original content, and the other texts of its record."""
    entry, record = piece.entry, piece.line.record
    if isinstance(entry, BundleSession):
        yield "\n".join(_strings("", [entry.purpose, entry.metadata]))
    if not isinstance(entry, BundleRecord) or record is None:
        return
    if piece.text is not None:
        yield piece.text
    elif piece.content is not None:
        yield piece.content.decode("utf-8", "replace")
    fields = msgspec.to_builtins(record)
    if isinstance(record, ContextItem) and piece.text is not None:
        fields.pop("content", None)
    others = "\n".join(_strings("", fields))
    if others:
        yield others


def _strings(name: str, value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON of any shape
    if isinstance(value, str):
        is_text = " " in value or not value.isascii() or len(value) > _MAX_NAME
        if is_text and not name.endswith(_WITHOUT_TEXT):
            yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(key, inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(name, inner)
