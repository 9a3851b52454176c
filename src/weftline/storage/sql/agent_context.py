"""Context snapshots of sessions in SQL."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from weftline.history.blobs import Blobs
from weftline.history.composite_lines import PartVersion
from weftline.history.model import BRANCH_MARK, ChangeKind
from weftline.kernel.transaction import BATCH_SIZE, SqlStore, flat_batches
from weftline.state.agent_context.model import pin_holder
from weftline.state.agent_context.store import PinnedContext
from weftline.storage.sql.history import SqlLineStore
from weftline.storage.sql.version_lookup import VERSION, version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.history.model import Point, Version
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


class SqlSnapshotStore(SqlStore):
    """Context snapshots of one tenant."""

    async def find(self, session_id: str, principal_id: str) -> PinnedContext | None:
        row = await self._tx.one(_FIND, self._tenant, session_id, principal_id)
        if row is None:
            return None
        *values, shared = row
        found = PinnedContext(*values)
        return found if shared is None else msgspec.structs.replace(found, shared=_versions(shared))

    async def put(self, snapshot: PinnedContext, parts: Iterable[PartVersion]) -> None:
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
        await self._tx.run(_LEARN, known.seq, known.hash, self._tenant, session_id, principal_id, known.line_id)

    async def states(self, parts: Sequence[PartVersion]) -> Sequence[Sequence[Version]]:
        found = {
            at.line: await SqlLineStore(self._tx).state_at(at.line, at.seq, values=False)
            for at in parts
            if _is_on_branch(at)
        }
        for batch in flat_batches([(at.line, at.seq) for at in parts if not _is_on_branch(at)]):
            rows = await self._tx.all(_STATES, self._tenant, *batch)
            for line_id, of_line in groupby(sorted(rows, key=itemgetter(0)), key=itemgetter(0)):
                versions = {row[1]: version(row[1:]) for row in of_line}
                found[line_id] = [each for each in versions.values() if each.change.act is ChangeKind.WRITE]
        return [found.get(at.line, []) for at in parts]

    async def values(self, blob_hashes: Iterable[bytes]) -> Mapping[bytes, str]:
        return await Blobs(self._tx).read(blob_hashes)


def _is_on_branch(at: PartVersion) -> bool:
    """Tell whether a part is on a branch, whose state spans several lines."""
    return BRANCH_MARK in at.line


_ERASE_SNAPSHOTS = """
DELETE FROM pins WHERE tenant = $1 AND holder IN (
    SELECT 'session:' || session_id || ':' || principal_id FROM context_snapshots
    WHERE tenant = $1 AND session_id = $2)
"""


async def erase_snapshots(transaction: Transaction, session_id: str) -> None:
    """Delete the context snapshots of a session and their pins."""
    await transaction.run(_ERASE_SNAPSHOTS, transaction.tenant, session_id)
    await transaction.run(
        "DELETE FROM context_snapshots WHERE tenant = $1 AND session_id = $2", transaction.tenant, session_id
    )
