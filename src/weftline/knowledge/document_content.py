"""Decodes and compresses document content, outside of transactions."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib

import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.kernel.packed_text import ValueDamaged
from weftline.knowledge.model import MAX_DOCUMENT_BYTES, DocumentTooLarge

_PLAIN, _COMPRESSED = b"\x00", b"\x01"
# The fastest level: it halves text, and the caller waits for it.
_LEVEL = 1


class PackedContent(msgspec.Struct, frozen=True):
    """Compressed content, with digest and size of the original."""

    packed: bytes
    digest: str
    size: int


def decode_content(text: str | None, encoded: str | None) -> bytes:
    """Return the content given as text or base64."""
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


def pack_content(content: bytes) -> PackedContent:
    """Check the size of content and compress it."""
    check_size(len(content))
    return PackedContent(compress(content), hashlib.sha256(content).hexdigest(), len(content))


def check_size(size: int) -> None:
    if size > MAX_DOCUMENT_BYTES:
        raise DocumentTooLarge(f"A document has at most {MAX_DOCUMENT_BYTES} bytes.", limit_bytes=MAX_DOCUMENT_BYTES)


def compress(content: bytes) -> bytes:
    compressed = zlib.compress(content, _LEVEL)
    return _COMPRESSED + compressed if len(compressed) < len(content) else _PLAIN + content


def decompress(kept: bytes) -> bytes:
    """Return the original content; an error if it is damaged."""
    if kept[:1] == _PLAIN:
        return kept[1:]
    try:
        return zlib.decompress(kept[1:])
    except zlib.error:
        raise ValueDamaged from None


def storable_text(text: str) -> str:
    """Replace characters that a database cannot store, one for one, so that offsets do not change."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def compressed_text(text: str, content: bytes) -> bytes | None:
    """Return the compressed text of a document; None if it equals the content."""
    encoded = text.encode()
    return None if encoded == content else compress(encoded)


def decode_text(content: bytes, text: bytes | None) -> str:
    """Return the text of a document from its stored content or text."""
    try:
        return decompress(content if text is None else text).decode()
    except UnicodeDecodeError:
        raise ValueDamaged from None
