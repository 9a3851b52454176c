"""Content that streams in and out, on the path of every call: exports, imports and uploaded documents."""

from __future__ import annotations

import io
import tempfile
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from weftline.access.audit import AuditTrail
from weftline.exchange.transfer.bundle_format import BundleWriter
from weftline.exchange.transfer.export import (
    MAX_TEXT_BYTES,
    ExportContext,
    ExportService,
    export_context,
    finish_export,
)
from weftline.exchange.transfer.importer import (
    ContextImported,
    ImportContext,
    ImportService,
    import_context,
    planned_session,
    scan_bundle,
)
from weftline.exchange.transfer.prov_json import ProvWriter
from weftline.exchange.transfer.restore_plan import SessionPlanner, record_key
from weftline.exchange.transfer.validate_bundle import validate_bundle
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput
from weftline.kernel.fair_queue import FairSlots
from weftline.kernel.thread_pools import DOCUMENT_THREADS, SHORT_THREADS
from weftline.knowledge.document_operations import (
    PreparedDocument,
    add_document,
    document_meta,
    put_response,
)
from weftline.knowledge.documents import check_size, pack_content
from weftline.storage.sql.unit_of_work import CallerTransactions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import BinaryIO

    from weftline.app.dispatch import CallContext, Dispatcher, Incoming
    from weftline.exchange.transfer.export import ContextExported, ExportFormat, PreparedExport
    from weftline.exchange.transfer.export_collector import ExportSink
    from weftline.exchange.transfer.restore_plan import ImportPlan
    from weftline.exchange.transfer.validate_bundle import BundleReport
    from weftline.kernel.clock import Clock
    from weftline.kernel.events import StoredEvent
    from weftline.kernel.guards import GuardedCall, Guards
    from weftline.kernel.identity import Actor
    from weftline.kernel.ports import Transactions
    from weftline.knowledge.document_operations import AddDocument, DocumentPut, DocumentWrites
    from weftline.safety.trust.scanner import ContentScanner
    from weftline.sessions.model import Session
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector

_MEBIBYTE = 2**20
# Temporary files of exports that are being read and of imports that arrive: 16 of one tenant, 15 of one principal.
_FILES, _TENANT_PART = 256, 1 / 16
_MAX_FILE_WAIT_SECONDS = 30.0
_MAX_WAITING = 16


@dataclass(frozen=True, slots=True)
class ExportFile:
    """An export in a temporary file, positioned at its start."""

    file: BinaryIO
    facts: ContextExported
    format: str


class AuditedExports(msgspec.Struct, frozen=True):
    """An export in one transaction, with its audit row."""

    exports: ExportService
    audit: AuditTrail

    async def write(self, request: ExportContext, sink: ExportSink, max_bytes: int | None) -> PreparedExport:
        export = await self.exports.begin(request, max_bytes)
        await self.exports.write(export, sink)
        return export

    async def record(self, export: PreparedExport) -> Sequence[StoredEvent]:
        events = await self.exports.record(export)
        await self.audit.record(export_context, export.request, export.described())
        return events


class AuditedImports(msgspec.Struct, frozen=True):
    """An import in one transaction, with its audit row."""

    imports: ImportService
    audit: AuditTrail

    async def run(self, bundle: BundleReport, file: BinaryIO, request: ImportContext) -> ContextImported:
        return await self._audited(request, await self.imports.run(bundle, file, request.session_id))

    async def restore(self, bundle: BundleReport, plan: ImportPlan, request: ImportContext) -> ContextImported:
        return await self._audited(request, await self.imports.restore(bundle, plan))

    async def _audited(self, request: ImportContext, imported: ContextImported) -> ContextImported:
        await self.audit.record(import_context, request, imported)
        return imported


