"""The column ``trust``: a trust label as JSON, or NULL."""

from __future__ import annotations

import msgspec

from weftline.safety.trust.model import TrustLabel

_decoder = msgspec.json.Decoder(TrustLabel)
_encoder = msgspec.json.Encoder()


def encode_label(label: TrustLabel | None) -> str | None:
    return None if label is None else _encoder.encode(label).decode()


def decode_label(text: str | None) -> TrustLabel | None:
    return None if text is None else _decoder.decode(text)
