"""Contract of MetricHistoryStore, which works in the whole installation."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from weftline.insight.metrics import MetricBucket, MetricRow, MetricTotals

if TYPE_CHECKING:
    from support.contracts.stores import ContractStores


def row(tenant: str, start: int, first_at: int, **totals: int) -> MetricRow:
    return MetricRow(tenant, MetricBucket(start, first_at, MetricTotals(**totals, seconds=0.25)))


class MetricHistoryStoreContract:
    """Sums over processes, and deletes what is too old."""

    async def test_counts_of_processes_are_added_up(self, stores: ContractStores) -> None:
        one, other = secrets.token_hex(4), secrets.token_hex(4)
        history = stores.metric_history
        await history.add("a", [row(one, 300, 310, calls=2, errors=1), row(other, 300, 310, calls=9)])
        await history.add("a", [row(one, 300, 340, calls=3)])
        await history.add("b", [row(one, 300, 305, calls=5), row(one, 600, 600, calls=7)])
        assert await history.since(one, 300) == [
            MetricBucket(300, 305, MetricTotals(calls=10, errors=1, seconds=0.75)),
            MetricBucket(600, 600, MetricTotals(calls=7, seconds=0.25)),
        ]
        assert [each.start for each in await history.since(one, 301)] == [600]
        assert [each.totals.calls for each in await history.since(other, 0)] == [9]

    async def test_old_intervals_are_deleted(self, stores: ContractStores) -> None:
        tenant = secrets.token_hex(4)
        await stores.metric_history.add("a", [row(tenant, start, start, calls=1) for start in (300, 600, 900)])
        await stores.metric_history.forget_before(600)
        assert [each.start for each in await stores.metric_history.since(tenant, 0)] == [600, 900]
