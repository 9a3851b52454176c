"""Importing: a bundle that was checked to its last byte, put where it belongs in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.events.model import Wanted
from weft.capabilities.exchange.bundles import BundleDamaged
from weft.capabilities.exchange.reopening import (
    IMPORTED,
    Reopening,
    Stores,
    count_unknown,
    in_groups,
    keep_content,
    record_of,
    unknown_of,
)
from weft.capabilities.exchange.surveying import pieces, read
from weft.capabilities.messages.model import ADMINS
from weft.capabilities.records.recording import Recorder, RecordExists
from weft.capabilities.records.refs import Digest
from weft.capabilities.sessions.model import ALL_SESSIONS, Session, SessionExists
from weft.kernel.clock import to_micros
from weft.kernel.errors import ContentTooLarge, InvalidInput
from weft.kernel.fields import Name
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, operation

if TYPE_CHECKING:
    from typing import BinaryIO

    from weft.capabilities.exchange.bundles import SessionEntry
    from weft.capabilities.exchange.surveying import Survey

_MOST_TOLD = 1_000


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


class ImportDesk(Protocol):
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
async def import_context(request: ImportContext, actor: Actor, desk: ImportDesk) -> ContextImported:
    """Import a bundle that another Weft, or this one, exported. All of it is taken over, or nothing.

    A session comes with its id, its board with all versions, its messages and events, under the names of those who
    made them; so this is for admins. What was altered since it was exported is refused, with the place. If there is a
    session of this id, such as an earlier handoff, name another with ``session_id``.
    """
    return await desk.import_text(actor, request)


class Imports(msgspec.Struct, frozen=True):
    """Everything an import needs, gathered for its caller."""

    stores: Stores
    recorder: Recorder

    async def take(self, found: Survey, file: BinaryIO, session_id: str | None = None) -> ContextImported:
        """Take over a bundle that was checked, with its session under another id if one is given."""
        told = ContextImported(bundle_id=found.header.bundle_id, scope=found.header.scope, digest=found.digest)
        if found.session is None:
            _check_new_id(session_id, found.header.scope)
            return structs.replace(told, **await self._keep(file))
        session = _session(found.session, session_id or found.session.session_id)
        told = structs.replace(told, session_id=session.session_id)
        counts = await self._reopen(found, session, file)
        return structs.replace(told, unchanged=True) if counts is None else structs.replace(told, **counts)

    async def _reopen(self, found: Survey, session: Session, file: BinaryIO) -> dict[str, int] | None:
        """Open the session of a bundle with all it came with; None if it is open already, by this very bundle."""
        if await self.stores.sessions.add(session):
            return await Reopening(self.stores, found, session).take(file)
        if await self._is_here(found, session.session_id):
            return None
        raise SessionExists(
            f"There is a session '{session.session_id}' already.",
            hint="Open this one beside it, under another id: name it with session_id (weft import --as-session NAME). "
            "A bundle that is here already changes nothing.",
            resource_id=session.session_id,
        )

    async def _keep(self, file: BinaryIO) -> dict[str, int]:
        """Keep the records of anything but a session as they are, for admins to see."""
        counts = {"records": 0, "skipped": 0}
        for piece in pieces(read(file)):
            record = piece.line.record
            if record is None:
                continue
            if await is_known(self.stores.records, record):
                counts["skipped"] += 1
                continue
            await self.recorder.add(record, None, readable_by=(ADMINS,))
            await keep_content(self.stores.records, None, piece)
            counts["records"] += 1
        return counts

    async def _is_here(self, found: Survey, session_id: str) -> bool:
        """Tell whether this very bundle was imported before."""
        told = await self.stores.events.find(Wanted(session_id=session_id, subject=session_id), 0, _MOST_TOLD)
        return any(
            recorded.event.type == IMPORTED and recorded.event.data.get("digest") == found.digest for recorded in told
        )


def _check_new_id(session_id: str | None, scope: str) -> None:
    if session_id is not None:
        raise InvalidInput(f"session_id: a bundle with the scope {scope} opens no session", field="session_id")


def _session(entry: SessionEntry, session_id: str) -> Session:
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
