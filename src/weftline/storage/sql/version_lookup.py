"""Bulk lookup of versions by line, key and commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.history.store import ChangeRef
from weftline.kernel.transaction import BATCH_SIZE, flat_batches
from weftline.storage.sql.history_rows import VERSION, version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.history.model import Version
    from weftline.kernel.transaction import Transaction

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
