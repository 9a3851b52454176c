"""Lines, with their commits, changes, tags and pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.history.blobs import Blobs
from weftline.history.erasure import check_line_is_gone, defer_line
from weftline.history.line_damage import find_damage
from weftline.history.line_kinds import has_acls, is_signed
from weftline.history.line_signatures import (
    LineSignatures,
    check_edit,
    check_may_branch,
    check_not_signed,
    tampered_base,
)
from weftline.history.model import (
    BRANCH_MARK,
    EMPTY,
    LATEST,
    ChangeKind,
    CommitRange,
    Head,
    KeyNumber,
    Line,
    Tag,
    branch_of,
    trunk_of,
)
from weftline.history.signed_lists import SignedLists
from weftline.history.sql import add_derivations, erase_reviews, note_branch_gone
from weftline.history.store import Pin
from weftline.history.value_pruning import (
    copied_keys,
    delete_automatic_tags,
    originals,
    prune_batch,
    prune_key,
    seal,
    seals,
    unseal,
)
from weftline.history.version_lookup import (
    ALL_KEYS,
    CHANGE,
    COMMIT,
    VERSION,
    by_commit,
    recorded,
    version,
    versions_at,
    versions_numbered,
    versions_of,
)
from weftline.kernel.packed_text import unpack
from weftline.kernel.transaction import BATCH_SIZE, batches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from weftline.history.line_kinds import EditProof
    from weftline.history.model import Change, ChangeMeta, Commit, Damage, Point, StoredCommit, Version
    from weftline.history.store import ChangeRef, Limits, OriginalVersion, PruneCursor, Pruned
    from weftline.kernel.transaction import Row, Transaction, Value

_HEAD = "SELECT line_id, seq, head, weight, next_expiry_at, step FROM lines WHERE tenant = $1 AND line_id = $2 "
_LINE_COLUMNS = ("line_id", "seq", "head", "weight", "next_expiry_at", "step", "trunk", "base_line", "base_seq")
_LINE = f"SELECT {', '.join(_LINE_COLUMNS)} FROM lines "  # noqa: S608 - our own column names
_HEAD_COLUMNS = 6
_HEADS = """
SELECT line_id, seq, head, weight, next_expiry_at, step FROM lines
WHERE tenant = $1 AND line_id {among_texts}$2{end_among_texts}
"""
_ROOTS_PAGE = 200
# Compared by text, not as a range: the order of a database need not be that of bytes.
_BEGINNING_WITH = """
SELECT line_id FROM lines WHERE tenant = $1 AND line_id > $2 AND SUBSTR(line_id, 1, $3) = $4 ORDER BY line_id LIMIT $5
"""
_JOINED = """
FROM changes c
JOIN commits k ON k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq
LEFT JOIN blobs b ON b.tenant = c.tenant AND b.hash = c.blob_hash AND c.pruned = 0
"""
_VERSION = f"SELECT {VERSION}, b.content {_JOINED}"
_TOUCHED_KEYS = """
WITH touched(key) AS (
    SELECT DISTINCT f.key FROM changes f WHERE f.tenant = $1 AND f.line_id = $2 AND f.seq > $3 AND f.seq <= $4)
