"""Recomputing the hashes of a line, a page of commits at a time, to find what is not as it was written."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.capabilities.history.model import EMPTY, Tag, trunk_of
from weft.storage.sql.content import unpack
from weft.storage.sql.history_rows import CHANGE, COMMIT, by_commit, recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.history.model import Recorded
    from weft.storage.sql.database import Row, Transaction

_COMMITS_AT_ONCE = 500
_LINE = """
SELECT seq, head, weight, step, trunk, base_line, base_seq FROM lines WHERE tenant = $1 AND line_id = $2
"""
_PAGE = f"""
SELECT {COMMIT}, {CHANGE}, c.pruned, b.content, k.weight
FROM commits k
LEFT JOIN changes c ON c.tenant = k.tenant AND c.line_id = k.line_id AND c.seq = k.seq
LEFT JOIN blobs b ON b.tenant = k.tenant AND b.hash = c.blob_hash
WHERE k.tenant = $1 AND k.line_id = $2 AND k.seq > $3 AND k.seq <= $4 ORDER BY k.seq, c.key
"""  # noqa: S608 - our own column names
_BASE = """
SELECT k.hash, k.weight, l.base_line FROM lines l
LEFT JOIN commits k ON k.tenant = l.tenant AND k.line_id = l.line_id AND k.seq = $1
WHERE l.tenant = $2 AND l.line_id = $3
"""
_TAGS = "SELECT label, seq, created_by, created_at, automatic, hash FROM tags WHERE tenant = $1 AND line_id = $2"
# Pruning takes only what was replaced.
_STANDING_BUT_PRUNED = """
SELECT c.key FROM changes c
WHERE c.tenant = $1 AND c.line_id = $2 AND c.pruned <> 0 AND c.act = 'write' AND NOT EXISTS (
    SELECT 1 FROM changes f WHERE f.tenant = $1 AND f.line_id = $2 AND f.key = c.key AND f.seq > c.seq)
LIMIT 1
"""
_KEY, _VERSION, _HASH, _PRUNED, _CONTENT, _WEIGHT = 11, 13, 15, 17, 18, 19


class _Damaged(Exception):
    """Something is not as it was written."""


class _Reached(NamedTuple):
    """What the commits up to one say of where the line stands; the weight is None where it was not noted."""

    seq: int
    hash: bytes
    weight: int | None
    step: str | None


async def find_damage(transaction: Transaction, line_id: str) -> str | None:
    """Return what of a line's own commits, values or tags is not as it was written; None if all is."""
    try:
        await _check(transaction, line_id)
    except _Damaged as damage:
        return str(damage)
    except UnicodeDecodeError:
        return "there is text that nobody wrote"
    return None


async def _check(transaction: Transaction, line_id: str) -> None:
    line = await transaction.one(_LINE, transaction.tenant, line_id)
    if line is None:
        return
    seq, head, weight, step, trunk, base_line, base_seq = line
    if trunk != (None if base_line is None else trunk_of(line_id)):
        raise _Damaged("the branch is noted at another line")
    begin = await _base(transaction, base_line, base_seq)
    last = await _follow(transaction, line_id, begin, seq)
    if (last.seq, last.hash) != (seq, head):
        raise _Damaged("the head is not the last commit")
    if last.weight not in {None, weight}:
        raise _Damaged("the weight is not what the last commit noted")
    if last.step != step:
        raise _Damaged("the step is not what the last commit noted")
    await _check_what_stands(transaction, line_id)
    await _check_tags(transaction, line_id)


async def _follow(transaction: Transaction, line_id: str, begin: _Reached, seq: int) -> _Reached:
    """Return what the commits behind a beginning come to, having checked each."""
    reached = begin
    while reached.seq < seq:
        upto = reached.seq + _COMMITS_AT_ONCE
        page = await transaction.all(_PAGE, transaction.tenant, line_id, reached.seq, upto)
        for rows in by_commit(page):
            reached = _checked(rows, reached)
        if not page:
            raise _Damaged(f"commit {reached.seq + 1} is missing")
    return reached


async def _base(transaction: Transaction, line_id: str | None, seq: int | None) -> _Reached:
    """Return what the first commit of a line follows."""
    found = await _commit_at(transaction, line_id, seq or 0)
    return _Reached(seq or 0, EMPTY, 0 if not seq else None, None) if found is None else found


async def _commit_at(transaction: Transaction, line_id: str | None, seq: int) -> _Reached | None:
    """Return a commit, on a line or on the one it came from."""
    while line_id is not None and seq:
        row = await transaction.one(_BASE, seq, transaction.tenant, line_id)
        if row is None:
            return None
        if row[0] is not None:
            return _Reached(seq, row[0], row[1], None)
        line_id = row[2]
    return None


async def _check_what_stands(transaction: Transaction, line_id: str) -> None:
    row = await transaction.one(_STANDING_BUT_PRUNED, transaction.tenant, line_id)
    if row is not None:
        raise _Damaged(f"the value of '{row[0]}' is gone without having been replaced")


async def _check_tags(transaction: Transaction, line_id: str) -> None:
    for label, seq, created_by, created_at, automatic, seal in await transaction.all(
        _TAGS, transaction.tenant, line_id
    ):
        named = await _commit_at(transaction, line_id, seq)
        tag = Tag(label, seq, created_by, created_at, automatic=bool(automatic))
        # Tags from before there were seals have none.
        if seal is not None and tag.seal(EMPTY if named is None else named.hash) != seal:
            raise _Damaged(f"the snapshot '{label}' is not what was set")


def _checked(rows: Sequence[Row], before: _Reached) -> _Reached:
    expected = before.seq + 1
    record = _record(rows, expected)
    if record.commit.seq != expected:
        raise _Damaged(f"commit {expected} is missing")
    for row in rows:
        if _is_damaged(row[_HASH], row[_PRUNED], row[_CONTENT]):
            raise _Damaged(f"the value of '{row[_KEY]}' version {row[_VERSION]} is not what was written")
    merged, weight = record.commit.merged, rows[0][_WEIGHT]
    parents = (before.hash,) if merged is None else (before.hash, merged.hash)
    if record.commit.hash_after(*parents, weight=weight) != record.hash:
        raise _Damaged(f"commit {expected} is not what was written")
    return _Reached(expected, record.hash, weight, record.commit.step or before.step)


def _record(rows: Sequence[Row], expected: int) -> Recorded:
    try:
        return recorded(rows)
    except (msgspec.MsgspecError, ValueError) as unreadable:
        raise _Damaged(f"commit {expected} is not what was written") from unreadable


def _is_damaged(blob_hash: bytes | None, pruned: int | None, content: bytes | None) -> bool:
    if blob_hash is None or pruned:
        return False
    return content is None or hashlib.sha256(unpack(content)).digest() != blob_hash
