"""Operations records.redact, which hides the content of an item from every reader, and records.reveal, for auditors."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import structs

from weftline.exchange.record_log.add import TOOL, OfSession, RecordId, write_operation
from weftline.exchange.record_log.lookup import RecordFinder
from weftline.exchange.record_log.redacted_records import QUOTING
from weftline.exchange.record_log.sealing import OriginalContent, SealedContents
from weftline.history.item_ids import MessageItemId, VersionId
from weftline.history.key_acls import later_acls
from weftline.history.line_kinds import AGENT, SESSION, has_acls, is_signed, name_in, names_in, prefix_of
from weftline.history.lines import LineStore
from weftline.indexing.sql import CollectionStore
from weftline.kernel.clock import Clock, from_micros, to_micros
from weftline.kernel.errors import InvalidInput, PermissionDenied, SelfModification
from weftline.kernel.events import NewEvent
from weftline.kernel.fields import ShortText
from weftline.kernel.identity import ANYONE, PRINCIPAL, Actor, Permission, PrincipalKind
from weftline.kernel.json_input import encode_json_field, raw_json
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, operation
from weftline.kernel.outbox import Outbox
from weftline.kernel.patterns import intersect_acls
from weftline.records.engine_metadata import engine_metadata
from weftline.records.model import decode_item
from weftline.records.record_ids import RecordRef, parse_item_id
from weftline.records.schemas import ITEM_TYPE, Redaction
from weftline.records.sql import RecordStore
from weftline.safety.trust.gate import GATE_ERRORS, ContentGate, submitted
from weftline.search.items import is_window, version_of, window_place
from weftline.search.persistent_memory import version_of_entry
from weftline.search.session_cursor import (
    IndexedVersion,
    IndexItem,
    indexed_entry_of,
    indexed_version_of,
)
from weftline.sessions.model import SessionNotFound, lock_session
from weftline.sessions.recorder import RecordNotFound, no_record
from weftline.state.agent_context.model import audience_of
from weftline.windows.model import decode_event

if TYPE_CHECKING:
    from weftline.exchange.record_log.lookup import FoundRecord
    from weftline.sessions.model import Session

_SALT_BYTES = 16
_METHODS = {
    "none": "redaction removed",
    "masked": "secrets and personal data masked",
    "removed": "content removed",
    "summarized": "content replaced by a summary",
    "encrypted_ref": "content replaced by a salted digest",
    "policy_blocked": "content blocked by policy",
}
# States that reveal nothing of the content.
_HIDE_ALL = frozenset({"removed", "policy_blocked"})


class RedactItem(Request):
    """The item, summary or assembly to redact, and how."""

    item_id: RecordId
    state: Annotated[
        Literal["none", "masked", "removed", "summarized", "encrypted_ref", "policy_blocked"],
        msgspec.Meta(
            description="masked: secrets and personal data are masked; removed, policy_blocked: no content; "
            "summarized: only the replacement; encrypted_ref: only a salted digest; none: not redacted. Only admins "
            "may make a redacted item show more."
        ),
    ]
    reason: Annotated[ShortText, msgspec.Meta(min_length=1, description="Why. Visible to admins in the audit log.")]
    method: Annotated[ShortText | None, msgspec.Meta(description="How it was redacted, in a few words.")] = None
    replacement: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)] | None,
        msgspec.Meta(description="The text shown instead; required with summarized."),
    ] = None
    session_id: OfSession = None


class ItemRedacted(Response):
    """The redaction of an item.

    ``salt``: of encrypted_ref, in hexadecimal. Readers see the SHA-256 over it and the digest of the content, as text
    such as sha256:9f86…; keep it to compare a copy.
    """

    item_id: str
    redaction_state: str
    redaction_method: str
    redacted_by: str
    redacted_at: datetime
    salt: str | msgspec.UnsetType = msgspec.UNSET


class RevealItem(Request):
    """The item to read as it was before its redaction, and why."""

    item_id: RecordId
    reason: Annotated[ShortText, msgspec.Meta(min_length=1, description="Why. Visible to admins in the audit log.")]
    session_id: OfSession = None


class ItemRevealed(Response):
    """An item as it was written. ``metadata``: of a message. ``redaction_state`` is that which readers see."""

    item_id: str
    redaction_state: str
    content: str
    metadata: Any = msgspec.UNSET


class _Redactable(NamedTuple):
    """A record to redact: whether the caller wrote it and whether it is redacted already, its session and readers."""

    ref: RecordRef
    is_author: bool
    is_redacted: bool
    session: Session | None
    readers: tuple[str, ...]


class Redactions(msgspec.Struct, frozen=True):
    """The stores that redaction needs, bound to the caller of one operation."""

    actor: Actor
    finder: RecordFinder
    records: RecordStore
    collections: CollectionStore
    lines: LineStore
    outbox: Outbox
    clock: Clock
    gate: ContentGate
    contents: SealedContents

    async def open(self, item_id: str, session_id: str | None) -> _Redactable:
        """Find and lock the record; RecordNotFound if the caller may not read it."""
        found = await self.find(item_id, session_id)
        session = await self._lock(found)
        if session is not None:
            # Before the lock, the session may have been deleted and another created under its id.
            found = await self.find(item_id, session.session_id)
        readers = await self._readers(found, found.ref.id)
        return _Redactable(found.ref, self._is_author(found), found.redaction is not None, session, readers)

    async def find(self, item_id: str, session_id: str | None) -> FoundRecord:
        """Return the item with this id or, if there is none, the summary or assembly."""
        look = await self.finder.look(session_id)
        named = [parse_item_id(item_id), *(RecordRef.stored(kind, item_id) for kind in QUOTING)]
        found = next((each for each in await look.records(named) if each is not None), None)
        if found is None:
            raise no_record("item", item_id)
        return found

    async def _lock(self, found: FoundRecord) -> Session | None:
        """Lock the session of an item until the transaction ends."""
        session_id = _session_of(found, found.ref.id)
        if session_id is None:
            return None
        try:
            session, _ = await lock_session(session_id, self.actor, self.finder.sessions)
        except SessionNotFound as error:
            raise no_record("item", found.ref.id) from error
        return session

    def check(self, request: RedactItem, target: _Redactable) -> None:
        line = VersionId.parse(target.ref.id)
        if line is not None and is_signed(line.line_id) and self.actor.kind is PrincipalKind.AGENT:
            raise SelfModification("An agent cannot redact a definition.", context_id=line.line_id)
        if request.state == "none" and not self.actor.is_admin:
            raise PermissionDenied("Removing a redaction needs the permission 'admin'.")
        if target.is_redacted and request.state not in _HIDE_ALL and not self.actor.is_admin:
            raise PermissionDenied(
                "Changing a redaction to show more needs the permission 'admin'.",
                hint=f"Without it, use a state that shows less: {' or '.join(sorted(_HIDE_ALL))}.",
            )
        if not (target.is_author or self.actor.is_admin):
            raise PermissionDenied(
                "Only the author of an item or an admin may redact it.",
                hint="Ask the author or an admin of your tenant to redact this item_id.",
            )
        if (request.state == "summarized") != (request.replacement is not None):
            raise InvalidInput(
                "replacement: required with the state summarized, and not allowed with any other", field="replacement"
            )
        if request.replacement is not None:
            encode_json_field("replacement", request.replacement)

    async def of_copies(self, redaction: Redaction) -> list[Redaction]:
        """Return the same redaction of the copies of a window event.

        Removing a redaction leaves those copies redacted that were so by another one.
        """
        copies = [str(name) for name in await self.contents.copies(redaction.record_id)]
        if redaction.state == "none":
            known = await self.records.redactions([redaction.record_id, *copies])
            before = known.get(redaction.record_id)
            copies = [name for name in copies if before is not None and _is_same(known.get(name), before)]
        return [structs.replace(redaction, record_id=name) for name in copies]

    async def store(self, redaction: Redaction) -> None:
        """Store a redaction, and what readers get of the content from now on."""
        if redaction.state != "none":
            # Before its content is replaced, by which it is found.
            await self.unindex(redaction.record_id)
        original = await self.contents.original(redaction.record_id) if redaction.type == ITEM_TYPE else None
        if original is not None:
            if redaction.state == "masked" and not original.has_something_to_mask:
                raise InvalidInput(
                    "state: nothing would be masked, because no secret and no personal data was recognised",
                    hint="Use the state removed, or summarized with the text that readers may see.",
                    field="state",
                )
            redaction = await self.contents.seal(redaction, original)
        await self.records.redact(redaction)

    async def unindex(self, item_id: str) -> None:
        """Remove an item from the search index at once, so that no result depends on its content."""
        location = (
            indexed_version_of(item_id) or await self._indexed_event(item_id) or await self._indexed_entry(item_id)
        )
        if location is None:
            return
        collection, place, item = location.item.collection, location.item.place, location.item.item
        await self.collections.lock(collection)
        await self.collections.remove(
            collection, await self.collections.numbers_of(collection, place, item, location.version)
        )

    async def _indexed_event(self, item_id: str) -> IndexedVersion | None:
        """Return the indexed version of a window event, which is indexed by its number."""
        name = VersionId.parse(item_id)
        if name is None or not is_window(name.line_id):
            return None
        found = await self.lines.changes_of_version(name.line_id, name.key, name.incarnation, name.version)
        if not found or found[-1].value is None:
            return None
        number = decode_event(name.line_id, found[-1], None).number
        return IndexedVersion(IndexItem("event", window_place(name.line_id), str(number)), version_of(name))

    async def _indexed_entry(self, item_id: str) -> IndexedVersion | None:
        """Return the indexed version of an entry of persistent memory."""
        name, item = VersionId.parse(item_id), indexed_entry_of(item_id)
        if name is None or item is None:
            return None
        found = await self.lines.changes_of_version(name.line_id, name.key, name.incarnation, name.version)
        return IndexedVersion(item, version_of_entry(found[0])) if found else None

    async def publish(self, redaction: Redaction, readers: tuple[str, ...]) -> None:
        event = NewEvent(
            type="context.redaction.applied",
            session_id=redaction.session_id,
            subject=redaction.record_id,
            actor=self.actor.participant,
            readable_by=readers,
            data={
                "redaction_state": redaction.state,
                "redaction_method": redaction.method,
                "redacted_type": redaction.type,
            },
        )
        await self.outbox.publish(event)

    def _is_author(self, found: FoundRecord) -> bool:
        if found.stored is not None:
            return found.stored.is_by(self.actor)
        native = engine_metadata(decode_item(found.body).metadata)
        return bool(native.get("principal_id", native.get("sender")) == self.actor.principal_id)

    def readers_of_line(self, item_id: str) -> tuple[str, ...]:
        """Return the readers of the event about a version without an ACL: who may open its line, and the caller."""
        line_id = item_id.partition("/")[0]
        return tuple(dict.fromkeys((audience_of(_owner_of(line_id)), f"{PRINCIPAL}{self.actor.principal_id}")))

    async def _readers(self, found: FoundRecord, item_id: str) -> tuple[str, ...]:
        """Return the readers of the event: the current readers of the item, and the caller."""
        own, version = f"{PRINCIPAL}{self.actor.principal_id}", VersionId.parse(item_id)
        readers = found.stored.readable_by if found.stored is not None else decode_item(found.body).visibility
        if version is not None and has_acls(version.line_id):
            name = (version.line_id, version.key, version.incarnation, version.version)
            versions = (await self.finder.lines.changes_of_version(*name))[:1]
            acls = await later_acls(self.finder.lines, version.line_id, versions)
            readers = intersect_acls(readers, *(acl for of_version in acls for acl in of_version))
        elif version is not None:
            return self.readers_of_line(item_id)
        return readers if readers == ANYONE else tuple(dict.fromkeys((*readers, own)))


@write_operation(
    "records.redact",
    action="redact",
    http="POST /v1/records/redact",
    audited=True,
    off_record=("replacement",),
    errors=(RecordNotFound, SessionNotFound, PermissionDenied, SelfModification, *GATE_ERRORS),
    content=lambda request: (submitted(request.replacement or ""),),
)
async def redact_item(request: RedactItem, redactions: Redactions) -> ItemRedacted:
    """Redact an item wherever it is read: board, messages, windows, memory, histories, prompts, search, exports.

    An item is one version of a key, one message, or one recorded item, summary or assembly. Its author and admins may
    redact it. The content stays stored for those with the permission ``audit``, who read it with ``records.reveal``.
    Definitions and layers are redacted in records and exports only: write a new version of them.
    """
    target = await redactions.open(request.item_id, request.session_id)
    redactions.check(request, target)
    redaction = Redaction(
        record_id=target.ref.id,
        session_id=target.session.session_id if target.session else None,
        state=request.state,
        method=await redactions.gate.admit_note("redaction", request.method) or _METHODS[request.state],
        reason=request.reason,
        redacted_by=redactions.actor.participant,
        redacted_at=to_micros(redactions.clock.now()),
        replacement=await redactions.gate.admit_note("redaction", request.replacement),
        type=target.ref.type,
        salt=os.urandom(_SALT_BYTES) if request.state == "encrypted_ref" else None,
    )
    copies = await redactions.of_copies(redaction)
    for each in (redaction, *copies):
        await redactions.store(each)
    await redactions.publish(redaction, target.readers)
    for each in copies:
        await redactions.publish(each, redactions.readers_of_line(each.record_id))
    return ItemRedacted(
        item_id=redaction.record_id,
        redaction_state=redaction.state,
        redaction_method=redaction.method,
        redacted_by=redaction.redacted_by,
        redacted_at=from_micros(redaction.redacted_at),
        salt=msgspec.UNSET if redaction.salt is None else redaction.salt.hex(),
    )


@operation(
    "records.reveal",
    tool=TOOL,
    action="reveal",
    http="POST /v1/records/reveal",
    permission=Permission.AUDIT,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(RecordNotFound, SessionNotFound),
)
async def reveal_item(request: RevealItem, redactions: Redactions) -> ItemRevealed:
    """Read an item as it was before its redaction.

    Needs the permission ``audit``, which admins grant, and access to the item itself; every call is audited.
    """
    found = await redactions.find(request.item_id, request.session_id)
    original = await redactions.contents.original(found.ref.id)
    if original is None:
        stored = found.stored and await redactions.records.find(found.ref.type, found.ref.id)
        if not stored:
            raise no_record("item", request.item_id)
        original = OriginalContent(stored.body.decode())
    return ItemRevealed(
        item_id=found.ref.id,
        redaction_state="none" if found.redaction is None else found.redaction.state,
        content=original.content,
        metadata=msgspec.UNSET if original.metadata is None else raw_json(original.metadata),
    )


def _is_same(one: Redaction | None, other: Redaction) -> bool:
    """Tell whether two items were redacted by one call."""
    return one is not None and (one.redacted_by, one.redacted_at) == (other.redacted_by, other.redacted_at)


def _session_of(found: FoundRecord, item_id: str) -> str | None:
    if found.stored is not None:
        return found.stored.session_id
    message, version = MessageItemId.parse(item_id), VersionId.parse(item_id)
    if message is not None:
        return message.session_id
    return None if version is None else name_in(version.line_id, SESSION)


def _owner_of(line_id: str) -> str:
    """Return the agent, team or user that owns a line."""
    return name_in(line_id, AGENT) or f"{prefix_of(line_id)}:{names_in(line_id)[0]}"
