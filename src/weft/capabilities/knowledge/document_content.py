"""What a document holds, on its way into a row and back: decoded, measured and packed outside of transactions."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib

import msgspec

from weft.capabilities.history.model import ValueDamaged
from weft.capabilities.knowledge.model import LARGEST_DOCUMENT_BYTES, DocumentTooLarge
from weft.kernel.errors import InvalidInput

_PLAIN, _COMPRESSED = b"\x00", b"\x01"
# The fastest: on text it already halves the size, and whoever puts a document waits for it.
_LEVEL = 1


class PackedContent(msgspec.Struct, frozen=True):
    """Bytes as they are kept, what they were before, and how many."""

    packed: bytes
    digest: str
    size: int


def content_of(text: str | None, encoded: str | None) -> bytes:
    """Return the bytes of a document that was given as text or in base64."""
    if (text is None) == (encoded is None):
        raise InvalidInput("Give one of text and content.", field="text")
    if text is not None:
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise InvalidInput("text: not valid text (it holds half of a surrogate pair)", field="text") from None
    try:
        return base64.b64decode(encoded or "", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("content: not base64.", field="content") from None


def packed(content: bytes) -> PackedContent:
    """Measure and compress what a document holds."""
    check_size(len(content))
    return PackedContent(pack(content), hashlib.sha256(content).hexdigest(), len(content))


def check_size(size: int) -> None:
    if size > LARGEST_DOCUMENT_BYTES:
        raise DocumentTooLarge(
            f"A document has at most {LARGEST_DOCUMENT_BYTES} bytes.", limit_bytes=LARGEST_DOCUMENT_BYTES
        )


def pack(content: bytes) -> bytes:
    compressed = zlib.compress(content, _LEVEL)
    return _COMPRESSED + compressed if len(compressed) < len(content) else _PLAIN + content


def unpack(kept: bytes) -> bytes:
    """Return the bytes that were packed. Damaged ones are an error, never something that nobody put."""
    if kept[:1] == _PLAIN:
        return kept[1:]
    try:
        return zlib.decompress(kept[1:])
    except zlib.error:
        raise ValueDamaged from None


def storable(text: str) -> str:
    """Return a text that every database keeps, character for character where it can: offsets stay as they are."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def kept_text(text: str, content: bytes) -> bytes | None:
    """Return a document's text as it is kept: None where it is the content itself."""
    encoded = text.encode()
    return None if encoded == content else pack(encoded)


def text_of(content: bytes, text: bytes | None) -> str:
    """Return the text of a document from what is kept of it."""
    try:
        return unpack(content if text is None else text).decode()
    except UnicodeDecodeError:
        raise ValueDamaged from None
