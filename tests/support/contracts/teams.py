"""The contract of TeamStore, and of the memberships that AccessStore reads."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from support.contracts.access import principal
from support.contracts.stores import ContractStores
from weftline.access.model import Memberships, Principal
from weftline.access.teams import Member, Team
from weftline.kernel.identity import PrincipalKind

RESEARCH, OPS = Team("research", "Finds", "human:admin", 1, 1), Team("ops", "", "human:admin", 2, 2)


def human(principal_id: str) -> Principal:
    return replace(principal(principal_id), kind=PrincipalKind.HUMAN)


async def _fill(stores: ContractStores) -> None:
    for each in (human("ada"), human("bob"), principal("planner", "ada"), principal("helper", "planner")):
        await stores.access.add_principal(each)
    for team in (RESEARCH, OPS):
        assert await stores.teams.add(team)


class TeamStoreContract:
    """Teams and their members; the name of a deleted team stays taken."""

    async def test_teams_are_found_and_listed_with_the_number_of_members(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        await _fill(stores)
        assert await stores.teams.add_member("research", "planner", "human:admin", 3)
        assert await stores.teams.find("research") == structs.replace(RESEARCH, members=1)
        assert await stores.teams.lock("ops") == OPS
        assert await stores.teams.find("none") is None
        assert [team.team for team in await stores.teams.all("", 10)] == ["ops", "research"]
        assert [team.team for team in await stores.teams.all("ops", 1)] == ["research"]
        assert await stores.teams.of_member("planner") == [structs.replace(RESEARCH, members=1)]
        assert await elsewhere.teams.all("", 10) == []
        assert await elsewhere.teams.of_member("planner") == []

    async def test_members_are_added_and_removed_once(self, stores: ContractStores) -> None:
        await _fill(stores)
        assert await stores.teams.add_member("research", "planner", "human:admin", 3)
        assert not await stores.teams.add_member("research", "planner", "human:other", 4)
        assert await stores.teams.add_member("research", "ada", "human:admin", 5)
        assert await stores.teams.members("research") == [
            Member("ada", "human", "human:admin", 5),
            Member("planner", "agent", "human:admin", 3),
        ]
        assert await stores.teams.remove_member("research", "planner")
        assert not await stores.teams.remove_member("research", "planner")
        assert [member.principal_id for member in await stores.teams.members("research")] == ["ada"]

    async def test_the_name_of_a_deleted_team_stays_taken(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        await _fill(stores)
        assert not await stores.teams.add(RESEARCH)
        assert await elsewhere.teams.add(RESEARCH)
        await stores.teams.add_member("research", "planner", "human:admin", 3)
        await stores.teams.describe("research", "Checks", 6)
        assert await stores.teams.find("research") == Team("research", "Checks", "human:admin", 1, 6, 1)
        await stores.teams.delete("research", 7)
        assert await stores.teams.find("research") is None
        assert await stores.teams.members("research") == []
        assert not await stores.teams.add(RESEARCH)
        assert [team.team for team in await stores.teams.all("", 10)] == ["ops"]
        assert await elsewhere.teams.find("research") == RESEARCH

    async def test_an_agent_serves_the_humans_above_it_and_in_its_teams(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        await _fill(stores)
        await _fill(elsewhere)
        helper = principal("helper", "planner")
        below_planner = Memberships(users=frozenset({"ada"}), ancestors=frozenset({"planner", "ada"}), tree="planner")
        assert await stores.access.memberships(helper) == below_planner
        for team, member in (("research", "helper"), ("research", "bob"), ("ops", "bob"), ("ops", "planner")):
            await stores.teams.add_member(team, member, "human:admin", 3)
        assert await stores.access.memberships(helper) == below_planner._replace(
            teams=frozenset({"research"}), users=frozenset({"ada", "bob"})
        )
        # A human reads the user memory of no other human, even in a shared team.
        assert await stores.access.memberships(human("bob")) == Memberships(
            frozenset({"research", "ops"}), frozenset({"bob"})
        )
        assert await elsewhere.access.memberships(helper) == below_planner

    async def test_memberships_of_several_principals_are_read_at_once(self, stores: ContractStores) -> None:
        await _fill(stores)
        await stores.teams.add_member("ops", "helper", "human:admin", 3)
        found = await stores.access.memberships_of(
            [principal("helper", "planner"), human("bob"), principal("planner", "ada")]
        )
        assert found == {
            "helper": Memberships(
                frozenset({"ops"}), frozenset({"ada"}), frozenset({"planner", "ada"}), tree="planner"
            ),
            "bob": Memberships(users=frozenset({"bob"})),
            "planner": Memberships(users=frozenset({"ada"}), ancestors=frozenset({"ada"})),
        }

    async def test_the_tree_of_an_agent_is_named_by_the_topmost_agent_above_it(self, stores: ContractStores) -> None:
        await _fill(stores)
        deep = principal("deep", "helper")
        await stores.access.add_principal(deep)
        found = await stores.access.memberships_of([deep, principal("planner", "ada"), human("ada")])
        assert {each: known.tree for each, known in found.items()} == {"deep": "planner", "planner": None, "ada": None}

    async def test_near_are_those_in_the_tree_with_the_same_parent_and_in_the_teams(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        await _fill(stores)
        for each in (principal("rival"), principal("twin", "planner"), principal("below", "helper")):
            await stores.access.add_principal(each)
        await elsewhere.access.add_principal(principal("stranger", "planner"))

        async def near(principal_id: str, after: str = "", limit: int = 9) -> list[str]:
            return [each.principal_id for each in await stores.access.near(principal_id, after, limit)]

        assert await near("helper") == ["ada", "below", "planner", "twin"]
        assert await near("planner") == ["ada", "below", "helper", "twin"]
        assert await near("rival") == []
        for member in ("helper", "rival"):
            await stores.teams.add_member("ops", member, "human:admin", 3)
        assert await near("rival") == ["helper"]
        assert await near("helper", "below", 2) == ["planner", "rival"]
        await stores.access.update_principal(replace(principal("twin", "planner"), disabled_at=5))
        assert await near("helper") == ["ada", "below", "planner", "rival"]
        active = [each.principal_id for each in await stores.access.active_principals("planner", 9)]
        assert active == ["rival"]
