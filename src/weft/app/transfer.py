"""Exports and imports at work: in files that nobody else sees, and on the path that every call takes."""

from __future__ import annotations

import asyncio
import io
import tempfile
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from weft.app.dispatch import log_changes
from weft.app.injection import CallScope
from weft.capabilities.transfer.bundle_format import BundleWriter
from weft.capabilities.transfer.export import MOST_BYTES, ExportContext, Exports, export_context, finished
from weft.capabilities.transfer.importer import ContextImported, ImportContext, Imports, import_context
from weft.capabilities.transfer.prov_json import ProvWriter
from weft.capabilities.transfer.validate_bundle import survey
from weft.kernel.errors import ContentTooLarge, InvalidInput
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import BinaryIO

    from weft.app.audit_writer import Auditor
    from weft.app.dispatch import CallContext, Dispatcher, Work
    from weft.app.injection import Resolver, Source
    from weft.capabilities.transfer.export import ContextExported, Export, Format
    from weft.capabilities.transfer.export_collector import Sink
    from weft.kernel.events import StoredEvent
    from weft.kernel.identity import Actor
    from weft.kernel.operation import Operation
    from weft.storage.sql.database import Database, Transaction

_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class ExportFile:
    """An export in a file, at its beginning; the file goes when it was read."""

    file: BinaryIO
    facts: ContextExported
    format: str


class Exchange:
    """What leaves and what comes in, as text or as a stream."""

    def __init__(self, database: Database, auditor: Auditor, import_limit_mb: int) -> None:
        self._database = database
        self._auditor = auditor
        self._limit = import_limit_mb * _MEBIBYTE
        self._exports: Source | None = None
        self._imports: Source | None = None
        self._dispatcher: Dispatcher | None = None

    def use(self, resolver: Resolver) -> None:
        self._exports, self._imports = resolver.source(Exports), resolver.source(Imports)

    def answer(self, dispatcher: Dispatcher) -> None:
        """Let streams take the path of every call."""
        self._dispatcher = dispatcher

    @asynccontextmanager
    async def send(self, raw: dict[str, Any], arrival: CallContext) -> AsyncIterator[ExportFile]:
        """Export into a file for whoever may."""
        with tempfile.TemporaryFile(prefix="weft-export-") as file:

            async def work(actor: Actor, request: ExportContext) -> ExportFile:
                return ExportFile(file, await self._export(actor, request, file), request.format)

            export: ExportFile = await self._called(export_context, raw, arrival, work)
            file.seek(0)
            yield export

    async def receive(
        self, raw: dict[str, Any], arrival: CallContext, chunks: AsyncIterator[bytes], *, strict: bool = True
    ) -> ContextImported:
        """Import what arrives from whoever may."""
        with tempfile.TemporaryFile(prefix="weft-import-") as file:

            async def work(actor: Actor, request: ImportContext) -> ContextImported:
                # What was taken in before the caller's access changed is still here.
                async for chunk in chunks:
                    file.write(chunk)
                    if file.tell() > self._limit:
                        raise ContentTooLarge(
                            f"The bundle is larger than {self._limit // _MEBIBYTE} MiB.",
                            hint="Export less at once; whoever runs Weft can allow more with WEFT_IMPORT_LIMIT_MB.",
                            limit_bytes=self._limit,
                        )
                return await self._import(actor, request, file)

            whole = {**raw, "bundle": ""}
            told: ContextImported = await self._called(import_context, whole, arrival, work, strict=strict)
            return told

    async def export_text(self, actor: Actor, request: ExportContext) -> ContextExported:
        file = io.BytesIO()
        told = await self._export(actor, request, file, most_bytes=MOST_BYTES)
        return structs.replace(told, bundle=file.getvalue().decode())

    async def import_text(self, actor: Actor, request: ImportContext) -> ContextImported:
        try:
            content = request.bundle.encode()
        except UnicodeEncodeError:
            raise InvalidInput("bundle: not valid text (it holds half of a surrogate pair)", field="bundle") from None
        return await self._import(actor, request, io.BytesIO(content))

    async def _export(
        self, actor: Actor, request: ExportContext, file: BinaryIO, most_bytes: int | None = None
    ) -> ContextExported:
        scope = Scope(actor.tenant, actor.epoch)
        # What an attempt left behind that found the caller's access changed.
        file.seek(0)
        file.truncate()
        with ExitStack() as files:
            room = _Room(most_bytes)
            sink = _sink(request.format, file, room, files)

            async def write(transaction: Transaction) -> Export:
                exports: Exports = _opened(self._exports, actor, transaction)
                export = await exports.begin(request)
                await exports.write(export, sink)
                return export

            export = await self._database.read(scope, write, heavy=True)
            room.take(export.still_to_come)
            told = await self._put_on_record(actor, export)
            room.open()
            return await asyncio.to_thread(finished, export, told, sink)

    async def _put_on_record(self, actor: Actor, export: Export) -> Sequence[StoredEvent]:
        """Put on record that something leaves, in a transaction that is short however much leaves."""
        scope = Scope(actor.tenant, actor.epoch)

        async def record(transaction: Transaction) -> tuple[Sequence[StoredEvent], Transaction]:
            exports: Exports = _opened(self._exports, actor, transaction)
            told = await exports.put_on_record(export)
            await self._auditor.done(transaction, actor, export_context, export.request, export.described())
            return told, transaction

        told, done = await self._database.write(scope, record)
        log_changes(scope, done.published)
        return told

    async def _import(self, actor: Actor, request: ImportContext, file: BinaryIO) -> ContextImported:
        found = await asyncio.to_thread(survey, file, request.expected_digest)
        scope = Scope(actor.tenant, actor.epoch)

        def opened(transaction: Transaction) -> Imports:
            imports: Imports = _opened(self._imports, actor, transaction)
            return imports

        if request.dry_run:
            return await self._database.read(
                scope, lambda tx: opened(tx).take(found, file, request.session_id, rehearsal=True), heavy=True
            )

        async def take(transaction: Transaction) -> tuple[ContextImported, Transaction]:
            told = await opened(transaction).take(found, file, request.session_id)
            await self._auditor.done(transaction, actor, import_context, request, told)
            return told, transaction

        told, done = await self._database.write(scope, take)
        log_changes(scope, done.published)
        return told

    async def _called(
        self, operation: Operation, raw: dict[str, Any], arrival: CallContext, work: Work, *, strict: bool = True
    ) -> Any:  # noqa: ANN401 - what the work gives
        assert self._dispatcher is not None  # noqa: S101 - the app is put together before it is called
        return await self._dispatcher.call(operation, raw, arrival, strict=strict, work=work)


