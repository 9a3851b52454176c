"""Recomputing the hashes of a line, a page of commits at a time, to find what is not as it was written."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from weft.capabilities.history.model import EMPTY, Tag
from weft.storage.sql.content import unpack
from weft.storage.sql.history_rows import CHANGE, COMMIT, by_commit, recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.storage.sql.database import Row, Transaction

_COMMITS_AT_ONCE = 500
_PAGE = f"""
SELECT {COMMIT}, {CHANGE}, c.pruned, b.content, k.weight
FROM commits k
LEFT JOIN changes c ON c.tenant = k.tenant AND c.line_id = k.line_id AND c.seq = k.seq
LEFT JOIN blobs b ON b.tenant = k.tenant AND b.hash = c.blob_hash
WHERE k.tenant = $1 AND k.line_id = $2 AND k.seq > $3 AND k.seq <= $4 ORDER BY k.seq, c.key
"""  # noqa: S608 - our own column names
_TAGS = """
SELECT t.label, t.seq, t.created_by, t.created_at, t.hash, k.hash FROM tags t
LEFT JOIN commits k ON k.tenant = t.tenant AND k.line_id = t.line_id AND k.seq = t.seq
WHERE t.tenant = $1 AND t.line_id = $2 AND t.hash IS NOT NULL
"""
_KEY, _VERSION, _HASH, _PRUNED, _CONTENT, _WEIGHT = 11, 13, 15, 17, 18, 19


async def find_damage(transaction: Transaction, line_id: str) -> str | None:
    """Return what of a line's own commits, values or tags is not as it was written; None if all is."""
    line = await transaction.one(
        "SELECT seq, head, weight, base_line, base_seq FROM lines WHERE tenant = $1 AND line_id = $2",
        transaction.tenant,
        line_id,
    )
    if line is None:
        return None
    seq, head, weight, base_line, base_seq = line
    reached, parent = base_seq or 0, await _hash_at(transaction, base_line, base_seq)
    begin, noted_weight = parent, None
    while reached < seq:
        page = await transaction.all(_PAGE, transaction.tenant, line_id, reached, reached + _COMMITS_AT_ONCE)
        for rows in by_commit(page):
            reached += 1
            damage = _damage(rows, reached, parent)
            if damage is not None:
                return damage
            parent, noted_weight = rows[0][2], rows[0][_WEIGHT]
        if not page:
            return f"commit {reached + 1} is missing"
    if (reached, parent) != (seq, head):
        return "the head is not the last commit"
    if noted_weight is not None and noted_weight != weight:
        return "the weight is not what the last commit noted"
    return await _damaged_tag(transaction, line_id, base_seq or 0, begin)


async def _hash_at(transaction: Transaction, line_id: str | None, seq: int | None) -> bytes:
    """Return the hash that the first commit of a line follows."""
    while line_id is not None and seq:
        row = await transaction.one(
            """
            SELECT k.hash, l.base_line, l.base_seq FROM lines l
            LEFT JOIN commits k ON k.tenant = l.tenant AND k.line_id = l.line_id AND k.seq = $1
            WHERE l.tenant = $2 AND l.line_id = $3
            """,
            seq,
            transaction.tenant,
            line_id,
        )
        if row is None:
            break
        if row[0] is not None:
            return bytes(row[0])
        line_id = row[1]
    return EMPTY


async def _damaged_tag(transaction: Transaction, line_id: str, base_seq: int, begin: bytes) -> str | None:
    for label, seq, created_by, created_at, seal, commit_hash in await transaction.all(
        _TAGS, transaction.tenant, line_id
    ):
        named = begin if commit_hash is None and seq == base_seq else commit_hash
        if named is None or Tag(label, seq, created_by, created_at).seal(named) != seal:
            return f"the snapshot '{label}' is not what was set"
    return None


def _damage(rows: Sequence[Row], expected: int, parent: bytes) -> str | None:
    record = recorded(rows)
    if record.commit.seq != expected:
        return f"commit {expected} is missing"
    for row in rows:
        if _is_damaged(row[_HASH], row[_PRUNED], row[_CONTENT]):
            return f"the value of '{row[_KEY]}' version {row[_VERSION]} is not what was written"
    merged = record.commit.merged
    parents = (parent,) if merged is None else (parent, merged.hash)
    if record.commit.hash_after(*parents) != record.hash:
        return f"commit {expected} is not what was written"
    return None


def _is_damaged(blob_hash: bytes | None, pruned: int | None, content: bytes | None) -> bool:
    if blob_hash is None or pruned:
        return False
    return content is None or hashlib.sha256(unpack(content)).digest() != blob_hash
