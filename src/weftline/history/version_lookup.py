"""Bulk lookup of versions by line, key and commit."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from weftline.history.model import Author, Change, ChangeKind, ChangeMeta, Commit, Point, StoredCommit, Version
from weftline.history.store import ChangeRef
from weftline.kernel.packed_text import text_of
from weftline.kernel.transaction import BATCH_SIZE, flat_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.kernel.transaction import Row, Transaction


# Row mappers of history: commits, changes and versions.

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


_BLOBS = "LEFT JOIN blobs b ON b.tenant = c.tenant AND b.hash = c.blob_hash AND c.pruned = 0"


def _places(width: int) -> str:
    """Return parameter rows after the tenant: line, optional key, number."""
    texts = ["CAST(${} AS TEXT)"] * (width - 1)
    row = ", ".join(["CAST($1 AS TEXT)", *texts, "CAST(${} AS BIGINT)"])
    firsts = range(2, 2 + BATCH_SIZE * width, width)
    return ", ".join(f"({row.format(*range(first, first + width))})" for first in firsts)


_AT = f"""
WITH page(tenant, line_id, key, seq) AS (VALUES {_places(3)})
SELECT c.line_id, {VERSION}, b.content FROM page
JOIN changes c ON c.tenant = page.tenant AND c.line_id = page.line_id AND c.key = page.key AND c.seq = page.seq
JOIN commits k ON k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq
{_BLOBS}
"""  # noqa: S608 - placeholders, and our own column names
_OF_COMMITS = f"""
WITH page(tenant, line_id, seq) AS (VALUES {_places(2)})
SELECT c.line_id, {VERSION} FROM page
JOIN changes c ON c.tenant = page.tenant AND c.line_id = page.line_id AND c.seq = page.seq
JOIN commits k ON k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq
"""  # noqa: S608 - placeholders, and our own column names
_NUMBERED = f"""
SELECT {VERSION}, b.content FROM changes c
JOIN commits k ON k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq
{_BLOBS}
WHERE c.tenant = $1 AND c.line_id = $2 AND c.key = $3 AND c.incarnation = $4 AND c.version = $5
ORDER BY c.seq
"""  # noqa: S608 - our own column names


async def versions_at(transaction: Transaction, refs: Sequence[ChangeRef]) -> dict[ChangeRef, Version]:
    """Return changes by line, key and commit, with values."""
    found: dict[ChangeRef, Version] = {}
    for batch in flat_batches(list(dict.fromkeys(refs))):
        for line_id, *rest in await transaction.all(_AT, transaction.tenant, *batch):
            each = version(rest)
            found[ChangeRef(line_id, each.change.key, each.seq)] = each
    return found


async def versions_of(
    transaction: Transaction, commits: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], list[Version]]:
    """Return all changes of commits, by key, without values."""
    found: dict[tuple[str, int], dict[str, Version]] = {}
    for batch in flat_batches(list(dict.fromkeys(commits))):
        for line_id, *rest in await transaction.all(_OF_COMMITS, transaction.tenant, *batch):
            each = version(rest)
            found.setdefault((line_id, each.seq), {})[each.change.key] = each
    return {commit: [by_key[key] for key in sorted(by_key)] for commit, by_key in found.items()}


async def versions_numbered(
    transaction: Transaction, line_id: str, key: str, incarnation: int, number: int
) -> Sequence[Version]:
    """Return the changes with a version's number on one line: its write and its deletion."""
    rows = await transaction.all(_NUMBERED, transaction.tenant, line_id, key, incarnation, number)
    return [version(row) for row in rows]
