"""Weftline inside the calling process: the operations and types of the clients, without a server."""

from __future__ import annotations

import asyncio
import os
import shutil
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from threading import Thread, current_thread
from typing import Any, BinaryIO, TypeVar, Unpack, cast

import msgspec
from msgspec import structs

from weftline.access.model import DEFAULT_TENANT
from weftline.app.app import App
from weftline.app.authentication import Credential, Local
from weftline.app.dispatch import CallContext
from weftline.app.tenants import ADMIN
from weftline.client._operations import Operations, SyncOperations
from weftline.exchange.transfer.export import ContextExported, ExportOptions
from weftline.exchange.transfer.importer import ContextImported
from weftline.kernel.correlation import NO_CORRELATION, Correlation, CorrelationIds, in_current_trace, make_correlation
from weftline.kernel.events import Event
from weftline.kernel.guards import CallWarning, collected_warnings
from weftline.knowledge.document_operations import DocumentPut, FileOptions
from weftline.sessions.events.operations import ReadEvents
from weftline.settings import Settings

_CHUNK_BYTES = 65_536
# As long as loading the embedding model takes on a slow machine.
_SEARCH_WAIT_MS = 5_000
_Result = TypeVar("_Result")
_FILE_SUFFIXES = {".db", ".sqlite", ".sqlite3"}


class Weftline(Operations):
    """Weftline in this process, as one principal. Open one with ``async with Weftline.open(folder) as weftline``."""

    def __init__(self, app: App, credential: Credential, correlation: Correlation = NO_CORRELATION) -> None:
        self.app = app
        self._credential = credential
        self._correlation = correlation
        self._in_process = _InProcess(app, credential, correlation)
        super().__init__(self._in_process)

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
            yield cls(app, Local(tenant, ADMIN, by_owner=True))
        finally:
            await app.close()

    @classmethod
    @contextmanager
    def open_sync(
        cls,
        where: str | os.PathLike[str] | None = None,
        *,
        tenant: str = DEFAULT_TENANT,
        background: bool = True,
        **settings: Any,  # noqa: ANN401 - settings are of several types
    ) -> Iterator[SyncWeftline]:
        """Open the same for code without ``await``: ``with Weftline.open_sync(folder) as weftline``.

        Any thread may call it. The work is done in one thread of its own, which ends with the block.
        """
        loop = _LoopThread(cls.open(where, tenant=tenant, background=background, **settings))
        try:
            yield SyncWeftline(loop.start(), loop)
        finally:
            loop.stop()

    def acting_as(self, principal_id: str) -> Weftline:
        """Return this Weftline as another principal of the tenant."""
        if not isinstance(self._credential, Local):
            raise TypeError("A Weftline opened with a key acts as the owner of that key only.")
        return Weftline(self.app, Local(self._credential.tenant, principal_id, by_owner=True), self._correlation)

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


class SyncWeftline(SyncOperations):
    """Weftline in this process, for code without ``await``, as one principal; ``Weftline.open_sync`` opens one."""

    def __init__(self, weftline: Weftline, loop: _LoopThread) -> None:
        self._weftline, self._loop = weftline, loop
        super().__init__(_Blocking(weftline._in_process, loop))  # noqa: SLF001 - the same module

    def __repr__(self) -> str:
        return f"<Sync{repr(self._weftline)[1:]}"

    def acting_as(self, principal_id: str) -> SyncWeftline:
        """Return this Weftline as another principal of the tenant."""
        return SyncWeftline(self._weftline.acting_as(principal_id), self._loop)

    def with_key(self, api_key: str) -> SyncWeftline:
        """Return this Weftline as the principal of an API key or token."""
        return SyncWeftline(self._weftline.with_key(api_key), self._loop)

    def with_correlation(self, **ids: Unpack[CorrelationIds]) -> SyncWeftline:
        """Return this Weftline with correlation ids, such as a turn, task or trace, for all its calls."""
        return SyncWeftline(self._weftline.with_correlation(**ids), self._loop)

    def export_to(self, file: BinaryIO, **what: Unpack[ExportOptions]) -> ContextExported:
        """Export a session, or part of it, into a file; takes the parameters of ``bundle.export``."""
        return self._loop.run(self._weftline.export_to(file, **what))

    def import_from(
        self,
        file: BinaryIO,
        *,
        expected_digest: str | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
    ) -> ContextImported:
        """Import a bundle from a binary file, completely or not at all."""
        importing = self._weftline.import_from(
            file, expected_digest=expected_digest, session_id=session_id, dry_run=dry_run
        )
        return self._loop.run(importing)

    def add_file(self, domain: str, document_id: str, file: BinaryIO, **about: Unpack[FileOptions]) -> DocumentPut:
        """Add a binary file to a domain as a document; takes the other parameters of ``knowledge.add_document``."""
        return self._loop.run(self._weftline.add_file(domain, document_id, file, **about))

    def follow(
        self,
        session_id: str | None = None,
        keys: Sequence[str] = ("*",),
        after: int | None = None,
        *,
        types: Sequence[str] = ("*",),
        personal: bool = False,
        addressed: bool = False,
    ) -> Generator[Event, None, None]:
        """Yield events as they happen, in order and without gaps.

        Starts after the seq ``after``, or with the next event.
        """
        events = self._weftline.follow(session_id, keys, after, types=types, personal=personal, addressed=addressed)
        try:
            while (event := self._loop.run(_next_event(events))) is not None:
                yield event
        finally:
            if not self._loop.ended:
                self._loop.run(events.aclose())


