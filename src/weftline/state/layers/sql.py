"""Names of layers, and the versions that sessions have pinned."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.history.composite_lines import PartVersion
from weftline.history.signed_lists import list_violation, seal
from weftline.kernel.transaction import SqlStore
from weftline.state.agent_context.model import pin_holder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Transaction


_encode = msgspec.json.Encoder(order="deterministic").encode
_versions = msgspec.json.Decoder(tuple[PartVersion, ...]).decode
_PAGE = """
SELECT layers.name, lines.seq, lines.head, lines.weight, commits.author, commits.committed_at FROM layers
JOIN lines ON lines.tenant = layers.tenant AND lines.line_id = 'layer:' || layers.name
JOIN commits ON commits.tenant = lines.tenant AND commits.line_id = lines.line_id AND commits.seq = lines.seq
WHERE layers.tenant = $1 AND layers.name > $2 ORDER BY layers.name LIMIT $3
"""
_FIND_PIN = """
SELECT session_id, principal_id, versions, pinned_at, seal FROM layer_pins
WHERE tenant = $1 AND session_id = $2 AND principal_id = $3
"""
_PUT_PIN = """
INSERT INTO layer_pins (tenant, session_id, principal_id, versions, pinned_at, seal) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, session_id, principal_id) DO UPDATE SET
    versions = excluded.versions, pinned_at = excluded.pinned_at, seal = excluded.seal
"""
_PINS = "SELECT session_id, principal_id, versions FROM layer_pins WHERE tenant = $1"
_SEAL_PIN = "UPDATE layer_pins SET seal = $1 WHERE tenant = $2 AND session_id = $3 AND principal_id = $4"
_PROTECT = "INSERT INTO pins (tenant, holder, line_id, seq) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
_UNPROTECT = """
DELETE FROM pins WHERE tenant = $1 AND holder IN (
    SELECT 'session:' || session_id || ':' || principal_id || ':layers' FROM layer_pins
    WHERE tenant = $1 AND session_id = $2)
"""


class LayerPin(msgspec.Struct, frozen=True):
    """The layer versions that an agent's prompts have in a session, lowest level first; they move together."""

    session_id: str
    principal_id: str
    versions: tuple[PartVersion, ...]
    pinned_at: int


class ListedLayer(NamedTuple):
    """A layer that has been defined: its version, size, and the last commit."""

    name: str
    version: int
    hash: bytes
    size: int
    author: str
    committed_at: int


class LayerStore(SqlStore):
    """Layers of a tenant."""

    __slots__ = ("_secret",)

    def __init__(self, transaction: Transaction, signing_secret: bytes = b"") -> None:
        super().__init__(transaction)
        self._secret = signing_secret

    async def add(self, name: str) -> None:
        """Add the name of a layer, if it is new."""
        await self._tx.run(
            "INSERT INTO layers (tenant, name) VALUES ($1, $2) ON CONFLICT DO NOTHING", self._tenant, name
        )

    async def remove(self, name: str) -> None:
        await self._tx.run("DELETE FROM layers WHERE tenant = $1 AND name = $2", self._tenant, name)

    async def page(self, after: str, limit: int) -> Sequence[ListedLayer]:
        """Return the next layers, by name."""
        rows = await self._tx.all(_PAGE, self._tenant, after, limit)
        return [ListedLayer(*row) for row in rows]

    async def find_pin(self, session_id: str, principal_id: str) -> LayerPin | None:
        row = await self._tx.one(_FIND_PIN, self._tenant, session_id, principal_id)
        if row is None:
            return None
        *_, versions, pinned_at, stored = row
        if stored is None or not hmac.compare_digest(stored, self._seal(session_id, principal_id, versions)):
            raise list_violation(
                f"The layers of '{principal_id}' in session '{session_id}' are not as they were pinned."
            )
        return LayerPin(session_id, principal_id, _versions(versions), pinned_at)

    async def put_pin(self, pin: LayerPin) -> None:
        """Pin versions in place of the previous ones, and keep them from being pruned."""
        holder = f"{pin_holder(pin.session_id, pin.principal_id)}:layers"
        await self._tx.run("DELETE FROM pins WHERE tenant = $1 AND holder = $2", self._tenant, holder)
        for at in (each for each in pin.versions if each.seq > 0):
            await self._tx.run(_PROTECT, self._tenant, holder, at.line, at.seq)
        versions = _encode(pin.versions).decode()
        names = (pin.session_id, pin.principal_id)
        await self._tx.run(_PUT_PIN, self._tenant, *names, versions, pin.pinned_at, self._seal(*names, versions))

    async def seal_pins(self) -> None:
        """Seal what is stored, with a new secret of the operator."""
        for session_id, principal_id, versions in await self._tx.all(_PINS, self._tenant):
            names = (session_id, principal_id)
            await self._tx.run(_SEAL_PIN, self._seal(*names, versions), self._tenant, *names)

    def _seal(self, session_id: str, principal_id: str, versions: str) -> bytes:
        return seal(self._secret, "weftline pin", self._tenant, session_id, principal_id, versions)


async def erase_layer_pins(transaction: Transaction, session_id: str) -> None:
    """Delete the pinned layers of a session."""
    await transaction.run(_UNPROTECT, transaction.tenant, session_id)
    await transaction.run(
        "DELETE FROM layer_pins WHERE tenant = $1 AND session_id = $2", transaction.tenant, session_id
    )
