"""Health queries of the search index, over all tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.indexing.collections.model import LOCK_ORDER

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction


async def documents_failed(transaction: Transaction) -> int:
    """Return the number of documents that could not be indexed."""
    rows = await transaction.all(
        """
        SELECT (SELECT COUNT(*) FROM documents d
                WHERE d.tenant = domains.tenant AND d.domain = domains.domain AND d.state = 'failed')
        FROM domains
        """
    )
    return sum(row[0] for row in rows)


async def documents_waiting(transaction: Transaction, since: int) -> int:
    """Return the number of documents queued for indexing since before a time."""
    rows = await transaction.all(
        """
        SELECT (SELECT COUNT(*) FROM documents d
                WHERE d.tenant = tenants.tenant AND d.state = 'pending' AND d.queued_at > 0 AND d.queued_at < $1)
        FROM tenants
        """,
        since,
    )
    return sum(row[0] for row in rows)


async def models_of_tenants(transaction: Transaction) -> list[tuple[str, str]]:
    """Return the models that tenants search with or migrate to, with their role."""
    rows = await transaction.all(
        "SELECT DISTINCT model, role FROM tenant_models WHERE role IN ('serving', 'building') ORDER BY model, role"
    )
    return [(row[0], row[1]) for row in rows]


async def miscounted_collections(transaction: Transaction) -> int:
    """Return the number of collections with more or fewer chunks than were written, or with chunks but no state."""
    rows = await transaction.all(
        """
        SELECT collections.chunks, (SELECT COUNT(*) FROM chunks k
                                    WHERE k.tenant = collections.tenant AND k.collection = collections.collection)
        FROM collections
        """
    )
    damaged = sum(int(row[0]) != int(row[1]) for row in rows)
    for collection in LOCK_ORDER:
        without_state = await transaction.all(
            """
            SELECT tenants.tenant FROM tenants
            WHERE EXISTS (SELECT 1 FROM chunks k WHERE k.tenant = tenants.tenant AND k.collection = $1)
              AND NOT EXISTS (SELECT 1 FROM collections
                              WHERE collections.tenant = tenants.tenant AND collections.collection = $1)
            """,
            collection,
        )
        damaged += len(without_state)
    return damaged


async def stalled_model_migrations(transaction: Transaction, since: int) -> int:
    """Return the number of unfinished model migrations that have a problem or started before a time."""
    row = await transaction.one(
        """
        SELECT COUNT(*) FROM model_migrations
        WHERE finished_at IS NULL AND (problem IS NOT NULL OR started_at < $1)
        """,
        since,
    )
    return 0 if row is None else int(row[0])
