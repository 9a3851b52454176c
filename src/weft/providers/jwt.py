"""Tokens as JWTs, signed and checked by joserfc with one pinned algorithm."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

if TYPE_CHECKING:
    from collections.abc import Mapping

# Pinned: a token that names any other algorithm, "none" among them, is refused before its signature is looked at.
ALGORITHM = "HS256"
_LONGEST_TOKEN = 4_096


class JwtCodec:
    """Signs and checks JWTs."""

    def encode(self, claims: Mapping[str, Any], kid: str, secret: bytes) -> str:
        return jwt.encode({"alg": ALGORITHM, "kid": kid}, dict(claims), OctKey.import_key(secret), [ALGORITHM])

    def kid_of(self, token: str) -> str | None:
        if len(token) > _LONGEST_TOKEN:
            return None
        head = token.partition(".")[0]
        try:
            header = msgspec.json.decode(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
        except (binascii.Error, msgspec.DecodeError, ValueError):
            return None
        kid = header.get("kid") if isinstance(header, dict) else None
        return kid if isinstance(kid, str) else None

    def decode(self, token: str, secret: bytes) -> Mapping[str, Any] | None:
        try:
            return jwt.decode(token, OctKey.import_key(secret), [ALGORITHM]).claims
        except (JoseError, ValueError):
            return None
