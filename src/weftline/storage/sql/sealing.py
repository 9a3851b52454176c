"""Sealed versions in SQL: readers get another value, and what was written stays for verification and auditors."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from weftline.history.blobs import Blobs
from weftline.history.model import blob_hash, trunk_of
from weftline.history.store import OriginalVersion
from weftline.kernel.packed_text import text_of
from weftline.storage.sql.history_rows import decode_meta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.history.model import ChangeMeta
    from weftline.kernel.transaction import Transaction

_ORIGINALS = """
SELECT c.line_id, c.key, c.seq, c.incarnation, c.version, c.blob_hash, COALESCE(c.sealed_hash, c.blob_hash),
       COALESCE(c.sealed_meta, c.meta), b.content
FROM changes c JOIN blobs b ON b.tenant = c.tenant AND b.hash = COALESCE(c.sealed_hash, c.blob_hash)
WHERE c.tenant = $1 AND c.key = $2 AND c.pruned = 0 AND c.act = 'write' AND c.line_id IN (
    SELECT CAST($3 AS TEXT) UNION ALL SELECT l.line_id FROM lines l WHERE l.tenant = $1 AND l.trunk = $3)
ORDER BY c.line_id, c.seq
"""
# Without an upper bound for the lines: which text comes next depends on the collation.
_COPIED_KEYS = """
SELECT DISTINCT c.line_id, c.key FROM lines l JOIN changes c ON c.tenant = l.tenant AND c.line_id = l.line_id
WHERE l.tenant = $1 AND l.line_id > $2 AND substr(l.line_id, 1, $3) = $2
  AND (c.key = $4 OR substr(c.key, length(c.key) - $5 + 1) = $6)
"""
_SEALS = """
SELECT c.line_id, c.key, c.seq, c.blob_hash FROM changes c
WHERE c.tenant = $1 AND c.sealed_hash IS NOT NULL AND c.line_id IN (
    SELECT CAST($2 AS TEXT) UNION ALL SELECT l.line_id FROM lines l WHERE l.tenant = $1 AND l.trunk = $2)
"""
_SEAL = """
UPDATE changes SET sealed_hash = COALESCE(sealed_hash, blob_hash), sealed_meta = COALESCE(sealed_meta, meta),
                   blob_hash = $1, meta = $2
WHERE tenant = $3 AND line_id = $4 AND key = $5 AND seq = $6
"""
_SEAL_REASON = """
UPDATE commits SET sealed_reason = COALESCE(sealed_reason, reason), reason = ''
WHERE tenant = $1 AND line_id = $2 AND seq = $3
"""
_UNSEAL = """
UPDATE changes SET blob_hash = sealed_hash, meta = sealed_meta, sealed_hash = NULL, sealed_meta = NULL
WHERE tenant = $1 AND line_id = $2 AND key = $3 AND seq = $4 AND sealed_hash IS NOT NULL
"""
# The reason may quote any of the values that its commit wrote.
_UNSEAL_REASON = """
UPDATE commits SET reason = sealed_reason, sealed_reason = NULL
WHERE tenant = $1 AND line_id = $2 AND seq = $3 AND sealed_reason IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM changes c WHERE c.tenant = $1 AND c.line_id = $2 AND c.seq = $3 AND c.sealed_hash IS NOT NULL)
"""
_encode = msgspec.json.Encoder().encode


async def originals(transaction: Transaction, line_id: str, key: str) -> Sequence[OriginalVersion]:
    """Return what was written to a key, on the line and on all branches."""
    rows = await transaction.all(_ORIGINALS, transaction.tenant, key, trunk_of(line_id))
    return [OriginalVersion._make((*name, text_of(content), decode_meta(meta))) for *name, meta, content in rows]


async def copied_keys(transaction: Transaction, lines: str, key: str, mark: str) -> list[tuple[str, str]]:
    """Return the keys that are this one, or end with it after a mark, on all lines whose ids begin with ``lines``."""
    ending = mark + key
    rows = await transaction.all(_COPIED_KEYS, transaction.tenant, lines, len(lines), key, len(ending), ending)
    return [(line_id, key) for line_id, key in rows]


async def seals(transaction: Transaction, trunks: Sequence[str]) -> bytes:
    """Return a digest of the sealed versions of lines and their branches, and of what is shown of them."""
    rows = [row for trunk in trunks for row in await transaction.all(_SEALS, transaction.tenant, trunk)]
    return hashlib.sha256(_encode(sorted(map(tuple, rows)))).digest()


async def seal(transaction: Transaction, version: OriginalVersion, shown: str, meta: ChangeMeta) -> None:
    """Show another value instead of what was written, and no reason."""
    place = transaction.tenant, version.line_id
    await Blobs(transaction).put(blob_hash(shown), shown, None)
    await transaction.run(_SEAL, blob_hash(shown), _encode(meta).decode(), *place, version.key, version.seq)
    await transaction.run(_SEAL_REASON, *place, version.seq)
    await Blobs(transaction).forget([version.shown_hash])


async def unseal(transaction: Transaction, version: OriginalVersion) -> None:
    """Show again what was written."""
    place = transaction.tenant, version.line_id
    await transaction.run(_UNSEAL, *place, version.key, version.seq)
    await transaction.run(_UNSEAL_REASON, *place, version.seq)
    await Blobs(transaction).forget([version.shown_hash])
