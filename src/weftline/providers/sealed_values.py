"""Encrypts values that the database stores but nobody may read there: secrets of servers of the gateway.

The key follows from the signing secret, which is kept outside the database and is the same in every process.
"""

from __future__ import annotations

import base64
import os

_NONCE_BYTES = 12
_PURPOSE = b"weftline sealed values"


class SealedValues:
    """Seals values for one place, such as the variables of a server: a value moved elsewhere does not open."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    @property
    def available(self) -> bool:
        return bool(self._secret)

    def seal(self, place: str, value: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - slow, and seldom needed

        nonce = os.urandom(_NONCE_BYTES)
        return base64.b64encode(nonce + AESGCM(self._key()).encrypt(nonce, value.encode(), place.encode())).decode()

    def open(self, place: str, sealed: str) -> str | None:
        """Return a value; None if it was sealed with another secret or for another place."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - likewise
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - likewise

        data = base64.b64decode(sealed)
        try:
            value = AESGCM(self._key()).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], place.encode())
        except InvalidTag:
            return None
        return value.decode()

    def _key(self) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - likewise
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415 - likewise

        return HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(self._secret)
