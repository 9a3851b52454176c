"""Context versions that sessions have pinned, and critical edits after them."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from weftline.history.blobs import Blobs
from weftline.history.composite_lines import PartVersion
from weftline.history.model import BRANCH_MARK, ChangeKind, Point, trunk_of
from weftline.history.version_lookup import VERSION, version
from weftline.kernel.transaction import BATCH_SIZE, SqlStore, batches, flat_batches
from weftline.state.agent_context.model import pin_holder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.history.lines import LineStore
    from weftline.history.model import Version
    from weftline.kernel.transaction import Transaction


_encode = msgspec.json.Encoder(order="deterministic").encode
_versions = msgspec.json.Decoder(tuple[PartVersion, ...]).decode
_PIN = f"""
INSERT INTO pins (tenant, holder, line_id, seq)
VALUES {", ".join(f"($1, $2, ${place}, ${place + 1})" for place in range(3, 2 * BATCH_SIZE + 3, 2))}
ON CONFLICT DO NOTHING
"""  # noqa: S608 - placeholders
_PARTS = ", ".join(
    f"(CAST($1 AS TEXT), CAST(${place} AS TEXT), CAST(${place + 1} AS BIGINT))"
    for place in range(2, 2 + 2 * BATCH_SIZE, 2)
)
# A loose index scan from key to key: the cost depends on the number of keys, not of versions.
_STATES = f"""
WITH RECURSIVE parts(tenant, line_id, upto) AS (
    -- The last part pads the list: without DISTINCT its keys would be read once for each place.
    SELECT DISTINCT column1, column2, column3 FROM (VALUES {_PARTS}) AS listed),
touched(tenant, line_id, upto, key) AS (
    SELECT parts.tenant, parts.line_id, parts.upto,
        (SELECT MIN(f.key) FROM changes f WHERE f.tenant = parts.tenant AND f.line_id = parts.line_id)
    FROM parts
    UNION ALL
    SELECT touched.tenant, touched.line_id, touched.upto,
        (SELECT MIN(f.key) FROM changes f
        WHERE f.tenant = touched.tenant AND f.line_id = touched.line_id AND f.key > touched.key)
    FROM touched WHERE touched.key IS NOT NULL),
latest(tenant, line_id, key, seq) AS MATERIALIZED (
    SELECT touched.tenant, touched.line_id, touched.key, (SELECT MAX(x.seq) FROM changes x
        WHERE x.tenant = touched.tenant AND x.line_id = touched.line_id AND x.key = touched.key
            AND x.seq <= touched.upto)
    FROM touched WHERE touched.key IS NOT NULL)
SELECT c.line_id, {VERSION} FROM latest
JOIN changes c ON c.tenant = latest.tenant AND c.line_id = latest.line_id AND c.key = latest.key AND c.seq = latest.seq
JOIN commits k ON k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq
"""  # noqa: S608 - placeholders, and our own column names
_FIND = """
SELECT session_id, principal_id, line_id, held_line, version, hash, known, known_hash, pulled_at, shared
FROM context_snapshots WHERE tenant = $1 AND session_id = $2 AND principal_id = $3
"""
_PUT = """
INSERT INTO context_snapshots (tenant, session_id, principal_id, line_id, held_line, version, hash, known,
                               known_hash, pulled_at, shared)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (tenant, session_id, principal_id) DO UPDATE SET
    line_id = excluded.line_id, held_line = excluded.held_line, version = excluded.version,
    hash = excluded.hash, known = excluded.known, known_hash = excluded.known_hash,
    pulled_at = excluded.pulled_at, shared = excluded.shared
