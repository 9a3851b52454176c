"""The contract of PolicyStore."""

from __future__ import annotations

from support.contracts.stores import ContractStores
from weftline.exchange.transfer.policies import ExportPolicy
from weftline.exchange.transfer.policy_filter import PolicyDefinition

PARTNERS = PolicyDefinition(
    description="für Partner", who=("human:*",), sensitivity="internal", mask=("pii",), content="none"
)


class PolicyStoreContract:
    """Export policies are stored unchanged and found by name."""

    async def test_a_policy_is_returned_unchanged(self, stores: ContractStores) -> None:
        policy = ExportPolicy("partners", PARTNERS, "human:dana", 10)
        await stores.policies.set(policy)
        assert await stores.policies.find("partners") == policy
        assert await stores.policies.find("others") is None

    async def test_setting_a_policy_again_replaces_it(self, stores: ContractStores) -> None:
        await stores.policies.set(ExportPolicy("partners", PARTNERS, "human:dana", 10))
        later = ExportPolicy("partners", PolicyDefinition(), "human:eve", 20)
        await stores.policies.set(later)
        assert await stores.policies.listed() == [later]

    async def test_policies_are_listed_by_name_and_deleted_once(self, stores: ContractStores) -> None:
        for name in ("b", "a", "c"):
            await stores.policies.set(ExportPolicy(name, PARTNERS, "human:dana", 10))
        assert await stores.policies.delete("b")
        assert not await stores.policies.delete("b")
        assert [policy.name for policy in await stores.policies.listed()] == ["a", "c"]

    async def test_policies_belong_to_one_tenant(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.policies.set(ExportPolicy("partners", PARTNERS, "human:dana", 10))
        assert await elsewhere.policies.find("partners") is None
        assert await elsewhere.policies.listed() == []
        assert not await elsewhere.policies.delete("partners")