"""


def _last_changes(keys: str, line: str, upto: str, *, values: bool) -> str:
    """Return the query for the last change of each key up to a commit, with or without values."""
    joined = "LEFT JOIN blobs b ON b.tenant = c.tenant AND b.hash = c.blob_hash AND c.pruned = 0" if values else ""
    # Materialized: otherwise PostgreSQL may scan the whole history of a key to find its last change.
    return f"""
    {keys}, latest(key, seq) AS MATERIALIZED (
        SELECT touched.key, (SELECT MAX(x.seq) FROM changes x
            WHERE x.tenant = $1 AND x.line_id = {line} AND x.key = touched.key AND x.seq <= {upto}) FROM touched)
    SELECT {VERSION}{", b.content" if values else ""} FROM latest
    JOIN changes c ON c.tenant = $1 AND c.line_id = {line} AND c.key = latest.key AND c.seq = latest.seq
    JOIN commits k ON k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq {joined}
    """  # noqa: S608 - our own SQL


_STATE = {values: _last_changes(ALL_KEYS, "$2", "$3", values=values) for values in (True, False)}
_STATE_OF_TOUCHED = {values: _last_changes(_TOUCHED_KEYS, "$5", "$6", values=values) for values in (True, False)}


def _listed(first: int) -> str:
    """Return a batch of texts as rows, from ``$first`` on."""
    return ", ".join(f"(CAST(${place} AS TEXT))" for place in range(first, first + BATCH_SIZE))


# SQLite numbers parameters in the order they appear in, so the tenant comes first.
_NAMED_KEYS = f"""
WITH reader(tenant) AS (SELECT CAST($1 AS TEXT)),
touched(key) AS (SELECT DISTINCT column1 FROM (VALUES {_listed(2)}) AS listed)
"""  # noqa: S608 - our own SQL
_STATE_OF_KEYS = _last_changes(_NAMED_KEYS, f"${2 + BATCH_SIZE}", f"${3 + BATCH_SIZE}", values=False)
_COMMIT = f"""
SELECT {COMMIT}, {CHANGE} FROM commits k
LEFT JOIN changes c ON c.tenant = k.tenant AND c.line_id = k.line_id AND c.seq = k.seq
"""  # noqa: S608 - our own column names
_ONE_COMMIT = _COMMIT + "WHERE k.tenant = $1 AND k.line_id = $2 AND k.seq = $3 ORDER BY c.key"
# The page is materialized first: without statistics PostgreSQL would recompute it for every commit.
_OF_PAGE = f"""
SELECT {COMMIT}, {CHANGE} FROM page
JOIN commits k ON k.tenant = $1 AND k.line_id = $2 AND k.seq = page.seq
LEFT JOIN changes c ON c.tenant = $1 AND c.line_id = $2 AND c.seq = page.seq
ORDER BY k.seq DESC, c.key
"""  # noqa: S608 - our own column names
_LOG = f"""
WITH page AS MATERIALIZED (
    SELECT n.seq FROM commits n WHERE n.tenant = $1 AND n.line_id = $2 AND n.seq > $3 AND n.seq <= $4
    ORDER BY n.seq DESC LIMIT $5)
{_OF_PAGE}
"""  # noqa: S608 - our own SQL
_LOG_OF_KEY = f"""
WITH page AS MATERIALIZED (
    SELECT n.seq FROM changes n WHERE n.tenant = $1 AND n.line_id = $2 AND n.seq > $3 AND n.seq <= $4 AND n.key = $5
    ORDER BY n.seq DESC LIMIT $6)
{_OF_PAGE}
"""  # noqa: S608 - our own SQL
# Two queries: without statistics PostgreSQL would join every change with every commit.
_CHANGES_AFTER = f"""
SELECT {CHANGE}, c.seq, b.content FROM changes c
LEFT JOIN blobs b ON b.tenant = c.tenant AND b.hash = c.blob_hash AND c.pruned = 0
WHERE c.tenant = $1 AND c.line_id = $2 AND c.seq > $3 AND c.seq <= (
    SELECT MAX(page.seq) FROM (SELECT n.seq FROM changes n WHERE n.tenant = $1 AND n.line_id = $2 AND n.seq > $3
                               ORDER BY n.seq LIMIT $4) AS page)
ORDER BY c.seq
"""  # noqa: S608 - our own column names
_AUTHORS_AFTER = """
SELECT k.seq, k.salt, k.author, k.committed_at, k.reason, k.step, k.principal_id FROM commits k
WHERE k.tenant = $1 AND k.line_id = $2 AND k.seq > $3 AND k.seq <= $4
"""
_TAG = "SELECT label, seq, created_by, created_at, owner, automatic FROM tags WHERE tenant = $1 AND line_id = $2 "
_POINTERS = """
SELECT DISTINCT b.hash, b.content FROM changes c
JOIN blobs b ON b.tenant = c.tenant AND b.hash = c.blob_hash AND b.object IS NOT NULL
WHERE c.tenant = $1 AND c.line_id = $2 AND c.pruned = 0 AND c.blob_hash > $3
ORDER BY b.hash LIMIT $4
"""
_ADD_COMMIT = """
INSERT INTO commits (tenant, line_id, seq, hash, author, principal_id, committed_at, reason, step, weight,
                     merged_line, merged_seq, merged_hash, salt)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
