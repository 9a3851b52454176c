"""How a value's bytes are kept: as they are, or compressed where that saves something.

Values are text, and no text in UTF-8 begins with the byte that marks a compressed one.
"""

from __future__ import annotations

import zlib

from weft.capabilities.history.model import ValueDamaged

_COMPRESSED = b"\xff"
_WORTH_TRYING_BYTES = 1_024
# The fastest: on text it already halves the size, and a write waits for it.
_LEVEL = 1


def pack(value: str) -> bytes:
    """Return the bytes to keep. The hash of a value is always that of its own bytes, not of these."""
    plain = value.encode()
    if len(plain) < _WORTH_TRYING_BYTES:
        return plain
    compressed = _COMPRESSED + zlib.compress(plain, _LEVEL)
    return compressed if len(compressed) < len(plain) else plain


def unpack(content: bytes) -> bytes:
    """Return the bytes of the value itself; damaged ones come out as other bytes, or as nothing."""
    if not content.startswith(_COMPRESSED):
        return content
    try:
        return zlib.decompress(content[1:])
    except zlib.error:
        return b""


def text_of(content: bytes) -> str:
    """Return the value as text. Bytes that cannot be one are an error, never a value that nobody wrote."""
    value = unpack(content)
    if not value and content:
        raise ValueDamaged
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueDamaged from None