async def _next_event(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)


class _LoopThread:
    """An event loop in a thread of its own, with Weftline open in it; other threads run coroutines there."""

    def __init__(self, opening: AbstractAsyncContextManager[Weftline]) -> None:
        self.ended = False
        self._opening = opening
        self._opened = Future[Weftline]()
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._running = set[Future[Any]]()
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        # At the exit of a program that forgot to close, a daemon does not hold the interpreter.
        self._thread = Thread(target=self._serve, name="weftline", daemon=True)

    def start(self) -> Weftline:
        self._thread.start()
        return self._opened.result()

    def stop(self) -> None:
        """End calls that still run, close Weftline and wait for the thread."""
        self.ended = True
        if self._process != os.getpid():
            return
        with suppress(RuntimeError):  # the loop is closed if Weftline could not be opened
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Return what a coroutine returns that runs in the loop, with the context variables of the caller."""
        try:
            self._check()
        except BaseException:
            work.close()
            raise
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._running.add(running)
        try:
            return running.result()
        except CancelledError as error:
            raise RuntimeError("Weftline was closed while this call ran.") from error
        finally:
            running.cancel()  # an interrupted caller; nothing if it has ended
            self._running.discard(running)

    def _check(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError("Weftline was opened before this process was forked: open it in the new process.")
        if self.ended:
            raise RuntimeError("This Weftline is closed: call it inside 'with Weftline.open_sync(...)'.")
        if current_thread() is self._thread:
            raise RuntimeError("This thread runs Weftline itself and cannot wait for it: call it from another thread.")

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._hold_open())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that opens or closes
            if self._opened.done():
                self._failure = error
            else:
                self._opened.set_exception(error)

    async def _hold_open(self) -> None:
        async with self._opening as weftline:
            self._opened.set_result(weftline)
            await self._stopping.wait()
            for each in tuple(self._running):
                each.cancel()


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
        answer, found = await self.answer(operation, arguments)
        for text in found:
            warnings.warn(text, CallWarning, stacklevel=3)
        return answer

    async def answer(self, operation: str, arguments: dict[str, Any]) -> tuple[Any, list[str]]:
        """Return the response of an operation and the warnings about the call."""
        called = self._app.registry[operation]
        with collected_warnings() as found:
            answer = await self._app.call(called, msgspec.to_builtins(arguments), self._in_current_trace())
        return msgspec.json.decode(msgspec.json.encode(answer), type=called.response), found

    def _in_current_trace(self) -> CallContext:
        correlation = self._context.correlation
        here = in_current_trace(correlation)
        return self._context if here is correlation else structs.replace(self._context, correlation=here)


class _Blocking:
    """Sends calls to an App in another thread of this process."""

    def __init__(self, in_process: _InProcess, loop: _LoopThread) -> None:
        self._in_process, self._loop = in_process, loop

    def call(self, operation: str, arguments: dict[str, Any], /) -> Any:  # noqa: ANN401 - the operation's response
        """Call an operation, and warn in the thread that calls it."""
        answer, found = self._loop.run(self._in_process.answer(operation, arguments))
        for text in found:
            warnings.warn(text, CallWarning, stacklevel=3)
        return answer


def _settings(where: str | os.PathLike[str] | None, given: dict[str, Any]) -> Settings:
    # Rate limits protect a server, and so does a short wait for the index; in process, the caller owns the database.
    given.setdefault("rate_limits", os.environ.get("WEFTLINE_RATE_LIMITS") or "off")
    given.setdefault("search_wait_ms", int(os.environ.get("WEFTLINE_SEARCH_WAIT_MS") or _SEARCH_WAIT_MS))
    if where is None:
        return Settings.from_environment(**given)
    if "://" in str(where):
        return Settings.from_environment(**given, database_url=str(where))
    path = Path(where).expanduser()
    if path.is_file() or path.suffix in _FILE_SUFFIXES:
        return Settings.from_environment(**given, data_dir=str(path.parent), database_url=str(path))
    return Settings.from_environment(**given, data_dir=str(path), database_url=str(path / "weftline.db"))
