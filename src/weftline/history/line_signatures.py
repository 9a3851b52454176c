"""Ed25519 signatures of the versions of layers and definitions.

A signature covers the tenant, the line, the version's number and hash, and the state that the version has. The private
key is derived from a random secret in the database and from that of the operator (WEFTLINE_SIGNING_SECRET): with a
secret, nobody who only has the database can sign. Of a retired key only the public half is kept, endorsed by the
current key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.access.model import actor_for
from weftline.access.sql import AccessStore
from weftline.history.line_kinds import is_signed, kind_of
from weftline.history.signed_lists import LayerViolation
from weftline.kernel.errors import InvalidInput, SelfModification

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from weftline.history.line_kinds import EditProof
    from weftline.history.model import Change
    from weftline.kernel.transaction import Transaction


_encode = msgspec.json.Encoder().encode
_KEYS = "SELECT kid, secret, public_key, endorsement FROM line_keys WHERE tenant = $1 ORDER BY created_at DESC, kid"
# A tenant has one key with a secret: the index refuses another that is created at the same time.
_ADD_KEY = """
INSERT INTO line_keys (tenant, kid, secret, public_key, created_at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
"""
_SIGN = """
INSERT INTO line_signatures (tenant, line_id, seq, kid, signature) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, line_id, seq) DO UPDATE SET kid = excluded.kid, signature = excluded.signature
"""


class _Key(NamedTuple):
    kid: str
    secret: bytes | None
    public_key: bytes
    endorsement: bytes | None


class LineSignatures:
    """Signs and checks versions in one transaction, with the tenant's key."""

    def __init__(self, transaction: Transaction, operator_secret: bytes) -> None:
        self._tx = transaction
        self._operator_secret = operator_secret

    async def sign(self, line_id: str, seq: int, commit_hash: bytes, state: Sequence[Change], now: int) -> None:
        """Sign a version with the current key; the tenant's first signature creates it."""
        key = await self._current() or await self._create(now)
        signature = self._private(key).sign(self._content(line_id, seq, commit_hash, state))
        await self._tx.run(_SIGN, self._tx.tenant, line_id, seq, key.kid, signature)

    async def is_valid(self, line_id: str, seq: int, commit_hash: bytes, state: Sequence[Change]) -> bool:
        """Tell whether a version has a signature by one of the tenant's keys, over this content."""
        row = await self._tx.one(
            "SELECT kid, signature FROM line_signatures WHERE tenant = $1 AND line_id = $2 AND seq = $3",
            self._tx.tenant,
            line_id,
            seq,
        )
        if row is None:
            return False
        kid, signature = row
        public_key = await self._trusted(kid)
        content = self._content(line_id, seq, commit_hash, state)
        return public_key is not None and _verifies(public_key, signature, content)

    async def rotate(self, now: int) -> None:
        """Replace the key. Versions that it signed stay valid, but nobody can sign with it any more."""
        keys = await self._keys()
        trusted = [key for key in keys if await self._trusted(key.kid) is not None]
        await self._tx.run("UPDATE line_keys SET secret = NULL WHERE tenant = $1", self._tx.tenant)
        new = self._private(await self._create(now))
        for key in trusted:
            await self._tx.run(
                "UPDATE line_keys SET endorsement = $1 WHERE tenant = $2 AND kid = $3",
                new.sign(self._endorsed(key)),
                self._tx.tenant,
                key.kid,
            )

    async def _trusted(self, kid: str) -> bytes | None:
        """Return the public key with this id if it is the current one, or endorsed by it."""
        keys = {key.kid: key for key in await self._keys()}
        key, current = keys.get(kid), next((each for each in keys.values() if each.secret), None)
        if key is None or current is None:
            return None
        own = public_bytes(self._private(current))
        if key.kid == current.kid:
            return own
        endorsed = key.endorsement is not None and _verifies(own, key.endorsement, self._endorsed(key))
        return key.public_key if endorsed else None

    async def _keys(self) -> list[_Key]:
        return [_Key(*row) for row in await self._tx.all(_KEYS, self._tx.tenant)]

    async def _current(self) -> _Key | None:
        return next((key for key in await self._keys() if key.secret), None)

    async def _create(self, now: int) -> _Key:
        secret = secrets.token_bytes(32)
        public_key = public_bytes(_private_key(self._operator_secret, secret))
        key = _Key(hashlib.sha256(public_key).hexdigest()[:16], secret, public_key, None)
        await self._tx.run(_ADD_KEY, self._tx.tenant, key.kid, secret, public_key, now)
        return await self._current() or key

    def _private(self, key: _Key) -> Ed25519PrivateKey:
        assert key.secret is not None  # noqa: S101 - retired keys sign nothing
        return _private_key(self._operator_secret, key.secret)

    def _content(self, line_id: str, seq: int, commit_hash: bytes, state: Sequence[Change]) -> bytes:
        return _encode(("weftline version", self._tx.tenant, line_id, seq, commit_hash.hex(), state_digest(state)))

    def _endorsed(self, key: _Key) -> bytes:
        return _encode(("weftline key", self._tx.tenant, key.kid, key.public_key.hex()))


