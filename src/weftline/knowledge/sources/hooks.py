"""Hook calls, which trigger a sync or carry documents: signature, replay protection and body."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.knowledge.document_operations import NewDocument
from weftline.knowledge.model import DocumentId
from weftline.knowledge.sources.model import SECOND, HookRefused, RejectedDocument
from weftline.sessions.events.webhooks.model import signed_headers

if TYPE_CHECKING:
    from weftline.knowledge.sources.model import KnowledgeSource

# Maximum difference between the time of signing and now. Ids of calls are stored for this long, to reject replays.
CLOCK_TOLERANCE = 300 * SECOND
_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_MAX_ID_LENGTH = 256


class HookBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of a signed call: documents to put and document ids to remove."""

    documents: Annotated[tuple[NewDocument, ...], msgspec.Meta(max_length=100)] = ()
    removed: Annotated[tuple[DocumentId, ...], msgspec.Meta(max_length=1000)] = ()


class SignedCall(NamedTuple):
    """A call with a valid signature; ``at`` is the time of signing, in microseconds."""

    call_id: str
    at: int


class HookResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Response to a call: a sync was requested, or documents were accepted, removed and refused."""

    success: bool = True
    sync: bool = False
    accepted: int = 0
    removed: int = 0
    refused: tuple[RejectedDocument, ...] = ()


def is_signed(headers: Mapping[str, str]) -> bool:
    return _SIGNATURE in headers


def verify_call(source: KnowledgeSource, headers: Mapping[str, str], body: bytes, now: int) -> SignedCall:
    """Verify the signature and time of a call; raise HookRefused if they are invalid."""
    call_id, stamp = headers.get(_ID, ""), headers.get(_TIMESTAMP, "")
    if not (0 < len(call_id) <= _MAX_ID_LENGTH and call_id.isascii() and call_id.isprintable()):
        raise HookRefused
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= len(str(now))):
        raise HookRefused
    call = SignedCall(call_id, int(stamp) * SECOND)
    expected = signed_headers(source.secret, call_id, int(stamp), body)[_SIGNATURE]
    given = headers[_SIGNATURE].split(" ")
    if not any(hmac.compare_digest(expected.encode(), each.encode()) for each in given):
        raise HookRefused
    if abs(now - call.at) > CLOCK_TOLERANCE:
        raise HookRefused
    return call


def parse_hook_body(body: bytes) -> HookBody:
    try:
        return msgspec.json.decode(body or b"{}", type=HookBody)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"Invalid hook body: {error}", field="documents") from None
