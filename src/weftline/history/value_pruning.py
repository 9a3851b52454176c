"""Pruning of old values in SQL. Versions and hashes stay."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.history.blobs import Blobs
from weftline.history.model import blob_hash, trunk_of
from weftline.history.store import OriginalVersion, PruneCursor, Pruned
from weftline.history.version_lookup import decode_meta
from weftline.kernel.packed_text import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.history.model import ChangeMeta
    from weftline.history.store import Limits
    from weftline.kernel.transaction import Transaction


# Only the versions right before the retained ones are scanned: constant cost for a long history.
_OLDER_BATCH = 64
_CHANGES_BATCH = 500
_NEXT_CHANGE = """
SELECT MIN(following.seq) FROM changes following
WHERE following.tenant = c.tenant AND following.line_id = c.line_id AND following.key = c.key AND following.seq > c.seq
"""
# A value is held if a tag, a pin or a branch point lies between its commit and the key's next change.
_HELD = f"""
EXISTS (SELECT 1 FROM tags t WHERE t.tenant = c.tenant AND t.line_id = c.line_id
          AND t.seq >= c.seq AND t.seq < ({_NEXT_CHANGE}))
OR EXISTS (SELECT 1 FROM pins p WHERE p.tenant = c.tenant AND p.line_id = c.line_id
             AND p.seq >= c.seq AND p.seq < ({_NEXT_CHANGE}))
OR EXISTS (SELECT 1 FROM lines l WHERE l.tenant = c.tenant AND l.base_line = c.line_id
             AND l.base_seq >= c.seq AND l.base_seq < ({_NEXT_CHANGE}))
"""  # noqa: S608 - our own SQL
_OLDER = f"""
SELECT c.seq, c.blob_hash FROM changes c
WHERE c.tenant = $1 AND c.line_id = $2 AND c.key = $3 AND c.pruned = 0 AND c.act = 'write'
  AND c.seq IN (SELECT old.seq FROM changes old WHERE old.tenant = $1 AND old.line_id = $2 AND old.key = $3
                  AND old.act = 'write' ORDER BY old.seq DESC LIMIT $4 OFFSET $5)
  AND NOT ({_HELD})
"""  # noqa: S608 - our own SQL
_NEXT = f"""
SELECT c.key, c.seq, c.blob_hash, CASE WHEN {_HELD} THEN 1 ELSE 0 END,
       (SELECT k.committed_at FROM commits k
        WHERE k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = ({_NEXT_CHANGE})),
       (SELECT k.committed_at FROM commits k WHERE k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq)
FROM changes c
WHERE c.tenant = $1 AND c.line_id = $2 AND (c.key, c.seq) > ($3, $4) AND c.pruned = 0 AND c.act = 'write'
ORDER BY c.key, c.seq LIMIT $5
"""  # noqa: S608 - our own SQL
_OLDEST_KEPT = """
SELECT seq FROM changes WHERE tenant = $1 AND line_id = $2 AND key = $3 AND act = 'write'
ORDER BY seq DESC LIMIT 1 OFFSET $4
"""


async def prune_key(transaction: Transaction, line_id: str, key: str, keep: int) -> None:
    rows = await transaction.all(_OLDER, transaction.tenant, line_id, key, _OLDER_BATCH, keep)
    await forget_values(transaction, line_id, [(key, *row) for row in rows])


async def prune_batch(transaction: Transaction, line_id: str, begin: PruneCursor, limits: Limits) -> Pruned:
    rows = await transaction.all(_NEXT, transaction.tenant, line_id, begin.key, begin.seq, _CHANGES_BATCH)
    oldest_kept = await _oldest_kept(transaction, line_id, {row[0] for row in rows}, limits.versions)
    going = []
    for key, seq, value_hash, held, replaced_at, written_at in rows:
        # Current values are never pruned.
        if held or replaced_at is None:
            continue
        too_old = _is_before(replaced_at, limits.replaced_before) or _is_before(written_at, limits.written_before)
        if too_old or seq < oldest_kept.get(key, 0):
            going.append((key, seq, value_hash))
    freed = await forget_values(transaction, line_id, going)
    seqs = [seq for _, seq, _ in going]
    reached = PruneCursor(rows[-1][0], rows[-1][1]) if len(rows) == _CHANGES_BATCH else None
    return Pruned(len(going), freed, min(seqs, default=0), max(seqs, default=0), reached)


_DELETE_AUTOMATIC_TAGS = """
DELETE FROM tags WHERE tenant = $1 AND line_id = $2 AND automatic = 1 AND label NOT IN (
    SELECT t.label FROM tags t WHERE t.tenant = $1 AND t.line_id = $2 AND t.automatic = 1
    ORDER BY t.created_at DESC, t.label LIMIT $3)
"""


async def delete_automatic_tags(transaction: Transaction, line_id: str, limits: Limits) -> None:
    if limits.replaced_before is not None:
        await transaction.run(
            "DELETE FROM tags WHERE tenant = $1 AND line_id = $2 AND automatic = 1 AND created_at < $3",
            transaction.tenant,
            line_id,
            limits.replaced_before,
        )
    if limits.versions is not None:
        await transaction.run(_DELETE_AUTOMATIC_TAGS, transaction.tenant, line_id, limits.versions)


def _is_before(time: int, limit: int | None) -> bool:
    return limit is not None and time < limit


async def _oldest_kept(transaction: Transaction, line_id: str, keys: set[str], versions: int | None) -> dict[str, int]:
    """Return the oldest retained version of each key that has more versions than the limit."""
    if versions is None:
        return {}
    oldest = {}
    for key in sorted(keys):
        row = await transaction.one(_OLDEST_KEPT, transaction.tenant, line_id, key, versions - 1)
        if row is not None:
            oldest[key] = row[0]
    return oldest


# What was written instead of a value that redaction replaced.
_SEALED = """
SELECT sealed_hash FROM changes WHERE tenant = $1 AND line_id = $2 AND sealed_hash IS NOT NULL AND pruned <> 0
"""
_FORGET = "UPDATE changes SET pruned = 1 WHERE tenant = $1 AND line_id = $2 AND key = $3 AND seq = $4"


async def forget_values(transaction: Transaction, line_id: str, going: Sequence[tuple[Any, ...]]) -> int:
    """Remove the values of changes, given as key, number of the commit and hash; return the freed bytes."""
    for key, seq, _ in going:
        await transaction.run(_FORGET, transaction.tenant, line_id, key, seq)
    sealed = await transaction.all(_SEALED, transaction.tenant, line_id) if going else []
    return await Blobs(transaction).forget([*(each[-1] for each in going), *(row[0] for row in sealed)])


# Sealed versions in SQL: readers get another value, and what was written stays for verification and auditors.

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
