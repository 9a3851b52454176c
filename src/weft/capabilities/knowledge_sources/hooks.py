"""Calls from outside that say there is news, or bring it: who may make them, and what they may bring."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec

from weft.capabilities.knowledge.model import DocumentId
from weft.capabilities.knowledge.putting import NewDocument
from weft.capabilities.knowledge_sources.model import SECOND, HookRefused
from weft.capabilities.webhooks.model import signed_headers
from weft.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from weft.capabilities.knowledge_sources.model import Source

# A call that was signed longer ago, or is ahead by as much, is not taken: it may have been overheard.
_TOLERANCE_SECONDS = 300
_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_LONGEST_ID = 256


class HookBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a signed call brings: documents to be put, and names of documents to be taken away."""

    documents: Annotated[tuple[NewDocument, ...], msgspec.Meta(max_length=100)] = ()
    removed: Annotated[tuple[DocumentId, ...], msgspec.Meta(max_length=1000)] = ()


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call: a look was asked for, or documents were taken."""

    success: bool = True
    sync: bool = False
    accepted: int = 0
    removed: int = 0


def is_signed(headers: Mapping[str, str]) -> bool:
    return _SIGNATURE in headers


def signed_at(source: Source, headers: Mapping[str, str], body: bytes, now: int) -> int:
    """Return when a call was signed, in microseconds; refuse it unless it was with the source's secret, and just now.

    What is older than the last call that was taken is refused too, so that nothing can be played back.
    """
    call_id, stamp = headers.get(_ID, ""), headers.get(_TIMESTAMP, "")
    if not (0 < len(call_id) <= _LONGEST_ID and stamp.isascii() and stamp.isdigit() and len(stamp) <= len(str(now))):
        raise HookRefused
    at = int(stamp) * SECOND
    expected = signed_headers(source.secret, call_id, int(stamp), body)[_SIGNATURE]
    given = headers[_SIGNATURE].split(" ")
    if not any(hmac.compare_digest(expected.encode(), each.encode()) for each in given):
        raise HookRefused
    if abs(now - at) > _TOLERANCE_SECONDS * SECOND or at < source.hooked_at:
        raise HookRefused
    return at


def parsed(body: bytes) -> HookBody:
    try:
        return msgspec.json.decode(body or b"{}", type=HookBody)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The body is not what a hook takes: {error}", field="documents") from None
