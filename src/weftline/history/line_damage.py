"""Verification of a line: recomputes all hashes, a page of commits at a time."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.history.line_kinds import is_main_board, is_signed, session_of
from weftline.history.line_signatures import LineSignatures
from weftline.history.model import EMPTY, ChangeKind, ChangeMeta, Damage, Tag, trunk_of
from weftline.history.version_lookup import ALL_KEYS, CHANGE, COMMIT, by_commit, decode_meta, recorded
from weftline.kernel.packed_text import unpack
from weftline.kernel.patterns import decode_patterns
from weftline.safety.trust.model import decode_label

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from weftline.history.model import Change, StoredCommit
    from weftline.kernel.transaction import Row, Transaction

_PAGE_SIZE = 500
_LINE = """
SELECT seq, head, weight, step, trunk, base_line, base_seq FROM lines WHERE tenant = $1 AND line_id = $2
"""
# What was written, not what is shown of a redacted version.
_WRITTEN_COMMIT = COMMIT.replace("k.reason", "COALESCE(k.sealed_reason, k.reason)")
_WRITTEN_CHANGE = CHANGE.replace("c.blob_hash", "COALESCE(c.sealed_hash, c.blob_hash)").replace(
    "c.meta", "COALESCE(c.sealed_meta, c.meta)"
)
_PAGE = f"""
WITH page AS MATERIALIZED (
    SELECT n.seq FROM commits n WHERE n.tenant = $1 AND n.line_id = $2 AND n.seq > $3 AND n.seq <= $4)
SELECT {_WRITTEN_COMMIT}, {_WRITTEN_CHANGE}, c.pruned, b.content, k.weight FROM page
JOIN commits k ON k.tenant = $1 AND k.line_id = $2 AND k.seq = page.seq
LEFT JOIN changes c ON c.tenant = $1 AND c.line_id = $2 AND c.seq = page.seq
LEFT JOIN blobs b ON b.tenant = $1 AND b.hash = COALESCE(c.sealed_hash, c.blob_hash)
ORDER BY k.seq, c.key
"""  # noqa: S608 - our own column names
_BASE = """
SELECT k.hash, k.weight, l.base_line FROM lines l
LEFT JOIN commits k ON k.tenant = l.tenant AND k.line_id = l.line_id AND k.seq = $1
WHERE l.tenant = $2 AND l.line_id = $3
"""
_TAGS = "SELECT label, seq, created_by, created_at, automatic, hash FROM tags WHERE tenant = $1 AND line_id = $2"
# Only replaced values may be pruned.
_CURRENT_BUT_PRUNED = """
SELECT c.key, c.seq FROM changes c
WHERE c.tenant = $1 AND c.line_id = $2 AND c.pruned <> 0 AND c.act = 'write' AND NOT EXISTS (
    SELECT 1 FROM changes f WHERE f.tenant = $1 AND f.line_id = $2 AND f.key = c.key AND f.seq > c.seq)
LIMIT 1
"""
# Values of a tagged version are never pruned: they were current when it was tagged, and are protected since.
_TAGGED_BUT_PRUNED = f"""
{ALL_KEYS}
SELECT c.key FROM touched
JOIN changes c ON c.tenant = $1 AND c.line_id = $2 AND c.key = touched.key AND c.seq = (
    SELECT MAX(x.seq) FROM changes x
    WHERE x.tenant = $1 AND x.line_id = $2 AND x.key = touched.key AND x.seq <= $3)
WHERE c.pruned <> 0 AND c.act = 'write' LIMIT 1
"""  # noqa: S608 - our own SQL
# The materialised entries of a board must match its history.
_ENTRIES = """
SELECT e.key, e.incarnation, e.version, e.blob_hash, e.tokens, e.expires_at, e.readable_by, e.writable_by, e.trust,
       e.media_type, c.incarnation, c.version, c.blob_hash, c.meta, c.act
FROM entries e LEFT JOIN changes c ON c.tenant = e.tenant AND c.line_id = $1 AND c.key = e.key AND c.seq = (
    SELECT MAX(x.seq) FROM changes x WHERE x.tenant = $2 AND x.line_id = $1 AND x.key = e.key)
