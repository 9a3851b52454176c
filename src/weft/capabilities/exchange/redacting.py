"""Redacting an item: it is not shown any more in records and exports, although it is still kept.

The board and the transcript stay as they are: what must go from there is deleted there, or given to other readers.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec

from weft.capabilities.board.last_words import last_words
from weft.capabilities.board.model import common_readers
from weft.capabilities.exchange.finding import Finder
from weft.capabilities.exchange.listing import TOOL, RecordId
from weft.capabilities.exchange.naming import item_named
from weft.capabilities.memory.model import scope_of
from weft.capabilities.records.item_names import MessageName, VersionName
from weft.capabilities.records.model import ContextItem
from weft.capabilities.records.recording import RecordNotFound
from weft.capabilities.records.store import RecordStore, Redaction
from weft.capabilities.sessions.model import session_of
from weft.kernel.clock import Clock, from_micros, to_micros
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.fields import ShortText
from weft.kernel.given_json import encode_given
from weft.kernel.identity import ANYONE, PRINCIPAL, Actor, Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from weft.capabilities.exchange.finding import Found
    from weft.capabilities.sessions.model import Session

_METHODS = {
    "none": "shown again",
    "masked": "secrets and personal data masked",
    "removed": "content removed",
    "summarized": "content replaced by a summary",
    "encrypted_ref": "content named by its digest",
    "policy_blocked": "content withheld by policy",
}
_item = msgspec.json.Decoder(ContextItem).decode


class RedactItem(Request):
    """Which item, and what becomes of what it says."""

    item_id: RecordId
    state: Annotated[
        Literal["none", "masked", "removed", "summarized", "encrypted_ref", "policy_blocked"],
        msgspec.Meta(
            description="masked: secrets and personal data are masked; removed, policy_blocked: nothing is shown; "
            "summarized: the replacement is; encrypted_ref: only the digest; none: shown again, which admins may say."
        ),
    ]
    reason: Annotated[ShortText, msgspec.Meta(min_length=1, description="Why; admins see it in the audit log.")]
    method: Annotated[ShortText | None, msgspec.Meta(description="How, in a few words.")] = None
    replacement: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)] | None,
        msgspec.Meta(description="With summarized: what is shown instead."),
    ] = None


class ItemRedacted(Response):
    """How an item is shown from now on."""

    item_id: str
    redaction_state: str
    redaction_method: str
    redacted_by: str
    redacted_at: datetime


class _Owned(NamedTuple):
    """An item as those who may change it know it: whose it is, where it stands and who may be told of it."""

    author: bool
    session: Session | None
    readers: tuple[str, ...]


class Redactions(msgspec.Struct, frozen=True):
    """Everything that redacting needs, gathered for the caller of one operation."""

    actor: Actor
    finder: Finder
    records: RecordStore
    outbox: Outbox
    clock: Clock

    async def owned(self, item_id: str) -> _Owned:
        """Return what must be known of an item to redact it; to whoever may not see it there is none."""
        look = self.finder.look()
        found = await look.record(item_named(item_id))
        if found is None:
            shown = item_id[:100]
            raise RecordNotFound(f"There is no item '{shown}'.", resource_type="record", resource_id=shown)
        session_id = _session_of(found, item_id)
        session = None if session_id is None else await look.session(session_id)
        return _Owned(self._is_author(found), session, await self._readers(found, item_id))

    def check(self, request: RedactItem, *, is_author: bool) -> None:
        if request.state == "none" and not self.actor.is_admin:
            raise PermissionDenied("Showing again what was redacted needs the permission 'admin'.")
        if not (is_author or self.actor.is_admin):
            raise PermissionDenied(
                "An item is redacted by whoever wrote it, or by an admin.",
                hint="Ask its author, or an admin of your tenant, and name the item_id.",
            )
        if (request.state == "summarized") != (request.replacement is not None):
            raise InvalidInput("replacement: goes with the state summarized, and only with that", field="replacement")
        if request.replacement is not None:
            encode_given("replacement", request.replacement)

    async def tell(self, redaction: Redaction, owned: _Owned) -> None:
        event = NewEvent(
            type="context.redaction.applied",
            session_id=redaction.session_id,
            subject=redaction.item_id,
            actor=self.actor.participant,
            participants=owned.session.audience if owned.session else ANYONE,
            readable_by=owned.readers,
            data={"redaction_state": redaction.state, "redaction_method": redaction.method},
        )
        await self.outbox.publish(event)

    def _is_author(self, found: Found) -> bool:
        if found.kept is not None:
            return found.kept.recorded_by == self.actor.participant
        native = _item(found.body).metadata.get("weft", {})
        return bool(native.get("principal_id", native.get("sender")) == self.actor.principal_id)

    async def _readers(self, found: Found, item_id: str) -> tuple[str, ...]:
        """Return who may be told: those who may read the item now, and whoever redacts it."""
        own, version = f"{PRINCIPAL}{self.actor.principal_id}", VersionName.parse(item_id)
        readers = found.kept.readable_by if found.kept is not None else _item(found.body).visibility
        if version is not None and version.line_id.startswith("board:"):
            name = (version.line_id, version.key, version.life, version.version)
            versions = (await self.finder.lines.numbered(*name))[:1]
            words = await last_words(self.finder.lines, version.line_id, versions)
            readers = common_readers(readers, *(said for of_version in words for said in of_version))
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
    errors=(RecordNotFound, PermissionDenied),
)
async def redact_item(request: RedactItem, redactions: Redactions) -> ItemRedacted:
    """Stop showing what an item says: in records, in exports and in what is told of it, but not where it is kept.

    An item is one version of a key, one message, or one recorded item; its author may redact it, and admins. To take
    something off the board or the transcript itself, delete the key or change the message's visibility.
    """
    owned = await redactions.owned(request.item_id)
    redactions.check(request, is_author=owned.author)
    redaction = Redaction(
        item_id=request.item_id,
        session_id=owned.session.session_id if owned.session else None,
        state=request.state,
        method=request.method or _METHODS[request.state],
        reason=request.reason,
        redacted_by=redactions.actor.participant,
        redacted_at=to_micros(redactions.clock.now()),
        replacement=request.replacement,
    )
    await redactions.records.redact(redaction)
    await redactions.tell(redaction, owned)
    return ItemRedacted(
        item_id=redaction.item_id,
        redaction_state=redaction.state,
        redaction_method=redaction.method,
        redacted_by=redaction.redacted_by,
        redacted_at=from_micros(redaction.redacted_at),
    )


def _session_of(found: Found, item_id: str) -> str | None:
    if found.kept is not None:
        return found.kept.session_id
    message, version = MessageName.parse(item_id), VersionName.parse(item_id)
    if message is not None:
        return message.session_id
    if version is None:
        return None
    memory = scope_of(version.line_id)
    if memory is not None:
        return memory.session_id
    return session_of(version.line_id) if version.line_id.startswith("board:") else None


def _owner_of(line_id: str) -> str:
    """Return whose memory, context or definition a line is."""
    return line_id.partition(":")[2].partition("@")[0].partition(":")[0]
