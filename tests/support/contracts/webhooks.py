"""The contract of WebhookStore."""

from __future__ import annotations

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.sessions.events.webhooks import Attempt, Delivery, DeliveryCounts, DueDelivery, Webhook

HOOK = Webhook(
    webhook_id="webhook_1",
    url="https://example.com/hook",
    types=("board.*", "context.item.*"),
    session_id="s1",
    description="the dashboard",
    secret="whsec_",
    principal_id="admin",
    created_at=7,
    cursor=5,
)


class WebhookStoreContract:
    """A webhook has one lease at a time; deliveries stay until they succeed."""

    async def test_a_webhook_is_returned_unchanged(self, stores: ContractStores) -> None:
        await stores.webhooks.add(HOOK)
        other = structs.replace(HOOK, webhook_id="webhook_0", types=("*",), session_id=None, created_at=8)
        await stores.webhooks.add(other)
        assert await stores.webhooks.find("webhook_1") == HOOK
        assert await stores.webhooks.find("webhook_2") is None
        assert list(await stores.webhooks.all()) == [HOOK, other]

    async def test_tenants_have_their_own_webhooks(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.webhooks.add(HOOK)
        assert list(await elsewhere.webhooks.all()) == []
        assert not await elsewhere.webhooks.delete("webhook_1")
        assert await elsewhere.webhooks.claim("webhook_1", "me", 10, 20) is None
        assert await stores.webhooks.find("webhook_1") == HOOK

    async def test_a_webhook_has_one_lease_until_it_is_released_or_expires(self, stores: ContractStores) -> None:
        await stores.webhooks.add(HOOK)
        assert await stores.webhooks.claim("webhook_1", "me", 10, 20) == HOOK
        assert await stores.webhooks.claim("webhook_1", "you", 19, 30) is None
        assert await stores.webhooks.claim("webhook_1", "you", 20, 30) == HOOK
        await stores.webhooks.release("webhook_1", "me", 0)
        assert await stores.webhooks.claim("webhook_1", "me", 21, 40) is None
        await stores.webhooks.release("webhook_1", "you", 0)
        assert await stores.webhooks.claim("webhook_1", "me", 22, 40) == HOOK

    async def test_a_paused_or_disabled_webhook_cannot_be_claimed(self, stores: ContractStores) -> None:
        await stores.webhooks.add(HOOK)
        await stores.webhooks.claim("webhook_1", "me", 10, 20)
        await stores.webhooks.release("webhook_1", "me", 50)
        assert await stores.webhooks.claim("webhook_1", "me", 49, 60) is None
        await stores.webhooks.set_state("webhook_1", "disabled", "not wanted")
        assert await stores.webhooks.claim("webhook_1", "me", 50, 60) is None
        found = await stores.webhooks.find("webhook_1")
        assert found == structs.replace(HOOK, state="disabled", reason="not wanted")
        await stores.webhooks.set_state("webhook_1", "enabled", None)
        assert await stores.webhooks.claim("webhook_1", "me", 11, 60) == HOOK

    async def test_due_deliveries_are_in_log_order(self, stores: ContractStores) -> None:
        await stores.webhooks.add(HOOK)
        for seq, due_at in ((9, 10), (6, 20), (7, 10), (8, 30)):
            await stores.webhooks.enqueue("webhook_1", seq, due_at)
        assert list(await stores.webhooks.due("webhook_1", 20, 10)) == [
            DueDelivery(6, 0),
            DueDelivery(7, 0),
            DueDelivery(9, 0),
        ]
        assert list(await stores.webhooks.due("webhook_1", 20, 2)) == [DueDelivery(6, 0), DueDelivery(7, 0)]
        assert await stores.webhooks.counts("webhook_1") == DeliveryCounts(4, 0)

    async def test_a_finished_delivery_is_counted_and_deleted(self, stores: ContractStores) -> None:
        await stores.webhooks.add(HOOK)
        await stores.webhooks.enqueue("webhook_1", 6, 10)
        assert await stores.webhooks.remove("webhook_1", 6)
        assert not await stores.webhooks.remove("webhook_1", 6)
        await stores.webhooks.count_delivered("webhook_1", 1)
        assert await stores.webhooks.find("webhook_1") == structs.replace(HOOK, delivered=1)
        assert await stores.webhooks.counts("webhook_1") == DeliveryCounts(0, 0)

    async def test_a_failed_delivery_is_retried_or_dead_and_can_be_revived(self, stores: ContractStores) -> None:
        await stores.webhooks.add(HOOK)
        for seq in (6, 7, 8):
            await stores.webhooks.enqueue("webhook_1", seq, 10)
        await stores.webhooks.schedule_retry("webhook_1", 6, 1, 40, Attempt(500, "refused"))
        for seq in (7, 8):
            await stores.webhooks.schedule_retry("webhook_1", seq, 9, None, Attempt(error="timeout"))
        assert list(await stores.webhooks.due("webhook_1", 39, 10)) == []
        assert await stores.webhooks.counts("webhook_1") == DeliveryCounts(1, 2)
        late, dead, other = await stores.webhooks.deliveries("webhook_1", None, 0, 10)
        assert late == Delivery(6, "pending", 1, 40, 500, "refused")
        assert dead == Delivery(7, "dead", 9, 10, None, "timeout")
        assert list(await stores.webhooks.deliveries("webhook_1", "dead", 7, 10)) == [other]
        assert list(await stores.webhooks.deliveries("webhook_1", None, 0, 1)) == [late]
        assert await stores.webhooks.revive("webhook_1", [6, 7, 99], 50) == 1
        assert await stores.webhooks.revive("webhook_1", None, 60) == 1
        assert list(await stores.webhooks.due("webhook_1", 60, 10)) == [
            DueDelivery(6, 1),
            DueDelivery(7, 0),
            DueDelivery(8, 0),
        ]

    async def test_a_replayed_delivery_starts_with_no_attempts(self, stores: ContractStores) -> None:
        await stores.webhooks.add(HOOK)
        await stores.webhooks.enqueue("webhook_1", 6, 10)
        await stores.webhooks.schedule_retry("webhook_1", 6, 9, None, Attempt(500, "refused"))
        await stores.webhooks.enqueue("webhook_1", 6, 20)
        assert list(await stores.webhooks.due("webhook_1", 20, 10)) == [DueDelivery(6, 0)]

    async def test_a_cursor_is_set_anywhere_and_rewound_only_back(self, stores: ContractStores) -> None:
        await stores.webhooks.add(HOOK)
        await stores.webhooks.set_cursor("webhook_1", 9)
        await stores.webhooks.rewind("webhook_1", 12)
        assert await stores.webhooks.find("webhook_1") == structs.replace(HOOK, cursor=9)
        await stores.webhooks.rewind("webhook_1", 3)
        assert await stores.webhooks.find("webhook_1") == structs.replace(HOOK, cursor=3)

    async def test_deliveries_are_deleted_with_their_webhook(self, stores: ContractStores) -> None:
        await stores.webhooks.add(HOOK)
        await stores.webhooks.enqueue("webhook_1", 6, 10)
        assert await stores.webhooks.delete("webhook_1")
        assert not await stores.webhooks.delete("webhook_1")
        await stores.webhooks.add(HOOK)
        assert await stores.webhooks.counts("webhook_1") == DeliveryCounts(0, 0)
