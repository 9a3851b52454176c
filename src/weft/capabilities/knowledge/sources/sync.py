"""Bringing a domain up to date with one of its sources: each step is a transaction, and what was done is known by rows.

Whoever dies on the way is followed by someone who compares the same files with the same rows, and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import structs

from weft.capabilities.access.authentication import identify_local
from weft.capabilities.access.store import AccessStore
from weft.capabilities.knowledge.document_content import PackedContent
from weft.capabilities.knowledge.documents import About, Documents
from weft.capabilities.knowledge.domains import cleared_for
from weft.capabilities.knowledge.model import Document
from weft.capabilities.knowledge.sources.hooks import TOLERANCE, HookAnswer, SignedCall
from weft.capabilities.knowledge.sources.model import (
    ADMINS,
    ASKED_ANEW,
    File,
    KnownFile,
    NotTaken,
    Source,
    Synced,
    document_of,
)
from weft.capabilities.knowledge.sources.store import SourceStore
from weft.capabilities.knowledge.store import DomainStore
from weft.kernel.clock import Clock, to_micros
from weft.kernel.errors import AuthenticationError
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.identity import Actor

_ANOTHERS = "Someone else has put a document of this name, and it stays; remove it if this one shall take its place."


class SourceGone(Exception):
    """The source was removed, or stopped, while it was being looked at."""


class Plan(NamedTuple):
    """What must be done for a domain to have what a folder has: files to be read, and documents to be taken away."""

    changed: Sequence[File]
    gone: Sequence[str]
    unchanged: int


class SourceItem(NamedTuple):
    """A document of a source, ready to be put; without content where it could not be read: ``known`` says why."""

    known: KnownFile
    about: About = About()
    content: PackedContent | None = None


class SourceSync(msgspec.Struct, frozen=True):
    """The tenant's sources, and what is told of them."""

    actor: Actor
    sources: SourceStore
    domains: DomainStore
    access: AccessStore
    outbox: Outbox
    clock: Clock

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def maker(self, source: Source) -> Actor | str:
        """Return with whose rights a source puts documents, as they stand now, or why it may not."""
        try:
            maker = await identify_local(source.principal_id, self.access)
        except AuthenticationError:
            return f"'{source.principal_id}', who made it, no longer exists or has been disabled"
        return maker if maker.is_admin else f"'{source.principal_id}', who made it, is no admin any more"

    async def begin(self, source_id: str) -> Source:
        """Note that a source is being looked at: whoever asks from now on asks for another look."""
        source = await self._locked(source_id)
        if source.asked == ASKED_ANEW:
            await self.sources.distrust_files(source_id)
            source = structs.replace(source, seen="")
        # It stays due, so that whoever comes after a crash goes on.
        await self.sources.update(structs.replace(source, asked=0, due_at=self.now))
        return source

    async def finish(self, source_id: str, done: Synced, seen: str, *, asked: bool) -> None:
        """Note that everything was looked at, and what that changed."""
        source = await self._locked(source_id)
        failures = source.failures + 1 if done.failed else 0
        synced = structs.replace(source, error=None, failures=failures, seen=seen, done=done, synced_at=self.now)
        await self.sources.update(structs.replace(synced, due_at=synced.next_due(self.now)))
        if asked or done.changed or source.error or done.failures != source.done.failures:
            await self.tell("knowledge_source.synced", synced, **done.figures)

    async def fail(self, source_id: str, reason: str, *, stop: bool = False) -> None:
        """Note that a source could not be looked at; its documents stay as they are."""
        source = await self._locked(source_id)
        failed = structs.replace(source, error=reason, failures=source.failures + 1, enabled=not stop)
        await self.sources.update(structs.replace(failed, due_at=failed.next_due(self.now)))
        if source.error != reason:
            await self.tell("knowledge_source.failed", failed, reason=reason)

    async def tell(self, event: str, source: Source, **data: object) -> None:
        await self.outbox.publish(
            NewEvent(
                type=event,
                session_id=None,
                subject=source.source_id,
                actor=self.actor.participant,
                participants=ADMINS,
                # Not every admin is cleared for every domain.
                readable_by=await cleared_for(source.domain, self.domains),
                data={"domain": source.domain, "kind": source.kind, **data},
            )
        )

    async def _locked(self, source_id: str) -> Source:
        source = await self.sources.find_locked(source_id)
        if source is None or not source.enabled:
            raise SourceGone
        return source


