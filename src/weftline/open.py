"""Weftline inside the calling process: the operations and types of the clients, without a server."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, Unpack, cast

import msgspec
from msgspec import structs

from weftline.app.app import App
from weftline.app.authentication import Credential, Local
from weftline.app.dispatch import CallContext
from weftline.app.tenants import ADMIN
from weftline.capabilities.access.model import DEFAULT_TENANT
from weftline.capabilities.events.operations import ReadEvents
from weftline.capabilities.knowledge.document_operations import DocumentPut, FileOptions
from weftline.capabilities.transfer.export import ContextExported, ExportOptions
from weftline.capabilities.transfer.importer import ContextImported
from weftline.client._operations import Operations
from weftline.kernel.call_warnings import CallWarning, collected_warnings
from weftline.kernel.correlation import NO_CORRELATION, Correlation, CorrelationIds, in_current_trace, make_correlation
from weftline.kernel.events import Event
from weftline.settings import Settings

_CHUNK_BYTES = 65_536
_FILE_SUFFIXES = {".db", ".sqlite", ".sqlite3"}


class Weftline(Operations):
    """Weftline in this process, as one principal. Open one with ``async with Weftline.open(folder) as weftline``."""

    def __init__(self, app: App, credential: Credential, correlation: Correlation = NO_CORRELATION) -> None:
        self.app = app
        self._credential = credential
        self._correlation = correlation
        super().__init__(_InProcess(app, credential, correlation))

    def __repr__(self) -> str:
        who = f"{self._credential!r}" if isinstance(self._credential, Local) else "by key"
        return f"<Weftline {who}>"

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        where: str | os.PathLike[str] | None = None,
        *,
        tenant: str = DEFAULT_TENANT,
        background: bool = True,
        **settings: Any,  # noqa: ANN401 - settings are of several types
    ) -> AsyncIterator[Weftline]:
        """Open a data folder, a SQLite file or a postgresql:// address; by default what WEFTLINE_* variables name.

        You act as the admin of the default tenant, which an empty database gets. Settings are those of a server, except
        that there are no rate limits unless you set ``rate_limits``.
        With ``background=False`` no jobs run: no indexing, expiry, webhooks or source synchronisation.
        """
        app = App(_settings(where, settings))
        try:
            await app.open(background=background)
            await app.tenants.ensure_default()
            yield cls(app, Local(tenant, ADMIN))
        finally:
            await app.close()

    def acting_as(self, principal_id: str) -> Weftline:
        """Return this Weftline as another principal of the tenant."""
        if not isinstance(self._credential, Local):
            raise TypeError("A Weftline opened with a key acts as the owner of that key only.")
        return Weftline(self.app, Local(self._credential.tenant, principal_id), self._correlation)

    def with_key(self, api_key: str) -> Weftline:
        """Return this Weftline as the principal of an API key or token."""
        return Weftline(self.app, api_key, self._correlation)

    def with_correlation(self, **ids: Unpack[CorrelationIds]) -> Weftline:
        """Return this Weftline with correlation ids, such as a turn, task or trace, for all its calls.

        Without a ``traceparent``, each call uses the current OpenTelemetry span.
        """
        return Weftline(self.app, self._credential, make_correlation(ids, self._correlation))

    async def export_to(self, file: BinaryIO, **what: Unpack[ExportOptions]) -> ContextExported:
        """Export a session, or part of it, into a file of any size.

        Takes the parameters of ``bundle.export``.
        """
        async with self.app.transfers.send({**what}, self._context()) as export:
            shutil.copyfileobj(export.file, file)
            return export.facts

    async def import_from(
        self,
        file: BinaryIO,
        *,
        expected_digest: str | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
    ) -> ContextImported:
        """Import a bundle from a binary file, completely or not at all.

        The session keeps its id, or gets ``session_id``.
        """
        raw = {"expected_digest": expected_digest, "session_id": session_id, "dry_run": dry_run}
        return await self.app.transfers.receive(raw, self._context(), _chunks(file))

    async def add_file(
        self, domain: str, document_id: str, file: BinaryIO, **about: Unpack[FileOptions]
    ) -> DocumentPut:
        """Add a binary file to a domain as a document.

        Takes the other parameters of ``knowledge.add_document``.
        """
        raw = {**about, "domain": domain, "document_id": document_id}
        return await self.app.uploads.receive(raw, self._context(), _chunks(file))

    def _context(self) -> CallContext:
        return CallContext(self._credential, correlation=in_current_trace(self._correlation))

    async def follow(
        self,
        session_id: str | None = None,
        keys: Sequence[str] = ("*",),
        after: int | None = None,
        *,
        types: Sequence[str] = ("*",),
        personal: bool = False,
        addressed: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Yield events as they happen, in order and without gaps.

        Starts after the seq ``after``, or with the next event.
        """
        raw = {"session_id": session_id, "keys": keys, "types": types, "personal": personal, "addressed": addressed}
        request = cast("ReadEvents", self.app.registry["events.read"].parse({**raw, "after": after}))
        context = CallContext(self._credential)
        async with aclosing(self.app.follow(context, request.interest, request.after)) as pages:
            async for page in pages:
                for event in page.events:
                    yield event


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


class _InProcess:
    """Sends calls to an App in this process."""

    def __init__(self, app: App, credential: Credential, correlation: Correlation) -> None:
        self._app = app
        self._context = CallContext(credential, correlation=correlation)

    async def call(self, operation: str, arguments: dict[str, Any], /) -> Any:  # noqa: ANN401 - the operation's response
        """Call an operation with arguments and response copied through JSON, as over HTTP.

        So arguments are validated alike, and the caller may change the response.
        """
        called = self._app.registry[operation]
        with collected_warnings() as found:
            answer = await self._app.call(called, msgspec.to_builtins(arguments), self._in_current_trace())
        for text in found:
            warnings.warn(text, CallWarning, stacklevel=3)
        return msgspec.json.decode(msgspec.json.encode(answer), type=called.response)

    def _in_current_trace(self) -> CallContext:
        correlation = self._context.correlation
        here = in_current_trace(correlation)
        return self._context if here is correlation else structs.replace(self._context, correlation=here)


def _settings(where: str | os.PathLike[str] | None, given: dict[str, Any]) -> Settings:
    # Rate limits protect a server; in process, the caller owns the database.
    given.setdefault("rate_limits", os.environ.get("WEFTLINE_RATE_LIMITS") or "off")
    if where is None:
        return Settings.from_environment(**given)
    if "://" in str(where):
        return Settings.from_environment(**given, database_url=str(where))
    path = Path(where).expanduser()
    if path.is_file() or path.suffix in _FILE_SUFFIXES:
        return Settings.from_environment(**given, data_dir=str(path.parent), database_url=str(path))
    return Settings.from_environment(**given, data_dir=str(path), database_url=str(path / "weftline.db"))
