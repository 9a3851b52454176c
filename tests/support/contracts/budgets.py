"""The contract of BudgetStore."""

from __future__ import annotations

from msgspec import structs

from support.contracts.access import principal
from support.contracts.stores import ContractStores
from weftline.access.teams import Team
from weftline.kernel.clock import DAY_MICROS
from weftline.models.budgets import Budget, BudgetName, BudgetUse, Charge, Spend, period_start

# A day in March 2026.
NOW = 1_772_700_000_000_000
DAY, MONTH = period_start("day", NOW), period_start("month", NOW)


def budget(subject: str, **fields: object) -> Budget:
    made = Budget(subject=subject, period="day", tokens=100, set_by="human:admin", set_at=1)
    return structs.replace(made, **fields)


class BudgetStoreContract:
    """Budgets, whom they bind, and their sums."""

    async def test_budgets_are_set_found_listed_and_deleted(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        daily, monthly = budget("tenant"), budget("tenant", period="month", tokens=None, nanodollars=5, warn_at=0.5)
        for each in (monthly, daily, budget("agent:b"), budget("agent:a")):
            await stores.budgets.set(each)
        assert await stores.budgets.find(monthly.name, NOW) == BudgetUse(monthly, Spend(), MONTH)
        listed = [use.budget.name for use in await stores.budgets.page(NOW, None, 10)]
        assert [(name.subject, name.period) for name in listed] == [
            ("agent:a", "day"),
            ("agent:b", "day"),
            ("tenant", "day"),
            ("tenant", "month"),
        ]
        assert [use.budget.name for use in await stores.budgets.page(NOW, listed[1], 1)] == [listed[2]]
        assert await elsewhere.budgets.page(NOW, None, 10) == []
        assert not await elsewhere.budgets.delete(daily.name)
        assert await stores.budgets.delete(daily.name)
        assert not await stores.budgets.delete(daily.name)
        assert await stores.budgets.find(daily.name, NOW) is None

    async def test_sums_belong_to_a_period_and_are_deleted_with_their_budget(self, stores: ContractStores) -> None:
        daily = budget("tenant")
        await stores.budgets.set(daily)
        await stores.budgets.charge(daily.name, DAY, Charge(10, 7, 1, 1))
        assert await stores.budgets.charge(daily.name, DAY, Charge(5, 3, 1)) == Spend(
            tokens=15, nanodollars=10, calls=2, unpriced_calls=1
        )
        assert await stores.budgets.correct(daily.name, DAY, Charge(-4, 1, 0, -1)) == Spend(
            tokens=11, nanodollars=11, calls=2
        )
        assert await stores.budgets.correct(daily.name, DAY - DAY_MICROS, Charge(1, 1)) is None
        found = await stores.budgets.find(daily.name, NOW)
        assert found is not None
        assert found.spend == Spend(tokens=11, nanodollars=11, calls=2)
        await stores.budgets.mark(found._replace(spend=structs.replace(found.spend, near_at=5, exceeded_at=6)))
        told = await stores.budgets.find(daily.name, NOW)
        assert told is not None
        assert (told.spend.near_at, told.spend.exceeded_at) == (5, 6)
        # A changed budget keeps its sums; its warning can be given again.
        await stores.budgets.set(structs.replace(daily, tokens=200))
        changed = await stores.budgets.find(daily.name, NOW)
        assert changed is not None
        assert (changed.budget.tokens, changed.spend) == (200, found.spend)
        tomorrow = await stores.budgets.find(daily.name, NOW + DAY_MICROS)
        assert tomorrow is not None
        assert (tomorrow.spend, tomorrow.starts_at) == (Spend(), DAY + DAY_MICROS)
        await stores.budgets.prune(daily.name, DAY)
        assert await stores.budgets.correct(daily.name, DAY, Charge(0, 0)) is not None
        await stores.budgets.prune(daily.name, DAY + 1)
        assert await stores.budgets.correct(daily.name, DAY, Charge(0, 0)) is None
        await stores.budgets.charge(daily.name, DAY, Charge(10, 7, 1))
        await stores.budgets.delete(daily.name)
        assert await stores.budgets.correct(daily.name, DAY, Charge(0, 0)) is None

    async def test_a_budget_binds_the_tree_below_an_agent_and_below_the_members_of_a_team(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        for each in (principal("top"), principal("middle", "top"), principal("leaf", "middle"), principal("other")):
            await stores.access.add_principal(each)
        for name, member in (("crew", "middle"), ("rest", "other")):
            await stores.teams.add(Team(name, "", "human:admin", 1, 1))
            await stores.teams.add_member(name, member, "human:admin", 1)
        for subject in ("tenant", "team:crew", "team:rest", "agent:top", "agent:middle", "agent:leaf"):
            await stores.budgets.set(budget(subject))
        bound = {
            agent: [use.budget.subject for use in await stores.budgets.binding(agent, NOW)]
            for agent in ("leaf", "middle", "top", "other")
        }
        assert bound == {
            "leaf": ["agent:leaf", "agent:middle", "agent:top", "team:crew", "tenant"],
            "middle": ["agent:middle", "agent:top", "team:crew", "tenant"],
            "top": ["agent:top", "tenant"],
            "other": ["team:rest", "tenant"],
        }
        assert await stores.budgets.covered("agent:top") == ["leaf", "middle", "top"]
        assert await stores.budgets.covered("team:crew") == ["leaf", "middle"]
        assert await stores.budgets.covered("team:none") == []
        assert await elsewhere.budgets.binding("leaf", NOW) == []
        await stores.budgets.charge(BudgetName("agent:leaf", "day"), DAY, Charge(3, 0, 1))
        (own, *_) = await stores.budgets.binding("leaf", NOW)
        assert (own.spend.tokens, own.starts_at) == (3, DAY)

    async def test_shares_have_sums_of_their_own(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        for each in (principal("top"), principal("leaf", "top")):
            await stores.access.add_principal(each)
        daily = budget("tenant", tree_share=0.5, agent_share=0.25)
        await stores.budgets.set(daily)
        found = await stores.budgets.find(daily.name, NOW)
        assert found is not None
        assert found.budget == daily
        assert await stores.budgets.parents("leaf") == {"leaf": "top", "top": None}
        assert await stores.budgets.parents(None) == {"leaf": "top", "top": None}
        tree, agent = (BudgetName("tenant", "day", share) for share in ("tree:top", "agent:leaf"))
        assert await stores.budgets.spend(agent, DAY) == Spend()
        await stores.budgets.charge(daily.name, DAY, Charge(10, 7, 1))
        await stores.budgets.charge(tree, DAY, Charge(9, 0, 1))
        assert await stores.budgets.charge(agent, DAY, Charge(4, 2, 1)) == Spend(tokens=4, nanodollars=2, calls=1)
        assert await stores.budgets.correct(agent, DAY, Charge(1, -1)) == Spend(tokens=5, nanodollars=1, calls=1)
        share = daily.part("agent:leaf")
        assert share is not None
        told = Spend(tokens=5, nanodollars=1, calls=1, near_at=8)
        await stores.budgets.mark(BudgetUse(share, told, DAY))
        assert await stores.budgets.spend(agent, DAY) == told
        assert [*await stores.budgets.shares(daily.name, DAY, 5)] == ["tree:top", "agent:leaf"]
        assert [*await stores.budgets.shares(daily.name, DAY, 1)] == ["tree:top"]
        assert await elsewhere.budgets.shares(daily.name, DAY, 5) == {}
        await stores.budgets.forget_shares(daily.name, "tree:")
        assert [*await stores.budgets.shares(daily.name, DAY, 5)] == ["agent:leaf"]
        await stores.budgets.prune(daily.name, DAY + 1)
        assert await stores.budgets.shares(daily.name, DAY, 5) == {}
