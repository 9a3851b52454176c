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
from weft.capabilities.knowledge.contents import Content
from weft.capabilities.knowledge.documents import About, Documents
from weft.capabilities.knowledge.model import DocumentNotFound
from weft.capabilities.knowledge_sources.model import (
    ADMINS,
    ASKED_ANEW,
    Done,
    File,
    KnownFile,
    Source,
    document_of,
)
from weft.capabilities.knowledge_sources.store import SourceStore
from weft.kernel.clock import Clock, to_micros
from weft.kernel.errors import AuthenticationError
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.identity import Actor


class SourceGone(Exception):
    """The source was removed, or stopped, while it was being looked at."""


class Plan(NamedTuple):
    """What must be done for a domain to have what a folder has: files to be read, and documents to be taken away."""

    changed: Sequence[File]
    gone: Sequence[str]
    unchanged: int


class Item(NamedTuple):
    """A document of a source, ready to be put; without content where it could not be read: ``known`` says why."""

    known: KnownFile
    about: About = About()
    content: Content | None = None


class Sources(msgspec.Struct, frozen=True):
    """The tenant's sources, and what is told of them."""

    actor: Actor
    sources: SourceStore
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

    async def finish(self, source_id: str, done: Done, seen: str, *, asked: bool) -> None:
        """Note that everything was looked at, and what that changed."""
        source = await self._locked(source_id)
        synced = structs.replace(
            source, error=None, seen=seen, done=done, synced_at=self.now, due_at=source.next_due(self.now)
        )
        await self.sources.update(synced)
        if asked or done.changed or done.failed or source.error:
            await self.tell("knowledge_source.synced", synced, **structs.asdict(done))

    async def fail(self, source_id: str, reason: str, *, stop: bool = False) -> None:
        """Note that a source could not be looked at; its documents stay as they are."""
        source = await self._locked(source_id)
        failed = structs.replace(source, error=reason, enabled=not stop, due_at=source.next_due(self.now, failed=True))
        await self.sources.update(failed)
        if source.error != reason:
            await self.tell("knowledge_source.failed", failed, reason=reason)

    async def tell(self, event: str, source: Source, **data: object) -> None:
        await self.outbox.publish(
            NewEvent(
                type=event,
                session_id=None,
                subject=source.source_id,
                actor=self.actor.participant,
                readable_by=ADMINS,
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

    async def put(self, source: Source, items: Sequence[Item]) -> Done:
        """Put documents, and note what their files looked like, together."""
        await self._check(source)
        done = Done()
        for item in items:
            outcome = await self._put(source, item)
            done = structs.replace(done, **{outcome: getattr(done, outcome) + 1})
            await self.sources.put_file(source.source_id, item.known)
        return done

    async def remove(self, source: Source, document_ids: Sequence[str]) -> int:
        """Take documents away that their source no longer has; return how many were there."""
        await self._check(source)
        removed = 0
        for document_id in document_ids:
            try:
                await self.documents.remove(source.domain, document_id)
            except DocumentNotFound:
                removed -= 1
            removed += 1
            await self.sources.forget_file(source.source_id, document_id)
        return removed

    async def remove_all(self, source: Source) -> int:
        """Take away every document that came from a source; return how many there were."""
        return await self.remove(source, sorted(await self.sources.files(source.source_id)))

    async def _check(self, source: Source) -> None:
        """Make sure that a source is still there, and stays so: whoever removes it locks its domain first, too."""
        await self.documents.domains.lock(source.domain)
        if await self.sources.find(source.source_id) is None:
            raise SourceGone

    async def _put(self, source: Source, item: Item) -> str:
        if item.content is None:
            return "failed"
        put = await self.documents.put(source.domain, item.known.document_id, item.about, item.content)
        if put.unchanged:
            return "unchanged"
        return "added" if put.document.version == 1 else "updated"


def planned(source: Source, files: Sequence[File], known: Mapping[str, KnownFile]) -> Plan:
    """Compare the files of a folder with what is known of them."""
    named = {document_of(source, file.path): file for file in files}
    changed = [file for name, file in named.items() if not _is_known(file, known.get(name))]
    gone = sorted(known.keys() - named.keys())
    return Plan(changed, gone, len(named) - len(changed))


def _is_known(file: File, known: KnownFile | None) -> bool:
    return known is not None and (known.size, known.changed_at) == (file.size, file.changed_at)


def added_up(one: Done, other: Done) -> Done:
    return Done(*(mine + theirs for mine, theirs in zip(structs.astuple(one), structs.astuple(other), strict=True)))