"""
_LEARN = """
UPDATE context_snapshots SET known = $1, known_hash = $2
WHERE tenant = $3 AND session_id = $4 AND principal_id = $5 AND line_id = $6 AND known >= 0
"""


# The agent has not seen the version: prompts have it since the first one of the session, but nobody pulled it.
UNSEEN = -1


class PinnedContext(msgspec.Struct, frozen=True):
    """The context version that a session has for an agent, since its last pull or its first prompt; it never changes.

    ``line_id`` is the line that was pulled, ``held_line`` the line of the commit: a branch inherits commits of its
    parent, which remain when the branch is deleted. ``known`` is the latest version that the session has seen: the one
    it pulled, or one that it pushed since; UNSEEN if it never pulled. ``shared`` are the versions of the memory of
    the agent's teams and users, 0 of one without entries; None in snapshots that pinned none.
    """

    session_id: str
    principal_id: str
    line_id: str
    held_line: str
    version: int
    hash: bytes
    known: int
    known_hash: bytes
    pulled_at: int
    shared: tuple[PartVersion, ...] | None = None

    @property
    def held(self) -> Point:
        return Point(self.held_line, self.version, self.hash)

    @property
    def known_point(self) -> Point:
        return Point(self.line_id, self.known, self.known_hash)

    def shared_version(self, root_id: str) -> PartVersion | None:
        """Return the pinned version of the memory of a team or user, by its root; None if there is none."""
        return next((at for at in self.shared or () if trunk_of(at.line) == root_id), None)


_MARK = """
INSERT INTO critical_edits (tenant, line_id, version, author, marked_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
"""
# Lines of one statement; fewer are padded. Most agents are in one team at most.
_LINES_OF_STATEMENT = 3
_NEWER = """
SELECT line_id, version, author, marked_at FROM critical_edits WHERE tenant = $1 AND (
    (line_id = $2 AND version > $3) OR (line_id = $4 AND version > $5) OR (line_id = $6 AND version > $7))
ORDER BY line_id, version
"""


class SnapshotStore(SqlStore):
    """Context versions pinned in sessions, and their values."""

    async def find(self, session_id: str, principal_id: str) -> PinnedContext | None:
        row = await self._tx.one(_FIND, self._tenant, session_id, principal_id)
        if row is None:
            return None
        *values, shared = row
        found = PinnedContext(*values)
        return found if shared is None else msgspec.structs.replace(found, shared=_versions(shared))

    async def put(self, snapshot: PinnedContext, parts: Iterable[PartVersion]) -> None:
        """Pin a version, all its parts and the shared memory for a session, in place of the previous ones."""
        holder = pin_holder(snapshot.session_id, snapshot.principal_id)
        await self._tx.run("DELETE FROM pins WHERE tenant = $1 AND holder = $2", self._tenant, holder)
        points = [(snapshot.held_line, snapshot.version), *((at.line, at.seq) for at in parts)]
        # Pruning keeps the parts that a pinned root refers to.
        points += [(at.line, at.seq) for at in snapshot.shared or () if at.seq > 0]
        for batch in flat_batches(points):
            await self._tx.run(_PIN, self._tenant, holder, *batch)
        *values, shared = msgspec.structs.astuple(snapshot)
        await self._tx.run(_PUT, self._tenant, *values, None if shared is None else _encode(shared).decode())

    async def learn(self, session_id: str, principal_id: str, known: Point) -> None:
        """Update the version that a session knows, if it has pulled the same context."""
        await self._tx.run(_LEARN, known.seq, known.hash, self._tenant, session_id, principal_id, known.line_id)

    async def states(self, parts: Sequence[PartVersion], lines: LineStore) -> Sequence[Sequence[Version]]:
        """Return the entries of each part without values, in few statements."""
        found = {at.line: await lines.state_at(at.line, at.seq, values=False) for at in parts if _is_on_branch(at)}
        for batch in flat_batches([(at.line, at.seq) for at in parts if not _is_on_branch(at)]):
            rows = await self._tx.all(_STATES, self._tenant, *batch)
            for line_id, of_line in groupby(sorted(rows, key=itemgetter(0)), key=itemgetter(0)):
                versions = {row[1]: version(row[1:]) for row in of_line}
                found[line_id] = [each for each in versions.values() if each.change.act is ChangeKind.WRITE]
        return [found.get(at.line, []) for at in parts]

    async def values(self, blob_hashes: Iterable[bytes]) -> Mapping[bytes, str]:
        """Return the texts of values by hash."""
        return await Blobs(self._tx).read(blob_hashes)


def _is_on_branch(at: PartVersion) -> bool:
    """Tell whether a part is on a branch, whose state spans several lines."""
    return BRANCH_MARK in at.line


_ERASE_SNAPSHOTS = """
DELETE FROM pins WHERE tenant = $1 AND holder IN (
    SELECT 'session:' || session_id || ':' || principal_id FROM context_snapshots
    WHERE tenant = $1 AND session_id = $2)
"""


class CriticalEdit(msgspec.Struct, frozen=True):
    """A version of a line that its author marked as critical."""

    line_id: str
    version: int
    author: str
    marked_at: int


class CriticalEditStore(SqlStore):
    """Critical edits of a tenant's lines."""

    async def mark(self, edit: CriticalEdit) -> None:
        """Mark a version; marking it again changes nothing."""
        await self._tx.run(_MARK, self._tenant, edit.line_id, edit.version, edit.author, edit.marked_at)

    async def newer_than(self, versions: Sequence[PartVersion]) -> Sequence[CriticalEdit]:
        """Return the newest critical edit of each line after these versions."""
        newest: dict[str, CriticalEdit] = {}
        for batch in batches([(at.line, at.seq) for at in versions], _LINES_OF_STATEMENT):
            rows = await self._tx.all(_NEWER, self._tenant, *(value for each in batch for value in each))
            newest |= {row[0]: CriticalEdit(*row) for row in rows}
        return [newest[at.line] for at in versions if at.line in newest]


async def erase_snapshots(transaction: Transaction, session_id: str) -> None:
    """Delete the context snapshots of a session and their pins."""
    await transaction.run(_ERASE_SNAPSHOTS, transaction.tenant, session_id)
    await transaction.run(
        "DELETE FROM context_snapshots WHERE tenant = $1 AND session_id = $2", transaction.tenant, session_id
    )
