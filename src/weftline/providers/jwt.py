"""JSON Web Tokens with one pinned algorithm.

joserfc is imported on the first token: with its cryptography it takes 0.08 s, and most processes need none.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

# A token with any other algorithm, such as "none", is refused before its signature is verified.
ALGORITHM = "HS256"
_MAX_TOKEN_CHARACTERS = 4_096


class JwtCodec:
    """Signs and verifies tokens."""

    def encode(self, claims: Mapping[str, Any], kid: str, secret: bytes) -> str:
        from joserfc import jwt  # noqa: PLC0415 - see above
        from joserfc.jwk import OctKey  # noqa: PLC0415 - see above

        return jwt.encode({"alg": ALGORITHM, "kid": kid}, dict(claims), OctKey.import_key(secret), [ALGORITHM])

    def kid_of(self, token: str) -> str | None:
        if len(token) > _MAX_TOKEN_CHARACTERS:
            return None
        head = token.partition(".")[0]
        try:
            header = msgspec.json.decode(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
        except (binascii.Error, msgspec.DecodeError, ValueError):
            return None
        kid = header.get("kid") if isinstance(header, dict) else None
        return kid if isinstance(kid, str) else None

    def decode(self, token: str, secret: bytes) -> Mapping[str, Any] | None:
        from joserfc import jwt  # noqa: PLC0415 - see above
        from joserfc.errors import JoseError  # noqa: PLC0415 - see above
        from joserfc.jwk import OctKey  # noqa: PLC0415 - see above

        try:
            return jwt.decode(token, OctKey.import_key(secret), [ALGORITHM]).claims
        except (JoseError, ValueError):
            return None
