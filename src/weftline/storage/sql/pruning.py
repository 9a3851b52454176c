"""Pruning of old values in SQL. Versions and hashes stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.history.blobs import Blobs
from weftline.history.store import PruneCursor, Pruned

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    for key, seq, blob_hash, held, replaced_at, written_at in rows:
        # Current values are never pruned.
        if held or replaced_at is None:
            continue
        too_old = _is_before(replaced_at, limits.replaced_before) or _is_before(written_at, limits.written_before)
        if too_old or seq < oldest_kept.get(key, 0):
            going.append((key, seq, blob_hash))
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