def state_digest(state: Sequence[Change]) -> str:
    """Return the hash of all keys of a version with the hashes of their values."""
    changes = sorted(state, key=lambda change: change.key)
    rows = [(c.key, c.incarnation, c.version, c.blob_hash.hex() if c.blob_hash else None, c.meta) for c in changes]
    return hashlib.sha256(_encode(rows)).hexdigest()


# cryptography is imported on the first signature: it takes 0.08 s, and most processes need none.
@lru_cache(maxsize=1_000)
def _private_key(operator_secret: bytes, secret: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - see above

    return Ed25519PrivateKey.from_private_bytes(hmac.digest(operator_secret, secret, "sha256"))


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _verifies(public_key: bytes, signature: bytes, content: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - see above

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


# The last check of an edit to a layer or a definition: by the stored tree and clearances, in its own transaction.


async def check_edit(transaction: Transaction, line_id: str, author_id: str, proof: EditProof | None) -> None:
    """Raise unless the edit is proven, and its author may change the line by what is stored now."""
    if proof is None or (proof.line_id, proof.editor_id) != (line_id, author_id):
        raise unproven(line_id)
    access = AccessStore(transaction)
    editor = await access.principal(author_id)
    if editor is None or editor.disabled_at is not None:
        raise unproven(line_id)
    memberships = await access.memberships(editor)
    actor = actor_for(transaction.tenant, editor, memberships, permissions=editor.permissions, epoch=0)
    check = kind_of(line_id).check_edit
    if check is None:
        raise unproven(line_id)
    await check(actor, line_id, access)


def check_not_signed(line_id: str) -> None:
    """Refuse to add commits to a layer or definition that another installation made."""
    if is_signed(line_id):
        raise unproven(line_id)


def check_may_branch(line_id: str) -> None:
    """Refuse branches of layers and definitions: a change applies everywhere."""
    if is_signed(line_id):
        raise InvalidInput("context_id: a layer or definition cannot be branched", field="context_id")


def tampered_base(line_id: str, seq: int, kept: Iterable[str]) -> LayerViolation:
    error = LayerViolation(
        f"Version {seq} of '{line_id}' has no valid signature, and this edit would keep parts of it.",
        hint=f"Set all of these at once: {', '.join(sorted(kept))}; or restore a backup.",
        problem="unsigned",
        context_id=line_id,
    )
    error.violation = "tampering"
    return error


def unproven(line_id: str) -> SelfModification:
    return SelfModification(
        f"'{line_id}' binds agents: it is changed only with the proof of an edit that its rules allow.",
        hint="Change it with `agent.define` or `layer.define`.",
        context_id=line_id,
    )