class _Room:
    """How many bytes an export may have, in whichever files they are until it is whole."""

    def __init__(self, most_bytes: int | None) -> None:
        self._most = most_bytes
        self._taken = 0

    def take(self, size: int) -> None:
        self._taken += size
        if self._most is not None and self._taken > self._most:
            raise ContentTooLarge(
                f"The export has more than {self._most} bytes.",
                hint="Stream it, with weft export, POST /v1/export/stream or a client's export_to; or export less.",
                limit_bytes=self._most,
            )

    def open(self) -> None:
        """Let everything in from now on."""
        self._most = None


def _sink(form: Format, file: BinaryIO, room: _Room, files: ExitStack) -> Sink:
    if form == "prov":
        return ProvWriter(file.write, partial(_own_file, files), room.take)

    def put(chunk: bytes) -> None:
        room.take(len(chunk))
        file.write(chunk)

    return BundleWriter(put, form)


def _own_file(files: ExitStack) -> BinaryIO:
    file: BinaryIO = files.enter_context(tempfile.TemporaryFile(prefix="weft-export-"))  # noqa: SIM115 - on the stack
    return file


def _opened(source: Source | None, actor: Actor, transaction: Transaction) -> Any:  # noqa: ANN401 - whatever is needed
    assert source is not None  # noqa: S101 - the app is put together before it is called
    return source(CallScope(actor, transaction))
