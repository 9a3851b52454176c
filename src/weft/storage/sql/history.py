"""Lines, commits, tags and blobs in SQL."""

from __future__ import annotations

import hashlib
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.history.model import EMPTY, Act, Author, Change, ChangeMeta, Commit, Head, Tag, Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.storage.sql.database import Row, Transaction

_VERSION = """
SELECT c.key, c.life, c.version, c.act, c.blob_hash, c.meta, c.seq, k.author, k.committed_at, b.content
FROM changes c
JOIN commits k ON k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq
LEFT JOIN blobs b ON b.tenant = c.tenant AND b.hash = c.blob_hash AND c.pruned = 0
"""
_STANDING_AT = """
WHERE c.tenant = $1 AND c.line_id = $2 AND c.act = 'write' AND (c.key, c.seq) IN (
    SELECT key, MAX(seq) FROM changes WHERE tenant = $1 AND line_id = $2 AND seq <= $3 GROUP BY key)
"""
_meta = msgspec.json.Decoder(ChangeMeta)
_encode = msgspec.json.Encoder().encode
# Old versions are looked for only just behind those that are kept, so that a long history costs no more.
_SWEEP_AT_ONCE = 200
_PRUNE_AT_ONCE = 64


class SqlLineStore:
    """History, as rows of one tenant."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant

    async def create(self, line_id: str) -> None:
        await self._tx.run(
            "INSERT INTO lines (tenant, line_id, seq, head, weight) VALUES ($1, $2, 0, $3, 0)",
            self._tenant,
            line_id,
            EMPTY,
        )

    async def lock(self, line_id: str) -> Head | None:
        row = await self._tx.one(
            """
            SELECT line_id, seq, head, weight, next_expiry_at FROM lines
            WHERE tenant = $1 AND line_id = $2 {for_update}
            """,
            self._tenant,
            line_id,
        )
        return None if row is None else Head(*row)

    async def put_blob(self, blob_hash: bytes, content: str) -> None:
        # The update that changes nothing takes the row's lock, so that nobody forgets the value meanwhile.
        await self._tx.run(
            """
            INSERT INTO blobs (tenant, hash, content) VALUES ($1, $2, $3)
            ON CONFLICT (tenant, hash) DO UPDATE SET hash = excluded.hash
            """,
            self._tenant,
            blob_hash,
            content.encode(),
        )

    async def append(self, head: Head, commit: Commit, *, weight: int, next_expiry_at: int | None) -> Head:
        new = Head(commit.line_id, commit.seq, commit.hash_after(head.hash), weight, next_expiry_at)
        await self._tx.run(
            """
            INSERT INTO commits (tenant, line_id, seq, hash, author, principal_id, committed_at, reason, step)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
            """,
            self._tenant,
            commit.line_id,
            commit.seq,
            new.hash,
            commit.author.participant,
            commit.author.principal_id,
            commit.committed_at,
            commit.reason,
            commit.step,
        )
        for change in commit.changes:
            await self._tx.run(
                """
                INSERT INTO changes (tenant, line_id, key, seq, life, version, act, blob_hash, meta)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
                """,
                self._tenant,
                commit.line_id,
                change.key,
                commit.seq,
                change.life,
                change.version,
                change.act,
                change.blob_hash,
                _encode(change.meta).decode(),
            )
        await self._tx.run(
            "UPDATE lines SET seq = $1, head = $2, weight = $3, next_expiry_at = $4 WHERE tenant = $5 AND line_id = $6",
            new.seq,
            new.hash,
            new.weight,
            new.next_expiry_at,
            self._tenant,
            new.line_id,
        )
        return new

    async def set_next_expiry(self, line_id: str, next_expiry_at: int | None) -> None:
        await self._tx.run(
            "UPDATE lines SET next_expiry_at = $1 WHERE tenant = $2 AND line_id = $3",
            next_expiry_at,
            self._tenant,
            line_id,
        )

    async def last_life(self, line_id: str, key: str) -> int:
        row = await self._tx.one(
            "SELECT life FROM changes WHERE tenant = $1 AND line_id = $2 AND key = $3 ORDER BY seq DESC LIMIT 1",
            self._tenant,
            line_id,
            key,
        )
        return 0 if row is None else int(row[0])

    async def versions(self, line_id: str, key: str, life: int, limit: int) -> Sequence[Version]:
        rows = await self._tx.all(
            _VERSION
            + "WHERE c.tenant = $1 AND c.line_id = $2 AND c.key = $3 AND c.life = $4 ORDER BY c.seq DESC LIMIT $5",
            self._tenant,
            line_id,
            key,
            life,
            limit,
        )
        return [_version(row) for row in rows]

    async def state_at(self, line_id: str, seq: int) -> Sequence[Version]:
        rows = await self._tx.all(_VERSION + _STANDING_AT, self._tenant, line_id, seq)
        return [_version(row) for row in rows]

    async def prune(self, line_id: str, key: str, keep: int) -> None:
        rows = await self._tx.all(
            """
            UPDATE changes SET pruned = 1
            WHERE tenant = $1 AND line_id = $2 AND key = $3 AND pruned = 0 AND act = 'write'
              AND seq IN (SELECT old.seq FROM changes old WHERE old.tenant = $1 AND old.line_id = $2 AND old.key = $3
                            AND old.act = 'write' ORDER BY old.seq DESC LIMIT $4 OFFSET $5)
              AND NOT EXISTS (
                SELECT 1 FROM tags t WHERE t.tenant = changes.tenant AND t.line_id = changes.line_id
                  AND t.seq >= changes.seq AND t.seq < (
                    SELECT MIN(following.seq) FROM changes following
                    WHERE following.tenant = changes.tenant AND following.line_id = changes.line_id
                      AND following.key = changes.key AND following.seq > changes.seq))
            RETURNING blob_hash
            """,
            self._tenant,
            line_id,
            key,
            _PRUNE_AT_ONCE,
            keep,
        )
        await self._forget({row[0] for row in rows})

    async def tag(self, line_id: str, tag: Tag) -> bool:
        row = await self._tx.one(
            """
            INSERT INTO tags (tenant, line_id, label, seq, created_by, created_at) VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT DO NOTHING RETURNING 1
            """,
            self._tenant,
            line_id,
            tag.label,
            tag.seq,
            tag.created_by,
            tag.created_at,
        )
        return row is not None

    async def tags(self, line_id: str) -> Sequence[Tag]:
        rows = await self._tx.all(
            """
            SELECT label, seq, created_by, created_at FROM tags
            WHERE tenant = $1 AND line_id = $2 ORDER BY created_at, label
            """,
            self._tenant,
            line_id,
        )
        return [Tag(*row) for row in rows]

    async def find_tag(self, line_id: str, label: str) -> Tag | None:
        row = await self._tx.one(
            "SELECT label, seq, created_by, created_at FROM tags WHERE tenant = $1 AND line_id = $2 AND label = $3",
            self._tenant,
            line_id,
            label,
        )
        return None if row is None else Tag(*row)

    async def verify(self, line_id: str) -> str | None:
        head = await self._tx.one(
            "SELECT seq, head FROM lines WHERE tenant = $1 AND line_id = $2", self._tenant, line_id
        )
        rows = await self._tx.all(
            """
            SELECT k.seq, k.hash, k.author, k.principal_id, k.committed_at, k.reason, k.step,
                   c.key, c.life, c.version, c.act, c.blob_hash, c.meta, c.pruned, b.content
            FROM commits k
            LEFT JOIN changes c ON c.tenant = k.tenant AND c.line_id = k.line_id AND c.seq = k.seq
            LEFT JOIN blobs b ON b.tenant = k.tenant AND b.hash = c.blob_hash
            WHERE k.tenant = $1 AND k.line_id = $2 ORDER BY k.seq, c.key
            """,
            self._tenant,
            line_id,
        )
        parent, expected = EMPTY, 0
        for seq, group in groupby(rows, key=lambda row: row[0]):
            of_commit, expected = list(group), expected + 1
            if seq != expected:
                return f"commit {expected} is missing"
            damaged = next((row for row in of_commit if _damaged(row[11], row[13], row[14])), None)
            if damaged is not None:
                return f"the value of '{damaged[7]}' version {damaged[9]} is not what was written"
            parent = _commit(line_id, of_commit).hash_after(parent)
            if parent != of_commit[0][1]:
                return f"commit {seq} is not what was written"
        return None if head is None or tuple(head) == (expected, parent) else "the head is not the last commit"

    async def erase(self, line_id: str) -> None:
        rows = await self._tx.all(
            "SELECT DISTINCT blob_hash FROM changes WHERE tenant = $1 AND line_id = $2 AND blob_hash IS NOT NULL",
            self._tenant,
            line_id,
        )
        for table in ("changes", "commits", "tags", "lines"):
            await self._tx.run(
                f"DELETE FROM {table} WHERE tenant = $1 AND line_id = $2",  # noqa: S608 - a fixed list of tables
                self._tenant,
                line_id,
            )
        await self._forget({row[0] for row in rows})

    async def _forget(self, hashes: set[bytes]) -> None:
        """Drop the values that no change refers to any more."""
        for blob_hash in sorted(hashes):
            # Locked first and judged by a statement of its own, which sees what was committed before the lock. Someone
            # may be writing the same value, or forgetting it too: waiting for that here could wait for ever.
            locked = await self._tx.one(
                "SELECT 1 FROM blobs WHERE tenant = $1 AND hash = $2 {for_update_unless_locked}",
                self._tenant,
                blob_hash,
            )
            if locked is None:
                await self._doubt(blob_hash)
                continue
            await self._tx.run(
                """
                DELETE FROM blobs WHERE tenant = $1 AND hash = $2 AND NOT EXISTS (
                    SELECT 1 FROM changes c WHERE c.tenant = $1 AND c.blob_hash = $2 AND c.pruned = 0)
                """,
                self._tenant,
                blob_hash,
            )

    async def _doubt(self, blob_hash: bytes) -> None:
        """Have a value that is there, but in someone else's hands, looked at again later."""
        await self._tx.run(
            """
            INSERT INTO doubtful_blobs (tenant, hash)
            SELECT tenant, hash FROM blobs WHERE tenant = $1 AND hash = $2 ON CONFLICT DO NOTHING
            """,
            self._tenant,
            blob_hash,
        )

    async def sweep(self) -> None:
        rows = await self._tx.all(
            "SELECT hash FROM doubtful_blobs WHERE tenant = $1 ORDER BY hash LIMIT $2 {for_update_unless_locked}",
            self._tenant,
            _SWEEP_AT_ONCE,
        )
        for (blob_hash,) in rows:
            await self._tx.run("DELETE FROM doubtful_blobs WHERE tenant = $1 AND hash = $2", self._tenant, blob_hash)
        await self._forget({row[0] for row in rows})


def _version(row: Row) -> Version:
    key, life, version, act, blob_hash, meta, seq, author, committed_at, content = row
    change = _change(key, life, version, act, blob_hash, meta)
    return Version(change, seq, author, committed_at, None if content is None else content.decode())


def _change(key: str, life: int, version: int, act: str, blob_hash: bytes | None, meta: str) -> Change:
    return Change(key, life, version, Act(act), blob_hash, _meta.decode(meta))


def _commit(line_id: str, rows: list[Row]) -> Commit:
    seq, _, author, principal_id, committed_at, reason, step, *_ = rows[0]
    changes = tuple(_change(*row[7:13]) for row in rows if row[7] is not None)
    return Commit(line_id, seq, Author(author, principal_id), committed_at, reason, step, changes)


def _damaged(blob_hash: bytes | None, pruned: int | None, content: bytes | None) -> bool:
    if blob_hash is None or pruned:
        return False
    return content is None or hashlib.sha256(content).digest() != blob_hash
