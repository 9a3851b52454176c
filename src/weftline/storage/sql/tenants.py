"""Tenants in SQL, and the queries of upkeep across all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.access.model import DEFAULT_TENANT

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction

_OPERATOR_TENANT = "SELECT tenant FROM tenants ORDER BY CASE WHEN tenant = $1 THEN 0 ELSE 1 END, tenant LIMIT 2"

_PROBLEMS = """
SELECT (SELECT COUNT(*) FROM alerts a WHERE a.tenant = t.tenant AND a.state <> 'resolved' AND a.digest_id IS NULL),
       (SELECT COUNT(*) FROM documents d WHERE d.tenant = t.tenant AND d.state = 'failed'),
       (SELECT COUNT(*) FROM webhook_deliveries w WHERE w.tenant = t.tenant AND w.state = 'dead' AND w.seq > 0)
FROM tenants t WHERE t.tenant = $1
"""


class ProblemCounts(NamedTuple):
    """What needs attention in a tenant: active alerts, documents that failed, deliveries that were given up."""

    active_alerts: int = 0
    failed_documents: int = 0
    dead_deliveries: int = 0


async def add_tenant(transaction: Transaction, tenant: str, now: int) -> bool:
    """Add a tenant; False if the name is in use."""
    row = await transaction.one(
        "INSERT INTO tenants (tenant, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1", tenant, now
    )
    return row is not None


async def tenant_names(transaction: Transaction) -> list[str]:
    return [row[0] for row in await transaction.all("SELECT tenant FROM tenants ORDER BY tenant")]


async def problem_counts(transaction: Transaction) -> ProblemCounts:
    row = await transaction.one(_PROBLEMS, transaction.tenant)
    return ProblemCounts() if row is None else ProblemCounts(*map(int, row))


async def operator_tenant(transaction: Transaction) -> str | None:
    """Return the tenant whose audit log has calls that name no tenant: the default one, or the only one."""
    rows = await transaction.all(_OPERATOR_TENANT, DEFAULT_TENANT)
    names = [row[0] for row in rows]
    return names[0] if len(names) == 1 or DEFAULT_TENANT in names else None


async def tenants_to_sweep(transaction: Transaction) -> list[str]:
    """Return the tenants with values that may be unreferenced."""
    return [row[0] for row in await transaction.all("SELECT DISTINCT tenant FROM doubtful_blobs")]


async def tenants_to_expire(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants with expired keys."""
    rows = await transaction.all("SELECT DISTINCT tenant FROM lines WHERE next_expiry_at <= $1", now)
    return [row[0] for row in rows]


async def lines_to_expire(transaction: Transaction, now: int, limit: int) -> list[str]:
    """Return the lines of a tenant with expired keys, longest overdue first."""
    rows = await transaction.all(
        "SELECT line_id FROM lines WHERE tenant = $1 AND next_expiry_at <= $2 ORDER BY next_expiry_at LIMIT $3",
        transaction.tenant,
        now,
        limit,
    )
    return [row[0] for row in rows]
