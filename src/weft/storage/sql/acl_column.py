"""Encoding of participant patterns in a column: NULL means everyone, the most common case."""

from __future__ import annotations

import msgspec

from weft.kernel.identity import ANYONE

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[str, ...])


def encode_patterns(patterns: tuple[str, ...]) -> str | None:
    return None if patterns == ANYONE else _encoder.encode(patterns).decode()


def decode_patterns(text: str | None) -> tuple[str, ...]:
    return ANYONE if text is None else _decoder.decode(text)