WHERE e.tenant = $2 AND e.session_id = $3
"""
_LIVE_KEYS = """
SELECT COUNT(*) FROM changes c WHERE c.tenant = $1 AND c.line_id = $2 AND c.act = 'write' AND NOT EXISTS (
    SELECT 1 FROM changes f WHERE f.tenant = $1 AND f.line_id = $2 AND f.key = c.key AND f.seq > c.seq)
"""
_UNREADABLE_TEXT = "a stored text cannot be decoded"
_KEY, _VERSION, _HASH, _PRUNED, _CONTENT, _WEIGHT = 12, 14, 16, 18, 19, 20


class _Damaged(Exception):
    """An integrity error. ``kind`` contains no key names."""

    def __init__(self, detail: str, kind: str | None = None) -> None:
        super().__init__(detail)
        self.kind = kind or detail


class _Reached(NamedTuple):
    """Expected head after the commits so far; the weight is None if a commit did not store it."""

    seq: int
    hash: bytes
    weight: int | None
    step: str | None


async def find_damage(
    transaction: Transaction, line_id: str, signing_secret: bytes = b"", *, signed: bool = True
) -> Damage | None:
    """Return the first integrity error in a line's own commits, values, tags or signatures."""
    try:
        await _check(transaction, line_id)
        if signed and is_signed(line_id):
            await _check_signatures(transaction, line_id, signing_secret)
    except _Damaged as damage:
        return Damage(str(damage), damage.kind)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return Damage(_UNREADABLE_TEXT, _UNREADABLE_TEXT)
    return None


async def _check(transaction: Transaction, line_id: str) -> None:
    line = await transaction.one(_LINE, transaction.tenant, line_id)
    if line is None:
        return
    seq, head, weight, step, trunk, base_line, base_seq = line
    if trunk != (None if base_line is None else trunk_of(line_id)):
        raise _Damaged("the line is recorded as a branch of another line")
    begin = await _base(transaction, base_line, base_seq)
    last = await _follow(transaction, line_id, begin, seq)
    if (last.seq, last.hash) != (seq, head):
        raise _Damaged("the head is not the last commit")
    if last.weight not in {None, weight}:
        raise _Damaged("the weight differs from that of the last commit")
    if last.step != step:
        raise _Damaged("the step differs from that of the last commit")
    await _check_current_state(transaction, line_id)
    await _check_tags(transaction, line_id)


async def _follow(transaction: Transaction, line_id: str, begin: _Reached, seq: int) -> _Reached:
    """Check all commits after the base and return the expected head."""
    reached = begin
    while reached.seq < seq:
        upto = reached.seq + _PAGE_SIZE
        page = await transaction.all(_PAGE, transaction.tenant, line_id, reached.seq, upto)
        for rows in by_commit(page):
            reached = _checked(rows, reached)
        if not page:
            raise _Damaged(f"commit {reached.seq + 1} is missing")
    return reached


async def _base(transaction: Transaction, line_id: str | None, seq: int | None) -> _Reached:
    """Return the parent of a line's first commit."""
    found = await _commit_at(transaction, line_id, seq or 0)
    return _Reached(seq or 0, EMPTY, 0 if not seq else None, None) if found is None else found


async def _commit_at(transaction: Transaction, line_id: str | None, seq: int) -> _Reached | None:
    """Return a commit of a line or of its base."""
    while line_id is not None and seq:
        row = await transaction.one(_BASE, seq, transaction.tenant, line_id)
        if row is None:
            return None
        if row[0] is not None:
            return _Reached(seq, row[0], row[1], None)
        line_id = row[2]
    return None


async def _check_current_state(transaction: Transaction, line_id: str) -> None:
    row = await transaction.one(_CURRENT_BUT_PRUNED, transaction.tenant, line_id)
    if row is not None:
        raise _Damaged(
            f"the value of '{row[0]}' was pruned though it is current",
            f"a value of version {row[1]} was pruned though it is current",
        )
    if is_main_board(line_id):
        await _check_entries(transaction, line_id)


