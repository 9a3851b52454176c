"""Texts in a column of bytes: as UTF-8, or compressed if that is smaller.

UTF-8 never starts with the byte that marks a compressed text.
"""

from __future__ import annotations

import zlib

from weftline.kernel.errors import Unavailable

_COMPRESSED = b"\xff"
_MIN_COMPRESSED_BYTES = 1_024
# The fastest level: it already halves text, and the write waits for it.
_LEVEL = 1


class ValueDamaged(Unavailable):
    """A stored value does not match its hash."""

    code = "VALUE_DAMAGED"
    hint = "Read another version or write the value again. An operator can verify the context and restore a backup."
    http_status = 500
    severity = "critical"
    recoverable = False
    related = ("context_history",)


def pack(value: str) -> bytes:
    """Return the bytes to store. The hash of a value is always that of its uncompressed bytes."""
    plain = value.encode()
    if len(plain) < _MIN_COMPRESSED_BYTES:
        return plain
    compressed = _COMPRESSED + zlib.compress(plain, _LEVEL)
    return compressed if len(compressed) < len(plain) else plain


def unpack(content: bytes) -> bytes:
    """Return the uncompressed bytes; damaged input yields other bytes or nothing."""
    if not content.startswith(_COMPRESSED):
        return content
    try:
        return zlib.decompress(content[1:])
    except zlib.error:
        return b""


def text_of(content: bytes) -> str:
    """Return the value as text; raises ValueDamaged for invalid bytes."""
    value = unpack(content)
    if not value and content:
        raise ValueDamaged
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueDamaged from None
