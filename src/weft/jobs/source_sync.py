"""Looking at sources of knowledge: when they are due, when somebody asks, and all the time where they are watched."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from msgspec import structs

from weft.capabilities.knowledge.document_content import check_size, content_of, packed
from weft.capabilities.knowledge.document_operations import AddDocument, about_of, add_document
from weft.capabilities.knowledge.documents import About
from weft.capabilities.knowledge.model import LARGEST_DOCUMENT_BYTES, DocumentTooLarge
from weft.capabilities.knowledge.quotas import QuotaExceeded
from weft.capabilities.knowledge.sources.hooks import HookAnswer, is_signed, parsed, signed_call
from weft.capabilities.knowledge.sources.model import (
    ASKED,
    HookRefused,
    KnownFile,
    Source,
    Synced,
    check_name,
    document_of,
    is_token_of,
    look_of,
)
from weft.capabilities.knowledge.sources.sync import SourceGone, SourceItem, SourceSync, Supply, planned
from weft.jobs.lease import Lease, LeaseLost
from weft.jobs.periodic import attempt
from weft.kernel.clock import to_micros
from weft.kernel.errors import InvalidInput, Unavailable, WeftError
from weft.kernel.guards import GuardedCall
from weft.kernel.ids import is_name
from weft.storage.sql.database import SYSTEM, Scope
from weft.storage.sql.knowledge_sources import SqlSourceStore, sources_to_look_at
from weft.storage.sql.unit_of_work import SystemTransactions, logged_write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from weft.capabilities.knowledge.document_operations import NewDocument
    from weft.capabilities.knowledge.sources.hooks import HookBody, SignedCall
    from weft.capabilities.knowledge.sources.model import File, Kind
    from weft.capabilities.knowledge.sources.store import Fetcher, Folders
    from weft.kernel.clock import Clock
    from weft.kernel.guards import EntryPoint, Guards
    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Database, Transaction
    from weft.storage.sql.knowledge_sources import DueSource
    from weft.storage.sql.unit_of_work import Injector

T = TypeVar("T")

# A process that does one thing and ends leaves this work to those that stay.
_FIRST_LOOK_SECONDS = 1.0
# What another process was asked for.
_LOOK_EVERY_SECONDS = 5.0
_WATCH_SECONDS = 2.0
_LEAST_REST_SECONDS = 1.0
_AT_ONCE = 8
_OF_ONE_TENANT = 2
# So many files, or so many bytes of them, are put together.
_FILES_AT_ONCE = 20
_BYTES_AT_ONCE = 4 * 2**20
_SECOND = 1_000_000
_WORK = "knowledge.sync"


class _Key(NamedTuple):
    """A source of a tenant."""

    tenant: str
    source_id: str


class _Look(NamedTuple):
    """One look at a source: what it changed, and what it looked like."""

    done: Synced
    seen: str


class Stopped(Exception):
    """A source may not go on, for a reason that somebody must be told."""


class SourceSyncJob:
    """Keeps the domains of every tenant up to date with their sources, in this process while no other does the same."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        injector: Injector,
        guards: Guards,
        folders: Folders,
        private_hosts: Sequence[str],
    ) -> None:
        self._database = database
        self._clock = clock
        self._folders = folders
        self._private_hosts = private_hosts
        self._known_fetcher: Fetcher | None = None
        self._sources = SystemTransactions(database, injector, SourceSync)
        self._injector = injector
        self._guards = guards
        self._wake = asyncio.Event()
        self._served: dict[_Key, asyncio.Task[None]] = {}
        self._free = asyncio.Semaphore(_AT_ONCE)
        # Of each tenant only a few are looked at at a time, so that those of others are never all behind them.
        self._rooms: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def check(self, actor: Actor, kind: Kind, location: str) -> None:
        if kind == "folder":
            await self._folders.check(actor.tenant, location)
        elif kind == "url":
            await self._fetcher.check(location)

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Look at what is due, for as long as the process lives."""
        await asyncio.sleep(_FIRST_LOOK_SECONDS)
        rests_seconds = 0.0
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(rests_seconds):
                        await self._wake.wait()
                self._wake.clear()
                rests_seconds = _LOOK_EVERY_SECONDS
                with contextlib.suppress(WeftError):
                    found = await self._database.read(SYSTEM, sources_to_look_at)
                    self._begin(found)
                    rests_seconds = self._rest(found)
        finally:
            await self._end_all()

    async def look(self) -> None:
        """Look at everything that is due or has changed, once."""
        for each in await self._database.read(SYSTEM, sources_to_look_at):
            await self._consider(each)

    async def sync(self, tenant: str, source_id: str) -> None:
        """Bring a domain up to date with a source, unless another process does."""
        lease = Lease(self._database, self._clock, tenant, f"{_WORK} {source_id}")
        with contextlib.suppress(SourceGone):
            await lease.do(partial(self._sync, source_id=source_id))

    async def hook(self, tenant: str, source_id: str, token: str) -> Source:
        """Return the source that a hook is of; to whoever guesses, there is none."""
        if not (is_name(tenant) and is_name(source_id)):
            raise HookRefused
        source = await self._database.read(Scope(tenant), lambda tx: SqlSourceStore(tx).find(source_id))
        if source is None or not is_token_of(source, token) or not source.enabled:
            raise HookRefused
        return source

    async def call(self, tenant: str, source: Source, headers: Mapping[str, str], body: bytes) -> HookAnswer:
        """Take a call to a source's hook: have the source looked at, or put what the call brings."""
        call = signed_call(source, headers, body, self._now()) if is_signed(headers) else None
        if source.kind != "hook":
            await self._sources.write(tenant, partial(_ask, source_id=source.source_id))
            self.wake()
            return HookAnswer(sync=True)
        if call is None:
            raise HookRefused
        try:
            return await self._take_in(tenant, source, call, parsed(body))
        except (InvalidInput, DocumentTooLarge, Unavailable):
            raise
        except (Stopped, SourceGone, WeftError) as error:
            await self._note(tenant, source, error)
            # How much there may be of what is for those who may look into the domain.
            raise (QuotaExceeded() if isinstance(error, QuotaExceeded) else HookRefused()) from None

    @property
    def _fetcher(self) -> Fetcher:
        if self._known_fetcher is None:
            from weft.providers.http_fetcher import HttpFetcher  # noqa: PLC0415 - most fetch nothing, and it takes long

            self._known_fetcher = HttpFetcher(self._private_hosts)
        return self._known_fetcher

    def _rest(self, found: Sequence[DueSource]) -> float:
        """Return for how long nothing is to be done, as far as is known now: what is due by now is in hand."""
        now = self._now()
        due = [(due_at - now) / _SECOND for each in found if (due_at := each.source.due_at or now) > now]
        watched = [_WATCH_SECONDS for each in found if each.source.watch]
        return max(_LEAST_REST_SECONDS, min([_LOOK_EVERY_SECONDS, *due, *watched]))

    def _begin(self, found: Sequence[DueSource]) -> None:
        """Take every source in hand that is not yet: one that is slow keeps none of the others waiting."""
        for each in found:
            key = _Key(each.tenant, each.source.source_id)
            if key not in self._served:
                self._served[key] = asyncio.create_task(self._serve(key, each), name="weft-source")

    async def _serve(self, key: _Key, each: DueSource) -> None:
        try:
            async with self._rooms.setdefault(key.tenant, asyncio.Semaphore(_OF_ONE_TENANT)), self._free:
                await self._consider(each)
        finally:
            del self._served[key]

    async def _end_all(self) -> None:
        """End everything that is under way; whoever comes next goes on with it."""
        tasks = list(self._served.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _consider(self, each: DueSource) -> None:
        if each.source.is_due(self._now()) or await self._has_changed(each):
            await attempt("knowledge sources", self.sync(each.tenant, each.source.source_id), tenant=each.tenant)

    async def _has_changed(self, each: DueSource) -> bool:
        """Tell whether a folder that is watched looks otherwise than when it was last looked at.

        One that something was wrong with is looked at when it is due.
        """
        if not each.source.watch or each.source.error is not None:
            return False
        try:
            return look_of(await self._folders.files(each.tenant, each.source)) != each.source.seen
        except Exception:  # noqa: BLE001 - whatever it is, the look that follows meets it again, and notes it
            return True

    async def _sync(self, lease: Lease, source_id: str) -> None:
        source = await lease.write(lambda tx: self._sources.within(tx).begin(source_id))
        look = self._look_at_folder if source.kind == "folder" else self._look_at_address
        try:
            done, seen = await look(lease, source)
        except (LeaseLost, SourceGone, Unavailable):
            raise
        except Exception as error:
            await lease.write(self._sources.doing(partial(_fail, source_id=source_id, error=error)))
            if not isinstance(error, Stopped | WeftError | OSError):
                raise
        else:
            asked = bool(source.asked)
            await lease.write(lambda tx: self._sources.within(tx).finish(source_id, done, seen, asked=asked))

    async def _look_at_folder(self, lease: Lease, source: Source) -> _Look:
        files = await self._folders.files(lease.tenant, source)
        known = await lease.read(lambda tx: SqlSourceStore(tx).files(source.source_id))
        plan = planned(source, files, known)
        done = Synced(unchanged=plan.unchanged)
        for some in _in_groups(plan.changed):
            items = [await self._read(lease.tenant, source, file) for file in some]
            put = await self._supplied(lease, source, partial(Supply.put, source=source, items=items))
            done += put
        for start in range(0, len(plan.gone), _FILES_AT_ONCE):
            gone = plan.gone[start : start + _FILES_AT_ONCE]
            removed = await self._supplied(lease, source, partial(Supply.remove, source=source, document_ids=gone))
            done += Synced(removed=removed)
        return _Look(done, look_of(files))

    async def _look_at_address(self, lease: Lease, source: Source) -> _Look:
        fetched = await self._fetcher.fetch(source.location, source.seen, LARGEST_DOCUMENT_BYTES)
        if fetched.error is not None:
            raise OSError(0, fetched.error)
        if fetched.gone:
            gone = [source.prefix]
            removed = await self._supplied(lease, source, lambda supply: supply.remove(source, gone))
            return _Look(Synced(removed=removed), "")
        if fetched.content is None:
            return _Look(Synced(unchanged=1), fetched.seen)
        file = KnownFile(source.prefix, len(fetched.content), self._now(), "")
        item = await self._admitted(lease.tenant, source, file, About(media_type=fetched.media_type), fetched.content)
        done = await self._supplied(lease, source, lambda supply: supply.put(source, [item]))
        # What was not taken is to be given again.
        return _Look(done, "" if done.failed else fetched.seen)

    async def _read(self, tenant: str, source: Source, file: File) -> SourceItem:
        """Read a file; one that is too large or cannot be read is noted, and does not keep the others waiting."""
        name = document_of(source, file.path)
        try:
            check_name(name)
            check_size(file.size)
            content = await self._folders.read(tenant, source, file.path, LARGEST_DOCUMENT_BYTES)
        except (OSError, WeftError) as error:
            reason = error.message if isinstance(error, WeftError) else "It cannot be read."
            return SourceItem(KnownFile(name, file.size, file.changed_at, "", reason))
        known = KnownFile(name, file.size, file.changed_at, "")
        return await self._admitted(tenant, source, known, About(), content)

    async def _admitted(self, tenant: str, source: Source, file: KnownFile, about: About, content: bytes) -> SourceItem:
        """Return a document as guards admit it; one that they refuse is noted with the reason."""
        try:
            about, content = await self._guarded(tenant, source, file.document_id, about, content, "sync")
        except WeftError as error:
            return SourceItem(structs.replace(file, error=error.message))
        made = await asyncio.to_thread(packed, content)
        return SourceItem(structs.replace(file, digest=made.digest), about, made)

    async def _guarded(
        self, tenant: str, source: Source, document_id: str, about: About, content: bytes, entry: EntryPoint
    ) -> tuple[About, bytes]:
        if not self._guards:
            return about, content
        maker = await self._sources.read(tenant, lambda sources: sources.maker(source))
        if isinstance(maker, str):
            raise Stopped(maker)
        request = AddDocument(domain=source.domain, document_id=document_id, text="", **structs.asdict(about))
        admitted, content = await self._guards.admit(GuardedCall(add_document, request, maker, entry), content)
        return about_of(admitted), content

    async def _supplied(self, lease: Lease, source: Source, work: Callable[[Supply], Awaitable[T]]) -> T:
        """Do something with the rights that whoever made the source has now."""
        return await lease.write(lambda tx: self._as_maker(tx, source, work))

    async def _as_maker(self, transaction: Transaction, source: Source, work: Callable[[Supply], Awaitable[T]]) -> T:
        maker = await self._sources.within(transaction).maker(source)
        if isinstance(maker, str):
            raise Stopped(maker)
        return await work(self._injector.build(Supply, maker, transaction))

    async def _note(self, tenant: str, source: Source, error: Exception) -> None:
        """Tell those who look after a source why a call to its hook was refused."""
        with contextlib.suppress(SourceGone):
            await self._sources.write(tenant, partial(_fail, source_id=source.source_id, error=error))

    async def _take_in(self, tenant: str, source: Source, call: SignedCall, brought: HookBody) -> HookAnswer:
        """Put what a signed call brings, with the rights of whoever made the source."""
        items = [await self._hooked(tenant, source, document) for document in brought.documents]
        removed = [f"{source.prefix}{name}" for name in brought.removed]
        work = partial(Supply.take_in, source=source, call=call, items=items, removed=removed)
        return await logged_write(self._database, Scope(tenant), lambda tx: self._as_maker(tx, source, work))

    async def _hooked(self, tenant: str, source: Source, document: NewDocument) -> SourceItem:
        name = f"{source.prefix}{document.document_id}"
        check_name(name)
        content = await asyncio.to_thread(content_of, document.text, document.content)
        about, content = await self._guarded(tenant, source, name, about_of(document), content, "hook")
        made = await asyncio.to_thread(packed, content)
        return SourceItem(KnownFile(name, made.size, 0, made.digest), about, made)

    def _now(self) -> int:
        return to_micros(self._clock.now())


async def _ask(sources: SourceSync, source_id: str) -> None:
    """Ask for a source to be looked at, unless somebody did already."""
    source = await sources.sources.find_locked(source_id)
    if source is not None and not source.asked:
        await sources.sources.update(structs.replace(source, asked=ASKED))


async def _fail(sources: SourceSync, source_id: str, error: Exception) -> None:
    await sources.fail(source_id, _reason_of(error), stop=isinstance(error, Stopped))


def _reason_of(error: Exception) -> str:
    """Return what whoever looks after a source is told of what went wrong."""
    if isinstance(error, WeftError):
        return error.message
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror or type(error).__name__}"
    return str(error) if isinstance(error, Stopped) else f"something went wrong inside Weft: {type(error).__name__}"


def _in_groups(files: Sequence[File]) -> list[list[File]]:
    """Return files in groups that are small enough to be put together."""
    groups: list[list[File]] = []
    room = 0
    for file in files:
        if not groups or len(groups[-1]) == _FILES_AT_ONCE or file.size > room:
            groups.append([])
            room = _BYTES_AT_ONCE
        groups[-1].append(file)
        room -= file.size
    return groups