async def _check_entries(transaction: Transaction, line_id: str) -> None:
    rows = await transaction.all(_ENTRIES, line_id, transaction.tenant, session_of(line_id))
    for key, incarnation, number, value_hash, tokens, expires_at, readable_by, writable_by, *about, meta, act in rows:
        trust, media_type, *of_change = about
        acls = (_patterns(readable_by), _patterns(writable_by))
        kept = ChangeMeta(tokens, expires_at, *acls, media_type=media_type, trust=decode_label(trust))
        if act != ChangeKind.WRITE or of_change != [incarnation, number, value_hash] or decode_meta(meta) != kept:
            raise _Damaged(f"the entry '{key}' differs from its history", "an entry differs from its history")
    live = await transaction.one(_LIVE_KEYS, transaction.tenant, line_id)
    if live is not None and live[0] != len(rows):
        raise _Damaged("an entry is missing that history has")


class UnsignedVersion(NamedTuple):
    """A version of a layer or definition without a valid signature, and the state that it has."""

    seq: int
    hash: bytes
    state: list[Change]


async def _check_signatures(transaction: Transaction, line_id: str, signing_secret: bytes) -> None:
    async for version in unsigned_versions(transaction, line_id, signing_secret):
        raise _Damaged(f"version {version.seq} has no valid signature")


async def unsigned_versions(
    transaction: Transaction, line_id: str, signing_secret: bytes
) -> AsyncIterator[UnsignedVersion]:
    """Yield the versions of a layer or definition that have no valid signature."""
    signatures = LineSignatures(transaction, signing_secret)
    state: dict[str, Change] = {}
    after = 0
    while page := await transaction.all(_PAGE, transaction.tenant, line_id, after, after + _PAGE_SIZE):
        for rows in by_commit(page):
            stored = recorded(rows)
            after = stored.commit.seq
            state |= {change.key: change for change in stored.commit.changes}
            live = [change for change in state.values() if change.act is ChangeKind.WRITE]
            if not await signatures.is_valid(line_id, after, stored.hash, live):
                yield UnsignedVersion(after, stored.hash, live)


def _patterns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else decode_patterns(text)


async def _check_tags(transaction: Transaction, line_id: str) -> None:
    for label, seq, created_by, created_at, automatic, seal in await transaction.all(
        _TAGS, transaction.tenant, line_id
    ):
        named = await _commit_at(transaction, line_id, seq)
        tag = Tag(label, seq, created_by, created_at, automatic=bool(automatic))
        # Tags of earlier versions of Weftline have no seal: a hash of all their fields.
        if seal is not None and tag.seal(EMPTY if named is None else named.hash) != seal:
            raise _Damaged(
                f"the snapshot '{label}' differs from what was recorded",
                f"a snapshot of version {seq} differs from what was recorded",
            )
        gone = await transaction.one(_TAGGED_BUT_PRUNED, transaction.tenant, line_id, seq)
        if gone is not None:
            raise _Damaged(
                f"the value of '{gone[0]}' was pruned though the snapshot '{label}' has it",
                f"a value was pruned though a snapshot of version {seq} has it",
            )


def _checked(rows: Sequence[Row], before: _Reached) -> _Reached:
    expected = before.seq + 1
    record = _record(rows, expected)
    if record.commit.seq != expected:
        raise _Damaged(f"commit {expected} is missing")
    for row in rows:
        if _is_damaged(row[_HASH], row[_PRUNED], row[_CONTENT]):
            raise _Damaged(
                f"the value of '{row[_KEY]}' version {row[_VERSION]} is not what was written",
                f"a value of version {expected} is not what was written",
            )
    merged, weight = record.commit.merged, rows[0][_WEIGHT]
    parents = (before.hash,) if merged is None else (before.hash, merged.hash)
    if record.commit.hash_after(*parents, weight=weight) != record.hash:
        raise _Damaged(f"commit {expected} is not what was written")
    return _Reached(expected, record.hash, weight, record.commit.step or before.step)


def _record(rows: Sequence[Row], expected: int) -> StoredCommit:
    try:
        return recorded(rows)
    except (msgspec.MsgspecError, ValueError) as unreadable:
        raise _Damaged(f"commit {expected} is not what was written") from unreadable


def _is_damaged(blob_hash: bytes | None, pruned: int | None, content: bytes | None) -> bool:
    if blob_hash is None or pruned:
        return False
    return content is None or hashlib.sha256(unpack(content)).digest() != blob_hash
