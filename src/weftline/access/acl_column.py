"""Encoding of ACL patterns in a column."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from weftline.kernel.identity import ANYONE

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[str, ...])


def encode_patterns(patterns: tuple[str, ...]) -> str | None:
    """Encode an ACL; NULL means everyone, the most common case."""
    return None if patterns == ANYONE else _encoder.encode(patterns).decode()


def decode_patterns(text: str | None) -> tuple[str, ...]:
    return ANYONE if text is None else _decoder.decode(text)


def encode_audience(patterns: tuple[str, ...]) -> str:
    """Encode the audience of a session: its creator and its members."""
    return _encoder.encode(patterns).decode()


# Cached: every call on a board and every event of a session decodes one, and there are few different ones.
@lru_cache(maxsize=10_000)
def decode_audience(text: str) -> tuple[str, ...]:
    return _decoder.decode(text)
