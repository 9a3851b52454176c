"""Calls from outside that say there is news, or bring it: who may make them, and what they may bring."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from weft.capabilities.events.webhooks.model import signed_headers
from weft.capabilities.knowledge.document_operations import NewDocument
from weft.capabilities.knowledge.model import DocumentId
from weft.capabilities.knowledge.sources.model import SECOND, HookRefused, NotTaken
from weft.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from weft.capabilities.knowledge.sources.model import Source

# A call that was signed longer ago, or is ahead by as much, is not taken: it may have been overheard. One that was not
# is known by its id for as long, so that nothing can be played back.
TOLERANCE = 300 * SECOND
_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_LONGEST_ID = 256


class HookBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a signed call brings: documents to be put, and names of documents to be taken away."""

    documents: Annotated[tuple[NewDocument, ...], msgspec.Meta(max_length=100)] = ()
    removed: Annotated[tuple[DocumentId, ...], msgspec.Meta(max_length=1000)] = ()


class SignedCall(NamedTuple):
    """A call with a good signature; ``at`` is when it was signed, in microseconds."""

    call_id: str
    at: int


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call: a look was asked for, or documents were taken, except for those that it may not change."""

    success: bool = True
    sync: bool = False
    accepted: int = 0
    removed: int = 0
    refused: tuple[NotTaken, ...] = ()


def is_signed(headers: Mapping[str, str]) -> bool:
    return _SIGNATURE in headers


def signed_call(source: Source, headers: Mapping[str, str], body: bytes, now: int) -> SignedCall:
    """Return what names a call; refuse it unless it was signed with the source's secret, and just now."""
    call_id, stamp = headers.get(_ID, ""), headers.get(_TIMESTAMP, "")
    if not (0 < len(call_id) <= _LONGEST_ID and call_id.isascii() and call_id.isprintable()):
        raise HookRefused
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= len(str(now))):
        raise HookRefused
    call = SignedCall(call_id, int(stamp) * SECOND)
    expected = signed_headers(source.secret, call_id, int(stamp), body)[_SIGNATURE]
    given = headers[_SIGNATURE].split(" ")
    if not any(hmac.compare_digest(expected.encode(), each.encode()) for each in given):
        raise HookRefused
    if abs(now - call.at) > TOLERANCE:
        raise HookRefused
    return call


def parsed(body: bytes) -> HookBody:
    try:
        return msgspec.json.decode(body or b"{}", type=HookBody)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The body is not what a hook takes: {error}", field="documents") from None