"""
_ADD_CHANGE = """
INSERT INTO changes (tenant, line_id, key, seq, incarnation, version, act, blob_hash, meta)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_HASH_DIGITS = 64
_encode = msgspec.json.Encoder().encode
_BRANCH = """
INSERT INTO lines (tenant, line_id, seq, head, weight, next_expiry_at, trunk, base_line, base_seq)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $3) ON CONFLICT DO NOTHING
"""
_MOVE_HEAD = """
UPDATE lines SET seq = $1, head = $2, weight = $3, next_expiry_at = $4, step = $5
WHERE tenant = $6 AND line_id = $7
"""
_LAST_NUMBER = """
SELECT incarnation, version,
       (SELECT last_version FROM erased_lines WHERE erased_lines.tenant = $1 AND erased_lines.line_id = $2)
FROM changes WHERE tenant = $1 AND line_id = $3 AND key = $4 AND seq <= $5
ORDER BY seq DESC LIMIT 1
"""
_ERASED = "SELECT last_version FROM erased_lines WHERE tenant = $1 AND line_id = $2"
_NOTE_ERASED = """
INSERT INTO erased_lines (tenant, line_id, last_version)
SELECT tenant, line_id, MAX(version) FROM changes WHERE tenant = $1 AND line_id = $2 GROUP BY tenant, line_id
ON CONFLICT (tenant, line_id) DO UPDATE SET last_version =
    CASE WHEN excluded.last_version > erased_lines.last_version THEN excluded.last_version
         ELSE erased_lines.last_version END
"""
_VERSIONS = f"""
{_VERSION}
WHERE c.tenant = $1 AND c.line_id = $2 AND c.key = $3 AND c.incarnation = $4 AND c.seq <= $5
ORDER BY c.seq DESC LIMIT $6
"""
_LATEST = f"""
{_VERSION}
WHERE c.tenant = $1 AND c.line_id = $2 AND c.key = $3 AND c.seq <= $4
ORDER BY c.seq DESC LIMIT 1
"""
_LATEST_IN_LINES = f"""
WITH reader(tenant) AS (SELECT CAST($1 AS TEXT)),
wanted(key) AS (SELECT CAST($2 AS TEXT)),
touched(line_id) AS (SELECT DISTINCT column1 FROM (VALUES {_listed(3)}) AS listed),
latest(line_id, seq) AS MATERIALIZED (
    SELECT touched.line_id, (SELECT MAX(x.seq) FROM changes x
        WHERE x.tenant = $1 AND x.line_id = touched.line_id AND x.key = $2) FROM touched)
SELECT latest.line_id, {VERSION}, b.content FROM latest
JOIN changes c ON c.tenant = $1 AND c.line_id = latest.line_id AND c.key = $2 AND c.seq = latest.seq
JOIN commits k ON k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq
LEFT JOIN blobs b ON b.tenant = c.tenant AND b.hash = c.blob_hash AND c.pruned = 0
"""  # noqa: S608 - our own SQL
_COMMITS_BY_HASH = """
SELECT seq FROM commits
WHERE tenant = $1 AND line_id = $2 AND seq <= $3 AND hash >= $4 AND hash <= $5 AND (salt IS NOT NULL OR $6 = 0)
ORDER BY seq DESC LIMIT 2
"""
_SALT = "SELECT salt FROM commits WHERE tenant = $1 AND line_id = $2 AND seq = $3"
_MERGED_POINTS = """
SELECT k.merged_line, MAX(k.merged_seq) FROM commits k
JOIN commits m ON m.tenant = k.tenant AND m.line_id = k.merged_line AND m.seq = k.merged_seq
              AND m.hash = k.merged_hash
WHERE k.tenant = $1 AND k.line_id = $2 AND k.seq > $3 AND k.seq <= $4 AND k.merged_line IS NOT NULL
GROUP BY k.merged_line
"""
_BLOBS_OF_LINE = """
SELECT blob_hash FROM changes WHERE tenant = $1 AND line_id = $2 AND blob_hash IS NOT NULL
UNION SELECT sealed_hash FROM changes WHERE tenant = $1 AND line_id = $2 AND sealed_hash IS NOT NULL
"""
# Tables with rows that belong to exactly one line; of a large line, the first are left to the background.
_DEFERRED_TABLES = 2
_TABLES_OF_LINES = (
    "changes",
    "commits",
    "tags",
    "pins",
    "switches",
    "line_signatures",
    "derivations",
    "compactions",
    "compaction_views",
    "lines",
)
_PIN = "INSERT INTO pins (tenant, line_id, seq, holder) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
_COMMIT_HASH = "SELECT hash FROM commits WHERE tenant = $1 AND line_id = $2 AND seq = $3"
_ADD_TAG = """
INSERT INTO tags (tenant, line_id, label, seq, created_by, created_at, automatic, hash, owner)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING
"""


