"""The contract of InboxStore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.contracts.messages import fill, message

if TYPE_CHECKING:
    from support.contracts.stores import ContractStores


async def deliver(stores: ContractStores, *senders: str) -> None:
    """Send one message to bob from each of these senders."""
    sent = [message(n, sender=sender, recipient_id="bob") for n, sender in enumerate(senders, 1)]
    await fill(stores, *sent)
    for each in sent:
        await stores.inbox.add("s1", each)


async def unread(stores: ContractStores) -> list[tuple[int, int]]:
    return [(each.message_id, each.missed) for each in await stores.inbox.unread("bob")]


class InboxStoreContract:
    """Unread messages of a recipient, until they are acknowledged."""

    async def test_messages_are_unread_until_acknowledged(self, stores: ContractStores) -> None:
        await deliver(stores, "ada", "eve", "ada")
        assert await unread(stores) == [(1, 0), (2, 0), (3, 0)]
        assert await stores.inbox.unread("ada") == []
        assert await stores.inbox.acknowledge("ada", [("s1", 2)]) == 0
        assert await stores.inbox.acknowledge("bob", [("s1", 2), ("s1", 2), ("s2", 1), ("s1", 9)]) == 1
        assert await unread(stores) == [(1, 0), (3, 0)]
        assert await stores.inbox.size("bob") == 2

    async def test_the_longest_queue_drops_its_oldest_message_and_counts_it(self, stores: ContractStores) -> None:
        await deliver(stores, "ada", "eve", "eve", "ada", "eve")
        await stores.inbox.drop_from_longest_queue("bob")
        assert await unread(stores) == [(1, 0), (3, 1), (4, 0), (5, 0)]
        for _ in range(9):
            await stores.inbox.drop_from_longest_queue("bob")
        assert await unread(stores) == [(4, 1), (5, 2)]

    async def test_unread_messages_are_deleted_with_their_session(self, stores: ContractStores) -> None:
        await deliver(stores, "ada")
        await stores.sessions.erase("s1")
        assert await stores.inbox.size("bob") == 0
