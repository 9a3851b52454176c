"""Redacting an item, a summary or an assembly: it is not shown any more in records and exports, but still kept.

The board and the transcript stay as they are: what must go from there is deleted there, or given to other readers.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec

from weft.capabilities.board.model import intersect_acls
from weft.capabilities.board.read_acl import last_words
from weft.capabilities.indexing.collections.store import CollectionStore
from weft.capabilities.record_log.lookup import RecordFinder, session_of_line
from weft.capabilities.record_log.model import TOOL, OfSession, RecordId
from weft.capabilities.record_log.redacted_records import QUOTING
from weft.capabilities.records.model import ContextItem
from weft.capabilities.records.record_ids import MessageItemId, RecordRef, StoredRecordId, VersionId, parse_item_id
from weft.capabilities.records.recorder import RecordNotFound
from weft.capabilities.records.store import RecordStore, Redaction
from weft.capabilities.search.session_indexing.cursor import standing_of
from weft.capabilities.sessions.model import SessionNotFound, lock_session
from weft.kernel.clock import Clock, from_micros, to_micros
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.fields import ShortText
from weft.kernel.identity import ANYONE, PRINCIPAL, Actor, Permission
from weft.kernel.json_input import encode_given
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from weft.capabilities.record_log.lookup import FoundRecord
    from weft.capabilities.sessions.model import Session

_METHODS = {
    "none": "shown again",
    "masked": "secrets and personal data masked",
    "removed": "content removed",
    "summarized": "content replaced by a summary",
    "encrypted_ref": "content named by its digest",
    "policy_blocked": "content withheld by policy",
}
# Of which nothing can be found out that was hidden before.
_SHOW_NOTHING = frozenset({"removed", "policy_blocked"})
_item = msgspec.json.Decoder(ContextItem).decode


class RedactItem(Request):
    """Which item, summary or assembly, and what becomes of what it says."""

    item_id: RecordId
    state: Annotated[
        Literal["none", "masked", "removed", "summarized", "encrypted_ref", "policy_blocked"],
        msgspec.Meta(
            description="masked: secrets and personal data are masked; removed, policy_blocked: nothing is shown; "
            "summarized: the replacement is; encrypted_ref: only the digest; none: shown again. Only admins may "
            "show more than was shown since it was redacted."
        ),
    ]
    reason: Annotated[ShortText, msgspec.Meta(min_length=1, description="Why; admins see it in the audit log.")]
    method: Annotated[ShortText | None, msgspec.Meta(description="How, in a few words.")] = None
    replacement: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)] | None,
        msgspec.Meta(description="With summarized: what is shown instead."),
    ] = None
    session_id: OfSession = None


class ItemRedacted(Response):
    """How an item is shown from now on."""

    item_id: str
    redaction_state: str
    redaction_method: str
    redacted_by: str
    redacted_at: datetime


class _Owned(NamedTuple):
    """An item as those who may change it know it: whose it is, where it stands and who may be told of it.

    ``redacted`` if something was redacted of it before.
    """

    named: RecordRef
    author: bool
    redacted: bool
    session: Session | None
    readers: tuple[str, ...]


class Redactions(msgspec.Struct, frozen=True):
    """Everything that redacting needs, gathered for the caller of one operation."""

    actor: Actor
    finder: RecordFinder
    records: RecordStore
    collections: CollectionStore
    outbox: Outbox
    clock: Clock

    async def owned(self, item_id: str, session_id: str | None) -> _Owned:
        """Return what must be known of an item to redact it; to whoever may not see it there is none."""
        found = await self._found(item_id, session_id)
        session = await self._lock(found)
        if session is not None:
            # Before the lock, the session may have gone and another of its name come.
            found = await self._found(item_id, session.session_id)
        readers = await self._readers(found, found.named.id)
        return _Owned(found.named, self._is_author(found), found.redaction is not None, session, readers)

    async def _found(self, item_id: str, session_id: str | None) -> FoundRecord:
        """Return what says something under an id: an item or, where there is none, a summary or an assembly."""
        look = await self.finder.look(session_id)
        named = [parse_item_id(item_id), *(RecordRef(kind, item_id, StoredRecordId(kind, item_id)) for kind in QUOTING)]
        found = next((each for each in await look.records(named) if each is not None), None)
        if found is None:
            raise _no_item(item_id)
        return found

    async def _lock(self, found: FoundRecord) -> Session | None:
        """Return the session of an item, which nobody deletes or redacts in until the transaction ends."""
        session_id = _session_of(found, found.named.id)
        if session_id is None:
            return None
        try:
            session, _ = await lock_session(session_id, self.actor, self.finder.sessions)
        except SessionNotFound as error:
            raise _no_item(found.named.id) from error
        return session

    def check(self, request: RedactItem, owned: _Owned) -> None:
        if request.state == "none" and not self.actor.is_admin:
            raise PermissionDenied("Showing again what was redacted needs the permission 'admin'.")
        if owned.redacted and request.state not in _SHOW_NOTHING and not self.actor.is_admin:
            raise PermissionDenied(
                "Showing more of what was redacted needs the permission 'admin'.",
                hint=f"Without it, redact it further: {' or '.join(sorted(_SHOW_NOTHING))}.",
            )
        if not (owned.author or self.actor.is_admin):
            raise PermissionDenied(
                "An item is redacted by whoever wrote it, or by an admin.",
                hint="Ask its author, or an admin of your tenant, and name the item_id.",
            )
        if (request.state == "summarized") != (request.replacement is not None):
            raise InvalidInput("replacement: goes with the state summarized, and only with that", field="replacement")
        if request.replacement is not None:
            encode_given("replacement", request.replacement)

    async def take_off(self, item_id: str) -> None:
        """Take an item off its collection at once: nothing that a search tells may depend on it any more."""
        standing = standing_of(item_id)
        if standing is None:
            return
        collection, place, item = standing.subject.collection, standing.subject.place, standing.subject.item
        await self.collections.lock(collection)
        await self.collections.remove(
            collection, await self.collections.numbers_of(collection, place, item, standing.version)
        )

    async def tell(self, redaction: Redaction, owned: _Owned) -> None:
        event = NewEvent(
            type="context.redaction.applied",
            session_id=redaction.session_id,
            subject=redaction.record_id,
            actor=self.actor.participant,
            participants=owned.session.audience if owned.session else ANYONE,
            readable_by=owned.readers,
            data={
                "redaction_state": redaction.state,
                "redaction_method": redaction.method,
                "redacted_type": redaction.type,
            },
        )
        await self.outbox.publish(event)

    def _is_author(self, found: FoundRecord) -> bool:
        if found.kept is not None:
            return found.kept.is_by(self.actor)
        native = _item(found.body).metadata.get("weft", {})
        return bool(native.get("principal_id", native.get("sender")) == self.actor.principal_id)

    async def _readers(self, found: FoundRecord, item_id: str) -> tuple[str, ...]:
        """Return who may be told: those who may read the item now, and whoever redacts it."""
        own, version = f"{PRINCIPAL}{self.actor.principal_id}", VersionId.parse(item_id)
        readers = found.kept.readable_by if found.kept is not None else _item(found.body).visibility
        if version is not None and version.line_id.startswith("board:"):
            name = (version.line_id, version.key, version.life, version.version)
            versions = (await self.finder.lines.numbered(*name))[:1]
            words = await last_words(self.finder.lines, version.line_id, versions)
            readers = intersect_acls(readers, *(said for of_version in words for said in of_version))
        elif version is not None:
            readers = (f"{PRINCIPAL}{_owner_of(version.line_id)}",)
        return readers if readers == ANYONE else tuple(dict.fromkeys((*readers, own)))


@operation(
    "records.redact",
    tool=TOOL,
    action="redact",
    http="POST /v1/records/redact",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    audited=True,
    off_record=("replacement",),
    errors=(RecordNotFound, SessionNotFound, PermissionDenied),
)
async def redact_item(request: RedactItem, redactions: Redactions) -> ItemRedacted:
    """Stop showing what an item says: in records, in exports and in what is told of it, but not where it is kept.

    An item is one version of a key, one message, or one recorded item, summary or assembly; its author may redact it,
    and admins. To take something off the board or the transcript itself, delete the key or change the message's
    visibility.
    """
    owned = await redactions.owned(request.item_id, request.session_id)
    redactions.check(request, owned)
    redaction = Redaction(
        record_id=owned.named.id,
        session_id=owned.session.session_id if owned.session else None,
        state=request.state,
        method=request.method or _METHODS[request.state],
        reason=request.reason,
        redacted_by=redactions.actor.participant,
        redacted_at=to_micros(redactions.clock.now()),
        replacement=request.replacement,
        type=owned.named.type,
    )
    await redactions.records.redact(redaction)
    if redaction.state != "none":
        await redactions.take_off(redaction.record_id)
    await redactions.tell(redaction, owned)
    return ItemRedacted(
        item_id=redaction.record_id,
        redaction_state=redaction.state,
        redaction_method=redaction.method,
        redacted_by=redaction.redacted_by,
        redacted_at=from_micros(redaction.redacted_at),
    )


def _no_item(item_id: str) -> RecordNotFound:
    shown = item_id[:100]
    return RecordNotFound(f"There is no item '{shown}'.", resource_type="record", resource_id=shown)


def _session_of(found: FoundRecord, item_id: str) -> str | None:
    if found.kept is not None:
        return found.kept.session_id
    message, version = MessageItemId.parse(item_id), VersionId.parse(item_id)
    if message is not None:
        return message.session_id
    return None if version is None else session_of_line(version.line_id)


def _owner_of(line_id: str) -> str:
    """Return whose memory, context or definition a line is."""
    return line_id.partition(":")[2].partition("@")[0].partition(":")[0]