class LineStore:
    """Lines with their commits, tags and values.

    A branch is a line that starts from a version of another. Queries on it include the shared ancestry.
    """

    __slots__ = ("_blobs", "_secret", "_tenant", "_tx")

    def __init__(self, transaction: Transaction, signing_secret: bytes = b"") -> None:
        self._tx = transaction
        self._tenant = transaction.tenant
        self._blobs = Blobs(transaction)
        self._secret = signing_secret

    async def create(self, line_id: str) -> None:
        """Create an empty line, if it does not exist."""
        await check_line_is_gone(self._tx, line_id)
        await self._tx.run(
            "INSERT INTO lines (tenant, line_id, seq, head, weight) VALUES ($1, $2, 0, $3, 0) ON CONFLICT DO NOTHING",
            self._tenant,
            line_id,
            EMPTY,
        )

    async def branch(self, line_id: str, base: Point, *, weight: int, next_expiry_at: int | None) -> bool:
        """Create a line that starts from a point of another; False if it exists already. Copies nothing."""
        check_may_branch(line_id)
        await check_line_is_gone(self._tx, line_id)
        # The base is the line that holds the commit, so that pruning that line sees what a branch needs.
        origin = (await self.past(base.line_id, base.seq))[0].line_id
        added = await self._tx.changed(
            _BRANCH, self._tenant, line_id, base.seq, base.hash, weight, next_expiry_at, trunk_of(line_id), origin
        )
        return added > 0

    async def lock(self, line_id: str) -> Head | None:
        """Return the head, and block other writers of this line until the transaction ends."""
        row = await self._tx.one(_HEAD + "{for_update}", self._tenant, line_id)
        return None if row is None else Head(*row)

    async def find(self, line_id: str) -> Line | None:
        if is_signed(line_id):
            # With the list in one statement: in a transaction that writes, the next one may see another's edit.
            row = await self._signed_list.read_with_line(line_id, _LINE_COLUMNS)
        else:
            row = await self._tx.one(_LINE + "WHERE tenant = $1 AND line_id = $2", self._tenant, line_id)
        return None if row is None else _line(row)

    async def heads(self, line_ids: Sequence[str]) -> Mapping[str, Head]:
        """Return the heads of those lines that exist, by line."""
        rows = await self._tx.all(_HEADS, self._tenant, msgspec.json.encode(line_ids).decode())
        return {row[0]: Head(*row) for row in rows}

    async def branches(self, trunk: str) -> Sequence[Line]:
        """Return the branches of a line, including branches of branches."""
        rows = await self._tx.all(_LINE + "WHERE tenant = $1 AND trunk = $2 ORDER BY line_id", self._tenant, trunk)
        return [_line(row) for row in rows]

    async def page(self, after: str, limit: int) -> Sequence[str]:
        """Return the next line ids, in the database's order."""
        rows = await self._tx.all(
            "SELECT line_id FROM lines WHERE tenant = $1 AND line_id > $2 ORDER BY line_id LIMIT $3",
            self._tenant,
            after,
            limit,
        )
        return [row[0] for row in rows]

    async def roots(
        self, prefixes: Sequence[str], after: str, limit: int, *, nested: Sequence[str] = ()
    ) -> Sequence[str]:
        """Return the next lines PREFIX:NAME of these kinds, without branches: by kind, then in the database's order.

        Of ``nested`` kinds also lines with several names, such as PREFIX:NAME:NAME.
        """
        found: list[str] = []
        last = after.partition(":")[0]
        for prefix in sorted(each for each in prefixes if each >= last):
            reached = after if prefix == last else ""
            while len(found) < limit and (page := await self._beginning_with(f"{prefix}:", reached)):
                reached = page[-1]
                whole = (line_id for line_id in page if prefix in nested or line_id.count(":") == 1)
                found += [line_id for line_id in whole if BRANCH_MARK not in line_id]
        return found[:limit]

    async def _beginning_with(self, prefix: str, after: str) -> list[str]:
        rows = await self._tx.all(_BEGINNING_WITH, self._tenant, after, len(prefix), prefix, _ROOTS_PAGE)
        return [row[0] for row in rows]

    async def children(self, line_id: str) -> Sequence[str]:
        """Return the lines that start from this one."""
        rows = await self._tx.all(
            "SELECT line_id FROM lines WHERE tenant = $1 AND base_line = $2 ORDER BY line_id", self._tenant, line_id
        )
        return [row[0] for row in rows]

    async def put_blob(self, blob_hash: bytes, content: str, *, outside: str | None = None) -> None:
        """Store a value under its hash; idempotent. ``outside`` is the object that a pointer refers to."""
        await self._blobs.put(blob_hash, content, outside)

    async def put_blobs(self, contents: Mapping[bytes, str]) -> None:
        await self._blobs.put_all(contents)

    async def append(
        self,
        head: Head,
        commit: Commit,
        *,
        weight: int,
        next_expiry_at: int | None,
        proof: EditProof | None = None,
    ) -> Head:
        """Append a commit after ``head`` and return the new head.

        A line that binds agents needs ``proof``: the edit is checked again, against what is stored, and signed.
        """
        signed = is_signed(commit.line_id)
        if signed:
            await check_edit(self._tx, commit.line_id, commit.author.principal_id, proof)
            await self._signed_list.check_newest(head.line_id, head.seq)
            await self._check_base(head, commit)
        new = self._after(head, commit, weight, next_expiry_at)
        await self._tx.run(_ADD_COMMIT, *self._commit_row(commit, new))
        if len(commit.changes) == 1:
            await self._tx.run(_ADD_CHANGE, *self._change_row(commit, commit.changes[0]))
        else:
            await self._tx.many(_ADD_CHANGE, [self._change_row(commit, change) for change in commit.changes])
        await self._add_derivations([commit])
        await self._move_head(new)
        if signed:
            state = [each.change for each in await self.state_at(new.line_id, new.seq, values=False)]
            await self._signatures.sign(new.line_id, new.seq, new.hash, state, commit.committed_at)
            await self._signed_list.put(new.line_id, new.seq)
        return new

    async def _check_base(self, head: Head, commit: Commit) -> None:
        """Refuse to build on a version that was tampered with, unless nothing of it remains: the new one is signed."""
        state = [each.change for each in await self.state_at(head.line_id, head.seq, values=False)]
        kept = {change.key for change in state} - {change.key for change in commit.changes}
        if kept and not await self.is_signed(head.line_id, head.seq, head.hash, state):
            raise tampered_base(head.line_id, head.seq, kept)

    async def is_signed(self, line_id: str, seq: int, commit_hash: bytes, state: Sequence[Change]) -> bool:
        """Tell whether a version of a line that binds agents is signed with this hash and this state."""
        return await self._signatures.is_valid(line_id, seq, commit_hash, state)

    @property
    def _signatures(self) -> LineSignatures:
        return LineSignatures(self._tx, self._secret)

    @property
    def _signed_list(self) -> SignedLists:
        return SignedLists(self._tx, self._secret)

    async def append_all(self, head: Head, commits: Sequence[tuple[Commit, int]]) -> Head:
        """Append commits, each with the line's weight after it, and return the new head."""
        check_not_signed(head.line_id)
        rows = []
        for commit, weight in commits:
            head = self._after(head, commit, weight, None)
            rows.append(self._commit_row(commit, head))
        await self._tx.many(_ADD_COMMIT, rows)
        changes = [self._change_row(commit, change) for commit, _ in commits for change in commit.changes]
        await self._tx.many(_ADD_CHANGE, changes)
        await self._add_derivations([commit for commit, _ in commits])
        await self._move_head(head)
        return head

    def _after(self, head: Head, commit: Commit, weight: int, next_expiry_at: int | None) -> Head:
        """Return the head of a line after a commit."""
        merged = commit.merged
        parents = (head.hash,) if merged is None else (head.hash, merged.hash)
        commit_hash = commit.hash_after(*parents, weight=weight)
        return Head(commit.line_id, commit.seq, commit_hash, weight, next_expiry_at, commit.step or head.step)

    def _commit_row(self, commit: Commit, new: Head) -> tuple[Value, ...]:
        merged = commit.merged
        return (
            self._tenant,
            commit.line_id,
            commit.seq,
            new.hash,
            commit.author.participant,
            commit.author.principal_id,
            commit.committed_at,
            commit.reason,
            commit.step,
            new.weight,
            *((None, None, None) if merged is None else (merged.line_id, merged.seq, merged.hash)),
            commit.salt,
        )

    def _change_row(self, commit: Commit, change: Change) -> tuple[Value, ...]:
        return (
            self._tenant,
            commit.line_id,
            change.key,
            commit.seq,
            change.incarnation,
            change.version,
            change.act,
            change.blob_hash,
            _encode(change.meta).decode(),
        )

    async def _add_derivations(self, commits: Iterable[Commit]) -> None:
        """Index what entries declare to be derived from."""
        declared = [
            (commit, change)
            for commit in commits
            for change in commit.changes
            if change.meta.trust is not None and change.meta.trust.derived_from
        ]
        for commit, change in declared:
            sources = change.meta.trust.derived_from if change.meta.trust else ()
            await add_derivations(self._tx, f"{commit.line_id}/{change.key}", sources, commit.committed_at)

    async def _move_head(self, new: Head) -> None:
        await self._tx.run(
            _MOVE_HEAD, new.seq, new.hash, new.weight, new.next_expiry_at, new.step, self._tenant, new.line_id
        )

    async def set_next_expiry(self, line_id: str, next_expiry_at: int | None) -> None:
        """Set when the next key of a line expires, without a commit."""
        await self._tx.run(
            "UPDATE lines SET next_expiry_at = $1 WHERE tenant = $2 AND line_id = $3",
            next_expiry_at,
            self._tenant,
            line_id,
        )

    async def last_number(self, line_id: str, key: str) -> KeyNumber:
        """Return the numbers that a key counts on from: of its last change, or of an erased line of the same name."""
        for commits in await self._ancestry(line_id):
            row = await self._tx.one(_LAST_NUMBER, self._tenant, line_id, commits.line_id, key, commits.upto)
            if row is not None:
                incarnation, version, erased = row
                return KeyNumber(incarnation, max(version, erased or 0))
        return await self.before_first(line_id)

    async def before_first(self, line_id: str) -> KeyNumber:
        """Return the numbers that a new key counts on from: not zero if an erased line had the same name."""
        row = await self._tx.one(_ERASED, self._tenant, line_id)
        return KeyNumber() if row is None else KeyNumber(0, row[0])

    async def versions(self, line_id: str, key: str, incarnation: int, limit: int) -> Sequence[Version]:
        """Return the changes of one incarnation of a key, newest first."""
        found: list[Version] = []
        for commits in await self._ancestry(line_id):
            rows = await self._tx.all(
                _VERSIONS, self._tenant, commits.line_id, key, incarnation, commits.upto, limit - len(found)
            )
            found += map(version, rows)
            if len(found) == limit:
                break
        return found

    async def versions_at(self, refs: Sequence[ChangeRef]) -> Mapping[ChangeRef, Version]:
        """Return many changes, of any lines, in few statements."""
        return await versions_at(self._tx, refs)

    async def versions_of(self, commits: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], Sequence[Version]]:
        """Return all changes of commits, given as line and number: by key, without values."""
        return await versions_of(self._tx, commits)

    async def changes_of_version(self, line_id: str, key: str, incarnation: int, version: int) -> Sequence[Version]:
        """Return the changes with a version's number: its write and, if it was deleted, the deletion."""
        found: list[Version] = []
        for commits in await self._ancestry(line_id):
            changes = await versions_numbered(self._tx, commits.line_id, key, incarnation, version)
            found += [change for change in changes if change.seq <= commits.upto]
        return found

    async def changes_after(self, line_id: str, after: int, limit: int) -> Sequence[Version]:
        """Return the next changes of a line itself, oldest first: whole commits, about ``limit`` changes."""
        page = await self._tx.all(_CHANGES_AFTER, self._tenant, line_id, after, limit)
        if not page:
            return []
        rows = await self._tx.all(_AUTHORS_AFTER, self._tenant, line_id, after, page[-1][-2])
        commits = {seq: (salt, author) for seq, salt, *author in rows}
        found = []
        for *of_change, seq, content in page:
            salt, author = commits[seq]
            found.append(structs.replace(version((*of_change, seq, *author, content)), salt=salt))
        return found

    async def past(self, line_id: str, at: int) -> Sequence[CommitRange]:
        """Return the ancestry of commit ``at``, newest first: one range, several for a branch."""
        ranges: list[CommitRange] = []
        while True:
            base = await self._base(line_id) if BRANCH_MARK in line_id else None
            after = base[1] if base else 0
            if after < at or base is None:
                ranges.append(CommitRange(line_id, after, at))
            if base is None:
                return ranges
            line_id, at = base[0], min(at, after)

    async def latest(self, line_id: str, key: str, at: int) -> Version | None:
        """Return a key as of commit ``at``; None if it did not exist then."""
        for commits in await self.past(line_id, at):
            row = await self._tx.one(_LATEST, self._tenant, commits.line_id, key, commits.upto)
            if row is not None:
                found = version(row)
                return found if found.change.act is ChangeKind.WRITE else None
        return None

    async def latest_in_lines(self, line_ids: Sequence[str], key: str) -> Mapping[str, Version]:
        """Return a key as it is now in each line that has it, by line; of lines that are no branches."""
        found: dict[str, Version] = {}
        for batch in batches([*dict.fromkeys(line_ids)]):
            for line_id, *row in await self._tx.all(_LATEST_IN_LINES, self._tenant, key, *batch):
                found[line_id] = version(row)
        return {line_id: each for line_id, each in found.items() if each.change.act is ChangeKind.WRITE}

    async def latest_of_each(self, line_id: str, keys: Sequence[str], at: int) -> Sequence[Version]:
        """Return keys as of commit ``at``, without values and without those that did not exist then."""
        last = await self.last_changes(line_id, keys, at)
        return [found for found in last if found.change.act is ChangeKind.WRITE]

    async def last_changes(self, line_id: str, keys: Sequence[str], at: int) -> Sequence[Version]:
        """Return the last change of each key up to commit ``at``, deletions too, without values."""
        state: dict[str, Version] = {}
        for commits in await self.past(line_id, at):
            for batch in batches([key for key in keys if key not in state]):
                rows = await self._tx.all(_STATE_OF_KEYS, self._tenant, *batch, commits.line_id, commits.upto)
                state |= {row[0]: version(row) for row in rows}
        return [*state.values()]

    async def state_at(
        self, line_id: str, seq: int, touched: Iterable[CommitRange] | None = None, *, values: bool = True
    ) -> Sequence[Version]:
        """Return every key that existed right after commit ``seq``, or those that the ``touched`` commits changed.

        Faster without ``values``.
        """
        state: dict[str, Version] = {}
        sources = None if touched is None else tuple(touched)
        # Newest line first: its change of a key, even a deletion, overrides those of its ancestors.
        for commits in await self.past(line_id, seq):
            for row in await self._last_changes(commits, sources, values=values):
                found = version(row)
                state.setdefault(found.change.key, found)
        return [found for found in state.values() if found.change.act is ChangeKind.WRITE]

    async def log(self, line_id: str, at: int, limit: int, key: str | None = None) -> Sequence[StoredCommit]:
        """Return commits from ``at`` backwards, newest first; only those that changed ``key`` if given."""
        found: list[StoredCommit] = []
        for commits in await self.past(line_id, at):
            which = (self._tenant, commits.line_id, commits.after, commits.upto)
            left = limit - len(found)
            rows = await (
                self._tx.all(_LOG, *which, left) if key is None else self._tx.all(_LOG_OF_KEY, *which, key, left)
            )
            found += map(recorded, by_commit(rows))
            if len(found) == limit:
                break
        return found

    async def commit_at(self, line_id: str, seq: int) -> StoredCommit | None:
        commits = (await self.past(line_id, seq))[0]
        rows = await self._tx.all(_ONE_COMMIT, self._tenant, commits.line_id, seq)
        return recorded(rows) if rows else None

    async def is_salted(self, line_id: str, seq: int) -> bool:
        """Tell whether nothing can be guessed from the hash of a version."""
        commits = (await self.past(line_id, seq))[0]
        row = await self._tx.one(_SALT, self._tenant, commits.line_id, seq)
        return row is None or row[0] is not None

    async def weight_at(self, line_id: str, seq: int) -> int | None:
        """Return the line's weight after a commit; None if it was not stored."""
        if seq == 0:
            return 0
        commits = (await self.past(line_id, seq))[0]
        row = await self._tx.one(
            "SELECT weight FROM commits WHERE tenant = $1 AND line_id = $2 AND seq = $3",
            self._tenant,
            commits.line_id,
            seq,
        )
        return None if row is None else row[0]

    async def commits_by_hash(self, line_id: str, prefix: str) -> Sequence[StoredCommit]:
        """Return the first two commits whose hash starts with these hexadecimal digits.

        On a line with ACLs, commits without salt are not found: a match would confirm a guess of a hidden value.
        """
        lowest, highest = (bytes.fromhex(prefix.ljust(_HASH_DIGITS, digit)) for digit in "0f")
        # Whether a hash without salt exists would confirm a guess of a value that the caller may not read.
        salted_only = int(has_acls(line_id))
        found: list[StoredCommit] = []
        for commits in await self._ancestry(line_id):
            rows = await self._tx.all(
                _COMMITS_BY_HASH, self._tenant, commits.line_id, commits.upto, lowest, highest, salted_only
            )
            for row in rows:
                found += await self.log(commits.line_id, row[0], 1)
        return found[:2]

    async def merged_points(self, line_id: str, after: int, upto: int) -> Sequence[tuple[str, int]]:
        """Return, for each line merged by these commits, up to which version; deleted lines are left out."""
        # A new branch may have the same name: the hash tells them apart.
        rows = await self._tx.all(_MERGED_POINTS, self._tenant, line_id, after, upto)
        return [(row[0], row[1]) for row in rows]

    async def originals(self, line_id: str, key: str) -> Sequence[OriginalVersion]:
        """Return the versions of a key on the line and all its branches, as they were written."""
        return await originals(self._tx, line_id, key)

    async def copied_keys(self, lines: str, key: str, mark: str) -> Sequence[tuple[str, str]]:
        """Return the keys that are this one, or end with it after a mark, on all lines that begin with ``lines``."""
        return await copied_keys(self._tx, lines, key, mark)

    async def seals(self, trunks: Sequence[str]) -> bytes:
        """Return a digest of what redactions show on these lines and all their branches: each one changes it."""
        return await seals(self._tx, trunks)

    async def seal(self, version: OriginalVersion, shown: str, meta: ChangeMeta) -> None:
        """Show every reader another value instead, and no reason; the hash of the commit stays what it is."""
        await seal(self._tx, version, shown, meta)

    async def unseal(self, version: OriginalVersion) -> None:
        """Show again what was written."""
        await unseal(self._tx, version)

    async def prune(self, line_id: str, key: str, keep: int) -> None:
        """Remove a key's values beyond the newest ``keep``, unless pinned; the versions themselves stay.

        Call it every few versions: it handles only the next several.
        """
        await prune_key(self._tx, line_id, key, keep)

    async def prune_batch(self, line_id: str, begin: PruneCursor, limits: Limits) -> Pruned:
        """Remove values beyond the limits among the next several hundred changes."""
        return await prune_batch(self._tx, line_id, begin, limits)

    async def pin(self, line_id: str, seq: int, holder: str) -> None:
        """Protect the state at a version from pruning until its holder unpins it."""
        # Pinned on the line that holds the commit, which may be the base of a branch.
        for commits in (await self.past(line_id, seq))[:1]:
            await self._tx.run(_PIN, self._tenant, commits.line_id, seq, holder)

    async def unpin(self, holder: str) -> None:
        await self._tx.run("DELETE FROM pins WHERE tenant = $1 AND holder = $2", self._tenant, holder)

    async def pinned(self, line_id: str) -> Sequence[Pin]:
        rows = await self._tx.all(
            "SELECT seq, holder FROM pins WHERE tenant = $1 AND line_id = $2 ORDER BY seq, holder",
            self._tenant,
            line_id,
        )
        return [Pin(*row) for row in rows]

    async def tag(self, line_id: str, tag: Tag) -> bool:
        """Add a tag; False if the label is taken."""
        commits = (await self.past(line_id, tag.seq))[0]
        commit = await self._tx.one(_COMMIT_HASH, self._tenant, commits.line_id, tag.seq)
        added = await self._tx.changed(
            _ADD_TAG,
            self._tenant,
            line_id,
            tag.label,
            tag.seq,
            tag.created_by,
            tag.created_at,
            int(tag.automatic),
            tag.seal(EMPTY if commit is None else commit[0]),
            tag.owner,
        )
        return added > 0

    async def delete_automatic_tags(self, line_id: str, limits: Limits) -> None:
        """Delete automatic tags beyond the limits."""
        await delete_automatic_tags(self._tx, line_id, limits)

    async def untag(self, line_id: str, label: str) -> bool:
        """Delete a tag; False if there is none."""
        gone = await self._tx.changed(
            "DELETE FROM tags WHERE tenant = $1 AND line_id = $2 AND label = $3", self._tenant, line_id, label
        )
        return gone > 0

    async def tags(self, line_id: str) -> Sequence[Tag]:
        """Return all tags of a line, oldest first."""
        rows = await self._tx.all(_TAG + "ORDER BY created_at, label", self._tenant, line_id)
        return [_tag(row) for row in rows]

    async def find_tag(self, line_id: str, label: str) -> Tag | None:
        row = await self._tx.one(_TAG + "AND label = $3", self._tenant, line_id, label)
        return None if row is None else _tag(row)

    async def verify(self, line_id: str) -> Damage | None:
        """Recompute every hash; return the first mismatch. Of a branch, only its own commits are checked."""
        return await find_damage(self._tx, line_id, self._secret)

    async def pointers(self, line_id: str, after: bytes, limit: int) -> Sequence[tuple[bytes, str]]:
        """Return the next pointers to values in object storage, by blob hash."""
        rows = await self._tx.all(_POINTERS, self._tenant, line_id, after, limit)
        return [(row[0], unpack(row[1]).decode()) for row in rows]

    async def sweep(self) -> None:
        """Delete unreferenced values that a concurrent transaction still used when they were released."""
        await self._blobs.sweep()

    async def erase(self, line_id: str, sparing: Collection[bytes] = ()) -> None:
        """Delete a line, its reviews and every value only it refers to, except values a commit is about to use."""
        await self._tx.run(_NOTE_ERASED, self._tenant, line_id)
        is_deferred = not sparing and await defer_line(self._tx, line_id)
        rows = [] if is_deferred else await self._tx.all(_BLOBS_OF_LINE, self._tenant, line_id)
        for table in _TABLES_OF_LINES if not is_deferred else _TABLES_OF_LINES[_DEFERRED_TABLES:]:
            await self._tx.run(
                f"DELETE FROM {table} WHERE tenant = $1 AND line_id = $2",  # noqa: S608 - a fixed list of tables
                self._tenant,
                line_id,
            )
        if is_signed(line_id):
            await self._signed_list.put(line_id, None)
        await self._tx.run("DELETE FROM retention WHERE tenant = $1 AND subject = $2", self._tenant, line_id)
        branch = branch_of(line_id)
        if branch is None:
            await erase_reviews(self._tx, line_id)
        else:
            await note_branch_gone(self._tx, trunk_of(line_id), branch)
        await self._blobs.forget(row[0] for row in rows if row[0] not in sparing)

    async def _ancestry(self, line_id: str) -> Sequence[CommitRange]:
        return await self.past(line_id, LATEST)

    async def _base(self, line_id: str) -> tuple[str, int] | None:
        row = await self._tx.one(
            "SELECT base_line, base_seq FROM lines WHERE tenant = $1 AND line_id = $2 AND base_line IS NOT NULL",
            self._tenant,
            line_id,
        )
        return None if row is None else (row[0], row[1])

    async def _last_changes(
        self, commits: CommitRange, sources: tuple[CommitRange, ...] | None, *, values: bool
    ) -> Sequence[Row]:
        """Return the last change of every key within the commits, or of the keys that the sources changed."""
        if sources is None:
            return await self._tx.all(_STATE[values], self._tenant, commits.line_id, commits.upto)
        rows: list[Row] = []
        for source in sources:
            changed_in = (source.line_id, source.after, source.upto)
            rows += await self._tx.all(
                _STATE_OF_TOUCHED[values], self._tenant, *changed_in, commits.line_id, commits.upto
            )
        return rows


def _line(row: Row) -> Line:
    trunk, base_line, base_seq = row[_HEAD_COLUMNS:]
    return Line(Head(*row[:_HEAD_COLUMNS]), trunk, base_line, base_seq or 0)


def _tag(row: Row) -> Tag:
    label, seq, created_by, created_at, owner, automatic = row
    return Tag(label, seq, created_by, created_at, automatic=bool(automatic), owner=owner)
