"""Row mappers of history: commits, changes and versions."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from weftline.history.model import (
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    Point,
    StoredCommit,
    Version,
)
from weftline.kernel.packed_text import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.kernel.transaction import Row

CHANGE = "c.key, c.incarnation, c.version, c.act, c.blob_hash, c.meta"
VERSION = f"{CHANGE}, c.seq, k.author, k.committed_at, k.reason, k.step, k.principal_id"
COMMIT = """k.line_id, k.seq, k.hash, k.author, k.principal_id, k.committed_at, k.reason, k.step,
k.merged_line, k.merged_seq, k.merged_hash, k.salt"""
# Loose index scan: the cost depends on the number of keys, not on how often each was written.
ALL_KEYS = """
WITH RECURSIVE touched(key) AS (
    SELECT MIN(f.key) FROM changes f WHERE f.tenant = $1 AND f.line_id = $2
    UNION ALL
    SELECT (SELECT MIN(f.key) FROM changes f WHERE f.tenant = $1 AND f.line_id = $2 AND f.key > touched.key)
    FROM touched WHERE touched.key IS NOT NULL)
"""
_COMMIT_COLUMNS = 12
_CHANGE_COLUMNS = 6
_VERSION_COLUMNS = 12
_meta = msgspec.json.Decoder(ChangeMeta)


def version(row: Row) -> Version:
    """Build a version from a VERSION row, with its value if the row has one."""
    *of_change, seq, author, committed_at, reason, step, principal_id = row[:_VERSION_COLUMNS]
    content = row[_VERSION_COLUMNS] if len(row) > _VERSION_COLUMNS else None
    value = None if content is None else text_of(content)
    return Version(change(*of_change), seq, author, committed_at, value, reason, step, principal_id)


def decode_meta(text: str) -> ChangeMeta:
    return _meta.decode(text)


def change(key: str, incarnation: int, number: int, act: str, blob_hash: bytes | None, meta: str) -> Change:
    return Change(key, incarnation, number, ChangeKind(act), blob_hash, _meta.decode(meta))


def recorded(rows: Sequence[Row]) -> StoredCommit:
    """Build a commit from COMMIT + CHANGE rows: one for each change, or one without changes."""
    line_id, seq, commit_hash, author, principal_id, committed_at, reason, step, *rest = rows[0][:_COMMIT_COLUMNS]
    *merged, salt = rest
    changes = tuple(_changes(rows))
    merge = None if merged[0] is None else Point(*merged)
    commit = Commit(line_id, seq, Author(author, principal_id), committed_at, reason, step, changes, merge, salt)
    return StoredCommit(commit, commit_hash)


def by_commit(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Group COMMIT rows, ordered by seq, by commit."""
    for _, group in groupby(rows, key=lambda row: row[1]):
        yield list(group)


def _changes(rows: Sequence[Row]) -> Iterator[Change]:
    for row in rows:
        columns = row[_COMMIT_COLUMNS : _COMMIT_COLUMNS + _CHANGE_COLUMNS]
        if columns and columns[0] is not None:
            yield change(*columns)