class Supply(msgspec.Struct, frozen=True):
    """Documents of a source on their way into its domain, with the rights of whoever made the source."""

    sources: SourceStore
    documents: Documents

    async def put(self, source: Source, items: Sequence[SourceItem]) -> Synced:
        """Put documents, and note what their files looked like, together."""
        await self._check(source)
        done = Synced()
        for item in items:
            done += await self._put(source, item)
        return done

    async def remove(self, source: Source, document_ids: Sequence[str]) -> int:
        """Take documents away that their source no longer has; return how many were there."""
        await self._check(source)
        return await self._remove_each(source, document_ids)

    async def remove_all(self, source: Source) -> int:
        """Take away every document that came from a source, stopped or not; return how many there were."""
        await self._locked(source)
        return await self._remove_each(source, sorted(await self.sources.files(source.source_id)))

    async def take_in(
        self, source: Source, call: SignedCall, items: Sequence[SourceItem], removed: Sequence[str]
    ) -> HookAnswer:
        """Put what a signed call brings and note the call; one that was taken before is only answered again."""
        now = await self._check(source)
        before = await self.sources.answer_to(source.source_id, call.call_id)
        if before is None:
            answer = await self._taken_in(now, items, removed)
        else:
            answer = msgspec.json.decode(before, type=HookAnswer)
        await self.sources.put_call(source.source_id, call, msgspec.json.encode(answer).decode())
        await self.sources.forget_calls(source.source_id, self.documents.domains.now - TOLERANCE)
        return answer

    async def _taken_in(self, source: Source, items: Sequence[SourceItem], removed: Sequence[str]) -> HookAnswer:
        done = await self.put(source, items)
        gone = await self.remove(source, removed)
        noted = structs.replace(source, synced_at=self.documents.domains.now, error=None, failures=0)
        await self.sources.update(structs.replace(noted, done=done + Synced(removed=gone)))
        refused = (NotTaken(each.document_id.removeprefix(source.prefix), each.reason) for each in done.failures)
        return HookAnswer(accepted=len(items) - done.failed, removed=gone, refused=tuple(refused))

    async def _check(self, source: Source) -> Source:
        """Make sure that nobody has removed a source or stopped it, and nobody does before this is done."""
        found = await self._locked(source)
        if not found.enabled:
            raise SourceGone
        return found

    async def _locked(self, source: Source) -> Source:
        # Whoever changes or removes a source locks its domain first, too.
        await self.documents.domains.lock(source.domain)
        found = await self.sources.find_locked(source.source_id)
        if found is None:
            raise SourceGone
        return found

    async def _put(self, source: Source, item: SourceItem) -> Synced:
        name = item.known.document_id
        known = await self.sources.file(source.source_id, name)
        there = await self.documents.documents.find(source.domain, name)
        if item.content is None:
            return await self._not_taken(source, item.known, known)
        if there is not None and not _is_own(there, known):
            return await self._not_taken(source, structs.replace(item.known, error=_ANOTHERS), known)
        put = await self.documents.put(source.domain, name, item.about, item.content)
        await self.sources.put_file(source.source_id, item.known)
        if put.unchanged:
            return Synced(unchanged=1)
        return Synced(added=1) if put.document.version == 1 else Synced(updated=1)

    async def _not_taken(self, source: Source, file: KnownFile, known: KnownFile | None) -> Synced:
        """Note why a file was not put. What was put of it before stays the source's own."""
        digest = "" if known is None else known.digest
        await self.sources.put_file(source.source_id, structs.replace(file, digest=digest))
        return Synced(failed=1, failures=(NotTaken(file.document_id, file.error or ""),))

    async def _remove_each(self, source: Source, document_ids: Sequence[str]) -> int:
        return sum([await self._remove(source, document_id) for document_id in document_ids])

    async def _remove(self, source: Source, document_id: str) -> bool:
        known = await self.sources.file(source.source_id, document_id)
        await self.sources.forget_file(source.source_id, document_id)
        there = await self.documents.documents.find(source.domain, document_id)
        if there is None or not _is_own(there, known):
            return False
        await self.documents.remove(source.domain, document_id)
        return True


def planned(source: Source, files: Sequence[File], known: Mapping[str, KnownFile]) -> Plan:
    """Compare the files of a folder with what is known of them."""
    named = {document_of(source, file.path): file for file in files}
    changed = [file for name, file in named.items() if not _is_known(file, known.get(name))]
    gone = sorted(known.keys() - named.keys())
    return Plan(changed, gone, len(named) - len(changed))


def _is_known(file: File, known: KnownFile | None) -> bool:
    """Tell whether a file is as it was put; one that could not be put is tried again at every look."""
    return known is not None and (known.size, known.changed_at, known.error) == (file.size, file.changed_at, None)


def _is_own(document: Document, known: KnownFile | None) -> bool:
    """Tell whether a document is as its source put it: whoever put something else there since has made it theirs."""
    return known is not None and known.digest == document.digest
