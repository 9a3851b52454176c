"""Layers in SQL: names, pinned versions and critical edits."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.history.composite_lines import PartVersion
from weftline.kernel.transaction import SqlStore
from weftline.state.agent_context.model import pin_holder
from weftline.state.layers.model import LayerViolation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.transaction import Row, Transaction


# The sealed list of a tenant's layers and definitions: what was removed from the database does not go unnoticed.
#
# A signature shows that a version is as it was written, not that it is the newest, or that a line without versions
# never had one. The list has the newest version of each line. It is stored in parts, so that an edit writes little of
# it; every tenant has all parts from its first moment, so a part that is missing was removed. The seals need no key in
# the database: they are keyed with the operator's secret (WEFTLINE_SIGNING_SECRET).

_PARTS = 16
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(dict[str, int]).decode
_READ = "SELECT versions, seal FROM signed_lists WHERE tenant = $1 AND part = $2"
_READ_ALL = "SELECT part, versions, seal FROM signed_lists WHERE tenant = $1"
_READ_WITH_LINE = """
SELECT s.versions, s.seal, l.seq, {columns} FROM signed_lists s
LEFT JOIN lines l ON l.tenant = s.tenant AND l.line_id = $1 WHERE s.tenant = $2 AND s.part = $3
"""
_PUT = """
INSERT INTO signed_lists (tenant, part, versions, seal) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, part) DO UPDATE SET versions = excluded.versions, seal = excluded.seal
"""


class SignedLists:
    """Reads and writes the list in one transaction."""

    __slots__ = ("_operator_secret", "_tenant", "_tx")

    def __init__(self, transaction: Transaction, operator_secret: bytes) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant
        self._operator_secret = operator_secret

    async def write_all(self, versions: Mapping[str, int]) -> None:
        """Replace the whole list: that of a new tenant is empty, the operator's has what is stored."""
        parts: list[dict[str, int]] = [{} for _ in range(_PARTS)]
        for line_id, seq in versions.items():
            parts[_part_of(line_id)][line_id] = seq
        await self._tx.many(_PUT, [self._row(part, parts[part]) for part in range(_PARTS)])

    async def all(self) -> Mapping[str, int]:
        """Return the newest version of each line."""
        rows = {part: row for part, *row in await self._tx.all(_READ_ALL, self._tenant)}
        return {line: seq for part in range(_PARTS) for line, seq in self._opened(part, rows.get(part)).items()}

    async def check_newest(self, line_id: str, seq: int) -> None:
        """Raise LayerViolation unless a line, which is locked, has the version that is listed."""
        _check(line_id, seq, await self._read(_part_of(line_id), _READ))

    async def read_with_line(self, line_id: str, columns: Sequence[str]) -> Row | None:
        """Return the row of a line; LayerViolation if the listed version of it is missing."""
        part = _part_of(line_id)
        query = _READ_WITH_LINE.format(columns=", ".join(f"l.{column}" for column in columns))
        row = await self._tx.one(query, line_id, self._tenant, part)
        versions = self._opened(part, row)
        assert row is not None  # noqa: S101 - opened above
        _, _, seq, *line = row
        _check(line_id, seq or 0, versions)
        return None if seq is None else line

    async def put(self, line_id: str, seq: int | None) -> None:
        """List a line with its new version; without one, take it off the list."""
        part = _part_of(line_id)
        versions = await self._read(part, _READ + " {for_update}")
        versions.pop(line_id, None)
        await self._tx.run(_PUT, *self._row(part, versions if seq is None else versions | {line_id: seq}))

    async def _read(self, part: int, query: str) -> dict[str, int]:
        return self._opened(part, await self._tx.one(query, self._tenant, part))

    def _opened(self, part: int, row: Row | None) -> dict[str, int]:
        if row is None or not hmac.compare_digest(row[1], self._seal(part, row[0])):
            raise list_violation("The list of layers and definitions is not as it was written.")
        return _decode(row[0])

    def _row(self, part: int, versions: dict[str, int]) -> tuple[str, int, str, bytes]:
        text = _encode_sorted(versions).decode()
        return self._tenant, part, text, self._seal(part, text)

    def _seal(self, part: int, text: str) -> bytes:
        return seal(self._operator_secret, "weftline list", self._tenant, str(part), text)


def _check(line_id: str, seq: int, versions: Mapping[str, int]) -> None:
    newest = versions.get(line_id, 0)
    if seq < newest:
        raise list_violation(f"Version {newest} of '{line_id}' was removed from the database.")


def seal(operator_secret: bytes, *content: str) -> bytes:
    """Return the seal over texts; the first names their purpose, so that no seal counts for something else."""
    return hmac.digest(operator_secret, _encode_sorted(content), "sha256")


def list_violation(message: str) -> LayerViolation:
    """Return the error for layers, definitions or their list that were removed or replaced in the database."""
    error = LayerViolation(
        message,
        hint="An operator restores a backup, or checks what is stored and accepts it with `weftline db sign`.",
        problem="removed",
    )
    error.violation = "tampering"
    return error


def _part_of(line_id: str) -> int:
    return hashlib.sha256(line_id.encode()).digest()[0] % _PARTS


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
