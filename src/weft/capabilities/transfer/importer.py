"""Importing: a bundle that was checked to its last byte, put where it belongs in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.events.model import EventQuery
from weft.capabilities.messages.model import ADMINS
from weft.capabilities.records.recorder import Recorder, RecordExists
from weft.capabilities.records.refs import Digest
from weft.capabilities.sessions.model import ALL_SESSIONS, Session, SessionExists
from weft.capabilities.transfer.bundle_format import BundleDamaged
from weft.capabilities.transfer.restore_session import (
    IMPORTED,
    RestoreStores,
    SessionRestore,
    count_new_records,
    in_batches,
    new_records,
    read_cooperatively,
    record_of,
    store_content,
)
from weft.kernel.clock import to_micros
from weft.kernel.errors import ContentTooLarge, InvalidInput
from weft.kernel.fields import Name
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, operation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import BinaryIO

    from weft.capabilities.transfer.bundle_format import BundleSession
    from weft.capabilities.transfer.validate_bundle import BundleReport, EntryWithContent

_PAGE = 500


class ImportContext(Request):
    """A bundle, and what is known of it."""

    bundle: Annotated[str, msgspec.Meta(description="The bundle, as export_context gave it: ndjson or json.")]
    expected_digest: Annotated[
        Digest | None,
        msgspec.Meta(description="The digest you got from whoever exported it: no other bundle is taken."),
    ] = None
    session_id: Annotated[
        Name | None,
        msgspec.Meta(description="Open the bundle's session under this id: what is named after it follows."),
    ] = None
    dry_run: Annotated[
        bool, msgspec.Meta(description="Check everything and say what would be made; change nothing.")
    ] = False


class ContextImported(Response, omit_defaults=False):
    """What was made: versions of keys, messages, events, snapshots and records.

    ``skipped`` records were there already, word for word; ``unchanged``: the same bundle had been imported before.
    """

    on_record = ("bundle_id", "session_id", "digest", "records", "unchanged")

    bundle_id: str
    scope: str
    digest: str
    session_id: str | None = None
    versions: int = 0
    messages: int = 0
    events: int = 0
    snapshots: int = 0
    records: int = 0
    skipped: int = 0
    unchanged: bool = False
    dry_run: bool = False


class Importer(Protocol):
    """Takes in bundles in transactions of their own."""

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
    session=SessionUse.CREATES,
    errors=(BundleDamaged, SessionExists, RecordExists, ContentTooLarge),
)
async def import_context(request: ImportContext, actor: Actor, desk: Importer) -> ContextImported:
    """Import a bundle that another Weft, or this one, exported. All of it is taken over, or nothing.

    A session comes with its id, its board with all versions, its messages and events, under the names of those who
    made them; so this is for admins. What was altered since it was exported is refused, with the place. If there is a
    session of this id, such as an earlier handoff, name another with ``session_id``.
    """
    return await desk.import_text(actor, request)


class ImportService(msgspec.Struct, frozen=True):
    """Everything an import needs, gathered for its caller."""

    stores: RestoreStores
    recorder: Recorder

    async def take(
        self, found: BundleReport, file: BinaryIO, session_id: str | None = None, *, rehearsal: bool = False
    ) -> ContextImported:
        """Take over a bundle that was checked, with its session under another id if one is given.

        A rehearsal only looks, and says what would be made.
        """
        told = ContextImported(
            bundle_id=found.header.bundle_id, scope=found.header.scope, digest=found.digest, dry_run=rehearsal
        )
        if found.session is None:
            _check_new_id(session_id, found.header.scope)
            counts = await (self._count(file) if rehearsal else self._keep(file))
            return structs.replace(told, **counts)
        session = _session(found.session, session_id or found.session.session_id)
        told = structs.replace(told, session_id=session.session_id)
        if not await self._is_free(session, rehearsal=rehearsal):
            await self._check_is_here(found, session.session_id)
            return structs.replace(told, unchanged=True)
        reopening = SessionRestore(self.stores, found, session)
        return structs.replace(told, **await (reopening.rehearse(file) if rehearsal else reopening.take(file)))

    async def _is_free(self, session: Session, *, rehearsal: bool) -> bool:
        """Tell whether there is no session of this id yet; but for a rehearsal there is one then."""
        sessions = self.stores.sessions
        return await sessions.find(session.session_id) is None if rehearsal else await sessions.add(session)

    async def _keep(self, file: BinaryIO) -> dict[str, int]:
        """Keep the records of anything but a session as they are, for admins to see."""
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
        async for piece in read_cooperatively(file, self.stores.turns):
            if piece.line.record is not None:
                yield piece

    async def _check_is_here(self, found: BundleReport, session_id: str) -> None:
        """Refuse a bundle whose session is here, unless it came with this very bundle."""
        wanted, after = EventQuery(session_id=session_id, subject=session_id), 0
        while page := await self.stores.events.find(wanted, after, _PAGE):
            after = page[-1].event.seq
            if any(each.event.type == IMPORTED and each.event.data.get("digest") == found.digest for each in page):
                return
        raise SessionExists(
            f"There is a session '{session_id}' already.",
            hint="Open this one beside it, under another id: name it with session_id (weft import --as-session NAME). "
            "A bundle that is here already changes nothing.",
            resource_id=session_id,
        )


def _check_new_id(session_id: str | None, scope: str) -> None:
    if session_id is not None:
        raise InvalidInput(f"session_id: a bundle with the scope {scope} opens no session", field="session_id")


def _session(entry: BundleSession, session_id: str) -> Session:
    if session_id == ALL_SESSIONS:
        raise InvalidInput(f"session_id: '{ALL_SESSIONS}' means all sessions there are", field="session_id")
    return Session(
        session_id=session_id,
        purpose=entry.purpose,
        metadata=entry.metadata,
        config=entry.config,
        created_by=entry.created_by,
        created_at=to_micros(entry.created_at),
        updated_at=to_micros(entry.updated_at),
        archived_at=None if entry.archived_at is UNSET else to_micros(entry.archived_at),
    )