class Transfers:
    """Exports and imports, as text or as a stream."""

    def __init__(
        self,
        database: Database,
        injector: Injector,
        dispatcher: Dispatcher,
        guards: Guards,
        scanner: ContentScanner,
        clock: Clock,
        import_limit_mb: int,
    ) -> None:
        self._exports = CallerTransactions(database, injector, AuditedExports)
        self._imports = CallerTransactions(database, injector, AuditedImports)
        self._dispatcher = dispatcher
        self._guards = guards
        self._scanner = scanner
        self._clock = clock
        self._limit = import_limit_mb * _MEBIBYTE
        self._files = FairSlots(
            _FILES, share=_TENANT_PART, max_wait_seconds=_MAX_FILE_WAIT_SECONDS, max_waiting=_MAX_WAITING
        )

    @asynccontextmanager
    async def _temporary_file(self, prefix: str, context: CallContext) -> AsyncIterator[BinaryIO]:
        """Open a file that is kept for as long as a client takes to read or send it; raises ServerBusy."""
        caller = await self._dispatcher.identify(context)
        async with self._files.hold(caller.tenant, caller.path):
            with tempfile.TemporaryFile(prefix=prefix) as file:
                yield file

    @asynccontextmanager
    async def send(self, raw: dict[str, Any] | Incoming, context: CallContext) -> AsyncIterator[ExportFile]:
        """Export into a temporary file."""
        async with self._temporary_file("weftline-export-", context) as file:
            export = _ExportHandler(self, file)
            facts: ContextExported = await self._dispatcher.call(
                export_context, raw, context, entry="export", handler=export
            )
            file.seek(0)
            yield ExportFile(file, facts, export.format)

    async def receive(
        self, raw: dict[str, Any], context: CallContext, chunks: AsyncIterator[bytes], *, strict: bool = True
    ) -> ContextImported:
        """Import a bundle that arrives in chunks, through a temporary file."""
        async with self._temporary_file("weftline-import-", context) as file:
            handler = _ImportHandler(self, file, self._guards, chunks, self._limit)
            imported: ContextImported = await self._dispatcher.call(
                import_context, {**raw, "bundle": ""}, context, strict=strict, entry="import", handler=handler
            )
            return imported

    async def export_text(self, actor: Actor, request: ExportContext) -> ContextExported:
        file = io.BytesIO()
        exported = await self.export_to(actor, request, file, max_bytes=MAX_TEXT_BYTES)
        return structs.replace(exported, bundle=file.getvalue().decode())

    async def import_text(self, actor: Actor, request: ImportContext) -> ContextImported:
        try:
            content = request.bundle.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                "bundle: not valid text (it contains half of a surrogate pair)", field="bundle"
            ) from None
        return await self.import_from(actor, request, io.BytesIO(content))

    async def export_to(
        self, actor: Actor, request: ExportContext, file: BinaryIO, max_bytes: int | None = None
    ) -> ContextExported:
        # Discard the output of a previous attempt, which failed because the caller's access changed.
        file.seek(0)
        file.truncate()
        with ExitStack() as files:
            limit = _SizeLimit(max_bytes)
            sink = _sink(request.format, file, limit, files)
            export = await self._exports.read(actor, lambda tx: tx.write(request, sink, max_bytes), heavy=True)
            limit.reserve(export.remaining_bytes)
            # Recorded in its own transaction, which is short however large the export is.
            events = await self._exports.write(actor, lambda tx: tx.record(export))
            limit.lift()
            return await DOCUMENT_THREADS.run(finish_export, export, events, sink)

    async def import_from(self, actor: Actor, request: ImportContext, file: BinaryIO) -> ContextImported:
        bundle = await DOCUMENT_THREADS.run(validate_bundle, file, request.expected_digest)
        await DOCUMENT_THREADS.run(scan_bundle, file, bundle, self._scanner)
        if request.dry_run:
            return await self._imports.read(
                actor, lambda tx: tx.imports.dry_run(bundle, file, request.session_id), heavy=True
            )
        if bundle.session is None:
            return await self._imports.write(actor, lambda tx: tx.run(bundle, file, request))
        session = planned_session(bundle, bundle.session, request.session_id)
        with closing(await self._planned(actor, bundle, session, file)) as plan:
            return await self._imports.write(actor, lambda tx: tx.restore(bundle, plan, request))

    async def _planned(self, actor: Actor, bundle: BundleReport, session: Session, file: BinaryIO) -> ImportPlan:
        """Decode the whole session before the transaction: others would wait for that."""
        now = to_micros(self._clock.now())
        planner = SessionPlanner.of(bundle, session, actor, now, ())
        if planner.rename is not None:
            names = await DOCUMENT_THREADS.run(lambda: [record_key(piece) for piece in planner.record_entries(file)])
            taken = await self._imports.read(actor, lambda tx: tx.imports.taken(names), heavy=True)
            planner = SessionPlanner.of(bundle, session, actor, now, taken)
        return await DOCUMENT_THREADS.run(planner.plan, file)


