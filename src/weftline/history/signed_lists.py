"""The sealed list of a tenant's layers and definitions: what was removed from the database does not go unnoticed.

A signature shows that a version is as it was written, not that it is the newest, or that a line without versions
never had one. The list has the newest version of each line. It is stored in parts, so that an edit writes little of
it; every tenant has all parts from its first moment, so a part that is missing was removed. The seals need no key in
the database: they are keyed with the operator's secret (WEFTLINE_SIGNING_SECRET).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import msgspec

from weftline.kernel.errors import Forbidden, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.transaction import Row, Transaction

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


class LayerViolation(Forbidden):
    """The prompt does not begin with its layers as they are pinned."""

    code = "LAYER_VIOLATION"
    hint = "Assemble the prompt again. Do not edit the weftline:layer elements, and sanitise inputs before assembly."
    severity = "critical"
    violation: Violation | None = "layer_violation"


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
