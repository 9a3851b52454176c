"""What agents hold in sessions, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.context.store import Snapshot
from weft.storage.sql.blobs import SqlBlobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.storage.sql.database import Transaction


class SqlSnapshotStore:
    """Snapshots, as rows of one tenant."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant

    async def find(self, session_id: str, principal_id: str) -> Snapshot | None:
        row = await self._tx.one(
            """
            SELECT session_id, principal_id, line_id, version, hash, known, pulled_at FROM context_snapshots
            WHERE tenant = $1 AND session_id = $2 AND principal_id = $3
            """,
            self._tenant,
            session_id,
            principal_id,
        )
        return None if row is None else Snapshot(*row)

    async def put(self, snapshot: Snapshot) -> None:
        await self._tx.run(
            """
            INSERT INTO context_snapshots (tenant, session_id, principal_id, line_id, version, hash, known, pulled_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
            ON CONFLICT (tenant, session_id, principal_id) DO UPDATE SET
                line_id = excluded.line_id, version = excluded.version, hash = excluded.hash, known = excluded.known,
                pulled_at = excluded.pulled_at
            """,
            self._tenant,
            snapshot.session_id,
            snapshot.principal_id,
            snapshot.line_id,
            snapshot.version,
            snapshot.hash,
            snapshot.known,
            snapshot.pulled_at,
        )

    async def learn(self, session_id: str, principal_id: str, line_id: str, known: int) -> None:
        await self._tx.run(
            """
            UPDATE context_snapshots SET known = $1
            WHERE tenant = $2 AND session_id = $3 AND principal_id = $4 AND line_id = $5
            """,
            known,
            self._tenant,
            session_id,
            principal_id,
            line_id,
        )

    async def values(self, blob_hashes: Iterable[bytes]) -> Mapping[bytes, str]:
        return await SqlBlobs(self._tx).read(blob_hashes)


async def erase_snapshots(transaction: Transaction, session_id: str) -> None:
    """Forget what agents held in a session, and let history forget it too."""
    await transaction.run(
        """
        DELETE FROM pins WHERE tenant = $1 AND holder IN (
            SELECT 'session:' || session_id || ':' || principal_id FROM context_snapshots
            WHERE tenant = $1 AND session_id = $2)
        """,
        transaction.tenant,
        session_id,
    )
    await transaction.run(
        "DELETE FROM context_snapshots WHERE tenant = $1 AND session_id = $2", transaction.tenant, session_id
    )