class _ExportHandler:
    """Writes an export into a file."""

    def __init__(self, transfers: Transfers, file: BinaryIO) -> None:
        self._transfers = transfers
        self._file = file
        self.format: ExportFormat = "ndjson"

    async def run(self, call: GuardedCall) -> ContextExported:
        assert call.actor is not None  # noqa: S101 - exports need a credential
        self.format = call.request.format
        return await self._transfers.export_to(call.actor, call.request, self._file)


class _ImportHandler:
    """Receives a bundle into a file and imports it; what was received is kept for a second run."""

    def __init__(
        self, transfers: Transfers, file: BinaryIO, guards: Guards, chunks: AsyncIterator[bytes], limit: int
    ) -> None:
        self._transfers = transfers
        self._file = file
        self._guards = guards
        self._chunks = chunks
        self._limit = limit
        self._is_received = False

    async def run(self, call: GuardedCall) -> ContextImported:
        assert call.actor is not None  # noqa: S101 - imports need a credential
        if not self._is_received:
            await self._receive(call)
            self._is_received = True
        return await self._transfers.import_from(call.actor, call.request, self._file)

    async def _receive(self, call: GuardedCall) -> None:
        async for chunk in self._guards.stream(call, self._chunks):
            self._file.write(chunk)
            if self._file.tell() > self._limit:
                raise ContentTooLarge(
                    f"The bundle is larger than {self._limit // _MEBIBYTE} MiB.",
                    hint="Export less at once; the operator can raise the limit with WEFTLINE_IMPORT_LIMIT_MB.",
                    limit_bytes=self._limit,
                )


class _SizeLimit:
    """Limits the bytes of an export, summed over all its temporary files."""

    def __init__(self, max_bytes: int | None) -> None:
        self._max = max_bytes
        self._reserved = 0

    def reserve(self, size: int) -> None:
        self._reserved += size
        if self._max is not None and self._reserved > self._max:
            raise ContentTooLarge(
                f"The export has more than {self._max} bytes.",
                hint="Stream it (weftline export, POST /v1/export/stream, or export_to of a client), or export less.",
                limit_bytes=self._max,
            )

    def lift(self) -> None:
        self._max = None


def _sink(export_format: ExportFormat, file: BinaryIO, limit: _SizeLimit, files: ExitStack) -> ExportSink:
    if export_format == "prov":
        return ProvWriter(file.write, partial(_temporary_file, files), limit.reserve)

    def put(chunk: bytes) -> None:
        limit.reserve(len(chunk))
        file.write(chunk)

    return BundleWriter(put, export_format)


def _temporary_file(files: ExitStack) -> BinaryIO:
    file: BinaryIO = files.enter_context(tempfile.TemporaryFile(prefix="weftline-export-"))  # noqa: SIM115 - on the stack
    return file


class Uploads:
    """Receives documents in chunks, up to the largest allowed."""

    def __init__(self, dispatcher: Dispatcher, guards: Guards, writes: Transactions[DocumentWrites]) -> None:
        self._dispatcher = dispatcher
        self._guards = guards
        self._writes = writes

    async def receive(self, raw: dict[str, Any], context: CallContext, chunks: AsyncIterator[bytes]) -> DocumentPut:
        upload = _Upload(self._guards, self._writes, chunks)
        put: DocumentPut = await self._dispatcher.call(
            add_document, {**raw, "text": ""}, context, strict=False, entry="upload", handler=upload
        )
        return put


class _Upload:
    """One document being received; what was received is kept for a second run."""

    def __init__(self, guards: Guards, writes: Transactions[DocumentWrites], chunks: AsyncIterator[bytes]) -> None:
        self._guards = guards
        self._writes = writes
        self._chunks = chunks
        self._content: bytes | None = None

    async def run(self, call: GuardedCall) -> DocumentPut:
        request: AddDocument = call.request
        assert call.actor is not None  # noqa: S101 - uploads need a credential
        if self._content is None:
            self._content = await self._received(call)
        content = await SHORT_THREADS.run(pack_content, self._content)
        prepared = PreparedDocument(request.document_id, document_meta(request), content)
        put = await self._writes.write(call.actor, lambda tx: tx.put_all(add_document, request.domain, [prepared]))
        return put_response(*put)

    async def _received(self, call: GuardedCall) -> bytes:
        content = bytearray()
        async for chunk in self._guards.stream(call, self._chunks):
            content.extend(chunk)
            check_size(len(content))
        return bytes(content)
