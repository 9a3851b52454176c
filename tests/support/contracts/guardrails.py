"""The contract of HitStore."""

from __future__ import annotations

from support.contracts.stores import ContractStores
from weftline.safety.guardrails.model import HitCount, RuleKey

KEY = RuleKey("tenant", "no-delete", "a1")
OTHER = RuleKey("team:é", "no-delete", "a1")


class HitStoreContract:
    """Hits are added to the counts of a rule as it is written."""

    async def test_hits_add_up_since_the_first(self, stores: ContractStores) -> None:
        await stores.hits.add([HitCount(KEY, 2, 1, 10, 20)])
        await stores.hits.add([HitCount(KEY, 3, 0, 30, 40), HitCount(OTHER, 1, 1, 30, 30)])
        assert await stores.hits.counts(["tenant"]) == [HitCount(KEY, 5, 1, 10, 40)]
        assert await stores.hits.counts(["team:é", "agent:x"]) == [HitCount(OTHER, 1, 1, 30, 30)]

    async def test_counts_of_rules_that_are_gone_are_removed(self, stores: ContractStores) -> None:
        changed = KEY._replace(digest="b2")
        await stores.hits.add([HitCount(each, 1, 0, 10, 10) for each in (KEY, changed, OTHER)])
        await stores.hits.remove_others("tenant", ["b2"])
        assert [each.key for each in await stores.hits.counts(["tenant", "team:é"])] == [changed, OTHER]

    async def test_hits_belong_to_one_tenant(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.hits.add([HitCount(KEY, 1, 0, 10, 10)])
        await elsewhere.hits.remove_others("tenant", [])
        assert await elsewhere.hits.counts(["tenant"]) == []
        assert len(await stores.hits.counts(["tenant"])) == 1
